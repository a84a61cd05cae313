"""What is asked of the kernel has an answer on a system without /proc, too: another source, or none, never a traceback."""

import os
import socket
import subprocess
import sys

import pytest

from services.runtime.mesh_directory import is_alive, parent_of
from services.telemetry import kernel

PS = """#!/bin/sh
[ "$4" = {pid} ] && echo "S+  4711"
"""


@pytest.fixture(params=[True, False], ids=["Linux", "no /proc"])
def system(request, monkeypatch, tmp_path):
    """Whether there is a /proc; without, `ps` knows one process."""
    if not request.param:
        monkeypatch.setattr(kernel, "PROC", tmp_path / "proc")
        ps = tmp_path / "bin" / "ps"
        ps.parent.mkdir()
        ps.write_text(PS.format(pid=os.getpid()))
        ps.chmod(0o755)
        monkeypatch.setenv("PATH", f"{ps.parent}:{os.environ['PATH']}")
    return request.param


def test_the_boot_has_a_name_or_none(system):
    assert bool(kernel.boot_id()) == system


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
    asked = []
    monkeypatch.setattr(kernel.ctypes, "CDLL", lambda *_, **__: asked.append("library") or object())

    kernel.end_with_parent()

    assert ["library"] == asked
