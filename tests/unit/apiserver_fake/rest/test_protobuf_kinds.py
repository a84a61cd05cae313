"""Every built-in kind in protobuf, there and back."""

import pytest

from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.rest.encoding import complete, type_of
from apiserver_fake.rest.protobuf import NotAcceptable, decode, encode, wire
from services.api.metrics.apis import COMPUTED

WITHOUT = frozenset(
    # No types of upstream's release say what their messages are.
    ("noderesourcetopologies.topology.node.k8s.io", "podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io")
)  # fmt: skip
SERVED = [
    each.resource
    for plurals in whole_catalogue().served_versions.values()
    for each in plurals.values()
    if each.resource.name not in COMPUTED
]
METADATA = {"name": "x", "labels": {"a": "b"}, "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 3}


@pytest.mark.parametrize("resource", SERVED, ids=lambda resource: f"{resource.api_version} {resource.kind}")
def test_every_kind_goes_there_and_comes_back(resource):
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    document = {"metadata": dict(METADATA)}
    if of := type_of(resource.api_version, resource.kind):
        complete(document, of)
    if resource.name in WITHOUT:
        with pytest.raises(NotAcceptable):
            encode({**head, **document})
        return
    found = decode(encode({**head, **document}))
    assert {name: found[name] for name in ("apiVersion", "kind", "metadata")} == {**head, "metadata": METADATA}
    listed = {"apiVersion": resource.api_version, "kind": resource.list_kind, "metadata": {}, "items": [document] * 3}
    [whole] = [value for number, value in wire(encode(listed)[4:]) if number == 2]
    assert len([value for number, value in wire(whole) if number == 2]) == 3


SCHEMA = {
    "type": "object",
    "description": "d",
    "required": ["a"],
    "x-kubernetes-preserve-unknown-fields": False,
    "x-kubernetes-validations": [{"rule": "self.a > 0", "optionalOldSelf": False}],
    "default": {"a": [1, None]},
    "properties": {
        "a": {
            "type": "integer",
            "maximum": 5,
            "minimum": 0.5,
            "exclusiveMaximum": True,
            "enum": [1, 2],
            "minLength": 0,
        },
        "b": {"type": "array", "items": {"type": "string", "x-kubernetes-list-type": "set"}, "maxItems": 0},
        "c": {"items": [{"type": "string"}, {"type": "number"}], "additionalItems": False},
        "d": {"type": "object", "additionalProperties": {"type": "string", "default": ""}},
        "e": {"additionalProperties": True, "dependencies": {"x": ["y", "z"], "w": {"type": "string"}}},
        "f": {"anyOf": [{"type": "string"}, {"not": {"type": "integer"}}], "$ref": "", "example": False},
    },
}


def test_a_definition_with_all_that_a_schema_may_say_comes_back_equal():
    version = {"name": "v1", "served": True, "storage": False, "schema": {"openAPIV3Schema": SCHEMA},
               "subresources": {"status": {}, "scale": {"specReplicasPath": ".a", "statusReplicasPath": ".b"}}}  # fmt: skip
    names = {"plural": "as", "kind": "A"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "as.b"},
        "spec": {"group": "b", "names": names, "scope": "Cluster", "versions": [version]},
    }  # fmt: skip

    assert decode(encode(definition)) == definition


def test_a_schema_is_written_in_bytes_as_upstreams_types_write_it():
    # additionalProperties is field 30; in it `allows` is field 1, its schema field 2; `type` is field 5 of a schema.
    schema = {"additionalProperties": {"type": "string"}}
    version = {"name": "v", "schema": {"openAPIV3Schema": schema}}
    body = encode({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                   "spec": {"versions": [version]}})  # fmt: skip

    assert b"\xf2\x01\x0c\x08\x01\x12\x08\x2a\x06string" in body
