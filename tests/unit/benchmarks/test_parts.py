"""`make bench` part by part: what was measured is kept, whatever happens to the parts after it."""

import msgspec
import pytest
from click.testing import CliRunner

from lab.benchmarks import __main__ as bench
from lab.benchmarks.reporting.aims import Aim, Aims


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with two parts to measure: `first` and `second`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "PARTS", {"first": _part_of("first"), "second": _part_of("second")})
    monkeypatch.setattr(bench, "PIECES", 1)
    monkeypatch.setattr(bench, "read_aims", Aims)
    monkeypatch.setattr(bench, "last_figures", dict)
    return tmp_path


def _part_of(name):
    def measure(figures, say, *, is_quick):
        figures.add(f"{name}.us", name, 1 if is_quick else 2, "µs")

    return measure


def _raising(error):
    def measure(figures, say, *, is_quick):
        raise error

    return measure


def _run(*words):
    return CliRunner().invoke(bench.main, words)


def _figures(folder):
    return [row["name"] for row in msgspec.json.decode((folder / "figures.json").read_bytes())["figures"]]


def test_a_whole_run_replaces_the_committed_report(folder):
    assert _run().exit_code == 0

    assert _figures(folder / "docs/benchmarks") == ["first.us", "second.us"]


@pytest.mark.parametrize(
    ("words", "names"), [(("--quick",), ["first.us", "second.us"]), (("--part", "second"), ["second.us"])]
)
def test_a_run_that_is_not_whole_leaves_the_committed_report(folder, words, names):
    assert _run(*words).exit_code == 0

    assert not (folder / "docs").exists()
    assert _figures(folder / "build/benchmarks") == names


def test_a_part_that_fails_is_named_and_the_others_are_measured(folder, monkeypatch):
    monkeypatch.setitem(bench.PARTS, "first", _raising(TimeoutError("3 of 5 nodes are Ready")))

    result = _run()

    assert result.exit_code == 1
    assert "first: TimeoutError: 3 of 5 nodes are Ready" in result.output
    assert "not measured: first; the others are in build/benchmarks" in result.output
    assert not (folder / "docs").exists()
    assert _figures(folder / "build/benchmarks") == ["second.us"]


def test_after_ctrl_c_the_parts_before_it_are_there(folder, monkeypatch):
    monkeypatch.setitem(bench.PARTS, "second", _raising(KeyboardInterrupt()))

    result = _run()

    assert result.exit_code == bench.INTERRUPTED
    assert "interrupted; what was measured is in build/benchmarks" in result.output
    assert not (folder / "docs").exists()
    assert _figures(folder / "build/benchmarks") == ["first.us"]


def test_an_unknown_part_is_refused_by_name(folder):
    result = _run("--part", "frist")

    assert result.exit_code == 2
    assert "--part 'frist': want one of first, second" in result.output


def test_the_parts_are_listed(folder):
    assert _run("--list").output.split() == ["first", "second"]


def test_the_report_names_the_command_that_measures_the_same(folder):
    _run("--quick", "--part", "first")

    assert "`python -m lab.benchmarks --quick --part 'first'`" in (folder / "build/benchmarks/README.md").read_text()


def test_figures_beside_another_control_plane_are_shown_with_their_aims(folder, monkeypatch):
    aims = Aims((Aim(name="real.x", at_least=4, what="x: times ahead"), Aim(name="real.y", at_least=2, what="y")))
    monkeypatch.setattr(bench, "read_aims", lambda: aims)
    (folder / "side.json").write_text('{"server": "https://a", "figures": {"real.x": 5.5, "real.z": 1.0}}')

    lines = _run("--beside", "side.json").output.splitlines()

    assert [line.split() for line in lines if "times ahead" in line] == [
        ["x:", "times", "ahead", "5.50", "times", "≥", "4:", "met"]
    ]
    assert any("y" in line and "not measured; aim ≥ 2" in line for line in lines)
    assert _figures(folder / "docs/benchmarks") == ["real.x", "real.z", "first.us", "second.us"]


@pytest.mark.parametrize("text", ["{", "{}", '{"figures": {"a": "b"}}'])
def test_a_document_that_is_not_of_that_benchmark_is_wrong_usage(folder, text):
    (folder / "side.json").write_text(text)

    result = _run("--beside", "side.json")

    assert result.exit_code == 2
    assert "--beside side.json:" in result.output
