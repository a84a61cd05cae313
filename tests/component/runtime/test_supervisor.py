"""The supervisor's keepers and its state writer go on whatever the kernel and the disk refuse."""

import asyncio
import errno
import os
import sys

import msgspec
import pytest

from services.runtime import supervisor as module
from services.runtime.child import Child
from services.runtime.config import MeshError
from services.runtime.control import ControlServer, NoAnswer, ask, request
from services.runtime.mesh.options import MeshOptions
from services.runtime.mesh_directory import STATE_FILE
from services.runtime.supervisor import Supervisor


class Refused(Child):
    """A process that the kernel refuses to start some times."""

    refusals = 2

    async def spawn(self, clock):
        self.next_try_at = None
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self.process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import signal; signal.pause()")
        self.started_at = clock.now()
        self.ready_file.write_bytes(msgspec.json.encode({"ports": {"health": 1}}))


@pytest.fixture
def mesh(tmp_path):
    """A supervisor that is up, with one process that it has not begun yet."""
    supervisor = Supervisor(MeshOptions(data_dir=tmp_path))
    supervisor._is_ready = True
    supervisor._lock_fd = os.open(tmp_path / "mesh.lock", os.O_RDWR | os.O_CREAT, 0o600)
    child = Refused("scheduler", [], tmp_path / "scheduler.log", tmp_path / "scheduler.ready")
    supervisor.children["scheduler"] = child
    return supervisor, child, tmp_path


def test_a_process_that_cannot_be_started_is_tried_again(mesh):
    supervisor, child, _ = mesh

    async def run():
        child.was_ever_ready = True
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("services.runtime.child.BACKOFF_MIN_S", 0.01)
            await asyncio.wait_for(supervisor._keeper.start_all([child]), 10)
        found = child.state, child.restarts, child.last_error
        await supervisor.stop()
        return found

    assert ("Running", 2, "scheduler cannot be started: Resource temporarily unavailable") == asyncio.run(run())


def test_a_state_that_cannot_be_written_is_in_the_answer_and_written_when_it_can_be(mesh, monkeypatch):
    supervisor, _, data = mesh
    write = module.write_atomically

    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "write_atomically", refuse)
    supervisor._write_state()
    assert "No space left on device" == supervisor.status()["state_error"]
    assert not (data / STATE_FILE).exists()

    monkeypatch.setattr(module, "write_atomically", write)
    supervisor._write_state()
    assert "" == supervisor.status()["state_error"]
    assert "scheduler" == msgspec.json.decode((data / STATE_FILE).read_bytes())["processes"][0]["name"]


def test_its_socket_answers_each_command_and_is_reached_however_long_the_path_is(mesh, tmp_path):
    supervisor, _, _ = mesh
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)

    async def run():
        server = module.ControlServer(deep, supervisor._answer)
        await server.start()
        requests = [{"verb": "status"}, {"verb": "restart", "names": ["x"]}, {"verb": "dance"}, {}]
        try:
            return [await asyncio.to_thread(ask, deep, request, 5.0) for request in requests]
        finally:
            await server.close()

    status, wrong_name, *wrong_verbs = asyncio.run(run())
    assert ["scheduler"] == [process["name"] for process in status["status"]["processes"]]
    assert {"error": "no process is called x; there are scheduler", "is_usage": True} == wrong_name
    assert all(answer["is_usage"] for answer in wrong_verbs)
    with pytest.raises(NoAnswer, match="No such file"):
        ask(deep, {"verb": "status"}, 5.0)


def test_a_request_and_its_answer_may_name_ten_thousand_nodes(tmp_path):
    definition = {"labels": {}, "taints": [], "zone": "", "region": "", "cpu": "8", "memory": "32Gi", "pods": 110}
    nodes = [{"name": f"node-00{number:04}", **definition} for number in range(10_000)]

    async def echo(wanted):
        return {"hosted": wanted["nodes"]}

    async def run():
        server = ControlServer(tmp_path, echo)
        await server.start()
        wanted = {"verb": "host", "nodes": nodes}
        answers = [await request(tmp_path, wanted, 30.0), await asyncio.to_thread(ask, tmp_path, wanted, 30.0)]
        await server.close()
        return answers

    assert [{"hosted": nodes}] * 2 == asyncio.run(run())


class Broken(Child):
    """A process that ends at once, each time, with that code."""

    code = 64

    async def spawn(self, clock):
        self.next_try_at = None
        self.process = await asyncio.create_subprocess_exec(sys.executable, "-c", f"raise SystemExit({self.code})")
        self.started_at = clock.now()


@pytest.mark.parametrize(
    ("code", "says"), [(64, "scheduler ended with exit code 64, wrong usage"), (70, "exit code 70, internal error")]
)
def test_a_mesh_whose_process_cannot_start_ends_with_what_the_process_ended_with(tmp_path, monkeypatch, code, says):
    monkeypatch.setattr("services.runtime.child.BACKOFF_MIN_S", 0.01)
    supervisor = Supervisor(MeshOptions(data_dir=tmp_path))
    child = Broken("scheduler", [], tmp_path / "scheduler.log", tmp_path / "scheduler.ready")
    child.code = code
    (tmp_path / "scheduler.log").write_bytes(b"")

    async def run():
        with pytest.raises(MeshError, match=says):
            await asyncio.wait_for(supervisor._keeper.start_all([child]), 10)

    asyncio.run(run())
    assert len(child.exit_codes) == (1 if code == 64 else 2), "only what another try may change is tried again"
