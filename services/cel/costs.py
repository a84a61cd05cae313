"""Costs of expressions: an estimate from the checked tree, and the actual cost of a call. Pure.

Costs are those of Kubernetes, in cel-go's units (about 50 ns each there): the API server refuses expressions
that may cost too much, and cancels an evaluation that has spent too much.

Source: google/cel-go checker/cost.go, interpreter/runtimecost.go; kubernetes/kubernetes
staging/src/k8s.io/apiserver/pkg/cel/library/cost.go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from services.cel import types
from services.cel.checker import Checked
from services.cel.syntax import Call, Fold, Ident, ListOf, Literal, MapOf, Node, ObjectOf, Select
from services.cel.values import size, type_name, utf8

MAX: Final = 2**64 - 1
LIST_CREATED, MAP_CREATED, OBJECT_CREATED = 10, 30, 40
TRAVERSAL, REGEX = 0.1, 0.25
"""Cost per character that is read, and per character of a regular expression."""
INCLUDES_LIST_MAX: Final = 48
_FORMAT_NAME_MAX, _FORMAT_REGEX_MAX = 64, 128
_AUTHORIZATION: Final = ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
_ONE_COMPARISON: Final = frozenset(
    (
        *("kubernetes.Quantity", "kubernetes.Semver", "net.IP", "net.CIDR"),
        *(f"kubernetes.authorization.{each}" for each in _AUTHORIZATION),
    )
)
AUTHORIZED: Final = 350_000
"""Cost of one call of an authorizer; an expression can afford two."""
_COMPARED_AT_ONCE: Final = _ONE_COMPARISON | {"kubernetes.URL", "kubernetes.NamedFormat"}

Charge = int | Callable[[list[Any], Any], int]


@dataclass(frozen=True, slots=True)
class Range:
    """A range from `least` to `most`; both saturate at 2^64 - 1."""

    least: int = 0
    most: int = 0

    def __add__(self, other: Range) -> Range:
        return Range(min(self.least + other.least, MAX), min(self.most + other.most, MAX))

    def __mul__(self, other: Range) -> Range:
        return Range(min(self.least * other.least, MAX), min(self.most * other.most, MAX))

    def __or__(self, other: Range) -> Range:
        return Range(min(self.least, other.least), max(self.most, other.most))

    def times(self, factor: float) -> Range:
        """Return the range times the factor, rounded up."""
        return Range(_times(self.least, factor), _times(self.most, factor))


def _times(amount: int, factor: float) -> int:
    scaled = float(amount) * factor
    return MAX if scaled >= 2.0**64 else math.ceil(scaled)


ONE, UNKNOWN = Range(1, 1), Range(0, MAX)


Sizes = Callable[[tuple[str, ...]], Range | None]
"""Function from a path to the possible size of the value there; None: unknown.

A path is a variable, then fields, `@keys`, `@values`, `@items`.
"""


def estimate(checked: Checked, sizes: Sizes) -> Range:
    """Return the estimated cost of the expression: least and most."""
    return _Estimator(checked, sizes).cost(checked.root)


@dataclass(slots=True)
class _Local:
    path: tuple[str, ...]
    size: Range | None
    entries: _Entries | None


@dataclass(frozen=True, slots=True)
class _Entries:
    """Sizes of a container's keys and values."""

    kind: str
    key: Range
    value: Range


