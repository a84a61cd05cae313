"""The structure holds: chains of imports, folders, inheritance, and what the formatter may not touch.

A ceiling goes down, never up. What a reader can keep in mind is about 20 modules over all and 12 within a component.
"""

import pytest

from tests.architecture.structure import COMPONENTS, REGISTERS, measure

CHAIN_MAX, INHERITANCE_MAX, FMT_SKIPS_MAX = 20, 2, 50
WITHIN_MAX = {
    "apiserver_fake": 11,
    "scheduler": 12,
    "kubelet": 12,
    "services.controllers": 6,
    "lab.scenarios": 9,
    "claim_controller": 5,
}


@pytest.fixture(scope="module")
def structure():
    return measure()


def test_the_longest_chain_of_imports_can_be_kept_in_mind(structure):
    assert len(structure.chain) <= CHAIN_MAX, " > ".join(structure.chain)


@pytest.mark.parametrize("component", COMPONENTS)
def test_within_a_component_the_longest_chain_is_shorter(structure, component):
    chain = structure.chains[component]

    assert len(chain) <= WITHIN_MAX[component], " > ".join(chain)


def test_our_own_classes_inherit_over_two_steps_at_most(structure):
    assert len(structure.inheritance) - 1 <= INHERITANCE_MAX, structure.inheritance


def test_a_folder_that_is_no_register_has_25_modules_at_most(structure):
    assert {} == structure.full_folders, f"registers are {', '.join(REGISTERS)}"


def test_the_formatter_is_switched_off_for_tables_only(structure):
    assert structure.fmt_skips <= FMT_SKIPS_MAX
