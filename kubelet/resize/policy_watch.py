"""Periodic reads of the Node's policy on preemption for resizes, and its enforcement. Pure.

`policy` interprets the Node. Here the Node is read, deferred pods show the policy, and preemption obeys it.
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
    """Reads the Node every second once it was seen, in designs where kubelets show its policy.

    `evict`: ends a pod so that a critical pod fits; called with the pod, the resource that is lacking, and the time.
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
        """Whether the timer for reads of the Node is set."""

    def node_seen(self, node: Node, now: float) -> None:
        """Read the policy from the Node; if it changed, update the statuses of pods whose resize is deferred."""
        if self._policy.form is not None and not self._is_looking:
            self._is_looking = True
            self._out.effects.append(SetTimer(now + LOOK_S, TIMER, NODE_KEY))
        if self._policy.take(node, now):
            for key in deferred_of(self._table.pods.values()):
                self._statuses.status_changed(key, now)

    def due(self, key: WorkerKey, now: float) -> None:
        """Read the Node, and set the timer for the next read in a second."""
        self._out.effects += [ReadNode(key, False), SetTimer(now + LOOK_S, TIMER, key)]

    def preempt(self, victim: WorkerKey, resource: str, now: float) -> None:
        """End a pod so that the resize of a critical pod fits, unless the Node's owners forbid that (KEP-5836)."""
        if not self._policy.owners:
            self._evict(victim, resource, now)
