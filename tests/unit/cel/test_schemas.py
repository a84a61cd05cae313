"""Types and values of structural schemas. Numbers were compared with k8s.io/apiserver and cel-go on the same schemas."""

from typing import Any

import pytest

from services.cel import schemas, types
from services.cel.environment import CompileError, Environment, EvaluationError
from services.cel.schemas import Declared, declare, escape, unescape, value
from services.cel.values import NONE, Duration, Optional

TEXT, INTEGER = {"type": "string"}, {"type": "integer"}


def of(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


ITEM = of("name", name={"type": "string", "maxLength": 20}, value=INTEGER, tags={"type": "array", "items": TEXT})
SCHEMA = of(
    "name",
    name=TEXT,
    replicas=INTEGER,
    ratio={"type": "number"},
    either={"x-kubernetes-int-or-string": True},
    phase={"type": "string", "enum": ["a", "bbbb"]},
    wait={"type": "string", "format": "duration"},
    when={"type": "string", "format": "date-time"},
    blob={"type": "string", "format": "byte"},
    items={"type": "array", "items": ITEM},
    few={"type": "array", "items": ITEM, "maxItems": 5},
    finalizers={"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
    ports={
        "type": "array",
        "items": of("port", port=INTEGER, name=TEXT),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port"],
    },
    labels={"type": "object", "additionalProperties": TEXT},
    note={"type": "string", "nullable": True},
    anything={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    unknown={"x-kubernetes-preserve-unknown-fields": True},
    namespace=TEXT,
    **{"foo-bar": TEXT, "a.b/c": INTEGER},
)
DOCUMENT = {
    "name": "abc",
    "replicas": 3,
    "ratio": 2,
    "either": "50%",
    "phase": "a",
    "wait": "1h30m",
    "when": "2024-01-02T03:04:05Z",
    "blob": "aGVsbG8=",
    "items": [{"name": "x", "value": 1, "tags": ["p", "q"]}, {"name": "y"}],
    "finalizers": ["a", "b"],
    "ports": [{"port": 1, "name": "one"}, {"port": 2, "name": "two"}],
    "labels": {"a": "b", "c": "d"},
    "note": None,
    "namespace": "ns",
    "foo-bar": "fb",
    "a.b/c": 4,
}


def environment(schema: dict[str, Any] = SCHEMA, *, is_root: bool = False, optional: bool = False) -> Environment:
    declared = declared_of(schema, is_root=is_root)
    old = types.optional_of(declared.type) if optional else declared.type
    return Environment(
        {"self": declared.type, "oldSelf": old}, objects=schemas.objects(declared), sizes=schemas.sizes(declared)
    )


def declared_of(schema: dict[str, Any], *, is_root: bool = False) -> Declared:
    found = declare(schema, is_root=is_root)
    assert found is not None
    return found


def evaluated(expression: str, old: Any = None) -> Any:
    declared = declared_of(SCHEMA)
    before = value(DOCUMENT if old is None else old, declared)
    return environment().compile(expression).evaluate({"self": value(DOCUMENT, declared), "oldSelf": before})


@pytest.mark.parametrize(
    "expression",
    [
        "self.replicas <= 3",
        "self.ratio > 1.5 && self.ratio == 2.0",
        "type(self.either) == string && self.either == '50%'",
        "self.wait > duration('1h')",
        "self.when.getFullYear() == 2024",
        "self.blob == b'hello'",
        "self.items.exists(i, i.name == 'y' && !has(i.value))",
        "self.items.map(i, i.?value.orValue(7)) == [1, 7]",
        "self.finalizers == ['b', 'a'] && self.finalizers + ['c', 'a'] == ['a', 'b', 'c']",
        "(self.ports + [self.ports[0]]).size() == 2",
        "self.labels.all(k, self.labels[k] != k) && 'a' in self.labels",
        "!has(self.note) && !has(self.few)",
        "self.foo__dash__bar == 'fb' && self.a__dot__b__slash__c == 4",
        "self.namespace == self.__namespace__",
        "self.items == oldSelf.items && self.labels == oldSelf.labels",
        "type(self) == map",
    ],
)
def test_documents_are_values_by_their_schema(expression: str) -> None:
    assert evaluated(expression) is True


def test_lists_with_keys_are_equal_in_any_order_and_plain_lists_are_not() -> None:
    turned = {**DOCUMENT, "ports": DOCUMENT["ports"][::-1], "items": DOCUMENT["items"][::-1]}  # type: ignore[index]
    assert evaluated("self.ports == oldSelf.ports", turned) is True
    assert evaluated("self.items == oldSelf.items", turned) is False
    changed = {**DOCUMENT, "ports": [{"port": 1, "name": "one"}, {"port": 2, "name": "other"}]}
    assert evaluated("self.ports == oldSelf.ports", changed) is False
    assert evaluated("(oldSelf.ports + self.ports)[1].name", changed) == "two"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("self.colour", "undefined field 'colour'"),
        ("self.anything.x", "undefined field 'x'"),
        ("self.unknown", "undefined field 'unknown'"),
        ("self.replicas == 'x'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.items[0].name + 1", "found no matching overload for '_+_' applied to '(string, int)'"),
        ("self.labels.a.b", "type 'string' does not support field selection"),
    ],
)
def test_expressions_are_checked_against_the_schema(expression: str, message: str) -> None:
    with pytest.raises(CompileError, match="ERROR") as refused:
        environment().compile(expression)
    assert message in str(refused.value)


def test_a_resource_has_type_and_name_whatever_its_schema_says() -> None:
    schema = of(spec=of(x=INTEGER))
    declared = declared_of(schema, is_root=True)
    document = {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {"x": 1}}
    program = environment(schema, is_root=True).compile("self.metadata.name + self.kind + self.apiVersion")
    assert program.evaluate({"self": value(document, declared), "oldSelf": None}) == "nKv1"
    with pytest.raises(CompileError, match="undefined field 'labels'"):
        environment(schema, is_root=True).compile("self.metadata.labels")


def test_old_values_may_be_optional() -> None:
    program = environment(optional=True).compile("oldSelf.optMap(o, o.replicas).orValue(0) < self.replicas")
    declared = declared_of(SCHEMA)
    now = value(DOCUMENT, declared)
    assert program.evaluate({"self": now, "oldSelf": NONE}) is True
    assert program.evaluate({"self": now, "oldSelf": Optional(now)}) is False


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        ("self.items == oldSelf.items", 24_202),
        ("self.items.all(i, i.name.startsWith('x') || i.name == 'y')", 2_177_805),
        ("self.items.all(i, has(i.value) && i.value > 0)", 1_693_849),
        ("self.few.all(i, i.name == 'x')", 33),
        ("self.phase.matches('^[a-z]+$')", 4),
        ("self.name.matches('^[a-z]+$')", 629_148),
        ("type(self.either) == string", 4),
        ("self.labels.all(k, self.labels[k] == 'b')", 3_145_723),
    ],
)
def test_costs_are_estimated_by_the_limits_of_the_schema(expression: str, cost: int) -> None:
    assert environment().compile(expression).cost.most == cost


