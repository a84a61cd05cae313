"""The behaviour of an emulated container and the faults of its start, from annotations or its command. Pure.

The annotation `keplab.dev/run` applies to all main containers of a pod, `keplab.dev/run.<container>` to one
(init and ephemeral containers too). Clauses are separated by `;`, durations are `200ms`, `5s`, `2m`, `1h`
or seconds:

    forever                         run until stopped (the default of main containers and sidecars)
    exit CODE [after D]             end with that code (the default of init containers: exit 0 after 0s)
    crash [after D]                 exit 1
    oom [after D]                   end as the kernel ends it: 137, OOMKilled
    ready after D                   readiness comes D after the start (default: at once)
    flap D N                        once ready, readiness turns N times, every D
    on SIGTERM exit CODE [after D]  how it ends when asked to (default: exit 0 after the stop latency)
    on SIGTERM ignore               it does not; SIGKILL ends it with 137
    prestop D                       the preStop hook takes D
    prestop fails [after D]         it fails
    poststart D                     the postStart hook takes D; nothing else of the pod starts meanwhile
    poststart fails [after D]       it fails, and with it the container
    pull D                          the image is not on the node yet, and takes D to pull
    pull fails [for D]              nor can it be pulled (for so long after the first try; default: for ever)
    STAGE fails [N times] [for D] [chance P]
                                    a stage of the start fails: every try, or so many, or with that probability
    answer after D                  until D after the start every probe's connection is refused
    fail [PROBE] after D [for D]    from D after the start the probe (startup, readiness, liveness; default:
                                    every) is answered with a failure, for so long (default: for ever)
    hang [PROBE] after D [for D]    as `fail`, but no answer comes within the probe's timeoutSeconds
    warn [PROBE] after D [for D]    an HTTP probe is answered by a redirect to elsewhere: a success, and a
                                    ProbeWarning

A container with a readiness probe is ready when the probe says so; the probe sees what `ready` and `flap`
describe. Hooks without a clause take no time and succeed, unless they sleep, open a socket, or run a
command that is understood (`behavior`).

Stages of a start, which fail on a whole node where its definition's `startFaults` say so:

    attach, mount                   the volume is not attached (every try takes 2 min 3 s), nor mounted
    prepare                         the driver of the pod's devices does not prepare them (pods with claims
                                    only)
    sandbox                         the sandbox, or its network, is not made; tried again after 10 s to 15 s
    config                          an object that the container's configuration names does not exist
    create, start                   the runtime refuses to create the container; it creates it and cannot start
                                    it

Durations are counted from the pod's first try of that stage; for a node, from when it was configured.
Source: kubelet 3.3, 8.
"""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from services.api.kinds.pod import Pod
from services.api.times import seconds_in

_EPS_S = 1e-6
PROBES = ("startup", "readiness", "liveness")
REFUSES, FAILS, HANGS, WARNS = "refuses", "fails", "hangs", "warns"
_HOWS = {"fail": FAILS, "hang": HANGS, "warn": WARNS}
ATTACH, MOUNT, PREPARE, SANDBOX = "attach", "mount", "prepare", "sandbox"
CONFIG, CREATE, START = "config", "create", "start"
NETWORK: Final = "network"
"""The stage of a node whose network does not work at all: it has no clause of its own, see `node/health`."""
NETWORK_DOWN: Final = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
    "message:Network plugin returns error: cni plugin not initialized"
)
CONTAINER_STAGES: Final = (CONFIG, CREATE, START)
STAGES: Final = (ATTACH, MOUNT, PREPARE, SANDBOX, *CONTAINER_STAGES)
FORM: Final = "want: STAGE fails [N times] [for DURATION] [chance 0..1], STAGE one of " + ", ".join(STAGES)


class ScriptError(ValueError):
    """Error: a clause cannot be read; the message names it."""


def is_duration(text: str) -> bool:
    """Whether `duration_s` can parse the text."""
    try:
        seconds_in(text)
    except ValueError:
        return False
    return True


def duration_s(text: str) -> float:
    """Return seconds of `5s`, `200ms`, `2m`, `1h` or a bare number. Raises: ScriptError."""
    try:
        return seconds_in(text)
    except ValueError as error:
        raise ScriptError(str(error)) from None


class StartFault(msgspec.Struct, frozen=True):
    """A fault of a start's stage, from one clause.

    `times` 0: always; `for_s` in seconds; `chance`: the probability that a try fails.
    """

    stage: str
    times: int = 0
    for_s: float = math.inf
    chance: float = 1.0


