"""The decision whether a resize may change a pod's allocation. Pure.

A resize is decided as a whole: all of it is allocated, or nothing. Source: kep-1287-in-place-resize 5;
upstream `pkg/kubelet/allocation`.
"""

import msgspec

from kubelet.admission.predicates import Ledger, NodeFacts, PreemptionNeeded, out_of, predicates
from kubelet.runtime.resources import PodResources, overlaid, resources_of
from kubelet.view import KubeletPod, WorkerKey, is_critical, is_static
from services.api.kinds.pod import Container
from services.api.podresources import Amounts, amounts, qos_class

RESIZABLE = ("cpu", "memory")
LIMITED_SWAP = "LimitedSwap"


class Fits(msgspec.Struct, frozen=True):
    """The decision that the resize fits; `requests` are the pod's requests from now on."""

    requests: Amounts


class Deferred(msgspec.Struct, frozen=True):
    """The decision that the resize does not fit now, and may later.

    `victims`: pods to evict, when the resizing pod is critical; it lacks `resource`.
    """

    message: str
    victims: tuple[WorkerKey, ...] = ()
    resource: str = ""


class Infeasible(msgspec.Struct, frozen=True):
    """The decision that the resize never fits on this node, unless the spec changes.

    `detail`: upstream's `reason_detail`.
    """

    message: str
    detail: str


Judgement = Fits | Deferred | Infeasible


class NodeRules(msgspec.Struct, frozen=True):
    """The parts of the node's definition that affect resizes."""

    has_static_cpus: bool = False
    has_static_memory: bool = False
    has_swap: bool = False
    """Whether containers may use swap within limits (LimitedSwap)."""
    evicts: bool = True
    """Whether the kubelet evicts for a critical pod's resize; else the scheduler does (KEP-5836)."""
    has_init_containers: bool = False
    """Whether init containers that are not sidecars may be resized."""
    keeps_reservations: bool = False
    """Whether capacity is kept for a deferred resize that the scheduler has accepted."""

    def resources_of(self, pod: KubeletPod) -> PodResources:
        """Return the pod's present requests and limits for each container that is resizable here."""
        return resources_of(pod, with_init_containers=self.has_init_containers)


def judge(
    desired: KubeletPod,
    allocated: PodResources,
    others: Ledger,
    node: NodeFacts,
    rules: NodeRules,
    *,
    evicting: frozenset[WorkerKey] = frozenset(),
) -> Judgement:
    """Decide about a resize of a pod that is not in `others`; the first handler that refuses wins.

    Source: kep-1287 5. The other pods count with their allocation: requests beyond it block no other pod.
    """
    if is_static(desired):
        return Infeasible("In-place resize of static-pods is not supported", "static_pod")
    if rules.has_swap and _swap_forbids(desired, overlaid(desired, allocated)):
        return Infeasible("In-place resize of containers with swap is not supported.", "swap_limitation")
    if (rules.has_static_cpus or rules.has_static_memory) and qos_class(desired) == "Guaranteed":
        wanted = rules.resources_of(desired)
        for is_static_policy, resource, manager, policy in (
            (rules.has_static_cpus, "cpu", "CPU", "static"),
            (rules.has_static_memory, "memory", "Memory", "Static"),
        ):
            if is_static_policy and _changes(resource, wanted, allocated):
                return Infeasible(
                    f'Resize is infeasible for Guaranteed Pods alongside {manager} Manager policy "{policy}"',
                    f"guaranteed_pod_{manager.lower()}_manager_static_policy",
                )
    requests = others.needs(desired)
    for name in ("memory", "cpu"):
        capacity = others.allocatable.get(name, 0)
        if requests.get(name, 0) > capacity:
            return Infeasible(
                f"Node didn't have enough capacity: {name}, requested: {requests[name]}, capacity: {capacity}",
                "insufficient_node_allocatable",
            )
    match predicates(desired, requests, others, node, evicting, may_evict=rules.evicts):
        case None:
            return Fits(requests)
        case PreemptionNeeded(victims=victims, resource=resource):
            return Deferred(out_of(resource, requests, others).message, victims, resource)
        case refused:
            return Deferred(refused.message)


def _changes(resource: str, desired: PodResources, allocated: PodResources) -> bool:
    return any(
        amounts(desired.of(name).requests).get(resource) != amounts(allocated.of(name).requests).get(resource)
        for name in desired.containers
    )


def grows(requests: Amounts, than: Amounts) -> bool:
    """Whether more cpu or memory is requested than before."""
    return any(requests.get(name, 0) > than.get(name, 0) for name in RESIZABLE)


def shrinks(requests: Amounts, than: Amounts) -> bool:
    """Whether less cpu or memory is requested than before, so that others may fit."""
    return any(requests.get(name, 0) < than.get(name, 0) for name in RESIZABLE)


def _may_swap(pod: KubeletPod, container: Container) -> bool:
    """Whether a container on a node with LimitedSwap gets any: not when all its memory is requested, or none.

    Its share of the node's swap follows from its memory request and is not computed anew while it runs, so another
    request needs a restart. Source: KEP-2400; upstream `GetContainerSwapBehavior`.
    """
    limit = amounts(container.resources.limits).get("memory", 0)
    return _request(container) != limit and qos_class(pod) == "Burstable" and not is_critical(pod)


def _swap_forbids(desired: KubeletPod, allocated: KubeletPod) -> bool:
    """Whether the resize changes the memory request of a container with swap that it would not restart."""
    before = {c.name: c for c in (*allocated.spec.containers, *allocated.spec.init_containers)}
    return any(
        (was := before.get(wanted.name)) is not None
        and _request(wanted) != _request(was)
        and not _restarts(was)
        and (_may_swap(desired, wanted) or _may_swap(allocated, was))
        for wanted in (*desired.spec.containers, *desired.spec.init_containers)
    )


def _request(container: Container) -> int:
    return amounts(container.resources.requests).get("memory", 0)


def _restarts(container: Container) -> bool:
    return any(
        policy.resource_name == "memory" and policy.restart_policy == "RestartContainer"
        for policy in container.resize_policy
    )
