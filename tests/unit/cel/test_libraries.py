"""Functions of Kubernetes and the extensions it has, one by one, with what they say of what they cannot read.

What is expected is what upstream's library answers (kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/cel/library).
"""

from __future__ import annotations

from decimal import ROUND_UP, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cel import types
from services.cel.environment import CompileError, Environment, EvaluationError
from services.cel.libraries import standard
from services.cel.libraries.strings import strings
from services.cel.quantities import quantity
from services.cel.values import NONE, Optional, Uint
from services.cel.versions import semver

CEL = Environment({"n": types.INT, "s": types.STRING})


def value(expression, **variables):
    program = CEL.compile(expression)
    inputs = {"n": 0, "s": ""} | variables
    assert repr(program.evaluate_with_cost(list(inputs.values()))[0]) == repr(program.evaluate(inputs))
    return program.evaluate(inputs)


QUANTITIES = [
    ("quantity('1.5k').asInteger()", 1500),
    ("quantity('1Gi').compareTo(quantity('1024Mi'))", 0),
    ("quantity('200M').compareTo(quantity('0.3G'))", -1),
    ("quantity('50k').isGreaterThan(quantity('49Ki')) && quantity('1m').isLessThan(quantity('2m'))", False),
    ("quantity('1k') == quantity('1000')", True),
    ("sign(quantity('-50k')) + sign(quantity('0')) + sign(quantity('1m'))", 0),
    ("quantity('1').add(2).sub(quantity('500m')).asApproximateFloat()", 2.5),
    ("quantity('50k').sub(1).asInteger()", 49999),
    ("quantity('1000m').isInteger()", False),
    ("quantity('1e3').asInteger() == quantity('1E3').asInteger()", True),
    ("quantity('0.1n').asApproximateFloat()", 1e-9),
    ("quantity('100Ei').asApproximateFloat()", 9.223372036854776e18),
    ("isQuantity('1.3Gi') && isQuantity('.5') && !isQuantity('1.3G i') && !isQuantity('') && !isQuantity('1Zi')", True),
]
VERSIONS = [
    ("semver('1.2.3').major() * 100 + semver('1.2.3').minor() * 10 + semver('1.2.3').patch()", 123),
    ("semver('1.2.3-alpha.2').compareTo(semver('1.2.3-alpha.10'))", -1),
    ("semver('1.2.3-alpha').isLessThan(semver('1.2.3')) && semver('1.10.0').isGreaterThan(semver('1.9.9'))", True),
    ("semver('1.2.3') == semver('1.2.3+build')", True),
    ("semver('v01.2', true) == semver('1.2.0')", True),
    ("isSemver('1.0.0') && !isSemver('v1.0.0') && isSemver('v1', true) && !isSemver('x', true)", True),
]
ADDRESSES = [
    ("ip('192.168.0.1').family() + ip('::1').family()", 10),
    ("string(ip('2001:DB8::0001'))", "2001:db8::1"),
    ("ip.isCanonical('127.0.0.1') && !ip.isCanonical('2001:DB8::1')", True),
    ("isIP('::1') && !isIP('1.2.3') && !isIP('::ffff:1.2.3.4')", True),
    ("ip('0.0.0.0').isUnspecified() && ip('127.0.0.1').isLoopback() && ip('224.0.0.1').isLinkLocalMulticast()", True),
    ("ip('169.254.1.1').isLinkLocalUnicast() && ip('10.0.0.1').isGlobalUnicast()", True),
    ("ip('255.255.255.255').isGlobalUnicast() || ip('ff02::1').isGlobalUnicast()", False),
    ("cidr('10.0.0.0/8').containsIP('10.1.1.1') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))", True),
    ("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.0.0.0/8').containsCIDR(cidr('0.0.0.0/0'))", True),
    ("string(cidr('10.1.2.3/8').masked())", "10.0.0.0/8"),
    ("cidr('::1/128').ip() == ip('::1') && cidr('::1/128').prefixLength() == 128", True),
    ("cidr('10.1.2.3/8') == cidr('10.0.0.0/8')", False),
    ("isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/33')", True),
    ("type(ip('::1')) == net.IP && type(cidr('::/0')) == net.CIDR", True),
]
URLS = [
    ("url('https://u:p@h.example:80/a%20b/%2Fc?x=1&y=2&x=3#f').getEscapedPath()", "/a%20b/%2Fc"),
    ("url('https://h.example:80/?x=1&y=2&x=3').getQuery()", {"x": ["1", "3"], "y": ["2"]}),
    ("url('https://[::1]:80/').getHost() + ' ' + url('https://[::1]:80/').getHostname()", "[::1]:80 ::1"),
    ("url('HTTPS://h:80/').getScheme() + url('https://h:80/').getPort()", "https80"),
    ("url('/path').getHost()", ""),
    ("url('http://a/ä b').getEscapedPath()", "/%C3%A4%20b"),
    ("isURL('https://a/b') && isURL('/a') && !isURL('a') && !isURL('../a') && !isURL('https://a:b/')", True),
]
LISTS = [
    ("[1, 2, 2].isSorted() && !['b', 'a'].isSorted() && [].isSorted()", True),
    ("[1, 2, 3].sum() == 6 && [1.5, 1.5].sum() == 3.0 && [].sum() == 0", True),
    ("[1u, 2u].sum()", Uint(3)),
    ("[duration('1s'), duration('2s')].sum() == duration('3s')", True),
    ("[3, 1, 2].min() + [3, 1, 2].max()", 4),
    ("['a', 'b', 'a'].indexOf('a') * 10 + ['a', 'b', 'a'].lastIndexOf('a')", 2),
    ("[1].indexOf(2)", -1),
    ("sets.contains([1, 2], [2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1, 2], [2, 1])", True),
    ("sets.contains([1], [1, 2])", False),
]
REGEX = [
    ("'abc 123 45'.find('[0-9]+')", "123"),
    ("'abc'.find('[0-9]+')", ""),
    ("'123 abc 456'.findAll('[0-9]+')", ["123", "456"]),
    ("'123 abc 456'.findAll('[0-9]+', 1)", ["123"]),
    ("'abc'.findAll('x*')", ["", "", "", ""]),
    ("'σ'.matches('\\\\p{Greek}') && 'a'.matches('[[:alpha:]]')", True),
]
FORMATS = [
    ("format.dns1123Label().validate('my-label')", NONE),
    ("format.dns1123Subdomain().validate('a.b-c').hasValue()", False),
    ("format.dns1035Label().validate('1a').hasValue()", True),
    ("format.dns1123LabelPrefix().validate('a-').hasValue()", False),
    ("format.qualifiedName().validate('example.com/a_B').hasValue()", False),
    ("format.qualifiedName().validate('/a').value()", ["prefix part must be non-empty"]),
    ("format.labelValue().validate('').hasValue()", False),
    ("format.uri().validate('a b').value()", ['parse "a b": invalid URI for request']),
    ("format.uuid().validate('x').value()", ["does not match the UUID format"]),
    ("format.byte().validate('aGk=').hasValue() || format.byte().validate('!').hasValue()", True),
    ("format.date().validate('2021-02-29').value()", ["invalid date"]),
    ("format.datetime().validate('2020-02-29T00:00:00Z').hasValue()", False),
    ("format.named('dns1123Label').value().validate('Aa').hasValue()", True),
    ("format.named('unknown')", NONE),
]
STRINGS = [
    ("'héllo'.charAt(1) + 'a'.charAt(1)", "é"),
    ("'hello'.indexOf('l') + 'hello'.indexOf('l', 3) + 'hello'.indexOf('z')", 4),
    ("'abcabc'.lastIndexOf('c') * 10 + 'abcabc'.lastIndexOf('c', 4)", 52),
    ("'TacoÄ'.lowerAscii() + 'tacoä'.upperAscii()", "tacoÄTACOä"),
    ("'hello hello'.replace('he', 'we', 1) + 'ab'.replace('', '-')", "wello hello-a-b-"),
    ("'a b c'.split(' ', 2) + 'abc'.split('') + 'a'.split('x', 0)", ["a", "b c", "a", "b", "c"]),
    ("'tacocat'.substring(4) + 'tacocat'.substring(0, 4)", "cattaco"),
    ("'  \\t\\n a \\u00a0\\u2003'.trim()", "a"),
    ("['a', 'b'].join('-') + ['c', 'd'].join()", "a-bcd"),
    ("strings.quote('a\"b\\n')", '"a\\"b\\n"'),
    ("'%s %d %.2f %x %X %b %o %%'.format(['a', 1, 12345.678, 255, 'hi', 5, 8])", "a 1 12,345.68 ff 6869 101 10 %"),
    ("'%s'.format([[1, 'a', {'b': 1.0}]])", '[1, "a", {"b":1.000000}]'),
    ("'%s %s %s'.format([null, duration('1h30m'), type(1)])", "null 5400s int"),
    ("'%e'.format([1234.5678])", "1.234568×10⁰³"),
]
ALL = QUANTITIES + VERSIONS + ADDRESSES + URLS + LISTS + REGEX + FORMATS + STRINGS


