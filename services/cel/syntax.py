"""Parser from the text of an expression to its tree, macros expanded. Pure.

The grammar is that of the CEL language definition, with optional syntax (`.?`, `[?]`, `{?k: v}`) and
identifiers in back quotes. Messages are those of cel-go's parser, as the API server shows them.

Source: google/cel-spec doc/langdef.md, "Syntax"; google/cel-go parser/gen/CEL.g4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from services.cel.values import Uint, whole

DEPTH_MAX, NESTED_MAX = 120, 60
"""Maximum depth of a tree, and of open brackets. cel-go's parser ends at 250; chains of `&&` and `||` are
balanced and may be long.
"""


@dataclass(slots=True)
class Issue:
    """One reason why an expression is invalid, at an offset of the text."""

    at: int
    message: str


class CompileError(ValueError):
    """Error: the expression cannot be compiled; the text lists every reason with its place, as the API server shows
    them.
    """

    def __init__(self, source: str, issues: list[Issue]) -> None:
        self.issues = sorted(issues, key=lambda issue: issue.at)
        super().__init__("\n".join(_issue_text(source, issue) for issue in self.issues))


def _issue_text(source: str, issue: Issue) -> str:
    line = source.count("\n", 0, issue.at)
    start = source.rfind("\n", 0, issue.at) + 1
    column = issue.at - start
    text = source[start:].partition("\n")[0].replace("\t", " ")
    if not source:
        return f"ERROR: <input>:1:0: {issue.message}"
    dots = "".join("．" if ord(each) > 127 else "." for each in text[:column])  # as wide as what it stands under
    sign = "＾" if column < len(text) and ord(text[column]) > 127 else "^"
    return f"ERROR: <input>:{line + 1}:{column + 1}: {issue.message}\n | {text}\n | {dots}{sign}"


@dataclass(slots=True, eq=False)
class Node:
    """A part of the tree at an offset of the text. `depth`: number of nodes on the longest path to a leaf."""

    at: int
    depth: int = field(default=1, init=False)


@dataclass(slots=True, eq=False)
class Literal(Node):
    """A literal value."""

    value: Any


@dataclass(slots=True, eq=False)
class Ident(Node):
    """A variable, or the name of a type."""

    name: str


@dataclass(slots=True, eq=False)
class Select(Node):
    """A field selection `operand.field`; with `test`, a check that the field exists (`has`)."""

    operand: Node
    field: str
    test: bool = False


@dataclass(slots=True, eq=False)
class Call(Node):
    """A call, `function(args)` or `target.function(args)`. Operators are functions with cel-go's names, such as
    `_+_`.
    """

    function: str
    args: list[Node]
    target: Node | None = None


@dataclass(slots=True, eq=False)
class ListOf(Node):
    """A list; `optional` has the indexes of items whose value may be absent."""

    items: list[Node]
    optional: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class MapOf(Node):
    """A map; an entry is key, value, and whether the value may be absent."""

    entries: list[tuple[Node, Node, bool]]


@dataclass(slots=True, eq=False)
class ObjectOf(Node):
    """A message `name{field: value}`; `colons`: the offset of each field's colon."""

    name: str
    fields: list[tuple[str, Node, bool]]
    colons: list[int]


@dataclass(slots=True, eq=False)
class Fold(Node):
    """A comprehension: `accu` begins as `init`; for each item, while `condition` holds, it becomes `step`.

    The value is `result`. With `second`, `first` is the index or key. `bind`: no loop, `accu` is a name for `init`.
    """

    over: Node
    first: str
    second: str
    accu: str
    init: Node
    condition: Node
    step: Node
    result: Node
    bind: bool = False


N = TypeVar("N", bound=Node)
Macro = Callable[["Parser", int, Node | None, list[Node]], Node | None]
Macros = Mapping[tuple[str, int, bool], Macro]
"""Macros by name, number of arguments, and whether they have a target.

A macro returns None if it does not apply to the target; the expression is then an ordinary call.
"""

