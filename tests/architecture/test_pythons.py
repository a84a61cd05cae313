"""Which Pythons the package names, and on which of those that a machine has `make test` runs a share of the tests."""

import os
import stat
import sys
from pathlib import Path

import pytest
import yaml

from lab.cli.commands.doctor import PYTHON_MIN, PYTHON_TRIED
from tests.pythons import SHARE, find, named, others

ROOT = Path(__file__).parents[2]
NAMED = named((ROOT / "pyproject.toml").read_text())


@pytest.fixture
def machine(tmp_path):
    """A machine with so many Pythons, whose answers to the probe are given; returns its environment."""

    def go(*, pyenv=(), **answers):
        for name, answer in {**answers, **dict.fromkeys(pyenv, "")}.items():
            version = name.replace("_", ".")
            folder = tmp_path / ("bin" if name in answers else f".pyenv/versions/{version}.1/bin")
            folder.mkdir(parents=True, exist_ok=True)
            said = answer or f"echo {version.replace('.', ' ')} cpython final False"
            python = folder / f"python{version}"
            python.write_text(f"#!/bin/sh\n{said}\n")
            python.chmod(python.stat().st_mode | stat.S_IXUSR)
        return {"PATH": f"{tmp_path}/nothing{os.pathsep}{tmp_path}/bin", "HOME": str(tmp_path)}

    return go


def test_the_package_the_doctor_and_the_workflow_name_the_same_pythons():
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    ends = [f"{major}.{minor}" for major, minor in (PYTHON_MIN, PYTHON_TRIED)]

    assert [(3, minor) for minor in range(PYTHON_MIN[1], PYTHON_TRIED[1] + 1)] == NAMED
    assert ends == workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert f"Python {ends[0]} to {ends[1]}" in (ROOT / "docs/how-to/install.md").read_text()


def test_the_share_is_of_tests_that_there_are():
    assert [] == [word for word in SHARE if word.startswith("tests/") and not (ROOT / word).exists()]


def test_the_oldest_and_the_newest_beside_the_own_are_found(machine, tmp_path):
    environ = machine(**{"3_10": "", "3_11": "", "3_12": "", "3_13": ""}, pyenv=["3.14", "3.15"])
    pyenv = tmp_path / ".pyenv/versions/3.14.1/bin/python3.14"

    assert {(3, 11): tmp_path / "bin/python3.11", (3, 14): pyenv} == others((3, 13), NAMED, environ)
    assert {(3, 14): pyenv} == others((3, 11), NAMED, environ)
    assert {(3, 11): tmp_path / "bin/python3.11"} == others((3, 14), NAMED, environ)


@pytest.mark.parametrize(
    "answer",
    [
        "echo 'pyenv: python3.14: command not found' >&2; exit 127",
        "echo 3 14 pypy final False",
        "echo 3 14 cpython candidate False",
        "echo 3 14 cpython final True",
        "echo 3 13 cpython final False",
    ],
)
def test_what_is_no_cpython_of_that_version_is_passed_over(machine, capsys, answer):
    environ = machine(**{"3_11": "", "3_13": "", "3_14": answer})

    assert [(3, 13)] == list(others((3, 11), NAMED, environ))
    assert "" == capsys.readouterr().err


def test_a_python_that_makes_no_environments_is_named_with_its_reason(machine, capsys, tmp_path):
    lacks = "echo 3 14 cpython final False; echo \"ModuleNotFoundError: No module named 'ensurepip'\" >&2; exit 1"
    environ = machine(**{"3_14": lacks})

    assert {} == others((3, 11), NAMED, environ)
    expected = f"{tmp_path}/bin/python3.14 makes no environment: ModuleNotFoundError: No module named 'ensurepip'\n"
    assert expected == capsys.readouterr().err


def test_the_python_that_runs_this_is_one_by_its_probe(tmp_path):
    version = sys.version_info[:2]
    (tmp_path / f"python{version[0]}.{version[1]}").symlink_to(sys.executable)

    assert find(version, {"PATH": str(tmp_path)}) is not None
