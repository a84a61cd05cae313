"""A scenario is called by its path or by its name, from any folder; what is installed is found as well."""

from pathlib import Path

import pytest

from lab.cli import scenario_files
from lab.cli.__main__ import run
from lab.cli.scenario_files import find, head, path_in_command, shipped_folder

ROOT = Path(__file__).parents[3]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_name_or_a_path_below_experiments_is_found_from_any_folder(elsewhere):
    runaway = ROOT / "experiments" / "runaway" / "runaway.txt"

    assert shipped_folder() == ROOT / "experiments"
    for text in ("runaway", "runaway.txt", "runaway/runaway", "experiments/runaway/runaway.txt"):
        assert find(text) == runaway
    assert find("experiments/runaway") == runaway.parent


def test_a_shipped_scenario_is_called_by_a_path_that_is_found_from_any_folder(elsewhere):
    assert path_in_command(find("runaway")) == "experiments/runaway/runaway.txt"
    assert path_in_command(Path("mine.txt")) == "mine.txt"
    (elsewhere / "experiments" / "runaway").mkdir(parents=True)
    (elsewhere / "experiments" / "runaway" / "runaway.txt").touch()
    assert path_in_command(shipped_folder() / "runaway" / "runaway.txt") == str(
        shipped_folder() / "runaway" / "runaway.txt"
    )


def test_what_is_here_goes_before_what_is_shipped(elsewhere):
    mine = elsewhere / "experiments" / "own" / "runaway.txt"
    mine.parent.mkdir(parents=True)
    mine.touch()
    assert find("runaway") == Path("experiments/own/runaway.txt")
    (elsewhere / "runaway").touch()
    assert find("runaway") == Path("runaway")


def test_a_wheel_has_the_experiments_inside(elsewhere, monkeypatch):
    inside = elsewhere / "lab" / "shipped" / "experiments"
    inside.mkdir(parents=True)
    monkeypatch.setattr(scenario_files, "PACKAGE", elsewhere / "lab")

    assert shipped_folder() == inside


def test_a_name_of_several_scenarios_is_refused_with_their_paths(elsewhere):
    for folder in ("a", "b"):
        (elsewhere / "experiments" / folder).mkdir(parents=True)
        (elsewhere / "experiments" / folder / "same.txt").touch()

    with pytest.raises(ValueError, match=r"same is the name of experiments/a/same.txt and experiments/b/same.txt"):
        find("same")
    assert find("b/same") == Path("experiments/b/same.txt")


def test_a_name_that_is_none_is_refused_with_those_that_are_spelled_alike(elsewhere, capsys):
    assert run(["run", "runawy"]) == 2
    assert "no scenario of that name; did you mean runaway" in capsys.readouterr().err


def test_no_two_shipped_scenarios_have_one_name():
    found = [path.stem for path in shipped_folder().rglob("*.txt")]

    assert len(found) == len(set(found))


def test_a_head_is_read_without_what_single_components_are_set_to(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("# Title\n# more\nset a.b=1 c.d=2\nset scheduler: e.f=3\npod p\n")

    assert (head(path).title, head(path).about, head(path).switches) == ("Title", "more", ("a.b=1", "c.d=2"))
