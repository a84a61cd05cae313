"""The node's ledger of allocated resources, and the admission handlers in their order. Pure.

The ledger (N1) counts what was admitted and is not torn down yet, at its allocated size; the API's view is
never asked. The first handler that refuses decides. Source: kubelet 5.1, 5.2; upstream
`pkg/kubelet/lifecycle/predicate.go`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from kubelet.managers.allocation import Allocation, Rejection
from kubelet.managers.resource_managers import ResourceManagers
from kubelet.view import KubeletPod, WorkerKey, is_critical, is_static
from services.api.kinds.node import Taint
from services.api.node_selection import may_go_to
from services.api.podresources import Amounts, pod_requests, qos_class
from services.api.quantity import amount
from services.api.taints import NO_EXECUTE, untolerated_taint

_QOS_RANK = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}
_FIRST = ("pods", "cpu", "memory", "ephemeral-storage")


class NodeFacts(msgspec.Struct, frozen=True):
    """The facts about the node that its own informer knows. `labels` None: the Node is not known."""

    name: str
    labels: dict[str, str] | None
    taints: tuple[Taint, ...] = ()
    os: str = "linux"


class Entry(msgspec.Struct, frozen=True):
    """One admitted pod in the ledger."""

    pod: KubeletPod
    requests: Amounts
    allocation: Allocation


class Ledger:
    """The resources allocated on this node.

    Invariant: `used` is the sum over `entries`, and at most what was allocatable when the last entry was added.
    """

    def __init__(self, allocatable: Mapping[str, str]) -> None:
        self.allocatable: Amounts = {name: amount(name, text) for name, text in allocatable.items()}
        self.entries: dict[WorkerKey, Entry] = {}
        self.used: Amounts = dict.fromkeys(self.allocatable, 0)
        self.reserved: dict[WorkerKey, Amounts] = {}
        """What is reserved for pods in `entries` beyond what they are allocated; no other pod is admitted to it."""
        self._ports: dict[tuple[str, int], dict[str, int]] = {}

    def change_allocatable(self, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        """Replace the machine's old resources by its new ones; resources of device plugins stay."""
        of_plugins = {name: value for name, value in self.allocatable.items() if name not in old}
        self.allocatable = {**{name: amount(name, text) for name, text in new.items()}, **of_plugins}
        self.used = {**dict.fromkeys(self.allocatable, 0), **self.used}

    def advertise(self, old: Iterable[str], new: Mapping[str, str]) -> None:
        """Replace the resources that other clients advertised on the Node (`old`) by the present ones (`new`)."""
        for name in old:
            self.allocatable.pop(name, None)
        self.allocatable |= {name: amount(name, text) for name, text in new.items()}
        self.used = {**dict.fromkeys(self.allocatable, 0), **self.used}

    def needs(self, pod: KubeletPod) -> Amounts:
        """Return the pod's requests of resources that the node knows; other resources are ignored."""
        needs = {name: n for name, n in pod_requests(pod).items() if name in self.allocatable and n > 0}
        needs["pods"] = 1
        return needs

    def add(self, key: WorkerKey, pod: KubeletPod, requests: Amounts, allocation: Allocation) -> None:
        """Count the pod as admitted."""
        assert key not in self.entries, f"{key} is in the ledger already"
        self.entries[key] = Entry(pod, requests, allocation)
        for name, value in requests.items():
            self.used[name] = self.used.get(name, 0) + value
        for port, address in _host_ports(pod):
            held = self._ports.setdefault(port, {})
            held[address] = held.get(address, 0) + 1

    def remove(self, key: WorkerKey) -> Entry | None:
        """Stop counting the pod; return its entry, or None if it had none."""
        entry = self.entries.pop(key, None)
        if entry is None:
            return None
        self.reserved.pop(key, None)
        for name, value in entry.requests.items():
            self.used[name] -= value
        for port, address in _host_ports(entry.pod):
            held = self._ports[port]
            held[address] -= 1
            if not held[address]:
                del held[address]
            if not held:
                del self._ports[port]
        return entry

    def reserve(self, key: WorkerKey, amounts: Amounts) -> None:
        """Set the extra amounts reserved for an admitted pod, in place of the former ones; {} for none."""
        if amounts:
            self.reserved[key] = amounts
        else:
            self.reserved.pop(key, None)

    def taken_amount(self, name: str) -> int:
        """Return how much of a resource is allocated or reserved."""
        reserved = sum(each.get(name, 0) for each in self.reserved.values()) if self.reserved else 0
        return self.used.get(name, 0) + reserved

    def share_of(self, key: WorkerKey) -> Counter[str]:
        """Return what an admitted pod frees when it leaves: its allocation and its reservation."""
        return Counter(self.entries[key].requests) + Counter(self.reserved.get(key, {}))

    def shortages(self, requests: Amounts) -> list[str]:
        """Return the resources that do not suffice for the requests, in the order in which they are reported."""
        used = {name: self.taken_amount(name) for name in requests} if self.reserved else self.used
        order = [*_FIRST, *sorted(name for name in requests if name not in _FIRST)]
        return [
            name
            for name in order
            if name in requests and used.get(name, 0) + requests[name] > self.allocatable.get(name, 0)
        ]

    def has_free_ports(self, pod: KubeletPod) -> bool:
        """Whether no host port of the pod is taken; 0.0.0.0 collides with every address."""
        for port, address in _host_ports(pod):
            held = self._ports.get(port)
            if held and (address == "0.0.0.0" or "0.0.0.0" in held or address in held):
                return False
        return True


