"""One pod's life on one node, for one binding: start, run, restart, stop. A pure machine.

`advance` carries the machine to a moment, one due thing after the other and each at its own time, so a
kubelet that was away catches up exactly. The machine never waits: it asks for its record to be made
durable (`Persist`) before a container counts as started, and is told when that is so.
Source: kubelet 3.2 to 3.4; guarantees N2, N3.
"""

from __future__ import annotations

import msgspec

from kubelet.claims.record import HeldClaim
from kubelet.managers.resource_managers import Allocation
from kubelet.pods.actions import Action, Finished, LogStart, LogStop, Poke
from kubelet.pods.claimed import ClaimingPod
from kubelet.pods.fake_cri import (
    EPHEMERAL,
    INIT,
    LOST_EXIT,
    MAIN,
    SIDECAR,
    Container,
    ContainerRecord,
    Ended,
    PodRecord,
)
from kubelet.pods.images import NodeImages
from kubelet.pods.latency import PodLatency
from kubelet.pods.probing import probes_of
from kubelet.pods.restarts import back_off, must_restart
from kubelet.pods.script import script_of
from kubelet.pods.starting import NO_FAULTS
from kubelet.pods.status import RESIZE_IN_PROGRESS, Condition, Termination, WallTimes
from kubelet.start_faults import StartFaults
from kubelet.status_manager import TAKEN_BACK
from kubelet.timers import EARLY_S
from kubelet.view import KubeletContainer, KubeletPod, WorkerKey

_POKE = Poke()
REMOVED_GRACE_S = 1.0
"""The object vanished: its containers get this long (kubelet 3.4)."""


TOO_LONG = "Pod was active on the node longer than the specified deadline"


class Policy(msgspec.Struct, frozen=True):
    """Settings all workers of a host share. Seconds."""

    crashloop_initial_s: float = 10.0
    crashloop_max_s: float = 300.0
    start_fence: bool = False


