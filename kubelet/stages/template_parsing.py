"""From the text of a Go template to its tree.

Read are: text, `{{ pipeline }}`, trim markers, comments, `if`, `with`, `range` with `else` and `else if`,
`define`, `template`, `break`, `continue`, variables that are declared and set, and nested pipelines.
`block` and character constants are not. Pure. Source: the language of Go's text/template.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import NamedTuple

from kubelet.stages.template_tree import (
    Action,
    Branch,
    Call,
    Field,
    Include,
    Leave,
    Literal,
    Nested,
    Node,
    Operand,
    Pipeline,
    TemplateError,
    Text,
    Variable,
)

_ACTION = re.compile(r"\{\{(-(?=\s))?(/\*.*?\*/|(?:`[^`]*`|\"(?:\\.|[^\"\\\n])*\"|[^`\"])*?)((?<=\s)-)?\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<text>"(?:\\.|[^"\\\n])*"|`[^`]*`)
      | (?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?))
      | (?P<variable>\$\w*)
      | (?P<field>\.[A-Za-z_]\w*)
      | (?P<dot>\.)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<sign>:=|[=|(),])""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", '"': '"', "'": "'"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)")
_WORDS = {"true": True, "false": False, "nil": None}


class _Token(NamedTuple):
    kind: str
    text: str
    glued: bool  # nothing between it and the token before


class _Piece(NamedTuple):
    """Text between actions (`tokens` None), or one action."""

    text: str
    tokens: tuple[_Token, ...] | None
    line: int


def parse(text: str, functions: Container[str]) -> tuple[tuple[Node, ...], dict[str, tuple[Node, ...]]]:
    """Return the tree and the trees it defines by name. Raises: TemplateError naming the line."""
    parser = _Parser(_pieces(text), functions)
    body, ended = parser.body(("",))
    if ended != "":
        raise TemplateError(f"line {parser.line}: unexpected {{{{{ended}}}}}")
    return body, parser.defined


def _pieces(text: str) -> list[_Piece]:
    found: list[_Piece] = []
    at, line, trims = 0, 1, False
    for match in _ACTION.finditer(text):
        before = text[at : match.start()]
        here = line + before.count("\n")
        kept = before.lstrip() if trims else before
        if match[1]:
            kept = kept.rstrip()
        if kept:
            found.append(_Piece(kept, None, line))
        if not match[2].startswith("/*"):
            found.append(_Piece("", tuple(_tokens(match[2], here)), here))
        line, at, trims = here + match[0].count("\n"), match.end(), bool(match[3])
    rest = text[at:]
    if "{{" in rest:
        raise TemplateError(f"line {line + rest[: rest.index('{{')].count(chr(10))}: unclosed action")
    kept = rest.lstrip() if trims else rest
    if kept:
        found.append(_Piece(kept, None, line))
    return found


def _tokens(text: str, line: int) -> list[_Token]:
    found: list[_Token] = []
    at, glued = 0, False
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise TemplateError(f"line {line}: unexpected {text[at:].strip()[:20]!r} in action")
        kind = str(match.lastgroup)
        if kind == "space":
            glued = False
        else:
            found.append(_Token(kind, match[0], glued))
            glued = True
        at = match.end()
    return found


def _unquoted(text: str) -> str:
    if text.startswith("`"):
        return text[1:-1]

    def meaning(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xuU":
            return chr(int(code[1:], 16))
        return chr(int(code, 8)) if code.isdigit() else _ESCAPES.get(code, code)

    return _ESCAPE.sub(meaning, text[1:-1])


def _number(text: str) -> int | float:
    try:
        return int(text, 0) if text.lstrip("+-").lower().startswith("0x") else int(text)
    except ValueError:
        return float(text)


class _Parser:
    def __init__(self, pieces: list[_Piece], functions: Container[str]) -> None:
        self._pieces, self._functions = pieces, functions
        self._next = 0
        self._tokens: tuple[_Token, ...] = ()
        self._at = 0
        self._loops = 0
        self.defined: dict[str, tuple[Node, ...]] = {}
        self.line = 1

    def _error(self, message: str) -> TemplateError:
        return TemplateError(f"line {self.line}: {message}")

    # --- text and actions ---

    def body(self, until: tuple[str, ...]) -> tuple[tuple[Node, ...], str]:
        """Return the nodes up to one of these words, and the word; "" is the end of the text."""
        nodes: list[Node] = []
        while self._next < len(self._pieces):
            piece = self._pieces[self._next]
            self._next += 1
            self.line = piece.line
            if piece.tokens is None:
                nodes.append(Text(piece.text))
                continue
            self._tokens, self._at = piece.tokens, 0
            word = piece.tokens[0].text if piece.tokens and piece.tokens[0].kind == "word" else ""
            if word in ("end", "else"):
                self._at = 1
                if word not in until:
                    raise self._error(f"unexpected {{{{{word}}}}}")
                if word == "end":
                    self._done()
                return tuple(nodes), word
            node = self._statement(word)
            if node is not None:
                nodes.append(node)
        if "" not in until:
            raise self._error("unexpected end of the template: an {{end}} is missing")
        return tuple(nodes), ""

    def _statement(self, word: str) -> Node | None:
        match word:
            case "if" | "with" | "range":
                self._at = 1
                return self._branch(word)
            case "define":
                self._at = 1
                name = self._name(word)
                self._done()
                self.defined[name] = self.body(("end",))[0]
                return None
            case "template":
                self._at = 1
                name = self._name(word)
                return Include(name, self._pipeline() if self._peek() else None, self.line)
            case "break" | "continue":
                self._at = 1
                self._done()
                if not self._loops:
                    raise self._error(f"{{{{{word}}}}} outside {{{{range}}}}")
                return Leave(word)
            case "block":
                raise self._error("{{block}} is not supported: use {{define}} and {{template}}")
        return Action(self._pipeline())

    def _branch(self, kind: str) -> Branch:
        pipeline = self._pipeline(loops=kind == "range")
        self._loops += kind == "range"
        body, ended = self.body(("end", "else"))
        self._loops -= kind == "range"
        otherwise: tuple[Node, ...] = ()
        if ended == "else":
            token = self._peek()
            if token is not None and token.text in ("if", "with"):
                # {{else if}} shares the {{end}} of what it continues.
                self._at += 1
                otherwise = (self._branch(token.text),)
            else:
                self._done()
                otherwise, _ = self.body(("end",))
        return Branch(kind, pipeline, body, otherwise)

    def _name(self, word: str) -> str:
        token = self._take()
        if token is None or token.kind != "text":
            raise self._error(f"{{{{{word}}}}} wants a name in quotes")
        return _unquoted(token.text)

    # --- pipelines ---

    def _peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self) -> _Token | None:
        token = self._peek()
        self._at += 1
        return token

    def _done(self) -> None:
        if (token := self._peek()) is not None:
            raise self._error(f"unexpected {token.text!r} in action")

    def _pipeline(self, *, loops: bool = False) -> Pipeline:
        line = self.line
        variables, declares = self._declared(loops)
        commands = self._commands()
        self._done()
        return Pipeline(commands, line, variables, declares)

    def _declared(self, loops: bool) -> tuple[tuple[str, ...], bool]:
        rest = self._tokens[self._at :]
        for count in (1, 2) if loops else (1,):
            signs = rest[2 * count - 1 : 2 * count]
            names = rest[0 : 2 * count : 2]
            if (
                signs
                and signs[0].text in (":=", "=")
                and all(n.kind == "variable" for n in names)
                and (count == 1 or rest[1].text == ",")
            ):
                self._at += 2 * count
                return tuple(n.text for n in names), signs[0].text == ":="
        return (), True

    def _commands(self) -> tuple[tuple[Operand, ...], ...]:
        commands = [self._command()]
        while (token := self._peek()) is not None and token.text == "|" and token.kind == "sign":
            self._at += 1
            commands.append(self._command())
            if not isinstance(commands[-1][0], Call):
                raise self._error("after | comes a function")
        return tuple(commands)

    def _command(self) -> tuple[Operand, ...]:
        operands: list[Operand] = []
        while (token := self._peek()) is not None and not (token.kind == "sign" and token.text in "|)"):
            operands.append(self._operand())
        if not operands:
            raise self._error("a value is missing")
        if len(operands) > 1 and not isinstance(operands[0], Call):
            raise self._error("arguments of what is no function")
        return tuple(operands)

    def _operand(self) -> Operand:
        token = self._take()
        assert token is not None
        match token.kind:
            case "text":
                return Literal(_unquoted(token.text))
            case "number":
                return Literal(_number(token.text))
            case "dot":
                return Field(())
            case "field":
                return Field((token.text[1:], *self._names()))
            case "variable":
                return Variable(token.text, self._names())
            case "word" if token.text in _WORDS:
                return Literal(_WORDS[token.text])
            case "word":
                if token.text not in self._functions:
                    raise self._error(f"function {token.text!r} is not supported")
                return Call(token.text)
        if token.text != "(":
            raise self._error(f"unexpected {token.text!r} in action")
        line = self.line
        commands = self._commands()
        closing = self._take()
        if closing is None or closing.text != ")":
            raise self._error("a ) is missing")
        return Nested(Pipeline(commands, line), self._names())

    def _names(self) -> tuple[str, ...]:
        """Return the `.a.b` that is glued to what was just read."""
        names: list[str] = []
        while (token := self._peek()) is not None and token.kind == "field" and token.glued:
            names.append(token.text[1:])
            self._at += 1
        return tuple(names)
