"""Many scenarios, many seeds: what failed and how to repeat it, what a record saves, how an interrupt ends."""

import io
import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from lab.cli import live, sweep
from lab.cli.__main__ import run

ROOT = Path(__file__).parents[3]
PASSES = "nodes n1 cpu=4\npod p cpu=1\nexpect within 20s count pods phase=Running == 1\n"
FAILS = PASSES.replace("== 1", "== 2").replace("20s", "2s")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "passes.txt").write_text(PASSES)
    (tmp_path / "some" / "fails here.txt").write_text(FAILS)
    return tmp_path / "some"


def ended(capsys, *words):
    try:
        code = run([*map(str, words)])
    except SystemExit as end:
        code = end.code
    return code, capsys.readouterr()


def test_a_sweep_runs_every_scenario_of_a_folder_with_every_seed_and_names_what_failed(folder, capsys):
    code, shown = ended(capsys, "run", folder, "--seeds", 2, "--seed", 5, "--workers", 1, "-o", "json")
    runs = json.loads(shown.out)

    assert code == 1
    assert [(each["scenario"], each["seed"], each["passed"]) for each in runs] == [
        ("fails here", 5, False),
        ("passes", 5, True),
        ("fails here", 6, False),
        ("passes", 6, True),
    ]
    assert "count pods phase=Running == 2 (1 found)" in runs[0]["error"]
    assert [each["passed"] for each in runs[0]["expectations"]] == [False]
    assert {"mode", "digest", "violations", "virtual_s", "wall_s"} <= runs[0].keys()


def test_the_command_beside_a_failure_repeats_it(folder, capsys):
    _, shown = ended(capsys, "run", folder, "--set", "kubelet.on_reject=unbind", "--workers", 1, "-o", "json")
    again = shlex.split(json.loads(shown.out)[0]["command"])
    code, shown = ended(capsys, *again[1:], "-o", "json")

    assert again[:2] == ["keplab", "run"]
    assert (code, [each["switches"] for each in json.loads(shown.out)]) == (1, [["kubelet.on_reject=unbind"]])


def test_the_same_sweep_over_two_workers_finds_the_same(folder, capsys):
    _, one = ended(capsys, "run", folder, "--seeds", 2, "--workers", 1, "-o", "json")
    _, two = ended(capsys, "run", folder, "--seeds", 2, "--workers", 2, "-o", "json")

    runs = [[{**each, "wall_s": 0} for each in json.loads(shown.out)] for shown in (one, two)]
    assert runs[0] == runs[1]


def test_a_sweep_for_people_is_a_table_of_failures_and_a_sum(folder, capsys):
    code, shown = ended(capsys, "run", folder, "--workers", 1)
    head, row, total = shown.out.splitlines()

    assert code == 1
    assert head.split() == ["SCENARIO", "SEED", "PROBLEM", "AGAIN"]
    assert row.endswith("--seed 0")
    assert "'" in row.partition("keplab run ")[2]
    assert total.startswith("1 of 2 runs passed")


@pytest.mark.parametrize(("output", "is_drawn"), [("text", True), ("json", False)])
def test_a_terminal_shows_progress_to_people_and_none_beside_a_document(folder, capsys, monkeypatch, output, is_drawn):
    terminal = Console(file=io.StringIO(), force_terminal=True)
    monkeypatch.setattr(live, "console", terminal)
    monkeypatch.setattr(sweep, "run_jobs", lambda *_, **__: None)
    _, shown = ended(capsys, "run", folder / "passes.txt", "--workers", 1, "-o", output)

    assert bool(terminal.file.getvalue()) == is_drawn
    assert shown.out.startswith("[") != is_drawn


def test_a_record_saves_what_passed_and_has_what_failed_run_again(folder, tmp_path, capsys):
    record = tmp_path / "deep" / "record.jsonl"
    words = ("run", folder, "--record", record, "--workers", 1)

    first, _ = ended(capsys, *words)
    (folder / "fails here.txt").write_text(PASSES)
    (folder / "passes.txt").write_text(FAILS)
    second, _ = ended(capsys, *words)

    assert (first, second) == (1, 0)
    assert len(record.read_text().splitlines()) == 3


def test_chaos_takes_as_many_workers_as_it_is_given(folder, capsys):
    code, shown = ended(capsys, "chaos", folder / "passes.txt", "--seeds", 2, "--workers", 1, "-o", "json")

    assert code == 0
    assert json.loads(shown.out)["failed"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--seeds", "2", "--processes"), "need the simulation"),
        (("--record", "r", "--schedule", "s.json"), "without --schedule"),
        (("--workers", "99"), "99 is not in the range"),
    ],
)
def test_a_sweep_of_processes_or_of_a_schedule_is_wrong_usage(folder, capsys, words, message):
    code, shown = ended(capsys, "run", folder, *words)

    assert code == 2
    assert message in shown.err


def test_a_folder_without_scenarios_is_wrong_usage(tmp_path, capsys):
    code, shown = ended(capsys, "run", tmp_path)

    assert (code, shown.out) == (2, "")
    assert "no scenario below" in shown.err


@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_prints_what_was_found_so_far_and_ends_with_130(folder, tmp_path, workers):
    (folder / "long.txt").write_text("limit 1000h\nnodes n1..n9 cpu=4\nwait 900h\n")
    record = tmp_path / "record.jsonl"
    words = ["run", str(folder), "--seeds", "3", "--record", str(record), "--workers", workers, "-o", "json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.cli", *words], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        while not record.exists():
            time.sleep(0.02)  # or this process would take the others' processor
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=30)
    finally:
        process.kill()
    runs = json.loads(out)

    assert process.returncode == 130
    assert len(runs) - len(record.read_text().splitlines()) in (0, 1)  # shown, and then recorded
    assert len(runs) < 9
    assert "the same command goes on from there" in error
