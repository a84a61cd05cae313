"""Scenarios against a mesh that something else started: its processes as compose.yaml starts them, without containers."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lab.experiments.execution import ArmJob, run_arm
from lab.scenarios.processes.foreign_mesh import MARK, Access
from lab.scenarios.processes.mesh_switches import MeshSwitches, VolumePlace
from lab.scenarios.run import load_scenario, run_against
from lab.scenarios.script.scenario import ScriptError
from services.api.identity import ADMIN
from services.api.meta import Key
from services.client.client import Client
from services.runtime.config import MeshError
from services.runtime.credentials import main as make_credentials
from services.runtime.real import RealClock, seeded_random

ROOT = Path(__file__).parents[2]
READY_MAX_S = 60.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Running:
    """A mesh of processes: one API server, a scheduler, controllers and a kubelet host that claims a slot."""

    def __init__(self, folder):
        self.folder, self.port, self.rest_port, self.processes = folder, free_port(), free_port(), []
        self.server = f"127.0.0.1:{self.port}"
        self.switches = folder / "switches"
        self.switches.mkdir()
        self.is_stopping, self.supervisor = threading.Event(), threading.Thread(target=self.supervise)
        self.environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        words = ["--out", str(folder / "credentials"), "--host", "containers", "--node-prefix", "kubelet-"]
        words += [
            "--lab-node-prefix",
            "n",
            "--server-name",
            "apiserver",
            "--rest-url",
            f"https://127.0.0.1:{self.rest_port}",
        ]
        make_credentials(words)

    def start(self, component, *flags):
        ready = self.ready(component)
        folder = "apiserver" if component == "apiserver" else component
        tokens = self.folder / "credentials" / folder / ("server.json" if component == "apiserver" else "token.json")
        words = [*flags, "--token-file", str(tokens), "--ready-file", str(ready), "--health-port", "0"]
        words += ["--log-level", "warning"] + ([] if component == "apiserver" else ["--server", self.server])
        command = [sys.executable, "-m", "lab.cli", "component", component, *words]
        self.processes.append(subprocess.Popen(command, cwd=self.folder, env=self.environ))
        deadline = time.monotonic() + READY_MAX_S
        while not ready.exists():
            assert self.processes[-1].poll() is None, f"{component} ended"
            assert time.monotonic() < deadline, f"{component} is not ready"
            time.sleep(0.05)

    def start_all(self):
        self.start("apiserver", "--grpc-port", str(self.port), "--rest-port", "none", "--engine", "memory")
        self.start("controllers")
        self.start("scheduler", "--set-file", str(self.switches / "scheduler"))
        self.start("kubelet", "--slots", "kubelet-", "--nodes", "2")
        self.supervisor.start()

    def supervise(self):
        """Start the scheduler again when it has ended in good order, as a restart policy does."""
        while not self.is_stopping.wait(0.05):
            scheduler = self.processes[2]
            if scheduler.poll() == 0:
                self.ready("scheduler").unlink()
                self.processes[2] = subprocess.Popen(scheduler.args, cwd=self.folder, env=self.environ)

    def ready(self, component):
        return self.folder / f"{component}.ready"

    def addresses(self, component):
        """Return where the scheduler has /configz, the one process here whose switches can be changed."""
        try:
            ready = self.ready("scheduler").read_bytes() if component == "scheduler" else b""
        except FileNotFoundError:  # between two lives
            return []
        return [("127.0.0.1", json.loads(ready)["ports"]["health"])] if ready else []

    def switching(self):
        token = next(iter(json.loads((self.folder / "credentials/lab/token.json").read_bytes()).values()))
        return MeshSwitches(VolumePlace(self.switches, token, self.addresses))

    def access(self, **settings):
        return Access(self.server, self.folder / "credentials" / "lab", **settings)

    def stop(self):
        self.is_stopping.set()
        if self.supervisor.ident is not None:
            self.supervisor.join()
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(20)

    async def _listed(self, resource):
        transport = self.access().transport()
        try:
            items, _ = await Client(transport.api(ADMIN.user), RealClock(), seeded_random(0)).list(resource)
            return items
        finally:
            await transport.close()

    def listed(self, resource):
        return asyncio.run(self._listed(resource))


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    mesh = Running(tmp_path_factory.mktemp("running"))
    try:
        mesh.start_all()
        yield mesh
    finally:
        mesh.stop()


@pytest.fixture
def scenario(tmp_path):
    def made(text):
        (tmp_path / "x.txt").write_text(text)
        return load_scenario(tmp_path / "x.txt")

    return made


def names(items):
    return sorted(each["metadata"]["name"] for each in items)


def as_found(running):
    """Whether nothing of a scenario is left."""
    nodes = running.listed("nodes")
    return (
        ["kubelet-0-0", "kubelet-0-1"] == names(nodes)
        and not any(node["spec"].get("unschedulable") or MARK in json.dumps(node) for node in nodes)
        and not running.listed("pods")
        and not running.listed("deployments.apps")
    )


def test_a_shipped_scenario_brings_its_nodes_and_leaves_nothing(running):
    result = run_against(load_scenario(ROOT / "experiments/first-life/a-pods-first-life.txt"), running.access())

    assert result.passed, (result.error, [each for each in result.expectations if not each.passed])
    assert "containers" == result.mode
    assert 1.0 == result.measures["pods_created"]
    assert result.measures["api_writes"] is None
    assert "event logs" in result.not_judged["I1"]
    assert as_found(running)


def test_a_run_finds_no_events_of_the_one_before(running):
    first_life = load_scenario(ROOT / "experiments/first-life/a-pods-first-life.txt")

    results = [run_against(first_life, running.access()) for _ in range(2)]

    assert [True, True] == [result.passed for result in results]
    assert not [each for each in running.listed("events") if each["involvedObject"]["kind"] == "Pod"]


def test_pods_land_on_the_nodes_of_the_scenario_alone_and_its_own_host_may_be_killed(running, scenario):
    text = (
        "limit 60s\nnodes n1..n2 cpu=4\ndeployment web replicas=4 cpu=1\n"
        "expect within 20s count pods phase=Running == 4\nkill kubelet/n1 down=1s\n"
        "expect for 5s count pods phase=Running == 4\nexpect count pods spec.nodeName=kubelet-0-0 == 0\n"
    )
    result = run_against(scenario(text), running.access())

    assert result.passed, (result.error, [each for each in result.expectations if not each.passed])
    assert as_found(running)


def test_an_expectation_that_is_not_met_fails_the_run(running, scenario):
    result = run_against(
        scenario("nodes n1 cpu=4\npod p cpu=9\nexpect within 2s count pods phase=Running == 1\n"), running.access()
    )

    assert not result.passed
    assert not result.error
    assert as_found(running)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("set kubelet.on_reject=unbind\nnodes n1\npod p", "KEPLAB_SET=kubelet.on_reject=unbind docker compose up -d"),
        ("nodes n1\nscheduler second\npod p", "the running mesh has its own schedulers"),
        ("window 5s\nnodes n1\npod p", "the window of a running API server is its own"),
        ("nodes gpu-1\npod p", "nodes that begin with 'n' alone"),
    ],
)
def test_what_a_running_mesh_cannot_be_is_refused_in_one_line(running, text, why, scenario):
    with pytest.raises((ScriptError, MeshError)) as refused:
        run_against(scenario(text), running.access())

    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
    assert as_found(running)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("kill scheduler", "`keplab run --containers PROJECT` can break containers"),
        ("restart scheduler with PodUnbinding=true", "switches of a running mesh are set where it is started"),
        ("link kubelet/n1 slow=1s", "containers can be cut off, cut=both, and nothing else"),
        ("reboot kubelet/n1", "run it with --processes or simulated"),
        ("kill kubelet/n1 at=kubelet.admit", "the event log of a running mesh is not here"),
    ],
)
def test_faults_that_it_cannot_have_are_mistakes_of_the_scenario(running, line, why, scenario):
    result = run_against(scenario(f"nodes n1\n{line}\n"), running.access())

    assert result.is_mistake
    assert why in result.error
    assert as_found(running)


def test_a_mesh_with_pods_of_its_own_is_refused_and_they_stay(running, scenario):
    left = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "c"}]}}  # fmt: skip

    async def put(verb):
        transport = running.access().transport()
        client = Client(transport.api(), RealClock(), seeded_random(None))
        if verb == "create":
            await client.create("pods", left)
        else:
            await client.delete("pods", Key("default", "mine"), grace_period_s=0)
        await transport.close()

    asyncio.run(put("create"))
    try:
        with pytest.raises(ScriptError, match="the mesh has 1 pods of its own, such as default/mine"):
            run_against(scenario("nodes n1\npod p"), running.access())
        assert ["mine"] == names(running.listed("pods"))
    finally:
        asyncio.run(put("delete"))


def test_the_arms_of_a_comparison_restart_the_scheduler_alone_and_its_own_switches_come_back(running, scenario):
    text = "nodes n1 cpu=4\npod p cpu=1\nexpect within 20s each pods name=p phase == Running\n"
    switching = running.switching()
    path, lives = scenario(text).path, []

    for percentage in (50, 30):
        arm = ArmJob(
            path,
            "a",
            (f"scheduler.percentage_of_nodes_to_score={percentage}",),
            0,
            access=running.access(switching=switching),
        )
        made = run_arm(arm)
        assert (True, "") == (made.run.passed, made.run.error)
        assert f"scheduler.percentage_of_nodes_to_score={percentage}" == (running.switches / "scheduler").read_text()
        lives.append(running.processes[2].pid)
    asyncio.run(switching.put_back())

    assert 3 == len({*lives, running.processes[2].pid})
    assert "" == (running.switches / "scheduler").read_text()
    assert as_found(running)


def test_a_component_is_restarted_with_a_switch_of_its_own(running, scenario):
    text = (
        "nodes n1 cpu=4\nrestart scheduler with PodUnbinding=false\nrestart kubelet/n1 with PodUnbinding=false\n"
        "pod p cpu=1\nexpect within 20s each pods name=p phase == Running\n"
    )
    switching, before = running.switching(), running.processes[2].pid

    result = run_against(scenario(text), running.access(switching=switching))
    set_meanwhile = (running.switches / "scheduler").read_text()
    asyncio.run(switching.put_back())

    assert result.passed, result.error
    assert before != running.processes[2].pid
    assert "PodUnbinding=false" == set_meanwhile
    assert as_found(running)
