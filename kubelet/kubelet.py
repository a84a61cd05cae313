"""One node's kubelet as a pure machine: pods, timers and answers in; effects out.

It composes the managers of one node and connects them: the pod table (machines of pods), admission, capacity, statuses,
resizes, claims, device plugins, static pods, staged pods, eviction, teardowns, recovery, and the node's own life. It
passes changes of objects, timers and answers to the manager that each concerns. The shell (`agent`) calls it and
performs the effects of `out` in order; nothing here waits.
Source: kubelet 3 to 7; kubelet-unbinding 6; kep-1287 6; guarantees N1 to N8.
"""

from collections.abc import Mapping
from functools import partial

from kubelet.admission.capacity import NodeCapacity
from kubelet.admission.features import NodeFeatures
from kubelet.admission.handler import AdmissionHandler
from kubelet.admission.predicates import Admitted, Ledger, NodeFacts
from kubelet.deviceplugin.plugins import DevicePlugins
from kubelet.dra.health import DriverHealth
from kubelet.dra.manager import ClaimManager
from kubelet.effects import Outbox, PodEnded, PodStarted, PodStopped, StatusChanged
from kubelet.eviction.evictor import Evictor
from kubelet.eviction.manager import NodePressure
from kubelet.managers.allocation import Allocation
from kubelet.managers.resource_managers import ResourceManagers
from kubelet.node import shutdown
from kubelet.node.definition import NodeDefinition
from kubelet.node.life import TIMERS, NodeLife
from kubelet.node.status import node_labels
from kubelet.pod import status
from kubelet.pod.addresses import PodAddresses
from kubelet.pod.context import NodeRuntime
from kubelet.pod.pod import REMOVED_GRACE_S, Pod
from kubelet.pod.start_times import StartTimes
from kubelet.pod.states import PodState
from kubelet.pod.table import PodTable
from kubelet.recovery import PodRecovery
from kubelet.reference_manager import ReferenceManager
from kubelet.resize.allocation import LIMITED_SWAP, NodeRules
from kubelet.resize.manager import ResizeManager
from kubelet.resize.policy import ResizePolicy
from kubelet.resize.policy_watch import PolicyWatch
from kubelet.runtime.usage import NODE_RESOURCES
from kubelet.stages.staged_pods import StagedPods
from kubelet.static_pods.manager import StaticPodManager
from kubelet.static_pods.manifests import is_mirror
from kubelet.status.manager import WRITE_STATUSES, StatusManager
from kubelet.status.versions import StatusVersions
from kubelet.switches import KubeletSwitches
from kubelet.unbind.teardown import UnbindTeardowns
from kubelet.view import KubeletPod, WorkerKey, is_static, worker_key
from kubelet.volumes.manager import VolumeManager
from services.api.meta import Document
from services.api.metrics.usage import parse_curves

_NO_POD = KubeletPod()
SPELLING_S = 0.01
"""Maximal difference between two processes' clocks for the same moment, in seconds."""


