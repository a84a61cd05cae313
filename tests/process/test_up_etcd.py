"""`keplab up --engine etcd`: several API servers and members as one mesh, of which any may be killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from services.api.wire import Request
from services.runtime.config import MeshError
from services.runtime.etcd_members import make_members
from services.runtime.mesh.options import MeshOptions
from services.runtime.supervisor import Supervisor
from tests.process import etcds
from tests.process.test_apiserver_grpc import until as until_loop
from tests.process.test_etcd import churn, follow, names

ROOT = Path(__file__).resolve().parents[2]
WAIT_MAX_S = 60.0


def keplab(*arguments, path=""):
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    environ["PATH"] = f"{path}:{environ['PATH']}" if path else "/nowhere"
    environ.pop("KEPLAB_PARTS", None)
    command = [sys.executable, "-m", "lab.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=150)


@pytest.fixture
def up(tmp_path):
    """Starts a mesh with an etcd of its own; returns its status."""
    path = str(etcds.binary().parent)

    def begin(*arguments):
        begun = keplab(
            "up", "--data", str(tmp_path), "--engine", "etcd", "--detach", "-o", "json", *arguments, path=path
        )
        assert begun.returncode == 0, begun.stderr
        return json.loads(begun.stdout)

    yield begin
    keplab("down", "--data", str(tmp_path), path=path)


class Kubectl:
    """The administrator, at one of the API servers."""

    def __init__(self, kubeconfig):
        self._kubectl, self._kubeconfig = str(etcds.parts.kubectl("trixie")), kubeconfig

    def __call__(self, *arguments, at="keplab", body=None):
        command = [self._kubectl, "--kubeconfig", self._kubeconfig, "--context", at, *arguments]
        done = subprocess.run(command, input=body, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def names(self, resource, *arguments, at="keplab"):
        return self("get", resource, "-o", "name", *arguments, at=at).split()


def pods(first, count):
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}]}
    items = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{i}"}, "spec": spec}
        for i in range(first, first + count)
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def until(holds):
    deadline = time.monotonic() + WAIT_MAX_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.timeout(300)
def test_a_mesh_of_two_api_servers_and_three_members_outlives_each_of_them(up, tmp_path):
    status = up("--apiservers", "2", "--etcd-members", "3", "--nodes", "2")
    processes = {each["name"]: each["pid"] for each in status["processes"]}
    assert [name for name in processes if name.startswith(("etcd", "apiserver"))] == [
        "etcd", "etcd-2", "etcd-3", "apiserver", "apiserver-2",
    ]  # fmt: skip
    kubectl = Kubectl(status["kubeconfig"])
    made = 0
    running = ("--field-selector", "status.phase=Running")
    for victim in ("apiserver", "etcd"):
        os.kill(processes[victim], signal.SIGKILL)
        at = "keplab-2" if victim == "apiserver" else "keplab"
        kubectl("create", "-f", "-", at=at, body=pods(made, 5))
        made += 5
        until(lambda made=made, at=at: len(kubectl.names("pods", *running, at=at)) == made)
        until(lambda: json.loads(keplab("status", "--data", str(tmp_path), "-o", "json").stdout)["ready"])
    both = [json.loads(kubectl("get", "pods", "-o", "json", at=at))["items"] for at in ("keplab", "keplab-2")]
    assert both[0] == both[1]
    assert len({pod["metadata"]["uid"] for pod in both[0]}) == made
    saved = keplab("snapshot", "save", "before", "--data", str(tmp_path))
    assert saved.returncode == 0, saved.stderr
    kubectl("delete", "pod", "p0", "--wait=false")
    # Everything goes down and comes back.
    assert keplab("down", "--data", str(tmp_path)).returncode == 0
    status = up("--apiservers", "1", "--etcd-members", "3", "--nodes", "2")
    until(lambda: len(Kubectl(status["kubeconfig"]).names("pods")) == made - 1)
    assert keplab("down", "--data", str(tmp_path)).returncode == 0
    # A snapshot of it goes on in a store of SQLite's, object by object.
    restored = keplab("snapshot", "restore", "before", "--data", str(tmp_path))
    assert (restored.returncode, "its store was etcd's" in restored.stdout) == (0, True), restored.stderr
    again = up("--engine", "sqlite", "--nodes", "2")
    there = json.loads(Kubectl(again["kubeconfig"])("get", "pods", "-o", "json"))["items"]
    assert {each["metadata"]["uid"] for each in there} == {each["metadata"]["uid"] for each in both[0]}
    assert {each["status"]["phase"] for each in there} == {"Running"}
    assert not [each for each in tmp_path.rglob("*") if each.is_file() and each.stat().st_mode & 0o077]


@pytest.mark.timeout(300)
def test_c6_w5_api_servers_that_are_killed_in_turn_lose_and_double_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(etcds.binary().parent), prepend=":")
    alone = frozenset(("scheduler", "controllers", "claim-controller"))

    async def scenario():
        options = MeshOptions(data_dir=tmp_path, engine="etcd", apiservers=2, without=alone, log_level="warning")
        supervisor = Supervisor(options)
        await supervisor.start()
        ways = [supervisor.client_transport() for _ in range(6)]
        try:
            apis = [way.api() for way in ways]
            acknowledged: dict[str, int] = {}
            seen: list[list[tuple[int, str]]] = [[] for _ in ways]
            stop = asyncio.Event()
            begin = (await apis[0].call(Request(verb="list", resource="configmaps"))).unwrap().rv
            following = [asyncio.create_task(follow(api, each, begin)) for api, each in zip(apis, seen, strict=True)]
            writing = [asyncio.create_task(churn(api, n, stop, acknowledged)) for n, api in enumerate(apis)]
            for victim in ("apiserver", "apiserver-2", "etcd", "apiserver"):
                child, enough = supervisor.child(victim), len(acknowledged) + 60
                await until_loop(lambda child=child, enough=enough: len(acknowledged) > enough and child.is_ready)
                supervisor.kill(victim)
            enough = len(acknowledged) + 60
            await until_loop(lambda: len(acknowledged) > enough)
            stop.set()
            await asyncio.gather(*writing)
            listed = [await names(api) for api in apis]
            assert all(each == listed[0] for each in listed)
            assert set(acknowledged) == set(listed[0]), "each acknowledged write is there, and nothing else"
            for followed in seen:
                last = max(acknowledged.values())
                await until_loop(lambda followed=followed, last=last: followed and followed[-1][0] >= last)
                versions = [rv for rv, _ in followed]
                assert versions == sorted(set(versions))
                assert {name: rv for rv, name in followed} == acknowledged, "in the order of versions, once each"
            for task in following:
                task.cancel()
        finally:
            for way in ways:
                await way.close()
            await supervisor.stop()

    asyncio.run(asyncio.wait_for(scenario(), 280))


@pytest.mark.timeout(200)
def test_a_scenario_over_etcd_is_held_by_every_invariant_when_its_api_server_is_killed():
    scenario = ROOT / "experiments/crashes/killed-apiserver.txt"
    ran = keplab("run", str(scenario), "--processes", "--engine", "etcd", path=str(etcds.binary().parent))
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr


def test_without_etcd_the_mesh_says_what_is_missing(tmp_path):
    refused = keplab("up", "--data", str(tmp_path), "--engine", "etcd")
    assert refused.returncode == 3
    assert "there is no etcd on the PATH" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--apiservers", "2"], "--apiservers 2 needs --engine etcd, not sqlite"),
        (["--etcd-servers", "http://x:1"], "--etcd-servers needs --engine etcd"),
        (["--engine", "etcd", "--etcd-servers", "http://x:1", "--etcd-members", "3"], "an etcd that keplab starts"),
        (["--engine", "etcd", "--etcd-user", "root"], "--etcd-user needs --etcd-servers"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments, words, tmp_path):
    refused = keplab("up", "--data", str(tmp_path), *arguments)
    assert refused.returncode == 2
    assert words in refused.stderr


def test_members_keep_their_ports_and_their_number(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/etcd").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    ports = iter(range(100))
    first = make_members(tmp_path, 3, lambda: next(ports))
    assert first.servers == "https://127.0.0.1:0,https://127.0.0.1:2,https://127.0.0.1:4"
    assert make_members(tmp_path, 3, lambda: next(ports)).servers == first.servers
    with pytest.raises(MeshError, match=r"holds an etcd of 3 members, and --etcd-members says 1"):
        make_members(tmp_path, 1, lambda: next(ports))
