"""Types of CEL expressions, for the type checker. Pure.

Source: google/cel-spec doc/langdef.md, "Gradual Type Checking"; google/cel-go checker/types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_SPOKEN: Final = {
    "google.protobuf.Any": "any",
    "google.protobuf.Duration": "duration",
    "google.protobuf.Timestamp": "timestamp",
    "null_type": "null",
}


@dataclass(frozen=True, slots=True)
class Type:
    """A type. `kind`: simple, list, map, type, opaque, object, wrapper or parameter. Types are equal when all parts
    are.
    """

    name: str
    params: tuple[Type, ...] = ()
    kind: str = "simple"

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.params))})" if self.params else self.name

    def display_name(self) -> str:
        """Return the name in type errors: `any` and `duration` without their package."""
        if self.params:
            return f"{self.name}({', '.join(each.display_name() for each in self.params)})"
        return _SPOKEN.get(self.name, self.name)

    @property
    def is_dynamic(self) -> bool:
        """Whether only evaluation shows the actual type: `dyn`, `Any`, and the type of an error."""
        return self.name in _DYNAMIC


_DYNAMIC: Final = frozenset(("dyn", "google.protobuf.Any", "!error!"))

DYN: Final = Type("dyn")
ANY: Final = Type("google.protobuf.Any")
ERROR: Final = Type("!error!")
BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null_type")
DURATION: Final = Type("google.protobuf.Duration")
TIMESTAMP: Final = Type("google.protobuf.Timestamp")
TYPE: Final = Type("type", (), "type")
SCALARS: Final = frozenset((BOOL, INT, UINT, DOUBLE, DURATION, TIMESTAMP))


def list_of(element: Type) -> Type:
    """Return the type of lists of `element`."""
    return Type("list", (element,), "list")


def map_of(key: Type, value: Type) -> Type:
    """Return the type of maps from `key` to `value`."""
    return Type("map", (key, value), "map")


def type_of(what: Type) -> Type:
    """Return the type of the type `what`."""
    return Type("type", (what,), "type")


def opaque(name: str, *params: Type) -> Type:
    """Return a type whose contents only functions can read, such as `kubernetes.Quantity`."""
    return Type(name, params, "opaque")


def optional_of(what: Type) -> Type:
    """Return the type of a value that may be absent."""
    return Type("optional_type", (what,), "opaque")


def wrapper_of(what: Type) -> Type:
    """Return the type of a protobuf wrapper, such as `google.protobuf.Int32Value`: a value, or null."""
    return Type("wrapper", (what,), "wrapper")


def object_of(name: str) -> Type:
    """Return a type with declared fields; the environment has the fields."""
    return Type(name, (), "object")


def parameter(name: str) -> Type:
    """Return a type variable."""
    return Type(name, (), "parameter")


def unwrap_optional(what: Type) -> tuple[Type, bool]:
    """Return the type inside an optional type and True, or the type itself and False."""
    return (what.params[0], True) if what.name == "optional_type" else (what, False)


class Substitution:
    """Bindings of type variables; a failed attempt leaves them unchanged."""

    def __init__(self) -> None:
        self._known: dict[Type, Type] = {}
        self._undo: list[tuple[Type, Type | None]] = []

    def assign(self, *pairs: tuple[Type, Type]) -> bool:
        """Return whether each first type can be used in place of the second; if so, keep the resulting bindings."""
        self._undo.clear()
        for argument_type, wanted in pairs:
            if not self._assignable(argument_type, wanted):
                break
        else:
            return True
        while self._undo:
            variable, before = self._undo.pop()
            if before is None:
                del self._known[variable]
            else:
                self._known[variable] = before
        return False

    def _set(self, variable: Type, what: Type) -> None:
        self._undo.append((variable, self._known.get(variable)))
        self._known[variable] = what

    def apply(self, what: Type, *, final: bool = False) -> Type:
        """Return the type with its variables replaced; `final`: unbound variables become `dyn`."""
        if what.kind == "parameter":
            bound_type = self._known.get(what)
            if bound_type is not None:
                return self.apply(bound_type, final=final)
            return DYN if final else what
        if not what.params:
            return what
        return Type(what.name, tuple(self.apply(each, final=final) for each in what.params), what.kind)

    def _assignable(self, one: Type, two: Type) -> bool:
        if one is two:
            return True
        if two.kind == "parameter":
            valid, has = self._stands_for(one, two)
            if valid or has:
                return valid
        if one.kind == "parameter":
            return self._stands_for(two, one)[0]
        if one.is_dynamic or two.is_dynamic:
            return True
        if "wrapper" in (one.kind, two.kind):
            if NULL in (one, two):
                return True
            plain = [each.params[0] if each.kind == "wrapper" else each for each in (one, two)]
            return plain[0] == plain[1]
        if NULL in (one, two):
            other = two if one == NULL else one
            return other == NULL or other.kind in ("opaque", "object") or other in (DURATION, TIMESTAMP)
        if one.kind == "type":
            return two.kind == "type"
        if one.params or two.params:
            return (one.kind, one.name, len(one.params)) == (two.kind, two.name, len(two.params)) and all(
                map(self._assignable, one.params, two.params)
            )
        return one == two

    def _stands_for(self, one: Type, variable: Type) -> tuple[bool, bool]:
        """Return whether the variable can stand for the type, and whether it stood for something before."""
        if one == variable:
            return True, True
        known_type = self._known.get(variable)
        if known_type is None:
            if self._occurs(variable, one):
                return False, False
            self._set(variable, one)
            return True, False
        if known_type == one:
            return True, True
        if self._assignable(one, known_type):
            general = most_general(one, known_type)
            if not self._occurs(variable, general):
                self._set(variable, general)
            return True, True
        return False, True

    def _occurs(self, variable: Type, within: Type) -> bool:
        if variable == within:
            return True
        if within.kind == "parameter":
            found = self._known.get(within)
            return found is not None and self._occurs(variable, found)
        return any(self._occurs(variable, each) for each in within.params)


def most_general(one: Type, two: Type) -> Type:
    """Return the more general of two compatible types."""
    return one if _less_specific(one, two) else two


def _less_specific(one: Type, two: Type) -> bool:
    if one.is_dynamic or one.kind == "parameter":
        return True
    if two.is_dynamic or two.kind == "parameter" or (one.name, one.kind) != (two.name, two.kind):
        return False
    return one.kind == "type" or all(map(_less_specific, one.params, two.params))