class Kubelet:
    """The machine of one node.

    Invariant: every key is in at most one of `table.pods`, the status manager's `final_statuses` and
    admission's waiting pods; the ledger holds exactly the keys of pods that are not terminated. Pods
    in `_adds` were seen in the watch and await admission.
    """

    def __init__(
        self, definition: NodeDefinition, runtime: NodeRuntime, *, switches: KubeletSwitches, pod_network: str
    ) -> None:
        self.name, times = definition.name, runtime.times
        self.runtime, self.switches = runtime, switches
        self.pods: dict[str, KubeletPod] = {}
        """The pods of this node as the API server, or a manifest, shows them, by uid."""
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
            shown=self.api_pod,
            is_over=self.is_over,
            acknowledged=self.on_acknowledged,
        )
        self.start_times = StartTimes(self.out, times)
        self.table = PodTable(self.name, versions, self.start_times, self.out)
        self.addresses = PodAddresses(runtime.host_ip, pod_network)
        own_use = parse_curves(definition.usage, NODE_RESOURCES)
        self.pressure = NodePressure(own_use, definition.resource_capacities, definition.eviction, self.out)
        self.plugins = plugins = self._device_plugins(definition)
        self.capacity = NodeCapacity(
            self.ledger,
            self.managers,
            self.out,
            update_devices=plugins.update_ledger if plugins is not None else lambda: None,
        )
        self.staged_pods = StagedPods(
            self.table,
            self.statuses,
            self.capacity,
            self.out,
            times,
            is_unbinding=lambda key: self.teardowns.is_unbinding(key),
            offer=self._offer_capacity,
        )
        self.evictor = Evictor(
            self.table, self.pressure, self.out, staged_pod=self.staged_pods.pod_of, end_staged=self.staged_pods.end
        )
        features = definition.features(switches)
        self.admission = self._admission_handler(definition, features)
        self.teardowns = UnbindTeardowns(self.table, versions, self.admission.unbinds, self.admission, switches)
        self.resize_policy = ResizePolicy(switches.policy_form, self.name, times)
        self.policy_watch = PolicyWatch(
            self.resize_policy, self.table, self.statuses, self.out, evict=self.evictor.preempt
        )
        self.resizes = self._resize_manager(definition)
        self.node = NodeLife(
            definition,
            runtime,
            self.ledger,
            self.table,
            self.pressure,
            self.out,
            set_admission=self.admission.restrict,
            end_pod=partial(
                self.evictor.end_by_key, cause="shutdown", reason=shutdown.REASON, message=shutdown.MESSAGE
            ),
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
            on_rechecked=lambda key, problem, now: self.recovery.on_rechecked(key, problem, now),
            on_prepared=self.driver_health.pod_started if self.driver_health is not None else lambda pod, now: None,
        )
        self.references = ReferenceManager(self.table, self.out)
        self.volumes = VolumeManager(self.table, self.out) if runtime.volumes.is_controlled else None
        self.recovery = self._pod_recovery(features)
        self._adds: dict[str, tuple[KubeletPod, str]] = {}
        self._follow_pods()

    # --- its parts ---

    def capacity_changed(self, old: NodeDefinition, new: NodeDefinition, now: float) -> None:
        """Replace the machine's resources: running pods stay, and waiting pods are decided again."""
        self.ledger.change_allocatable(old.allocatable(), new.allocatable())
        self.pressure.capacity_changed(new.eviction, new.resource_capacities)
        self._offer_capacity("node_capacity_changed", now)

    def _admission_handler(self, definition: NodeDefinition, features: NodeFeatures) -> AdmissionHandler:
        handler = AdmissionHandler(
            self.pods,
            self.table,
            start=self._start,
            evict=self.evictor.preempt,
            switches=self.switches,
            ledger=self.ledger,
            managers=self.managers,
            sysctls=definition.allowed_unsafe_sysctls,
            features=features,
            defined=NodeFacts(definition.name, node_labels(definition), definition.taints),
            pressure=self.pressure,
            statuses=self.statuses,
            out=self.out,
            times=self.runtime.times,
        )
        if self.plugins is not None:
            handler.devices = self.plugins.admission
        return handler

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
            evict=self.policy_watch.preempt,
            status_changed=self.statuses.status_changed,
        )

    def _device_plugins(self, definition: NodeDefinition) -> DevicePlugins | None:
        """Return the manager of device plugins; None on a node without device plugins."""
        if not (definition.device_socket or definition.device_plugins):
            return None
        return DevicePlugins(
            self.managers,
            self.ledger,
            self.table,
            self.statuses,
            self.out,
            shows_health=self.switches.shows_device_health,
        )

    def _pod_recovery(self, features: NodeFeatures) -> PodRecovery:
        plugins, volumes = self.plugins, self.volumes
        return PodRecovery(
            self.pods,
            self.table,
            self.capacity,
            self.claims,
            self.out,
            self.runtime.times,
            switches=self.switches,
            features=features,
            rules=self.resizes.rules,
            new_pod=self._new_pod,
            readmission=plugins.readmission_rejection if plugins is not None else lambda pod: None,
            recover_volumes=volumes.recover if volumes is not None else lambda key, pod: None,
            request_resize=self.resizes.recover,
        )

    def _follow_pods(self) -> None:
        self.table.on(StatusChanged, self._status_changed)
        self.table.on(PodStarted, self._on_started)
        self.table.on(PodStopped, self._on_stopped)
        self.table.on(PodEnded, self._on_ended)

    # --- pods as the API shows them (kubelet 3.1) ---

    def pod_changed(self, old: KubeletPod | None, new: KubeletPod | None, traceparent: str, now: float) -> None:
        """Handle one change of the watch; added pods wait for `settle`, which admits a batch by age."""
        if is_mirror(new or old or _NO_POD):
            self.static_pods.mirror_changed(old, new, now)
            return
        if old is not None and (new is None or worker_key(new) != worker_key(old)):
            self._on_removed(old, now)
        if new is None:
            return
        uid = new.metadata.uid
        if uid in self._adds:
            self._adds[uid] = (new, self._adds[uid][1] or traceparent)
            return
        known = self.pods.get(uid)
        if known is not None and known.status.binding_generation == new.status.binding_generation:
            self._on_updated(known, new, now)
            return
        self._adds[uid] = (new, traceparent)

    def settle(self, now: float) -> None:
        """Admit the added pods: those that already run here first, then the oldest. Then decide about the resizes."""

        def by_age(added: tuple[KubeletPod, str]) -> tuple[bool, str, str, str]:
            meta = added[0].metadata
            return worker_key(added[0]) not in self.recovery.records, meta.creation_timestamp, meta.namespace, meta.name

        if self._adds:
            adds, self._adds = self._adds, {}
            for pod, traceparent in sorted(adds.values(), key=by_age):
                self._on_added(pod, traceparent, now)
            self.resizes.trigger = self.resizes.trigger or "pods_added"
        if self.resizes.trigger:
            self.resizes.retry(self.resizes.trigger, now)

    def sources_ready(self, now: float) -> None:
        """End the pods of records that do not exist in the API any more, now that the first complete list is known."""
        self.pressure.begin(now)
        if not self.resizes.has_sources:
            self.node.begin(now)
        self.resizes.has_sources = True
        if self.volumes is not None:
            self.volumes.sources_ready()
        self.static_pods.sources_ready()
        self.recovery.forget_orphans(now)
        if self.resizes.trigger:
            self.resizes.retry(self.resizes.trigger, now)

    def _on_added(self, pod: KubeletPod, traceparent: str, now: float) -> None:
        key = worker_key(pod)
        self.pods[pod.metadata.uid] = pod
        record = self.recovery.records.pop(key, None)
        if key in self.table.pods or key in self.statuses.final_statuses or self.admission.holds(key):
            self.table.gone.pop(key, None)
            return
        if record is not None:
            record = self.recovery.recall(pod, key, record, now)
        if record is None and self.staged_pods.took(pod):
            if not pod.is_terminal:
                self.capacity.count_staged(pod, key, self.admission.allocate(pod))
            self.staged_pods.begin(key, pod, now)
            return
        if record is None and self.recovery.import_running(pod, key, traceparent, now):
            return
        if record is not None and not (pod.is_terminal and record.is_finished):
            self.recovery.go_on(pod, key, record, traceparent, now)
        elif pod.is_terminal:
            if record is not None:
                self.recovery.forget_record(record, key, now)
            if pod.metadata.deletion_timestamp is not None:
                self.statuses.delete(key, pod)
        elif pod.metadata.deletion_timestamp is not None:
            # Deleted before a container ran here: Failed, then deleted (kubelet 3.4).
            self.statuses.set_final(key, pod, {"phase": "Failed"}, now)
        else:
            self.out.start_span(key, pod, traceparent)
            self.admission.decide(pod, key, now)

    def _on_updated(self, known: KubeletPod, new: KubeletPod, now: float) -> None:
        key = worker_key(new)
        self.pods[new.metadata.uid] = new
        is_deleted = new.metadata.deletion_timestamp is not None
        if self.staged_pods.update(key, new, now):
            return
        pod = self.table.pods.get(key)
        if pod is not None:
            if self.staged_pods.hand_over(pod, new, now):
                return
            self.statuses.pod_updated(key, new, now)
            self.start_times.observe_pod(pod, new, now)
            self.pressure.pod_updated(new, now)
            if is_deleted or _matters(known, new):
                self.table.perform(pod, pod.update(new, now), now)
            else:
                pod.pod = new
            if self.resizes.rules.keeps_reservations:
                self.resizes.keep_reservation(pod)
            if known.metadata.generation != new.metadata.generation and self.resizes.is_live(pod):
                self.resizes.count_request(known, new)
                if self.resizes.on_requested(pod, new):
                    self.resizes.trigger = "pod_updated"
            self.statuses.maybe_delete(key)
            return
        if not is_deleted:
            self.admission.pod_updated(key, new, now)
        elif self.admission.holds(key):
            self.admission.on_deleted(key, new, now)
        elif key in self.statuses.final_statuses:
            self.statuses.maybe_delete(key)
        elif new.is_terminal:
            self.statuses.delete(key, new)
        else:
            self.statuses.set_final(key, new, {"phase": "Failed"}, now)

    def _on_removed(self, old: KubeletPod, now: float, grace_s: float = REMOVED_GRACE_S) -> None:
        """Handle a pod whose object is gone or belongs to another node."""
        key = worker_key(old)
        uid = old.metadata.uid
        self._adds.pop(uid, None)
        if (pod := self.pods.get(uid)) is not None and worker_key(pod) == key:
            del self.pods[uid]
        self.admission.forget(key)
        self.admission.unbinds.forget_pod(key, old, "gone")
        self.statuses.forget(key)
        if self.staged_pods.remove(key, now):
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

    # --- pods start (kubelet 3.2) ---

    def _start(self, pod: KubeletPod, key: WorkerKey, admitted: Admitted, now: float) -> None:
        """Count the admitted pod and run it."""
        self.capacity.count(pod, key, admitted)
        if self.staged_pods.start(pod, key, now):
            return
        self.start_times.on_admitted(key, now)
        self.table.begin(self._new_pod(pod, key, admitted.allocation, now), now)

    def _new_pod(self, pod: KubeletPod, key: WorkerKey, allocation: Allocation, now: float) -> Pod:
        self.pressure.pod_updated(pod, now)
        made = Pod(pod, key, self.runtime, pod_ip=self.addresses.new_ip(pod), allocation=allocation, now=now)
        if self.plugins is not None:
            self.plugins.pod_added(made)
        return made

    # --- effects of pods for this node ---

    def _status_changed(self, pod: Pod, effect: StatusChanged, now: float) -> None:
        if pod.key not in self.table.gone:
            self.statuses.status_changed(pod.key, now)

    def _on_started(self, pod: Pod, effect: PodStarted, now: float) -> None:
        self.out.log("kubelet.start", pod.pod, pod.key, {"container": effect.container})
        self.start_times.on_started(pod.key, now)
        self.admission.unbinds.on_started(pod.pod, pod.key)

    def _on_stopped(self, pod: Pod, effect: PodStopped, now: float) -> None:
        self.out.log("kubelet.stop", pod.pod, pod.key, {"container": effect.container})
        self.start_times.on_ended(pod.key, now)

    def _on_ended(self, pod: Pod, effect: PodEnded, now: float) -> None:
        """Handle the end of a pod's containers: release its capacity for waiting pods and resizes."""
        key = pod.key
        if self.staged_pods.finish(key):
            self._handed_over(pod, now)
            return
        self.capacity.release(key)
        self._release_volumes(pod, now)
        is_removed = key in self.table.gone or pod.pod.metadata.deletion_timestamp is not None
        if key in self.table.gone:
            self.table.drop(pod)
            self.teardowns.drop(pod, now)
        elif not self.teardowns.finish(pod, now):
            self.statuses.status_changed(key, now)
        self.table.unhold_after(key, now)
        self._offer_capacity("pods_removed" if is_removed else "pod_terminated", now)
        self.static_pods.on_ended(pod.pod.metadata.key, now)
        self.node.pod_ended(now)

    def _handed_over(self, machine: Pod, now: float) -> None:
        """Hand over to stages a pod whose containers have ended; it keeps its capacity."""
        key = machine.key
        self._release_volumes(machine, now)
        self.table.forget(key)
        self.table.erase_of(machine)
        self.statuses.forget(key)
        self.table.unhold_after(key, now)
        self.node.pod_ended(now)
        pod = self.pods.get(key.uid)
        self.staged_pods.take_over(key, pod if pod is not None and worker_key(pod) == key else None, now)

    def _release_volumes(self, pod: Pod, now: float) -> None:
        """Release the volumes of a pod whose containers have ended, and forget its resize."""
        self.table.on_ended(pod)
        self.runtime.volumes.release(pod.key)
        if self.volumes is not None:
            self.volumes.release(pod.key)
        self.resizes.forget(pod.key, now)

    def _offer_capacity(self, trigger: str, now: float) -> None:
        """Decide again about the pods and resizes that wait for capacity."""
        self.admission.capacity_came(now)
        self.resizes.retry(trigger, now)

    # --- static pods (kubelet 3.1) ---

    def files_changed(self, files: Mapping[str, bytes], wall_s: float, now: float) -> dict[str, str]:
        """Replace the manifests of static pods; return the error of each bad file."""
        wrong = self.static_pods.files_changed(files, wall_s, now)
        if self.resizes.trigger:
            self.resizes.retry(self.resizes.trigger, now)
        return wrong

    def _add_static(self, pod: KubeletPod, now: float) -> None:
        """Admit the pod and run it; after a boot also if it had ended before."""
        if self.is_booted:
            self.recovery.forget_finished(worker_key(pod))
        self._on_added(pod, "", now)

    def _remove_static(self, pod: KubeletPod, now: float) -> None:
        """End the pod within its own grace period."""
        self._on_removed(pod, now, float(pod.spec.termination_grace_period_seconds))

    # --- time and disk ---

    def due(self, what: str, key: WorkerKey, now: float) -> None:
        """Handle a timer."""
        match what:
            case "worker":
                self.table.due(key, now)
            case "stage":
                self.staged_pods.due(key, now)
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
                self.evictor.relieve_pressure(now)
                if self.pressure.wants_images_gone:
                    self.node.reclaim_images(now)
            case "policy":
                self.policy_watch.due(key, now)
            case "resizes":
                self.resizes.due(now)
            case _:
                self.out.effects.append(WRITE_STATUSES)

    # --- statuses ---

    def render(self, key: WorkerKey) -> Document | None:
        """Return the status of a pod as this kubelet sees it."""
        pod = self.table.pods.get(key)
        if pod is not None:
            rendered = status.render(pod)
            return self.resize_policy.add_condition(pod, rendered) if self.resize_policy.owners else rendered
        return self.statuses.final_statuses.get(key) or self.admission.pending_status(key)

    def is_over(self, key: WorkerKey) -> bool:
        """Whether nothing of the pod runs now or will run later."""
        pod = self.table.pods.get(key)
        return pod.state == PodState.TERMINATED if pod is not None else key in self.statuses.final_statuses

    def api_pod(self, key: WorkerKey) -> KubeletPod | None:
        """Return the API object of this pod: the pod itself, or the mirror of a static pod; None: it does not exist."""
        pod = self.pods.get(key.uid)
        return pod if pod is None or key.generation or not is_static(pod) else self.static_pods.mirror_of(pod)

    def on_acknowledged(self, key: WorkerKey, now: float) -> None:
        """Go on with the pod, because the API server has its newest status."""
        pod = self.table.pods.get(key)
        if pod is None:
            return
        if pod.state == PodState.STARTING:
            if not pod.start_is_acked:
                self.table.perform(pod, pod.start_acked(now), now)
        elif pod.state == PodState.TERMINATED and self.statuses.is_synced(key):
            self.table.erase_of(pod)

    def pod_read(self, key: WorkerKey, pod: KubeletPod | None, now: float) -> None:
        """Handle a live read of a pod; None: it does not exist or the node may not read it."""
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


def _matters(known: KubeletPod, new: KubeletPod) -> bool:
    """Whether a change of a pod is more than this kubelet's own status update."""
    if known.metadata.generation != new.metadata.generation:
        return True
    before, after = known.metadata.annotations, new.metadata.annotations
    if before is not after and before != after:
        return True
    return bool(new.spec.readiness_gates) and known.status.conditions != new.status.conditions
