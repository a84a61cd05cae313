"""Records are private, whole or not there, and bounded."""

import os
import stat

import msgspec
import pytest

from lab.runs.folder import DECISIONS_FILE, EVENTS_FILE, PAGE_FILE, RECORD_FILE, Budget, RunsFolder, Unreadable
from lab.runs.record import Origin, RunRecord, UnknownRun
from lab.runs.recorder import Recorder, keep_document
from services.telemetry.eventlog import Line

RECORD = RunRecord("", "run", "runaway", "simulated", True, "keplab run f", Origin("f", "", "1"))


def numbered(seed):
    return msgspec.structs.replace(RECORD, seed=seed)


def line(number, ev="kubelet.reject"):
    obj = {"kind": "Pod", "ns": "default", "name": f"p{number}", "uid": str(number)}
    return Line(1, number, number * 10**9, "", "kubelet/h0", "0", ev, obj=obj, node="n1", data={"reason": "OutOfcpu"})


def kept(folder, seed=0, *lines, keeps_events=False):
    recorder = Recorder(folder, keeps_events=keeps_events)
    for each in lines:
        recorder.take(each)
    return recorder.keep(numbered(seed))


def aged(folder, run, age_s):
    path = folder.file(run, RECORD_FILE)
    os.utime(path, ns=(10**18 - age_s * 10**9,) * 2)


def test_a_run_is_a_private_folder_with_its_record_and_decisions(tmp_path):
    folder = RunsFolder(tmp_path / "deep" / "runs")

    run = kept(folder, 3, line(1), line(2, "kubelet.start"))

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder.path, *folder.path.rglob("*"))}
    assert modes == {"runs": 0o700, run: 0o700, RECORD_FILE: 0o600, DECISIONS_FILE: 0o600}
    assert (folder.read(run).id, folder.read(run).seed, folder.read(run).has_events) == (run, 3, False)
    assert [(each.role, each.outcome) for each in folder.decisions(run)] == [("pod/p1", "OutOfcpu")]


def test_an_event_log_that_is_kept_comes_back_line_by_line(tmp_path):
    folder = RunsFolder(tmp_path)
    lines = [line(number, "kubelet.start") for number in range(50)]

    run = kept(folder, 0, *lines, keeps_events=True)

    assert list(folder.events(run)) == lines
    assert folder.read(run).has_events


def test_runs_are_listed_newest_first_and_nothing_else_in_the_folder_is_one(tmp_path):
    folder = RunsFolder(tmp_path)
    runs = [kept(folder, seed) for seed in range(3)]
    for age_s, run in enumerate(runs):
        aged(folder, run, age_s)
    (tmp_path / "soak").mkdir()
    (tmp_path / "demo.html").write_text("")
    Recorder(folder, keeps_events=False)  # of a run that goes on

    assert folder.ids() == runs
    assert [record.seed for record in folder.records()] == [0, 1, 2]


def test_the_oldest_go_when_there_are_more_runs_than_are_kept(tmp_path):
    folder = RunsFolder(tmp_path, Budget(runs=2))
    (tmp_path / "demo.html").write_text("")
    runs = []
    for seed in range(4):
        runs.append(kept(folder, seed))
        aged(folder, runs[-1], 10 - seed)

    assert folder.ids() == [runs[3], runs[2]]
    assert {path.name for path in tmp_path.iterdir()} == {runs[2], runs[3], "demo.html"}


def test_the_oldest_go_when_runs_take_more_bytes_than_they_may_and_the_newest_stays(tmp_path):
    folder = RunsFolder(tmp_path, Budget(bytes=10_000))
    first = kept(folder, 0)
    folder.file(first, PAGE_FILE).write_bytes(b"x" * 9_000)
    aged(folder, first, 10)
    second = kept(folder, 1)
    assert folder.ids() == [second, first]

    large = kept(RunsFolder(tmp_path, Budget(bytes=1)), 2)

    assert folder.ids() == [large]


def test_a_run_that_is_discarded_leaves_nothing(tmp_path):
    recorder = Recorder(RunsFolder(tmp_path), keeps_events=True)
    recorder.take(line(1))
    recorder.discard()

    assert list(tmp_path.iterdir()) == []


def test_what_was_begun_long_ago_and_never_ended_is_removed_and_what_goes_on_is_not(tmp_path):
    folder = RunsFolder(tmp_path)
    old, young = folder.begin(), folder.begin()
    os.utime(old, (0, 0))

    kept(folder)

    assert (old.exists(), young.exists()) == (False, True)


def test_a_folder_that_cannot_be_made_is_an_os_error(tmp_path):
    (tmp_path / "runs").write_text("a file")

    with pytest.raises(FileExistsError):
        Recorder(RunsFolder(tmp_path / "runs"), keeps_events=False)


def test_a_disk_that_refuses_costs_the_record_and_not_the_run(tmp_path):
    folder = RunsFolder(tmp_path)
    recorder = Recorder(folder, keeps_events=True)
    os.close(recorder._event_file._raw.fileno())  # what is written now fails
    for number in range(20_000):
        recorder.take(line(number))

    with pytest.raises(OSError, match="Bad file descriptor"):
        recorder.keep(RECORD)
    assert folder.ids() == []


@pytest.mark.parametrize("name", [RECORD_FILE, DECISIONS_FILE, EVENTS_FILE])
def test_a_file_that_is_damaged_is_named(tmp_path, name):
    folder = RunsFolder(tmp_path)
    run = kept(folder, 0, line(1), keeps_events=True)
    path = folder.file(run, name)
    path.write_bytes(path.read_bytes()[:-12])
    read = {
        RECORD_FILE: folder.read,
        DECISIONS_FILE: folder.decisions,
        EVENTS_FILE: lambda run: list(folder.events(run)),
    }

    with pytest.raises(Unreadable, match=name):
        read[name](run)


def test_a_record_that_is_damaged_hides_no_other(tmp_path):
    folder = RunsFolder(tmp_path)
    runs = [kept(folder, seed) for seed in range(2)]
    folder.file(runs[0], RECORD_FILE).write_text("{")

    assert [record.id for record in folder.records()] == [runs[1]]


def test_a_comparison_has_arms_and_seeds_and_a_document_that_is_checked(tmp_path):
    folder = RunsFolder(tmp_path)
    record = msgspec.structs.replace(RECORD, kind="comparison", arms={"a": [], "b": []}, seeds=[0, 1])
    run = keep_document(folder, record, b'{"schema": "other"}')

    with pytest.raises(Unreadable, match=r"comparison.json: it has other 0"):
        folder.comparison(run)
    assert folder.find_by_name(f"{run}/b/1")[1:] == ("b", 1)
    with pytest.raises(UnknownRun, match="its arms are a, b"):
        folder.find_by_name(f"{run}/c/1")
    with pytest.raises(UnknownRun, match="its seeds are 0 to 1"):
        folder.find_by_name(f"{run}/a/7")
