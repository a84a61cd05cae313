"""Templates that are rendered with an object, as text, or as the JSON value of that text read as YAML. Pure.

Supported are: text, `{{ pipeline }}`, trim markers, comments, `if`, `with`, `range` with `else` and `else if`,
`define`, `template`, `break`, `continue`, variables that are declared and set, and nested pipelines. `block`
and character constants are not. Each template is compiled once, into functions of the run and the dot. Missing
fields are nil and print as `<no value>`; a field of nil is an error, as in Go.
Source: kubernetes-sigs/kwok, `pkg/utils/gotpl/renderer.go`; the language of Go's text/template.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from services.api.documents import yaml_text
from services.cel import faults
from services.kwok.stages.template_functions import COUNT_MAX, FUNCTIONS, NAMES, Context, Function, value_text, weight

DEPTH_MAX = 50
"""Maximum depth of templates that include each other, and of brackets and blocks; beyond it recursion counts as
endless.
"""
WORK_MAX = 1_000_000
"""Work limit of one rendering: each step counts one, each result of a function its weight. No loop is endless."""

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


class TemplateError(ValueError):
    """Error: a template cannot be parsed, or not be rendered with this object; the message names the line."""


class Dialect(NamedTuple):
    """Functions that templates may call, and the output format of values.

    `functions` are fixed; further names are answered by a `Context`. `written` formats the value of an action.
    """

    functions: Mapping[str, Function]
    names: frozenset[str]
    written: Callable[[Any], str]


STAGES = Dialect(FUNCTIONS, NAMES, value_text)
"""The dialect of KWOK's Stages."""
NO_CONTEXT = Context("")


