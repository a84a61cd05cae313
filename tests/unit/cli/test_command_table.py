"""`keplab --help` is a table that agrees with the commands, imports none of them, and is whole at every width."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from lab.cli import commands
from lab.cli.__main__ import cli, run
from lab.cli.command_table import COMMANDS, PACKAGE
from lab.cli.groups import first_line

ROOT = Path(__file__).parents[3]
LINE_MAX = 63
"""What a terminal of 80 columns has beside the longest name."""
HEAVY = ("numpy", "grpc", "aiohttp", "cryptography", "yaml", "google", "opentelemetry")
COMPONENTS = ("apiserver_fake", "scheduler", "kubelet", "claim_controller", "services.controllers", "lab.benchmarks")


def test_the_table_has_every_module_of_the_folder_and_no_other():
    found = {f"{PACKAGE}.{info.name}" for info in pkgutil.iter_modules(commands.__path__)}

    assert found == {row.path for row in COMMANDS.values() if row.path.startswith(PACKAGE)}


@pytest.mark.parametrize("row", COMMANDS.values(), ids=lambda row: row.name)
def test_a_commands_first_help_line_is_the_one_of_the_table(row):
    command = cli.get_command(click.Context(cli), row.name)

    assert (row.name, row.line) == (command.name, first_line(command))
    assert len(row.line) <= LINE_MAX, "it would wrap at 80 columns"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(ended, name):
    code, out, err = ended(name, "--help")

    assert (code, err) == (0, "")
    assert "Examples:" in out


def imported(tmp_path, *words):
    """Return the modules that a command has imported when it ends, beside what it has printed."""
    code = "import sys; from lab.cli.__main__ import run\ntry:\n  run(sys.argv[1:])\nexcept SystemExit: pass\n"
    process = subprocess.run(
        [sys.executable, "-c", code + "sys.stderr.write('\\n'.join(sys.modules))", *words],
        env={"PYTHONPATH": str(ROOT), "PATH": ""}, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return set(process.stderr.splitlines()), process.stdout


@pytest.mark.parametrize(
    ("words", "modules_max"),
    [
        (("--help",), 230),
        (("--version",), 290),
        (("bench", "--help"), 490),
        (("bench", "mash"), 490),
        (("status",), 430),
        (("explain", "pod/x"), 430),
        (("switches",), 430),
        (("measures",), 430),
        (("scenarios", "--dir", str(ROOT / "experiments" / "runaway")), 430),
    ],
    ids=lambda given: "-".join(given[:2]) if isinstance(given, tuple) else "",
)
def test_what_needs_no_component_imports_none(tmp_path, words, modules_max):
    modules, _ = imported(tmp_path, *words)

    roots = {name.partition(".")[0] for name in modules}
    assert not roots & set(HEAVY)
    assert not {name for name in modules if name.startswith(COMPONENTS)}
    assert len(modules) <= modules_max


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_help_has_every_line_whole_and_breaks_no_name(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))

    assert run(["--help"]) == 0
    shown = capsys.readouterr().out

    words = " ".join(shown.split())
    for row in COMMANDS.values():
        assert f"\n  {row.name}" in shown
        assert row.line in words
    assert max(map(len, shown.splitlines())) <= columns
    assert "..." not in words.replace("[ARGS]...", "")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["compare", "--arms", "x"], "no such option '--arms'; did you mean --arm or --runs?"),
        (["compre"], "no such command 'compre'; did you mean compare or component?"),
        (["st"], "no such command 'st'; did you mean status or store?"),
        (["stats"], "status"),
        (["comprae"], "compare"),
        (["scen"], "scenarios"),
        (["bench", "mash"], "mesh"),
        (["run", "--seds", "3", "x.txt"], "--seeds"),
        (["up", "--node", "3"], "--nodes"),
    ],
)
def test_what_is_mistyped_is_named_with_what_was_meant(capsys, typed, meant):
    assert run(typed) == 2
    error = capsys.readouterr().err.splitlines()[-1]

    assert "id you mean" in error
    assert meant in error


def test_what_resembles_nothing_is_refused_without_a_suggestion(capsys):
    assert run(["frobnicate"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "Error: no such command 'frobnicate'"
    assert run(["compare", "--frobnicate"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "Error: no such option '--frobnicate'"
