"""The device manager: which devices there are, which of them go to whom, and why not."""

import pytest

from kubelet.managers.device_calls import Device, Options, Preference, Share
from kubelet.managers.device_manager import GRACE_S, DeviceManager
from kubelet.managers.topology import Hint

GPU = "example.com/gpu"


def plugged(*devices, numas=2, prefers=False):
    manager = DeviceManager([{}] * numas, {})
    manager.update_devices(GPU, manager.on_connected(GPU, Options(prefers=prefers)), devices)
    return manager


def four(**settings):
    """Two devices on each of two NUMA nodes."""
    return plugged(*(Device(f"dev-{n}", numa=(n // 2,)) for n in range(4)), **settings)


def test_a_resource_that_was_not_registered_is_ignored_by_the_device_manager():
    manager = DeviceManager([{}], {})

    assert not manager.knows(GPU)
    assert manager.capacity() == {}


def test_a_listed_device_counts_and_a_sick_one_counts_as_capacity_only():
    manager = plugged(Device("a"), Device("b", is_healthy=False))

    assert manager.capacity() == {GPU: (2, 1)}
    assert manager.allocate(GPU, 1, None) == ("a",)


def test_the_four_reasons_why_there_is_no_device_are_kubernetes_own():
    manager = plugged(Device("a"), Device("b"))
    manager.take([Share("c", GPU, ("a",))])

    assert manager.allocate(GPU, 2, None) == (
        f"requested number of devices unavailable for {GPU}. Requested: 2, Available: 1"
    )
    manager.update_devices(GPU, 1, [Device("a", is_healthy=False), Device("b")])
    assert manager.problem(GPU, ("a",)) == (
        f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {GPU}"
    )
    manager.on_disconnected(GPU, 1, 0.0)
    assert manager.allocate(GPU, 1, None) == f"no healthy devices present; cannot allocate unhealthy devices {GPU}"
    manager.expire(GRACE_S)
    assert manager.knows(GPU)
    assert manager.allocate(GPU, 1, None) == f"cannot allocate unregistered device {GPU}"
    manager.release([Share("c", GPU, ("a",))])
    assert not manager.knows(GPU)


def test_a_plugin_that_returns_with_fewer_devices_leaves_the_missing_one_with_the_pod_that_has_it():
    manager = plugged(Device("a"), Device("b"), Device("c"))
    manager.take([Share("main", GPU, ("c",))])

    manager.update_devices(GPU, 1, [Device("a"), Device("b")])

    assert manager.capacity() == {GPU: (2, 2)}
    assert manager.free(GPU) == 3
    manager.release([Share("main", GPU, ("c",))])
    assert manager.free(GPU) == 2


def test_only_devices_whose_health_changed_or_that_are_back_are_reported():
    manager = plugged(Device("a"), Device("b"))

    assert manager.update_devices(GPU, 1, [Device("a"), Device("b", is_healthy=False), Device("c")]) == ["b", "c"]
    assert manager.on_disconnected(GPU, 1, 0.0) == ["a", "c"]
    assert not manager.health(GPU, "a")
    assert manager.health(GPU, "an id that no plugin lists")


def test_hints_follow_the_numa_nodes_of_free_devices_by_id():
    manager = four()
    manager.take([Share("c", GPU, ("dev-0",))])

    assert manager.hints(GPU, 2) == [Hint(0b10, True), Hint(0b11, False)]
    assert manager.hints(GPU, 2, ("dev-0",)) == [Hint(0b01, True), Hint(0b11, False)]
    assert manager.hints(GPU, 4) == []


def test_a_device_near_to_both_numa_nodes_counts_for_both():
    manager = plugged(Device("a", numa=(0, 1)))

    assert manager.hints(GPU, 1) == [Hint(0b01, True), Hint(0b10, True), Hint(0b11, False)]


def test_devices_without_topology_give_no_hint():
    assert plugged(Device("a")).hints(GPU, 1) is None


@pytest.mark.parametrize(("mask", "first"), [(0b01, ("dev-0", "dev-1", "dev-2")), (0b10, ("dev-2", "dev-3", "dev-0"))])
def test_devices_inside_the_hint_go_first(mask, first):
    assert four().allocate(GPU, 3, mask) == first


def test_what_an_init_container_had_is_taken_over_before_anything_else():
    assert four().allocate(GPU, 2, None, ("dev-3",)) == ("dev-3", "dev-0")


def test_a_plugin_with_preferences_is_asked_before_a_choice_stands():
    manager = four(prefers=True)

    manager.allocate(GPU, 1, 0b10)

    assert manager.asked == Preference(GPU, ("dev-2", "dev-3"), (), 1)


def test_a_preferred_device_wins_but_never_against_the_alignment():
    manager = four(prefers=True)
    manager.preferences[Preference(GPU, ("dev-2", "dev-3"), (), 1)] = ("dev-0", "dev-3")

    assert manager.allocate(GPU, 1, 0b10) == ("dev-3",)
    assert manager.asked is None


def test_what_cannot_be_aligned_may_be_chosen_by_the_plugin():
    manager = four(prefers=True)
    wanted = Preference(GPU, ("dev-0", "dev-1", "dev-2", "dev-3"), ("dev-2", "dev-3"), 3)
    manager.preferences[wanted] = ("dev-1",)

    assert manager.allocate(GPU, 3, 0b10) == ("dev-2", "dev-3", "dev-1")


def test_no_plugin_is_asked_when_every_near_device_is_needed():
    manager = four(prefers=True)

    assert manager.allocate(GPU, 2, 0b10) == ("dev-2", "dev-3")
    assert manager.asked is None


def test_a_plugin_that_cannot_say_what_it_prefers_fails_the_allocation():
    manager = plugged(Device("a"), Device("b"), prefers=True)
    manager.preferences[Preference(GPU, ("a", "b"), (), 1)] = "device plugin GetPreferredAllocation rpc failed"

    assert manager.allocate(GPU, 1, None) == "device plugin GetPreferredAllocation rpc failed"
    assert manager.free(GPU) == 2
    assert len(manager.hints(GPU, 2) or []) == 0


def test_a_plugins_devices_take_the_place_of_declared_ones_and_who_has_one_keeps_it():
    manager = DeviceManager([{}], {GPU: 2})
    held = manager.allocate(GPU, 1, None)

    manager.update_devices(GPU, manager.on_connected(GPU, Options()), [Device("a"), Device("b")])

    assert held == ("gpu-0",)
    assert manager.capacity() == {GPU: (2, 2)}
    assert manager.free(GPU) == 3
    manager.release([Share("c", GPU, held)])
    assert manager.free(GPU) == 2