def test_what_nothing_limits_is_as_often_as_it_fits_into_a_request() -> None:
    assert declared_of(INTEGER).cardinality == 1_572_864
    assert declared_of(ITEM).cardinality == schemas.REQUEST_MAX // (2 + 4 + 2 + 4 + 1)
    unlimited = declared_of({"type": "array", "items": INTEGER})
    assert (unlimited.least_bytes, unlimited.most) == (2, (schemas.REQUEST_MAX - 2) // 2)


@pytest.mark.parametrize(
    ("schema", "document", "message"),
    [
        (INTEGER, 1.0, "invalid data, expected int, got float64"),
        (TEXT, 1, "invalid data, expected string, got int64"),
        (TEXT, None, "invalid data, got null for schema with nullable=false"),
        (of(x=INTEGER), [1], "invalid data, expected a map for the provided schema with type=object"),
        (
            {"type": "array", "items": TEXT},
            {},
            "invalid data, expected an array for the provided schema with type=array",
        ),
        (
            {"x-kubernetes-int-or-string": True},
            1.5,
            "invalid data, expected XIntOrString value to be either a string or integer",
        ),
        ({"type": "string", "format": "duration"}, "q", "Invalid duration q: unable to parse q as duration"),
    ],
)
def test_a_document_that_its_schema_does_not_describe_is_no_value(schema: Any, document: Any, message: str) -> None:
    with pytest.raises(EvaluationError) as refused:
        value(document, declared_of(schema))
    assert str(refused.value) == message


def test_durations_may_be_spelled_out() -> None:
    assert value("3 days", declared_of({"type": "string", "format": "duration"})) == Duration(3 * 86_400 * 10**9)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("plain", "plain"),
        ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
        ("__x", "__underscores__x"),
        ("namespace", "__namespace__"),
        ("true", "__true__"),
        ("1x", None),
        ("é", None),
    ],
)
def test_names_are_escaped_and_unescaped(name: str, said: str | None) -> None:
    assert escape(name) == said
    if said is not None:
        assert unescape(said) == name


def test_schemas_that_no_expression_can_refer_to_have_no_type() -> None:
    assert declare({"x-kubernetes-preserve-unknown-fields": True}) is None
    assert declare({"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True}}) is None
    assert declare({"type": "array"}) is None
