"""Each recipe of CONTRIBUTING, done in a copy of the tree as it is written there, and seen to work.

A plugin, a controller, a kind and an experiment are made by `keplab new`, and tried in tests/unit/cli/test_new.py.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("apiserver_fake", "claim_controller", "kubelet", "lab", "protos", "scheduler", "services")


class Tree:
    """A copy of the product that a recipe is performed in."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, file: str, text: str) -> None:
        """Write a new file."""
        (self.root / file).write_text(text)

    def edit(self, file: str, before: str, after: str) -> None:
        """Replace a piece of a file, which has to be there once."""
        path = self.root / file
        text = path.read_text()
        assert text.count(before) == 1, (file, before, text.count(before))
        path.unlink()  # it may be a link to the one of the repository's copy
        path.write_text(text.replace(before, after))

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the tree, with the tree alone on its path."""
        environ = {**os.environ, "PYTHONPATH": str(self.root), "KEPLAB_RUNS": "none"}
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=self.root, env=environ, capture_output=True, text=True, timeout=100)

    def run(self, scenario: str, *words: str) -> str:
        """Run a scenario as `keplab run` does, and return what it prints with its exit code."""
        self.put("one.txt", scenario)
        done = self.python("-m", "lab.cli", "run", "one.txt", *words)
        return f"{done.stdout}{done.stderr}exit {done.returncode}"


@pytest.fixture(scope="module")
def product(tmp_path_factory):
    """The product's sources as they are, with what is compiled of them."""
    root = tmp_path_factory.mktemp("product")
    for name in PRODUCT:
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("static"))
    shutil.copytree(ROOT / "tests" / "component" / "apiserver_fake", root / "tests/component/apiserver_fake")
    for folder in ("tests", "tests/component"):
        for path in (ROOT / folder).glob("*.py"):
            shutil.copy2(path, root / folder / path.name)
    return root


@pytest.fixture
def tree(product, tmp_path):
    """A clean tree for one recipe."""
    shutil.copytree(product, tmp_path / "tree", copy_function=os.link)
    return Tree(tmp_path / "tree")


FIELD = """
import asyncio

from lab.scenarios.simulation import simloop
from services.api.printing import cells
from services.api.resources import resources
from tests.component.apiserver_fake.custom_resources import Machine

CLASSES = "priorityclasses.scheduling.k8s.io"


async def act():
    async with Machine().cluster() as cluster:
        for tier in (5, 42):
            body = {"metadata": {"name": f"c{tier}"}, "value": 5, "tier": tier}
            made = await cluster.call("create", CLASSES, body=body, field_validation="Strict")
            print(made.get("tier"), made.get("message", ""))
        resource = resources()[CLASSES]
        stored = await cluster.call("get", CLASSES, "c5")
        columns = [each.name for each in resource.columns]
        print(cells(resource.columns, stored, 0.0)[columns.index("Tier")])


simloop.run(act())
"""


def test_a_field_with_a_column_and_a_rule(tree):
    tree.edit(
        "apiserver_fake/registry/schema/additions.json",
        '"io.k8s.api.resource.v1.AllocationResult"',
        '"io.k8s.api.scheduling.v1.PriorityClass": {"properties": {\n'
        '  "tier": {"description": "A tier.", "format": "int32", "type": "integer"}\n}},\n'
        '"io.k8s.api.resource.v1.AllocationResult"',
    )
    kind = "services/api/kinds/priorityclass.py"
    tree.edit(kind, '    description: str = ""\n', '    description: str = ""\n    tier: int = 0\n')
    tree.edit(kind, "        AGE,\n", '        AGE,\n        Column("Tier", "tier", "integer", default=0),\n')
    rules = "apiserver_fake/registry/strategies/scheduling.py"
    tree.edit(rules, "FIELDS = Struct(", 'FIELDS = Struct(\n    Field("tier", minimum=0, maximum=10),')

    done = tree.python("-c", FIELD)

    lines = done.stdout.splitlines()
    assert (lines[0], lines[2:]) == ("5 ", ["5"]), done.stderr
    assert "tier: Invalid value: 42: must be between 0 and 10, inclusive" in lines[1]


