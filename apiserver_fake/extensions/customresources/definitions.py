"""The stored CustomResourceDefinitions of one server: the kinds that they define, their heads, and their
controller.

A server makes this when the first definition is stored; a server without definitions does not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from apiserver_fake.extensions.customresources.controller import DefinitionController
from apiserver_fake.extensions.customresources.definition_index import DefinitionIndex
from apiserver_fake.extensions.customresources.kinds import DefinedKinds, MakeConverter
from apiserver_fake.extensions.customresources.rules import Further
from apiserver_fake.registry.catalogue import Catalogue, Kind
from apiserver_fake.storage.records import DELETED, Change, Record
from apiserver_fake.storage.store import Store
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.seams import Clock
from services.api.wire import Api


class StoredDefinitions:
    """Keeps the catalogue in step with the stored definitions; `run` moves each definition to the state it asks for."""

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        api: Callable[[], Api],
        clock: Clock,
        make_converter: MakeConverter,
        further: Mapping[str, Further],
        ended: Callable[[str], None],
    ) -> None:
        """Start with no definitions. `further`: by definition name, a check of objects beyond their schema.

        `ended`: called with the wire name of a kind that is not served as before, so that its watches end.
        """
        self._store, self._catalogue, self._ended = store, catalogue, ended
        self._kinds = DefinedKinds(make_converter, further)
        self._defined: dict[str, Kind] = {}
        self.index = DefinitionIndex()
        self._controller = DefinitionController(store, self.index, api, clock)

    def recover(self, records: Sequence[Record]) -> None:
        """Serve the kinds of a recovered store's definitions."""
        for record in records:
            self.index.note(record, is_gone=False)
        self._redefine(record.name for record in records)

    def note(self, change: Change) -> None:
        """Record one committed definition, before watches show it."""
        self.index.note(change.record, is_gone=change.type == DELETED)

    def on_published(self, changes: Sequence[Change]) -> None:
        """Serve the kinds of changed definitions, after watches have shown the changes."""
        self._redefine(dict.fromkeys(change.record.name for change in changes))
        for change in changes:
            self.look_at(change.record, is_gone=change.type == DELETED)

    def look_at(self, record: Record, *, is_gone: bool) -> None:
        """Queue a definition for the controller."""
        self._controller.on_changed(record, is_gone=is_gone)

    async def run(self) -> None:
        """Move definitions to the states they ask for, until cancelled."""
        await self._controller.run()

    def _redefine(self, names: Iterable[str]) -> None:
        """Serve what the stored definitions of these names define now."""
        changed = False
        for name in names:
            record = self._store.get(DEFINITIONS, "", name)
            kind = self._kinds.kind_of(msgspec.json.decode(record.body)) if record is not None else None
            if record is None:
                self._kinds.forget(name)
            before = self._defined.get(name)
            if kind is before:
                continue
            changed = True
            if kind is None:
                del self._defined[name]
            else:
                self._defined[name] = kind
                if kind.resource.selectable_fields or (before is not None and before.resource.selectable_fields):
                    self._store.reindex(kind.resource)
            if before is not None:
                self._ended(name)
        if changed:
            self._catalogue.define(self._defined.values())
