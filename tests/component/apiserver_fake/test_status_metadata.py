"""Which metadata a write of the status changes: every kind that is served, by every kind of write, from a client and
from a component."""

import asyncio

import pytest

from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.registry.status_metadata import ALL, NONE, STATUS_METADATA
from lab.scenarios.simulation import simloop
from tests.component.apiserver_fake.custom_resources import CRONTABS, Machine, a_crontab, a_definition
from tests.fuzz.target import valid_objects

KINDS = sorted(name for name, each in whole_catalogue().resources.items() if "status" in each.subresources)
NOTES = {
    "labels": {"noted": "label"},
    "annotations": {"noted": "annotation"},
    "finalizers": ["example.com/noted"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}],
}
WRITES = ["update", "merge", "json", "apply"]
REQUESTS = "certificatesigningrequests.certificates.k8s.io"


def in_cluster(scenario):
    async def run():
        async with Machine().cluster(DRADeviceTaintRules=True, GenericWorkload=True) as cluster:
            return await scenario(cluster)

    return simloop.run(run())


async def an_object(cluster, name):
    """Create a valid object of that kind and return it."""
    if name == CRONTABS:
        await cluster.define(a_definition())
        return await cluster.call("create", CRONTABS, body=a_crontab(), code=201)
    valid = valid_objects()[name]
    body = {**valid, "metadata": {"name": "one", **valid.get("metadata", {})}}
    return await cluster.call("create", name, body=body, code=201)


async def noted(cluster, made, name, how, subresource="status", **caller):
    """Return the metadata of an object after one write that says all of it."""
    metadata, own = made["metadata"], made["metadata"]["name"]
    if how == "update":
        body = {**made, "metadata": {**metadata, **NOTES}}
        return await cluster.call("update", name, own, body, subresource=subresource, code=200, **caller)
    body = {"metadata": NOTES}
    if how == "json":
        body = [{"op": "add", "path": f"/metadata/{each}", "value": value} for each, value in NOTES.items()]
    if how == "apply":
        named = {"name": own, "namespace": metadata.get("namespace", ""), **NOTES}
        body = {"apiVersion": made["apiVersion"], "kind": made["kind"], "metadata": named}
        caller = {"field_manager": "m", "force": True, **caller}
    fields = {"subresource": subresource, "patch_type": how, **caller}
    return await cluster.call("patch", name, own, body, code=200, **fields)


def has_note(metadata, member):
    wanted = NOTES[member]
    have = metadata.get(member) or type(wanted)()
    return have.items() >= wanted.items() if isinstance(wanted, dict) else wanted[0] in have


def test_every_kind_with_a_status_has_its_rule():
    assert KINDS == sorted(STATUS_METADATA)


@pytest.mark.parametrize("name", [*KINDS, CRONTABS])
@pytest.mark.parametrize("caller", [{}, {"field_validation": "Strict"}], ids=["component", "client"])
def test_a_write_of_the_status_writes_the_metadata_that_its_kind_lets_it(name, caller):
    async def scenario(cluster):
        own, found = (await an_object(cluster, name))["metadata"]["name"], {}
        await asyncio.sleep(1)  # for what controllers in the server do of themselves
        for how in WRITES:
            await noted(cluster, await cluster.call("get", name, own, code=200), name, how, **caller)
            read = await cluster.call("get", name, own, code=200)
            found[how] = tuple(each for each in ALL if has_note(read["metadata"], each))
            body = {"metadata": {**dict.fromkeys(ALL), "labels": {"noted": None}, "annotations": {"noted": None}}}
            await cluster.call("patch", name, own, body, patch_type="merge", code=200)
        return found

    assert in_cluster(scenario) == dict.fromkeys(WRITES, STATUS_METADATA.get(name, NONE))


def test_the_metadata_that_goes_with_a_status_is_judged_as_any_other():
    async def scenario(cluster):
        made = await an_object(cluster, "nodes")
        body = {"metadata": {"labels": {"a b": "c"}}}
        fields = {"subresource": "status", "patch_type": "merge"}
        refused = await cluster.call("patch", "nodes", made["metadata"]["name"], body, code=422, **fields)
        return [each["field"] for each in refused["details"]["causes"]]

    assert in_cluster(scenario) == ["metadata.labels"]


