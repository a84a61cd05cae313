"""The subset of jq that selectors and `…From` expressions of Stages use.

Supported are: `.`, `.a.b`, `.a["b"]`, `.a[0]`, `.a[]` and `.a.[]`, `?`, `|`, `,`, `//`, `==` `!=` `<` `<=` `>`
`>=`, `and`, `or`, literals, parentheses, and the functions select, not, length, keys, empty, tostring,
tonumber, startswith, endswith, any, all, first and last (of an array). Nothing changes its input, reads the
environment, or runs for ever: there are no definitions, no `until`, `range` or `input`. As in gojq, an object's
values come in the order of its keys, and an error left of `//` yields the right side. Why not the jq library:
decision 0055. Pure.
Source: the jq manual; KWOK evaluates the whole language with gojq.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from services.api.errors import UNREADABLE
from services.cel import faults

COMMAS_MAX = 12
"""Maximum number of commas; `(., .) | (., .) | …` has two to the power of its commas values."""
WORDS_MAX, NESTED_MAX = 250, 25
"""Maximum number of words of a filter, and of open brackets; each is a function that calls the next."""
VALUES_MAX = 100_000
"""Maximum number of values of one evaluation; `.a[] == .a[]` has the square of the size of `.a`."""
DIGITS_MAX = 400

Filter = Callable[[Any], Iterator[Any]]

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:\\.|[^"\\])*")
      | (?P<number>-?\d+(?:\.\d+)?)
      | (?P<field>\.[A-Za-z_]\w*)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<sign>//|==|!=|<=|>=|[.<>|,()\[\]?]))""",
    re.VERBOSE,
)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class JqError(ValueError):
    """Error: an expression cannot be parsed, or, at evaluation, does not fit its input."""


class Query:
    """A parsed expression."""

    def __init__(self, text: str) -> None:
        """Parse the text. Raises: JqError saying what is not supported, or that it has too many alternatives."""
        if text.count(",") > COMMAS_MAX:
            raise JqError(f"{text[:40]!r}…: {text.count(',')} commas, want at most {COMMAS_MAX}")
        self.text = text
        self._limit = _Limit()
        self._run = _Parser(text, self._limit).whole()

    def values(self, given: Any) -> list[Any] | None:
        """Return the results of the expression, in order; None if it does not fit the input, or exceeds the work
        limit.
        """
        self._limit.left = VALUES_MAX
        try:
            return list(self._run(given))
        except JqError:
            return None
        except Exception as error:
            faults.report(f"the jq expression {self.text}", error)
            return None

    @property
    def root(self) -> tuple[str, ...]:
        """The leading fields of the expression: metadata and labels for `.metadata.labels["a"]`."""
        begun = re.match(r"\s*((?:\.[A-Za-z_]\w*)+)", self.text)
        return tuple(begun[1].split(".")[1:]) if begun else ()


class _Limit:
    """Number of values that the current evaluation may still process."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = VALUES_MAX

    def of(self, values: Iterator[Any]) -> Iterator[Any]:
        """Yield the values. Raises: JqError when they are too many."""
        for each in values:
            self.left -= 1
            if self.left < 0:
                raise JqError(f"more than {VALUES_MAX} values")
            yield each


def _kind(value: Any) -> int:
    """Jq's order of types: null, false, true, numbers, texts, arrays, objects."""
    if value is None:
        return 0
    if isinstance(value, bool):
        return 2 if value else 1
    return 3 if isinstance(value, int | float) else 4 if isinstance(value, str) else 5 if isinstance(value, list) else 6


def _sorts(value: Any) -> Any:
    kind = _kind(value)
    if kind < 3:
        return (kind,)
    if kind == 5:
        return (kind, [_sorts(v) for v in value])
    if kind == 6:
        return (kind, sorted(value), [_sorts(value[k]) for k in sorted(value)])
    return (kind, value)


def _is_true(value: Any) -> bool:
    return value is not None and value is not False


def _at(value: Any, key: Any) -> Any:
    if value is None and _kind(key) in (3, 4, 6):
        return None
    if isinstance(value, dict) and isinstance(key, str):
        return value.get(key)
    if isinstance(value, list) and _kind(key) == 3:
        return value[math.floor(key)] if -len(value) <= key < len(value) else None
    raise JqError(f"cannot index {type(value).__name__} by {key!r}")


