"""SKEL, SimKube's language for rewriting traces: `delete`, `remove` and `modify`, read and applied. Pure.

    delete(SELECTOR);                    leave matching objects out
    remove(SELECTOR, PATH);              remove a field of matching objects; without a selector of all
    modify(SELECTOR, PATH = VALUE);      set a field of matching objects

A selector is `*`, or conditions joined by `&&`: `@t >= 10m` (seconds since the epoch, or since the beginning
with h, m or s), `PATH == VALUE`, `PATH != VALUE`, `exists(PATH)`, `!exists(PATH)`, and
`$x := PATH | CONDITION`, which binds the elements of a list for which the condition is true. A path is
`spec.containers[*].name`, with quotes where a name has dots. Comments begin with `#`. The rest of SimKube's
grammar is refused with line and column.
SimKube's own: acrlabs/simkube, `sk-cli/src/skel/skel.pest`. Source: simulator 6.3.
"""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from lab.exchange.stream import Refused
from services.api.meta import Document

_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t\r\n]+|\#[^\n]*)
    |(?P<sign>&&|:=|==|!=|<=|>=|@t|[<>=!(),;|*])
    |(?P<text>"[^"]*")
    |(?P<path>(?:\$?[A-Za-z_][\w-]*|"[\w./-]+")(?:\.(?:[\w-]+|"[\w./-]+")|\[(?:\d+|\*)\])*)
    |(?P<number>\d+[hms]?(?![\w.]))""",
    re.VERBOSE,
)
_STEP: Final = re.compile(r"\.?(?:\"(?P<quoted>[^\"]+)\"|\[(?P<index>\d+|\*)\]|(?P<plain>\$?[\w-]+))")
_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600}
COMMANDS: Final = ("delete", "remove", "modify")
Path = tuple[str | int, ...]
EVERY: Final = "*"


class _Token(NamedTuple):
    kind: str
    text: str
    line: int
    column: int


@dataclass(frozen=True)
class Moment:
    """The condition `@t OP VALUE`; `is_relative`: the value counts from the beginning."""

    compare: str
    value: float
    is_relative: bool


@dataclass(frozen=True)
class Test:
    """Condition on a field. `compare`: ==, !=, exists or !exists; `value`: plain; `value_path`: the path of a value."""

    path: Path
    compare: str
    value: Any = None
    value_path: Path | None = None
    variable: str = ""
    over: Path = ()
    """Path of the list to whose elements `variable` is bound."""


@dataclass(frozen=True)
class Command:
    """One operation. `conditions`: () selects every object."""

    name: str
    conditions: tuple[Moment | Test, ...]
    path: Path = ()
    value: Any = None
    value_path: Path | None = None


def parse(text: str, file: str) -> tuple[Command, ...]:
    """Return the commands of a text. Raises: Refused naming line and column."""
    return tuple(_Parser(text, file).commands())


class _Parser:
    def __init__(self, text: str, file: str) -> None:
        self._file, self._at = file, 0
        self._tokens = list(self._scan_tokens(text))
        self._variables: set[str] = set()

    def _scan_tokens(self, text: str) -> Iterator[_Token]:
        at, line, began = 0, 1, 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise Refused(f"{self._file}:{line}:{at - began + 1}: {text[at]!r} is not understood here")
            if match.lastgroup != "blank":
                yield _Token(str(match.lastgroup), match[0], line, at - began + 1)
            newlines = match[0].count("\n")
            if newlines:
                line, began = line + newlines, at + match[0].rindex("\n") + 1
            at = match.end()
        yield _Token("end", "", line, at - began + 1)

    def _wrong(self, wanted: str, token: _Token | None = None) -> Refused:
        token = token or self._next
        said = repr(token.text) if token.text else "the end"
        return Refused(f"{self._file}:{token.line}:{token.column}: {said}: want {wanted}")

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> str:
        """Take a sign, where it is the next; "" where not."""
        token = self._next
        if token.kind in ("sign", "path") and token.text in texts:
            self._at += 1
            return token.text
        return ""

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._wrong(repr(text))

    def commands(self) -> Iterator[Command]:
        while self._next.kind != "end":
            self._variables = set()
            token = self._next
            name = self._take(*COMMANDS)
            if not name:
                raise self._wrong(f"one of {', '.join(COMMANDS)}", token)
            self._expect("(")
            yield self._command(name)
            self._expect(")")
            self._expect(";")

    def _command(self, name: str) -> Command:
        if name != "delete" and self._is_target():
            return self._action(name, ())
        conditions = self._selector()
        if name == "delete":
            return Command(name, conditions)
        self._expect(",")
        return self._action(name, conditions)

    def _is_target(self) -> bool:
        """Whether a path stands here that is the target itself: then `)` or `=` follows."""
        after = self._tokens[self._at + 1 : self._at + 2]
        return self._next.kind == "path" and bool(after) and after[0].text in (")", "=")

    def _action(self, name: str, conditions: tuple[Moment | Test, ...]) -> Command:
        path = self._path()
        if name == "remove":
            return Command(name, conditions, path)
        self._expect("=")
        value, value_path = self._value()
        return Command(name, conditions, path, value, value_path)

    def _selector(self) -> tuple[Moment | Test, ...]:
        if self._take("*"):
            return ()
        found = [self._condition()]
        while self._take("&&"):
            found.append(self._condition())
        return tuple(found)

    def _condition(self) -> Moment | Test:
        if self._take("@t"):
            return self._moment()
        token, after = self._next, self._tokens[self._at + 1 : self._at + 2]
        if token.kind == "path" and token.text.startswith("$") and after and after[0].text == ":=":
            if token.text in self._variables:
                raise self._wrong(f"another name; {token.text} is bound already", token)
            self._at += 2
            over = self._path()
            self._expect("|")
            self._variables.add(token.text)
            about = self._next
            test = self._test()
            if test.path[0] != token.text:
                raise self._wrong(f"a condition about {token.text}", about)
            return Test(test.path[1:], test.compare, test.value, test.value_path, token.text, over)
        return self._test()

    def _moment(self) -> Moment:
        compare = self._take(*_COMPARE)
        if not compare:
            raise self._wrong("a comparison: ==, !=, <, <=, > or >=")
        token = self._next
        if token.kind != "number":
            raise self._wrong("a moment such as 10m or seconds since the epoch")
        self._at += 1
        unit = token.text[-1]
        if unit in _UNITS_S:
            return Moment(compare, float(int(token.text[:-1]) * _UNITS_S[unit]), True)
        return Moment(compare, float(token.text), False)

    def _test(self) -> Test:
        is_not = bool(self._take("!"))
        if self._take("exists"):
            self._expect("(")
            path = self._path()
            self._expect(")")
            return Test(path, "!exists" if is_not else "exists")
        if is_not:
            raise self._wrong("exists(PATH)")
        path = self._path()
        compare = self._take("==", "!=")
        if not compare:
            raise self._wrong("== or !=; fields are not compared otherwise")
        value, value_path = self._value()
        return Test(path, compare, value, value_path)

    def _value(self) -> tuple[Any, Path | None]:
        token = self._next
        if token.kind == "text":
            self._at += 1
            return token.text[1:-1], None
        if token.kind == "number" and token.text.isdigit():
            self._at += 1
            return int(token.text), None
        if token.kind == "path" and token.text.lower() in ("true", "false"):
            self._at += 1
            return token.text.lower() == "true", None
        if token.kind == "path":
            return None, self._path()
        raise self._wrong("a text in quotes, a number, true, false, or a path")

    def _path(self) -> Path:
        token = self._next
        if token.kind != "path":
            raise self._wrong("a path such as spec.containers[*].image", token)
        self._at += 1
        steps: list[str | int] = []
        for step in _STEP.finditer(token.text):
            index = step["index"]
            steps.append(int(index) if index and index != EVERY else index or step["quoted"] or step["plain"])
        if str(steps[0]).startswith("$") and steps[0] not in self._variables:
            raise self._wrong(f"a variable that is bound before; {steps[0]} is not", token)
        return tuple(steps)


# Applying


def _matches(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the places that a path names, and what stands there."""
    if not path:
        yield (), value
        return
    step, *rest = path
    if step == EVERY and isinstance(value, list):
        for number, element in enumerate(value):
            for below, member in _matches(element, tuple(rest)):
                yield (number, *below), member
    elif (isinstance(step, int) and isinstance(value, list) and step < len(value)) or (
        isinstance(value, dict) and step in value
    ):
        yield from (((step, *below), found) for below, found in _matches(cast("Any", value)[step], tuple(rest)))


