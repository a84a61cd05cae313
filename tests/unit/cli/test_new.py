"""`keplab new` makes files whose own tests pass and that the linter leaves alone, and never overwrites one."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cli.__main__ import run

ROOT = Path(__file__).parents[3]
BARE = ("lab", "services", "scheduler", "kubelet", "apiserver_fake", "claim_controller", "protos")
TESTS = (
    "conftest.py",
    "forking.py",
    "unit/scheduler/conftest.py",
    "unit/controllers/conftest.py",
    "component/controllers/conftest.py",
)


@pytest.fixture
def new(capsys):
    """Run `keplab new`; returns its exit code, the files it made and what it said on standard error."""

    def go(*words):
        try:
            code = run(["new", *map(str, words), "-o", "json"])
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        return code, json.loads(said.out)["files"] if said.out else [], said.err

    return go


@pytest.fixture
def repository(tmp_path):
    """The repository with no other tests and no experiments."""
    top = tmp_path / "keplab"
    for name in BARE:
        shutil.copytree(ROOT / name, top / name)  # with its bytecode, or each process would compile it anew
    for name in ("pyproject.toml", *(f"tests/{each}" for each in TESTS)):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, top / name)
    for name in ("experiments", "tests/scenarios", "tests/unit/scheduler/plugins", "tests/unit/api"):
        (top / name).mkdir(parents=True, exist_ok=True)
    return top


def called(top, *words, path=""):
    path = f"{top}:{path}" if path else str(top)
    return subprocess.run(
        [sys.executable, *words], cwd=top, env={"PYTHONPATH": path, "PATH": ""}, capture_output=True, text=True
    )


def lint(top, paths, *how):
    """Return what the linter and the formatter find in these files."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    found = ""
    for what in (
        ["check", "--no-cache", *how],
        ["format", "--check", "--no-cache", "--line-length", "120", "--isolated"],
    ):
        done = subprocess.run([ruff, *what, *paths], cwd=top, capture_output=True, text=True)
        found += done.stdout if done.returncode else ""
    return found


def test_what_is_made_in_the_repository_passes_its_own_tests(new, repository):
    made = []
    for what in (
        ("experiment", "spread-or-pack"),
        ("plugin", "headcount"),
        ("controller", "pod-noter"),
        ("kind", "Ration"),
    ):
        code, files, _ = new(*what, "--dir", repository)
        assert code == 0
        made += files
    python = [name for name in made if name.endswith(".py")]
    tests = [name for name in python if "/tests/" in name]

    assert len(tests) == 4
    assert lint(repository, python) == ""
    done = called(repository, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert done.returncode == 0, done.stdout + done.stderr

    # A role without the rule: the API server refuses, and the run says so.
    role = repository / "services/controllers/pod_noter/role.yaml"
    role.write_text(role.read_text().replace("metadata.annotations", "metadata.labels"))
    done = called(repository, "-m", "lab.cli", "run", "experiments/headcount/headcount.txt")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "times: system:controller:pod-noter patch pods\n" in done.stdout


def test_what_is_made_elsewhere_passes_its_own_tests(new, tmp_path):
    made = [*new("experiment", "SpreadOrPack", "--dir", tmp_path)[1], *new("plugin", "headcount", "--dir", tmp_path)[1]]
    package = tmp_path / "headcount"
    offered = package / "headcount-0.1.0.dist-info"  # as `pip install -e .` would
    offered.mkdir()
    (offered / "METADATA").write_text("Metadata-Version: 2.1\nName: headcount\nVersion: 0.1.0\n")
    (offered / "entry_points.txt").write_text("[keplab.scheduler.plugins]\nHeadcount = keplab_headcount:PLUGIN\n")

    assert 'name = "headcount"' in (package / "pyproject.toml").read_text()
    for folder in (package, tmp_path / "spread-or-pack"):
        names = [name for name in made if name.endswith(".py") and name.startswith(str(folder))]
        assert lint(folder, names, "--isolated", "--select", "E,F,I,B,UP", "--line-length", "120") == ""
    done = called(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path), path=str(ROOT))
    assert "skipped" not in done.stdout
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_is_overwritten(new, tmp_path):
    kept = tmp_path / "headcount" / "headcount.txt"
    kept.parent.mkdir()
    kept.write_text("mine")

    code, files, error = new("plugin", "headcount", "--dir", tmp_path)

    assert (code, files, kept.read_text()) == (2, [], "mine")
    assert error == f"keplab: nothing was written: {kept} exists\n"
    assert [kept] == [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["", "Über", "a b", "../a", "a_b", "-a", "a-", "class", "match", "1st", "a" * 41])
def test_a_name_that_no_module_can_have_is_refused(new, tmp_path, name):
    code, files, _ = new("experiment", "--dir", tmp_path, "--", name)

    assert (code, files, list(tmp_path.iterdir())) == (2, [], [])


@pytest.mark.parametrize(
    ("what", "instead"), [("controller", "examples/train-job"), ("kind", "CustomResourceDefinition")]
)
def test_what_the_repository_alone_can_have_is_refused_elsewhere_with_another_way(new, tmp_path, what, instead):
    code, files, error = new(what, "a-name", "--dir", tmp_path)

    assert (code, files) == (2, [])
    assert instead in error
