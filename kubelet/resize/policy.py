"""A node's policy on preemption for resizes, shown on the pods that wait for a resize. Pure.

In two early designs of KEP-5836 the scheduler does not look at the Node: its kubelet writes a condition on
every deferred pod as long as the node's owners do not want other pods evicted for it, and removes it when
they agree or the resize is resolved. The condition is derived from those two facts whenever a status is
rendered, so that it cannot outlive either. Source: kep-5836 5.3, 9, 10.
"""

from collections.abc import Iterable
from typing import Final

from kubelet.pod.context import RESIZE_PENDING, Condition, PodContext, WallTimes
from kubelet.pod.status import condition_document
from kubelet.switches import PolicyForm
from kubelet.view import WorkerKey
from services.api.kinds.node import Node
from services.api.meta import Document

LOOK_S: Final = 1.0
"""Seconds between reads of the Node by a kubelet that shows the policy.

It may get the Node, but not watch it.
"""
ANNOTATION: Final = "disable-pod-resize-preemption"
"""The annotation's name after the prefix: the first design's `scheduler.policy/`, or any other owner's."""
DEFERRED: Final = "Deferred"


class ResizePolicy:
    """One node's policy as it was read last."""

    def __init__(self, form: PolicyForm | None, node: str, times: WallTimes) -> None:
        self.form = form
        self.owners: tuple[str, ...] = ()
        """Who does not want preemption for resizes here: if anyone, this kubelet must not evict for one."""
        self._node = node
        self._times = times
        self._since = ""

    def take(self, node: Node, now: float) -> bool:
        """Take the Node that was read; return whether its policy has changed."""
        if self.form is None:
            return False
        before, policy = self.owners, node.spec.pod_preemption_policy
        if self.form.is_annotated:
            names = (name for name, text in node.metadata.annotations.items() if text == "true")
            self.owners = tuple(name for name in names if name.partition("/")[2] == ANNOTATION)
        else:
            self.owners = policy.disable_resize_preemption if policy is not None else ()
        if not before:
            self._since = self._times.text(now)
        return before != self.owners

    def add_condition(self, worker: PodContext, status: Document) -> Document:
        """Return the pod's status, with the condition if its resize is deferred and the node refuses preemption."""
        pending = worker.conditions.get(RESIZE_PENDING)
        if self.form is None or not self.owners or pending is None or pending.reason != DEFERRED:
            return status
        text = f"node {self._node} does not want pods evicted for resizes: {', '.join(self.owners)}"
        since = max(pending.since, self._since)
        condition = condition_document(worker, self.form.type, Condition("True", since, self.form.reason, text))
        return {**status, "conditions": [*status["conditions"], condition]}


def deferred_of(workers: Iterable[PodContext]) -> list[WorkerKey]:
    """Return the pods whose resize is deferred."""
    pending = ((worker.key, worker.conditions.get(RESIZE_PENDING)) for worker in workers)
    return [key for key, condition in pending if condition is not None and condition.reason == DEFERRED]
