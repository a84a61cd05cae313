"""`keplab new`: make the skeleton of an extension of keplab, with a test that passes."""

import keyword
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

import click

from lab.cli.groups import Group
from lab.cli.output import EXIT_OK, F, fail, output_option, print_json

SKELETONS = "skeletons"
NAME_MAX = 40
LOWER, CAMEL = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*"), re.compile(r"[A-Z][A-Za-z0-9]*")
GROUP = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+")
EPILOG = """\
\b
Examples:
  keplab new experiment spread-or-pack      a scenario with two arms, and the command that compares them
  keplab new plugin headcount               a scheduler plugin: in keplab's repository a file, elsewhere a package
  keplab new controller pod-labeler         a folder with its reconcile and its role, in keplab's repository
  keplab new kind Reservation --group example.com
"""


@click.group("new", cls=Group, epilog=EPILOG)
def new() -> None:
    """Make the skeleton of an experiment, plugin, controller or kind.

    Each skeleton comes with a test that passes. Existing files are not overwritten.
    """


def _where(command: F) -> F:
    """Give a command NAME, `--dir` and `-o`."""
    folder = click.Path(file_okay=False, path_type=Path)
    where = "keplab's repository, or another directory for the files"
    directory = click.option("--dir", "top", type=folder, default=Path(), show_default=True, help=where)
    return click.argument("name")(directory(output_option(command)))


@new.command("experiment", epilog=EPILOG)
@_where
def experiment(name: str, top: Path, output: str) -> int:
    """Make a scenario with two arms.

    In keplab's repository the scenario lies below experiments/, elsewhere in a folder of its own.
    """
    words = _words(name)
    is_inside = _is_repository(top)
    path = f"experiments/{words['name']}" if is_inside else words["name"]
    folder = f'Path(__file__).parents[2] / "experiments" / "{words["name"]}"' if is_inside else "Path(__file__).parent"
    test = "tests/scenarios" if is_inside else path
    skeletons = {
        f"{path}/{words['name']}.txt": "experiment.txt",
        f"{path}/README.md": "experiment.md",
        f"{test}/test_{words['snake']}.py": "experiment_test.py",
    }
    scenario = f"{path}/{words['name']}.txt"
    arms = "--arm spread:scheduler.scoring_strategy=LeastAllocated --arm pack:scheduler.scoring_strategy=MostAllocated"
    steps = (
        f"keplab compare {scenario} {arms}",
        f"pytest {test}/test_{words['snake']}.py",
        "replace nodes, pods and arms by those of your question; `keplab switches` lists what arms can differ in",
    )
    return _make(
        top, skeletons, words | {"path": path, "folder": folder, "gap": "\n" if is_inside else ""}, steps, output
    )


@new.command("plugin", epilog=EPILOG)
@_where
@click.option("--package", "is_package", is_flag=True, help="make a package of its own, also in keplab's repository")
def plugin(name: str, top: Path, is_package: bool, output: str) -> int:
    """Make a scheduler plugin.

    In keplab's repository the plugin is a file of scheduler/plugins/ and a scenario. Elsewhere it is a package that
    offers the plugin by the entry point group keplab.scheduler.plugins.
    """
    words = _words(name)
    if is_package or not _is_repository(top):
        name, words = words["name"], words | {"module": f"keplab_{words['snake']}"}
        skeletons = {
            f"{name}/{words['module']}.py": "plugin.py",
            f"{name}/test_{words['snake']}.py": "package_test.py",
            f"{name}/{name}.txt": "plugin.txt",
            f"{name}/{name}.yaml": "plugin.yaml",
            f"{name}/pyproject.toml": "plugin.toml",
            f"{name}/README.md": "plugin.md",
        }
        steps: Sequence[str] = (
            f"cd {name} && pip install -e . && pytest",
            f"keplab run {name}.txt",
            f"keplab up --scheduler-config {name}.yaml",
            "docs/how-to/plugins.md of keplab's repository says what else a plugin can do",
        )
    else:
        path = f"experiments/{words['name']}"
        skeletons = {
            f"scheduler/plugins/{words['snake']}.py": "plugin.py",
            f"tests/unit/scheduler/plugins/test_{words['snake']}.py": "plugin_test.py",
            f"{path}/{words['name']}.txt": "plugin.txt",
            f"{path}/{words['name']}.yaml": "plugin.yaml",
        }
        steps = (
            f"pytest tests/unit/scheduler/plugins/test_{words['snake']}.py",
            f"keplab run {path}/{words['name']}.txt",
            f"the plugin runs where a configuration names it, as {path}/{words['name']}.yaml does",
            "to turn it on for everybody: DEFAULT in scheduler/configuration/plugins.py",
            "to turn it on by a switch: an entry in services/api/switches.py, and a line in `defaults()` there",
        )
    return _make(top, skeletons, words, steps, output)


