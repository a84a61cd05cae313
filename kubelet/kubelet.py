"""One node's kubelet as a pure machine: pods, timers and answers in; effects out.

It owns the ledger, a worker for each admitted (uid, binding generation), what was rejected, what is being
given back, and which status is written next. The shell feeds it and performs `effects` in order; nothing
here waits. Source: kubelet 3 to 6; kubelet-unbinding 6; guarantees N1 to N8.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubelet import unbinding
from kubelet.admission import Admitted, Ledger, NodeFacts, RoomNeeded, admit, asks_for_labels
from kubelet.allocation import Deferred, Fits, NodeRules, is_same, overlaid, resources_of
from kubelet.config import NodeDefinition, Settings
from kubelet.deferring import Deferring
from kubelet.effects import DeletePod, ReadNode, ReadPod, Save, SetTimer, WriteStatuses
from kubelet.eviction import Victim
from kubelet.fake_cri import PodRecord, encode_record
from kubelet.giving_back import GivingBack, Verdict
from kubelet.latency import LatencyModel
from kubelet.outbox import Outbox
from kubelet.pod_status import WallTimes
from kubelet.pod_worker import REMOVED_GRACE_S, PodWorker, Policy
from kubelet.pressure import NodePressure
from kubelet.resizing import Resizing
from kubelet.resource_managers import Allocation, Rejection, ResourceManagers
from kubelet.staging import Staging
from kubelet.status_manager import TAKEN_BACK, StatusManager, Write
from kubelet.unbinding import HOLD_PERIOD_S, Unbinding
from kubelet.view import KubeletPod, WorkerKey, is_critical, worker_key
from kubelet.worker_actions import Action, Finished, LogStart, LogStop, Persist, Poke, Reached, Resized, Told
from services.api.meta import Document, Key
from services.api.podresources import Amounts

_WRITE_STATUSES = WriteStatuses()
_NODE_KEY = WorkerKey("", 0)
"""Of timers that are about no single pod."""


class _Parked(msgspec.Struct):
    """A pod that is not decided yet. `why`: room, node, hold or defer."""

    pod: KubeletPod
    why: str
    rejection: Rejection | None = None


class Kubelet:
    """The machine of one node.

    Invariant: every key is in at most one of `workers`, `rejected`, `giving_back.going` and `parked`; the ledger
    holds exactly the keys of workers that are not terminated.
    """

    def __init__(
        self,
        definition: NodeDefinition,
        *,
        settings: Settings,
        latency: LatencyModel,
        policy: Policy,
        times: WallTimes,
        host_ip: str = "127.0.0.1",
        pod_network: str = "10.64.0",
    ) -> None:
        self.name = definition.name
        self.definition = definition
        self.settings = settings
        self.host_ip, self.pod_network = host_ip, pod_network
        self.ledger = Ledger(definition.allocatable())
        self.managers = ResourceManagers(definition, release_is_lazy=settings.releases_lazily)
        self.statuses = StatusManager(is_immediate=settings.writes_at_once)
        self.node = NodeFacts(definition.name, None, definition.taints)
        self.out = Outbox()
        self.pods: dict[str, KubeletPod] = {}
        self.workers: dict[WorkerKey, PodWorker] = {}
        self.rejected: dict[WorkerKey, Document] = {}
        self.giving_back = GivingBack(definition.name, settings, self.statuses, self.out, times)
        rules = NodeRules(has_static_cpus=definition.has_static_cpus, evicts=settings.evicts_for_resizes)
        self.resizing = Resizing(self.ledger, rules, self.out)
        self.deferring = Deferring(settings, self.out)
        self.staging: Staging | None = None
        self.pressure = NodePressure(definition, self.out)
        self.parked: dict[WorkerKey, _Parked] = {}
        self.records: dict[WorkerKey, PodRecord] = {}
        self._latency, self._policy, self._times = latency, policy, times
        self._adds: dict[str, tuple[KubeletPod, str]] = {}
        self._held: dict[WorkerKey, WorkerKey] = {}
        self._gone: dict[WorkerKey, None] = {}
        self._deleting: dict[WorkerKey, None] = {}
        self._recreated: dict[WorkerKey, None] = {}
        self._saved_once: dict[WorkerKey, None] = {}
        self._timers: dict[WorkerKey, float] = {}
        self._admitted_s: dict[WorkerKey, float] = {}
        self._names: dict[Key, int] = {}
        self._blocked: dict[WorkerKey, Document] = {}
        self._last_ip = 0
        self._is_resizing = False

    # --- pods as the API shows them (kubelet 3.1) ---

    def pod_changed(self, old: KubeletPod | None, new: KubeletPod | None, traceparent: str, now: float) -> None:
        """Take one change of the watch; additions wait for `settle`, so that a batch is admitted by age."""
        if old is not None and (new is None or worker_key(new) != worker_key(old)):
            self._removed(old, now)
        if new is None:
            return
        uid = new.metadata.uid
        if uid in self._adds:
            self._adds[uid] = (new, self._adds[uid][1] or traceparent)
            return
        known = self.pods.get(uid)
        if known is not None and worker_key(known) == worker_key(new):
            self._updated(known, new, now)
            return
        self._adds[uid] = (new, traceparent)

    def settle(self, now: float) -> None:
        """Admit what was added: what already runs here first, then the oldest. Then judge the resizes."""
        if self._adds:
            self._settle_adds(now)
            self.resizing.trigger = self.resizing.trigger or "pods_added"
        if self.resizing.trigger:
            self._retry_resizes(self.resizing.trigger, now)

    def _settle_adds(self, now: float) -> None:
        adds, self._adds = self._adds, {}
        order = sorted(
            adds.values(),
            key=lambda a: (
                worker_key(a[0]) not in self.records,
                a[0].metadata.creation_timestamp,
                a[0].metadata.namespace,
                a[0].metadata.name,
            ),
        )
        for pod, traceparent in order:
            self._added(pod, traceparent, now)

    def sources_ready(self, now: float) -> None:
        """The first complete list is here: end what runs of pods that do not exist any more."""
        self.pressure.begin(now)
        self.resizing.has_sources = True
        for key, record in list(self.records.items()):
            if key in self.workers:
                continue
            del self.records[key]
            if record.containers and not record.is_finished:
                data = {"container": record.containers[0].name, "orphan": True}
                self.out.log("kubelet.stop", None, key, data, Key(record.namespace, record.name))
            self._erase(record, key)
        if self.resizing.trigger:
            self._retry_resizes(self.resizing.trigger, now)

    def _added(self, pod: KubeletPod, traceparent: str, now: float) -> None:
        key = worker_key(pod)
        self.pods[pod.metadata.uid] = pod
        record = self.records.pop(key, None)
        if key in self.workers or key in self.rejected or key in self.giving_back.going or key in self.parked:
            self._gone.pop(key, None)
            return
        if record is None and self.staging is not None and self.staging.took(pod):
            self._take_staged(self.staging, pod, key, now)
            return
        if pod.is_terminal:
            if record is not None and record.is_finished:
                self._erase(record, key)
            elif record is not None:
                self._adopt(pod, key, record, traceparent, now)
                return
            if pod.metadata.deletion_timestamp is not None:
                self._delete(key, pod)
            return
        if record is not None:
            self._adopt(pod, key, record, traceparent, now)
            return
        if pod.metadata.deletion_timestamp is not None:
            # Deleted before anything of it ran here: Failed, then gone (kubelet 3.4).
            self._set_final(key, pod, {"phase": "Failed"}, now)
            return
        self.out.start_span(key, pod, traceparent)
        self._decide(pod, key, now)

    def _updated(self, known: KubeletPod, new: KubeletPod, now: float) -> None:
        key = worker_key(new)
        self.pods[new.metadata.uid] = new
        is_deleted = new.metadata.deletion_timestamp is not None
        if self.staging is not None and key in self.staging.pods:
            self.staging.changed(key, new, now)
            if new.is_terminal and self._release(key):
                self._offer_room("pod_terminated", now)
            return
        worker = self.workers.get(key)
        if worker is not None:
            if self._has_drifted(key, new) and self.statuses.drifted(key, now):
                self.out.effects.append(_WRITE_STATUSES)
            self.pressure.heard(new, now)
            if is_deleted or _matters(known, new):
                self._act(worker, worker.update(new, now), now)
            else:
                worker.pod = new
            if known.metadata.generation != new.metadata.generation and self.resizing.is_live(worker):
                self.resizing.count_wish(known, new)
                if self.resizing.wished(worker, new, self.workers):
                    self.resizing.trigger = "pod_updated"
            self._maybe_delete(key)
            return
        if not is_deleted:
            if key in self.parked:
                self.parked[key].pod = new
            elif new.is_terminal and self.giving_back.gone(key, new, ""):
                # Somebody else ended it: there is nothing left to give back.
                self.statuses.permit(key)
                self.out.end_span(key, "terminal")
            else:
                self._not_given_back(key, self.giving_back.heard(key, new, now), now)
            return
        if key in self.giving_back.going or key in self.parked:
            self.giving_back.gone(key, new, "")
            self.parked.pop(key, None)
            self.deferring.forget(key)
            self._blocked.pop(key, None)
            self.statuses.permit(key)
            self.out.end_span(key, "deleted")
            self._set_final(key, new, {"phase": "Failed"}, now)
        elif key in self.rejected:
            self._maybe_delete(key)
        elif new.is_terminal:
            self._delete(key, new)
        else:
            self._set_final(key, new, {"phase": "Failed"}, now)

    def _removed(self, old: KubeletPod, now: float) -> None:
        """The object is gone, or is not ours any more."""
        key = worker_key(old)
        uid = old.metadata.uid
        self._adds.pop(uid, None)
        if (pod := self.pods.get(uid)) is not None and worker_key(pod) == key:
            del self.pods[uid]
        self.rejected.pop(key, None)
        self.parked.pop(key, None)
        self.deferring.forget(key)
        self._recreated.pop(key, None)
        self._deleting.pop(key, None)
        self._blocked.pop(key, None)
        self.giving_back.gone(key, old, "gone")
        self.statuses.forget(key)
        if self.staging is not None and self.staging.forget(key) is not None:
            self.out.end_span(key, "removed")
            if self._release(key):
                self._offer_room("pods_removed", now)
            return
        worker = self.workers.get(key)
        if worker is None:
            self.out.end_span(key, "removed")
            return
        self._gone[key] = None
        if worker.state == "terminated":
            self._drop(key, worker)
        else:
            self._act(worker, worker.terminate(now, REMOVED_GRACE_S, "removed"), now)

    # --- admission (kubelet 5) ---

    def _decide(self, pod: KubeletPod, key: WorkerKey, now: float, *, is_live: bool = False) -> None:
        """Admit, reject, or wait for what the decision depends on.

        A node may get its Node but not watch it (X-NR1), so labels are read live for pods that ask for some.
        """
        if (refused := self.pressure.refuses(pod)) is not None:
            self._rejected(pod, key, refused, now)
            return
        if not is_live and asks_for_labels(pod):
            self._await_node(pod, key)
            return
        evicting: frozenset[WorkerKey] = frozenset()
        if is_critical(pod):
            leaving = ((k, w.termination) for k, w in self.workers.items())
            evicting = frozenset(k for k, ending in leaving if ending is not None)
        outcome = admit(
            pod, self.ledger, self.managers, self.node,
            managers_first=self.settings.managers_first, evicting=evicting,
        )  # fmt: skip
        match outcome:
            case Admitted():
                self._start(pod, key, outcome, now)
            case RoomNeeded():
                self.parked[key] = _Parked(pod, "room")
                for victim in outcome.victims:
                    self._evict(victim, now)
            case Rejection(reason="TaintToleration") if not is_live:
                # The taint may be gone since the Node was last seen.
                self._await_node(pod, key)
            case Rejection():
                self._rejected(pod, key, outcome, now)

    def _await_node(self, pod: KubeletPod, key: WorkerKey) -> None:
        """Decide once the Node is read; one read serves all who wait."""
        if not any(p.why == "node" for p in self.parked.values()):
            self.out.effects.append(ReadNode(key, False))
        self.parked[key] = _Parked(pod, "node")

    def _start(self, pod: KubeletPod, key: WorkerKey, admitted: Admitted, now: float) -> None:
        self.parked.pop(key, None)
        self.deferring.admitted(key)
        self.statuses.permit(key)
        self.out.span_stage(key, "admitted")
        self.ledger.add(key, pod, admitted.requests, admitted.allocation)
        self._log_admit(pod, key, admitted.requests, adopted=False)
        if self.staging is not None and self.staging.chooses(pod):
            self.staging.begin(key, pod, now)
            return
        self._admitted_s[key] = now
        worker = self._worker(pod, key, admitted, now)
        name = pod.metadata.key
        predecessor: WorkerKey | None = None
        if name in self._names:
            predecessor = next(
                (k for k, w in self.workers.items() if w.pod.metadata.key == name and w.state != "terminated"), None
            )
        self.workers[key] = worker
        self._names[name] = self._names.get(name, 0) + 1
        if predecessor is not None:
            worker.hold()
            self._held[key] = predecessor
            return
        self._act(worker, worker.begin(now), now)

    def _worker(self, pod: KubeletPod, key: WorkerKey, admitted: Admitted, now: float) -> PodWorker:
        self.pressure.heard(pod, now)
        return PodWorker(
            pod,
            key,
            node=self.name,
            host_ip=self.host_ip,
            pod_ip=self.new_ip(pod),
            allocation=admitted.allocation,
            latency=self._latency.for_pod(self.name, key.uid),
            policy=self._policy,
            times=self._times,
            now=now,
        )

    def new_ip(self, pod: KubeletPod) -> str:
        """Return an address for a pod of this node; the node's own when the pod shares its network."""
        self._last_ip = self._last_ip % 65000 + 1
        return self.host_ip if pod.spec.host_network else f"{self.pod_network}.{self._last_ip % 254 + 1}"

    # --- pods that stages move ---

    def _take_staged(self, staging: Staging, pod: KubeletPod, key: WorkerKey, now: float) -> None:
        """Go on with a pod that stages moved before this kubelet began: it is not asked again whether it fits."""
        if not pod.is_terminal:
            outcome = admit(pod, self.ledger, self.managers, self.node, managers_first=self.settings.managers_first)
            allocation = outcome.allocation if isinstance(outcome, Admitted) else Allocation()
            requests = self.ledger.needs(pod)
            short = self.ledger.shortages(requests)
            self.ledger.add(key, pod, requests, allocation)
            if not short:
                self._log_admit(pod, key, requests, adopted=True)
        staging.begin(key, pod, now)

    def _evict_staged(self, victim: WorkerKey, message: str, now: float) -> None:
        """End a pod that stages move: nothing of it has to be stopped first."""
        pod = self.staging.forget(victim) if self.staging is not None else None
        if pod is None:
            return
        self.out.tell(pod, "Preempting", message, "Warning")
        self.out.count('kubelet_preemptions{preemption_signal="cpu"}')
        disruption = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "message": message,
            "lastTransitionTime": self._times.text(now),
        }
        status = {"phase": "Failed", "reason": "Preempting", "message": message, "conditions": [disruption]}
        self._set_final(victim, pod, status, now)
        self._release(victim)
        self._offer_room("pod_terminated", now)

    def _adopt(self, pod: KubeletPod, key: WorkerKey, record: PodRecord, traceparent: str, now: float) -> None:
        """Take over what a previous kubelet started; its allocation is not asked for again."""
        # What it was promised counts, whatever its spec says by now (kep-1287 8).
        promised = pod if is_same(resources_of(pod), record.allocated) else overlaid(pod, record.allocated)
        requests = self.ledger.needs(promised)
        short = [] if record.is_finished else self.ledger.shortages(requests)
        self.managers.take(record.allocation)
        self.ledger.add(key, promised, requests, record.allocation)
        if not short:
            # A node that shrank holds more than it may until the pod is stopped; that is no admission.
            self._log_admit(pod, key, requests, adopted=True)
        self.out.start_span(key, pod, traceparent)
        worker = self._worker(pod, key, Admitted(requests, record.allocation), now)
        self.workers[key] = worker
        self._names[pod.metadata.key] = self._names.get(pod.metadata.key, 0) + 1
        self._saved_once[key] = None
        self._act(worker, worker.adopt(record, now), now)
        if short:
            name = short[0]
            self._act(
                worker,
                worker.terminate(
                    now, REMOVED_GRACE_S, "rejected", reason=f"OutOf{name}", message=f"Node has too little {name} now"
                ),
                now,
            )
        elif pod.metadata.deletion_timestamp is not None:
            self._act(worker, worker.update(pod, now), now)
        if self.resizing.is_live(worker):
            self.resizing.wished(worker, pod, self.workers)

    def _evict(self, victim: WorkerKey, now: float) -> None:
        worker = self.workers.get(victim)
        message = "Preempted in order to admit critical pod"
        if worker is None:
            self._evict_staged(victim, message, now)
            return
        self.out.tell(worker.pod, "Preempting", message, "Warning")
        self.out.count('kubelet_preemptions{preemption_signal="cpu"}')
        self._act(
            worker,
            worker.terminate(
                now, float(worker.pod.spec.termination_grace_period_seconds), "preempted",
                reason="Preempting", message=message, disruption=True,
            ),
            now,
        )  # fmt: skip

    def _relieve(self, victim: Victim, now: float) -> None:
        """The node runs short: this pod leaves (kubelet 7)."""
        worker = self.workers[victim.key]
        self.out.tell(worker.pod, "Evicted", victim.message, "Warning")
        self.out.count(f'kubelet_evictions{{eviction_signal="{victim.signal}"}}')
        ending = worker.terminate(
            now, victim.grace_s, "evicted", reason="Evicted", message=victim.message, disruption=True
        )
        self._act(worker, ending, now)

    def _rejected(self, pod: KubeletPod, key: WorkerKey, rejection: Rejection, now: float) -> None:
        self.parked.pop(key, None)
        is_again = key in self.deferring.waiting
        self.out.log("kubelet.reject", pod, key, {"reason": rejection.reason, "message": rejection.message})
        if not is_again:
            self.out.count(f'kubelet_admission_rejections_total{{reason="{rejection.reason}"}}')
            self.out.tell(pod, rejection.reason, rejection.message, "Warning")
            self.out.span_stage(key, "rejected", rejection.reason)
        if self.deferring.takes(pod, key, rejection, now):
            self.parked[key] = _Parked(pod, "defer", rejection)
            return
        if self.giving_back.may_begin(pod, rejection.reason, now):
            self._not_given_back(key, self.giving_back.begin(pod, key, rejection.reason, rejection.message, now), now)
            if key in self.giving_back.asking:
                self._poke(key, now)
            return
        if self.settings.on_reject == "recreate" and pod.metadata.controller is not None:
            # Deleted like by anybody else; the deletion is confirmed when the watch shows it.
            self.out.end_span(key, rejection.reason)
            self._recreated[key] = None
            self.out.effects.append(DeletePod(key, pod, None))
            return
        self._fail(pod, key, self.deferring.explained(rejection) if is_again else rejection, now)

    def _fail(self, pod: KubeletPod, key: WorkerKey, rejection: Rejection, now: float) -> None:
        """Reject as Kubernetes does today."""
        self.out.fail_span(key, rejection.reason)
        self._set_final(
            key,
            pod,
            {
                "phase": "Failed",
                "reason": rejection.reason,
                "message": "Pod was rejected: " + rejection.message,
                "startTime": self._times.text(now),
            },
            now,
        )

    def _set_final(self, key: WorkerKey, pod: KubeletPod, status: Document, now: float) -> None:
        """Write this status of a pod that has no worker and never will."""
        self.rejected[key] = {**status, "observedGeneration": pod.metadata.generation}
        self._poke(key, now)

    # --- giving back (kubelet-unbinding 6.2) ---

    def unbind_answered(
        self, key: WorkerKey, code: int, reason: str, now: float, *,
        retry_after_s: float | None = None, names_pod: bool = True, jitter: float = 0.5,
    ) -> None:  # fmt: skip
        """Take the answer to an unbind; `code` 0: none came."""
        verdict = self.giving_back.answered(
            key, code, reason, now, retry_after_s=retry_after_s, names_pod=names_pod, jitter=jitter
        )
        self._not_given_back(key, verdict, now)

    def pod_read(self, key: WorkerKey, pod: KubeletPod | None, now: float) -> None:
        """Take a live read of a pod: None when it is not there or not ours to read."""
        still_mine = pod is not None and worker_key(pod) == key and pod.spec.node_name == self.name
        if key in self.giving_back.going:
            self._not_given_back(key, self.giving_back.pod_read(key, still_mine, now), now)
            return
        if not still_mine:
            self.statuses.forget(key)
            return
        assert pod is not None
        if key in self.workers or key in self.rejected:
            if worker := self.workers.get(key):
                worker.generation = max(worker.generation, pod.metadata.generation)
            self._poke(key, now)

    def session_read(self, key: WorkerKey, is_mine: bool, now: float) -> None:
        """Take a live read of the own Node's session; the shell ends the node when it is another's."""
        self._not_given_back(key, self.giving_back.session_read(key, is_mine, now), now)

    def _not_given_back(self, key: WorkerKey, verdict: Verdict | None, now: float) -> None:
        """Decide what becomes of a pod that stays after all; None: it goes its way."""
        if verdict is None:
            return
        state = verdict.state
        match verdict.step:
            case unbinding.Confirm():
                self.out.end_span(key, "Terminating")
                self._set_final(key, self.pods.get(key.uid, state.pod), {"phase": "Failed"}, now)
            case unbinding.Resume():
                # A guard against bugs: nothing was started here, so decide again from the beginning.
                self.out.count("kubelet_pod_unbind_already_started_total")
                self.out.end_span(key, "AlreadyStarted")
                self._decide(self.pods.get(key.uid, state.pod), key, now)
            case unbinding.Absent():
                self._fail(state.pod, key, Rejection(state.reason, state.message), now)
            case unbinding.FallBack(code=code):
                self._fall_back(key, state, code, now)

    def _fall_back(self, key: WorkerKey, state: Unbinding, code: str, now: float) -> None:
        pod = self.pods.get(key.uid, state.pod)
        if code == "LimitReached":
            self.out.tell(pod, "UnbindLimitReached", f"The pod was given back too often: {state.reason}", "Warning")
        else:
            self.out.tell(pod, "UnbindFailed", f"The pod could not be given back: {code}", "Warning")
        if self.settings.fallback == "fail":
            self._fail(pod, key, Rejection(state.reason, f"{state.message} (unbind: {code})"), now)
            return
        self.out.end_span(key, code)
        self._hold(pod, key, Rejection(state.reason, state.message), code, now)

    def _hold(self, pod: KubeletPod, key: WorkerKey, rejection: Rejection, code: str, now: float) -> None:
        """Stay Pending, say so, and try admission again every minute and whenever something leaves."""
        self.parked[key] = _Parked(pod, "hold", rejection)
        self.out.tell(pod, "UnbindBlocked", f"{rejection.reason}; the pod cannot be given back: {code}", "Warning")
        self.out.effects.append(SetTimer(now + HOLD_PERIOD_S, "hold", key))
        self._blocked[key] = {
            "phase": "Pending",
            "observedGeneration": pod.metadata.generation,
            "conditions": [
                {
                    "type": "UnbindBlocked",
                    "status": "True",
                    "reason": code,
                    "message": f"{rejection.reason}: {rejection.message}",
                    "lastTransitionTime": self._times.text(now),
                }
            ],
        }
        self._poke(key, now)

    # --- the node, as the API shows it ---

    def node_changed(self, facts: NodeFacts) -> None:
        """Take the newest labels and taints."""
        self.node = facts

    def node_read(self, facts: NodeFacts | None, now: float) -> None:
        """Take a live read of the Node that pods wait for; None: it could not be read."""
        if facts is not None:
            self.node = facts
        for key, parked in [(k, p) for k, p in self.parked.items() if p.why == "node"]:
            if key in self.parked:
                del self.parked[key]
                self._decide(parked.pod, key, now, is_live=True)

    # --- time and disk ---

    def due(self, what: str, key: WorkerKey, now: float) -> None:
        """A timer fired."""
        match what:
            case "worker":
                if self._timers.get(key, 0.0) <= now + 1e-6:
                    self._timers.pop(key, None)
                worker = self.workers.get(key)
                if worker is not None:
                    self._act(worker, worker.advance(now), now)
            case "stage":
                if self.staging is not None:
                    self.staging.due(key, now)
            case "unbind":
                self._not_given_back(key, self.giving_back.call(key, now), now)
            case "hold":
                if key in self.parked and self.parked[key].why == "hold":
                    self._retry_parked(key, now)
                    if key in self.parked:
                        self.out.effects.append(SetTimer(now + HOLD_PERIOD_S, "hold", key))
            case "defer":
                if key in self.parked and self.parked[key].why == "defer" and self.deferring.is_due(key, now):
                    self._retry_parked(key, now)
            case "delete":
                self._deleting.pop(key, None)
                self._maybe_delete(key)
            case "pressure":
                if (short := self.pressure.look(self.workers, now)) is not None:
                    self._relieve(short, now)
            case "resizes":
                if self.resizing.retry_at_s <= now + 1e-6:
                    self._retry_resizes("periodic_retry", now)
            case _:
                self.out.effects.append(_WRITE_STATUSES)

    def saved(self, key: WorkerKey, seq: int, now: float) -> None:
        """A record is durable."""
        worker = self.workers.get(key)
        if worker is None or seq == 0:
            return
        if key not in self._saved_once:
            self._saved_once[key] = None
            self.out.log("kubelet.checkpoint", worker.pod, key, {"seq": seq})
        self._act(worker, worker.persisted(seq, now), now)

    # --- statuses ---

    def next_write(self, now: float) -> Write | None:
        """Return the next status to write, or None when the API server has all that may be written now."""
        while (key := self.statuses.next_key(now)) is not None:
            pod = self.pods.get(key.uid)
            rendered = self.render(key)
            if pod is None or rendered is None or worker_key(pod) != key:
                self.statuses.forget(key)
                continue
            write = self.statuses.take(key, pod, rendered)
            if write is not None:
                return write
            self._after_ack(key, now)
        return None

    def render(self, key: WorkerKey) -> Document | None:
        """Return the status of a pod as this kubelet sees it."""
        worker = self.workers.get(key)
        if worker is not None:
            return worker.render()
        return self.rejected.get(key) or self._blocked.get(key) or self.giving_back.asking.get(key)

    def status_written(self, write: Write, code: int, reason: str, now: float) -> None:
        """Take the answer to a status write; `code` 0: none came (N8)."""
        key = write.key
        if 200 <= code < 300:
            self.statuses.acknowledged(write, now)
            self._after_ack(key, now)
            return
        if code == 404 or (code == 409 and reason == "UIDMismatch"):
            self.statuses.forget(key)
            return
        if code == 403 or (code == 409 and reason == "StaleBinding"):
            # Re-read; the old status is not sent again.
            self.statuses.failed(write, now)
            if (pod := self.pods.get(key.uid)) is not None:
                self.out.effects.append(ReadPod(key, pod))
            self.out.effects.append(SetTimer(now + 10.0, "status", key))
            return
        is_lost = code in (0, 503, 504)
        self.out.effects.append(SetTimer(self.statuses.failed(write, now, is_lost=is_lost), "status", key))

    def _after_ack(self, key: WorkerKey, now: float) -> None:
        if self.out.has_span(key) and self.statuses.acked_phase(key) not in ("", "Pending"):
            self.out.end_span(key, "")
        worker = self.workers.get(key)
        if worker is not None:
            if worker.state == "starting":
                self._act(worker, worker.start_acked(now), now)
            elif worker.state == "terminated" and key in self._saved_once and self._is_synced(key):
                # The API knows the end: no restart could run the pod again, the record may go.
                self._saved_once.pop(key)
                self._erase(worker.record(), key)
        self._maybe_delete(key)

    def _is_synced(self, key: WorkerKey) -> bool:
        return self.statuses.last_acked(key) is not None

    def _maybe_delete(self, key: WorkerKey) -> None:
        """Confirm a deletion once the terminal phase is in the API and nothing runs (kubelet 3.4)."""
        pod = self.pods.get(key.uid)
        if pod is None or worker_key(pod) != key:
            return
        if pod.metadata.deletion_timestamp is None:
            if key in self._recreated:  # the first delete was lost or refused: ask again
                self.out.effects.append(DeletePod(key, pod, None))
            return
        worker = self.workers.get(key)
        is_over = worker.state == "terminated" if worker is not None else key in self.rejected
        if is_over and self._is_synced(key):
            self._delete(key, pod)

    def _delete(self, key: WorkerKey, pod: KubeletPod) -> None:
        if key not in self._deleting:
            self._deleting[key] = None
            self.out.effects.append(DeletePod(key, pod, 0))

    def delete_answered(self, key: WorkerKey, code: int, now: float) -> None:
        """Take the answer to a delete; the watch tells when it is gone."""
        if not (200 <= code < 300 or code in (404, 409)):
            self.out.effects.append(SetTimer(now + 10.0, "delete", key))

    def _has_drifted(self, key: WorkerKey, pod: KubeletPod) -> bool:
        """Whether the API shows our own fields otherwise than we last wrote them."""
        acked = self.statuses.last_acked(key)
        if acked is None:
            return False
        if pod.status.phase != acked.get("phase", pod.status.phase):
            return True
        held = {c.type: c.status for c in pod.status.conditions}
        ours = acked.get("conditions", ())
        if any(held.get(c["type"]) != c["status"] for c in ours):
            return True
        return any(kind in held and all(c["type"] != kind for c in ours) for kind in TAKEN_BACK)

    def _poke(self, key: WorkerKey, now: float) -> None:
        status = self.render(key) if self.statuses.is_immediate else None
        if self.statuses.changed(key, now, status):
            self.out.effects.append(_WRITE_STATUSES)

    # --- workers ---

    def _act(self, worker: PodWorker, actions: list[Action], now: float) -> None:
        key = worker.key
        for action in actions:
            match action:
                case Poke():
                    if key not in self._gone:
                        self._poke(key, now)
                case Persist(seq=seq):
                    self.out.effects.append(Save(key, seq, encode_record(worker.record())))
                case LogStart(container=container):
                    self.out.log("kubelet.start", worker.pod, key, {"container": container})
                    self.out.add("kubelet_pod_start_duration_seconds_sum", now - self._admitted_s.pop(key, now))
                    self.out.count("kubelet_pod_start_duration_seconds_count")
                case LogStop(container=container):
                    self.out.log("kubelet.stop", worker.pod, key, {"container": container})
                case Told(reason=reason, message=message, type=event_type):
                    self.out.tell(worker.pod, reason, message, event_type)
                case Reached(stage=stage):
                    self.out.span_stage(key, stage)
                case Resized(took_s=took_s):
                    if self.resizing.completed(key, took_s):
                        self._retry_resizes("pod_resized", now)
                case Finished():
                    self._finished(key, worker, now)
        if self.out.has_span(key) and worker.state in ("running", "terminated"):
            # The start is over when the API server knows of it, unless it never needs to hear.
            if key in self._gone or not self.statuses.owes(key):
                self.out.end_span(key, "")
            else:
                self.out.span_stage(key, "running")
        due = worker.due_s
        if due is not None and self._timers.get(key, float("inf")) > due:
            self._timers[key] = due
            self.out.effects.append(SetTimer(due, "worker", key))

    def _finished(self, key: WorkerKey, worker: PodWorker, now: float) -> None:
        """Nothing of the pod runs any more: its room is free for those who wait."""
        self._release(key)
        self._release_name(worker.pod.metadata.key)
        self._held.pop(key, None)
        self.resizing.forget(key)
        is_removed = key in self._gone or worker.pod.metadata.deletion_timestamp is not None
        if key in self._gone:
            self._drop(key, worker)
        else:
            self._poke(key, now)
        for waiting in [k for k, predecessor in self._held.items() if predecessor == key]:
            del self._held[waiting]
            if (successor := self.workers.get(waiting)) is not None:
                self._act(successor, successor.unhold(now), now)
        self._offer_room("pods_removed" if is_removed else "pod_terminated", now)

    def _release(self, key: WorkerKey) -> bool:
        """Count the pod no longer; return whether it was counted."""
        entry = self.ledger.remove(key)
        if entry is not None and not entry.allocation.is_empty:
            self.managers.release(entry.allocation)
        return entry is not None

    def _offer_room(self, trigger: str, now: float) -> None:
        """There is room: ask again for those who wait for some."""
        for parked in [k for k, p in self.parked.items() if p.why in ("room", "hold", "defer")]:
            self._retry_parked(parked, now)
        self._retry_resizes(trigger, now)

    # --- resizes (kep-1287 6) ---

    def _retry_resizes(self, trigger: str, now: float) -> None:
        """Judge every resize that waits, in order; one that does not fit holds up nobody."""
        resizing = self.resizing
        resizing.trigger = trigger
        if self._is_resizing:
            return  # the pass that goes on is followed by another
        self._is_resizing = True
        while resizing.trigger and resizing.has_sources:
            trigger, resizing.trigger = resizing.trigger, ""
            for key in resizing.queue.in_order():
                worker = self.workers.get(key)
                if worker is None or not resizing.is_live(worker):
                    resizing.forget(key)
                    continue
                self._judge_resize(worker, trigger, now)
        self._is_resizing = False
        due_s = resizing.passed(now)
        if due_s is not None:
            self.out.effects.append(SetTimer(due_s, "resizes", _NODE_KEY))

    def _judge_resize(self, worker: PodWorker, trigger: str, now: float) -> None:
        evicting: frozenset[WorkerKey] = frozenset()
        if is_critical(worker.pod):
            evicting = frozenset(k for k, w in self.workers.items() if w.termination is not None)
        match self.resizing.decide(worker, self.node, evicting, trigger, now):
            case Fits():
                self._act(worker, worker.allocate(worker.pod, now), now)
            case Deferred(victims=victims):
                for victim in victims:
                    self._evict(victim, now)
                self._poke(worker.key, now)
            case _:
                self._poke(worker.key, now)

    def _release_name(self, name: Key) -> None:
        left = self._names.get(name, 0) - 1
        if left > 0:
            self._names[name] = left
        else:
            self._names.pop(name, None)

    def _retry_parked(self, key: WorkerKey, now: float) -> None:
        parked = self.parked.get(key)
        if parked is None:
            return
        if parked.why != "hold":
            del self.parked[key]
            self._decide(parked.pod, key, now)
            return
        outcome = admit(parked.pod, self.ledger, self.managers, self.node, managers_first=self.settings.managers_first)
        if isinstance(outcome, Admitted):
            self._blocked.pop(key, None)
            self._start(parked.pod, key, outcome, now)

    def _drop(self, key: WorkerKey, worker: PodWorker) -> None:
        """Forget a worker whose pod is gone."""
        self.workers.pop(key, None)
        self._gone.pop(key, None)
        self._timers.pop(key, None)
        self._admitted_s.pop(key, None)
        self.statuses.forget(key)
        self.out.end_span(key, "")
        if self._saved_once.pop(key, 0) is None:
            self._erase(worker.record(), key)

    def _erase(self, record: PodRecord, key: WorkerKey) -> None:
        gone = PodRecord(self.name, record.uid, record.generation, is_gone=True)
        self.out.effects.append(Save(key, 0, encode_record(gone)))

    # --- telling ---

    def _log_admit(self, pod: KubeletPod, key: WorkerKey, requests: Amounts, *, adopted: bool) -> None:
        data: dict[str, Any] = {
            "requests": requests,
            "ledger": dict(self.ledger.used),
            "allocatable": self.ledger.allocatable,
        }
        if adopted:
            data["adopted"] = True
        self.out.log("kubelet.admit", pod, key, data)

    @property
    def running_pods(self) -> int:
        """Pods of which something runs."""
        staged = self.staging.running if self.staging is not None else 0
        return staged + sum(1 for w in self.workers.values() if w.ever_started and w.state != "terminated")


def _matters(known: KubeletPod, new: KubeletPod) -> bool:
    """Whether a change is more than the echo of our own status."""
    if known.metadata.generation != new.metadata.generation:
        return True
    if known.metadata.annotations is not new.metadata.annotations and known.metadata.annotations != (
        new.metadata.annotations
    ):
        return True
    if not new.spec.readiness_gates:
        return False
    return known.status.conditions != new.status.conditions
