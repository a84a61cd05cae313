"""Nodes, taints, orphaned pods and budgets against the real API server, with authorization on."""

import asyncio

import pytest

from services.api.errors import NotFound
from services.api.identity import ADMIN
from services.api.meta import Key
from services.api.wire import Request, encode
from services.client.link_faults import LinkFaults


def pod(name, labels=None, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


async def condition(world, node, kind="Ready"):
    conditions = (await world.admin.get("nodes", Key("", node)))["status"]["conditions"]
    return next(c for c in conditions if c["type"] == kind)


async def taints(world, node):
    spec = (await world.admin.get("nodes", Key("", node)))["spec"]
    return sorted(f"{t['key'].rpartition('/')[2]}:{t['effect']}" for t in spec.get("taints", ()))


async def gone_at(world, name, limit_s):
    """Return when the pod began to be deleted, in virtual seconds; None when it did not."""
    end = world.clock.now() + limit_s
    while world.clock.now() < end:
        try:
            found = await world.admin.get("pods", Key("default", name))
        except NotFound:
            return world.clock.now()
        if "deletionTimestamp" in found["metadata"]:
            return world.clock.now()
        await asyncio.sleep(0.1)
    return None


def test_kubelet_2_a_dead_node_is_unknown_after_fifty_s_and_its_pods_deleted_300_s_after_the_taint(world_of):
    async def act(world):
        await world.admin.create("pods", pod("p"))
        await asyncio.sleep(30.0)
        found = await world.admin.get("pods", Key("default", "p"))
        node = found["spec"]["nodeName"]
        world.dead.add(node)
        died = world.clock.now()

        async def is_unknown():
            return (await condition(world, node))["status"] == "Unknown"

        await world.until(is_unknown, 80.0)
        unknown_s = world.clock.now() - died
        await asyncio.sleep(0.5)
        at_once = await taints(world, node)

        async def has_both():
            return "unreachable:NoExecute" in await taints(world, node)

        await world.until(has_both, 20.0)
        tainted = world.clock.now()
        live = await world.admin.get("pods", Key("default", "p"))
        ready = next(c["status"] for c in live["status"]["conditions"] if c["type"] == "Ready")
        gone = await gone_at(world, "p", 400.0)
        return unknown_s, at_once, tainted - died - unknown_s, ready, gone - tainted

    unknown_s, at_once, until_taint_s, ready, until_gone_s = world_of(act, nodes=10)

    assert 40.0 <= unknown_s <= 60.0  # the last renewal was up to 10 s before the death
    assert "unreachable:NoSchedule" in at_once
    assert until_taint_s <= 10.0
    assert ready == "False"
    assert 299.0 <= until_gone_s <= 302.0


def test_kubelet_2_a_node_back_after_two_hundred_seconds_loses_no_pod(world_of):
    async def act(world):
        await world.admin.create("pods", pod("p"))
        await asyncio.sleep(30.0)
        node = (await world.admin.get("pods", Key("default", "p")))["spec"]["nodeName"]
        world.dead.add(node)
        await asyncio.sleep(200.0)
        before = await taints(world, node)
        world.dead.discard(node)
        await world.post_status(node)
        gone = await gone_at(world, "p", 300.0)
        return before, await taints(world, node), gone

    assert world_of(act, nodes=10) == (["unreachable:NoExecute", "unreachable:NoSchedule"], [], None)


def test_kubelet_3_all_ten_nodes_of_the_only_zone_dying_evicts_nothing(world_of):
    async def act(world):
        await asyncio.sleep(20.0)
        world.dead |= set(world.nodes)
        await asyncio.sleep(200.0)
        return [await taints(world, n) for n in world.nodes]

    assert world_of(act, nodes=10) == [["unreachable:NoSchedule"]] * 10


@pytest.mark.parametrize("cut_s", [60.0, 150.0])
def test_fm_w4_a_controller_that_was_cut_off_blames_no_node(world_of, cut_s):
    async def act(world):
        await asyncio.sleep(20.0)
        link = world.network.profile("controllers")
        link.faults = LinkFaults(cut="both")
        await asyncio.sleep(cut_s)
        link.faults = LinkFaults()
        seen = []
        for _ in range(120):
            await asyncio.sleep(1.0)
            seen += [(await condition(world, n))["status"] for n in world.nodes]
        return set(seen)

    assert world_of(act, nodes=5) == {"True"}


def test_controllers_15_pods_of_a_deleted_node_are_gone_forty_to_eighty_seconds_later(world_of):
    async def act(world):
        await world.admin.create("pods", pod("p"))
        await asyncio.sleep(5.0)
        found = await world.admin.get("pods", Key("default", "p"))
        node = found["spec"]["nodeName"]
        world.dead.add(node)
        await world.admin.delete("nodes", Key("", node))
        started = world.clock.now()
        return await gone_at(world, "p", 120.0) - started

    took_s = world_of(act, nodes=2)

    assert 40.0 <= took_s <= 80.0


@pytest.mark.parametrize(
    ("faithful", "second", "due_s"),
    [
        ("true", "", 60.0),
        ("false", "", 60.0),
        ("true", "b", 60.0),
        ("false", "b", 40.0),
        ("true", "c", 10.0),
        ("false", "c", 10.0),
    ],
)
def test_controllers_16_a_second_taint_at_ten_seconds_shortens_unfaithfully_or_is_not_tolerated(
    world_of, faithful, second, due_s
):
    async def act(world):
        tolerations = [
            {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
            {"key": "b", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
        ]
        await world.admin.create("pods", pod("p", tolerations=tolerations))
        await asyncio.sleep(5.0)
        first = [{"key": "a", "effect": "NoExecute"}]
        await world.admin.patch("nodes", Key("", "n0"), {"spec": {"taints": first}})
        started = world.clock.now()
        await asyncio.sleep(10.0)
        if second:
            both = [*first, {"key": second, "effect": "NoExecute"}]
            await world.admin.patch("nodes", Key("", "n0"), {"spec": {"taints": both}})
        return await gone_at(world, "p", 100.0) - started

    found = world_of(act, nodes=1, switches=(f"tainteviction.faithful={faithful}",))

    assert due_s - 2 <= found <= due_s + 2


def test_controllers_18_the_third_eviction_from_eighty_percent_of_ten_waits_for_a_replacement(world_of):
    async def act(world):
        await world.admin.create("deployments.apps", {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": 10, "selector": {"matchLabels": {"app": "web"}},
                     "template": {"metadata": {"labels": {"app": "web"}},
                                  "spec": {"containers": [{"name": "c", "image": "i"}]}}}})  # fmt: skip
        await world.admin.create("poddisruptionbudgets.policy", {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"minAvailable": "80%", "selector": {"matchLabels": {"app": "web"}}}})  # fmt: skip
        key = Key("default", "web")

        async def has_two():
            status = (await world.admin.get("poddisruptionbudgets.policy", key)).get("status", {})
            return status.get("disruptionsAllowed") == 2

        await world.until(has_two)

        async def evict(name):
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
            request = Request(verb="create", resource="pods", namespace="default", name=name, subresource="eviction",
                              body=encode(body))  # fmt: skip
            return (await world.apiserver.server.api_for(ADMIN).call(request)).code

        names = [p["metadata"]["name"] for p in await world.pods()]
        codes = [await evict(name) for name in names[:3]]
        await world.until(has_two)
        return [*codes, await evict(names[2])]

    assert world_of(act, nodes=2) == [201, 201, 429, 201]
