"""The API server's own controllers of definitions: accept names, establish, and delete the objects of a
deleted kind.

Upstream runs them inside kube-apiserver, as its own user, and so does this: each step is an ordinary status
write that watches show. They wake only when a definition changes, so a server without definitions does nothing
here.
"""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from apiserver_fake.extensions.customresources import conditions
from apiserver_fake.extensions.customresources.definition_index import DefinitionIndex
from apiserver_fake.storage.records import Record, Selection
from apiserver_fake.storage.store import Store
from services.api.errors import ApiError
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.meta import Document
from services.api.seams import Clock
from services.api.wire import Api, Request

LOOK_AGAIN_S = 5.0
"""Seconds between checks whether objects with finalizers are gone, and before a failed write is retried."""

log = structlog.get_logger()


class DefinitionController:
    """Moves every definition to the state it asks for; `run` never returns."""

    def __init__(self, store: Store, index: DefinitionIndex, api: Callable[[], Api], clock: Clock) -> None:
        self._store, self._index, self._api, self._clock = store, index, api, clock
        self._queue: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._later: set[str] = set()

    def on_changed(self, record: Record, *, is_gone: bool) -> None:
        """Queue the definition; if it is gone, also queue the definitions that may now get its names."""
        self._add(record.name)
        if is_gone:
            self._add_group(record.name)

    def _add(self, name: str) -> None:
        self._queue[name] = None
        self._wake.set()

    def _add_group(self, name: str) -> None:
        for other, _ in self._index.others(name):
            self._add(other)

    async def run(self) -> None:
        """Process queued definitions step by step, until cancelled."""
        while True:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
            del self._queue[name := next(iter(self._queue))]
            try:
                await self._step(name)
            except ApiError as error:
                # Changed meanwhile: the change has put it back into the queue.
                if error.code not in (404, 409):
                    log.warning("definition.failed", definition=name, reason=str(error))
                    self._look_again_later(name)
            except Exception as error:  # a definition that trips over a bug must not end the server
                log.error("definition.failed", definition=name, exc_info=error)
                self._look_again_later(name)
            # A step that writes nothing waits for nothing: after a start there is one for each definition.
            await asyncio.sleep(0)

    def _look_again_later(self, name: str) -> None:
        if name not in self._later:
            self._later.add(name)
            asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._is_due, name)

    def _is_due(self, name: str) -> None:
        self._later.discard(name)
        self._add(name)

    async def _step(self, name: str) -> None:
        record = self._store.get(DEFINITIONS, "", name)
        if record is None:
            return
        definition: Document = msgspec.json.decode(record.body)
        wall_s = self._clock.wall()
        if conditions.is_ending(definition):
            await self._end(definition)
            return
        others = [head for _, head in self._index.others(name)]
        if (new := conditions.with_names(definition, others, wall_s)) is not None:
            await self._write(new)
            # It may have released a name.
            self._add_group(name)
            return
        new = conditions.with_established(definition, wall_s) or conditions.with_approval(definition, wall_s)
        if new is not None:
            await self._write(new)

    async def _write(self, definition: Document) -> Document:
        request = Request(
            verb="update",
            resource=DEFINITIONS,
            name=definition["metadata"]["name"],
            subresource="status",
            body=msgspec.json.encode(definition),
        )
        written: Document = msgspec.json.decode((await self._api().call(request)).unwrap().body)
        return written

    async def _end(self, definition: Document) -> None:
        name = definition["metadata"]["name"]
        begun = conditions.condition_of(definition, "Terminating")
        if begun is None or begun.get("reason") != "InstanceDeletionInProgress":
            definition = await self._write(conditions.ending(definition, self._clock.wall()))
        if conditions.is_true(definition, "Established"):
            try:
                (await self._api().call(Request(verb="deletecollection", resource=name))).unwrap()
            except ApiError as error:
                text = f"could not issue all deletes: {error.message}"
                failed = conditions.ending_failed(definition, "InstanceDeletionFailed", text, self._clock.wall())
                await self._write(failed)
                self._look_again_later(name)
                return
            if self._store.select(name, Selection()).records:
                self._look_again_later(name)
                return
        await self._write(conditions.without_finalizer(definition, self._clock.wall()))
