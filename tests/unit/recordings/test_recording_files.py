"""A recording gives back what was recorded, wherever its writer was ended."""

import os
import random
import resource as limits
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import msgspec
import pytest
from hypothesis import given, settings

from lab.recordings import reader
from lab.recordings import writer as writer_module
from lab.recordings.format import LINES, META, PACK, VERSIONS, Meta, Unreadable
from lab.recordings.reader import Recording
from lab.recordings.writer import NotRecordable, Writer
from services.telemetry.spans import FinishedSpan
from tests.unit.recordings.histories import History, histories, node, pod


def written(path, history, *, with_bodies=True, flush_every=0):
    """Record a history; the recording is still open."""
    writer = Writer(path, Meta(title="a run", scenario="s", seed=7))
    writer.begin(0.0, 1000.0, is_virtual=True)
    for number, line in enumerate(history.lines):
        writer.line(line)
        if with_bodies and (event := history.events[number]) is not None:
            writer.event(event)
        if flush_every and number % flush_every == 0:
            writer.flush()
    return writer


def some_history(pods=3):
    history = History()
    history.commit("nodes", node("n1", "node-1"))
    for number in range(pods):
        history.commit("pods", pod(f"p{number}", f"u{number}"))
        history.commit("pods", pod(f"p{number}", f"u{number}", node="n1", phase="Running"))
    history.commit("pods", pod("p0", "u0", node="n1", phase="Running"), "DELETED")
    return history


@settings(max_examples=60, deadline=None)
@given(histories())
def test_every_version_has_the_objects_that_were_stored_at_the_end_of_its_group(tmp_path_factory, history):
    path = tmp_path_factory.mktemp("r") / "a.keprec"
    written(path, history, flush_every=7).close(Meta(ended="now"))

    with Recording.open(path) as recording:
        for rv in range(history.rv + 2):
            stop = max((each for each in history.stops if each <= rv), default=0)
            expected = history.states[stop]
            found = {key: recording.body(version.sha) for key, version in recording.state_at(rv).items()}
            assert found == expected
            assert recording.stop_at(rv) == stop
            for key in (("pods", "shop", "a"), ("nodes", "", "n1")):
                assert recording.object_at(*key, rv) == expected.get(key)


def test_lines_and_spans_come_out_as_they_were_written(tmp_path):
    history, path = some_history(), tmp_path / "a.keprec"
    span = FinishedSpan(
        service="apiserver",
        instance="apiserver-0",
        name="store.txn",
        trace_id="t" * 32,
        span_id="s" * 16,
        parent="",
        start_ns=1,
        end_ns=2,
        attributes={},
        links=[],
        events=[],
        error="",
    )
    writer = written(path, history)
    writer.span(span)
    writer.close(Meta(title="a run", ended="now"))

    with Recording.open(path) as recording:
        assert list(recording.lines()) == history.lines
        assert list(recording.spans()) == [span]
        assert [each.line for each in recording.versions()] == list(range(len(history.lines)))
        assert [recording.time_at(each.rv) for each in recording.versions()] == [
            each.t for each in recording.versions()
        ]
        assert recording.time_at(history.rv + 1) == 0.0
        assert recording.meta.title == "a run"


def test_two_recordings_of_the_same_are_the_same_file(tmp_path):
    for name in "ab":
        written(tmp_path / name, some_history()).close(Meta(ended="now"))

    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_recording_is_readable_while_it_grows_and_refresh_reads_on(tmp_path):
    history, path = some_history(), tmp_path / "a.keprec"
    writer = Writer(path, Meta())
    for line, event in list(zip(history.lines, history.events, strict=True))[:3]:
        writer.line(line)
        writer.event(event)
    writer.flush()
    with Recording.open(path) as recording:
        assert recording.rv_range == (1, 3)
        assert not recording.is_complete
        for line, event in list(zip(history.lines, history.events, strict=True))[3:]:
            writer.line(line)
            writer.event(event)
        assert not recording.refresh()  # nothing was flushed
        writer.flush()
        assert recording.refresh()
        assert recording.rv_range == (1, history.rv)
        assert len(recording.state_at(history.rv)) == len(history.states[-1])
        writer.close(Meta(ended="now"))


def test_what_is_torn_at_the_end_is_left_out(tmp_path):
    history, path = some_history(pods=20), tmp_path / "a.keprec"
    writer = written(path, history, flush_every=10)
    writer.flush()
    whole = {name: (path / name).read_bytes() for name in (VERSIONS, LINES, PACK)}
    for name, data in whole.items():
        for cut in (1, len(data) // 3, len(data) // 2):
            copy = tmp_path / f"{name}-{cut}"
            shutil.copytree(path, copy)
            (copy / name).write_bytes(data[:-cut])
            with Recording.open(copy) as recording:
                rv = recording.rv_range[1]
                assert rv <= history.rv
                found = {key: recording.body(version.sha) for key, version in recording.state_at(rv).items()}
                assert found.keys() == history.states[rv].keys()
                assert all(body in (None, history.states[rv][key]) for key, body in found.items())
                lines = list(recording.lines())
                assert lines == history.lines[: len(lines)]
    writer.close(Meta(ended="now"))


def test_a_killed_writer_leaves_a_folder_that_is_read_and_replaced(tmp_path):
    path = tmp_path / "a.keprec"
    if (child := os.fork()) == 0:
        writer = written(path, some_history())
        writer.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)

    assert path.is_dir()
    with Recording.open(path) as recording:
        assert recording.rv_range == (1, some_history().rv)
    written(path, some_history(1)).close(Meta(ended="now"))
    with Recording.open(path) as recording:
        assert recording.rv_range == (1, some_history(1).rv)


