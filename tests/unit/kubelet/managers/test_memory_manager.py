"""The static memory policy: NUMA nodes of memory and huge pages, groups of them, reservations and reuse."""

import pytest

from kubelet.admission.predicates import Ledger, NodeFacts
from kubelet.managers.allocation import Block, Rejection
from kubelet.managers.memory_manager import MemoryManager, Reusable
from kubelet.managers.resource_managers import ResourceManagers
from kubelet.managers.topology import Hint
from kubelet.resize.allocation import Infeasible, NodeRules, judge
from kubelet.runtime.resources import resources_of

GI = 2**30
PAGES = "hugepages-1Gi"


def a_manager(*gib, pages=0):
    kinds = {PAGES: pages * GI} if pages else {}
    return MemoryManager([{"memory": size * GI, **kinds} for size in gib])


def ask(gib, pages=0):
    return {PAGES: pages * GI, "memory": gib * GI} if pages else {"memory": gib * GI}


def masks_of(manager, gib, pages=0):
    return {(hint.mask, hint.is_preferred) for hint in manager.hints(ask(gib, pages), Reusable()).get("memory", [])}


NOWHERE = Hint(None, False)


# --- hints and groups ---


def test_every_set_with_enough_free_memory_is_a_hint_and_the_smallest_is_preferred():
    assert masks_of(a_manager(4, 4), 3) == {(0b01, True), (0b10, True), (0b11, False)}
    assert masks_of(a_manager(4, 4), 6) == {(0b11, True)}


def test_memory_and_huge_pages_come_from_the_same_numa_nodes():
    manager = MemoryManager([{"memory": 8 * GI, PAGES: 0}, {"memory": 8 * GI, PAGES: 2 * GI}])

    hints = manager.hints(ask(4, pages=2), Reusable())

    assert hints["memory"] == hints[PAGES] == [Hint(0b10, True), Hint(0b11, False)]
    assert manager.allocate(ask(4, pages=2), NOWHERE, Reusable()) == (
        Block((1,), PAGES, 2 * GI), Block((1,), "memory", 4 * GI),
    )  # fmt: skip


def test_kubelet_5_4_a_numa_node_that_serves_alone_is_in_no_group_and_a_grouped_one_serves_no_pod_alone():
    single, group = a_manager(4, 4, 4), a_manager(4, 4, 4)
    single.allocate(ask(1), Hint(0b001, True), Reusable())
    group.allocate(ask(6), Hint(0b011, True), Reusable())

    assert masks_of(single, 6) == {(0b110, True)}
    assert masks_of(group, 1) == {(0b100, True), (0b011, False)}


def test_a_group_is_free_again_when_its_last_container_has_gone():
    manager = a_manager(4, 4)
    first = manager.allocate(ask(5), NOWHERE, Reusable())
    second = manager.allocate(ask(2), NOWHERE, Reusable())

    manager.release(first)
    assert masks_of(manager, 1) == {(0b11, False)}
    manager.release(second)
    assert masks_of(manager, 1) == {(0b01, True), (0b10, True), (0b11, False)}
    assert manager.free == manager.allocatable


def test_a_merged_hint_that_is_too_small_is_widened():
    manager = a_manager(4, 4)

    assert manager.allocate(ask(6), Hint(0b01, False), Reusable())[0].numas == (0, 1)


@pytest.mark.parametrize(
    ("gib", "hint", "message"),
    [
        (9, NOWHERE, "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"),
        (9, Hint(0b11, True), "failed to find NUMA nodes to extend the current topology hint"),
        (3, Hint(0b11, True), "preferred hint violates NUMA node allocation"),
        (4, Hint(None, True), "failed to find the default preferred hint"),
    ],
)
def test_what_cannot_be_allocated_says_why_in_upstream_s_words(gib, hint, message):
    manager = a_manager(4, 4)
    if "violates" in message:
        manager.allocate(ask(1), Hint(0b01, True), Reusable())
    if "default preferred" in message:
        manager.allocate(ask(6), NOWHERE, Reusable())
        manager.free[0]["memory"] = manager.free[1]["memory"] = 2 * GI

    assert manager.allocate(ask(gib), hint, Reusable()) == f"[memorymanager] {message}"


def test_a_checkpoint_is_taken_as_it_was():
    before, after = a_manager(4, 4, pages=2), a_manager(4, 4, pages=2)
    blocks = before.allocate(ask(6, pages=2), NOWHERE, Reusable())

    after.take(blocks)

    assert (after.free, after.groups) == (before.free, before.groups)


# --- pods ---


def a_static_node(a_node, **fields):
    reserved = [{"numaNode": 0, "limits": {"memory": "1Gi"}}]
    return a_node(**{"numa": "2x8", "memory": "18Gi", "memoryPolicy": "Static", "reservedMemory": reserved} | fields)


