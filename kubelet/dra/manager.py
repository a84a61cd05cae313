"""The claims that a node's pods use, and whether their devices are prepared. Pure.

A pod's claims are read live, checked, saved durably in the pod's own checkpoint, and then prepared: one
call per driver, with all the pod's claims that have devices of it. A claim that several pods use is
prepared once and unprepared after the last one. A claim is part of only one call at a time; later calls
wait. Source: dra-core 7; kep-5194 4; guarantees N2, N3; upstream `pkg/kubelet/cm/dra` (Manager).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kubelet.admission.predicates import NodeFacts
from kubelet.dra.calls import Answer, CallFailed, ClaimResult
from kubelet.dra.drivers import TIMER as DRIVERS
from kubelet.dra.drivers import Drivers
from kubelet.effects import (
    NODE_KEY,
    CallDriver,
    CallDrivers,
    Outbox,
    PrepareClaims,
    ReadClaims,
    SetTimer,
    UnprepareClaims,
)
from kubelet.pod.pod import Pod
from kubelet.pod.startup import CLAIMS_FAILED, ClaimState
from kubelet.pod.table import PodTable
from kubelet.runtime.claims import HeldClaim, PreparedDevice
from kubelet.switches import KubeletSwitches
from kubelet.view import KubeletContainer, KubeletPod, WorkerKey
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.meta import Document
from services.api.node_selection import is_met
from services.dra.pod_claims import claim_name
from services.telemetry.metrics import DEFAULT_BOUNDS

CALL_MAX_S: Final = 45.0
"""Seconds after which a call to a driver is given up."""
UNPREPARE_RETRY_S: Final = 10.0
OPERATION: Final = "dra_operations_duration_seconds"
CALL: Final = "dra_grpc_operations_duration_seconds"
"""A metric under upstream's name, which begins without `kubelet_` (`pkg/kubelet/metrics`).

Its label for the method has the method's whole path.
"""
PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"
_OPERATIONS: Final = {PREPARE: "PrepareResources", UNPREPARE: "UnprepareResources"}
WORKLOADS, POD_GROUPS = "kep5194", "kep5729"
"""Values of the switch `reserved_for.mode` with which claims may be reserved for other objects than pods."""
_BROKEN: Final = "the device does not answer"
"""A driver's error for a claim whose prepare fails by a start fault."""


class Cached(msgspec.Struct):
    """A claim that is, or may be, prepared, and the pods that use it."""

    claim: HeldClaim
    pods: dict[WorkerKey, None]
    is_prepared: bool = False


class Job(msgspec.Struct):
    """The calls to drivers for one pod's claims.

    The drivers still to be called are in order; each call has the claims with devices of that driver.
    `is_broken`: the first call fails, by a start fault. `answered`: the devices that drivers prepared, by
    claim.
    """

    key: WorkerKey
    call: str
    claims: tuple[HeldClaim, ...]
    is_broken: bool = False
    drivers: list[str] = []
    called_s: float = 0.0
    asked: tuple[HeldClaim, ...] = ()
    answered: dict[str, list[PreparedDevice]] = {}


@dataclass(frozen=True, slots=True)
class ClaimWait:
    """What a pod's claims wait for on its node.

    `since_s`: seconds since the call was made, or since the first try failed; `failures`: tries to prepare that
    failed, each an event `FailedPrepareDynamicResources`; `problem`: why the last try failed, in the event's
    words; `next_try_in_s`: None while a try goes on.
    """

    waits_for: str
    since_s: float | None = None
    failures: int = 0
    problem: str = ""
    next_try_in_s: float | None = None


def claim_names(pod: KubeletPod) -> list[str] | str:
    """Return the names of the claims that the pod uses, or the reason why they are not known."""
    created_names = {each.name for each in pod.status.resource_claim_statuses}
    names: list[str] = []
    for pod_claim in pod.spec.resource_claims:
        if not pod_claim.resource_claim_name and pod_claim.name not in created_names:
            return f'pod "{pod.metadata.key}": ResourceClaim not created yet'
        name = claim_name(pod, pod_claim)
        if name and name not in names:
            names.append(name)
    if (extended := pod.status.extended_resource_claim_status) is not None:
        names.append(extended.resource_claim_name)
    return names


