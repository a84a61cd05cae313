"""A seed's schedule of faults: what may befall whom, for how long, and that each seed has its own."""

import random

import pytest

from lab.chaos.plan import _SITES, EVERYTHING, KINDS, draw
from services.client.link_faults import CUTS, SORTS
from services.runtime.components import component_of

COMPONENTS = ("apiserver", "controllers", "kubelet/h0", "kubelet/h1", "scheduler")
NODES = ("n1", "n2")
HEAL_S = 20.0


@pytest.fixture(scope="module")
def faults():
    """Those of a thousand seeds."""
    return [draw(random.Random(seed), COMPONENTS, HEAL_S, NODES) for seed in range(1000)]


def test_every_seed_has_a_kill_and_its_faults_in_order_of_time(faults):
    for each in faults:
        assert any(fault.kind == "kill" for fault in each)
        assert [fault.at_s for fault in each] == sorted(fault.at_s for fault in each)
        assert 2 <= len(each) <= 17


def test_every_kind_of_fault_happens_and_none_in_all_seeds_but_kills(faults):
    seeds = {kind: sum(any(fault.kind == kind for fault in each) for each in faults) for kind in KINDS}

    assert seeds.pop("kill") == 1000
    assert all(30 < count < 400 for count in seeds.values()), seeds


def test_all_is_healed_in_time_except_what_makes_a_node_seem_dead(faults):
    late = [fault for each in faults for fault in each if fault.at_s + fault.duration_s > HEAL_S + 5.0]

    assert late
    assert all(fault.kind.startswith("node-") and 45.0 <= fault.duration_s <= 75.0 for fault in late)
    assert all(0.0 <= fault.at_s <= HEAL_S for each in faults for fault in each)


def test_each_fault_befalls_what_can_have_it(faults):
    every = [fault for each in faults for fault in each]
    of = {kind: {fault.component for fault in every if fault.kind == kind} for kind in (*KINDS, "corrupt")}

    assert of["kill"] == of["pause"] == of["clock"] == set(COMPONENTS)
    assert of["power"] == {EVERYTHING}
    assert of["disk"] == of["boot"] == of["corrupt"] == {"kubelet/h0", "kubelet/h1"}
    for kind in ("cut", "slow", "delay", "loss", "duplicate"):
        assert of[kind] == set(COMPONENTS) - {"apiserver"}, "the server has no link of its own"
    for kind in ("node-cut", "node-slow", "node-loss", "node-drop"):
        assert of[kind] == {"node/n1", "node/n2"}


def test_the_details_are_those_that_the_mesh_knows(faults):
    details = {}
    for fault in (fault for each in faults for fault in each):
        details.setdefault(fault.kind, set()).add(fault.detail)

    assert details["cut"] == details["node-cut"] == set(CUTS[1:])
    assert details["node-drop"] == set(SORTS)
    assert details["disk"] == {"ENOSPC", "EIO"}
    assert details["clock"] == {"30", "-30", "3600", "-3600"}
    assert {what.split()[0] for what in details["corrupt"]} == {"checkpoint", "runtime"}
    assert all(details[kind] == {""} for kind in ("kill", "pause", "boot", "power", "slow", "delay", "loss"))


def test_more_than_half_of_the_kills_wait_for_a_line_of_their_own_component(faults):
    kills = [fault for each in faults for fault in each if fault.kind == "kill"]
    aimed = [fault for fault in kills if fault.site]

    assert 0.4 < len(aimed) / len(kills) < 0.6  # those that strike again while it recovers wait for nothing
    assert all(fault.site in _SITES[component_of(fault.component)] for fault in aimed)
    assert {fault.count for fault in aimed} == {1, 2, 3, 5, 8, 13}
    assert all(0.0 <= fault.after_s <= 0.003 for fault in aimed)
    assert any(fault.after_s for fault in aimed)
    assert not all(fault.after_s for fault in aimed)


def test_without_kubelets_and_nodes_nothing_befalls_them():
    for seed in range(200):
        for fault in draw(random.Random(seed), ("apiserver", "scheduler"), HEAL_S):
            assert fault.kind not in ("disk", "boot", "corrupt")
            assert not fault.kind.startswith("node-")


def test_equal_seeds_have_equal_faults_and_others_have_others():
    one, same, other = (draw(random.Random(seed), COMPONENTS, HEAL_S, NODES) for seed in (1, 1, 2))

    assert one == same
    assert one != other
