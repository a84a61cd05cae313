"""kwokctl's snapshots and recordings: a YAML stream of whole objects, then of `ResourcePatch` documents.

Times are written relative to the beginning of the recording; on reading they are counted from the moment at which the
replay begins. Changes come out by their times through a heap, because a recorder writes several kinds at once. Pure but
for reading and writing the file. Source: simulator 5.2.
"""

from __future__ import annotations

import heapq
import re
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import msgspec
import yaml

from apiserver_fake.registry.schema.schemas import ANYTHING, shape_of
from lab.exchange.format import Edit, Format, Reading, Rename, Writer
from lab.exchange.patches import strategic_diff, without_key
from lab.exchange.reading import Piece, Source, checked_object, document_of, yaml_pieces
from lab.exchange.stream import Change, Origin, Placed, Refused, Stream, api_version_of, kind_of, title_of
from lab.exchange.times import NANOSECOND, has_offsets, to_moments, to_offsets
from services.api.meta import Document, Key, Resource, key_of, metadata_of
from services.api.resources import resource_of_kind, resources
from services.api.wire import encode

ACTION: Final = "action.kwok.x-k8s.io/v1alpha1"
KIND: Final = "ResourcePatch"
METHODS: Final = ("create", "patch", "delete")
HEAP: Final = 1024
"""Number of changes that are read ahead before the first is yielded; they may be out of order by that many."""
_KIND_LINE = re.compile(rb"^(?:apiVersion|kind): ?\S", re.MULTILINE)
_OWN_LINE = re.compile(rb"^apiVersion: ?[\"']?action\.kwok\.x-k8s\.io/", re.MULTILINE)
_LIST_LINE = re.compile(rb"^kind: ?[\"']?\w*List[\"']?\s*$", re.MULTILINE)
_FIRST_SIGN = re.compile(rb"\A(?:\s|#[^\n]*\n|---[ \t]*\r?\n|%YAML[^\n]*\n)*")


def _fits(head: bytes) -> bool:
    """Whether it is a YAML stream of objects that are no Lists: those of a snapshot without any change are as well."""
    begun = head[_FIRST_SIGN.match(head).end() :]  # type: ignore[union-attr]  # it matches nothing at least
    if _OWN_LINE.search(head) or has_offsets(head):
        return True
    if begun[:1] in (b"{", b"[") or b"\0" in head:
        return False
    return len(_KIND_LINE.findall(begun)) >= 2 and not _LIST_LINE.search(head)


def _read(source: Source, reading: Reading) -> Stream:
    notes: dict[str, int] = {}
    reader = _Reader(source, reading, notes)
    return Stream(reader.objects, reader.changes(), Origin("kwok"), notes=notes)


class _Reader:
    """One reading of a file. `_first`: the first ResourcePatch, which ends the objects."""

    def __init__(self, source: Source, reading: Reading, notes: dict[str, int]) -> None:
        self._pieces = yaml_pieces(source)
        self._began_ns = round(reading.began_wall_s * NANOSECOND)
        self._is_lenient, self._notes = reading.is_lenient, notes
        self._wanted = [each.partition(".")[0].encode() for each in reading.resources]
        self._first: Placed | None = None
        self.objects = self._until_first()

    def _documents(self) -> Iterator[Placed]:
        for text, place in self._pieces:
            if self._wanted and not any(each in text for each in self._wanted):
                continue
            piece = Piece(to_moments(text, self._began_ns), place)
            try:
                entry = Placed(document_of(piece), str(place))
            except Refused:
                if not self._is_lenient:
                    raise
                self._leave("documents that cannot be read")
                continue
            yield entry

    def _leave(self, what: str) -> None:
        self._notes[what] = self._notes.get(what, 0) + 1

    def _until_first(self) -> Iterator[Placed]:
        for placed in self._documents():
            if _is_patch(placed.document):
                self._first = placed
                return
            try:
                checked_object(placed.document, placed.where)
            except Refused:
                if not self._is_lenient:
                    raise
                self._leave("documents that are no objects")
                continue
            yield placed

    def changes(self) -> Iterator[Change]:
        while self._first is None and next(self.objects, None) is not None:
            pass  # who wants the changes alone
        heap: list[tuple[int, int, Change]] = []
        for number, placed in enumerate(self._patches()):
            try:
                at_ns, change = _change(placed)
            except Refused:
                if not self._is_lenient:
                    raise
                self._leave("ResourcePatch documents that cannot be used")
                continue
            heapq.heappush(heap, (at_ns, number, change))
            if len(heap) >= HEAP:
                yield heapq.heappop(heap)[2]
        while heap:
            yield heapq.heappop(heap)[2]

    def _patches(self) -> Iterator[Placed]:
        if self._first is None:
            return
        yield self._first
        for placed in self._documents():
            if _is_patch(placed.document):
                yield placed
            elif self._is_lenient:
                self._leave("objects after the first ResourcePatch")
            else:
                raise Refused(f"{placed.where}: {placed.name}: want {KIND} alone after the first one")


