"""Our CEL and cel-rust (package common-expression-language, decision 0056) say the same of the same expression.

cel-rust has the language without cel-go's extensions, and departs from its definition in places; each known one is in
`KNOWN` with the section of the definition that it departs from. Where both read an expression, the values are the same,
or neither has one. What only cel-go can judge (types, costs, words, Kubernetes' functions) is compared with what it was
recorded to say, in the other tests of this folder (decision 0026).

Source: google/cel-spec doc/langdef.md at v0.24.0 (below: its sections), and proposal 210 for numbers of mixed types.
"""

import math
from datetime import UTC, datetime, timedelta

import cel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cel.environment import EvaluationError
from services.cel.values import Duration, Optional, Timestamp
from tests.unit.cel.test_language import CEL, LANGUAGE, WITHOUT_VALUE

EXTENSIONS = ("macros2", "bindings_ext", "optionals")
"""Sections of the conformance files that are libraries of cel-go's: comprehensions of two variables, `cel.bind`,
optionals."""
NOT_THERE = {
    "Macros: an error of one element does not count where another decides": (
        "[0, 2].exists(v, 2 / v == 1)",
        "[0, 2].all(v, 2 / v == 2)",
    ),
    "Numbers: a key of a map is found by any number that equals it (proposal 210)": (
        "{1: 'a'} == {dyn(1u): 'a'}",
        "dyn(1.0) in {1: 2}",
        "{1: 'one'}[dyn(1u)]",
    ),
    "Syntax: a selected field may be quoted (ESC_IDENT)": ("{'a-b': 1}.`a-b`",),
    "Standard Definitions: int(timestamp), string(bool), bool(string), timestamp(int), matches(string, string)": (
        "int(timestamp('1970-01-01T00:01:00.9Z'))",
        "string(1.0) + string(1e100) + string(true) + string(12u)",
        "bool('TRUE')",
        "timestamp('2009-02-13T23:31:30Z') == timestamp(1234567890)",
        "'aé'.matches('^.{2}$') && matches('ABC', '(?i)^abc$') && !'a\\nb'.matches('a.b')",
    ),
    "Timezones: accessors of a timestamp take a time zone": (
        "timestamp('2009-02-13T23:31:30Z').getHours('-03:30')",
        "timestamp('2009-02-13T23:31:30Z').getHours('Australia/Sydney')",
        "timestamp('2009-02-13T23:31:30Z').getDayOfYear('-02:00')",
    ),
}
OTHERWISE = {
    "String and Bytes Values: a string's size is its code points, not its bytes": ("'héllo'.size()",),
    "Standard Definitions: string(timestamp) has the digits it needs, string(duration) is in seconds": (
        "string(timestamp('2009-02-13T23:31:30.5+01:00'))",
        "string(duration('1h1ns'))",
    ),
    "Overflow: -INT_MIN and durations beyond 64 bits of nanoseconds have no value": (
        "-(n - 9223372036854775807 - 1)",
        "duration('2562047h') + duration('1h')",
    ),
    "Values: timestamps have nanoseconds; as Python's datetime they come out with microseconds": (
        "timestamp('9999-12-31T23:59:59.999999999Z')",
    ),
}
KNOWN = {expression for table in (NOT_THERE, OTHERWISE) for found in table.values() for expression in found}
SHARED = [
    *(case[0] for section, cases in LANGUAGE.items() if section not in EXTENSIONS for case in cases),
    *(expression for expression, _ in WITHOUT_VALUE),
]
UNORDERED = ("{'a': 1, 'b': 2}.map(k, k)",)
"""Aggregate Values: a map has no order. Ours keeps that of its text, the oracle's is one of chance."""
NO_VALUE = "no value"


