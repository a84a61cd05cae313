"""One container of a pod: its state, its next change, and its end. Pure.

A container here only takes time: its script says when it exits, when it is ready and what a SIGTERM does,
and requests to stop it and the memory it uses do the rest. The pod (`pod`) moves it from state to state.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from kubelet.pod.states import CONTAINER_TRANSITIONS, ContainerState, IllegalTransition
from kubelet.runtime.pleg import AT_ONCE, Pleg
from kubelet.runtime.probers import ContainerProbes
from kubelet.runtime.script import CONTAINER_STAGES, Script, StartFaults
from kubelet.view import RestartRule

INIT, SIDECAR, MAIN, EPHEMERAL = "init", "sidecar", "main", "ephemeral"
_FIELDS = {INIT: "initContainers", SIDECAR: "initContainers", MAIN: "containers", EPHEMERAL: "ephemeralContainers"}
SIGKILL_EXIT = 137
PRESTOP_OVERRUN_S = 2.0
_C = ContainerState
_STARTING = (_C.IMAGE, _C.PULLING, _C.STUCK, _C.DEVICES, _C.CONFIG, _C.CREATE)
_HAVE_RUN = (_C.RUNNING, _C.BACKOFF, _C.EXITED)


class Ended(msgspec.Struct, frozen=True, rename="camel"):
    """The end of a container run as its status shows it.

    Times are text (RFC 3339), because a restarted kubelet has only that.
    """

    exit_code: int
    reason: str
    started_at: str
    finished_at: str


@dataclass(slots=True)
class Pull:
    """The progress of a container's image pull: its first try, its last failure, and the back-off after that."""

    first_s: float | None = None
    failed_s: float = 0.0
    backoff_s: float = 0.0
    done_s: float = 0.0
    took_s: float = 0.0
    waited_s: float = 0.0
    is_done: bool = False


_PRESENT = Pull()
"""The pull of all containers whose image is on the node; it is never changed."""


