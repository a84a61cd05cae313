"""Formats in schemas, of strings and of numbers: those that are checked, and those that the API server
ignores. Pure.

A format that is unknown for its type is ignored when an object is written, and warned of when its definition is
written.

Source: kubernetes/kubernetes staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/validation/formats.go;
kubernetes/kube-openapi pkg/validation/strfmt, pkg/validation/validate/values.go.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Final

from services.cel import regex, times, urls
from services.cel.values import EvaluationError

NUMBERS: Final = {"integer": ("int32", "int64"), "number": ("float", "double")}
"""The formats of numbers, by type."""
_HEX4: Final = "[0-9a-f]{4}"
_HOSTNAME: Final = (
    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}]"
    r"(([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}"
    r"([a-zA-Z0-9\p{S}\p{L}])(-?[a-zA-Z0-9\p{S}\p{L}]){1,62})$"
)
_CARD: Final = (
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|(?:222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}|"
    r"6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11}|"
    r"6[27][0-9]{14}"
)
_BYTE_OF_COLOUR: Final = r"\s*(?:0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"
_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u0080-\U0010ffff-]+"
_DOTTED: Final = rf"{_ATOM}(?:\.{_ATOM})*"
_QUOTED: Final = r'"(?:[^"\\\r\n]|\\.)*"'
_SPEC: Final = rf"(?:{_DOTTED}|{_QUOTED})@(?:{_DOTTED}|\[[^\[\]\\]*\])"
_EMAIL: Final = rf"\s*(?:{_SPEC}|(?:(?:{_QUOTED}|[^\s<>@,;:\\\"\[\]()]+)\s*)*<{_SPEC}>)\s*"
_SCALA: Final = r"\s*(?:\d+\s*[A-Za-zµ]+\s*)+"
_SCALA_UNIT: Final = r"\d+\s*([A-Za-zµ]+)"
_SCALA_UNITS: Final = ("ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk")
_SCALA_STARTS: Final = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")
_TIME: Final = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))"
_NAME: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
Format = Callable[[str], bool]


_compiled = cache(re.compile)
"""Compiled regular expression of a pattern, cached. Compiling at first use keeps the API server's start fast."""


def _matching(pattern: str, flags: int = 0) -> Format:
    return lambda text: _compiled(pattern, flags | re.ASCII).fullmatch(text) is not None


