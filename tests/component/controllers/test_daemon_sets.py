"""DaemonSets against the real API server, with authorization on."""

import asyncio
from collections import Counter

import pytest

from services.api.errors import Invalid
from services.api.identity import node_identity
from services.api.meta import Key
from services.api.unbind import request_id

AGENT = Key("default", "agent")
KINDS = "daemonsets.apps"


def a_daemon_set(image="i:1", **spec):
    return {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}},
                         "spec": {"containers": [{"name": "c", "image": image}]}},
            **spec,
        },
    }  # fmt: skip


async def rolled_out(world, count):
    async def is_so():
        found = await world.admin.get(KINDS, AGENT)
        status = found.get("status", {})
        return status.get("observedGeneration") == found["metadata"]["generation"] and (
            count
            == status.get("numberAvailable", 0)
            == status.get("updatedNumberScheduled", 0)
            == status["desiredNumberScheduled"]
        )

    await world.until(is_so, 120.0)


async def pods_by_node(world):
    return Counter(p["spec"].get("nodeName", "") for p in await world.pods())


def test_with_a_cache_two_seconds_late_and_a_manager_that_dies_no_node_ever_has_two(world_of):
    async def act(world):
        link = world.network.profile("controllers")
        link.latency_min_s = link.latency_max_s = 2.0
        await world.admin.create(KINDS, a_daemon_set())
        most = 0
        for _ in range(60):
            await asyncio.sleep(0.5)
            most = max([most, *(await pods_by_node(world)).values()])
        link.latency_min_s = link.latency_max_s = 0.0
        world.kill()
        await world.start()
        await rolled_out(world, 6)
        return most, len(await world.pods())

    assert world_of(act, nodes=6, switches=("controllers.own_write_gate=false",)) == (1, 6)


def test_an_update_rolls_and_the_patch_of_an_old_revision_brings_the_old_template_back(world_of):
    async def act(world):
        await world.admin.create(KINDS, a_daemon_set())
        await rolled_out(world, 3)
        await world.admin.patch(KINDS, AGENT, {"spec": a_daemon_set("i:2")["spec"]})
        await rolled_out(world, 3)
        first = min(await world.revisions(), key=lambda r: r["revision"])
        await world.admin.patch(KINDS, AGENT, first["data"], patch_type="strategic")
        await rolled_out(world, 3)
        images = {p["spec"]["containers"][0]["image"] for p in await world.pods()}
        found = await world.admin.get(KINDS, AGENT)
        return images, sorted(r["revision"] for r in await world.revisions()), found["metadata"]["annotations"]

    assert world_of(act, nodes=3) == ({"i:1"}, [2, 3], {"deprecated.daemonset.template.generation": "3"})


@pytest.mark.parametrize(("propagation", "left"), [("Background", 0), ("Foreground", 0), ("Orphan", 3)])
def test_a_set_that_is_deleted_takes_pods_and_revisions_along_or_leaves_them(world_of, propagation, left):
    async def act(world):
        await world.admin.create(KINDS, a_daemon_set())
        await rolled_out(world, 3)
        await world.admin.delete(KINDS, AGENT, propagation=propagation)

        async def is_gone():
            return (await world.admin.list(KINDS, namespace="default"))[0] == []

        await world.until(is_gone)
        await asyncio.sleep(10.0)
        pods, revisions = await world.pods(), await world.revisions()
        owners = [each["metadata"].get("ownerReferences", []) for each in (*pods, *revisions)]
        return len(pods), len(revisions), [o for o in owners if o]

    assert world_of(act, nodes=3) == (left, min(left, 1), [])


def test_another_set_adopts_what_was_orphaned_and_replaces_nothing(world_of):
    async def act(world):
        await world.admin.create(KINDS, a_daemon_set())
        await rolled_out(world, 2)
        before = {p["metadata"]["uid"] for p in await world.pods()}
        await world.admin.delete(KINDS, AGENT, propagation="Orphan")
        await asyncio.sleep(10.0)
        await world.admin.create(KINDS, a_daemon_set())
        await rolled_out(world, 2)
        return {p["metadata"]["uid"] for p in await world.pods()} == before

    assert world_of(act, nodes=2)


def test_kubelet_unbinding_21_the_server_does_not_unbind_a_real_daemon_sets_pod(world_of):
    async def act(world):
        await world.admin.create(KINDS, a_daemon_set())
        pod = (await world.until(world.pods))[0]
        world.silent_pods.add(pod["metadata"]["name"])
        key, uid = Key("default", pod["metadata"]["name"]), pod["metadata"]["uid"]
        await world.scheduler.bind(key, uid, "n0")
        generation = (await world.admin.get("pods", key))["status"]["bindingGeneration"]
        body = {"metadata": {"name": key.name, "uid": uid}, "nodeName": "n0", "bindingGeneration": generation,
                "requestID": request_id(uid, generation, "n0"), "reason": "SMTAlignmentError"}  # fmt: skip
        kubelet = world.client(node_identity("n0"))
        with pytest.raises(Invalid) as refusal:
            await kubelet.create("pods", body, namespace="default", subresource="unbind")
        return refusal.value.code, refusal.value.reason, str(refusal.value)

    code, reason, text = world_of(act, nodes=1, switches=("kubelet.on_reject=unbind",))
    assert (code, reason) == (422, "Exempt")
    assert "pods of a DaemonSet belong to their node" in text
