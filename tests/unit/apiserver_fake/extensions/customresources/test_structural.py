"""What a schema drops, completes and publishes, and how it merges."""

import copy
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_fake.extensions.customresources.definition import validate_definition
from apiserver_fake.extensions.customresources.structural import Structural
from services.api.meta import Resource
from tests.unit.apiserver_fake.extensions.customresources.test_definition import definition

STRING = {"type": "string"}
OPEN = {"x-kubernetes-preserve-unknown-fields": True}


def structural(properties, **schema):
    found, causes = Structural.parse({"type": "object", "properties": properties, **schema}, "p")
    assert causes == []
    return found


def pruned(properties, document, **schema):
    dropped = structural(properties, **schema).prune(document)
    return document, dropped


def test_unknown_fields_are_dropped_and_named():
    document = {
        "apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a", "mine": 1}, "z": 1,
        "spec": {"a": "x", "b": {"c": 1}, "l": [{"k": "", "z": 1}, {"z": 1}], "m": {"any": {"k": "", "z": 1}}},
    }  # fmt: skip
    keyed = {"type": "object", "properties": {"k": STRING}}
    spec = {
        "type": "object",
        "properties": {
            "a": STRING,
            "l": {"type": "array", "items": keyed},
            "m": {"type": "object", "additionalProperties": keyed},
        },
    }
    assert pruned({"spec": spec}, document) == (
        {
            "apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a", "mine": 1},
            "spec": {"a": "x", "l": [{"k": ""}, {}], "m": {"any": {"k": ""}}},
        },
        ["spec.b", "spec.l[0].z", "spec.l[1].z", "spec.m.any.z", "z"],
    )  # fmt: skip


def test_unknown_fields_are_kept_where_the_schema_says_so_and_not_below():
    inner = {"type": "object", "properties": {"k": STRING}}
    document = {"spec": {"any": {"x": [1]}, "inner": {"k": "", "z": 1}, "open": [{"z": 1, "inner": {"z": 1}}]}}
    spec = {
        "type": "object",
        "properties": {
            "inner": inner,
            "open": {"type": "array", "items": {"type": "object", "properties": {"inner": inner}}, **OPEN},
        },
        **OPEN,
    }
    expected = {"spec": {"any": {"x": [1]}, "inner": {"k": ""}, "open": [{"z": 1, "inner": {}}]}}
    assert pruned({"spec": spec}, document) == (expected, ["spec.inner.z", "spec.open[0].inner.z"])


def test_a_resource_within_keeps_what_every_resource_has():
    resource = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}
    document = {"x": {"apiVersion": "v1", "kind": "A", "metadata": {"name": "a", "labels": {"b": "c"}, "z": 1}, "z": 1}}
    expected = {"x": {"apiVersion": "v1", "kind": "A", "metadata": {"name": "a", "labels": {"b": "c"}}}}
    assert pruned({"x": resource}, document) == (expected, ["x.metadata.z", "x.z"])


def test_a_resource_within_is_checked_as_one():
    resource = {"type": "object", "x-kubernetes-embedded-resource": True, **OPEN}
    schema = structural({"x": resource, "l": {"type": "array", "items": resource}})
    new = {
        "x": {"apiVersion": "a/b/c", "metadata": {"name": "a/b"}},
        "l": [{"apiVersion": "v1", "kind": "A", "metadata": {"labels": 1}}],
    }
    found = [f"{cause.path}: {cause.message}" for cause in schema.validate(new)]
    assert found == [
        'x.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
        "x.kind: Required value",
        "x.metadata.name: Invalid value: \"a/b\": may not contain '/'",
        (
            'l[0].metadata: Invalid value: {"labels":1}: json: cannot unmarshal number into Go struct field '
            "ObjectMeta.labels of type map[string]string"
        ),
    ]


