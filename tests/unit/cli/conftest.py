"""For commands that run in the tests' own process: how one ended, and a folder of its own with a scenario."""

import pytest

from lab.cli.__main__ import run

PASSES = "# A pod runs\nnodes n1 cpu=4\npod p cpu=1\nexpect within 20s count pods phase=Running == 1\n"


@pytest.fixture
def ended(capsys):
    """Run a command; returns its exit code, standard output and standard error."""

    def go(*words):
        try:
            code = run([*map(str, words)])
        except SystemExit as end:
            code = end.code
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return go


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    """A current folder of its own, in which runs are recorded, with the scenarios passes.txt and fails.txt."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KEPLAB_RUNS")
    (tmp_path / "passes.txt").write_text(PASSES)
    (tmp_path / "fails.txt").write_text(PASSES.replace("== 1", "== 2").replace("20s", "2s"))
    return tmp_path
