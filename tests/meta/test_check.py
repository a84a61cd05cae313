"""What `make check` runs for a change, which tests are slow, and that no folder of tests is in no layer."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests import layers
from tests.check import beside, without_nested
from tests.check import main as check
from tests.conftest import SLOW, SLOW_LAYERS, is_named, layer_of, path_of
from tests.layers import LAYERS, LONGEST, lanes_of, main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("scheduler/queue/scheduling_queue.py", ["tests/unit/scheduler/queue", "tests/component/scheduler"]),
        ("lab/cli/commands/up.py", ["tests/unit/cli"]),
        ("services/cel/checker.py", ["tests/unit/cel"]),
        ("services/api/kinds/pod.py", ["tests/unit/api"]),
        ("apiserver_fake/server.py", ["tests/unit/apiserver_fake", "tests/component/apiserver_fake"]),
        ("tests/unit/api/test_cron.py", ["tests/unit/api/test_cron.py"]),
        ("tests/unit/scheduler/conftest.py", ["tests/unit/scheduler"]),
        ("tests/process/test_up.py", []),
        ("docs/how-to/runs.md", ["tests/architecture/test_documents.py"]),
        ("experiments/runaway/runaway.txt", []),
    ],
)
def test_a_change_is_checked_by_what_lies_beside_it(file, tests):
    assert list(beside(file, ROOT)) == tests
    assert [] == [name for name in tests if not (ROOT / name).exists()]


def test_folders_below_others_are_run_once():
    assert without_nested(["tests/unit/a/b", "tests/unit/a", "tests/unit/ab", "tests/unit/a"]) == [
        "tests/unit/a",
        "tests/unit/ab",
    ]


def test_every_folder_with_tests_is_in_one_layer():
    folders = {f"tests/{path.relative_to(ROOT).parts[1]}" for path in ROOT.glob("tests/*/**/test_*.py")}
    layered = [folder for layer in LAYERS for folder in layer.folders]

    assert sorted(folders - {"tests/compose"}) == sorted(layered)


def test_a_layer_that_is_not_there_is_named(capsys):
    assert main(["units"]) == 2
    assert "no layer units; there are: unit, scenarios, process, browser" in capsys.readouterr().err


def test_layers_that_only_compute_run_beside_the_others_at_a_lower_priority():
    waiting, computing = lanes_of(LAYERS)

    assert [layer.name for layer in computing.layers] == ["unit", "scenarios"]
    assert [layer.name for layer in waiting.layers] == ["process", "browser"]
    assert (waiting.words, computing.words[0]) == ((), "nice")
    (alone,) = lanes_of([layer for layer in LAYERS if layer.only_computes])
    assert (alone.words, alone.show) == ((), None)


class OneLiner:
    """A layer that runs a line of Python in place of pytest."""

    def __init__(self, name, code, only_computes):
        self.name, self.only_computes, self.seconds = name, only_computes, 1
        self.command = [sys.executable, "-c", code]


def test_every_layer_runs_whatever_failed_before_and_its_lines_bear_its_name(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(layers, "MEMORY", tmp_path / "build" / "layers.json")
    one = [OneLiner("a", "print('of a'); raise SystemExit(1)", True), OneLiner("b", "print('of b')", True)]
    monkeypatch.setattr(layers, "LAYERS", (*one, OneLiner("c", "import sys; print('of c', file=sys.stderr)", False)))

    assert main([]) == 1
    shown = capsys.readouterr().out
    assert {"a         | of a", "b         | of b", "c         | of c"} <= set(shown.splitlines())
    assert re.findall(r"^(\w+) +(passed|FAILED) ", shown, re.MULTILINE) == [
        ("c", "passed"),
        ("a", "FAILED"),
        ("b", "passed"),
    ]
    assert list(json.loads(layers.MEMORY.read_text())) == ["c", "b"]
    assert main(["b"]) == 0
    assert main(["b", "c"]) == 0


def test_an_interrupted_lane_begins_no_layer_any_more(monkeypatch, tmp_path):
    monkeypatch.setattr(layers, "MEMORY", tmp_path / "layers.json")
    interrupted = [
        OneLiner("a", f"raise SystemExit({layers.INTERRUPTED})", True),
        OneLiner("b", "raise SystemExit(9)", True),
    ]
    monkeypatch.setattr(layers, "LAYERS", interrupted)

    assert main([]) == 1
    lane = layers.Lane(interrupted)
    lane.run()
    assert [each.name for each in lane.outcomes] == ["a"]


def test_a_commit_that_git_does_not_know_is_named(capsys):
    assert check("no-such-commit") == 2
    assert "git knows no changes since 'no-such-commit'" in capsys.readouterr().err


def test_every_slow_test_that_is_listed_is_there():
    missing = []
    for name in SLOW.read_text().split():
        file, *names = name.split("::")
        function = next(each for each in reversed(names) if each != "runTest")  # of a state machine of Hypothesis
        path = ROOT / file
        if not path.exists() or not re.search(rf"\b(def {function}\(|{function} = )", path.read_text()):
            missing.append(name)

    assert [] == missing, "make slow writes the list anew"


@pytest.mark.parametrize(
    ("words", "is_run"),
    [
        ([], False),
        (["tests"], False),
        (["tests/unit/cli"], False),
        (["tests/unit/cli/test_compare.py"], True),
        (["tests/unit/cli/test_compare.py::test_one"], True),
    ],
)
def test_a_slow_test_is_run_when_its_file_is_named(words, is_run):
    assert is_named("tests/unit/cli/test_compare.py::test_one[1]", list(map(path_of, words))) == is_run


@pytest.mark.parametrize(("words", "is_run"), [(["tests"], False), (["tests/process"], True), (["tests/unit"], False)])
def test_a_slow_layer_is_run_when_its_folder_is_named(words, is_run):
    assert layer_of("tests/process/test_up.py::test_one") in SLOW_LAYERS
    assert is_named("tests/process/test_up.py::test_one", list(map(path_of, words))) == is_run


def test_the_files_that_take_longest_are_there():
    assert [] == [name for name in LONGEST if not (ROOT / name).is_file()]


def test_the_files_that_take_longest_begin_first(tmp_path):
    layer = next(layer for layer in LAYERS if layer.is_longest_first)
    others = [str(min(ROOT.glob(f"{folder}/test_*.py")).relative_to(ROOT)) for folder in layer.folders]
    command = replace(layer, folders=(*(each for each in others if each not in LONGEST), *reversed(LONGEST))).command
    words = [*command[1 : command.index("-n")], "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    files = list(dict.fromkeys(line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line))

    assert list(LONGEST) == files[: len(LONGEST)], done.stderr
    assert len(files) > len(LONGEST), "others are collected as well"
