"""When a deferred pod is queued and when it leaves: what each change of a pod on a node, seen by watch, means for it.

The queue is the one of new pods. Deferred ones are kept out of the plugins' queueing hints by waiting under a name
that no plugin has; `wake_ups` says what wakes them. Source: kep-5836 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import PodInfo, most
from scheduler.framework.events import ASSIGNED_POD, Action, ClusterEvent
from scheduler.framework.status import Code, Status
from scheduler.preemption.eligibility import IN_PROGRESS
from scheduler.preemption.progress import RunningPreemptions
from scheduler.queue.scheduling_queue import QueuedPod, SchedulingQueue
from scheduler.resize.cycle import ResizeCycle
from scheduler.resize.deferral import CONDITION, is_deferred, is_disabled_by_kubelet, waits
from scheduler.resize.out_of_tree import OutOfTreePlugins
from scheduler.resize.outcome import NAME, PREEMPTION, ResizeOutcome, Waits
from scheduler.resize.rules import ResizeRules
from scheduler.resize.wake_ups import Deferred, WakeUps
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.meta import find_condition
from services.api.podresources import Amounts, pod_requests

ADDED: Final = ClusterEvent(ASSIGNED_POD, Action.ADD, "UnscheduledPodAdd")
ADDED_BETA: Final = ClusterEvent(ASSIGNED_POD, Action.ADD, "AssignedPodResize")
_IN_PROGRESS: Final = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (IN_PROGRESS,), PREEMPTION)

PreEnqueue = Callable[[PodInfo, str], Status]
IsOurs = Callable[[PodInfo], bool]


class EventWatch(Protocol):
    """Observes how long events take."""

    now: Callable[[], float]

    def event(self, event: str, took_s: float) -> None:
        """Note how long it took to find out whom an event may help."""


class DeferredPods:
    """Follows all pods that wait for a resize, by node. `is_ours`: whether this scheduler has the pod's profile.

    `watch` gets how long the handler takes where metrics have resizes apart from new pods.
    """

    def __init__(
        self,
        cache: Cache,
        queue: SchedulingQueue,
        cycle: ResizeCycle,
        rules: ResizeRules,
        is_ours: IsOurs,
        watch: EventWatch | None = None,
    ) -> None:
        self.cycle = cycle
        self.rules = rules
        self.wake_ups = WakeUps(queue, rules, self._enqueue)
        self._cache = cache
        self._queue = queue
        self._is_ours = is_ours
        self._watch = watch if rules.has_own_labels else None
        self._writes = rules.conditions == "resize_unschedulable_g1" or rules.double_preemption == "nnn"

    def pending(self) -> dict[str, int]:
        """Return how many deferred pods are in which pool; `waiting`: those that left the queue because they fit."""
        return self.wake_ups.pools()

    # -- pods ------------------------------------------------------------------------------------------

    def size(self, before: PodInfo, after: PodInfo) -> None:
        """Count a pod whose resize is superseded with the larger request until it is resolved, if that is asked."""
        if self.rules.holds_most and waits(before.pod) and waits(after.pod):
            after.requests = most(before.requests, after.requests)

    def update_order(self, before: PodInfo, after: PodInfo) -> str:
        """Return which of queue and cache follows a pod's change first: queue_first, cache_first, or one_step."""
        order = self.rules.update_order
        return order if order != "one_step" and (waits(before.pod) or waits(after.pod)) else "one_step"

    def has_ended(self, before: PodInfo | None, after: PodInfo) -> bool:
        """Whether the wait of a pod ends of which this scheduler may have written things on it."""
        return before is not None and self._writes and waits(before.pod) and self._is_over(after)

    def left_over(self) -> list[PodInfo]:
        """Return the pods that wait no more and still say things that a scheduler before this one wrote of it."""
        if not self._writes:
            return []
        return [
            state.pod
            for state in self._cache.pods.values()
            if _has_leftovers(state.pod.pod) and self._is_over(state.pod)
        ]

    def _is_over(self, pod: PodInfo) -> bool:
        return not waits(pod.pod) and pod.pod.is_active and self._is_ours(pod)

    def follow(
        self, node: str, before: PodInfo | None, after: PodInfo | None, now: float, traceparent: str = ""
    ) -> None:
        """Take in a change of a pod on a node."""
        if after is not None and (before is None or node not in self.wake_ups.by_node) and self._is_no_news(after):
            return
        self.follow_own(node, before, after, now, traceparent)
        self.follow_others(node, before, after, now)

    def _is_no_news(self, pod: PodInfo) -> bool:
        """Whether a pod that is new on a node, or stays on one where no pod waits, wakes no pod and waits for nothing.

        New pods are what a scheduler is for: beside thousands of deferred ones they pay for no more than this.
        """
        return not self.rules.wakes_on_any_event and not is_deferred(pod.pod)

    def follow_own(
        self, node: str, before: PodInfo | None, after: PodInfo | None, now: float, traceparent: str = ""
    ) -> None:
        """Queue the pod itself, or drop it when it stops waiting."""
        began = self._watch.now() if self._watch is not None else 0.0
        known = self.wake_ups.by_node.get(node)
        if after is not None and self._takes(after):
            self._request(node, after, now, traceparent)
        elif known is not None and before is not None and before.uid in known:
            self._leave(node, before)
        else:
            return
        if self._watch is not None:
            self._watch.event(ADDED_BETA.label, self._watch.now() - began)

    def follow_others(self, node: str, before: PodInfo | None, after: PodInfo | None, now: float) -> None:
        """Wake the other deferred pods of the node by the change, after the cache."""
        if self.wake_ups.by_node:
            self.wake_ups.neighbour(node, before, after, now)

    def follow_node(self, before: Node | None, after: Node, now: float) -> None:
        """Take in an added or changed node, after the cache."""
        self.wake_ups.node(before, after, now)

    def _takes(self, pod: PodInfo) -> bool:
        if not waits(pod.pod) or not self._is_ours(pod):
            return False
        return not (self.rules.heeds_kubelet and is_disabled_by_kubelet(pod.pod))

    def _request(self, node: str, pod: PodInfo, now: float, traceparent: str) -> None:
        """A pod waits, newly or still; a new request is a reason to look again."""
        pods = self.wake_ups.by_node.setdefault(node, {})
        known = pods.get(pod.uid)
        desired_amounts = _desired_of(pod)
        if known is None:
            pods[pod.uid] = Deferred(pod.key, Waits.TURN, desired_amounts)
            self._add(pod, now, traceparent)
            return
        queued = self._queue.get(pod.key)
        if queued is not None and queued.uid == pod.uid:
            queued.info.pod = pod.pod
        before, known.desired_amounts = known.desired_amounts, desired_amounts
        if desired_amounts == before:
            return
        if queued is None:
            known.waits_for = Waits.TURN
            self._add(pod, now, traceparent)
        elif self.wake_ups.own_request(known, before, desired_amounts, now):
            queued.traceparent = traceparent or queued.traceparent

    def _enqueue(self, uid: str, now: float) -> None:
        """Queue a pod again that had left the queue and still waits."""
        state = self._cache.pods.get(uid)
        if state is not None:
            self.wake_ups.by_node[state.node_name][uid].waits_for = Waits.TURN
            self._add(state.pod, now, "")

    def _add(self, pod: PodInfo, now: float, traceparent: str) -> None:
        # A form of its own: attempts and back-off begin at zero, whatever placing the pod once took.
        queued = PodInfo(pod.pod)
        queued.priority = self.cycle.priority_of(pod)
        self._queue.add(queued, now, traceparent=traceparent, event=ADDED_BETA if self.rules.has_own_labels else ADDED)
        # Its capacity is counted already, whatever its status says of a nomination.
        self._queue.nominator.remove(pod.uid)

    def _leave(self, node: str, pod: PodInfo) -> None:
        pods = self.wake_ups.by_node[node]
        known = pods.pop(pod.uid)
        if not pods:
            del self.wake_ups.by_node[node]
        self.cycle.forget(pod.uid)
        self.wake_ups.forget(pod.uid)
        queued = self._queue.get(known.key)
        if queued is not None and queued.uid == pod.uid:
            self._queue.delete(known.key)

    # -- attempts --------------------------------------------------------------------------------------

    def settle(self, queued: QueuedPod, outcome: ResizeOutcome | None, now: float) -> None:
        """Put the pod of an attempt where its outcome says; None: it waits no more."""
        uid = queued.uid
        known = self.wake_ups.by_node.get(outcome.node, {}).get(uid) if outcome is not None else None
        if outcome is None or known is None or outcome.waits_for is Waits.NOTHING:
            self._queue.bound(queued)
            if known is not None:
                known.waits_for = Waits.NOTHING
            return
        known.waits_for = outcome.waits_for
        rejectors: tuple[str, ...] = (NAME,)
        if outcome.is_error:
            rejectors = ()  # tried again, whatever happens
        elif outcome.waits_for is Waits.PLUGIN:
            rejectors = (NAME, outcome.plugin)  # which has named the events that may change its mind
        pending = (outcome.plugin,) if outcome.is_pending else ()
        self._queue.add_unschedulable(queued, now, rejectors=rejectors, pending=pending)
        self.wake_ups.put_back(uid, known, now)


def gated(
    preempting: RunningPreemptions, out_of_tree: Mapping[str, OutOfTreePlugins], others: PreEnqueue
) -> PreEnqueue:
    """Return what decides who may be tried: for a pod with a node whether its victims are being evicted.

    Plugins that are not kube-scheduler's own may gate it, too.
    """

    def pre_enqueue(pod: PodInfo, first: str) -> Status:
        if not pod.spec.node_name:
            return others(pod, first)
        if preempting.is_running(pod.uid):
            return _IN_PROGRESS
        return out_of_tree[pod.spec.scheduler_name].gates.pre_enqueue(pod)

    return pre_enqueue


def _has_leftovers(pod: Pod) -> bool:
    """Whether the pod's status has something that only a wait for a resize explains."""
    is_nominated = bool(pod.spec.node_name) and pod.status.nominated_node_name == pod.spec.node_name
    return is_nominated or find_condition(pod.status.conditions, CONDITION) is not None


def _desired_of(pod: PodInfo) -> Amounts:
    try:
        return pod_requests(pod.pod)
    except ValueError:
        return {}
