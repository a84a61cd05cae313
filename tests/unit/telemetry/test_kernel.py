"""What is asked of the kernel has an answer on a system without /proc, too: another source, or none, never a traceback."""

import math
import os
import socket
import subprocess
import sys

import pytest

from services.runtime.mesh_directory import is_alive, parent_of
from services.telemetry import kernel
from services.telemetry.metrics import render

PS = """#!/bin/sh
[ "$4" = {pid} ] && echo "S+  4711"
"""


@pytest.fixture(params=[True, False], ids=["Linux", "no /proc"])
def system(request, monkeypatch, tmp_path):
    """Whether there is a /proc; without, `ps` knows one process."""
    if not request.param:
        monkeypatch.setattr(kernel, "PROC", tmp_path / "proc")
        monkeypatch.setattr(kernel, "OPEN_FILES", (tmp_path / "proc",))
        ps = tmp_path / "bin" / "ps"
        ps.parent.mkdir()
        ps.write_text(PS.format(pid=os.getpid()))
        ps.chmod(0o755)
        monkeypatch.setenv("PATH", f"{ps.parent}:{os.environ['PATH']}")
    return request.param


def test_figures_of_this_process_are_there_or_not_a_number(system):
    assert [math.isnan(found) for found in (kernel.resident_bytes(), kernel.open_files())] == [not system] * 2
    assert bool(kernel.boot_id()) == system


def test_a_figure_that_is_not_there_is_served_as_not_a_number():
    assert b"process_open_fds nan\n" in render({"process_open_fds": math.nan}).lower()


def test_a_process_has_a_state_and_a_parent_and_one_that_is_gone_has_none(system):
    state, parent = kernel.state_and_parent(os.getpid())
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()

    assert (state in "RS", parent) == (True, os.getppid() if system else 4711)
    assert kernel.state_and_parent(gone.pid) is None
    assert (is_alive(os.getpid()), is_alive(gone.pid), parent_of(gone.pid)) == (True, False, -1)


def test_a_socket_in_a_folder_with_a_long_path_is_bound_and_reached(system, tmp_path):
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    short = kernel.ShortFolder(folder)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{short.path}/s")
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"{short.path}/s")
    short.close()
    short.close()

    assert (folder / "s").is_socket()
    assert not os.path.exists(short.path)


def test_a_short_path_of_no_folder_is_refused(system, tmp_path):
    with pytest.raises(OSError, match="nothing"):
        kernel.ShortFolder(tmp_path / "nothing")


def test_a_system_without_prctl_is_no_error(monkeypatch):
    monkeypatch.setattr(kernel.ctypes, "CDLL", lambda *_, **__: object())

    kernel.end_with_parent()