def requests_of(pod: KubeletPod, container: KubeletContainer) -> dict[str, list[str]]:
    """Return the requests that a container uses, by the claim's name; "" stands for the whole claim."""
    uses: dict[str, list[str]] = {}
    for use in container.resources.claims:
        uses.setdefault(use.name, []).append(use.request)
    requests: dict[str, list[str]] = {}
    for pod_claim in pod.spec.resource_claims:
        if pod_claim.name in uses and (name := claim_name(pod, pod_claim)):
            requests.setdefault(name, []).extend(uses[pod_claim.name])
    if (extended := pod.status.extended_resource_claim_status) is not None:
        for mapping in extended.request_mappings:
            if mapping.container_name == container.name:
                requests.setdefault(extended.resource_claim_name, []).append(mapping.request_name)
    return requests


def devices_of(pod: KubeletPod, container: KubeletContainer, claims: Sequence[HeldClaim]) -> list[PreparedDevice]:
    """Return the prepared devices that a container gets, without duplicates: those of the requests it names."""
    held = {claim.name: claim for claim in claims}
    devices = [
        device
        for name, requests in requests_of(pod, container).items()
        if name in held
        for request in requests
        for device in held[name].prepared
        if device.is_for(request)
    ]
    return list(dict.fromkeys(devices))


def dynamic_resources(pod: KubeletPod, claims: Sequence[HeldClaim]) -> dict[str, list[Document]]:
    """Return the devices from claims by container, as the pod resources API (v1) shows them.

    Source: upstream `staging/src/k8s.io/kubelet/pkg/apis/podresources/v1` (DynamicResource).
    """
    by_container: dict[str, list[Document]] = {}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for claim in claims:
            devices = devices_of(pod, container, [claim])
            if devices:
                shown = [_device_document(device) for device in devices]
                entry = {"claim_name": claim.name, "claim_namespace": claim.namespace, "claim_resources": shown}
                by_container.setdefault(container.name, []).append(entry)
    return by_container


def _device_document(device: PreparedDevice) -> Document:
    document: Document = {
        "cdi_devices": [{"name": name} for name in device.cdi],
        "driver_name": device.driver,
        "pool_name": device.pool,
        "device_name": device.device,
    }
    return document | ({"share_id": device.share_id} if device.share_id else {})


