"""Validation rules of schemas: what is refused with the schema, and what documents they refuse (KEP-2876, KEP-4008)."""

import json
from typing import Any

import pytest

from services.cel.rules import OBJECT_LIMIT, RuleFaults, Rules, check

INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
UNCORRELATED = "oldSelf cannot be used on the uncorrelatable portion of the schema within"
NO_OVERLOAD = "call arguments did not match a supported operator, function or macro signature"
BROKE = "validation failed due to running out of cost budget, no further validation rules will be run"
SPENT = "no further validation rules will be run due to call cost exceeds limit for rule"
PATH = "spec.versions[0].schema.openAPIV3Schema"


def spec(*rules: Any, **properties: Any) -> dict[str, Any]:
    texts = [{"rule": each} if isinstance(each, str) else each for each in rules]
    inner = {"type": "object", "properties": properties, "x-kubernetes-validations": texts}
    return {"type": "object", "properties": {"spec": inner}}


def refused(schema: dict[str, Any]) -> list[tuple[str, str]]:
    return [(cause.path.removeprefix(PATH), cause.message) for cause in check(schema, PATH)]


def validated(schema: dict[str, Any], document: Any, old: Any = None, *, budget: int = OBJECT_LIMIT) -> RuleFaults:
    rules = Rules.of(schema)
    assert rules is not None
    return rules.validate({"spec": document}, None if old is None else {"spec": old}, budget=budget)


def messages(found: RuleFaults) -> list[str]:
    return [f"{cause.path}: {cause.message}" for cause in found.causes]


def test_a_rule_that_does_not_hold_refuses_with_its_text() -> None:
    schema = spec("self.min <= self.max", min=INTEGER, max=INTEGER)
    assert refused(schema) == []
    assert messages(validated(schema, {"min": 1, "max": 2})) == []
    assert messages(validated(schema, {"min": 3, "max": 2})) == [
        "spec: Invalid value: failed rule: self.min <= self.max"
    ]


def test_message_reason_and_field_path_are_the_rules_own() -> None:
    rule = {"rule": "self.min <= self.max", "message": " min above max ", "reason": "FieldValueForbidden"}
    schema = spec({**rule, "fieldPath": ".min"}, min=INTEGER, max=INTEGER)
    assert refused(schema) == []
    (cause,) = validated(schema, {"min": 3, "max": 2}).causes
    assert cause == ("spec.min", "FieldValueForbidden", "Forbidden: min above max")


def test_a_scalar_is_named_with_its_value() -> None:
    schema = spec(count={**INTEGER, "x-kubernetes-validations": [{"rule": "self < 5"}]})
    assert messages(validated(schema, {"count": 7})) == ["spec.count: Invalid value: 7: failed rule: self < 5"]


def test_a_message_expression_speaks_and_falls_back() -> None:
    rule = {"rule": "self.min <= 2", "messageExpression": "'min is ' + string(self.min)", "message": "too large"}
    schema = spec(rule, min=INTEGER)
    assert messages(validated(schema, {"min": 3})) == ["spec: Invalid value: min is 3"]
    broken = spec({**rule, "messageExpression": "'a\\nb'"}, min=INTEGER)
    assert messages(validated(broken, {"min": 3})) == ["spec: Invalid value: too large"]
    failing = spec({**rule, "messageExpression": "string(1 / (self.min - 3))"}, min=INTEGER)
    assert messages(validated(failing, {"min": 3})) == ["spec: Invalid value: too large"]


def test_transition_rules_are_evaluated_when_there_is_an_old_value() -> None:
    schema = spec("self.name == oldSelf.name", name=TEXT)
    assert messages(validated(schema, {"name": "a"})) == []
    assert messages(validated(schema, {"name": "a"}, {"name": "a"})) == []
    assert messages(validated(schema, {"name": "b"}, {"name": "a"})) == [
        "spec: Invalid value: failed rule: self.name == oldSelf.name"
    ]


