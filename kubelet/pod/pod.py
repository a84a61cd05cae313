"""One pod's life on one node, for one binding: start, run, restart, stop. A pure machine.

Its inputs are newer views of the pod, answers about its record, its devices and its claims, and the time.
Its outputs are effects (`effects`), in order. Its facts are in `PodContext`; each of its concerns is
handled by a part. It must never happen that a container runs before its record is durable (N2), that a
state goes backwards (`states`), or that a pod ends twice.

`advance` carries the machine to a moment, one due change after the other and each at its own time, so a
kubelet that was away catches up exactly. The machine never waits: it has its record made durable (`Save`)
and goes on when that is done. Source: kubelet 1, 3.2 to 3.4; guarantees N2, N3.
"""

from kubelet.effects import Effect, PodEnded, PodStarted, PodStopped, StatusChanged
from kubelet.managers.allocation import Allocation
from kubelet.pod import images, lifecycle, restarts, status
from kubelet.pod.container import EPHEMERAL, INIT, MAIN, SIDECAR, Container, Ended
from kubelet.pod.context import Condition, NodeRuntime, PodContext, Termination
from kubelet.pod.resize import Resize
from kubelet.pod.startup import ClaimState, Startup
from kubelet.pod.states import ContainerState, PodState
from kubelet.references.references import Answers
from kubelet.runtime.behavior import script_of
from kubelet.runtime.claims import HeldClaim
from kubelet.runtime.probers import probes_of
from kubelet.runtime.records import LOST_EXIT, PodRecord
from kubelet.runtime.resources import align_resources
from kubelet.runtime.script import StartFaults
from kubelet.status.versions import TAKEN_BACK
from kubelet.timers import EARLY_S
from kubelet.view import KubeletContainer, KubeletPod, WorkerKey
from services.api.kinds.pod import ContainerStatus
from services.api.meta import Key

REMOVED_GRACE_S = 1.0
"""Grace period of a pod's containers when its object vanished, in seconds (kubelet 3.4)."""
STATUS_CHANGED = StatusChanged()
TOO_LONG = "Pod was active on the node longer than the specified deadline"
_P, _C = PodState, ContainerState
_ENDED = (_P.STOPPED, _P.TERMINATED)
_MAY_START = (_P.STARTING, _P.RUNNING)


def has_run(shown: ContainerStatus) -> bool:
    """Whether the status is that of a container that was started."""
    return bool(shown.state.running or shown.state.terminated or shown.restart_count)


