"""The resizes of one node: which pods wait for one, what is decided of each, and what is recorded of it. Pure.

One that asks for more is judged at once and, when there is too little, again whenever some may have come: pods were
added, changed, removed or ended, another was made smaller, and every three minutes in any case. What the ledger
counts is the allocation, so two decisions never allocate the same capacity.
Source: kep-1287-in-place-resize 4 to 6, 11, 12; upstream `pkg/kubelet/allocation`.
"""

from __future__ import annotations

from collections.abc import Callable

from kubelet.admission.predicates import Ledger, NodeFacts
from kubelet.effects import NODE_KEY, Outbox, ResizeAttempted, SetTimer
from kubelet.pod.actuation import size_text
from kubelet.pod.context import RESIZE_PENDING
from kubelet.pod.pod import Pod
from kubelet.pod.states import PodState
from kubelet.pod.table import PodTable
from kubelet.resize.actuation_metrics import actuated
from kubelet.resize.allocation import Deferred, Fits, Infeasible, Judgement, NodeRules, grows, judge, shrinks
from kubelet.resize.metrics import DeferredTimes
from kubelet.resize.queue import RETRY_S, UNREADY_RETRY_S, Rank, ResizeQueue
from kubelet.runtime.resources import is_same, resources_of
from kubelet.view import KubeletPod, WorkerKey, is_critical
from services.api.podresources import Amounts, amounts, qos_class

DEFERRED, INFEASIBLE = "Deferred", "Infeasible"
_LIVE = (PodState.HELD, PodState.STARTING, PodState.RUNNING)