def test_a_status_adds_no_finalizer_to_what_is_being_deleted_and_takes_its_last_one_away():
    async def scenario(cluster):
        made = await an_object(cluster, "nodes")
        name, fields = made["metadata"]["name"], {"subresource": "status", "patch_type": "merge"}
        await cluster.call("patch", "nodes", name, {"metadata": {"finalizers": ["a.b/c"]}}, code=200, **fields)
        await cluster.call("delete", "nodes", name, code=200)
        more = {"metadata": {"finalizers": ["a.b/c", "a.b/d"]}}
        refused = await cluster.call("patch", "nodes", name, more, code=422, **fields)
        await cluster.call("patch", "nodes", name, {"metadata": {"finalizers": None}}, code=200, **fields)
        return refused["details"]["causes"][0]["field"], (await cluster.call("get", "nodes", name))["code"]

    assert in_cluster(scenario) == ("metadata.finalizers", 404)


@pytest.mark.parametrize("how", WRITES)
def test_an_approval_writes_metadata_and_conditions_of_any_type(how):
    condition = {"type": "Odd", "status": "True", "reason": "because"}

    async def scenario(cluster):
        made = await an_object(cluster, REQUESTS)
        name, fields = made["metadata"]["name"], {"subresource": "approval"}
        await noted(cluster, made, REQUESTS, how, "approval")
        body = {"status": {"conditions": [condition]}}
        await cluster.call("patch", REQUESTS, name, body, patch_type="merge", code=200, **fields)
        found = await cluster.call("get", REQUESTS, name, code=200)
        [kept] = found["status"]["conditions"]
        return {each: found["metadata"].get(each) for each in ALL}, {each: kept[each] for each in condition}

    assert in_cluster(scenario) == (NOTES, condition)


@pytest.mark.parametrize(
    ("subresource", "conditions", "cause"),
    [
        ("status", ["Approved"], 'Forbidden: updates may not add a condition of type "Approved"'),
        ("status", ["Denied"], 'Forbidden: updates may not add a condition of type "Denied"'),
        ("status", ["Failed"], ""),
        ("approval", ["Approved"], ""),
        ("approval", ["Failed"], ""),
    ],
)
def test_only_an_approval_decides_a_request(subresource, conditions, cause):
    async def scenario(cluster):
        made = await an_object(cluster, REQUESTS)
        body = {"status": {"conditions": [{"type": each, "status": "True"} for each in conditions]}}
        fields = {"patch_type": "merge", "subresource": subresource}
        found = await cluster.call("patch", REQUESTS, made["metadata"]["name"], body, **fields)
        return [each["message"] for each in found.get("details", {}).get("causes", ())]

    assert in_cluster(scenario) == ([cause] if cause else [])


@pytest.mark.parametrize("subresource", ["status", "approval"])
def test_a_decision_stays(subresource):
    async def scenario(cluster):
        made = await an_object(cluster, REQUESTS)
        name, fields = made["metadata"]["name"], {"patch_type": "merge"}
        body = {"status": {"conditions": [{"type": "Approved", "status": "True"}]}}
        await cluster.call("patch", REQUESTS, name, body, subresource="approval", code=200, **fields)
        body = {"status": {"conditions": None}}
        found = await cluster.call("patch", REQUESTS, name, body, subresource=subresource, code=422, **fields)
        return [each["message"] for each in found["details"]["causes"]]

    assert in_cluster(scenario) == ['Forbidden: updates may not remove a condition of type "Approved"']


def test_finalizing_a_namespace_writes_its_metadata():
    async def scenario(cluster):
        made = await an_object(cluster, "namespaces")
        body = {**made, "metadata": {**made["metadata"], **NOTES}}
        await cluster.call("update", "namespaces", "one", body, subresource="finalize", code=200)
        found = await cluster.call("get", "namespaces", "one", code=200)
        return {each: found["metadata"].get(each) for each in ALL}

    assert in_cluster(scenario) == NOTES
