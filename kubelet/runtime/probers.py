"""The probes of a container, run at their times, and the effects of their answers: started, ready, alive. Pure.

An emulated container's answers are known beforehand (`script`), so a probe that succeeds is not run again
before its answer can change: a thousand healthy containers cost no timer. Every failure is recorded, as a
node records it. Source: kubelet 3.3; upstream `pkg/kubelet/prober` (thresholds, suppression, the wait after
a failure).
"""

import math

import msgspec

from kubelet.runtime.script import HANGS, REFUSES, WARNS, Script
from kubelet.timers import EARLY_S
from kubelet.view import KubeletContainer, Probe

STARTUP, READINESS, LIVENESS = "startup", "readiness", "liveness"
REDIRECTED = "Probe terminated redirects, Response body: "
"""The message of a probe that was redirected to another host: that is no failure."""


class ProbeResult(msgspec.Struct, frozen=True):
    """The result of one try of a probe.

    `failure`: the text to record, "" after a success, which may have a `warning`; `kills`: the container must
    end.
    """

    probe: str
    failure: str = ""
    warning: str = ""
    kills: bool = False
    has_started: bool = False


class Prober:
    """One probe of one container: its tries in the present run.

    `result` None: no result yet. `due_s` None: it is not run, or its answer cannot change.
    """

    __slots__ = ("_first_s", "_is_awaited", "_last", "_run", "due_s", "kind", "result", "spec")

    def __init__(self, kind: str, spec: Probe) -> None:
        self.kind, self.spec = kind, spec
        self.result: bool | None = None
        self.due_s: float | None = None
        self._first_s = 0.0
        self._last: bool | None = None
        self._run = 0
        self._is_awaited = False

    def forget(self) -> None:
        """Reset the probe for a new run. Liveness is assumed, readiness is not."""
        self.result = {STARTUP: None, READINESS: False, LIVENESS: True}[self.kind]
        self.rest()
        self._last, self._run = None, 0

    def begin(self, at_s: float) -> None:
        """Run the probe from then on, every period."""
        self._first_s = self.due_s = at_s
        self._is_awaited = False

    def rest(self) -> None:
        """Run the probe no more."""
        self.due_s, self._is_awaited = None, False

    def attempt(self, t: float, script: Script, started_s: float) -> str | None:
        """Run a probe that is due; return how it failed, "" for a success, None while no answer has come.

        A success with a warning is run again, so that the warning is recorded each time.
        """
        how = HANGS if self._is_awaited else script.answer(self.kind, t - started_s)
        if how == WARNS and self.spec.http_get is None:
            how = ""
        if how == HANGS and not self._is_awaited:
            self._is_awaited, self.due_s = True, t + self.spec.timeout_seconds
            return None
        self._is_awaited = False
        is_success = how in ("", WARNS)
        self._run = self._run + 1 if self._last is is_success else 1
        self._last = is_success
        if self._run >= (self.spec.success_threshold if is_success else self.spec.failure_threshold):
            self.result = is_success
        self._set_due(t, script, started_s, is_success=not how)
        return how

    def _set_due(self, t: float, script: Script, started_s: float, *, is_success: bool) -> None:
        """The next try, one of the times of its period; a steady success is asked again when it may end."""
        not_before_s = t + EARLY_S
        if is_success and self.result:
            change_s = script.next_answer_s(self.kind, t - started_s)
            if change_s is None:
                self.rest()
                return
            not_before_s = max(not_before_s, started_s + change_s - EARLY_S)
        periods = math.ceil((not_before_s - self._first_s) / self.spec.period_seconds)
        self.due_s = self._first_s + periods * self.spec.period_seconds