class ResizeManager:
    """Who waits for a resize. `trigger`: why the next pass is due, "" when none is."""

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
        self._ledger, self._rules, self._out = ledger, rules, out
        self._table = table
        self._node, self._evict, self._status_changed = node, evict, status_changed
        self._is_passing = False
        table.on(ResizeAttempted, self._attempted)
        self._shrinking: dict[WorkerKey, None] = {}
        self._times = DeferredTimes(out)

    def requested(self, worker: Pod, pod: KubeletPod) -> bool:
        """The spec of a pod changed, or its kubelet is new: queue it when there is something to decide."""
        if is_same(resources_of(pod), worker.allocated) and RESIZE_PENDING not in worker.conditions:
            self.queue.discard(worker.key)
            return False
        self.queue.push(worker.key, lambda key: self._rank(self._table.pods[key]))
        return True

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
        """Whether anything can still be decided for the pod; otherwise it waits no longer."""
        return worker is not None and worker.state in _LIVE and worker.key in self._ledger.entries

    def _passed(self, now: float) -> float | None:
        """A pass is over, or could not be made yet: return when the next is due by itself, None when none waits."""
        if not len(self.queue):
            self.retry_at_s = float("inf")
            return None
        self.retry_at_s = now + (RETRY_S if self.has_sources else UNREADY_RETRY_S)
        return self.retry_at_s

    # --- a pass (kep-1287 6) ---

    def retry(self, trigger: str, now: float) -> None:
        """Judge every resize that waits, in order; one that does not fit does not hold up the others."""
        self.trigger = trigger
        if self._is_passing:
            return  # the pass that goes on is followed by another
        self._is_passing = True
        while self.trigger and self.has_sources:
            trigger, self.trigger = self.trigger, ""
            for key in self.queue.in_order():
                worker = self._table.pods.get(key)
                if worker is None or not self.is_live(worker):
                    self.forget(key, now)
                    continue
                self._judge(worker, trigger, now)
        self._is_passing = False
        due_s = self._passed(now)
        if due_s is not None:
            self._out.effects.append(SetTimer(due_s, "resizes", NODE_KEY))

    def due(self, now: float) -> None:
        """The timer of the next pass fired."""
        if self.retry_at_s <= now + 1e-6:
            self.retry("periodic_retry", now)

    def _judge(self, worker: Pod, trigger: str, now: float) -> None:
        evicting = self._table.leaving() if is_critical(worker.pod) else frozenset()
        match self.decide(worker, self._node(), evicting, trigger, now):
            case Fits():
                self._table.perform(worker, worker.allocate(worker.pod, now), now)
            case Deferred(victims=victims, resource=resource):
                for victim in victims:
                    self._evict(victim, resource, now)
                self._status_changed(worker.key, now)
            case _:
                self._status_changed(worker.key, now)

    # --- a decision ---

    def decide(
        self, worker: Pod, node: NodeFacts, evicting: frozenset[WorkerKey], trigger: str, now: float
    ) -> Judgement | None:
        """Judge what the pod asks for now, note it, and keep it in the queue only when it is deferred.

        None: it asks for what it has. After `Fits` the ledger counts the new size; the pod is still to apply it.
        """
        key, pod = worker.key, worker.pod
        if is_same(resources_of(pod), worker.allocated):
            self.queue.discard(key)
            self._times.ended(key, "reverted", now)
            worker.conditions.pop(RESIZE_PENDING, None)
            return None
        entry = self._ledger.remove(key)
        assert entry is not None, f"{key} is not in the ledger"
        found = judge(pod, worker.allocated, self._ledger, node, self._rules, evicting=evicting)
        if isinstance(found, Fits):
            self._ledger.add(key, pod, found.requests, entry.allocation)
            if shrinks(found.requests, entry.requests):
                self._shrinking[key] = None
            self._times.ended(key, "accepted", now)
            self._accepted(worker, found.requests, trigger)
        else:
            self._ledger.add(key, entry.pod, entry.requests, entry.allocation)
            self._pending(worker, found, now)
        if not isinstance(found, Deferred):
            self.queue.discard(key)
        return found

    def _accepted(self, worker: Pod, requests: Amounts, trigger: str) -> None:
        held = worker.conditions.get(RESIZE_PENDING)
        if held is not None and held.reason == DEFERRED:
            self._out.count(f'kubelet_pod_deferred_accepted_resizes_total{{retry_trigger="{trigger}"}}')
        self._out.log(
            "kubelet.resize",
            worker.pod,
            worker.key,
            {
                "requests": requests,
                "ledger": dict(self._ledger.used),
                "allocatable": dict(self._ledger.allocatable),
                "generation": worker.pod.metadata.generation,
                "trigger": trigger,
            },
        )

    def _pending(self, worker: Pod, found: Deferred | Infeasible, now: float) -> None:
        pod, generation = worker.pod, worker.pod.metadata.generation
        reason = DEFERRED if isinstance(found, Deferred) else INFEASIBLE
        if isinstance(found, Deferred):
            self._times.began(worker.key, pod.spec.priority, now)
        else:
            self._times.ended(worker.key, "reverted", now)
            self._out.count(f'kubelet_pod_infeasible_resizes_total{{reason_detail="{found.detail}"}}')
        if worker.set_resize_condition(now, RESIZE_PENDING, reason, found.message, generation):
            text = size_text(pod, resources_of(pod), generation, found.message)
            self._out.event(pod, f"Resize{reason}", f"Pod resize {reason}: {text}", "Warning")

    def _attempted(self, worker: Pod, attempt: ResizeAttempted, now: float) -> None:
        """The runtime has applied a new size, or not; after a smaller one other resizes may fit."""
        actuated(self._out, attempt.took_s, succeeded=attempt.succeeded)
        if attempt.succeeded and self._shrinking.pop(worker.key, 0) is None:
            self.retry("pod_resized", now)

    def forget(self, key: WorkerKey, now: float) -> None:
        """The pod is over."""
        self.queue.discard(key)
        self._times.ended(key, "terminated", now)
        self._shrinking.pop(key, None)

    def count_request(self, old: KubeletPod, new: KubeletPod) -> None:
        """Count what a changed spec asks for, item by item."""
        before, after = resources_of(old), resources_of(new)
        for name, size in after.containers.items():
            was = before.of(name)
            for part, one, other in (
                ("requests", amounts(was.requests), amounts(size.requests)),
                ("limits", amounts(was.limits), amounts(size.limits)),
            ):
                for resource in ("cpu", "memory"):
                    change = _change(one.get(resource), other.get(resource))
                    if change:
                        self._out.count(
                            f'kubelet_container_requested_resizes_total{{operation="{change}",'
                            f'requirement="{part}",resource="{resource}"}}'
                        )


def _change(old: int | None, new: int | None) -> str:
    if old == new:
        return ""
    if old is None:
        return "add"
    if new is None:
        return "remove"
    return "increase" if new > old else "decrease"