class PodWorker(ClaimingPod):
    """The machine of one (uid, binding generation).

    Invariant: `state` only moves forward, and `Finished` is returned exactly once, on reaching terminated.
    """

    __slots__ = (
        "_cursor", "_policy", "_start_acked", "allocation", "ever_started", "node",
    )  # fmt: skip

    def __init__(
        self,
        pod: KubeletPod,
        key: WorkerKey,
        *,
        node: str,
        host_ip: str,
        pod_ip: str,
        allocation: Allocation,
        latency: PodLatency,
        policy: Policy,
        times: WallTimes,
        now: float,
        node_faults: StartFaults = NO_FAULTS,
        images: NodeImages | None = None,
    ) -> None:
        super().__init__(pod, key, host_ip=host_ip, pod_ip=pod_ip, latency=latency, times=times, now=now)
        self.node = node
        self.allocation = allocation
        self.ever_started = False
        self._policy = policy
        self._start_acked = not policy.start_fence
        self._cursor = 0
        self._measured_for = None
        for spec in pod.spec.init_containers:
            kind = SIDECAR if spec.restart_policy == "Always" else INIT
            self._add(spec, kind)
        for spec in pod.spec.containers:
            self._add(spec, MAIN)
        for spec in pod.spec.ephemeral_containers:
            self._add(spec, EPHEMERAL)
        self._images = NodeImages() if images is None else images
        self._begin_start(now, node_faults)
        self.refresh(now)

    def _add(self, spec: KubeletContainer, kind: str) -> None:
        script = script_of(self.pod, spec, is_init=kind in (INIT, SIDECAR), is_ephemeral=kind == EPHEMERAL)
        container = Container(spec.name, kind, spec.image, script, probes_of(spec, script))
        container.policy, container.rules = spec.restart_policy, spec.restart_policy_rules
        self.containers.append(container)

    # --- what may happen to it ---

    def begin(self, now: float) -> list[Action]:
        """Start, or take the next due steps."""
        if self.pod.status.container_statuses:
            self._recall(now)
        return self.advance(now)

    def _recall(self, now: float) -> None:
        """Take for ended what the API server knows to have run and no record knows: the record was lost (FM-K5)."""
        status = self.pod.status
        reported = {each.name: each for each in (*status.init_container_statuses, *status.container_statuses)}
        lost: list[Container] = []
        for container in self.containers:
            told = reported.get(container.name)
            if told is None or not (told.state.running or told.state.terminated or told.restart_count):
                continue
            container.restarts, container.created_total = told.restart_count, told.restart_count + 1
            container.started_s = now
            ended = told.state.terminated
            code, reason = (ended.exit_code, ended.reason) if ended else (LOST_EXIT, "Unknown")
            container.end(now, code, reason, self._times.text)
            lost.append(container)
        if not lost:
            return
        self._out.append(LogStop(lost[0].name))
        policy = self.pod.spec.restart_policy
        again = [c for c in lost if c.kind == INIT or must_restart(c, policy, c.exit_code)]
        mains = [c for c in self.containers if c.kind == MAIN]
        if all(c in lost and c not in again for c in mains):
            self._stage_due = None
            self._complete(now)
            return
        for container in again:
            container.state = "waiting"

    def advance(self, now: float) -> list[Action]:
        """Do everything that is due by `now`, each thing at its own time."""
        while (due := self.due_s) is not None and due <= now + EARLY_S:
            self._step(due)
        return self._flush(now)

    def hold(self) -> None:
        """Wait until a predecessor is gone (kubelet 3.1: same name, other uid)."""
        self.state = "held"

    def unhold(self, now: float) -> list[Action]:
        """The predecessor is gone: start now, unless something ended the wait before."""
        if self.state != "held":
            return []
        self.state = "starting"
        self._stage_due = now + self._latency.of("worker")
        return self.advance(now)

    def persisted(self, seq: int, now: float) -> list[Action]:
        """The record up to `seq` is durable: containers waiting for that run."""
        self._durable = max(self._durable, seq)
        for container in self.containers:
            if container.state == "recording" and container.record_seq <= self._durable:
                self._started(container, now)
        if self.state == "stopped" and self._seq <= self._durable:
            self._terminated(now)
        self._claims_saved(now)
        self._actuate(now)
        return self.advance(now)

    def start_acked(self, now: float) -> list[Action]:
        """A status with `startTime` was acknowledged (switch kubelet.start_fence)."""
        if self._start_acked:
            # Nothing new: asking for another write here would ask for ever.
            return []
        self._start_acked = True
        self._next_container(now)
        return self.advance(now)

    def update(self, pod: KubeletPod, now: float) -> list[Action]:
        """Take a newer view of the pod; only what a running pod may change is looked at."""
        self.pod = pod
        self.generation = max(self.generation, pod.metadata.generation)
        if pod.metadata.deletion_timestamp is not None:
            grace = pod.metadata.deletion_grace_period_seconds
            return self.terminate(now, 30.0 if grace is None else float(grace), "deleted")
        for spec in pod.spec.ephemeral_containers:
            if all(c.name != spec.name for c in self.containers):
                self._add(spec, EPHEMERAL)
        self._begin_guests(now)
        self._measured_for = None  # annotations may have changed
        self.refresh(now)
        if self.actuation.stage == "failed":
            # Whatever changed, the pod is synced again.
            self.actuation.due_s = now
        return self.advance(now)

    def faults_changed(self, faults: StartFaults, now: float) -> list[Action]:
        """What goes wrong on the node when pods start is another from now on."""
        self.advance_quietly(now)
        self._take_faults(faults, now)
        return self.advance(now)

    def claims_listed(self, claims: tuple[HeldClaim, ...], now: float) -> list[Action]:
        """These are the claims whose devices the pod uses."""
        self._list_claims(claims)
        return self.advance(now)

    def prepared(self, now: float) -> list[Action]:
        """The pod's devices are ready."""
        self._claims_ready(now)
        return self.advance(now)

    def not_prepared(self, message: str, now: float) -> list[Action]:
        """The pod's devices are not ready, and why."""
        self._claims_failed(message, now)
        return self.advance(now)

    def unprepared(self, now: float) -> list[Action]:
        """The pod holds no devices any more: it may end, once that is on disk."""
        self.claims, self._claiming = (), "free"
        if self.state == "stopped" and self.ever_started:
            self._persist()
        elif self.state == "stopped":
            self._terminated(now)
        return self.advance(now)

    def allocate(self, pod: KubeletPod, now: float) -> list[Action]:
        """The node has promised the pod the size it asks for now: see to it (kep-1287 5)."""
        self.advance_quietly(now)
        self._allocate(pod, now)
        return self.advance(now)

    def terminate(
        self, now: float, grace_s: float, cause: str, *, reason: str = "", message: str = "", disruption: bool = False
    ) -> list[Action]:
        """Stop everything within `grace_s`; a later call can only shorten."""
        kill_at_s = now + max(grace_s, REMOVED_GRACE_S)
        if self.state in ("stopped", "terminated"):
            return self._flush(now)
        self.advance_quietly(now)
        if self.termination is not None:
            if kill_at_s < self.termination.kill_at_s:
                self.termination.kill_at_s = kill_at_s
                for container in self.containers:
                    if container.is_running and container.stop_at_s is not None:
                        self._stop(container, now)
            return self.advance(now)
        if self.state in ("stopped", "terminated"):
            return self._flush(now)
        self._end(Termination(cause, kill_at_s, reason, message, disruption), now)
        return self.advance(now)

    def _end(self, termination: Termination, now: float) -> None:
        """Stop everything, for this reason."""
        self.termination = termination
        self.state = "terminating"
        self._abandon_resize()
        self._settle_probes()
        self._stage_due = None
        for container in self.containers:
            match container.state:
                case "image" | "pulling" | "stuck" | "devices" | "create" | "waiting":
                    container.due_s = None
                    if container.ended is not None:
                        container.state = "exited"
                case "backoff":
                    container.state, container.due_s = "exited", None
                case "running" if container.stop_at_s is not None:
                    # Stopped already, to be resized or by a probe; from now on within the pod's own time.
                    self._stop(container, now)
        self._stop_next(now)

    def advance_quietly(self, now: float) -> None:
        """Take the due steps; their actions come with the next call that returns some."""
        while (due := self.due_s) is not None and due <= now + EARLY_S:
            self._step(due)

    @property
    def due_s(self) -> float | None:
        """When the next thing happens by itself."""
        if self.state == "held":
            return None
        due = self._stage_due
        if self.termination is None and (limit := self.pod.spec.active_deadline_seconds) is not None:
            late_s = self.started_s + limit
            due = late_s if due is None or late_s < due else due
        at = self.actuation.due_s
        if at is not None and (due is None or at < due):
            due = at
        for container in self.containers:
            at = container.due_s
            if at is not None and (due is None or at < due):
                due = at
        return due

    # --- the start sequence (kubelet 3.3) ---

    def _step(self, t: float) -> None:
        limit = self.pod.spec.active_deadline_seconds
        if limit is not None and self.termination is None and self.started_s + limit <= t + EARLY_S:
            self._tell("DeadlineExceeded", TOO_LONG)
            grace_s = float(self.pod.spec.termination_grace_period_seconds)
            self._end(Termination("deadline", t + grace_s, "DeadlineExceeded", TOO_LONG), t)
            return
        if self._stage_due is not None and self._stage_due <= t:
            if self._stage_step(t):
                self.refresh(t)
                self._begin_guests(t)
                self._next_container(t)
            return
        if self.actuation.due_s is not None and self.actuation.due_s <= t:
            self._resize_step(t)
            return
        container = min(
            (c for c in self.containers if c.due_s is not None), key=lambda c: c.due_s if c.due_s is not None else t
        )
        match container.state:
            case "image" | "pulling" | "stuck":
                if self._image_step(container, t):
                    self.refresh(t)
                    self._next_container(t)
            case "create":
                if self._cannot_start(container, t):
                    self.refresh(t)
                    self._next_container(t)
                else:
                    self._created(container, t)
            case "running":
                self._running_step(container, t)
            case "backoff":
                self._begin(container, t)
            case _:
                container.due_s = None

    def _begin_guests(self, t: float) -> None:
        """Ephemeral containers wait for nobody but the sandbox, and nobody waits for them."""
        if self._stage != "containers" or self.state not in ("starting", "running"):
            return
        for container in self.containers:
            if container.kind == EPHEMERAL and container.state == "waiting":
                self._begin(container, t)

    def _next_container(self, t: float) -> None:
        """Begin the next container, if the one before it allows."""
        if self._stage != "containers" or not self._start_acked or self.state not in ("starting", "running"):
            return
        while self._cursor < len(self.containers):
            container = self.containers[self._cursor]
            match container.state:
                case _ if container.kind == EPHEMERAL:
                    self._cursor += 1
                case "waiting":
                    self._begin(container, t)
                    return
                case "exited" if container.kind != INIT or container.exit_code == 0:
                    self._cursor += 1
                case "stuck" if container.kind == MAIN:
                    self._cursor += 1
                case "running" | "backoff" if container.kind == MAIN or (
                    container.kind == SIDECAR and (container.probes is None or container.probes.is_started)
                ):
                    self._cursor += 1
                case _:
                    return
        self.refresh(t)

    def _begin(self, container: Container, t: float) -> None:
        container.state = "image"
        container.due_s = t + self._draw("image", container)
        if container.ended is None:
            container.waiting_reason = ""

    def _created(self, container: Container, t: float) -> None:
        """The runtime has it; it starts once the record says so durably (N2)."""
        self._tell("Created", f"Created container: {container.name}")
        container.created_total += 1
        container.state, container.due_s = "recording", None
        container.started_s = t
        container.stop_at_s = None
        if container.ended is not None:
            container.last, container.ended = container.ended, None
            container.restarts += 1
        self._sized(container)
        self._persist()
        container.record_seq = self._seq

    def _started(self, container: Container, now: float) -> None:
        if not self.ever_started:
            self.ever_started = True
            self._out.append(LogStart(container.name))
        container.run(container.started_s)
        self._measure_one(container, container.started_s)
        self._tell("Started", f"Started container {container.name}")
        self._reached(f"create {container.name}")
        if self.state == "starting" and container.kind == MAIN:
            self.state = "running"
        self.refresh(now)
        if self.termination is not None:
            self._stop(container, now)
        else:
            self._next_container(now)

    # --- running, restarting (kubelet 1, 3.3) ---

    def _running_step(self, container: Container, t: float) -> None:
        self._measure(t)
        end = container.exit_at()
        if end is not None and end[0] <= t:
            self._exited(container, t, end[1], end[2])
            return
        has_started = container.probes is not None and self._probed(container, t)
        container.turn(t)
        self.refresh(t)
        if has_started:
            self._next_container(t)

    def _exited(self, container: Container, t: float, code: int, reason: str) -> None:
        container.end(t, code, reason, self._times.text)
        if self.termination is not None:
            self.refresh(t)
            self._stop_next(t)
            return
        if container.name in self.actuation.restarting:
            # Stopped to be resized: that is no crash, and it comes back at once.
            self._begin(container, t)
            self.refresh(t)
            return
        if must_restart(container, self.pod.spec.restart_policy, code):
            if not self._back_off(container, t):
                self._begin(container, t)
            self.refresh(t)
            if container.kind != INIT:
                self._next_container(t)
            return
        if container.kind == INIT and code != 0:
            self._complete(t)
        elif container.kind == INIT:
            self._next_container(t)
            self.refresh(t)
        elif all(c.state == "exited" for c in self.containers if c.kind == MAIN):
            self._complete(t)
        else:
            self.refresh(t)
            self._next_container(t)

    def _back_off(self, container: Container, t: float) -> bool:
        policy, meta = self._policy, self.pod.metadata
        initial_s, max_s = policy.crashloop_initial_s, policy.crashloop_max_s
        if not back_off(container, self.pod, t, initial_s=initial_s, max_s=max_s):
            return False
        self._tell(
            "BackOff",
            f"Back-off restarting failed container {container.name} in pod {meta.name}_{meta.namespace}({meta.uid})",
            "Warning",
        )
        return True

    def _complete(self, t: float) -> None:
        """All that was to run has run: stop the sidecars."""
        self.termination = Termination("completed", t + float(self.pod.spec.termination_grace_period_seconds))
        self.state = "terminating"
        self._abandon_resize()
        self._settle_probes()
        for container in self.containers:
            if container.state in ("image", "pulling", "stuck", "devices", "create", "backoff"):
                container.due_s = None
                container.state = "exited" if container.ended is not None else "waiting"
        self._stop_next(t)

    # --- stopping (kubelet 3.4) ---

    def _stop(self, container: Container, t: float) -> None:
        assert self.termination is not None
        kill_at = max(self.termination.kill_at_s, t)
        container.stop(t, kill_at, kill_at - t, self._draw("stop", container))

    def _stop_next(self, t: float) -> None:
        """Stop main and init containers at once, then sidecars one by one in reverse order."""
        assert self.termination is not None
        if any(c.state == "recording" for c in self.containers):
            return
        running = [c for c in self.containers if c.is_running]
        if not running:
            self._stopped(t)
            return
        first = [c for c in running if c.kind != SIDECAR] or running[-1:]
        for container in first:
            if container.stop_at_s is None:
                if container.kind == SIDECAR:
                    # What the main containers left of the grace period; never nothing.
                    self.termination.kill_at_s = max(self.termination.kill_at_s, t + REMOVED_GRACE_S)
                self._tell("Killing", f"Stopping container {container.name}")
                self._stop(container, t)

    def _stopped(self, t: float) -> None:
        if self.state in ("stopped", "terminated"):
            return
        self.state = "stopped"
        if self.ever_started:
            self._out.append(LogStop(next(c.name for c in self.containers if c.has_run)))
            self._persist()
        else:
            self._terminated(t)

    def _terminated(self, now: float) -> None:
        if self._let_claims_go():
            return
        self.state = "terminated"
        self.refresh(now)
        self._out.append(Finished())

    # --- records ---

    def record(self) -> PodRecord:
        """Return what must survive this process."""
        return PodRecord(
            self.node,
            self.key.uid,
            self.key.generation,
            self.pod.metadata.namespace,
            self.pod.metadata.name,
            self.pod_ip,
            self.started_s,
            [c.record() for c in self.containers if c.has_run or c.state == "recording"],
            self.allocation,
            self.allocated,
            None if self.actual is self.allocated else self.actual,
            self.state in ("stopped", "terminated"),
            claims=self.claims,
        )

    def adopt(self, record: PodRecord, now: float) -> list[Action]:
        """Continue what a record says was started before this process was (N4); nothing starts twice."""
        self.started_s = record.start_s
        self.pod_ip = record.pod_ip or self.pod_ip
        self.allocated = record.allocated
        self.actual = record.actual or record.allocated
        lost: list[Container] = []
        recorded: dict[str, ContainerRecord] = {c.name: c for c in record.containers}
        reported = {s.name: s for s in (*self.pod.status.init_container_statuses, *self.pod.status.container_statuses)}
        for container in self.containers:
            found = recorded.get(container.name)
            if found is None:
                continue
            container.restarts, container.created_total = found.restarts, found.restarts + 1
            if container.script.must_pull:
                container.pull.is_done = True
                self._images.add(container.image, container.script.pull_s, now)
            status = reported.get(container.name)
            if status is not None and (gone := status.last_state.terminated):
                container.last = Ended(gone.exit_code, gone.reason, gone.started_at or "", gone.finished_at or "")
            container.run(found.started_s)
            if found.exit_code >= 0:
                is_lost = found.exit_code == LOST_EXIT and not record.is_finished
                reason = "Unknown" if is_lost else ""
                container.end(found.finished_s, found.exit_code, reason, self._times.text)
                if is_lost:
                    lost.append(container)
                continue
            self._measure_one(container, container.started_s)
            if container.probes is not None:
                self._resume_probes(container, status, self.node, now)
        self.ever_started = bool(recorded)
        self.claims, self._claiming = record.claims, "held" if record.claims else ""
        self.has_ip = True
        self._stage, self._stage_due = "containers", None
        self._start_acked = True
        for condition in self.pod.status.conditions:
            self.conditions[condition.type] = Condition(
                condition.status, condition.last_transition_time or "", condition.reason, condition.message,
                condition.observed_generation if condition.type in TAKEN_BACK else 0,
            )  # fmt: skip
        if record.is_finished:
            self.termination = Termination("completed", now)
            self.state = "stopped"
            self._abandon_resize()
            self._terminated(now)
            return self._flush(now)
        if lost:
            return self._begin_again(lost, now)
        if any(c.kind == MAIN and c.has_run for c in self.containers):
            self.state = "running"
        if self.actual is not self.allocated:
            self._continue_resize(now)
        else:
            self.conditions.pop(RESIZE_IN_PROGRESS, None)
        self._begin_guests(now)
        self._next_container(now)
        return self.advance(now)

    def _begin_again(self, lost: list[Container], now: float) -> list[Action]:
        """Run again what ended with the machine, as its restart policy allows: from the sandbox on (kubelet 6)."""
        self._abandon_resize()
        again = [c for c in lost if must_restart(c, self.pod.spec.restart_policy, LOST_EXIT)]
        is_running = any(c.is_running for c in self.containers)
        self.ever_started = is_running
        if not is_running and not any(c.kind == MAIN for c in again):
            self._complete(now)
            return self.advance(now)
        for container in again:
            container.state, container.due_s = "waiting", None
        self._cursor = 0
        if not is_running:
            for container in self.containers:
                if container.kind == INIT and container.ended is not None:
                    container.state = "waiting"
            self._tell("SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
            self.has_ip = False
            self._stage, self._stage_due = "sandbox", now + self._latency.of("sandbox")
        else:
            self._next_container(now)
        self.refresh(now)
        return self.advance(now)

    # --- what is asked for ---

    def _flush(self, now: float) -> list[Action]:
        """Return what is asked for. A status is only worth a write where the machine has come to wait for
        time to pass: what follows at once is written with what it leads to.
        """
        self._measure(now)
        out, self._out = self._out, []
        if self.state == "stopped":
            return out
        for container in self.containers:
            if container.state == "recording":
                return out
        out.append(_POKE)
        return out
