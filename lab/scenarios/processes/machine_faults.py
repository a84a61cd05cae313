"""Faults of the machines in a mesh of processes: one file per process, written here and read by the process."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from lab.scenarios.mesh import Site
from services.api.errors import ApiError, UnknownOutcome
from services.api.identity import Identity, node_identity
from services.api.wire import Api
from services.runtime.faults.breaking import FaultFiles
from services.runtime.machine import LATE_SUFFIX, LateRequest, Strike
from services.runtime.supervisor import Supervisor
from services.telemetry import kernel

LOOK_S = 0.005
LOOK_FOR_LATE_S = 0.05


class StrikingFaultFiles(FaultFiles):
    """Fault files for the processes of a supervisor, with strikes that kill or pause a process at a site."""

    def __init__(self, supervisor: Supervisor) -> None:
        super().__init__(supervisor.faults_file_of, supervisor.kill)
        self._supervisor = supervisor
        self._strikes = 0

    async def strike_at(self, name: str, site: Site, kind: Literal["kill", "pause"]) -> None:
        """Return once the process was killed or paused at the site; if a life ends before that, the next one is
        struck.
        """
        while True:
            pid = self._supervisor.child(name).pid
            if pid:
                self._strikes += 1
                strike = Strike(self._strikes, pid, site.name, site.count, kind)
                self.set(name, strikes=(strike,))
                try:
                    while (state := _state(pid)) not in ("T", "Z", ""):  # noqa: ASYNC110  the kernel sends no notice
                        await asyncio.sleep(LOOK_S)
                finally:
                    self.set(name, strikes=())
                if (kind == "pause") == (state == "T"):
                    return
            await asyncio.sleep(LOOK_S)


async def deliver_late_requests(folder: Path, api: Callable[[Identity], Api]) -> None:
    """Deliver the requests that their senders left in a folder, each when it is due, until cancelled.

    A process that dies loses its connection, and with it the requests that it had sent. A request that a
    scenario delays must arrive all the same, so it waits outside of all processes; its sender does not get
    the response.
    """

    def late_requests() -> Iterator[LateRequest]:
        for path in sorted(folder.glob(f"*{LATE_SUFFIX}")):
            yield msgspec.json.decode(path.read_bytes(), type=LateRequest)
            path.unlink()

    async def deliver(late: LateRequest) -> None:
        await asyncio.sleep(late.late_s)
        with suppress(ApiError, UnknownOutcome):  # its sender is gone
            await api(node_identity(late.node)).call(late.request)

    async with asyncio.TaskGroup() as group:
        while True:
            for late in late_requests():
                group.create_task(deliver(late))
            await asyncio.sleep(LOOK_FOR_LATE_S)


def _state(pid: int) -> str:
    """Return the letter that the kernel has for what a process does; "" when it is gone."""
    found = kernel.state_and_parent(pid)
    return found[0] if found is not None else ""
