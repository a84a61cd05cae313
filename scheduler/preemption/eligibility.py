"""The check whether a pod may preempt at all (preemption 3.1)."""

from typing import Final

from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.preemption.units import Units
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
    """Whether the scheduler evicted the pod and the pod still exists.

    Both marks are needed: a victim that a user deleted, or whose condition is not visible yet, guards nothing.
    """
    if pod.metadata.deletion_timestamp is None:
        return False
    condition = find_condition(pod.status.conditions, DISRUPTION_TARGET)
    return condition is not None and condition.status == "True" and condition.reason == BY_SCHEDULER


def is_guarded(node: NodeInfo, priority: int, units: Units) -> bool:
    """Whether a victim of lower priority is leaving the node: the preemptor waits for it."""
    return any(
        units.priority_of(other) < priority and is_terminating_by_preemption(other.pod) for other in node.pods.values()
    )


def refusal(pod: PodInfo, priority: int, nominated: NodeInfo | None, units: Units) -> str:
    """Return why the pod may not preempt now, or "".

    `priority`: the pod's effective priority. `nominated`: the node it waits for already, as this cycle sees it;
    None also if the filters just called that node unresolvable, so that waiting for it is in vain.
    """
    if pod.spec.preemption_policy == "Never":
        return NEVER_POLICY
    return GUARDED if nominated is not None and is_guarded(nominated, priority, units) else ""
