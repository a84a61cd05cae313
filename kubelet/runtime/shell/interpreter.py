"""The shell of an emulated container: words, quotes, variables, pipes, redirections, conditions and loops. Pure.

A program here is a generator of effects: it yields effects to read input, write output and let time pass,
and returns its exit code. Its runner decides what time is: `commands.run` adds up, a kubelet waits. The
language is that of POSIX without functions, here-documents, arithmetic, background jobs.
"""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, NoReturn

from kubelet.runtime.outcome import Interrupted
from kubelet.runtime.shell.files import File, FileError, FileSystem, normal

STDIN, STDOUT, STDERR = 0, 1, 2
OUTPUT_BYTES_MAX = 1 << 20
"""Maximal bytes that one command may pass to the next, or to a variable, at once."""
TURN_S = 0.001
"""Least seconds of one turn of a loop."""
DEPTH_MAX = 50
NOT_FOUND, USAGE, INTERRUPTED = 127, 2, 130
EMULATED: Final = "keplab: containers are emulated and have no programs but a small table; {} is not in it"


class Read(NamedTuple):
    """The effect that reads input; the answer is the bytes, b"" at the end."""


class Write(NamedTuple):
    """The effect that writes output to STDOUT or STDERR."""

    stream: int
    data: bytes


class Sleep(NamedTuple):
    """The effect that lets time pass."""

    seconds: float


Effect = Read | Write | Sleep
Process = Generator[Effect, bytes | None, int]
"""A running program; it returns its exit code."""
Program = Callable[["Context", Sequence[str]], Process]
"""A program, called with its context and its words, its name among them."""


