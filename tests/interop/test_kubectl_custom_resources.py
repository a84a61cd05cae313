"""kubectl and kinds that users define: established, written, refused, defaulted, pruned, shown, scaled and deleted."""

import json
import re
from pathlib import Path

import pytest
import yaml

GROUP = "stable.example.com"
CRD = f"crontabs.{GROUP}"
DEFINITIONS = Path(__file__).parents[1] / "unit" / "apiserver_fake" / "extensions" / "customresources" / "definitions"
SCHEMA = {
    "type": "object",
    "description": "A CronTab runs something now and then.",
    "properties": {
        "spec": {
            "type": "object",
            "description": "What is wanted.",
            "required": ["cronSpec"],
            "properties": {
                "cronSpec": {"type": "string", "pattern": r"^(\S+\s){4}\S+$", "description": "When it runs."},
                "image": {"type": "string", "default": "busybox"},
                "replicas": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "selector": {"type": "string"},
                "conditions": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                    },
                },
            },
        },
    },
}
V1 = {
    "name": "v1",
    "served": True,
    "storage": True,
    "schema": {"openAPIV3Schema": SCHEMA},
    "subresources": {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    },
    "selectableFields": [{"jsonPath": ".spec.image"}],
    "additionalPrinterColumns": [
        {"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec", "description": "When it runs."},
        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status', "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ],
}
V1BETA1 = {
    "name": "v1beta1",
    "served": True,
    "storage": False,
    "deprecated": True,
    "schema": {"openAPIV3Schema": {**SCHEMA, "description": "An older form of a CronTab."}},
}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": CRD},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "crontabs", "kind": "CronTab", "shortNames": ["ct"], "categories": ["all"]},
        "versions": [V1, V1BETA1],
    },
}


def a_crontab(name="one", version="v1", **spec):
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "CronTab",
        "metadata": {"name": name},
        "spec": {"cronSpec": "* * * * */5", **spec},
    }


@pytest.fixture
def crontabs(kubectl, namespace):
    """The kind, served; it goes with its objects afterwards."""
    kubectl("create", "-f", "-", stdin=DEFINITION)
    kubectl("wait", f"crd/{CRD}", "--for=condition=Established", "--timeout=20s")
    yield namespace
    kubectl("delete", "crd", CRD, "--ignore-not-found")


def got(kubectl, namespace, name="one"):
    return json.loads(kubectl("get", "ct", name, "-n", namespace, "-o", "json"))


def test_a_definition_is_listed_described_and_its_kind_found(kubectl, crontabs):
    listed = kubectl("get", "crds")
    resources = kubectl("api-resources", f"--api-group={GROUP}")
    described = kubectl("describe", "crd", CRD)

    assert re.match(r"NAME +CREATED AT\n", listed)
    assert re.search(rf"{re.escape(CRD)} +\d{{4}}-\d\d-\d\dT", listed)
    assert resources.split("\n")[1].split() == ["crontabs", "ct", f"{GROUP}/v1", "true", "CronTab"]
    for text in ("no conflicts found", "the initial names have been accepted", "InitialNamesAccepted", "NoConflicts"):
        assert text in described


def test_what_is_applied_is_completed_pruned_and_shown_in_its_columns(kubectl, crontabs):
    body = a_crontab(free={"any": {"thing": 1}})
    assert kubectl("apply", "-n", crontabs, "-f", "-", stdin=body) == f"crontab.{GROUP}/one created\n"
    assert kubectl("apply", "-n", crontabs, "-f", "-", stdin=body) == f"crontab.{GROUP}/one unchanged\n"

    found = got(kubectl, crontabs)
    listed, wide = kubectl("get", "ct", "-n", crontabs), kubectl("get", "ct", "-n", crontabs, "-o", "wide")

    assert found["spec"] == {
        "cronSpec": "* * * * */5", "free": {"any": {"thing": 1}}, "image": "busybox", "replicas": 1,
    }  # fmt: skip
    assert found["metadata"]["generation"] == 1
    assert listed.split()[:4] == ["NAME", "SPEC", "REPLICAS", "AGE"]
    assert wide.split()[:5] == ["NAME", "SPEC", "REPLICAS", "READY", "AGE"]
    assert f"crontab.{GROUP}/one" in kubectl("get", "all", "-n", crontabs)
    assert kubectl("get", "crontab", "-n", crontabs, "-o", "name") == f"crontab.{GROUP}/one\n"


