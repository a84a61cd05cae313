"""What reports a mistake can be written, whatever the mistake is."""

import json
import math

import msgspec
import pytest

from services.api.errors import BadRequest, invalid
from services.api.texts import encodable, json_of

LONE = "a\ud800b"


class Unprintable:
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


class Pair(msgspec.Struct):
    left: str
    right: int


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def test_a_lone_surrogate_is_written_as_its_escape():
    assert r"a\ud800b" == encodable(LONE)


def test_other_texts_stay_as_they_are():
    assert ["", "abc", "日本 🦆"] == [encodable(text) for text in ("", "abc", "日本 🦆")]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"a": LONE, LONE: [LONE]}, {"a": r"a\ud800b", r"a\ud800b": [r"a\ud800b"]}),
        ({"a": 1 << 70, "b": LONE}, {"a": str(1 << 70), "b": r"a\ud800b"}),
        ({"a": Unprintable()}, {"a": "<Unprintable>"}),
        ({1: LONE, None: 2}, {"1": r"a\ud800b", "None": 2}),
        (Pair(LONE, 1), {"left": r"a\ud800b", "right": 1}),
        ((LONE, math.inf, True, {LONE}), [r"a\ud800b", None, True, [r"a\ud800b"]]),
    ],
)
def test_a_value_that_json_cannot_say_is_written_as_its_text(value, written):
    assert written == json.loads(json_of(value))


def test_a_value_that_is_too_deep_for_the_encoder_is_written():
    assert json_of(nested(100_000)).startswith(b"[[")


def test_the_status_of_a_refusal_can_be_encoded_whatever_it_is_about():
    error = invalid("ConfigMap", LONE, [(f"data[{LONE}]", "FieldValueInvalid", LONE)])

    status = msgspec.json.decode(msgspec.json.encode(error.status()))

    assert r"a\ud800b" == status["details"]["name"] == status["details"]["causes"][0]["message"]
    assert r'ConfigMap "a\ud800b" is invalid: data[a\ud800b]: a\ud800b' == status["message"]
    assert msgspec.json.encode(BadRequest(LONE, reason=LONE).status())
