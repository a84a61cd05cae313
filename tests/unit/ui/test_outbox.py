"""A page that is too slow is sent the newest of everything, and learns what it missed (check 22)."""

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.recordings import frames
from lab.recordings.model import Change, Model
from lab.ui.outbox import DOCUMENTS_MAX, Outbox
from lab.ui.player import lines_frame
from tests.unit.recordings.histories import node, pod


def changed(model, made):
    """Return the arguments of `put_columns` for what has changed."""
    model.columns("nodes")
    rows = {"nodes": list(model.nodes.changed), "pods": list(model.pods.changed)}
    return model.delta(), rows, len(model.strings), made


def apply(model, rv, resource, document, type_="MODIFIED"):
    meta = document["metadata"]
    kind = {"pods": "Pod", "nodes": "Node"}[resource]
    body = msgspec.json.encode(document)
    model.apply(
        rv, rv / 10, True, (Change(type_, resource, kind, meta.get("namespace", ""), meta["name"], meta["uid"], body),)
    )


def begun(budget):
    model, outbox, mirror = Model(), Outbox(budget), frames.Mirror()
    apply(model, 1, "nodes", node("n1", "u-n1"))
    model.forget_changes()
    outbox.reset(model.frames(), len(model.strings))
    return model, outbox, mirror


def drain(outbox, model, mirror):
    kinds = []
    while (frame := outbox.take(model)) is not None:
        kinds.append(mirror.take(frame).kind)
    return kinds


def assert_same(model, mirror):
    assert model.strings == mirror.strings
    for table in ("nodes", "pods"):
        for name, values in model.columns(table).items():
            held = mirror.tables[table][name]
            np.testing.assert_array_equal(values, held[: len(values)], err_msg=f"{table} {name}")
            assert not held[len(values) :].any()


def test_a_page_that_keeps_up_is_sent_every_frame():
    model, outbox, mirror = begun(1 << 20)
    for rv in range(2, 6):
        apply(model, rv, "pods", pod("a", "u-a", phase="Running"))
        outbox.put_columns(*changed(model, rv))

    assert [frames.DICT, frames.NODES, frames.PODS, frames.DICT, *[frames.DELTA] * 4] == drain(outbox, model, mirror)
    assert_same(model, mirror)
    assert 0 == outbox.waiting_bytes == outbox.merged_total


def test_above_the_budget_rows_are_merged_and_the_newest_wins():
    model, outbox, mirror = begun(2_000)
    for rv in range(2, 300):
        apply(model, rv, "pods", pod(f"p{rv % 3}", f"u-{rv % 3}", phase="Running" if rv % 2 else "Pending"))
        outbox.put_columns(*changed(model, rv))

    assert outbox.waiting_bytes <= 2_000
    kinds = drain(outbox, model, mirror)
    assert kinds.count(frames.DELTA) < 10
    assert frames.GAP in kinds
    assert_same(model, mirror)
    apply(model, 300, "pods", pod("late", "u-late"))
    outbox.put_columns(*changed(model, 300))
    assert [frames.DICT, frames.DELTA] == drain(outbox, model, mirror), "it keeps up again"
    assert_same(model, mirror)


def test_a_page_that_missed_only_versions_is_sent_the_newest():
    model, outbox, mirror = begun(400)
    for rv in range(2, 20):
        apply(model, rv, "pods", pod("a", "u-a"))
        outbox.put_columns(*changed(model, rv))
    drain(outbox, model, mirror)

    assert outbox.merged_total > 0
    assert 19 == mirror.rv


def test_lines_are_cut_and_the_gap_counts_them():
    model, outbox, mirror = begun(1_000)
    drain(outbox, model, mirror)
    line = b'{"ev":"%b"}' % (b"x" * 300)
    for rv in range(10, 20):
        outbox.put_lines(lines_frame([line, line], rv, 1.0), 2, rv)

    found = [frames.read_frame(frame) for frame in iter(lambda: outbox.take(model), None)]
    assert [frames.LINES, frames.GAP] == [frame.kind for frame in found]
    assert {"from": 11, "to": 19, "lines": 18} == found[-1].header