def test_defaults_are_set_deep_and_nulls_where_none_may_be_count_as_absent():
    schema = structural(
        {
            "a": {"type": "integer", "default": 1},
            "b": {
                "type": "object",
                "default": {},
                "properties": {"c": {"type": "array", "items": STRING, "default": ["x"]}},
            },
            "d": {"type": "object", "properties": {"e": {"type": "integer", "default": 1}}},
            "l": {
                "type": "array",
                "items": {"type": "object", "properties": {"m": {"type": "boolean", "default": False}}},
            },
            "n": {"type": "string", "nullable": True, "default": "n"},
            "o": STRING,
        }
    )
    document = {"a": None, "l": [{}], "n": None, "o": None}
    schema.complete(document)
    assert document == {"a": 1, "l": [{"m": False}], "n": None, "b": {"c": ["x"]}}
    again = {}
    schema.complete(again)
    document["b"]["c"].append("y")
    assert again["b"]["c"] == ["x"]  # each object has defaults of its own


def test_lists_merge_as_the_schema_says():
    keyed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": STRING}},
    }
    shape = structural(
        {
            "l": keyed,
            "s": {"type": "array", "x-kubernetes-list-type": "set", "items": STRING},
            "p": {"type": "array", "items": STRING},
            "a": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"b": STRING}},
            "i": {"x-kubernetes-int-or-string": True},
            "o": {"type": "object", "properties": {"b": {"type": "boolean"}}, **OPEN},
        }
    ).shape
    assert (shape.member("l").list_type, shape.member("l").map_keys) == ("map", ("k",))
    assert [shape.member(name).list_type for name in "sp"] == ["set", ""]
    assert (shape.member("a").is_atomic, shape.member("i").type) == (True, "int-or-string")
    assert [shape.member("o").member(name).type for name in ("b", "else")] == ["boolean", ""]
    assert shape.member("metadata").member("ownerReferences").map_keys == ("uid",)


def test_a_resource_within_is_not_checked_when_the_status_is_written():
    resource = {"type": "object", "x-kubernetes-embedded-resource": True, **OPEN}
    schema = structural({"x": resource, "status": {"type": "object"}})
    assert schema.validate({"x": {}, "status": {}}, {"x": {}}, is_status=True) == []
    assert [cause.path for cause in schema.validate({"x": {}})] == ["x.apiVersion", "x.kind"]


def test_the_metadata_of_a_resource_within_needs_no_name():
    resource = {"type": "object", "x-kubernetes-embedded-resource": True, **OPEN}
    new = {"x": {"apiVersion": "v1", "kind": "A", "metadata": {"labels": {"a": "b"}}}}
    assert structural({"x": resource}).validate(new) == []


GVK = Resource(group="a.io", version="v1", kind="A", plural="as")


