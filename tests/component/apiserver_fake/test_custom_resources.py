"""Custom resources as clients write and read them: schema, generations, status, scale, versions, selectors."""

import asyncio
import copy

import msgspec
import pytest

from apiserver_fake.rest import discovery, openapi, tables
from lab.scenarios.simulation import simloop
from services.api.kinds.customresourcedefinition import DEFINITIONS
from tests.component.apiserver_fake.custom_resources import (
    CRONTABS,
    GROUP,
    SCHEMA,
    Machine,
    a_crontab,
    a_definition,
    a_version,
)

SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}
BOTH = {"status": {}, "scale": SCALE}


def with_crontabs(*versions, **spec):
    """Run a test's coroutine function against a new server that serves CronTabs."""

    def run(test):
        async def main():
            async with Machine().cluster() as cluster:
                await cluster.define(a_definition(*versions, **spec))
                await test(cluster)

        def wrapped():
            simloop.run(main())

        wrapped.__name__ = test.__name__
        return wrapped

    return run


async def patched(cluster, body, name="one", kind="merge", **fields):
    return await cluster.call("patch", name=name, body=body, patch_type=kind, **fields)


@with_crontabs()
async def test_defaults_are_set_and_unknown_fields_are_dropped(cluster):
    made = await cluster.call("create", body={**a_crontab(colour="red"), "extra": 1}, code=201)

    assert made["spec"] == {"cronSpec": "* * * * *", "image": "busybox"}
    assert "extra" not in made
    assert made["metadata"]["generation"] == 1


@with_crontabs()
async def test_unknown_fields_are_refused_or_warned_of_as_field_validation_says(cluster):
    body = {**a_crontab(colour="red"), "extra": 1}
    body["metadata"]["colour"] = "red"
    refused = await cluster.call("create", body=body, field_validation="Strict", code=400)
    await cluster.call("create", body=body, field_validation="Warn", code=201)

    for path in ("metadata.colour", "spec.colour", "extra"):
        assert f'unknown field "{path}"' in refused["message"]
        assert f'unknown field "{path}"' in cluster.warnings
    assert refused["message"].startswith(
        'CronTab in version "v1" cannot be handled as a CronTab: strict decoding error: unknown field'
    )


@with_crontabs()
async def test_a_value_that_the_schema_refuses_is_named_with_its_path(cluster):
    refused = await cluster.call("create", body=a_crontab(replicas=20), code=422)

    assert refused["message"] == (
        'CronTab.stable.example.com "one" is invalid: spec.replicas: Invalid value: 20: spec.replicas in '
        "body should be less than or equal to 10"
    )
    named = {key: refused["details"][key] for key in ("name", "group", "kind")}
    assert named == {"name": "one", "group": "stable.example.com", "kind": "CronTab"}


@with_crontabs(a_version(subresources=BOTH))
async def test_generations_count_changes_of_all_but_metadata_and_status(cluster):
    await cluster.call("create", body=a_crontab(replicas=1), code=201)

    async def generation(**call):
        found = await patched(cluster, code=200, **call)
        return found["metadata"]["generation"]

    assert await generation(body={"metadata": {"labels": {"a": "b"}}}) == 1
    assert await generation(body={"spec": {"replicas": 2}}) == 2
    assert await generation(body={"spec": {"replicas": 2}}) == 2
    assert await generation(body={"status": {"replicas": 2}}, subresource="status") == 2


@with_crontabs(a_version())
async def test_without_the_status_subresource_the_status_is_a_field_like_others(cluster):
    await cluster.call("create", body={**a_crontab(), "status": {"replicas": 1}}, code=201)
    found = await patched(cluster, {"status": {"replicas": 2}}, code=200)

    assert (found["status"], found["metadata"]["generation"]) == ({"replicas": 2}, 2)
    await patched(cluster, {"status": {"replicas": 3}}, subresource="status", code=404)


@with_crontabs(a_version(subresources=BOTH))
async def test_the_status_subresource_writes_the_status_and_nothing_else(cluster):
    made = await cluster.call("create", body={**a_crontab(), "status": {"replicas": 1}}, code=201)
    assert "status" not in made
    found = await patched(cluster, {"spec": {"image": "b"}, "status": {"replicas": 2}}, subresource="status", code=200)
    assert (found["spec"]["image"], found["status"]) == ("busybox", {"replicas": 2})
    found = await patched(cluster, {"spec": {"image": "b"}, "status": {"replicas": 9}}, code=200)
    assert (found["spec"]["image"], found["status"]) == ("b", {"replicas": 2})


