"""Which instance of a DRA driver is called, and when its slices are wiped (dra-core 7, 7.1)."""

import pytest

from kubelet.dra.drivers import Drivers
from kubelet.effects import Outbox, SetTimer, WipeSlices

NAME = "gpu.example.com"
V1 = ("v1.DRAPlugin",)


@pytest.fixture
def out():
    return Outbox()


@pytest.fixture
def drivers(out):
    return Drivers(out, wipe_delay_s=30.0)


def wiped(out):
    return [effect.drivers for effect in out.effects if isinstance(effect, WipeSlices)]


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (("v1.DRAPlugin",), "v1.DRAPlugin"),
        (("v1beta1.DRAPlugin",), "v1beta1.DRAPlugin"),
        (("v9.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAPlugin"), "v1beta1.DRAPlugin"),
    ],
)
def test_the_first_service_that_both_know_is_chosen(drivers, offered, chosen):
    assert drivers.register(NAME, "/a", offered, 0.0).service == chosen


def test_a_driver_without_a_common_service_is_refused_in_kubernetes_words(drivers):
    with pytest.raises(ValueError, match="empty list of supported gRPC services") as nothing:
        drivers.register(NAME, "/a", (), 0.0)
    with pytest.raises(ValueError, match="none of services supported") as alpha:
        drivers.register(NAME, "/a", ("v1alpha4.Node",), 0.0)

    prefix = f"invalid supported gRPC versions of DRA driver plugin {NAME} at endpoint /a: "
    assert str(nothing.value).startswith(prefix)
    assert str(alpha.value) == (
        prefix + 'none of services supported by the plugin (["v1alpha4.Node"]) are supported by the kubelet '
        '(["v1.DRAPlugin" "v1beta1.DRAPlugin"])'
    )
    assert drivers.find(NAME) is None


def test_the_newest_instance_that_can_be_reached_is_called(drivers):
    old, new = (drivers.register(NAME, endpoint, V1, 0.0) for endpoint in ("/old", "/new"))
    assert drivers.find(NAME) is new
    drivers.set_connected(old, 1.0, is_connected=True)
    assert drivers.find(NAME) is old
    drivers.set_connected(new, 2.0, is_connected=True)
    assert drivers.find(NAME) is new
    drivers.unregister(new, 3.0)
    assert drivers.find(NAME) is old
    drivers.unregister(old, 4.0)
    assert drivers.find(NAME) is None


def test_one_instance_cannot_take_the_endpoint_of_another(drivers):
    drivers.register(NAME, "/a", V1, 0.0)

    with pytest.raises(ValueError, match=f"endpoint /a already registered for DRA driver plugin {NAME}"):
        drivers.register(NAME, "/a", V1, 1.0)


def test_dra_core_7_slices_are_wiped_after_the_delay_unless_the_driver_is_back(drivers, out):
    instance = drivers.register(NAME, "/a", V1, 0.0)
    drivers.set_connected(instance, 1.0, is_connected=True)
    drivers.due(30.0)
    drivers.set_connected(instance, 100.0, is_connected=False)
    drivers.due(129.9)
    drivers.set_connected(instance, 129.9, is_connected=True)
    drivers.due(130.0)
    assert wiped(out) == []
    drivers.set_connected(instance, 200.0, is_connected=False)
    drivers.unregister(instance, 210.0)  # changes nothing about since when it cannot be called
    drivers.due(230.0)

    assert wiped(out) == [(NAME,)]
    assert [effect.at_s for effect in out.effects if isinstance(effect, SetTimer)] == [30.0, 130.0, 230.0]


def test_a_driver_whose_other_instance_can_be_called_is_not_wiped(drivers, out):
    old, new = (drivers.register(NAME, endpoint, V1, 0.0) for endpoint in ("/old", "/new"))
    for instance in (old, new):
        drivers.set_connected(instance, 1.0, is_connected=True)
    drivers.unregister(old, 2.0)
    drivers.due(100.0)

    assert wiped(out) == []