def _readable(read: Callable[[str], object]) -> Format:
    def check(text: str) -> bool:
        try:
            read(text)
        except (EvaluationError, ValueError):
            return False
        return True

    return check


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address, with zeros in front of its decimal numbers too. Raises: ValueError."""
    if "%" in text or not text.isascii():
        raise ValueError(text)
    return ipaddress.ip_address(re.sub(r"(?<![0-9a-fA-F:])0+(?=[0-9]+(\.|$))", "", text) if "." in text else text)


def _network(text: str) -> object:
    before, slash, bits = text.partition("/")
    found = _address(before)
    if not slash or not re.fullmatch("[0-9]+", bits) or int(bits) > found.max_prefixlen:
        raise ValueError(text)
    return found


def _ipv4(text: str) -> bool:
    return "." in text and _readable(_address)(text)


def _ipv6(text: str) -> bool:
    return ":" in text and "%" not in text and _readable(ipaddress.ip_address)(text)


def _mac(text: str) -> bool:
    byte = "[0-9a-fA-F]{2}"
    shapes = (rf"{byte}([:-]){byte}(\1{byte}){{{count - 2}}}" for count in (6, 8, 20))
    dotted = (rf"[0-9a-fA-F]{{4}}(\.[0-9a-fA-F]{{4}}){{{count - 1}}}" for count in (3, 4, 10))
    return any(re.fullmatch(each, text) for each in (*shapes, *dotted))


def _hostname(text: str) -> bool:
    is_short = len(text.encode()) <= 255 and all(len(each.encode()) <= 63 for each in text.split("."))
    return is_short and regex.matches(text, _HOSTNAME)


def _duration(text: str) -> bool:
    if _readable(times.duration)(text):
        return True
    units = [each.lower() for each in _compiled(_SCALA_UNIT).findall(text)] if _compiled(_SCALA).fullmatch(text) else []
    return any(each in _SCALA_UNITS or each.startswith(_SCALA_STARTS) for each in units)


def _date(text: str) -> bool:
    return re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII) is not None and _readable(times.timestamp)(
        f"{text}T00:00:00Z"
    )


def _moment(text: str) -> bool:
    date, _, rest = text.lower().partition("t")
    match = _compiled(_TIME).fullmatch(rest.partition("t")[0])
    return match is not None and _date(date) and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch("[0-9]{9}[0-9X]", digits):
        return False
    values = [10 if each == "X" else int(each) for each in digits]
    return sum(place * value for place, value in enumerate(values, 1)) % 11 == 0


def _isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch("[0-9]{13}", digits):
        return False
    return sum((3 if place % 2 else 1) * int(each) for place, each in enumerate(digits)) % 10 == 0


def _card(text: str) -> bool:
    digits = re.sub("[^0-9]+", "", text)
    if not re.fullmatch(_CARD, digits):
        return False
    doubled = [int(each) * (2 if place % 2 else 1) for place, each in enumerate(reversed(digits))]
    return sum(each - 9 if each > 9 else each for each in doubled) % 10 == 0


FORMATS: Final[Mapping[str, Format]] = {
    "bsonobjectid": _matching("[0-9a-fA-F]{24}"),
    "uri": lambda text: not urls.problem(text),
    "email": lambda text: _compiled(_EMAIL).fullmatch(text) is not None,
    "hostname": _hostname,
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "cidr": _readable(_network),
    "mac": _mac,
    "uuid": _matching(rf"[0-9a-f]{{8}}-?{_HEX4}-?{_HEX4}-?{_HEX4}-?[0-9a-f]{{12}}", re.I),
    "uuid3": _matching(rf"[0-9a-f]{{8}}-?{_HEX4}-?3[0-9a-f]{{3}}-?{_HEX4}-?[0-9a-f]{{12}}", re.I),
    "uuid4": _matching(rf"[0-9a-f]{{8}}-?{_HEX4}-?4[0-9a-f]{{3}}-?[89ab][0-9a-f]{{3}}-?[0-9a-f]{{12}}", re.I),
    "uuid5": _matching(rf"[0-9a-f]{{8}}-?{_HEX4}-?5[0-9a-f]{{3}}-?[89ab][0-9a-f]{{3}}-?[0-9a-f]{{12}}", re.I),
    "isbn": lambda text: _isbn10(text) or _isbn13(text),
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "creditcard": _card,
    "ssn": _matching(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "hexcolor": _matching("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _matching(rf"rgb\({_BYTE_OF_COLOUR},{_BYTE_OF_COLOUR},{_BYTE_OF_COLOUR}\)"),
    "byte": _matching("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "password": lambda text: True,
    "date": _date,
    "duration": _duration,
    "datetime": _moment,
    "k8sshortname": lambda text: len(text) <= 63 and re.fullmatch(_NAME, text) is not None,
    "k8slongname": lambda text: len(text) <= 253 and re.fullmatch(rf"{_NAME}(\.{_NAME})*", text) is not None,
}
"""String formats, by name without dashes."""


def out_of_range(value: float, kind: str, name: str) -> bool:
    """Whether a number is outside its type and format: not an integer of that size, or not representable as
    that float.
    """
    if kind == "integer":
        bits = 31 if name == "int32" else 63
        return value != int(value) or not -(1 << bits) <= value < 1 << bits
    if name != "float":
        return False
    try:
        struct.pack("<f", value)
    except OverflowError:
        return True
    return False


@lru_cache(maxsize=256)
def format_of(name: str) -> Format | None:
    """Return the check of a string format; None if the format is unknown."""
    return FORMATS.get(name.replace("-", ""))


def is_known(name: str, kind: str) -> bool:
    """Whether the format is known for values of that type."""
    return format_of(name) is not None if kind in ("", "string") else name in NUMBERS.get(kind, ())
