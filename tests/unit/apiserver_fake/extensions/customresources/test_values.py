"""What schemas refuse about objects, word for word as kube-apiserver 1.36 says it."""

import pytest

from apiserver_fake.extensions.customresources.structural import Structural
from apiserver_fake.registry.validation.formats import Cause

WHERE = "spec.validation.openAPIV3Schema"
UNCHECKED = (
    "<nil>",
    "FieldValueInvalid",
    (
        "Invalid value: null: some validation rules were not checked because the object was invalid; "
        "correct the existing errors to complete validation"
    ),
)


def structural(**spec):
    """The schema of an object with this spec."""
    found, causes = Structural.parse({"type": "object", "properties": {"spec": {"type": "object", **spec}}}, WHERE)
    assert causes == []
    return found


def field(**schema):
    return structural(properties={"x": schema})


def said(schema, value, old=None):
    new = {"apiVersion": "a.io/v1", "kind": "A", "metadata": {}, "spec": {"x": value}}
    was = None if old is None else {**new, "spec": {"x": old}}
    return [f"{cause.path}: {cause.message}" for cause in schema.validate(new, was)]


STRING = {"type": "string"}
KEYED = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name", "port"],
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": STRING,
            "port": {"type": "integer", "default": 80},
            "mode": {"type": "string", "enum": ["a"]},
        },
    },
}

