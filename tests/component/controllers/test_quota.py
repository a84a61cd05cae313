"""A quota, its controller, and workloads that want more than it allows, in virtual time."""

import asyncio
from itertools import dropwhile, takewhile

import pytest

from services.api.errors import Forbidden
from services.api.meta import Key


def a_quota(hard):
    return {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": hard},
            "metadata": {"name": "q", "namespace": "default"}}  # fmt: skip


def a_set(replicas, cpu="100m"):
    container = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": spec,
            "metadata": {"name": "web", "namespace": "default"}}  # fmt: skip


async def used(world):
    return (await world.admin.get("resourcequotas", Key("default", "q")))["status"].get("used")


async def enforced(world, hard):
    await world.admin.create("resourcequotas", a_quota(hard))
    await world.until(lambda: is_used(world, dict.fromkeys(hard, "0")))


async def is_used(world, wanted):
    return await used(world) == wanted


def test_a_replica_set_gets_as_many_pods_as_its_quota_allows_and_more_when_some_go(world_of):
    async def act(world):
        await enforced(world, {"requests.cpu": "300m", "pods": "10"})
        await world.admin.create("replicasets.apps", a_set(5))
        await world.until(lambda: is_used(world, {"requests.cpu": "300m", "pods": "3"}))
        await asyncio.sleep(5)
        held = len(await world.pods())
        reasons = await world.reasons()
        await world.admin.patch("resourcequotas", Key("default", "q"), {"spec": {"hard": {"requests.cpu": "1"}}})
        await world.until(lambda: is_used(world, {"requests.cpu": "500m", "pods": "5"}), 1200)
        return held, reasons

    held, reasons = world_of(act, nodes=2)

    assert held == 3
    assert "FailedCreate" in reasons


def test_controllers_1_of_a_hundred_replicas_fifteen_are_tried_ten_exist_and_no_later_creation_is_awaited(world_of):
    async def act(world):
        await enforced(world, {"pods": "10"})
        await world.admin.create("replicasets.apps", a_set(100))
        await asyncio.sleep(0.9)
        sent = [e.data for e in world.events.lines if e.ev == "ctrl.write" and e.data["controller"] == "replicaset"]
        writes = dropwhile(lambda site: site != "create pods", (data["site"] for data in sent))
        first = list(takewhile(lambda site: site == "create pods", writes))  # then it reports what it met
        events, _ = await world.admin.list("events", namespace="default")
        messages = [e["message"] for e in events if e["reason"] == "FailedCreate"]
        await world.admin.patch("resourcequotas", Key("default", "q"), {"spec": {"hard": {"pods": "100"}}})
        held = len(await world.pods())
        await world.until(lambda: is_used(world, {"pods": "100"}), 60.0)  # long before expectations end by themselves
        return len(first), held, messages[0]

    tried, held, message = world_of(act)

    assert (tried, held) == (1 + 2 + 4 + 8, 10)
    assert message.startswith('Error creating: pods "web-')
    assert message.endswith(" is forbidden: exceeded quota: q, requested: pods=1, used: pods=10, limited: pods=10")


def test_quota_is_freed_by_pods_that_end_or_go(world_of):
    async def act(world):
        await enforced(world, {"pods": "2"})
        await world.admin.create("replicasets.apps", a_set(2))
        await world.until(lambda: is_used(world, {"pods": "2"}))
        await world.admin.delete("replicasets.apps", Key("default", "web"))
        await world.until(lambda: is_used(world, {"pods": "0"}))
        return await world.pods()

    assert world_of(act, nodes=1) == []


def test_a_storm_of_creations_never_exceeds_the_quota_while_it_is_counted(world_of):
    async def act(world):
        await enforced(world, {"pods": "20"})
        link = world.network.profile("controllers")
        link.latency_min_s = link.latency_max_s = 0.02  # so that much happens between a count and its writing
        most = 0

        async def churn(number):
            nonlocal most
            own = []
            for turn in range(40):
                name = f"p{number}-{turn}"
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
                       "spec": {"containers": [{"name": "c", "image": "i:1"}]}}  # fmt: skip
                await asyncio.sleep(0.003 * (number + 1))
                try:
                    await world.admin.create("pods", pod)
                except Forbidden:
                    if own:
                        await world.admin.delete("pods", Key("default", own.pop()))
                else:
                    own.append(name)
                    most = max(most, len(await world.pods()))

        await asyncio.gather(*(churn(number) for number in range(8)))
        left = len(await world.pods())
        await world.until(lambda: is_used(world, {"pods": str(left)}))
        return most, left

    most, left = world_of(act, nodes=0)

    assert most == 20
    assert left <= 20


