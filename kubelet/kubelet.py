"""One node's kubelet as a pure machine: pods, timers and answers in; effects out.

What the API server shows of pods, what files, plugins and the node itself bring, and what is due, ends up with the
desks (`admission_desk`, `status_desk`, `claims`) and with the workers of the lower half (`workers`). The shell feeds
it and performs `effects` in order; nothing here waits.
Source: kubelet 3 to 7; kubelet-unbinding 6; guarantees N1 to N8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubelet.admission.predicates import Admitted
from kubelet.dra.driver import Driver
from kubelet.dra.floor import ClaimFloor
from kubelet.dra.manager import ClaimDesk
from kubelet.effects import ReadNode, SetTimer
from kubelet.eviction.manager import Victim
from kubelet.managers.device_calls import Answer
from kubelet.managers.resource_managers import Allocation
from kubelet.node import shutdown
from kubelet.node.definition import NodeDefinition
from kubelet.node.life import TIMERS, NodeLife
from kubelet.pod.running import REMOVED_GRACE_S, Policy
from kubelet.pod.status import WallTimes
from kubelet.pod.worker import has_run
from kubelet.resize.policy import LOOK_S, deferred_of
from kubelet.runtime.fake_cri import PodRecord
from kubelet.runtime.latency import LatencyModel
from kubelet.runtime.pleg import GENERIC
from kubelet.stages.manager import Staging
from kubelet.static_pods.manager import StaticDesk
from kubelet.static_pods.manifests import is_mirror
from kubelet.status.manager import WRITE_STATUSES
from kubelet.switches import Settings
from kubelet.view import KubeletPod, WorkerKey, worker_key
from kubelet.workers import Workers
from services.api.kinds.node import Node
from services.api.meta import Key

_NODE_KEY = WorkerKey("", 0)
"""Of timers that are about no single pod."""
_NO_POD = KubeletPod()


class Kubelet(Workers):
    """The machine of one node. Invariant: a pod of `_adds` was seen in the watch and is not decided yet."""

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
        super().__init__(
            definition, settings=settings, latency=latency, policy=policy, times=times, host_ip=host_ip,
            pod_network=pod_network,
        )  # fmt: skip
        self.statics = StaticDesk(definition.name, self, self.desk, self.out)
        self.life = NodeLife(definition, self, self.out)
        drivers = [Driver(each, definition.name, guards=settings.guards_devices) for each in definition.drivers]
        self.claims = ClaimDesk(ClaimFloor(self), drivers, self.out, reconcile_s=settings.dra_reconcile_s,
                                wipe_delay_s=settings.dra_wipe_delay_s)  # fmt: skip
        self._adds: dict[str, tuple[KubeletPod, str]] = {}

    # --- pods as the API shows them (kubelet 3.1) ---

    def pod_changed(self, old: KubeletPod | None, new: KubeletPod | None, traceparent: str, now: float) -> None:
        """Take one change of the watch; additions wait for `settle`, so that a batch is admitted by age."""
        if is_mirror(new or old or _NO_POD):
            self.statics.mirror_changed(old, new, now)
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
        if not self.resizing.has_sources:
            self.life.begin(now)
        self.resizing.has_sources = True
        self.statics.sources_ready()
        for key, record in list(self.records.items()):
            if key in self.workers:
                continue
            del self.records[key]
            if record.containers and not record.is_finished:
                data = {"container": record.containers[0].name, "orphan": True}
                self.out.log("kubelet.stop", None, key, data, Key(record.namespace, record.name))
            self._let_go(record, key, now)
        if self.resizing.trigger:
            self._retry_resizes(self.resizing.trigger, now)

    def _added(self, pod: KubeletPod, traceparent: str, now: float) -> None:
        key = worker_key(pod)
        self.pods[pod.metadata.uid] = pod
        record = self.records.pop(key, None)
        if key in self.workers or key in self.desk.finals or self.admission.holds(key):
            self._gone.pop(key, None)
            return
        if record is not None and not record.containers and not record.is_finished:
            record = self._without_containers(pod, key, record)
        if record is None and self.staging is not None and self.staging.took(pod):
            self._take_staged(self.staging, pod, key, now)
            return
        if pod.is_terminal:
            if record is not None and record.is_finished:
                self._let_go(record, key, now)
            elif record is not None:
                self._adopt(pod, key, record, traceparent, now)
                return
            if pod.metadata.deletion_timestamp is not None:
                self.desk.delete(key, pod)
            return
        if record is not None:
            self._adopt(pod, key, record, traceparent, now)
            return
        if pod.metadata.deletion_timestamp is not None:
            # Deleted before anything of it ran here: Failed, then gone (kubelet 3.4).
            self.desk.set_final(key, pod, {"phase": "Failed"}, now)
            return
        self.out.start_span(key, pod, traceparent)
        self.admission.decide(pod, key, now)

    def _without_containers(self, pod: KubeletPod, key: WorkerKey, record: PodRecord) -> PodRecord | None:
        """Nothing of a pod runs that was promised something: return what it goes on with, None when it starts anew.

        It goes on when the API server saw it run: then it is the runtime that has forgotten it (FM-K5).
        """
        is_over = pod.is_terminal or pod.metadata.deletion_timestamp is not None
        if not is_over and any(has_run(each) for each in pod.status.container_statuses):
            return record
        if record.claims:
            self.claims.recover(key, record.claims, is_prepared=False)  # perhaps they are, already
        elif is_over:
            self._erase(record, key)
        return None

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
            self.desk.heard(key, new, now)
            self.start_times.shown(worker, new, now)
            self.pressure.heard(new, now)
            if is_deleted or _matters(known, new):
                self._act(worker, worker.update(new, now), now)
            else:
                worker.pod = new
            if known.metadata.generation != new.metadata.generation and self.resizing.is_live(worker):
                self.resizing.count_wish(known, new)
                if self.resizing.wished(worker, new, self.workers):
                    self.resizing.trigger = "pod_updated"
            self.desk.maybe_delete(key)
            return
        if not is_deleted:
            self.admission.heard(key, new, now)
        elif self.admission.holds(key):
            self.admission.deleted(key, new, now)
        elif key in self.desk.finals:
            self.desk.maybe_delete(key)
        elif new.is_terminal:
            self.desk.delete(key, new)
        else:
            self.desk.set_final(key, new, {"phase": "Failed"}, now)

    def _removed(self, old: KubeletPod, now: float, grace_s: float = REMOVED_GRACE_S) -> None:
        """The object is gone, or is not ours any more."""
        key = worker_key(old)
        uid = old.metadata.uid
        self._adds.pop(uid, None)
        if (pod := self.pods.get(uid)) is not None and worker_key(pod) == key:
            del self.pods[uid]
        self.admission.forget(key)
        self.admission.giving_back.gone(key, old, "gone")
        self.desk.forget(key)
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
            self._act(worker, worker.terminate(now, grace_s, "removed"), now)

    # --- static pods (kubelet 3.1) ---

    def files_changed(self, files: Mapping[str, bytes], wall_s: float, now: float) -> dict[str, str]:
        """Take the manifests of static pods as they are now; return what is wrong with which file."""
        wrong = self.statics.files_changed(files, wall_s, now)
        if self.resizing.trigger:
            self._retry_resizes(self.resizing.trigger, now)
        return wrong

    def add_static(self, pod: KubeletPod, now: float) -> None:
        """Ask whether the pod fits, and run it; after a boot also what had ended before."""
        record = self.records.get(worker_key(pod))
        if self.is_booted and record is not None and record.is_finished:
            self._erase(self.records.pop(worker_key(pod)), worker_key(pod))
        self._added(pod, "", now)

    def remove_static(self, pod: KubeletPod, now: float) -> None:
        """End the pod within its own grace period."""
        self._removed(pod, now, float(pod.spec.termination_grace_period_seconds))

    def is_live(self, name: Key) -> bool:
        """Whether something of a pod of that name runs or is being ended."""
        return name in self._names

    def is_decided(self, key: WorkerKey) -> bool:
        """Whether the pod was admitted or rejected."""
        return key in self.workers or key in self.desk.finals

    # --- pods that stages move ---

    def _take_staged(self, staging: Staging, pod: KubeletPod, key: WorkerKey, now: float) -> None:
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

    # --- devices of plugins (kubelet 5.5) ---

    def devices_changed(self, changed: Sequence[str], now: float) -> None:
        """A plugin came, or said that some of its devices changed: whoever waits for some is asked again."""
        if self._tell_of_devices(now) or changed:
            self.admission.room_came(now)

    def devices_lost(self, now: float) -> None:
        """A plugin is gone."""
        self._tell_of_devices(now)

    def _tell_of_devices(self, now: float) -> bool:
        """Let containers know how their devices are; return whether any status changed by it."""
        assert self.plugins is not None
        has_changed = False
        for key, worker in self.workers.items():
            if worker.allocation.devices and worker.state != "terminated" and self.plugins.begun(worker):
                self.desk.poke(key, now)
                has_changed = True
        return has_changed

    def devices_answered(self, number: int, answer: Answer, now: float) -> None:
        """A plugin answered a call."""
        assert self.plugins is not None
        if (ready := self.plugins.started(number, answer)) is not None:
            key, container, trouble = ready
            if (worker := self.workers.get(key)) is not None:
                worker.devices_ready(container, trouble, now)
                self._act(worker, worker.advance(now), now)
            return
        self.admission.devices_answered(number, answer, now)

    # --- the node itself ---

    def counted(self) -> list[tuple[WorkerKey, KubeletPod]]:
        """Return the pods that are not over."""
        return [(key, entry.pod) for key, entry in self.ledger.entries.items()]

    def is_counted(self, key: WorkerKey) -> bool:
        """Whether the pod is not over."""
        return key in self.ledger.entries

    def end_for_shutdown(self, key: WorkerKey, grace_s: float, now: float) -> None:
        """End a pod because the node shuts down."""
        worker = self.workers.get(key)
        if worker is None:
            self._end_staged(key, shutdown.REASON, shutdown.MESSAGE, now)
            return
        ending = worker.terminate(
            now, grace_s, "shutdown", reason=shutdown.REASON, message=shutdown.MESSAGE, disruption=True
        )
        self._act(worker, ending, now)

    def images_in_use(self) -> frozenset[str]:
        """Return the images of containers that run, or ran and whose pods are still known."""
        return frozenset(c.image for worker in self.workers.values() for c in worker.containers if c.has_run)

    def disk_used(self, now: float) -> int:
        """Return how many bytes of the images' disk are used by what is no image."""
        return self.pressure.own_use(now).get("imagefs", 0)

    def images_changed(self, total: int, now: float) -> None:
        """The images on the node come to so many bytes now."""
        self.pressure.images_changed(total, now)

    def faults_turned(self, now: float) -> None:
        """What goes wrong when pods start is another, or when it is noticed what containers do."""
        is_asked = self.life.pleg.mode == GENERIC
        for worker in list(self.workers.values()):
            if is_asked and worker.state not in ("stopped", "terminated"):
                self._act(worker, worker.noticing_turned(now), now)
            if worker.state == "starting":
                self._act(worker, worker.faults_changed(self.life.faults, now), now)

    def _relieve(self, victim: Victim, now: float) -> None:
        """The node runs short: this pod leaves (kubelet 7)."""
        worker = self.workers[victim.key]
        self.out.tell(worker.pod, "Evicted", victim.message, "Warning")
        self.out.count(f'kubelet_evictions{{eviction_signal="{victim.signal}"}}')
        ending = worker.terminate(
            now, victim.grace_s, "evicted", reason="Evicted", message=victim.message, disruption=True
        )
        self._act(worker, ending, now)

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
            case "driver" | "unprepare" | "claims" | "drivers":
                self.claims.due(what, key, now)
            case "unbind" | "hold" | "defer":
                self.admission.due(what, key, now)
            case _ if what in TIMERS:
                self.life.due(what, now)
            case "mirrors":
                self.statics.mirrors.due(now)
            case "delete":
                self.desk.delete_again(key)
            case "devices":
                assert self.plugins is not None
                self.plugins.due(now)
            case "pressure":
                if (short := self.pressure.look(self.workers, now)) is not None:
                    self._relieve(short, now)
                if self.pressure.wants_images_gone:
                    self.life.reclaim_images(now)
            case "policy":
                self.out.effects += [ReadNode(key, False), SetTimer(now + LOOK_S, "policy", key)]
            case "resizes":
                if self.resizing.retry_at_s <= now + 1e-6:
                    self._retry_resizes("periodic_retry", now)
            case _:
                self.out.effects.append(WRITE_STATUSES)

    # --- statuses ---

    def pod_read(self, key: WorkerKey, pod: KubeletPod | None, now: float) -> None:
        """Take a live read of a pod: None when it is not there or not ours to read."""
        still_mine = pod is not None and worker_key(pod) == key and pod.spec.node_name == self.name
        if self.admission.pod_read(key, still_mine, now):
            return
        if not still_mine:
            self.desk.statuses.forget(key)
            return
        assert pod is not None
        if key in self.workers or key in self.desk.finals:
            if worker := self.workers.get(key):
                worker.generation = max(worker.generation, pod.metadata.generation)
            self.desk.poke(key, now)

    # --- resizes (kep-1287 6) ---

    def node_seen(self, node: Node, now: float) -> None:
        """Take what the Node says of resizes, and tell the pods that wait for one."""
        policy = self.resize_policy
        if policy.form is not None and not policy.is_looking:
            policy.is_looking = True
            self.out.effects.append(SetTimer(now + LOOK_S, "policy", _NODE_KEY))
        if policy.take(node, now):
            for key in deferred_of(self.workers.values()):
                self.desk.poke(key, now)


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
