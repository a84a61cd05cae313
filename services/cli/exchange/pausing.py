"""A mesh whose controllers and schedulers stand still while objects are loaded into it.

They would act on a part of a snapshot: make another ReplicaSet of a Deployment before its own is there, or run a Job
again that is over. The supervisor pauses them for a bounded time, which is prolonged: a command that is killed leaves
no mesh paused. Changes of different kinds reach a process in any order, so one that had to see all of them before it
decides begins anew, with whole lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from services.exchange.rules import owners_of
from services.exchange.stream import Placed
from services.runtime.components import CLAIM_CONTROLLER, component_of
from services.runtime.control import NoAnswer, request

SCHEDULER: Final = "scheduler"
PAUSED: Final = (SCHEDULER, "controllers", CLAIM_CONTROLLER)
PAUSE_S: Final = 30.0
AGAIN_S: Final = 10.0
ANSWER_MAX_S: Final = 5.0
RESTART_MAX_S: Final = 120.0


@dataclass
class Pause:
    """The processes that are paused. `is_owned`: whether objects with owners were loaded; `bound`: whether pods with a
    node were, or pods without."""

    data: Path
    names: list[str] = field(default_factory=list)
    is_owned: bool = False
    bound: set[bool] = field(default_factory=set)

    def noting(self, objects: Iterable[Placed]) -> Iterator[Placed]:
        """Yield the objects, and remember what of them matters to the processes."""
        for each in objects:
            self.is_owned = self.is_owned or bool(owners_of(each.document))
            if each.document.get("kind") == "Pod":
                self.bound.add(bool((each.document.get("spec") or {}).get("nodeName")))
            yield each

    def begins_anew(self, name: str) -> bool:
        """Whether a process must see all that was loaded before it decides again."""
        return len(self.bound) > 1 if component_of(name) == SCHEDULER else self.is_owned

    async def hold(self) -> None:
        """Prolong the pause until cancelled."""
        while True:
            await asyncio.sleep(AGAIN_S)
            with suppress(NoAnswer):
                await self.stop()

    async def stop(self) -> None:
        """Pause the processes for a while. Raises: NoAnswer."""
        for name in self.names:
            wanted = {"verb": "break", "action": "pause", "target": name, "for_s": PAUSE_S}
            await request(self.data, wanted, ANSWER_MAX_S)

    async def end(self) -> None:
        """Have the processes go on. Raises: NoAnswer."""
        if anew := [each for each in self.names if self.begins_anew(each)]:
            await request(self.data, {"verb": "restart", "names": anew, "at_once": True}, RESTART_MAX_S)
        for name in self.names:
            if name not in anew:
                await request(self.data, {"verb": "break", "action": "heal", "target": name}, ANSWER_MAX_S)


@asynccontextmanager
async def controllers_paused(data: Path) -> AsyncIterator[Pause]:
    """Pause the processes of the mesh on a directory that decide; those with a fault already stay as they are."""
    pause = Pause(data)
    try:
        state = (await request(data, {"verb": "status"}, ANSWER_MAX_S)).get("status") or {}
        broken = {each["target"] for each in state.get("faults", ())}
        running = (each["name"] for each in state.get("processes", ()) if each.get("pid"))
        pause.names = [each for each in running if component_of(each) in PAUSED and each not in broken]
        await pause.stop()
    except NoAnswer as error:
        click.echo(f"controllers go on meanwhile: {error}", err=True)
    holding = asyncio.create_task(pause.hold())
    try:
        yield pause
    finally:
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
        try:
            await pause.end()
        except NoAnswer as error:
            click.echo(f"controllers go on within {PAUSE_S:g} s: {error}", err=True)
