import random

import numpy as np
import pytest

from scheduler.cache.node_info import PodInfo
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.nominated_pods import NominatedPodFilter


@pytest.fixture
def five(cluster, a):
    return cluster().nodes(*(a.node(f"n{i}", cpu="4") for i in range(5)))


def _feasible(found, columns):
    return [name for name, row in columns.slots.items() if found.mask[row]]


def test_a_node_is_taken_away_by_the_pod_that_is_nominated_there(five, a):
    five.queue.nominator.set(PodInfo(a.pod("rival", cpu="3", priority=10)), "n1")

    found = five.runner.filter(CycleState(), PodInfo(a.pod("p", cpu="2")), five.cache.columns, five.queue.nominator)

    assert _feasible(found, five.cache.columns) == ["n0", "n2", "n3", "n4"]


def test_a_nomination_does_not_stand_in_the_way_of_its_own_pod(five, a):
    rivals = [PodInfo(a.pod(f"rival{i}", cpu="3", priority=10)) for i in range(5)]
    for number, rival in enumerate(rivals):
        five.queue.nominator.set(rival, f"n{number}")
    five.runner.filter(CycleState(), rivals[3], five.cache.columns, five.queue.nominator)

    found = five.runner.filter(CycleState(), rivals[1], five.cache.columns, five.queue.nominator)

    assert _feasible(found, five.cache.columns) == ["n1"]


def test_the_message_counts_the_nodes_that_nominations_take_away(five, a):
    for number in range(5):
        five.queue.nominator.set(PodInfo(a.pod(f"rival{number}", cpu="3", priority=10)), f"n{number}")

    error = five.refuse(a.pod("p", cpu="2", priority=10))

    assert "5 Insufficient cpu" in error.message


def test_remembered_answers_are_those_that_asking_anew_gives(cluster, a):
    world = cluster().nodes(*(a.node(f"n{i}", cpu="8") for i in range(12)))
    chance, nominator, columns = random.Random(4), world.queue.nominator, world.cache.columns
    running = []
    for step in range(300):
        node = f"n{chance.randrange(12)}"
        match chance.randrange(4):
            case 0:
                running.append(a.pod(f"r{step}", cpu=str(chance.randrange(1, 4)), node=node))
                world.pods(running[-1])
            case 1 if running:
                world.handlers.on_pod(running.pop(chance.randrange(len(running))), None, 0.0)
            case 2:
                pod = a.pod(
                    f"rival{chance.randrange(9)}", cpu=str(chance.randrange(1, 5)), priority=chance.randrange(3)
                )
                nominator.set(PodInfo(pod), node)
            case 3:
                nominator.remove(f"rival{chance.randrange(9)}")
        pod = a.pod(f"rival{chance.randrange(12)}", cpu="3", priority=1)
        found = world.runner.filter(CycleState(), PodInfo(pod), columns, nominator)

        remembering, world.runner._nominated_filter = (
            world.runner._nominated_filter,
            NominatedPodFilter(world.runner._filter_with_nominated),
        )
        anew = world.runner.filter(CycleState(), PodInfo(pod), columns, nominator)
        world.runner._nominated_filter = remembering
        assert np.array_equal(found.mask, anew.mask), step