_Bound = dict[str, list[Path]]


def _resolve_path(path: Path, bound: Mapping[str, Sequence[Path]]) -> list[Path]:
    """Return a path with its variable replaced by each place that it is bound to."""
    if path and isinstance(path[0], str) and path[0].startswith("$"):
        return [(*place, *path[1:]) for place in bound.get(path[0], ())]
    return [path]


def _candidates(document: Document, test: Test, bound: _Bound) -> list[Any]:
    if test.value_path is None:
        return [test.value]
    return [found for path in _resolve_path(test.value_path, bound) for _, found in _matches(document, path)]


def _is_true(document: Document, path: Path, test: Test, bound: _Bound) -> bool:
    there = [found for _, found in _matches(document, path)]
    if test.compare in ("exists", "!exists"):
        return bool(there) == (test.compare == "exists")
    wanted = _candidates(document, test, bound)
    # As in SimKube only what is there can differ.
    return any((each in wanted) == (test.compare == "==") for each in there)


def _bind_variables(command: Command, document: Document, ts: float, began: float) -> _Bound | None:
    """Return what the variables are bound to; None: the object is not selected."""
    bound: _Bound = {}
    for condition in command.conditions:
        if isinstance(condition, Moment):
            at = ts - began if condition.is_relative else ts
            if not _COMPARE[condition.compare](at, condition.value):
                return None
        elif condition.variable:
            places = [
                place
                for over in _resolve_path(condition.over, bound)
                for place, _ in _matches(document, over)
                if _is_true(document, (*place, *condition.path), condition, bound)
            ]
            if not places:
                return None
            bound[condition.variable] = places
        elif not any(_is_true(document, path, condition, bound) for path in _resolve_path(condition.path, bound)):
            return None
    return bound


