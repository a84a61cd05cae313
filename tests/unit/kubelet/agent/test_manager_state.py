"""A host refuses to start nodes whose static policies do not go with what their pods have."""

import pytest

from kubelet.agent.manager_state import restore_state
from kubelet.managers.allocation import Allocation, Block

RESERVED = [{"numaNode": 0, "limits": {"memory": "1Gi"}}]
STATIC = {"cpu": "8", "cpuPolicy": "static"}
FOUR = Allocation(cpus=(0, 1, 2, 3))


@pytest.fixture
def after(a_node):
    """What becomes of a host with this state when its node is defined otherwise."""

    def restart(before, changes, held=()):
        state = restore_state(None, [a_node(**before)], {})
        return restore_state(state, [a_node(**before | changes)], {"n1": held})

    return restart


def test_a_host_without_static_policies_remembers_nothing(a_node):
    assert restore_state(None, [a_node()], {"n1": [Allocation()]}) == b""


def test_what_did_not_change_is_written_as_it_was(after, a_node):
    assert after(STATIC, {}, [FOUR]) == restore_state(None, [a_node(**STATIC)], {})


def test_kubelet_5_4_a_changed_cpu_policy_is_refused_with_both_names(after):
    with pytest.raises(ValueError, match="could not restore state") as refused:
        after(STATIC, {"cpuPolicy": "none"})

    assert str(refused.value) == (
        'node n1: could not restore state from checkpoint: configured policy "none" differs from state checkpoint '
        'policy "static", please drain this node and delete the CPU manager checkpoint file "managers.state" before '
        "restarting Kubelet"
    )


def test_kubelet_5_4_a_node_whose_pods_share_may_not_become_static_while_they_run(a_node):
    with pytest.raises(ValueError, match='configured policy "static" differs from state checkpoint policy "none"'):
        restore_state(None, [a_node(**STATIC)], {"n1": [Allocation()]})

    assert restore_state(None, [a_node(**STATIC)], {}) != b""


def test_kubelet_5_4_a_changed_memory_policy_is_refused_with_both_names(after):
    old = {"memoryPolicy": "Static", "reservedMemory": RESERVED}

    with pytest.raises(ValueError, match=r'\[memorymanager\] configured policy "None" differs from .* "Static"'):
        after(old, {"memoryPolicy": "None"}, [Allocation(memory=(Block((0,), "memory", 5),))])


@pytest.mark.parametrize(
    ("before", "changes", "message"),
    [
        (STATIC, {"reservedCpus": 2}, 'not all reserved cpus: "0-1" are present in defaultCpuSet: "4-7"'),
        (STATIC, {"cpu": "6"}, 'current set of available CPUs "0-5" doesn.t match with CPUs in state "0-7"'),
        (STATIC | {"reservedSystemCpus": "7"}, {"cpuOptions": {"strict-cpu-reservation": "true"}},
         'some of strictly reserved cpus: "7" are present in defaultCpuSet: "4-7"'),
        (STATIC | {"memoryPolicy": "Static", "reservedMemory": RESERVED}, {"memory": "16Gi"},
         "the expected machine state .*16106127360.* is different from the real one .*33285996544"),
    ],
)  # fmt: skip
def test_a_machine_or_reservation_that_changed_is_refused_with_both_values(after, before, changes, message):
    with pytest.raises(ValueError, match=message):
        after(before, changes, [FOUR])


def test_a_node_that_is_away_is_not_forgotten(a_node):
    state = restore_state(None, [a_node(**STATIC)], {})

    assert restore_state(state, [a_node(name="n2")], {}) == state


@pytest.mark.parametrize(("data", "lost"), [(b"{", ()), (None, ("n1",))])
def test_guarantees_fm_k5_a_state_that_is_lost_is_made_anew_from_what_the_pods_have(a_node, data, lost):
    assert restore_state(data, [a_node(**STATIC)], {"n1": [FOUR]}, lost=lost) == restore_state(
        None, [a_node(**STATIC)], {}
    )