def test_an_optional_old_value_makes_a_transition_rule_speak_on_creation() -> None:
    rule = {"rule": "oldSelf.hasValue() || self.name == 'first'", "optionalOldSelf": True}
    schema = spec(rule, name=TEXT)
    assert refused(schema) == []
    assert len(validated(schema, {"name": "b"}).causes) == 1
    assert validated(schema, {"name": "b"}, {"name": "a"}).causes == []


def test_items_of_lists_with_keys_have_old_values_and_those_of_others_have_not() -> None:
    item = {
        "type": "object",
        "properties": {"k": TEXT, "v": INTEGER},
        "required": ["k"],
        "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v"}],
    }
    keyed = {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    schema = spec(list={**keyed, "maxItems": 10})
    assert refused(schema) == []
    old = {"list": [{"k": "a", "v": 1}, {"k": "b", "v": 5}]}
    found = validated(schema, {"list": [{"k": "b", "v": 4}, {"k": "a", "v": 1}, {"k": "c", "v": 0}]}, old)
    assert messages(found) == ["spec.list[0]: Invalid value: failed rule: self.v >= oldSelf.v"]
    plain = spec(list={"type": "array", "items": item, "maxItems": 10})
    where = f"{PATH}.properties[spec].properties[list]"
    assert refused(plain) == [
        (
            ".properties[spec].properties[list].items.x-kubernetes-validations[0].rule",
            f'Invalid value: "self.v >= oldSelf.v": {UNCORRELATED} {where}',
        )
    ]


def test_what_did_not_change_is_only_warned_of() -> None:
    schema = spec("self.min <= 2", "self.min >= oldSelf.min", min=INTEGER, other=INTEGER)
    found = validated(schema, {"min": 3}, {"min": 3})
    assert (found.causes, len(found.warnings)) == ([], 1)
    assert len(validated(schema, {"min": 3, "other": 1}, {"min": 3}).causes) == 1


def test_rules_of_maps_and_all_of_are_evaluated_too() -> None:
    values = {**INTEGER, "x-kubernetes-validations": [{"rule": "self > 0"}]}
    schema = spec(map={"type": "object", "additionalProperties": values, "maxProperties": 3})
    assert messages(validated(schema, {"map": {"a": 1, "b": 0}})) == [
        "spec.map[b]: Invalid value: 0: failed rule: self > 0"
    ]
    both = spec(min=INTEGER)
    both["properties"]["spec"]["allOf"] = [{"x-kubernetes-validations": [{"rule": "self.min == 1"}]}]
    assert refused(both) == []
    assert messages(validated(both, {"min": 2})) == ["spec: Invalid value: failed rule: self.min == 1"]


def test_errors_of_evaluation_refuse_with_their_reason() -> None:
    schema = spec("1 / self.min > 0", "self.either + 1 > 0", min=INTEGER, either={"x-kubernetes-int-or-string": True})
    assert messages(validated(schema, {"min": 0, "either": "x"})) == [
        'spec: Invalid value: "object": division by zero evaluating rule: 1 / self.min > 0',
        f"spec: Invalid value: \"object\": 'no such overload': {NO_OVERLOAD} for rule: self.either + 1 > 0",
    ]


def test_the_budget_of_an_object_ends_its_validation() -> None:
    schema = spec("self.list.all(x, x >= 0)", "self.list.size() == 0", list={"type": "array", "items": INTEGER})
    found = validated(schema, {"list": list(range(200))}, budget=500)
    assert found.left == -1
    assert messages(found) == [f'spec: Invalid value: "object": {BROKE}']
    assert validated(schema, {"list": []}).left == OBJECT_LIMIT - 3 - 4


def test_one_evaluation_has_a_limit_of_its_own() -> None:
    rule = "self.list.all(x, self.list.all(y, x + y >= 0))"
    found = validated(spec(rule, list={"type": "array", "items": INTEGER}), {"list": list(range(1000))})
    assert found.left == -1
    cancelled = f"'operation cancelled: actual cost limit exceeded': {SPENT}: {rule}"
    assert messages(found) == [f'spec: Invalid value: "object": {cancelled}']


REASONS = '"FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"'
ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)


