"""Files of kube-scheduler-simulator: its snapshot, one JSON document of seven kinds, and its record of changes.

Objects of a snapshot have no apiVersion and kind; they stand below the member of their kind. A record
has one change a line; its first lines are the objects that existed at its beginning. Pure but for reading and
writing the file.
Source: simulator 4.1, 9; kubernetes-sigs/kube-scheduler-simulator, `simulator/snapshot/snapshot.go`,
`simulator/recorder/recorder.go`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO, Final

from lab.exchange.format import Format, Reading
from lab.exchange.reading import Source, checked_object, json_elements, json_object, json_value, lines
from lab.exchange.stream import Change, Method, Origin, Place, Placed, Refused, Stream, title_of
from lab.exchange.times import NANOSECOND, nanoseconds_of
from services.api.meta import Document, Resource, metadata_of
from services.api.resources import resource_of_kind, resources
from services.api.times import format_time
from services.api.wire import encode

MEMBERS: Final = {
    "pods": "pods",
    "nodes": "nodes",
    "pvs": "persistentvolumes",
    "pvcs": "persistentvolumeclaims",
    "storageClasses": "storageclasses.storage.k8s.io",
    "priorityClasses": "priorityclasses.scheduling.k8s.io",
    "namespaces": "namespaces",
}
"""Wire name of the kind, by member of the snapshot."""
CONFIGURATION: Final = "schedulerConfig"
EXTRA: Final = "keplab.extra"
"""keplab's own member: whole objects of kinds that kube-scheduler-simulator does not know."""
WRITTEN: Final = ("pods", "nodes", "pvs", "pvcs", "storageClasses", "priorityClasses", CONFIGURATION, "namespaces")
"""Members in the order in which Go writes them."""
KINDS: Final = tuple(MEMBERS.values())
METHODS: Final[dict[str, Method]] = {"Add": "create", "Update": "update", "Delete": "delete"}
_FIRST_MEMBER = re.compile(rb'\A\s*\{\s*"([^"\\]*)"')
_IN_MEMORY: Final = 1 << 20


def is_left_out(resource: str, name: str) -> bool:
    """Return whether a snapshot leaves an object out: a class or namespace that every cluster has."""
    if resource == "namespaces":
        return name == "default" or name.startswith("kube-")
    return resource == "priorityclasses.scheduling.k8s.io" and name.startswith("system-")


def _fits(head: bytes) -> bool:
    found = _FIRST_MEMBER.match(head)
    return found is not None and found[1].decode("latin-1") in (*WRITTEN, EXTRA)


def _read(source: Source, reading: Reading) -> Stream:
    notes: dict[str, int] = {}
    return Stream(_objects(source, notes), iter(()), Origin("kss"), notes=notes)


def _objects(source: Source, notes: dict[str, int]) -> Iterator[Placed]:
    for part in json_elements(source):
        where = f"{part.place} {part.member}[{part.number - 1}]" if part.number else str(part.place)
        if part.member == CONFIGURATION:
            if part.text != b"null":
                notes["schedulerConfig (a mesh takes it by --scheduler-config)"] = 1
        elif part.member not in MEMBERS and part.member != EXTRA:
            raise Refused(f"{part.place}: member {part.member!r}: want one of {', '.join(WRITTEN)}")
        elif part.number:
            yield Placed(checked_object(_whole(part.member, part.text, part.place), where), where)
        elif part.text != b"null":
            raise Refused(f"{part.place}: {part.member}: want an array")


def _whole(member: str, text: bytes, place: Place) -> Document:
    """Return an object with its apiVersion and kind."""
    found = json_object(text, place)
    if member == EXTRA:
        return found
    resource = resources()[MEMBERS[member]]
    return {"apiVersion": resource.api_version, "kind": resource.kind, **found}


class SnapshotWriter:
    """A writer of snapshots. `configuration`: the scheduler's, None if there is none. `left_out`: counts of objects of
    other kinds, by kind; with `all_kinds` they are written below `keplab.extra` instead. Source: simulator 4.1.
    """

    def __init__(self, file: BinaryIO, configuration: Document | None = None, *, all_kinds: bool = False) -> None:
        self._file, self._configuration, self._all_kinds = file, configuration, all_kinds
        self._parts: dict[str, Any] = {}
        self.left_out: dict[str, int] = {}
        self.written = 0

    def put(self, document: Document) -> None:
        """Add an object to the snapshot."""
        resource = _resource(document)
        name = str(metadata_of(document).get("name") or "")
        if resource is not None and is_left_out(resource.name, name):
            return
        member = next((each for each, kind in MEMBERS.items() if resource is not None and kind == resource.name), "")
        if not member and not self._all_kinds:
            kind = str(document.get("kind"))
            self.left_out[kind] = self.left_out.get(kind, 0) + 1
            return
        bare = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
        self.written += 1
        self._append(member or EXTRA, encode(bare if member else document))

    def change(self, change: Change) -> None:
        """Refuse the change: a snapshot has no changes."""
        raise Refused(f"{change}: a snapshot of kube-scheduler-simulator has no changes; write kss-record")

    def close(self) -> None:
        """Write the document."""
        members = [*WRITTEN, *([EXTRA] if EXTRA in self._parts else [])]
        for number, member in enumerate(members):
            self._file.write((b"," if number else b"{") + encode(member) + b":")
            if member == CONFIGURATION:
                self._file.write(encode(self._configuration))
                continue
            self._file.write(b"[")
            if (part := self._parts.get(member)) is not None:
                part.seek(0)
                while block := part.read(_IN_MEMORY):
                    self._file.write(block)
                part.close()
            self._file.write(b"]")
        self._file.write(b"}\n")

    def _append(self, member: str, text: bytes) -> None:
        part = self._parts.get(member)
        if part is None:
            part = self._parts[member] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  closed by close
            part.write(text)
            return
        part.write(b"," + text)


