"""The resizes of one node: the pods that wait for one, the decision on each, and its records. Pure.

A resize that grows is decided at once. If capacity is short, it is decided again whenever some may be free:
pods were added, changed, removed or ended, another resize shrank, and every three minutes in any case. The
ledger counts allocations, so two decisions never allocate the same capacity. The waiting pods are sorted
when one is added and not again before a pass (kep-1287 6). A resize that still does not fit never holds up
those behind it. The time of waiting for capacity is observed by the priority of the pods.
Source: kep-1287-in-place-resize 4 to 6, 11, 12; kep-5836 11; KEP-1287 "Priority of Resize Requests";
upstream `pkg/kubelet/allocation`. Deviates: upstream's names of waiting times are known from a digest of
its change only; its comparison lets any resize that does not grow win against any other, even another of
its kind; here those are ordered among themselves by the other rules, so that there is an order at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from kubelet.admission.predicates import Ledger, NodeFacts
from kubelet.effects import NODE_KEY, Outbox, ResizeAttempted, SetTimer
from kubelet.pod.actuation import size_text
from kubelet.pod.context import RESIZE_PENDING
from kubelet.pod.pod import Pod
from kubelet.pod.states import PodState
from kubelet.pod.table import PodTable
from kubelet.resize.allocation import Deferred, Fits, Infeasible, Judgement, NodeRules, grows, judge, shrinks
from kubelet.resize.policy import DEFERRED
from kubelet.runtime.resources import is_same
from kubelet.view import KubeletPod, WorkerKey, is_critical
from services.api.kinds.pod import RESIZE_RESERVED
from services.api.meta import find_condition
from services.api.podresources import Amounts, amounts, qos_class

RETRY_S = 180.0
UNREADY_RETRY_S = 30.0
"""Seconds between retries while the pod sources are not ready (kep-1287 6)."""

BOUNDS: Final = (5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180, 300, 600, 1200, 1800, 3600)
PRIORITIES: Final = (
    (2_000_000_000, "system-critical"), (100_000, "high"), (1, "medium"), (0, "normal"), (-999, "low"),
)  # fmt: skip
WAITED: Final = "kubelet_pod_deferred_resize_duration_seconds"
TOOK_MS: Final = "kubelet_pod_resize_duration_milliseconds"
"""The metric of attempts to apply a resize (kep-1287-in-place-resize 12).

