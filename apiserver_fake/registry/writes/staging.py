"""Staging of the objects that a write changes, and the answer to the write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from apiserver_fake.registry.strategy import WriteContext
from apiserver_fake.storage.records import Record
from apiserver_fake.storage.store import Staged
from services.api.meta import Document, Resource
from services.api.wire import Response

QUOTAS = "resourcequotas"


class Stager(msgspec.Struct, frozen=True):
    """Stages the objects that one write changes. `find`: returns a kind by its wire name."""

    resource: Resource
    traceparent: str
    find: Callable[[str], Resource]
    is_dry_run: bool

    def create(self, staged: Staged, new: Document, charged: Sequence[Document]) -> tuple[bytes, int]:
        """Stage a new object; return its bytes and resourceVersion."""
        if self.is_dry_run:
            return msgspec.json.encode(new), staged.rv
        record = staged.put(self.resource, new, self.traceparent)
        if charged:
            self.charge(staged, charged)
        return record.body, record.rv

    def store(
        self, staged: Staged, stored: Record, new: Document, charged: Sequence[Document] = (), *, is_gone: bool = False
    ) -> tuple[bytes, int]:
        """Stage the new document, or the removal of a released object; return its bytes and resourceVersion."""
        if self.is_dry_run:
            return msgspec.json.encode(new), stored.rv
        final = {**new, "metadata": {**new["metadata"]}}
        if is_gone or _is_released(final):
            record = staged.remove(self.resource, final, self.traceparent)
        else:
            record = staged.put(self.resource, final, self.traceparent)
            if charged:
                self.charge(staged, charged)
        return record.body, record.rv

    def charge(self, staged: Staged, charged: Sequence[Document]) -> None:
        """Stage the changed quotas. Call it after staging the object, which names the commit."""
        for quota in charged:
            staged.put(self.find(QUOTAS), quota, self.traceparent)

    def put_others(self, staged: Staged, others: Iterable[tuple[str, Document]]) -> None:
        """Stage the other objects (kind, document) that the same commit changes."""
        if self.is_dry_run:
            return
        for kind, other in others:
            staged.put(self.find(kind), {**other, "metadata": {**other["metadata"]}}, self.traceparent)


def answer(body: bytes, rv: int, ctx: WriteContext, code: int) -> Response:
    """Return the answer to a write, with its warnings and audit annotations."""
    return Response(code=code, rv=rv, body=body, warnings=tuple(ctx.warnings), audit=ctx.audit)


def _is_released(document: Document) -> bool:
    """Whether a deleted object can be removed: it has no finalizers, and its grace period was confirmed (S19)."""
    meta = document["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    is_namespace = document.get("kind") == "Namespace"
    return not (is_namespace and (document.get("spec") or {}).get("finalizers"))
