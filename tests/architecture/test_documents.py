"""What ARCHITECTURE.md and docs/explanation/journeys.md name exists: every module and folder, and in a journey every function.

A name is what stands in backticks. It is a path when it has a slash, or when it stands in the code map; there it is relative to the folder
that heads its paragraph. `.py` may be left out, `*` stands for any name. What is not made of lower-case letters, digits, `_`, `.`, `/` and `*`
alone is a class, a constant, a field or a command, and a word without a slash is a path in the code map only.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
JOURNEYS = (ROOT / "docs" / "explanation" / "journeys.md").read_text()
QUOTED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[a-z0-9_*][a-z0-9_*./]*")
FUNCTION = re.compile(r"(\w+)\(\)")
HEADED = re.compile(r"\*\*([a-z_/]+)\.\*\* ")
STEP = re.compile(r"^\d+\. ", re.M)


def _exists(folder, name):
    return any(any(folder.glob(pattern)) for pattern in (name.rstrip("/"), f"{name}.py") if pattern)


def _section(text, title):
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def _missing_in_paragraph(paragraph):
    """Return the folder that heads a paragraph of the code map, and which of its names are not there."""
    headed = HEADED.match(paragraph)
    assert headed is not None, f"no folder heads {paragraph[:60]!r}"
    folder = ROOT / headed[1]
    names = [name for name in QUOTED.findall(paragraph) if PATH.fullmatch(name)]
    return headed[1], [name for name in names if not folder.is_dir() or not _exists(folder, name)]


def _missing_from_root(text):
    return [n for n in QUOTED.findall(text) if "/" in n and PATH.fullmatch(n) and not _exists(ROOT, n)]


def _journeys():
    return [(part.partition("\n")[0], STEP.split(part)[1:]) for part in JOURNEYS.split("\n## ")[1:]]


@cache
def _functions(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_code_map_names_modules_and_folders_that_exist():
    paragraphs = [each.strip() for each in _section(ARCHITECTURE, "Code map").split("\n\n") if each.strip()]

    missing = {folder: names for folder, names in map(_missing_in_paragraph, paragraphs) if names}

    assert {} == missing


def test_the_code_map_has_a_paragraph_for_every_package():
    headed = set(re.findall(rf"^{HEADED.pattern}", _section(ARCHITECTURE, "Code map"), re.M))
    halves = {ROOT / "lab", ROOT / "services"}
    tops = {path.parent for path in ROOT.glob("*/__init__.py")} - {*halves, ROOT / "protos", ROOT / "tests"}
    packages = tops | {path.parent for half in halves for path in half.glob("*/__init__.py")} - {ROOT / "lab" / "cli"}

    assert set() == {str(path.relative_to(ROOT)) for path in packages} - headed


@pytest.mark.parametrize(
    "text", [ARCHITECTURE.replace(_section(ARCHITECTURE, "Code map"), ""), JOURNEYS], ids=["map", "journeys"]
)
def test_paths_outside_the_code_map_lead_from_the_root_to_what_exists(text):
    assert [] == _missing_from_root(text)


@pytest.mark.parametrize(("title", "steps"), _journeys(), ids=[title for title, _ in _journeys()])
def test_every_step_of_a_journey_opens_with_the_module_that_acts_and_names_its_functions(title, steps):
    assert steps
    for step in steps:
        modules = [name for name in QUOTED.findall(step) if name.endswith(".py")]
        assert step.startswith(f"`{modules[0]}`"), step
        named = set(FUNCTION.findall(" ".join(QUOTED.findall(step))))
        found = set().union(*(_functions(module) for module in modules))
        assert set() == named - found, f"{title}: {modules}"


def test_a_container_start_is_followed_through_nine_files_or_fewer():
    steps = dict(_journeys())["A container, from admission to Running"]
    modules = {name for step in steps for name in QUOTED.findall(step) if name.endswith(".py")}

    assert len(modules) <= 9
    assert "kubelet/pod/pod.py" in modules


def test_a_made_up_name_is_found():
    assert ("kubelet", ["pod/made_up"]) == _missing_in_paragraph("**kubelet.** `pod/pod`, `Pod`, `pod/made_up`.")
    assert ["kubelet/pods/worker"] == _missing_from_root(
        "`kubelet/pods/worker`, `kubelet/pod/pod.py`, `keplab run a/b`"
    )
