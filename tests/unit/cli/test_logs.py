"""`keplab logs`: the last lines of each process, merged by time, and what is added to them, also in a new file."""

import json

import pytest

from lab.cli.__main__ import run
from lab.cli.log_files import Tail, lines_of, processes, read


def text(second, event, **fields):
    return json.dumps({"timestamp": f"2026-01-01T00:00:{second:02}.000000Z", "level": "info", "event": event, **fields})


@pytest.fixture
def data(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "scheduler.log.000001").write_text(text(1, "oldest") + "\n")
    (logs / "scheduler.log.000002").write_text(text(2, "older") + "\n")
    (logs / "scheduler.log").write_text(text(5, "failed", pid=7) + "\nTraceback\n  somewhere\n")
    (logs / "kubelet_h0.log").write_text(text(3, "one") + "\n" + text(6, "two") + "\n")
    return tmp_path


@pytest.fixture
def printed(data, capsys):
    def go(*words):
        try:
            code = run(["logs", *words, "--data", str(data)])
        except SystemExit as end:
            code = end.code
        shown = capsys.readouterr()
        return code, shown.out.splitlines(), shown.err

    return go


def test_all_logs_are_merged_by_time_after_the_names_of_their_processes(printed):
    code, lines, _ = printed()

    assert code == 0
    assert [" ".join(line.split()) for line in lines] == [
        "[scheduler] 2026-01-01T00:00:01.000000Z info oldest",
        "[scheduler] 2026-01-01T00:00:02.000000Z info older",
        "[kubelet/h0] 2026-01-01T00:00:03.000000Z info one",
        "[scheduler] 2026-01-01T00:00:05.000000Z info failed pid=7",
        "[scheduler] Traceback",
        "[scheduler] somewhere",
        "[kubelet/h0] 2026-01-01T00:00:06.000000Z info two",
    ]


@pytest.mark.parametrize(
    ("words", "last_words"),
    [
        (("kubelet",), ["one", "two"]),
        (("kubelet/h0", "--tail", "1"), ["two"]),
        (("scheduler", "--tail", "4"), ["older", "pid=7", "Traceback", "somewhere"]),
        (("scheduler", "--tail", "0"), []),
        (("scheduler", "--since-time", "2026-01-01T00:00:02Z"), ["older", "pid=7", "Traceback", "somewhere"]),
        (("--since", "5s"), []),
    ],
)
def test_lines_are_chosen_by_process_number_and_time(printed, words, last_words):
    assert [line.split()[-1] for line in printed(*words)[1]] == last_words


def test_json_is_a_line_each_also_of_what_is_none(printed):
    found = [json.loads(line) for line in printed("scheduler", "--tail", "2", "-o", "json")[1]]

    assert found[0] == {"process": "scheduler", "timestamp": "2026-01-01T00:00:05.000000Z", "text": "Traceback"}


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("kublet",), 2, "no process is called 'kublet'; there are kubelet/h0, scheduler"),
        (("--since", "5x"), 2, "'5x' is no duration"),
        (("--since-time", "today"), 2, "today"),
        (("--since", "5s", "--since-time", "2026-01-01T00:00:00Z"), 2, "only one of"),
    ],
)
def test_what_cannot_be_shown_is_one_line(printed, words, code, says):
    found, lines, err = printed(*words)

    assert (found, lines) == (code, [])
    assert says in err.splitlines()[-1]


def test_without_a_mesh_it_says_how_to_start_one(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        run(["logs", "--data", str(tmp_path / "none")])

    assert end.value.code == 1
    assert "no mesh has run on" in capsys.readouterr().err


def test_a_tail_goes_on_in_the_new_file_and_prints_whole_lines_alone(data):
    path = processes(data)["scheduler"]
    tail = Tail("scheduler", path)
    with path.open("a") as file:
        file.write(text(7, "added") + "\n" + text(8, "half")[:20])
    first = tail.poll()
    with path.open("a") as file:
        file.write(text(8, "half")[20:] + "\n")
    path.rename(path.with_name("scheduler.log.000003"))
    path.write_text(text(9, "new") + "\n")

    assert [line.fields["event"] for line in first] == ["added"]
    assert [line.fields["event"] for line in (*tail.poll(), *tail.poll())] == ["half", "new"]
    assert [line.fields.get("event") for line in lines_of("scheduler", path)][-2:] == ["half", "new"]


def test_bytes_that_are_no_text_are_shown_as_well_as_can_be():
    (found,) = read("etcd", b"\xff\xfe broken", "2026")

    assert (found.timestamp, found.fields) == ("2026", {})
