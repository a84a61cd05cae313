"""Ctrl-C ends the benchmark of simulations at once, with the exit code of an interruption and no traceback."""

import os
import pty
import signal
import subprocess
import sys

LOST = """
import os, signal, time

class Ending:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        while True: pass  # the interrupt is raised in here

from lab.cli import __main__ as command

def run():
    Ending()
    time.sleep(60)

command.run = lambda: 7 if run() else 0
try:
    command.main()
except KeyboardInterrupt:
    raise SystemExit(130)
"""
"""A command that is interrupted while an object ends, where nobody can catch the interrupt."""


def test_ctrl_c_ends_the_benchmark_cleanly():
    command = [sys.executable, "-m", "lab.cli", "bench", "simulation", "--nodes", "100", "--pods", "20000"]
    terminal, its_terminal = pty.openpty()
    environ = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stdout=its_terminal, stderr=its_terminal, env=environ) as process:
        os.close(its_terminal)
        shown = b""
        while b"pods seen" not in shown:  # the bar shows that the simulation has begun
            shown += os.read(terminal, 4096)
        process.send_signal(signal.SIGINT)
        while True:
            try:
                shown += os.read(terminal, 4096)
            except OSError:  # its other end is closed
                break
    os.close(terminal)

    assert process.returncode == 130
    assert b"Traceback" not in shown


def test_ctrl_c_is_not_lost_when_it_comes_while_an_object_ends():
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, timeout=50)

    assert (done.returncode, done.stderr) == (130, "")
