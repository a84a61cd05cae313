"""A mesh in containers for all tests of a file, from image to `down -v`."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from engine import Engine, NotHereError
from mesh_in_containers import DISTRIBUTED, STRICT, Mesh

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


@pytest.fixture(scope="module")
def mesh(engine, tmp_path_factory):
    yield from started(engine, tmp_path_factory.mktemp("compose"))


@pytest.fixture(scope="module")
def distributed(engine, tmp_path_factory):
    """The mesh over an etcd of three members, with two API servers."""
    yield from started(engine, tmp_path_factory.mktemp("distributed"), DISTRIBUTED, "deploy/distributed.env")


@pytest.fixture(scope="module")
def strict(engine, tmp_path_factory):
    """The mesh with mutual TLS on every gRPC connection."""
    yield from started(engine, tmp_path_factory.mktemp("strict"), STRICT, KEPLAB_SECURITY="strict")


def started(*words, **environ):
    try:
        found = Mesh(*words, **environ)
    except NotHereError as error:
        skip(error)
    found.compose("build")
    try:
        found.up()
        yield found
    finally:
        if os.environ.get("KEPLAB_KEEP") != "1":
            found.compose("down", "-v", "--remove-orphans", check=False)