def test_claims_on_a_class_count_for_its_extended_resource_and_are_counted_anew(world_of):
    names = {
        "requests.example.com/gpu": "9",
        "requests.deviceclass.resource.kubernetes.io/gpu": "9",
        "gpu.deviceclass.resource.k8s.io/devices": "9",
    }
    exactly = {"deviceClassName": "gpu", "count": 2}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
             "metadata": {"name": "c", "namespace": "default"},
             "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}  # fmt: skip

    async def act(world):
        await world.admin.create("deviceclasses.resource.k8s.io", {
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
            "spec": {"extendedResourceName": "example.com/gpu"}})  # fmt: skip
        await world.admin.create("resourceclaims.resource.k8s.io", claim)
        await world.admin.create("resourcequotas", a_quota(names))
        await world.until(lambda: is_used(world, dict.fromkeys(names, "2")))
        await world.admin.delete("resourceclaims.resource.k8s.io", Key("default", "c"))
        await world.until(lambda: is_used(world, dict.fromkeys(names, "0")))
        return await used(world)

    assert world_of(act, nodes=1) == dict.fromkeys(names, "0")


SECRETS, ROLES = "secrets", "roles.rbac.authorization.k8s.io"


def a_secret(name):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}}


def a_role(name):
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": []}


@pytest.mark.parametrize(
    ("name", "resource", "made"),
    [(SECRETS, SECRETS, a_secret), (f"count/{SECRETS}", SECRETS, a_secret), (f"count/{ROLES}", ROLES, a_role)],
)
def test_the_deletion_of_what_the_process_does_not_read_for_all_frees_a_quota_at_once(world_of, name, resource, made):
    async def act(world):
        await enforced(world, {name: "10"})
        await asyncio.sleep(1)
        for number in range(3):
            await world.admin.create(resource, made(f"made-{number}"))
        await world.until(lambda: is_used(world, {name: "3"}))
        await world.admin.delete(resource, Key("default", "made-0"))
        await world.until(lambda: is_used(world, {name: "2"}), 1.0)

    world_of(act, controllers=("resourcequota",))


def test_what_goes_before_a_kind_is_followed_is_counted_once_it_is(world_of):
    async def act(world):
        link = world.network.profile("controllers")
        link.latency_min_s = link.latency_max_s = 0.3
        await world.admin.create(SECRETS, a_secret("early"))
        await world.admin.create("resourcequotas", a_quota({SECRETS: "10"}))
        await asyncio.sleep(0.9)  # the Secrets were listed 0.3 s ago, their watch begins in 0.3 s
        await world.admin.delete(SECRETS, Key("default", "early"))
        await world.until(lambda: is_used(world, {SECRETS: "1"}))
        await world.until(lambda: is_used(world, {SECRETS: "0"}), 5.0)

    world_of(act, controllers=("resourcequota",))


def test_a_quota_that_was_counted_before_the_manager_began_is_freed_as_well(world_of):
    async def act(world):
        await enforced(world, {SECRETS: "10"})
        await world.admin.create(SECRETS, a_secret("made"))
        world.kill()
        await world.start()
        await asyncio.sleep(2)
        await world.admin.delete(SECRETS, Key("default", "made"))
        await world.until(lambda: is_used(world, {SECRETS: "0"}), 1.0)

    world_of(act, controllers=("resourcequota",))


def test_no_secret_is_followed_where_no_quota_counts_them(world_of):
    async def act(world):
        await enforced(world, {"configmaps": "10"})
        before = len(world.manager._caches.informers)
        await world.admin.create(
            "resourcequotas", {**a_quota({SECRETS: "1"}), "metadata": {"name": "second", "namespace": "default"}}
        )
        await asyncio.sleep(2)
        return len(world.manager._caches.informers) - before

    assert world_of(act, controllers=("resourcequota",)) == 1
