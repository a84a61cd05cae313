"""Who of the deferred pods is looked at again, and when: by what happens on a pod's node, or by the clock.

An event matters to the deferred pods of the event's own node and to no others, and they are found by that node, so
that a thousand of them cost new pods nothing. Source: kep-5836 7.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from scheduler.cache.node_info import PodInfo
from scheduler.framework.events import WILDCARD, Action, ClusterEvent
from scheduler.queue.scheduling_queue import Pool, SchedulingQueue
from scheduler.resize.deferral import allocated, opts_out
from scheduler.resize.outcome import Waits
from scheduler.resize.rules import ResizeRules
from services.api.kinds.node import Node
from services.api.meta import Key
from services.api.podresources import Amounts
from services.api.quantity import amount

RESIZABLE: Final = ("cpu", "memory")


def _event(label: str) -> ClusterEvent:
    """Return an event that wakes whom it is sent to; who that is, is decided here."""
    return ClusterEvent(WILDCARD, Action.ALL, label)


POD_GONE: Final = _event("AssignedPodDelete")
POD_SHRANK: Final = _event("AssignedPodScaleDown")
POD_GREW: Final = _event("AssignedPodScaleUp")
POD_CHANGED: Final = _event("AssignedPodUpdate")
OWN_REQUEST: Final = _event("AssignedPodResize")
NODE_ADDED: Final = _event("NodeAdd")
NODE_GREW: Final = _event("NodeAllocatableChange")
POLICY_ENDED: Final = _event("NodePodPreemptionPolicyChange")
NODE_CHANGED: Final = _event("NodeUpdate")
CLOCK: Final = _event("ResizeRetryPeriod")


@dataclass(slots=True)
class Deferred:
    """A pod that waits for capacity to grow; `desired_amounts`: what it asks for."""

    key: Key
    waits_for: Waits
    desired_amounts: Amounts


@dataclass
class WakeUps:
    """The deferred pods by node. `enqueue(pod's uid, now)` brings back one that had left the queue."""

    queue: SchedulingQueue
    rules: ResizeRules
    enqueue: Callable[[str, float], None]
    by_node: dict[str, dict[str, Deferred]] = field(default_factory=dict)
    _due: OrderedDict[str, tuple[float, Deferred]] = field(default_factory=OrderedDict)

    def own_request(self, known: Deferred, before: Amounts, desired_amounts: Amounts, now: float) -> bool:
        """Look again at a queued pod that requests something else, if that may change the answer; say whether.

        It may if it is less of anything, or any change of one that was parked.
        """
        is_less = any(desired_amounts.get(name, 0) < before.get(name, 0) for name in RESIZABLE)
        if known.waits_for is Waits.CAPACITY and not is_less and self.rules.generation != "G2":
            return False
        self._wake(known, OWN_REQUEST, now)
        return True

    def neighbour(self, node: str, before: PodInfo | None, after: PodInfo | None, now: float) -> None:
        """A pod of the node was added, changed or went."""
        own = after.uid if after is not None else ""
        if after is None:
            self._wake_all(node, POD_GONE, now, (Waits.CAPACITY,), own)
            return
        if before is not None and before.requests is not after.requests:
            old, new = before.requests.amounts, after.requests.amounts
            if any(new.get(name, 0) < had for name, had in old.items()):
                # Its own status, too, may show that less is held than was.
                self._wake_all(node, POD_SHRANK, now, (Waits.CAPACITY,))
                return
            if any(new.get(name, 0) > old.get(name, 0) for name in new):
                self._grew(node, after, now)
                return
        if self.rules.counts_allocated and before is not None and allocated(before) != allocated(after):
            # It counts as before, but who was found to fit beside what it had may not fit beside what it was given.
            self._look_again(node, after, now)
        elif self.rules.wakes_on_any_event:
            self._wake_all(node, POD_CHANGED, now, (Waits.CAPACITY, Waits.KUBELET), own)

    def _look_again(self, node: str, pod: PodInfo, now: float) -> None:
        """Wake those who were found to fit, whether they were parked or left the queue."""
        self._wake_all(node, POD_GREW, now, (Waits.KUBELET,), pod.uid)
        for uid, known in list(self.by_node.get(node, {}).items()):
            if uid != pod.uid and known.waits_for is Waits.NOTHING and self.queue.get(known.key) is None:
                self.enqueue(uid, now)

    def _grew(self, node: str, pod: PodInfo, now: float) -> None:
        """Another pod asks for more, or got it: the capacity for those that were found to fit may be gone."""
        how = self.rules.parked_wakeup
        if how == "fit_scaleup_hint":
            self._wake_all(node, POD_GREW, now, (Waits.KUBELET,), pod.uid)
            return
        if how != "handler_add_or_activate" or self.rules.retry_period_s:
            return
        for uid, known in list(self.by_node.get(node, {}).items()):
            if uid == pod.uid:
                continue
            if self.queue.get(known.key) is not None:
                self.queue.activate([known.key], now)
            else:
                self.enqueue(uid, now)

    def node(self, before: Node | None, after: Node, now: float) -> None:
        """A node was added or changed."""
        if not self.by_node:
            return
        name = after.metadata.name
        if before is None:
            self._wake_all(name, NODE_ADDED, now, (Waits.CAPACITY, Waits.POLICY, Waits.KUBELET))
            return
        if self.rules.reads_field and opts_out(before) and not opts_out(after):
            self._wake_all(name, POLICY_ENDED, now, (Waits.POLICY, Waits.KUBELET))
        if _has_grown(before, after):
            self._wake_all(name, NODE_GREW, now, (Waits.CAPACITY,))
        elif self.rules.wakes_on_any_event:
            self._wake_all(name, NODE_CHANGED, now, (Waits.CAPACITY, Waits.KUBELET))

    def put_back(self, uid: str, known: Deferred, now: float) -> None:
        """An attempt is over, and the pod waits on: from now until its period is over, where only the clock wakes."""
        period_s = self.rules.retry_period_s
        if period_s:
            self._due[uid] = (now + period_s, known)
            self._due.move_to_end(uid)

    def forget(self, uid: str) -> None:
        """The pod does not wait any more."""
        self._due.pop(uid, None)

    def flush(self, now: float) -> None:
        """Wake those whose period is over."""
        while self._due:
            uid, (at, known) = next(iter(self._due.items()))
            if at > now:
                return
            del self._due[uid]
            self._wake(known, CLOCK, now)

    def next_deadline(self) -> float | None:
        """Return when `flush` has something to do, if nothing else happens; None when never."""
        return next(iter(self._due.values()))[0] if self._due else None

    def _wake_all(self, node: str, event: ClusterEvent, now: float, who: tuple[Waits, ...], but: str = "") -> None:
        """Wake those of a node that wait for one of these things; with `any_event` those of every node."""
        if self.rules.retry_period_s:
            return
        if self.rules.wakes_on_any_event:
            found = [(uid, each) for pods in self.by_node.values() for uid, each in pods.items()]
            who = (*who, Waits.CAPACITY, Waits.PLUGIN, Waits.KUBELET)
        else:
            found = list(self.by_node.get(node, {}).items())
        for uid, known in found:
            # A pod that is being tried just now has not seen this either.
            if uid != but and (known.waits_for in who or self.queue.is_in_flight(uid)):
                self._wake(known, event, now)

    def _wake(self, known: Deferred, event: ClusterEvent, now: float) -> None:
        self.queue.wake(known.key, event, now)

    def pools(self) -> dict[str, int]:
        """Return how many deferred pods are in which pool; `waiting`: those that left the queue because they fit."""
        found: dict[str, int] = {}
        for pods in self.by_node.values():
            for each in pods.values():
                queued = self.queue.get(each.key)
                pool = str(queued.pool) if queued is not None and queued.pool is not Pool.NONE else "waiting"
                found[pool] = found.get(pool, 0) + 1
        return found


def _has_grown(before: Node, after: Node) -> bool:
    old, new = before.status.allocatable, after.status.allocatable
    if old == new:
        return False
    try:
        return any(amount(name, text) > amount(name, old.get(name, "0")) for name, text in new.items())
    except ValueError:
        return True
