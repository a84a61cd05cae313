"""Scenarios against a mesh in containers, with mutual TLS, and the faults that the engine makes of them."""

import json
import os
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
    command = [sys.executable, "-m", "services.cli", *words]
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
