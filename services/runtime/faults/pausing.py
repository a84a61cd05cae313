"""Pause of a mesh's processes while a command works.

The pause has a time limit, which the command extends repeatedly: a killed command leaves no mesh paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from services.runtime.components import component_of
from services.runtime.control import NoAnswer, request

PAUSE_S: Final = 30.0
AGAIN_S: Final = 10.0
ANSWER_MAX_S: Final = 5.0
RESTART_MAX_S: Final = 120.0


class Pause:
    """Pause of processes by name. `begins_anew`: whether a process is restarted at the end, before it does anything
    more, so that it lists everything again.
    """

    def __init__(self, data: Path, names: list[str], begins_anew: Callable[[str], bool]) -> None:
        self._data, self._names, self._begins_anew = data, names, begins_anew

    async def stop(self) -> None:
        """Pause the processes, or extend the pause. Raises: NoAnswer."""
        for name in self._names:
            await self._ask({"verb": "break", "action": "pause", "target": name, "for_s": PAUSE_S}, ANSWER_MAX_S)

    async def hold(self) -> None:
        """Extend the pause until cancelled."""
        while True:
            await asyncio.sleep(AGAIN_S)
            with suppress(NoAnswer):
                await self.stop()

    async def end(self) -> None:
        """Resume the processes, or restart them. Raises: NoAnswer."""
        if anew := [each for each in self._names if self._begins_anew(each)]:
            # At once: one that ends in good order would still act on what it sees first.
            await self._ask({"verb": "restart", "names": anew, "at_once": True}, RESTART_MAX_S)
        for name in self._names:
            if name not in anew:
                await self._ask({"verb": "break", "action": "heal", "target": name}, ANSWER_MAX_S)

    async def _ask(self, wanted: dict[str, Any], timeout_s: float) -> None:
        await request(self._data, wanted, timeout_s)


@asynccontextmanager
async def pause_components(
    data: Path, components: tuple[str, ...], begins_anew: Callable[[str], bool], notify: Callable[[str], None]
) -> AsyncIterator[None]:
    """Pause the processes of these components, in the mesh on a directory; skip processes that already have a
    fault.

    `notify`: gets one line when the supervisor does not answer.
    """
    pause = Pause(data, [], begins_anew)
    try:
        state = (await request(data, {"verb": "status"}, ANSWER_MAX_S)).get("status") or {}
        broken = {each["target"] for each in state.get("faults", ())}
        running = (each["name"] for each in state.get("processes", ()) if each.get("pid"))
        names = [each for each in running if component_of(each) in components and each not in broken]
        pause = Pause(data, names, begins_anew)
        await pause.stop()
    except NoAnswer as error:
        notify(f"controllers go on meanwhile: {error}")
    holding = asyncio.create_task(pause.hold())
    try:
        yield
    finally:
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
        try:
            await pause.end()
        except NoAnswer as error:
            notify(f"controllers go on within {PAUSE_S:g} s: {error}")
