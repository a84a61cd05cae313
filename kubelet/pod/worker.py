"""One pod's life on one node, for one binding: start, run, restart, stop. A pure machine.

`advance` carries the machine to a moment, one due thing after the other and each at its own time, so a
kubelet that was away catches up exactly. The machine never waits: it asks for its record to be made
durable (`Persist`) before a container counts as started, and is told when that is so.
Source: kubelet 3.2 to 3.4; guarantees N2, N3.
"""

from __future__ import annotations

from kubelet.pod.actions import Action, LogStop, Poke
from kubelet.pod.restarts import must_restart
from kubelet.pod.running import REMOVED_GRACE_S, RunningPod
from kubelet.pod.status import RESIZE_IN_PROGRESS, Condition, Termination
from kubelet.runtime.claim_record import HeldClaim
from kubelet.runtime.fake_cri import (
    EPHEMERAL,
    INIT,
    LOST_EXIT,
    MAIN,
    Container,
    ContainerRecord,
    Ended,
    PodRecord,
)
from kubelet.runtime.start_faults import StartFaults
from kubelet.runtime.volumes import claims_of
from kubelet.status.versions import TAKEN_BACK
from kubelet.timers import EARLY_S
from kubelet.view import KubeletPod
from services.api.kinds.pod import ContainerStatus

_POKE = Poke()


def has_run(status: ContainerStatus) -> bool:
    """Whether this tells of a container that was started."""
    return bool(status.state.running or status.state.terminated or status.restart_count)


class PodWorker(RunningPod):
    """The machine of one (uid, binding generation): what may happen to it, and what must survive this process."""

    __slots__ = ()

    # --- what may happen to it ---

    def begin(self, now: float) -> list[Action]:
        """Start, or take the next due steps."""
        if self.pod.status.container_statuses:
            self._recall(now)
        return self.advance(now)

    def go_on(self, record: PodRecord, now: float) -> list[Action]:
        """Start with what was promised before; the runtime has forgotten the pod (FM-K5)."""
        self.allocated = self.actual = record.allocated
        return self.begin(now)

    def _recall(self, now: float) -> None:
        """Take for ended what the API server knows to have run and the runtime does not: its record was lost."""
        status = self.pod.status
        reported = {each.name: each for each in (*status.init_container_statuses, *status.container_statuses)}
        lost: list[Container] = []
        for container in self.containers:
            told = reported.get(container.name)
            if told is None or not has_run(told):
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

    def noticing_turned(self, now: float) -> list[Action]:
        """It is another time at which the node notices what containers do."""
        self.advance_quietly(now)
        for container in self.containers:
            if container.is_running:
                self._look_again(container, now)
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
        if not record.is_finished:
            self._attached.take(self.key, claims_of(self.pod))
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