_SPACE: Final = re.compile(r"(?:[\t\n\f\r ]+|//[^\n]*)*")
_ESCAPE: Final = r"""\\(?:[abfnrtv"'`\\?]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7][0-7])"""
_TEXT: Final = (
    r'[rR](?:"""(?s:.)*?"""|' + r"'''(?s:.)*?'''" + r"""|"[^"\n\r]*"|'[^'\n\r]*')"""
    r'|"""(?:[^\\"]|"(?!"")|' + _ESCAPE + r')*"""'
    r"|'''(?:[^\\']|'(?!'')|" + _ESCAPE + r")*'''"
    r'|"(?:[^\\"\n\r]|' + _ESCAPE + r')*"'
    r"|'(?:[^\\'\n\r]|" + _ESCAPE + r")*'"
)
_TOKEN: Final = re.compile(
    r"(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)"
    r"|(?P<uint>0x[0-9a-fA-F]+[uU]|\d+[uU])|(?P<int>0x[0-9a-fA-F]+|\d+)"
    rf"|(?P<bytes>[bB](?:{_TEXT}))|(?P<text>{_TEXT})"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<quoted>`[A-Za-z0-9_.\-/ ]+`)"
    r"|(?P<sign>\|\||&&|==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])"
)
_PART: Final = r"(?:\\(?:[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|[0-3][0-7]?|)[^\n\r]?)?"
_UNFINISHED: Final = re.compile(
    r"""[rR]?"(?:[^\\"\n\r]|""" + _ESCAPE + ")*" + _PART + r"""|[rR]?'(?:[^\\'\n\r]|""" + _ESCAPE + ")*" + _PART
)
RESERVED: Final = frozenset(
    (
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    )
)
_STARTS: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
_STARTS_OPTIONAL: Final = _STARTS.replace("'!', ", "'!', '?', ")
_STARTS_OR_CLOSE: Final = _STARTS.replace("'(', ", "'(', ')', ")
_LEVELS: Final[tuple[frozenset[str], ...]] = (
    frozenset(("==", "!=", "<", "<=", ">", ">=", "in")),
    frozenset(("+", "-")),
    frozenset(("*", "/", "%")),
)
_SIMPLE: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    '"': '"',
    "'": "'",
    "`": "`",
    "\\": "\\",
    "?": "?",
}


@dataclass(slots=True)
class _Token:
    kind: str
    text: str
    at: int


def parse(text: str, macros: Macros) -> Node:
    """Return the tree. Raises: CompileError."""
    parser = Parser(text, macros)
    try:
        node = parser.whole()
    except _End:
        raise CompileError(text, parser.issues) from None
    if parser.issues:
        raise CompileError(text, parser.issues)
    return node


class _End(Exception):
    """Signal that parsing cannot continue; the reason is among the issues."""


