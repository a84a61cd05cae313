"""Lines of a watch that are encoded once for all clients."""

from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.rest.encoding import Encoding
from apiserver_fake.rest.media_types import JSON, PLAIN, Form
from apiserver_fake.rest.paths import Route
from apiserver_fake.rest.watch import KEPT_LINES_MAX, EventEncoder, SharedLines
from services.api.wire import WatchEvent

METADATA, TABLE = Form(JSON, "PartialObjectMetadata", "v1"), Form(JSON, "Table", "v1")


def an_event(body=b"{}"):
    return WatchEvent(type="ADDED", body=body)


class Counted:
    def __init__(self, mark=b""):
        self.mark, self.bodies = mark, []

    def __call__(self, event):
        self.bodies.append(event.body)
        return self.mark + event.body


def test_an_event_is_encoded_once_for_all_watches_of_a_form():
    lines, event, json, protobuf = SharedLines(), an_event(), Counted(b"j"), Counted(b"p")

    for _ in range(3):
        assert lines.line(event, "json", json) == b"j{}"
        assert lines.line(event, "protobuf", protobuf) == b"p{}"

    assert (len(json.bodies), len(protobuf.bodies)) == (1, 1)


def test_another_event_is_another_line_even_if_it_stands_where_the_first_one_stood():
    lines, encode = SharedLines(), Counted()

    assert [lines.line(an_event(b"%d" % number), "json", encode) for number in range(1000)] == [
        b"%d" % number for number in range(1000)
    ]


def test_the_oldest_lines_are_dropped_above_a_number_and_above_a_size():
    lines, encode = SharedLines(kept_bytes_max=1000), Counted()
    first = an_event(b"1" * 600)
    lines.line(first, "json", encode)
    lines.line(an_event(b"2" * 600), "json", encode)
    lines.line(first, "json", encode)
    assert len(encode.bodies) == 3

    many = [an_event() for _ in range(KEPT_LINES_MAX + 1)]
    for event in (*many, many[0]):
        lines.line(event, "json", encode)
    assert len(encode.bodies) == 3 + len(many) + 1


def test_a_batch_of_live_events_is_one_write_of_chunks_that_all_watches_of_a_form_share():
    encoding, lines, pods = Encoding(), SharedLines(), Route(whole_catalogue().served_versions["", "v1"]["pods"])
    body = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c"}]}}'
    events = [WatchEvent(type="ADDED", body=body), WatchEvent(type="DELETED", body=body)]

    def an_encoder(form):
        return EventEncoder(pods, form, "Metadata", lambda: 0.0, encoding, lines)

    first, second, metadata, table = map(an_encoder, (PLAIN, PLAIN, METADATA, TABLE))

    assert lines_in(first.chunk(events)) == [first.encode(event) for event in events]
    assert second.chunk(events[:1]) is first.chunk(events[:1])
    assert lines_in(metadata.chunk(events)) == [metadata.encode(event) for event in events]
    assert b"columnDefinitions" in table.chunk(events[:1])
    assert b'"columnDefinitions":[{' not in table.chunk(events[:1]), "the first Table alone has the columns"
    assert first.chunk([]) == b"", "an empty chunk would end the body"


def lines_in(chunks):
    """Return the contents of chunks (RFC 9112 7.1)."""
    found = []
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        found.append(rest[: int(size, 16)])
        assert rest[int(size, 16) :][:2] == b"\r\n"
        chunks = rest[int(size, 16) + 2 :]
    return found
