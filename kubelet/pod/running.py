"""One pod's containers as time goes by: they start one by one, run, end, are begun again, and stop. A pure machine.

Every step happens at its own time, in order, however late it is taken. What others want of the pod is the worker's
affair (`worker`). Source: kubelet 1, 3.3, 3.4; guarantees N2.
"""

from __future__ import annotations

import msgspec

from kubelet.managers.resource_managers import Allocation
from kubelet.pod.actions import Finished, LogStart, LogStop
from kubelet.pod.claimed import ClaimingPod
from kubelet.pod.restarts import back_off, must_restart
from kubelet.pod.starting import NO_FAULTS
from kubelet.pod.status import Termination, WallTimes
from kubelet.runtime.fake_cri import (
    EPHEMERAL,
    INIT,
    MAIN,
    SIDECAR,
    Container,
)
from kubelet.runtime.images import NodeImages
from kubelet.runtime.latency import PodLatency
from kubelet.runtime.pleg import AT_ONCE, Pleg
from kubelet.runtime.probers import probes_of
from kubelet.runtime.script import script_of
from kubelet.runtime.start_faults import StartFaults
from kubelet.runtime.volumes import NodeVolumes
from kubelet.timers import EARLY_S
from kubelet.view import KubeletContainer, KubeletPod, WorkerKey

REMOVED_GRACE_S = 1.0
"""The object vanished: its containers get this long (kubelet 3.4)."""


TOO_LONG = "Pod was active on the node longer than the specified deadline"


class Policy(msgspec.Struct, frozen=True):
    """Settings all workers of a host share. Seconds."""

    crashloop_initial_s: float = 10.0
    crashloop_max_s: float = 300.0
    start_fence: bool = False


class RunningPod(ClaimingPod):
    """The steps of one pod's machine. Invariant: `state` only moves forward, and `Finished` is said exactly once."""

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
        pleg: Pleg = AT_ONCE,
        volumes: NodeVolumes | None = None,
    ) -> None:
        super().__init__(pod, key, host_ip=host_ip, pod_ip=pod_ip, latency=latency, times=times, now=now)
        self._pleg = pleg
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
        self._attached = NodeVolumes() if volumes is None else volumes
        self._begin_start(now, node_faults)
        self.refresh(now)

    def _add(self, spec: KubeletContainer, kind: str) -> None:
        script = script_of(self.pod, spec, is_init=kind in (INIT, SIDECAR), is_ephemeral=kind == EPHEMERAL)
        container = Container(spec.name, kind, spec.image, script, probes_of(spec, script))
        container.policy, container.rules = spec.restart_policy, spec.restart_policy_rules
        container.pleg = self._pleg
        self.containers.append(container)

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
                if not self._still_waits(container, t):
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
                case "running" | "backoff" if self._lets_pass(container):
                    self._cursor += 1
                case _:
                    return
        self.refresh(t)

    def _lets_pass(self, container: Container) -> bool:
        """Whether the next container may start beside this one; nobody starts while a postStart hook runs."""
        if container.kind == MAIN:
            return not container.is_hooked
        return container.kind == SIDECAR and not container.is_hidden and (
            container.probes is None or container.probes.is_started
        )  # fmt: skip

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
        if self.termination is None:
            self._come_up(container, now)
        self._take_place(container)
        self.refresh(now)
        if self.termination is not None:
            self._stop(container, now)
        else:
            self._next_container(now)

    def _take_place(self, container: Container) -> None:
        """The pod runs once it is known that one of its main containers does."""
        if self.state == "starting" and container.kind == MAIN and container.is_seen:
            self.state = "running"

    # --- running, restarting (kubelet 1, 3.3) ---

    def _running_step(self, container: Container, t: float) -> None:
        self._measure(t)
        is_new = self._hooked(container, t)
        end = container.ended_by(t)
        if end is not None:
            self._exited(container, t, end)
            return
        has_started = container.is_seen and container.probes is not None and self._probed(container, t)
        container.turn(t)
        self._take_place(container)
        self.refresh(t)
        if has_started or is_new:
            self._next_container(t)

    def _exited(self, container: Container, t: float, end: tuple[float, int, str]) -> None:
        """It is known at `t` how the container ended."""
        at_s, code, reason = end
        container.end(at_s, code, reason, self._times.text)
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
            if not self._back_off(container, at_s, t):
                self._begin(container, t)
            elif container.hook_error:
                self._excuse(container, t)
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

    def _back_off(self, container: Container, ended_s: float, t: float) -> bool:
        policy, meta = self._policy, self.pod.metadata
        initial_s, max_s = policy.crashloop_initial_s, policy.crashloop_max_s
        if not back_off(container, self.pod, ended_s, initial_s=initial_s, max_s=max_s):
            return False
        container.due_s = max(container.due_s or t, t)
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