class Parser:
    """Recursive-descent parser with one token of lookahead. Methods that macros use to make nodes are public."""

    def __init__(self, text: str, macros: Macros) -> None:
        self._text = text
        self._macros = macros
        self.issues: list[Issue] = []
        self._tokens = list(self._read())
        self._place = 0
        self._now = self._tokens[0]
        self._open = 0

    def whole(self) -> Node:
        """Return the tree of the whole text."""
        node = self._expression()
        while self._now.kind != "end":
            word = "extraneous" if self._next_kind() == "end" else "mismatched"
            self.fail(self._now.at, f"Syntax error: {word} input '{self._now.text}' expecting <EOF>")
            if word == "mismatched":
                raise _End
            self._step()
        return node

    def fail(self, at: int, message: str) -> None:
        """Record an issue: a reason why the expression is not valid."""
        self.issues.append(Issue(at, message))

    def check_depth(self, node: N, *children: Node | None) -> N:
        """Return the node with its depth set. Raises: when the tree grows too deep."""
        node.depth = 1 + max((child.depth for child in children if child is not None), default=0)
        if node.depth > DEPTH_MAX:
            self.fail(node.at, f"expression recursion limit exceeded: {DEPTH_MAX}")
            raise _End
        return node

    def call(self, at: int, function: str, *args: Node, target: Node | None = None) -> Call:
        """Return a call."""
        return self.check_depth(Call(at, function, list(args), target), target, *args)

    def _read(self) -> list[_Token]:
        tokens: list[_Token] = []
        text, at = self._text, 0
        while True:
            space = _SPACE.match(text, at)
            at = space.end() if space else at
            if at >= len(text):
                tokens.append(_Token("end", "<EOF>", len(text)))
                return tokens
            match = _TOKEN.match(text, at)
            if match is None:
                wrong = _UNFINISHED.match(text, at)
                size = len(wrong[0]) if wrong else 2 if text[at] in "=&|" else 1
                seen = text[at : at + size].replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
                self.issues.append(Issue(at, f"Syntax error: token recognition error at: '{seen}'"))
                at += size
            else:
                tokens.append(_Token(match.lastgroup or "", match[0], at))
                at = match.end()

    def _step(self) -> _Token:
        token = self._now
        if token.kind != "end":
            self._place += 1
            self._now = self._tokens[self._place]
        return token

    def _next_kind(self) -> str:
        return self._tokens[min(self._place + 1, len(self._tokens) - 1)].kind

    def _is(self, *texts: str) -> bool:
        return self._now.kind in ("sign", "word") and self._now.text in texts

    def _takes(self, *texts: str) -> _Token | None:
        return self._step() if self._is(*texts) else None

    def _wants(self, sign: str, expected: str = "") -> None:
        if self._takes(sign):
            return
        now = self._now
        if not expected and sign == ")" and now.kind == "end":
            self.fail(now.at, f"Syntax error: missing '{sign}' at '{now.text}'")
        else:
            self.fail(now.at, f"Syntax error: mismatched input '{now.text}' expecting {expected or repr(sign)}")
        raise _End

    def _expression(self) -> Node:
        self._open += 1
        if self._open > NESTED_MAX:
            self.fail(self._now.at, f"expression recursion limit exceeded: {NESTED_MAX}")
            raise _End
        node = self._logic("||", "_||_")
        if token := self._takes("?"):
            yes = self._logic("||", "_||_")
            self._wants(":")
            no = self._expression()
            node = self.call(token.at, "_?_:_", node, yes, no)
        self._open -= 1
        return node

    def _logic(self, sign: str, function: str) -> Node:
        """Read a chain of `||`, or of `&&`; it becomes a balanced tree, for both are associative."""
        terms, places = [self._logic("&&", "_&&_") if sign == "||" else self._binary(0)], []
        while token := self._takes(sign):
            places.append(token.at)
            terms.append(self._logic("&&", "_&&_") if sign == "||" else self._binary(0))

        def tree(low: int, high: int) -> Node:
            if low == high:
                return terms[low]
            middle = (low + high) // 2
            return self.call(places[middle], function, tree(low, middle), tree(middle + 1, high))

        return tree(0, len(terms) - 1)

    def _binary(self, level: int) -> Node:
        """Read operands and the operators between them that bind at this level or tighter."""
        node = self._unary()
        while True:
            operator_level = next((i for i, signs in enumerate(_LEVELS) if i >= level and self._is(*signs)), None)
            if operator_level is None:
                return node
            token = self._step()
            right = self._binary(operator_level + 1)
            node = self.call(token.at, "@in" if token.text == "in" else f"_{token.text}_", node, right)

    def _unary(self) -> Node:
        if not self._is("!", "-"):
            return self._member()
        first = self._now
        signs = 0
        while self._is(first.text):
            self._step()
            signs += 1
        if first.text == "!" and self._is("-") and self._next_kind() in ("int", "float"):
            minus = self._step()
            node = self._member(minus)
            return self.call(first.at, "!_", node) if signs % 2 else node
        if first.text == "-" and self._is("!"):
            start = self._tokens[self._place - 1].at
            self.fail(
                self._now.at, f"Syntax error: no viable alternative at input '{self._text[start : self._now.at + 1]}'"
            )
            raise _End
        if first.text == "-" and signs % 2 and self._now.kind in ("int", "float"):
            return self._member(first)
        node = self._member()
        return self.call(first.at, f"{first.text}_", node) if signs % 2 else node

    def _member(self, minus: _Token | None = None) -> Node:
        node = self._primary(minus)
        while True:
            if dot := self._takes("."):
                optional = self._takes("?")
                name = self._field(dot)
                if optional:
                    node = self.call(dot.at, "_?._", node, Literal(self._now.at, name))
                elif opened := self._takes("("):
                    node = self._call_or_macro(opened.at, name, node, self._arguments())
                else:
                    node = self.check_depth(Select(dot.at, node, name), node)
            elif opened := self._takes("["):
                optional = self._takes("?")
                key = self._index()
                self._wants("]")
                node = self.call(opened.at, "_[?_]" if optional else "_[_]", node, key)
            else:
                return node

    def _index(self) -> Node:
        if self._now.kind == "end" or self._is("]"):
            self.fail(self._now.at, f"Syntax error: mismatched input '{self._now.text}' expecting {_STARTS_OPTIONAL}")
            raise _End
        return self._expression()

    def _field(self, dot: _Token) -> str:
        token = self._now
        if token.kind == "quoted":
            return self._step().text[1:-1]
        if token.kind == "word" and token.text not in ("true", "false", "null", "in"):
            return self._step().text
        end = token.at + (len(token.text) if token.kind != "end" else 0)
        self.fail(token.at, f"Syntax error: no viable alternative at input '{self._text[dot.at : end].rstrip()}'")
        raise _End

    def _arguments(self) -> list[Node]:
        arguments: list[Node] = []
        if self._takes(")"):
            return arguments
        if self._now.kind == "end":
            self.fail(self._now.at, f"Syntax error: mismatched input '<EOF>' expecting {_STARTS_OR_CLOSE}")
            raise _End
        while True:
            arguments.append(self._expression())
            if not self._takes(","):
                self._wants(")")
                return arguments

    def _call_or_macro(self, at: int, name: str, target: Node | None, args: list[Node]) -> Node:
        macro = self._macros.get((name, len(args), target is not None))
        if macro is not None:
            expanded = macro(self, at, target, args)
            if expanded is not None:
                return expanded
        return self.call(at, name, *args, target=target)

    def _primary(self, minus: _Token | None = None) -> Node:
        token = self._now
        at = minus.at if minus else token.at
        match token.kind:
            case "int" | "uint":
                return Literal(at, self._number(self._step(), minus is not None))
            case "float":
                value = float(self._step().text)
                return Literal(at, -value if minus else value)
            case "text":
                return Literal(at, self._unquote(self._step()))
            case "bytes":
                return Literal(at, self._bytes(self._step()))
            case "word" if token.text in ("true", "false", "null"):
                self._step()
                return Literal(at, {"true": True, "false": False, "null": None}[token.text])
            case "word" if token.text != "in":
                return self._name()
        if self._takes("("):
            node = self._expression()
            self._wants(")")
            return node
        if self._takes("["):
            return self._list(at)
        if self._takes("{"):
            return self._map(at)
        if self._is(".") and self._next_kind() == "word":
            self._step()
            return self._name(".")
        word = "mismatched" if token.kind == "end" or self._next_kind() == "end" else "extraneous"
        if self._is(")", "]", "}"):
            word = "mismatched"
        self.fail(token.at, f"Syntax error: {word} input '{token.text}' expecting {_STARTS}")
        raise _End

    def _name(self, prefix: str = "") -> Node:
        token = self._step()
        if token.text in RESERVED:
            self.fail(token.at, f"reserved identifier: {token.text}")
        if opened := self._takes("("):
            return self._call_or_macro(opened.at, prefix + token.text, None, self._arguments())
        node: Node = Ident(token.at, prefix + token.text)
        if self._begins_object():
            names = [prefix + token.text]
            while self._takes("."):
                names.append(self._step().text)
            return self._object(".".join(names))
        return node

    def _begins_object(self) -> bool:
        place = self._place
        while self._tokens[place].text == "." and self._tokens[place + 1].kind == "word":
            place += 2
        return self._tokens[place].kind == "sign" and self._tokens[place].text == "{"

    def _object(self, name: str) -> Node:
        at = self._step().at
        fields: list[tuple[str, Node, bool]] = []
        colons: list[int] = []
        while not self._takes("}"):
            optional = self._takes("?") is not None
            key = self._step().text.strip("`")
            colons.append(self._now.at)
            self._wants(":")
            fields.append((key, self._expression(), optional))
            if not self._takes(","):
                self._wants("}", "{'}', ','}")
                break
        return self.check_depth(ObjectOf(at, name, fields, colons), *(value for _, value, _ in fields))

    def _list(self, at: int) -> Node:
        items: list[Node] = []
        optional: set[int] = set()
        self._takes(",")
        while not self._takes("]"):
            if self._takes("?"):
                optional.add(len(items))
            items.append(self._expression())
            if not self._takes(","):
                self._wants("]", "{']', ','}")
                break
        return self.check_depth(ListOf(at, items, frozenset(optional)), *items)

    def _map(self, at: int) -> Node:
        entries: list[tuple[Node, Node, bool]] = []
        self._takes(",")
        while not self._takes("}"):
            optional = self._takes("?") is not None
            key = self._expression()
            self._wants(":")
            entries.append((key, self._expression(), optional))
            if not self._takes(","):
                self._wants("}", "{'}', ','}")
                break
        return self.check_depth(MapOf(at, entries), *(each for entry in entries for each in entry[:2]))

    def _number(self, token: _Token, negative: bool) -> int | Uint:
        text = token.text.rstrip("uU") if token.kind == "uint" else token.text
        value = int(text, 16) if text.startswith("0x") else whole(text)
        if token.kind == "uint":
            if value >= 2**64:
                self.fail(token.at, "invalid uint literal")
            return Uint(value)
        value = -value if negative else value
        if not -(2**63) <= value < 2**63:
            self.fail(token.at, "invalid int literal")
        return value

    def _unquote(self, token: _Token) -> str:
        text = token.text
        if text[0] in "rR":
            return text[4:-3] if text[1:4] in ('"""', "'''") else text[2:-1]
        body = (text[3:-3] if text[:3] in ('"""', "'''") else text[1:-1]).replace("\r\n", "\n").replace("\r", "\n")
        if "\\" not in body:
            return body
        try:
            return re.sub(_ESCAPE, _character, body)
        except ValueError as error:
            self.fail(token.at, str(error))
            return ""

    def _bytes(self, token: _Token) -> bytes:
        text = token.text[1:]
        if text[0] in "rR":
            return self._unquote(_Token("text", text, token.at)).encode()
        body = text[3:-3] if text[:3] in ('"""', "'''") else text[1:-1]
        content = bytearray()
        at = 0
        for match in re.finditer(_ESCAPE, body):
            content += body[at : match.start()].encode()
            at = match.end()
            code = match[0][1:]
            if code[0] in "uU":
                self.fail(token.at, "unable to unescape string")
                return b""
            if code[0] in "xX":
                content.append(int(code[1:], 16))
            elif code[0] in "0123":
                content.append(int(code, 8))
            else:
                content += _SIMPLE[code].encode()
        return bytes(content + body[at:].encode())


def _character(match: re.Match[str]) -> str:
    code = match[0][1:]
    if code in _SIMPLE:
        return _SIMPLE[code]
    value = int(code[1:], 16) if code[0] in "xXuU" else int(code, 8)
    if 0xD800 <= value < 0xE000 or value > 0x10FFFF:
        raise ValueError("invalid unicode code point")
    return chr(value)
