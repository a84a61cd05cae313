"""What `kubectl get -o yaml` and `-o json` print: a List of whole objects, or one object.

Items are read one at a time, however long the List is. Several documents of YAML may follow each other; where none of
them is a List, the file is one of kwokctl's as well, which reads the same. Pure but for reading and writing the file.
Source: upstream `staging/src/k8s.io/cli-runtime/pkg/printers/yaml.go`; simulator 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from services.api.documents import yaml_text
from services.api.meta import Document
from services.exchange.format import Format, Reading
from services.exchange.reading import LIMITS, Piece, Source, checked_object, document_of, json_elements, json_object
from services.exchange.stream import Change, Origin, Place, Placed, Refused, Stream

_FIRST_MEMBER = re.compile(rb'\A\s*\{\s*"(?:apiVersion|kind|metadata|items)"')
_ITEMS = re.compile(rb"^items:[ \t]*(?:\[\][ \t]*)?\r?$", re.MULTILINE)
_LIST = re.compile(rb"^kind: ?[\"']?\w*List[\"']?\s*$", re.MULTILINE)
_OWN_KEYS: Final = ("apiVersion", "kind", "metadata", "items")


def _fits(head: bytes) -> bool:
    if _FIRST_MEMBER.match(head):
        return True
    return head.lstrip()[:1] not in (b"{", b"[") and bool(_ITEMS.search(head) or _LIST.search(head))


def _read(source: Source, reading: Reading) -> Stream:
    is_json = source.head().lstrip()[:1] == b"{"
    objects = _of_json(source) if is_json else _of_yaml(source)
    return Stream(objects, iter(()), Origin("kubectl"))


def _of_json(source: Source) -> Iterator[Placed]:
    """Yield the items of a List, or the one object."""
    rest: Document = {}
    has_items = False
    for part in json_elements(source):
        if part.member == "items" and (part.number or part.text == b"null"):
            has_items = True
            if part.number:
                where = f"{part.place} items[{part.number - 1}]"
                yield Placed(checked_object(json_object(part.text, part.place), where), where)
        elif part.number:
            rest[part.member] = [*rest.get(part.member, ()), json_object(b'{"v":' + part.text + b"}", part.place)["v"]]
        else:
            rest[part.member] = json_object(b'{"v":' + part.text + b"}", part.place)["v"]
    if not has_items and not str(rest.get("kind") or "").endswith("List"):
        yield Placed(checked_object(rest, source.file), source.file)


def _of_yaml(source: Source) -> Iterator[Placed]:
    """Yield the items of Lists and the objects beside them. Raises: Refused naming document and line."""
    for piece in _pieces(source):
        document = document_of(piece)
        if "items" in document and str(document.get("kind") or "List").endswith("List"):
            for each in document["items"] or ():
                yield Placed(checked_object(each, str(piece.place)), str(piece.place))
        elif set(document) - set(_OWN_KEYS) or not str(document.get("kind") or "List").endswith("List"):
            yield Placed(checked_object(document, str(piece.place)), str(piece.place))


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
                if (found := piece()) is not None:
                    yield found
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
    if (found := piece()) is not None:
        yield found


class _Writer:
    """Writes a List in YAML, an item at a time."""

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