def _is_patch(document: Document) -> bool:
    return document.get("kind") == KIND and document.get("apiVersion") == ACTION


def _change(placed: Placed) -> tuple[int, Change]:
    """Return what a ResourcePatch says, and when, in nanoseconds. Raises: Refused naming the field and what it says."""
    document, where = placed.document, placed.where
    target = document.get("target")
    key = Key(*(str((target if isinstance(target, dict) else {}).get(each) or "") for each in ("namespace", "name")))

    def refusal(field: str, said: Any, wanted: str) -> Refused:
        text = "nothing" if said is None else msgspec.json.encode(said).decode()
        return Refused(f"{where}: {KIND} {key}: {field} {text}: want {wanted}")

    if not key.name:
        raise refusal("target.name", None, "the name of an object")
    method = document.get("method")
    if method not in METHODS:
        raise refusal("method", method, "create, patch or delete")
    at_ns = document.get("durationNanosecond")
    if isinstance(at_ns, bool) or not isinstance(at_ns, int) or not 0 <= at_ns < 1 << 63:
        raise refusal("durationNanosecond", at_ns, "nanoseconds since the beginning, 0 or more")
    resource = document.get("resource")
    if not isinstance(resource, dict) or not isinstance(resource.get("resource"), str) or not resource["resource"]:
        raise refusal("resource", resource, "group, version and resource")
    group = str(resource.get("group") or "")
    wire = f"{resource['resource']}.{group}" if group else resource["resource"]
    template = document.get("template")
    if method == "delete":
        if template is not None:
            raise refusal("template", template, "nothing where the method is delete")
    elif not isinstance(template, dict):
        raise refusal("template", template, "an object" if method == "create" else "a strategic merge patch")
    known = resources().get(wire)
    if method == "create" and template is not None:
        checked_object(template, where)
        given = metadata_of(template)
        if Key(str(given.get("namespace") or ""), str(given["name"])) != key:
            raise refusal("target", str(key), f"that of its template, {title_of(template)}")
    if method == "patch":
        shape = shape_of(known.api_version, known.kind) if known is not None else ANYTHING
        if at := without_key(template, shape):
            raise refusal(f"template.{at}", None, "the merge key of the list")
    patch_type = "strategic" if method == "patch" else ""
    return at_ns, Change(at_ns / NANOSECOND, method, wire, key.namespace, key.name, template, patch_type, where)


_DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Writer:
    """A writer of a stream. `_seen`: the last state of each object, compressed, by its wire name and key."""

    def __init__(self, file: BinaryIO, began_wall_s: float) -> None:
        self._file, self._began_ns = file, round(began_wall_s * NANOSECOND)
        self._seen: dict[tuple[str, Key], bytes] = {}
        self._is_begun = False

    def put(self, document: Document) -> None:
        """Write an object of the snapshot."""
        cleared = _clear_metadata(document)
        self._remember(_resource(cleared), cleared)
        self._write(cleared)

    def change(self, change: Change) -> None:
        """Write what became of an object; of an update that changes nothing but versions, nothing."""
        at = (change.resource, change.key)
        before = self._seen.get(at)
        method, template = change.method, None
        if change.method == "patch":
            assert change.patch_type == "strategic", "kwokctl's patches are strategic merge patches"
            template = change.document
        elif change.method == "delete":
            if self._seen.pop(at, None) is None:
                return
        else:
            assert change.document is not None, "a create or update has its object"
            cleared = _clear_metadata(change.document)
            method, template = "create", cleared
            if before is not None:
                known = resources().get(change.resource)
                shape = shape_of(known.api_version, known.kind) if known is not None else ANYTHING
                template = strategic_diff(msgspec.json.decode(zlib.decompress(before)), cleared, shape)
                if not template:
                    return
                method = "patch"
            self._remember(change.resource, cleared)
        self._write(
            {
                "apiVersion": ACTION,
                "kind": KIND,
                "resource": _group_version_resource(change),
                "target": {"name": change.name, **({"namespace": change.namespace} if change.namespace else {})},
                "durationNanosecond": round(change.at_s * NANOSECOND),
                "method": method,
                **({"template": template} if template is not None else {}),
            }
        )

    def close(self) -> None:
        """Write nothing: nothing is held back."""

    def _remember(self, resource: str, document: Document) -> None:
        self._seen[resource, key_of(document)] = zlib.compress(encode(document), 1)

    def _write(self, document: Document) -> None:
        text: str = yaml.dump(document, Dumper=_DUMPER, allow_unicode=True, sort_keys=True, width=1 << 16)
        self._file.write((b"---\n" if self._is_begun else b"") + to_offsets(text.encode(), self._began_ns))
        self._is_begun = True


def _clear_metadata(document: Document) -> Document:
    metadata = {name: value for name, value in metadata_of(document).items() if name not in _CLEARED}
    return {**document, "metadata": metadata}


_CLEARED: Final = ("resourceVersion", "managedFields", "selfLink")
"""Fields of the metadata that another API server sets anew."""


def _resource(document: Document) -> str:
    found = resource_of_kind(str(document.get("apiVersion")), str(document.get("kind")))
    if found is not None:
        return found.name
    group = str(document.get("apiVersion") or "").rpartition("/")[0]
    plural = f"{str(document.get('kind') or '').lower()}s"
    return f"{plural}.{group}" if group else plural


def _group_version_resource(change: Change) -> Document:
    known: Resource | None = resources().get(change.resource)
    plural, _, group = change.resource.partition(".")
    version = known.version if known is not None else ""
    if not version and change.document is not None:
        version = str(change.document.get("apiVersion") or "").rpartition("/")[2]
    return {**({"group": group} if group else {}), "version": version or "v1", "resource": plural}


def _rewrite(source: Source, file: BinaryIO, edit: Edit, rename: Rename | None = None, shift_s: float = 0.0) -> None:
    """Write a stream again; its times are relative, so that nothing is to be moved (`shift_s`)."""
    is_begun = False
    for piece in yaml_pieces(source):
        document: Document | None = document_of(piece)
        assert document is not None, "what is read is an object"
        if _is_patch(document):
            at_ns, change = _change(Placed(document, str(piece.place)))
            key = rename(kind_of(change.resource), change.key) if rename is not None else change.key
            body: Document | None = change.document
            kind = kind_of(change.resource)
            if body is not None:
                body = edit(at_ns / NANOSECOND, body, kind=kind)
                document = None if body is None else {**document, "template": body}
            else:
                target = {"name": change.name, **({"namespace": change.namespace} if change.namespace else {})}
                gone = {"apiVersion": api_version_of(change.resource), "kind": kind, "metadata": target}
                document = document if edit(at_ns / NANOSECOND, gone, is_deleted=True) is not None else None
            if document is not None:
                target = {"name": key.name, **({"namespace": key.namespace} if key.namespace else {})}
                document = {**document, "target": target}
        else:
            document = edit(0.0, checked_object(document, str(piece.place)))
        if document is None:
            continue
        text: str = yaml.dump(document, Dumper=_DUMPER, allow_unicode=True, sort_keys=True, width=1 << 16)
        file.write((b"---\n" if is_begun else b"") + text.encode())
        is_begun = True


def _write(file: BinaryIO, began_wall_s: float) -> Writer:
    return _Writer(file, began_wall_s)


FORMAT = Format(
    name="kwok",
    title="a snapshot or recording of kwokctl (--format k8s)",
    fits=_fits,
    read=_read,
    write=_write,
    has_changes=True,
    has_machines=True,
    rewrite=_rewrite,
)
