"""Switches say the policies of all nodes, so that arms of one scenario can differ in them."""

import pytest

from kubelet.node.definition import apply_switches, parse_options
from lab.scenarios.script.nodes import node_definition
from services.api.switches import Switches

STATIC = {"cpu": "8", "cpuPolicy": "static", "fullPcpusOnly": True}


def test_nodes_stay_as_they_are_defined_unless_a_switch_says_something(a_node):
    node = a_node(**STATIC)

    assert apply_switches(node, Switches()) is node


def test_a_switch_speaks_for_all_nodes(a_node):
    said = ("topology.policy=restricted", "topology.scope=pod", "topology.options=max-allowable-numa-nodes:9",
            "cpu.options=none")  # fmt: skip

    node = apply_switches(a_node(**STATIC), Switches.parse(said))

    assert (node.topology_policy, node.topology_scope) == ("restricted", "pod")
    assert node.topology_choices.max_allowable_numa_nodes == 9
    assert not node.cpu_choices.full_pcpus_only


def test_what_cannot_be_names_the_node(a_node):
    with pytest.raises(ValueError, match="node n1: memoryPolicy: Static"):
        apply_switches(a_node(), Switches.parse(["memory.policy=Static"]))
    with pytest.raises(ValueError, match="node n1: unknown CPU Manager Policy option"):
        apply_switches(a_node(), Switches.parse(["cpu.options=faster"]))


def test_options_are_written_with_or_without_a_value():
    assert parse_options("a+b:9") == {"a": "true", "b": "9"}
    assert parse_options("none") == {}


def test_a_scenarios_node_line_has_words_for_all_of_it(a_node):
    words = {
        "numa": "2x8", "threads": "2", "sockets": "1", "cache-cores": "2", "cpu-ids": "adjacent", "reserved": "0-1,8",
        "cpu-options": "full-pcpus-only,strict-cpu-reservation:false", "policy": "best-effort", "scope": "pod",
        "topology-options": "max-allowable-numa-nodes:9", "memory-policy": "Static", "reserved-memory": "1Gi,0",
        "hugepages": "hugepages-2Mi:64Mi,hugepages-1Gi:2Gi",
    }  # fmt: skip

    node = a_node(**node_definition("n1", words))

    assert node.effective_reserved_cpus == (0, 1, 8)
    assert node.cpu_options == {"full-pcpus-only": "true", "strict-cpu-reservation": "false"}
    assert node.memory_by_numa().kinds()["hugepages-1Gi"] == (2**31, 2**31)
    assert [each.numa_node for each in node.reserved_memory] == [0]
    assert sorted(node.machine().cores[1]) == [2, 3]
