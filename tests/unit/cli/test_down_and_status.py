"""`keplab down` finds a mesh that is only beginning; `keplab status` says of each process what the kernel knows."""

import io
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from http.client import HTTPException

import pytest

from lab.cli.commands import down, status
from services.runtime.mesh_directory import LOCK_FILE


class Beginning:
    """A mesh whose supervisor takes its directory only when it was looked for some times; it ends by SIGTERM."""

    def __init__(self, looks):
        self._looks = looks
        self.process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])

    def holder(self, _):
        self._looks -= 1
        return self.process.pid if self._looks < 0 and self.process.poll() is None else 0


@pytest.fixture
def beginning():
    made = []

    def begin(looks):
        made.append(Beginning(looks))
        return made[-1]

    yield begin
    for each in made:
        each.process.kill()
        each.process.wait()


@pytest.mark.parametrize("looks", [0, 3])
def test_down_stops_a_mesh_that_takes_its_directory_only_now(monkeypatch, beginning, capsys, tmp_path, looks):
    mesh = beginning(looks)
    monkeypatch.setattr(down, "holder", mesh.holder)

    assert 0 == down.down.callback(data=tmp_path, purge=False, output="text")
    assert "mesh is down\n" == capsys.readouterr().out
    assert -15 == mesh.process.wait(10)


def test_down_follows_a_mesh_that_is_handed_on_to_its_own_process(monkeypatch, beginning, capsys, tmp_path):
    first, second = beginning(0), beginning(0)
    monkeypatch.setattr(down, "holder", lambda _: first.holder(_) or second.holder(_))

    assert 0 == down.down.callback(data=tmp_path, purge=False, output="text")
    assert [-15, -15] == [each.process.wait(10) for each in (first, second)]


def a_process(**more):
    return {"name": "scheduler", "pid": os.getpid(), "ready": True, "state": "Running", "uptime_s": 3.0,
            "last_error": "", "next_try_in_s": None, **more}  # fmt: skip


@pytest.mark.parametrize(("parent", "state"), [(os.getppid(), "Running"), (1 << 22, "Gone")])
def test_a_process_that_is_no_child_of_the_supervisor_is_gone(parent, state):
    found = {"supervisor_pid": parent, "processes": [a_process()]}
    status._compare_with_kernel(found)

    (process,) = found["processes"]
    assert (state, state == "Running") == (process["state"], process["ready"])


def test_the_next_try_stands_beside_the_state():
    assert "CrashLoopBackOff (38s)" == status._state_of(a_process(state="CrashLoopBackOff", next_try_in_s=38.2))
    assert "Running" == status._state_of(a_process())


REFUSED = urllib.error.HTTPError("http://127.0.0.1/metrics", 403, "Forbidden", None, None)


@pytest.mark.parametrize(
    ("answer", "metrics"),
    [
        (b'# HELP up\nup 1\ntotal{verb="get"} 2.5\n\n', {"up": 1.0, "total": 2.5}),
        (REFUSED, {}),
        (ConnectionRefusedError(), None),
        (TimeoutError(), None),
        (HTTPException(), None),
    ],
    ids=["answers", "refuses", "has no listener", "takes too long", "speaks no HTTP"],
)
def test_a_process_that_refuses_its_metrics_does_answer(monkeypatch, answer, metrics):
    def urlopen(request, timeout):
        if isinstance(answer, Exception):
            raise answer
        return io.BytesIO(answer)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)

    assert metrics == status._metrics(a_process(ports={"health": 9}), {})
    assert {} == status._metrics(a_process(ports={"grpc": 9}), {})
    assert {} == status._metrics(a_process(ports={"health": 9}, ready=False), {})


def test_conditions_come_from_the_processes_own_metrics(tmp_path):
    metrics = {"apiserver": {"keplab_store_read_only": 1.0}, "scheduler": None, "controllers": {"up": 1.0}}
    found = status._conditions(tmp_path, {"state_error": "No space left on device"}, metrics)

    assert [("StateNotWritten", ""), ("StoreReadOnly", "apiserver"), ("NotAnswering", "scheduler")] == [
        (each["type"], each["process"]) for each in found
    ]


def test_what_the_roles_of_components_do_not_allow_is_a_condition_for_each(monkeypatch, tmp_path):
    lines = (
        b'keplab_requests_forbidden_total{user="system:controller:job",verb="watch",resource="pods"} 3\n'
        b'keplab_requests_forbidden_total{user="system:controller:job",verb="create",resource="pods/eviction"} 1\n'
    )
    monkeypatch.setattr(urllib.request, "urlopen", lambda request, timeout: io.BytesIO(lines))
    metrics = {"apiserver": status._metrics(a_process(ports={"health": 9}), {})}

    (found,) = status._conditions(tmp_path, {}, metrics)

    text = "the role of system:controller:job does not allow: create pods/eviction (1 time), watch pods (3 times)"
    assert found == {"type": "RequestsForbidden", "process": "apiserver", "message": text}


def test_purge_removes_what_the_mesh_has_stored_and_nothing_else(capsys, tmp_path):
    data = tmp_path / "data"
    for folder in ("apiserver", "audit", "kubelet/h0", "parts"):
        (data / folder).mkdir(parents=True)
        (data / folder / "file").touch()
    for name in (LOCK_FILE, "kubeconfig", "mesh.json", "notes.txt"):
        (data / name).touch()

    assert 0 == down.down.callback(data=data, purge=True, output="text")

    assert ["notes.txt", "parts"] == sorted(path.name for path in data.iterdir())
    assert (data / "parts" / "file").exists()
    assert "not the mesh's, and kept: notes.txt, parts\n" in capsys.readouterr().out


def test_purge_removes_a_directory_that_was_the_meshs_alone(capsys, tmp_path):
    data = tmp_path / "data"
    (data / "apiserver").mkdir(parents=True)
    (data / LOCK_FILE).touch()

    assert 0 == down.down.callback(data=data, purge=True, output="text")

    assert not data.exists()
    assert f"no mesh runs on {data}\nremoved {data}\n" == capsys.readouterr().out


@pytest.mark.parametrize("is_there", [True, False])
def test_purge_leaves_a_directory_alone_on_which_no_mesh_ever_ran(capsys, tmp_path, is_there):
    data = tmp_path / "data"
    if is_there:
        (data / "logs").mkdir(parents=True)

    assert 0 == down.down.callback(data=data, purge=True, output="text")

    assert (data / "logs").exists() == is_there
    assert "nothing to remove: no mesh ever ran" in capsys.readouterr().out


def test_purge_keeps_files_of_others_whose_names_begin_as_the_meshs(capsys, tmp_path):
    data = tmp_path / "data"
    for own in ("logs", "simulator", "ui.keprec"):
        (data / own).mkdir(parents=True)
    for name in (
        LOCK_FILE,
        "mesh.json",
        "mesh.json.4711.tmp",
        "events.csv",
        "logs.tar",
        "ui.md",
        "mesh.yaml",
        "kubelet",
    ):
        (data / name).touch()

    assert 0 == down.down.callback(data=data, purge=True, output="json")

    kept = ["events.csv", "kubelet", "logs.tar", "mesh.yaml", "ui.md"]
    assert kept == sorted(path.name for path in data.iterdir())
    document = json.loads(capsys.readouterr().out)
    assert {"data": str(data), "stopped": False, "removed": True, "kept": kept} == document
