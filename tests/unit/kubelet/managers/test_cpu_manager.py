"""The static CPU policy: real CPU ids, reserved ones, the shared pool, and every option."""

import pytest

from kubelet.managers.allocation import Allocation, Rejection
from kubelet.managers.cpu_manager import CpuManager
from kubelet.managers.cpu_topology import build_topology, format_cpus, parse_cpus
from kubelet.managers.options import CpuOptions
from kubelet.managers.resource_managers import ResourceManagers
from kubelet.managers.topology import Hint

SHORT = "SMT Alignment Error: not enough free physical CPUs: available physical CPUs ="
HT = build_topology([8], threads=2)  # cores 0-3, siblings i and i + 4


def a_manager(machine=HT, *, reserved=0, taken=(), **options):
    manager = CpuManager(machine, options=CpuOptions(**options), reserved=reserved)
    manager.take(taken)
    return manager


# --- ids ---


def test_second_threads_are_numbered_after_all_first_ones_or_beside_them():
    split, adjacent = build_topology([4, 4], threads=2), build_topology([4, 4], threads=2, adjacent=True)

    assert {core: sorted(cpus) for core, cpus in split.cores.items()} == {0: [0, 4], 1: [1, 5], 2: [2, 6], 3: [3, 7]}
    assert sorted(split.numas[1]) == [2, 3, 6, 7]
    assert sorted(adjacent.cores[1]) == [2, 3]
    assert sorted(adjacent.numas[1]) == [4, 5, 6, 7]


def test_numa_nodes_share_sockets_and_cores_share_caches_as_the_definition_says():
    machine = build_topology([8, 8, 8, 8], sockets=2, cores_per_cache=4)
    one_numa = build_topology([8], sockets=2)

    assert [sorted(machine.numas_of(machine.sockets[s])) for s in (0, 1)] == [[0, 1], [2, 3]]
    assert [format_cpus(cpus) for cpus in machine.caches.values()][:3] == ["0-3", "4-7", "8-11"]
    assert [list(ids) for ids in (machine.caches, machine.numas, machine.sockets)] == [
        list(range(count)) for count in (8, 4, 2)
    ]
    assert [format_cpus(cpus) for cpus in one_numa.sockets.values()] == ["0-3", "4-7"]


@pytest.mark.parametrize(("text", "cpus"), [("", ()), ("3", (3,)), ("0-2,8", (0, 1, 2, 8)), ("8,0-2,1", (0, 1, 2, 8))])
def test_lists_of_cpus_are_read_as_linux_writes_them(text, cpus):
    assert parse_cpus(text) == cpus
    assert parse_cpus(format_cpus(cpus)) == cpus


@pytest.mark.parametrize("text", ["a", "3-", "5-2", "-1", "8192", "0-999999999", "0-8191,0-" + "9" * 5_000])
def test_what_is_no_list_of_cpus_is_refused_with_its_text(text):
    with pytest.raises(ValueError, match=text[:80]):
        parse_cpus(text)


# --- reserved CPUs, the shared pool ---


def test_reserved_cpus_are_whole_cores_with_the_lowest_ids_unless_they_are_listed():
    assert a_manager(reserved=2).reserved == {0, 4}
    assert a_manager(reserved=(0, 1)).reserved == {0, 1}


def test_a_shortage_names_both_numbers_and_reserved_cpus_are_never_exclusive():
    manager = a_manager(reserved=6)

    assert manager.allocate(3, None) == "not enough cpus available to satisfy request: requested=3, available=2"
    assert manager.allocate(2, None) == (3, 7)


def test_reserved_cpus_are_shared_unless_their_reservation_is_strict():
    shared, strict = a_manager(reserved=2), a_manager(reserved=2, strict_cpu_reservation=True)

    assert shared.allocate(2, None) == strict.allocate(2, None) == (1, 5)
    assert format_cpus(shared.shared_cpus) == "0,2-4,6-7"
    assert format_cpus(strict.shared_cpus) == "2-3,6-7"


def test_what_is_given_back_is_shared_again():
    manager = a_manager()
    cpus = manager.allocate(3, None)

    manager.release(cpus)

    assert manager.shared_cpus == frozenset(range(8))


# --- hints ---


def test_hints_reckon_what_an_empty_machine_could_with_the_reserved_cpus():
    """Eight CPUs fit one NUMA node of eight, two of them reserved: so only one node is preferred, and has not enough free."""
    manager = CpuManager(build_topology([8, 8]), reserved=2)

    assert manager.hints(8) == [Hint(0b10, True), Hint(0b11, False)]


