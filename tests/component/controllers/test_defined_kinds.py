"""Objects of kinds that definitions define: collected, counted and removed with their namespace like any others."""

import asyncio

import pytest

from services.api.errors import Forbidden, NotFound
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.meta import Key
from tests.component.apiserver_fake.custom_resources import CRONTABS, GROUP, a_crontab, a_definition

CONTROLLERS = ("gc", "namespace", "resourcequota")


def owner_of(document, **more):
    names = {"apiVersion": document["apiVersion"], "kind": document["kind"]}
    return {**names, "name": document["metadata"]["name"], "uid": document["metadata"]["uid"], **more}


def a_configmap(name, *owners):
    metadata = {"name": name, "namespace": "default", "ownerReferences": list(owners)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


async def is_there(world, resource, name, namespace="default"):
    try:
        await world.admin.get(resource, Key(namespace, name))
    except NotFound:
        return False
    return True


async def is_gone(world, resource, name, namespace="default"):
    return not await is_there(world, resource, name, namespace)


async def defined(world):
    await world.admin.create(DEFINITIONS, a_definition())
    await asyncio.sleep(2)


async def crontab(world, name="one", *owners, namespace="default"):
    document = a_crontab(name)
    document["metadata"] |= {"namespace": namespace, "ownerReferences": list(owners)}
    made = await world.admin.create(CRONTABS, document, namespace=namespace)
    return {**document, **made}


def play(world_of, act):
    return world_of(act, controllers=CONTROLLERS, custom_resources=True)


def test_dependents_of_a_custom_resource_go_with_it_and_it_goes_with_its_owner(world_of):
    async def act(world):
        await defined(world)
        owner = await world.admin.create("configmaps", a_configmap("owner"))
        middle = await crontab(world, "middle", owner_of({**a_configmap("owner"), **owner}))
        await world.admin.create("configmaps", a_configmap("last", owner_of(middle)))
        await asyncio.sleep(1)
        assert await is_there(world, "configmaps", "last")

        await world.admin.delete("configmaps", Key("default", "owner"))
        await world.until(lambda: is_gone(world, CRONTABS, "middle"))
        await world.until(lambda: is_gone(world, "configmaps", "last"))

    play(world_of, act)


def test_an_owner_is_found_under_another_version_than_the_one_it_is_stored_in(world_of):
    async def act(world):
        await defined(world)
        owner = await crontab(world)
        await world.admin.create("configmaps", a_configmap("kept", owner_of(owner, apiVersion=f"{GROUP}/v1beta1")))
        await world.admin.create(
            "configmaps", a_configmap("lost", owner_of(owner, apiVersion=f"{GROUP}/v1beta1", uid="other"))
        )
        await world.until(lambda: is_gone(world, "configmaps", "lost"))
        assert await is_there(world, "configmaps", "kept")

    play(world_of, act)


def test_dependents_go_when_a_deleted_definition_takes_their_owners(world_of):
    async def act(world):
        await defined(world)
        await world.admin.create("configmaps", a_configmap("dependent", owner_of(await crontab(world))))
        await asyncio.sleep(1)
        await world.admin.delete(DEFINITIONS, Key("", CRONTABS))
        await world.until(lambda: is_gone(world, "configmaps", "dependent"))
        await defined(world)
        await crontab(world)
        assert await is_there(world, CRONTABS, "one")

    play(world_of, act)


def test_a_foreground_deletion_waits_for_custom_resources_that_block_it(world_of):
    async def act(world):
        await defined(world)
        owner = {**a_configmap("owner"), **await world.admin.create("configmaps", a_configmap("owner"))}
        reference = owner_of(owner, blockOwnerDeletion=True)
        document = a_crontab("held")
        document["metadata"] |= {
            "namespace": "default",
            "ownerReferences": [reference],
            "finalizers": ["example.com/hold"],
        }
        await world.admin.create(CRONTABS, document)
        await asyncio.sleep(1)
        await world.admin.delete("configmaps", Key("default", "owner"), propagation="Foreground")
        await asyncio.sleep(5)
        assert await is_there(world, "configmaps", "owner")
        await world.admin.patch(CRONTABS, Key("default", "held"), {"metadata": {"finalizers": None}})
        await world.until(lambda: is_gone(world, "configmaps", "owner"))

    play(world_of, act)


def test_a_deleted_namespace_takes_its_custom_resources_with_it(world_of):
    async def act(world):
        await world.admin.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
        await defined(world)
        await crontab(world, namespace="x")
        await world.admin.delete("namespaces", Key("", "x"))
        await world.until(lambda: is_gone(world, "namespaces", "x", ""))
        assert await is_gone(world, CRONTABS, "one", "x")

    play(world_of, act)


def test_a_quota_counts_objects_of_a_kind_that_is_defined_after_it(world_of):
    async def act(world):
        name = f"count/{CRONTABS}"
        metadata = {"name": "q", "namespace": "default"}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {name: "1"}}}
        await world.admin.create("resourcequotas", quota)

        async def used():
            return (await world.admin.get("resourcequotas", Key("default", "q")))["status"].get("used", {}).get(name)

        async def is_used(count):
            return await used() == count

        await asyncio.sleep(1)
        assert await used() is None
        await defined(world)
        await world.until(lambda: is_used("0"))
        await crontab(world)
        assert await used() == "1"
        with pytest.raises(Forbidden, match="exceeded quota: q"):
            await crontab(world, "two")
        await world.admin.delete(CRONTABS, Key("default", "one"))
        await world.until(lambda: is_used("0"))

    play(world_of, act)


def test_definitions_are_not_followed_unless_it_is_asked_for(world_of):
    async def act(world):
        await defined(world)
        await world.admin.create("configmaps", a_configmap("dependent", owner_of(await crontab(world))))
        await world.admin.delete(CRONTABS, Key("default", "one"))
        await asyncio.sleep(5)
        assert await is_there(world, "configmaps", "dependent")

    world_of(act, controllers=CONTROLLERS)
