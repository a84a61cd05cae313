"""Words of a line, and the value types of options and arguments. Pure."""

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from services.api.quantity import units

LINE_MAX = 1 << 16
"""Maximum number of characters in a line: the time to split it grows with the square of its longest word."""
NAMES_MAX = 20_000
"""Maximum number of names in one range: as many nodes as `keplab up` starts."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_RANGE = re.compile(r"([a-z][a-z0-9-]*?)(\d+)\.\.([a-z][a-z0-9-]*?)(\d+)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def words_of(text: str) -> list[str]:
    """Return the words of a line, split as by a shell. Raises: ValueError for an open quote and above LINE_MAX."""
    if len(text) > LINE_MAX:
        raise ValueError(f"the line has {len(text):,} characters; want at most {LINE_MAX:,}")
    return shlex.split(text)


def parse_duration(text: str) -> float:
    """Parse `200ms`, `5s`, `2m` or `1h` to seconds. Raises: ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration; want for example 200ms, 5s or 2m")
    return float(match[1]) * _UNIT_S[match[2]]


def parse_offset(text: str) -> float:
    """Parse `+1h`, `-200ms` or `5s` to seconds. Raises: ValueError."""
    return parse_duration(text.lstrip("+-")) * (-1.0 if text.startswith("-") else 1.0)


def parse_names(text: str) -> tuple[str, ...]:
    """Parse the names of `n1`, `n1,n2` or `n1..n40`. Raises: ValueError."""
    names: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None and ".." in part:
            raise ValueError(f"{part!r} is no range; want for example n1..n40")
        if match is None:
            names.append(part)
            continue
        stem, first, stem_again, last = match.groups()
        if stem != stem_again or int(first) > int(last):
            raise ValueError(f"{part!r} is no range; want for example n1..n40")
        if int(last) - int(first) >= NAMES_MAX:
            raise ValueError(f"{part!r} is {int(last) - int(first) + 1} names; want at most {NAMES_MAX}")
        width = len(first) if first.startswith("0") else 0
        names += [f"{stem}{number:0{width}d}" for number in range(int(first), int(last) + 1)]
    return tuple(names)


def parse_pairs(text: str) -> dict[str, str]:
    """Parse `a:b,c:d` to a dict. Raises: ValueError."""
    pairs = {}
    for part in filter(None, text.split(",")):
        key, sign, value = part.partition(":")
        if not sign:
            raise ValueError(f"{part!r}: want key:value")
        pairs[key] = value
    return pairs


def parse_count(text: str) -> int:
    """Parse a whole number of at least 1. Raises: ValueError."""
    if not re.fullmatch(r"[1-9]\d*", text):
        raise ValueError("want a number from 1")
    return int(text)


def parse_integer(text: str) -> int:
    """Parse a whole number. Raises: ValueError."""
    if not re.fullmatch(r"-?\d+", text):
        raise ValueError("want a whole number")
    return int(text)


def parse_share(text: str) -> float:
    """Parse a number above 0 and below 1. Raises: ValueError."""
    share = _number(text)
    if not 0.0 < share < 1.0:
        raise ValueError("want more than 0 and less than 1")
    return share


def parse_chance(text: str) -> float:
    """Parse a probability, 0 to 1. Raises: ValueError."""
    chance = _number(text)
    if not 0.0 <= chance <= 1.0:
        raise ValueError("want 0 to 1")
    return chance


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("want a number")
    return number


def parse_flag(text: str) -> bool:
    """Parse `true` or `false`. Raises: ValueError for anything else."""
    if text not in ("true", "false"):
        raise ValueError("want true or false")
    return text == "true"


def parse_number_or_percent(text: str) -> int | str:
    """Parse `25%` to itself, and `2` to a number. Raises: ValueError."""
    if re.fullmatch(r"\d+%", text):
        return text
    if not re.fullmatch(r"\d+", text):
        raise ValueError("want a number, or a percentage such as 25%")
    return int(text)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)` if a known word is similar, else an empty string."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


@dataclass(frozen=True)
class ValueType:
    """Type of a value. `name`: as in the reference; `values`: all allowed values, if they are few. `read` parses
    a text, and raises ValueError saying what is wanted instead.
    """

    name: str
    read: Callable[[str], Any]
    values: tuple[str, ...] = ()


def parse_quantity(text: str) -> str:
    """Return the text of a Kubernetes quantity. Raises: ValueError."""
    units(text)
    return text


def _quantities(text: str) -> dict[str, str]:
    return {name: parse_quantity(amount) for name, amount in parse_pairs(text).items()}


TEXT: Final = ValueType("TEXT", str)
NAME: Final = ValueType("NAME", str)
DURATION: Final = ValueType("DURATION", parse_duration)
OFFSET: Final = ValueType("OFFSET", parse_offset)
SECONDS: Final = ValueType("SECONDS", parse_integer)
INTEGER: Final = ValueType("INTEGER", parse_integer)
COUNT: Final = ValueType("COUNT", parse_count)
SHARE: Final = ValueType("SHARE", parse_share)
CHANCE: Final = ValueType("CHANCE", parse_chance)
FLAG: Final = ValueType("FLAG", parse_flag, ("true", "false"))
QUANTITY: Final = ValueType("QUANTITY", parse_quantity)
NUMBER_OR_PERCENT: Final = ValueType("NUMBER|PERCENT", parse_number_or_percent)
PAIRS: Final = ValueType("KEY:VALUE,…", parse_pairs)
QUANTITIES: Final = ValueType("RESOURCE:QUANTITY,…", _quantities)
NAMES: Final = ValueType("NAME,…", lambda text: text.split(","))
NODES: Final = ValueType("NODES", parse_names)

MEANINGS: Final[Mapping[str, str]] = {
    "TEXT": "any word; quote it where it has spaces",
    "NAME": "the name of an object",
    "DURATION": "`200ms`, `5s`, `2m`, `1h`",
    "OFFSET": "a duration, or one that is negative: `+1h`, `-200ms`",
    "SECONDS": "a whole number of seconds, without a unit, as the field of the object has it",
    "INTEGER": "a whole number",
    "COUNT": "a whole number from 1",
    "SHARE": "a number above 0 and below 1",
    "CHANCE": "a probability, 0 to 1",
    "FLAG": "`true` or `false`",
    "QUANTITY": "a Kubernetes quantity: `500m`, `2`, `1Gi`",
    "NUMBER|PERCENT": "`2` or `25%`",
    "KEY:VALUE,…": "pairs: `zone:a,tier:front`",
    "RESOURCE:QUANTITY,…": "amounts of resources: `example.com/gpu:2`",
    "NAME,…": "names, with commas between",
    "NODES": "`n1`, `n1,n2` or `n1..n40`",
}


def choice(*values: str) -> ValueType:
    """Return a type that allows only these values."""

    def read(text: str) -> str:
        if text not in values:
            said = ", ".join(values[:-1]) + f" or {values[-1]}" if len(values) > 1 else values[0]
            raise ValueError(f"want {said}{suggestion(text, values)}")
        return text

    return ValueType("|".join(values), read, values)


def as_type(name: str, read: Callable[[str], Any]) -> ValueType:
    """Return a type with its own syntax; `read` raises ValueError."""
    return ValueType(name, read)