def test_lines_of_a_recording_come_when_nothing_else_waits_and_none_is_cut_or_forgotten():
    model, outbox, mirror = begun(1_000)
    line = b'{"ev":"%b"}' % (b"x" * 300)
    outbox.put_rest(lines_frame([line] * 9, rv, 1.0) for rv in range(5))
    assert frames.DICT == mirror.take(outbox.take(model)).kind
    outbox.reset(model.frames(), len(model.strings))
    whole = [frames.read_frame(outbox.take(model)).kind for _ in range(3)]
    outbox.put(frames.RATES, frames.document_frame(frames.RATES, {}, 1, 1.0))

    assert [frames.DICT, frames.NODES, frames.PODS] == whole
    assert [frames.RATES, frames.LINES] == [frames.read_frame(outbox.take(model)).kind for _ in range(2)]
    outbox.reset([], 0)
    assert [frames.LINES] * 4 == drain(outbox, model, mirror)
    assert 0 == outbox.waiting_bytes == outbox.cut_lines_total
    outbox.put_rest(iter([b"of another run"]))
    outbox.put_rest(iter(()))
    assert outbox.take(model) is None


def test_rates_replace_the_ones_before():
    _, outbox, _ = begun(100)
    outbox.reset([], 0)
    for at in range(5):
        outbox.put(frames.RATES, frames.document_frame(frames.RATES, {"at": at}, 1, 1.0))

    (only,) = iter(lambda: outbox.take(None), None)
    assert {"at": 4} == frames.read_frame(only).header


def progress(number, done):
    return frames.document_frame(frames.JOB, {"id": f"job-{number}", "done": done, "text": "x" * 200}, 1, 1.0)


def test_of_a_page_that_reads_nothing_no_kind_of_frame_grows_without_end():
    _, outbox, _ = begun(2_000)
    outbox.reset([], 0)
    for done in range(1_000):
        outbox.put(frames.JOB, progress(1, done), "job-1")
        outbox.put(0, b'{"t":"error"}')

    assert outbox.waiting_bytes <= 2_000
    found = list(iter(lambda: outbox.take(None), None))
    assert len(found) < 100
    assert 999 == [frames.read_frame(frame) for frame in found if frame[0] == frames.JOB][-1].header["done"]
    assert 0 == outbox.waiting_bytes


def test_of_many_documents_the_oldest_are_cut_and_a_gap_says_so():
    _, outbox, _ = begun(100)
    outbox.reset([], 0)
    outbox.put(frames.RATES, frames.document_frame(frames.RATES, {}, 1, 1.0))
    for number in range(DOCUMENTS_MAX + 5):
        outbox.put(frames.JOB, progress(number, 0), f"job-{number}", 7)

    found = [frames.read_frame(frame) for frame in iter(lambda: outbox.take(None), None)]
    assert [frames.GAP, frames.RATES, "job-6"] == [found[0].kind, found[1].kind, found[2].header["id"]]
    assert DOCUMENTS_MAX + 1 == len(found)
    assert 6 == outbox.cut_documents_total


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_whatever_is_taken_when_the_page_ends_with_the_same_columns(data):
    model, outbox, mirror = begun(data.draw(st.sampled_from((500, 3_000, 100_000))))
    for rv in range(2, data.draw(st.integers(2, 25))):
        name = data.draw(st.sampled_from("abcd"))
        type_ = data.draw(st.sampled_from(("MODIFIED", "MODIFIED", "DELETED")))
        where = data.draw(st.sampled_from(("", "n1", "n9")))
        apply(model, rv, "pods", pod(name, f"u-{name}-{data.draw(st.integers(0, 1))}", node=where), type_)
        outbox.put_columns(*changed(model, rv))
        for _ in range(data.draw(st.integers(0, 3))):
            if (frame := outbox.take(model)) is not None:
                mirror.take(frame)
    drain(outbox, model, mirror)

    assert_same(model, mirror)