def test_a_rule_is_refused_by_its_estimate_times_how_often_it_can_run() -> None:
    item = {"type": "string", "maxLength": 1000, "x-kubernetes-validations": [{"rule": "self.contains('x')"}]}
    where = ".properties[spec].properties[list].items.x-kubernetes-validations[0].rule"
    schema = spec(list={"type": "array", "items": item})
    factor = 401 * (3 * 1024 * 1024 // 3) / 10_000_000
    assert refused(schema)[0] == (
        where,
        f"Forbidden: estimated rule cost exceeds budget by factor of {factor:.1f}x {ADVICE}",
    )
    assert refused(spec(list={"type": "array", "items": item, "maxItems": 10})) == []


def test_all_rules_of_a_schema_have_a_limit_together() -> None:
    item = {"type": "string", "maxLength": 1000, "x-kubernetes-validations": [{"rule": "self.contains('x')"}]}
    found = refused(spec(**{f"l{n}": {"type": "array", "items": item} for n in range(2)}))
    assert ("", found[-1][1]) == found[-1]
    assert found[-1][1].startswith(
        "Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by "
    )
    contributed = "Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
    assert [message for _, message in found].count(contributed) == 2


@pytest.mark.parametrize(
    ("rule", "where", "message"),
    [
        ({"rule": " "}, "rule", "Required value: rule is not specified"),
        ({"rule": "true", "message": " "}, "message", 'Invalid value: " ": message must be non-empty if specified'),
        (
            {"rule": "true", "message": "a\nb"},
            "message",
            'Invalid value: "a\\nb": message must not contain line breaks',
        ),
        (
            {"rule": "true ||\nfalse"},
            "message",
            "Required value: message must be specified if rule contains line breaks",
        ),
        (
            {"rule": "true", "messageExpression": " "},
            "messageExpression",
            "Required value: messageExpression must be non-empty if specified",
        ),
        ({"rule": "true", "reason": "Other"}, "reason", f'Unsupported value: "Other": supported values: {REASONS}'),
        ({"rule": "true", "fieldPath": ".nope"}, "fieldPath", 'Invalid value: ".nope": fieldPath must be a valid path'),
        (
            {"rule": "true", "optionalOldSelf": True},
            "optionalOldSelf",
            "Invalid value: true: may not be set if oldSelf is not used in rule",
        ),
    ],
)
def test_rules_are_written_as_the_api_server_wants_them(rule: dict[str, Any], where: str, message: str) -> None:
    path = f".properties[spec].x-kubernetes-validations[0].{where}"
    assert refused(spec(rule, min=INTEGER)) == [(path, message)]


def test_rules_that_cannot_be_compiled_are_refused_with_the_schema() -> None:
    (found,) = refused(spec("self.nope == 1", min=INTEGER))
    assert found[0] == ".properties[spec].x-kubernetes-validations[0].rule"
    shown = json.dumps(
        {
            "Rule": "self.nope == 1",
            "Message": "",
            "MessageExpression": "",
            "Reason": None,
            "FieldPath": "",
            "OptionalOldSelf": None,
        },
        separators=(",", ":"),
    )
    assert found[1].startswith(
        f"Invalid value: {shown}: compilation failed: ERROR: <input>:1:5: undefined field 'nope'"
    )
    (number,) = refused(spec("self.min", min=INTEGER))
    assert number[1].endswith("cel expression must evaluate to a bool")
    (message,) = refused(spec({"rule": "true", "messageExpression": "1"}, min=INTEGER))
    assert message[1].endswith("messageExpression must evaluate to a string")
