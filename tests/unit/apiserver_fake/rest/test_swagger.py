"""OpenAPI v2, made from the documents of v3, and its protobuf form."""

import json

import pytest

from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.rest import openapi, swagger
from apiserver_fake.rest.protobuf import wire
from services.api.metrics.apis import COMPUTED

QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


@pytest.fixture(scope="module")
def catalogue():
    return whole_catalogue()


@pytest.fixture(scope="module")
def whole(catalogue):
    return json.loads(openapi.second(catalogue, is_protobuf=False).body)


def texts(data, *numbers):
    """Return the values below that path of field numbers."""
    found = [data]
    for number in numbers:
        found = [value for each in found for n, value in wire(each) if n == number]
    return found


def test_every_kind_is_defined_and_every_reference_leads_somewhere(whole, catalogue):
    definitions = whole["definitions"]
    assert definitions["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"][0]["kind"] == "Pod"
    assert "items" in definitions["io.k8s.api.apps.v1.DeploymentList"]["properties"]

    def references(value):
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for each in value.values():
                yield from references(each)
        elif isinstance(value, list):
            for each in value:
                yield from references(each)

    lost = {each for each in references(whole) if each.removeprefix("#/definitions/") not in definitions}
    assert lost == set()
    for (group, version), plurals in catalogue.served_versions.items():
        for plural, each in plurals.items():
            root = f"/apis/{group}/{version}" if group else f"/api/{version}"
            if each.resource.name not in COMPUTED:
                assert any(path.startswith(root) and path.endswith(plural) for path in whole["paths"]), (group, plural)


def test_types_with_a_form_of_their_own_are_texts(whole):
    assert whole["definitions"][QUANTITY]["type"] == "string"
    limits = whole["definitions"]["io.k8s.api.core.v1.ResourceRequirements"]["properties"]["limits"]
    assert limits["additionalProperties"] == {"$ref": f"#/definitions/{QUANTITY}"}
    renewed = whole["definitions"]["io.k8s.api.coordination.v1.LeaseSpec"]["properties"]["renewTime"]
    assert renewed["$ref"].endswith("meta.v1.MicroTime")


def test_operations_have_bodies_as_parameters(whole):
    item = whole["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]
    assert [each["name"] for each in item["parameters"]] == ["name", "namespace"]
    body = item["put"]["parameters"][0]
    assert (body["in"], body["schema"]) == ("body", {"$ref": "#/definitions/io.k8s.api.core.v1.Pod"})
    assert "application/merge-patch+json" in item["patch"]["consumes"]
    assert item["delete"]["responses"]["200"]["schema"]["$ref"].endswith("meta.v1.Status")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "nullable": True, "format": "x", "description": "d"}, {"description": "d"}),
        ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}]}, {"x-kubernetes-int-or-string": True}),
        (
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {}}},
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        ),
        ({"allOf": [{"$ref": "#/components/schemas/A"}], "default": {}}, {"$ref": "#/definitions/A"}),
        ({"items": {"oneOf": [{"type": "string"}], "not": {}}}, {"items": {"type": "string"}}),
    ],
)
def test_what_the_second_version_cannot_say_is_left_open(schema, expected):
    assert swagger.schema_of(schema) == expected


def test_the_protobuf_form_holds_the_same(whole, catalogue):
    body = openapi.second(catalogue, is_protobuf=True).body
    assert texts(body, 1) == [b"2.0"]
    assert [name.decode() for name in texts(body, 9, 1, 1)] == list(whole["definitions"])
    assert [path.decode() for path in texts(body, 8, 2, 1)] == list(whole["paths"])
    [pod] = [each for each in texts(body, 9, 1) if texts(each, 1) == [b"io.k8s.api.core.v1.Pod"]]
    fields = whole["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]
    assert [name.decode() for name in texts(pod, 2, 25, 1, 1)] == list(fields)
    assert texts(pod, 2, 22, 1) == [b"object"]
    [kinds] = texts(pod, 2, 31, 2, 2)
    assert json.loads(kinds) == whole["definitions"]["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"]


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", openapi.SECOND_PROTOBUF),
        ("application/com.github.proto-openapi.spec.v2.v1.0+protobuf,application/json;q=0.5", openapi.SECOND_PROTOBUF),
        ("application/json,application/com.github.proto-openapi.spec.v2.v1.0+protobuf", "application/json"),
        ("text/html", ""),
    ],
)
def test_the_form_of_the_document_is_the_one_that_is_liked_best(accept, expected):
    assert openapi.second_type(accept) == expected


def test_a_definition_is_in_it_as_soon_as_it_is_served(whole):
    schema = {"type": "object", "properties": {"spec": {"type": "object"}}}
    made = {
        "paths": {},
        "components": {"schemas": {"com.example.v1.Tab": schema, QUANTITY: {"oneOf": [{"type": "string"}]}}},
    }
    assert swagger.document([made], "v1")["definitions"]["com.example.v1.Tab"] == schema
