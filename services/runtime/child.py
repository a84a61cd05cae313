"""One process of a mesh: started, awaited, restarted within limits, and stopped."""

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol
from urllib.parse import quote

import msgspec
import structlog

from services.api.errors import UNREADABLE
from services.api.seams import Clock
from services.runtime.components import MODULES, component_of
from services.runtime.config import (
    EXIT_BUG,
    EXIT_CONFIG,
    EXIT_DEPOSED,
    EXIT_IO,
    EXIT_LOCKED,
    EXIT_USAGE,
    PARENT_VARIABLE,
    PREFIX,
)
from services.telemetry.pieces import PASSING

STOP_MAX_S = 12.0
POLL_S = 0.02
RESTARTS_MAX, RESTART_WINDOW_S = 5, 60.0
RESTARTS_BEFORE_READY_MAX = 1
BACKOFF_MIN_S, BACKOFF_MAX_S = 0.2, 5.0
CRASH_LOOP_MIN_S, CRASH_LOOP_MAX_S = 10.0, 300.0
HEALTHY_S = 600.0
"""Seconds of life after which a crash loop is forgotten; its delay doubles up to a maximum, as kubelets do for
containers.
"""
FINAL = frozenset((EXIT_USAGE, EXIT_LOCKED, EXIT_CONFIG))
"""Exit codes after which a restart cannot help (P14): wrong usage, a directory that is held, a corrupt store or
a bad configuration.
"""

LOG_READ_BYTES = 16384
RESOURCE: Final = "OTEL_RESOURCE_ATTRIBUTES"
"""Environment variable with the resource attributes of all spans: `KEY=VALUE`, comma-separated, percent-encoded
(OpenTelemetry 1.45).
"""

_OURS = str(Path(__file__).resolve().parents[2])
_log = structlog.get_logger()


_MEANINGS = {
    EXIT_DEPOSED: "leadership lost",
    EXIT_USAGE: "wrong usage",
    EXIT_BUG: "internal error",
    EXIT_IO: "input/output error",
    EXIT_LOCKED: "its directory is held by another process",
    EXIT_CONFIG: "bad configuration or a corrupt store",
}


