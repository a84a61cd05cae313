"""What a write may look at while it is evaluated: clock, switches, the other objects, the rules' memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from apiserver_fake.registry.creation import Limits
from apiserver_fake.storage.records import Record
from apiserver_fake.storage.selection import Selection
from apiserver_fake.storage.store import Staged
from apiserver_fake.strategy import ServerMemory, WriteContext
from apiserver_fake.switches import ApiServerSwitches
from services.api.identity import Identity
from services.api.meta import Document, Key
from services.api.seams import Clock, Random
from services.api.switches import Switches
from services.api.wire import Request

SELDOM_WRITTEN = frozenset(("priorityclasses.scheduling.k8s.io", "limitranges"))
"""Kinds of which rules ask for all objects on every creation of another; kept decoded."""
DOCUMENTS_KEPT = 64


class WriteContexts:
    """What all writes have around them; lives with the server."""

    def __init__(self, *, clock: Clock, random: Random, switches: Switches, limits: Limits) -> None:
        self._clock, self._random = clock, random
        self._switches, self._register = switches.of(ApiServerSwitches), switches
        self.limits = limits
        self._memory = ServerMemory()
        self._documents: dict[tuple[str, Key], tuple[Record, Document]] = {}

    def context(self, identity: Identity, request: Request, staged: Staged) -> WriteContext:
        """Return what rules may look at during one write."""

        def lookup(resource: str, namespace: str, name: str) -> Document | None:
            return document_of(staged.get(resource, namespace, name))

        def documents(resource: str, namespace: str) -> Iterable[Document]:
            if namespace and not staged.count_in(resource, namespace):
                return
            for record in staged.select(resource, Selection(namespace)):
                yield self._decoded(record) if resource in SELDOM_WRITTEN else msgspec.json.decode(record.body)

        def labels(resource: str, namespace: str, name: str) -> Mapping[str, str] | None:
            record = staged.get(resource, namespace, name)
            return None if record is None else record.labels

        return WriteContext(
            identity=identity,
            now_s=self._clock.now(),
            wall_s=self._clock.wall(),
            switches=self._switches,
            register=self._register,
            random=self._random,
            request=request,
            lookup=lookup,
            list=documents,
            memory=self._memory,
            labels=labels,
        )

    def _decoded(self, record: Record) -> Document:
        """Return a record's document, the same each time until the object changes; read-only."""
        known = self._documents.get((record.resource, record.key))
        if known is None or known[0] is not record:
            if len(self._documents) >= DOCUMENTS_KEPT:
                self._documents.clear()
            known = self._documents[record.resource, record.key] = (record, msgspec.json.decode(record.body))
        return known[1]


def document_of(record: Record | None) -> Document | None:
    """Return a fresh copy of a record's document."""
    if record is None:
        return None
    document: Document = msgspec.json.decode(record.body)
    return document