class ContainerProbes:
    """All probes of one container. Invariant: until the startup probe has succeeded, no other probe is run."""

    __slots__ = ("_all", "_container", "_liveness", "_readiness", "_script", "_started_s", "_startup")

    def __init__(self, container: KubeletContainer, script: Script) -> None:
        self._container, self._script = container, script
        self._startup = Prober(STARTUP, container.startup_probe) if container.startup_probe else None
        self._readiness = Prober(READINESS, container.readiness_probe) if container.readiness_probe else None
        self._liveness = Prober(LIVENESS, container.liveness_probe) if container.liveness_probe else None
        self._all = [p for p in (self._startup, self._readiness, self._liveness) if p is not None]
        self._started_s = 0.0

    @property
    def is_started(self) -> bool:
        """Whether the present run has started, by its startup probe."""
        return self._startup is None or self._startup.result is True

    @property
    def is_ready(self) -> bool | None:
        """The result of the readiness probe; None: there is no such probe."""
        return None if self._readiness is None else self._readiness.result is True

    @property
    def due_s(self) -> float | None:
        """The time at which the next try, or its time-out, is due."""
        return min((p.due_s for p in self._all if p.due_s is not None), default=None)

    def run(self, started_s: float, now: float = 0.0) -> None:
        """Begin the probes of a new run, from the initial delay on, not before `now`."""
        self._started_s = started_s
        for prober in self._all:
            prober.forget()
        if self._startup is not None:
            self._startup.begin(max(now, started_s + self._startup.spec.initial_delay_seconds))
        else:
            self._begin_others(max(now, started_s))

    def wait(self) -> None:
        """Run no probe until `run` is called again."""
        for prober in self._all:
            prober.rest()

    def resume(self, started_s: float, now: float, *, was_started: bool, was_ready: bool, share: float) -> None:
        """Take over a run that began before this kubelet; its last results stand until a new result.

        `share` (0 to 1): the place of the first try in each probe's first period, so that not all come at once.
        """
        self.run(started_s)
        if self._readiness is not None:
            self._readiness.result = was_ready
        if self._startup is not None and was_started:
            self._startup.result = True
            self._startup.rest()
            self._begin_others(now)
        for prober in self._all:
            if prober.due_s is not None:
                prober.begin(max(prober.due_s, now + share * prober.spec.period_seconds))

    def settle(self) -> None:
        """Stop the startup and liveness probes, because the pod is being stopped; readiness is still probed."""
        for prober in (self._startup, self._liveness):
            if prober is not None:
                prober.rest()

    def step(self, t: float, address: str) -> list[ProbeResult]:
        """Run every probe that is due at `t`, in order. `address`: the pod's address, for the messages."""
        results: list[ProbeResult] = []
        for prober in self._all:
            if prober.due_s is None or prober.due_s > t + EARLY_S:
                continue
            was = prober.result
            how = prober.attempt(t, self._script, self._started_s)
            if how is None:
                continue
            what, warning = prober.kind.capitalize(), ""
            if how == WARNS:
                how, warning = "", f"{what} probe warning: {REDIRECTED}"
            text = f"{what} probe failed: {failure_text(prober.spec, self._container, how, address)}" if how else ""
            kills = bool(how) and prober.result is False and prober is not self._readiness
            if kills:
                # Nothing is asked until there is a new run.
                prober.rest()
            has_started = prober is self._startup and prober.result is True and was is not True
            if has_started:
                prober.rest()
                self._begin_others(t)
            results.append(ProbeResult(prober.kind, text, warning, kills, has_started))
        return results

    def grace_s(self, probe: str) -> int | None:
        """Return the grace period of a container that this probe ends, in seconds; None: the pod's."""
        return next(p.spec.termination_grace_period_seconds for p in self._all if p.kind == probe)

    def _begin_others(self, t: float) -> None:
        for prober in (self._readiness, self._liveness):
            if prober is not None:
                prober.begin(max(t, self._started_s + prober.spec.initial_delay_seconds))


def probes_of(container: KubeletContainer, script: Script) -> ContainerProbes | None:
    """Return the container's probes; None when it has no probe."""
    if container.startup_probe is None and container.readiness_probe is None and container.liveness_probe is None:
        return None
    return ContainerProbes(container, script)


def failure_text(probe: Probe, container: KubeletContainer, how: str, address: str) -> str:
    """Return the text that follows `Liveness probe failed: `.

    `how`: refuses, fails or hangs; `address`: the pod's. The text has the words of Kubernetes' events. Source:
    upstream `pkg/probe`.
    """
    if (get := probe.http_get) is not None:
        where = f"{get.host or address}:{_port(get.port, container)}"
        url = f"{get.scheme.lower()}://{where}{get.path}"
        match how:
            case "refuses":
                return f'Get "{url}": {_refusal_text(where)}'
            case "hangs":
                return f'Get "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
            case _:
                return "HTTP probe failed with statuscode: 503"
    if (socket := probe.tcp_socket) is not None:
        where = f"{socket.host or address}:{_port(socket.port, container)}"
        return f"dial tcp {where}: i/o timeout" if how == HANGS else _refusal_text(where)
    within = f"{probe.timeout_seconds}s"
    if probe.grpc is not None:
        if how == REFUSES:
            where = f"{address}:{probe.grpc.port}"
            return f'timeout: failed to connect service "{where}" within {within}: context deadline exceeded'
        if how == HANGS:
            return f"timeout: health rpc did not complete within {within}: context deadline exceeded"
        return 'service unhealthy (responded with "NOT_SERVING")'
    command = " ".join(probe.exec.command) if probe.exec is not None else ""
    return f'command timed out: "{command}" timed out after {within}' if how == HANGS else f"{command}: exit status 1"


def _refusal_text(where: str) -> str:
    return f"dial tcp {where}: connect: connection refused"


def _port(port: int | str, container: KubeletContainer) -> int:
    """Return the number of a port; of a name that is not declared, 0."""
    if isinstance(port, int):
        return port
    return next((p.container_port for p in container.ports if p.name == port), 0)
