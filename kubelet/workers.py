"""The pods that one node runs, from the moment they are admitted until nothing of them is left. Pure.

A worker says what it wants done; here that is done, and what follows for others: room that comes, resizes that may be
tried again, pods that waited for a name. Source: kubelet 3.2 to 3.4, 6; kep-1287 6; guarantees N1 to N4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kubelet.admission.handler import AdmissionDesk
from kubelet.admission.predicates import Admitted, Ledger, NodeFacts
from kubelet.deviceplugin.plugins import DevicePlugins
from kubelet.dra.manager import ClaimDesk
from kubelet.effects import Save, SetTimer
from kubelet.eviction.pressure import NodePressure
from kubelet.managers.resource_managers import Allocation, Rejection, ResourceManagers
from kubelet.node.definition import NodeDefinition
from kubelet.node.life import NodeLife
from kubelet.node.status import node_labels
from kubelet.outbox import Outbox
from kubelet.pod.actions import (
    Action,
    AskDevices,
    CallDrivers,
    Finished,
    LogStart,
    LogStop,
    Persist,
    Poke,
    Prepare,
    Reached,
    Refused,
    Resized,
    StartFailed,
    Told,
    Unprepare,
)
from kubelet.pod.running import REMOVED_GRACE_S, Policy
from kubelet.pod.start_times import StartTimes
from kubelet.pod.status import WallTimes
from kubelet.pod.worker import PodWorker
from kubelet.resize.allocation import Deferred, Fits, NodeRules
from kubelet.resize.manager import Resizing
from kubelet.resize.policy import ResizePolicy
from kubelet.resize.swap import LIMITED
from kubelet.runtime.checkpoint import lines_of
from kubelet.runtime.fake_cri import LOST_EXIT, PodRecord
from kubelet.runtime.latency import LatencyModel
from kubelet.runtime.resources import is_same, overlaid, resources_of
from kubelet.runtime.usage import NODE_RESOURCES, parse_curves
from kubelet.stages.manager import Staging
from kubelet.static_pods.manager import StaticDesk
from kubelet.status.manager import StatusDesk
from kubelet.status.versions import StatusManager
from kubelet.switches import Settings
from kubelet.view import KubeletPod, WorkerKey, is_critical, is_static
from services.api.meta import Document, Key
from services.api.podresources import Amounts

_NODE_KEY = WorkerKey("", 0)
"""Of timers that are about no single pod."""


class Workers:
    """The lower half of a node's machine.

    Invariant: every key is in at most one of `workers`, the status desk's last words and what the admission desk
    holds; the ledger holds exactly the keys of workers that are not terminated.
    """

    statics: StaticDesk
    life: NodeLife
    claims: ClaimDesk

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
        self.out = Outbox()
        self.desk = StatusDesk(self, StatusManager(is_immediate=settings.writes_at_once), self.out)
        self.pods: dict[str, KubeletPod] = {}
        self.workers: dict[WorkerKey, PodWorker] = {}
        rules = NodeRules(
            has_static_cpus=definition.has_static_cpus,
            has_static_memory=definition.memory_policy == "Static",
            has_swap=definition.swap_behavior == LIMITED,
            evicts=settings.evicts_for_resizes,
            orders_as_upstream=settings.orders_resizes_as_upstream,
        )
        self.resizing = Resizing(self.ledger, rules, self.out)
        self.resize_policy = ResizePolicy(settings.resize_policy, definition.name, times)
        self.staging: Staging | None = None
        self.pressure = NodePressure(
            parse_curves(definition.usage, NODE_RESOURCES),
            definition.resource_capacities,
            definition.eviction,
            self.out,
        )
        self.admission = AdmissionDesk(
            definition.name, self, settings=settings, ledger=self.ledger, managers=self.managers,
            facts=NodeFacts(definition.name, None, definition.taints), sysctls=definition.allowed_unsafe_sysctls,
            features=definition.features,
            defined=NodeFacts(definition.name, node_labels(definition), definition.taints),
            pressure=self.pressure, desk=self.desk, out=self.out, times=times,
        )  # fmt: skip
        self.plugins: DevicePlugins | None = None
        if definition.takes_plugins:
            tells = settings.tells_device_health
            self.plugins = DevicePlugins(self.managers, self.ledger, self.out, tells_health=tells)
            self.admission.devices = self.plugins.desk
        self.records: dict[WorkerKey, PodRecord] = {}
        self._latency, self._policy, self._times = latency, policy, times
        self._held: dict[WorkerKey, WorkerKey] = {}
        self._gone: dict[WorkerKey, None] = {}
        self._returned: dict[WorkerKey, tuple[Rejection, float]] = {}
        """Why pods are torn down to be given back, and since when."""
        self._saved_once: dict[WorkerKey, None] = {}
        self._timers: dict[WorkerKey, float] = {}
        self.start_times = StartTimes(self.out, times)
        self._names: dict[Key, int] = {}
        self.is_booted = False
        """Whether the machine was booted right before this kubelet began."""
        self._last_ip = 0
        self._is_resizing = False

    # --- begun, or taken over (kubelet 3.2, 6) ---

    def start(self, pod: KubeletPod, key: WorkerKey, admitted: Admitted, now: float) -> None:
        """Count the pod and run it."""
        self.ledger.add(key, pod, admitted.requests, admitted.allocation)
        self._log_admit(pod, key, admitted.requests, adopted=False)
        if admitted.allocation.devices:
            self.out.log("kubelet.devices", pod, key, {"shares": msgspec.to_builtins(admitted.allocation.devices)})
        if self.staging is not None and not is_static(pod) and self.staging.chooses(pod):
            self.staging.begin(key, pod, now)
            return
        self.start_times.admitted(key, now)
        worker = self._worker(pod, key, admitted, now)
        if self.plugins is not None:
            self.plugins.begun(worker)
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
            node_faults=self.life.faults,
            images=self.life.images,
            pleg=self.life.pleg,
            volumes=self.life.volumes,
        )

    def new_ip(self, pod: KubeletPod) -> str:
        """Return an address for a pod of this node; the node's own when the pod shares its network."""
        self._last_ip = self._last_ip % 65000 + 1
        return self.host_ip if pod.spec.host_network else f"{self.pod_network}.{self._last_ip % 254 + 1}"

    def _adopt(self, pod: KubeletPod, key: WorkerKey, record: PodRecord, traceparent: str, now: float) -> None:
        """Take over what a previous kubelet started; its allocation is not asked for again."""
        # What it was promised counts, whatever its spec says by now (kep-1287 8).
        promised = pod if is_same(resources_of(pod), record.allocated) else overlaid(pod, record.allocated)
        requests = self.ledger.needs(promised)
        is_asked = self.settings.readmits_running
        # What had ended left its room, and somebody else may have it by now.
        short = [] if record.is_finished else self._count_again(promised, key, requests, record.allocation)
        self.out.start_span(key, pod, traceparent)
        worker = self._worker(pod, key, Admitted(requests, record.allocation), now)
        self.workers[key] = worker
        self._names[pod.metadata.key] = self._names.get(pod.metadata.key, 0) + 1
        self._saved_once[key] = None
        if self.plugins is not None:
            self.plugins.begun(worker)
        if record.claims:
            is_booted = any(each.exit_code == LOST_EXIT for each in record.containers)
            self.claims.recover(key, record.claims, is_prepared=bool(record.containers) and not is_booted)
            if is_booted and not record.is_finished:
                self.claims.call(key, record.claims, now)
        took_over = worker.adopt if record.containers or record.is_finished else worker.go_on
        self._act(worker, took_over(record, now), now)
        if is_asked and self.plugins is not None and (refused := self.plugins.readmitted(worker)) is not None:
            ending = worker.terminate(
                now, REMOVED_GRACE_S, "rejected", reason=refused.reason, message="Pod was rejected: " + refused.message
            )
            self._act(worker, ending, now)
        elif short and is_asked:
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

    def _count_again(
        self, promised: KubeletPod, key: WorkerKey, requests: Amounts, allocation: Allocation
    ) -> list[str]:
        """Count a pod that was admitted before this kubelet began; return what there is too little of now."""
        self.managers.take(allocation)
        if self.plugins is not None:
            self.plugins.reckon()
        short = self.ledger.shortages(requests)
        self.ledger.add(key, promised, requests, allocation)
        if not short:
            # A node that shrank holds more than it may until the pod is stopped; that is no admission.
            self._log_admit(promised, key, requests, adopted=True)
        return short

    # --- what they want done ---

    def _act(self, worker: PodWorker, actions: list[Action], now: float) -> None:
        key = worker.key
        if worker.termination is not None:
            self.start_times.ending(key, now)
        for action in actions:
            match action:
                case Poke():
                    if key not in self._gone:
                        self.desk.poke(key, now)
                case Persist(seq=seq):
                    self.out.effects.append(Save(key, seq, lines_of(worker.record())))
                case LogStart(container=container):
                    self.out.log("kubelet.start", worker.pod, key, {"container": container})
                    self.start_times.started(key, now)
                    self.admission.giving_back.started(worker.pod, key)
                case LogStop(container=container):
                    self.out.log("kubelet.stop", worker.pod, key, {"container": container})
                    self.start_times.ended(key, now)
                case Told(reason=reason, message=message, type=event_type):
                    self.out.tell(worker.pod, reason, message, event_type)
                case Reached(stage=stage):
                    self.out.span_stage(key, stage)
                case Resized():
                    if self.resizing.attempted(key, action):
                        self._retry_resizes("pod_resized", now)
                case StartFailed(reason=reason, message=message):
                    self._start_failed(worker, Rejection(reason, message), now)
                case Refused(reason=reason, message=message):
                    self._refused(worker, Rejection(reason, message), now)
                case AskDevices(container=container):
                    assert self.plugins is not None
                    self.plugins.pre_start(worker, container)
                case Prepare():
                    self.claims.prepare(key, worker.pod, now)
                case CallDrivers(is_broken=is_broken):
                    self.claims.call(key, worker.claims, now, is_broken=is_broken)
                case Unprepare():
                    self.claims.unprepare(key, now)
                case Finished():
                    self._finished(key, worker, now)
        if self.out.has_span(key) and worker.state in ("running", "terminated"):
            # The start is over when the API server knows of it, unless it never needs to hear.
            if key in self._gone or not self.desk.statuses.owes(key):
                self.out.end_span(key, "")
            else:
                self.out.span_stage(key, "running")
        due = worker.due_s
        if due is not None and self._timers.get(key, float("inf")) > due:
            self._timers[key] = due
            self.out.effects.append(SetTimer(due, "worker", key))

    def saved(self, key: WorkerKey, seq: int, now: float) -> None:
        """A record is durable."""
        worker = self.workers.get(key)
        if worker is None or seq == 0:
            return
        if key not in self._saved_once:
            self._saved_once[key] = None
            self.out.log("kubelet.checkpoint", worker.pod, key, {"seq": seq})
        self._act(worker, worker.persisted(seq, now), now)

    def tell_worker(self, key: WorkerKey, what: Callable[[PodWorker], list[Action]], now: float) -> None:
        """Have the pod's worker hear something, if there still is one."""
        if (worker := self.workers.get(key)) is not None:
            self._act(worker, what(worker), now)

    def unprepared(self, key: WorkerKey, now: float) -> None:
        """No devices are held for the pod any more, whether a worker waits for that or only a record is left."""
        if key in self.workers:
            self.tell_worker(key, lambda worker: worker.unprepared(now), now)
        else:
            self._erase(PodRecord(self.name, key.uid, key.generation), key)

    def _start_failed(self, worker: PodWorker, rejection: Rejection, now: float) -> None:
        """The start fails over and over: give the pod back if that is wanted, torn down first unless said otherwise."""
        key = worker.key
        if not worker.may_be_returned or not self.admission.giving_back.may_begin(worker.pod, rejection.reason, now):
            return
        self.desk.statuses.suppress(key)
        self._returned[key] = rejection, now
        if self.settings.teardown == "after" and self.settings.unbind_api != "condition":
            self.admission.ask_first(worker.pod, key, rejection, now)
        self._act(worker, worker.terminate(now, REMOVED_GRACE_S, "unbound"), now)

    def _refused(self, worker: PodWorker, rejection: Rejection, now: float) -> None:
        """The pod was admitted and cannot have what it needs: it is rejected after all."""
        self.out.count(f'kubelet_admission_rejections_total{{reason="{rejection.reason}"}}')
        self.out.tell(worker.pod, rejection.reason, rejection.message, "Warning")
        message = "Pod was rejected: " + rejection.message
        ending = worker.terminate(now, REMOVED_GRACE_S, "rejected", reason=rejection.reason, message=message)
        self._act(worker, ending, now)

    # --- what is told of them ---

    def render(self, key: WorkerKey) -> Document | None:
        """Return the status of a pod as this kubelet sees it."""
        worker = self.workers.get(key)
        if worker is not None:
            return self.resize_policy.tell(worker, worker.render())
        return self.desk.finals.get(key) or self.admission.rendered(key)

    def is_over(self, key: WorkerKey) -> bool:
        """Whether nothing of the pod runs, or ever will."""
        worker = self.workers.get(key)
        return worker.state == "terminated" if worker is not None else key in self.desk.finals

    def acknowledged(self, key: WorkerKey, now: float) -> None:
        """The API server has the pod's newest status."""
        worker = self.workers.get(key)
        if worker is None:
            return
        if worker.state == "starting":
            self._act(worker, worker.start_acked(now), now)
        elif worker.state == "terminated" and key in self._saved_once and self.desk.is_synced(key):
            # The API knows the end: no restart could run the pod again, the record may go.
            self._saved_once.pop(key)
            self._erase(worker.record(), key)

    def _log_admit(self, pod: KubeletPod, key: WorkerKey, requests: Amounts, *, adopted: bool) -> None:
        data: dict[str, Any] = {
            "requests": requests,
            "ledger": dict(self.ledger.used),
            "allocatable": dict(self.ledger.allocatable),
        }
        if adopted:
            data["adopted"] = True
        self.out.log("kubelet.admit", pod, key, data | self.ledger.entries[key].allocation.told())

    @property
    def running_pods(self) -> int:
        """Pods of which something runs."""
        staged = self.staging.running if self.staging is not None else 0
        return staged + sum(1 for w in self.workers.values() if w.ever_started and w.state != "terminated")

    def shown(self, key: WorkerKey) -> KubeletPod | None:
        """Return the object that tells of this pod: itself, of a static pod its mirror; None while there is none."""
        pod = self.pods.get(key.uid)
        return pod if pod is None or key.generation or not is_static(pod) else self.statics.mirrors.shown(pod)

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
                    resizing.forget(key, now)
                    continue
                self._judge_resize(worker, trigger, now)
        self._is_resizing = False
        due_s = resizing.passed(now)
        if due_s is not None:
            self.out.effects.append(SetTimer(due_s, "resizes", _NODE_KEY))

    def _judge_resize(self, worker: PodWorker, trigger: str, now: float) -> None:
        evicting = self.leaving() if is_critical(worker.pod) else frozenset()
        match self.resizing.decide(worker, self.admission.node, evicting, trigger, now):
            case Fits():
                self._act(worker, worker.allocate(worker.pod, now), now)
            case Deferred(victims=victims, resource=resource):
                for victim in () if self.resize_policy.forbids else victims:
                    self.evict(victim, resource, now)
                self.desk.poke(worker.key, now)
            case _:
                self.desk.poke(worker.key, now)

    # --- ended to make room ---

    def leaving(self) -> frozenset[WorkerKey]:
        """Pods that are being ended: their room comes by itself."""
        return frozenset(k for k, w in self.workers.items() if w.termination is not None)

    def evict(self, victim: WorkerKey, resource: str, now: float) -> None:
        """End a pod that has to make room for a critical one, which lacks this resource."""
        worker = self.workers.get(victim)
        if worker is not None or (self.staging is not None and victim in self.staging.pods):
            self.out.count(f'kubelet_preemptions{{preemption_signal="{resource}"}}')
        message = "Preempted in order to admit critical pod"
        if worker is None:
            self._evict_staged(victim, message, now)
            return
        self.out.tell(worker.pod, "Preempting", message, "Warning")
        self._act(
            worker,
            worker.terminate(
                now, float(worker.pod.spec.termination_grace_period_seconds), "preempted",
                reason="Preempting", message=message, disruption=True,
            ),
            now,
        )  # fmt: skip

    def _evict_staged(self, victim: WorkerKey, message: str, now: float) -> None:
        """End a pod that stages move, to make room."""
        if self.staging is not None and (staged := self.staging.pods.get(victim)) is not None:
            self.out.tell(staged.pod, "Preempting", message, "Warning")
            self._end_staged(victim, "Preempting", message, now)

    def _end_staged(self, victim: WorkerKey, reason: str, message: str, now: float) -> None:
        """End a pod that stages move: nothing of it has to be stopped first."""
        pod = self.staging.forget(victim) if self.staging is not None else None
        if pod is None:
            return
        disruption = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "message": message,
            "lastTransitionTime": self._times.text(now),
        }
        status = {"phase": "Failed", "reason": reason, "message": message, "conditions": [disruption]}
        self.desk.set_final(victim, pod, status, now)
        self._release(victim)
        self._offer_room("pod_terminated", now)

    # --- over ---

    def _finished(self, key: WorkerKey, worker: PodWorker, now: float) -> None:
        """Nothing of the pod runs any more: its room is free for those who wait."""
        self._release(key)
        self._release_name(worker.pod.metadata.key)
        self._held.pop(key, None)
        self.life.volumes.release(key)
        self.resizing.forget(key, now)
        is_removed = key in self._gone or worker.pod.metadata.deletion_timestamp is not None
        returned = self._returned.pop(key, None)
        if key in self._gone:
            self._drop(key, worker)
            if returned is not None:
                self.admission.torn_down(worker.pod, key, now - returned[1], now)
        elif returned is not None:
            self._forget(key)
            rejection, took_s = returned[0], now - returned[1]
            if not self.admission.torn_down(worker.pod, key, took_s, now):
                self.admission.give_back(worker.pod, key, rejection, now, torn_s=took_s)
        else:
            self.desk.poke(key, now)
        for waiting in [k for k, predecessor in self._held.items() if predecessor == key]:
            del self._held[waiting]
            if (successor := self.workers.get(waiting)) is not None:
                self._act(successor, successor.unhold(now), now)
        self._offer_room("pods_removed" if is_removed else "pod_terminated", now)
        self.statics.ended(worker.pod.metadata.key, now)
        self.life.pod_ended(now)

    def _release(self, key: WorkerKey) -> bool:
        """Count the pod no longer; return whether it was counted."""
        entry = self.ledger.remove(key)
        if entry is not None and not entry.allocation.is_empty:
            self.managers.release(entry.allocation)
            if self.plugins is not None:
                self.plugins.reckon()
        return entry is not None

    def _offer_room(self, trigger: str, now: float) -> None:
        """There is room: ask again for those who wait for some."""
        self.admission.room_came(now)
        self._retry_resizes(trigger, now)

    def _release_name(self, name: Key) -> None:
        left = self._names.get(name, 0) - 1
        if left > 0:
            self._names[name] = left
        else:
            self._names.pop(name, None)

    def _drop(self, key: WorkerKey, worker: PodWorker) -> None:
        """Forget a worker whose pod is gone."""
        self._forget(key)
        self._gone.pop(key, None)
        self.desk.statuses.forget(key)
        self.out.end_span(key, "")
        if self._saved_once.pop(key, 0) is None:
            self._erase(worker.record(), key)

    def _forget(self, key: WorkerKey) -> None:
        self.workers.pop(key, None)
        self._timers.pop(key, None)
        self.start_times.forget(key)

    def _let_go(self, record: PodRecord, key: WorkerKey, now: float) -> None:
        """Forget what is left of a pod that does not exist any more, once its devices are given back."""
        if not record.claims:
            self._erase(record, key)
            return
        self.claims.recover(key, record.claims, is_prepared=True)
        self.claims.unprepare(key, now)

    def _erase(self, record: PodRecord, key: WorkerKey) -> None:
        gone = PodRecord(self.name, record.uid, record.generation, is_gone=True)
        self.out.effects.append(Save(key, 0, lines_of(gone)))
