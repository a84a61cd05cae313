"""Watch frames and answers as bytes of `protos/mesh/v1`, assembled from parts that are encoded once.

A change goes to every watcher that selects it, often in successive frames. Building a message object for each
of them and copying it into its batch cost more than committing the change. Protobuf repeats a field by writing
it again, so an event's bytes fit into any batch, and batches into any frame.
"""

from collections.abc import Iterable

from protos.mesh.v1 import apiserver_pb2 as pb
from services.api.texts import encodable
from services.api.wire import Response, WatchEvent

REMEMBERED_MAX = 512
REMEMBERED_BYTES_MAX = 16 << 10


def varint(number: int) -> bytes:
    """Return an unsigned number in protobuf's base 128."""
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def event_bytes(event: WatchEvent) -> bytes:
    """Return a `WatchEvent` message in the form in which a batch holds it, prefixed with its length."""
    fields = pb.WatchEvent(
        type=event.type,
        resource=event.resource,
        namespace=event.namespace,
        name=event.name,
        uid=event.uid,
        rv=event.rv,
        body=event.body,
        traceparent=event.traceparent,
        initial_events_end=event.initial_events_end,
    )
    message: bytes = fields.SerializeToString()
    return b"".join((b"\x12", varint(len(message)), message))


class EventBytes:
    """A cache of the last events' bytes, because several watchers receive the same event."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[WatchEvent, bytes]] = {}

    def of(self, event: WatchEvent) -> bytes:
        """Return `event_bytes` of the event."""
        known = self._known.get(id(event))
        if known is None:
            if len(event.body) > REMEMBERED_BYTES_MAX:
                return event_bytes(event)
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            # Holding the event keeps its id from being given to another.
            known = self._known[id(event)] = (event, event_bytes(event))
        return known[1]


def batch_bytes(number: int, events: Iterable[bytes]) -> bytes:
    """Return a `WatchBatch` for the watch with that number, in the form in which a frame holds it."""
    message = b"".join((b"\x08", varint(number), *events))
    return b"".join((b"\x0a", varint(len(message)), message))


def response_bytes(number: int, response: Response, body: bytes, *, more: bool = False) -> bytes:
    """Return a `Response` message with its body or a part of it, in the form in which a `ResponseBatch` holds it."""
    parts: list[bytes] = [b"\x08", varint(number), b"\x10", varint(response.code)]
    if response.rv:
        parts += (b"\x18", varint(response.rv))
    if body:
        parts += (b"\x22", varint(len(body)), body)
    if more:
        parts.append(b"\x30\x01")
    else:
        for text in response.warnings:
            encoded = encodable(text).encode()
            parts += (b"\x2a", varint(len(encoded)), encoded)
    message = b"".join(parts)
    return b"".join((b"\x0a", varint(len(message)), message))