class Pod(PodContext):
    """The machine of one (uid, binding generation).

    Its parts: `startup` until containers may start, then for each container `images`, `lifecycle` and
    `restarts`, and beside them `resize` and `status`. `startup` and `resize` have a `due_s` of their own, the
    others keep theirs in `Container.due_s`; `_step` calls the part that is due.
    """

    __slots__ = ("_cursor", "resize", "start_is_acked", "startup")

    def __init__(
        self, pod: KubeletPod, key: WorkerKey, node: NodeRuntime, *, pod_ip: str, allocation: Allocation, now: float
    ) -> None:
        super().__init__(pod, key, node, pod_ip, allocation, now)
        self.start_is_acked = not node.policy.start_fence
        self._cursor = 0
        """Place of the container whose turn it is to start."""
        for spec in pod.spec.init_containers:
            self._add(spec, SIDECAR if spec.restart_policy == "Always" else INIT)
        for spec in pod.spec.containers:
            self._add(spec, MAIN)
        for spec in pod.spec.ephemeral_containers:
            self._add(spec, EPHEMERAL)
        self.startup = Startup(self, now)
        self.resize = Resize(self)
        status.refresh(self, now)

    def _add(self, spec: KubeletContainer, kind: str) -> None:
        completion_s = self.node.policy.completion_s
        script = script_of(
            self.pod,
            spec,
            is_init=kind in (INIT, SIDECAR),
            is_ephemeral=kind == EPHEMERAL,
            completion_s=completion_s if kind == MAIN else 0.0,
        )
        probes, policy, rules = probes_of(spec, script), spec.restart_policy, spec.restart_policy_rules
        self.containers.append(Container(spec.name, kind, spec.image, script, probes, policy, rules, self.node.pleg))

    @property
    def may_be_unbound(self) -> bool:
        """Whether no container of the pod ever ran here or is about to run."""
        return self.termination is None and not any(c.has_run or c.state == _C.RECORDING for c in self.containers)

    # --- what may happen to it ---

    def begin(self, now: float) -> list[Effect]:
        """Start the pod, or take the next due steps."""
        if self.pod.status.container_statuses:
            self._recall(now)
        return self.advance(now)

    def resume(self, record: PodRecord, now: float) -> list[Effect]:
        """Start the pod with its former allocation; the runtime has forgotten the pod (FM-K5)."""
        self.allocated = self.actual = align_resources(record.allocated, self.allocated)
        return self.begin(now)

    def advance(self, now: float) -> list[Effect]:
        """Perform all changes that are due by `now`, each at its own time."""
        self._catch_up(now)
        return self._flush(now)

    def unhold(self, now: float) -> list[Effect]:
        """Start the held pod, because its predecessor has ended; do nothing if the pod is not held."""
        if self.state != _P.HELD:
            return []
        self.become(_P.STARTING)
        self.startup.due_s = now + self.latency.of("worker")
        return self.advance(now)

    def on_saved(self, seq: int, now: float) -> list[Effect]:
        """Start the containers that wait for the record `seq`, which is durable now."""
        self.durable_seq = max(self.durable_seq, seq)
        for container in self.containers:
            if container.state == _C.RECORDING and container.record_seq <= self.durable_seq:
                self._on_started(container, now)
        if self.state == _P.STOPPED and self.saved_seq <= self.durable_seq:
            self._on_terminated(now)
        self.startup.on_saved(now)
        self.resize.go_on(now)
        return self.advance(now)

    def start_acked(self, now: float) -> list[Effect]:
        """Start containers, because a status with `startTime` was acknowledged (switch kubelet.start_fence)."""
        if self.start_is_acked:
            # Nothing new: a further write because of it would lead to a further acknowledgement, for ever.
            return []
        self.start_is_acked = True
        self._next_container(now)
        return self.advance(now)

    def update(self, pod: KubeletPod, now: float) -> list[Effect]:
        """Take a newer view of the pod; only the fields that may change in a running pod are considered."""
        self.pod = pod
        self.generation = max(self.generation, pod.metadata.generation)
        if pod.metadata.deletion_timestamp is not None:
            grace = pod.metadata.deletion_grace_period_seconds
            return self.terminate(now, 30.0 if grace is None else float(grace), "deleted")
        for spec in pod.spec.ephemeral_containers:
            if all(c.name != spec.name for c in self.containers):
                self._add(spec, EPHEMERAL)
        self._begin_ephemerals(now)
        self.measured_for = None  # annotations may have changed
        status.refresh(self, now)
        self.resize.retry(now)
        return self.advance(now)

    def faults_changed(self, faults: StartFaults, now: float) -> list[Effect]:
        """Replace the faults of pod starts on the node."""
        self._catch_up(now)
        self.startup.faults_changed(faults, now)
        return self.advance(now)

    def pleg_changed(self, now: float) -> list[Effect]:
        """Update when the node will notice changes of containers, because the relist timing changed."""
        self._catch_up(now)
        for container in self.containers:
            if container.is_running:
                lifecycle.pleg_changed(self, container, now)
        return self.advance(now)

    def claims_listed(self, claims: tuple[HeldClaim, ...], now: float) -> list[Effect]:
        """Take the claims whose devices the pod uses."""
        self.startup.claims_listed(claims)
        return self.advance(now)

    def claims_prepared(self, problem: str, now: float, claims: tuple[HeldClaim, ...] = ()) -> list[Effect]:
        """Take the result of preparing the pod's claims.

        `problem`: why it failed, or "". `claims`: the claims with the drivers' answers.
        """
        if claims:
            self.claims = claims
            self.save()
        self.startup.claims_prepared(problem, now)
        return self.advance(now)

    def volumes_attached(self, attached: tuple[Key, ...], now: float) -> list[Effect]:
        """Take the claims whose volumes the attach/detach controller has attached."""
        self.startup.volumes_attached(attached, now)
        return self.advance(now)

    def volumes_failed(self, problem: str, now: float) -> list[Effect]:
        """End this try of the volumes, because it is not known which volumes the pod needs."""
        self.startup.volumes_failed(problem, now)
        return self.advance(now)

    def claims_unprepared(self, now: float) -> list[Effect]:
        """Let the pod end once that is on disk, because no claim is held for it any more."""
        self.claims, self.startup.claims = (), ClaimState.RELEASED
        if self.state == _P.STOPPED and self.ever_started:
            self.save()
        elif self.state == _P.STOPPED:
            self._on_terminated(now)
        return self.advance(now)

    def devices_prepared(self, name: str, problem: str, now: float) -> list[Effect]:
        """Take the result of preparing a container's devices; `problem`: why plugins could not, or ""."""
        container = next((c for c in self.containers if c.name == name and c.state == _C.DEVICES), None)
        if container is not None:
            images.devices_prepared(self, container, problem, now)
            if problem:
                status.refresh(self, now)
        return self.advance(now)

    def references_read(self, name: str, answers: Answers, now: float) -> list[Effect]:
        """Take the objects to which a container's variables refer, or with name "" those of the pod's volumes."""
        if not name:
            self.startup.references_read(answers, now)
            return self.advance(now)
        container = next((c for c in self.containers if c.name == name and c.state == _C.CONFIG), None)
        if container is not None and (problem := images.references_read(self, container, answers, now)):
            self.startup.faults.stop_container(container, "CreateContainerConfigError", problem, now)
            status.refresh(self, now)
            self._next_container(now)
        return self.advance(now)

    def process_ended(self, name: str, code: int, now: float) -> list[Effect]:
        """Take the end of a container's process, which ended by itself."""
        self._catch_up(now)
        for container in self.containers:
            if container.name == name and container.is_running:
                container.process_ended(now, code)
        return self.advance(now)

    def allocate(self, pod: KubeletPod, now: float) -> list[Effect]:
        """Apply the size that the pod requests now, which the node has allocated (kep-1287 5)."""
        self._catch_up(now)
        self.resize.allocate(pod, now)
        return self.advance(now)

    def terminate(
        self, now: float, grace_s: float, cause: str, *, reason: str = "", message: str = "", disruption: bool = False
    ) -> list[Effect]:
        """Stop all containers within `grace_s`; a later call can only shorten the time."""
        kill_at_s = now + max(grace_s, REMOVED_GRACE_S)
        if self.state in _ENDED:
            return self._flush(now)
        self._catch_up(now)
        if self.termination is not None:
            if kill_at_s < self.termination.kill_at_s:
                self.termination.kill_at_s = kill_at_s
                for container in self.containers:
                    if container.is_running and container.stop_at_s is not None:
                        self._stop(container, now)
            return self.advance(now)
        self._end(Termination(cause, kill_at_s, reason, message, disruption), now)
        return self.advance(now)

    # --- taken over from an earlier kubelet ---

    def _recall(self, now: float) -> None:
        """Take for ended what the API server knows to have run and the runtime does not: its record was lost."""
        lost: list[Container] = []
        reported = self._reported_statuses()
        for container in self.containers:
            known = reported.get(container.name)
            if known is None or not has_run(known):
                continue
            container.restarts, container.created_total = known.restart_count, known.restart_count + 1
            container.started_s = now
            ended = known.state.terminated
            code, reason = (ended.exit_code, ended.reason) if ended else (LOST_EXIT, "Unknown")
            container.end(now, code, reason, self.time_text)
            lost.append(container)
        if not lost:
            return
        self.effects.append(PodStopped(lost[0].name))
        again = [c for c in lost if c.kind == INIT or c.must_restart(self.pod.spec.restart_policy, c.exit_code)]
        mains = [c for c in self.containers if c.kind == MAIN]
        if all(c in lost and c not in again for c in mains):
            self.startup.due_s = None
            self._complete(now)
            return
        for container in again:
            container.become(_C.WAITING)

    def _reported_statuses(self) -> dict[str, ContainerStatus]:
        shown = self.pod.status
        return {each.name: each for each in (*shown.init_container_statuses, *shown.container_statuses)}

    def adopt(self, record: PodRecord, now: float) -> list[Effect]:
        """Continue the containers that a record shows as started by an earlier process (N4); nothing starts twice."""
        self.started_s = record.start_s
        self.pod_ip = record.pod_ip or self.pod_ip
        asked = self.allocated
        self.allocated = align_resources(record.allocated, asked)
        self.actual = self.allocated if record.actual is None else align_resources(record.actual, asked)
        lost = self._adopt_containers(record, now)
        self.ever_started = bool(record.containers)
        self.startup.recover(record.claims, is_finished=record.is_finished)
        self.start_is_acked = True
        for condition in self.pod.status.conditions:
            self.conditions[condition.type] = Condition(
                condition.status,
                condition.last_transition_time or "",
                condition.reason,
                condition.message,
                condition.observed_generation if condition.type in TAKEN_BACK else 0,
            )
        if record.is_finished:
            self.termination = Termination("completed", now)
            self.become(_P.STOPPED)
            self.resize.abandon()
            self._on_terminated(now)
            return self._flush(now)
        if lost:
            return self._begin_again(lost, now)
        if any(c.kind == MAIN and c.has_run for c in self.containers):
            self.become(_P.RUNNING)
        self.resize.recover(now)
        self._begin_ephemerals(now)
        self._next_container(now)
        return self.advance(now)

    def _adopt_containers(self, record: PodRecord, now: float) -> list[Container]:
        """Have each container be what the record says; return those that ended with the machine."""
        lost: list[Container] = []
        recorded = {c.name: c for c in record.containers}
        reported = self._reported_statuses()
        for container in self.containers:
            container_record = recorded.get(container.name)
            if container_record is None:
                continue
            container.restarts, container.created_total = container_record.restarts, container_record.restarts + 1
            images.recover(self, container, now)
            known = reported.get(container.name)
            if known is not None and (gone := known.last_state.terminated):
                container.last = Ended(gone.exit_code, gone.reason, gone.started_at or "", gone.finished_at or "")
            container.run(container_record.started_s)
            if container_record.exit_code >= 0:
                is_lost = container_record.exit_code == LOST_EXIT and not record.is_finished
                container.end(
                    container_record.finished_s,
                    container_record.exit_code,
                    "Unknown" if is_lost else "",
                    self.time_text,
                )
                if is_lost:
                    lost.append(container)
                continue
            lifecycle.measure(self, container, container.started_s)
            lifecycle.resume_probes(self, container, known, now)
        return lost

    def _begin_again(self, lost: list[Container], now: float) -> list[Effect]:
        """Run again what ended with the machine, as its restart policy allows: from the sandbox on (kubelet 6)."""
        self.resize.abandon()
        again = [c for c in lost if c.must_restart(self.pod.spec.restart_policy, LOST_EXIT)]
        is_running = any(c.is_running for c in self.containers)
        self.ever_started = is_running
        if not is_running and not any(c.kind == MAIN for c in again):
            self._complete(now)
            return self.advance(now)
        for container in again:
            container.become(_C.WAITING)
        self._cursor = 0
        if not is_running:
            for container in self.containers:
                if container.kind == INIT and container.state == _C.EXITED:
                    container.become(_C.WAITING)
            self.startup.make_sandbox_again(now)
        else:
            self._next_container(now)
        status.refresh(self, now)
        return self.advance(now)

    # --- time ---

    @property
    def due_s(self) -> float | None:
        """The time of the next change that happens by itself."""
        if self.state == _P.HELD:
            return None
        due = self.startup.due_s
        if self.termination is None and (limit := self.pod.spec.active_deadline_seconds) is not None:
            late_s = self.started_s + limit
            due = late_s if due is None or late_s < due else due
        at = self.resize.due_s
        if at is not None and (due is None or at < due):
            due = at
        for container in self.containers:
            at = container.due_s
            if at is not None and (due is None or at < due):
                due = at
        return due

    def _catch_up(self, now: float) -> None:
        while (due := self.due_s) is not None and due <= now + EARLY_S:
            self._step(due)

    def _step(self, t: float) -> None:
        limit = self.pod.spec.active_deadline_seconds
        if limit is not None and self.termination is None and self.started_s + limit <= t + EARLY_S:
            self.event("DeadlineExceeded", TOO_LONG)
            grace_s = float(self.pod.spec.termination_grace_period_seconds)
            self._end(Termination("deadline", t + grace_s, "DeadlineExceeded", TOO_LONG), t)
            return
        if self.startup.due_s is not None and self.startup.due_s <= t:
            if self.startup.step(t):
                status.refresh(self, t)
                self._begin_ephemerals(t)
                self._next_container(t)
            return
        if self.resize.due_s is not None and self.resize.due_s <= t:
            self.resize.step(t)
            return
        container = min(
            (c for c in self.containers if c.due_s is not None), key=lambda c: c.due_s if c.due_s is not None else t
        )
        match container.state:
            case _C.IMAGE | _C.PULLING | _C.STUCK:
                if images.step(self, container, t):
                    status.refresh(self, t)
                    self._next_container(t)
            case _C.CREATE:
                if self.startup.faults.stops_container(container, t):
                    status.refresh(self, t)
                    self._next_container(t)
                else:
                    self._on_created(container, t)
            case _C.RUNNING:
                self._run(container, t)
            case _C.BACKOFF:
                if restarts.step(self, container, t):
                    self._begin(container, t)
                else:
                    status.refresh(self, t)
            case _:
                container.due_s = None

    def _flush(self, now: float) -> list[Effect]:
        # A status is only worth a write where the machine has come to wait for time to pass: what follows at once is
        # written with what it leads to.
        lifecycle.step_memory(self, now)
        effects, self.effects = self.effects, []
        if self.state == _P.STOPPED:
            return effects
        for container in self.containers:
            if container.state == _C.RECORDING:
                return effects
        effects.append(STATUS_CHANGED)
        return effects

    # --- containers start (kubelet 3.3) ---

    def _begin_ephemerals(self, t: float) -> None:
        """Ephemeral containers wait for the sandbox alone, and nothing waits for them."""
        if not self.startup.is_done or self.state not in _MAY_START:
            return
        for container in self.containers:
            if container.kind == EPHEMERAL and container.state == _C.WAITING:
                self._begin(container, t)

    def _next_container(self, t: float) -> None:
        """Begin the next container, if the one before it allows."""
        if not self.startup.is_done or not self.start_is_acked or self.state not in _MAY_START:
            return
        while self._cursor < len(self.containers):
            container = self.containers[self._cursor]
            match container.state:
                case _ if container.kind == EPHEMERAL:
                    self._cursor += 1
                case _C.WAITING:
                    self._begin(container, t)
                    return
                case _C.EXITED if container.kind != INIT or container.exit_code == 0:
                    self._cursor += 1
                case _C.STUCK if container.kind == MAIN:
                    self._cursor += 1
                case _C.RUNNING | _C.BACKOFF if self._lets_pass(container):
                    self._cursor += 1
                case _:
                    return
        status.refresh(self, t)

    @staticmethod
    def _lets_pass(container: Container) -> bool:
        """Whether the next container may start beside this one; none starts while a postStart hook runs."""
        if container.kind == MAIN:
            return not container.is_hooked
        has_started = container.probes is None or container.probes.is_started
        return container.kind == SIDECAR and not container.is_hidden and has_started

    def _begin(self, container: Container, t: float) -> None:
        container.look_for_image(t + self.draw("image", container))

    def _on_created(self, container: Container, t: float) -> None:
        """The runtime has it; it starts once the record says so durably (N2)."""
        self.event("Created", "Container created", of=container)
        container.on_created(t)
        self.resize.container_created(container)
        self.save()
        container.record_seq = self.saved_seq

    def _on_started(self, container: Container, now: float) -> None:
        if not self.ever_started:
            self.ever_started = True
            self.effects.append(PodStarted(container.name))
        container.run(container.started_s)
        lifecycle.measure(self, container, container.started_s)
        self.event("Started", "Container started", of=container)
        self.reach(f"create {container.name}")
        if self.termination is None:
            lifecycle.begin(self, container, now)
        self._note_running(container)
        status.refresh(self, now)
        if self.termination is not None:
            self._stop(container, now)
        else:
            self._next_container(now)

    def _note_running(self, container: Container) -> None:
        """The pod runs once the node has noticed that one of its main containers does."""
        if self.state == _P.STARTING and container.kind == MAIN and container.is_seen:
            self.become(_P.RUNNING)

    # --- containers run, end, and are restarted (kubelet 1, 3.3) ---

    def _run(self, container: Container, t: float) -> None:
        lifecycle.step_memory(self, t)
        may_follow = lifecycle.step_hooks(self, container, t)
        end = container.ended_by(t)
        if end is not None:
            self._on_exited(container, t, end)
            return
        may_follow = lifecycle.step_probes(self, container, t) or may_follow
        container.turn(t)
        self._note_running(container)
        status.refresh(self, t)
        if may_follow:
            self._next_container(t)

    def _on_exited(self, container: Container, t: float, end: tuple[float, int, str]) -> None:
        """It is known at `t` how the container ended."""
        at_s, code, reason = end
        container.end(at_s, code, reason, self.time_text)
        if self.termination is not None:
            status.refresh(self, t)
            self._stop_next(t)
        elif container.name in self.resize.restarting:
            # Stopped to be resized: that is no crash, and it comes back at once.
            self._begin(container, t)
            status.refresh(self, t)
        elif container.must_restart(self.pod.spec.restart_policy, code):
            if not restarts.back_off(self, container, at_s, t):
                self._begin(container, t)
            status.refresh(self, t)
            if container.kind != INIT:
                self._next_container(t)
        elif container.kind == INIT and code != 0:
            self._complete(t)
        elif container.kind == INIT:
            self._next_container(t)
            status.refresh(self, t)
        elif all(c.state == _C.EXITED for c in self.containers if c.kind == MAIN):
            self._complete(t)
        else:
            # A boot of the machine would take it for running until then, and its script does not say that its own shell
            # or a probe has ended it.
            self.save()
            status.refresh(self, t)
            self._next_container(t)

    # --- the pod stops (kubelet 3.4) ---

    def _complete(self, t: float) -> None:
        """All that was to run has run: stop the sidecars."""
        self._leave(Termination("completed", t + float(self.pod.spec.termination_grace_period_seconds)))
        for container in self.containers:
            container.turn_back()
        self._stop_next(t)

    def _end(self, termination: Termination, now: float) -> None:
        self._leave(termination)
        self.startup.due_s = None
        for container in self.containers:
            if container.may_start and container.state != _C.RECORDING:
                container.give_up()
            elif container.is_running and container.stop_at_s is not None:
                # Stopped already, to be resized or by a probe; from now on within the pod's own time.
                self._stop(container, now)
        self._stop_next(now)

    def _leave(self, termination: Termination) -> None:
        """Be stopped from now on: it is resized no more, and no startup or liveness probe is asked."""
        self.termination = termination
        self.become(_P.TERMINATING)
        self.resize.abandon()
        for container in self.containers:
            if container.probes is not None:
                container.probes.settle()

    def _stop(self, container: Container, t: float) -> None:
        assert self.termination is not None
        kill_at = max(self.termination.kill_at_s, t)
        container.stop(t, kill_at, kill_at - t, self.draw("stop", container))

    def _stop_next(self, t: float) -> None:
        """Stop main and init containers at once, then sidecars one by one in reverse order."""
        assert self.termination is not None
        if any(c.state == _C.RECORDING for c in self.containers):
            return
        running = [c for c in self.containers if c.is_running]
        if not running:
            self._on_stopped(t)
            return
        first = [c for c in running if c.kind != SIDECAR] or running[-1:]
        for container in first:
            if container.stop_at_s is None:
                if container.kind == SIDECAR:
                    # What the main containers left of the grace period; never nothing.
                    self.termination.kill_at_s = max(self.termination.kill_at_s, t + REMOVED_GRACE_S)
                self.event("Killing", f"Stopping container {container.name}", of=container)
                self._stop(container, t)

    def _on_stopped(self, t: float) -> None:
        if self.state in _ENDED:
            return
        self.become(_P.STOPPED)
        if self.ever_started:
            self.effects.append(PodStopped(next(c.name for c in self.containers if c.has_run)))
            self.save()
        else:
            self._on_terminated(t)

    def _on_terminated(self, now: float) -> None:
        if self.startup.release_claims():
            return
        self.become(_P.TERMINATED)
        status.refresh(self, now)
        self.effects.append(PodEnded())