@pytest.mark.parametrize(("expression", "expected"), ALL, ids=[case[0][:60] for case in ALL])
def test_a_function_answers(expression, expected):
    assert value(expression) == expected


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("quantity('1.5').asInteger()", "cannot convert value to integer"),
        ("quantity('10Mm') == quantity('1')", "unable to parse quantity's suffix"),
        ("semver('1.2')", "No Major.Minor.Patch elements found"),
        ("semver('01.2.3')", 'Major number must not contain leading zeroes "01"'),
        ("semver('1.2.3-a_b')", 'Invalid character(s) found in prerelease "a_b"'),
        ("semver('1.2-rc', true)", "short version cannot contain PreRelease/Build meta data"),
        (
            "ip('1.2.3')",
            'IP Address "1.2.3" parse error during conversion from string: ParseAddr("1.2.3"): IPv4 address too short',
        ),
        ("ip('fe80::1%eth0')", 'IP address "fe80::1%eth0" with zone value is not allowed'),
        ("url('::')", 'URL parse error during conversion from string: parse "::": missing protocol scheme'),
        ("[].max()", "max called on empty list"),
        ("'abc'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
        ("'abc'.charAt(4)", "index out of range: 4"),
    ],
)
def test_a_function_says_why_it_has_no_answer(expression, why):
    with pytest.raises(EvaluationError) as error:
        value(expression)

    assert str(error.value) == why


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("'%z'.format([1])", 'could not parse formatting clause: unrecognized formatting clause "z"'),
        ("'%s %s'.format(['a'])", "index 1 out of range"),
        ("'%d'.format([s])", "error during formatting: decimal clause can only be used on integers, was given string"),
        ("'abc'.reverse()", "undeclared reference to 'reverse'"),
        ("quantity('1').sign()", "found no matching overload for 'sign' applied to 'kubernetes.Quantity.()'"),
    ],
)
def test_what_kubernetes_does_not_have_is_refused(expression, why):
    with pytest.raises(CompileError) as error:
        CEL.compile(expression)

    assert why in str(error.value)


