"""Ctrl-C ends the benchmark of simulations at once, with the exit code of an interruption and no traceback."""

import os
import pty
import signal
import subprocess
import sys


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