class Exit(Exception):
    """Exception: the shell ends with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class ShellError(Exception):
    """Error: a line is not a shell command; the text says why."""


class Stdin:
    """The input of a process: a given text, or else bytes obtained by `Read`."""

    def __init__(self, data: bytes | None = None) -> None:
        self._buffer, self._is_over = bytearray(data or b""), data is not None

    def some(self) -> Generator[Effect, bytes | None, bytes]:
        """Return the next bytes, b"" at the end."""
        if not self._buffer:
            yield from self._fill()
        found = bytes(self._buffer)
        self._buffer.clear()
        return found

    def line(self) -> Generator[Effect, bytes | None, bytes]:
        """Return the next line with its end, or the rest of the input."""
        while (end := self._buffer.find(b"\n")) < 0:
            if not (yield from self._fill()) or len(self._buffer) > OUTPUT_BYTES_MAX:
                return (yield from self.some())
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line

    def rest(self, limit: int) -> Generator[Effect, bytes | None, bytes]:
        """Return all input to the end, at most `limit` bytes."""
        while len(self._buffer) <= limit and (yield from self._fill()):
            pass
        return (yield from self.some())[:limit]

    def _fill(self) -> Generator[Effect, bytes | None, bool]:
        if self._is_over:
            return False
        data = (yield Read()) or b""
        self._is_over = not data
        self._buffer += data
        return bool(data)


Sink = int | File | bytearray
"""The target of output: a stream of the process, a file, or the buffer that another command reads."""


@dataclass
class Context:
    """The context of a process.

    `programs`: the programs it can run; `now_s`: the wall clock; `user`: uid and gid.
    """

    environment: dict[str, str]
    files: FileSystem
    programs: Mapping[str, Program]
    now_s: Callable[[], float]
    stdin: Stdin = field(default_factory=lambda: Stdin(b""))
    sinks: dict[int, Sink] = field(default_factory=lambda: {STDOUT: STDOUT, STDERR: STDERR})
    cwd: str = "/"
    hostname: str = ""
    user: tuple[int, int] = (0, 0)
    arguments: tuple[str, ...] = ("sh",)
    last: int = 0
    depth: int = 0
    is_interactive: bool = False
    missed: list[str] = field(default_factory=list)
    """The programs that were called and do not exist."""

    def write(self, stream: int, data: bytes) -> Generator[Effect, bytes | None, None]:
        """Write output to its present target. Raises: FileError when the target is full."""
        match self.sinks[stream]:
            case int(number):
                yield Write(number, data)
            case File() as file:
                self.files.now_s = self.now_s()
                self.files.extend(file, data)
            case bytearray() as buffer:
                buffer += data[: OUTPUT_BYTES_MAX - len(buffer)]

    def say(self, text: str) -> Generator[Effect, bytes | None, None]:
        """Write text to standard output."""
        yield from self.write(STDOUT, text.encode("utf-8", "surrogateescape"))

    def complain(self, text: str) -> Generator[Effect, bytes | None, None]:
        """Write a line to standard error."""
        yield from self.write(STDERR, f"{text}\n".encode("utf-8", "surrogateescape"))

    def path(self, path: str) -> str:
        """Return the absolute path of a file that a command names."""
        return normal(path, self.cwd) if path else path


class Part(NamedTuple):
    """A piece of a word: `text`, a `variable` (with operator and default) or the output of a `command`."""

    kind: str
    text: str
    is_quoted: bool = False
    default: "tuple[str, tuple[Part, ...]] | None" = None


Word = tuple[Part, ...]


class Redirect(NamedTuple):
    """A redirection: `number` `operator` `target`."""

    number: int
    operator: str
    target: Word


class Simple(NamedTuple):
    """A simple command: assignments, words and redirections."""

    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


class If(NamedTuple):
    """An `if`: conditions, each with its commands; the last condition may be None: `else`."""

    branches: "tuple[tuple[Commands | None, Commands], ...]"


class Loop(NamedTuple):
    """A loop: `while`, or `until` when it `ends_on` success."""

    condition: "Commands"
    body: "Commands"
    ends_on: bool


class For(NamedTuple):
    """A loop `for name in words`; None: the arguments."""

    name: str
    words: tuple[Word, ...] | None
    body: "Commands"


class Group(NamedTuple):
    """A group: `{ …; }`, or `( … )` in a shell of its own."""

    body: "Commands"
    is_own_shell: bool
    redirects: tuple[Redirect, ...] = ()


class Pipeline(NamedTuple):
    """Commands connected by pipes; `is_negated`: with `!`."""

    commands: "tuple[Simple | If | Loop | For | Group, ...]"
    is_negated: bool = False


class Commands(NamedTuple):
    """Pipelines, each with the operator before it: `;`, `&&` or `||`."""

    parts: tuple[tuple[str, Pipeline], ...]


_NAME = re.compile(r"[A-Za-z_]\w*")
_OPERATORS = ("&&", "||", ";;", ">>", ">&", "<<", ";", "&", "|", "(", ")", "<", ">", "\n")
_REDIRECTS = (">", ">>", "<", ">&")
_RESERVED = ("then", "elif", "else", "fi", "do", "done", "}")
Token = str | Word


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def tokens(self) -> list[Token]:
        tokens: list[Token] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t":
                self.at += 1
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif (number := re.match(r"\d(?=[<>])", self.text[self.at :])) is not None:
                tokens.append(f"#{number.group()}")
                self.at += 1
            elif (operator := self._operator()) != "":
                tokens.append(operator)
                self.at += len(operator)
            else:
                tokens.append(self.word())
        return tokens

    def _operator(self) -> str:
        return next((each for each in _OPERATORS if self.text.startswith(each, self.at)), "")

    def word(self) -> Word:
        parts: list[Part] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t" or self._operator():
                break
            self.at += 1
            match char:
                case "'":
                    end = self.text.find("'", self.at)
                    if end < 0:
                        raise ShellError("syntax error: unterminated quoted string")
                    parts.append(Part("text", self.text[self.at : end], is_quoted=True))
                    self.at = end + 1
                case '"':
                    parts += self._read_quoted()
                case "\\":
                    if self.text[self.at : self.at + 1] != "\n":
                        parts.append(Part("text", self.text[self.at : self.at + 1], is_quoted=True))
                    self.at += 1
                case "$":
                    parts.append(self._dollar(is_quoted=False))
                case "`":
                    parts.append(self._until_backquote(is_quoted=False))
                case _:
                    parts.append(Part("text", char))
        return tuple(parts)

    def _read_quoted(self) -> list[Part]:
        parts, text = [Part("text", "", is_quoted=True)], ""
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char == '"':
                return [*parts, Part("text", text, is_quoted=True)]
            if char == "\\" and self.text[self.at : self.at + 1] in ("$", "`", '"', "\\", "\n"):
                text += self.text[self.at].replace("\n", "")
                self.at += 1
            elif char in "$`":
                parts.append(Part("text", text, is_quoted=True))
                text = ""
                parts.append(self._dollar(is_quoted=True) if char == "$" else self._until_backquote(is_quoted=True))
            else:
                text += char
        raise ShellError("syntax error: unterminated quoted string")

    def _until_backquote(self, *, is_quoted: bool) -> Part:
        end = self.text.find("`", self.at)
        if end < 0:
            raise ShellError("syntax error: EOF in backquote substitution")
        inner, self.at = self.text[self.at : end], end + 1
        return Part("command", inner, is_quoted)

    def _dollar(self, *, is_quoted: bool) -> Part:
        rest = self.text[self.at :]
        if rest.startswith("(("):
            raise ShellError("syntax error: arithmetic is not emulated")
        if rest.startswith("("):
            return Part("command", self._read_enclosed("(", ")"), is_quoted)
        if rest.startswith("{"):
            return self._parse_braces(self._read_enclosed("{", "}"), is_quoted=is_quoted)
        if (name := _NAME.match(rest)) is not None:
            self.at += name.end()
            return Part("variable", name.group(), is_quoted)
        if rest[:1] and (rest[0] in "?$#@*" or rest[0].isdigit()):
            self.at += 1
            return Part("variable", rest[0], is_quoted)
        return Part("text", "$", is_quoted)

    def _read_enclosed(self, opens: str, closes: str) -> str:
        depth, start, quote = 0, self.at + 1, ""
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            elif char == opens:
                depth += 1
            elif char == closes:
                depth -= 1
                if depth == 0:
                    return self.text[start : self.at - 1]
        raise ShellError(f"syntax error: unexpected end of file (expecting {closes!r})".replace("'", '"'))

    def _parse_braces(self, inner: str, *, is_quoted: bool) -> Part:
        match = re.fullmatch(r"(\w+|[?$#@*])(?:(:?[-+=?])(.*))?", inner, re.DOTALL)
        if match is None:
            raise ShellError("syntax error: bad substitution")
        name, operator, default = match.groups()
        if operator is None:
            return Part("variable", name, is_quoted)
        return Part("variable", name, is_quoted, (operator, tuple(_Lexer(f'"{default}"').word())))


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = _Lexer(text).tokens()
        self.at = self.depth = 0

    def all(self) -> Commands:
        found = self.commands(())
        if self.at < len(self.tokens):
            self._refuse()
        return found

    def _peek(self) -> str:
        """Return the operator or the plain unquoted word that comes next; "" at the end or for another word."""
        if self.at >= len(self.tokens):
            return ""
        token = self.tokens[self.at]
        if isinstance(token, str):
            return token
        if all(part.kind == "text" and not part.is_quoted for part in token):
            return "".join(part.text for part in token)
        return ""

    def _refuse(self) -> NoReturn:
        if self.at >= len(self.tokens):
            raise ShellError("syntax error: unexpected end of file")
        shown = {"\n": "newline"}.get(self._peek(), self._peek()) or "word"
        raise ShellError(f'syntax error: unexpected "{shown}"')

    def _take(self, wanted: str) -> None:
        if self._peek() != wanted:
            self._refuse()
        self.at += 1

    def _skip_lines(self) -> None:
        while self._peek() == "\n":
            self.at += 1

    def commands(self, ends: tuple[str, ...]) -> Commands:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise ShellError("syntax error: nested too deeply")
        parts: list[tuple[str, Pipeline]] = []
        operator = ";"
        self._skip_lines()
        while self.at < len(self.tokens) and self._peek() not in ends:
            parts.append((operator, self._pipeline()))
            operator = self._peek()
            if operator in ("&&", "||"):
                self.at += 1
                self._skip_lines()
                if self.at >= len(self.tokens):
                    self._refuse()
            elif operator in (";", "\n"):
                self.at += 1
                self._skip_lines()
                operator = ";"
            elif operator == "&":
                raise ShellError("syntax error: background jobs are not emulated")
            else:
                break
        self.depth -= 1
        return Commands(tuple(parts))

    def _body(self, end: str) -> Commands:
        found = self.commands((end,))
        if not found.parts:
            self._refuse()
        self._take(end)
        return found

    def _pipeline(self) -> Pipeline:
        is_negated = self._peek() == "!"
        if is_negated:
            self.at += 1
        commands = [self._command()]
        while self._peek() == "|":
            self.at += 1
            self._skip_lines()
            commands.append(self._command())
        return Pipeline(tuple(commands), is_negated)

    def _command(self) -> Simple | If | Loop | For | Group:
        word = self._peek()
        if word in _RESERVED:
            self._refuse()
        match word:
            case "if":
                return self._if()
            case "while" | "until":
                self.at += 1
                condition = self._body("do")
                return Loop(condition, self._body("done"), ends_on=word == "until")
            case "for":
                return self._for()
            case "(" | "{":
                self.at += 1
                body = self._body(")" if word == "(" else "}")
                return Group(body, word == "(", self._redirects())
        return self._simple()

    def _if(self) -> If:
        branches: list[tuple[Commands | None, Commands]] = []
        self._take("if")
        while True:
            condition = self._body("then")
            body = self.commands(("elif", "else", "fi"))
            branches.append((condition, body))
            word = self._peek()
            self.at += 1
            if word == "elif":
                continue
            if word == "else":
                branches.append((None, self._body("fi")))
            elif word != "fi":
                self.at -= 1
                self._refuse()
            return If(tuple(branches))

    def _for(self) -> For:
        self._take("for")
        name = self._peek()
        if not _NAME.fullmatch(name):
            raise ShellError("syntax error: bad for loop variable")
        self.at += 1
        self._skip_lines()
        words: list[Word] | None = None
        if self._peek() == "in":
            self.at += 1
            words = []
            while self.at < len(self.tokens) and not isinstance(token := self.tokens[self.at], str):
                words.append(token)
                self.at += 1
        while self._peek() in (";", "\n"):
            self.at += 1
        self._take("do")
        return For(name, None if words is None else tuple(words), self._body("done"))

    def _redirects(self) -> tuple[Redirect, ...]:
        found: list[Redirect] = []
        while (redirect := self._redirect()) is not None:
            found.append(redirect)
        return tuple(found)

    def _redirect(self) -> Redirect | None:
        word, start = self._peek(), self.at
        number = -1
        if isinstance(word, str) and re.fullmatch(r"#\d", word) and isinstance(self.tokens[self.at], str):
            number = int(word[1])
            self.at += 1
            word = self._peek()
        if word == "<<":
            raise ShellError("syntax error: here-documents are not emulated")
        if word not in _REDIRECTS or not isinstance(self.tokens[self.at], str):
            self.at = start
            return None
        self.at += 1
        if self.at >= len(self.tokens) or isinstance(target := self.tokens[self.at], str):
            self._refuse()
        self.at += 1
        return Redirect(number if number >= 0 else STDIN if word == "<" else STDOUT, word, target)

    def _simple(self) -> Simple:
        assignments: list[tuple[str, Word]] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while self.at < len(self.tokens):
            if (redirect := self._redirect()) is not None:
                redirects.append(redirect)
                continue
            token = self.tokens[self.at]
            if isinstance(token, str):
                break
            self.at += 1
            assigned = None if words else _assignment(token)
            if assigned is None:
                words.append(token)
            else:
                assignments.append(assigned)
        if not assignments and not words and not redirects:
            self._refuse()
        return Simple(tuple(assignments), tuple(words), tuple(redirects))


def _assignment(word: Word) -> tuple[str, Word] | None:
    text = ""
    for place, part in enumerate(word):
        if part.kind != "text" or part.is_quoted:
            return None
        text += part.text
        if part.text.endswith("="):
            name = text[:-1]
            return (name, word[place + 1 :]) if _NAME.fullmatch(name) else None
    return None


def parse(text: str) -> Commands:
    """Return the commands of a text. Raises: ShellError in the words of a shell."""
    return _Parser(text).all()


def execute(context: Context, text: str) -> Process:
    """Run a text. Raises: Exit for `exit`."""
    try:
        commands = parse(text)
    except ShellError as error:
        yield from context.complain(f"{context.arguments[0]}: {error}")
        return USAGE
    return (yield from _commands(context, commands))


def _commands(context: Context, commands: Commands) -> Process:
    for operator, pipeline in commands.parts:
        if (operator == "&&" and context.last != 0) or (operator == "||" and context.last == 0):
            continue
        context.last = yield from _pipeline(context, pipeline)
    return context.last


def _pipeline(context: Context, pipeline: Pipeline) -> Process:
    commands, stdin, code = pipeline.commands, context.stdin, 0
    for command in commands[:-1]:
        buffer = bytearray()
        own = _own_shell(context, stdin)
        own.sinks[STDOUT] = buffer
        yield from _alone(own, command)
        stdin = Stdin(bytes(buffer))
    if len(commands) > 1:
        code = yield from _alone(_own_shell(context, stdin), commands[-1])
    else:
        code = yield from _command(context, commands[0])
    return int(code == 0) if pipeline.is_negated else code


def _own_shell(context: Context, stdin: Stdin | None = None) -> Context:
    return replace(
        context,
        environment=dict(context.environment),
        sinks=dict(context.sinks),
        stdin=context.stdin if stdin is None else stdin,
    )


def _alone(context: Context, command: Simple | If | Loop | For | Group) -> Process:
    try:
        return (yield from _command(context, command))
    except Exit as end:
        return end.code


def _command(context: Context, command: Simple | If | Loop | For | Group) -> Process:
    match command:
        case Simple():
            return (yield from _simple(context, command))
        case If(branches):
            for condition, body in branches:
                if condition is None or (yield from _commands(context, condition)) == 0:
                    return (yield from _commands(context, body))
            return 0
        case Loop():
            return (yield from _loop(context, command))
        case For(name, words, body):
            code = 0
            values = list(context.arguments[1:]) if words is None else (yield from expand(context, words))
            for value in values:
                context.environment[name] = value
                code = yield from _commands(context, body)
                yield Sleep(TURN_S)
            return code
        case Group(body, is_own_shell, redirects):
            return (yield from _group(context, body, redirects, is_own_shell=is_own_shell))


def _loop(context: Context, loop: Loop) -> Process:
    code = 0
    while ((yield from _commands(context, loop.condition)) == 0) != loop.ends_on:
        code = yield from _commands(context, loop.body)
        yield Sleep(TURN_S)
    return code


def _group(context: Context, body: Commands, redirects: tuple[Redirect, ...], *, is_own_shell: bool) -> Process:
    before = dict(context.sinks), context.stdin
    own = _own_shell(context) if is_own_shell else context
    try:
        problem = yield from _redirect(own, redirects)
        if problem:
            yield from context.complain(problem)
            return 1
        return (yield from _commands(own, body))
    except Exit as end:
        if is_own_shell:
            return end.code
        raise
    finally:
        context.sinks, context.stdin = before


def _redirect(context: Context, redirects: tuple[Redirect, ...]) -> Generator[Effect, bytes | None, str]:
    """Open files; return why that cannot be, or ""."""
    for number, operator, target in redirects:
        name = " ".join((yield from expand(context, (target,))))
        if operator == ">&":
            if not name.isdigit() or int(name) not in context.sinks:
                return f"{context.arguments[0]}: {name}: Bad file descriptor"
            context.sinks[number] = context.sinks[int(name)]
            continue
        path = context.path(name)
        context.files.now_s = context.now_s()
        try:
            if operator == "<":
                context.stdin = Stdin(b"" if path == "/dev/null" else context.files.read(path))
            elif path in DEVICES:
                context.sinks[number] = _device(context, path)
            else:
                context.sinks[number] = context.files.open(path, appends=operator == ">>")
        except FileError as error:
            what = "can't open" if operator == "<" else "can't create"
            shown = "no such file" if operator == "<" and "No such" in str(error) else str(error)
            shown = "nonexistent directory" if operator != "<" and "No such" in shown else shown
            return f"{context.arguments[0]}: {what} {name}: {shown}"
    return ""


DEVICES = ("/dev/null", "/dev/stdout", "/dev/stderr", "/proc/1/fd/1", "/proc/1/fd/2")


def _device(context: Context, path: str) -> Sink:
    if path == "/dev/null":
        return File(data=_Nothing())
    return context.sinks[STDERR if path.endswith(("stderr", "2")) else STDOUT]


class _Nothing(bytearray):
    def __iadd__(self, _: object) -> "_Nothing":
        return self


def _simple(context: Context, command: Simple) -> Process:
    words = yield from expand(context, command.words)
    values = []
    for name, word in command.assignments:
        values.append((name, "".join((yield from _part_values(context, word)))))
    before = dict(context.sinks), context.stdin
    try:
        problem = yield from _redirect(context, command.redirects)
        if problem:
            yield from context.complain(problem)
            return 1
        if not words:
            context.environment.update(values)
            return context.last if not values else 0
        builtin = BUILTINS.get(words[0])
        if builtin is not None:
            return (yield from builtin(context, words))
        own = _own_shell(context)
        own.environment.update(values)
        return (yield from start(own, words))
    except FileError as error:
        context.sinks = {STDOUT: STDOUT, STDERR: STDERR}
        yield from context.complain(f"{words[0] if words else context.arguments[0]}: write error: {error}")
        return 1
    finally:
        context.sinks, context.stdin = before


def start(context: Context, words: Sequence[str]) -> Process:
    """Run one program by its name or path."""
    name = words[0]
    directory, _, base = name.rpartition("/")
    known = context.programs.get(base) if not directory or directory in BIN else None
    if known is None or context.depth > DEPTH_MAX:
        context.missed.append(name)
        yield from context.complain(f"{context.arguments[0]}: {name}: not found")
        yield from context.complain(EMULATED.format(repr(name)))
        return NOT_FOUND
    context.depth += 1
    return (yield from known(context, words))


BIN = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")


# --- expansion ---


def expand(context: Context, words: Sequence[Word]) -> Generator[Effect, bytes | None, list[str]]:
    """Return the words with variables, commands and patterns replaced."""
    fields: list[str] = []
    for word in words:
        if len(word) == 1 and word[0].kind == "text" and word[0].is_quoted:
            fields.append(word[0].text)
        else:
            fields += yield from _fields(context, word)
    return fields


def _part_values(context: Context, word: Word) -> Generator[Effect, bytes | None, list[str]]:
    found: list[str] = []
    for part in word:
        found.append((yield from _value(context, part)))
    return found


def _fields(context: Context, word: Word) -> Generator[Effect, bytes | None, list[str]]:
    """Return the fields of one word: what is not quoted is split at white space, and names files by a pattern."""
    fields: list[str] = []
    current: str | None = None
    is_pattern = False
    if word and word[0] == Part("text", "~"):
        word = (Part("text", context.environment.get("HOME", "/"), is_quoted=True), *word[1:])
    for part in word:
        if part.kind == "variable" and part.text == "@" and part.is_quoted:
            first, *others = (*context.arguments[1:],) or ("",)
            current = (current or "") + first
            for argument in others:
                fields.append(current)
                current = argument
            continue
        value = yield from _value(context, part)
        if part.kind == "text" or part.is_quoted:
            is_pattern = is_pattern or (not part.is_quoted and part.text in "*?[" and part.text != "")
            current = (current or "") + value
            continue
        pieces = value.split()
        if value[:1].isspace() and current is not None:
            fields.append(current)
            current = None
        for place, piece in enumerate(pieces):
            current = (current or "") + piece
            if place < len(pieces) - 1 or value[-1:].isspace():
                fields.append(current)
                current = None
    if current is not None:
        fields.append(current)
    return _matches(context, fields) if is_pattern else fields


def _matches(context: Context, fields: list[str]) -> list[str]:
    paths: list[str] = []
    for text in fields:
        directory, slash, pattern = text.rpartition("/")
        try:
            entries = context.files.directory(context.path(directory or (slash or "."))).entries
        except FileError:
            entries = {}
        names = sorted(n for n in entries if fnmatchcase(n, pattern) and not (n[0] == "." and pattern[:1] != "."))
        paths += [f"{directory}{slash}{name}" for name in names] or [text]
    return paths


def _value(context: Context, part: Part) -> Generator[Effect, bytes | None, str]:
    match part.kind:
        case "text":
            return part.text
        case "command":
            buffer = bytearray()
            own = _own_shell(context)
            own.sinks[STDOUT] = buffer
            own.depth += 1
            if own.depth > DEPTH_MAX:
                return ""
            try:
                context.last = yield from execute(own, part.text)
            except Exit as end:
                context.last = end.code
            return buffer.decode("utf-8", "replace").rstrip("\n")
    value = _variable(context, part.text)
    if part.default is None:
        return value or ""
    operator, default = part.default
    is_there = value is not None and (value != "" or operator[0] != ":")
    if is_there == (operator[-1] != "+"):
        return value or ""
    if operator[-1] == "+" and not is_there:
        return ""
    text = "".join((yield from _part_values(context, default)))
    if operator[-1] == "=":
        context.environment[part.text] = text
    return text


def _variable(context: Context, name: str) -> str | None:
    match name:
        case "?":
            return str(context.last)
        case "$":
            return "1" if context.depth == 0 else "7"
        case "#":
            return str(len(context.arguments) - 1)
        case "@" | "*":
            return " ".join(context.arguments[1:])
    if name.isdigit():
        place = int(name)
        return context.arguments[place] if place < len(context.arguments) else None
    return context.environment.get(name)


# --- what only a shell itself can do ---


def _exit(context: Context, words: Sequence[str]) -> Process:
    yield from ()
    if len(words) > 1 and not words[1].isdigit():
        yield from context.complain(f"{context.arguments[0]}: exit: Illegal number: {words[1]}")
        raise Exit(USAGE)
    raise Exit(int(words[1]) & 255 if len(words) > 1 else context.last)


def _cd(context: Context, words: Sequence[str]) -> Process:
    path = context.path(words[1] if len(words) > 1 else context.environment.get("HOME", "/"))
    try:
        context.files.directory(path)
    except FileError as error:
        yield from context.complain(f"{context.arguments[0]}: cd: can't cd to {words[1]}: {error}")
        return 1
    context.cwd = context.environment["PWD"] = path
    return 0


def _export(context: Context, words: Sequence[str]) -> Process:
    yield from ()
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if equals:
            context.environment[name] = value
    return 0


def _unset(context: Context, words: Sequence[str]) -> Process:
    yield from ()
    for word in words[1:]:
        context.environment.pop(word, None)
    return 0


def _set(context: Context, words: Sequence[str]) -> Process:
    if len(words) == 1:
        for name, value in sorted(context.environment.items()):
            yield from context.say(f"{name}='{value}'\n")
    return 0


def _read(context: Context, words: Sequence[str]) -> Process:
    line = yield from context.stdin.line()
    names = [word for word in words[1:] if not word.startswith("-")] or ["REPLY"]
    values = line.decode("utf-8", "replace").rstrip("\n").split(None, len(names) - 1)
    for place, name in enumerate(names):
        context.environment[name] = values[place].strip() if place < len(values) else ""
    return 0 if line.endswith(b"\n") else 1


def _colon(_: Context, __: Sequence[str]) -> Process:
    yield from ()
    return 0


def _exec(context: Context, words: Sequence[str]) -> Process:
    if len(words) == 1:
        return 0
    raise Exit((yield from start(_own_shell(context), words[1:])))


def _command_v(context: Context, words: Sequence[str]) -> Process:
    if words[1:2] == ["-v"]:
        for name in words[2:]:
            if name in BUILTINS:
                yield from context.say(f"{name}\n")
            elif name in context.programs:
                yield from context.say(f"/bin/{name}\n")
            else:
                return NOT_FOUND
        return 0
    return (yield from start(_own_shell(context), words[1:])) if len(words) > 1 else 0


BUILTINS: Final[Mapping[str, Program]] = {
    ":": _colon,
    "cd": _cd,
    "command": _command_v,
    "exec": _exec,
    "exit": _exit,
    "export": _export,
    "read": _read,
    "return": _exit,
    "set": _set,
    "trap": _colon,
    "unset": _unset,
    "wait": _colon,
}


def shell(context: Context, words: Sequence[str]) -> Process:
    """Run `sh`: the line after `-c`, a file, or the lines of the input, with a prompt if it is a terminal."""
    options = list(words[1:])
    while options and options[0].startswith("-") and "c" not in options[0]:
        options.pop(0)
    context = _own_shell(context)
    context.last = 0
    try:
        if options and options[0].startswith("-"):
            if len(options) == 1:
                yield from context.complain(f"{words[0]}: -c requires an argument")
                return USAGE
            context.arguments, context.is_interactive = (
                (options[2] if len(options) > 2 else words[0], *options[3:]),
                False,
            )
            return (yield from execute(context, options[1]))
        if options:
            context.arguments = tuple(options)
            try:
                text = context.files.read(context.path(options[0])).decode("utf-8", "replace")
            except FileError as error:
                yield from context.complain(f"{words[0]}: can't open '{options[0]}': {error}")
                return NOT_FOUND if "No such" in str(error) else USAGE
            return (yield from execute(context, text))
        context.arguments = (words[0].rpartition("/")[2] or words[0],)
        return (yield from _lines(context))
    except Exit as end:
        return end.code


def _lines(context: Context) -> Process:
    """Run line after line of the input; an interrupt ends the line, not an interactive shell."""
    is_interactive = context.is_interactive
    while True:
        try:
            if is_interactive:
                mark = "#" if context.user[0] == 0 else "$"
                yield from context.say(f"{context.cwd} {mark} ")
            text = ""
            while True:
                line = yield from context.stdin.line()
                if not line:
                    return context.last if text == "" else (yield from execute(context, text))
                text += line.decode("utf-8", "replace")
                if not _is_open(text):
                    break
                if is_interactive:
                    yield from context.say("> ")
            own = replace(context, is_interactive=False)
            try:
                if text.strip():
                    context.last = yield from execute(own, text)
            finally:
                context.cwd, context.last = own.cwd, own.last
        except Interrupted:
            if not is_interactive:
                raise
            context.last = INTERRUPTED
            yield from context.say("\n")


def _is_open(text: str) -> bool:
    """Whether a command goes on in the next line."""
    if text.endswith("\\\n"):
        return True
    try:
        parse(text)
    except ShellError as error:
        return any(words in str(error) for words in ("unterminated", "end of file", "EOF in"))
    return False
