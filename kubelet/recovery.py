"""Recovery of the pods that ran before this kubelet began: their records are taken over or forgotten. Pure.

A record without an API object is forgotten once all objects are known. A pod with a record is taken over as it is: its
allocation counts without new admission. Where a restart admits pods again, it may then be rejected. A pod that was
imported while it ran has its status instead of a record. Source: kubelet 3.2, 6; kep-5194 4; kep-1287 8; guarantees N4.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kubelet.admission.capacity import NodeCapacity
from kubelet.admission.features import NodeFeatures
from kubelet.effects import Outbox
from kubelet.managers.allocation import Allocation, Rejection
from kubelet.pod.context import WallTimes
from kubelet.pod.pod import Pod, has_run
from kubelet.pod.table import PodTable
from kubelet.resize.allocation import NodeRules
from kubelet.runtime.boots import without_sandbox
from kubelet.runtime.claims import HeldClaim
from kubelet.runtime.records import LOST_EXIT, PodRecord
from kubelet.runtime.resources import align_resources, is_same, overlaid
from kubelet.runtime.runtime_state import reported_record, taken_over
from kubelet.switches import KubeletSwitches
from kubelet.view import KubeletPod, WorkerKey, worker_key
from services.api.kinds.pod import BEGAN
from services.api.meta import Key

SPELLING_S = 0.01
"""Maximal difference between two processes' clocks for the same moment, in seconds."""


class ClaimRecovery(Protocol):
    """The part of the claim manager that recovery uses."""

    def recover(self, key: WorkerKey, claims: Sequence[HeldClaim], now: float, *, is_prepared: bool) -> None:
        """Take over the claims that an earlier kubelet held for the pod."""
        ...

    def recheck(self, key: WorkerKey, pod: KubeletPod, now: float) -> None:
        """Check again whether the pod may use its claims; the answer goes to `PodRecovery.on_rechecked`."""
        ...

    def unprepare(self, key: WorkerKey, now: float) -> None:
        """Unprepare the claims that only this pod used."""
        ...


