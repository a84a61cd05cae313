"""Faults of a mesh of processes, by hand: what happens to a process that does not run."""

import asyncio

import pytest

from lab.scenarios.mesh import MeshPlan
from lab.scenarios.processes.process_mesh import ProcessMesh
from services.runtime.config import MeshError
from services.telemetry.eventlog import NullEventLog


class Supervisor:
    """Its processes are down, or end just now."""

    def __init__(self, error):
        self.error, self.asked = error, []

    def kill(self, name, number, *, down_s=None):
        self.asked.append(name)
        raise self.error


@pytest.mark.parametrize("error", [MeshError("scheduler is not running"), ProcessLookupError()])
def test_a_process_that_is_down_already_is_killed_and_paused_to_no_effect(tmp_path, monkeypatch, error):
    mesh = ProcessMesh(MeshPlan(), data_dir=tmp_path, on_line=lambda line: None)
    supervisor = Supervisor(error)
    monkeypatch.setattr(mesh, "_supervisor", supervisor)
    monkeypatch.setattr(mesh, "_chaos", NullEventLog(), raising=False)
    monkeypatch.setattr(mesh, "_name", lambda component: component)

    async def run():
        await mesh.kill("scheduler", None)
        await mesh.pause("scheduler", 0.0)

    asyncio.run(run())

    assert supervisor.asked == ["scheduler"] * 3
