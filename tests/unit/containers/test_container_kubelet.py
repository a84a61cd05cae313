"""What a kubelet host in a container calls itself."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "deploy"))
from containers.kubelet import arguments

from kubelet.config import KubeletConfig
from services.runtime.config import parse


def config_of(hostname, address, **environ):
    variables = {f"KEPLAB_{name.upper()}": value for name, value in environ.items()}
    return parse(KubeletConfig, arguments(hostname, address, variables), variables)


def test_nodes_are_named_after_the_container_and_not_after_its_address():
    before = config_of("3f2a", "172.18.0.4", nodes="2")
    after = config_of("3f2a", "172.18.0.9", nodes="2")

    assert ["kubelet-3f2a-0", "kubelet-3f2a-1"] == [node.name for node in before.node_definitions()]
    assert before.node_definitions() == after.node_definitions()
    assert ("172.18.0.4", "172.18.0.9") == (before.address, after.address)
    assert "/data/3f2a" == before.data_dir == after.data_dir
    assert "kubelet/3f2a" == before.name
    assert ["kubelet-7-0"] == [node.name for node in config_of("kubelet-7", "10.0.0.1").node_definitions()]


def test_sizes_from_the_environment_are_those_of_every_node():
    nodes = config_of("3f2a", "172.18.0.4", nodes="2", cpu="16", memory="64Gi", pods="20").node_definitions()

    assert [("16", "64Gi", 20)] * 2 == [(node.cpu, node.memory, node.pods) for node in nodes]
