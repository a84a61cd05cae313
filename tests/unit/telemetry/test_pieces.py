"""Event logs, span files and logs outlive a full disk, say what is missing, and take no more than they may (L-LOG)."""

import errno
import io
import json
import os
import random
import stat
import subprocess
import sys

import pytest
import structlog

from lab.scenarios.processes.event_files import Incomplete, Tail
from services.telemetry import logs
from services.telemetry.eventlog import FileEventLog
from services.telemetry.pieces import DEFAULT, KEEP_ALL, MIB, Budget, Pieces, files_of, trim
from services.telemetry.traces import FileSpans, Tracer, read_spans


class StillClock:
    def now(self):
        return 12.5

    def wall(self):
        return 1_800_000_012.75


class Disk:
    """Stands before `os.write`: takes everything, nothing, or the first bytes only."""

    def __init__(self, monkeypatch):
        self._write = os.write
        self.takes = None
        monkeypatch.setattr(os, "write", self.write)

    def write(self, fd, data):
        if self.takes is None or fd in (1, 2):
            return self._write(fd, data)
        if self.takes == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._write(fd, bytes(data[: self.takes]))


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def an_event_log(folder, budget=KEEP_ALL, component="apiserver", incarnation="01"):
    return FileEventLog(folder, component, StillClock(), incarnation, budget)


def lines_of(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("takes", [0, 10])
def test_a_full_disk_costs_event_lines_that_are_counted_and_leaves_no_half_line(tmp_path, disk, takes):
    log = an_event_log(tmp_path)
    log.write("a")

    disk.takes = takes
    log.write("b")
    log.write("c")
    assert (2, True) == (log.dropped, log.is_incomplete)
    disk.takes = None
    log.write("d")

    found = lines_of(log.path)
    assert [(1, "a"), (4, "d"), (5, "log.dropped")] == [(line["seq"], line["ev"]) for line in found]
    assert {"first_seq": 2, "last_seq": 3, "total": 2} == found[-1]["data"]
    assert 2 == log.metrics()["keplab_event_lines_dropped_total"]
    assert not log.is_incomplete


def test_half_a_line_that_cannot_be_cut_off_again_spoils_no_other(tmp_path, disk, monkeypatch):
    log = an_event_log(tmp_path)
    log.write("a")

    def refuse(fd, size):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "ftruncate", refuse)
    disk.takes = 10
    log.write("b")
    disk.takes = None
    log.write("c")

    first, torn, *rest = log.path.read_bytes().splitlines()
    assert 10 == len(torn)
    assert ["a", "c", "log.dropped"] == [json.loads(line)["ev"] for line in (first, *rest)]


def test_a_file_with_a_gap_makes_the_result_unknown_however_late_it_is_read(tmp_path, disk):
    log, tail = an_event_log(tmp_path), Tail(tmp_path)
    log.write("a")
    assert ["a"] == [line.ev for line in tail.poll(None)]

    disk.takes = 0
    log.write("b")
    with pytest.raises(Incomplete, match="lines are missing at its end"):
        Tail(tmp_path).poll(None)
    disk.takes = None
    log.write("c")

    for _ in range(2):
        with pytest.raises(Incomplete, match=r"apiserver-01\.jsonl:2: seq is 3"):
            tail.poll(None)


