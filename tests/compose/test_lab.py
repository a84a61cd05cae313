"""Scenarios against a mesh in containers, with mutual TLS, and the faults that the engine makes of them."""

import json
import os
import signal
import subprocess
import sys

import pytest
from engine import ROOT
from mesh_in_containers import KUBELETS, NODES_EACH, STRICT, wait_for

pytestmark = pytest.mark.timeout(900)

RUN_MAX_S = 300
SCENARIO = "experiments/containers/broken-parts.txt"


def on_host(mesh, *words):
    """Return the exit code of a command on this machine and what it printed."""
    environ = {**os.environ, **mesh.engine.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "lab.cli", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_MAX_S, env=environ)
    return done.returncode, done.stdout, done.stderr


def in_lab(mesh, *words):
    """Return the exit code and output of a command in the service `lab`."""
    runs = mesh.directory / "runs"
    runs.mkdir(exist_ok=True)
    runs.chmod(0o777)
    files = [word for file in mesh.files for word in ("-f", file)]
    command = [
        *mesh.engine.compose_command,
        "-p",
        mesh.project,
        *files,
        "run",
        "--rm",
        "-T",
        "-v",
        f"{runs}:/runs",
        "lab",
    ]
    environ = {**os.environ, **mesh.environ}
    done = subprocess.run([*command, *words], cwd=ROOT, capture_output=True, text=True, timeout=RUN_MAX_S, env=environ)
    return done.returncode, done.stdout, done.stderr


def is_as_before(mesh):
    """Whether the mesh has its own nodes, all schedulable, and no pod."""
    nodes = mesh.get("/api/v1/nodes")["items"]
    names = sorted(node["metadata"]["name"] for node in nodes)
    own = sorted(f"kubelet-{slot}-{number}" for slot in range(KUBELETS) for number in range(NODES_EACH))
    return (
        names == own
        and not any(node["spec"].get("unschedulable") for node in nodes)
        and not mesh.get("/api/v1/pods")["items"]
    )


def test_a_shipped_scenario_is_run_in_the_lab_and_leaves_the_mesh_as_it_was(strict):
    code, printed, said = in_lab(strict, "run", "experiments/first-life/a-pods-first-life.txt", "-o", "json")

    assert 0 == code, said[-1000:]
    found = json.loads(printed)
    (result,) = found if isinstance(found, list) else [found]
    assert (True, "containers") == (result["passed"], result["mode"])
    assert "event logs" in result["not_judged"]["I1"]
    assert is_as_before(strict)


def test_the_lab_breaks_no_container_and_says_who_can(strict):
    code, printed, said = in_lab(strict, "run", SCENARIO)

    assert 2 == code
    assert "`keplab run --containers PROJECT` can break containers" in printed + said
    assert is_as_before(strict)


def test_containers_are_killed_frozen_and_cut_off_while_a_deployment_grows(strict):
    scheduler, controllers = strict.containers("scheduler")[0], strict.containers("controllers")[0]
    started = strict.engine.inspect(scheduler)["State"]["StartedAt"]

    code, printed, said = on_host(strict, "run", SCENARIO, "--containers", STRICT, "-o", "json")

    assert 0 == code, (printed + said)[-2000:]
    assert started != strict.engine.inspect(scheduler)["State"]["StartedAt"]
    for container in (scheduler, controllers):
        strict.wait_until_healthy(container)
        assert not strict.engine.inspect(container)["State"]["Paused"]
        assert [f"{STRICT}_mesh"] == list(strict.engine.inspect(container)["NetworkSettings"]["Networks"])
    wait_for(lambda: is_as_before(strict), "the mesh is as it was")


def test_a_project_that_is_not_there_is_one_line(strict):
    code, printed, said = on_host(strict, "run", SCENARIO, "--containers", "no-such-project")

    assert 3 == code
    assert "no container belongs to the compose project 'no-such-project'" in printed + said