@with_crontabs(a_version(subresources=BOTH))
async def test_scale_reads_and_writes_the_fields_that_the_definition_names(cluster):
    await cluster.call("create", body=a_crontab(replicas=1), code=201)
    await patched(cluster, {"status": {"replicas": 4, "selector": "a=b"}}, subresource="status", code=200)

    scale = await cluster.call("get", name="one", subresource="scale", code=200)
    assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 4, "selector": "a=b"})
    after = await patched(cluster, {"spec": {"replicas": 3}}, subresource="scale", code=200)
    assert (after["kind"], after["spec"]) == ("Scale", {"replicas": 3})
    found = await cluster.call("get", name="one", code=200)
    assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (3, 2)
    refused = await patched(cluster, {"spec": {"replicas": 11}}, subresource="scale", code=422)
    assert "spec.replicas in body should be less than or equal to 10" in refused["message"]


@with_crontabs(a_version(subresources=BOTH))
async def test_scale_of_an_object_without_replicas_is_an_error_that_names_the_path(cluster):
    await cluster.call("create", body=a_crontab(), code=201)
    refused = await cluster.call("get", name="one", subresource="scale", code=500)

    assert refused["message"] == 'Internal error occurred: the spec replicas field ".spec.replicas" does not exist'


@with_crontabs()
async def test_an_update_must_name_the_version_it_replaces(cluster):
    made = await cluster.call("create", body=a_crontab(), code=201)
    refused = await cluster.call("update", name="one", body=a_crontab(image="b"), code=422)
    assert "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update" in refused["message"]
    made["spec"]["image"] = "b"
    await cluster.call("update", name="one", body=made, code=200)
    await cluster.call("update", name="one", body=made, code=409)


@with_crontabs()
async def test_a_finalizer_without_a_path_is_warned_of(cluster):
    body = a_crontab()
    body["metadata"]["finalizers"] = ["mine", "example.com/mine"]
    await cluster.call("create", body=body, code=201)

    [warning] = cluster.warnings
    assert warning == (
        'metadata.finalizers: "mine": prefer a domain-qualified finalizer name including a path (/) to avoid '
        "accidental conflicts with other finalizer writers"
    )


@with_crontabs(a_version(selectableFields=[{"jsonPath": ".spec.image"}]))
async def test_selectable_fields_select_and_others_are_refused(cluster):
    for name, image in (("one", "a"), ("two", "b")):
        await cluster.call("create", body=a_crontab(name, image=image), code=201)
    found = await cluster.call("list", field_selector="spec.image=b", code=200)
    assert [each["metadata"]["name"] for each in found["items"]] == ["two"]
    refused = await cluster.call("list", field_selector="spec.cronSpec=b", code=400)
    assert refused["message"] == "field label not supported: spec.cronSpec"


@with_crontabs()
async def test_fields_that_become_selectable_select_what_is_stored_already(cluster):
    await cluster.call("create", body=a_crontab(image="a"), code=201)
    found = await cluster.definition()
    found["spec"]["versions"][0]["selectableFields"] = [{"jsonPath": ".spec.image"}]
    await cluster.call("update", DEFINITIONS, CRONTABS, found, code=200)

    found = await cluster.call("list", field_selector="spec.image=a", code=200)
    assert [each["metadata"]["name"] for each in found["items"]] == ["one"]


@with_crontabs()
async def test_a_new_default_is_seen_in_what_is_stored_already(cluster):
    await cluster.call("create", body=a_crontab(), code=201)
    found = await cluster.definition()
    properties = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["replicas"]["default"] = 5
    del properties["image"]
    await cluster.call("update", DEFINITIONS, CRONTABS, found, code=200)

    read = await cluster.call("get", name="one", version="v1", code=200)
    assert read["spec"] == {"cronSpec": "* * * * *", "replicas": 5}
    labelled = await patched(cluster, {"metadata": {"labels": {"a": "b"}}}, version="v1", code=200)
    assert (labelled["spec"], labelled["metadata"]["generation"]) == (read["spec"], 1)