def test_reserved_memory_is_kept_from_its_numa_node_and_from_what_the_node_offers(a_node):
    node = a_static_node(a_node, hugepages={"hugepages-2Mi": "6Mi"})

    assert node.capacity()["memory"] == "18Gi"
    assert node.capacity()["hugepages-2Mi"] == node.allocatable()["hugepages-2Mi"] == "6Mi"
    assert node.allocatable()["memory"] == f"{17 * 1024 - 6}Mi"
    pages = 2 * 2**20
    assert node.memory_by_numa().allocatable == (
        {"memory": 8 * GI - 2 * pages, "hugepages-2Mi": 2 * pages}, {"memory": 9 * GI - pages, "hugepages-2Mi": pages},
    )  # fmt: skip


def test_only_guaranteed_pods_have_memory_of_their_own(a_node, guaranteed, a_pod):
    managers = ResourceManagers(a_static_node(a_node))

    assert managers.admit(guaranteed("a", "500m")).memory == (Block((0,), "memory", GI),)
    assert managers.admit(a_pod("b", cpu="1", memory="1Gi", limits=False)).memory == ()


def sized(name, memory, **more):
    amounts = {"cpu": "1", "memory": memory}
    return {"name": name, "resources": {"requests": amounts, "limits": amounts}, **more}


def test_a_main_container_has_the_memory_of_a_plain_init_container_and_a_sidecar_keeps_its_own(a_node, a_pod):
    init = [sized("side", "2Gi", restartPolicy="Always"), sized("i", "4Gi")]
    pod = a_pod(containers=[sized("c", "3Gi")], spec={"initContainers": init})
    managers = ResourceManagers(a_static_node(a_node))

    outcome = managers.admit(pod)

    assert sum(block.size for block in outcome.memory) == 6 * GI
    assert managers.memory.free[0]["memory"] == 2 * GI
    managers.release(outcome)
    assert managers.memory.free == managers.memory.allocatable


def test_single_numa_node_wants_cpus_and_memory_on_the_same_node(a_node, a_pod):
    node = a_static_node(a_node, topologyPolicy="single-numa-node")
    managers = ResourceManagers(node)
    big, small = a_pod("big", containers=[sized("c", "7Gi")]), a_pod("small", containers=[sized("c", "2Gi")])

    assert managers.admit(big).memory[0].numas == (0,)
    outcome = managers.admit(small)
    assert (outcome.cpus, outcome.memory[0].numas) == ((8,), (1,))
    rejected = managers.admit(a_pod("next", containers=[sized("c", "8Gi")]))
    assert rejected.reason == "UnexpectedAdmissionError"


def test_memory_that_no_numa_node_has_is_an_unexpected_admission_error(a_node, a_pod):
    managers = ResourceManagers(a_static_node(a_node))

    assert managers.admit(a_pod(containers=[sized("c", "18Gi")])) == Rejection(
        "UnexpectedAdmissionError",
        "Allocate failed due to [memorymanager] failed to get the default NUMA affinity, "
        "no NUMA nodes with enough memory is available, which is unexpected",
    )


# --- what is refused ---


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"memoryPolicy": "Static"}, "memoryPolicy: Static, .*you should specify the system reserved memory"),
        ({"memoryPolicy": "static"}, "memoryPolicy"),
        ({"reservedMemory": [{"numaNode": 2, "limits": {"memory": "1Gi"}}]}, "references a NUMA node 2 .* it has 1"),
        ({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "64Gi"}}]}, "reservations take"),
        ({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}], "kubeReserved": {"memory": "500Mi"},
          "eviction": {"hard": {"memory.available": "100Mi"}}},
         'the total amount "1Gi" of type "memory" is not equal to the value "600Mi" determined by Node Allocatable'),
        ({"reservedMemory": [{"numaNode": 0, "limits": {PAGES: "1Gi"}}]}, "NUMA node 0 has no hugepages-1Gi"),
        ({"hugepages": {"hugepages-2Mi": "3Mi"}}, "hugepages: 3Mi of hugepages-2Mi is 3145728 bytes"),
        ({"hugepages": {"2Mi": "4Mi"}}, "hugepages: '2Mi': want for example hugepages-2Mi"),
        ({"numa": [{"cpus": 4, "memory": "20Gi"}, {"cpus": 4, "memory": "20Gi"}]}, "its NUMA nodes have 42949672960"),
    ],
)  # fmt: skip
def test_memory_that_does_not_add_up_is_refused_with_both_values(a_node, fields, named):
    with pytest.raises(ValueError, match="node n1: .*" + named):
        a_node(**fields)


# --- resizes (KEP-1287) ---


def test_kep_1287_memory_of_guaranteed_pods_is_not_resized_under_the_static_policy(guaranteed, a_pod):
    ledger = Ledger({"cpu": "8", "memory": "8Gi", "pods": "10"})
    facts, rules = NodeFacts("n1", {}), NodeRules(has_static_memory=True)
    before = a_pod(cpu="1", memory="1Gi")

    def resized(cpu, memory):
        return judge(a_pod(cpu=cpu, memory=memory), resources_of(before), ledger, facts, rules)

    assert resized("1", "2Gi") == Infeasible(
        'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"',
        "guaranteed_pod_memory_manager_static_policy",
    )
    assert not isinstance(resized("2", "1Gi"), Infeasible)
