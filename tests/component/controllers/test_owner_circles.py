"""Objects that own each other in a circle: who deletes one of them deletes them all, in the foreground, too."""

import asyncio
from itertools import pairwise

import pytest

from services.api.errors import NotFound
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.meta import Key
from tests.component.apiserver_fake.custom_resources import CRONTABS, a_crontab, a_definition

CONFIGMAPS = "configmaps"


def a_configmap(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def a_pod(name):
    spec = {"containers": [{"name": "c", "image": "i:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def a_custom_object(name):
    document = a_crontab(name)
    return {**document, "metadata": {**document["metadata"], "namespace": "default"}}


MADE_BY = {CONFIGMAPS: a_configmap, "pods": a_pod, CRONTABS: a_custom_object}


async def create(world, resource, name):
    document = MADE_BY[resource](name)
    return {**document, **await world.admin.create(resource, document, namespace="default")}


async def own(world, resource, name, *owners):
    """Give an object these owners, each of which waits for it."""
    references = [
        {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
         "uid": owner["metadata"]["uid"], "blockOwnerDeletion": True}
        for owner in owners
    ]  # fmt: skip
    await world.admin.patch(resource, Key("default", name), {"metadata": {"ownerReferences": references}})


async def circle(world, *resources):
    """Create one object of each resource, each owned by the one before it, the first by the last."""
    names = [f"gc{position}" for position in range(1, len(resources) + 1)]
    objects = [await create(world, resource, name) for resource, name in zip(resources, names, strict=True)]
    placed = list(zip(resources, names, objects, strict=True))
    for before, (resource, name, _) in pairwise([placed[-1], *placed]):
        await own(world, resource, name, before[2])
    await asyncio.sleep(1)
    return objects


async def names_of(world, resource):
    items, _ = await world.admin.list(resource, namespace="default")
    return sorted(item["metadata"]["name"] for item in items if item["metadata"]["name"] != "kube-root-ca.crt")


async def left(world, *resources):
    return {name for resource in dict.fromkeys(resources) for name in await names_of(world, resource)}


async def delete(world, resource, name, policy):
    await world.admin.delete(resource, Key("default", name), propagation=policy)
    await asyncio.sleep(10)


@pytest.mark.parametrize("policy", ["Foreground", "Background"])
@pytest.mark.parametrize("length", [2, 3, 5])
def test_a_circle_of_owners_goes_with_any_one_of_them(world_of, length, policy):
    async def act(world):
        kinds = (CONFIGMAPS,) * length
        await circle(world, *kinds)
        assert len(await left(world, *kinds)) == length
        await delete(world, CONFIGMAPS, "gc1", policy)
        return await left(world, *kinds)

    assert world_of(act, controllers=("gc",)) == set()


@pytest.mark.parametrize("first", [1, 2, 3])
def test_a_circle_of_several_kinds_and_of_defined_ones_goes_in_the_foreground(world_of, first):
    kinds = ("pods", CRONTABS, CONFIGMAPS)

    async def act(world):
        await world.admin.create(DEFINITIONS, a_definition())
        await asyncio.sleep(2)
        await circle(world, *kinds)
        await delete(world, kinds[first - 1], f"gc{first}", "Foreground")
        return await left(world, *kinds)

    assert world_of(act, controllers=("gc",), custom_resources=True) == set()


def test_what_the_circle_owns_besides_goes_before_its_owner(world_of):
    async def act(world):
        objects = await circle(world, *(CONFIGMAPS,) * 3)
        await create(world, "pods", "hung")
        await own(world, "pods", "hung", objects[2])
        await world.admin.patch("pods", Key("default", "hung"), {"metadata": {"finalizers": ["example.com/hold"]}})
        await asyncio.sleep(1)
        await delete(world, CONFIGMAPS, "gc1", "Foreground")
        held = await left(world, CONFIGMAPS, "pods")
        await world.admin.patch("pods", Key("default", "hung"), {"metadata": {"finalizers": None}})
        await asyncio.sleep(5)
        return held, await left(world, CONFIGMAPS, "pods")

    assert world_of(act, controllers=("gc",)) == ({"gc3", "hung"}, set())


def test_an_owner_outside_the_circle_keeps_what_it_owns_and_what_that_owns(world_of):
    async def act(world):
        objects = await circle(world, *(CONFIGMAPS,) * 3)
        other = await create(world, CONFIGMAPS, "other")
        await own(world, CONFIGMAPS, "gc2", objects[0], other)
        await asyncio.sleep(1)
        await delete(world, CONFIGMAPS, "gc1", "Foreground")
        references = (await world.admin.get(CONFIGMAPS, Key("default", "gc2")))["metadata"]["ownerReferences"]
        return await left(world, CONFIGMAPS), [each["name"] for each in references]

    assert world_of(act, controllers=("gc",)) == ({"gc2", "gc3", "other"}, ["other"])


def test_orphans_of_a_circle_stay_and_no_longer_name_the_owner_that_went(world_of):
    async def act(world):
        await circle(world, *(CONFIGMAPS,) * 3)
        await delete(world, CONFIGMAPS, "gc1", "Orphan")
        second = await world.admin.get(CONFIGMAPS, Key("default", "gc2"))
        return await left(world, CONFIGMAPS), second["metadata"].get("ownerReferences") or []

    assert world_of(act, controllers=("gc",)) == ({"gc2", "gc3"}, [])


def test_what_owns_itself_goes_in_the_background_and_waits_for_itself_in_the_foreground(world_of):
    """Upstream looks for circles of two and more; an object that blocks its own deletion keeps its finalizer."""

    async def act(world):
        await circle(world, CONFIGMAPS)
        await delete(world, CONFIGMAPS, "gc1", "Foreground")
        waiting = await left(world, CONFIGMAPS)
        await world.admin.patch(CONFIGMAPS, Key("default", "gc1"), {"metadata": {"ownerReferences": []}})
        await asyncio.sleep(5)
        freed = await left(world, CONFIGMAPS)
        await circle(world, CONFIGMAPS)
        await delete(world, CONFIGMAPS, "gc1", "Background")
        return waiting, freed, await left(world, CONFIGMAPS)

    assert world_of(act, controllers=("gc",)) == ({"gc1"}, set(), set())


def test_a_circle_that_grows_while_it_is_deleted_goes_as_well(world_of):
    async def act(world):
        objects = await circle(world, *(CONFIGMAPS,) * 2)
        await create(world, CONFIGMAPS, "late")
        await own(world, CONFIGMAPS, "late", objects[1])
        await delete(world, CONFIGMAPS, "gc1", "Foreground")
        with pytest.raises(NotFound):
            await world.admin.get(CONFIGMAPS, Key("default", "late"))
        return await left(world, CONFIGMAPS)

    assert world_of(act, controllers=("gc",)) == set()
