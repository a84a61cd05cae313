"""Strict JSON (guarantees V1, V2)."""

import pytest

from apiserver_fake.decode import decode
from services.api.errors import BadRequest, RequestEntityTooLarge


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b'{"a":1}x', b"NaN", b"[Infinity]", b'"\\ud800abcdefgh"', b'"\xff"', b"01", b"1e400",
        b'{"a":1,"a":2}', b'{"a": {"b": 1, "b": 1}}', b"[" * 65 + b"]" * 65, b"[" * 100_000 + b"]" * 100_000,
        b"18446744073709551616", b"-9223372036854775809", b"[1" + b"0" * 80 + b"]", b"[0." + b"1" * 70 + b"]",
    ],
    ids=lambda body: body[:24].decode("latin-1"),
)  # fmt: skip
def test_what_is_not_strict_json_is_a_bad_request(body):
    with pytest.raises(BadRequest, match="strict JSON"):
        decode(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1}', b' {"a" : [1, 2.5, true, null, "\\u00e9\\ud83d\\ude00"]} ', b'{"a:b":"c:\\"d\\":e","f":{}}',
        b"[" * 64 + b"]" * 64, b"-9223372036854775808", b'{"long string":"' + b"1" * 100 + b'"}',
    ],
    ids=lambda body: body[:24].decode("latin-1"),
)  # fmt: skip
def test_strict_json_is_taken_however_it_is_spaced(body):
    decode(body)


def test_a_body_above_three_mebibytes_is_too_large():
    with pytest.raises(RequestEntityTooLarge):
        decode(b'"' + b"x" * (3 << 20) + b'"')