def _each(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        return iter([value[k] for k in sorted(value)])
    if isinstance(value, list):
        return iter(value)
    raise JqError(f"cannot iterate over {type(value).__name__}")


def _length(value: Any) -> int | float:
    if value is None:
        return 0
    if isinstance(value, str | list | dict):
        return len(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return abs(value)
    raise JqError("this has no length")


def _keys(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return sorted(value)
    if isinstance(value, list):
        return list(range(len(value)))
    raise JqError("this has no keys")


def _to_number(value: Any) -> Any:
    if _kind(value) == 3:
        return value
    if isinstance(value, str):
        with suppress(*UNREADABLE):
            return msgspec.json.decode(value)
    raise JqError(f"{value!r} is no number")


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "not": lambda v: not _is_true(v),
    "length": _length,
    "keys": _keys,
    "tostring": lambda v: v if isinstance(v, str) else msgspec.json.encode(v).decode(),
    "tonumber": _to_number,
    "any": lambda v: any(_is_true(each) for each in _each(v)),
    "all": lambda v: all(_is_true(each) for each in _each(v)),
    "first": lambda v: _at(v, 0),
    "last": lambda v: _at(v, -1),
}
_WITH_FILTER = ("select", "any", "all", "startswith", "endswith")


def _identity(value: Any) -> Iterator[Any]:
    yield value


class _Parser:
    def __init__(self, text: str, limit: _Limit) -> None:
        self._text, self._limit = text, limit
        self._tokens: list[tuple[str, str]] = []
        self._next = 0
        self._open = 0
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                raise JqError(f"{text!r}: unexpected {text[at:].strip()[:20]!r}")
            self._tokens.append((str(match.lastgroup), str(match[str(match.lastgroup)])))
            at = match.end()
            if len(self._tokens) > WORDS_MAX:
                raise JqError(f"{text[:40]!r}…: more than {WORDS_MAX} words")

    def whole(self) -> Filter:
        made = self._pipe()
        if self._next < len(self._tokens):
            raise self._error()
        return made

    def _peek(self) -> tuple[str, str]:
        """Return kind and text of the next token; both are empty at the end."""
        return self._tokens[self._next] if self._next < len(self._tokens) else ("", "")

    def _error(self) -> JqError:
        return JqError(f"{self._text!r}: unexpected {self._peek()[1] or 'the end'!r}")

    def _accepts(self, *signs: str) -> str:
        kind, text = self._peek()
        if kind not in ("sign", "word") or text not in signs:
            return ""
        self._next += 1
        return text

    def _expects(self, sign: str) -> None:
        if not self._accepts(sign):
            raise self._error()

    # --- operators, loosest first ---

    def _pipe(self) -> Filter:
        self._open += 1
        if self._open > NESTED_MAX:
            raise JqError(f"{self._text[:40]!r}…: more than {NESTED_MAX} brackets in each other")
        jq_filter = self._comma()
        while self._accepts("|"):
            jq_filter = _pipe_filters(jq_filter, self._comma())
        self._open -= 1
        return jq_filter

    def _comma(self) -> Filter:
        parts = [self._alternative()]
        while self._accepts(","):
            parts.append(self._alternative())
        return parts[0] if len(parts) == 1 else lambda v: (out for part in parts for out in part(v))

    def _alternative(self) -> Filter:
        left = self._logical()
        if not self._accepts("//"):
            return left
        self._open += 1
        if self._open > NESTED_MAX:
            raise JqError(f"{self._text[:40]!r}…: more than {NESTED_MAX} alternatives")
        right = self._alternative()
        self._open -= 1

        def run(value: Any) -> Iterator[Any]:
            found: list[Any] = []
            with suppress(JqError):
                for each in left(value):
                    if _is_true(each):
                        found.append(each)
            return iter(found) if found else right(value)

        return run

    def _logical(self, word: str = "or") -> Filter:
        left = self._logical("and") if word == "or" else self._comparison()
        while self._accepts(word):
            left = self._with_limit(_both(left, self._logical("and") if word == "or" else self._comparison(), word))
        return left

    def _comparison(self) -> Filter:
        left = self._postfix()
        sign = self._accepts(*_COMPARISONS)
        if not sign:
            return left
        right = self._postfix()
        compare = _COMPARISONS[sign]
        return self._with_limit(lambda v: (compare(_sorts(a), _sorts(b)) for b in right(v) for a in left(v)))

    def _with_limit(self, of: Filter) -> Filter:
        """Return the filter whose values are counted."""
        limit = self._limit
        return lambda v: limit.of(of(v))

    def _postfix(self) -> Filter:
        jq_filter = self._term()
        while True:
            kind, text = self._peek()
            if kind == "field":
                self._next += 1
                jq_filter = _index_filter(jq_filter, _constant(text[1:]))
            elif self._accepts("?"):
                jq_filter = _tolerant(jq_filter)
            elif self._accepts("["):
                jq_filter = self._bracket(jq_filter)
            elif self._accepts("."):
                kind, text = self._peek()
                if text != "[" and kind != "text":
                    raise self._error()
                if kind == "text":
                    self._next += 1
                    jq_filter = _index_filter(jq_filter, _constant(_text(text)))
            else:
                return jq_filter

    def _bracket(self, of: Filter) -> Filter:
        if self._accepts("]"):
            return self._with_limit(lambda v: (out for each in of(v) for out in _each(each)))
        key = self._pipe()
        self._expects("]")
        return self._with_limit(_index_filter(of, key))

    def _term(self) -> Filter:
        kind, text = self._peek()
        self._next += 1
        if kind == "field":
            return _index_filter(_identity, _constant(text[1:]))
        if kind in ("text", "number"):
            return _constant(_text(text) if kind == "text" else _number(text))
        if text == ".":
            kind, text = self._peek()
            if kind != "text":
                return _identity
            self._next += 1
            return _index_filter(_identity, _constant(_text(text)))
        if text == "(":
            jq_filter = self._pipe()
            self._expects(")")
            return jq_filter
        if kind == "word":
            return self._function(text)
        self._next -= 1
        raise self._error()

    def _function(self, name: str) -> Filter:
        if name in ("true", "false", "null"):
            return _constant({"true": True, "false": False}.get(name))
        if name == "empty":
            return lambda _v: iter(())
        if name in _WITH_FILTER and self._accepts("("):
            argument = self._pipe()
            self._expects(")")
            return _call_filter(name, argument)
        plain = _PLAIN.get(name)
        if plain is None:
            raise JqError(f"{self._text!r}: function {name!r} is not supported")
        return lambda v: iter((plain(v),))


def _text(token: str) -> str:
    try:
        text: str = msgspec.json.decode(token, type=str)
    except UNREADABLE:
        raise JqError(f"{token} is no text") from None
    return text


def _number(token: str) -> int | float:
    """Return a number as it is written; one that is larger than any double is infinite."""
    return float(token) if "." in token or len(token) > DIGITS_MAX else int(token)


def _constant(value: Any) -> Filter:
    return lambda _v: iter((value,))


def _pipe_filters(left: Filter, right: Filter) -> Filter:
    return lambda v: (out for mid in left(v) for out in right(mid))


def _index_filter(of: Filter, key: Filter) -> Filter:
    return lambda v: (_at(each, k) for each in of(v) for k in key(v))


def _tolerant(of: Filter) -> Filter:
    def run(value: Any) -> Iterator[Any]:
        with suppress(JqError):
            yield from of(value)

    return run


def _both(left: Filter, right: Filter, word: str) -> Filter:
    def run(value: Any) -> Iterator[Any]:
        for each in left(value):
            if _is_true(each) == (word == "or"):
                yield word == "or"
            else:
                yield from (_is_true(other) for other in right(value))

    return run


def _call_filter(name: str, argument: Filter) -> Filter:
    match name:
        case "select":
            return lambda v: (v for each in argument(v) if _is_true(each))
        case "any" | "all":
            judge = any if name == "any" else all
            return lambda v: iter((judge(_is_true(o) for each in _each(v) for o in argument(each)),))

    def run(value: Any) -> Iterator[Any]:
        for part in argument(value):
            if not isinstance(value, str) or not isinstance(part, str):
                raise JqError(f"{name} wants texts")
            yield value.startswith(part) if name == "startswith" else value.endswith(part)

    return run
