"""The language: what expressions yield, and which have no value (google/cel-spec, its conformance files by name)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cel import types
from services.cel.environment import KUBERNETES, CompileError, Environment, EvaluationError
from services.cel.libraries import extensions
from services.cel.values import NONE, Duration, Optional, Timestamp, Uint

VARIABLES = {"x": types.DYN, "n": types.INT}
CEL = Environment(VARIABLES, libraries=(*KUBERNETES, extensions.BINDINGS))


def value(expression, **variables):
    """Evaluate both ways, with costs counted and without; they must agree."""
    program = CEL.compile(expression)
    inputs = {"x": None, "n": 0} | variables
    counted, _ = program.evaluate_with_cost([inputs["x"], inputs["n"]])
    found = program.evaluate(inputs)
    assert repr(found) == repr(counted)
    return found


LANGUAGE = {
    "basic": [
        ("-9223372036854775808", -(2**63)),
        ("0x7fu", Uint(127)),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("null", None),
        ("'\\u00e9\\x41\\101\\U0001F600\\n'", "éAA😀\n"),
        ("'\\a\\b\\f\\n\\r\\t\\v\\\\\\'\\\"\\`\\?'", "\a\b\f\n\r\t\v\\'\"`?"),
        ("b'\\a\\b\\f\\n\\r\\t\\v\\\\\\'\\\"\\`\\?'", b"\a\b\f\n\r\t\v\\'\"`?"),
        ('r"\\n"', "\\n"),
        ("'''it's\nlong'''", "it's\nlong"),
        ("b'\\xff\\303é'", b"\xff\xc3\xc3\xa9"),
        ("[1, 2,]", [1, 2]),
        ("{'a': 1, 'b': 2,}", {"a": 1, "b": 2}),
        ("// nothing\n1 // more", 1),
    ],
    "integer_math": [
        ("7 / -2", -3),
        ("-7 % 2", -1),
        ("7 % -2", 1),
        ("5u * 3u", Uint(15)),
        ("2 + 3 * 4 - 6 / 2", 11),
        ("--3", 3),
    ],
    "fp_math": [("1.0 / 0.0", math.inf), ("-1.0 / 0.0", -math.inf), ("0.1 + 0.2", 0.1 + 0.2)],
    "comparisons": [
        ("1 == 1", True),
        ("dyn(1) == 1u", True),
        ("dyn(1) == 1.0", True),
        ("dyn(true) == 1", False),
        ("[1, 2] == [1, 2]", True),
        ("{'a': [1]} == {'a': [1]}", True),
        ("{1: 'a'} == {dyn(1u): 'a'}", True),
        ("1 < 2u && 2u < 2.5 && 1.5 > 1", True),
        ("'a' < 'b' && b'a' < b'b' && false < true", True),
        ("'é' > 'z'", True),
        ("1 in [1, 2] && !(3 in [1, 2])", True),
        ("'k' in {'k': 1}", True),
        ("dyn(1.0) in {1: 2}", True),
        ("dyn(true) in {1: 2}", False),
    ],
    "logic": [
        ("true || 1 / 0 == 1", True),
        ("1 / n == 1 || true", True),
        ("false && 1 / n == 1", False),
        ("1 / n == 1 && false", False),
        ("n == 0 ? 'zero' : 'more'", "zero"),
        ("!false && !!true", True),
    ],
    "fields": [
        ("{'a': {'b': 1}}.a.b", 1),
        ("{'a': 1}['a']", 1),
        ("{1: 'one'}[dyn(1u)]", "one"),
        ("{true: 1}[true]", 1),
        ("[1, 2, 3][2]", 3),
        ("has({'a': 1}.a) && !has({'a': 1}.b)", True),
        ("{'a-b': 1}.`a-b`", 1),
    ],
    "macros": [
        ("[1, 2, 3].all(v, v > 0)", True),
        ("[1, 2, 3].exists(v, v == 2)", True),
        ("[0, 2].exists(v, 2 / v == 1)", True),
        ("[0, 2].all(v, 2 / v == 2)", False),
        ("[1, 2, 2].exists_one(v, v == 2)", False),
        ("[1, 2, 3].existsOne(v, v == 2)", True),
        ("[1, 2, 3].map(v, v * v)", [1, 4, 9]),
        ("[1, 2, 3].map(v, v > 1, v * v)", [4, 9]),
        ("[1, 2, 3].filter(v, v % 2 == 1)", [1, 3]),
        ("[[1, 2], [3]].map(l, l.map(v, v + 1))", [[2, 3], [4]]),
        ("{'a': 1, 'b': 2}.map(k, k)", ["a", "b"]),
        ("[].all(v, v > 0) && ![].exists(v, v > 0)", True),
        ("[1].map(n, [2].map(n, n))", [[2]]),
    ],
    "macros2": [
        ("[2, 4].all(i, v, v == (i + 1) * 2)", True),
        ("{'a': 1}.exists(k, v, k == 'a' && v == 1)", True),
        ("[5, 7, 8].existsOne(i, v, v % 5 == i)", True),
        ("[2, 4, 6].transformList(i, v, i != 1, v / 2 + i)", [1, 5]),
        ("{'foo': 'bar'}.transformMap(k, v, k + v)", {"foo": "foobar"}),
        ("{'foo': 'bar', 'x': 'y'}.transformMap(k, v, k != 'x', k + v)", {"foo": "foobar"}),
        ("{'a': 'b'}.transformMapEntry(k, v, {v: k})", {"b": "a"}),
    ],
    "bindings_ext": [
        ("cel.bind(t, 'a', t + t)", "aa"),
        ("cel.bind(a, 1, cel.bind(b, a + 1, [1].map(v, v + a + b)))", [4]),
        ("cel.bind(unused, 1 / n, true)", True),
    ],
    "optionals": [
        ("{'a': 1}.?a", Optional(1)),
        ("{'a': 1}.?b", NONE),
        ("{'a': {'b': 1}}.?a.b.value()", 1),
        ("{'a': {'b': 1}}.?x.b.orValue(5)", 5),
        ("[1][?0].hasValue() && ![1][?1].hasValue()", True),
        ("{'a': 1}[?dyn([n])].hasValue() || optional.of({'a': 1})[?dyn({n: 1})].hasValue()", False),
        ("optional.none().or(optional.of(2)).value()", 2),
        ("optional.of(1).optMap(v, v + 1)", Optional(2)),
        ("optional.none().optMap(v, v + 1)", NONE),
        ("optional.of(1).optFlatMap(v, v > 1 ? optional.of(v) : optional.none())", NONE),
        ("optional.ofNonZeroValue('') == optional.none()", True),
        ("[1, ?optional.none(), ?optional.of(3)]", [1, 3]),
        ("{?'a': optional.none(), ?'b': optional.of(1)}", {"b": 1}),
        ("has({'a': {'b': 1}}.?a.b)", True),
        ("optional.unwrap([optional.of(1), optional.none()])", [1]),
        ("[3, 4].first().value() + [3, 4].last().value()", 7),
        ("optional.of(1).orValue(1 / n)", 1),
    ],
    "conversions": [
        ("int('-12') + int(3.9) + int(4u)", -5),
        ("int(timestamp('1970-01-01T00:01:00.9Z'))", 60),
        ("uint(3.9)", Uint(3)),
        ("double('-1.5e2')", -150.0),
        ("string(1.0) + string(1e100) + string(true) + string(12u)", "11e+100true12"),
        ("string(b'abc') == 'abc' && bytes('é') == b'\\xc3\\xa9'", True),
        ("bool('TRUE')", True),
        ("type(1) == int && type([1]) == list && type(type(1)) == type && type(null) == null_type", True),
        ("type(1u) == int", False),
    ],
    "timestamps": [
        ("timestamp('2009-02-13T23:31:30Z') == timestamp(1234567890)", True),
        ("timestamp('2009-02-13T23:31:30Z').getHours('-03:30')", 20),
        ("timestamp('2009-02-13T23:31:30Z').getHours('Australia/Sydney')", 10),
        ("timestamp('2009-02-13T23:31:30Z').getDayOfWeek()", 5),
        ("timestamp('2009-02-13T23:31:30Z').getDayOfYear('-02:00')", 43),
        ("timestamp('2009-02-13T23:31:30.123456789Z').getMilliseconds()", 123),
        ("timestamp('2009-02-13T23:31:30Z').getMonth() * 100 + timestamp('2009-02-13T23:31:30Z').getDate()", 113),
        ("timestamp('2009-02-13T23:31:30Z').getDayOfMonth()", 12),
        ("timestamp('2009-02-13T23:31:00Z') - timestamp('2009-02-13T23:29:00Z')", Duration(120 * 10**9)),
        ("timestamp('2009-02-13T23:00:00Z') + duration('240s') == timestamp('2009-02-13T23:04:00Z')", True),
        ("string(timestamp('2009-02-13T23:31:30.5+01:00'))", "2009-02-13T23:31:30.5+01:00"),
        ("duration('1h30m') + duration('-1.5s')", Duration(5_398_500_000_000)),
        ("string(duration('1h1ns'))", "3600.000000001s"),
        ("duration('90m').getHours() + duration('90m').getMinutes()", 91),
        ("timestamp('9999-12-31T23:59:59.999999999Z')", Timestamp(253402300800 * 10**9 - 1)),
        ("duration('1s') < duration('1m')", True),
    ],
    "string": [
        ("'héllo'.size()", 5),
        ("'abc'.startsWith('ab') && 'abc'.endsWith('bc') && 'abc'.contains('b')", True),
        ("'abc' + 'd'", "abcd"),
        ("'aé'.matches('^.{2}$') && matches('ABC', '(?i)^abc$') && !'a\\nb'.matches('a.b')", True),
    ],
}


@pytest.mark.parametrize(
    ("expression", "expected"), [case for cases in LANGUAGE.values() for case in cases], ids=lambda case: str(case)[:60]
)
def test_an_expression_yields(expression, expected):
    found = value(expression)

    assert found == expected
    assert type(found) is type(expected)


WITHOUT_VALUE = [
    ("n + 9223372036854775807 + 1", "integer overflow"),
    ("-(n - 9223372036854775807 - 1)", "integer overflow"),
    ("(n - 9223372036854775807 - 1) / -1", "integer overflow"),
    ("n * 2 - 9223372036854775807 - 2", "integer overflow"),
    ("0u - uint(n + 1)", "unsigned integer overflow"),
    ("1 / n", "division by zero"),
    ("1 % n", "modulus by zero"),
    ("[1][n + 5]", "index out of bounds: 5"),
    ("[1][dyn('a')]", "unsupported index type 'string' in list"),
    ("{'a': 1}[string(n)]", "no such key: 0"),
    ("{'a': 1}[dyn([n])]", "unsupported key type: list"),
    ("[1][dyn(0.5)]", "unsupported index value 0.5 in list"),
    ("{'a': 1}.b", "no such key: b"),
    ("dyn(1) + 'a'", "no such overload"),
    ("dyn(1).size()", "no such overload: size"),
    ("dyn(1) && true", "no such overload"),
    ("dyn(1).all(v, true)", "got 'types.Int', expected iterable type"),
    ("optional.none().value()", "optional.none() dereference"),
    ("[1, 0].all(v, 1 / v > 0)", "division by zero"),
    ("[1, 0].exists_one(v, 1 / v > 0)", "division by zero"),
    ("{'a': 1, 'b': 1}.transformMapEntry(k, v, {v: k})", "insert failed: key 1 already exists"),
    ("timestamp('9999-12-31T23:59:59Z') + duration(string(n + 1) + 's')", "timestamp overflow"),
    ("duration('2562047h') + duration('1h')", "integer overflow"),
    ("timestamp('2009-02-13T23:31:30Z').getHours('Nowhere')", "unknown time zone Nowhere"),
    ("'a'.matches('(' + string(n))", "error parsing regexp: missing closing ): `(0`"),
    ("'a'.matches(string(n) + '(?=b)')", "error parsing regexp: invalid or unsupported Perl syntax: `(?=`"),
]


@pytest.mark.parametrize(("expression", "why"), WITHOUT_VALUE)
def test_an_expression_without_value_says_why(expression, why):
    with pytest.raises(EvaluationError) as error:
        value(expression)

    assert str(error.value) == why


STARTS = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1 +", f"ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {STARTS}\n | 1 +\n | ...^"),
        ("(1", "ERROR: <input>:1:3: Syntax error: missing ')' at '<EOF>'\n | (1\n | ..^"),
        ("1)", "ERROR: <input>:1:2: Syntax error: extraneous input ')' expecting <EOF>\n | 1)\n | .^"),
        (
            "n = 1",
            (
                "ERROR: <input>:1:3: Syntax error: token recognition error at: '= '\n | n = 1\n | ..^\n"
                "ERROR: <input>:1:5: Syntax error: extraneous input '1' expecting <EOF>\n | n = 1\n | ....^"
            ),
        ),
        (
            "[1, 2",
            "ERROR: <input>:1:6: Syntax error: mismatched input '<EOF>' expecting {']', ','}\n | [1, 2\n | .....^",
        ),
        ("n ? 1", "ERROR: <input>:1:6: Syntax error: mismatched input '<EOF>' expecting ':'\n | n ? 1\n | .....^"),
        ("n.", "ERROR: <input>:1:3: Syntax error: no viable alternative at input '.'\n | n.\n | ..^"),
        ("9223372036854775808", "ERROR: <input>:1:1: invalid int literal\n | 9223372036854775808\n | ^"),
        ("'\\ud800'", "ERROR: <input>:1:1: invalid unicode code point\n | '\\ud800'\n | ^"),
        ("if", "ERROR: <input>:1:1: reserved identifier: if\n | if\n | ^"),
        ("y", "ERROR: <input>:1:1: undeclared reference to 'y' (in container '')\n | y\n | ^"),
        (
            "'€' + 1",
            (
                "ERROR: <input>:1:5: found no matching overload for '_+_' applied to '(string, int)'\n"
                " | '€' + 1\n | .．..^"
            ),
        ),
        (
            "n\n  + 'a'",
            "ERROR: <input>:2:3: found no matching overload for '_+_' applied to '(int, string)'\n |   + 'a'\n | ..^",
        ),
        ("n.a", "ERROR: <input>:1:2: type 'int' does not support field selection\n | n.a\n | .^"),
        (
            "n.all(v, true)",
            (
                "ERROR: <input>:1:1: expression of type 'int' cannot be range of a comprehension (must be "
                "list, map, or dynamic)\n | n.all(v, true)\n | ^"
            ),
        ),
        ("[1, 'a']", "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a']\n | ....^"),
        (
            "[1].all(v, 1)",
            "ERROR: <input>:1:12: expected type 'bool' but found 'int'\n | [1].all(v, 1)\n | ...........^",
        ),
        ("has(n)", "ERROR: <input>:1:5: invalid argument to has() macro\n | has(n)\n | ....^"),
        ("[1].all(1, true)", "ERROR: <input>:1:9: argument must be a simple name\n | [1].all(1, true)\n | ........^"),
        (
            "'a'.foo(y)",
            (
                "ERROR: <input>:1:8: undeclared reference to 'foo' (in container '')\n | 'a'.foo(y)\n | .......^\n"
                "ERROR: <input>:1:9: undeclared reference to 'y' (in container '')\n | 'a'.foo(y)\n | ........^"
            ),
        ),
        (
            "'a'.startsWith(1)",
            (
                "ERROR: <input>:1:15: found no matching overload for 'startsWith' applied to "
                "'string.(int)'\n | 'a'.startsWith(1)\n | ..............^"
            ),
        ),
        ("timestamp('x')", "ERROR: <input>:1:11: invalid timestamp argument\n | timestamp('x')\n | ..........^"),
    ],
)
def test_what_is_no_expression_is_refused_in_the_words_of_the_api_server(expression, message):
    with pytest.raises(CompileError) as error:
        CEL.compile(expression)

    assert str(error.value) == message


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("[1]", "list(int)"),
        ("{'a': 1u}", "map(string, uint)"),
        ("[]", "list(dyn)"),
        ("x.a", "dyn"),
        ("n > 1 ? 1 : n", "int"),
        ("optional.of(1)", "optional_type(int)"),
        ("timestamp(n)", "google.protobuf.Timestamp"),
        ("[1].map(v, {'a': v})", "list(map(string, int))"),
        ("dyn(1) + x", "dyn"),
        ("type(n)", "type(int)"),
    ],
)
def test_an_expression_has_a_type_before_it_is_evaluated(expression, what):
    assert str(CEL.compile(expression).type) == what


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1).filter(bool))
def test_division_is_that_of_machines(one, two):
    program = Environment({"a": types.INT, "b": types.INT}).compile("(a / b) * b + a % b == a")

    if (one, two) != (-(2**63), -1):
        assert program.evaluate({"a": one, "b": two}) is True


@given(st.text(), st.text())
def test_text_survives_quoting(one, two):
    quoted = "'" + "".join(f"\\U{ord(sign):08x}" for sign in one if not 0xD800 <= ord(sign) < 0xE000) + "'"
    program = Environment({"a": types.STRING, "b": types.STRING}).compile(f"{quoted} == a && (a < b) == !(b <= a)")
    clean = "".join(sign for sign in one if not 0xD800 <= ord(sign) < 0xE000)

    assert program.evaluate({"a": clean, "b": two}) is True
