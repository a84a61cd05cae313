"""Encoding of objects of built-in kinds as a Go server writes them, with zero values.

Fields that are no pointers and have no `omitempty` are present with their zero value (`status: {}`,
`resources: {}`, `replicas: 0`, `lastProbeTime: null`). Items of a list have neither kind nor apiVersion.

Stored objects stay as they were written; only answers over REST have this form. The fields come from one data
file, `zeros.json`. Source: upstream's types and
`staging/src/k8s.io/apimachinery/pkg/runtime/serializer/json/json.go`.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from apiserver_fake.rest.protobuf import message_name
from apiserver_fake.rest.splices import Splices, splice, splices_of
from services.api.meta import Document

KEPT_BYTES_MAX = 48 << 20
"""Most bytes of stored objects whose form is cached; 5,000 pods are about 12 MB."""
MEMBERS_BYTES_MAX = 4 << 20
"""Most bytes of members, as stored and completed, that are cached."""
NODE_STATUS, SESSION = "core.NodeStatus", "kubeletSession"
PIECE, PIECE_FOUND = 50, 500
"""Number of objects per piece of a list: completed anew, and found in the cache."""


class _Field(NamedTuple):
    """A field that may have to be written. `zero`: its JSON; None: no value is written; "{}": a struct of zeros."""

    name: str
    zero: str | None
    of: str
    how: str


@cache
def _types() -> dict[str, list[_Field]]:
    text = files("apiserver_fake.rest").joinpath("zeros.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, list[_Field]])


def complete(document: Document, of: str) -> bool:
    """Write the zero values of that type's missing fields into an object; return whether any was missing."""
    types, has_changed = _types(), False
    for name, zero, inner, how in types[of]:
        value = document.get(name)
        if value is None:
            if zero == "{}":
                value = document[name] = {}
                has_changed = True
            elif zero is not None:
                has_changed = has_changed or zero != "null" or name not in document
                document[name] = None if zero == "null" else msgspec.json.decode(zero)
        if value is None or not inner or inner not in types:
            continue
        values: Iterable[Any] = (value,)
        if how == "list":
            values = value if isinstance(value, list) else ()
        elif how == "map":
            values = value.values() if isinstance(value, dict) else ()
        for member in values:
            if isinstance(member, dict) and complete(member, inner):
                has_changed = True
    return has_changed


_TYPED = re.compile(rb'\{"apiVersion":"([^"\\]+)","kind":"([^"\\]+)","')
"""The beginning of an object as it is stored."""


class _Stored(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"")


def metadata_slice(body: bytes) -> tuple[int, int]:
    """Return the start and end of an object's metadata in its JSON; (0, 0) if it has none."""
    metadata = bytes(msgspec.json.decode(body, type=_Stored).metadata)
    if not metadata:
        return 0, 0
    start = body.index(b'"metadata":' + metadata) + len(b'"metadata":')
    return start, start + len(metadata)


def type_of(api_version: str, kind: str) -> str:
    """Return the name of a kind's type; "" if its objects need no zero values."""
    name = message_name(api_version, kind)
    return name if any(field != ("metadata", "{}", "", "") for field in _types().get(name, ())) else ""