class _Estimator:
    def __init__(self, checked: Checked, sizes: Sizes) -> None:
        self._checked = checked
        self._sizes = sizes
        self._paths: dict[Node, tuple[str, ...]] = {}
        self._locals: dict[str, list[_Local]] = {}
        self._known: dict[Node, Range] = {}
        self._entries: dict[Node, _Entries] = {}
        self._costs: dict[Node, Range] = {}

    def cost(self, node: Node) -> Range:
        found = self._costs.get(node)
        if found is None:
            found = self._costs[node] = self._cost(node)
        return found

    def _cost(self, node: Node) -> Range:
        match node:
            case Ident(name=name):
                local = self._local(name)
                self._paths[node] = local.path if local else (name,)
                return ONE
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListOf(items=items):
                total = Range(LIST_CREATED, LIST_CREATED)
                for item in items:
                    total += self.cost(item)
                self._entries[node] = _Entries("list", ONE, _union([self._size(each) for each in items]))
                return total
            case MapOf(entries=entries):
                total = Range(MAP_CREATED, MAP_CREATED)
                for key, value, _ in entries:
                    total += self.cost(key) + self.cost(value)
                keys, held = [self._size(each[0]) for each in entries], [self._size(each[1]) for each in entries]
                self._entries[node] = _Entries("map", _union(keys), _union(held))
                return total
            case ObjectOf(fields=fields):
                total = Range(OBJECT_CREATED, OBJECT_CREATED)
                for _, value, _ in fields:
                    total += self.cost(value)
                return total
            case Fold():
                return self._bind(node) if node.bind else self._fold(node)
        return Range()

    def _select(self, node: Select) -> Range:
        if node in self._checked.names:
            self._paths[node] = (self._checked.names[node],)
            return ONE
        total = self.cost(node.operand)
        if node.test:
            return total
        if self._checked.types[node.operand].kind in ("map", "object", "parameter"):
            total += ONE
        self._paths[node] = (*self._path(node.operand), node.field)
        return total

    def _fold(self, node: Fold) -> Range:
        total = self.cost(node.over) + self.cost(node.init)
        self._push(node.accu, node.init)
        entries = self._entries_of(node.over)
        kind = entries.kind if entries else self._checked.types[node.over].kind
        path = self._path(node.over)
        first, second = (entries.key, entries.value) if entries else (None, None)
        names: list[str]
        if node.second:
            of_list = kind == "list"
            self._add(node.first, (*path, "@indices" if of_list else "@keys"), first)
            self._add(node.second, (*path, "@items" if of_list else "@values"), second)
            names = [node.first, node.second]
        else:
            self._add(node.first, (*path, "@items" if kind == "list" else "@keys"), second if kind == "list" else first)
            names = [node.first]
        loop = self.cost(node.condition) + self.cost(node.step)
        for name in names:
            self._locals[name].pop()
        total += self.cost(node.result)
        self._locals[node.accu].pop()
        count = self._size(node.over)
        total += count * loop
        if isinstance(node.init, Literal):
            self._known[node] = self._size(node.init)
        else:
            self._known[node] = count
            step = self._entries_of(node.step)
            if step is not None:
                self._entries[node] = step
        return total

    def _bind(self, node: Fold) -> Range:
        total = self.cost(node.over) + self.cost(node.init)
        self._push(node.accu, node.init)
        total += self.cost(node.result)
        self._locals[node.accu].pop()
        self._copy(node, node.result)
        return total

    def _call(self, node: Call) -> Range:
        if node.function == "dyn" and node.args:
            total = ONE + self.cost(node.args[0])
            self._copy(node, node.args[0])
            return total
        args = Range()
        costs = []
        for arg in node.args:
            costs.append(self.cost(arg))
            args += costs[-1]
        if node.function == "_?._":
            # The checker knows no size of it, and the field is no literal of the expression.
            return args + ONE
        name = self._checked.functions.get(node, node.function.removeprefix("."))
        overloads = self._checked.overloads.get(node)
        if not overloads:
            return Range()
        total = Range()
        target = None
        if node.target is not None and node not in self._checked.functions:
            target = node.target
            total = self.cost(target)
        spent = Range(MAX, 0)
        result: Range | None = None
        for overload in overloads:
            each_cost, each_result = self._overload(node, name, overload.id, target, costs, args)
            spent |= each_cost
            if each_result is not None:
                result = each_result if result is None else result | each_result
            if overload.id in ("index_list", "index_map"):
                entries = self._entries_of(node.args[0])
                result = entries.value if entries else None
                self._paths[node] = (*self._path(node.args[0]), "@items" if overload.id == "index_list" else "@values")
            if result is None:
                result = self._computed_size(node)
        if result is not None:
            self._known[node] = result
        return total + spent

    def _overload(
        self, node: Call, name: str, overload: str, target: Node | None, costs: list[Range], args: Range
    ) -> tuple[Range, Range | None]:
        """Return what the call costs with its arguments, and how large its result is."""
        given = node.args
        library = self._library(name, overload, target, given)
        if library is not None:
            return library[0] + args, library[1]
        match overload:
            case "logical_or" | "logical_and":
                return Range(costs[0].least, (costs[0] + costs[1]).most), None
            case "conditional":
                first, second = self._entries_of(given[1]), self._entries_of(given[2])
                if first and second:
                    self._entries[node] = _both(first, second)
                return costs[0] + (costs[1] | costs[2]), self._size(given[1]) | self._size(given[2])
            case "string_to_bytes":
                held = self._size(given[0])
                return held.times(TRAVERSAL) + args, Range(held.least, min(held.most * 4, MAX))
            case "bytes_to_string":
                held = self._size(given[0])
                return held.times(TRAVERSAL) + args, Range(held.least // 4, held.most)
            case "strings_quote":
                held = self._size(given[0])
                return held.times(TRAVERSAL) + args, Range(held.least + 2, min(held.most * 2 + 2, MAX))
            case "string_format" if target is not None:
                return self._size(target).times(TRAVERSAL) + args, None
            case "starts_with_string" | "ends_with_string":
                return self._size(given[0]).times(TRAVERSAL) + args, None
            case "in_list":
                return self._size(given[1]).times(1) + args, None
            case "matches" | "matches_string":
                text, pattern = (target, given[0]) if target is not None else (given[0], given[1])
                return self._pattern(text, pattern) + args, None
            case "contains_string" if target is not None:
                return self._size(target).times(TRAVERSAL) * self._size(given[0]).times(TRAVERSAL) + args, None
            case "add_string" | "add_bytes" | "add_list":
                joined = self._size(given[0]) + self._size(given[1])
                first, second = self._entries_of(given[0]), self._entries_of(given[1])
                if first and second:
                    self._entries[node] = _both(first, second)
                return (ONE if overload == "add_list" else joined.times(TRAVERSAL)) + args, joined
            case "equals":
                return self._equal(given) + args, None
            case "not_equals":
                return self._comparison_cost(given) + args, None
        if overload.startswith(("less_", "greater_")) and overload.endswith(("_string", "_bytes")):
            return self._comparison_cost(given) + args, None
        return ONE + args, None

    def _comparison_cost(self, given: list[Node]) -> Range:
        most = min(self._size(each).most for each in given)
        return Range(1 if most > 0 else 0, most).times(TRAVERSAL)

    def _equal(self, given: list[Node]) -> Range:
        one, two = (self._checked.types[each] for each in given)
        if one == two and one.name in _ONE_COMPARISON:
            return ONE
        if one == two and one.name == "kubernetes.URL":
            held = self._known.get(given[1], ONE)
            return Range(1, held.most).times(TRAVERSAL)
        if one == two and one.name == "kubernetes.NamedFormat":
            return Range(1, _FORMAT_NAME_MAX).times(TRAVERSAL)
        return self._comparison_cost(given)

    def _pattern(self, text: Node, pattern: Node) -> Range:
        return (self._size(text) + ONE).times(TRAVERSAL) * self._size(pattern).times(REGEX)

    def _library(
        self, name: str, overload: str, target: Node | None, given: list[Node]
    ) -> tuple[Range, Range | None] | None:
        """Return what Kubernetes' own estimate says; None: it has none."""
        match name:
            case "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" if target is not None:
                held = self._checked.types[target]
                if not held.params:
                    return self._size(target).times(TRAVERSAL), None
                item_cost = ONE
                if held.params[0] in (types.STRING, types.BYTES):
                    item_cost += (self._sizes((*self._path(target), "@items")) or UNKNOWN).times(TRAVERSAL)
                return self._size(target) * item_cost, None
            case "url" if len(given) == 1:
                return self._size(given[0]).times(TRAVERSAL), self._size(given[0])
            case "lowerAscii" | "upperAscii" | "substring" | "trim" if target is not None:
                held_size = self._size(target)
                return held_size.times(TRAVERSAL), held_size
            case "replace" if target is not None and len(given) >= 2:
                return self._replace_cost(target, given)
            case "split" if target is not None:
                held_size = self._size(target)
                return held_size.times(2 * TRAVERSAL), Range(0, held_size.most)
            case "join" if target is not None:
                return self._join_cost(target, given)
            case "find" | "findAll" if target is not None:
                return self._pattern(target, given[0]), Range(0, self._size(target).most)
            case "masked" | "prefixLength" | "family" | "isUnspecified" | "isLoopback" | "isLinkLocalMulticast":
                return ONE, None
            case "isLinkLocalUnicast" | "sign" | "asInteger" | "isInteger" | "asApproximateFloat" | "compareTo":
                return ONE, None
            case "isGreaterThan" | "isLessThan" | "add" | "sub":
                return ONE, None
            case "containsIP" | "containsCIDR" if target is not None:
                return self._containment_cost(name, overload, given[0]), None
            case "validate" if target is not None:
                return self._size(given[0]).times(TRAVERSAL).times(_FORMAT_REGEX_MAX * REGEX), None
            case "check":
                return Range(AUTHORIZED, AUTHORIZED), None
            case "fieldSelector" | "labelSelector":
                held_size = self._size(given[0])
                parsed = held_size.times(TRAVERSAL) + held_size.times(0.5).times(LIST_CREATED + OBJECT_CREATED)
                return Range(LIST_CREATED, LIST_CREATED) + parsed, None
            case "includes":
                return Range(INCLUDES_LIST_MAX, INCLUDES_LIST_MAX), None
            case "sets.contains" | "sets.intersects":
                return Range(1, 1) + self._size(given[0]) * self._size(given[1]), None
            case "sets.equivalent":
                return Range(1, 1) + self._size(given[0]) * self._size(given[1]) * Range(2, 2), None
        return None

    def _containment_cost(self, name: str, overload: str, given: Node) -> Range:
        address = Range(4, 16)
        total = (address + address).times(TRAVERSAL)
        if name == "containsCIDR":
            total += address.times(TRAVERSAL) + ONE
        return total + self._size(given).times(TRAVERSAL) if overload.endswith("_string") else total

    def _join_cost(self, target: Node, given: list[Node]) -> tuple[Range, Range]:
        count = self._size(target)
        items = self._sizes((*self._path(target), "@items")) or UNKNOWN
        total = count * items if self._checked.types[target].params else Range()
        if given:
            total += self._size(given[0]) * Range(max(count.least - 1, 0), max(count.most - 1, 0))
        return total.times(TRAVERSAL), total

    def _replace_cost(self, target: Node, given: list[Node]) -> tuple[Range, Range]:
        text, old, new = self._size(target), self._size(given[0]), self._size(given[1])
        most = least = kept_most = kept_least = 0
        if old.least == 0:  # an empty text is found around every character
            most, kept_most = min(text.most + 1, MAX), text.most
        elif new.most <= old.least:
            kept_most = text.most
        else:
            most = math.ceil(text.most / old.least)
        if old.most == 0:
            least, kept_least = min(text.least + 1, MAX), text.least
        elif old.most <= new.least:
            kept_least = text.least
        else:
            least = math.ceil(text.least / old.most)
        result = Range(least, most) * new + Range(kept_least, kept_most)
        return text.times(2 * TRAVERSAL), result

    def _local(self, name: str) -> _Local | None:
        found = self._locals.get(name)
        return found[-1] if found else None

    def _add(self, name: str, path: tuple[str, ...], held: Range | None, entries: _Entries | None = None) -> None:
        self._locals.setdefault(name, []).append(_Local(path, held, entries))

    def _push(self, name: str, value: Node) -> None:
        self._add(name, self._path(value), self._computed_size(value), self._entries_of(value))

    def _copy(self, node: Node, source: Node) -> None:
        held, entries = self._computed_size(source), self._entries_of(source)
        if held is not None:
            self._known[node] = held
        if entries is not None:
            self._entries[node] = entries

    def _path(self, node: Node) -> tuple[str, ...]:
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.path
        return self._paths.get(node, ())

    def _size(self, node: Node) -> Range:
        return self._computed_size(node) or UNKNOWN

    def _computed_size(self, node: Node) -> Range | None:
        if (known := self._known.get(node)) is not None:
            return known
        match node:
            case Literal(value=value):
                return Range(size(value), size(value))
            case ListOf(items=items):
                return Range(len(items), len(items))
            case MapOf(entries=entries):
                return Range(len(entries), len(entries))
        path = self._path(node)
        if path and (path_size := self._sizes(path)) is not None:
            self._known[node] = path_size
            return path_size
        held, _ = types.unwrap_optional(self._checked.types.get(node, types.DYN))
        if held in types.SCALARS:
            return ONE
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.size
        return None

    def _entries_of(self, node: Node) -> _Entries | None:
        if (found := self._entries.get(node)) is not None:
            return found
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.entries
        return None


def _union(sizes: list[Range]) -> Range:
    if not sizes:
        return Range()
    return Range(min(each.least for each in sizes), max(each.most for each in sizes))


def _both(one: _Entries, two: _Entries) -> _Entries:
    return _Entries(one.kind, one.key | two.key, one.value | two.value)


def _up(amount: float) -> int:
    return math.ceil(amount)


def _traversal_cost(value: Any) -> int:
    if isinstance(value, str):
        return int(len(utf8(value)) * TRAVERSAL)
    if isinstance(value, bytes):
        return int(len(value) * TRAVERSAL)
    if isinstance(value, list | tuple):
        return sum(map(_traversal_cost, value))
    if isinstance(value, Mapping):
        return sum(_traversal_cost(key) + _traversal_cost(held) for key, held in value.items())
    return 1


def _match_cost(args: list[Any], _: Any) -> int:
    return _up((1 + size(args[0])) * TRAVERSAL) * _up(size(args[1]) * REGEX)


def _reads(place: int, factor: float = TRAVERSAL) -> Charge:
    return lambda args, _: _up(size(args[place]) * factor)


def _least(args: list[Any], _: Any) -> int:
    return _up(min(size(args[0]), size(args[1])) * TRAVERSAL)


def _equality(args: list[Any], result: Any) -> int:
    return 1 if type_name(args[0]) in _COMPARED_AT_ONCE else _least(args, result)


def _within(args: list[Any], _: Any) -> int:
    held = size(args[0])
    return _up(2 * held * TRAVERSAL) + (_up(size(args[1]) * TRAVERSAL) if isinstance(args[1], str) else 0)


def _within_block(args: list[Any], result: Any) -> int:
    return _within(args, result) + _up(size(args[0]) * TRAVERSAL) + 1


def _selector(args: list[Any], _: Any) -> int:
    length = size(args[1])
    return LIST_CREATED + _up(length * TRAVERSAL) + _up(length * 0.5) * (LIST_CREATED + OBJECT_CREATED)


_BY_FUNCTION: Final[dict[str, Charge]] = {
    "check": AUTHORIZED,
    **dict.fromkeys(("fieldSelector", "labelSelector"), _selector),
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), lambda args, _: _traversal_cost(args[0])
    ),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _reads(0)),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _reads(0, 2 * TRAVERSAL)),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _reads(0)),
    **dict.fromkeys(("find", "findAll", "matches"), _match_cost),
    "join": lambda _, result: _up(size(result) * 2 * TRAVERSAL),
    "containsIP": _within,
    "containsCIDR": _within_block,
    "validate": lambda args, _: _up((1 + size(args[1])) * TRAVERSAL) * _up(args[0].regex_size * REGEX),
    "includes": INCLUDES_LIST_MAX,
    "sets.contains": lambda args, _: 1 + size(args[0]) * size(args[1]),
    "sets.intersects": lambda args, _: 1 + size(args[0]) * size(args[1]),
    "sets.equivalent": lambda args, _: 1 + 2 * size(args[0]) * size(args[1]),
    "_==_": _equality,
    "_!=_": _least,
}
_BY_OVERLOAD: Final[dict[str, Charge]] = {
    "cidr_ip": 1,
    "string_to_ip": _reads(0),
    "starts_with_string": _reads(1),
    "ends_with_string": _reads(1),
    "string_to_bytes": _reads(0),
    "bytes_to_string": _reads(0),
    "strings_quote": _reads(0),
    "string_format": _reads(0),
    "in_list": lambda args, _: size(args[1]),
    "add_string": lambda args, _: _up((size(args[0]) + size(args[1])) * TRAVERSAL),
    "add_bytes": lambda args, _: _up((size(args[0]) + size(args[1])) * TRAVERSAL),
    "contains_string": lambda args, _: _up(size(args[0]) * TRAVERSAL) * _up(size(args[1]) * TRAVERSAL),
    **{
        f"{order}{or_equals}_{kind}": _least
        for order in ("less", "greater")
        for or_equals in ("", "_equals")
        for kind in ("string", "bytes")
    },
}


def charge_of(function: str, overload: str) -> Charge:
    """Return the cost of a call: units, or a function of its arguments and result."""
    return _BY_OVERLOAD.get(overload) or _BY_FUNCTION.get(function) or 1
