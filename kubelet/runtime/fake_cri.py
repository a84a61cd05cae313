"""The emulated container runtime: containers that only take time, and the record of what was started when.

A container's whole course follows from its script, its start and the requests to stop it, so the record
needs little: it survives a killed kubelet, and the next one re-adopts what it says (N4). A container
counts as started once its record is durable. Pure; the shell writes the bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import msgspec

from kubelet.managers.resource_managers import NO_ALLOCATION, Allocation
from kubelet.runtime.claim_record import HeldClaim
from kubelet.runtime.line_file import Reading, newest
from kubelet.runtime.pleg import AT_ONCE, Pleg
from kubelet.runtime.probers import Probes
from kubelet.runtime.resources import NO_RESOURCES, PodResources
from kubelet.runtime.script import Script
from kubelet.runtime.start_faults import CONTAINER_STAGES, StartFaults
from kubelet.view import RestartRule, WorkerKey

INIT, SIDECAR, MAIN, EPHEMERAL = "init", "sidecar", "main", "ephemeral"
SIGKILL_EXIT = 137
LOST_EXIT = 255
"""Of a container that ended with its machine; the runtime cannot say more."""
PRESTOP_OVERRUN_S = 2.0


class ContainerRecord(msgspec.Struct, array_like=True):
    """`started_s` and `finished_s` are monotonic seconds of the host; `exit_code` -1: not ended."""

    name: str
    started_s: float
    restarts: int = 0
    exit_code: int = -1
    finished_s: float = 0.0


class PodRecord(msgspec.Struct, array_like=True):
    """What is known of one pod for one binding, whatever becomes of the kubelet. `is_gone` erases what was recorded.

    `allocation` is what the pod has to itself, `allocated` its size as promised; `actual`, what the runtime was last
    told, is None as long as that is the same (KEP-1287). `claims`: whose devices are, or may be, prepared for the pod
    (KEP-4381). The runtime's own record knows of sizes only what it was told; promises are the checkpoint's.
    """

    node: str
    uid: str
    generation: int
    namespace: str = ""
    name: str = ""
    pod_ip: str = ""
    start_s: float = 0.0
    containers: list[ContainerRecord] = []
    allocation: Allocation = NO_ALLOCATION
    allocated: PodResources = NO_RESOURCES
    actual: PodResources | None = None
    is_finished: bool = False
    is_gone: bool = False
    claims: tuple[HeldClaim, ...] = ()

    @property
    def key(self) -> WorkerKey:
        """Whose record this is."""
        return WorkerKey(self.uid, self.generation)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(PodRecord)


def encode_record(record: PodRecord) -> bytes:
    """Return one line of the runtime's record: of sizes it says what the runtime was told."""
    if record.actual is not None:
        record = msgspec.structs.replace(record, allocated=record.actual, actual=None)
    return _ENCODER.encode(record) + b"\n"


def replay(lines: Iterable[bytes], nodes: frozenset[str]) -> Reading[PodRecord]:
    """Return the newest record of every pod, and what was of no use."""
    return newest(lines, nodes, _DECODER.decode)


class Ended(msgspec.Struct, frozen=True):
    """How a container ended; times as RFC 3339 text, because a restarted kubelet has them only so."""

    exit_code: int
    reason: str
    started_at: str
    finished_at: str


class Pull:
    """How far a container's image has come: when the first try was, when one last failed, and how long to wait then."""

    __slots__ = ("backoff_s", "done_s", "failed_s", "first_s", "is_done", "took_s", "waited_s")

    def __init__(self) -> None:
        self.first_s: float | None = None
        self.failed_s = self.backoff_s = self.done_s = 0.0
        self.took_s = self.waited_s = 0.0
        self.is_done = False


_PRESENT = Pull()
"""Of all containers whose image is on the node; nobody changes it."""


