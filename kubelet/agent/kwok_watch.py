"""Watch of KWOK's kinds for all nodes of a host: an object applies from the moment at which it is seen.

Nodes begin once the state of each kind is known, so that a kubelet that comes back goes on with the former
stages. A kind that is not served, because its definition was deleted, has no objects. Source: decision
0078.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from services.api.meta import AnyObject
from services.api.seams import Seams
from services.client.informer import Informer
from services.kwok.definitions import resource_of
from services.kwok.documents import STAGE, Configuration
from services.kwok.objects import KwokObjects
from services.kwok.stages.stage import Stage
from services.reconcile.controller import Change

SYNC_MAX_S: Final = 10.0
"""Seconds that nodes wait at most for the kinds; then they begin without."""
log = structlog.get_logger()


class HostCommands(Protocol):
    """The part of a kubelet's configuration that concerns commands."""

    @property
    def host_commands(self) -> bool:
        """Whether stages may run commands on the host."""


class Following(Protocol):
    """A kubelet host, as the watch of the objects needs it."""

    @property
    def config(self) -> HostCommands:
        """The host's configuration."""

    seams: Seams
    stages: tuple[Stage, ...]
    kwok: Configuration
    kwok_kinds: tuple[str, ...]

    def stages_changed(self, stages: tuple[Stage, ...]) -> None:
        """Replace the stages that drive the objects."""

    def kwok_changed(self, configuration: Configuration) -> None:
        """Replace the documents of KWOK's other kinds."""


class KwokWatch:
    """The watched objects of one host's kinds."""

    def __init__(self, host: Following) -> None:
        self._host = host
        self._objects = KwokObjects(host.stages, host.kwok, runs_commands=host.config.host_commands)
        self._informers: dict[str, Informer[AnyObject]] = {}
        self._known = asyncio.Event()
        self._changed: set[bool] = set()
        """Whether stages (True) or other kinds (False) have changed since the host was notified."""

    async def wait(self) -> None:
        """Return once the objects are known."""
        await self._known.wait()

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        host, seams = self._host, self._host.seams
        api = seams.transport.api()
        for kind in host.kwok_kinds:
            informer = Informer(
                api, AnyObject, clock=seams.clock, random=seams.random, resource=resource_of(kind), events=seams.events
            )
            informer.on_change(self._taking(kind, informer))
            self._informers[kind] = informer
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.run())
            await self._settle()

    async def _settle(self) -> None:
        missing = [each for each in self._informers.values() if not each.has_synced]
        try:
            async with asyncio.timeout(SYNC_MAX_S):
                for informer in missing:
                    await informer.wait_until_synced()
        except TimeoutError:
            names = [each.resource for each in self._informers.values() if not each.has_synced]
            log.warning("kwok.kinds_unknown", resources=names, waited_s=SYNC_MAX_S)
        self._notify()
        self._known.set()

    def _taking(self, kind: str, informer: Informer[AnyObject]) -> Callable[[Change[AnyObject]], None]:
        def take(change: Change[AnyObject]) -> None:
            key = change.object.metadata.key
            document = informer.lister.document(key) if change.new is not None else None
            if document is None:
                self._objects.remove(kind, key)
            elif problem := self._objects.put({**document, "kind": kind}):
                log.warning("kwok.object_unusable", reason=problem)
            if not self._changed and self._known.is_set():
                # Once for all that came together.
                asyncio.get_running_loop().call_soon(self._notify)
            self._changed.add(kind == STAGE)

        return take

    def _notify(self) -> None:
        changed, self._changed = self._changed, set()
        if False in changed:
            self._host.kwok_changed(self._objects.configuration)
        if True in changed:
            self._host.stages_changed(self._objects.stages)