OLDER = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"cronSpec": {"type": "string"}, "image": {"type": "string", "maxLength": 3}},
        }
    },
}
TWO = (a_version(), a_version("v1beta1", schema=OLDER, storage=False, deprecated=True))


@with_crontabs(*TWO)
async def test_an_object_is_served_in_each_version_and_stored_in_one(cluster):
    made = await cluster.call("create", body=a_crontab(version="v1beta1"), version="v1beta1", code=201)
    assert (made["apiVersion"], made["spec"]) == (f"{GROUP}/v1beta1", {"cronSpec": "* * * * *", "image": "busybox"})
    stored = await cluster.call("get", name="one", code=200)
    assert (stored["apiVersion"], stored["spec"]["image"]) == (f"{GROUP}/v1", "busybox")
    await patched(cluster, {"spec": {"replicas": 2}}, code=200)
    listed = await cluster.call("list", version="v1beta1", code=200)
    assert (listed["kind"], listed["apiVersion"]) == ("CronTabList", f"{GROUP}/v1beta1")
    assert listed["items"][0]["spec"] == {"cronSpec": "* * * * *", "image": "busybox"}


@with_crontabs(*TWO)
async def test_what_is_sent_in_a_version_is_judged_by_that_versions_schema(cluster):
    refused = await cluster.call("create", body=a_crontab(version="v1beta1", image="long"), version="v1beta1", code=422)
    assert "spec.image" in refused["message"]
    body = a_crontab(version="v1beta1", image="abc", replicas=3)
    refused = await cluster.call("create", body=body, version="v1beta1", field_validation="Strict", code=400)
    assert refused["message"] == (
        'CronTab in version "v1beta1" cannot be handled as a CronTab: strict decoding error: '
        'unknown field "spec.replicas"'
    )


STRICTER = copy.deepcopy(SCHEMA)
STRICTER["properties"]["spec"]["required"] = ["replicas"]


@with_crontabs(a_version(schema=STRICTER), TWO[1])
async def test_the_stored_versions_schema_does_not_judge_what_was_sent_in_another(cluster):
    refused = await cluster.call("create", body=a_crontab(), code=422)
    assert "spec.replicas: Required value" in refused["message"]
    made = await cluster.call("create", body=a_crontab(version="v1beta1", image="abc"), version="v1beta1", code=201)
    assert made["spec"]["image"] == "abc"


@with_crontabs(*TWO)
async def test_an_update_in_another_version_is_not_refused_for_what_it_does_not_change(cluster):
    await cluster.call("create", body=a_crontab(image="longer"), code=201)
    found = await cluster.call("get", name="one", version="v1beta1", code=200)
    found["spec"]["cronSpec"] = "1 * * * *"
    await cluster.call("update", name="one", body=found, version="v1beta1", code=200)
    found = await cluster.call("get", name="one", version="v1beta1", code=200)
    found["spec"]["image"] = "other"
    refused = await cluster.call("update", name="one", body=found, version="v1beta1", code=422)
    assert "spec.image" in refused["message"]


@with_crontabs(*TWO)
async def test_objects_are_read_in_the_new_version_after_the_stored_version_changed(cluster):
    await cluster.call("create", body=a_crontab(), code=201)
    found = await cluster.definition()
    first, second = found["spec"]["versions"]
    first["storage"], second["storage"] = False, True
    found = await cluster.call("update", DEFINITIONS, CRONTABS, found, code=200)
    assert found["status"]["storedVersions"] == ["v1", "v1beta1"]

    for version in ("v1", "v1beta1"):
        read = await cluster.call("get", name="one", version=version, code=200)
        assert read["apiVersion"] == f"{GROUP}/{version}"
    after = await patched(cluster, {"metadata": {"labels": {"a": "b"}}}, code=200)
    assert (after["apiVersion"], after["metadata"]["generation"]) == (f"{GROUP}/v1beta1", 1)


