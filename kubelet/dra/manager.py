"""Which claims a node's pods use, and whether their devices are prepared. Pure.

A pod's claims are read live, judged, remembered durably by the pod's own checkpoint, and then prepared: one call a
driver. A claim that several pods use is prepared once and unprepared after the last one. Of one claim only one thing
is done at a time; who comes later waits.
Source: dra-core 7; guarantees N2, N3.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kubelet.dra.driver import Driver
from kubelet.effects import (
    NODE_KEY,
    CallDrivers,
    Outbox,
    PrepareClaims,
    PublishSlices,
    ReadClaims,
    SetTimer,
    UnprepareClaims,
)
from kubelet.pod.pod import Pod
from kubelet.pod.table import PodTable
from kubelet.runtime.records import HeldClaim
from kubelet.view import KubeletPod, WorkerKey
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.meta import Key

CALL_MAX_S: Final = 45.0
"""Longer than that no driver is waited for."""
UNPREPARE_RETRY_S: Final = 10.0
RECONCILE_S: Final = 60.0
"""How often prepared devices that no pod uses any more are looked for."""
WIPE_DELAY_S: Final = 30.0
"""How long the slices of a dead driver are kept."""
OPERATION: Final = "dra_operations_duration_seconds"
CALL: Final = "dra_grpc_operations_duration_seconds"
"""Upstream's names, which begin without `kubelet_`; a method is named by its whole path (`pkg/kubelet/metrics`)."""
_PATH: Final = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
_OPERATIONS: Final = {"prepare": "PrepareResources", "unprepare": "UnprepareResources"}
_CALLS: Final = {"prepare": "NodePrepareResources", "unprepare": "NodeUnprepareResources"}


class Cached(msgspec.Struct):
    """A claim that is, or may be, prepared, and for which pods."""

    claim: HeldClaim
    pods: dict[WorkerKey, None]
    is_prepared: bool = False


class Job(msgspec.Struct):
    """What is to be done for one pod: drivers still to be called, in order, each with those of the claims it has.
    `is_broken`: the first call fails, by a start fault."""

    key: WorkerKey
    what: str
    claims: tuple[HeldClaim, ...]
    is_broken: bool = False
    drivers: list[str] = []
    called_s: float = 0.0
    asked: tuple[HeldClaim, ...] = ()


def claim_names(pod: KubeletPod) -> list[str] | str:
    """Return the names of the claims that the pod uses, or the reason why that is not known."""
    made = {each.name: each for each in pod.status.resource_claim_statuses}
    names: list[str] = []
    for each in pod.spec.resource_claims:
        name = each.resource_claim_name
        if not name:
            if each.name not in made:
                return f'pod "{pod.metadata.key}": ResourceClaim not created yet'
            name = made[each.name].resource_claim_name
        if name and name not in names:
            names.append(name)
    return names


