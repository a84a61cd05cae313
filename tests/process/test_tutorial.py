"""docs/tutorial/measure-your-own-kep.md, line by line, in a copy of the repository: what is typed works, and prints what the page says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.printed import Typed, copy_of, missing, typed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial" / "measure-your-own-kep.md").read_text()
SET_UP = "make install\nsource .venv/bin/activate\n"
"""What a test does in another way: it runs in an environment that is installed."""


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return copy_of(ROOT, tmp_path_factory.mktemp("tutorial") / "keplab")


def _type(commands, clone):
    of_tests = ("NO_COLOR", "PYTHONDONTWRITEBYTECODE", "KEPLAB_RUNS")
    environ = {name: value for name, value in os.environ.items() if name not in of_tests}
    environ |= {
        "PYTHONPATH": str(clone),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}",
        "COLUMNS": "200",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=clone,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(400)
def test_every_command_of_the_tutorial_prints_what_the_page_says(clone):
    blocks = typed(PAGE)
    assert SET_UP == blocks[0].commands

    for block in blocks[1:]:
        assert [] == missing(block.prints, _type(block.commands, clone)), block.commands

    report = (clone / "runs" / "node-lost.html").read_text()
    assert "lost_with_large1" in report or "ods lost with large1" in report


def test_the_code_of_the_tutorial_is_complete_and_as_the_repository_wants_it(clone):
    files = ["scheduler/plugins/fewest_pods.py", "scheduler/configuration/plugins.py", "services/api/switches.py"]

    for words in (["ruff", "format", "--check"], ["ruff", "check"]):
        done = subprocess.run(
            [sys.executable, "-m", *words, *files], cwd=clone, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_block_is_read_with_what_it_prints():
    page = "```sh\na \\\n  b\n```\n\n```text\none … three\n\ntwo\n```\n\nThen\n\n```text\nnothing\n```\n\n```sh\nc\n```\n```python\nx\n```\n"

    assert [Typed("a \\\n  b\n", ("one … three", "two")), Typed("c\n")] == typed(page)


@pytest.mark.parametrize(
    ("prints", "output", "lost"),
    [
        (("one … three",), "one  two\nthree", []),
        (("b", "a"), "a b", ["a"]),
        (("… s wall",), "0.1 s wall", []),
        (("a.b",), "axb", ["a.b"]),
    ],
)
def test_what_is_printed_is_compared_line_by_line_and_in_order(prints, output, lost):
    assert lost == missing(prints, output)