@dataclass(slots=True, eq=False)
class Container:
    """One container of one pod over all its restarts.

    `state` is changed by `become` only, along `CONTAINER_TRANSITIONS`; each state says there what it waits for.
    `due_s` is the time of the next change that happens by itself; None: there is none.
    """

    name: str
    kind: str
    image: str
    script: Script
    probes: ContainerProbes | None = None
    own_policy: str = ""
    """The container's own restart policy; "": that of its pod."""
    rules: tuple[RestartRule, ...] = ()
    pleg: Pleg = AT_ONCE
    state: ContainerState = _C.WAITING
    due_s: float | None = None
    restarts: int = 0
    created_total: int = 0
    backoff_s: float | None = None
    """The back-off before its last restart; 0 for the first, which does not wait; None: it never crashed."""
    backoff_until_s: float | None = None
    """The end of its back-off, while it waits for a sync before that."""
    started_s: float = 0.0
    finished_s: float = 0.0
    former_end_s: float | None = None
    """The end of the run before the present one."""
    exit_code: int = 0
    is_ready: bool = False
    ended: Ended | None = None
    """The end of the present run; None while it goes on, and before the first."""
    last: Ended | None = None
    """The end of the run before the present one, as its status shows it."""
    record_seq: int = 0
    pull: Pull = field(init=False)
    faults: StartFaults | None = field(init=False)
    oom_at_s: float | None = None
    """The time at which it will exceed its memory limit."""
    stop_at_s: float | None = None
    stop_code: int = 0
    unhealthy: str = ""
    """The probe because of which this run is being ended."""
    waiting_reason: str = ""
    waiting_message: str = ""
    seen_s: float | None = None
    """The time at which the node will notice that it runs; None: it has been noticed.

    Infinity: after its postStart hook.
    """
    hook_at_s: float | None = None
    """The time at which a hook ends: its postStart hook, or a preStop hook that fails."""
    hook_error: str = ""
    """The error of its postStart hook."""

    def __post_init__(self) -> None:
        self.pull = _PRESENT if not self.script.must_pull else Pull()
        own = [fault for fault in self.script.start_faults if fault.stage in CONTAINER_STAGES]
        self.faults = StartFaults(own) if own else None

    def become(self, state: ContainerState, due_s: float | None = None) -> None:
        """Change the state and set the time of the next change. Raises: IllegalTransition."""
        if state not in CONTAINER_TRANSITIONS[self.state]:
            raise IllegalTransition(f"container {self.name}: {self.state.name} -> {state.name}")
        self.state, self.due_s = state, due_s

    def look_for_image(self, due_s: float) -> None:
        """Begin a start; the image is looked up at `due_s`."""
        self.become(_C.IMAGE, due_s)
        if self.ended is None:
            self.waiting_reason = ""

    def wait_for_sync(self, due_s: float, reason: str, message: str) -> None:
        """Wait for the next sync of the pod, and set the waiting reason for the status."""
        self.waiting_reason, self.waiting_message = reason, message
        self.become(_C.STUCK, due_s)

    def on_created(self, t: float) -> None:
        """Count the container as created by the runtime; it counts as started once its record is durable."""
        self.become(_C.RECORDING)
        self.created_total += 1
        self.started_s = t
        self.stop_at_s = None
        if self.ended is not None:
            self.last, self.ended = self.ended, None
            self.restarts += 1

    def run(self, started_s: float) -> None:
        """Become running since `started_s`."""
        self.become(_C.RUNNING)
        self.started_s, self.oom_at_s = started_s, None
        self.waiting_reason = self.waiting_message = self.unhealthy = ""
        self.seen_s = self.hook_at_s = None
        if self.probes is not None:
            self.probes.run(started_s)
        self.turn(started_s)

    def end(self, at_s: float, code: int, reason: str, text: Callable[[float], str]) -> None:
        """Become exited."""
        self.become(_C.EXITED)
        self.is_ready = False
        self.former_end_s = self.finished_s if self.created_total > 1 else None
        self.finished_s, self.exit_code = at_s, code
        self.seen_s = self.hook_at_s = None
        self.ended = Ended(code, reason or ("Completed" if code == 0 else "Error"), text(self.started_s), text(at_s))

    def give_up(self) -> None:
        """Start no more, because the pod is being ended. A container that never ran keeps its reason for the status."""
        self.due_s = None
        if self.ended is not None and (self.is_starting or self.state in (_C.WAITING, _C.BACKOFF)):
            self.become(_C.EXITED)

    def turn_back(self) -> None:
        """Return to the state before the pending start, because all other containers have run."""
        if self.state == _C.BACKOFF or self.is_starting:
            self.become(_C.WAITING if self.ended is None else _C.EXITED)

    @property
    def is_starting(self) -> bool:
        """Whether a start is under way that is not durable yet."""
        return self.state in _STARTING

    @property
    def is_running(self) -> bool:
        """Whether its process exists."""
        return self.state == _C.RUNNING

    @property
    def must_pull(self) -> bool:
        """Whether its image has to be pulled: its script says so, or it was deleted from the node."""
        return self.pull is not _PRESENT

    @property
    def may_start(self) -> bool:
        """Whether it has still to start, or to restart."""
        return self.state not in (_C.RUNNING, _C.EXITED)

    @property
    def is_started(self) -> bool:
        """Whether its process exists and its startup probe has succeeded."""
        if self.state != _C.RUNNING or self.seen_s is not None:
            return False
        return self.probes is None or self.probes.is_started

    @property
    def is_seen(self) -> bool:
        """Whether its process exists and the node has noticed it."""
        return self.state == _C.RUNNING and self.seen_s is None

    @property
    def is_hidden(self) -> bool:
        """Whether its process exists and the node has not noticed it yet."""
        return self.state == _C.RUNNING and self.seen_s is not None

    @property
    def is_hooked(self) -> bool:
        """Whether its postStart hook is running."""
        return self.seen_s == math.inf and self.hook_at_s is not None

    @property
    def was_seen(self) -> bool:
        """Whether the node has noticed that it ever ran."""
        if self.restarts > 0:
            return True
        if self.state == _C.RUNNING:
            return self.seen_s is None
        return self.state in _HAVE_RUN or self.ended is not None

    @property
    def has_run(self) -> bool:
        """Whether it was ever started."""
        return self.state in _HAVE_RUN or self.restarts > 0 or self.ended is not None

    @property
    def field_path(self) -> str:
        """Its place in the pod, as Events name it: `spec.containers{app}` (upstream `fieldPath`)."""
        return f"spec.{_FIELDS[self.kind]}{{{self.name}}}"

    def policy(self, pod_policy: str) -> str:
        """Return its restart policy: its own, or else its pod's (KEP-5307)."""
        return "Always" if self.kind == SIDECAR else self.own_policy or pod_policy

    def must_restart(self, pod_policy: str, code: int) -> bool:
        """Whether it restarts after this exit code; a run that a probe ended counts as failed."""
        if self.kind in (SIDECAR, EPHEMERAL):
            return self.kind == SIDECAR
        policy = self.policy(pod_policy)
        if any((code in rule.exit_codes.values) == (rule.exit_codes.operator == "In") for rule in self.rules):
            return self.kind != INIT or code != 0
        if self.unhealthy:
            return policy != "Never"
        if self.kind == INIT:
            return code != 0 and policy != "Never"
        return policy == "Always" or (policy == "OnFailure" and code != 0)

    def conceal(self, until_s: float, hook_at_s: float | None = None) -> None:
        """Delay the time at which the node notices the container; no probe runs before."""
        self.seen_s, self.hook_at_s = until_s, hook_at_s
        if self.probes is not None:
            self.probes.wait()
        self.turn(self.started_s)

    def reveal(self, now: float) -> None:
        """Let the node notice the container."""
        self.seen_s = None
        if self.probes is not None:
            self.probes.run(self.started_s, now)
        self.turn(now)

    def exit_at(self) -> tuple[float, int, str] | None:
        """Return when, with which code and why its process ends, as far as is known now; None: it runs on."""
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
        """Return `exit_at` if that time is past and the node has noticed the end."""
        end = self.exit_at()
        return None if end is None or self._noticed_s(end[0], now) > now else end

    def _noticed_s(self, end_s: float, now: float) -> float:
        """Return when the node knows of an end: at once when it stops the container, after the hook it waits for."""
        if self.stop_at_s is not None:
            return max(end_s, now)
        return math.inf if self.is_hooked else self.pleg.notices_s(end_s)

    def _set_due(self, now: float) -> None:
        """Find the next change after `now`: end, a hook's end, being noticed, a turn of readiness, or a probe."""
        due = math.inf if (end := self.exit_at()) is None else self._noticed_s(end[0], now)
        for at_s in (self.hook_at_s, self.seen_s, None if self.probes is None else self.probes.due_s):
            if at_s is not None and at_s < due:
                due = at_s
        has_script = self.kind in (MAIN, SIDECAR) and (self.probes is None or self.probes.is_ready is None)
        if has_script and (age_s := self.script.next_turn_s(now - self.started_s)) is not None:
            due = min(due, self.started_s + age_s)
        self.due_s = None if due == math.inf else due

    def turn(self, now: float) -> None:
        """Recompute readiness at `now` and the next change. A readiness probe decides, or else the script."""
        said = None if self.probes is None else self.probes.is_ready
        is_ready = self.script.is_ready(now - self.started_s) if said is None else said
        self.is_ready = self.kind in (MAIN, SIDECAR) and self.is_started and is_ready
        self._set_due(now)

    def process_ended(self, now: float, code: int) -> None:
        """Take the end of its process, to which a client was attached."""
        if self.stop_at_s is None or now < self.stop_at_s:
            self.stop_at_s, self.stop_code = now, code
        self._set_due(now)

    def stop(self, now: float, kill_at_s: float, prestop_limit_s: float, stop_s: float) -> None:
        """Stop the process: preStop hook, SIGTERM, and SIGKILL at `kill_at_s`.

        `stop_s`: seconds until the exit if the script does not say. A hook that used up the whole grace period, or
        all but two seconds of it, leaves two (kubelet 3.4; upstream `minimumGracePeriodInSeconds`).
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
