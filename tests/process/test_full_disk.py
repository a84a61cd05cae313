"""A mesh on a disk that fills up: read-only, all processes alive, and as before when there is space (FM-A7, AS-50)."""

import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from lab.scenarios.processes.event_files import Incomplete, Tail
from lab.scenarios.run import load_scenario, run_as_processes
from services.runtime.mesh_directory import is_alive

ROOT = Path(__file__).resolve().parents[2]
KEPLAB = [sys.executable, "-m", "lab.cli"]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}
WAIT_MAX_S = 60.0
BYTES = 60_000


def keplab(*arguments):
    return subprocess.run([*KEPLAB, *arguments], capture_output=True, text=True, env=ENVIRON, timeout=120)


def mount(*arguments):
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, timeout=30)


def wait_for(condition, what):
    deadline = time.monotonic() + WAIT_MAX_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.2)
    return found


@pytest.fixture
def small(tmp_path):
    """A disk of 12 MiB with a mesh on it; `(directory, its mount point)`."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0 or (made := mount("-t", "tmpfs", "-o", "size=12m", "keplab-test", str(place))).returncode:
        pytest.skip(f"no small disk can be mounted here: {'not root' if os.geteuid() else made.stderr.strip()}")
    try:
        yield place / "mesh", place
    finally:
        keplab("down", "--data", str(place / "mesh"))
        subprocess.run(["umount", str(place)], check=True, timeout=30)


class Rest:
    """The REST server of a mesh, as its administrator."""

    def __init__(self, state, data):
        token = next(iter(json.loads((data / "credentials" / "admin.json").read_text()).values()))
        self._url, self._token = f"{state['rest_url']}/api/v1/namespaces/default/configmaps", token
        self._context = ssl.create_default_context(cafile=data / "credentials" / "ca.crt")

    def call(self, path="", body=None):
        """Return status, document and headers."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=30) as reply:
                return reply.status, json.load(reply), reply.headers
        except urllib.error.HTTPError as error:
            return error.code, json.load(error), error.headers

    def create(self, name, size=BYTES):
        return self.call(body={"metadata": {"name": name}, "data": {"p": "y" * size}})

    def names(self):
        return {item["metadata"]["name"] for item in self.call()[1]["items"]}


def status_of(data):
    shown = keplab("status", "--data", str(data), "-o", "json")
    return shown.returncode, json.loads(shown.stdout)


def is_well(data):
    code, state = status_of(data)
    return state if code == 0 else None


def pids_of(state):
    return {process["name"]: process["pid"] for process in state["processes"]}


def test_a_full_disk_makes_the_mesh_read_only_and_ends_nothing(small):
    data, place = small
    began = keplab("up", "--data", str(data), "--nodes", "2", "--detach", "-o", "json")
    assert 0 == began.returncode, began.stderr
    before = json.loads(began.stdout)
    rest = Rest(before, data)

    acknowledged, refused = set(), []
    for number in range(400):
        code, document, headers = rest.create(f"x{number}")
        if code == 201:
            acknowledged.add(f"x{number}")
        else:
            refused.append((code, document["reason"], headers["Retry-After"]))
        if len(refused) >= 20:
            break
    assert {(503, "StoreReadOnly", "5")} == set(refused)
    # What is left of the disk goes as well, so that no file of any process grows any more.
    with (place / "ballast").open("wb", buffering=0) as ballast:
        try:
            while ballast.write(b"x" * 4096):
                pass
        except OSError:
            pass

    assert acknowledged <= rest.names()
    code, state = wait_for(
        lambda: (found := status_of(data))[1]["conditions"] and "StateNotWritten" in str(found) and found,
        "a state that cannot be written",
    )
    assert 1 == code
    assert {"DiskFull", "StateNotWritten", "StoreReadOnly"} <= {each["type"] for each in state["conditions"]}
    assert pids_of(before) == pids_of(state)
    scheduler = pids_of(state)["scheduler"]
    os.kill(scheduler, 9)
    dead = wait_for(lambda: (s := status_of(data)[1]) and pids_of(s)["scheduler"] != scheduler and s, "a new scheduler")
    assert "scheduler was ended by SIGKILL" in [process["last_error"] for process in dead["processes"]]

    (place / "ballast").unlink()
    assert 0 == mount("-o", "remount,size=60m", str(place)).returncode
    wait_for(lambda: rest.create("after", 10)[0] in (201, 409), "a write")
    healed = wait_for(lambda: is_well(data), "a mesh without conditions")
    unchanged = {name for name, pid in pids_of(before).items() if pids_of(healed)[name] == pid and is_alive(pid)}
    assert set(pids_of(before)) - {"scheduler"} == unchanged
    assert acknowledged | {"after"} <= rest.names()
    with pytest.raises(Incomplete):
        Tail(data / "events").poll(None)
    dropped = [line for path in (data / "events").glob("apiserver-*") for line in path.read_text().splitlines()]
    assert any(json.loads(line)["ev"] == "log.dropped" for line in dropped)


def test_as_45_a_line_that_is_missing_makes_the_result_unknown(tmp_path):
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(
        "# Short\nlimit 60s\nnodes n1 cpu=4\npod p cpu=1\nexpect within 30s count pods phase=Running == 1\nwait 2s\n"
    )
    events = tmp_path / "mesh" / "events"

    def damage(line):
        if line.ev == "proc.ready":
            (events / "other-0000000000000001.jsonl").write_bytes(
                b'{"v":1,"seq":2,"mono_ns":1,"wall":"","comp":"other","inc":"1","ev":"x"}\n'
            )

    result = run_as_processes(load_scenario(scenario), engine="memory", data_dir=tmp_path / "mesh", on_line=damage)

    assert (False, [True]) == (result.passed, [each.passed for each in result.expectations])
    assert "the event log is incomplete: other-0000000000000001.jsonl:1: seq is 2" == result.unknown
    assert "the result is unknown" in result.error