class ClaimManager:
    """Invariant: a claim is in `cached` from before its first prepare until its unprepare succeeded."""

    def __init__(self, table: PodTable, pods: Mapping[str, KubeletPod], drivers: Sequence[Driver], out: Outbox) -> None:
        self.drivers = {driver.name: driver for driver in drivers}
        self.cached: dict[str, Cached] = {}
        self._table, self._pods, self._out = table, pods, out
        self._begun_s: dict[tuple[WorkerKey, str], float] = {}
        """Since when the claims of a pod are being prepared or unprepared, by what is being done."""
        self._running: dict[WorkerKey, Job] = {}
        self._waiting: list[Job] = []
        self._busy: dict[str, WorkerKey] = {}
        self._away_since: dict[str, float] = {}
        table.on(PrepareClaims, self._prepare)
        table.on(CallDrivers, lambda pod, effect, now: self.call(pod.key, pod.claims, now, is_broken=effect.is_broken))
        table.on(UnprepareClaims, lambda pod, effect, now: self.unprepare(pod.key, now))

    def _prepare(self, machine: Pod, effect: PrepareClaims, now: float) -> None:
        """Ask for a pod's claims; the answer comes to `claims_read`."""
        key, pod = machine.key, machine.pod
        names = claim_names(pod)
        self._begun_s.setdefault((key, "prepare"), now)
        if isinstance(names, str) or not names:
            self._prepared(machine, names if isinstance(names, str) else "", now)
        else:
            self._out.effects.append(ReadClaims(key, pod, tuple(names)))

    def _prepared(self, machine: Pod, problem: str, now: float) -> None:
        self._timed(machine.key, "prepare", problem, now)
        self._table.perform(machine, machine.claims_prepared(problem, now), now)

    def _timed(self, key: WorkerKey, what: str, error: str, now: float) -> None:
        took_s = now - self._begun_s.pop((key, what), now)
        self._out.observe(OPERATION, took_s, str(bool(error)).lower(), _OPERATIONS[what])

    def claims_read(self, key: WorkerKey, pod: KubeletPod, claims: Sequence[ResourceClaim] | str, now: float) -> None:
        """Take the claims as they are stored, or why they could not be read."""
        machine = self._table.pods.get(key)
        if machine is None or not self._table.is_active(key):
            self._begun_s.pop((key, "prepare"), None)
            return
        problem = claims if isinstance(claims, str) else self._judge(pod, claims, now)
        if isinstance(claims, str) or problem:
            self._prepared(machine, problem, now)
            return
        held = tuple(_held(claim) for claim in claims)
        for claim in held:
            self.cached.setdefault(claim.uid, Cached(claim, {})).pods[key] = None
        self._table.perform(machine, machine.claims_listed(held, now), now)

    def _judge(self, pod: KubeletPod, claims: Sequence[ResourceClaim], now: float) -> str:
        """Return what keeps the pod from using one of its claims, "" for nothing."""
        made = {each.resource_claim_name for each in pod.status.resource_claim_statuses}
        names = {each.claim.key: each.claim.uid for each in self.cached.values()}
        for claim in claims:
            meta, owner = claim.metadata, claim.metadata.controller
            if meta.name in made and (owner is None or owner.uid != pod.metadata.uid):
                return f"ResourceClaim {meta.key} was not created for pod {pod.metadata.key} (pod is not owner)"
            if claim.status.allocation is None or not claim.status.is_reserved_for(pod.metadata.uid):
                return (
                    f"pod {pod.metadata.name} ({pod.metadata.uid}) is not allowed to use ResourceClaim "
                    f"{meta.name} ({meta.uid})"
                )
            for driver in _held(claim).devices:
                if driver not in self.drivers or not self.drivers[driver].is_there(now):
                    return f"DRA driver {driver} is not registered"
            if names.get(meta.key, meta.uid) != meta.uid:
                return (
                    f"old ResourceClaim with same name {meta.name} and different UID {names[meta.key]} still "
                    "exists (previous pod force-deleted?!)"
                )
        return ""

    def call(self, key: WorkerKey, claims: tuple[HeldClaim, ...], now: float, *, is_broken: bool = False) -> None:
        """The pod's claims are on disk: have what is not prepared yet prepared."""
        self._begun_s.setdefault((key, "prepare"), now)
        self._waiting.append(Job(key, "prepare", claims, is_broken))
        self._pump(now)

    def unprepare(self, key: WorkerKey, now: float) -> None:
        """Nothing of the pod runs any more: unprepare what only it used."""
        self._begun_s.setdefault((key, "unprepare"), now)
        own = tuple(each.claim for each in self.cached.values() if key in each.pods)
        self._waiting.append(Job(key, "unprepare", own))
        self._pump(now)

    def recover(self, key: WorkerKey, claims: Sequence[HeldClaim], *, is_prepared: bool) -> None:
        """Know again what a previous kubelet held for the pod."""
        for claim in claims:
            cached = self.cached.setdefault(claim.uid, Cached(claim, {}))
            cached.pods[key] = None
            cached.is_prepared = cached.is_prepared or is_prepared
            for name in claim.devices:
                if name in self.drivers:
                    self.drivers[name].recover(claim)

    def _pump(self, now: float) -> None:
        """Begin every job whose claims no other job is busy with."""
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            if job.key in self._running or any(claim.uid in self._busy for claim in job.claims):
                self._waiting.append(job)
                continue
            self._running[job.key] = job
            self._busy |= dict.fromkeys((claim.uid for claim in job.claims), job.key)
            job.drivers = list(dict.fromkeys(name for claim in self._concerned(job) for name in claim.devices))
            self._next(job, now)

    def _concerned(self, job: Job) -> list[HeldClaim]:
        if job.what == "prepare":
            return [claim for claim in job.claims if not self.cached[claim.uid].is_prepared]
        # The pod must be among those who use the claim, and the last of them (dra-core 7).
        return [claim for claim in job.claims if list(self.cached[claim.uid].pods) == [job.key]]

    def _next(self, job: Job, now: float) -> None:
        if not job.drivers:
            self._done(job, "", now)
            return
        driver = self.drivers.get(job.drivers[0])
        if driver is None or not driver.is_there(now):
            self._done(job, f"DRA driver {job.drivers[0]} is not registered", now)
            return
        job.called_s = now
        job.asked = tuple(claim for claim in self._concerned(job) if driver.name in claim.devices)
        self._out.effects.append(SetTimer(now + min(_takes_s(job, driver), CALL_MAX_S), "driver", job.key))

    def _answered(self, job: Job, now: float) -> None:
        """The time of a call is over: let the driver have done it, and go on with the next one, or end the job."""
        driver = self.drivers[job.drivers[0]]
        call = _CALLS[job.what]
        error, code = "", "OK"
        if not driver.is_there(now):
            code = "Unavailable"
            error = f"{call}: rpc error: code = Unavailable desc = connection refused"
        elif _takes_s(job, driver) > CALL_MAX_S:
            code = "DeadlineExceeded"
            error = f"{call}: rpc error: code = DeadlineExceeded desc = context deadline exceeded"
        elif job.what == "prepare":
            failures = driver.prepare(job.asked, is_broken=job.is_broken)
            for claim in job.asked:
                if why := failures[claim.uid]:
                    error = error or f"{call} failed for ResourceClaim {claim.name}: {why}"
                else:
                    self._log("driver.prepare", driver, job, claim)
        else:
            for claim in job.asked:
                driver.unprepare(claim)
                self._log("driver.unprepare", driver, job, claim)
        self._out.observe(CALL, now - job.called_s, driver.name, code, _PATH + call)
        if error:
            self._done(job, error, now)
            return
        job.drivers.pop(0)
        self._next(job, now)

    def _log(self, event: str, driver: Driver, job: Job, claim: HeldClaim) -> None:
        devices = [f"{driver.name}/{device}" for device in claim.devices[driver.name]]
        data = {"claim": claim.uid, "name": claim.name, "devices": devices}
        machine = self._table.pods.get(job.key)
        pod = machine.pod if machine is not None else self._pods.get(job.key.uid)
        self._out.log(event, pod, job.key, data, Key(claim.namespace, ""))

    def _done(self, job: Job, error: str, now: float) -> None:
        for uid in [uid for uid, key in self._busy.items() if key == job.key]:
            del self._busy[uid]
        del self._running[job.key]
        self._timed(job.key, job.what, error, now)
        pod = self._table.pods.get(job.key)
        if job.what == "prepare":
            if not error:
                for claim in job.claims:
                    self.cached[claim.uid].is_prepared = True
            if pod is not None:
                self._table.perform(pod, pod.claims_prepared(error, now), now)
        elif error:
            # A pod whose driver is away hangs in termination until it returns.
            self._out.effects.append(SetTimer(now + UNPREPARE_RETRY_S, "unprepare", job.key))
        else:
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

    def begin(self, now: float) -> None:
        """The node is registered: forget slices of before, have the drivers publish theirs, and keep watch."""
        if not self.drivers:
            return
        for driver in self.drivers.values():
            driver.began_s = now
        self._away_since = {name: now for name, driver in self.drivers.items() if not driver.is_there(now)}
        self.publish(now)
        self._out.effects.append(SetTimer(now + RECONCILE_S, "claims", NODE_KEY))
        self._set_turns(now)

    def publish(self, now: float) -> None:
        """Have every driver that is there publish anew: the Node is a new one, and slices went with the old one."""
        if self.drivers:
            here = tuple(name for name, driver in self.drivers.items() if driver.is_there(now))
            self._out.effects.append(PublishSlices(here, None))

    def due(self, what: str, key: WorkerKey, now: float) -> None:
        """A timer fired: an unprepare is tried again, orphaned claims are looked for, or drivers come and go."""
        match what:
            case "driver":
                self._answered(self._running[key], now)
            case "unprepare":
                self.unprepare(key, now)
            case "claims":
                self._reconcile(now)
                self._out.effects.append(SetTimer(now + RECONCILE_S, "claims", NODE_KEY))
            case _:
                self._look_at_drivers(now)

    def _reconcile(self, now: float) -> None:
        """Unprepare what only pods hold that are not active here any more (crash recovery)."""
        busy = {job.key for job in (*self._running.values(), *self._waiting)}
        gone = dict.fromkeys(key for each in self.cached.values() for key in each.pods)
        for key in gone:
            if key not in busy and not self._table.is_active(key):
                self.unprepare(key, now)

    def _look_at_drivers(self, now: float) -> None:
        """Wipe the slices of drivers that have been away too long, and have those publish that came back."""
        back = []
        for name, driver in self.drivers.items():
            if not driver.is_there(now):
                self._away_since.setdefault(name, now)
            elif (since := self._away_since.pop(name, None)) is not None and now - since >= WIPE_DELAY_S:
                back.append(name)
        wiped = [name for name, since in self._away_since.items() if now - since >= WIPE_DELAY_S - 1e-6]
        if back or wiped:
            self._out.effects.append(PublishSlices(tuple(back), tuple(wiped)))
        self._set_turns(now)

    def _set_turns(self, now: float) -> None:
        turns = [at for driver in self.drivers.values() if (at := driver.next_turn(now)) is not None]
        wipes = [since + WIPE_DELAY_S for since in self._away_since.values()]
        due = [at for at in (*turns, *wipes) if at > now + 1e-6]
        if due:
            self._out.effects.append(SetTimer(min(due), "drivers", NODE_KEY))


def _takes_s(job: Job, driver: Driver) -> float:
    return driver.definition.prepare if job.what == "prepare" else driver.definition.unprepare


def _held(claim: ResourceClaim) -> HeldClaim:
    devices: dict[str, tuple[str, ...]] = {}
    allocation = claim.status.allocation
    for each in allocation.devices.results if allocation is not None else ():
        devices[each.driver] = (*devices.get(each.driver, ()), f"{each.pool}/{each.device}")
    meta = claim.metadata
    return HeldClaim(meta.uid, meta.namespace, meta.name, devices)