def plain(value):
    """Return a value of either as Python's own, so that numbers of one kind and NaN are equal to themselves."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"double {value!r}"
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, Duration):
        return "duration", value.nanos
    if isinstance(value, timedelta):
        return "duration", value // timedelta(microseconds=1) * 1000
    if isinstance(value, Timestamp):
        return "timestamp", value.nanos
    if isinstance(value, datetime):
        return "timestamp", (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    assert not isinstance(value, Optional)
    return value if isinstance(value, bool | str | bytes | None) else int(value)


def ours(expression, n=0):
    try:
        return plain(CEL.compile(expression).evaluate({"x": None, "n": n}))
    except EvaluationError:
        return NO_VALUE


def theirs(expression, n=0):
    """Return the value of the oracle. Its errors are of many classes, and all mean that there is none."""
    try:
        return plain(cel.compile(expression).execute({"x": None, "n": n}))
    except Exception:
        return NO_VALUE


@pytest.mark.parametrize("expression", [each for each in SHARED if each not in KNOWN])
def test_an_expression_of_the_tests_is_what_the_oracle_says(expression):
    one, other = ours(expression), theirs(expression)
    assert (sorted(one) == sorted(other)) if expression in UNORDERED else (one == other)


@pytest.mark.parametrize(
    ("why", "expressions"), [*NOT_THERE.items(), *OTHERWISE.items()], ids=lambda each: str(each)[:40]
)
def test_a_known_difference_still_is_one(why, expressions):
    """One that is gone belongs to what is compared."""
    for expression in expressions:
        assert expression in SHARED
        assert ours(expression) != theirs(expression)
        assert (theirs(expression) == NO_VALUE or isinstance(theirs(expression), bool)) == (why in NOT_THERE)


NUMBERS = st.sampled_from(
    ["n", "0", "1", "2", "3", "7", "9223372036854775807", "(-9223372036854775807)", "[1, 2, 3].size()", "[4, 5][n]"]
)
TEXTS = st.sampled_from(["''", "'a'", "'b'", "'ab'", "'ba'", "string(n)"])
TRUTHS = st.sampled_from(["true", "false", "(n == 0)", "(n > 1)", "(2 in [1, 2])", "(n in [n])", "('a' in {'a': 1})"])
SIGNS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
FILLED = st.sampled_from(["[n]", "[1, 2, 3]", "([3, 1] + [n])"])
LISTS = FILLED | st.just("[]")


@st.composite
def numbers(draw, depth):
    """Return expressions of type int. Unary minus is left out: its overflow is a known difference; so are elements of
    `[]`, whose type the first operator decides where there is a type checker."""
    if not depth:
        return draw(NUMBERS)
    inner, listed = numbers(depth - 1), draw(FILLED)
    match draw(st.integers(0, 5)):
        case 0:
            return draw(NUMBERS)
        case 1:
            return f"{listed}.map(v, v * {draw(inner)}).size()"
        case 2:
            return f"({draw(truths(depth - 1))} ? {draw(inner)} : {draw(inner)})"
        case 3:
            return f"{listed}[{draw(inner)}]"
        case 4:
            return f"{{'a': {draw(inner)}, 'b': 2}}.a"
        case _:
            return f"({draw(inner)} {draw(st.sampled_from('+-*/%'))} {draw(inner)})"


@st.composite
def texts(draw, depth):
    return f"({draw(texts(depth - 1))} + {draw(texts(depth - 1))})" if depth and draw(st.booleans()) else draw(TEXTS)


@st.composite
def truths(draw, depth):
    """Return expressions of type bool. Predicates have values for every element: errors in them are a known
    difference."""
    if not depth:
        return draw(TRUTHS)
    inner, ints, strings = truths(depth - 1), numbers(depth - 1), texts(depth - 1)
    sign, listed = draw(SIGNS), draw(LISTS)
    match draw(st.integers(0, 8)):
        case 0:
            return draw(TRUTHS)
        case 1:
            return f"!({draw(inner)})"
        case 2:
            return f"({draw(ints)} {sign} {draw(ints)})"
        case 3:
            return f"({draw(strings)} {sign} {draw(strings)})"
        case 4:
            return f"{draw(strings)}.{draw(st.sampled_from(['startsWith', 'endsWith', 'contains']))}({draw(strings)})"
        case 5:
            return f"{listed}.{draw(st.sampled_from(['all', 'exists', 'exists_one']))}(v, v {sign} 2)"
        case 6:
            return f"({draw(ints)} in {listed}.filter(v, v {sign} 2))"
        case 7:
            return f"has({{'a': {draw(ints)}}}.{draw(st.sampled_from('ab'))})"
        case _:
            return f"({draw(inner)} {draw(st.sampled_from(['&&', '||', '==', '!=']))} {draw(inner)})"


@settings(max_examples=300)
@given(truths(3) | numbers(3) | texts(2), st.integers(-1, 2))
def test_a_generated_expression_is_what_the_oracle_says(expression, n):
    assert ours(expression, n) == theirs(expression, n)