class _Head(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    items: list[msgspec.Raw] | None = None


class Encoding:
    """Encodes objects and lists in that form. Results are cached within a size limit, since most are requested
    again by another watch or list.
    """

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX, *, has_sessions: bool = True) -> None:
        """Start with an empty cache. `has_sessions`: whether Nodes show the kubelet's session, which no Kubernetes
        has.
        """
        self._kept: OrderedDict[bytes, bytes | Splices] = OrderedDict()
        """By stored object: what is inserted into it, or the whole form if that is not made by insertions."""
        self.kept_bytes, self._kept_bytes_max = 0, kept_bytes_max
        self._has_sessions = has_sessions
        self._members: OrderedDict[tuple[str, str, bytes], bytes] = OrderedDict()
        """Completed members of objects, by their types and how they are stored; empty if nothing is missing.

        Pods of one template have the same spec, and a pod whose status changes keeps its spec."""
        self._members_bytes = 0
        self.made = 0
        """How many objects were completed, not found."""

    def object(self, body: bytes, of: str) -> bytes:
        """Return one object's JSON with the zero values of its type."""
        if (full_body := self._find(body)) is not None:
            return full_body
        full_body = self._complete(body, of)
        self.made += 1
        self._keep(body, full_body)
        return full_body

    def _complete(self, body: bytes, of: str) -> bytes:
        """Return what encoding the decoded object after `complete` gives; the object itself if nothing is missing."""
        types, has_changed = _types(), False
        stored: dict[str, msgspec.Raw] = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        members = {name: bytes(raw) for name, raw in stored.items()}
        for name, zero, inner, how in types[of]:
            value = members.get(name)
            if value is None or value == b"null":
                if zero is None:
                    continue
                has_changed = has_changed or zero != "null" or value is None
                value = members[name] = zero.encode()
            if inner in types and value != b"null":
                members[name] = self._member(value, inner, how)
                has_changed = has_changed or members[name] is not value
        if not has_changed:
            return body
        return msgspec.json.encode({name: msgspec.Raw(value) for name, value in members.items()})

    def _member(self, stored: bytes, of: str, how: str) -> bytes:
        """Return a member of an object, or the objects in it, with the zero values of their type."""
        key = of, how, stored
        if (known := self._members.get(key)) is not None:
            self._members.move_to_end(key)
            return known or stored
        value: Any = msgspec.json.decode(stored)
        values: Iterable[Any] = (value,)
        if how == "list":
            values = value if isinstance(value, list) else ()
        elif how == "map":
            values = value.values() if isinstance(value, dict) else ()
        changes = [complete(each, of) for each in values if isinstance(each, dict)]
        if of == NODE_STATUS and not self._has_sessions:
            changes.append(value["nodeInfo"].pop(SESSION, None) is not None)
        full_value = self._members[key] = msgspec.json.encode(value) if any(changes) else b""
        self._members_bytes += len(stored) + len(full_value)
        while self._members_bytes > MEMBERS_BYTES_MAX:
            (_, _, dropped), full_value_of_it = self._members.popitem(last=False)
            self._members_bytes -= len(dropped) + len(full_value_of_it)
        return full_value or stored

    def _find(self, body: bytes) -> bytes | None:
        form = self._kept.get(body)
        if form is None:
            return None
        self._kept.move_to_end(body)
        return form if isinstance(form, bytes) else splice(body, form)

    def _keep(self, body: bytes, full_body: bytes) -> None:
        splices = () if full_body is body else splices_of(body, full_body)
        self._kept[body] = full_body if splices is None else splices
        # The object itself is the store's for as long as it stays as it is; then it is kept here alone.
        self.kept_bytes += len(body)
        while self.kept_bytes > self._kept_bytes_max and self._kept:
            dropped, _ = self._kept.popitem(last=False)
            self.kept_bytes -= len(dropped)

    def answer(self, body: bytes) -> bytes:
        """Return an object, or a list of objects of one built-in kind, in that form."""
        if (full_body := self._find(body)) is not None:
            return full_body
        if (typed := _TYPED.match(body)) is not None and not typed[2].endswith(b"List"):
            of = type_of(typed[1].decode(), typed[2].decode())
            return self.object(body, of) if of else body
        head = msgspec.json.decode(body, type=_Head)
        if head.items is None or not head.kind.endswith("List"):
            of = type_of(head.api_version, head.kind)
            return self.object(body, of) if of else body
        stored = [bytes(raw) for raw in head.items]
        pieces = self.items(stored, head.api_version, head.kind.removesuffix("List"))
        document: Document = msgspec.json.decode(body)
        return msgspec.json.encode({**document, "items": [msgspec.Raw(item) for piece in pieces for item in piece]})

    def items(self, stored: Sequence[bytes], api_version: str, kind: str) -> Iterator[list[bytes]]:
        """Yield the items of a list of a built-in kind, completed and without kind, in short pieces."""
        of, made_before = type_of(api_version, kind), self.made
        heads = tuple(
            head.encode()
            for head in (
                f'{{"apiVersion":"{api_version}","kind":"{kind}",',
                f'{{"kind":"{kind}","apiVersion":"{api_version}",',
            )
        )
        piece: list[bytes] = []
        for body in stored:
            piece.append(_bare(self.object(body, of) if of else body, heads))
            if self.made - made_before >= PIECE or len(piece) >= PIECE_FOUND:
                made_before = self.made
                yield piece
                piece = []
        yield piece


def _bare(item: bytes, heads: tuple[bytes, ...]) -> bytes:
    """Return an item without its kind and version."""
    if item.startswith(heads):
        return b"{" + item[len(heads[0]) :]
    document: dict[str, Any] = msgspec.json.decode(item)
    return msgspec.json.encode({name: value for name, value in document.items() if name not in ("kind", "apiVersion")})
