"""Supervision of a mesh's processes: each is started, awaited, and restarted as often as P14 allows."""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from services.api.seams import Clock
from services.runtime.child import POLL_S, Child
from services.runtime.config import EXIT_IO, MeshError

READY_MAX_S = 60.0
READY_PER_NODE_S = 0.02


class ProcessKeeper:
    """Keeps processes alive as long as they are wanted, each in a task of its own.

    `nodes`: number of nodes of the mesh's start, which extends the time limit for readiness. `is_up`: whether the mesh
    was ready once; before that, a process that cannot start ends the mesh. `on_change`: called when the state of a
    process changes. `on_end`: called with the name of a process each time it has ended.
    """

    def __init__(
        self,
        clock: Clock,
        nodes: int,
        *,
        is_up: Callable[[], bool],
        on_change: Callable[[], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._clock, self._limit_s = clock, READY_MAX_S + nodes * READY_PER_NODE_S
        self._is_up, self._on_change, self._on_end = is_up, on_change, on_end
        self._log = structlog.get_logger()

    async def start_all(self, children: Sequence[Child]) -> None:
        """Start the processes and wait until all are ready. Raises: MeshError as soon as one cannot start."""
        for child in children:
            child.is_wanted = True
            child.is_ready = False
            child.keeper = asyncio.create_task(self._keep(child))
        deadline = self._clock.now() + self._limit_s
        while waiting := [child for child in children if not child.is_ready]:
            for child in waiting:
                if child.failed_for_good or child.is_crash_looping:
                    raise MeshError(child.last_error or f"{child.name} did not start; see {child.log}")
                if child.keeper is not None and child.keeper.done() and not child.keeper.cancelled():
                    child.keeper.result()
            if self._clock.now() > deadline:
                names = ", ".join(child.name for child in waiting)
                raise MeshError(f"{names} not ready within {self._limit_s:g} s; see {waiting[0].log}")
            await asyncio.sleep(POLL_S)

    async def _keep(self, child: Child) -> None:
        """Run the process, and restart it while it is wanted and P14 allows."""
        while child.is_wanted:
            code = await self._live(child)
            child.is_ready = False
            if not child.is_wanted:
                return
            if code >= 0:
                child.exit_codes.append(code)
            delay_s = child.delay_s(code, self._clock.now())
            # Before the mesh was ready, a failure is reported at once.
            if delay_s is None or (child.is_crash_looping and not self._is_up()):
                child.failed_for_good = True
                if self._is_up():  # before that, `start` reports it
                    self._log.error("child.given_up", child=child.name, error=child.last_error)
                self._on_change()
                return
            child.next_try_at = self._clock.now() + delay_s
            event = "child.crash_loop" if child.is_crash_looping else "child.restarting"
            self._log.warning(event, child=child.name, error=child.last_error, after_s=delay_s)
            self._on_change()
            await asyncio.sleep(delay_s)
            child.restarts += 1

    async def _live(self, child: Child) -> int:
        """Run the process once; return its exit code, and set its last error to the cause of its end."""
        try:
            await child.spawn(self._clock)
            assert child.process is not None
            watcher = asyncio.create_task(self._note_when_ready(child))
            try:
                code = await child.process.wait()
            finally:
                watcher.cancel()
        except OSError as error:
            child.last_error = f"{child.name} cannot be started: {error.strerror or error}"
            return EXIT_IO
        self._on_end(child.name)
        if child.is_wanted:
            child.last_error = child.why(code)
        return code

    async def _note_when_ready(self, child: Child) -> None:
        await child.wait_until_ready()
        if self._is_up():
            self._on_change()