@new.command("controller", epilog=EPILOG)
@_where
def controller(name: str, top: Path, output: str) -> int:
    """Make a controller with its role.

    The controller is a folder of services/controllers/ in keplab's repository.
    """
    words = _words(name)
    _in_repository(top, "a controller of your own is a process of its own: see examples/train-job there")
    folder = f"services/controllers/{words['snake']}"
    test = f"tests/unit/controllers/{words['snake']}/test_{words['snake']}.py"
    skeletons = {
        f"{folder}/__init__.py": "package.py",
        f"{folder}/controller.py": "controller.py",
        f"{folder}/role.yaml": "controller.yaml",
        f"{folder}/policy.txt": "controller.policy",
        test: "controller_test.py",
    }
    steps = (
        f"pytest {test} tests/unit/controllers/test_roles.py",
        f"{folder}/role.yaml is all that the API server lets it do: what it asks for beyond that is Forbidden",
        f"{folder}/policy.txt says the same a second time, by hand: invariant I24 judges every call by it",
        "every `keplab run` and `keplab up` runs it with the others",
    )
    return _make(top, skeletons, words, steps, output)


@new.command("kind", epilog=EPILOG)
@_where
@click.option("--group", default="example.com", show_default=True, help="API group of the kind")
def kind(name: str, group: str, top: Path, output: str) -> int:
    """Make a kind that the API server serves.

    The kind is a file of services/api/kinds/ in keplab's repository.
    """
    words = _words(name)
    if not GROUP.fullmatch(group):
        fail(f"--group {group!r}: want a DNS name with a dot, as example.com")
    _in_repository(top, "a kind that needs no code is a CustomResourceDefinition: kubectl apply it to `keplab up`")
    module = words["camel"].lower()
    test = f"tests/unit/api/test_{module}.py"
    skeletons = {f"services/api/kinds/{module}.py": "kind.py", test: "kind_test.py"}
    steps = (
        f"pytest {test}",
        "tests/unit/api/test_kinds.py lists every kind as `kubectl api-resources` does: add yours",
        "tests/fuzz/valid_objects.yaml has a valid object of every kind: add yours",
        "rules for its fields, if it has any, are a table in apiserver_fake/registry/strategies/",
    )
    return _make(top, skeletons, words | {"module": module, "group": group}, steps, output)


def _words(name: str) -> dict[str, str]:
    """Return a name as files, modules and classes have it; one that none of them can have ends the command."""
    dashed = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower() if CAMEL.fullmatch(name) else name
    if not LOWER.fullmatch(dashed) or len(dashed) > NAME_MAX:
        fail(
            f"{name!r} is no name: want lower-case words joined by `-`, or CamelCase, at most {NAME_MAX} characters, "
            "for example spread-or-pack"
        )
    snake = dashed.replace("-", "_")
    if keyword.iskeyword(snake) or keyword.issoftkeyword(snake):
        fail(f"{name!r} is a word of Python, and no module can have it as its name")
    camel = name if CAMEL.fullmatch(name) else "".join(part.capitalize() for part in dashed.split("-"))
    title = dashed.replace("-", " ").capitalize()
    return {"name": dashed, "snake": snake, "camel": camel, "title": title, "module": snake}


def _is_repository(top: Path) -> bool:
    return all((top / folder).is_dir() for folder in ("scheduler/plugins", "services/controllers", "experiments"))


def _in_repository(top: Path, instead: str) -> None:
    """End the command where there is no repository of keplab."""
    if not _is_repository(top):
        fail(f"{top} is no repository of keplab (see --dir), and this skeleton needs one; {instead}")


def _make(top: Path, skeletons: Mapping[str, str], words: Mapping[str, str], steps: Sequence[str], output: str) -> int:
    """Write the files, none of which may exist, and say what to do next."""
    taken = [path for path in skeletons if (top / path).exists()]
    if taken:
        fail(f"nothing was written: {', '.join(str(top / path) for path in taken)} exist{'s' * (len(taken) == 1)}")
    texts = files("lab.cli") / SKELETONS
    for path, skeleton in skeletons.items():
        text = (texts / f"{skeleton}.tmpl").read_text(encoding="utf-8")
        try:
            (top / path).parent.mkdir(parents=True, exist_ok=True)
            with (top / path).open("x", encoding="utf-8") as file:
                file.write(Template(text).substitute(words))
        except OSError as error:
            fail(f"cannot write {top / path}: {error.strerror}")
    if output == "json":
        print_json({"files": [str(top / path) for path in skeletons], "next": list(steps)})
        return EXIT_OK
    for path in skeletons:
        click.echo(f"made  {top / path}")
    click.echo("\nNext:")
    for step in steps:
        click.echo(f"  {step}")
    return EXIT_OK