def test_a_later_version_of_the_functions_of_text_can_reverse():
    later = Environment({}, libraries=(standard.LIBRARY, strings(3)))

    assert later.compile("'abc'.reverse()").evaluate({}) == "cba"


SUFFIXES = {"": 1, "m": Fraction(1, 1000), "u": Fraction(1, 10**6), "k": 1000, "M": 10**6, "Ki": 2**10, "Gi": 2**30}


@given(*[st.tuples(st.integers(-(10**9), 10**9), st.integers(0, 999), st.sampled_from(sorted(SUFFIXES)))] * 2)
def test_quantities_compare_as_fractions_do(one, two):
    def text(parts):
        return f"{'-' if parts[0] < 0 else ''}{abs(parts[0])}.{parts[1]:03d}{parts[2]}"

    def exact(parts):
        magnitude = (abs(parts[0]) + Fraction(parts[1], 1000)) * SUFFIXES[parts[2]]
        nano = Decimal(magnitude.numerator) * 10**9 / Decimal(magnitude.denominator)
        return (-1 if parts[0] < 0 else 1) * int(nano.to_integral_value(ROUND_UP))

    assert quantity(text(one)).nanos == exact(one)
    assert quantity(text(one)).compare(quantity(text(two))) == (exact(one) > exact(two)) - (exact(one) < exact(two))


PARTS = st.lists(st.one_of(st.integers(0, 30).map(str), st.text("abz-", min_size=1, max_size=3)), max_size=3)


@given(st.tuples(*[st.integers(0, 20)] * 3, PARTS), st.tuples(*[st.integers(0, 20)] * 3, PARTS))
def test_versions_are_ordered_by_semver(one, two):
    def made(parts):
        return semver(".".join(map(str, parts[:3])) + ("-" + ".".join(parts[3]) if parts[3] else ""))

    found = made(one).compare(made(two))

    assert found == -made(two).compare(made(one))
    if one[:3] != two[:3]:
        assert found == (1 if one[:3] > two[:3] else -1)
    elif not one[3] or not two[3]:
        assert found == bool(two[3]) - bool(one[3])
    assert (found == 0) == (made(one) == made(two))


def test_an_optional_value_compares_by_what_is_in_it():
    assert value("optional.of(1) == optional.of(1) && optional.of(1) != optional.none()") is True
    assert value("optional.of(n)", n=3) == Optional(3)
