"""A closed pipe, a full disk, an interrupt: an exit code, a line, never a traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCENARIO = "nodes n1 cpu=4\npod p cpu=1\nexpect within 20s each pods name=p phase == Running\n"
ROOT = Path(__file__).parents[3]
STARTED_MAX_S = 110
"""A command is started anew and may have to compile all that it imports, beside whatever else the machine does."""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "scenario.txt"
    path.write_text(SCENARIO)
    return str(path)


def test_no_color_is_heeded_on_a_terminal(tmp_path):
    main, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.cli", "run", str(tmp_path / "nothing.txt")],
        cwd=ROOT, stdout=terminal, stderr=terminal, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    process.wait(timeout=STARTED_MAX_S)
    shown = os.read(main, 4096)
    os.close(main)
    os.close(terminal)

    assert shown.startswith(b"keplab: ")
    assert b"\x1b" not in shown


def started(*words, **streams):
    return subprocess.Popen(
        [sys.executable, "-m", "lab.cli", *words], cwd=ROOT, text=True, stderr=subprocess.PIPE, **streams
    )


@pytest.mark.parametrize("words", [("switches",), ("run", "SCENARIO"), ("--help",)])
def test_a_full_disk_behind_standard_output_is_said_in_one_line(scenario, words):
    with open("/dev/full", "w") as full:
        process = started(*(scenario if word == "SCENARIO" else word for word in words), stdout=full)
        _, error = process.communicate(timeout=STARTED_MAX_S)

    assert (process.returncode, error) == (1, "keplab: cannot write the output: No space left on device\n")


@pytest.mark.parametrize("words", [("switches",), ("run", "SCENARIO"), ("trace", "pod/p", "--run", "SCENARIO")])
def test_a_reader_who_has_seen_enough_is_no_failure(scenario, words):
    reader, writer = os.pipe()
    os.close(reader)
    process = started(*(scenario if word == "SCENARIO" else word for word in words), stdout=writer)
    os.close(writer)
    _, error = process.communicate(timeout=STARTED_MAX_S)

    assert (process.returncode, error) == (0, "")


@pytest.mark.parametrize("is_ignored", [False, True], ids=["alone", "in the background"])
def test_sigterm_ends_a_command_as_ctrl_c_does(tmp_path, is_ignored):
    path = tmp_path / "long.txt"
    path.write_text("limit 1000h\nnodes n1..n9 cpu=4\nwait 900h\n")
    how = signal.SIG_IGN if is_ignored else signal.SIG_DFL
    process = started("run", str(path), stdout=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, how))
    assert process.stdout.readline()  # it is being run
    process.send_signal(signal.SIGTERM)
    try:
        _, error = process.communicate(timeout=STARTED_MAX_S)
    finally:
        process.kill()

    assert (process.returncode, error.strip()) == (130, "keplab: interrupted")
