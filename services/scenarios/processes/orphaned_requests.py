"""Requests that the network holds up, in a mesh of processes: left in files by their senders, delivered from here.

A process that dies takes its connection with it, and what it had sent with that. What a scenario has arrive late must
arrive all the same, so it waits outside of all processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from services.api.errors import ApiError, UnknownOutcome
from services.api.identity import Identity, node_identity
from services.api.wire import Api
from services.runtime.machine import LATE_SUFFIX, LateRequest

LOOK_S = 0.05


class OrphanedRequests:
    """Delivers what is left in a folder, each when it is due; its sender learns nothing of the answer."""

    def __init__(self, folder: Path, api: Callable[[Identity], Api]) -> None:
        self._folder, self._api = folder, api

    async def run(self) -> None:
        """Deliver until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                for path in sorted(self._folder.glob(f"*{LATE_SUFFIX}")):
                    late = msgspec.json.decode(path.read_bytes(), type=LateRequest)
                    path.unlink()
                    group.create_task(self._deliver(late))
                await asyncio.sleep(LOOK_S)

    async def _deliver(self, late: LateRequest) -> None:
        await asyncio.sleep(late.late_s)
        with suppress(ApiError, UnknownOutcome):  # its sender is gone
            await self._api(node_identity(late.node)).call(late.request)