REFUSED = {
    "a text for an integer": ({"type": "integer"}, "1", ['spec.x: Invalid value: "string": spec.x in body must be of type integer: "string"']),
    "an integer for a text": (STRING, 1, ['spec.x: Invalid value: "integer": spec.x in body must be of type string: "integer"']),
    "a fraction for an integer": ({"type": "integer"}, 1.5, ['spec.x: Invalid value: "number": spec.x in body must be of type integer: "number"', '<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.x']),
    "more than 32 bits": ({"type": "integer", "format": "int32"}, 1 << 31, ['<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.x']),
    "less than 32 bits": ({"type": "integer", "format": "int32"}, -(1 << 31) - 1, ['<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.x']),
    "more than a float": ({"type": "number", "format": "float"}, -1e300, ['<nil>: Invalid value: "": Checked value must be of type number with format float in spec.x']),
    "more than 64 bits": ({"type": "integer"}, 9223372036854775808.0, ['spec.x: Invalid value: "number": spec.x in body must be of type integer: "number"', '<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.x']),
    "more than 64 bits with a format": ({"type": "integer", "format": "int64"}, 9223372036854775808.0, ['spec.x: Invalid value: "float64": spec.x in body must be of type int64: "float64"', '<nil>: Invalid value: "": Checked value must be of type integer with format int64 in spec.x']),
    "a limit that no integer is": ({"type": "integer", "format": "int32", "maximum": 5e9}, 1, ['<nil>: Invalid value: "": Maximum boundary value must be of type integer with format int32 in spec.x']),
    "an object for a list": ({"type": "array", "items": STRING}, {}, ['spec.x: Invalid value: "object": spec.x in body must be of type array: "object"']),
    "null where none may be": (STRING, None, ['spec.x: Invalid value: "null": spec.x in body must be of type string: "null"']),
    "a fraction for int-or-string": ({"x-kubernetes-int-or-string": True}, 1.5, ['spec.x: Invalid value: "number": spec.x in body must be of type integer,string: "number"']),
    "a number for a date": ({"type": "string", "format": "date-time"}, 5, ['spec.x: Invalid value: "int64": spec.x in body must be of type date-time: "int64"']),
    "a text that is no date": ({"type": "string", "format": "date-time"}, "now", ['spec.x: Invalid value: "now": spec.x in body must be of type date-time: "now"']),
    "none of an enum, in the order of the schema": ({"type": "string", "enum": ["b", "a"]}, "c", ['spec.x: Unsupported value: "c": supported values: "b", "a"']),
    "none of an enum of numbers": ({"type": "integer", "enum": [1, 2]}, 3, ['spec.x: Unsupported value: 3: supported values: "1", "2"']),
    "null for an enum, nullable or not": ({"type": "string", "nullable": True, "enum": ["a"]}, None, ['spec.x: Unsupported value: null: supported values: "a"']),
    "more than a maximum": ({"type": "integer", "maximum": 5}, 6, ["spec.x: Invalid value: 6: spec.x in body should be less than or equal to 5"]),
    "an exclusive maximum": ({"type": "integer", "maximum": 5, "exclusiveMaximum": True}, 5, ["spec.x: Invalid value: 5: spec.x in body should be less than 5"]),
    "less than a minimum": ({"type": "number", "minimum": 0.5}, 0.25, ["spec.x: Invalid value: 0.25: spec.x in body should be greater than or equal to 0.5"]),
    "an exclusive minimum": ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, 1, ["spec.x: Invalid value: 1: spec.x in body should be greater than 1"]),
    "no multiple": ({"type": "integer", "multipleOf": 5}, 7, ["spec.x: Invalid value: 7: spec.x in body should be a multiple of 5"]),
    "a text too long": ({"type": "string", "maxLength": 3}, "abcd", ["spec.x: Too long: may not be more than 3 bytes"]),
    "a text longer than one": ({"type": "string", "maxLength": 1}, "ab", ["spec.x: Too long: may not be more than 1 byte"]),
    "a text too short": ({"type": "string", "minLength": 2}, "ä", ['spec.x: Invalid value: "ä": spec.x in body should be at least 2 chars long']),
    "a text of another pattern": ({"type": "string", "pattern": "^[a-z]+$"}, "A", ["""spec.x: Invalid value: "A": spec.x in body should match '^[a-z]+$'"""]),
    "too many items": ({"type": "array", "items": STRING, "maxItems": 2}, ["a", "b", "c"], ["spec.x: Too many: 3: must have at most 2 items"]),
    "more than one item": ({"type": "array", "items": STRING, "maxItems": 1}, ["a", "b"], ["spec.x: Too many: 2: must have at most 1 item"]),
    "too few items": ({"type": "array", "items": STRING, "minItems": 1}, [], ["spec.x: Invalid value: 0: spec.x in body should have at least 1 items"]),
    "too many entries": ({"type": "object", "additionalProperties": STRING, "maxProperties": 1}, {"a": "", "b": ""}, ["spec.x: Too many: 2: must have at most 1 item"]),
    "too few entries": ({"type": "object", "additionalProperties": STRING, "minProperties": 1}, {}, ["spec.x: Invalid value: 0: spec.x in body should have at least 1 properties"]),
    "a wrong entry": ({"type": "object", "additionalProperties": STRING}, {"a": 1}, ['spec.x.a: Invalid value: "integer": spec.x.a in body must be of type string: "integer"']),
    "a wrong item": ({"type": "array", "items": STRING}, ["a", 1], ['spec.x[1]: Invalid value: "integer": spec.x[1] in body must be of type string: "integer"']),
    "a missing field": ({"type": "object", "required": ["a"], "properties": {"a": STRING}}, {}, ["spec.x.a: Required value"]),
    "a set with an item twice": ({"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}, ["a", "b", "a", "a"], ['spec.x[2]: Duplicate value: "a"']),
    "a key twice": (KEYED, [{"name": "a", "port": 1}, {"name": "a", "port": 1}], ['spec.x[1]: Duplicate value: {"name":"a","port":1}']),
    "none of several, with the mistakes of the closest": (
        {"type": "object", "properties": {"a": STRING, "b": STRING}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {},
        ['<nil>: Invalid value: "": "spec.x" must validate at least one schema (anyOf)', "spec.x.a: Required value"],
    ),
    "none of exactly one": (
        {"type": "object", "properties": {"a": STRING, "b": STRING}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {},
        ['<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found none valid', "spec.x.a: Required value"],
    ),
    "both of exactly one": (
        {"type": "object", "properties": {"a": STRING, "b": STRING}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"a": "", "b": ""},
        ['<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives'],
    ),
    "not all": (
        {"type": "integer", "allOf": [{"minimum": 3}, {"maximum": 9}]},
        1,
        ["spec.x: Invalid value: 1: spec.x in body should be greater than or equal to 3", '<nil>: Invalid value: "": "spec.x" must validate all the schemas (allOf)'],
    ),
    "none of all": (
        {"type": "integer", "allOf": [{"minimum": 3}]},
        1,
        ["spec.x: Invalid value: 1: spec.x in body should be greater than or equal to 3", '<nil>: Invalid value: "": "spec.x" must validate all the schemas (allOf). None validated'],
    ),
    "what must not be": ({"type": "string", "not": {"enum": ["a"]}}, "a", ['<nil>: Invalid value: "": "spec.x" must not validate the schema (not)']),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_is_refused_in_upstreams_words(name):
    schema, value, expected = REFUSED[name]
    assert expected == said(field(**schema), value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 1.0),
        ({"type": "number"}, 1),
        ({"type": "integer", "format": "int32"}, (1 << 31) - 1),
        ({"type": "integer", "format": "int32"}, -(1 << 31)),
        ({"type": "integer", "format": "int64"}, (1 << 63) - 1),
        ({"type": "number", "format": "float"}, 3.4e38),
        ({"type": "number", "format": "double"}, 1e300),
        ({"type": "number", "format": "int32"}, 1e300),
        ({"type": "number"}, 1e300),
        ({"x-kubernetes-int-or-string": True, "format": "int32"}, 1 << 40),
        ({"type": "string", "nullable": True}, None),
        ({"x-kubernetes-int-or-string": True}, "50%"),
        ({"type": "string", "format": "mine"}, "anything"),
        ({"type": "string", "maxLength": 1}, "ä"),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {"a": [1]}),
        ({"x-kubernetes-preserve-unknown-fields": True}, [1, "a"]),
    ],
)
def test_a_value_is_accepted(schema, value):
    assert said(field(**schema), value) == []


def test_rules_are_not_evaluated_for_what_has_another_type():
    schema = field(type="integer", **{"x-kubernetes-validations": [{"rule": "self > 3"}]})
    assert said(schema, 2) == ["spec.x: Invalid value: 2: failed rule: self > 3"]
    assert schema.validate({"spec": {"x": "2"}})[-1] == UNCHECKED


def test_what_did_not_change_is_not_refused_again():
    schema = field(**KEYED)
    old = [{"name": "a", "port": 1, "mode": "z"}, {"name": "b", "port": 1, "mode": "a"}]
    moved = [old[1], old[0]]
    assert said(schema, moved, old) == []
    changed = [{"name": "a", "port": 1, "mode": "y"}, old[1]]
    assert said(schema, changed, old) == ['spec.x[0].mode: Unsupported value: "y": supported values: "a"']
    added = [*old, {"name": "c", "port": 1, "mode": "z"}]
    assert said(schema, added, old) == ['spec.x[2].mode: Unsupported value: "z": supported values: "a"']


def test_an_item_of_an_atomic_list_ratchets_only_with_the_whole_list():
    schema = field(type="array", items={"type": "string", "maxLength": 1})
    assert said(schema, ["ab", "c"], ["ab", "c"]) == []
    assert said(schema, ["ab", "d"], ["ab", "c"]) == ["spec.x[0]: Too long: may not be more than 1 byte"]


def test_lists_that_had_duplicates_may_keep_them():
    schema = field(type="array", items=STRING, **{"x-kubernetes-list-type": "set"})
    assert said(schema, ["a", "a", "b"], ["a", "a"]) == []
    assert said(schema, ["a", "a"], ["a"]) == ['spec.x[1]: Duplicate value: "a"']


def test_a_status_update_checks_the_status_alone_and_names_it_from_there():
    schema, _ = Structural.parse(
        {
            "type": "object",
            "properties": {
                "spec": {"type": "object", "required": ["a"], "properties": {"a": STRING}},
                "status": {"type": "object", "properties": {"phase": STRING}},
            },
        },
        WHERE,
    )
    new = {"spec": {}, "status": {"phase": 1}}
    causes = schema.validate(new, {"spec": {}}, is_status=True)
    assert [("status.phase", 'Invalid value: "integer": phase in body must be of type string: "integer"')] == [
        (cause.path, cause.message) for cause in causes
    ]


def test_what_other_rules_found_keeps_rules_from_being_evaluated_where_upstream_does():
    schema = field(type="integer", **{"x-kubernetes-validations": [{"rule": "self > 3"}]})
    name = Cause("metadata.name", "FieldValueRequired", "Required value")
    assert schema.validate({"spec": {"x": 2}}, known_causes=[name]) == [UNCHECKED]
    label = Cause("metadata.labels", "FieldValueInvalid", "Invalid value")
    assert [cause.path for cause in schema.validate({"spec": {"x": 2}}, known_causes=[label])] == ["spec.x"]


def test_a_rule_about_a_part_that_did_not_change_does_not_refuse_the_object():
    rules = [{"rule": "self > 3", "message": "too few"}]
    schema = structural(properties={"x": {"type": "integer", "x-kubernetes-validations": rules}, "y": STRING})
    new = {"spec": {"x": 2, "y": "b"}}
    assert schema.validate(new, {"spec": {"x": 2, "y": "a"}}) == []
    assert [cause.message for cause in schema.validate(new, {"spec": {"x": 1, "y": "a"}})] == [
        "Invalid value: 2: too few"
    ]


def test_rules_end_when_their_budget_does():
    rule = {"rule": "self.all(x, self.all(y, x == y || x != y))"}
    schema = field(type="array", items=STRING, **{"x-kubernetes-validations": [rule]})
    [only] = said(schema, ["a"] * 1000)
    assert only.startswith('spec.x: Invalid value: "array": ')
    assert "no further validation rules will be run due to call cost exceeds limit for rule" in only


CLOSEST = [{"required": ["q"]}, {"required": ["a"], "properties": {"a": {"properties": {"b": {"minLength": 1}}}}}]


def of_alternatives(**alternatives):
    inner = {"type": "object", "properties": {"b": STRING}}
    return field(type="object", properties={"a": inner, "q": STRING}, **alternatives)


def test_the_mistakes_shown_are_those_of_the_alternative_that_comes_closest():
    mistake = """spec.x.a.b: Invalid value: "": spec.x.a.b in body should be at least 1 chars long"""
    for kind in ("anyOf", "oneOf"):
        assert said(of_alternatives(**{kind: CLOSEST}), {"a": {"b": ""}})[1:] == [mistake]


def test_an_integer_sees_what_is_whole_of_a_limit():
    schema = field(type="number", minimum=0.5)
    assert said(schema, 0) == []
    assert said(schema, 0.25) == ["spec.x: Invalid value: 0.25: spec.x in body should be greater than or equal to 0.5"]


def test_numbers_of_an_enum_are_compared_as_numbers():
    schema = field(type="number", enum=[1, 2.5])
    assert said(schema, 1.0) == []
    assert said(schema, 2.5) == []
    assert said(schema, 3.5) == ['spec.x: Unsupported value: 3.5: supported values: "1", "2.5"']


def test_a_map_that_is_closed_has_no_other_fields():
    schema = field(type="object", additionalProperties=False)
    assert said(schema, {"b": 1}) == ['spec.x: Invalid value: "b": spec.x.b in body is a forbidden property']


def test_a_set_may_have_a_number_and_a_boolean_that_python_takes_for_it():
    schema = field(
        type="array", items={"x-kubernetes-preserve-unknown-fields": True}, **{"x-kubernetes-list-type": "set"}
    )
    assert said(schema, [1, True, "1"]) == []
    assert said(schema, [{"a": 1, "b": 2}, {"b": 2, "a": 1}]) == ['spec.x[1]: Duplicate value: {"a":1,"b":2}']


def test_kind_and_api_version_are_checked_on_every_write():
    schema, _ = Structural.parse({"type": "object", "properties": {"kind": {"type": "string", "enum": ["A"]}}}, WHERE)
    new = {"kind": "B", "metadata": {}}
    assert [cause.path for cause in schema.validate(new, new)] == ["kind"]
