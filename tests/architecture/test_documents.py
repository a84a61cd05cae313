"""What ARCHITECTURE.md, the reading order, the journeys and the pages of folders name exists; in a journey every function.

A name is what stands in backticks, and a path when it has a slash. `.py` may be left out, `*` stands for any name. What is not made of
lower-case letters, digits, `_`, `.`, `/` and `*` alone is a class, a constant, a field or a command.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
READING = (ROOT / "docs" / "explanation" / "reading.md").read_text()
PAGES = sorted(
    str(path.parent.relative_to(ROOT))
    for top in ROOT.glob("*/__init__.py")
    if top.parent.name != "tests"
    for path in top.parent.rglob("README.md")
)
PAGE_LINES_MAX = 25
JOURNEYS = (ROOT / "docs" / "explanation" / "journeys.md").read_text()
QUOTED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[a-z0-9_*][a-z0-9_*./]*")
FUNCTION = re.compile(r"(\w+)\(\)")
STEP = re.compile(r"^\d+\. ", re.M)


def _exists(folder, name):
    return any(any(folder.glob(pattern)) for pattern in (name.rstrip("/"), f"{name}.py") if pattern)


def _section(text, title):
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def _missing_from_root(text):
    return [n for n in QUOTED.findall(text) if "/" in n and PATH.fullmatch(n) and not _exists(ROOT, n)]


def _journeys():
    return [(part.partition("\n")[0], STEP.split(part)[1:]) for part in JOURNEYS.split("\n## ")[1:]]


@cache
def _functions(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("text", [ARCHITECTURE, JOURNEYS, READING], ids=["architecture", "journeys", "reading"])
def test_paths_lead_from_the_root_to_what_exists(text):
    assert [] == _missing_from_root(text)


def test_the_architecture_can_be_read_in_a_sitting():
    assert len(ARCHITECTURE.split()) <= 1200


def test_the_architecture_names_every_folder_that_is_a_package():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}

    assert set() == {name for name in packages if f"{name}/" not in ARCHITECTURE}


@pytest.mark.parametrize("folder", PAGES)
def test_a_page_says_what_to_read_what_never_happens_and_what_tests_it(folder):
    text = (ROOT / folder / "README.md").read_text()
    first, never, test = (_section(text, title) for title in ("Read first", "It may not", "Test it"))

    read = re.findall(r"^\d\. `([^`]+)`: \S", first, re.M)
    assert len(read) == 3
    assert [] == [name for name in read if not (ROOT / folder / name).exists()]
    assert len(re.findall(r"^\* \S", never, re.M)) >= 2
    named = re.findall(r"\b(?:tests|experiments)/[\w/.]+", test)
    assert named
    assert [] == [name for name in named if not (ROOT / name).exists()]
    assert len(text.splitlines()) <= PAGE_LINES_MAX


def test_every_package_at_the_top_and_each_large_subject_has_a_page():
    tops = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"protos", "tests"}
    named = set(re.findall(r"\]\(([a-z_/]+)/README\.md\)", ARCHITECTURE))

    assert tops | named <= set(PAGES)


@pytest.mark.parametrize("part", READING.split("\n## ")[1:], ids=lambda part: part.partition("\n")[0])
def test_a_reading_order_is_twelve_files_that_an_evening_is_enough_for(part):
    steps = re.findall(r"^(\d+)\. `([^`]+)`: \S", part, re.M)

    assert [int(number) for number, _ in steps] == list(range(1, 13))
    assert len({name for _, name in steps}) == 12
    assert 3000 <= sum(len((ROOT / name).read_text().splitlines()) for _, name in steps) <= 4500


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
    assert ["kubelet/pods/worker"] == _missing_from_root(
        "`kubelet/pods/worker`, `kubelet/pod/pod.py`, `keplab run a/b`"
    )
