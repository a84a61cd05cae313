"""Output of `kubectl get -o yaml` and `-o json`, also after jq and cat: Lists, objects, lists of objects.

Items are read one at a time, however long a List is. Several documents of YAML may follow each other; where
none of them is a List, the file is one of kwokctl's as well, which reads the same. Objects of JSON may follow
each other with nothing but blanks, or a line `---`, between them. Pure but for reading and writing the file.
Source: upstream `staging/src/k8s.io/cli-runtime/pkg/printers/yaml.go`; simulator 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from lab.exchange.format import Format, Reading
from lab.exchange.reading import (
    LIMITS,
    Piece,
    Source,
    check_document,
    checked_object,
    document_of,
    json_object,
    json_stream,
    json_value,
)
from lab.exchange.stream import Change, Origin, Place, Placed, Refused, Stream
from services.api.documents import yaml_text
from services.api.meta import Document

_FIRST_MEMBER = re.compile(
    rb'\{\s*"(?:apiVersion|kind|metadata|items|spec|status|data|stringData|type|rules|roleRef|subjects|value|provisioner)"'
)
_BEFORE = re.compile(rb"\A(?:\s|---(?=[\s{\[]))*")
"""Pattern of what may stand before the first JSON object."""
_ITEMS = re.compile(rb"^items:[ \t]*(?:\[\][ \t]*)?\r?$", re.MULTILINE)
_LIST = re.compile(rb"^kind: ?[\"']?\w*List[\"']?\s*$", re.MULTILINE)
_OWN_KEYS: Final = ("apiVersion", "kind", "metadata", "items")


def _skip_preamble(head: bytes) -> bytes:
    return head[_BEFORE.match(head).end() :]  # type: ignore[union-attr]  # it matches nothing at least


def _fits(head: bytes) -> bool:
    begun = _skip_preamble(head)
    if begun[:1] == b"[":
        return b'"apiVersion"' in begun or not begun.strip(b"[] \t\r\n")
    if begun[:1] == b"{":
        return _FIRST_MEMBER.match(begun) is not None
    return bool(_ITEMS.search(head) or _LIST.search(head))


def _read(source: Source, reading: Reading) -> Stream:
    is_json = _skip_preamble(source.head())[:1] in (b"{", b"[")
    objects = _of_json(source) if is_json else _of_yaml(source)
    return Stream(objects, iter(()), Origin("kubectl"))


def _of_json(source: Source) -> Iterator[Placed]:
    """Yield the objects, those of Lists and of lists one by one. Raises: Refused naming document, line and column."""
    rest: Document = {}
    has_items = False
    for part in json_stream(source):
        if part.member == "items" and (part.number or part.text == b"null"):
            has_items = True
            if part.number:
                where = f"{part.place} items[{part.number - 1}]"
                yield from _whole(_with_kind(json_object(part.text, part.place), rest), where)
        elif part.member == "" and part.number:
            yield from _whole(json_object(part.text, part.place), f"{part.place} [{part.number - 1}]")
        elif part.member == "":
            if not has_items and not _is_list(rest):
                yield Placed(checked_object(rest, str(part.place)), str(part.place))
            rest, has_items = {}, False
        elif part.number:
            rest[part.member] = [*rest.get(part.member, ()), json_value(part.text, part.place)]
        else:
            rest[part.member] = json_value(part.text, part.place)


def _is_list(document: Document) -> bool:
    return str(document.get("kind") or "").endswith("List")


def _whole(document: Document, where: str) -> Iterator[Placed]:
    """Yield an object, or those of a List that stands among objects."""
    if not _is_list(document):
        yield Placed(checked_object(document, where), where)
        return
    items = document.get("items") or ()
    if not isinstance(items, list | tuple):
        raise Refused(f"{where}: items: want a list, not {type(items).__name__}")
    for number, item in enumerate(items):
        place = f"{where} items[{number}]"
        yield Placed(checked_object(_with_kind(check_document(item, place), document), place), place)


def _with_kind(item: Document, of: Document) -> Document:
    """Return an item of a List with its kind: an API server says that of a PodList once, for all."""
    kind = str(of.get("kind") or "").removesuffix("List")
    if not kind or "kind" in item or "apiVersion" in item:
        return item
    return {"apiVersion": of.get("apiVersion"), "kind": kind, **item}


def _of_yaml(source: Source) -> Iterator[Placed]:
    """Yield the items of Lists and the objects beside them. Raises: Refused naming document and line."""
    for piece in _pieces(source):
        document, where = document_of(piece), str(piece.place)
        if "items" in document and str(document.get("kind") or "List").endswith("List"):
            yield from _whole({**document, "kind": document.get("kind") or "List"}, where)
        elif set(document) - set(_OWN_KEYS) or not str(document.get("kind") or "List").endswith("List"):
            yield Placed(checked_object(document, where), where)


def _pieces(source: Source) -> Iterator[Piece]:
    """Yield each item of a block `items:` as a document of its own, and what stands around it."""
    number, at, first = 1, 0, 1
    lines: list[bytes] = []
    size, is_item, in_items = 0, False, False

    def piece() -> Piece | None:
        text = b"".join(line[2:] if is_item and line.strip() else line for line in lines)
        return Piece(text, Place(source.file, number, first)) if text.strip() else None

    with source.open() as stream:
        while line := stream.readline(LIMITS.bytes + 2):
            at += 1
            is_break = line[:3] == b"---" and line[3:4] in (b"", b"\n", b"\r", b" ")
            begins_items = not is_item and _ITEMS.match(line) is not None and b"[]" not in line
            begins_item = in_items and line[:2] == b"- "
            is_top = in_items and line[:1] not in (b" ", b"-", b"\n", b"\r", b"#")
            if is_break or begins_items or begins_item or is_top:
                if (next_piece := piece()) is not None:
                    yield next_piece
                    number += 1
                lines, size, first = [], 0, at
                is_item = begins_item
                in_items = (in_items or begins_items) and not is_break and not (is_top and not begins_items)
                if is_break or begins_items:
                    continue
            size += len(line)
            if size > LIMITS.bytes:
                raise Refused(f"{Place(source.file, number, first)}: longer than {LIMITS.bytes >> 20} MiB")
            lines.append(b"  " + line[2:] if begins_item else line)
    if (next_piece := piece()) is not None:
        yield next_piece


class _Writer:
    """A writer of a List in YAML, an item at a time."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._is_begun = file, False

    def put(self, document: Document) -> None:
        """Write an object."""
        self._begin()
        text = yaml_text.dump(document).encode()
        lines = text.splitlines(keepends=True)
        self._file.write(b"".join((b"- " if not i else b"  ") + line for i, line in enumerate(lines)))

    def change(self, change: Change) -> None:
        """Refuse: a List has no changes."""
        raise Refused(f"{change}: a List of kubectl has no changes; write kwok or kss-record")

    def close(self) -> None:
        """Write what ends a List."""
        self._begin(is_empty=True)
        self._file.write(b'kind: List\nmetadata:\n  resourceVersion: ""\n')

    def _begin(self, *, is_empty: bool = False) -> None:
        if not self._is_begun:
            self._file.write(b"apiVersion: v1\nitems:" + (b" []\n" if is_empty else b"\n"))
        self._is_begun = True


FORMAT = Format(
    name="kubectl", title="a List of kubectl", fits=_fits, read=_read, write=lambda file, began_wall_s: _Writer(file)
)
