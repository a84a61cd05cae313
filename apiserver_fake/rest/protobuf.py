"""Kubernetes' protobuf: decodes the bodies that kubectl sends for its imperative `create` commands, and
encodes objects for clients that accept nothing else.

The field numbers come from one data file, `protobuf_fields.json`: for each message, by field number, the JSON
name, the type and the form (`list`, `map`, `inline`, `keep` for a field whose zero is a value). Answers are
JSON if the client accepts that too. Source: kubectl-requests 6; upstream
`staging/src/k8s.io/apimachinery/pkg/runtime/serializer/protobuf/protobuf.go`.
"""

import base64
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from services.api.errors import ApiError, BadRequest, UnsupportedMediaType
from services.api.meta import Document
from services.api.times import format_micro_time, format_time, parse_time
from services.cel.times import duration

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
DEPTH_MAX = 64


class NotAcceptable(ApiError, code=406):
    """406: the server can make no form that the client accepts."""


Fields = dict[int, list[str]]
"""Field number to `[JSON name, type]` or `[JSON name, type, how]`."""


@cache
def _messages() -> dict[str, Fields]:
    text = files("apiserver_fake.rest").joinpath("protobuf_fields.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, Fields])


_PACKAGES = {
    "": "core",
    "apps": "apps",
    "admissionregistration.k8s.io": "admissionregistration",
    "apiextensions.k8s.io": "apiextensions",
    "apiregistration.k8s.io": "apiregistration",
    "authentication.k8s.io": "authentication",
    "authorization.k8s.io": "authorization",
    "autoscaling": "autoscaling",
    "autoscaling/v2": "autoscalingv2",
    "batch": "batch",
    "certificates.k8s.io": "certificates",
    "coordination.k8s.io": "coordination",
    "discovery.k8s.io": "discovery",
    "events.k8s.io": "events",
    "flowcontrol.apiserver.k8s.io": "flowcontrol",
    "meta.k8s.io": "meta",
    "networking.k8s.io": "networking",
    "node.k8s.io": "node",
    "policy": "policy",
    "rbac.authorization.k8s.io": "rbac",
    "resource.k8s.io": "resource",
    "resource.k8s.io/v1beta2": "resource",
    "scheduling.k8s.io": "scheduling",
    "storage.k8s.io": "storage",
}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def wire(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield `(field number, number or bytes)` of one message. Raises: ValueError, IndexError."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire_type == 2:
            length, at = _varint(data, at)
        else:
            length = {1: 8, 5: 4}.get(wire_type, -1)
        if length < 0 or at + length > len(data):
            raise ValueError(f"field {number} runs past its message or has wire type {wire_type}")
        yield number, data[at : at + length]
        at += length


def _plain(data: bytes) -> dict[int, int | bytes]:
    return dict(wire(data))


def _number(value: int | bytes | None) -> int:
    if isinstance(value, bytes):
        raise ValueError("bytes where a number belongs")
    number = value or 0
    return number - (1 << 64) if number >= 1 << 63 else number


def _bytes(value: int | bytes | None) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where bytes belong")
    return value or b""


def _value(of: str, raw: int | bytes, depth: int) -> Any:
    """Return one value in its JSON form; None for a time that is not set."""
    match of:
        case "string":
            return _bytes(raw).decode("utf-8")
        case "int":
            return _number(raw)
        case "bool":
            return bool(_number(raw))
        case "bytes":
            return base64.b64encode(_bytes(raw)).decode("ascii")
        case "double":
            number: float = struct.unpack("<d", _bytes(raw))[0]
            return int(number) if number.is_integer() else number
        case "quantity":
            return _bytes(_plain(_bytes(raw)).get(1)).decode("utf-8")
        case "int-or-string":
            parts = _plain(_bytes(raw))
            return _bytes(parts.get(3)).decode("utf-8") if _number(parts.get(1)) == 1 else _number(parts.get(2))
        case "time" | "microtime":
            parts = _plain(_bytes(raw))
            if not parts:
                return None
            seconds = _number(parts.get(1))
            if of == "time":
                return format_time(seconds)
            return format_micro_time(seconds + _number(parts.get(2)) / 1e9)
        case "duration":
            return f"{_number(_plain(_bytes(raw)).get(1)) / 1e9:g}s"
        case "texts":
            return [_bytes(each).decode("utf-8") for number, each in wire(_bytes(raw)) if number == 1]
        case "json":
            inner = _bytes(_plain(_bytes(raw)).get(1))
            return msgspec.json.decode(inner) if inner else None
        case "schema-or-list" | "schema-or-bool" | "schema-or-texts":
            return _schema_or(of, _bytes(raw), depth)
        case _:
            return _message(of, _bytes(raw), depth + 1)


SCHEMA = "apiextensions.JSONSchemaProps"


def _schema_or(of: str, data: bytes, depth: int) -> Any:
    """Return a schema, or what may stand in its place: a list of schemas, a bool, a list of texts."""
    parts = list(wire(data))
    schema = next((raw for number, raw in parts if number == (2 if of == "schema-or-bool" else 1)), None)
    if schema is not None:
        return _message(SCHEMA, _bytes(schema), depth + 1)
    if of == "schema-or-bool":
        return any(_number(raw) for _, raw in parts)
    others = [_bytes(raw) for number, raw in parts if number == 2]
    return [each.decode() if of == "schema-or-texts" else _message(SCHEMA, each, depth + 1) for each in others]


def _message(name: str, data: bytes, depth: int) -> Document:
    if depth > DEPTH_MAX:
        raise ValueError(f"more than {DEPTH_MAX} levels")
    fields = _messages()[name]
    message: Document = {}
    for number, raw in wire(data):
        field = fields.get(number)
        if field is None:
            # A field of a newer version: unknown to our types, so there is no JSON name to keep it under.
            continue
        json_name, of, how = field[0], field[1], field[2] if len(field) > 2 else ""
        if how == "map":
            entry = _plain(_bytes(raw))
            value = _value(of, entry.get(2, 0 if of in ("int", "bool") else b""), depth)
            message.setdefault(json_name, {})[_bytes(entry.get(1)).decode("utf-8")] = value
            continue
        value = _value(of, raw, depth)
        if how == "inline":
            message.update(value)
        elif how == "list":
            message.setdefault(json_name, []).append(value)
        elif value is not None and (how == "keep" or value not in ("", 0, False)):
            message[json_name] = value
    return message


def decode(body: bytes) -> Document:
    """Return the object in the envelope, with its apiVersion and kind.

    Raises: UnsupportedMediaType for a kind without a known message; BadRequest for malformed bytes.
    """
    if not body.startswith(MAGIC):
        raise BadRequest("the body is not Kubernetes protobuf: it does not start with its four magic bytes")
    try:
        envelope = _plain(body[len(MAGIC) :])
        types = _plain(_bytes(envelope.get(1)))
        api_version = _bytes(types.get(1)).decode("utf-8")
        kind = _bytes(types.get(2)).decode("utf-8")
        raw = _bytes(envelope.get(2))
        name = message_name(api_version, kind)
        if name not in _messages():
            raise UnsupportedMediaType(
                f"{api_version} {kind} is not read as protobuf here - accepted media types include: "
                "application/json, application/yaml"
            )
        return {"apiVersion": api_version, "kind": kind, **_message(name, raw, 0)}
    except (ValueError, IndexError, OSError, OverflowError, RecursionError, struct.error, msgspec.DecodeError) as error:
        raise BadRequest(f"the body is not a protobuf message of its kind: {error}") from error


def message_name(api_version: str, kind: str) -> str:
    """Return the name of a kind's message in the data files, whether or not they have it."""
    if kind in ("DeleteOptions", "Status"):
        return f"meta.{kind}"
    group, _, _ = api_version.rpartition("/")
    package = _PACKAGES.get(api_version) or (_PACKAGES.get(group) if api_version.endswith("v1") else None)
    return f"{package}.{kind}"


@cache
def _head(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def bytes_field(number: int, payload: bytes) -> bytes:
    """Return an encoded field of bytes, text or a message."""
    return _head(number, 2) + varint(len(payload)) + payload


def number_field(number: int, value: int) -> bytes:
    """Return an encoded field of a number."""
    return _head(number, 0) + varint(value & 0xFFFFFFFFFFFFFFFF)


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def varint(value: int) -> bytes:
    """Return a number as a varint: seven bits per byte."""
    if value < 0x80:
        return _ONE_BYTE[value]
    octets = bytearray()
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def _field(number: int, of: str, value: Any) -> bytes:
    """Return one value under its number."""
    match of:
        case "string":
            return bytes_field(number, value.encode())
        case "int" | "bool":
            return number_field(number, int(value))
        case "bytes":
            return bytes_field(number, base64.b64decode(value))
        case "double":
            return varint(number << 3 | 1) + struct.pack("<d", value)
        case "quantity":
            return bytes_field(number, bytes_field(1, str(value).encode()))
        case "int-or-string" if isinstance(value, int):
            return bytes_field(number, number_field(1, 0) + number_field(2, value))
        case "int-or-string":
            return bytes_field(number, number_field(1, 1) + bytes_field(3, value.encode()))
        case "time" | "microtime":
            seconds, rest = divmod(round(parse_time(value) * 1_000_000), 1_000_000)
            return bytes_field(number, number_field(1, seconds) + number_field(2, rest * 1000))
        case "duration":
            return bytes_field(number, number_field(1, duration(value).nanos))
        case "json":
            return bytes_field(number, bytes_field(1, msgspec.json.encode(value)))
        case "schema-or-bool" if isinstance(value, bool):
            return bytes_field(number, number_field(1, value))
        case "schema-or-bool":
            return bytes_field(number, number_field(1, 1) + _field(2, SCHEMA, value))
        case "schema-or-list" | "schema-or-texts" if isinstance(value, list):
            item = SCHEMA if of == "schema-or-list" else "string"
            return bytes_field(number, b"".join([_field(2, item, each) for each in value]))
        case "schema-or-list" | "schema-or-texts":
            return bytes_field(number, _field(1, SCHEMA, value))
        case _:
            return bytes_field(number, _encode_message(of, value))


@cache
def _by_name(message: str) -> tuple[dict[str, tuple[int, str, str]], list[tuple[int, str]]]:
    """Return a message's fields by JSON name, as number, type and how; and those that stand inline."""
    fields, inline = {}, []
    for number, field in _messages()[message].items():
        how = field[2] if len(field) > 2 else ""
        if how == "inline":
            inline.append((number, field[1]))
        else:
            fields[field[0]] = (number, field[1], how)
    return fields, inline


def _encode_message(name: str, document: Document) -> bytes:
    fields, inline = _by_name(name)
    parts: list[tuple[int, bytes]] = [(number, _field(number, of, document)) for number, of in inline]
    for json_name, value in document.items():
        if value is None or (field := fields.get(json_name)) is None:
            continue
        number, of, how = field
        if how == "map":
            entries = [
                bytes_field(number, bytes_field(1, k.encode()) + _field(2, of, each)) for k, each in value.items()
            ]
            parts.append((number, b"".join(entries)))
        elif how == "list":
            parts.append((number, b"".join([_field(number, of, each) for each in value])))
        else:
            parts.append((number, _field(number, of, value)))
    parts.sort()
    return b"".join([part for _, part in parts])


def encode(document: Document) -> bytes:
    """Return an object, a list of objects or a Status in its envelope.

    Raises: NotAcceptable for a kind without a known message.
    """
    api_version, kind = str(document.get("apiVersion", "")), str(document.get("kind", ""))
    if "items" in document and kind.endswith("List"):
        of = kind.removesuffix("List")
        return encode_list(document, [encode_item(api_version, of, each) for each in document["items"]])
    return _envelope(api_version, kind, _encode_message(_checked_name(api_version, kind), document))


def encode_item(api_version: str, kind: str, document: Document) -> bytes:
    """Return an object encoded as an item of a list of its kind. Raises: NotAcceptable."""
    return bytes_field(2, _encode_message(_checked_name(api_version, kind), document))


def encode_list(head: Document, items: Iterable[bytes]) -> bytes:
    """Return a list of items that are encoded already; `head` has its kind, version and metadata.

    Raises: NotAcceptable.
    """
    _checked_name(head["apiVersion"], head["kind"].removesuffix("List"))
    metadata = bytes_field(1, _encode_message("meta.ListMeta", head.get("metadata") or {}))
    return _envelope(head["apiVersion"], head["kind"], b"".join([metadata, *items]))


def _envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    types = bytes_field(1, api_version.encode()) + bytes_field(2, kind.encode())
    return b"".join((MAGIC, bytes_field(1, types), bytes_field(2, raw)))


def _checked_name(api_version: str, kind: str) -> str:
    name = message_name(api_version, kind)
    if name not in _messages():
        raise NotAcceptable(
            f"{api_version} {kind} is not written as protobuf here - accepted media types include: "
            "application/json, application/yaml"
        )
    return name


def frame(event_type: str, document: Document) -> bytes:
    """Return one watch event as bytes: its length in four bytes, then the event with the object in its envelope."""
    event = bytes_field(1, event_type.encode()) + bytes_field(2, bytes_field(1, encode(document)))
    return len(event).to_bytes(4, "big") + event
