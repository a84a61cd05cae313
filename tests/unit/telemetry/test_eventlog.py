"""The event log keeps every line whole, dense and in its place (guarantees 1)."""

import hashlib
import json
import random

from services.telemetry.eventlog import (
    BLOCK_LINES,
    LINE_BYTES_MAX,
    FileEventLog,
    MemoryEventLog,
    MemoryEvents,
    NullEventLog,
    new_incarnation,
)


class StillClock:
    """A clock that stands at one moment until it is moved."""

    def __init__(self):
        self.at = 12.5

    def now(self):
        return self.at

    def wall(self):
        return 1_800_000_000.25 + self.at


def lines_of(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_line_about_a_text_without_a_form_is_written(tmp_path):
    log = FileEventLog(tmp_path, "apiserver", StillClock(), "00ff")

    log.write("api.request", identity="a\udcff", data={"path": "\ud800", "size": 1 << 70})

    [line] = lines_of(log.path)
    assert ("a\\udcff", {"path": "\\ud800", "size": str(1 << 70)}) == (line["identity"], line["data"])


def test_a_line_has_every_field_of_guarantees_1_1(tmp_path):
    log = FileEventLog(tmp_path, "kubelet/n17", StillClock(), "00ff")

    log.write("kubelet.start", obj=("Pod", "default", "web", "u1"), rv=None, rv_seen=7, node="n17", gen=3,
              req_id="r-1", identity="system:node:n17", trace_id="ab", data={"container": "app"})  # fmt: skip

    assert [
        {
            "v": 1, "seq": 1, "mono_ns": 12_500_000_000, "wall": "2027-01-15T08:00:12.750000Z",
            "comp": "kubelet/n17", "inc": "00ff", "ev": "kubelet.start", "rv": None, "rv_seen": 7,
            "obj": {"kind": "Pod", "ns": "default", "name": "web", "uid": "u1"}, "node": "n17", "gen": 3,
            "req_id": "r-1", "identity": "system:node:n17", "trace_id": "ab", "data": {"container": "app"},
        }
    ] == lines_of(log.path)  # fmt: skip
    assert "kubelet_n17-00ff.jsonl" == log.path.name


def test_sequence_numbers_are_dense_and_lines_are_on_disk_when_write_returns(tmp_path):
    log = FileEventLog(tmp_path, "apiserver", StillClock(), "01")

    for rv in range(5):
        log.write("store.commit", rv=rv)
        assert rv + 1 == len(lines_of(log.path))

    assert [1, 2, 3, 4, 5] == [line["seq"] for line in lines_of(log.path)]


def test_a_line_never_exceeds_64_kib(tmp_path):
    log = FileEventLog(tmp_path, "apiserver", StillClock(), "01")

    log.write("api.request", data={"path": "x" * 100_000})

    assert 65_536 > log.path.stat().st_size
    assert lines_of(log.path)[0]["data"]["cut_bytes"] > 100_000


def test_a_value_that_is_no_json_cannot_fail_the_process(tmp_path):
    log = FileEventLog(tmp_path, "apiserver", StillClock(), "01")

    log.write("fault.fired", data={"what": object})

    assert "object" in lines_of(log.path)[0]["data"]["what"]


def test_the_wall_clock_text_follows_a_clock_that_jumps_back(tmp_path):
    clock = StillClock()
    log = MemoryEventLog("apiserver", clock)

    log.write("a")
    clock.at = 75.0
    log.write("b")
    clock.at = 12.5
    log.write("c")

    assert ["12.750000Z", "15.250000Z", "12.750000Z"] == [line.wall[17:] for line in log.events.lines]


def test_two_equal_runs_have_one_digest_and_a_different_one_another():
    def digest(names):
        events = MemoryEvents()
        logs = [MemoryEventLog(c, StillClock(), "0" * 16, events) for c in ("apiserver", "scheduler")]
        for i, name in enumerate(names):
            logs[i % 2].write(name, rv=i)
        return events.digest

    assert digest(["a", "b", "c"]) == digest(["a", "b", "c"])
    assert digest(["a", "b", "c"]) != digest(["a", "c", "b"])


def test_the_dump_of_a_simulation_is_the_file_a_process_would_have_written(tmp_path):
    file, memory = FileEventLog(tmp_path, "x", StillClock(), "01"), MemoryEventLog("x", StillClock(), "01")

    for log in (file, memory, NullEventLog()):
        log.write("lease.acquire", rv=3, data={"epoch": 2})

    assert file.path.read_bytes() == memory.events.dump()


def test_an_incarnation_is_64_bits_in_hexadecimal():
    assert 16 == len(new_incarnation(random.Random(1)))


def test_the_digest_of_blocks_is_that_of_the_lines_one_by_one():
    events = MemoryEvents()
    log = MemoryEventLog("x", StillClock(), into=events)
    data = [{"n": 1}, {"text": "\ud800"}, {"long": "x" * LINE_BYTES_MAX}, {"what": object}, {"n": {1: "ü"}}]
    for number in range(3 * BLOCK_LINES + 5):
        log.write("ev", data=data[number % 5] if number % 50 < 5 else {"n": number})
        if number in (7, BLOCK_LINES):
            assert hashlib.sha256(events.dump()).hexdigest() == events.digest

    assert hashlib.sha256(events.dump()).hexdigest() == events.digest
