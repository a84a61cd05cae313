"""A process that tests fork is what it would be if it were executed (`tests.forking`)."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from services.telemetry import kernel
from tests.forking import MODULES, ROOT, Importer

pytestmark = pytest.mark.skipif(not kernel.can_adopt(), reason="needs Linux")
STATE = "tests.process.own_state"
ENVIRON = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | {"PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def importer():
    """An importer that forks what prints its own state, too."""
    importer = Importer(os.environ, modules=MODULES | {STATE})
    yield importer
    importer.close()


@pytest.fixture(params=["executed", "forked"])
def way(request, importer):
    """Start processes in one way, then in the other."""
    with importer.installed() if request.param == "forked" else contextlib.nullcontext():
        yield request.param


def is_forked(pid):
    """Whether a command line was set by the process itself: it has blanks where the kernel has zeros."""
    return b" -m " in (Path("/proc") / str(pid) / "cmdline").read_bytes()


def state_of(*words, flags=(), code=0, **options):
    command = [sys.executable, *flags, "-m", STATE, *words]
    done = subprocess.run(command, **{"capture_output": True, "text": True, "env": ENVIRON, "timeout": 60} | options)
    assert (code, "") == (done.returncode, done.stderr or "")
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("words", "flags", "code", "options"),
    [
        ((), (), 0, {}),
        (("3",), ("-P",), 3, {"input": "typed\n"}),
        ((), (), 0, {"start_new_session": True, "stdin": subprocess.DEVNULL}),
        ((), (), 0, {"env": ENVIRON | {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "OWN": "\udcff"}}),
        ((), (), 0, {"env": {"PATH": "/bin", "PYTHONPATH": f"{ROOT}:/nowhere"} | {k: v for k, v in ENVIRON.items() if k.startswith(("PYTHON", "L")) and k != "PYTHONPATH"}}),
        ((), (), 0, {"env": {**ENVIRON, "PYTHONPATH": ""}, "cwd": ROOT}),
        ((), (), 0, {"capture_output": False, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}),
    ],
)  # fmt: skip
def test_a_forked_process_knows_of_itself_what_an_executed_one_does(importer, tmp_path, words, flags, code, options):
    options = {"cwd": tmp_path} | options
    executed = state_of(*words, flags=flags, code=code, **options)
    with importer.installed():
        forked = state_of(*words, flags=flags, code=code, **options)

    own = {"pid"} | ({"session", "group"} if "start_new_session" in options else set())
    assert {name: executed[name] for name in executed if name not in own} == {
        name: forked[name] for name in forked if name not in own
    }
    assert os.getpid() == forked["parent"]
    assert forked["pid"] != executed["pid"]
    assert ("start_new_session" in options) == (forked["session"] == forked["pid"])


def test_a_process_that_is_forked_while_interrupts_are_ignored_ignores_them_too(way):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert state_of()["signals"]["SIGINT"] == repr(signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGINT, before)


def test_descriptors_are_passed_on_under_their_own_numbers(way, tmp_path):
    reader, writer = os.pipe()
    try:
        with open(tmp_path / "own", "w") as file:
            state = state_of(pass_fds=(writer, file.fileno()))
            expected = {str(writer): "pipe", str(file.fileno()): file.name}
    finally:
        os.close(reader)
        os.close(writer)
    assert expected == {each: state["descriptors"][each] for each in expected}
    assert str(reader) not in state["descriptors"]


def test_a_signal_ends_it_and_is_reported(way):
    with subprocess.Popen([sys.executable, "-m", STATE], stdin=subprocess.PIPE, env=ENVIRON) as process:
        wait_for_name(process)
        assert (way == "forked") == is_forked(process.pid)
        process.send_signal(signal.SIGTERM)
        assert -signal.SIGTERM == process.wait(timeout=60)


def test_asyncio_starts_it_too_and_awaits_its_end(way):
    async def run():
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", STATE, "5", stdin=pipe, stdout=pipe, env=ENVIRON
        )
        printed, _ = await process.communicate(b"typed")
        return json.loads(printed)["input"], process.returncode

    assert ("typed", 5) == asyncio.run(asyncio.wait_for(run(), 60))


def test_what_standard_output_does_not_take_is_an_error_as_ever(way):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", STATE]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            env=ENVIRON | {"BRIEF": "1"},
            timeout=60,
        )
    assert 120 == done.returncode
    assert b"No space left on device" in done.stderr


def test_what_it_starts_is_forked_beside_it(importer, tmp_path):
    """A mesh: the command, what holds it in the background, and what its processes are forked from."""
    folder = tmp_path / "mesh"
    command = [sys.executable, "-m", "lab.cli"]
    with importer.installed():
        up = [*command, "up", "--data", str(folder), "--nodes", "1", "--engine", "memory", "--detach"]
        subprocess.run(up, check=True, capture_output=True, env=ENVIRON, timeout=120)
        try:
            state = json.loads((folder / "mesh.json").read_text())
            pids = [state["supervisor_pid"], *(each["pid"] for each in state["processes"])]
            assert all(map(is_forked, pids))
            assert {state["supervisor_pid"]} == {kernel.state_and_parent(pid)[1] for pid in pids[1:]}
        finally:
            subprocess.run(
                [*command, "down", "--data", str(folder)], check=True, capture_output=True, env=ENVIRON, timeout=120
            )
    assert {None} == {kernel.state_and_parent(pid) for pid in pids[1:]}


def test_while_an_importer_is_paused_everything_is_executed(importer):
    with importer.installed(), importer.paused():
        executed = is_next_forked()
    with importer.installed():
        assert (False, True) == (executed, is_next_forked())


def is_next_forked():
    """Whether a process that is started now asks the importer."""
    with subprocess.Popen(
        [sys.executable, "-m", STATE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRON
    ) as process:
        wait_for_name(process)
        return is_forked(process.pid)


def wait_for_name(process):
    while b"own_state" not in (Path("/proc") / str(process.pid) / "cmdline").read_bytes():
        time.sleep(0.01)


@pytest.mark.parametrize(
    "change",
    [
        {"args": [sys.executable, "-m", "pip"]},
        {"args": [sys.executable, "-c", "pass"]},
        {"args": [sys.executable, "-I", "-m", STATE]},
        {"args": ["/bin/sh", "-m", STATE]},
        {"args": [sys.executable, "-m"]},
        {"args": f"{sys.executable} -m {STATE}"},
        {"env": {**ENVIRON, "PYTHONPATH": ""}, "cwd": "/"},
        {"args": [sys.executable, "-P", "-m", STATE], "env": {**ENVIRON, "PYTHONPATH": ""}, "cwd": ROOT},
        {"cwd": ROOT / "tests" / "unit"},
        {"env": {**ENVIRON, "PYTHONHASHSEED": "1"}},
        {"env": {**ENVIRON, "TZ": "Asia/Tokyo"}},
        {"env": {**ENVIRON, "LC_ALL": "C"}},
        {"cwd": "/nowhere"},
        {"shell": True},
        {"preexec_fn": print},
        {"close_fds": False},
        {"umask": 0o77},
        {"executable": "/bin/true"},
    ],
)  # fmt: skip
def test_what_a_forked_process_cannot_be_is_executed(importer, change):
    usual = {
        "args": [sys.executable, "-m", STATE], "executable": None, "preexec_fn": None, "close_fds": True, "pass_fds": (),
        "cwd": None, "env": ENVIRON, "shell": False, "restore_signals": True, "gid": None, "gids": None, "uid": None,
        "umask": -1, "start_new_session": False, "process_group": -1,
    }  # fmt: skip
    assert importer.request_of(usual) is not None
    assert importer.request_of(usual | change) is None


def test_after_its_end_everything_is_executed():
    importer = Importer(os.environ, modules={STATE})
    with importer.installed():
        before = state_of(input="")
        importer._process.kill()
        assert (before["folder"], os.getpid()) == ((after := state_of(input=""))["folder"], after["parent"])
    importer.close()


def test_a_wrong_command_is_refused_in_the_same_words(way):
    done = subprocess.run(
        [sys.executable, "-m", "lab.cli", "no-such-command"], capture_output=True, text=True, env=ENVIRON, timeout=60
    )
    assert (2, "") == (done.returncode, done.stdout)
    assert "no such command 'no-such-command'" in done.stderr
