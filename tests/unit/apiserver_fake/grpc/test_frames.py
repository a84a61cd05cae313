"""Frames put together by hand are what protobuf itself would have written."""

from hypothesis import given
from hypothesis import strategies as st

from apiserver_fake.grpc.frames import EventBytes, batch_bytes, response_bytes
from protos.mesh.v1 import apiserver_pb2 as pb
from services.api.wire import Response, WatchEvent

TEXT = st.text(max_size=200)
EVENTS = st.builds(
    WatchEvent,
    type=TEXT,
    resource=TEXT,
    namespace=TEXT,
    name=TEXT,
    uid=TEXT,
    rv=st.integers(0, 2**63 - 1),
    body=st.binary(max_size=40_000),
    traceparent=TEXT,
    initial_events_end=st.booleans(),
)


def test_a_warning_without_a_form_is_sent_as_its_escapes():
    read = pb.ResponseBatch.FromString(response_bytes(1, Response(code=200, warnings=("a\ud800",)), b""))

    assert ["a\\ud800"] == list(read.responses[0].warnings)


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.lists(EVENTS, max_size=3)), max_size=3))
def test_a_frame_reads_back_as_the_events_it_was_made_of(batches):
    encoded = EventBytes()
    frame = b"".join(batch_bytes(number, [encoded.of(event) for event in events]) for number, events in batches)

    read = pb.WatchFrame.FromString(frame)

    fields = ("type", "resource", "namespace", "name", "uid", "rv", "body", "traceparent", "initial_events_end")
    assert [batch.id for batch in read.batches] == [number for number, _ in batches]
    for batch, (_, events) in zip(read.batches, batches, strict=True):
        assert [[getattr(e, f) for f in fields] for e in batch.events] == [
            [getattr(e, f) for f in fields] for e in events
        ]


@given(st.integers(0, 2**63), st.integers(0, 599), st.binary(max_size=300), st.lists(TEXT, max_size=3), st.booleans())
def test_an_answer_reads_back_as_it_was_given(number, code, body, warnings, more):
    response = Response(code=code, rv=code * 2**40, body=body, warnings=tuple(warnings))

    read = pb.ResponseBatch.FromString(response_bytes(number, response, body, more=more)).responses[0]

    assert (read.id, read.code, read.rv, read.body, read.more) == (number, code, response.rv, body, more)
    assert list(read.warnings) == ([] if more else warnings)


def test_many_events_are_not_all_remembered():
    encoded = EventBytes()
    events = [WatchEvent(type="ADDED", rv=rv) for rv in range(2_000)]

    assert len({encoded.of(event) for event in events}) == 2_000
    assert len(encoded._known) <= 512