class Container:
    """One container of one pod over all its restarts.

    `state`: waiting, image, pulling, stuck, devices (plugins prepare them), create, recording, running, backoff,
    exited. `due_s` is when the next thing happens by itself; None: nothing will.
    Invariant: `started_s` is set while recording and running; `ended` is set while exited and backoff.
    """

    __slots__ = (
        "backoff_s", "backoff_until_s", "created_total", "due_s", "ended", "exit_code", "faults", "finished_s",
        "former_end_s", "hook_at_s", "hook_error", "image", "is_ready", "kind", "last", "name", "oom_at_s", "pleg",
        "policy", "probes", "pull", "record_seq", "restarts", "rules", "script", "seen_s", "started_s", "state",
        "stop_at_s", "stop_code", "unhealthy", "waiting_message", "waiting_reason",
    )  # fmt: skip

    def __init__(self, name: str, kind: str, image: str, script: Script, probes: Probes | None = None) -> None:
        self.name, self.kind, self.image, self.script, self.probes = name, kind, image, script, probes
        self.state = "waiting"
        self.due_s: float | None = None
        self.restarts = 0
        self.created_total = 0
        self.backoff_s = 0.0
        self.backoff_until_s: float | None = None
        """When its back-off ends, as long as it waits for a sync before that."""
        self.started_s = 0.0
        self.finished_s = 0.0
        self.former_end_s: float | None = None
        """When the run before the present one ended."""
        self.exit_code = 0
        self.is_ready = False
        self.policy = ""
        """Its own restart policy; "": that of its pod."""
        self.rules: tuple[RestartRule, ...] = ()
        self.ended: Ended | None = None
        self.last: Ended | None = None
        self.record_seq = 0
        self.pull = _PRESENT if not script.must_pull else Pull()
        own = [fault for fault in script.start_faults if fault.stage in CONTAINER_STAGES]
        self.faults = StartFaults(own) if own else None
        self.oom_at_s: float | None = None
        """When it will use more memory than it may."""
        self.stop_at_s: float | None = None
        self.stop_code = 0
        self.unhealthy = ""
        """The probe that this run is being ended for."""
        self.waiting_reason = ""
        self.waiting_message = ""
        self.pleg: Pleg = AT_ONCE
        self.seen_s: float | None = None
        """When the node notices that it runs, as long as that is to come; infinity: after its postStart hook."""
        self.hook_at_s: float | None = None
        """When a hook ends: its postStart hook, or a preStop hook that fails."""
        self.hook_error = ""
        """What its postStart hook failed with."""

    @property
    def is_running(self) -> bool:
        """Whether its process exists."""
        return self.state == "running"

    @property
    def must_pull(self) -> bool:
        """Whether its image has to be fetched: its script says so, or it was deleted from the node."""
        return self.pull is not _PRESENT

    @property
    def may_start(self) -> bool:
        """Whether it has yet to start, or will once more."""
        return self.state not in ("running", "exited")

    @property
    def is_started(self) -> bool:
        """Whether its process exists and has come up, as its startup probe sees it."""
        return self.is_seen and (self.probes is None or self.probes.is_started)

    @property
    def is_seen(self) -> bool:
        """Whether its process exists and the node has noticed."""
        return self.state == "running" and self.seen_s is None

    @property
    def is_hidden(self) -> bool:
        """Whether its process exists and the node has not noticed yet."""
        return self.state == "running" and self.seen_s is not None

    @property
    def is_hooked(self) -> bool:
        """Whether its postStart hook is running."""
        return self.seen_s == math.inf and self.hook_at_s is not None

    @property
    def was_seen(self) -> bool:
        """Whether the node has noticed that it ever ran."""
        return self.has_run and (self.seen_s is None or self.state != "running" or self.restarts > 0)

    @property
    def has_run(self) -> bool:
        """Whether it was ever started."""
        return self.state in ("running", "backoff", "exited") or self.restarts > 0 or self.ended is not None

    def run(self, started_s: float) -> None:
        """Be running since `started_s`."""
        self.state = "running"
        self.started_s, self.oom_at_s = started_s, None
        self.waiting_reason = self.waiting_message = self.unhealthy = ""
        self.seen_s = self.hook_at_s = None
        if self.probes is not None:
            self.probes.run(started_s)
        self.turn(started_s)

    def conceal(self, until_s: float, hook_at_s: float | None = None) -> None:
        """Run, but be noticed only then; nobody asks it how it is before."""
        self.seen_s, self.hook_at_s = until_s, hook_at_s
        if self.probes is not None:
            self.probes.wait()
        self.turn(self.started_s)

    def reveal(self, now: float) -> None:
        """Be noticed."""
        self.seen_s = None
        if self.probes is not None:
            self.probes.run(self.started_s, now)
        self.turn(now)

    def exit_at(self) -> tuple[float, int, str] | None:
        """Return when, with which code and why its process ends, as far as is known now."""
        natural = self.script.exit_after_s
        own = None if natural is None else self.started_s + natural
        oom = self.oom_at_s
        if oom is not None and (own is None or oom < own) and (self.stop_at_s is None or oom < self.stop_at_s):
            return oom, SIGKILL_EXIT, "OOMKilled"
        if self.stop_at_s is not None and (own is None or self.stop_at_s < own):
            return self.stop_at_s, self.stop_code, ""
        if own is None:
            return None
        return own, self.script.exit_code, self.script.reason

    def ended_by(self, now: float) -> tuple[float, int, str] | None:
        """Return `exit_at` once that is over and the node knows."""
        end = self.exit_at()
        return None if end is None or self._noticed_s(end[0], now) > now else end

    def _noticed_s(self, end_s: float, now: float) -> float:
        """Return when the node knows of an end: at once when it stops the container, after the hook it waits for."""
        if self.stop_at_s is not None:
            return max(end_s, now)
        return math.inf if self.is_hooked else self.pleg.notices_s(end_s)

    def _set_due(self, now: float) -> None:
        """Find the next change after `now`: end, a hook's end, being noticed, a turn of readiness, or a probe."""
        end = self.exit_at()
        due = None if end is None else self._noticed_s(end[0], now)
        for at_s in (self.hook_at_s, self.seen_s):
            if at_s is not None and (due is None or at_s < due):
                due = at_s
        if due == math.inf:
            due = None
        turn = self._next_turn(now)
        if turn is not None and (due is None or turn < due):
            due = turn
        if self.probes is not None and (ask := self.probes.due_s) is not None and (due is None or ask < due):
            due = ask
        self.due_s = due

    def _next_turn(self, now: float) -> float | None:
        """Return when readiness next changes, strictly after `now`."""
        if self.kind in (INIT, EPHEMERAL) or (self.probes is not None and self.probes.is_ready is not None):
            return None
        age_s = self.script.next_turn_s(now - self.started_s)
        return None if age_s is None else self.started_s + age_s

    def turn(self, now: float) -> None:
        """Recompute readiness at `now` and look for the next change. A readiness probe knows it, else the script."""
        said = None if self.probes is None else self.probes.is_ready
        is_ready = self.script.is_ready(now - self.started_s) if said is None else said
        self.is_ready = self.kind in (MAIN, SIDECAR) and self.is_started and is_ready
        self._set_due(now)

    def stop(self, now: float, kill_at_s: float, prestop_limit_s: float, stop_s: float) -> None:
        """Ask the process to end: preStop hook, SIGTERM, and SIGKILL at `kill_at_s`.

        `stop_s`: how long the exit takes where the script does not say. A hook that used up the whole
        grace period, or all but two seconds of it, leaves two (kubelet 3.4; upstream `minimumGracePeriodInSeconds`).
        """
        script = self.script
        hook_s = min(script.prestop_s, prestop_limit_s)
        if script.prestop_s > 0:
            kill_at_s = max(kill_at_s, now + hook_s + PRESTOP_OVERRUN_S)
        if self.stop_at_s is None:
            self.hook_at_s = now + hook_s if script.prestop_fails and script.prestop_s <= prestop_limit_s else None
        exit_at_s = now + hook_s + (stop_s if script.term_after_s is None else script.term_after_s)
        if script.ignores_term or exit_at_s >= kill_at_s:
            exit_at_s, code = kill_at_s, SIGKILL_EXIT
        else:
            code = script.term_exit_code
        if self.stop_at_s is None or exit_at_s < self.stop_at_s:
            self.stop_at_s, self.stop_code = exit_at_s, code
        self._set_due(now)

    def end(self, at_s: float, code: int, reason: str, text: Callable[[float], str]) -> None:
        """Be ended."""
        self.state = "exited"
        self.due_s = None
        self.is_ready = False
        self.former_end_s = self.finished_s if self.created_total > 1 else None
        self.finished_s, self.exit_code = at_s, code
        self.seen_s = self.hook_at_s = None
        self.ended = Ended(code, reason or ("Completed" if code == 0 else "Error"), text(self.started_s), text(at_s))

    def record(self) -> ContainerRecord:
        """Return what is worth keeping."""
        is_lost = self.exit_code == LOST_EXIT and self.state not in ("running", "recording")
        if self.ended is not None and (self.state == "exited" or is_lost):
            return ContainerRecord(self.name, self.started_s, self.restarts, self.exit_code, self.finished_s)
        return ContainerRecord(self.name, self.started_s, self.restarts)
