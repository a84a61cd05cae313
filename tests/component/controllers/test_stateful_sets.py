"""StatefulSets against the real API server, with authorization on."""

import asyncio

from services.api.meta import Key

WEB = Key("default", "web")
SETS, CLAIMS = "statefulsets.apps", "persistentvolumeclaims"
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}


def a_set(replicas=3, **spec):
    return {
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}},
                 "template": TEMPLATE, **spec},
    }  # fmt: skip


async def at_rest(world, count):
    async def is_so():
        stored = await world.admin.get(SETS, WEB)
        status = stored.get("status", {})
        return status.get("observedGeneration") == stored["metadata"]["generation"] and (
            status.get("readyReplicas", 0) == count == status.get("replicas")
        )

    await world.until(is_so)


def ready_at(pod):
    return next(c["lastTransitionTime"] for c in pod["status"]["conditions"] if c["type"] == "Ready")


def test_controllers_08_each_pod_is_made_when_the_one_before_is_ready_and_a_failed_one_comes_back(world_of):
    async def act(world):
        world.silent_pods.add("web-1")
        await world.admin.create(SETS, a_set())
        await world.until(lambda: _has(world, "web-1"))
        await asyncio.sleep(10.0)
        early = [p["metadata"]["name"] for p in await world.pods()]
        world.silent_pods.clear()
        await at_rest(world, 3)
        pods = {p["metadata"]["name"]: p for p in await world.pods()}
        await world.admin.patch("pods", Key("default", "web-1"), {"status": {"phase": "Failed"}}, subresource="status")
        await asyncio.sleep(5.0)
        await at_rest(world, 3)
        again = {p["metadata"]["name"]: p["metadata"]["uid"] for p in await world.pods()}
        return early, pods, again, await world.reasons()

    early, pods, again, reasons = world_of(act, nodes=2)

    assert early == ["web-0", "web-1"]
    assert list(pods) == ["web-0", "web-1", "web-2"]
    for before, after in (("web-0", "web-1"), ("web-1", "web-2")):
        assert ready_at(pods[before]) <= pods[after]["metadata"]["creationTimestamp"]
    changed = [name for name, uid in again.items() if uid != pods[name]["metadata"]["uid"]]
    assert (list(again), changed) == (["web-0", "web-1", "web-2"], ["web-1"])
    assert "RecreatingFailedPod" in reasons


async def _has(world, name):
    return any(p["metadata"]["name"] == name for p in await world.pods())


def test_with_a_late_cache_and_a_manager_that_is_killed_no_name_is_ever_there_twice(world_of):
    async def act(world):
        link = world.network.profile("controllers")
        link.latency_min_s = link.latency_max_s = 1.0
        await world.admin.create(SETS, a_set(5, podManagementPolicy="Parallel"))
        for _ in range(3):
            await asyncio.sleep(1.5)
            world.kill()
            await world.start()
        await at_rest(world, 5)
        return sorted(p["metadata"]["name"] for p in await world.pods()), len(await world.revisions())

    assert world_of(act, nodes=2, switches=("controllers.own_write_gate=false",)) == (
        [f"web-{n}" for n in range(5)], 1,
    )  # fmt: skip


def test_an_update_and_its_undoing_make_two_revisions_of_which_the_first_becomes_the_newest(world_of):
    async def act(world):
        await world.admin.create(SETS, a_set(2))
        await at_rest(world, 2)
        first = (await world.admin.get(SETS, WEB))["status"]["currentRevision"]
        for image in ("i:2", "i:1"):
            template = {"spec": {"containers": [{"name": "c", "image": image}]}}
            await world.admin.patch(SETS, WEB, {"spec": {"template": template}})
            await asyncio.sleep(10.0)
            await at_rest(world, 2)
        status = (await world.admin.get(SETS, WEB))["status"]
        numbers = {r["metadata"]["name"]: r["revision"] for r in await world.revisions()}
        return first, status, numbers

    first, status, numbers = world_of(act, nodes=2)

    assert status["currentRevision"] == status["updateRevision"] == first
    assert sorted(numbers.values()) == [2, 3]
    assert numbers[first] == 3


def test_deleted_as_an_orphanage_its_pods_stay_and_a_new_set_of_the_name_adopts_them(world_of):
    async def act(world):
        await world.admin.create(SETS, a_set(2))
        await at_rest(world, 2)
        before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in await world.pods()}
        await world.admin.delete(SETS, WEB, propagation="Orphan")
        await asyncio.sleep(5.0)
        lonely = [p["metadata"].get("ownerReferences", []) for p in await world.pods()]
        made = await world.admin.create(SETS, a_set(2))
        await at_rest(world, 2)
        pods = await world.pods()
        after = {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods}
        owners = {p["metadata"]["ownerReferences"][0]["uid"] for p in pods} | {
            r["metadata"]["ownerReferences"][0]["uid"] for r in await world.revisions()
        }
        return before, lonely, after, owners == {made["metadata"]["uid"]}

    before, lonely, after, is_owned = world_of(act, nodes=2)

    assert lonely == [[], []]
    assert after == before
    assert is_owned


def test_a_deleted_set_takes_pods_and_revisions_along_and_leaves_its_claims(world_of):
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                                                     "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip

    async def act(world):
        await world.admin.create(SETS, a_set(2, volumeClaimTemplates=[claim]))
        await at_rest(world, 2)
        await world.admin.delete(SETS, WEB)
        await world.until(lambda: _is_empty(world))
        return [c["metadata"]["name"] for c in (await world.admin.list(CLAIMS))[0]], await world.revisions()

    async def _is_empty(world):
        return not await world.pods()

    assert world_of(act, nodes=2) == (["data-web-0", "data-web-1"], [])


def test_a_budget_in_percent_is_of_the_sets_replicas(world_of):
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
              "metadata": {"name": "web", "namespace": "default"},
              "spec": {"maxUnavailable": "50%", "selector": {"matchLabels": {"app": "web"}}}}  # fmt: skip

    async def act(world):
        await world.admin.create(SETS, a_set(4, podManagementPolicy="Parallel"))
        await at_rest(world, 4)
        await world.admin.create("poddisruptionbudgets.policy", budget)
        await asyncio.sleep(5.0)
        return (await world.admin.get("poddisruptionbudgets.policy", WEB))["status"]

    status = world_of(act, nodes=2)

    assert (status["expectedPods"], status["disruptionsAllowed"]) == (4, 2)