def apply(commands: Sequence[Command], document: Document, ts: float, began: float, file: str) -> Document | None:
    """Apply the commands to an object and return it; None if it is deleted. `ts`: its event's seconds since the epoch.

    Raises: Refused, if a field would be set to several values.
    """
    for command in commands:
        bound = _bind_variables(command, document, ts, began)
        if bound is None:
            continue
        if command.name == "delete":
            return None
        changed = copy.deepcopy(document)
        targets = _resolve_path(command.path, bound)
        if command.name == "remove":
            places = {place for path in targets for place, _ in _matches(document, path)}
            # From the end, so that the numbers of what is left stay right.
            for place in sorted(
                places,
                key=lambda place: [(isinstance(s, int), s if isinstance(s, int) else 0, str(s)) for s in place],
                reverse=True,
            ):
                _remove(changed, place)
        else:
            value = command.value
            if command.value_path is not None:
                values = [f for path in _resolve_path(command.value_path, bound) for _, f in _matches(document, path)]
                if len(values) != 1:
                    raise Refused(f"{file}: modify: {len(values)} values match the right side: want one")
                value = values[0]
            for path in targets:
                _set(changed, path, value)
        document = changed
    return document


def _remove(document: Any, place: Path) -> None:
    for step in place[:-1]:
        document = document[step]
    del document[place[-1]]


def _set(value: Any, path: Path, new: Any) -> None:
    step, *rest = path
    if step == EVERY:
        for number in range(len(value) if isinstance(value, list) else 0):
            _set(value, (number, *rest), new)
        return
    if isinstance(step, int) and not (isinstance(value, list) and step < len(value)):
        return
    if not isinstance(value, dict | list) or (isinstance(value, list) and not isinstance(step, int)):
        return
    if not rest:
        value[step] = copy.deepcopy(new)  # type: ignore[index]  # the step fits what it goes into
        return
    if isinstance(value, dict) and not isinstance(value.get(str(step)), dict | list):
        value[str(step)] = {}
    _set(value[step], tuple(rest), new)
