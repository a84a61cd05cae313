"""An object whose name is taken: what is wrong with it is said first, whatever the kind and whoever sends it."""

import pytest

from lab.scenarios.simulation import simloop
from tests.component.apiserver_fake.custom_resources import CRONTABS, Machine, a_crontab, a_definition
from tests.fuzz.target import valid_objects


def in_cluster(scenario):
    async def run():
        async with Machine().cluster(DRADeviceTaintRules=True, GenericWorkload=True) as cluster:
            return await scenario(cluster)

    return simloop.run(run())


def named(name, **metadata):
    valid = valid_objects()[name]
    return {**valid, "metadata": {"name": "one", **valid.get("metadata", {}), **metadata}}


@pytest.mark.parametrize("caller", [{}, {"field_validation": "Strict"}], ids=["component", "client"])
def test_an_object_of_any_kind_is_judged_before_its_name_is_found_taken(caller):
    async def scenario(cluster):
        found = {}
        for name in (each for each in valid_objects() if each in cluster.server.catalogue.resources):
            await cluster.call("create", name, body=named(name), **caller)
            wrong = await cluster.call("create", name, body=named(name, labels={"a b": "c"}), **caller)
            found[name] = wrong["code"], [each["field"] for each in wrong.get("details", {}).get("causes", ())][:1]
        return {name: each for name, each in found.items() if each != (422, ["metadata.labels"])}

    assert in_cluster(scenario) == {}


def test_a_good_object_is_refused_for_its_name_and_for_what_holds_it():
    async def scenario(cluster):
        body = {"metadata": {"name": "one", "finalizers": ["a.b/c"]}}
        await cluster.call("create", "configmaps", body=body, code=201)
        taken = await cluster.call("create", "configmaps", body=body, code=409)
        await cluster.call("delete", "configmaps", "one", code=200)
        ending = await cluster.call("create", "configmaps", body=body, code=409)
        dry = await cluster.call("create", "configmaps", body=body, code=409, dry_run=True)
        return taken["message"], ending["message"], dry["reason"]

    text = 'configmaps "one" already exists'
    assert in_cluster(scenario) == (text, f"object is being deleted: {text}", "AlreadyExists")


def test_a_quota_is_asked_before_the_name():
    async def scenario(cluster):
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "1"}}}
        await cluster.call("create", "resourcequotas", body=quota, code=201)
        status = {"status": {"hard": {"count/configmaps": "1"}, "used": {"count/configmaps": "1"}}}
        fields = {"subresource": "status", "patch_type": "merge"}
        await cluster.call("create", "configmaps", body={"metadata": {"name": "one"}})
        await cluster.call("patch", "resourcequotas", "q", status, code=200, **fields)
        return (await cluster.call("create", "configmaps", body={"metadata": {"name": "one"}}))["reason"]

    assert in_cluster(scenario) == "Forbidden"


def test_a_custom_resource_is_held_to_its_schema_before_its_name_is_found_taken():
    async def scenario(cluster):
        await cluster.define(a_definition())
        await cluster.call("create", CRONTABS, body=a_crontab(), code=201)
        wrong = await cluster.call("create", CRONTABS, body=a_crontab(replicas=11), code=422)
        await cluster.call("create", CRONTABS, body=a_crontab(), code=409)
        return wrong["details"]["causes"][0]["field"]

    assert in_cluster(scenario) == "spec.replicas"