def parse_fault(words: Sequence[str]) -> StartFault:
    """Return the fault that a clause's words describe. Raises: ValueError."""
    stage, fails, *rest = [*words, "", ""][: max(len(words), 2)]
    if stage not in STAGES or fails != "fails":
        raise ValueError(f"{' '.join(words)!r}: {FORM}")
    times, for_s, chance = 0, math.inf, 1.0
    while rest:
        match rest:
            case [count, "times" | "time", *rest] if count.isdigit() and 0 < int(count) <= 1_000_000:
                times = int(count)
            case ["for", length, *rest]:
                for_s = duration_s(length)
            case ["chance", share, *rest] if share.replace(".", "", 1).isdecimal() and float(share) <= 1.0:
                chance = float(share)
            case _:
                raise ValueError(f"{' '.join(words)!r}: {FORM}")
    return StartFault(stage, times, for_s, chance)


class StartFaults:
    """Faults and how often each has struck. `since_s`: when they began; None: at the first try of their stage."""

    def __init__(self, faults: Iterable[StartFault] = (), since_s: float | None = None) -> None:
        self._faults = tuple(dict.fromkeys(faults))
        self._since: list[float | None] = [since_s] * len(self._faults)
        self._struck = [0] * len(self._faults)

    def __bool__(self) -> bool:
        return bool(self._faults)

    def strikes(self, stage: str, now: float, share: float) -> float | None:
        """Return until when this try would fail, and count it; None: it succeeds.

        `share` in [0, 1) is the try's random draw.
        """
        for place, fault in enumerate(self._faults):
            if fault.stage != stage:
                continue
            since = self._since[place]
            if since is None:
                since = self._since[place] = now
            if now < since + fault.for_s and share < fault.chance and not 0 < fault.times <= self._struck[place]:
                self._struck[place] += 1
                return since + fault.for_s
        return None


class Outage(msgspec.Struct, frozen=True):
    """A time span in which a probe is answered with `how`; `probe` "": every probe.

    It lasts from `from_s` until before `until_s` after the container's start.
    """

    probe: str
    how: str
    from_s: float
    until_s: float = math.inf


class Hook(msgspec.Struct, frozen=True):
    """The behaviour of a hook: its duration in seconds, and whether it fails.

    `kind` (Exec, HTTP, Sleep, or "": it cannot be run), `what` and `error` are for the messages.
    """

    takes_s: float = 0.0
    fails: bool = False
    kind: str = "Exec"
    what: str = "[]"
    error: str = "command exited with 1: "

    def failure(self, container: str, pod: Pod) -> str:
        """Return the message of a failed hook (upstream `lifecycle/handlers.go`)."""
        if not self.kind:
            return f"Cannot run handler: {self.error}"
        meta = pod.metadata
        whose = f'Container "{container}" in Pod "{meta.name}_{meta.namespace}({meta.uid})"'
        text = f"{self.kind} lifecycle hook ({self.what}) for {whose} failed - error: {self.error}"
        return f'{text}, message: ""' if self.kind == "Exec" else text


class Script(msgspec.Struct, frozen=True):
    """One container's behaviour. Times in seconds from its start; `exit_after_s` None: runs until stopped."""

    exit_after_s: float | None = None
    exit_code: int = 0
    reason: str = ""
    ready_after_s: float = 0.0
    flap_every_s: float = 0.0
    flaps: int = 0
    term_exit_code: int = 0
    term_after_s: float | None = None
    """Seconds from SIGTERM to the exit; None: after the stage `stop` of the latency model."""
    ignores_term: bool = False
    prestop_s: float = 0.0
    prestop_fails: bool = False
    poststart: Hook | None = None
    outages: tuple[Outage, ...] = ()
    must_pull: bool = False
    pull_s: float = 1.0
    pull_fails_s: float = 0.0
    start_faults: tuple[StartFault, ...] = ()

    def is_ready(self, age_s: float) -> bool:
        """Return whether the container is ready at this age, by `ready` and `flap`."""
        since_s = age_s - self.ready_after_s
        if since_s < -_EPS_S:
            return False
        if not (self.flaps and self.flap_every_s > 0):
            return True
        return min(self.flaps, int(since_s / self.flap_every_s + _EPS_S)) % 2 == 0

    def next_turn_s(self, age_s: float) -> float | None:
        """Return the age at which readiness next changes, strictly after `age_s`."""
        if age_s + _EPS_S < self.ready_after_s:
            return self.ready_after_s
        if self.flaps and self.flap_every_s > 0:
            turns = int((age_s - self.ready_after_s) / self.flap_every_s + _EPS_S)
            if turns < self.flaps:
                return self.ready_after_s + (turns + 1) * self.flap_every_s
        return None

    def answer(self, probe: str, age_s: float) -> str:
        """Return how a probe is answered at that age: "" for success, else refuses, fails, hangs or warns."""
        for outage in self.outages:
            if outage.probe in ("", probe) and outage.from_s <= age_s + _EPS_S and age_s + _EPS_S < outage.until_s:
                return outage.how
        return FAILS if probe == "readiness" and not self.is_ready(age_s) else ""

    def next_answer_s(self, probe: str, age_s: float) -> float | None:
        """Return the age at which a probe's answer may next change, strictly after `age_s`."""
        edges = [e for o in self.outages if o.probe in ("", probe) for e in (o.from_s, o.until_s)]
        if probe == "readiness" and (turn := self.next_turn_s(age_s)) is not None:
            edges.append(turn)
        return min((e for e in edges if age_s + _EPS_S < e < math.inf), default=None)


