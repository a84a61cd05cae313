"""What an expression yields for given variables, by the rules of CEL. Pure.

Values are text, whole numbers, booleans, lists, maps, `Quantity` and `Version`. An error in one operand of `&&` and
`||` counts only when the other operand does not decide.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, Final

from services.api.cel.parser import Call, Index, ListOf, Literal, Name, Node, ParseError, Select
from services.api.quantity import milli

Variables = Mapping[str, Any]
Program = Callable[[Variables], Any]


class EvaluationError(ValueError):
    """The expression has no value for these variables."""


@total_ordering
@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount, exact to thousandths."""

    milli: int

    def __lt__(self, other: Quantity) -> bool:
        return self.milli < other.milli


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """A version by semver 2.0.0; what follows a `+` does not count."""

    numbers: tuple[int, int, int]
    pre: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Version:
        """Return the version. Raises: ValueError."""
        core, _, pre = text.partition("+")[0].partition("-")
        major, minor, patch = core.split(".")
        return cls((int(major), int(minor), int(patch)), tuple(pre.split(".")) if pre else ())

    def __lt__(self, other: Version) -> bool:
        return bool(self._order() < other._order())

    def _order(self) -> Any:
        # Without a pre-release comes after any with one; numbers come before words.
        parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre]
        return self.numbers, not self.pre, parts


def type_name(value: Any) -> str:
    """Return what CEL calls the value's type."""
    for kind, name in ((bool, "bool"), (int, "int"), (str, "string"), (list, "list"), (Quantity, "quantity"),
                       (Version, "semver")):  # fmt: skip
        if isinstance(value, kind):
            return name
    return "map" if isinstance(value, Mapping) else "object"


def _no_overload(name: str, *values: Any) -> EvaluationError:
    return EvaluationError(f"no such overload: {name}({', '.join(type_name(value) for value in values)})")


def _quantity(text: Any) -> Quantity:
    if not isinstance(text, str):
        raise _no_overload("quantity", text)
    try:
        return Quantity(milli(text))
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def _semver(text: Any) -> Version:
    if not isinstance(text, str):
        raise _no_overload("semver", text)
    try:
        return Version.parse(text)
    except ValueError:
        raise EvaluationError(f"semver({text!r}): not a version by semver 2.0.0") from None


def _size(value: Any) -> int:
    if isinstance(value, str | list | Mapping):
        return len(value)
    raise _no_overload("size", value)


def _alike(name: str, test: Callable[[Any, Any], Any], *kinds: type) -> Callable[[Any, Any], Any]:
    """Return the function of two values of one type, which is among these kinds."""

    def call(of: Any, other: Any) -> Any:
        if type(of) is type(other) and isinstance(of, kinds):
            return test(of, other)
        raise _no_overload(name, of, other)

    return call


FUNCTIONS: Final[Mapping[tuple[str, int], Callable[..., Any]]] = {
    ("quantity", 1): _quantity, ("semver", 1): _semver, ("size", 1): _size,
}  # fmt: skip
MEMBERS: Final[Mapping[tuple[str, int], Callable[..., Any]]] = {
    ("size", 0): _size,
    ("startsWith", 1): _alike("startsWith", str.startswith, str),
    ("endsWith", 1): _alike("endsWith", str.endswith, str),
    ("contains", 1): _alike("contains", operator.contains, str),
    ("compareTo", 1): _alike("compareTo", lambda a, b: (a > b) - (a < b), Quantity, Version),
    ("isGreaterThan", 1): _alike("isGreaterThan", operator.gt, Quantity, Version),
    ("isLessThan", 1): _alike("isLessThan", operator.lt, Quantity, Version),
}
_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    sign: _alike(f"_{sign}_", test, str, int)
    for sign, test in (("<", operator.lt), ("<=", operator.le), (">", operator.gt), (">=", operator.ge))
}