def test_a_full_disk_ends_the_recording_and_nothing_else(tmp_path):
    path = tmp_path / "a.keprec"
    if (child := os.fork()) == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            limits.setrlimit(limits.RLIMIT_FSIZE, (2000, limits.RLIM_INFINITY))  # EFBIG instead of ENOSPC
            writer = written(path, some_history(pods=300), flush_every=40)
            writer.flush()
            writer.close(Meta(ended="now"))
            code = 0 if "ends early: File too large" in writer.failure else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with Recording.open(path) as recording:
        rv = recording.rv_range[1]
        assert 0 < rv < some_history(pods=300).rv
        assert recording.state_at(rv).keys() == some_history(pods=300).states[rv].keys()
        assert not recording.is_complete


def test_an_empty_recording_is_one(tmp_path):
    Writer(tmp_path / "a.keprec", Meta(title="nothing")).close(Meta(title="nothing", ended="now"))

    with Recording.open(tmp_path / "a.keprec") as recording:
        assert recording.rv_range == (0, 0)
        assert recording.state_at(10) == {}
        assert list(recording.versions()) == []
        assert len(recording.model_at(5).frames()) == 3


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        (b'{"format": "other/thing", "version": 1}', "is of format 'other/thing'; want 'keplab.dev/recording'"),
        (b'{"format": "keplab.dev/recording", "version": 2}', "is of version 2 of the format"),
        (b"[1]", "no recording; it has no meta.json"),
        (b"", "no recording; it has no meta.json"),
    ],
)
def test_another_format_is_refused_in_one_line(tmp_path, meta, message):
    (tmp_path / META).write_bytes(meta)

    with pytest.raises(Unreadable, match=message) as refusal:
        Recording.open(tmp_path)
    assert "\n" not in str(refusal.value)


def test_a_folder_without_what_a_recording_says_of_itself_is_none(tmp_path):
    with pytest.raises(Unreadable, match=r"no recording; it has no meta\.json"):
        Recording.open(tmp_path)
    with pytest.raises(Unreadable, match="No such file or directory"):
        Recording.open(tmp_path / "absent.keprec")


def test_a_file_that_is_no_recording_is_refused_and_not_replaced(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")

    with pytest.raises(Unreadable, match="notes\\.txt: no recording"):
        Recording.open(path)
    with pytest.raises(NotRecordable, match="a file that is no recording; it is not replaced"):
        Writer(path, Meta())
    with pytest.raises(NotRecordable, match="a folder with other things"):
        Writer(tmp_path, Meta())
    assert path.read_text() == "mine"
    with pytest.raises(Unreadable, match="No such file"):
        Recording.open(tmp_path / "none")


def test_a_recording_that_is_being_written_is_not_replaced(tmp_path):
    writer = Writer(tmp_path / "a.keprec", Meta())

    with pytest.raises(NotRecordable, match="is being written by another command"):
        Writer(tmp_path / "a.keprec", Meta())
    writer.close()


def test_commits_that_a_restarted_server_repeats_are_recorded_once(tmp_path):
    history, path = some_history(), tmp_path / "a.keprec"
    writer = written(path, history)
    for line in history.lines[-3:]:
        writer.line(msgspec.structs.replace(line, data={**line.data, "replayed": True}))
    writer.close(Meta(ended="now"))

    with Recording.open(path) as recording:
        assert len(recording) == history.rv


def test_versions_that_come_out_of_order_are_read_in_order(tmp_path):
    history, path = some_history(), tmp_path / "a.keprec"
    history.lines[2], history.lines[3] = history.lines[3], history.lines[2]
    written(path, history).close(Meta(ended="now"))

    with Recording.open(path) as recording:
        assert [each.rv for each in recording.versions()] == list(range(1, history.rv + 1))
        assert recording.state_at(history.rv).keys() == history.states[-1].keys()


def test_a_body_that_comes_after_its_version_was_written_is_found(tmp_path):
    history, path = some_history(1), tmp_path / "a.keprec"
    history.commit("secrets", {"metadata": {"name": "s", "namespace": "shop", "uid": "s"}, "data": {"a": "YWJj"}})
    writer = written(path, history, with_bodies=False)
    writer.flush()
    for event in history.events:
        writer.event(event)
    writer.close(Meta(ended="now"))

    with Recording.open(path) as recording:
        assert [each.rv for each in recording.versions() if not recording.has_body(each)] == []
        assert "••• 3 bytes" in recording.object_at("secrets", "shop", "s", history.rv).decode()


@pytest.mark.parametrize("is_file", [False, True])
def test_threads_that_read_one_recording_each_read_what_is_there(tmp_path, is_file, monkeypatch):
    monkeypatch.setattr(reader, "UNPACKED_MAX", 1)
    monkeypatch.setattr(writer_module, "BLOCK_BYTES", 256)
    history, path = some_history(pods=40), tmp_path / "a.keprec"
    writer = written(path, history)
    writer.close(Meta(ended="now")) if is_file else writer.flush()

    with Recording.open(path) as recording:
        recording.guard = Lock()
        wanted = {each.sha: recording.body(each.sha) for each in recording.versions() if recording.has_body(each)}

        def read(order):
            shas = random.Random(order).choices(list(wanted), k=400)
            return [sha for sha in shas if recording.body(sha) != wanted[sha]] + [
                line for line in recording.lines() if line not in history.lines
            ]

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(read, range(16)))
    if not is_file:
        writer.close(Meta(ended="now"))

    assert len(wanted) > 40
    assert [[]] * 16 == found
