"""Answers that unmodified clients compare to the letter: options, references, preconditions, discovery, tables."""

import pytest
from multidict import MultiDict

from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.rest import discovery, paths
from apiserver_fake.rest.parameters import Parameters
from apiserver_fake.rest.swagger import document
from lab.scenarios.simulation import simloop
from services.api.errors import ApiError
from services.api.kinds.customresourcedefinition import DEFINITIONS
from tests.component.apiserver_fake.custom_resources import CRONTABS, GROUP, Machine, a_crontab, a_definition, a_version

AUTOSCALERS = "horizontalpodautoscalers.autoscaling"


def in_cluster(scenario):
    async def run():
        async with Machine().cluster() as cluster:
            return await scenario(cluster)

    return simloop.run(run())


def an_autoscaler(**target):
    return {"metadata": {"name": "a"}, "spec": {"maxReplicas": 2, "scaleTargetRef": {"name": "d", **target}}}


@pytest.mark.parametrize("version", ["", "v1"])
@pytest.mark.parametrize(
    ("target", "causes"),
    [
        ({"kind": "Deployment", "apiVersion": "apps/v1"}, []),
        ({"kind": "ReplicationController", "apiVersion": "v1"}, []),
        ({"kind": "ReplicationController"}, []),
        ({"kind": "Deployment"}, ['Invalid value: "": apiVersion must specify API group']),
        ({"kind": "Deployment", "apiVersion": "v1"}, ['Invalid value: "v1": apiVersion must specify API group']),
        ({"kind": "Deployment", "apiVersion": "a/b/c"},
         ['Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c']),
    ],
)  # fmt: skip
def test_the_target_of_an_autoscaler_names_the_group_of_its_kind(version, target, causes):
    async def scenario(cluster):
        made = await cluster.call("create", AUTOSCALERS, body=an_autoscaler(**target), version=version)
        return [(each["field"], each["message"]) for each in made.get("details", {}).get("causes", ())]

    assert in_cluster(scenario) == [("spec.scaleTargetRef.apiVersion", each) for each in causes]


@pytest.mark.parametrize("how", ["create", "apply"])
def test_a_null_in_a_map_of_texts_is_the_empty_text(how):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": None, "b": "x"}}

    async def scenario(cluster):
        fields = {"field_manager": "m", "field_validation": "Strict"}
        if how == "apply":
            await cluster.call("patch", "configmaps", "m", body, patch_type="apply", code=201, **fields)
        else:
            await cluster.call("create", "configmaps", body=body, code=201, **fields)
        return (await cluster.call("get", "configmaps", "m"))["data"]

    assert in_cluster(scenario) == {"a": "", "b": "x"}


def test_a_negative_scale_of_a_custom_resource_is_refused_at_the_place_that_its_definition_names():
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

    async def scenario(cluster):
        await cluster.define(a_definition(a_version(schema=schema, subresources={"scale": scale, "status": {}})))
        await cluster.call("create", CRONTABS, body=a_crontab(replicas=1), code=201)
        body = {"spec": {"replicas": -1}}
        found = await cluster.call("patch", CRONTABS, "one", body, subresource="scale", patch_type="merge", code=422)
        return found["details"]["kind"], [(each["field"], each["message"]) for each in found["details"]["causes"]]

    text = "Invalid value: -1: should be a non-negative integer"
    assert in_cluster(scenario) == ("CronTab", [(".spec.replicas", text)])


def test_a_deletion_names_the_version_that_it_meant_and_the_one_there_is():
    async def scenario(cluster):
        made = await cluster.call("create", "configmaps", body={"metadata": {"name": "m"}}, code=201)
        body = {"preconditions": {"resourceVersion": "1"}}
        refused = await cluster.call("delete", "configmaps", "m", body, code=409)
        return refused["message"].replace(made["metadata"]["resourceVersion"], "RV")

    assert in_cluster(scenario) == (
        'Operation cannot be fulfilled on configmaps "m": the ResourceVersion in the precondition (1) does not match the '
        "ResourceVersion in record (RV). The object might have been modified"
    )


def test_discovery_has_the_hash_of_the_version_in_which_a_kind_is_stored():
    async def scenario(cluster):
        await cluster.define(a_definition(a_version("v1"), a_version("v2", storage=False)))
        catalogue, found = cluster.server.catalogue, {}
        for group, version in (
            ("", "v1"),
            ("events.k8s.io", "v1"),
            ("autoscaling", "v1"),
            (GROUP, "v1"),
            (GROUP, "v2"),
        ):
            for each in discovery.resource_list(catalogue, group, version)["resources"]:
                if "/" not in each["name"]:
                    found[group, version, each["name"]] = each.get("storageVersionHash")
        return found

    found = in_cluster(scenario)
    assert found["", "v1", "pods"] == "xPOwRZ+Yhw8="
    assert found["", "v1", "events"] == found["events.k8s.io", "v1", "events"] == "r2yiGXH7wu8="
    assert found["autoscaling", "v1", "horizontalpodautoscalers"] == "qwQve8ut294="
    assert found[GROUP, "v1", "crontabs"] == found[GROUP, "v2", "crontabs"] != ""


def test_lists_of_a_definition_that_are_empty_are_left_out():
    async def scenario(cluster):
        names = {"categories": [], "shortNames": []}
        version = a_version(additionalPrinterColumns=[], selectableFields=[])
        made = await cluster.call("create", DEFINITIONS, body=a_definition(version, names=names), code=201)
        return set(made["spec"]["names"]), set(made["spec"]["versions"][0])

    assert in_cluster(scenario) == ({"plural", "kind", "singular", "listKind"}, {"name", "served", "storage", "schema"})


def test_a_kind_that_takes_any_field_is_published_in_version_2_as_an_object():
    named = [{"group": GROUP, "version": "v1", "kind": "CronTab"}]
    schema = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "x-kubernetes-group-version-kind": named,
    }
    found = document([{"paths": {}, "components": {"schemas": {"CronTab": schema, "Other": schema | {
        "x-kubernetes-preserve-unknown-fields": False}}}}], "v1")  # fmt: skip

    assert found["definitions"]["CronTab"] == {"type": "object", "x-kubernetes-group-version-kind": named}
    assert "properties" in found["definitions"]["Other"]


def sent_by(verb, manager):
    rest = ["namespaces", "n", "pods", *([] if verb == "create" else ["p"])]
    route = paths.parse(whole_catalogue(), "", "v1", rest)
    return paths.to_request(verb, route, Parameters(MultiDict(fieldManager=manager)), body=b"{}")


@pytest.mark.parametrize(
    ("verb", "manager", "message"),
    [
        ("create", "m" * 129, "Too long: may not be more than 128 bytes"),
        ("patch", "ä" * 65, "Too long: may not be more than 128 bytes"),
        ("update", "a\tb", 'Invalid value: "a\\tb": invalid character U+0009 (at position 1)'),
    ],
)
def test_a_field_manager_is_short_and_can_be_printed(verb, manager, message):
    with pytest.raises(ApiError) as refused:
        sent_by(verb, manager)

    [cause] = refused.value.details["causes"]
    assert (refused.value.code, cause["field"], cause["message"]) == (422, "fieldManager", message)
    assert sent_by(verb, "m" * 128).field_manager == "m" * 128