def _host_ports(pod: KubeletPod) -> Iterable[tuple[tuple[str, int], str]]:
    for container in pod.spec.containers:
        for port in container.ports:
            host_port = port.host_port or (port.container_port if pod.spec.host_network else 0)
            if host_port:
                yield (port.protocol or "TCP", host_port), port.host_ip or "0.0.0.0"


class Admitted(msgspec.Struct, frozen=True):
    """The pod may run, with these requests counted and this allocation."""

    requests: Amounts
    allocation: Allocation


class PreemptionNeeded(msgspec.Struct, frozen=True):
    """A critical pod fits once the victims have left; decide again then. `resource`: the first that is short."""

    victims: tuple[WorkerKey, ...]
    resource: str = ""


def admit(
    pod: KubeletPod,
    ledger: Ledger,
    managers: ResourceManagers,
    node: NodeFacts,
    *,
    evicting: frozenset[WorkerKey] = frozenset(),
) -> Admitted | Rejection | PreemptionNeeded:
    """Decide whether the pod may run, and take its allocation; the caller changes the ledger.

    `evicting`: pods that are leaving.
    """
    requests = ledger.needs(pod)
    allocation = managers.admit(pod)
    if isinstance(allocation, Rejection):
        return allocation
    refused = predicates(pod, requests, ledger, node, evicting)
    if refused is not None:
        managers.release(allocation)
        return refused
    return Admitted(requests, allocation)


def predicates(
    pod: KubeletPod,
    requests: Amounts,
    ledger: Ledger,
    node: NodeFacts,
    evicting: frozenset[WorkerKey],
    *,
    may_evict: bool = True,
) -> Rejection | PreemptionNeeded | None:
    """Return the first failure of the predicate handler, or None (kubelet 5.2).

    `may_evict`: whether a critical pod may preempt others.
    """
    if node.labels is None:
        return Rejection("InvalidNodeInfo", "Kubelet cannot get node info.")
    labelled_os = pod.metadata.labels.get("kubernetes.io/os")
    if labelled_os is not None and labelled_os != node.os:
        return Rejection(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        )
    if pod.spec.os is not None and pod.spec.os.name and pod.spec.os.name != node.os:
        return Rejection("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
    short = ledger.shortages(requests)
    failed = _first_mismatch(pod, ledger, node)
    if short and failed is None and may_evict and is_critical(pod):
        victims = _victims(pod, requests, ledger, evicting)
        if victims is not None:
            return PreemptionNeeded(victims, short[0])
    if short:
        return out_of(short[0], requests, ledger)
    return failed


def out_of(name: str, requests: Amounts, ledger: Ledger) -> Rejection:
    """Return the rejection for a resource that does not suffice."""
    return Rejection(
        f"OutOf{name}",
        f"Node didn't have enough resource: {name}, requested: {requests[name]}, "
        f"used: {ledger.taken_amount(name)}, capacity: {ledger.allocatable.get(name, 0)}",
    )


def _first_mismatch(pod: KubeletPod, ledger: Ledger, node: NodeFacts) -> Rejection | None:
    assert node.labels is not None
    if pod.spec.node_name and pod.spec.node_name != node.name:
        return _predicate("NodeName", "node(s) didn't match the requested node name")
    if not ledger.has_free_ports(pod):
        return _predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    if not may_go_to(pod.spec, node.name, node.labels):
        return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    if not is_static(pod) and untolerated_taint(node.taints, pod.spec.tolerations, (NO_EXECUTE,)) is not None:
        return _predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    return None


def _predicate(name: str, description: str) -> Rejection:
    return Rejection(name, f"Predicate {name} failed: {description}")


def asks_for_labels(pod: KubeletPod) -> bool:
    """Whether the pod's admission depends on the node's labels."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    return bool(pod.spec.node_selector) or (affinity is not None and affinity.required is not None)


def _victims(
    pod: KubeletPod, requests: Amounts, ledger: Ledger, evicting: frozenset[WorkerKey]
) -> tuple[WorkerKey, ...] | None:
    """Return the fewest lower pods whose leaving is enough, lowest QoS and priority first; None when none do."""
    used = Counter({name: ledger.taken_amount(name) for name in ledger.used})

    def lacking() -> bool:
        return any(used[n] + v > ledger.allocatable.get(n, 0) for n, v in requests.items())

    for key in ledger.entries:
        if key in evicting:
            used.subtract(ledger.share_of(key))
    # Critical pods leave only for more important ones, static ones for none (upstream `Preemptable`).
    candidates = [
        (key, entry)
        for key, entry in ledger.entries.items()
        if key not in evicting
        and (not is_critical(entry.pod) or (not is_static(entry.pod) and entry.pod.spec.priority < pod.spec.priority))
    ]
    candidates.sort(key=lambda c: (_QOS_RANK[qos_class(c[1].pod)], c[1].pod.spec.priority, c[0].uid))
    chosen: list[WorkerKey] = []
    for key, _ in candidates:
        if not lacking():
            break
        used.subtract(ledger.share_of(key))
        chosen.append(key)
    return None if lacking() else tuple(chosen)