ARMS = ("--arm", "half:scheduler.percentage_of_nodes_to_score=50", "--arm", "all")


def switches_set(mesh):
    """Return what components have beyond what they were started with, by their names."""
    setup = mesh.compose("ps", "-aq", "setup").split()[0]
    target = mesh.directory / "switches"
    mesh.engine.docker("cp", f"{setup}:/switches/.", str(target))
    return {path.name: path.read_text() for path in target.iterdir() if path.stat().st_size}


def began(mesh, *services):
    return {
        service: sorted(mesh.engine.inspect(each)["State"]["StartedAt"] for each in mesh.containers(service))
        for service in services
    }


@pytest.fixture
def scenario(tmp_path):
    def made(text):
        path = tmp_path / "mine.txt"
        path.write_text(text)
        return path

    return made


def test_arms_are_compared_in_the_lab_and_the_mesh_has_its_own_switches_again(strict):
    before = began(strict, "scheduler", "kubelet", "apiserver")
    words = ("compare", "a-pods-first-life", *ARMS, "--seeds", "2", "-o", "json", "--record", "/runs/lab.jsonl")

    code, printed, said = in_lab(strict, *words)

    assert 0 == code, (printed + said)[-1000:]
    found = json.loads(printed)
    assert "containers" == found["mode"]
    assert "server apiserver:7443, its own switches: none" == found["provenance"]["mesh"]
    assert [["half", 2], ["all", 2]] == [[arm["name"], len(arm["runs"])] for arm in found["arms"]]
    assert all(run["passed"] for arm in found["arms"] for run in arm["runs"])
    assert {"a-pods-first-life.html", "a-pods-first-life.json", "lab.jsonl"} <= {
        path.name for path in (strict.directory / "runs").iterdir()
    }
    after = began(strict, "scheduler", "kubelet", "apiserver")
    assert before["scheduler"] != after["scheduler"]
    assert (before["kubelet"], before["apiserver"]) == (after["kubelet"], after["apiserver"])
    assert {} == switches_set(strict)
    assert is_as_before(strict)


def test_arms_are_compared_from_the_host_and_nodes_keep_their_slots(strict, scenario, tmp_path):
    text = """\
# The scheduler is changed on the way
nodes n1..n2 cpu=4
pod a cpu=1
restart scheduler with scheduler.percentage_of_nodes_to_score=30
pod b cpu=1
expect within 30s count pods phase=Running == 2
"""
    words = ("--arm", "fail:kubelet.on_reject=fail", "--arm", "unbind:kubelet.on_reject=unbind", "-o", "json")
    code, printed, said = on_host(
        strict, "compare", str(scenario(text)), *words, "--containers", STRICT, "--runs", str(tmp_path / "runs")
    )

    assert 0 == code, (printed + said)[-1000:]
    assert {} == switches_set(strict)
    for service in ("apiserver", "scheduler", "kubelet"):
        for container in strict.containers(service):
            strict.wait_until_healthy(container)
    wait_for(lambda: is_as_before(strict), "the mesh is as it was")


def test_ctrl_c_in_the_middle_of_a_comparison_puts_the_switches_back(strict, scenario, tmp_path):
    path = scenario("# Long\nnodes n1 cpu=4\npod a cpu=1\nwait 300s\n")
    words = ["compare", str(path), *ARMS, "--containers", STRICT, "--runs", str(tmp_path / "runs")]
    environ = {**os.environ, **strict.engine.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-m", "lab.cli", *words], cwd=tmp_path, env=environ) as process:
        try:
            wait_for(lambda: strict.get("/api/v1/pods")["items"], "the first arm runs")
            assert {"scheduler": "scheduler.percentage_of_nodes_to_score=50"} == switches_set(strict)
            process.send_signal(signal.SIGINT)
            assert 130 == process.wait(120)
        finally:
            process.kill()

    assert {} == switches_set(strict)
    wait_for(lambda: is_as_before(strict), "the mesh is as it was")
