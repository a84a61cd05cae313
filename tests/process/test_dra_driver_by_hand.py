"""`keplab dra-driver` beside a mesh: what `keplab status` and the driver's own commands say while it is started, stopped,
killed and started again."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.process.test_up import ENVIRON, KEPLAB, keplab, wait_for

CARDS = Path(__file__).parents[2] / "experiments" / "drivers" / "four-gpus.yaml"
DRIVER = "gpu.example.com"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    data = tmp_path_factory.mktemp("m") / "m"
    began = keplab("up", "--data", str(data), "--engine", "memory", "--nodes", "1", "--device-sockets", "--detach")
    assert began.returncode == 0, began.stderr
    yield data
    keplab("down", "--data", str(data))


@pytest.fixture
def drive(mesh):
    """Starts `keplab dra-driver` on node-0; what runs at the end is killed."""
    started = []

    def begin(*arguments):
        words = [*KEPLAB, "dra-driver", "--data", str(mesh), "--node", "node-0", *arguments]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRON))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.communicate()


def status(mesh, *, process=None):
    """Return by driver what `keplab status` says of it."""
    if process is not None and process.poll() is not None:
        raise AssertionError(process.communicate())
    shown = keplab("status", "--data", str(mesh), "-o", "json")
    return {each["driver"] or Path(each["socket"]).name: each for each in json.loads(shown.stdout)["drivers"]}


def is_seen(mesh, process=None, driver=DRIVER, **wanted):
    found = status(mesh, process=process).get(driver, {})
    return found if all(found.get(name) == value for name, value in wanted.items()) else None


def command(mesh, *words):
    answer = keplab("dra-driver", "--data", str(mesh), "--node", "node-0", "--driver", DRIVER, *words)
    return answer.returncode, answer.stderr.strip()


def test_a_driver_that_is_stopped_killed_and_started_again_is_named_as_what_it_is(mesh, drive):
    first = drive("--config", str(CARDS))
    found = wait_for(lambda: is_seen(mesh, first, registered=True, devices=4, slices=2), "a driver with four devices")
    assert (found["socket_state"], found["connected"], found["pools"]) == ("answers", True, ["node-0"])
    shown = keplab("status", "--data", str(mesh)).stdout.splitlines()[-2:]
    assert [line.split() for line in shown] == [
        ["NODE", "DRIVER", "REGISTERED", "SOCKET", "DEVICES", "SLICES", "LAST", "ERROR"],
        ["node-0", DRIVER, "yes", "answers", "4", "2"],
    ]

    second = drive("--config", str(CARDS))
    _, said = second.communicate(timeout=60)
    assert (second.returncode, said.count("\n")) == (3, 1)
    assert f"DRA driver {DRIVER} of node node-0 runs already (pid {first.pid})" in said

    first.send_signal(signal.SIGSTOP)
    assert is_seen(mesh, socket_state="no answer", registered=True)
    assert command(mesh, "generation") == (
        2, f"keplab: DRA driver {DRIVER} of node node-0 does not answer: its process is stopped, or stuck",
    )  # fmt: skip
    first.send_signal(signal.SIGCONT)
    wait_for(lambda: command(mesh, "generation") == (0, ""), "a driver that goes on")

    first.kill()
    first.wait()
    wait_for(lambda: is_seen(mesh, socket_state="closed", connected=False), "a driver that was killed")
    for act in ("generation", "crash"):
        code, said = command(mesh, act)
        assert code == 2
        assert f"keplab: DRA driver {DRIVER} of node node-0 is away: no process serves " in said

    third = drive("--config", str(CARDS))
    wait_for(lambda: is_seen(mesh, third, socket_state="answers", connected=True, devices=4), "a driver that came back")
    third.send_signal(signal.SIGINT)
    third.communicate(timeout=30)
    wait_for(lambda: DRIVER not in status(mesh), "no driver")


@pytest.mark.parametrize("in_the_way", ["file", "directory"])
def test_what_lies_in_the_place_of_a_socket_is_named(in_the_way, mesh, drive):
    path = mesh / "nodes" / "node-0" / "plugins_registry" / "npu.example.com-reg.sock"
    if in_the_way == "file":
        path.touch()
        found = wait_for(lambda: is_seen(mesh, driver=path.name, socket_state="no socket"), "a file that is no socket")
        assert (found["registered"], found["error"]) == (False, "it is no Unix socket")
        process = drive("--driver", "npu.example.com:1")  # what is no directory is replaced
        wait_for(
            lambda: is_seen(mesh, process, driver="npu.example.com", socket_state="answers", devices=1), "a driver"
        )
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    else:
        path.mkdir()
        process = drive("--driver", "npu.example.com:1")
        _, said = process.communicate(timeout=60)
        path.rmdir()
        assert process.returncode == 3
        assert said == f"dra-driver/node-0/npu.example.com: {path}: Is a directory\n"
