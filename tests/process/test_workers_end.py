"""Workers of a sweep end with the command that began them, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LIMIT_S = 60.0
# A run in virtual time that takes longer than any test waits.
SCENARIO = "limit 1000h\nnodes n1 cpu=4\npod p cpu=1\nexpect within 20s count pods phase=Running == 1\nwait 500h\n"


def children_of(parent):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def is_worker(pid):
    try:
        return b"spawn_main" in (Path("/proc") / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False


def until(condition):
    deadline = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


@pytest.mark.parametrize(
    "words",
    [("compare", "--arm", "a", "--arm", "b", "--seeds", "9"), ("chaos", "--seeds", "9"), ("run", "--seeds", "9")],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=lambda how: how.name)
def test_no_worker_is_left(tmp_path, words, how):
    scenario = tmp_path / "long.txt"
    scenario.write_text(SCENARIO)
    command = [sys.executable, "-m", "lab.cli", words[0], str(scenario), *words[1:], "--workers", "2"]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as parent:
        try:
            workers = until(
                lambda: [pid for pid in children_of(parent.pid) if is_worker(pid)][:2][1:] and children_of(parent.pid)
            )
            parent.send_signal(how)
            output = parent.stdout.read().decode()
        finally:
            parent.kill()
    until(lambda: not any(is_worker(pid) for pid in workers))
    if how is signal.SIGINT:
        assert parent.returncode == 130
        assert "Traceback" not in output
        assert "interrupted" in output
