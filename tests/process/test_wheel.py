"""The wheel alone is enough: unpacked anywhere, it knows its version, has the scenarios, and makes skeletons."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(400)
PACKED = (
    "apiserver_fake",
    "benchmarks",
    "claim_controller",
    "experiments",
    "kubelet",
    "protos",
    "scheduler",
    "services",
)
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The wheel, built from a copy of the tree, unpacked."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("out")
    for name in PACKED:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, tree / name)
    how = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-q")
    subprocess.run([sys.executable, "-m", "pip", "wheel", *how, "-w", str(out), "."], cwd=tree, check=True, timeout=100)
    zipfile.ZipFile(next(out.glob("keplab-*.whl"))).extractall(out / "site")
    return out / "site"


@pytest.fixture
def keplab(site, tmp_path):
    def go(*words):
        command = [sys.executable, "-m", "services.cli", *words]
        environ = {"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return go


def test_a_wheel_knows_its_version_and_runs_shipped_scenarios_by_name(site, keplab):
    assert keplab("--version") == "keplab, version 0.1.0\n"
    listed = json.loads(keplab("scenarios", "-o", "json"))
    assert len(listed) == len(list((ROOT / "experiments").rglob("*.txt")))
    assert all(each["file"].startswith(str(site / "services" / "shipped")) for each in listed)
    (result,) = json.loads(keplab("run", "a-pods-first-life", "-o", "json"))
    assert result["passed"]


def test_a_wheel_has_the_whole_page(site):
    files = {path.relative_to(ROOT) for path in (ROOT / "services" / "ui" / "static").rglob("*") if path.is_file()}

    assert files
    assert {path for path in files if not (site / path).is_file()} == set()


def test_a_wheel_makes_skeletons(keplab, tmp_path):
    keplab("new", "plugin", "headcount")

    assert (tmp_path / "headcount" / "keplab_headcount.py").exists()
