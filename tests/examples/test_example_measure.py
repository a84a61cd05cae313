"""The example package that offers a measure, found as installed packages are; and packages that offer a wrong one."""

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

from lab.cli.__main__ import run
from lab.scenarios.measures.packages import GROUP, entry_points_by_name, package_measure
from lab.scenarios.run import load_scenario, simulate
from lab.scenarios.script.scenario import ScriptError

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "packing-ratio"
PACKING = ROOT / "experiments" / "scheduling" / "packing.txt"


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Have importlib find a distribution that offers measures, and its modules, until the test ends."""

    def installed(name, offers, source):
        info = tmp_path / name / f"{name.replace('-', '_')}-0.1.0.dist-info"
        info.mkdir(parents=True)
        info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
        lines = [f"{offered} = {value}" for offered, value in offers.items()]
        info.joinpath("entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
        monkeypatch.syspath_prepend(str(info.parent))
        monkeypatch.syspath_prepend(str(source))
        importlib.invalidate_caches()
        forget()

    before = set(sys.modules)
    forget()
    yield installed
    for name in set(sys.modules) - before:
        if name.startswith(("keplab_", "wrong_")):
            del sys.modules[name]
    forget()


def forget():
    entry_points_by_name.cache_clear()
    package_measure.cache_clear()


@pytest.fixture
def example(install):
    """The example, with the entry points that its own pyproject.toml declares."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(project["name"], project["entry-points"][GROUP], EXAMPLE)


def scenario(tmp_path, line):
    text = PACKING.read_text().replace("limit 60s", f"{line}\nlimit 60s")
    path = tmp_path / "packing.txt"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("strategy", "expected"), [("MostAllocated", 1.0), ("LeastAllocated", 2.0)])
def test_a_scenario_has_a_packages_measure_computed(example, tmp_path, strategy, expected):
    loaded = load_scenario(scenario(tmp_path, "measure packing_ratio"))

    result = simulate(loaded, overrides={"scheduler.scoring_strategy": strategy})

    assert expected == result.measures["packing_ratio"]
    (stated,) = (each for each in result.stated if each.name == "packing_ratio")
    assert ("lower", "keplab-packing-ratio") == (stated.better, stated.source)


def test_a_package_that_is_installed_measures_nothing_unless_it_is_asked(example):
    assert "packing_ratio" not in simulate(load_scenario(PACKING)).measures


def test_the_register_lists_what_packages_offer(example, capsys):
    assert run(["measures", "packing"]) == 0
    assert "packing_ratio" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("1 / 0", "measure wrong_one of wrong: ZeroDivisionError: division by zero"),
        ("'many'", "measure wrong_one of wrong: TypeError: it returned 'many', want a number or None"),
        ("float('nan')", "measure wrong_one of wrong: TypeError: it returned nan, want a number or None"),
        ("run.objects('jobs')", "measure wrong_one of wrong: ValueError: it reads 'jobs', which it does not declare in `objects`"),
        ("run.lines('x.y')", "ValueError: it reads lines of 'x.y', which it does not declare in `lines`"),
        ("len(run.objects('pods'))", ""),
        ("len(run.created('pods')) + len(run.pods) + run.seconds", ""),
    ],
)  # fmt: skip
def test_a_measure_that_raises_is_named_and_the_run_is_not_lost(install, tmp_path, code, says):
    (tmp_path / "wrong_package.py").write_text(
        "from lab.scenarios.measures.entry import MeasureEntry\n"
        f"MEASURE = MeasureEntry(name='wrong_one', meaning='m', objects=('pods',), compute=lambda run: {code})\n"
    )
    install("wrong", {"wrong_one": "wrong_package:MEASURE"}, tmp_path)

    result = simulate(load_scenario(scenario(tmp_path, "measure wrong_one")))

    assert result.passed
    assert result.measures["nodes_for_large"] == 2.0
    assert (says in result.measure_errors["wrong_one"]) if says else not result.measure_errors
    assert (result.measures["wrong_one"] is None) is bool(says)


@pytest.mark.parametrize(
    ("offers", "says"),
    [
        ({"other": "json:loads"}, "no package offers a measure 'asked' (entry points in keplab.measures: other)"),
        ({"asked": "no_such_module:MEASURE"}, "entry point asked = no_such_module:MEASURE of wrong: ModuleNotFoundError: "),
        ({"asked": "json:loads"}, "entry point asked = json:loads of wrong is a function, want a MeasureEntry"),
        ({"asked": "wrong_entries:OTHER"}, "leads to a measure 'other'; entry point and measure have one name"),
        ({"asked": "wrong_entries:BETTER"}, "better='more': want lower, higher or nothing"),
        ({"asked": "wrong_entries:PLURAL"}, "no resource is called 'pod'; there are: apiservices, "),
    ],
)  # fmt: skip
def test_a_measure_that_cannot_be_had_is_refused_with_its_line(install, tmp_path, offers, says):
    (tmp_path / "wrong_entries.py").write_text(
        "from lab.scenarios.measures.entry import MeasureEntry\n"
        "OTHER = MeasureEntry(name='other', meaning='', compute=len)\n"
        "BETTER = MeasureEntry(name='asked', meaning='', compute=len, better='more')\n"
        "PLURAL = MeasureEntry(name='asked', meaning='', compute=len, objects=('pod',))\n"
    )
    install("wrong", offers, tmp_path)

    with pytest.raises(ScriptError) as refused:
        load_scenario(scenario(tmp_path, "measure asked"))

    assert says in str(refused.value)
    assert f"{tmp_path}/packing.txt:8: " in str(refused.value)
