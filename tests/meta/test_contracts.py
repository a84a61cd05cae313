"""The contract "only shells reach the world" notices what it is there to notice."""

import grimp
import pytest

from tests.architecture.contracts import OnlyShells


@pytest.fixture
def graph():
    """A core that imports a value, a shell that waits."""
    made = grimp.ImportGraph()
    made.add_module("asyncio", is_squashed=True)
    for name in ("house", "house.core", "house.value", "house.shell"):
        made.add_module(name)
    made.add_import(importer="house.core", imported="house.value")
    made.add_import(importer="house.shell", imported="asyncio")
    return made


def check(graph, shells=("house.shell",), waived=()):
    contract = OnlyShells(
        "shells",
        session_options={},
        contract_options={"world": ["asyncio"], "shells": list(shells), "ignore_imports": list(waived)},
    )
    return contract.check(graph, verbose=False)


def test_a_tree_whose_only_way_out_is_a_shell_keeps_the_contract(graph):
    assert check(graph).kept


def test_a_core_that_imports_a_shell_reaches_the_world_by_two_steps(graph):
    graph.add_import(importer="house.value", imported="house.shell")

    found = check(graph)

    assert not found.kept
    assert ("house.core", "house.value", "house.shell", "asyncio") == found.metadata["how"]["house.core"]


def test_a_shell_that_reaches_nothing_is_reported(graph):
    assert ["house.core"] == check(graph, ("house.shell", "house.core")).metadata["idle"]


def test_an_import_that_is_waived_by_name_does_not_count(graph):
    graph.add_import(importer="house.core", imported="asyncio")

    assert check(graph, waived=("house.core -> asyncio",)).kept
