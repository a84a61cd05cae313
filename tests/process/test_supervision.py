"""What a supervisor does with processes that die over and over, and how commands reach it (P14)."""

import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from services.runtime.control import CONTROL_SOCKET
from services.runtime.mesh_directory import LOCK_FILE, holder, is_alive

ROOT = Path(__file__).resolve().parents[2]
KEPLAB = [sys.executable, "-m", "lab.cli"]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}
WAIT_MAX_S = 60.0


def keplab(*arguments):
    return subprocess.run([*KEPLAB, *arguments], capture_output=True, text=True, env=ENVIRON, timeout=120)


def wait_for(condition, what):
    deadline = time.monotonic() + WAIT_MAX_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.1)
    return found


def state_of(data):
    shown = keplab("status", "--data", str(data), "-o", "json")
    found = json.loads(shown.stdout)
    return {process["name"]: process for process in found["processes"]}, shown.returncode, found


@pytest.fixture
def data(tmp_path):
    """The directory of a mesh, which is stopped at the end if it runs."""
    place = tmp_path / "mesh"
    yield place
    if holder(place):
        keplab("down", "--data", str(place))


@pytest.fixture
def mesh(data):
    began = keplab("up", "--data", str(data), "--nodes", "2", "--detach")
    assert 0 == began.returncode, began.stderr
    return data


def is_running(found, name):
    return found[0][name]["state"] == "Running" and found[0][name]


def test_a_process_that_keeps_dying_is_tried_slowly_and_restart_brings_it_back_now(mesh):
    for _ in range(6):
        pid = wait_for(lambda: is_running(state_of(mesh), "scheduler"), "a scheduler")["pid"]
        os.kill(pid, signal.SIGKILL)
        processes, code, _ = wait_for(
            lambda pid=pid: (found := state_of(mesh))[0]["scheduler"]["pid"] != pid and found, "its end"
        )

    assert (1, "CrashLoopBackOff") == (code, processes["scheduler"]["state"])
    assert 0 < processes["scheduler"]["next_try_in_s"] <= 10
    assert "scheduler was ended by SIGKILL" == processes["scheduler"]["last_error"]
    assert not [name for name, each in processes.items() if name != "scheduler" and each["state"] != "Running"]

    again = keplab("restart", "scheduler", "--data", str(mesh))
    assert (0, "scheduler restarted\n") == (again.returncode, again.stdout)
    assert (0, "Running") == (state_of(mesh)[1], state_of(mesh)[0]["scheduler"]["state"])


def test_restart_ends_a_running_process_in_good_order_and_names_what_there_is(mesh):
    before = state_of(mesh)[0]
    assert 0 == keplab("restart", "kubelet/h0", "--data", str(mesh)).returncode
    after = state_of(mesh)[0]
    assert ["kubelet/h0"] == [name for name in before if before[name]["pid"] != after[name]["pid"]]
    lines = [json.loads(x) for f in (mesh / "events").glob("kubelet_h0-*") for x in f.read_text().splitlines()]
    assert [(0, "SIGTERM")] == [
        (line["data"]["exit_code"], line["data"]["reason"]) for line in lines if line["ev"] == "proc.stop"
    ]

    wrong = keplab("restart", "nope", "--data", str(mesh))
    names = "apiserver, scheduler, controllers, claim-controller, kubelet/h0, kubelet/h1"
    assert (2, f"keplab: no process is called nope; there are {names}\n") == (wrong.returncode, wrong.stderr)
    assert 2 == keplab("restart", "--data", str(mesh)).returncode


def test_a_stopped_supervisor_or_process_is_seen_and_what_is_gone_is_not_called_ready(mesh):
    processes, _, state = state_of(mesh)
    os.kill(processes["controllers"]["pid"], signal.SIGSTOP)
    assert ["NotAnswering"] == [each["type"] for each in state_of(mesh)[2]["conditions"]]
    os.kill(processes["controllers"]["pid"], signal.SIGCONT)

    os.kill(state["supervisor_pid"], signal.SIGSTOP)
    os.kill(processes["scheduler"]["pid"], signal.SIGKILL)
    try:
        wait_for(lambda: not is_alive(processes["scheduler"]["pid"]), "the end of the scheduler")
        seen, code, document = state_of(mesh)
    finally:
        os.kill(state["supervisor_pid"], signal.SIGCONT)
    assert (1, "Gone", False) == (code, seen["scheduler"]["state"], seen["scheduler"]["ready"])
    assert ["SupervisorNotAnswering"] == [each["type"] for each in document["conditions"]]
    wait_for(lambda: state_of(mesh)[1] == 0, "a mesh that is well")


def test_everything_in_the_directory_of_a_mesh_is_its_owners_alone_also_what_an_earlier_one_left(data):
    data.mkdir(mode=0o755)
    (data / LOCK_FILE).touch(mode=0o644)
    (data / "events").mkdir(mode=0o755)
    (data / "events" / "apiserver-00.jsonl").write_text("")
    began = keplab("up", "--data", str(data), "--nodes", "2", "--device-sockets", "--security", "strict", "--detach")
    assert 0 == began.returncode, began.stderr

    found = {path: path.lstat().st_mode for path in (data, *data.rglob("*"))}
    names = {path.name for path in found}
    assert {"store.db", "store.db-wal", "acked", "kubeconfig", "mesh.json", "ca.key", CONTROL_SOCKET} <= names
    assert any(stat.S_ISSOCK(mode) and "nodes" in str(path) for path, mode in found.items())
    assert [] == [f"{path} {mode & 0o777:o}" for path, mode in found.items() if mode & 0o077]


def test_a_directory_with_other_things_in_it_keeps_its_own_mode(data):
    data.mkdir(mode=0o755)
    (data / "notes.txt").write_text("mine")
    (data / "notes.txt").chmod(0o644)
    began = keplab("up", "--data", str(data), "--engine", "memory", "--nodes", "0", "--detach")
    assert 0 == began.returncode, began.stderr

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (data, *data.iterdir())}
    assert (0o755, 0o644, 0o700) == (modes["mesh"], modes["notes.txt"], modes["logs"])


@pytest.mark.parametrize("how", [["--detach"], []])
def test_down_stops_a_mesh_that_has_only_begun_to_start(data, how):
    chance = random.Random(len(how))
    for _ in range(3):
        command = [*KEPLAB, "up", "--data", str(data), "--engine", "memory", "--nodes", "2", *how]
        up = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRON, text=True
        )  # fmt: skip
        time.sleep(chance.uniform(0, 1))
        ended = keplab("down", "--data", str(data))
        shown, said = up.communicate(timeout=WAIT_MAX_S)

        assert (0, "mesh is down\n") == (ended.returncode, ended.stdout), said
        assert 0 == holder(data)
        assert ("stop with" in shown) == (0 == up.returncode) or not how  # it was ready before, or it failed
        assert "Traceback" not in said
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and names(path, data)]
    assert [] == pids
    again = keplab("down", "--data", str(data))
    assert (0, f"no mesh runs on {data}\n") == (again.returncode, again.stdout)
    shown = keplab("status", "--data", str(data))
    assert (1, f"no mesh runs on {data}; try `keplab up`\n") == (shown.returncode, shown.stdout)


def names(process, data):
    """Whether a process of the system was started for a mesh of that directory."""
    try:
        return str(data).encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False
