"""ReplicaSets and Deployments against the real API server, with authorization on."""

import asyncio

import pytest

from services.api.errors import NotFound
from services.api.meta import Key
from services.client.link_faults import LinkFaults

WEB = Key("default", "web")
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}


def workload(kind, replicas, namespace="default", **spec):
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE, **spec
        },
    }  # fmt: skip


def active(pods):
    return [p for p in pods if "deletionTimestamp" not in p["metadata"]]


def is_pod_ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", ()))


async def all_available(world, count, resource="deployments.apps"):
    async def is_so():
        status = (await world.admin.get(resource, WEB)).get("status", {})
        return status.get("availableReplicas", 0) == count == status.get("updatedReplicas", count) and (
            status.get("replicas") == count
        )

    await world.until(is_so, 120.0)


def test_controllers_2_fifty_replicas_with_a_cache_three_seconds_late_are_never_fifty_one(world_of):
    async def act(world):
        world.network.profile("controllers").faults = LinkFaults(watch_delay_s=3.0)
        await world.admin.create("replicasets.apps", workload("ReplicaSet", 50))
        most = 0
        for _ in range(240):
            await asyncio.sleep(0.5)
            most = max(most, len(await world.pods()))
        return most, len(await world.pods())

    assert world_of(act, switches=("controllers.own_write_gate=false",)) == (50, 50)


def test_a_manager_killed_while_creating_leaves_the_exact_count(world_of):
    async def act(world):
        await world.admin.create("replicasets.apps", workload("ReplicaSet", 40))
        for _ in range(4):
            await asyncio.sleep(0.02)
            world.kill()
            await world.start()
        await asyncio.sleep(30.0)
        return len(await world.pods())

    assert world_of(act) == 40


def test_controllers_4_a_matching_orphan_is_adopted_and_counted(world_of):
    async def act(world):
        for name in ("orphan", "other"):
            await world.admin.create("pods", {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", "labels": {"app": {"orphan": "web"}.get(name, name)}},
                "spec": TEMPLATE["spec"]})  # fmt: skip
        await world.admin.create("replicasets.apps", workload("ReplicaSet", 3))
        await asyncio.sleep(5.0)
        pods = {p["metadata"]["name"]: p["metadata"].get("ownerReferences", []) for p in await world.pods()}
        return len(pods), [r["name"] for r in pods["orphan"]], pods["other"]

    assert world_of(act) == (4, ["web"], [])


def test_controllers_6_a_rolling_update_of_ten_stays_between_eight_and_thirteen(world_of):
    async def act(world):
        await world.admin.create("deployments.apps", workload("Deployment", 10))
        await all_available(world, 10)
        sizes, availables = [], []
        template = {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}
        await world.admin.patch("deployments.apps", WEB, {"spec": {"template": template}})
        for _ in range(400):
            await asyncio.sleep(0.05)
            pods = active(await world.pods())
            sizes.append(len(pods))
            availables.append(sum(map(is_pod_ready, pods)))
        await all_available(world, 10)
        images = {p["spec"]["containers"][0]["image"] for p in await world.pods()}
        status = (await world.admin.get("deployments.apps", WEB))["status"]
        progress = next(c for c in status["conditions"] if c["type"] == "Progressing")
        return max(sizes), min(availables), images, progress["reason"]

    biggest, smallest, images, reason = world_of(act, nodes=3)

    assert biggest <= 13
    assert smallest >= 8
    assert images == {"i:2"}
    assert reason == "NewReplicaSetAvailable"


def test_a_rollback_makes_the_old_set_the_new_one_with_a_higher_revision(world_of):
    async def act(world):
        await world.admin.create("deployments.apps", workload("Deployment", 2))
        await all_available(world, 2)
        for image in ("i:2", "i:1"):
            template = {"spec": {"containers": [{"name": "c", "image": image}]}}
            await world.admin.patch("deployments.apps", WEB, {"spec": {"template": template}})
            await asyncio.sleep(20.0)
            await all_available(world, 2)
        sets, _ = await world.admin.list("replicasets.apps", namespace="default")
        return sorted(
            (s["spec"]["template"]["spec"]["containers"][0]["image"], s["spec"]["replicas"],
             s["metadata"]["annotations"]["deployment.kubernetes.io/revision"])
            for s in sets
        )  # fmt: skip

    assert world_of(act, nodes=2) == [("i:1", 2, "3"), ("i:2", 0, "2")]


def test_controllers_7_an_unschedulable_template_fails_its_deadline_at_sixty_seconds(world_of):
    async def act(world):
        await world.admin.create("deployments.apps", workload("Deployment", 2, progressDeadlineSeconds=60))
        seen = []
        for _ in range(80):
            await asyncio.sleep(1.0)
            status = (await world.admin.get("deployments.apps", WEB)).get("status", {})
            seen += [c["reason"] for c in status.get("conditions", ()) if c["type"] == "Progressing"]
        return seen[50], seen[-1], seen.index("ProgressDeadlineExceeded")

    before, after, at = world_of(act)

    assert before != "ProgressDeadlineExceeded"
    assert after == "ProgressDeadlineExceeded"
    assert 59 <= at <= 66


@pytest.mark.parametrize(
    ("policy", "left"), [("Background", (0, 0, 0)), ("Foreground", (0, 0, 0)), ("Orphan", (0, 1, 2))]
)
def test_controllers_14_a_deleted_deployment_takes_along_what_its_policy_says(world_of, policy, left):
    async def act(world):
        await world.admin.create("deployments.apps", workload("Deployment", 2))
        await all_available(world, 2)
        await world.admin.delete("deployments.apps", WEB, propagation=policy)
        order = []

        async def is_gone():
            counts = [len((await world.admin.list(r))[0]) for r in ("deployments.apps", "replicasets.apps", "pods")]
            if not order or order[-1] != counts:
                order.append(counts)
            return tuple(counts) == left

        await world.until(is_gone)
        await asyncio.sleep(10.0)
        return order, [len((await world.admin.list(r))[0]) for r in ("deployments.apps", "replicasets.apps", "pods")]

    order, final = world_of(act, nodes=2)

    assert tuple(final) == left
    if policy == "Background":
        assert order[1][0] == 0  # the owner vanishes at once
        assert order[1][2] == 2
    if policy == "Foreground":
        assert all(deployments == 1 for deployments, sets, _ in order if sets)  # the owner waits
        assert all(sets == 1 for _, sets, pods in order if pods)


def test_controllers_19_a_namespace_is_gone_within_sixty_seconds_with_all_it_held(world_of):
    async def act(world):
        space = Key("", "shop")
        await world.admin.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        await world.admin.create("deployments.apps", workload("Deployment", 5, namespace="shop"))
        for kind, resource in (("ConfigMap", "configmaps"), ("Secret", "secrets")):
            await world.admin.create(
                resource, {"apiVersion": "v1", "kind": kind, "metadata": {"name": "c", "namespace": "shop"}}
            )
        await asyncio.sleep(10.0)
        started = world.clock.now()
        await world.admin.delete("namespaces", space)

        async def is_gone():
            try:
                await world.admin.get("namespaces", space)
            except NotFound:
                return True
            return False

        await world.until(is_gone, 60.0)
        left = [
            len((await world.admin.list(r, namespace="shop"))[0])
            for r in ("pods", "replicasets.apps", "deployments.apps", "configmaps", "secrets", "events")
        ]
        return left, world.clock.now() - started

    left, took_s = world_of(act, nodes=2)

    assert left == [0] * 6
    assert took_s <= 60.0