FOREVER = Script()
DONE = Script(exit_after_s=0.0)


def _code(text: str) -> int:
    if not (text.isdigit() and int(text) <= 255):
        raise ScriptError(f"exit code {text!r}: want 0 to 255")
    return int(text)


def _after(words: list[str], clause: str) -> float:
    if not words:
        return 0.0
    if len(words) != 2 or words[0] != "after":
        raise ScriptError(f"clause {clause!r}: want `after DURATION` at its end")
    return duration_s(words[1])


@lru_cache(maxsize=1024)
def parse_script(text: str) -> Script:
    """Return the behaviour that `text` describes. Raises: ScriptError naming the clause."""
    script = FOREVER
    for clause in filter(None, (part.strip() for part in text.split(";"))):
        script = _clause(script, clause)
    return script


def _clause(script: Script, clause: str) -> Script:
    match clause.split():
        case ["forever"]:
            return msgspec.structs.replace(script, exit_after_s=None)
        case ["exit", code, *rest]:
            return msgspec.structs.replace(script, exit_code=_code(code), exit_after_s=_after(rest, clause))
        case ["crash", *rest]:
            return msgspec.structs.replace(script, exit_code=1, exit_after_s=_after(rest, clause))
        case ["oom", *rest]:
            return msgspec.structs.replace(script, exit_code=137, reason="OOMKilled", exit_after_s=_after(rest, clause))
        case ["ready", "after", delay]:
            return msgspec.structs.replace(script, ready_after_s=duration_s(delay))
        case ["flap", every, count] if count.isdigit() and int(count) <= 10_000:
            return msgspec.structs.replace(script, flap_every_s=duration_s(every), flaps=int(count))
        case ["on", "SIGTERM", "ignore"]:
            return msgspec.structs.replace(script, ignores_term=True)
        case ["on", "SIGTERM", "exit", code, *rest]:
            return msgspec.structs.replace(script, term_exit_code=_code(code), term_after_s=_after(rest, clause))
        case ["prestop", "fails", *rest]:
            return msgspec.structs.replace(script, prestop_s=_after(rest, clause), prestop_fails=True)
        case ["prestop", delay]:
            return msgspec.structs.replace(script, prestop_s=duration_s(delay))
        case ["poststart", "fails", *rest]:
            return msgspec.structs.replace(script, poststart=Hook(_after(rest, clause), fails=True))
        case ["poststart", delay]:
            return msgspec.structs.replace(script, poststart=Hook(duration_s(delay)))
        case ["pull", "fails"]:
            return msgspec.structs.replace(script, must_pull=True, pull_fails_s=math.inf)
        case ["pull", "fails", "for", length]:
            return msgspec.structs.replace(script, must_pull=True, pull_fails_s=duration_s(length))
        case ["pull", length]:
            return msgspec.structs.replace(script, must_pull=True, pull_s=duration_s(length))
        case [stage, "fails", *_] if stage in STAGES:
            return msgspec.structs.replace(script, start_faults=(*script.start_faults, parse_fault(clause.split())))
        case ["answer", "after", delay]:
            return _with_outage(script, Outage("", REFUSES, 0.0, duration_s(delay)))
        case [("fail" | "hang" | "warn") as how, *rest]:
            return _with_outage(script, _outage(_HOWS[how], rest, clause))
        case _:
            raise ScriptError(f"clause {clause!r} is not understood; see kubelet/runtime/script.py for the grammar")


def _with_outage(script: Script, outage: Outage) -> Script:
    return msgspec.structs.replace(script, outages=(*script.outages, outage))


def _outage(how: str, words: list[str], clause: str) -> Outage:
    probe = words.pop(0) if words and words[0] in PROBES else ""
    match words:
        case ["after", start]:
            return Outage(probe, how, duration_s(start))
        case ["after", start, "for", length]:
            return Outage(probe, how, duration_s(start), duration_s(start) + duration_s(length))
        case _:
            raise ScriptError(f"clause {clause!r}: want `after DURATION [for DURATION]` at its end")
