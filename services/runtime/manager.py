"""Run controllers: shared informers, a work queue and workers for each, one reconcile at a time a key.

A controller is a record and a plain function; the rest is the same for all of them: waiting for
sync, mapping changes to keys, deduplicating, backing off, reading live when asked to, performing the
actions under the controller's own identity, and holding a key until the caches have seen its own last
writes (guarantees C7). It leaves one log line, one event line and, when something was done, one span a
reconcile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.api.meta import View
from services.api.seams import Seams
from services.client.leases import Elector
from services.reconcile.controller import Controller
from services.runtime.caches import Caches
from services.runtime.controller_loop import ControllerLoop


class Manager:
    """The component that runs controllers: informers, one `ControllerLoop` a controller, optionally an elector.

    With an elector it leads before it works, with every write carrying the epoch (C11).
    Raises: KeyError when the transport has no credential of a controller's identity.
    """

    def __init__(self, controllers: Sequence[Controller], seams: Seams, *, elector: Elector | None = None) -> None:
        self._seams = seams
        self._caches = Caches(seams, _views_of(controllers))
        self._loops = [ControllerLoop(controller, seams, self._caches) for controller in controllers]
        self._elector = elector

    @property
    def is_ready(self) -> bool:
        """Whether all caches are synced; a replica that waits for the lease is ready too."""
        return all(informer.has_synced for informer in self._caches.informers)

    async def run(self) -> None:
        """Work until cancelled. Raises: LeadershipLost when the lease is lost."""
        async with asyncio.TaskGroup() as group:
            for informer in self._caches.informers:
                group.create_task(informer.run())
            for informer in self._caches.informers:
                await informer.wait_until_synced()
            if self._elector is not None:
                epoch = await self._elector.acquire()
                for loop in self._loops:
                    loop.lead(epoch, self._elector.deposed)
                group.create_task(self._elector.hold())
            for loop in self._loops:
                group.create_task(loop.run())

    def log_sync(self) -> None:
        """Write a `cache.sync` line for each cache."""
        for informer in self._caches.informers:
            informer.log_sync()

    def metrics(self) -> dict[str, float]:
        """Return the metrics of informers, queues, reconciles and recorders."""
        found: dict[str, float] = self._elector.metrics() if self._elector is not None else {}
        for informer in self._caches.informers:
            found |= informer.metrics()
        for loop in self._loops:
            found |= loop.metrics()
        return found

    @property
    def is_idle(self) -> bool:
        """Whether no key waits or is being worked on; delayed keys do not count."""
        return all(loop.is_idle for loop in self._loops)


def _views_of(controllers: Sequence[Controller]) -> list[type[View]]:
    """Return every declared view once, in the order of declaration."""
    found: dict[type[View], None] = {}
    for controller in controllers:
        declared = (
            *((controller.reconciles,) if controller.reconciles is not None else ()),
            *controller.owns,
            *(watch.view for watch in controller.watches),
            *controller.reads,
        )
        found.update(dict.fromkeys(declared))
    return list(found)
