"""The emulated device plugin: what it lists, gives and prefers, and what it can be reported."""

import pytest

from kubelet.deviceplugin.emulated.plugin import Command, DevicePlugin, EmulatedPlugin
from kubelet.managers.device_calls import Device
from kubelet.node.definition import NodeDefinition

GPU = "example.com/gpu"


def a_plugin(**settings):
    return EmulatedPlugin(DevicePlugin(resource=GPU, **{"devices": 4, **settings}))


def test_it_lists_its_devices_with_the_numa_nodes_they_are_on():
    devices = a_plugin(devices=2, topology=(0, 1)).devices
    assert list(devices.values()) == [Device("dev-0", numa=(0,)), Device("dev-1", numa=(1,))]


def test_a_device_that_is_removed_and_added_again_is_where_it_was():
    plugin = a_plugin(topology=(0, 0, 1, 1))

    plugin.act(Command("remove", ("dev-2",)))
    plugin.act(Command("add", ("dev-2", "dev-9")))

    assert plugin.devices["dev-2"].numa == (1,)
    assert plugin.devices["dev-9"].numa == ()
    assert plugin.version == 2


@pytest.mark.parametrize(
    ("reported", "said"),
    [
        (Command("dance"), "no act 'dance'; there are: accept, add, healthy, refuse, remove, start, stop, unhealthy"),
        (Command("unhealthy"), "unhealthy wants devices, for example: unhealthy dev-0"),
        (Command("stop", ("dev-0",)), "stop is about no device, not dev-0"),
        (Command("unhealthy", ("dev-7",)), "no device 'dev-7'; there are: dev-0, dev-1, dev-2, dev-3"),
    ],
)
def test_what_cannot_be_done_is_an_error_that_says_what_can(reported, said):
    plugin = a_plugin()

    with pytest.raises(ValueError) as error:  # noqa: PT011
        plugin.act(reported)

    assert str(error.value) == said
    assert plugin.version == 0


@pytest.mark.parametrize(
    ("preferred", "available", "must", "size", "chosen"),
    [
        ("pairs", (0, 1, 2, 3), (), 2, (0, 1)),
        ("pairs", (1, 2, 3), (), 2, (2, 3)),
        ("pairs", (1, 2, 3), (), 1, (1,)),
        ("pairs", (0, 1, 2, 3), (2,), 2, (2, 3)),
        ("spread", (0, 1, 2, 3), (), 2, (0, 2)),
        ("spread", (0, 1, 2, 3), (), 3, (0, 2, 1)),
        ("pairs", (0,), (), 2, (0,)),
    ],
)
def test_pairs_keeps_pairs_together_and_spread_takes_one_of_each(preferred, available, must, size, chosen):
    plugin = a_plugin(preferred=preferred)

    found = plugin.preferred_devices([f"dev-{n}" for n in available], [f"dev-{n}" for n in must], size)

    assert found == tuple(f"dev-{n}" for n in chosen)


@pytest.mark.parametrize(
    ("plugins", "said"),
    [
        ([{"resource": "gpu"}], "devicePlugins[0].resource: 'gpu', want an extended resource such as example.com/gpu"),
        ([{"resource": GPU, "devices": -1}], "devicePlugins[0].devices: -1, want 0 to 10000"),
        ([{"resource": GPU, "devices": 2, "topology": [0]}], "devicePlugins[0].topology: 1 NUMA nodes for 2 devices"),
        ([{"resource": GPU}, {"resource": GPU}], f"devicePlugins[1].resource: {GPU} has a plugin already"),
        ([{"resource": GPU, "delayS": -1}], "devicePlugins[0].delayS: -1, want 0 or more"),
    ],
)
def test_a_plugin_that_cannot_be_is_an_error_that_names_node_and_field(plugins, said):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        NodeDefinition.parse({"name": "n1", "cpu": "4", "devicePlugins": plugins})

    assert str(error.value) == f"node n1: {said}"