def test_a_log_that_could_not_even_be_made_begins_when_there_is_space(tmp_path, monkeypatch):
    opened = os.open

    def refuse(path, flags, mode=0o777, **more):
        if str(path).endswith(".jsonl"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return opened(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", refuse)
    log = an_event_log(tmp_path)
    log.write("a")
    monkeypatch.setattr(os, "open", opened)
    log.write("b")

    assert [2, 3] == [line["seq"] for line in lines_of(log.path)]


def test_a_place_that_can_hold_no_log_is_still_a_mistake_to_report(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(NotADirectoryError):
        an_event_log(tmp_path / "file" / "events")


def test_spans_that_a_full_disk_refuses_are_counted_and_the_next_are_whole(tmp_path, disk):
    sink = FileSpans(tmp_path / "scheduler-01.jsonl")
    tracer = Tracer("scheduler", clock=StillClock(), random=random.Random(1), sinks=[sink])
    disk.takes = 40
    tracer.start("lost").end()
    tracer.flush()
    disk.takes = None
    tracer.start("kept").end()
    tracer.flush()

    assert ["kept"] == [span.name for span in read_spans(sink.path)]
    assert 1 == tracer.metrics()["keplab_spans_dropped_total"]


def test_a_log_line_that_standard_error_refuses_ends_nothing_and_is_counted_in_the_next():
    class Full(io.StringIO):
        is_full = False

        def write(self, text):
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(text)

    stream = Full()
    logs.set_up("scheduler", stream=stream, is_final=False)
    try:
        logger = structlog.get_logger()
        stream.is_full = True
        logger.error("lost")
        logger.error("lost too")
        stream.is_full = False
        logger.error("kept")
    finally:
        structlog.reset_defaults()

    assert [("log.dropped", 2), ("kept", None)] == [
        (line["event"], line.get("count")) for line in map(json.loads, stream.getvalue().splitlines())
    ]


def test_an_event_log_goes_on_in_a_new_piece_and_is_read_as_one(tmp_path):
    log, tail = an_event_log(tmp_path, Budget(1000, 0)), Tail(tmp_path)
    read = []
    for number in range(40):
        log.write("api.request", rv=number)
        if number % 7 == 0:
            read += tail.poll(None)
    read += tail.poll(None)

    pieces = files_of(tmp_path)["apiserver-01"]
    assert [f"apiserver-01.{n:06d}.jsonl" for n in range(2, len(pieces) + 1)] == [path.name for path in pieces[1:]]
    assert all(1000 >= path.stat().st_size for path in pieces)
    assert list(range(40)) == [line.rv for line in read]
    assert list(range(40)) == [line.rv for line in Tail(tmp_path).poll(None)]


def test_the_oldest_pieces_of_a_component_are_removed_those_of_earlier_lives_first(tmp_path):
    for life in range(6):
        log = an_event_log(tmp_path, Budget(1000, 3), incarnation=f"{life:016x}")
        for number in range(9):
            log.write("api.request", rv=number)
        log.close()
    other = an_event_log(tmp_path, Budget(1000, 3), component="apiserver-2", incarnation="0f")
    other.write("a")

    mine = sorted(path.name for path in tmp_path.glob("apiserver-0*"))
    assert 4 == len(mine)
    assert f"apiserver-{5:016x}" == mine[-1][:26]
    assert other.path.exists()
    with pytest.raises(Incomplete):
        Tail(tmp_path).poll(None)


def test_a_reader_that_has_read_a_piece_before_it_was_removed_misses_nothing(tmp_path):
    log, tail = an_event_log(tmp_path, Budget(1000, 1)), Tail(tmp_path)
    read = []
    for number in range(60):
        log.write("api.request", rv=number)
        read += tail.poll(None)

    assert list(range(60)) == [line.rv for line in read]
    assert 2 == len(list(tmp_path.iterdir()))


def test_what_all_processes_wrote_is_trimmed_to_the_budget_of_the_mesh_and_the_newest_of_each_stay(tmp_path):
    events, texts = tmp_path / "events", tmp_path / "logs"
    paths = [events / "old-01.jsonl", events / "a-01.jsonl", events / "a-01.000002.jsonl"]
    paths += [texts / "a.log.000001", texts / "a.log"]
    for number, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 100)
        os.utime(path, ns=(number, number))

    assert ["a-01.jsonl"] == [path.name for path in trim([events, texts], 400)]
    assert ["a.log.000001"] == [path.name for path in trim([events, texts], 1)]
    assert [paths[0], paths[2], paths[4]] == [path for path in paths if path.exists()]


def test_standard_error_goes_on_in_a_new_file_and_only_the_youngest_are_kept(tmp_path):
    """In a process of its own, since it is about descriptor 2."""
    program = (
        "import os, sys, pathlib\n"
        "from services.telemetry.logs import LogFile\n"
        "from services.telemetry.pieces import Budget\n"
        "log = LogFile(pathlib.Path(sys.argv[1]), Budget(100, 2))\n"
        "for number in range(40):\n"
        "    os.write(1 + number % 2, b'%03d a line of a log\\n' % number)\n"
        "    log.rotate()\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "x.log")], check=True, timeout=60)

    names = sorted(path.name for path in tmp_path.iterdir())
    assert ["x.log", "x.log.000007", "x.log.000008"] == names
    kept = [line for name in (*names[1:], names[0]) for line in (tmp_path / name).read_text().splitlines()]
    assert [f"{number:03d} a line of a log" for number in range(30, 40)] == kept


def test_files_and_their_directory_are_their_owners_alone(tmp_path):
    folder = tmp_path / "events"
    folder.mkdir(mode=0o755)
    umask = os.umask(0)
    try:
        Pieces(folder / "x-01.jsonl").append(b"{}\n")
    finally:
        os.umask(umask)

    assert 0o700 == stat.S_IMODE(folder.stat().st_mode)
    assert 0o600 == stat.S_IMODE((folder / "x-01.jsonl").stat().st_mode)


def test_the_defaults_are_those_of_l_log():
    assert Budget(256 * MIB, 10) == DEFAULT