def test_what_is_published_has_what_every_resource_has():
    schema = structural({"spec": {"type": "object", "properties": {"x": {"x-kubernetes-int-or-string": True}}}})
    found = schema.openapi(GVK)
    assert found["x-kubernetes-group-version-kind"] == [{"group": "a.io", "version": "v1", "kind": "A"}]
    assert found["properties"]["spec"]["properties"]["x"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert found["properties"]["kind"]["type"] == "string"
    assert found["properties"]["metadata"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    ]


def test_a_resource_within_is_published_with_what_it_needs():
    resource = {"type": "object", "x-kubernetes-embedded-resource": True, "required": ["kind", "spec"], **OPEN}
    found = structural({"x": resource}).openapi(GVK)["properties"]["x"]
    assert (found["required"], sorted(found["properties"])) == (
        ["kind", "spec", "apiVersion"],
        ["apiVersion", "kind", "metadata"],
    )


def test_version_2_leaves_out_what_kubectl_cannot_read():
    schema = structural(
        {
            "n": {"type": "object", "nullable": True, "properties": {"a": STRING}},
            "l": {"type": "array", "items": STRING, **OPEN},
            "o": {"type": "string", "oneOf": [{"minLength": 1}], "maxLength": 3},
        },
        required=["n", "o"],
    )
    found = schema.openapi(GVK, is_v2=True)
    assert found["required"] == ["o"]
    named = found["properties"]
    assert (named["n"], named["l"], named["o"]) == ({}, OPEN, {"type": "string", "maxLength": 3})
    assert structural({}, **OPEN).openapi(is_v2=True) == {"type": "object"}


# Properties.


@st.composite
def schemas(draw, depth=3):
    """Structural schemas of parts of an object."""
    kinds = ["string", "integer", "boolean", "int-or-string", "any"] + (
        ["object", "map", "array", "keyed"] if depth else []
    )
    inner = schemas(depth - 1) if depth else st.nothing()
    match draw(st.sampled_from(kinds)):
        case "string":
            found = {"type": "string"} | draw(
                st.sampled_from([{}, {"maxLength": 5}, {"enum": ["a", "b"]}, {"pattern": "^[ab]*$"}])
            )
            found |= draw(st.sampled_from([{}, {"default": "a"}]))
        case "integer":
            found = {"type": "integer"} | draw(st.sampled_from([{}, {"minimum": 0, "maximum": 9}, {"default": 3}]))
        case "boolean":
            found = {"type": "boolean"}
        case "int-or-string":
            found = {"x-kubernetes-int-or-string": True}
        case "any":
            found = dict(OPEN)
        case "object":
            names = draw(st.lists(st.sampled_from("abcd"), unique=True, min_size=1))
            found = {"type": "object", "properties": {name: draw(inner) for name in names}}
            found |= {"required": draw(st.lists(st.sampled_from(names), unique=True))}
        case "map":
            found = {"type": "object", "additionalProperties": draw(inner)}
        case "array":
            found = {"type": "array", "items": draw(inner)}
        case _:
            item = {"type": "object", "required": ["k"], "properties": {"k": STRING, "v": draw(inner)}}
            found = {
                "type": "array",
                "items": item,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
            }
    if draw(st.booleans()) and "enum" not in found and "x-kubernetes-list-type" not in found:
        found["nullable"] = True
    return found


def values(schema):
    """Values that a schema accepts."""
    found = _values(schema)
    return st.one_of(st.none(), found) if schema.get("nullable") else found


def _values(schema):
    if schema.get("x-kubernetes-int-or-string"):
        return st.one_of(st.integers(0, 9), st.text("ab%", max_size=3))
    if "type" not in schema:
        return st.one_of(st.booleans(), st.dictionaries(st.sampled_from("xy"), st.integers()), st.lists(st.integers()))
    match schema["type"]:
        case "string":
            return st.sampled_from(schema["enum"]) if "enum" in schema else st.text("ab", max_size=5)
        case "integer":
            return st.integers(schema.get("minimum"), schema.get("maximum"))
        case "boolean":
            return st.booleans()
        case "array" if "x-kubernetes-list-type" in schema:
            return st.lists(values(schema["items"]), max_size=3, unique_by=lambda item: item["k"])
        case "array":
            return st.lists(values(schema["items"]), max_size=3)
    if "additionalProperties" in schema:
        return st.dictionaries(st.text("ab", max_size=2), values(schema["additionalProperties"]), max_size=3)
    named = {name: values(each) for name, each in schema["properties"].items()}
    needed = {name: named[name] for name in schema.get("required", ())}
    return st.fixed_dictionaries(needed, optional={name: each for name, each in named.items() if name not in needed})


@st.composite
def documents(draw):
    """A structural schema, and an object that it accepts."""
    schema = {"type": "object", "properties": {"spec": draw(schemas())}}
    return schema, {
        "apiVersion": "a/v1",
        "kind": "A",
        "metadata": {"name": "a"},
        "spec": draw(values(schema["properties"]["spec"])),
    }


@settings(max_examples=200, deadline=None)
@given(documents())
def test_what_a_schema_describes_is_accepted_and_nothing_of_it_is_dropped(made):
    schema, document = made
    found, causes = Structural.parse(schema, "p")
    assert causes == []
    before = copy.deepcopy(document)
    assert found.prune(document) == []
    assert document == before
    assert found.validate(document) == []
    assert [c for c in validate_definition(definition(schema)) if "default" not in c.path] == []


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 12), st.floats(-3, 3), st.text("abc", max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abcdk"), inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(schemas(), JSON)
def test_reading_twice_is_reading_once_and_what_is_stored_can_be_written_back(schema, spec):
    found, _ = Structural.parse({"type": "object", "properties": {"spec": schema}}, "p")
    document = {"spec": spec}
    found.complete(document)
    found.prune(document)
    again = copy.deepcopy(document)
    found.complete(again)
    assert found.prune(again) == []
    assert json.dumps(again) == json.dumps(document)
    causes = found.validate(document)
    assert found.validate(again) == causes
    assert set(found.validate(again, document)) <= set(causes)
    assert found._values.accepts(document) == (not found.value_causes(document, path=""))