def test_fields_that_are_wrong_or_unknown_are_refused_in_upstreams_words(kubectl, crontabs):
    wrong = kubectl("apply", "-n", crontabs, "-f", "-", stdin=a_crontab(replicas=11, image=5), code=1)
    unknown = kubectl("create", "-n", crontabs, "-f", "-", stdin=a_crontab(colour="red"), code=1)
    warned = kubectl("create", "-n", crontabs, "--validate=warn", "-f", "-", stdin=a_crontab(colour="red"))
    missing = a_crontab("two")
    del missing["spec"]["cronSpec"]
    required = kubectl("create", "-n", crontabs, "-f", "-", stdin=missing, code=1)

    assert 'The CronTab "one" is invalid:' in wrong
    assert "spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10" in wrong
    assert 'spec.image: Invalid value: "integer": spec.image in body must be of type string: "integer"' in wrong
    assert (
        'CronTab in version "v1" cannot be handled as a CronTab: strict decoding error: unknown field "spec.colour"'
        in unknown
    )
    assert 'Warning: unknown field "spec.colour"' in warned
    assert "colour" not in got(kubectl, crontabs)["spec"]
    assert "spec.cronSpec: Required value" in required


def test_patches_are_merges_or_json_patches_and_never_strategic(kubectl, crontabs):
    kubectl("create", "-n", crontabs, "-f", "-", stdin=a_crontab())
    kubectl("patch", "ct", "one", "-n", crontabs, "--type=merge", "-p", '{"spec":{"image":"a"}}')
    patch = '[{"op":"replace","path":"/spec/replicas","value":4}]'
    kubectl("patch", "ct", "one", "-n", crontabs, "--type=json", "-p", patch)
    refused = kubectl("patch", "ct", "one", "-n", crontabs, "--type=strategic", "-p", '{"spec":{}}', code=1)

    found = got(kubectl, crontabs)
    assert (found["spec"]["image"], found["spec"]["replicas"], found["metadata"]["generation"]) == ("a", 4, 3)
    assert "application/strategic-merge-patch+json is not supported by" in refused


def test_status_and_scale_are_subresources_that_can_be_waited_for(kubectl, crontabs):
    kubectl("create", "-n", crontabs, "-f", "-", stdin=a_crontab())
    assert kubectl("scale", "ct/one", "-n", crontabs, "--replicas=3") == f"crontab.{GROUP}/one scaled\n"
    status = {"status": {"replicas": 3, "selector": "a=b", "conditions": [{"type": "Ready", "status": "True"}]}}
    kubectl("patch", "ct", "one", "-n", crontabs, "--subresource=status", "--type=merge", "-p", json.dumps(status))

    kubectl("wait", "ct/one", "-n", crontabs, "--for=condition=Ready", "--timeout=5s")
    kubectl("wait", "ct/one", "-n", crontabs, "--for=jsonpath={.status.replicas}=3", "--timeout=5s")
    scale = json.loads(kubectl("get", "ct", "one", "-n", crontabs, "--subresource=scale", "-o", "json"))
    found = got(kubectl, crontabs)

    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale", {"replicas": 3}, {"replicas": 3, "selector": "a=b"},
    )  # fmt: skip
    assert found["metadata"]["generation"] == 2
    assert "True" in kubectl("get", "ct", "-n", crontabs, "-o", "wide")


def test_an_apply_on_the_server_owns_fields_and_meets_conflicts(kubectl, crontabs):
    def apply(manager, body, **more):
        return kubectl(
            "apply", "--server-side", f"--field-manager={manager}", "-n", crontabs, "-f", "-", stdin=body, **more
        )

    assert apply("one", a_crontab(image="a")) == f"crontab.{GROUP}/one serverside-applied\n"
    refused = apply("two", a_crontab(image="b"), code=1)

    assert 'conflict with "one"' in refused
    assert ".spec.image" in refused
    assert got(kubectl, crontabs)["spec"]["image"] == "a"


def test_fields_are_explained(kubectl, crontabs):
    whole = kubectl("explain", "ct", "--recursive")
    field = kubectl("explain", "ct.spec.cronSpec")

    assert re.search(r"GROUP: +stable\.example\.com\nKIND: +CronTab\nVERSION: +v1\n", whole)
    assert "A CronTab runs something now and then." in whole
    assert re.search(r"\n    cronSpec\t<string> -required-\n", whole)
    assert "When it runs." in field


