"""Extended resources that others put into a Node's capacity: allocatable with the kubelet's next look at its status."""

import asyncio

import pytest

from services.api.meta import Key

CPU = "example.com/fakecpu"
WATCHED = {"node_events": "all"}


async def advertise(world, capacity, name=CPU):
    await world.admin.patch("nodes", Key("", "n1"), {"status": {"capacity": {name: capacity}}}, subresource="status")


async def allocatable(world, name=CPU):
    return (await world.admin.get("nodes", Key("", "n1")))["status"]["allocatable"].get(name)


async def ask(world, name, amount, resource=CPU):
    requests = {"cpu": "1", resource: amount}
    container = {"name": "c", "image": "i:1", "resources": {"requests": requests, "limits": requests}}
    await world.create(name, spec={"containers": [container]})


def has_phase(phase):
    return lambda pod: pod is not None and pod["status"].get("phase") == phase


def test_what_is_put_into_capacity_is_allocatable_within_ten_seconds_and_goes_when_it_is_taken_out(simulate):
    async def scenario(world):
        await asyncio.sleep(2)
        shown = []
        for capacity in ("1000", "7", None):
            await advertise(world, capacity)
            await asyncio.sleep(11)
            shown.append(await allocatable(world))
        return shown

    assert simulate(scenario, **WATCHED) == ["1k", "7", None]


def test_a_kubelet_that_does_not_watch_its_node_sees_it_with_its_next_report(simulate):
    async def scenario(world):
        await advertise(world, "3")
        await asyncio.sleep(320)
        return await allocatable(world)

    assert simulate(scenario) == "3"


def test_it_is_allocatable_still_after_the_kubelet_was_killed(simulate):
    async def scenario(world):
        await advertise(world, "3")
        await asyncio.sleep(11)
        world.kill_kubelet()
        await advertise(world, "4")
        await world.start_kubelet()
        await asyncio.sleep(11)
        return await allocatable(world)

    assert simulate(scenario, **WATCHED) == "4"


def test_pods_are_admitted_by_it_and_no_more_of_them_than_there_is(simulate):
    async def scenario(world):
        await advertise(world, "2")
        await asyncio.sleep(11)
        await ask(world, "first", "2")
        await world.until_pod("first", has_phase("Running"))
        await ask(world, "second", "1")
        return await world.until_pod("second", has_phase("Failed"))

    second = simulate(scenario, **WATCHED)

    assert second["status"]["reason"] == f"OutOf{CPU}"


def test_a_pod_that_asks_for_what_is_no_longer_advertised_is_none_of_the_nodes_concern(simulate):
    async def scenario(world):
        await advertise(world, "2")
        await asyncio.sleep(11)
        await advertise(world, None)
        await asyncio.sleep(11)
        await ask(world, "late", "5")
        return (await world.until_pod("late", has_phase("Running")))["status"]["phase"]

    assert simulate(scenario, **WATCHED) == "Running"


@pytest.mark.parametrize("name", ["example.com/gpu", "cpu"])
def test_what_the_machine_has_itself_stays_as_the_kubelet_says(simulate, name):
    node = {"name": "n1", "cpu": "4", "extended": {"example.com/gpu": 2}}

    async def scenario(world):
        before = await allocatable(world, name)
        await advertise(world, "1000", name)
        await asyncio.sleep(320)
        after = (await world.admin.get("nodes", Key("", "n1")))["status"]
        return before, (after["capacity"][name], after["allocatable"][name])

    before, after = simulate(scenario, nodes=(node,), **WATCHED)

    assert after == (before, before)


def test_a_name_outside_of_a_domain_of_its_own_is_not_advertised(simulate):
    async def scenario(world):
        await advertise(world, "5", "kubernetes.io/fake")
        await asyncio.sleep(11)
        return await allocatable(world, "kubernetes.io/fake")

    assert simulate(scenario, **WATCHED) is None
