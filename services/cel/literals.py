"""Checks of literals that are invalid in their use: patterns, times, durations, and formats. Pure.

Source: google/cel-go cel/validator.go, ext/formatting.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from services.cel import regex, times
from services.cel.checker import Checked
from services.cel.libraries.strings import FormatError, format_text
from services.cel.quantities import Quantity
from services.cel.syntax import Call, Fold, Issue, ListOf, Literal, MapOf, Node, ObjectOf, Select
from services.cel.types import Type, unwrap_optional
from services.cel.values import NANOS, Duration, EvaluationError, Timestamp, Uint

_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "matches": regex.compile_pattern,
    "timestamp": times.timestamp,
    "duration": times.duration,
}
_NONE: Final = object()
_SAMPLES: Final[Mapping[str, Any]] = {
    "bool": True,
    "int": 0,
    "uint": Uint(0),
    "double": 0.0,
    "string": "",
    "bytes": b"",
    "null_type": None,
    "list": [],
    "map": {},
    "type": Type("int"),
    "google.protobuf.Duration": Duration(0),
    "google.protobuf.Timestamp": Timestamp(0),
    "kubernetes.Quantity": Quantity(0),
}
"""A sample value per type; a clause of `format` treats all values of a type alike."""


def literal_issues(checked: Checked) -> list[Issue]:
    """Return the issues of literals in the checked tree."""
    issues = list(_mixed_type_issues(checked, checked.root, set(), allowed=False))
    return issues + [issue for node in checked.types if isinstance(node, Call) for issue in _issues(checked, node)]


def _mixed_type_issues(checked: Checked, node: Node, seen: set[Node], *, allowed: bool) -> Iterator[Issue]:
    """Yield where a list or map has values of several types; what `format` writes may be of any."""
    if node in seen:
        return
    seen.add(node)
    if not allowed:
        if isinstance(node, ListOf):
            yield from _different(checked, [(each, i in node.optional) for i, each in enumerate(node.items)])
        elif isinstance(node, MapOf):
            yield from _different(checked, [(key, False) for key, _, _ in node.entries], every=True)
            yield from _different(checked, [(value, may) for _, value, may in node.entries], every=True)
    if isinstance(node, Call):
        children = [*node.args, *([node.target] if node.target is not None else [])]
        allowed = allowed or node.function == "format"
    else:
        children = _children(node)
    for child in children:
        yield from _mixed_type_issues(checked, child, seen, allowed=allowed)


def _children(node: Node) -> list[Node]:
    match node:
        case Select(operand=operand):
            return [operand]
        case ListOf(items=items):
            return items
        case MapOf(entries=entries):
            return [each for key, value, _ in entries for each in (key, value)]
        case ObjectOf(fields=fields):
            return [each for _, each, _ in fields]
        case Fold():
            return [node.over, node.init, node.condition, node.step, node.result]
    return []


def _different(checked: Checked, items: list[tuple[Node, bool]], *, every: bool = False) -> Iterator[Issue]:
    first: Type | None = None
    for node, optional in items:
        node_type = checked.types.get(node)
        if node_type is None:
            continue
        node_type = unwrap_optional(node_type)[0] if optional else node_type
        node_type = node_type.params[0] if node_type.kind == "wrapper" else node_type
        if first is None:
            first = node_type
        elif node_type != first:
            yield Issue(node.at, f"expected type '{first.display_name()}' but found '{node_type.display_name()}'")
            if not every:
                return


def _issues(checked: Checked, node: Call) -> Iterator[Issue]:
    check = _CHECKS.get(node.function)
    if check is not None and node.args:
        last = node.args[-1]
        if isinstance(last, Literal) and type(last.value) in (str, int):
            try:
                if type(last.value) is str:
                    check(last.value)
                elif node.function == "timestamp":
                    Timestamp(last.value * NANOS)
            except EvaluationError:
                yield Issue(last.at, f"invalid {node.function} argument")
    if node.function == "format" and isinstance(node.target, Literal) and len(node.args) == 1:
        yield from _format_issues(checked, node, node.target, node.args[0])


def _format_issues(checked: Checked, node: Call, pattern: Literal, args: Any) -> Iterator[Issue]:
    if not isinstance(args, ListOf) or not isinstance(pattern.value, str):
        return
    known = [_SAMPLES.get(checked.types[each].name, _NONE) for each in args.items]
    known = [each.value if isinstance(each, Literal) else one for each, one in zip(args.items, known, strict=True)]
    try:
        format_text(pattern.value, known, constant=lambda place: known[place] is not _NONE)
    except FormatError as error:
        yield Issue(args.items[error.place].at, str(error))
    except EvaluationError as error:
        yield Issue(node.at, str(error))