def test_each_version_is_served_and_the_old_one_warns(kubectl, crontabs):
    kubectl("create", "-n", crontabs, "-f", "-", stdin=a_crontab(version="v1beta1"))
    old = kubectl("get", f"crontabs.v1beta1.{GROUP}", "one", "-n", crontabs, "-o", "yaml")

    assert f"apiVersion: {GROUP}/v1beta1" in old
    assert f"Warning: {GROUP}/v1beta1 CronTab is deprecated" in old
    assert got(kubectl, crontabs)["apiVersion"] == f"{GROUP}/v1"


def test_selectors_watches_and_deletions_of_many(kubectl, crontabs):
    for name, image in (("one", "a"), ("two", "b")):
        kubectl("create", "-n", crontabs, "-f", "-", stdin=a_crontab(name, image=image))
    kubectl("label", "ct", "two", "-n", crontabs, "x=y")
    chosen = kubectl("get", "ct", "-n", crontabs, "--field-selector=spec.image=b", "-o", "name")
    refused = kubectl("get", "ct", "-n", crontabs, "--field-selector=spec.cronSpec=b", code=1)
    kubectl("delete", "ct", "-n", crontabs, "-l", "x=y")

    assert chosen == f"crontab.{GROUP}/two\n"
    assert "field label not supported: spec.cronSpec" in refused
    assert kubectl("get", "ct", "-n", crontabs, "-o", "name") == f"crontab.{GROUP}/one\n"
    kubectl("delete", "ct", "--all", "-n", crontabs)
    assert "No resources found" in kubectl("get", "ct", "-n", crontabs)


def test_a_deleted_definition_takes_its_objects_along(kubectl, crontabs):
    kubectl("create", "-n", crontabs, "-f", "-", stdin=a_crontab())
    deleted = kubectl("delete", "crd", CRD)
    gone = kubectl("get", "ct", "-n", crontabs, code=1)

    assert deleted == f'customresourcedefinition.apiextensions.k8s.io "{CRD}" deleted\n'
    assert 'the server doesn\'t have a resource type "ct"' in gone or "could not find the requested resource" in gone


def test_a_definition_that_is_wrong_is_refused_with_its_paths(kubectl, crontabs):
    wrong = json.loads(json.dumps(DEFINITION))
    wrong["metadata"]["name"] = "other.stable.example.com"
    wrong["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].pop("type")
    refused = kubectl("create", "-f", "-", stdin=wrong, code=1)

    assert 'The CustomResourceDefinition "other.stable.example.com" is invalid' in refused
    assert 'must be spec.names.plural+"."+spec.group' in refused
    assert "must not be empty for specified object fields" in refused


OBJECTS = {
    "admissionchecks": {"spec": {"controllerName": "example.com/check"}},
    "certificaterequests": {"spec": {"issuerRef": {"name": "ca"}, "request": "TUlJQg=="}},
    "gatewayclasses": {"spec": {"controllerName": "example.com/gateway"}},
    "prometheusrules": {"spec": {"groups": [{"name": "g", "rules": [{"alert": "A", "expr": "up == 0"}]}]}},
    "workflowtasksets": {"spec": {"tasks": {"a": {"name": "x"}}}},
}
"""An object of each public definition; what it leaves out is completed by its schema."""


@pytest.mark.parametrize("name", OBJECTS)
def test_public_definitions_are_applied_whole_and_take_objects(kubectl, namespace, name):
    definition = yaml.safe_load((DEFINITIONS / f"{name}.yaml").read_text())
    full, spec = definition["metadata"]["name"], definition["spec"]
    where = ["-n", namespace] if spec["scope"] == "Namespaced" else []
    try:
        kubectl("apply", "--server-side", "-f", "-", stdin=definition)
        kubectl("wait", f"crd/{full}", "--for=condition=Established", "--timeout=20s")
        for version in (each["name"] for each in spec["versions"] if each["served"]):
            head = {"apiVersion": f"{spec['group']}/{version}", "kind": spec["names"]["kind"]}
            body = {**head, "metadata": {"name": f"x-{version}"}, **OBJECTS[name]}
            assert "created" in kubectl("apply", *where, "-f", "-", stdin=body)
            assert f"x-{version}" in kubectl("get", full, *where)
            assert "KIND: " in kubectl(
                "explain", f"{full.partition('.')[0]}.spec", f"--api-version={head['apiVersion']}"
            )
    finally:
        kubectl("delete", "crd", full, "--ignore-not-found")