def test_hints_must_include_the_numa_nodes_of_cpus_that_are_used_again():
    manager = CpuManager(build_topology([4, 4]))
    reusable = frozenset(manager.allocate(2, 0b10))

    assert manager.hints(2, reusable) == [Hint(0b10, True), Hint(0b11, False)]


def test_with_align_by_socket_hints_are_preferred_that_stay_on_as_few_sockets():
    machine = build_topology([4, 4, 4, 4], sockets=2)

    by_numa = [hint.mask for hint in CpuManager(machine).hints(4) if hint.is_preferred]
    by_socket = [hint.mask for hint in a_manager(machine, align_by_socket=True).hints(4) if hint.is_preferred]

    assert by_numa == [0b0001, 0b0010, 0b0100, 0b1000]
    assert by_socket == [0b0001, 0b0010, 0b0100, 0b1000, 0b0011, 0b1100]


def test_with_align_by_socket_the_rest_comes_from_the_same_socket():
    machine = build_topology([4, 4, 4, 4], sockets=2)
    numa = CpuManager(machine)
    socket = a_manager(machine, align_by_socket=True)
    for manager in (numa, socket):
        manager.take((0, 1, 2, 12, 13, 14))

    assert numa.allocate(3, 0b0001) == (3, 4, 5)
    assert socket.allocate(5, 0b0001) == (3, 4, 5, 6, 7)


# --- options ---


def test_distributed_over_numa_nodes_both_give_the_same():
    machine = build_topology([8, 8])

    assert CpuManager(machine).allocate(10, None) == (*range(8), 8, 9)
    assert a_manager(machine, distribute_cpus_across_numa=True).allocate(10, None) == (0, 1, 2, 3, 4, 8, 9, 10, 11, 12)


def test_distributed_over_cores_no_two_threads_of_a_core_are_taken_while_cores_are_left():
    assert a_manager().allocate(3, None) == (0, 1, 4)
    assert a_manager(distribute_cpus_across_cores=True).allocate(3, None) == (0, 1, 2)


def test_aligned_by_uncore_cache_a_container_stays_in_one_where_it_can():
    machine = build_topology([16], cores_per_cache=4)

    assert a_manager(machine, taken=(0, 1)).allocate(4, None) == (2, 3, 4, 5)
    found = a_manager(machine, taken=(0, 1), prefer_align_cpus_by_uncorecache=True).allocate(4, None)
    assert found == (4, 5, 6, 7)


@pytest.mark.parametrize(
    ("reserved", "requested", "message"),
    [
        (0, 3, "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"),
        ((0, 1), 6, f"{SHORT} 4, requested CPUs = 6, CPUs per core = 2"),
        ((0, 1), 4, ""),
    ],
)  # fmt: skip
def test_full_pcpus_only_counts_cores_without_those_of_reserved_cpus(reserved, requested, message):
    assert a_manager(reserved=reserved, full_pcpus_only=True).alignment_error(requested) == message


# --- pods ---


def test_a_sidecar_keeps_its_cpus_and_a_plain_init_container_leaves_them(a_node, a_pod):
    def needs(cpus):
        amounts = {"cpu": cpus, "memory": "1Gi"}
        return {"requests": amounts, "limits": amounts}

    init = [
        {"name": "side", "restartPolicy": "Always", "resources": needs("2")},
        {"name": "i", "resources": needs("4")},
    ]
    pod = a_pod(containers=[{"name": "c", "resources": needs("6")}], spec={"initContainers": init})
    managers = ResourceManagers(a_node(cpu="8", cpuPolicy="static"))

    outcome = managers.admit(pod)

    assert outcome.containers == {"side": (0, 1), "i": (2, 3, 4, 5), "c": (2, 3, 4, 5, 6, 7)}
    managers.release(outcome)
    assert len(managers.cpus.free) == 8


def test_too_few_cpus_for_a_container_are_an_unexpected_admission_error_in_upstream_s_words(a_node, guaranteed):
    managers = ResourceManagers(a_node(cpu="8", reservedCpus=2, cpuPolicy="static"))
    managers.take(Allocation(cpus=(2, 3, 4)))

    assert managers.admit(guaranteed("p", "4")) == Rejection(
        "UnexpectedAdmissionError",
        "Allocate failed due to not enough cpus available to satisfy request: requested=4, available=3, "
        "which is unexpected",
    )


