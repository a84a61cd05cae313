"""Check of the field names in a measure's expression against the fields that the objects can have, before
anything runs. Pure.

CEL checks expressions against objects without a schema, so a misspelt field would be found only at the
end of a run, and only if it was evaluated. This check follows each variable to the selected fields:
through comprehensions, indexes, optional fields and lists. A field that the kind's shape does not have is
a mistake. Where nothing is known (an event's `data`, a map's values, the result of a function) nothing is
refused.

`recorded` describes the fields that objects have besides their documents.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

import msgspec

from apiserver_fake.registry.schema.schemas import ANYTHING, Shape, shape_of
from services.api.resources import resources
from services.cel.syntax import Call, Fold, Ident, ListOf, Literal, MapOf, Node, ObjectOf, Select
from services.telemetry.eventlog import Line

_NUMBER: Final = Shape("number")
_TEXT: Final = Shape("string")
_AMOUNTS: Final = Shape("object", values=_NUMBER)
_EMPTY: Final = Shape("array")
"""Shape of the list with which comprehensions begin."""
_SCALARS: Final = frozenset(("string", "integer", "number", "boolean"))
_TIMES: Final = ("created", "gone")
_TIMES_OF_PODS: Final = (*_TIMES, "bound", "running", "ready", "failed", "rejected", "deleted")
_POOLS: Final = ("active", "backoff", "unschedulable", "gated")
_SAME_ITEMS: Final = frozenset(("sort", "distinct", "reverse", "slice", "orValue", "or", "value"))
"""Functions whose result has the shape of their target."""
_ONE_ITEM: Final = frozenset(("first", "last"))


@dataclass(frozen=True)
class FieldPath:
    """Known shape of a value, and its path from `kind` for messages."""

    shape: Shape
    kind: str = ""
    path: str = ""

    def at(self, shape: Shape, step: str = "") -> "FieldPath":
        """Return the field path after one step."""
        return replace(self, shape=shape, path=f"{self.path}.{step}".lstrip(".") if step else self.path)


UNKNOWN: Final = FieldPath(ANYTHING)


@dataclass
class _Walk:
    """Walk over an expression's tree. `issues`: place and message of each mistake."""

    variables: Mapping[str, FieldPath]
    issues: list[tuple[int, str]] = field(default_factory=list)

    def of(self, node: Node, scope: Mapping[str, FieldPath]) -> FieldPath:
        """Return what is known of the node's value, and note what is wrong in it."""
        match node:
            case Ident(name=name):
                return scope.get(name) or self.variables.get(name, UNKNOWN)
            case Select(operand=operand, field=name):
                if (whole := _qualified_name(node)) in self.variables and whole.partition(".")[0] not in scope:
                    return self.variables[whole]
                return self._member(node.at, self.of(operand, scope), name)
            case Call():
                return self._call(node, scope)
            case ListOf(items=items):
                item_paths = [self.of(each, scope) for each in items]
                return (
                    item_paths[0].at(Shape("array", items=item_paths[0].shape))
                    if len(item_paths) == 1
                    else FieldPath(_EMPTY)
                )
            case MapOf(entries=entries):
                for key, value, _ in entries:
                    self.of(key, scope), self.of(value, scope)
            case ObjectOf(fields=named):
                for _, value, _ in named:
                    self.of(value, scope)
            case Fold():
                return self._fold(node, scope)
        return UNKNOWN

    def _member(self, at: int, holder: FieldPath, name: str) -> FieldPath:
        shape = holder.shape
        if shape.type in _SCALARS:
            self.issues.append((at, f"{_display_name(holder)} is of type {shape.type}, it has no field {name!r}"))
            return UNKNOWN
        if shape.fields is None or shape.values is not None or shape.keeps_unknown:
            return holder.at(shape.member(name), name)
        if name in shape.fields:
            return holder.at(shape.fields[name], name)
        near = difflib.get_close_matches(name, shape.fields, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else f"; it has {', '.join(sorted(shape.fields)[:12])}"
        self.issues.append((at, f"{_display_name(holder)} has no field {name!r}{hint}"))
        return UNKNOWN

    def _call(self, node: Call, scope: Mapping[str, FieldPath]) -> FieldPath:
        match node:
            case Call(function="_?._", args=[operand, Literal(value=str(name))]):
                return self._member(node.at, self.of(operand, scope), name)
            case Call(function="_[_]" | "_[?_]", args=[operand, Literal(value=str(name)) as key]):
                holder = self.of(operand, scope)
                if holder.shape.fields is not None and not holder.shape.values:
                    return self._member(key.at, holder, name)
                return holder.at(holder.shape.values or ANYTHING, name)
        target = self.of(node.target, scope) if node.target is not None else UNKNOWN
        args = [self.of(each, scope) for each in node.args]
        match node.function:
            case "_[_]" | "_[?_]":
                return args[0].at(args[0].shape.items or ANYTHING)
            case "_+_" | "_||_" | "_&&_":
                return _common_path(args[0], args[1])
            case "_?_:_":
                return _common_path(args[1], args[2])
            case name if name in _SAME_ITEMS:
                return target
            case name if name in _ONE_ITEM:
                return target.at(target.shape.items or ANYTHING)
        return UNKNOWN

    def _fold(self, node: Fold, scope: Mapping[str, FieldPath]) -> FieldPath:
        over, init = self.of(node.over, scope), self.of(node.init, scope)
        if node.bind:
            return self.of(node.result, {**scope, node.accu: init})
        shape = over.shape
        item = over.at(shape.items or shape.values or ANYTHING)
        if shape.type == "object" or node.second:
            named = {node.first: UNKNOWN, **({node.second: item} if node.second else {})}
        else:
            named = {node.first: item}
        inside = {**scope, **named, node.accu: init}
        self.of(node.condition, inside)
        return self.of(node.result, {**scope, node.accu: _common_path(init, self.of(node.step, inside))})


def _common_path(one: FieldPath, other: FieldPath) -> FieldPath:
    """Return what is known of a value that may be either."""
    if one.shape is other.shape or other.shape is _EMPTY:
        return one
    if one.shape is _EMPTY:
        return other
    lists = one.shape.type == other.shape.type == "array"
    return one if lists and one.shape.items is other.shape.items else UNKNOWN


def _qualified_name(node: Node) -> str:
    """Return `a.b` of a selection of a name, or nothing."""
    match node:
        case Select(operand=Ident(name=name), field=member):
            return f"{name}.{member}"
    return ""


def _display_name(holder: FieldPath) -> str:
    """Return what people call a value: the kind, and the path in it."""
    return f"{holder.kind} {holder.path}" if holder.path else holder.kind or "it"


@cache
def _variables() -> Mapping[str, FieldPath]:
    variables: dict[str, FieldPath] = {}
    for resource in resources().values():
        shape = _with_more(resource.plural, shape_of(resource.api_version, resource.kind))
        objects = FieldPath(Shape("array", items=shape), resource.kind)
        variables[resource.plural] = variables[f"created.{resource.plural}"] = objects
    line = dict.fromkeys((*(each.name for each in msgspec.structs.fields(Line)), "at"), ANYTHING)
    lines = Shape("array", items=Shape("object", fields=line))
    return {**variables, "lines": FieldPath(Shape("object", values=lines), "event log")}


def _with_more(plural: str, shape: Shape) -> Shape:
    """Return the shape of a kind with what a run's objects have beside their documents (`recorded`)."""
    if shape.fields is None:
        return ANYTHING
    times = _TIMES_OF_PODS if plural == "pods" else _TIMES
    more = {"at": Shape("object", fields=dict.fromkeys(times, _NUMBER))}
    if plural == "pods":
        queue = Shape("object", fields=dict.fromkeys(_POOLS, _NUMBER))
        more |= {"role": _TEXT, "nodes": Shape("array", items=_TEXT), "queue": queue}
    elif plural == "nodes":
        more |= {"requested": _AMOUNTS, "allocatable": _AMOUNTS, "utilization": _AMOUNTS, "pods": _NUMBER}
    version = replace(shape, fields={**shape.fields, "at": _NUMBER, "seconds": _NUMBER})
    return replace(shape, fields={**shape.fields, **more, "versions": Shape("array", items=version)})


def field_mistakes(tree: Node) -> Iterator[tuple[int, str]]:
    """Yield the place in the text (from 0) and the message for each field that no object can have."""
    walk = _Walk(_variables())
    walk.of(tree, {})
    yield from sorted(set(walk.issues))