class Template:
    """A parsed template; equal objects and contexts give equal results."""

    def __init__(self, text: str, names: frozenset[str] = frozenset(), dialect: Dialect = STAGES) -> None:
        """Parse the text. `names`: functions that the context answers besides those of the dialect. Raises:
        TemplateError naming the line.
        """
        self.text = text
        self._dialect = dialect
        parser = _Parser(_pieces(text.strip()), dialect, dialect.names | names)
        self._body, ended = parser.body(("",))
        if ended != "":
            raise TemplateError(f"line {parser.line}: unexpected {{{{{ended}}}}}")
        self._defined = parser.defined

    def fill(self, given: Any, context: Context = NO_CONTEXT) -> str:
        """Return the text for this object. Raises: TemplateError naming the line."""
        run = _Run(given, self._defined, {**self._dialect.functions, **context.functions()})
        try:
            run.nodes(self._body, given)
        except TemplateError:
            raise
        except Exception as error:
            raise self._internal(error) from error
        return "".join(run.out)

    def fill_yaml(self, given: Any, context: Context) -> Any:
        """Return the rendered text parsed as YAML. Raises: TemplateError if it is not valid YAML."""
        text = self.fill(given, context)
        try:
            content = yaml_text.load(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise TemplateError(f"what it gives is no YAML: {error}") from None
        try:
            msgspec.json.encode(content)
            return content
        except (TypeError, ValueError, RecursionError) as error:  # a key may be null, or a list
            raise TemplateError(f"what it gives cannot be JSON: {error}") from None
        except Exception as error:
            raise self._internal(error) from error

    def _internal(self, error: Exception) -> TemplateError:
        """Report the exception and return the error that the filling ends with."""
        faults.report(f"the template {self.text}", error)
        return TemplateError(f"internal error: {faults.fault_text(error)}")


class _LoopExit(Exception):
    """A `break` or `continue`, which is its argument, on its way to its `range`."""


class _Run:
    """One rendering. `variables`: the visible ones, innermost last; `$` is the first."""

    def __init__(self, given: Any, defined: Mapping[str, Body], functions: Mapping[str, Function]) -> None:
        self.out: list[str] = []
        self.functions = functions
        self.variables: list[tuple[str, Any]] = [("$", given)]
        self._defined = defined
        self._depth = 0
        self._left = WORK_MAX

    def spend(self, work: int) -> None:
        """Take it off what this filling may take. Raises: TemplateError when nothing is left."""
        self._left -= work
        if self._left < 0:
            raise TemplateError(f"it takes more than {WORK_MAX} steps")

    def nodes(self, body: Body, dot: Any) -> None:
        """Add what these give to `out`; variables they declare end with them."""
        mark = len(self.variables)
        try:
            for node in body:
                self.spend(1)
                node(self, dot)
        finally:
            del self.variables[mark:]

    def include(self, name: str, value: Any, line: int) -> None:
        """Add what a defined template gives; it sees no variable but its own `$`."""
        body = self._defined.get(name)
        if body is None:
            raise TemplateError(f"line {line}: template {name!r} is not defined")
        if self._depth >= DEPTH_MAX:
            raise TemplateError(f"line {line}: templates include each other without end")
        outer, self.variables = self.variables, [("$", value)]
        self._depth += 1
        try:
            self.nodes(body, value)
        finally:
            self.variables = outer
            self._depth -= 1

    def variable(self, name: str) -> Any:
        """Return the innermost variable of that name."""
        for known, value in reversed(self.variables):
            if known == name:
                return value
        raise TemplateError(f"variable {name} is not declared")

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        """Return what a function gives. Raises: TemplateError: what a function raises is due to its arguments."""
        try:
            output = self.functions[name](*arguments)
        except Exception as error:
            raise TemplateError(f"{name}: {faults.fault_text(error) if not str(error) else error}") from None
        self.spend(weight(output))
        return output


Node = Callable[[_Run, Any], object]
"""Function that appends to the run's text, given the dot; its result is not used."""
Body = tuple[Node, ...]
Value = Callable[[_Run, Any], Any]
_Command = Callable[[_Run, Any, tuple[Any, ...]], Any]
"""Function of a command; the last argument has the piped value, if any."""


@dataclass(frozen=True)
class _Pipeline:
    """A pipeline `$x, $y := command | command`; with `=` instead of `:=` it declares nothing."""

    value: Value
    line: int
    variables: tuple[str, ...]
    declares: bool

    def set(self, run: _Run, name: str, value: Any) -> None:
        """Declare the variable, or set the innermost one of that name."""
        if self.declares:
            run.variables.append((name, value))
            return
        for i in range(len(run.variables) - 1, -1, -1):
            if run.variables[i][0] == name:
                run.variables[i] = (name, value)
                return
        raise TemplateError(f"line {self.line}: variable {name} is not declared")

    def __call__(self, run: _Run, dot: Any) -> Any:
        """Return what the last command gives; the variable, if there is one, has it then."""
        value = self.value(run, dot)
        if self.variables:
            self.set(run, self.variables[0], value)
        return value


def _pieces(text: str) -> list[_Piece]:
    pieces: list[_Piece] = []
    at, line, trims = 0, 1, False
    for match in _ACTION.finditer(text):
        before = text[at : match.start()]
        here = line + before.count("\n")
        kept = before.lstrip() if trims else before
        if match[1]:
            kept = kept.rstrip()
        if kept:
            pieces.append(_Piece(kept, None, line))
        if not match[2].startswith("/*"):
            pieces.append(_Piece("", tuple(_tokens(match[2], here)), here))
        line, at, trims = here + match[0].count("\n"), match.end(), bool(match[3])
    rest = text[at:]
    if "{{" in rest:
        raise TemplateError(f"line {line + rest[: rest.index('{{')].count(chr(10))}: unclosed action")
    kept = rest.lstrip() if trims else rest
    if kept:
        pieces.append(_Piece(kept, None, line))
    return pieces


def _tokens(text: str, line: int) -> list[_Token]:
    tokens: list[_Token] = []
    at, glued = 0, False
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise TemplateError(f"line {line}: unexpected {text[at:].strip()[:20]!r} in action")
        kind = str(match.lastgroup)
        if kind != "space":
            tokens.append(_Token(kind, match[0], glued))
        at, glued = match.end(), kind != "space"
    return tokens


def _unquote(text: str) -> str:
    if text.startswith("`"):
        return text[1:-1]

    def meaning(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xuU" and len(code) > 1:
            number = int(code[1:], 16)
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise TemplateError(f"{text}: {match[0]} is no character")
            return chr(number)
        return chr(int(code, 8)) if re.fullmatch("[0-7]{3}", code) else _ESCAPES.get(code, code)

    return _ESCAPE.sub(meaning, text[1:-1])


def _number(text: str) -> int | float:
    try:
        return int(text, 0) if text.lstrip("+-").lower().startswith("0x") else int(text)
    except ValueError:  # digits behind a point, an exponent, or too many digits
        return float(text)


class _Parser:
    def __init__(self, pieces: list[_Piece], dialect: Dialect, names: frozenset[str]) -> None:
        self._pieces, self._dialect, self._functions = pieces, dialect, names
        self._next = 0
        self._tokens: tuple[_Token, ...] = ()
        self._at = 0
        self._loops = 0
        self._open = 0
        self.defined: dict[str, Body] = {}
        self.line = 1

    def _error(self, message: str) -> TemplateError:
        return TemplateError(f"line {self.line}: {message}")

    # --- text and actions ---

    def body(self, until: tuple[str, ...]) -> tuple[Body, str]:
        """Return the nodes up to one of these words, and the word; "" is the end of the text."""
        nodes: list[Node] = []
        while self._next < len(self._pieces):
            piece = self._pieces[self._next]
            self._next += 1
            self.line = piece.line
            if piece.tokens is None:
                nodes.append(_text_node(piece.text))
                continue
            self._tokens, self._at = piece.tokens, 0
            word = piece.tokens[0].text if piece.tokens and piece.tokens[0].kind == "word" else ""
            if word in ("end", "else"):
                self._at = 1
                if word not in until:
                    raise self._error(f"unexpected {{{{{word}}}}}")
                if word == "end":
                    self._expect_end()
                return tuple(nodes), word
            if word == "define":
                name = self._name(word)
                self._expect_end()
                self._enter()
                self.defined[name] = self.body(("end",))[0]
                self._open -= 1
            else:
                nodes.append(self._statement(word))
        if "" not in until:
            raise self._error("unexpected end of the template: an {{end}} is missing")
        return tuple(nodes), ""

    def _statement(self, word: str) -> Node:
        match word:
            case "if" | "with" | "range":
                self._at = 1
                return self._branch(word)
            case "template":
                name, line = self._name(word), self.line
                value = self._pipeline() if self._peek() else None
                return lambda run, dot: run.include(name, value(run, dot) if value else None, line)
            case "break" | "continue":
                self._at = 1
                self._expect_end()
                if not self._loops:
                    raise self._error(f"{{{{{word}}}}} outside {{{{range}}}}")
                return _leaving(word)
            case "block":
                raise self._error("{{block}} is not supported: use {{define}} and {{template}}")
        pipeline = self._pipeline()
        if pipeline.variables:
            return pipeline
        written = self._dialect.written
        return lambda run, dot: run.out.append(written(pipeline(run, dot)))

    def _enter(self) -> None:
        self._open += 1
        if self._open > DEPTH_MAX:
            raise self._error(f"more than {DEPTH_MAX} brackets and blocks in each other")

    def _branch(self, kind: str) -> Node:
        self._enter()
        pipeline = self._pipeline(loops=kind == "range")
        self._loops += kind == "range"
        body, ended = self.body(("end", "else"))
        self._loops -= kind == "range"
        otherwise: Body = ()
        if ended == "else":
            token = self._peek()
            if token is not None and token.text in ("if", "with"):
                # {{else if}} shares the {{end}} of what it continues.
                self._at += 1
                otherwise = (self._branch(token.text),)
            else:
                self._expect_end()
                otherwise, _ = self.body(("end",))
        self._open -= 1
        return _range(pipeline, body, otherwise) if kind == "range" else _if(kind, pipeline, body, otherwise)

    def _name(self, word: str) -> str:
        """Return the name in quotes behind the word that the action begins with."""
        self._at = 1
        token = self._take()
        if token is None or token.kind != "text":
            raise self._error(f"{{{{{word}}}}} wants a name in quotes")
        return _unquote(token.text)

    # --- pipelines ---

    def _peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self) -> _Token | None:
        token = self._peek()
        self._at += 1
        return token

    def _expect_end(self) -> None:
        if (token := self._peek()) is not None:
            raise self._error(f"unexpected {token.text!r} in action")

    def _pipeline(self, *, loops: bool = False) -> _Pipeline:
        line = self.line
        variables, declares = self._declaration(loops)
        value = self._commands()
        self._expect_end()
        return _Pipeline(value, line, variables, declares)

    def _declaration(self, loops: bool) -> tuple[tuple[str, ...], bool]:
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

    def _commands(self) -> Value:
        line = self.line
        commands = [self._command()[0]]
        while (token := self._peek()) is not None and token.text == "|" and token.kind == "sign":
            self._at += 1
            command, is_call = self._command()
            commands.append(command)
            if not is_call:
                raise self._error("after | comes a function")

        def value(run: _Run, dot: Any) -> Any:
            try:
                output = commands[0](run, dot, ())
                for command in commands[1:]:
                    output = command(run, dot, (output,))
            except TemplateError as error:
                error_text = str(error)
                raise error if error_text.startswith("line ") else TemplateError(f"line {line}: {error_text}") from None
            return output

        return value

    def _command(self) -> tuple[_Command, bool]:
        """Return a command, and whether it calls a function: with the operands behind its name."""
        token = self._peek()
        name = token.text if token is not None and token.kind == "word" and token.text not in _WORDS else ""
        operands: list[Value] = []
        while (token := self._peek()) is not None and not (token.kind == "sign" and token.text in "|)"):
            operands.append(self._operand())
        if not operands:
            raise self._error("a value is missing")
        if name:
            return _call(name, operands[1:]), True
        if len(operands) > 1:
            raise self._error("arguments of what is no function")
        return lambda run, dot, _piped: operands[0](run, dot), False

    def _operand(self) -> Value:
        token = self._take()
        assert token is not None
        match token.kind:
            case "text":
                return _constant(_unquote(token.text))
            case "number":
                return _constant(_number(token.text))
            case "dot":
                return lambda _run, dot: dot
            case "field":
                names = (token.text[1:], *self._names())
                return lambda _run, dot: _fields(dot, names)
            case "variable":
                names = self._names()
                return lambda run, _dot: _fields(run.variable(token.text), names)
            case "word" if token.text in _WORDS:
                return _constant(_WORDS[token.text])
            case "word":
                if token.text not in self._functions:
                    raise self._error(f"function {token.text!r} is not supported")
                call = _call(token.text, [])
                return lambda run, dot: call(run, dot, ())
        if token.text != "(":
            raise self._error(f"unexpected {token.text!r} in action")
        self._enter()
        value = self._commands()
        self._open -= 1
        closing = self._take()
        if closing is None or closing.text != ")":
            raise self._error("a ) is missing")
        names = self._names()
        return lambda run, dot: _fields(value(run, dot), names)

    def _names(self) -> tuple[str, ...]:
        """Return the `.a.b` that is glued to what was just read."""
        names: list[str] = []
        while (token := self._peek()) is not None and token.kind == "field" and token.glued:
            names.append(token.text[1:])
            self._at += 1
        return tuple(names)


# --- what was read, as functions ---


def _constant(value: Any) -> Value:
    return lambda _run, _dot: value


def _text_node(text: str) -> Node:
    return lambda run, _dot: run.out.append(text)


def _leaving(kind: str) -> Node:
    def leave(_run: _Run, _dot: Any) -> None:
        raise _LoopExit(kind)

    return leave


def _call(name: str, operands: Sequence[Value]) -> _Command:
    def call(run: _Run, dot: Any, piped: tuple[Any, ...]) -> Any:
        return run.call(name, [*(operand(run, dot) for operand in operands), *piped])

    def choose(run: _Run, dot: Any, piped: tuple[Any, ...]) -> Any:
        """Evaluate no more than needed, as Go's `and` and `or` do."""
        value: Any = None
        if not operands and not piped:
            raise TemplateError(f"{name} wants arguments")
        for operand in operands:
            value = operand(run, dot)
            if bool(value) == (name == "or"):
                return value
        return piped[0] if piped else value

    return choose if name in ("and", "or") else call


def _if(kind: str, pipeline: _Pipeline, body: Body, otherwise: Body) -> Node:
    def node(run: _Run, dot: Any) -> None:
        mark = len(run.variables)
        value = pipeline(run, dot)
        if value:
            run.nodes(body, value if kind == "with" else dot)
        else:
            run.nodes(otherwise, dot)
        del run.variables[mark:]

    return node


def _range(pipeline: _Pipeline, body: Body, otherwise: Body) -> Node:
    def node(run: _Run, dot: Any) -> None:
        mark = len(run.variables)
        items = list(_items(pipeline.value(run, dot), pipeline.line))
        for key, value in items:
            values = (key, value) if len(pipeline.variables) == 2 else (value,)
            for name, loop_value in zip(pipeline.variables, values, strict=False):
                pipeline.set(run, name, loop_value)
            try:
                run.nodes(body, value)
            except _LoopExit as left:
                if left.args == ("break",):
                    break
            finally:
                del run.variables[mark:]
        if not items:
            run.nodes(otherwise, dot)

    return node


def _fields(value: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        if value is None:
            raise TemplateError(f"nil has no field .{name}")
        if not isinstance(value, Mapping):
            raise TemplateError(f"{value_text(value)[:40]!r} has no field .{name}")
        value = value.get(name)
    return value


def _items(value: Any, line: int) -> Iterator[tuple[Any, Any]]:
    if value is None:
        return
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield key, value[key]
    elif isinstance(value, list | tuple):
        yield from enumerate(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        if value > COUNT_MAX:
            raise TemplateError(f"line {line}: range over {value_text(value)[:40]}: want at most {COUNT_MAX}")
        for number in range(value):
            yield number, number
    else:
        raise TemplateError(f"line {line}: range cannot go over {value_text(value)[:40]!r}")
