"""Ctrl-C ends the benchmark of simulations at once, with the exit code of an interruption and no traceback."""

import signal
import subprocess
import sys
import time


def test_ctrl_c_ends_the_benchmark_cleanly():
    command = [sys.executable, "-m", "lab.cli", "bench", "simulation", "--nodes", "100", "--pods", "20000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(8)
    process.send_signal(signal.SIGINT)

    out, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "Traceback" not in out + err