class ClaimManager:
    """The claims of one node's pods.

    Invariant: a claim is in `cached` from before its first prepare until its unprepare succeeded.
    """

    def __init__(
        self,
        table: PodTable,
        out: Outbox,
        *,
        switches: KubeletSwitches,
        node: Callable[[], NodeFacts],
        on_prepared: Callable[[Pod, float], None],
        on_rechecked: Callable[[WorkerKey, str, float], None],
    ) -> None:
        self.drivers = Drivers(out, wipe_delay_s=switches.dra_wipe_delay_s)
        self.cached: dict[str, Cached] = {}
        self._table, self._out, self._switches, self._node = table, out, switches, node
        self._on_prepared, self._reserved_for = on_prepared, switches.reserved_for
        self._begun_s: dict[tuple[WorkerKey, str], float] = {}
        """Since when the claims of a pod are being prepared or unprepared, by what is called."""
        self._running: dict[WorkerKey, Job] = {}
        self._waiting: list[Job] = []
        self._busy: dict[str, WorkerKey] = {}
        self._is_reconciling = False
        self._rechecks: dict[WorkerKey, None] = {}
        self._problems: dict[WorkerKey, tuple[str, float]] = {}
        """Why the last try with a pod's claims failed, and when the next one is due."""
        self._on_rechecked = on_rechecked
        table.on(PrepareClaims, self._prepare)
        table.on(CallDrivers, lambda pod, effect, now: self.call(pod.key, pod.claims, now, is_broken=effect.is_broken))
        table.on(UnprepareClaims, lambda pod, effect, now: self.unprepare(pod.key, now))

    def pod_of(self, key: WorkerKey) -> tuple[str, str, str, str]:
        """Return kind, namespace, name and uid of a pod; only the uid is set if just a record of the pod is left."""
        machine = self._table.pods.get(key)
        meta = machine.pod.metadata if machine is not None else None
        return ("Pod", meta.namespace, meta.name, meta.uid) if meta is not None else ("Pod", "", "", key.uid)

    def _prepare(self, machine: Pod, effect: PrepareClaims, now: float) -> None:
        """Ask for a pod's claims; the answer comes to `claims_read`."""
        key, pod = machine.key, machine.pod
        names = claim_names(pod)
        self._begun_s.setdefault((key, PREPARE), now)
        if isinstance(names, str) or not names:
            self._finish_prepare(machine, names if isinstance(names, str) else "", now)
        else:
            self._out.effects.append(ReadClaims(key, pod, tuple(names)))

    def _finish_prepare(self, machine: Pod, problem: str, now: float, claims: tuple[HeldClaim, ...] = ()) -> None:
        self._observe_duration(machine.key, PREPARE, problem, now)
        self._problems.pop(machine.key, None)
        self._table.perform(machine, machine.claims_prepared(problem, now, claims), now)
        due_s = machine.startup.due_s
        if problem and machine.startup.claims == ClaimState.FAILED and due_s is not None:
            self._problems[machine.key] = problem, due_s

    def _observe_duration(self, key: WorkerKey, call: str, error: str, now: float) -> None:
        took_s = now - self._begun_s.pop((key, call), now)
        self._out.observe(OPERATION, took_s, str(bool(error)).lower(), _OPERATIONS[call], bounds=DEFAULT_BOUNDS)

    def claims_read(self, key: WorkerKey, pod: KubeletPod, claims: Sequence[ResourceClaim] | str, now: float) -> None:
        """Take the stored claims, or why they could not be read."""
        if self._rechecks.pop(key, 0) is None:
            # A pod that runs is not stopped because the API server is away.
            self._on_rechecked(key, "" if isinstance(claims, str) else self._not_allowed(pod, claims), now)
            return
        machine = self._table.pods.get(key)
        if machine is None or not self._table.is_active(key):
            self._begun_s.pop((key, PREPARE), None)
            self._problems.pop(key, None)
            return
        problem = claims if isinstance(claims, str) else self._judge(pod, claims)
        if isinstance(claims, str) or problem:
            self._finish_prepare(machine, problem, now)
            return
        held = tuple(_held_claim(claim) for claim in claims)
        for claim in held:
            self.cached.setdefault(claim.uid, Cached(claim, {})).pods[key] = None
        self._begin_reconciling(now)
        self._table.perform(machine, machine.claims_listed(held, now), now)

    def waits_for(self, machine: Pod, now: float) -> ClaimWait | None:
        """Return which step on its claims delays the start of the pod's containers, or the report of its end."""
        key, state = machine.key, machine.startup.claims
        if state in (ClaimState.NONE, ClaimState.PREPARED, ClaimState.RELEASED):
            return None
        failures, first_s = machine.startup.faults.failures_of(CLAIMS_FAILED)
        problem, due_s = self._problems.get(key, ("", now))
        job = self._running.get(key)
        if job is not None and job.asked:
            names = ", ".join(claim.name for claim in job.asked)
            text = (
                f"DRA driver {job.drivers[0]} to answer {job.call} for ResourceClaim {names}, at most {CALL_MAX_S:g} s"
            )
            return ClaimWait(text, now - job.called_s, failures, problem)
        waiting = next((each for each in self._waiting if each.key == key), None)
        if waiting is not None:
            busy = {claim.name: self._busy[claim.uid] for claim in waiting.claims if claim.uid in self._busy}
            names = ", ".join(f"{name} (pod UID {other.uid})" for name, other in busy.items())
            return ClaimWait(f"another pod's call to end, for ResourceClaim {names}", None, failures, problem)
        if problem:
            step = UNPREPARE if state == ClaimState.RELEASING else PREPARE
            since_s = now - first_s if failures and step == PREPARE else None
            return ClaimWait(f"the next try of {step}: {problem}", since_s, failures, problem, max(due_s - now, 0.0))
        text = (
            "the pod's record to be on disk" if state == ClaimState.SAVING else "the API server, for the pod's claims"
        )
        return ClaimWait(text, None, failures)

    def recheck(self, key: WorkerKey, pod: KubeletPod, now: float) -> None:
        """Check again whether a pod that an earlier kubelet started may use its claims.

        The answer goes to `on_rechecked`.
        """
        names = claim_names(pod)
        if isinstance(names, str) or not names:
            self._on_rechecked(key, "", now)
            return
        self._rechecks[key] = None
        self._out.effects.append(ReadClaims(key, pod, tuple(names)))

    def _not_allowed(self, pod: KubeletPod, claims: Sequence[ResourceClaim]) -> str:
        """Return why the pod may not use one of its claims, whatever drivers there are; "" when it may."""
        return next((problem for claim in claims if (problem := self._not_reserved(pod, claim))), "")

    def _judge(self, pod: KubeletPod, claims: Sequence[ResourceClaim]) -> str:
        """Return what keeps the pod from using one of its claims, "" for nothing; in upstream's order."""
        created_names = {each.resource_claim_name for each in pod.status.resource_claim_statuses}
        for claim in claims:
            problem = self._not_owned(pod, claim) if claim.metadata.name in created_names else ""
            problem = problem or self._not_reserved(pod, claim) or self._not_here(claim)
            if problem:
                return problem
            for driver in _held_claim(claim).devices:
                if self.drivers.find(driver) is None:
                    return f"DRA driver {driver} is not registered"
        names = {each.claim.key: each.claim.uid for each in self.cached.values()}
        for claim in claims:
            meta = claim.metadata
            if names.get(meta.key, meta.uid) != meta.uid:
                return (
                    f"old ResourceClaim with same name {meta.name} and different UID {names[meta.key]} still "
                    "exists (previous pod force-deleted?!)"
                )
        return ""

    def _group_of(self, pod: KubeletPod) -> str:
        """Return the pod's group where claims may be a group's (KEP-5729), "" for none."""
        group = pod.spec.scheduling_group if self._reserved_for == POD_GROUPS else None
        return group.pod_group_name if group is not None else ""

    def _not_owned(self, pod: KubeletPod, claim: ResourceClaim) -> str:
        owner, group = claim.metadata.controller, self._group_of(pod)
        if owner is not None and owner.uid == pod.metadata.uid:
            return ""
        if owner is not None and group and (owner.kind, owner.name) == ("PodGroup", group):
            return ""
        return f"ResourceClaim {claim.metadata.key} was not created for pod {pod.metadata.key} (pod is not owner)"

    def _not_reserved(self, pod: KubeletPod, claim: ResourceClaim) -> str:
        """Return why the pod may not use the claim: it is neither listed, nor its group, nor is it for any pod."""
        status, meta, group = claim.status, claim.metadata, self._group_of(pod)
        if (allocation := status.allocation) is not None:
            if status.is_reserved_for(pod.metadata.uid):
                return ""
            if self._reserved_for == WORKLOADS and allocation.reserved_for_any_pod:
                return ""
            groups = (each for each in status.reserved_for if each.resource == "podgroups")
            if group and any((each.api_group, each.name) == ("scheduling.k8s.io", group) for each in groups):
                return ""
        return (
            f"pod {pod.metadata.name} ({pod.metadata.uid}) is not allowed to use ResourceClaim {meta.name} ({meta.uid})"
        )

    def _not_here(self, claim: ResourceClaim) -> str:
        """Return that the allocation is for other nodes: a stale scheduler bound the pod (KEP-5194, kep-5194 3.3)."""
        allocation, node = claim.status.allocation, self._node()
        selector = allocation.node_selector if allocation is not None else None
        labels = node.labels or {}
        if selector is None or any(is_met(term, node.name, labels) for term in selector.node_selector_terms):
            return ""
        meta = claim.metadata
        return f"ResourceClaim {meta.name} ({meta.uid}) is allocated for other nodes than {node.name}"

    def call(self, key: WorkerKey, claims: tuple[HeldClaim, ...], now: float, *, is_broken: bool = False) -> None:
        """Prepare the pod's unprepared claims, now that they are saved on disk."""
        self._begun_s.setdefault((key, PREPARE), now)
        self._waiting.append(Job(key, PREPARE, claims, is_broken))
        self._pump(now)

    def unprepare(self, key: WorkerKey, now: float) -> None:
        """Unprepare the claims that only this pod used, now that nothing of it runs any more."""
        self._begun_s.setdefault((key, UNPREPARE), now)
        own = tuple(each.claim for each in self.cached.values() if key in each.pods)
        self._waiting.append(Job(key, UNPREPARE, own))
        self._pump(now)

    def recover(self, key: WorkerKey, claims: Sequence[HeldClaim], now: float, *, is_prepared: bool) -> None:
        """Restore the claims that a previous kubelet held for the pod."""
        for claim in claims:
            cached = self.cached.setdefault(claim.uid, Cached(claim, {}))
            cached.pods[key] = None
            cached.is_prepared = cached.is_prepared or is_prepared
        self._begin_reconciling(now)

    def _pump(self, now: float) -> None:
        """Begin every job whose claims no other job is busy with."""
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            if job.key in self._running or any(claim.uid in self._busy for claim in job.claims):
                self._waiting.append(job)
                continue
            self._running[job.key] = job
            self._busy |= dict.fromkeys((claim.uid for claim in job.claims), job.key)
            job.drivers = list(dict.fromkeys(name for claim in self._claims_to_call(job) for name in claim.devices))
            self._next(job, now)

    def _claims_to_call(self, job: Job) -> list[HeldClaim]:
        if job.call == PREPARE:
            return [claim for claim in job.claims if not self.cached[claim.uid].is_prepared]
        # The pod must be among those who use the claim, and the last of them (dra-core 7).
        return [claim for claim in job.claims if list(self.cached[claim.uid].pods) == [job.key]]

    def _next(self, job: Job, now: float) -> None:
        if not job.drivers:
            self._end_job(job, "", now)
            return
        driver = job.drivers[0]
        instance = self.drivers.find(driver)
        if instance is None:
            self._end_job(job, f"DRA driver {driver} is not registered", now)
            return
        job.called_s = now
        job.asked = tuple(claim for claim in self._claims_to_call(job) if driver in claim.devices)
        if job.is_broken and job.call == PREPARE:
            # The fault is the node's; no driver knows of it.
            self._end_job(job, f"{PREPARE} failed for ResourceClaim {job.asked[0].name}: {_BROKEN}", now)
            return
        self._out.effects.append(CallDriver(job.key, instance.number, driver, instance.service, job.call, job.asked))

    def on_answer(self, key: WorkerKey, method: str, answer: Answer, now: float) -> None:
        """Take a driver's answer to `method`, and go on with the next driver, or end the job."""
        job = self._running[key]
        driver = job.drivers[0]
        code = answer.code if isinstance(answer, CallFailed) else "OK"
        self._out.observe(CALL, now - job.called_s, driver, code, method, bounds=DEFAULT_BOUNDS)
        problem = f"{job.call}: {answer.text}" if isinstance(answer, CallFailed) else _problem(job, answer)
        if isinstance(answer, dict):
            for uid, result in answer.items():
                if not result.error:
                    job.answered.setdefault(uid, []).extend(result.devices)
        if problem:
            self._end_job(job, problem, now)
            return
        job.drivers.pop(0)
        self._next(job, now)

    def _end_job(self, job: Job, error: str, now: float) -> None:
        for uid in [uid for uid, key in self._busy.items() if key == job.key]:
            del self._busy[uid]
        del self._running[job.key]
        pod = self._table.pods.get(job.key)
        if job.call == PREPARE:
            if not error:
                self._remember(job)
            held = () if error else tuple(self.cached[claim.uid].claim for claim in job.claims)
            if pod is None:
                self._observe_duration(job.key, PREPARE, error, now)
            else:
                if not error:
                    self._log_devices(pod, held)
                self._finish_prepare(pod, error, now, held)
                self._on_prepared(pod, now)
            self._pump(now)
            return
        self._observe_duration(job.key, job.call, error, now)
        if error:
            # A pod whose driver is away hangs in termination until it returns. What no pod waits for is left to the
            # next reconciliation.
            if pod is not None:
                self._problems[job.key] = error, now + UNPREPARE_RETRY_S
                self._out.effects.append(SetTimer(now + UNPREPARE_RETRY_S, "unprepare", job.key))
        else:
            self._problems.pop(job.key, None)
            for claim in job.claims:
                cached = self.cached[claim.uid]
                del cached.pods[job.key]
                if not cached.pods:
                    del self.cached[claim.uid]
            # No claim is held for the pod any more, whether its machine waits for that or only a record is left.
            if pod is not None:
                self._table.perform(pod, pod.claims_unprepared(now), now)
            else:
                self._table.erase(job.key)
        self._pump(now)

    def _remember(self, job: Job) -> None:
        """Note that the claims are prepared, and their devices."""
        for claim in job.claims:
            cached = self.cached[claim.uid]
            cached.is_prepared = True
            if claim.uid in job.answered:
                cached.claim = msgspec.structs.replace(cached.claim, prepared=tuple(job.answered[claim.uid]))

    def _log_devices(self, pod: Pod, held: Sequence[HeldClaim]) -> None:
        """Record which CDI devices the runtime gives to which container."""
        containers = (*pod.pod.spec.init_containers, *pod.pod.spec.containers)
        given = {each.name: [cdi for d in devices_of(pod.pod, each, held) for cdi in d.cdi] for each in containers}
        if given := {name: ids for name, ids in given.items() if ids}:
            self._out.log("kubelet.cdi_devices", pod.pod, pod.key, {"containers": given})

    def due(self, what: str, key: WorkerKey, now: float) -> None:
        """Handle a timer: retry an unprepare, look for orphaned claims, or wipe slices."""
        match what:
            case "unprepare":
                self.unprepare(key, now)
            case "claims":
                self._is_reconciling = False
                self._reconcile(now)
                self._begin_reconciling(now)
            case _ if what == DRIVERS:
                self.drivers.due(now)

    def _begin_reconciling(self, now: float) -> None:
        """Look for orphaned claims from time to time, as long as there are claims."""
        if self.cached and not self._is_reconciling:
            self._is_reconciling = True
            self._out.effects.append(SetTimer(now + self._switches.dra_reconcile_s, "claims", NODE_KEY))

    def _reconcile(self, now: float) -> None:
        """Unprepare what only pods hold that are not active here any more (crash recovery)."""
        busy = {job.key for job in (*self._running.values(), *self._waiting)}
        gone = dict.fromkeys(key for each in self.cached.values() for key in each.pods)
        for key in gone:
            if key not in busy and not self._table.is_active(key):
                self.unprepare(key, now)


def _problem(job: Job, answer: Mapping[str, ClaimResult]) -> str:
    """Return what is wrong with an answer, "" for nothing."""
    names = {claim.uid: claim.name for claim in job.asked}
    for uid, result in answer.items():
        if uid not in names:
            return f"{job.call} returned result for unknown claim UID {uid}"
        if result.error:
            return f"{job.call} failed for ResourceClaim {names[uid]}: {result.error}"
    missing = len(names) - len(answer)
    return f"{job.call} skipped {missing} ResourceClaims" if missing else ""


def _held_claim(claim: ResourceClaim) -> HeldClaim:
    devices: dict[str, tuple[str, ...]] = {}
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    for result in results:
        devices[result.driver] = (*devices.get(result.driver, ()), f"{result.pool}/{result.device}")
    admin = tuple(f"{each.driver}/{each.pool}/{each.device}" for each in results if each.admin_access)
    meta = claim.metadata
    return HeldClaim(meta.uid, meta.namespace, meta.name, devices, admin=admin)
