"""Whether a pod may preempt at all (preemption 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.cache.node_info import NodeInfo, PodInfo
from services.api.kinds.pod import Pod
from services.api.meta import find_condition

DISRUPTION_TARGET: Final = "DisruptionTarget"
BY_SCHEDULER: Final = "PreemptionByScheduler"
NEVER_POLICY: Final = "not eligible due to preemptionPolicy=Never."
GROUPED: Final = "not eligible due to workload aware preemption enabled"
GUARDED: Final = "not eligible due to a terminating pod on the nominated node."
IN_PROGRESS: Final = "waiting for the preemption for this pod to be finished"
GROUP_IN_PROGRESS: Final = "waiting for the preemption for this pod group to be finished"


def is_terminating_by_preemption(pod: Pod) -> bool:
    """Whether the scheduler evicted the pod and it has not gone yet.

    Both marks are needed: a victim that a user deleted, or whose condition is not visible yet, guards nothing.
    """
    if pod.metadata.deletion_timestamp is None:
        return False
    condition = find_condition(pod.status.conditions, DISRUPTION_TARGET)
    return condition is not None and condition.status == "True" and condition.reason == BY_SCHEDULER


def any_pod(pod: PodInfo, node: NodeInfo) -> bool:
    """Let every pod of lower priority be a victim: the default of `IsEligiblePod`."""
    return True


EligiblePod = Callable[[PodInfo, NodeInfo], bool]
Priority = Callable[[PodInfo], int]


def own_priority(pod: PodInfo) -> int:
    """Return the pod's own priority: what decides while no group speaks for it."""
    return pod.priority


def refusal(
    pod: PodInfo,
    nominated: NodeInfo | None,
    *,
    is_hopeless: bool,
    is_grouped: bool = False,
    is_eligible: EligiblePod = any_pod,
    priority_of: Priority = own_priority,
    priority: int | None = None,
) -> str:
    """Return why the pod may not preempt now, or "".

    `nominated`: the node it waits for already, as this cycle sees it; `is_hopeless`: the filters just called that
    node unresolvable, so waiting for it is in vain. `is_grouped`: group preemption speaks for this pod. `priority`:
    what the pod counts for, if not its own.
    """
    if is_grouped:
        return GROUPED
    if pod.spec.preemption_policy == "Never":
        return NEVER_POLICY
    if nominated is None or is_hopeless:
        return ""
    for other in nominated.pods.values():
        if (
            priority_of(other) < (pod.priority if priority is None else priority)
            and is_terminating_by_preemption(other.pod)
            and is_eligible(other, nominated)
        ):
            return GUARDED
    return ""