def compiled(node: Node, variables: Mapping[str, tuple[str, ...]]) -> Program:
    """Return the expression as a function. `variables`: the fields of each.

    Raises: ParseError for a variable, field or function that does not exist here.
    """
    match node:
        case Literal(value):
            return lambda _: value
        case ListOf(items):
            programs = [compiled(each, variables) for each in items]
            return lambda now: [program(now) for program in programs]
        case Name(name):
            if name not in variables:
                raise ParseError(f"undeclared reference to '{name}'")
            return lambda now: now[name]
        case Select(of, field):
            if isinstance(of, Name) and of.name in variables and field not in variables[of.name]:
                raise ParseError(f"undefined field '{field}'")
            inner = compiled(of, variables)
            return lambda now: _member(inner(now), field)
        case Index(of, key):
            inner, at = compiled(of, variables), compiled(key, variables)
            return lambda now: _member(inner(now), at(now))
        case Call():
            return _call(node, variables)


def _call(node: Call, variables: Mapping[str, tuple[str, ...]]) -> Program:
    if node.name == "has" and node.of is None and len(node.args) == 1:
        return _has(node.args[0], variables)
    args = [compiled(each, variables) for each in node.args]
    match node.name, args:
        case "?:", [test, yes, no]:
            return lambda now: yes(now) if _flag("_?_:_", test(now)) else no(now)
        case "||", [left, right]:
            return lambda now: _decide(left, right, now, True)
        case "&&", [left, right]:
            return lambda now: _decide(left, right, now, False)
        case "!", [inner]:
            return lambda now: not _flag("!_", inner(now))
        case "==", [left, right]:
            return lambda now: _is_equal(left(now), right(now))
        case "!=", [left, right]:
            return lambda now: not _is_equal(left(now), right(now))
        case "in", [left, right]:
            return lambda now: _is_in(left(now), right(now))
        case (("<" | "<=" | ">" | ">=" as sign), [left, right]):
            return lambda now: _ORDERS[sign](left(now), right(now))
    table, of = (FUNCTIONS, None) if node.of is None else (MEMBERS, compiled(node.of, variables))
    function = table.get((node.name, len(args)))
    if function is None:
        raise ParseError(f"function '{node.name}' with {len(args)} argument(s) is not supported by this server")
    if of is None:
        return lambda now: function(*[each(now) for each in args])
    return lambda now: function(of(now), *[each(now) for each in args])


def _has(node: Node, variables: Mapping[str, tuple[str, ...]]) -> Program:
    if not isinstance(node, Select):
        raise ParseError("invalid argument to has() macro")
    of, field = compiled(node.of, variables), node.field

    def call(now: Variables) -> bool:
        holder = of(now)
        if not isinstance(holder, Mapping):
            raise EvaluationError("invalid type for field selection.")
        return field in holder

    return call


def _member(holder: Any, key: Any) -> Any:
    if isinstance(holder, Mapping) and isinstance(key, str):
        try:
            return holder[key]
        except KeyError:
            raise EvaluationError(f"no such key: {key}") from None
    if isinstance(holder, list) and type(key) is int:
        if 0 <= key < len(holder):
            return holder[key]
        raise EvaluationError(f"index out of bounds: {key}")
    raise _no_overload("_[_]", holder, key)


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _no_overload(name, value)


def _decide(left: Program, right: Program, now: Variables, deciding: bool) -> bool:
    """Return what `||` (deciding: true) or `&&` (deciding: false) says; an error counts only if nothing decides."""
    name = "_||_" if deciding else "_&&_"
    try:
        if _flag(name, left(now)) is deciding:
            return deciding
    except EvaluationError as error:
        if _flag(name, right(now)) is deciding:
            return deciding
        raise error from None
    return _flag(name, right(now))


def _is_equal(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_equal, left, right))
    return type_name(left) == type_name(right) and bool(left == right)


def _is_in(value: Any, holder: Any) -> bool:
    if isinstance(holder, list):
        return any(_is_equal(value, each) for each in holder)
    if isinstance(holder, Mapping):
        return isinstance(value, str) and value in holder
    raise _no_overload("@in", value, holder)
