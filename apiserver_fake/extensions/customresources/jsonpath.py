r"""Kubernetes JSONPath, for printer columns, selectable fields and scale paths of custom resources.

`.spec.replicas`, `['a.b']`, `.a\.b`, `[0]`, `[-1]`, `[1:3]`, `[*]`, `.*`, `..name`, `[0,2]` and
`[?(@.type=="Ready")]` with ==, !=, <, <=, >, >=. Source: upstream `staging/src/k8s.io/client-go/util/jsonpath`.
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

from services.cel import faults

Step = Callable[[Any], Iterable[Any]]
VALUES_MAX = 100_000
"""Limit of the values that a path selects: `[0,0][0,0]…` selects two to the power of its steps."""
_INDEX = re.compile(r"-?[0-9]{1,18}")

_TOKENS = re.compile(
    r"""
    \.\.(?P<deep>(?:\\.|[^.\[\\])+)
  | \.\*(?P<star>)
  | \.(?P<name>(?:\\.|[^.\[\\*])(?:\\.|[^.\[\\])*)
  | \[(?P<inside>(?:'[^']*'|"[^"]*"|[^\]'"])*)\]
    """,
    re.VERBOSE,
)
_SLICE = re.compile(r"(-?[0-9]{0,18}):(-?[0-9]{0,18})(?::([0-9]{1,18}))?")
_FILTER = re.compile(
    r"""\?\(\s*@(?P<path>(?:'[^']*'|"[^"]*"|[^=!<>'"])*?)\s*(?:(?P<op>==|!=|<=|>=|<|>)\s*(?P<value>.+?))?\s*\)"""
)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class JSONPathError(ValueError):
    """The path cannot be parsed, or selects too many values."""


@lru_cache(maxsize=1024)
def compile_path(path: str) -> tuple[Step, ...]:
    """Return the steps of a path such as `.spec.replicas`. Raises: JSONPathError."""
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    text = text.removeprefix("$")
    if text in ("", "."):
        return ()
    steps: list[Step] = []
    at = 0
    while at < len(text):
        token = _TOKENS.match(text, at)
        if token is None:
            raise JSONPathError(f"unrecognized character in JSONPath {path!r} at {at}: {text[at:][:20]!r}")
        at = token.end()
        if token["deep"] is not None:
            steps.append(_deep(_plain(token["deep"])))
        elif token["star"] is not None:
            steps.append(_children)
        elif token["name"] is not None:
            steps.append(_member(_plain(token["name"])))
        else:
            steps.append(_bracket(token["inside"].strip(), path))
    return tuple(steps)


def find(path: str, document: Any) -> list[Any]:
    """Return the values that the path selects, in document order; [] if it selects none.

    Raises: JSONPathError, also for more than 100,000 values.
    """
    values: list[Any] = [document]
    try:
        for step in compile_path(path):
            values = list(islice((value for each in values for value in step(each)), VALUES_MAX + 1))
            if len(values) > VALUES_MAX:
                raise JSONPathError(f"JSONPath {path!r} leads to more than {VALUES_MAX} values")
    except JSONPathError:
        raise
    except Exception as error:
        faults.report(f"the JSONPath {path}", error)
        raise JSONPathError(f"JSONPath {path!r}: internal error: {faults.fault_text(error)}") from error
    return values


def names(path: str) -> tuple[str, ...]:
    """Return the field names of a path without brackets: `("spec", "replicas")` for `.spec.replicas`."""
    return tuple(_plain(name) for name in re.findall(r"(?:\\.|[^.\\])+", path.strip()))


def _plain(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


def _member(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _deep(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]
        for child in _children(value):
            yield from step(child)

    return step


def _bracket(inside: str, path: str) -> Step:
    if inside == "*":
        return _children
    if inside.startswith("?"):
        return _filter(inside, path)
    parts = _parts(inside)
    steps = [_one(part.strip(), path) for part in parts]
    return lambda value: [found for step in steps for found in step(value)]


def _parts(inside: str) -> list[str]:
    return re.findall(r"(?:'[^']*'|\"[^\"]*\"|[^,'\"])+", inside) or [""]


def _one(part: str, path: str) -> Step:
    if len(part) > 1 and part[0] == part[-1] and part[0] in "'\"":
        return _member(part[1:-1])
    if _INDEX.fullmatch(part):
        at = int(part)
        return lambda value: value[at : at + 1 or None] if isinstance(value, list) else ()
    if match := _SLICE.fullmatch(part):
        first, last, step = (int(each) if each else None for each in match.groups())
        if step == 0:
            raise JSONPathError(f"step must be > 0 in JSONPath {path!r}")
        return lambda value: value[first:last:step] if isinstance(value, list) else ()
    raise JSONPathError(f"invalid array index {part!r} in JSONPath {path!r}")


def _filter(inside: str, path: str) -> Step:
    match = _FILTER.fullmatch(inside)
    if match is None:
        raise JSONPathError(f"unrecognized filter {inside!r} in JSONPath {path!r}")
    left = match["path"].strip() or "."
    compile_path(left)
    if match["op"] is None:
        return lambda value: [each for each in _children(value) if find(left, each)]
    compare, right = _OPERATORS[match["op"]], _literal(match["value"].strip(), path)

    def step(value: Any) -> Iterator[Any]:
        for each in _children(value):
            for one in find(left, each)[:1]:
                if _holds(compare, one, right):
                    yield each

    return step


def _literal(text: str, path: str) -> Any:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text) if re.search(r"[.eE]", text) else int(text)
    except ValueError:
        raise JSONPathError(f"unrecognized value {text!r} in JSONPath {path!r}") from None


def _holds(compare: Callable[[Any, Any], bool], one: Any, other: Any) -> bool:
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    try:
        return compare(one, other)
    except TypeError:
        return False