class Running(Protocol):
    """A process of the kernel, as `asyncio.subprocess.Process` is one; None is the exit code of a living one."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def returncode(self) -> int | None:
        """Its exit code, or the negative number of the signal that ended it."""
        ...

    async def wait(self) -> int:
        """Wait for its end and return its exit code."""
        ...

    def send_signal(self, signal: int) -> None:
        """Send it a signal."""
        ...

    def terminate(self) -> None:
        """Ask it to end."""
        ...

    def kill(self) -> None:
        """End it by force."""
        ...


Fork = Callable[[str, Sequence[str], Mapping[str, str], int], Awaitable[Running | None]]
"""Function of a module, its arguments, its environment and the descriptor of its log, that starts a process; its
result is None if the module has to be executed.
"""


class Child:
    """One supervised process: its command line and its state. `resource`: trace attributes of the process.

    They are added to those of the caller's environment, and take precedence over them.
    """

    def __init__(
        self, name: str, arguments: list[str], log: Path, ready_file: Path, resource: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.arguments, self.log, self.ready_file = name, arguments, log, ready_file
        self._resource = resource or {}
        self.process: Running | None = None
        self.fork: Fork | None = None
        """How its next lives are forked; None: each is executed."""
        self.keeper: asyncio.Task[None] | None = None
        self.ports: dict[str, int] = {}
        self.is_ready = False
        self.was_ever_ready = False
        self.is_wanted = False
        self.failed_for_good = False
        self.started_at = 0.0
        self.restarts = 0
        self.restart_times: deque[float] = deque()
        self.next_down_s: float | None = None
        self.next_try_at: float | None = None
        self._crash_loop_s = 0.0
        self._log_start = 0
        self.last_error = ""
        self.exit_codes: list[int] = []
        """Of those lives that no signal ended."""

    @property
    def is_in_crash_loop(self) -> bool:
        """Whether its next start is so late that it counts as down."""
        return self._crash_loop_s > 0 and self.next_try_at is not None

    @property
    def state(self) -> str:
        """Return `Running`, `Starting`, `Restarting`, `CrashLoopBackOff`, `Failed` (no further restart) or
        `Stopped`.
        """
        if self.failed_for_good:
            return "Failed"
        if self.is_in_crash_loop:
            return "CrashLoopBackOff"
        if self.next_try_at is not None:
            return "Restarting"
        if self.pid:
            return "Running" if self.is_ready else "Starting"
        return "Starting" if self.is_wanted else "Stopped"

    @property
    def pid(self) -> int:
        """The process id; 0 while it does not run."""
        return self.process.pid if self.process is not None and self.process.returncode is None else 0

    async def spawn(self, clock: Clock) -> None:
        """Start the process; it is not ready yet. Raises: OSError when the kernel refuses."""
        self.next_try_at = None
        self.ready_file.unlink(missing_ok=True)
        component = component_of(self.name)
        module = MODULES.get(component, component)
        with _open_log(self.log) as log:
            self._log_start = log.tell()
            environment = self.environment(os.environ)
            process: Running | None = None
            if self.fork is not None:
                process = await self.fork(module, self.arguments, environment, log.fileno())
            if process is None:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-P",
                    "-m",
                    module,
                    *self.arguments,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    # A Ctrl-C on the terminal is for us: we stop them, in order.
                    start_new_session=True,
                )
            self.process = process
        self.started_at = clock.now()

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the process, derived from ours."""
        variables = {k: v for k, v in environ.items() if not k.startswith(PREFIX)}
        variables[PARENT_VARIABLE] = str(os.getpid())
        # `-P` and this: a folder called `scheduler` where `keplab up` was typed is not our scheduler.
        variables["PYTHONPATH"] = os.pathsep.join(p for p in (_OURS, variables.get("PYTHONPATH", "")) if p)
        if self._resource:
            own = (f"{key}={quote(value, safe='')}" for key, value in self._resource.items())
            # The last one of a name counts.
            variables[RESOURCE] = ",".join(filter(None, (variables.get(RESOURCE, ""), *own)))
        return variables

    async def wait_until_ready(self) -> None:
        """Wait until the process has written its ports."""
        while True:
            try:
                note = msgspec.json.decode(self.ready_file.read_bytes())
                break
            except (OSError, *UNREADABLE):
                await asyncio.sleep(POLL_S)
        self.ports = dict(note["ports"])
        self.is_ready = self.was_ever_ready = True

    def delay_s(self, code: int, now: float) -> float | None:
        """Return the delay before the restart in seconds (P14); None for no restart, after 64, 75 and 78.

        Five restarts within 60 s come soon. Then the process is in a crash loop, and restarts come after 10 s, 20 s and
        so on up to 5 min, until it has lived for 10 min. An unrequested clean exit counts as a signal: SIGTERM was sent
        from outside.
        """
        if code in FINAL:
            return None
        if self.next_down_s is not None:
            delay_s, self.next_down_s = self.next_down_s, None
            return delay_s  # `kill` on purpose also says when it comes back
        if now - self.started_at >= HEALTHY_S:
            self.forgive()
        while self.restart_times and self.restart_times[0] < now - RESTART_WINDOW_S:
            self.restart_times.popleft()
        self.restart_times.append(now)
        # What has never worked will hardly begin to.
        most = RESTARTS_MAX if self.was_ever_ready else RESTARTS_BEFORE_READY_MAX
        if not self._crash_loop_s and len(self.restart_times) <= most:
            return min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2.0 ** (len(self.restart_times) - 1))
        self._crash_loop_s = min(CRASH_LOOP_MAX_S, max(CRASH_LOOP_MIN_S, 2 * self._crash_loop_s))
        return self._crash_loop_s

    @property
    def is_crash_looping(self) -> bool:
        """Whether it has died too often recently to be restarted soon."""
        return self._crash_loop_s > 0

    def forgive(self) -> None:
        """Reset the count of deaths."""
        self.restart_times.clear()
        self._crash_loop_s = 0.0
        self.failed_for_good = False

    def why(self, code: int) -> str:
        """Return the reason of its end in one line: the signal, its last log line, or the meaning of its code."""
        if code < 0:
            return f"{self.name} was ended by {signal.Signals(-code).name}"
        last_line = _last_line(self.log, self._log_start)
        if last_line:
            return f"{last_line} (exit {code})"
        meaning = f", {_MEANINGS[code]}" if code in _MEANINGS else ""
        return f"{self.name} ended with exit code {code}{meaning}"

    async def stop(self, *, at_once: bool = False) -> None:
        """Stop the process in good order, by force after `STOP_MAX_S`, or at once; it is not restarted any more."""
        self.is_wanted = False
        process = self.process
        if at_once and process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        elif process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                # A stopped process would keep its SIGTERM for later.
                process.send_signal(signal.SIGCONT)
                process.terminate()
            try:
                async with asyncio.timeout(STOP_MAX_S):
                    await process.wait()
            except TimeoutError:
                _log.warning("child.killed", child=self.name, after_s=STOP_MAX_S)
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if self.keeper is not None:
            self.keeper.cancel()
            await asyncio.gather(self.keeper, return_exceptions=True)
            # It may have been just between two lives.
            late = self.process
            if late is not None and late is not process and late.returncode is None:
                late.kill()
                await late.wait()
        self.is_ready = False
        self.next_try_at = None
        with contextlib.suppress(OSError):
            self.ready_file.unlink(missing_ok=True)


def _open_log(path: Path) -> BinaryIO:
    """Return a log open at its end; where the disk has no space for one, its lines go nowhere. Raises: OSError."""
    try:
        return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")
    except OSError as error:
        if error.errno not in PASSING:
            raise
        return open(os.devnull, "ab")


def _last_line(log: Path, start: int) -> str:
    """Return the last thing a process said from there on that was meant for people: its plain line, or its last error;
    what a library said only when the process itself said nothing."""
    try:
        with log.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            # A log that was begun anew meanwhile is shorter.
            file.seek(max(start if start <= size else 0, size - LOG_READ_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    of_library = ""
    for line in reversed(lines):
        if not line.startswith("{"):
            if line.strip():
                return line.strip()
            continue
        with contextlib.suppress(*UNREADABLE):
            record = msgspec.json.decode(line, type=dict[str, Any])
            if record.get("level") == "error":
                parts = [
                    str(record[key]) for key in ("comp", "event", "library", "error", "message") if record.get(key)
                ]
                if record.get("event") != "library.spoke":
                    return ": ".join(parts)
                of_library = of_library or (": ".join(parts) if record.get("message") else "")
    return of_library
