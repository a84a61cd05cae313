"""From the text of an expression to its tree. Pure.

The grammar is that of the CEL specification without arithmetic, messages, maps, and macros other than `has`; what
is left out is refused with its name and place, never read as something else.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

TEXT_MAX, DEPTH_MAX, STEPS_MAX = 10 * 1024, 32, 200


class ParseError(ValueError):
    """The expression is not one, or not one of those that can be evaluated here."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A value as it stands: text, a whole number, true or false."""

    value: str | int | bool


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of values."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Name:
    """A variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`of.field`."""

    of: Node
    field: str


@dataclass(frozen=True, slots=True)
class Index:
    """`of[key]`."""

    of: Node
    key: Node


@dataclass(frozen=True, slots=True)
class Call:
    """`name(args)`, or `of.name(args)`. Operators are calls of their own sign; `?:` has three arguments."""

    name: str
    args: tuple[Node, ...]
    of: Node | None = None


Node = Literal | ListOf | Name | Select | Index | Call

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<int>\d+)(?![\w.])|(?P<word>[A-Za-z_]\w*)|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<sign>\|\||&&|==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])|(?P<end>\Z))"""
)
RELATIONS: Final = ("==", "!=", "<", "<=", ">", ">=", "in")
_BINARY: Final = (("||",), ("&&",), RELATIONS)
_RESERVED: Final = frozenset((
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package",
    "namespace", "return", "var", "void", "while", "null",
))  # fmt: skip


def parse(text: str) -> Node:
    """Return the tree. Raises: ParseError naming what cannot be read, and where."""
    if len(text.encode()) > TEXT_MAX:
        raise ParseError(f"must be at most {TEXT_MAX} bytes long")
    return _Parser(text).whole()


class _Parser:
    """Recursive descent, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._steps = 0
        self._kind, self._token, self._place = "", "", 0
        self._next()

    def whole(self) -> Node:
        node = self._conditional()
        if self._kind != "end":
            raise self._unexpected()
        return node

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            rest = self._text[self._at :].lstrip()
            raise ParseError(f"column {len(self._text) - len(rest) + 1}: cannot read {rest[:16]!r}")
        self._kind = match.lastgroup or ""
        self._token = match[self._kind]
        self._place = match.start(self._kind)
        self._at = match.end()

    def _step(self) -> None:
        """Count an operator, call or field: the tree is walked by recursion, so it may not grow without end."""
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise ParseError(f"has more than {STEPS_MAX} operators, calls and fields")

    def _unexpected(self) -> ParseError:
        found = "the end" if self._kind == "end" else repr(self._token)
        return ParseError(f"column {self._place + 1}: unexpected {found}")

    def _takes(self, *signs: str) -> str:
        if self._kind in ("sign", "word") and self._token in signs:
            found = self._token
            self._next()
            return found
        return ""

    def _wants(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._unexpected()

    def _conditional(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ParseError(f"column {self._place + 1}: nested deeper than {DEPTH_MAX}")
        node = self._binary()
        if self._takes("?"):
            yes = self._binary()
            self._wants(":")
            node = Call("?:", (node, yes, self._conditional()))
        self._depth -= 1
        return node

    def _binary(self, level: int = 0) -> Node:
        """Read operands with the operators between them that bind no tighter than those of this level."""
        if level == len(_BINARY):
            return self._unary()
        node = self._binary(level + 1)
        while sign := self._takes(*_BINARY[level]):
            self._step()
            node = Call(sign, (node, self._binary(level + 1)))
        if self._kind == "sign" and self._token in "+-*/%":
            raise ParseError(f"column {self._place + 1}: arithmetic ({self._token}) is not supported by this server")
        return node

    def _unary(self) -> Node:
        signs = 0
        while self._takes("!"):
            self._step()
            signs += 1
        if signs:
            node = self._member()
            for _ in range(signs):
                node = Call("!", (node,))
            return node
        if self._takes("-"):
            if self._kind != "int":
                raise ParseError(f"column {self._place}: arithmetic (-) is not supported by this server")
            value = -int(self._token)
            self._next()
            return _whole(value)
        return self._member()

    def _member(self) -> Node:
        node = self._primary()
        while True:
            if self._takes("."):
                if self._takes("?"):
                    raise ParseError(f"column {self._place}: optional fields (.?) are not supported by this server")
                if self._kind != "word":
                    raise self._unexpected()
                name = self._token
                self._step()
                self._next()
                node = Call(name, self._until(")"), node) if self._takes("(") else Select(node, name)
            elif self._takes("["):
                self._step()
                key = self._conditional()
                self._wants("]")
                node = Index(node, key)
            else:
                return node

    def _until(self, end: str) -> tuple[Node, ...]:
        found: list[Node] = []
        while not self._takes(end):
            if found:
                self._wants(",")
            found.append(self._conditional())
        return tuple(found)

    def _primary(self) -> Node:
        kind, token = self._kind, self._token
        match kind:
            case "int":
                self._next()
                return _whole(int(token))
            case "text":
                self._next()
                return Literal(_unquoted(token))
            case "word" if token in ("true", "false"):
                self._next()
                return Literal(token == "true")
            case "word" if token not in _RESERVED and token not in RELATIONS:
                self._next()
                return Call(token, self._until(")")) if self._takes("(") else Name(token)
        if self._takes("("):
            node = self._conditional()
            self._wants(")")
            return node
        if self._takes("["):
            return ListOf(self._until("]"))
        raise self._unexpected()


def _whole(value: int) -> Literal:
    if not -(2**63) <= value < 2**63:
        raise ParseError(f"{value} is beyond 64 bits")
    return Literal(value)


def _unquoted(token: str) -> str:
    inside = token[1:-1]
    if token[0] == "'":
        inside = inside.replace("\\'", "'").replace('"', '\\"')
    try:
        return str(json.loads(f'"{inside}"'))
    except ValueError:
        raise ParseError(f"{token}: this escape is not supported by this server") from None
