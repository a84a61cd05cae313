"""When a deferred pod is queued, looked at again, and let go: what each change seen by watch means for it.

The queue is the one of new pods. What differs is who wakes whom: an event matters to the deferred pods of the
event's own node and to nobody else, and they are found by that node, so that a thousand of them cost new pods
nothing. They are kept out of the plugins' queueing hints by waiting under a name that no plugin has.
Source: kep-5836 5, 7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from scheduler.cache import Cache
from scheduler.framework.events import ASSIGNED_POD, WILDCARD, Action, ClusterEvent
from scheduler.framework.interface import SUCCESS, Code, Status
from scheduler.node_info import PodInfo
from scheduler.preemption.eligibility import IN_PROGRESS
from scheduler.preemption.progress import Preempting
from scheduler.queue import Pool, QueuedPod, SchedulingQueue
from scheduler.requests import PodRequests
from scheduler.resize.cycle import NAME, PREEMPTION, ResizeCycle, Verdict, Waits
from scheduler.resize.deferral import desired, is_told_off, opts_out, waits
from scheduler.resize.rules import ResizeRules
from services.api.kinds.node import Node
from services.api.meta import Key
from services.api.podresources import Amounts
from services.api.quantity import amount

RESIZABLE: Final = ("cpu", "memory")
ADDED: Final = ClusterEvent(ASSIGNED_POD, Action.ADD, "UnscheduledPodAdd")
ADDED_BETA: Final = ClusterEvent(ASSIGNED_POD, Action.ADD, "AssignedPodResize")


def _event(label: str) -> ClusterEvent:
    """Return an event that wakes whom it is sent to; who that is, is decided here."""
    return ClusterEvent(WILDCARD, Action.ALL, label)


POD_GONE: Final = _event("AssignedPodDelete")
POD_SHRANK: Final = _event("AssignedPodScaleDown")
POD_GREW: Final = _event("AssignedPodScaleUp")
POD_CHANGED: Final = _event("AssignedPodUpdate")
OWN_WISH: Final = _event("AssignedPodResize")
NODE_ADDED: Final = _event("NodeAdd")
NODE_GREW: Final = _event("NodeAllocatableChange")
POLICY_ENDED: Final = _event("NodePodPreemptionPolicyChange")
NODE_CHANGED: Final = _event("NodeUpdate")

_IN_PROGRESS: Final = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (IN_PROGRESS,), PREEMPTION)

PreEnqueue = Callable[[PodInfo, str], Status]


@dataclass(slots=True)
class _Deferred:
    key: Key
    waits_for: Waits
    wish: Amounts


class ResizeQueueing:
    """Follows all pods that wait for a resize, by node. `is_ours`: whether this scheduler has the pod's profile."""

    def __init__(self, cache: Cache, queue: SchedulingQueue, cycle: ResizeCycle, rules: ResizeRules,
                 is_ours: Callable[[PodInfo], bool]) -> None:  # fmt: skip
        self.cycle = cycle
        self.rules = rules
        self._cache = cache
        self._queue = queue
        self._is_ours = is_ours
        self._by_node: dict[str, dict[str, _Deferred]] = {}

    def pending(self) -> dict[str, int]:
        """Return how many deferred pods are in which pool; `waiting`: those that left the queue because they fit."""
        found: dict[str, int] = {}
        for pods in self._by_node.values():
            for each in pods.values():
                queued = self._queue.get(each.key)
                pool = str(queued.pool) if queued is not None and queued.pool is not Pool.NONE else "waiting"
                found[pool] = found.get(pool, 0) + 1
        return found

    # -- pods ------------------------------------------------------------------------------------------

    def _takes(self, pod: PodInfo | None) -> bool:
        if pod is None or not waits(pod.pod) or not self._is_ours(pod):
            return False
        return not (self.rules.policy_source == "pod_condition" and is_told_off(pod.pod))

    def size(self, before: PodInfo, after: PodInfo) -> None:
        """Have a pod whose resize is superseded count with the larger wish until it is resolved, if that is asked."""
        if self.rules.holds_most and waits(before.pod) and waits(after.pod):
            after.requests = _most(before.requests, after.requests)

    def follow(self, node: str, before: PodInfo | None, after: PodInfo | None, now: float,
               traceparent: str = "") -> bool:  # fmt: skip
        """Take in a change of a pod on a node, after the cache; return whether a wait for a resize ended."""
        known = self._by_node.get(node)
        is_known = known is not None and before is not None and before.uid in known
        if after is not None and self._takes(after):
            self._wish(node, after, now, traceparent)
        elif is_known and before is not None:
            self._leave(node, before)
        if self._by_node:
            self._wake_neighbours(node, before, after, now)
        return is_known and not (after is not None and after.uid in self._by_node.get(node, ()))

    def _wish(self, node: str, pod: PodInfo, now: float, traceparent: str) -> None:
        """A pod waits, newly or still; a new wish is a reason to look again."""
        pods = self._by_node.setdefault(node, {})
        known = pods.get(pod.uid)
        wish = _wish_of(pod)
        if known is None:
            pods[pod.uid] = _Deferred(pod.key, Waits.TURN, wish)
            self._add(pod, now, traceparent)
            return
        queued = self._queue.get(pod.key)
        if queued is not None and queued.uid == pod.uid:
            queued.info.pod = pod.pod
        before, known.wish = known.wish, wish
        if wish == before:
            return
        if queued is None:
            known.waits_for = Waits.TURN
            self._add(pod, now, traceparent)
        elif self._heeds_wish(known, before, wish):
            queued.traceparent = traceparent or queued.traceparent
            self._wake(known, OWN_WISH, now)

    def _heeds_wish(self, known: _Deferred, before: Amounts, wish: Amounts) -> bool:
        """Whether another wish may change the answer: less of anything, or any change for who was parked."""
        if known.waits_for is not Waits.ROOM or self.rules.generation == "G2":
            return True
        return any(wish.get(name, 0) < before.get(name, 0) for name in RESIZABLE)

    def _add(self, pod: PodInfo, now: float, traceparent: str) -> None:
        # A form of its own: attempts and back-off begin at zero, whatever placing the pod once took.
        queued = PodInfo(pod.pod)
        self._queue.add(queued, now, traceparent=traceparent,
                        event=ADDED_BETA if self.rules.has_own_labels else ADDED)  # fmt: skip

    def _leave(self, node: str, pod: PodInfo) -> None:
        pods = self._by_node[node]
        known = pods.pop(pod.uid)
        if not pods:
            del self._by_node[node]
        self.cycle.forget(pod.uid)
        queued = self._queue.get(known.key)
        if queued is not None and queued.uid == pod.uid:
            self._queue.delete(known.key)

    def _wake_neighbours(self, node: str, before: PodInfo | None, after: PodInfo | None, now: float) -> None:
        own = after.uid if after is not None else ""
        if after is None:
            self._wake_all(node, POD_GONE, now, (Waits.ROOM,), own)
            return
        if before is not None and before.requests is not after.requests:
            old, new = before.requests.amounts, after.requests.amounts
            if any(new.get(name, 0) < had for name, had in old.items()):
                # Its own status, too, may show that less is held than was.
                self._wake_all(node, POD_SHRANK, now, (Waits.ROOM,))
                return
            if any(new.get(name, 0) > old.get(name, 0) for name in new):
                self._grew(node, after, now)
                return
        if self.rules.wakes_on_any_event:
            self._wake_all(node, POD_CHANGED, now, (Waits.ROOM, Waits.KUBELET), own)

    def _grew(self, node: str, pod: PodInfo, now: float) -> None:
        """Another pod asks for more, or got it: the room of who was found to fit may be gone."""
        how = self.rules.parked_wakeup
        if how == "fit_scaleup_hint":
            self._wake_all(node, POD_GREW, now, (Waits.KUBELET,), pod.uid)
            return
        if how != "handler_add_or_activate":
            return
        for uid, known in list(self._by_node.get(node, {}).items()):
            if uid == pod.uid:
                continue
            if self._queue.get(known.key) is not None:
                self._queue.activate([known.key], now)
            elif (state := self._cache.pods.get(uid)) is not None:
                known.waits_for = Waits.TURN
                self._add(state.pod, now, "")

    # -- nodes -----------------------------------------------------------------------------------------

    def follow_node(self, before: Node | None, after: Node, now: float) -> None:
        """Take in an added or changed node, after the cache."""
        if not self._by_node:
            return
        name, source = after.metadata.name, self.rules.policy_source
        if before is None:
            self._wake_all(name, NODE_ADDED, now, (Waits.ROOM, Waits.POLICY, Waits.KUBELET))
            return
        if opts_out(before, source) and not opts_out(after, source):
            self._wake_all(name, POLICY_ENDED, now, (Waits.POLICY, Waits.KUBELET))
        if _has_grown(before, after):
            self._wake_all(name, NODE_GREW, now, (Waits.ROOM,))
        elif self.rules.wakes_on_any_event:
            self._wake_all(name, NODE_CHANGED, now, (Waits.ROOM, Waits.KUBELET))

    # -- attempts --------------------------------------------------------------------------------------

    def settle(self, queued: QueuedPod, verdict: Verdict | None, now: float) -> None:
        """Put the pod of an attempt where its verdict says; None: it waits no more."""
        uid = queued.uid
        known = self._by_node.get(verdict.node, {}).get(uid) if verdict is not None else None
        if verdict is None or known is None or verdict.waits_for is Waits.NOTHING:
            self._queue.bound(queued)
            if known is not None:
                known.waits_for = Waits.NOTHING
            return
        known.waits_for = verdict.waits_for
        self._queue.add_unschedulable(queued, now, rejectors=(NAME,))

    def _wake_all(self, node: str, event: ClusterEvent, now: float, who: tuple[Waits, ...], but: str = "") -> None:
        """Wake those of a node that wait for one of these things; with `any_event` those of every node."""
        if self.rules.wakes_on_any_event:
            found = [(uid, each) for pods in self._by_node.values() for uid, each in pods.items()]
            who = (*who, Waits.ROOM, Waits.KUBELET)
        else:
            found = list(self._by_node.get(node, {}).items())
        for uid, known in found:
            # Whoever is being tried just now has not seen this either.
            if uid != but and (known.waits_for in who or self._queue.is_in_flight(uid)):
                self._wake(known, event, now)

    def _wake(self, known: _Deferred, event: ClusterEvent, now: float) -> None:
        self._queue.wake(known.key, event, now)