class PodRecovery:
    """Takes over pods from the records of an earlier kubelet.

    It holds the records of pods that were not seen yet, and of pods whose claims are being checked again.

    `new_pod`: makes a machine from pod, key, allocation and time. `readmission`: returns the rejection of a pod by
    device plugins, or None. `recover_volumes`: takes over the pod's mounts. `request_resize`: requests the resize that
    the pod's spec asks for.
    """

    def __init__(
        self,
        pods: Mapping[str, KubeletPod],
        table: PodTable,
        capacity: NodeCapacity,
        claims: ClaimRecovery,
        out: Outbox,
        times: WallTimes,
        *,
        switches: KubeletSwitches,
        features: NodeFeatures,
        rules: NodeRules,
        new_pod: Callable[[KubeletPod, WorkerKey, Allocation, float], Pod],
        readmission: Callable[[Pod], Rejection | None],
        recover_volumes: Callable[[WorkerKey, KubeletPod], None],
        request_resize: Callable[[Pod, KubeletPod], object],
    ) -> None:
        self.records: dict[WorkerKey, PodRecord] = {}
        """Records of pods that were not seen yet."""
        self._pods, self._table, self._capacity, self._claims = pods, table, capacity, claims
        self._out, self._times = out, times
        self._switches, self._features, self._rules = switches, features, rules
        self._new_pod, self._readmission = new_pod, readmission
        self._recover_volumes, self._request_resize = recover_volumes, request_resize
        self._rechecks: dict[WorkerKey, tuple[PodRecord, str]] = {}
        """(record, traceparent) of pods whose claims are being checked again."""

    # --- records ---

    def forget_orphans(self, now: float) -> None:
        """Once all objects are known: forget the records of pods without object, and unprepare their claims."""
        for key, record in list(self.records.items()):
            if key in self._table.pods:
                continue
            del self.records[key]
            if record.containers and not record.is_finished:
                data = {"container": record.containers[0].name, "orphan": True}
                self._out.log("kubelet.stop", None, key, data, Key(record.namespace, record.name))
            self.forget_record(record, key, now)

    def forget_finished(self, key: WorkerKey) -> None:
        """Forget the record of a pod that had ended before the boot, so that it runs again."""
        record = self.records.get(key)
        if record is not None and record.is_finished:
            del self.records[key]
            self._table.erase(key)

    def forget_record(self, record: PodRecord, key: WorkerKey, now: float) -> None:
        """Erase the record of a pod that does not exist any more, after unpreparing its claims."""
        if not record.claims:
            self._table.erase(key)
            return
        # They may be prepared or not, and the same pod may be back, for another binding, before that is settled.
        self._claims.recover(key, record.claims, now, is_prepared=False)
        self._claims.unprepare(key, now)

    # --- pods go on ---

    def recall(self, pod: KubeletPod, key: WorkerKey, record: PodRecord, now: float) -> PodRecord | None:
        """Return the record with which a pod goes on; None if the pod starts anew.

        A pod with an allocation but no container goes on if its status in the API shows that it ran: then the runtime
        has forgotten it (FM-K5).
        """
        if record.containers or record.is_finished:
            return record
        is_over = pod.is_terminal or pod.metadata.deletion_timestamp is not None
        if not is_over and any(has_run(each) for each in pod.status.container_statuses):
            return record
        if record.claims:
            self._claims.recover(key, record.claims, now, is_prepared=False)  # they may be prepared already
        elif is_over:
            self._table.erase(key)
        return None

    def import_running(self, pod: KubeletPod, key: WorkerKey, traceparent: str, now: float) -> bool:
        """Take over a pod that was imported while it ran, from its reported status; return whether it is such a pod."""
        if BEGAN not in pod.metadata.annotations or pod.metadata.deletion_timestamp is not None:
            return False
        running = taken_over(pod)
        # Timestamps have whole seconds: a small offset makes the next kubelet's clock give the same second.
        base_s = self._times.offset_s - SPELLING_S
        record = reported_record(running, (), base_s) if running is not None else None
        if running is None or record is None:
            return False
        self._adopt(running, key, record, traceparent, now)
        if (imported := self._table.pods.get(key)) is not None:
            self._table.perform(imported, imported.update(pod, now), now)
        self._keep(key, now)
        return True

    def go_on(self, pod: KubeletPod, key: WorkerKey, record: PodRecord, traceparent: str, now: float) -> None:
        """Take over a pod with its record; if its claims must be checked again, wait for that first."""
        if self._asks_again(record):
            self._rechecks[key] = record, traceparent
            self._claims.recheck(key, pod, now)
        else:
            self._adopt(pod, key, record, traceparent, now)

    def _asks_again(self, record: PodRecord) -> bool:
        """Whether the claims of a pod that ran before this kubelet began must be checked again (kep-5194 4)."""
        runs = any(each.exit_code < 0 for each in record.containers)
        return self._switches.recheck_on_restart == "always" and bool(record.claims) and runs

    def on_rechecked(self, key: WorkerKey, problem: str, now: float) -> None:
        """Take over a pod after the check of its claims; on a problem its containers end, and wait for the claims."""
        record, traceparent = self._rechecks.pop(key)
        pod = self._pods.get(key.uid)
        if pod is None or worker_key(pod) != key:
            self.forget_record(record, key, now)
            return
        self._adopt(pod, key, without_sandbox(record, now) if problem else record, traceparent, now)
        if problem:
            # The next kubelet must not take the ended containers for running ones.
            self._keep(key, now)

    def _keep(self, key: WorkerKey, now: float) -> None:
        """Save the record of a pod that was taken over, so that it outlives this kubelet."""
        if (made := self._table.pods.get(key)) is not None:
            made.save()
            self._table.perform(made, made.advance(now), now)

    def _adopt(self, pod: KubeletPod, key: WorkerKey, record: PodRecord, traceparent: str, now: float) -> None:
        """Take over a pod that a previous kubelet started, with its recorded allocation."""
        # The recorded allocation counts, not the present spec (kep-1287 8).
        wanted = self._rules.resources_of(pod)
        given = align_resources(record.allocated, wanted)
        allocated = pod if is_same(wanted, given) else overlaid(pod, given)
        # A pod that had ended has released its capacity, which another pod may have by now.
        short = [] if record.is_finished else self._capacity.count_again(allocated, key, record.allocation)
        self._out.start_span(key, pod, traceparent)
        machine = self._new_pod(pod, key, record.allocation, now)
        self._table.add(machine, is_recorded=True)
        if record.claims:
            is_booted = any(each.exit_code == LOST_EXIT for each in record.containers)
            self._claims.recover(key, record.claims, now, is_prepared=bool(record.containers) and not is_booted)
        took_over = machine.adopt if record.containers or record.is_finished else machine.resume
        self._table.perform(machine, took_over(record, now), now)
        self._recover_volumes(key, pod)
        is_rejected = self._switches.readmits_running and self._reject_again(machine, pod, short, now)
        if not is_rejected and pod.metadata.deletion_timestamp is not None:
            self._table.perform(machine, machine.update(pod, now), now)
        self._request_resize(machine, pod)

    def _reject_again(self, adopted: Pod, pod: KubeletPod, short: list[str], now: float) -> bool:
        """Reject a pod that would not be admitted now; return whether it was rejected."""
        if (refused := self._readmission(adopted)) is not None:
            self._table.reject(adopted, refused.reason, refused.message, now)
        elif short:
            self._table.end(adopted, now, "rejected", f"OutOf{short[0]}", f"Node has too little {short[0]} now")
        elif (refused := self._features.lacks(pod)) is not None:
            self._table.report_rejection(adopted, refused.reason, refused.message, now)
        else:
            return False
        return True
