"""The wheel alone is enough: installed, it knows its version, has the scenarios, and makes skeletons, from any folder."""

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(400)
PACKED = ("apiserver_fake", "claim_controller", "experiments", "kubelet", "lab", "protos", "scheduler", "services")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An environment of its own with the wheel, built from a copy of the tree; its libraries are those of the tests."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("out")
    for name in PACKED:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, tree / name)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    alone = ("--no-deps", "--no-index")
    built = (*pip, "wheel", *alone, "--no-build-isolation", "-w", str(out), ".")
    subprocess.run(built, cwd=tree, check=True, timeout=100)
    venv.create(out / "fresh", symlinks=True)
    (site,) = (out / "fresh").glob("lib/python3*/site-packages")
    # A line that names a folder adds it, and not what its own .pth files add: keplab is what the wheel brings.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (wheel,) = out.glob("keplab-*.whl")
    wanted = (*pip, "--python", str(out / "fresh" / "bin" / "python"), "install", *alone, "--no-compile", str(wheel))
    subprocess.run(wanted, check=True, timeout=100)
    return out / "fresh" / "bin" / "keplab", site


@pytest.fixture
def keplab(installed, tmp_path):
    def go(*words):
        environ = {"PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [installed[0], *words], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return go


def test_a_wheel_knows_its_version_and_runs_shipped_scenarios_by_name(installed, keplab):
    assert keplab("--version") == "keplab, version 0.1.0\n"
    listed = json.loads(keplab("scenarios", "-o", "json"))
    assert len(listed) == len(list((ROOT / "experiments").rglob("*.txt")))
    assert all(each["file"].startswith(str(installed[1] / "lab" / "shipped")) for each in listed)
    (result,) = json.loads(keplab("run", "a-pods-first-life", "-o", "json"))
    assert result["passed"]


def test_a_wheel_has_the_whole_page(installed):
    files = {path.relative_to(ROOT) for path in (ROOT / "lab" / "ui" / "static").rglob("*") if path.is_file()}

    assert files
    assert {path for path in files if not (installed[1] / path).is_file()} == set()


def test_a_wheel_has_the_examples_of_verbs(keplab):
    (pod,) = json.loads(keplab("verbs", "pod", "-o", "json"))["verbs"]

    assert len(pod["examples"]) == 3


def test_a_wheel_makes_skeletons(keplab, tmp_path):
    keplab("new", "plugin", "headcount")

    assert (tmp_path / "headcount" / "keplab_headcount.py").exists()
