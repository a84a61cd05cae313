"""Processes that are forked while a mesh starts: what they run, how they end, and when they are executed instead."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from services.runtime.config import PREFIX
from services.runtime.mesh.nursery import Nursery
from services.telemetry import kernel

pytestmark = pytest.mark.skipif(not kernel.can_adopt(), reason="needs Linux")
MODULE = "claim_controller"


@pytest.fixture
def forked(tmp_path):
    """Run a function with a nursery, the log of what is forked, and a function that forks with arguments."""

    def run(body):
        log = tmp_path / "log"

        async def with_nursery():
            nursery = Nursery({MODULE})

            async def spawn(*arguments, module=MODULE, **variables):
                with log.open("ab") as file:
                    environment = {**os.environ, **variables}
                    return await nursery.spawn(module, arguments, environment, file.fileno())

            try:
                return await body(nursery, spawn, log)
            finally:
                await nursery.close()

        return asyncio.run(asyncio.wait_for(with_nursery(), 60))

    return run


def lines_of(pid):
    return (Path("/proc") / str(pid) / "cmdline").read_bytes()


def children_of_this_process():
    return (Path("/proc/self/task") / str(os.getpid()) / "children").read_text().split()


def test_it_runs_the_module_with_arguments_and_environment_and_reports_its_exit_code(forked):
    async def body(_, spawn, log):
        helped, wrong = await spawn("--help"), await spawn("--no-such-flag")
        unset = await spawn(**{f"{PREFIX}HEALTH_PORT": "99999"})
        return await helped.wait(), await wrong.wait(), await unset.wait(), helped.returncode, log.read_text()

    helped, wrong, unset, kept, said = forked(body)

    assert (0, 64, 64, 0) == (helped, wrong, unset, kept)
    assert f"{PREFIX}HEALTH_PORT" in said.splitlines()[-1]
    assert "--die-with-parent" in said
    assert "--no-such-flag" in said
    assert "Warning" not in said


def test_it_has_its_own_session_and_name_and_dies_of_a_signal(forked):
    async def body(_, spawn, log):
        child = await spawn("--server", "127.0.0.1:1", "--name", "anyone")
        while b"claim" not in lines_of(child.pid):  # noqa: ASYNC110  the kernel has no event for a changed command line
            await asyncio.sleep(0.01)
        found = lines_of(child.pid), os.getsid(child.pid), kernel.state_and_parent(child.pid)[1]
        child.send_signal(signal.SIGKILL)
        return child.pid, found, await child.wait()

    pid, (line, session, parent), code = forked(body)

    assert line.rstrip(b"\0").endswith(b"-P -m claim_controller --server 127.0.0.1:1 --name anyone")
    assert (pid, os.getpid(), -signal.SIGKILL) == (session, parent, code)


def test_what_is_forked_outlives_the_nursery_and_nothing_else_does(forked):
    async def body(nursery, spawn, log):
        child = await spawn("--server", "127.0.0.1:1")
        its = nursery._process
        await nursery.close()
        is_alive = kernel.state_and_parent(child.pid)[0] != "Z" and child.returncode is None
        child.kill()
        return is_alive, its.returncode, await child.wait(), await spawn("--help")

    assert (True, -signal.SIGKILL, -signal.SIGKILL, None) == forked(body)


def test_nothing_is_forked_once_its_process_is_gone(forked):
    async def body(nursery, spawn, log):
        first = await spawn("--help")
        await first.wait()
        nursery._process.kill()
        await nursery._process.wait()
        return await spawn("--help")

    assert forked(body) is None


def test_a_module_that_it_does_not_know_is_executed(forked):
    async def body(nursery, spawn, log):
        return await spawn(module="lab.simulator"), nursery._process

    assert (None, None) == forked(body)


def test_a_start_that_is_given_up_leaves_no_process(forked):
    others = children_of_this_process()

    async def body(nursery, spawn, log):
        starting = asyncio.create_task(spawn("--server", "127.0.0.1:1"))
        await asyncio.sleep(0.05)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return set(children_of_this_process()) - {str(nursery._process.pid), *others}

    assert set() == forked(body)
