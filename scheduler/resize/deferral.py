"""The check which pods wait for their node to let them grow, and their requests."""

from typing import Final

from scheduler.cache.node_info import PodInfo
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.meta import find_condition
from services.api.podresources import Amounts, as_allocated, pod_requests

RESIZE_PENDING: Final = "PodResizePending"
DEFERRED: Final = "Deferred"
CONDITION: Final = "ResizeUnschedulable"
"""The condition that the scheduler writes about a failed preemption, in the first two generations."""
DISABLED_CONDITIONS: Final = ("PodResizePreemptionDisabled", "ResizePreemptionDisabled")
"""The conditions that kubelets of the second and the first generation write about their node's policy."""


def is_deferred(pod: Pod) -> bool:
    """Whether the kubelet deferred the resize for lack of capacity; the first condition of that type decides."""
    pending = find_condition(pod.status.conditions, RESIZE_PENDING)
    return pending is not None and pending.reason == DEFERRED


def waits(pod: Pod) -> bool:
    """Whether the pod is on a node, stays there and waits for capacity to grow."""
    return bool(pod.spec.node_name) and is_deferred(pod) and pod.is_active


def allocated_amounts(pod: PodInfo) -> Amounts:
    """Return the amounts that the kubelet has allocated to the pod."""
    return pod_requests(as_allocated(pod.pod))


def is_disabled_by_kubelet(pod: Pod) -> bool:
    """Whether the pod's kubelet reports that its node refuses preemption for resizes (G1, G2)."""
    return any(c.type in DISABLED_CONDITIONS and c.status == "True" for c in pod.status.conditions)


def opts_out(node: Node) -> bool:
    """Whether the node's policy refuses preemption for resizes."""
    policy = node.spec.pod_preemption_policy
    return policy is not None and bool(policy.disable_resize_preemption)
