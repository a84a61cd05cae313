"""Events about a node that a kubelet records beside those of its conditions (kubelet 2)."""

import asyncio
from collections import Counter

import pytest

from services.api.meta import Key

TURNS = ["NodeNotSchedulable", "NodeSchedulable"]


def cordoned_and_uncordoned(simulate, **settings):
    """Return the Events of a node that is cordoned, whose kubelet is killed, and that is uncordoned."""

    async def scenario(world):
        async def cordon(is_cordoned, after_s):
            await asyncio.sleep(after_s)
            await world.admin.patch("nodes", Key("", "n1"), {"spec": {"unschedulable": is_cordoned}})

        await cordon(True, 5.0)
        await asyncio.sleep(5.0)
        world.kill_kubelet()
        await world.start_kubelet()
        await cordon(False, 5.0)
        await asyncio.sleep(5.0)
        events, _ = await world.admin.list("events")
        return [e for e in events if e["involvedObject"]["kind"] == "Node"]

    return simulate(scenario, **settings)


def test_a_cordon_is_recorded_when_it_comes_and_goes_and_when_a_kubelet_starts_on_a_cordoned_node(simulate):
    events = cordoned_and_uncordoned(simulate, node_events="all")

    turned = Counter((e["message"], e["type"]) for e in events if e["reason"] in TURNS)
    assert turned == {
        ("Node n1 status is now: NodeNotSchedulable", "Normal"): 2,
        ("Node n1 status is now: NodeSchedulable", "Normal"): 1,
    }
    enforced = [(e["message"], e["source"]["component"]) for e in events if e["reason"] == "NodeAllocatableEnforced"]
    assert set(enforced) == {("Updated Node Allocatable limit across pods", "kubelet")}


@pytest.mark.parametrize("settings", [{}, {"node_events": "all", "pod_events": "warnings"}])
def test_without_the_setting_or_with_warnings_alone_neither_is_recorded(simulate, settings):
    events = cordoned_and_uncordoned(simulate, **settings)

    assert [e["reason"] for e in events if e["reason"] in (*TURNS, "NodeAllocatableEnforced")] == []
