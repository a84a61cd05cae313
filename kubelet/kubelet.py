"""One node's kubelet as a pure machine: pods, timers and answers in; effects out.

It composes the managers of one node and connects them: the pod table (machines of pods), admission, statuses, resizes,
claims, device plugins, static pods, staged pods, eviction, and the node's own life. What the API server shows, what is
due and what was asked for comes in here and goes to the manager it concerns. The shell (`agent`) feeds it and performs
the effects of `out` in order; nothing here waits.
Source: kubelet 3 to 7; kubelet-unbinding 6; kep-1287 6; guarantees N1 to N8.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from kubelet.admission.handler import AdmissionHandler
from kubelet.admission.predicates import Admitted, Ledger, NodeFacts
from kubelet.deviceplugin.plugins import DevicePlugins
from kubelet.dra.health import DriverHealth
from kubelet.dra.manager import ClaimManager
from kubelet.effects import (
    NODE_KEY,
    Outbox,
    PodEnded,
    PodRejected,
    PodStarted,
    PodStopped,
    ReadNode,
    SetTimer,
    StartFailed,
    StatusChanged,
)
from kubelet.eviction.manager import NodePressure
from kubelet.managers.allocation import Allocation, Rejection
from kubelet.managers.resource_managers import ResourceManagers
from kubelet.node import shutdown
from kubelet.node.definition import NodeDefinition
from kubelet.node.life import TIMERS, NodeLife
from kubelet.node.status import node_labels
from kubelet.pod import status
from kubelet.pod.context import NodeRuntime
from kubelet.pod.pod import REMOVED_GRACE_S, Pod, has_run
from kubelet.pod.start_times import StartTimes
from kubelet.pod.states import PodState
from kubelet.pod.table import PodTable
from kubelet.reference_manager import ReferenceManager
from kubelet.resize.allocation import LIMITED_SWAP, NodeRules
from kubelet.resize.manager import ResizeManager
from kubelet.resize.policy import LOOK_S, ResizePolicy, deferred_of
from kubelet.runtime.boots import without_sandbox
from kubelet.runtime.records import LOST_EXIT, PodRecord
from kubelet.runtime.resources import aligned, is_same, overlaid
from kubelet.runtime.runtime_state import reported_record, taken_over
from kubelet.runtime.usage import NODE_RESOURCES
from kubelet.stages.manager import StageManager
from kubelet.static_pods.manager import StaticPodManager
from kubelet.static_pods.manifests import is_mirror
from kubelet.status.manager import WRITE_STATUSES, StatusManager
from kubelet.status.versions import StatusVersions
from kubelet.switches import KubeletSwitches
from kubelet.view import KubeletPod, WorkerKey, is_static, worker_key
from kubelet.volumes.manager import VolumeManager
from services.api.kinds.node import Node
from services.api.kinds.pod import BEGAN
from services.api.meta import Document, Key
from services.api.metrics.usage import parse_curves
from services.api.podresources import Amounts

_NO_POD = KubeletPod()
SPELLING_S = 0.01
"""By so much clocks of two processes may differ in what they spell of one moment."""


class Kubelet:
    """The machine of one node.

    Invariant: every key is in at most one of `table.pods`, the status manager's `final_statuses` and what admission
    holds; the ledger holds exactly the keys of pods that are not terminated. A pod of `_adds` was seen in the watch and
    is not decided yet.
    """

    def __init__(
        self, definition: NodeDefinition, runtime: NodeRuntime, *, switches: KubeletSwitches, pod_network: str
    ) -> None:
        self.name, times = definition.name, runtime.times
        self.runtime, self.switches, self._pod_network = runtime, switches, pod_network
        self.pods: dict[str, KubeletPod] = {}
        """The pods of this node as the API server, or a manifest, shows them, by uid."""
        self.records: dict[WorkerKey, PodRecord] = {}
        """What an earlier kubelet ran, of pods that were not seen yet."""
        self.is_booted = False
        """Whether the machine was booted right before this kubelet began."""
        self.out = Outbox()
        self.ledger = Ledger(definition.allocatable())
        self.managers = ResourceManagers(definition)
        versions = StatusVersions(is_immediate=switches.writes_at_once)
        self.statuses = StatusManager(
            self.pods,
            versions,
            self.out,
            render=self.render,
            shown=self.shown,
            is_over=self.is_over,
            acknowledged=self.acknowledged,
        )
        self.start_times = StartTimes(self.out, times)
        self.table = PodTable(self.name, versions, self.start_times, self.out)
        own_use = parse_curves(definition.usage, NODE_RESOURCES)
        self.pressure = NodePressure(own_use, definition.resource_capacities, definition.eviction, self.out)
        self._features = definition.features(switches)
        self.admission = self._admission_handler(definition)
        self.resize_policy = ResizePolicy(switches.policy_form, self.name, times)
        self.resizes = self._resize_manager(definition)
        self.node = NodeLife(
            definition,
            runtime,
            self.ledger,
            self.table,
            self.pressure,
            self.out,
            set_admission=self._set_admission,
            end_pod=partial(self._end_by_key, cause="shutdown", reason=shutdown.REASON, message=shutdown.MESSAGE),
        )
        self.static_pods = StaticPodManager(
            self.name, self.table, self.statuses, self.out, add=self._add_static, remove=self._remove_static
        )
        self.driver_health = DriverHealth(self.table, self.statuses) if switches.shows_device_health else None
        self.claims = ClaimManager(
            self.table,
            self.out,
            switches=switches,
            node=lambda: self.admission.node,
            on_rechecked=self._rechecked,
            on_prepared=self.driver_health.pod_started if self.driver_health is not None else lambda pod, now: None,
        )
        self.references = ReferenceManager(self.table, self.out)
        self.volumes = VolumeManager(self.table, self.out) if runtime.volumes.is_controlled else None
        self.plugins = self._device_plugins(definition)
        self._staging: set[WorkerKey] = set()
        """Pods whose containers are being ended because a stage moves them."""
        self.stages: StageManager | None = None
        """Of nodes whose pods stages may move; the shell sets it."""
        self._adds: dict[str, tuple[KubeletPod, str]] = {}
        self._rechecks: dict[WorkerKey, tuple[PodRecord, str]] = {}
        """What an earlier kubelet ran, of pods whose claims are being read again."""
        self._unbinding: dict[WorkerKey, tuple[Rejection, float]] = {}
        """Why pods are torn down to be unbound, and since when."""
        self._last_ip = 0
        self._follow_pods()

    # --- its parts ---

    def capacity_changed(self, old: NodeDefinition, new: NodeDefinition, now: float) -> None:
        """The machine has other resources from now on: what runs stays, what waits is decided again."""
        self.ledger.change_allocatable(old.allocatable(), new.allocatable())
        self.pressure.capacity_changed(new.eviction, new.resource_capacities)
        self._offer_capacity("node_capacity_changed", now)

    def advertised_changed(self, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        """Others advertise other resources on the Node from now on; what plugins offer stays theirs."""
        self.ledger.advertise(old, new)
        if self.plugins is not None:
            self.plugins.update_ledger()

    def _admission_handler(self, definition: NodeDefinition) -> AdmissionHandler:
        return AdmissionHandler(
            self.pods,
            self.table,
            start=self._start,
            evict=self._preempt,
            switches=self.switches,
            ledger=self.ledger,
            managers=self.managers,
            sysctls=definition.allowed_unsafe_sysctls,
            features=self._features,
            defined=NodeFacts(definition.name, node_labels(definition), definition.taints),
            pressure=self.pressure,
            statuses=self.statuses,
            out=self.out,
            times=self.runtime.times,
        )

    def _resize_manager(self, definition: NodeDefinition) -> ResizeManager:
        rules = NodeRules(
            has_static_cpus=definition.has_static_cpus,
            has_static_memory=definition.memory_policy == "Static",
            has_swap=definition.swap_behavior == LIMITED_SWAP,
            evicts=self.switches.evicts_for_resizes,
            has_init_containers=self.switches.resizes_init_containers,
            keeps_reservations=self.switches.keeps_reservations,
        )
        return ResizeManager(
            self.ledger,
            rules,
            self.table,
            self.out,
            node=lambda: self.admission.node,
            evict=self._preempt_for_resize,
            status_changed=self.statuses.status_changed,
        )

    def _device_plugins(self, definition: NodeDefinition) -> DevicePlugins | None:
        """Return what speaks to device plugins, whom admission asks then; None on a node without any."""
        if not (definition.device_socket or definition.device_plugins):
            return None
        plugins = DevicePlugins(
            self.managers,
            self.ledger,
            self.table,
            self.statuses,
            self.out,
            shows_health=self.switches.shows_device_health,
        )
        self.admission.devices = plugins.admission
        return plugins

    def _follow_pods(self) -> None:
        self.table.on(StatusChanged, self._status_changed)
        self.table.on(PodStarted, self._started)
        self.table.on(PodStopped, self._stopped)
        self.table.on(PodEnded, self._ended)
        self.table.on(StartFailed, self._start_failed)
        self.table.on(PodRejected, self._rejected)

    # --- pods as the API shows them (kubelet 3.1) ---

    def pod_changed(self, old: KubeletPod | None, new: KubeletPod | None, traceparent: str, now: float) -> None:
        """Take one change of the watch; additions wait for `settle`, so that a batch is admitted by age."""
        if is_mirror(new or old or _NO_POD):
            self.static_pods.mirror_changed(old, new, now)
            return
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

        def by_age(added: tuple[KubeletPod, str]) -> tuple[bool, str, str, str]:
            meta = added[0].metadata
            return worker_key(added[0]) not in self.records, meta.creation_timestamp, meta.namespace, meta.name

        if self._adds:
            adds, self._adds = self._adds, {}
            for pod, traceparent in sorted(adds.values(), key=by_age):
                self._added(pod, traceparent, now)
            self.resizes.trigger = self.resizes.trigger or "pods_added"
        if self.resizes.trigger:
            self.resizes.retry(self.resizes.trigger, now)

    def sources_ready(self, now: float) -> None:
        """The first complete list is here: end what runs of pods that do not exist any more."""
        self.pressure.begin(now)
        if not self.resizes.has_sources:
            self.node.begin(now)
        self.resizes.has_sources = True
        if self.volumes is not None:
            self.volumes.sources_ready()
        self.static_pods.sources_ready()
        for key, record in list(self.records.items()):
            if key in self.table.pods:
                continue
            del self.records[key]
            if record.containers and not record.is_finished:
                data = {"container": record.containers[0].name, "orphan": True}
                self.out.log("kubelet.stop", None, key, data, Key(record.namespace, record.name))
            self._forget_record(record, key, now)
        if self.resizes.trigger:
            self.resizes.retry(self.resizes.trigger, now)

    def _added(self, pod: KubeletPod, traceparent: str, now: float) -> None:
        key = worker_key(pod)
        self.pods[pod.metadata.uid] = pod
        record = self.records.pop(key, None)
        if key in self.table.pods or key in self.statuses.final_statuses or self.admission.holds(key):
            self.table.gone.pop(key, None)
            return
        if record is not None and not record.containers and not record.is_finished:
            record = self._without_containers(pod, key, record, now)
        if record is None and self.stages is not None and self.stages.took(pod):
            self._adopt_staged(self.stages, pod, key, now)
            return
        if record is None and BEGAN in pod.metadata.annotations and (begun := self._begun(pod)) is not None:
            shown, record = begun
            self._adopt(shown, key, record, traceparent, now)
            if (made := self.table.pods.get(key)) is not None:
                self.table.perform(made, made.update(pod, now), now)
            self._keep(key, now)
            return
        if record is not None and not (pod.is_terminal and record.is_finished):
            if self._asks_again(record):
                self._rechecks[key] = record, traceparent
                self.claims.recheck(key, pod, now)
            else:
                self._adopt(pod, key, record, traceparent, now)
        elif pod.is_terminal:
            if record is not None:
                self._forget_record(record, key, now)
            if pod.metadata.deletion_timestamp is not None:
                self.statuses.delete(key, pod)
        elif pod.metadata.deletion_timestamp is not None:
            # Deleted before anything of it ran here: Failed, then gone (kubelet 3.4).
            self.statuses.set_final(key, pod, {"phase": "Failed"}, now)
        else:
            self.out.start_span(key, pod, traceparent)
            self.admission.decide(pod, key, now)

    def _begun(self, pod: KubeletPod) -> tuple[KubeletPod, PodRecord] | None:
        """Return a pod that was imported while it ran, as it was reported, and what runs of it; None for any other."""
        shown = taken_over(pod) if pod.metadata.deletion_timestamp is None else None
        # Texts have whole seconds: a little later, so that the next kubelet's clock spells the same second.
        base_s = self.runtime.times.offset_s - SPELLING_S
        record = reported_record(shown, (), base_s) if shown is not None else None
        return (shown, record) if shown is not None and record is not None else None

    def _keep(self, key: WorkerKey, now: float) -> None:
        """Have what was taken over outlive this kubelet."""
        if (made := self.table.pods.get(key)) is not None:
            made.save()
            self.table.perform(made, made.advance(now), now)

    def _asks_again(self, record: PodRecord) -> bool:
        """Whether a pod that ran before this kubelet began is asked again if it may use its claims (kep-5194 4)."""
        runs = any(each.exit_code < 0 for each in record.containers)
        return self.switches.recheck_on_restart == "always" and bool(record.claims) and runs

    def _rechecked(self, key: WorkerKey, problem: str, now: float) -> None:
        """Go on with a pod that may still use its claims; without that its containers end, and wait for the claims."""
        record, traceparent = self._rechecks.pop(key)
        pod = self.pods.get(key.uid)
        if pod is None or worker_key(pod) != key:
            self._forget_record(record, key, now)
            return
        self._adopt(pod, key, without_sandbox(record, now) if problem else record, traceparent, now)
        if problem:
            # The next kubelet must not find running what this one ended.
            self._keep(key, now)

    def _without_containers(self, pod: KubeletPod, key: WorkerKey, record: PodRecord, now: float) -> PodRecord | None:
        """Nothing of a pod runs to which something was allocated: return what it goes on with, None to start anew.
        It goes on when the API server saw it run: then it is the runtime that has forgotten it (FM-K5)."""
        is_over = pod.is_terminal or pod.metadata.deletion_timestamp is not None
        if not is_over and any(has_run(each) for each in pod.status.container_statuses):
            return record
        if record.claims:
            self.claims.recover(key, record.claims, now, is_prepared=False)  # perhaps they are, already
        elif is_over:
            self.table.erase(key)
        return None

    def _updated(self, known: KubeletPod, new: KubeletPod, now: float) -> None:
        key = worker_key(new)
        self.pods[new.metadata.uid] = new
        is_deleted = new.metadata.deletion_timestamp is not None
        if self.stages is not None and key in self.stages.pods:
            self.stages.changed(key, new, now)
            if new.is_terminal and self._release(key):
                self._offer_capacity("pod_terminated", now)
            self._end_unmoved(key, new, now)
            return
        pod = self.table.pods.get(key)
        if pod is not None:
            if self.stages is not None and self._hand_over(pod, new, now):
                return
            self.statuses.pod_updated(key, new, now)
            self.start_times.shown(pod, new, now)
            self.pressure.pod_updated(new, now)
            if is_deleted or _matters(known, new):
                self.table.perform(pod, pod.update(new, now), now)
            else:
                pod.pod = new
            if self.resizes.rules.keeps_reservations:
                self.resizes.keep_reservation(pod)
            if known.metadata.generation != new.metadata.generation and self.resizes.is_live(pod):
                self.resizes.count_request(known, new)
                if self.resizes.requested(pod, new):
                    self.resizes.trigger = "pod_updated"
            self.statuses.maybe_delete(key)
            return
        if not is_deleted:
            self.admission.pod_updated(key, new, now)
        elif self.admission.holds(key):
            self.admission.deleted(key, new, now)
        elif key in self.statuses.final_statuses:
            self.statuses.maybe_delete(key)
        elif new.is_terminal:
            self.statuses.delete(key, new)
        else:
            self.statuses.set_final(key, new, {"phase": "Failed"}, now)

    def _removed(self, old: KubeletPod, now: float, grace_s: float = REMOVED_GRACE_S) -> None:
        """The object is gone, or is not ours any more."""
        key = worker_key(old)
        uid = old.metadata.uid
        self._adds.pop(uid, None)
        if (pod := self.pods.get(uid)) is not None and worker_key(pod) == key:
            del self.pods[uid]
        self.admission.forget(key)
        self.admission.unbinds.gone(key, old, "gone")
        self.statuses.forget(key)
        if self.stages is not None and self.stages.forget(key) is not None:
            self.out.end_span(key, "removed")
            if self._release(key):
                self._offer_capacity("pods_removed", now)
            return
        machine = self.table.pods.get(key)
        if machine is None:
            self.out.end_span(key, "removed")
            return
        self.table.gone[key] = None
        if machine.state == PodState.TERMINATED:
            self.table.drop(machine)
        else:
            self.table.perform(machine, machine.terminate(now, grace_s, "removed"), now)

    # --- pods start, or are taken over (kubelet 3.2, 6) ---

    def _start(self, pod: KubeletPod, key: WorkerKey, admitted: Admitted, now: float) -> None:
        """Count the admitted pod and run it."""
        self.ledger.add(key, pod, admitted.requests, admitted.allocation)
        self._log_admit(pod, key, admitted.requests, adopted=False)
        if admitted.allocation.devices:
            self.out.log("kubelet.devices", pod, key, {"shares": msgspec.to_builtins(admitted.allocation.devices)})
        if self.stages is not None and not is_static(pod) and self.stages.chooses(pod):
            self.stages.begin(key, pod, now)
            return
        self.start_times.admitted(key, now)
        self.table.begin(self._new_pod(pod, key, admitted.allocation, now), now)

    def _new_pod(self, pod: KubeletPod, key: WorkerKey, allocation: Allocation, now: float) -> Pod:
        self.pressure.pod_updated(pod, now)
        made = Pod(pod, key, self.runtime, pod_ip=self.new_ip(pod), allocation=allocation, now=now)
        if self.plugins is not None:
            self.plugins.pod_added(made)
        return made

    def new_ip(self, pod: KubeletPod) -> str:
        """Return an address for a pod of this node; the node's own when the pod shares its network."""
        self._last_ip = self._last_ip % 65000 + 1
        return self.runtime.host_ip if pod.spec.host_network else f"{self._pod_network}.{self._last_ip % 254 + 1}"

    def _adopt(self, pod: KubeletPod, key: WorkerKey, record: PodRecord, traceparent: str, now: float) -> None:
        """Take over what a previous kubelet started; its allocation is not asked for again."""
        # What was allocated counts, whatever the spec says by now (kep-1287 8).
        wanted = self.resizes.rules.resources_of(pod)
        given = aligned(record.allocated, wanted)
        allocated = pod if is_same(wanted, given) else overlaid(pod, given)
        requests = self.ledger.needs(allocated)
        # What had ended left its capacity, which another pod may have by now.
        short = [] if record.is_finished else self._count_again(allocated, key, requests, record.allocation)
        self.out.start_span(key, pod, traceparent)
        made = self._new_pod(pod, key, record.allocation, now)
        self.table.add(made, is_recorded=True)
        if record.claims:
            is_booted = any(each.exit_code == LOST_EXIT for each in record.containers)
            self.claims.recover(key, record.claims, now, is_prepared=bool(record.containers) and not is_booted)
        took_over = made.adopt if record.containers or record.is_finished else made.resume
        self.table.perform(made, took_over(record, now), now)
        if self.volumes is not None:
            self.volumes.recover(key, pod)
        readmits = self.switches.readmits_running
        if readmits and self.plugins is not None and (refused := self.plugins.readmitted(made)) is not None:
            self._reject_running(made, refused.reason, refused.message, now)
        elif short and readmits:
            self._end(made, now, "rejected", f"OutOf{short[0]}", f"Node has too little {short[0]} now")
        elif readmits and (refused := self._features.lacks(pod)) is not None:
            self.out.counts.add("kubelet_admission_rejections_total", refused.reason)
            self.out.event(pod, refused.reason, refused.message, "Warning")
            self._reject_running(made, refused.reason, refused.message, now)
        elif pod.metadata.deletion_timestamp is not None:
            self.table.perform(made, made.update(pod, now), now)
        if self.resizes.is_live(made):
            self.resizes.requested(made, pod)

    def _count_again(
        self, allocated: KubeletPod, key: WorkerKey, requests: Amounts, allocation: Allocation
    ) -> list[str]:
        """Count a pod that was admitted before this kubelet began; return what there is too little of now."""
        self.managers.take(allocation)
        if self.plugins is not None:
            self.plugins.update_ledger()
        short = self.ledger.shortages(requests)
        self.ledger.add(key, allocated, requests, allocation)
        if not short:
            # A node that shrank holds more than it may until the pod is stopped; that is no admission.
            self._log_admit(allocated, key, requests, adopted=True)
        return short

    def _adopt_staged(self, staging: StageManager, pod: KubeletPod, key: WorkerKey, now: float) -> None:
        """Go on with a pod that stages moved before this kubelet began: it is not asked again whether it fits."""
        if not pod.is_terminal:
            outcome = self.admission.outcome(pod)
            allocation = outcome.allocation if isinstance(outcome, Admitted) else Allocation()
            requests = self.ledger.needs(pod)
            short = self.ledger.shortages(requests)
            self.ledger.add(key, pod, requests, allocation)
            if not short:
                self._log_admit(pod, key, requests, adopted=True)
        staging.begin(key, pod, now)

    def _log_admit(self, pod: KubeletPod, key: WorkerKey, requests: Amounts, *, adopted: bool) -> None:
        used, allocatable = dict(self.ledger.used), dict(self.ledger.allocatable)
        data: dict[str, Any] = {"requests": requests, "ledger": used, "allocatable": allocatable}
        if adopted:
            data["adopted"] = True
        self.out.log("kubelet.admit", pod, key, data | self.ledger.entries[key].allocation.fields())

    # --- what pods emit for this node ---

    def _status_changed(self, pod: Pod, effect: StatusChanged, now: float) -> None:
        if pod.key not in self.table.gone:
            self.statuses.status_changed(pod.key, now)

    def _started(self, pod: Pod, effect: PodStarted, now: float) -> None:
        self.out.log("kubelet.start", pod.pod, pod.key, {"container": effect.container})
        self.start_times.started(pod.key, now)
        self.admission.unbinds.started(pod.pod, pod.key)

    def _stopped(self, pod: Pod, effect: PodStopped, now: float) -> None:
        self.out.log("kubelet.stop", pod.pod, pod.key, {"container": effect.container})
        self.start_times.ended(pod.key, now)

    def _start_failed(self, pod: Pod, effect: StartFailed, now: float) -> None:
        """The start fails over and over: unbind the pod if that is configured, mostly once it is torn down."""
        key, rejection = pod.key, Rejection(effect.reason, effect.message)
        if not pod.may_be_unbound or not self.admission.unbinds.may_begin(pod.pod, rejection.reason, now):
            return
        self.statuses.versions.suppress(key)
        self._unbinding[key] = rejection, now
        if self.switches.teardown == "after" and self.switches.unbind_api != "condition":
            self.admission.ask_first(pod.pod, key, rejection, now)
        self.table.perform(pod, pod.terminate(now, REMOVED_GRACE_S, "unbound"), now)

    def _rejected(self, pod: Pod, effect: PodRejected, now: float) -> None:
        """The pod was admitted and cannot have what it needs: it is rejected after all."""
        self.out.counts.add("kubelet_admission_rejections_total", effect.reason)
        self.out.event(pod.pod, effect.reason, effect.message, "Warning")
        self._reject_running(pod, effect.reason, effect.message, now)

    def _ended(self, pod: Pod, effect: PodEnded, now: float) -> None:
        """Nothing of the pod runs any more: its capacity is free for those who wait."""
        key = pod.key
        if key in self._staging:
            self._staging.discard(key)
            if key not in self.table.gone:
                self._handed_over(pod, now)
                return
        self._release(key)
        self._release_volumes(pod, now)
        is_removed = key in self.table.gone or pod.pod.metadata.deletion_timestamp is not None
        unbinding = self._unbinding.pop(key, None)
        if key in self.table.gone:
            self.table.drop(pod)
            if unbinding is not None:
                self.admission.torn_down(pod.pod, key, now - unbinding[1], now)
        elif unbinding is not None:
            self.table.forget(key)
            rejection, took_s = unbinding[0], now - unbinding[1]
            if not self.admission.torn_down(pod.pod, key, took_s, now):
                self.admission.unbind(pod.pod, key, rejection, now, torn_s=took_s)
        else:
            self.statuses.status_changed(key, now)
        self.table.unhold_after(key, now)
        self._offer_capacity("pods_removed" if is_removed else "pod_terminated", now)
        self.static_pods.ended(pod.pod.metadata.key, now)
        self.node.pod_ended(now)

    def _release_volumes(self, pod: Pod, now: float) -> None:
        """No container of the pod runs any more: its volumes are free, and no resize of it is under way."""
        self.table.ended(pod)
        self.runtime.volumes.release(pod.key)
        if self.volumes is not None:
            self.volumes.release(pod.key)
        self.resizes.forget(pod.key, now)

    def _release(self, key: WorkerKey) -> bool:
        """Count the pod no longer; return whether it was counted."""
        entry = self.ledger.remove(key)
        if entry is not None and not entry.allocation.is_empty:
            self.managers.release(entry.allocation)
            if self.plugins is not None:
                self.plugins.update_ledger()
        return entry is not None

    def _offer_capacity(self, trigger: str, now: float) -> None:
        """Capacity came free: decide again about pods and resizes that wait for some."""
        self.admission.capacity_came(now)
        self.resizes.retry(trigger, now)

    def _forget_record(self, record: PodRecord, key: WorkerKey, now: float) -> None:
        """Erase what is left of a pod that does not exist any more, once its claims are unprepared."""
        if not record.claims:
            self.table.erase(key)
            return
        # Perhaps they are prepared, perhaps not: the same pod may be back, for another binding, before that is settled.
        self.claims.recover(key, record.claims, now, is_prepared=False)
        self.claims.unprepare(key, now)

    # --- pods are ended by their node ---

    def _end(
        self, pod: Pod, now: float, cause: str, reason: str, message: str, grace_s: float = REMOVED_GRACE_S
    ) -> None:
        is_disruption = cause not in ("rejected", "unbound", "over limit")
        ending = pod.terminate(now, grace_s, cause, reason=reason, message=message, disruption=is_disruption)
        self.table.perform(pod, ending, now)

    def _reject_running(self, pod: Pod, reason: str, message: str, now: float) -> None:
        self._end(pod, now, "rejected", reason, "Pod was rejected: " + message)

    def _preempt(self, victim: WorkerKey, resource: str, now: float) -> None:
        """End a pod so that a critical one fits, which lacks this resource."""
        staged = self.stages.pods.get(victim) if self.stages is not None else None
        if (held := self.table.pods.get(victim) or staged) is None:
            return
        self.out.counts.add("kubelet_preemptions", resource)
        message = "Preempted in order to admit critical pod"
        self.out.event(held.pod, "Preempting", message, "Warning")
        grace_s = float(held.pod.spec.termination_grace_period_seconds)
        self._end_by_key(victim, grace_s, now, "preempted", "Preempting", message)

    def _preempt_for_resize(self, victim: WorkerKey, resource: str, now: float) -> None:
        """End a pod so that the resize of a critical one fits, unless the Node's owners forbid that (KEP-5836)."""
        if not self.resize_policy.owners:
            self._preempt(victim, resource, now)

    # --- stages take pods over, and leave them (decision 0078) ---

    def stages_changed(self, now: float) -> None:
        """Give to the stages what they may move now; end what is being deleted and they move no more."""
        if self.stages is None:
            return
        for machine in list(self.table.pods.values()):
            self._hand_over(machine, machine.pod, now)
        for key, staged in list(self.stages.pods.items()):
            self._end_unmoved(key, staged.pod, now)

    def _hand_over(self, machine: Pod, pod: KubeletPod, now: float) -> bool:
        """End the containers of a pod that a stage may move now, unseen; return whether that was begun."""
        key = machine.key
        if self.stages is None or machine.termination is not None or key in self._unbinding or is_static(pod):
            return False
        if machine.state == PodState.TERMINATED or not self.stages.wants(pod, now):
            return False
        machine.pod = pod
        self.statuses.versions.suppress(key)
        self._staging.add(key)
        self.table.perform(machine, machine.terminate(now, REMOVED_GRACE_S, "staged"), now)
        return True

    def _handed_over(self, machine: Pod, now: float) -> None:
        """No container of the pod runs any more: stages move it, and it keeps its capacity."""
        key = machine.key
        self._release_volumes(machine, now)
        self.table.forget(key)
        self.table.erase_of(machine)
        self.statuses.forget(key)
        self.table.unhold_after(key, now)
        self.node.pod_ended(now)
        pod = self.pods.get(key.uid)
        if self.stages is None or pod is None or worker_key(pod) != key:
            self._release(key)
            return
        self.stages.begin(key, pod, now)
        self._end_unmoved(key, pod, now)

    def _end_unmoved(self, key: WorkerKey, pod: KubeletPod, now: float) -> None:
        """End a pod that is being deleted and that no stage chooses any more."""
        if self.stages is None or pod.metadata.deletion_timestamp is None or self.stages.chooses(pod):
            return
        self.stages.forget(key)
        if pod.is_terminal:
            self.statuses.delete(key, pod)
        else:
            self.statuses.set_final(key, pod, {"phase": "Failed"}, now)
        if self._release(key):
            self._offer_capacity("pod_terminated", now)

    def _end_by_key(self, victim: WorkerKey, grace_s: float, now: float, cause: str, reason: str, message: str) -> None:
        """End a pod, or one that stages move: nothing of that has to be stopped first."""
        if (machine := self.table.pods.get(victim)) is not None:
            self._end(machine, now, cause, reason, message, grace_s)
            return
        pod = self.stages.forget(victim) if self.stages is not None else None
        if pod is None:
            return
        disruption = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "message": message,
            "lastTransitionTime": self.runtime.times.text(now),
        }
        final = {"phase": "Failed", "reason": reason, "message": message, "conditions": [disruption]}
        self.statuses.set_final(victim, pod, final, now)
        self._release(victim)
        self._offer_capacity("pod_terminated", now)

    def _set_admission(self, refused: Rejection | None, is_held: bool, now: float) -> None:
        """Admit no pod any more, or hold new ones back, because of the node."""
        is_new = refused is not None and self.admission.refused is None
        self.admission.refused = refused
        self.admission.hold_back(is_held, now)
        if is_new:
            self.admission.capacity_came(now)  # who waits is refused now

    def _relieve_pressure(self, now: float) -> None:
        """Look at what the node has left, and evict the pods that have to leave, if any (kubelet 7)."""
        for victim in self.pressure.look(self.table.pods, now):
            pod = self.table.pods[victim.key]
            self.out.event(pod.pod, "Evicted", victim.message, "Warning")
            self.out.counts.add("kubelet_evictions", victim.signal)
            cause = "evicted" if victim.is_disruption else "over limit"
            self._end(pod, now, cause, "Evicted", victim.message, victim.grace_s)
        if self.pressure.wants_images_gone:
            self.node.reclaim_images(now)

    # --- static pods (kubelet 3.1) ---

    def files_changed(self, files: Mapping[str, bytes], wall_s: float, now: float) -> dict[str, str]:
        """Take the manifests of static pods as they are now; return what is wrong with which file."""
        wrong = self.static_pods.files_changed(files, wall_s, now)
        if self.resizes.trigger:
            self.resizes.retry(self.resizes.trigger, now)
        return wrong

    def _add_static(self, pod: KubeletPod, now: float) -> None:
        """Admit the pod and run it; after a boot also what had ended before."""
        record = self.records.get(worker_key(pod))
        if self.is_booted and record is not None and record.is_finished:
            del self.records[worker_key(pod)]
            self.table.erase(worker_key(pod))
        self._added(pod, "", now)

    def _remove_static(self, pod: KubeletPod, now: float) -> None:
        """End the pod within its own grace period."""
        self._removed(pod, now, float(pod.spec.termination_grace_period_seconds))

    # --- time and disk ---

    def due(self, what: str, key: WorkerKey, now: float) -> None:
        """A timer fired."""
        match what:
            case "worker":
                self.table.due(key, now)
            case "stage":
                if self.stages is not None:
                    self.stages.due(key, now)
            case "unprepare" | "claims" | "drivers":
                self.claims.due(what, key, now)
            case "unbind" | "hold" | "defer":
                self.admission.due(what, key, now)
            case _ if what in TIMERS:
                self.node.due(what, now)
            case "mirrors":
                self.static_pods.due(now)
            case "delete":
                self.statuses.delete_again(key)
            case "volumes":
                assert self.volumes is not None
                self.volumes.due(key)
            case "devices":
                assert self.plugins is not None
                self.plugins.due(now)
            case "pressure":
                self._relieve_pressure(now)
            case "policy":
                self.out.effects += [ReadNode(key, False), SetTimer(now + LOOK_S, "policy", key)]
            case "resizes":
                self.resizes.due(now)
            case _:
                self.out.effects.append(WRITE_STATUSES)

    # --- statuses ---

    def render(self, key: WorkerKey) -> Document | None:
        """Return the status of a pod as this kubelet sees it."""
        pod = self.table.pods.get(key)
        if pod is not None:
            return self.resize_policy.add_condition(pod, status.render(pod))
        return self.statuses.final_statuses.get(key) or self.admission.rendered(key)

    def is_over(self, key: WorkerKey) -> bool:
        """Whether nothing of the pod runs, or ever will."""
        pod = self.table.pods.get(key)
        return pod.state == PodState.TERMINATED if pod is not None else key in self.statuses.final_statuses

    def shown(self, key: WorkerKey) -> KubeletPod | None:
        """Return the object that shows this pod: itself, of a static pod its mirror; None while there is none."""
        pod = self.pods.get(key.uid)
        return pod if pod is None or key.generation or not is_static(pod) else self.static_pods.shown(pod)

    def acknowledged(self, key: WorkerKey, now: float) -> None:
        """The API server has the pod's newest status."""
        pod = self.table.pods.get(key)
        if pod is None:
            return
        if pod.state == PodState.STARTING:
            self.table.perform(pod, pod.start_acked(now), now)
        elif pod.state == PodState.TERMINATED and self.statuses.is_synced(key):
            self.table.erase_of(pod)

    def pod_read(self, key: WorkerKey, pod: KubeletPod | None, now: float) -> None:
        """Take a live read of a pod: None when it is not there or not ours to read."""
        still_mine = pod is not None and worker_key(pod) == key and pod.spec.node_name == self.name
        if self.admission.pod_read(key, still_mine, now):
            return
        if not still_mine:
            self.statuses.versions.forget(key)
            return
        assert pod is not None
        if key in self.table.pods or key in self.statuses.final_statuses:
            if machine := self.table.pods.get(key):
                machine.generation = max(machine.generation, pod.metadata.generation)
            self.statuses.status_changed(key, now)

    def node_seen(self, node: Node, now: float) -> None:
        """Take what the Node says of resizes, and show it on the pods that wait for one."""
        policy = self.resize_policy
        if policy.form is not None and not policy.is_looking:
            policy.is_looking = True
            self.out.effects.append(SetTimer(now + LOOK_S, "policy", NODE_KEY))
        if policy.take(node, now):
            for key in deferred_of(self.table.pods.values()):
                self.statuses.status_changed(key, now)


def _matters(known: KubeletPod, new: KubeletPod) -> bool:
    """Whether a change is more than the echo of our own status."""
    if known.metadata.generation != new.metadata.generation:
        return True
    before, after = known.metadata.annotations, new.metadata.annotations
    if before is not after and before != after:
        return True
    return bool(new.spec.readiness_gates) and known.status.conditions != new.status.conditions
