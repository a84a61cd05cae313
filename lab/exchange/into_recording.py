"""Write a stream of another tool as a recording, so that the page shows it like one of keplab's own.

Each object and each change is a version, numbered in the order of the stream; nothing is simulated, so there
are no event lines, spans or decisions, and statuses are those that the stream has. Source: simulator 1, 10.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from apiserver_fake.registry.patch.patch import apply_patch
from apiserver_fake.registry.schema.schemas import ANYTHING, shape_of
from lab.exchange.rules import Counted
from lab.exchange.stream import Change, Placed, Refused, Stream, title_of
from lab.recordings.format import ADDED, DELETED, MODIFIED, SUFFIX, Meta
from lab.recordings.writer import NotRecordable, Writer
from services.api.errors import ApiError
from services.api.meta import Document, Key, metadata_of
from services.api.resources import resource_of_kind, resources
from services.api.times import format_time
from services.api.wire import encode

NOT_RECORDED: Final = "event lines, spans and decisions: the recording was made of a file of another tool"


class IntoRecording:
    """Writer of a stream into a recording that has begun. `wall_s`: epoch seconds of the stream's time 0; `wanted`:
    filter of objects, None for all. `left_out`: what a recording cannot hold, counted by reason.
    """

    def __init__(self, writer: Writer, wall_s: float, wanted: Callable[[Document], bool] | None = None) -> None:
        self._writer, self._wall_s, self._wanted = writer, wall_s, wanted
        self._stored: dict[tuple[str, Key], bytes] = {}
        self._rv = 0
        self.left_out = Counted()
        self.versions, self.failure = 0, ""
        """How many versions there are, and why there are no more, once the recording is closed."""

    def put(self, placed: Placed) -> None:
        """Write an object of the snapshot."""
        self._write(0.0, placed.document, placed.where)

    def change(self, change: Change) -> None:
        """Write a change of an object.

        Raises: Refused, if a patch is of an object that is not there, or cannot be applied.
        """
        at = (change.resource, change.key)
        before = self._stored.get(at)
        if change.method == "delete":
            if before is None:
                if self._wanted is None:
                    self.left_out.add("gone already", str(change))
                return
            self._delete(change.at_s, at, before)
        elif change.method == "patch":
            if before is None and self._wanted is not None:
                return  # of an object that is not meant
            if before is None:
                raise Refused(f"{change.where or change.resource}: {change}: {change.key} is not there")
            self._write(change.at_s, self._patch_document(change, msgspec.json.decode(before)), change.where)
        else:
            self._write(change.at_s, change.document or {}, change.where)

    def _patch_document(self, change: Change, document: Document) -> Document:
        resource = resources().get(change.resource)
        shape = shape_of(resource.api_version, resource.kind) if resource is not None else ANYTHING
        kind = resource.kind if resource is not None else change.resource
        try:
            return apply_patch(document, change.document or {}, change.patch_type or "merge", shape, kind)
        except ApiError as error:
            raise Refused(f"{change.where or change.resource}: {change}: {error.message}") from None

    def _write(self, at_s: float, document: Document, where: str) -> None:
        if self._wanted is not None and not self._wanted(document):
            return
        resource = resource_of_kind(str(document.get("apiVersion")), str(document.get("kind")))
        if resource is None:
            self.left_out.add("of kinds that keplab does not know", f"{where}: {title_of(document)}")
            return
        given = metadata_of(document)
        key = Key(str(given.get("namespace") or "") if resource.namespaced else "", str(given.get("name") or ""))
        before = self._stored.get((resource.name, key))
        held = metadata_of(msgspec.json.decode(before)) if before is not None else {}
        self._rv += 1
        new_metadata: dict[str, Any] = {
            "uid": held.get("uid") or given.get("uid") or _uid(resource.name, key, self._rv),
            "creationTimestamp": held.get("creationTimestamp")
            or given.get("creationTimestamp")
            or format_time(self._wall_s + at_s),
        }
        body = {**_with_quantities(document), "metadata": {**given, **new_metadata, "resourceVersion": str(self._rv)}}
        self._stored[resource.name, key] = text = encode(body)
        self._writer.write_object(resource.name, text, ADDED if before is None else MODIFIED, at_s)

    def _delete(self, at_s: float, at: tuple[str, Key], before: bytes) -> None:
        document = msgspec.json.decode(before)
        self._rv += 1
        del self._stored[at]
        body = {**document, "metadata": {**document["metadata"], "resourceVersion": str(self._rv)}}
        self._writer.write_object(at[0], encode(body), DELETED, at_s)


_AMOUNTS: Final = frozenset(("capacity", "allocatable", "requests", "limits", "overhead", "hard", "used", "allocated"))


def _with_quantities(value: Any) -> Any:
    """Return a document with its quantities as the texts that an API server makes of numbers."""
    if isinstance(value, list):
        return [_with_quantities(each) for each in value]
    if not isinstance(value, dict):
        return value
    members = {}
    for name, member in value.items():
        if name in _AMOUNTS and isinstance(member, dict):
            members[name] = {
                key: str(amount) if isinstance(amount, int | float) else amount for key, amount in member.items()
            }
        else:
            members[name] = _with_quantities(member)
    return members


def write_recording(
    path: Path,
    meta: Meta,
    streams: Sequence[Stream],
    read_wall_s: float,
    wanted: Callable[[Document], bool] | None = None,
) -> IntoRecording:
    """Write streams as one recording, and return its writer with the counts.

    `meta`: as it is written at the end. `read_wall_s`: wall time from which relative times were counted.
    Raises: Refused, if there can be no recording at the path, or a stream cannot be read on; what was written until
    then is a recording that has no end.
    """
    if path.suffix != SUFFIX:
        raise Refused(f"--into {path}: want a file that ends in {SUFFIX}; a folder with a scenario is --into-scenario")
    wall_s = next((each.origin.started_wall_s for each in streams if each.origin.started_wall_s), read_wall_s)
    try:
        writer = Writer(path, msgspec.structs.replace(meta, ended=""))
    except NotRecordable as error:
        raise Refused(str(error)) from None
    writer.begin(0.0, wall_s, is_virtual=True)
    recording, end = IntoRecording(writer, wall_s, wanted), ""
    try:
        for placed in chain.from_iterable(each.objects for each in streams):
            recording.put(placed)
        changes: Iterator[Change] = heapq.merge(*(each.changes for each in streams), key=lambda each: each.at_s)
        for change in changes:
            recording.change(change)
        end = meta.ended
    finally:
        writer.close(msgspec.structs.replace(writer.meta, ended=end))
    recording.versions, recording.failure = writer.version_count, writer.failure
    return recording


def _uid(resource: str, key: Key, number: int) -> str:
    """Return a uid for an object that says none: of equal streams equal ones."""
    text = hashlib.sha256(f"{resource}/{key}/{number}".encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:32]}"
