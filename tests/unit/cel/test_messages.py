"""Protobuf messages of CEL itself: wrappers, times by parts, JSON values. Compared with cel-go on the same expressions."""

from typing import Any

import pytest

from services.cel.environment import CompileError, Environment, EvaluationError
from services.cel.values import Duration, Timestamp

ENVIRONMENT = Environment({})
FIELD = "field type conversion error for google.protobuf.Int32Value.value value type"


def evaluated(expression: str) -> Any:
    return ENVIRONMENT.compile(f"google.protobuf.{expression}").evaluate({})


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("Int32Value{value: 1}", 1),
        ("Int32Value{}", 0),
        ("Int32Value{value: 1} + 1", 2),
        ("StringValue{value: 'a'} + 'b'", "ab"),
        ("BoolValue{value: true} || false", True),
        ("Int64Value{?value: optional.of(3)}", 3),
        ("Int64Value{?value: optional.none()}", 0),
        ("Int64Value{value: 1} == null", False),
        ("FloatValue{value: 1.1} == 1.1", False),
        ("DoubleValue{value: 1.5}", 1.5),
        ("BytesValue{value: b'a'}.size()", 1),
        ("Duration{seconds: 1, nanos: -1}", Duration(999_999_999)),
        ("Duration{seconds: 60} == duration('1m')", True),
        ("Timestamp{seconds: 5, nanos: 3}", Timestamp(5_000_000_003)),
        ("Struct{fields: {'a': 1}}", {"a": 1.0}),
        ("Struct{fields: {'a': 1}}.a == 1.0", True),
        ("ListValue{values: [1, 2]}", [1.0, 2.0]),
        ("Value{}", None),
        ("Value{string_value: 'x'}", "x"),
        ("Value{struct_value: {'a': 'b'}}", {"a": "b"}),
        ("Empty{} == google.protobuf.Empty{}", True),
    ],
)
def test_a_message_is_the_value_that_it_stands_for(expression: str, value: Any) -> None:
    assert evaluated(expression) == value


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("Foo{}", "undeclared reference to 'google.protobuf.Foo' (in container '')"),
        ("Int32Value{val: 1}", "<input>:1:31: undefined field 'val'"),
        (
            "Int32Value{value: 'x'}",
            "<input>:1:33: expected type of field 'value' is 'int' but provided type is 'string'",
        ),
        ("Int64Value{value: null}", "expected type of field 'value' is 'int' but provided type is 'null'"),
        ("DoubleValue{value: 1}", "expected type of field 'value' is 'double' but provided type is 'int'"),
        ("Int32Value{value: 1}.value", "type 'wrapper(int)' does not support field selection"),
        ("ListValue{values: [1, 'x']}", "expected type 'int' but found 'string'"),
    ],
)
def test_messages_are_checked_by_their_fields(expression: str, message: str) -> None:
    with pytest.raises(CompileError, match="ERROR") as refused:
        evaluated(expression)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            "Int32Value{value: 2147483648}",
            "field type conversion error for google.protobuf.Int32Value.value value type: integer overflow",
        ),
        (
            "UInt32Value{value: 4294967296u}",
            "field type conversion error for google.protobuf.UInt32Value.value value type: unsigned integer overflow",
        ),
        ("Int32Value{value: dyn('x')}", f"{FIELD}: unsupported native conversion from string to 'int32'"),
        ("Any{}", "unsupported conversion to ref.Val: (*dynamicpb.Message)"),
    ],
)
def test_what_a_field_cannot_hold_is_an_error(expression: str, message: str) -> None:
    with pytest.raises(EvaluationError) as refused:
        evaluated(expression)
    assert str(refused.value) == message


def test_making_a_message_costs_forty() -> None:
    program = ENVIRONMENT.compile("google.protobuf.Int32Value{value: 1} == 1")
    assert (program.cost.most, program.evaluate_with_cost([])) == (41, (True, 41))