The KEP calls it kubelet_pod_resize_duration_seconds; the name served by kubelets since v1.34 counts
milliseconds and says whether the attempt succeeded.
"""
BOUNDS_MS: Final = (10, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000)

_QOS_RANK = {"Guaranteed": 0, "Burstable": 1, "BestEffort": 2}
_NEVER_JUDGED = "~"  # after every RFC 3339 time
_LIVE = (PodState.HELD, PodState.STARTING, PodState.RUNNING)


class Rank(NamedTuple):
    """The rank of a resize in the queue; a smaller rank is tried earlier.

    Resizes that do not grow come first, then priority, QoS, and the longest wait decide.
    """

    grows: bool
    minus_priority: int
    qos: int
    since: str

    @classmethod
    def of(cls, *, grows: bool, priority: int, qos: str, since: str) -> Rank:
        """Return the rank of a resize; `since`: when it was found pending, RFC 3339, "" if it was never decided."""
        return cls(grows, -priority, _QOS_RANK[qos], since or _NEVER_JUDGED)


class ResizeQueue(list[WorkerKey]):
    """The pods that wait for a resize, in the order of tries. Invariant: every key is in it at most once."""

    def push(self, key: WorkerKey, rank: Callable[[WorkerKey], Rank]) -> None:
        """Add a pod and sort the queue; a pod that waits already keeps its place."""
        if key not in self:
            self.append(key)
            self.sort(key=rank)

    def discard(self, key: WorkerKey) -> None:
        """Remove the pod from the queue."""
        if key in self:
            self.remove(key)


def priority_bucket(priority: int) -> str:
    """Return the class of a priority: the first class whose minimum it reaches."""
    return next((name for least, name in PRIORITIES if priority >= least), "very-low")


class DeferredTimes:
    """The time since which each resize is deferred. A request that replaces a deferred one keeps its time."""

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self._since: dict[WorkerKey, tuple[float, str]] = {}

    def began(self, key: WorkerKey, priority: int, now: float) -> None:
        """Note that the resize is deferred, newly or still."""
        if key not in self._since:
            self._since[key] = (now, priority_bucket(priority))

    def on_ended(self, key: WorkerKey, resolution: str, now: float) -> None:
        """Observe the wait of a resize that is no longer deferred: accepted, reverted or terminated."""
        if not self._since or (found := self._since.pop(key, None)) is None:
            return
        since_s, bucket = found
        self._out.observe(WAITED, now - since_s, bucket, resolution, bounds=BOUNDS)


class ResizeManager:
    """The waiting resizes of one node. `trigger`: why the next pass is due, "" when no pass is due."""

    def __init__(
        self,
        ledger: Ledger,
        rules: NodeRules,
        table: PodTable,
        out: Outbox,
        *,
        node: Callable[[], NodeFacts],
        evict: Callable[[WorkerKey, str, float], None],
        status_changed: Callable[[WorkerKey, float], None],
    ) -> None:
        self.queue = ResizeQueue()
        self.trigger = ""
        self.has_sources = False
        self.retry_at_s = float("inf")
        self._ledger, self.rules, self._out = ledger, rules, out
        self._table = table
        self._node, self._evict, self._status_changed = node, evict, status_changed
        self._is_passing = False
        table.on(ResizeAttempted, self._on_attempted)
        self._shrinking: dict[WorkerKey, None] = {}
        self._times = DeferredTimes(out)

    def on_requested(self, worker: Pod, pod: KubeletPod) -> bool:
        """Queue the resize of a pod whose spec changed or whose kubelet is new; return whether there is one."""
        if is_same(worker.desired_resources(pod), worker.allocated) and RESIZE_PENDING not in worker.conditions:
            self.queue.discard(worker.key)
            return False
        self.queue.push(worker.key, lambda key: self._rank(self._table.pods[key]))
        return True

    def recover(self, worker: Pod, pod: KubeletPod) -> None:
        """An earlier kubelet started the pod: queue what its spec asks for, if anything can still be decided."""
        if self.is_live(worker):
            self.on_requested(worker, pod)

    def _rank(self, worker: Pod) -> Rank:
        pod = worker.pod
        held = worker.conditions.get(RESIZE_PENDING)
        wanted, has = self._ledger.needs(pod), self._ledger.entries[worker.key].requests
        return Rank.of(
            grows=grows(wanted, has),
            priority=pod.spec.priority,
            qos=qos_class(pod),
            since="" if held is None else held.since,
        )

    def is_live(self, worker: Pod | None) -> bool:
        """Whether a resize can still be decided for the pod; otherwise it leaves the queue."""
        return worker is not None and worker.state in _LIVE and worker.key in self._ledger.entries

    def retry(self, trigger: str, now: float) -> None:
        """Decide every waiting resize, in order; one that does not fit does not hold up the others."""
        self.trigger = trigger
        if self._is_passing:
            return  # the pass that goes on is followed by another
        self._is_passing = True
        while self.trigger and self.has_sources:
            trigger, self.trigger = self.trigger, ""
            for key in tuple(self.queue):
                worker = self._table.pods.get(key)
                if worker is None or not self.is_live(worker):
                    self.forget(key, now)
                    continue
                self._judge(worker, trigger, now)
        self._is_passing = False
        if not self.queue:
            self.retry_at_s = float("inf")
            return
        self.retry_at_s = now + (RETRY_S if self.has_sources else UNREADY_RETRY_S)
        self._out.effects.append(SetTimer(self.retry_at_s, "resizes", NODE_KEY))

    def due(self, now: float) -> None:
        """Handle the timer of the next pass."""
        if self.retry_at_s <= now + 1e-6:
            self.retry("periodic_retry", now)

    def _judge(self, worker: Pod, trigger: str, now: float) -> None:
        evicting = self._table.leaving() if is_critical(worker.pod) else frozenset()
        match self.decide(worker, self._node(), evicting, trigger, now):
            case Fits():
                self._table.perform(worker, worker.allocate(worker.pod, now), now)
            case found:
                if isinstance(found, Deferred):
                    for victim in found.victims:
                        self._evict(victim, found.resource, now)
                self._status_changed(worker.key, now)

    def decide(
        self, worker: Pod, node: NodeFacts, evicting: frozenset[WorkerKey], trigger: str, now: float
    ) -> Judgement | None:
        """Decide the pod's present resize and record the decision; keep the pod queued only if it is deferred.

        None: the pod has the requested size already. After `Fits` the ledger counts the new size; the pod has still
        to apply it.
        """
        key, pod = worker.key, worker.pod
        if is_same(worker.desired_resources(pod), worker.allocated):
            self.queue.discard(key)
            self._times.on_ended(key, "reverted", now)
            worker.conditions.pop(RESIZE_PENDING, None)
            return None
        entry = self._ledger.remove(key)
        assert entry is not None, f"{key} is not in the ledger"
        judgement = judge(pod, worker.allocated, self._ledger, node, self.rules, evicting=evicting)
        if isinstance(judgement, Fits):
            self._ledger.add(key, pod, judgement.requests, entry.allocation)
            if shrinks(judgement.requests, entry.requests):
                self._shrinking[key] = None
            self._times.on_ended(key, "accepted", now)
            self._on_accepted(worker, judgement.requests, trigger)
        else:
            self._ledger.add(key, entry.pod, entry.requests, entry.allocation)
            self._pending(worker, judgement, now)
        if not isinstance(judgement, Deferred):
            self.queue.discard(key)
        if self.rules.keeps_reservations:
            self.keep_reservation(worker)
        return judgement

    def keep_reservation(self, worker: Pod) -> None:
        """Reserve the extra amount of a deferred resize, if the scheduler has accepted exactly that."""
        if (entry := self._ledger.entries.get(worker.key)) is None:
            return
        pod, pending = worker.pod, worker.conditions.get(RESIZE_PENDING)
        reserved = find_condition(pod.status.conditions, RESIZE_RESERVED)
        is_kept = (
            pending is not None
            and pending.reason == DEFERRED
            and reserved is not None
            and reserved.status == "True"
            and reserved.observed_generation == pod.metadata.generation
        )
        wanted = self._ledger.needs(pod) if is_kept else {}
        more = {name: value - entry.requests.get(name, 0) for name, value in wanted.items()}
        self._ledger.reserve(worker.key, {name: value for name, value in more.items() if value > 0})

    def _on_accepted(self, worker: Pod, requests: Amounts, trigger: str) -> None:
        held = worker.conditions.get(RESIZE_PENDING)
        if held is not None and held.reason == DEFERRED:
            self._out.counts.add("kubelet_pod_deferred_accepted_resizes_total", trigger)
        data = {
            "requests": requests,
            "ledger": dict(self._ledger.used),
            "allocatable": dict(self._ledger.allocatable),
            "generation": worker.pod.metadata.generation,
            "trigger": trigger,
        }
        self._out.log("kubelet.resize", worker.pod, worker.key, data)

    def _pending(self, worker: Pod, judgement: Deferred | Infeasible, now: float) -> None:
        pod, generation = worker.pod, worker.pod.metadata.generation
        reason = DEFERRED if isinstance(judgement, Deferred) else "Infeasible"
        if isinstance(judgement, Deferred):
            self._times.began(worker.key, pod.spec.priority, now)
        else:
            self._times.on_ended(worker.key, "reverted", now)
            self._out.counts.add("kubelet_pod_infeasible_resizes_total", judgement.detail)
        if worker.set_resize_condition(now, RESIZE_PENDING, reason, judgement.message, generation):
            text = size_text(pod, worker.desired_resources(pod), generation, judgement.message)
            self._out.event(pod, f"Resize{reason}", f"Pod resize {reason}: {text}", "Warning")

    def _on_attempted(self, worker: Pod, attempt: ResizeAttempted, now: float) -> None:
        """The runtime has applied a new size, or not; after a smaller one other resizes may fit."""
        success = str(attempt.succeeded).lower()
        self._out.observe(TOOK_MS, attempt.took_s * 1000, success, bounds=BOUNDS_MS)
        if attempt.succeeded and self._shrinking.pop(worker.key, 0) is None:
            self.retry("pod_resized", now)

    def forget(self, key: WorkerKey, now: float) -> None:
        """Forget a pod that has ended."""
        self.queue.discard(key)
        self._times.on_ended(key, "terminated", now)
        self._shrinking.pop(key, None)

    def count_request(self, old: KubeletPod, new: KubeletPod) -> None:
        """Count the changes of a changed spec, item by item."""
        before, after = self.rules.resources_of(old), self.rules.resources_of(new)
        for name, size in after.containers.items():
            was = before.of(name)
            for part, one, other in (
                ("requests", amounts(was.requests), amounts(size.requests)),
                ("limits", amounts(was.limits), amounts(size.limits)),
            ):
                for resource in ("cpu", "memory"):
                    change = _change(one.get(resource), other.get(resource))
                    if change:
                        self._out.counts.add("kubelet_container_requested_resizes_total", change, part, resource)


def _change(old: int | None, new: int | None) -> str:
    if old == new:
        return ""
    if old is None:
        return "add"
    if new is None:
        return "remove"
    return "increase" if new > old else "decrease"