def test_a_pod_with_resources_of_its_own_shares_cpus_and_memory(a_node, guaranteed):
    level = {"requests": {"cpu": "4", "memory": "2Gi"}, "limits": {"cpu": "4", "memory": "2Gi"}}
    reserved = [{"numaNode": 0, "limits": {"memory": "1Gi"}}]
    node = a_node(cpu="8", cpuPolicy="static", memoryPolicy="Static", reservedMemory=reserved)

    assert ResourceManagers(node).admit(guaranteed("p", "2", spec={"resources": level})).is_empty


def test_scope_pod_gives_each_container_whole_cpus_of_its_own_inside_one_node(a_node, guaranteed):
    node = a_node(numa="2x8", topologyPolicy="single-numa-node", topologyScope="pod")
    managers = ResourceManagers(node)
    managers.take(Allocation(cpus=(0, 1, 2)))

    outcome = managers.admit(guaranteed("p", "3", "1500m", "3"))

    assert outcome.containers == {"c0": (8, 9, 10), "c2": (11, 12, 13)}


# --- what is refused ---


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"cpuOptions": {"faster": "true"}}, 'unknown CPU Manager Policy option: "faster"'),
        ({"cpuOptions": {"full-pcpus-only": "yes"}}, 'bad value for option "full-pcpus-only": "yes"'),
        ({"cpuOptions": {"full-pcpus-only": "true", "distribute-cpus-across-cores": "true"}},
         "static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time"),
        ({"cpuOptions": {"distribute-cpus-across-numa": "true", "distribute-cpus-across-cores": "true"}},
         "static policy options distribute-cpus-across-numa and distribute-cpus-across-cores can not be used"),
        ({"cpuOptions": {"prefer-align-cpus-by-uncorecache": "true", "distribute-cpus-across-cores": "true"}},
         "static policy options prefer-align-cpus-by-uncorecache and distribute-cpus-across-cores can not be used"),
        ({"cpuOptions": {"prefer-align-cpus-by-uncorecache": "true", "distribute-cpus-across-numa": "true"}},
         "static policy options prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa can not be used"),
        ({"cpuOptions": {"align-by-socket": "true"}, "topologyPolicy": "single-numa-node"},
         "single-numa-node policy is incompatible with CPUManager align-by-socket policy option"),
        ({"cpuOptions": {"align-by-socket": "true"}, "sockets": 4, "numa": "2x8"}, "4 sockets, 2 NUMA nodes"),
        ({"topologyOptions": {"nearest": "true"}}, 'unknown Topology Manager Policy option: "nearest"'),
        ({"topologyOptions": {"max-allowable-numa-nodes": "4"}}, "should not be less than 8, it is 4"),
        ({"topologyOptions": {"max-allowable-numa-nodes": "many"}}, "unable to convert policy option to integer"),
        ({"numa": "1x7", "threadsPerCore": 2}, "numa.0..cpus: 7, want a multiple of threadsPerCore 2"),
        ({"numa": "1x6", "coresPerCache": 4}, "6 cores, want a multiple of coresPerCache 4"),
        ({"numa": "4x2", "sockets": 3}, "3 sockets and 4 NUMA nodes"),
        ({"numa": "2x2", "distances": [[10, 20]]}, "distances: 1 rows for 2 NUMA nodes"),
        ({"reservedSystemCpus": "0-8"}, "reservedSystemCpus: 0-8, there are the CPUs 0-7"),
        ({"reservedSystemCpus": "0", "reservedCpus": 1}, "reservedCpus: 1, and reservedSystemCpus: 0"),
        ({"reservedSystemCpus": "x"}, "reservedSystemCpus: 'x'"),
    ],
)  # fmt: skip
def test_kubelet_5_4_a_machine_or_options_that_cannot_be_are_refused_by_name(a_node, fields, named):
    with pytest.raises(ValueError, match="node n1: .*" + named):
        a_node(**fields)


def test_more_numa_nodes_than_eight_are_allowed_on_request(a_node):
    node = a_node(numa="9x1", topologyPolicy="restricted", topologyOptions={"max-allowable-numa-nodes": "9"})

    assert node.topology_choices.max_allowable_numa_nodes == 9


def test_listed_reserved_cpus_are_not_allocatable(a_node):
    assert a_node(cpu="8", reservedSystemCpus="0,4-5").allocatable()["cpu"] == "5"
