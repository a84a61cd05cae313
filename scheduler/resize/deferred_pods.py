"""The queueing of deferred pods: the effect of each watched change of a pod on a node.

The queue is the one of new pods. Deferred ones are kept out of the plugins' queueing hints by waiting under
a name that no plugin has. They are tried again after events on their own node, or by the clock: an event
matters to the deferred pods of the event's own node and to no others, and they are found by that node, so
that a thousand of them cost new pods nothing. Source: kep-5836 5, 7.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import PodInfo, most
from scheduler.framework.events import ASSIGNED_POD, WILDCARD, Action, ClusterEvent
from scheduler.framework.status import Code, Status
from scheduler.framework.timing import Watch
from scheduler.preemption.eligibility import IN_PROGRESS
from scheduler.preemption.progress import RunningPreemptions
from scheduler.queue.scheduling_queue import Pool, QueuedPod, SchedulingQueue
from scheduler.resize.accounting import Accounting
from scheduler.resize.cycle import ResizeCycle
from scheduler.resize.deferral import CONDITION, allocated_amounts, is_deferred, is_disabled_by_kubelet, opts_out, waits
from scheduler.resize.out_of_tree import OutOfTreePlugins
from scheduler.resize.outcome import NAME, PREEMPTION, ResizeOutcome, Waits
from scheduler.resize.rules import ResizeRules
from services.api.kinds.node import Node
from services.api.kinds.pod import RESIZE_RESERVED, Pod
from services.api.meta import Key, find_condition
from services.api.podresources import Amounts, pod_requests
from services.api.quantity import amount

ADDED: Final = ClusterEvent(ASSIGNED_POD, Action.ADD, "UnscheduledPodAdd")
ADDED_BETA: Final = ClusterEvent(ASSIGNED_POD, Action.ADD, "AssignedPodResize")
_IN_PROGRESS: Final = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (IN_PROGRESS,), PREEMPTION)

PreEnqueue = Callable[[PodInfo, str], Status]


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
    """A pod that waits for capacity to grow; `desired_amounts`: its requests."""

    key: Key
    waits_for: Waits
    desired_amounts: Amounts


@dataclass
class DeferredPods:
    """The pods that wait for a resize, by node. `is_ours`: whether this scheduler has the pod's profile.

    `watch` gets the handler's duration if metrics separate resizes from new pods. `accounting`: is informed of
    resizes that an attempt accepted; None if they count from the beginning.
    """

    cache: Cache
    queue: SchedulingQueue
    cycle: ResizeCycle
    rules: ResizeRules
    is_ours: Callable[[PodInfo], bool]
    watch: Watch | None = None
    accounting: Accounting | None = None

    def __post_init__(self) -> None:
        self.by_node: dict[str, dict[str, Deferred]] = {}
        self._due: OrderedDict[str, tuple[float, Deferred]] = OrderedDict()
        if not self.rules.has_own_labels:
            self.watch = None
        self._writes = (
            self.rules.conditions == "resize_unschedulable_g1"
            or self.rules.double_preemption == "nnn"
            or self.rules.reserves_on_node
        )

    def pending(self) -> dict[str, int]:
        """Return the number of deferred pods by queue; `waiting`: those that left it because they fit."""
        counts: dict[str, int] = {}
        for pods in self.by_node.values():
            for pod in pods.values():
                queued = self.queue.get(pod.key)
                pool = queued.pool if queued is not None else Pool.NONE
                name = "backoff" if pool is Pool.ERROR_BACKOFF else str(pool) or "waiting"
                counts[name] = counts.get(name, 0) + 1
        return counts

    def size(self, before: PodInfo, after: PodInfo) -> None:
        """Count a pod with a superseded resize at the larger request until it is resolved, if that is configured."""
        if self.rules.holds_most and waits(before.pod) and waits(after.pod):
            after.requests = most(before.requests, after.requests)

    def update_order(self, before: PodInfo, after: PodInfo) -> str:
        """Return the order in which queue and cache follow a pod's change: queue_first, cache_first, or one_step."""
        order = self.rules.update_order
        return order if order != "one_step" and (waits(before.pod) or waits(after.pod)) else "one_step"

    def has_ended(self, before: PodInfo | None, after: PodInfo) -> bool:
        """Whether the change ends the wait of a pod that may have conditions from this scheduler."""
        return before is not None and self._writes and waits(before.pod) and self._is_over(after)

    def left_over(self) -> list[PodInfo]:
        """Return the pods that no longer wait and still have conditions that an earlier scheduler wrote."""
        if not self._writes:
            return []
        return [
            state.pod
            for state in self.cache.pods.values()
            if _has_leftovers(state.pod.pod) and self._is_over(state.pod)
        ]

    def _is_over(self, pod: PodInfo) -> bool:
        return not waits(pod.pod) and pod.pod.is_active and self.is_ours(pod)

    def follow(
        self, node: str, before: PodInfo | None, after: PodInfo | None, now: float, traceparent: str = ""
    ) -> None:
        """Take a change of a pod on a node."""
        if (
            after is not None
            and (before is None or node not in self.by_node)
            and not (self.rules.wakes_on_any_event or is_deferred(after.pod))
        ):
            # New pods are what a scheduler is for: beside thousands of deferred ones they pay for no more than this.
            return
        self.follow_own(node, before, after, now, traceparent)
        self.follow_others(node, before, after, now)

    def follow_own(
        self, node: str, before: PodInfo | None, after: PodInfo | None, now: float, traceparent: str = ""
    ) -> None:
        """Queue the pod itself, or drop it when it stops waiting."""
        began = self.watch.now() if self.watch is not None else 0.0
        known = self.by_node.get(node)
        if after is not None and self._takes(after):
            self._request(node, after, now, traceparent)
        elif known is not None and before is not None and before.uid in known:
            self._leave(node, before)
        else:
            return
        if self.watch is not None:
            self.watch.event(ADDED_BETA.label, self.watch.now() - began)

    def _takes(self, pod: PodInfo) -> bool:
        if not waits(pod.pod) or not self.is_ours(pod):
            return False
        return not (self.rules.heeds_kubelet and is_disabled_by_kubelet(pod.pod))

    def _request(self, node: str, pod: PodInfo, now: float, traceparent: str) -> None:
        """A pod waits, newly or still; a new request is a reason to look again."""
        pods = self.by_node.setdefault(node, {})
        known = pods.get(pod.uid)
        desired_amounts = _desired_of(pod)
        if known is None:
            pods[pod.uid] = Deferred(pod.key, Waits.TURN, desired_amounts)
            self._add(pod, now, traceparent)
            return
        queued = self.queue.get(pod.key)
        if queued is not None and queued.uid == pod.uid:
            queued.info.show(pod.pod)
        before, known.desired_amounts = known.desired_amounts, desired_amounts
        if desired_amounts == before:
            return
        if queued is None:
            known.waits_for = Waits.TURN
            self._add(pod, now, traceparent)
        elif self._own_request(known, before, desired_amounts, now):
            queued.traceparent = traceparent or queued.traceparent

    def _enqueue(self, uid: str, now: float) -> None:
        """Queue a pod again that had left the queue and still waits."""
        state = self.cache.pods.get(uid)
        if state is not None:
            self.by_node[state.node_name][uid].waits_for = Waits.TURN
            self._add(state.pod, now, "")

    def _add(self, pod: PodInfo, now: float, traceparent: str) -> None:
        # A form of its own: attempts and back-off begin at zero, whatever placing the pod once took.
        queued = PodInfo(pod.pod)
        queued.priority = self.cycle.priority_of(pod)
        self.queue.add(queued, now, traceparent=traceparent, event=ADDED_BETA if self.rules.has_own_labels else ADDED)
        # Its capacity is counted already, whatever its status says of a nomination.
        self.queue.nominator.remove(pod.uid)

    def _leave(self, node: str, pod: PodInfo) -> None:
        pods = self.by_node[node]
        known = pods.pop(pod.uid)
        if not pods:
            del self.by_node[node]
        self.cycle.forget(pod.uid)
        if self.accounting is not None:
            self.accounting.forget(pod.uid)
        self._due.pop(pod.uid, None)
        queued = self.queue.get(known.key)
        if queued is not None and queued.uid == pod.uid:
            self.queue.delete(known.key)

    def settle(self, queued: QueuedPod, outcome: ResizeOutcome | None, now: float) -> None:
        """Put the pod of an attempt into the pool that the outcome requires; None: it waits no more."""
        uid = queued.uid
        if outcome is not None and (outcome.fits or outcome.evictions):
            self._accept(uid)
        known = self.by_node.get(outcome.node, {}).get(uid) if outcome is not None else None
        if outcome is None or known is None or outcome.waits_for is Waits.NOTHING:
            self.queue.on_bound(queued)
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
        self.queue.add_unschedulable(queued, now, rejectors=rejectors, pending=pending)
        if self.rules.retry_period_s:
            # It waits on; from now until its period is over only the clock wakes it.
            self._due[uid] = (now + self.rules.retry_period_s, known)
            self._due.move_to_end(uid)

    def _accept(self, uid: str) -> None:
        state = self.cache.pods.get(uid)
        accepted = self.accounting.accept(state.pod.pod) if self.accounting is not None and state is not None else None
        if accepted is not None:
            self.cache.update_pod(accepted)

    def _own_request(self, known: Deferred, before: Amounts, desired_amounts: Amounts, now: float) -> bool:
        """Look again at a queued pod that requests less of anything, or something else and was parked; say whether."""
        is_less = any(desired_amounts.get(name, 0) < before.get(name, 0) for name in RESIZABLE)
        if known.waits_for is Waits.CAPACITY and not is_less and self.rules.generation != "G2":
            return False
        self.queue.wake(known.key, OWN_REQUEST, now)
        return True

    def follow_others(self, node: str, before: PodInfo | None, after: PodInfo | None, now: float) -> None:
        """Wake the other deferred pods of the node after a change of one of its pods; it runs after the cache."""
        if not self.by_node:
            return
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
        if self.rules.counts_allocated and before is not None and allocated_amounts(before) != allocated_amounts(after):
            # It counts as before, but who was found to fit beside what it had may not fit beside what it was given,
            # whether it was parked or left the queue.
            self._wake_all(node, POD_GREW, now, (Waits.KUBELET,), own)
            for uid, known in list(self.by_node.get(node, {}).items()):
                if uid != own and known.waits_for is Waits.NOTHING and self.queue.get(known.key) is None:
                    self._enqueue(uid, now)
        elif self.rules.wakes_on_any_event:
            self._wake_all(node, POD_CHANGED, now, (Waits.CAPACITY, Waits.KUBELET), own)

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
                self._enqueue(uid, now)

    def follow_node(self, before: Node | None, after: Node, now: float) -> None:
        """Take an added or changed node; it runs after the cache."""
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

    def flush(self, now: float) -> None:
        """Wake the pods whose period is over."""
        while self._due:
            uid, (at, known) = next(iter(self._due.items()))
            if at > now:
                return
            del self._due[uid]
            self.queue.wake(known.key, CLOCK, now)

    def next_deadline(self) -> float | None:
        """Return when `flush` has work, if nothing else happens; None when never."""
        return next(iter(self._due.values()))[0] if self._due else None

    def _wake_all(self, node: str, event: ClusterEvent, now: float, who: tuple[Waits, ...], but: str = "") -> None:
        """Wake those of a node that wait for one of these things; with `any_event` those of every node."""
        if self.rules.retry_period_s:
            return
        if self.rules.wakes_on_any_event:
            deferred_pods = [(uid, each) for pods in self.by_node.values() for uid, each in pods.items()]
            who = (*who, Waits.CAPACITY, Waits.PLUGIN, Waits.KUBELET)
        else:
            deferred_pods = list(self.by_node.get(node, {}).items())
        for uid, known in deferred_pods:
            # A pod that is being tried just now has not seen this either.
            if uid != but and (known.waits_for in who or self.queue.is_in_flight(uid)):
                self.queue.wake(known.key, event, now)


def make_gate(
    preempting: RunningPreemptions, out_of_tree: Mapping[str, OutOfTreePlugins], others: PreEnqueue
) -> PreEnqueue:
    """Return the PreEnqueue check of pods: `others` for new pods.

    A pod with a node is gated by its evictions under way, and by out-of-tree plugins.
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
    written = (find_condition(pod.status.conditions, name) for name in (CONDITION, RESIZE_RESERVED))
    return is_nominated or any(each is not None for each in written)


def _desired_of(pod: PodInfo) -> Amounts:
    try:
        return pod_requests(pod.pod)
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
