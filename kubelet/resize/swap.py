"""Which containers may use swap, and which resizes that forbids. Pure.

Under `LimitedSwap` a container of a Burstable pod may swap a share of the node's swap that follows from its memory
request; that share is not computed anew while the container runs, so another request needs a restart.
Source: kep-1287-in-place-resize 5 (handler 2); KEP-2400; upstream `GetContainerSwapBehavior`.
"""

from __future__ import annotations

from kubelet.view import KubeletPod, is_critical
from services.api.kinds.pod import Container
from services.api.podresources import amounts, qos_class

LIMITED = "LimitedSwap"
REFUSED = "In-place resize of containers with swap is not supported."


def may_swap(pod: KubeletPod, container: Container) -> bool:
    """Whether a container on a node with LimitedSwap gets any: not when all its memory is requested, or none."""
    request = amounts(container.resources.requests).get("memory", 0)
    limit = amounts(container.resources.limits).get("memory", 0)
    return request != limit and qos_class(pod) == "Burstable" and not is_critical(pod)


def forbids(desired: KubeletPod, allocated: KubeletPod) -> bool:
    """Whether the resize changes the memory request of a container with swap that it would not restart."""
    before = {c.name: c for c in (*allocated.spec.containers, *allocated.spec.init_containers)}
    return any(
        (was := before.get(wanted.name)) is not None
        and _request(wanted) != _request(was)
        and not _restarts(was)
        and (may_swap(desired, wanted) or may_swap(allocated, was))
        for wanted in (*desired.spec.containers, *desired.spec.init_containers)
    )


def _request(container: Container) -> int:
    return amounts(container.resources.requests).get("memory", 0)


def _restarts(container: Container) -> bool:
    return any(
        policy.resource_name == "memory" and policy.restart_policy == "RestartContainer"
        for policy in container.resize_policy
    )
