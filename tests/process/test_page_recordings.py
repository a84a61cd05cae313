"""`keplab ui` without a mesh: recordings, their differences, and the runs that the page starts (checks 8, 10, 11, 13)."""

import json
import os
import random
import shlex
import subprocess
import sys
import time

import numpy as np
import pytest

from lab.recordings import frames
from lab.recordings.reader import Recording
from tests.process.page_server import ROOT, PageServer

SCENARIO = """# One pod that its first node rejects
# It is Failed there, or unbound and tried elsewhere.
limit 10s
nodes n1 cpu=8 threads=2 full-pcpus=true cpu-policy=static memory=16Gi
nodes n2 cpu=4 memory=8Gi
pod web cpu=1
wait 3s
"""
OWN = "own/tiny.txt"
ARMS = [
    {"name": "fail", "switches": ["kubelet.on_reject=fail"]},
    {"name": "unbind", "switches": ["kubelet.on_reject=unbind"]},
]


def keplab(*words, cwd):
    made = subprocess.run(
        [sys.executable, "-m", "lab.cli", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert 0 == made.returncode, made.stderr
    return made.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Recordings of a short run in two arms."""
    found = tmp_path_factory.mktemp("page")
    (found / "own").mkdir()
    (found / OWN).write_text(SCENARIO)
    arms = [word for arm in ARMS for word in ("--arm", f"{arm['name']}:{','.join(arm['switches'])}")]
    keplab(
        "compare",
        OWN,
        *arms,
        "--seed",
        "1",
        "--recording",
        "made",
        "--runs",
        "none",
        "--report",
        "r.html",
        "-o",
        "json",
        cwd=found,
    )
    return found


@pytest.fixture(scope="module")
def page(folder):
    with PageServer(
        "--data", folder / "none", "--run", folder / "made", "--scenarios", folder / "own", cwd=folder
    ) as found:
        yield found


def test_the_runs_are_named_by_scenario_arm_and_seed(page):
    runs = page.get("meta")["runs"]

    assert ["tiny/fail/1", "tiny/unbind/1"] == sorted(each["id"] for each in runs)
    assert all(each["from_rv"] < each["to_rv"] and each["kind"] == "recording" for each in runs)
    assert 404 == page.ask("GET", "mesh").code
    assert 404 == page.ask("GET", "objects/pods?run=none").code


def test_8_any_version_is_what_the_recording_says_and_a_group_is_not_stopped_in(page, folder):
    path = next((folder / "made").glob("unbind-*.keprec"))
    with Recording.open(path) as recording:
        first, last = recording.rv_range
        for rv in random.Random(1).sample(range(first, last + 1), min(20, last - first)):
            state, mirror = page.ask("GET", f"state?run=tiny/unbind/1&rv={rv}").body, frames.Mirror()
            while state:
                length = int.from_bytes(state[:4], "little")
                frame = mirror.take(state[4 : 4 + length])
                state = state[4 + length :]
            assert (recording.stop_at(rv), False) == (mirror.rv, mirror.is_in_group)
            np.testing.assert_array_equal(
                recording.model_at(rv).columns("pods")["phase"], mirror.tables["pods"]["phase"]
            )
            rows = page.get(f"objects/pods?run=tiny/unbind/1&rv={rv}&limit=5000")["rows"]
            assert sorted(key[2] for key in recording.state_at(rv) if key[0] == "pods") == sorted(
                row["name"] for row in rows
            )
    assert frame.kind == frames.PODS


def test_10_the_first_difference_is_what_follows_the_rejection(page):
    found = page.get("diff?a=tiny/fail/1&b=tiny/unbind/1")

    first = found["first"]
    assert ("pod/web", "kubelet.unbind_call") == (first["role"], first["b"]["event"])
    assert {"phase"} == {each["a"]["event"] for each in found["differences"] if each["a"]}


def test_11_a_run_and_itself_have_no_difference(page):
    found = page.get("diff?a=tiny/fail/1&b=tiny/fail/1")

    assert (None, []) == (found["first"], found["differences"])
    assert found["text"] == f"no difference in {found['counts']['a']} decisions"
    assert 400 == page.ask("GET", "diff?a=tiny/fail/1").code


def test_a_recording_is_sought_and_played_over_the_socket(page):
    run = next(each for each in page.get("meta")["runs"] if each["arm"] == "unbind")
    middle = (run["from_rv"] + run["to_rv"]) // 2
    whole = page.watch(lambda frame, _: frame.kind == frames.PODS, {"t": "seek", "run": run["id"], "rv": middle})[1]
    assert run["from_rv"] <= whole.rv <= middle

    _, played = page.watch(
        lambda frame, mirror: (
            frame.kind == frames.DELTA and mirror.rv == run["to_rv"] and len(mirror.tables["pods"]["name"])
        ),
        {"t": "play", "run": run["id"], "speed": 10_000},
    )
    _, end = page.watch(lambda frame, _: frame.kind == frames.PODS, {"t": "seek", "run": run["id"], "rv": run["to_rv"]})
    assert end.strings == played.strings
    for name, values in end.tables["pods"].items():
        np.testing.assert_array_equal(values, played.tables["pods"][name], err_msg=name)


def test_a_run_that_is_not_there_is_said_in_words(page):
    seen, _ = page.watch(lambda *_: True, {"t": "sub", "run": "none"})
    assert "error" == seen[0]["t"]
    assert "there is no run 'none'; there are: tiny/fail/1" in seen[0]["message"]


def finished(page, job):
    return page.eventually(f"jobs/{job}", lambda found: found["state"] not in ("Waiting", "Running"))


def test_13_a_comparison_is_run_and_its_command_does_the_same_by_hand(page, folder):
    arms = [{"name": "a"}, {"name": "b", "switches": ["kubelet.on_reject=unbind"]}]
    started = page.ask("POST", "jobs", {"scenario": OWN, "arms": arms, "seeds": 3})
    assert 201 == started.code, started.text
    job = finished(page, started.json["id"])

    assert ("Succeeded", 6, 6) == (job["state"], job["done"], job["total"]), job
    report = page.ask("GET", f"jobs/{job['id']}/report")
    assert (200, "sandbox") == (report.code, report.headers["Content-Security-Policy"].rpartition("; ")[2])
    assert {f"tiny/{arm}/{seed}" for arm in "ab" for seed in range(3)} <= {
        each["id"] for each in page.get("meta")["runs"]
    }
    words = shlex.split(job["command"])[1:]
    by_page = json.loads((folder / words[words.index("--report") + 1]).with_name("result.json").read_text())
    by_hand = json.loads(keplab(*words, "-o", "json", "--runs", "none", cwd=folder))
    assert digests(by_page) == digests(by_hand)
    assert 6 == len(digests(by_page))


def digests(document):
    return {(arm["name"], run["seed"]): run["digest"] for arm in document["arms"] for run in arm["runs"]}


def children_of(pid):
    return subprocess.run(
        ["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True, check=False
    ).stdout.split()


def test_a_job_is_cancelled_as_ctrl_c_does_and_leaves_no_child(page):
    started = page.ask("POST", "jobs", {"scenario": OWN, "arms": ARMS, "seeds": 100, "recording": False}).json
    waiting = page.ask("POST", "jobs", {"scenario": OWN, "arms": ARMS}).json
    page.eventually(f"jobs/{started['id']}", lambda found: found["state"] == "Running")
    assert "Waiting" == page.get(f"jobs/{waiting['id']}")["state"], "one at a time"
    assert ("Cancelled", 409) == (
        page.ask("DELETE", f"jobs/{waiting['id']}").json["state"],
        page.ask("DELETE", f"jobs/{waiting['id']}").code,
    )
    pid = children_of(page.process.pid)[0]
    assert 10 == os.getpriority(os.PRIO_PROCESS, int(pid))

    page.ask("DELETE", f"jobs/{started['id']}")
    assert "Cancelled" == finished(page, started["id"])["state"]
    deadline = time.monotonic() + 20
    while children_of(page.process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_scenarios_and_what_may_not_be_run(page):
    found = page.get("scenarios")["scenarios"]
    assert any(each["path"] == OWN and each["title"] for each in found)
    answer = page.ask("POST", "jobs", {"scenario": "../../etc/passwd", "arms": [{"name": "a"}]})
    assert (400, True) == (answer.code, "is no file *.txt below" in answer.json["message"])