def test_a_switch_that_turns_a_plugin_on(tree):
    (tree.root / "experiments").mkdir()
    made = tree.python("-m", "lab.cli", "new", "plugin", "spare-cores")
    assert made.returncode == 0, made.stderr
    plugins = "scheduler/configuration/plugins.py"
    tree.edit(plugins, '    ("NodeName", 0),\n', '    ("NodeName", 0),\n    ("SpareCores", 100),\n')
    tree.edit(plugins, "    runs = {\n", '    runs = {\n        "SpareCores": own.has_spare_cores,\n')
    tree.edit(
        "scheduler/switches.py",
        '    numa_scheduler: str = switch("numa_scheduler")\n',
        '    numa_scheduler: str = switch("numa_scheduler")\n'
        '    has_spare_cores: bool = switch("scheduler.spare_cores")\n',
    )
    tree.edit(
        "services/api/switches.py",
        '    Switch("resize.generation",',
        '    Switch("scheduler.spare_cores", False, "nodes with spare cores are liked", "kep-5836 1", "kep-5836/one-victim"),\n'
        '    Switch("resize.generation",',
    )
    ask = (
        "from scheduler.configuration.plugins import defaults; from services.api.switches import Switches;"
        "names = lambda **chosen: [name for name, _ in defaults(Switches({'scheduler.spare_cores': v for v in chosen.values()}))];"
        "print('SpareCores' in names(), 'SpareCores' in names(on=True))"
    )

    done = tree.python("-c", ask)
    assert done.stdout.split() == ["False", "True"], done.stderr
    assert "exit 0" in tree.run(
        "nodes n1\npod a\nexpect within 10s each pods name=a phase == Running\n", "--set", "scheduler.spare_cores=true"
    )


def test_an_invariant(tree):
    new = f"I{99}"
    tree.put(
        "lab/scenarios/invariants/i99_no_pod_is_called_a.py",
        '''"""NEW: no container of a pod named a starts."""

from lab.scenarios.invariants.check import Check, Report
from services.telemetry.eventlog import Line


class NoPodIsCalledA(Check):
    """NEW: no container of a pod named a starts."""

    id = "NEW"
    events = ("kubelet.start",)

    def take(self, line: Line, report: Report) -> None:
        """Follow kubelet.start."""
        if (line.obj or {}).get("name") == "a":
            report(line, "a starts")
'''.replace("NEW", new),
    )

    printed = tree.run("nodes n1\npod a\nexpect within 10s each pods name=a phase == Running\n")
    assert new in printed
    assert "a starts" in printed
    assert "exit 1" in printed
    assert "exit 0" in tree.run("nodes n1\npod b\nexpect within 10s each pods name=b phase == Running\n")


def test_a_verb(tree):
    tree.edit(
        "lab/scenarios/script/verbs.py",
        '@verb(CHANGES, _OBJECT, options=(Option("replicas"',
        '''@verb(CHANGES, _OBJECT)
async def praise(context: ScenarioContext, step: Step) -> None:
    """Label an object as praised."""
    resource, key = await _object(context, step.args[0])
    await context.client.patch(resource.name, key, {"metadata": {"labels": {"praised": "yes"}}})


@verb(CHANGES, _OBJECT, options=(Option("replicas"''',
    )

    printed = tree.run(
        "nodes n1\npod a\npraise pod/a\nexpect within 10s each pods name=a metadata.labels.praised == yes\n"
    )
    assert "exit 0" in printed, printed
    assert "praise" in tree.python("-m", "lab.cli", "verbs").stdout


def test_a_measure(tree):
    register = "lab/scenarios/measures/register.py"
    tree.edit(
        register,
        '    Measure("pods_created", "", "Pods created", "", _PODS, True),\n',
        '    Measure("pods_created", "", "Pods created", "", _PODS, True),\n'
        '    Measure("nodes_counted", "", "Nodes", "", _PLACED, True),\n',
    )
    tree.edit(
        "lab/scenarios/run.py",
        "            **self.queue.measures(),\n",
        '            **self.queue.measures(),\n            "nodes_counted": float(len(run.placement._nodes)),\n',
    )

    assert "nodes_counted" in tree.python("-m", "lab.cli", "measures").stdout
    printed = tree.run("nodes n1..n2\npod a\nexpect within 10s each pods name=a phase == Running\n", "-o", "json")
    assert '"nodes_counted": 2' in printed, printed