COLUMNS = [
    {"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec"},
    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
    {"name": "Made", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


@pytest.mark.parametrize(
    ("columns", "names", "cells"),
    [
        (COLUMNS, ["Name", "Spec", "Replicas", "Made"], ["one", "* * * * *", None, "10s"]),
        ([], ["Name", "Age"], ["one", "10s"]),
    ],
)
def test_tables_have_the_defined_columns_or_the_age(columns, names, cells):
    @with_crontabs(a_version(additionalPrinterColumns=columns))
    async def test(cluster):
        made = await cluster.call("create", body=a_crontab(), code=201)
        await asyncio.sleep(10)
        resource = cluster.server.catalogue.served_versions[GROUP, "v1"]["crontabs"].resource
        table = tables.table_of(resource, made, cluster.server._clock.wall())

        assert [each["name"] for each in table["columnDefinitions"]] == names
        assert table["rows"][0]["cells"] == cells

    test()


@with_crontabs(*TWO, names={"shortNames": ["ct"], "categories": ["all"]})
async def test_discovery_and_openapi_have_the_kind_in_each_version(cluster):
    catalogue = cluster.server.catalogue
    assert discovery.groups(catalogue)[GROUP] == ("v1", "v1beta1")
    entry = discovery.resource_list(catalogue, GROUP, "v1")["resources"][0]
    assert (entry["name"], entry["shortNames"], entry["categories"]) == ("crontabs", ["ct"], ["all"])
    document = openapi.document(catalogue, GROUP, "v1")
    schema = document["components"]["schemas"]["com.example.stable.v1.CronTab"]
    assert set(schema["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}
    # kubectl sends strategic patches of a kind if any of its paths takes them, subresources included.
    patches = [each["patch"]["requestBody"]["content"] for each in document["paths"].values() if "patch" in each]
    assert not any("application/strategic-merge-patch+json" in each for each in patches)
    assert all("application/merge-patch+json" in each for each in patches)
    text = msgspec.json.encode(document).decode()
    references = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert references <= set(document["components"]["schemas"])


def test_discovery_changes_with_definitions():
    async def main():
        async with Machine().cluster() as cluster:
            catalogue = cluster.server.catalogue
            before = discovery.document_at(catalogue, "apis", "v2").etag
            await cluster.define(a_definition())
            after = discovery.document_at(catalogue, "apis", "v2").etag
            await cluster.call("delete", DEFINITIONS, CRONTABS, code=200)
            await asyncio.sleep(1)
            assert before != after
            assert discovery.document_at(catalogue, "apis", "v2").etag == before

    simloop.run(main())


def test_versions_are_preferred_as_kubernetes_orders_them():
    names = ["foo10", "v1", "v10", "v11alpha2", "v11beta2", "v12alpha1", "v2", "v3beta1", "foo1", "v10beta3"]

    assert sorted(names, key=discovery.version_rank) == [
        "v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10",
    ]  # fmt: skip


def test_a_cluster_scoped_kind_has_no_namespace():
    async def main():
        async with Machine().cluster() as cluster:
            await cluster.define(a_definition(scope="Cluster"))
            made = await cluster.call("create", body=a_crontab(), code=201)
            assert "namespace" not in made["metadata"]
            await cluster.call("get", name="one", code=200)

    simloop.run(main())


def test_schemas_do_not_share_what_is_written():
    """Two objects with the same default have values of their own."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "default": {"a": []}}},
    }

    @with_crontabs(a_version(schema=schema))
    async def test(cluster):
        body = {**a_crontab(), "spec": None}
        made = await cluster.call("create", body=body, code=201)
        assert made["spec"] == {"a": []}
        found = await patched(cluster, [{"op": "add", "path": "/spec/a/-", "value": 1}], kind="json", code=200)
        assert found["spec"] == {"a": [1]}
        other = {**a_crontab("two"), "spec": None}
        assert (await cluster.call("create", body=other, code=201))["spec"] == {"a": []}

    test()
    assert "default" not in SCHEMA["properties"]["spec"]


OLD_FORM = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"hostPort": {"type": "string"}}},
        "status": {"type": "object", "properties": {"state": {"type": "string"}}},
    },
}
NEW_FORM = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"host": {"type": "string"}, "port": {"type": "string"}}},
        "status": {"type": "object", "properties": {"state": {"type": "string"}}},
    },
}
SPLIT = (
    a_version("v1", schema=OLD_FORM, subresources={"status": {}}),
    a_version("v2", schema=NEW_FORM, storage=False, subresources={"status": {}}),
)


async def splitting(documents, api_version):
    """Convert as Kubernetes' own example does: `hostPort: a:1` is `host: a, port: 1` in v2."""
    found = []
    for each in documents:
        spec = each.get("spec") or {}
        if each["apiVersion"] == api_version:
            found.append(each)
        elif api_version.endswith("v2"):
            host, _, port = spec.get("hostPort", "").partition(":")
            found.append({**each, "apiVersion": api_version, "spec": {"host": host, "port": port}})
        else:
            port = {"hostPort": f"{spec.get('host', '')}:{spec.get('port', '')}"}
            found.append({**each, "apiVersion": api_version, "spec": port})
    return found


def with_webhook(test):
    async def main():
        async with Machine().cluster() as cluster:
            cluster.server.extensions.definitions()._kinds._make_converter = lambda definition: splitting
            cluster.server.registry._surroundings._is_converting = True
            config = {"url": "https://example.com/convert"}
            webhook = {"clientConfig": config, "conversionReviewVersions": ["v1"]}
            await cluster.define(a_definition(*SPLIT, conversion={"strategy": "Webhook", "webhook": webhook}))
            await test(cluster)

    def wrapped():
        simloop.run(main())

    wrapped.__name__ = test.__name__
    return wrapped


def of_spec(version, **spec):
    return {**a_crontab(version=version), "spec": spec}


@with_webhook
async def test_what_a_webhook_converts_is_read_and_written_in_either_version(cluster):
    made = await cluster.call("create", body=of_spec("v2", host="a", port="1"), version="v2", code=201)
    assert (made["apiVersion"], made["spec"]) == (f"{GROUP}/v2", {"host": "a", "port": "1"})
    stored = await cluster.call("get", name="one", version="v1", code=200)
    assert (stored["apiVersion"], stored["spec"]) == (f"{GROUP}/v1", {"hostPort": "a:1"})
    found = await patched(cluster, {"spec": {"port": "2"}}, version="v2", code=200)
    assert (found["spec"], found["metadata"]["generation"]) == ({"host": "a", "port": "2"}, 2)
    found = await patched(cluster, {"status": {"state": "x"}}, version="v2", subresource="status", code=200)
    assert (found["status"], found["metadata"]["generation"]) == ({"state": "x"}, 2)
    listed = await cluster.call("list", version="v2", code=200)
    assert [each["spec"] for each in listed["items"]] == [{"host": "a", "port": "2"}]
    found["spec"]["host"] = "b"
    await cluster.call("update", name="one", body=found, version="v2", code=200)
    await cluster.call("update", name="one", body=found, version="v2", code=409)
    assert (await cluster.call("get", name="one", code=200))["spec"] == {"hostPort": "b:2"}


@with_webhook
async def test_objects_stored_in_an_older_version_are_converted_when_the_stored_version_changed(cluster):
    await cluster.call("create", body=of_spec("v1", hostPort="a:1"), code=201)
    definition = await cluster.definition()
    first, second = definition["spec"]["versions"]
    first["storage"], second["storage"] = False, True
    await cluster.call("update", DEFINITIONS, CRONTABS, definition, code=200)

    assert (await cluster.call("get", name="one", version="v2", code=200))["spec"] == {"host": "a", "port": "1"}
    assert (await cluster.call("get", name="one", version="v1", code=200))["spec"] == {"hostPort": "a:1"}
    found = await patched(cluster, {"spec": {"port": "2"}}, version="v2", code=200)
    assert found["spec"] == {"host": "a", "port": "2"}
    stored = msgspec.json.decode(cluster.server.store.get(CRONTABS, "default", "one").body)
    assert (stored["apiVersion"], stored["spec"]) == (f"{GROUP}/v2", {"host": "a", "port": "2"})


def test_a_server_that_calls_no_webhooks_refuses_to_convert_by_one():
    async def main():
        async with Machine().cluster() as cluster:
            config = {"url": "https://example.com/convert"}
            webhook = {"clientConfig": config, "conversionReviewVersions": ["v1"]}
            sent = a_definition(*SPLIT, conversion={"strategy": "Webhook", "webhook": webhook})
            refused = await cluster.call("create", DEFINITIONS, body=sent, code=422)
            assert [each["message"] for each in refused["details"]["causes"]] == [
                "Forbidden: conversion webhooks are called over a network, which a simulation does not have: use None"
            ]

    simloop.run(main())
