"""Strict JSON (guarantees V1, V2)."""

import json

import pytest

from apiserver_fake.registry.decode import decode, decode_object
from services.api.errors import BadRequest, RequestEntityTooLarge


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b'{"a":1}x', b"NaN", b"[Infinity]", b'"\\ud800abcdefgh"', b'"\xff"', b"01", b"1e400",
        b'{"a":1,"a":2}', b'{"a": {"b": 1, "b": 1}}', b"[" * 65 + b"]" * 65, b"[" * 100_000 + b"]" * 100_000,
        b"[{\"a\":" * 33 + b"1" + b"}]" * 33, b'{"\\\\":1, "\\\\":2}', b'{"a\\"b":{"c":1},"a\\"b":2}',
        b"[1" + b"0" * 80 + b"]", b"[0." + b"1" * 70 + b"]",
    ],
    ids=lambda body: body[:24].decode("latin-1"),
)  # fmt: skip
def test_what_is_not_strict_json_is_a_bad_request(body):
    with pytest.raises(BadRequest, match=r"strict JSON|^unexpected end|^invalid character"):
        decode(body)


def test_integers_beyond_64_bits_are_fractions_as_in_go():
    found = decode(b'{"a":[9223372036854775807,9223372036854775808],"b":-9223372036854775809}')

    assert found == {"a": [9223372036854775807, 9223372036854775808.0], "b": -9223372036854775809.0}
    assert [type(each) for each in (*found["a"], found["b"])] == [int, float, float]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "unexpected end of JSON input (<empty>)"),
        (b"{", "unexpected end of JSON input ({)"),
        (b'{"a":"', 'unexpected end of JSON input ({"a":")'),
        (b'{"a":1,}', "invalid character '}' looking for beginning of object key string ({\"a\":1,})"),
        (b'{"a" 1}', "invalid character '1' after object key ({\"a\" 1})"),
        (b'{"a":1 "b"}', 'invalid character \'"\' after object key:value pair ({"a":1 "b"})'),
        (b'{"a":[1 2]}', "invalid character '2' after array element ({\"a\":[1 2]})"),
        (b"{} x", "invalid character 'x' after top-level value ({} x)"),
        (b"{'a'}", r"invalid character '\'' looking for beginning of object key string ({'a'})"),
        (b'{"a":"\\x"}', 'invalid character \'x\' in string escape code ({"a":"\\x"})'),
        (b'{"a":' + b"1" * 18 + b"}" * 20, 'after top-level value ({"a":111111111111111111}}}}}}} ...)'),
        (b"a: b", "invalid character 'a' looking for beginning of value (613a2062)"),
        (b"\xed\xa0\x80", "invalid character 'í' looking for beginning of value (eda080)"),
        (b"\xff", "invalid character 'ÿ' looking for beginning of value (ff)"),
        ("日".encode(), "invalid character 'æ' looking for beginning of value (e697a5)"),
        (b"\x80", r"invalid character '\u0080' looking for beginning of value (80)"),
        (b"\x00\x01", r"invalid character '\x00' looking for beginning of value (0001)"),
        (b"\x0b{}", r"invalid character '\v' looking for beginning of value (0b7b7d)"),
        (b"\\", r"invalid character '\\' looking for beginning of value (5c)"),
        (b"\xef\xbb\xbf{}", "invalid character 'ï' looking for beginning of value (efbbbf7b7d)"),
        (b'{"a":1 \xc3\xa9}', "invalid character 'Ã' after object key:value pair ({\"a\":1 é})"),
    ],
)
def test_a_body_that_is_no_json_is_refused_in_upstreams_words(body, said):
    with pytest.raises(BadRequest) as refused:
        decode_object(body, "a ConfigMap")
    start = (
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: "
    )
    assert refused.value.message.startswith(start)
    assert refused.value.message.endswith(said)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
def test_json_in_another_encoding_is_refused(encoding):
    with pytest.raises(BadRequest, match=r"invalid character|strict JSON"):
        decode('{"a":1}'.encode(encoding))


def test_null_is_an_object_without_anything():
    assert decode_object(b"null", "a ConfigMap") == {}


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1}', b' {"a" : [1, 2.5, true, null, "\\u00e9\\ud83d\\ude00"]} ', b'{"a:b":"c:\\"d\\":e","f":{}}',
        b"[" * 64 + b"]" * 64, b"[{\"a\":" * 32 + b"1" + b"}]" * 32, b"[" + b'{"a":[],"b":{}},' * 99 + b"{}]",
        b'{"a\\\\":"}]\\"[{", "b": ":" , "c":"' + b"[" * 99 + b'"}', b"-9223372036854775808", b'{"long string":"' + b"1" * 100 + b'"}',
    ],
    ids=lambda body: body[:24].decode("latin-1"),
)  # fmt: skip
def test_strict_json_is_taken_however_it_is_spaced(body):
    assert decode(body) == json.loads(body)


def test_a_body_above_three_mebibytes_is_too_large():
    with pytest.raises(RequestEntityTooLarge):
        decode(b'"' + b"x" * (3 << 20) + b'"')