def gated(preempting: Preempting, others: PreEnqueue) -> PreEnqueue:
    """Return what decides who may be tried: for a pod with a node only whether its victims are being evicted."""

    def pre_enqueue(pod: PodInfo, first: str) -> Status:
        if not pod.spec.node_name:
            return others(pod, first)
        return _IN_PROGRESS if preempting.is_running(pod.uid) else SUCCESS

    return pre_enqueue


def _wish_of(pod: PodInfo) -> Amounts:
    try:
        return desired(pod.pod)
    except ValueError:
        return {}


def _has_grown(before: Node, after: Node) -> bool:
    old, new = before.status.allocatable, after.status.allocatable
    if old == new:
        return False
    try:
        return any(amount(name, text) > amount(name, old.get(name, "0")) for name, text in new.items())
    except ValueError:
        return True


def _most(one: PodRequests, other: PodRequests) -> PodRequests:
    """Return what covers both."""
    names = list(dict.fromkeys((*one.amounts, *other.amounts)))
    amounts = {name: max(one.amounts.get(name, 0), other.amounts.get(name, 0)) for name in names}
    if amounts == one.amounts:
        return one
    return replace(other, amounts=amounts,
                   wanted=tuple((name, amounts[name]) for name in names if amounts[name] > 0),
                   nonzero_cpu=max(one.nonzero_cpu, other.nonzero_cpu),
                   nonzero_memory=max(one.nonzero_memory, other.nonzero_memory))  # fmt: skip
