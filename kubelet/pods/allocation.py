"""What a pod has been given, apart from what it wants: the allocation, and whether a resize may change it. Pure.

Of one pod there are up to three sizes: desired (the spec), allocated (what this node has promised, kept
durably) and actual (what the runtime last applied). They are carried on in that order and compared in
neighbouring pairs only. A resize is judged as a whole: all of it is allocated, or nothing.
Source: kep-1287-in-place-resize 2, 5; upstream `pkg/kubelet/allocation`.
"""

from __future__ import annotations

import msgspec

from kubelet.admission import Ledger, NodeFacts, RoomNeeded, out_of, predicates
from kubelet.pods import swap
from kubelet.view import KubeletPod, WorkerKey, is_static
from services.api.kinds.pod import Container, ResourceRequirements
from services.api.podresources import Amounts, amounts, qos_class

RESIZABLE = ("cpu", "memory")
NOTHING = ResourceRequirements()


class PodResources(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requests and limits by container name, and the pod's own (`level`), as text."""

    containers: dict[str, ResourceRequirements] = {}
    level: ResourceRequirements | None = None

    def of(self, container: str) -> ResourceRequirements:
        """Return what a container has; nothing for one that is not resizable."""
        return self.containers.get(container, NOTHING)

    def limits_of(self, container: str) -> dict[str, str]:
        """Return the limits in force: the container's own, and the pod's for what it does not limit itself."""
        own = self.of(container).limits
        return own if self.level is None else {**self.level.limits, **own}


NO_RESOURCES = PodResources()


def is_resizable(container: Container, *, is_init: bool) -> bool:
    """Whether a container's resources may change while it exists: main containers and sidecars."""
    return not is_init or container.restart_policy == "Always"


def resources_of(pod: KubeletPod) -> PodResources:
    """Return what the pod asks for now, container by container."""
    spec = pod.spec
    found = {c.name: c.resources for c in spec.init_containers if is_resizable(c, is_init=True)}
    for container in spec.containers:
        found[container.name] = container.resources
    return PodResources(found, spec.resources)


def overlaid(pod: KubeletPod, resources: PodResources) -> KubeletPod:
    """Return the pod as it would be had it always asked for `resources`."""
    replace = msgspec.structs.replace

    def sized(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(replace(c, resources=resources.containers.get(c.name, c.resources)) for c in containers)

    spec = pod.spec
    return replace(
        pod,
        spec=replace(
            spec,
            containers=sized(spec.containers),
            init_containers=sized(spec.init_containers),
            resources=resources.level,
        ),
    )


def is_same(one: PodResources, other: PodResources) -> bool:
    """Whether two sizes are equal as quantities: `500m` is `0.5`."""
    if one is other or one == other:
        return True
    names = list(dict.fromkeys((*one.containers, *other.containers)))
    return is_equal(one.level or NOTHING, other.level or NOTHING) and all(
        is_equal(one.of(name), other.of(name)) for name in names
    )


def is_equal(one: ResourceRequirements, other: ResourceRequirements) -> bool:
    """Whether requests and limits are equal as quantities."""
    return one == other or (
        amounts(one.requests) == amounts(other.requests) and amounts(one.limits) == amounts(other.limits)
    )


# --- may it be so? ---


class Fits(msgspec.Struct, frozen=True):
    """The node has room: these are the pod's requests from now on."""

    requests: Amounts


class Deferred(msgspec.Struct, frozen=True):
    """Not now, perhaps later. `victims`: pods to evict, when the resizing pod is critical, which lacks `resource`."""

    message: str
    victims: tuple[WorkerKey, ...] = ()
    resource: str = ""


class Infeasible(msgspec.Struct, frozen=True):
    """Never on this node, unless the wish changes. `detail`: upstream's `reason_detail`."""

    message: str
    detail: str


Judgement = Fits | Deferred | Infeasible


class NodeRules(msgspec.Struct, frozen=True):
    """What of the node's definition bears on resizes."""

    has_static_cpus: bool = False
    has_static_memory: bool = False
    has_swap: bool = False
    """Whether containers may use swap within limits (LimitedSwap)."""
    evicts: bool = True
    """Whether the kubelet evicts for a critical pod's resize, or leaves that to the scheduler (KEP-5836)."""
    orders_as_upstream: bool = False
    """Whether resizes that wait are compared as upstream does it, which is no order (kep-1287 6)."""


def judge(
    desired: KubeletPod,
    allocated: PodResources,
    others: Ledger,
    node: NodeFacts,
    rules: NodeRules,
    *,
    evicting: frozenset[WorkerKey] = frozenset(),
) -> Judgement:
    """Decide about a resize of a pod that is not in `others` (kep-1287 5; the first handler that refuses wins).

    The others count with what they were allocated: what they wish for and do not have blocks nobody here.
    """
    if is_static(desired):
        return Infeasible("In-place resize of static-pods is not supported", "static_pod")
    if rules.has_swap and swap.forbids(desired, overlaid(desired, allocated)):
        return Infeasible(swap.REFUSED, "swap_limitation")
    if (rules.has_static_cpus or rules.has_static_memory) and qos_class(desired) == "Guaranteed":
        wished = resources_of(desired)
        if rules.has_static_cpus and _changes("cpu", wished, allocated):
            return Infeasible(
                'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"',
                "guaranteed_pod_cpu_manager_static_policy",
            )
        if rules.has_static_memory and _changes("memory", wished, allocated):
            return Infeasible(
                'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"',
                "guaranteed_pod_memory_manager_static_policy",
            )
    requests = others.needs(desired)
    for name in ("memory", "cpu"):
        capacity = others.allocatable.get(name, 0)
        if requests.get(name, 0) > capacity:
            return Infeasible(
                f"Node didn't have enough capacity: {name}, requested: {requests[name]}, capacity: {capacity}",
                "insufficient_node_allocatable",
            )
    refused = predicates(desired, requests, others, node, evicting, may_evict=rules.evicts)
    match refused:
        case None:
            return Fits(requests)
        case RoomNeeded(victims=victims, resource=resource):
            return Deferred(out_of(resource, requests, others).message, victims, resource)
        case _:
            return Deferred(refused.message)


def _changes(resource: str, desired: PodResources, allocated: PodResources) -> bool:
    return any(
        amounts(desired.of(name).requests).get(resource) != amounts(allocated.of(name).requests).get(resource)
        for name in desired.containers
    )


def grows(requests: Amounts, than: Amounts) -> bool:
    """Whether more cpu or memory is asked for than before."""
    return any(requests.get(name, 0) > than.get(name, 0) for name in RESIZABLE)


def shrinks(requests: Amounts, than: Amounts) -> bool:
    """Whether less cpu or memory is asked for than before, so that others may find room."""
    return any(requests.get(name, 0) < than.get(name, 0) for name in RESIZABLE)
