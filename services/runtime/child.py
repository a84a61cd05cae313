"""One process of a mesh: begun, waited for, begun again as often as is reasonable, ended."""

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from pathlib import Path

import msgspec
import structlog

from services.api.errors import UNREADABLE
from services.api.seams import Clock
from services.runtime.components import CLAIM_CONTROLLER, DEVICE_PLUGIN, DRA_DRIVER, component_of
from services.runtime.config import EXIT_BUG, EXIT_DEPOSED, EXIT_IO, EXIT_OK, PARENT_VARIABLE, PREFIX

STOP_MAX_S = 12.0
POLL_S = 0.02
RESTARTS_MAX, RESTART_WINDOW_S = 5, 60.0
RESTARTS_BEFORE_READY_MAX = 1

_OURS = str(Path(__file__).resolve().parents[2])
_MODULES = {
    "apiserver": "apiserver_fake",
    "scheduler": "scheduler",
    "controllers": "services.controllers",
    CLAIM_CONTROLLER: "claim_controller",
    DEVICE_PLUGIN: "kubelet.deviceplugin.emulated",
    DRA_DRIVER: "kubelet.dra.emulated",
}

_log = structlog.get_logger()


class Child:
    """One process we keep alive: its command line and what became of it so far."""

    def __init__(self, name: str, arguments: list[str], log: Path, ready_file: Path) -> None:
        self.name, self.arguments, self.log, self.ready_file = name, arguments, log, ready_file
        self.process: asyncio.subprocess.Process | None = None
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
        self.last_error = ""
        self.exit_codes: list[int] = []
        """Of those lives that no signal ended."""

    @property
    def pid(self) -> int:
        """The process id; 0 while there is none."""
        return self.process.pid if self.process is not None and self.process.returncode is None else 0

    async def spawn(self, clock: Clock) -> None:
        """Begin a new life of the process, which is not ready yet."""
        self.ready_file.unlink(missing_ok=True)
        component = component_of(self.name)
        module = _MODULES.get(component, component)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)}
        environment[PARENT_VARIABLE] = str(os.getpid())
        # `-P` and this: a folder called `scheduler` where `keplab up` was typed is not our scheduler.
        environment["PYTHONPATH"] = os.pathsep.join(p for p in (_OURS, environment.get("PYTHONPATH", "")) if p)
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
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
        self.started_at = clock.now()

    async def wait_until_ready(self) -> None:
        """Return when the process has written its ports."""
        while True:
            try:
                note = msgspec.json.decode(self.ready_file.read_bytes())
                break
            except FileNotFoundError:
                await asyncio.sleep(POLL_S)
        self.ports = dict(note["ports"])
        self.is_ready = self.was_ever_ready = True

    def may_restart(self, code: int, now: float) -> bool:
        """Whether it may begin again (P14): after 1, 70, 74 and signals, 5 times in 60 s; never after 64, 75, 78.

        An end in good order that was not asked for counts as a signal: SIGTERM was sent from outside.
        """
        if not (code in (EXIT_OK, EXIT_DEPOSED, EXIT_BUG, EXIT_IO) or code < 0):
            return False
        while self.restart_times and self.restart_times[0] < now - RESTART_WINDOW_S:
            self.restart_times.popleft()
        if self.next_down_s is not None:
            return True  # `kill` on purpose also says when it comes back
        self.restart_times.append(now)
        # What has never worked will hardly begin to; a caller waits for `start`.
        most = RESTARTS_MAX if self.was_ever_ready else RESTARTS_BEFORE_READY_MAX
        return len(self.restart_times) <= most

    def why(self, code: int) -> str:
        """Return one line: the signal, or the last thing the process said."""
        if code < 0:
            return f"{self.name} was ended by {signal.Signals(-code).name}"
        said = _last_line(self.log)
        return f"{said} (exit {code})" if said else f"{self.name} ended with exit code {code}"

    async def stop(self) -> None:
        """End the process in good order, or by force after `STOP_MAX_S`; it is not restarted any more."""
        self.is_wanted = False
        process = self.process
        if process is not None and process.returncode is None:
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
        self.ready_file.unlink(missing_ok=True)


def _last_line(log: Path) -> str:
    """Return the last thing a process said that was meant for people: its plain line, or its last error."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 16384))
        lines = file.read().decode("utf-8", "replace").splitlines()
    for line in reversed(lines):
        if not line.startswith("{"):
            return line.strip()
        with contextlib.suppress(*UNREADABLE):
            record = msgspec.json.decode(line)
            if record.get("level") == "error":
                return f"{record.get('comp')}: {record.get('event')}: {record.get('error', '')}"
    return ""
