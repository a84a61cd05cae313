"""The node's word on preemption for resizes, read again and again and acted upon. Pure.

`policy` says what the Node means; here the Node is read, pods that wait show it, and preemption obeys it.
Source: kep-5836 5.3, 9, 10.
"""

from collections.abc import Callable

from kubelet.effects import NODE_KEY, Outbox, ReadNode, SetTimer
from kubelet.pod.table import PodTable
from kubelet.resize.policy import LOOK_S, ResizePolicy, deferred_of
from kubelet.status.manager import StatusManager
from kubelet.view import WorkerKey
from services.api.kinds.node import Node

TIMER = "policy"


class PolicyWatch:
    """Reads the Node every second, once it was seen, where the design has kubelets show its policy.

    `evict`: ends a pod so that a critical one fits, with the resource that it lacks and now.
    """

    def __init__(
        self,
        policy: ResizePolicy,
        table: PodTable,
        statuses: StatusManager,
        out: Outbox,
        *,
        evict: Callable[[WorkerKey, str, float], None],
    ) -> None:
        self._policy, self._table, self._statuses, self._out, self._evict = policy, table, statuses, out, evict
        self._is_looking = False
        """Whether a timer has the Node read again and again."""

    def node_seen(self, node: Node, now: float) -> None:
        """Take the Node's resize policy, and show it on the pods whose resize is deferred."""
        if self._policy.form is not None and not self._is_looking:
            self._is_looking = True
            self._out.effects.append(SetTimer(now + LOOK_S, TIMER, NODE_KEY))
        if self._policy.take(node, now):
            for key in deferred_of(self._table.pods.values()):
                self._statuses.status_changed(key, now)

    def due(self, key: WorkerKey, now: float) -> None:
        """Read the Node, and again in a second."""
        self._out.effects += [ReadNode(key, False), SetTimer(now + LOOK_S, TIMER, key)]

    def preempt(self, victim: WorkerKey, resource: str, now: float) -> None:
        """End a pod so that the resize of a critical one fits, unless the Node's owners forbid that (KEP-5836)."""
        if not self._policy.owners:
            self._evict(victim, resource, now)
