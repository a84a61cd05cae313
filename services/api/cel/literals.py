"""Literals that cannot be what they are used as: patterns, times, durations, and formats. Pure.

Source: google/cel-go cel/validator.go, ext/formatting.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from services.api.cel import regex, times
from services.api.cel.checker import Checked
from services.api.cel.libraries.strings import FormatError, formatted
from services.api.cel.syntax import Call, Issue, ListOf, Literal
from services.api.cel.values import NANOS, EvaluationError, Timestamp

_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "matches": regex.compiled,
    "timestamp": times.timestamp,
    "duration": times.duration,
}
_NONE: Final = object()


def literal_issues(checked: Checked) -> list[Issue]:
    """Return what is wrong with literals of the checked tree."""
    return [issue for node in checked.types if isinstance(node, Call) for issue in _issues(node)]


def _issues(node: Call) -> Iterator[Issue]:
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
        yield from _format_issues(node, node.target, node.args[0])


def _format_issues(node: Call, pattern: Literal, args: Any) -> Iterator[Issue]:
    if not isinstance(args, ListOf) or not isinstance(pattern.value, str):
        return
    known = [each.value if isinstance(each, Literal) else _NONE for each in args.items]
    try:
        formatted(pattern.value, known, constant=lambda place: known[place] is not _NONE)
    except FormatError as error:
        yield Issue(args.items[error.place].at, str(error))
    except EvaluationError as error:
        yield Issue(node.at, str(error))