def _resource(document: Document) -> Resource | None:
    return resource_of_kind(str(document.get("apiVersion")), str(document.get("kind")))


SNAPSHOT = Format(
    name="kss",
    title="a snapshot of kube-scheduler-simulator",
    fits=_fits,
    read=_read,
    write=lambda file, began_wall_s: SnapshotWriter(file),
    kinds=KINDS,
)


# Records


def _fits_record(head: bytes) -> bool:
    found = _FIRST_MEMBER.match(head)
    if found is None or found[1] not in (b"time", b"event", b"resource"):
        return False
    line = head.split(b"\n", 1)[0]
    return b'"event"' in line and b'"resource"' in line


def _read_record(source: Source, reading: Reading) -> Stream:
    notes: dict[str, int] = {}
    return Stream(iter(()), _changes(source, reading, notes), Origin("kss-record"), notes=notes)


def _changes(source: Source, reading: Reading, notes: dict[str, int]) -> Iterator[Change]:
    began_ns: int | None = None
    for text, place, is_torn in lines(source):
        if is_torn and not _is_json(text, place):
            note = f"a torn last line (line {place.line})"
            notes[note] = notes.get(note, 0) + 1
            return
        try:
            at_ns, change = _change(json_object(text, place), str(place))
        except Refused:
            if not reading.is_lenient:
                raise
            notes["lines that cannot be used"] = notes.get("lines that cannot be used", 0) + 1
            continue
        began_ns = at_ns if began_ns is None else began_ns
        if isinstance(change, str):
            notes[change] = notes.get(change, 0) + 1
            continue
        yield replace(change, at_s=max(0, at_ns - began_ns) / NANOSECOND)


def _is_json(text: bytes, place: Place) -> bool:
    try:
        json_value(text, place)
    except Refused:
        return False
    return True


def _change(line: Document, where: str) -> tuple[int, Change | str]:
    """Return when a line is, in nanoseconds, and what it says, or why it is left out. Raises: Refused."""
    moment, event, document = line.get("time"), line.get("event"), line.get("resource")
    if not isinstance(document, dict):
        raise Refused(f"{where}: resource: want an object, not {type(document).__name__}")
    what = title_of(document)
    try:
        at_ns = nanoseconds_of(moment if isinstance(moment, str) else "")
    except ValueError:
        raise Refused(f"{where}: {what}: time {moment!r}: want a moment as RFC 3339 writes it") from None
    method = METHODS.get(event) if isinstance(event, str) else None
    if method is None:
        raise Refused(f"{where}: {what}: event {event!r}: want Add, Update or Delete")
    checked_object(document, where)
    resource = _resource(document)
    if resource is None:
        return at_ns, f"{document['apiVersion']} {document['kind']}: a kind that is not known"
    metadata = metadata_of(document)
    if method == "update" and resource.name == "pods" and (document.get("spec") or {}).get("nodeName"):
        return at_ns, "updates of pods that have a node: the scheduler here decides itself"
    namespace, name = str(metadata.get("namespace") or ""), str(metadata["name"])
    whole = None if method == "delete" else document
    return at_ns, Change(0.0, method, resource.name, namespace, name, whole, "", where)


class _RecordWriter:
    """A writer of a record: first the existing objects, then changes as they come."""

    def __init__(self, file: BinaryIO, began_wall_s: float) -> None:
        self._file, self._began_ns = file, round(began_wall_s * NANOSECOND)

    def put(self, document: Document) -> None:
        """Write an object that is there."""
        self._write(0.0, "Add", document)

    def change(self, change: Change) -> None:
        """Write what became of an object; a deletion names it alone."""
        event = next(each for each, method in METHODS.items() if method == change.method)
        document = change.document
        if document is None:
            resource = resources().get(change.resource)
            version, kind = (resource.api_version, resource.kind) if resource is not None else ("", change.resource)
            named = {"name": change.name, **({"namespace": change.namespace} if change.namespace else {})}
            document = {"apiVersion": version, "kind": kind, "metadata": named}
        self._write(change.at_s, event, document)

    def close(self) -> None:
        """Write nothing: nothing is held back."""

    def _write(self, at_s: float, event: str, document: Document) -> None:
        line = {"time": moment_text(self._began_ns + round(at_s * NANOSECOND)), "event": event, "resource": document}
        self._file.write(encode(line) + b"\n")


def moment_text(ns: int) -> str:
    """Return a time as Go's RFC3339Nano writes it: in UTC, without trailing zeros of its fraction."""
    second, rest = divmod(ns, NANOSECOND)
    fraction = f".{rest:09d}".rstrip("0").rstrip(".")
    return f"{format_time(second)[:-1]}{fraction}Z"


RECORD = Format(
    name="kss-record",
    title="a record of kube-scheduler-simulator",
    fits=_fits_record,
    read=_read_record,
    write=_RecordWriter,
    has_changes=True,
    has_machines=True,
    kinds=KINDS,
)
FORMATS = (SNAPSHOT, RECORD)
