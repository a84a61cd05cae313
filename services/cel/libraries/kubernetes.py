"""Functions of Kubernetes: quantities, versions, addresses, URLs, lists, regular expressions and formats.

Source: kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/cel/library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from services.cel import addresses, formats, quantities, regex, types, urls, versions
from services.cel.addresses import CIDR, CIDR_TYPE, IP, IP_TYPE
from services.cel.declarations import Library, Overload, of, on
from services.cel.formats import FORMAT, Format
from services.cel.libraries.standard import LIBRARY as STANDARD
from services.cel.quantities import QUANTITY, Quantity
from services.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
)
from services.cel.urls import URL, Url
from services.cel.values import NONE, Duration, EvaluationError, Optional, Uint, equal, type_name
from services.cel.versions import SEMVER, Semver

_A: Final = types.parameter("A")
_COMPARABLE: Final = (
    ("int", INT),
    ("uint", UINT),
    ("double", DOUBLE),
    ("bool", BOOL),
    ("duration", DURATION),
    ("timestamp", TIMESTAMP),
    ("string", STRING),
    ("bytes", BYTES),
)
_ZEROS: Final[dict[str, Any]] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}


def _succeeds(function: Callable[[str], Any]) -> Callable[[str], bool]:
    def call(text: str) -> bool:
        try:
            function(text)
        except EvaluationError:
            return False
        return True

    return call


QUANTITIES: Final = Library(
    {
        "quantity": (of("string_to_quantity", (STRING,), QUANTITY, quantities.quantity),),
        "isQuantity": (of("is_quantity_string", (STRING,), BOOL, _succeeds(quantities.quantity)),),
        "sign": (of("quantity_sign", (QUANTITY,), INT, Quantity.sign),),
        "isGreaterThan": (on("quantity_is_greater_than", (QUANTITY, QUANTITY), BOOL, lambda a, b: a.nanos > b.nanos),),
        "isLessThan": (on("quantity_is_less_than", (QUANTITY, QUANTITY), BOOL, lambda a, b: a.nanos < b.nanos),),
        "compareTo": (on("quantity_compare_to", (QUANTITY, QUANTITY), INT, Quantity.compare),),
        "asApproximateFloat": (on("quantity_get_float", (QUANTITY,), DOUBLE, Quantity.as_float),),
        "asInteger": (on("quantity_get_int", (QUANTITY,), INT, Quantity.as_integer),),
        "isInteger": (on("quantity_is_integer", (QUANTITY,), BOOL, Quantity.is_integer),),
        "add": (
            on("quantity_add", (QUANTITY, QUANTITY), QUANTITY, Quantity.plus),
            on("quantity_add_int", (QUANTITY, INT), QUANTITY, lambda a, b: a.plus(Quantity(b * 10**9))),
        ),
        "sub": (
            on("quantity_sub", (QUANTITY, QUANTITY), QUANTITY, Quantity.minus),
            on("quantity_sub_int", (QUANTITY, INT), QUANTITY, lambda a, b: a.minus(Quantity(b * 10**9))),
        ),
    }
)


def _semver(text: str, normalize: bool = False) -> Semver:
    return versions.semver(versions.normalize(text) if normalize else text)


def _is_semver(text: str, normalize: bool = False) -> bool:
    return _succeeds(lambda each: _semver(each, normalize))(text)


def _to_signed(value: int) -> int:
    """Return the number as Go has it when it casts to 64 bits with a sign."""
    return value - 2**64 if value >= 2**63 else value


VERSIONS: Final = Library(
    {
        "semver": (
            of("string_to_semver", (STRING,), SEMVER, _semver),
            of("string_bool_to_semver", (STRING, BOOL), SEMVER, _semver),
        ),
        "isSemver": (
            of("is_semver_string", (STRING,), BOOL, _is_semver),
            of("is_semver_string_bool", (STRING, BOOL), BOOL, _is_semver),
        ),
        "isGreaterThan": (on("semver_is_greater_than", (SEMVER, SEMVER), BOOL, lambda a, b: a.compare(b) > 0),),
        "isLessThan": (on("semver_is_less_than", (SEMVER, SEMVER), BOOL, lambda a, b: a.compare(b) < 0),),
        "compareTo": (on("semver_compare_to", (SEMVER, SEMVER), INT, Semver.compare),),
        "major": (on("semver_major", (SEMVER,), INT, lambda v: _to_signed(v.major)),),
        "minor": (on("semver_minor", (SEMVER,), INT, lambda v: _to_signed(v.minor)),),
        "patch": (on("semver_patch", (SEMVER,), INT, lambda v: _to_signed(v.patch)),),
    }
)


def _family(value: IP) -> int:
    return value.address.version


def _is_multicast(value: IP) -> bool:
    if value.address.version == 4:
        return int(value.address) >> 8 == 0xE00000
    return int(value.address) >> 112 & 0xFF0F == 0xFF02


def _is_global(value: IP) -> bool:
    address = value.address
    broadcast = address.version == 4 and int(address) == 2**32 - 1
    return not (
        broadcast or address.is_unspecified or address.is_loopback or address.is_multicast or _is_link_local(value)
    )


def _is_link_local(value: IP) -> bool:
    if value.address.version == 4:
        return int(value.address) >> 16 == 0xA9FE
    return int(value.address) >> 118 == 0xFE80 >> 6


def _contains_ip(block: CIDR, text: str) -> bool:
    try:
        return block.contains(addresses.ip(text).address)
    except EvaluationError:
        raise EvaluationError("no such overload") from None


def _contains_cidr(block: CIDR, text: str) -> bool:
    return block.contains_network(addresses.cidr(text))


ADDRESSES: Final = Library(
    {
        "ip": (
            of("string_to_ip", (STRING,), IP_TYPE, addresses.ip),
            on("cidr_ip", (CIDR_TYPE,), IP_TYPE, lambda v: IP(v.address)),
        ),
        "family": (on("ip_family", (IP_TYPE,), INT, _family),),
        "ip.isCanonical": (of("ip_is_canonical", (STRING,), BOOL, lambda v: str(addresses.ip(v).address) == v),),
        "isUnspecified": (on("ip_is_unspecified", (IP_TYPE,), BOOL, lambda v: v.address.is_unspecified),),
        "isLoopback": (on("ip_is_loopback", (IP_TYPE,), BOOL, lambda v: v.address.is_loopback),),
        "isLinkLocalMulticast": (on("ip_is_link_local_multicast", (IP_TYPE,), BOOL, _is_multicast),),
        "isLinkLocalUnicast": (on("ip_is_link_local_unicast", (IP_TYPE,), BOOL, _is_link_local),),
        "isGlobalUnicast": (on("ip_is_global_unicast", (IP_TYPE,), BOOL, _is_global),),
        "isIP": (of("is_ip", (STRING,), BOOL, _succeeds(addresses.ip)),),
        "string": (
            of("ip_to_string", (IP_TYPE,), STRING, lambda v: str(v.address)),
            of("cidr_to_string", (CIDR_TYPE,), STRING, str),
        ),
        "cidr": (of("string_to_cidr", (STRING,), CIDR_TYPE, addresses.cidr),),
        "containsIP": (
            on("cidr_contains_ip_string", (CIDR_TYPE, STRING), BOOL, _contains_ip),
            on("cidr_contains_ip_ip", (CIDR_TYPE, IP_TYPE), BOOL, lambda a, b: a.contains(b.address)),
        ),
        "containsCIDR": (
            on("cidr_contains_cidr_string", (CIDR_TYPE, STRING), BOOL, _contains_cidr),
            on("cidr_contains_cidr", (CIDR_TYPE, CIDR_TYPE), BOOL, CIDR.contains_network),
        ),
        "prefixLength": (on("cidr_prefix_length", (CIDR_TYPE,), INT, lambda v: v.bits),),
        "masked": (on("cidr_masked", (CIDR_TYPE,), CIDR_TYPE, CIDR.masked),),
        "isCIDR": (of("is_cidr", (STRING,), BOOL, _succeeds(addresses.cidr)),),
    },
    types={"net.IP": IP_TYPE, "net.CIDR": CIDR_TYPE},
)
URLS: Final = Library(
    {
        "url": (of("string_to_url", (STRING,), URL, urls.url),),
        "isURL": (of("is_url_string", (STRING,), BOOL, _succeeds(urls.url)),),
        "getScheme": (on("url_get_scheme", (URL,), STRING, lambda v: v.scheme),),
        "getHost": (on("url_get_host", (URL,), STRING, lambda v: v.host),),
        "getHostname": (on("url_get_hostname", (URL,), STRING, Url.hostname),),
        "getPort": (on("url_get_port", (URL,), STRING, Url.port),),
        "getEscapedPath": (on("url_get_escaped_path", (URL,), STRING, Url.escaped_path),),
        "getQuery": (on("url_get_query", (URL,), map_of(STRING, list_of(STRING)), Url.query_values),),
    }
)


_RANKED: Final = frozenset(what.name for _, what in _COMPARABLE)
_NUMBERS: Final = frozenset((int, Uint, float))


def _compare(one: Any, two: Any) -> int:
    """Return 1 where the first comes after the second, -1 where it comes before, and 0 else.

    Only the first item of a list decides which overload it is, so that others may be of other types. Upstream ignores
    that these have no order, nor NaN any. Raises: EvaluationError for what is never compared, such as null.
    """
    if type_name(two) not in _RANKED:
        raise EvaluationError("no such overload")
    if type(one) in _NUMBERS and type(two) in _NUMBERS:
        if float in (type(one), type(two)):
            one, two = float(one), float(two)
    elif type(one) is not type(two):
        return 0
    return int(one > two) - int(one < two)


def _is_sorted(items: Any) -> bool:
    return all(_compare(items[place - 1], items[place]) != 1 for place in range(1, len(items)))


def _sum(zero: Any) -> Callable[[Any], Any]:
    def call(items: Any) -> Any:
        total = zero
        for addend in items:
            plus = _PLUS.get((type_name(total), type_name(addend)))
            if plus is None:
                raise EvaluationError("no such overload")
            total = plus(total, addend)
        return total

    return call


_PLUS: Final = {tuple(param.name for param in each.params): each.impl for each in STANDARD.functions["_+_"]}


def _extreme(name: str, makes_way: int) -> Callable[[Any], Any]:
    """Return the function that keeps an item until it compares so with a later one."""

    def call(items: Any) -> Any:
        if not items:
            raise EvaluationError(f"{name} called on empty list")
        extreme = items[0]
        for candidate in items[1:]:
            if _compare(extreme, candidate) == makes_way:
                extreme = candidate
        return extreme

    return call


def _index(items: Any, wanted: Any) -> int:
    return next((place for place, each in enumerate(items) if equal(each, wanted)), -1)


def _last_index(items: Any, wanted: Any) -> int:
    return next((place for place in range(len(items) - 1, -1, -1) if equal(items[place], wanted)), -1)


def _each(make: Callable[[str, Type], Overload], kinds: tuple[tuple[str, Type], ...]) -> tuple[Overload, ...]:
    return tuple(make(name, what) for name, what in kinds)


LISTS: Final = Library(
    {
        "isSorted": _each(
            lambda name, what: on(f"list_{name}_is_sorted_bool", (list_of(what),), BOOL, _is_sorted), _COMPARABLE
        ),
        "sum": _each(
            lambda name, what: on(f"list_{name}_sum_{name}", (list_of(what),), what, _sum(_ZEROS[name])),
            tuple(each for each in _COMPARABLE if each[0] in _ZEROS),
        ),
        "max": _each(
            lambda name, what: on(f"list_{name}_max_{name}", (list_of(what),), what, _extreme("max", -1)), _COMPARABLE
        ),
        "min": _each(
            lambda name, what: on(f"list_{name}_min_{name}", (list_of(what),), what, _extreme("min", 1)), _COMPARABLE
        ),
        "indexOf": (on("list_a_index_of_int", (list_of(_A), _A), INT, _index),),
        "lastIndexOf": (on("list_a_last_index_of_int", (list_of(_A), _A), INT, _last_index),),
    }
)
REGEX: Final = Library(
    {
        "find": (on("string_find_string", (STRING, STRING), STRING, regex.find),),
        "findAll": (
            on("string_find_all_string", (STRING, STRING), list_of(STRING), regex.find_all),
            on("string_find_all_string_int", (STRING, STRING, INT), list_of(STRING), regex.find_all),
        ),
    }
)


def _validate(known: Format, text: str) -> Optional:
    found = known.problems(text)
    return Optional(found) if found else NONE


def _format_by_name(name: str) -> Optional:
    return Optional(formats.FORMATS[name]) if name in formats.FORMATS else NONE


def _constant(value: Format) -> Callable[[], Format]:
    return lambda: value


FORMATS: Final = Library(
    {
        "validate": (on("format-validate", (FORMAT, STRING), optional_of(list_of(STRING)), _validate),),
        "format.named": (of("format-named", (STRING,), optional_of(FORMAT), _format_by_name),),
        **{
            f"format.{name}": (of(f"format-{name}", (), FORMAT, _constant(known)),)
            for name, known in formats.FORMATS.items()
        },
    }
)
_INCLUDED_MAX: Final = 48


def _includes(value: Any, wanted: Any) -> bool:
    if isinstance(value, list | tuple):
        if len(value) > _INCLUDED_MAX:
            raise EvaluationError(f"'includes' function cannot be applied to lists longer than {_INCLUDED_MAX} values")
        return any(equal(each, wanted) for each in value)
    return equal(value, wanted)


INCLUDES: Final = Library({"includes": (on("dyn_includes_dyn", (DYN, DYN), BOOL, _includes),)})
