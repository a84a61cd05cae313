"""`keplab events`: the event log of a run, made again and held to its digest, and of a mesh's directory."""

import json

import pytest

from lab.runs.folder import EVENTS_FILE
from services.telemetry.eventlog import Line, encode


def test_the_log_of_a_simulation_is_made_again_once_and_filtered(at_home, ended):
    _, out, _ = ended("run", "passes.txt", "--seed", 2, "-o", "json")
    (made,) = json.loads(out)

    _, whole, err = ended("events", "latest", "-o", "json")
    _, some, _ = ended("events", made["run"], "--event", "sched.*,kubelet.start", "--for", "pod/p", "-o", "json")
    _, shown, _ = ended("events", "latest", "--event", "kubelet.start")
    _, late, _ = ended("events", "latest", "--from", 0, "--to", 20, "--tail", 3, "-o", "json")

    assert err == ""
    assert len(whole.splitlines()) == made["event_lines"]
    assert (at_home / "runs" / made["run"] / EVENTS_FILE).exists()
    assert [json.loads(line)["ev"] for line in some.splitlines()][-2:] == ["sched.bind_result", "kubelet.start"]
    assert shown.split()[1:] == ["kubelet/h0", "kubelet.start", "pod", "default/p", "on", "n1", "container=main"]
    assert len(late.splitlines()) == 3
    assert ended("events", "latest", "--from", 10_000)[1] == ""
    assert sorted(path.name for path in (at_home / "runs").iterdir()) == [made["run"]]


def test_an_answer_without_a_line_says_that_there_are_others_and_what_is_spelled_alike(at_home, ended):
    ended("run", "passes.txt")

    code, out, err = ended("events", "latest", "--event", "sched.atempt")

    assert (code, out) == (0, "")
    assert "event lines is asked for; did you mean sched.attempt" in err
    assert "did you mean" not in ended("events", "latest", "--event", "sched.*", "--from", 10_000)[2]
    assert ended("events", "latest", "--tail", 0) == (0, "", "")


def test_a_scenario_that_has_changed_is_refused_and_nothing_is_shown(at_home, ended):
    ended("run", "passes.txt")
    with (at_home / "passes.txt").open("a") as file:
        file.write("wait 1s\n")

    code, out, err = ended("events", "latest")

    assert (code, out) == (1, "")
    assert "passes.txt was " in err
    assert "and is " in err


def test_the_log_of_a_mesh_is_read_from_its_directory(at_home, ended):
    folder = at_home / ".keplab" / "events"
    folder.mkdir(parents=True)
    obj = {"kind": "Pod", "ns": "default", "name": "p", "uid": "u"}
    lines = [
        Line(1, 1, 1, "2026-01-01T00:00:01.000000Z", "kubelet/h0", "0", "proc.start"),
        Line(1, 2, 2, "2026-01-01T00:00:02.000000Z", "kubelet/h0", "0", "kubelet.reject", obj=obj, node="n1"),
    ]
    (folder / "kubelet_h0-0.jsonl").write_bytes(b"".join(map(encode, lines)))

    assert ended("events", "--for", "pod/p")[1].split() == [
        "2026-01-01T00:00:02.000000Z",
        "kubelet/h0",
        "kubelet.reject",
        "pod",
        "default/p",
        "on",
        "n1",
    ]
    assert len(ended("events")[1].splitlines()) == 2
    assert ended("events", "--since", "1h")[1] == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("latest",), "there are no runs in runs; `keplab run FILE` makes one"),
        (("--from", "3"), "--from and --to need a RUN; the mesh has --since"),
        (("latest", "-w"), "--since and --watch need the running mesh"),
        (("--since", "soon"), "no mesh has run on .keplab"),
    ],
)
def test_what_cannot_be_shown_is_one_line(at_home, ended, words, says):
    code, out, err = ended("events", *words)

    assert code in (1, 2)
    assert out == ""
    assert says in err.splitlines()[-1]
