"""What is wrong with the machines of a mesh of processes: one file a process, written here and read there."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from services.api.errors import ApiError, UnknownOutcome
from services.api.identity import Identity, node_identity
from services.api.wire import Api
from services.client.link_faults import HEALTHY, LinkFaults
from services.runtime.config import MeshError
from services.runtime.machine import LATE_SUFFIX, READ_AGAIN, LateRequest, MachineFaults, Strike
from services.runtime.real import write_atomically
from services.runtime.supervisor import Supervisor
from services.scenarios.mesh import Site
from services.telemetry import kernel

LOOK_S = 0.005
LOOK_FOR_LATE_S = 0.05


class FaultFiles:
    """The faults of every process's machine. A process that is down finds them when it comes back."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._faults: dict[str, MachineFaults] = {}
        self._strikes = 0

    def set(self, name: str, **faults: Any) -> None:
        """Have the machine of a process suffer from this from now on; what is not named stays as it is."""
        made = self._faults[name] = msgspec.structs.replace(self._faults.get(name, MachineFaults()), **faults)
        write_atomically(self._supervisor.faults_file_of(name), msgspec.json.encode(made))
        with suppress(MeshError, ProcessLookupError):
            self._supervisor.kill(name, READ_AGAIN)

    def link(self, name: str, node: str, faults: LinkFaults) -> None:
        """Set the faults of a process's own link, or of one node's."""
        links = {**self._faults.get(name, MachineFaults()).links, node: faults}
        self.set(name, links={way: found for way, found in links.items() if found != HEALTHY})

    async def struck(self, name: str, site: Site, kind: Literal["kill", "pause"]) -> None:
        """Return once the process was ended or stopped at the site; a life that ends before is followed by the next."""
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

    A process that dies takes its connection with it, and what it had sent with that. What a scenario has arrive late
    must arrive all the same, so it waits outside of all processes; its sender learns nothing of the answer.
    """

    def left() -> Iterator[LateRequest]:
        for path in sorted(folder.glob(f"*{LATE_SUFFIX}")):
            yield msgspec.json.decode(path.read_bytes(), type=LateRequest)
            path.unlink()

    async def deliver(late: LateRequest) -> None:
        await asyncio.sleep(late.late_s)
        with suppress(ApiError, UnknownOutcome):  # its sender is gone
            await api(node_identity(late.node)).call(late.request)

    async with asyncio.TaskGroup() as group:
        while True:
            for late in left():
                group.create_task(deliver(late))
            await asyncio.sleep(LOOK_FOR_LATE_S)


def _state(pid: int) -> str:
    """Return the letter that the kernel has for what a process does; "" when it is gone."""
    found = kernel.state_and_parent(pid)
    return found[0] if found is not None else ""
