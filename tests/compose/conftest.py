"""One mesh in containers for all tests of this folder, from image to `down -v`."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from engine import Engine, NotHereError
from mesh_in_containers import Mesh

missing: list[str] = []


def skip(error):
    missing[:] = [str(error)]
    pytest.skip(str(error))


def pytest_terminal_summary(terminalreporter):
    """Say once, not for every test, why there was nothing to do."""
    for line in missing:
        terminalreporter.write_line(f"compose tests skipped: {line}")


@pytest.fixture(scope="session")
def engine():
    try:
        return Engine()
    except NotHereError as error:
        skip(error)


@pytest.fixture(scope="session")
def mesh(engine, tmp_path_factory):
    try:
        found = Mesh(engine, tmp_path_factory.mktemp("compose"))
    except NotHereError as error:
        skip(error)
    found.compose("build")
    try:
        found.up()
        yield found
    finally:
        if os.environ.get("KEPLAB_KEEP") != "1":
            found.compose("down", "-v", "--remove-orphans", check=False)
