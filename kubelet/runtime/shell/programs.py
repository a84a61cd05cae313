"""The programs of an emulated container and their execution: the one table of what a command does. Pure.

`run` only computes how a command ends; a kubelet that serves `kubectl exec` drives the same programs step
by step (`shell`). A program that is not in the table ends with 127, and says that containers are emulated.
"""

import io
import math
import operator
import re
import tarfile
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final

from kubelet.runtime.outcome import PATH, Outcome, OutputPiece
from kubelet.runtime.shell.files import Directory, Entry, File, FileError, FileSystem, Link, split, walk
from kubelet.runtime.shell.interpreter import (
    Context,
    Effect,
    Exit,
    Process,
    Program,
    Read,
    Sleep,
    Stdin,
    Write,
    shell,
    start,
)
from services.api.times import format_as, seconds_in

STEPS_MAX = 5_000
"""Number of effects after which a command that is only run to know its end counts as endless."""
ARCHIVE_BYTES_MAX = 64 << 20
CHUNK_BYTES = 32 << 10


def run(
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    files: FileSystem | None = None,
    stdin: bytes = b"",
    *,
    wall_s: float = 0.0,
    hostname: str = "",
    until_s: float = math.inf,
) -> Outcome:
    """Return the outcome of a command that begins at `wall_s`, as far as it gets in `until_s` seconds."""
    took_s = 0.0
    context = Context(
        dict(environment or {"PATH": PATH, "HOME": "/root"}),
        FileSystem() if files is None else files,
        PROGRAMS,
        lambda: wall_s + took_s,
        Stdin(stdin),
        hostname=hostname,
    )
    written: list[OutputPiece] = []
    process, code = start(context, list(words)), None
    answer: bytes | None = None
    for _ in range(STEPS_MAX):
        try:
            effect = process.send(answer)
        except StopIteration as end:
            code = end.value
            break
        answer = None
        match effect:
            case Read():
                answer = b""
            case Write(stream, data):
                written.append(OutputPiece(took_s, stream, data))
            case Sleep(seconds):
                took_s += seconds
                if took_s > until_s or seconds == math.inf:
                    break
    process.close()
    unknown = tuple(dict.fromkeys(context.missed))
    return Outcome(code, took_s if code is not None else math.inf, tuple(written), unknown)


def _options(words: Sequence[str], known: str) -> tuple[dict[str, str], list[str]]:
    """Return the options and the operands. A letter of `known` that `:` follows takes a value. Raises: ValueError."""
    options: dict[str, str] = {}
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter not in known or letter == ":":
                raise ValueError(f"{words[0]}: unrecognized option: {word.removeprefix('-')}")
            if known[known.index(letter) + 1 :][:1] == ":":
                if not letters and not rest:
                    raise ValueError(f"{words[0]}: option requires an argument: {letter}")
                options[letter], letters = (letters, "") if letters else (rest.pop(0), "")
            else:
                options[letter] = ""
    return options, rest


def _checked_program(known: str, body: Callable[[Context, str, dict[str, str], list[str]], Process]) -> Program:
    """Return a program whose options are read, and which says what a file system refuses."""

    def program(context: Context, words: Sequence[str]) -> Process:
        try:
            options, operands = _options(words, known)
        except ValueError as error:
            yield from context.complain(str(error))
            return 1
        context.files.now_s = context.now_s()
        return (yield from body(context, words[0], options, operands))

    return program


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\033"}


def _unescape(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        body = found.group(1)
        if body.startswith("x"):
            return chr(int(body[1:], 16))
        return chr(int(body, 8) & 255) if body[0].isdigit() else _ESCAPES[body]

    return re.sub(r"\\(0?[0-7]{1,3}|x[0-9a-fA-F]{1,2}|[ntr\\abfve])", one, text)


def _echo(context: Context, words: Sequence[str]) -> Process:
    rest, end, reads_escapes = list(words[1:]), "\n", False
    while rest and re.fullmatch(r"-[neE]+", rest[0]):
        option = rest.pop(0)
        end = "" if "n" in option else end
        reads_escapes = "e" in option or reads_escapes
    text = " ".join(rest)
    yield from context.say((_unescape(text) if reads_escapes else text) + end)
    return 0


def _printf(context: Context, words: Sequence[str]) -> Process:
    if len(words) < 2:
        yield from context.complain("printf: usage: printf FORMAT [ARGUMENT...]")
        return 1
    form, values = words[1], list(words[2:])
    while True:
        before = len(values)
        try:
            text = _format_text(form, values)
        except ValueError as error:
            yield from context.complain(f"printf: {error}")
            return 1
        yield from context.say(text)
        if not values or len(values) == before:
            return 0


def _format_text(form: str, values: list[str]) -> str:
    def one(match: re.Match[str]) -> str:
        flags, kind = match.groups()
        if kind == "%":
            return "%"
        value = values.pop(0) if values else ""
        if kind in "sbc":
            shown = _unescape(value) if kind == "b" else value[:1] if kind == "c" else value
            return f"%{flags}s" % shown
        try:
            return f"%{flags}{kind}" % (float(value or "0") if kind in "feg" else int(value or "0", 0))
        except ValueError:
            raise ValueError(f"invalid number '{value}'") from None

    return re.sub(r"%([-+ 0#]{0,5}\d{0,3}(?:\.\d{1,3})?)([sbcdiuxXofeg%])", one, _unescape(form))


def _content(context: Context, name: str) -> Generator[Effect, bytes | None, bytes]:
    """Return a whole file, or the whole input for `-`. Raises: FileError."""
    if name == "-":
        return (yield from context.stdin.rest(ARCHIVE_BYTES_MAX))
    path = context.path(name)
    if path == "/proc/self/environ":
        return "".join(f"{key}={value}\0" for key, value in context.environment.items()).encode()
    return b"" if path == "/dev/null" else context.files.read(path)


def _cat(context: Context, name: str, _: dict[str, str], operands: list[str]) -> Process:
    code = 0
    for operand in operands or ["-"]:
        if operand == "-":
            while data := (yield from context.stdin.some()):
                yield from context.write(1, data)
            continue
        try:
            data = yield from _content(context, operand)
        except FileError as error:
            yield from context.complain(f"{name}: can't open '{operand}': {error}")
            code = 1
            continue
        for place in range(0, len(data), CHUNK_BYTES):
            yield from context.write(1, data[place : place + CHUNK_BYTES])
    return code


def _env(context: Context, words: Sequence[str]) -> Process:
    rest = list(words[1:])
    if rest and rest[0] in ("-i", "-"):
        rest.pop(0)
        context.environment.clear()
    while rest and "=" in rest[0]:
        name, _, value = rest.pop(0).partition("=")
        context.environment[name] = value
    if rest:
        return (yield from start(context, rest))
    yield from context.say("".join(f"{name}={value}\n" for name, value in context.environment.items()))
    return 0


def _printenv(context: Context, _: str, __: dict[str, str], operands: list[str]) -> Process:
    if not operands:
        return (yield from _env(context, ["env"]))
    found = [context.environment[name] for name in operands if name in context.environment]
    yield from context.say("".join(f"{value}\n" for value in found))
    return int(len(found) < len(operands))


_KINDS = {File: "-", Link: "l", Directory: "d"}


def _long(context: Context, name: str, entry: Entry) -> str:
    mode = 0o777 if isinstance(entry, Link) else entry.mode
    bits = "".join(letter if mode >> 8 - place & 1 else "-" for place, letter in enumerate("rwxrwxrwx"))
    size = len(entry.data) if isinstance(entry, File) else 4096 if isinstance(entry, Directory) else len(entry.target)
    at = format_as(entry.modified_s, "%b %e %H:%M")
    shown = f"{name} -> {entry.target}" if isinstance(entry, Link) else name
    count = 2 if isinstance(entry, Directory) else 1
    return f"{_KINDS[type(entry)]}{bits} {count:>4} root     root     {size:>9} {at} {shown}\n"


def _ls(context: Context, name: str, options: dict[str, str], operands: list[str]) -> Process:
    code, shown = 0, 0
    for operand in operands or ["."]:
        try:
            entry = context.files.entry(context.path(operand), follows="l" not in options or operand.endswith("/"))
        except FileError as error:
            yield from context.complain(f"{name}: {operand}: {error}")
            code = 1
            continue
        is_listed = isinstance(entry, Directory) and "d" not in options
        entries = sorted(entry.entries.items()) if isinstance(entry, Directory) and is_listed else [(operand, entry)]
        if is_listed and "a" not in options and "A" not in options:
            entries = [(key, value) for key, value in entries if not key.startswith(".")]
        if is_listed and "a" in options:
            entries = [(".", entry), ("..", entry), *entries]
        if is_listed and len(operands) > 1:
            yield from context.say(f"{chr(10) if shown else ''}{operand}:\n")
        if "l" in options and is_listed:
            yield from context.say("total 0\n")
        line = _long if "l" in options else lambda _, key, __: f"{key}\n"
        yield from context.say("".join(line(context, key, value) for key, value in entries))
        shown += 1
    return code


def _says(answer: Callable[[Context], str]) -> Program:
    def program(context: Context, _: Sequence[str]) -> Process:
        yield from context.say(f"{answer(context)}\n")
        return 0

    return program


def _user_name(context: Context) -> str:
    return "root" if context.user[0] == 0 else str(context.user[0])


def _whoami(context: Context, _: Sequence[str]) -> Process:
    if context.user[0] != 0:
        yield from context.complain(f"whoami: unknown uid {context.user[0]}")
        return 1
    yield from context.say("root\n")
    return 0


def _id(context: Context, _: str, options: dict[str, str], __: list[str]) -> Process:
    uid, gid = context.user
    shown = [f"{number}(root)" if number == 0 else str(number) for number in (uid, gid)]
    text = f"uid={shown[0]} gid={shown[1]} groups={shown[1]}"
    if "u" in options or "g" in options:
        text = str(uid if "u" in options else gid)
        if "n" in options:
            text = "root" if text == "0" else text
    yield from context.say(f"{text}\n")
    return 0


def _uname(context: Context, _: str, options: dict[str, str], __: list[str]) -> Process:
    everything = {"s": "Linux", "n": context.hostname, "r": "6.1.0-emulated", "m": "x86_64"}
    yield from context.say(
        " ".join(v for k, v in everything.items() if "a" in options or k in (options or {"s": ""})) + "\n"
    )
    return 0


def _date(context: Context, words: Sequence[str]) -> Process:
    form = "%a %b %e %H:%M:%S UTC %Y"
    now_s = context.now_s()
    for word in words[1:]:
        if word.startswith("+"):
            form = word[1:].replace("%s", str(int(now_s))).replace("%N", f"{int(now_s % 1 * 1e9):09d}")
        elif word in ("-Iseconds", "-Is"):
            form = "%Y-%m-%dT%H:%M:%S+00:00"
        elif word not in ("-u", "--utc"):
            yield from context.complain(f"date: invalid date '{word}'")
            return 1
    yield from context.say(format_as(now_s, form) + "\n")
    return 0


def _ends(code: int) -> Program:
    def program(_: Context, __: Sequence[str]) -> Process:
        yield from ()
        return code

    return program


def _exit(context: Context, words: Sequence[str]) -> Process:
    yield from ()
    return int(words[1]) & 255 if len(words) > 1 and words[1].isdigit() else context.last


def _sleep(context: Context, words: Sequence[str]) -> Process:
    total_s = 0.0
    for word in words[1:]:
        try:
            total_s += math.inf if word in ("infinity", "inf") else seconds_in(word)
        except ValueError:
            yield from context.complain(f"sleep: invalid number '{word}'")
            return 1
    if len(words) == 1:
        yield from context.complain("sleep: missing operand")
        return 1
    yield Sleep(total_s)
    return 0


def _test(context: Context, words: Sequence[str]) -> Process:
    words = list(words)
    name = words.pop(0)
    if name == "[":
        if words[-1:] != ["]"]:
            yield from context.complain("[: missing ]")
            return 2
        words.pop()
    is_negated = words[:1] == ["!"] and len(words) > 1
    if is_negated:
        words.pop(0)
    try:
        is_true = _is_true(context, words)
    except ValueError as error:
        yield from context.complain(f"{name}: {error}")
        return 2
    return int(is_true == is_negated)


_COMPARED: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}


def _is_true(context: Context, words: list[str]) -> bool:
    match words:
        case []:
            return False
        case [text]:
            return text != ""
        case ["-n", text]:
            return text != ""
        case ["-z", text]:
            return text == ""
        case ["-e" | "-f" | "-d" | "-s" | "-L" | "-h" | "-r" | "-w" | "-x" as kind, path]:
            try:
                entry = context.files.entry(context.path(path), follows=kind not in ("-L", "-h"))
            except FileError:
                return False
            if kind == "-d":
                return isinstance(entry, Directory)
            if kind in ("-L", "-h"):
                return isinstance(entry, Link)
            return isinstance(entry, File) and (kind != "-s" or len(entry.data) > 0) if kind in ("-f", "-s") else True
        case [left, "=" | "==", right]:
            return left == right
        case [left, "!=", right]:
            return left != right
        case [left, kind, right] if kind in _COMPARED:
            try:
                one, other = int(left), int(right)
            except ValueError as error:
                raise ValueError(f"{str(error).rpartition(' ')[2].strip(chr(39))}: bad number") from None
            return _COMPARED[kind](one, other)
    raise ValueError(f"{words[1] if len(words) > 1 else words[0]}: unknown operand")


def _each(work: Callable[[Context, dict[str, str], str], None], what: str) -> Callable[..., Process]:
    """Return the body of a program that does one thing to each operand."""

    def body(context: Context, name: str, options: dict[str, str], operands: list[str]) -> Process:
        if not operands:
            yield from context.complain(f"{name}: missing operand")
            return 1
        code = 0
        for operand in operands:
            try:
                work(context, options, operand)
            except FileError as error:
                yield from context.complain(f"{name}: {what.format(operand)}: {error}")
                code = 1
        return code

    return body


def _touch(context: Context, _: dict[str, str], path: str) -> None:
    place = context.path(path)
    if not context.files.is_directory(place):
        context.files.open(place, appends=True)


def _mkdir(context: Context, options: dict[str, str], path: str) -> None:
    context.files.make_directory(context.path(path), with_parents="p" in options)


def _rm(context: Context, options: dict[str, str], path: str) -> None:
    try:
        context.files.remove(context.path(path), recursively="r" in options or "R" in options)
    except FileError as error:
        if "f" not in options or "No such" not in str(error):
            raise


def _rmdir(context: Context, _: dict[str, str], path: str) -> None:
    if context.files.directory(context.path(path)).entries:
        raise FileError("Directory not empty")
    context.files.remove(context.path(path), recursively=True)


def _ln(context: Context, name: str, options: dict[str, str], operands: list[str]) -> Process:
    if "s" not in options or len(operands) != 2:
        yield from context.complain(f"{name}: want -s TARGET LINK")
        return 1
    try:
        context.files.link(context.path(operands[1]), operands[0])
    except FileError as error:
        yield from context.complain(f"{name}: {operands[1]}: {error}")
        return 1
    return 0


def _cp(context: Context, name: str, options: dict[str, str], operands: list[str]) -> Process:
    if len(operands) < 2:
        yield from context.complain(f"{name}: missing operand")
        return 1
    files, target = context.files, context.path(operands.pop())
    code = 0
    for operand in operands:
        source = context.path(operand)
        place = f"{target}/{split(source)[-1]}" if files.is_directory(target) and split(source) else target
        try:
            entry = files.entry(source)
            if isinstance(entry, Directory):
                if name == "cp" and not {"r", "R", "a"} & options.keys():
                    raise FileError("omitting directory")
                entries = list(walk(entry))
                files.make_directory(place, with_parents=True)
                for below, inner in entries:
                    if isinstance(inner, Directory):
                        files.make_directory(f"{place}/{below}", with_parents=True)
                    elif isinstance(inner, File):
                        files.write(f"{place}/{below}", bytes(inner.data), mode=inner.mode)
            elif isinstance(entry, File):
                files.write(place, bytes(entry.data), mode=entry.mode)
            if name == "mv":
                files.remove(source, recursively=True)
        except FileError as error:
            what = f"can't stat '{operand}'" if "No such" in str(error) else f"'{operand}'"
            yield from context.complain(f"{name}: {what}: {error}")
            code = 1
    return code


def _tee(context: Context, name: str, options: dict[str, str], operands: list[str]) -> Process:
    code, opened = 0, []
    for operand in operands:
        try:
            opened.append(context.files.open(context.path(operand), appends="a" in options))
        except FileError as error:
            yield from context.complain(f"{name}: {operand}: {error}")
            code = 1
    while data := (yield from context.stdin.some()):
        yield from context.write(1, data)
        for file in opened:
            context.files.extend(file, data)
    return code


def _over_files(
    shown: Callable[[bytes, dict[str, str], str], bytes],
) -> Callable[[Context, str, dict[str, str], list[str]], Process]:
    """Return the body of a program that writes something about the content of each file."""

    def body(context: Context, name: str, options: dict[str, str], operands: list[str]) -> Process:
        code = 0
        for operand in operands or ["-"]:
            try:
                data = yield from _content(context, operand)
                yield from context.write(1, shown(data, options, "" if not operands else operand))
            except FileError as error:
                yield from context.complain(f"{name}: {operand}: {error}")
                code = 1
            except ValueError as error:
                yield from context.complain(f"{name}: {error}")
                return 1
        return code

    return body


def _wc(data: bytes, options: dict[str, str], name: str) -> bytes:
    counts = {"l": data.count(b"\n"), "w": len(data.split()), "c": len(data)}
    wanted = [str(value) for key, value in counts.items() if not options or key in options]
    if len(wanted) > 1:
        wanted = [f"{each:>9}" for each in wanted]
    return (" ".join([*wanted, *([name] if name else [])]) + "\n").encode()


def _count(text: str) -> int:
    if not re.fullmatch(r"[-+]?\d{1,15}", text):
        raise ValueError(f"invalid number '{text}'")
    return int(text)


def _head(data: bytes, options: dict[str, str], _: str) -> bytes:
    if "c" in options:
        return data[: _count(options["c"])]
    return b"".join(data.splitlines(keepends=True)[: _count(options.get("n", "10"))])


def _tail(data: bytes, options: dict[str, str], _: str) -> bytes:
    text = options.get("c", options.get("n", "10"))
    count, is_from_start = abs(_count(text)), text.startswith("+")
    pieces: Sequence[bytes] = data.splitlines(keepends=True)
    if "c" in options:
        return data[max(0, count - 1) :] if is_from_start else data[max(0, len(data) - count) :]
    return b"".join(pieces[max(0, count - 1) :] if is_from_start else pieces[max(0, len(pieces) - count) :])


def _with_count_option(program: Program) -> Program:
    """Return the program with the old form of its option read, `-5` for `-n 5`."""

    def run_program(context: Context, words: Sequence[str]) -> Process:
        found = ["-n" + word[1:] if re.fullmatch(r"-\d+", word) else word for word in words]
        return (yield from program(context, found))

    return run_program


def _grep(context: Context, name: str, options: dict[str, str], operands: list[str]) -> Process:
    if not operands:
        yield from context.complain(f"{name}: missing pattern")
        return 2
    pattern = operands.pop(0)
    # Anchors and dots are all that a pattern means here: what repeats could keep a kubelet busy for very long.
    text = re.escape(pattern)
    if "F" not in options:
        text = re.sub(r"^\\\^", "^", re.sub(r"\\\$$", "$", text)).replace(r"\.", ".")
    wanted = re.compile(text.encode(), re.IGNORECASE if "i" in options else 0)
    matches, code = 0, 1
    for operand in operands or ["-"]:
        try:
            data = yield from _content(context, operand)
        except FileError as error:
            yield from context.complain(f"{name}: {operand}: {error}")
            code = 2
            continue
        lines = [x for x in data.splitlines(keepends=True) if (wanted.search(x) is not None) != ("v" in options)]
        matches += len(lines)
        if "c" in options:
            yield from context.say(f"{len(lines)}\n")
        elif "q" not in options:
            yield from context.write(1, b"".join(lines))
    return 0 if matches else code


def _seq(context: Context, words: Sequence[str]) -> Process:
    try:
        numbers = [int(word) for word in words[1:]]
        first, step, last = {1: (1, 1, *numbers), 2: (numbers[0], 1, numbers[-1]), 3: tuple(numbers)}[len(numbers)]
    except (ValueError, KeyError, IndexError):
        yield from context.complain("seq: want [FIRST [STEP]] LAST")
        return 1
    for number in range(first, last + (1 if step > 0 else -1), step or 1):
        yield from context.say(f"{number}\n")
    return 0


# --- tar, as `kubectl cp` uses it ---


def _archive_end(data: bytes | bytearray, at: int) -> tuple[int, bool]:
    """Return how far whole members reach from `at`, and whether the archive's end was there."""
    while len(data) >= at + 512:
        header = bytes(data[at : at + 512])
        if header == bytes(512):
            return at, True
        field = header[124:136]
        if field[0] & 0x80:
            size = int.from_bytes(field[1:], "big")
        else:
            digits = field.rstrip(b" \0").strip()
            if not re.fullmatch(rb"[0-7]*", digits):
                raise ValueError("invalid tar header")
            size = int(digits or b"0", 8)
        whole = at + 512 + (size + 511) // 512 * 512
        if whole > len(data):
            break
        at = whole
    return at, False


def _tar(context: Context, words: Sequence[str]) -> Process:
    rest, letters, directory, archive = list(words[1:]), "", context.cwd, "-"
    operands: list[str] = []
    is_first = True
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            if word.startswith("--directory="):
                directory = context.path(word.partition("=")[2])
            elif word not in ("--", "--no-same-permissions", "--no-same-owner", "--warning=no-unknown-keyword"):
                yield from context.complain(f"tar: unrecognized option: {word[2:]}")
                return 1
            continue
        if (word.startswith("-") and word != "-") or is_first:
            is_first = False
            letters += word.removeprefix("-")
            for letter in word.removeprefix("-"):
                if letter == "f" and rest:
                    archive = rest.pop(0)
                elif letter == "C" and rest:
                    directory = context.path(rest.pop(0))
            continue
        operands.append(word)
    if bad := set(letters) - set("cxtvmfCphzo"):
        yield from context.complain(f"tar: unrecognized option: {min(bad)}")
        return 1
    if "z" in letters or len({"c", "x", "t"} & set(letters)) != 1:
        yield from context.complain("tar: want one of c, x and t, and nothing compressed")
        return 1
    try:
        context.files.directory(directory)
        if "c" in letters:
            return (yield from _tar_create(context, directory, archive, operands))
        return (yield from _tar_extract(context, directory, archive, operands, letters))
    except FileError as error:
        yield from context.complain(f"tar: {directory}: {error}")
    except (ValueError, tarfile.TarError) as error:
        yield from context.complain(f"tar: {error}")
    return 1


def _tar_create(context: Context, directory: str, archive: str, operands: list[str]) -> Process:
    buffer, code = io.BytesIO(), 0
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as out:
        for operand in operands:
            path = operand if operand.startswith("/") else f"{directory}/{operand}"
            try:
                entry = context.files.entry(path, follows=operand.endswith("/"))
            except FileError as error:
                yield from context.complain(f"tar: {operand}: {error}")
                code = 1
                continue
            if operand.startswith("/"):
                yield from context.complain("tar: removing leading '/' from member names")
            name = "/".join(split(operand)) or "."
            _add_member(out, name, entry)
            if isinstance(entry, Directory):
                for below, inner in walk(entry):
                    _add_member(out, f"{name}/{below}", inner)
    if code:
        yield from context.complain("tar: error exit delayed from previous errors")
    data = buffer.getvalue()
    if archive != "-":
        context.files.write(context.path(archive), data)
        return code
    for place in range(0, len(data), CHUNK_BYTES):
        yield from context.write(1, data[place : place + CHUNK_BYTES])
    return code


def _add_member(out: tarfile.TarFile, name: str, entry: Entry) -> None:
    member = tarfile.TarInfo(name)
    member.mtime, member.uname, member.gname = int(entry.modified_s), "root", "root"
    match entry:
        case File():
            member.mode, member.size = entry.mode, len(entry.data)
            out.addfile(member, io.BytesIO(bytes(entry.data)))
        case Directory():
            member.mode, member.type = entry.mode, tarfile.DIRTYPE
            out.addfile(member)
        case Link():
            member.mode, member.type, member.linkname = 0o777, tarfile.SYMTYPE, entry.target
            out.addfile(member)


def _tar_extract(context: Context, directory: str, archive: str, operands: list[str], letters: str) -> Process:
    data = bytearray()
    at, is_over = 0, False
    if archive == "-":
        # An archive says where it ends: some clients never close the input.
        while not is_over and (piece := (yield from context.stdin.some())):
            data += piece
            if len(data) > ARCHIVE_BYTES_MAX:
                raise FileError("No space left on device")
            at, is_over = _archive_end(data, at)
    else:
        data += yield from _content(context, archive)
    if not data:
        raise ValueError("short read")
    with tarfile.open(fileobj=io.BytesIO(bytes(data)), mode="r:") as archived:
        for member in archived:
            name = "/".join(part for part in split(member.name) if part != "..")
            if operands and not any(name == each or name.startswith(f"{each}/") for each in operands):
                continue
            if "t" in letters or "v" in letters:
                yield from context.say(f"{name}{'/' if member.isdir() else ''}\n")
            if "x" in letters and name:
                _extract(context, f"{directory}/{name}", member, archived)
    return 0


def _extract(context: Context, path: str, member: tarfile.TarInfo, archived: tarfile.TarFile) -> None:
    files = context.files
    if member.isdir():
        files.make_directory(path, with_parents=True)
        return
    files.make_directory(path.rpartition("/")[0], with_parents=True)
    if member.issym():
        files.link(path, member.linkname)
    elif member.isreg():
        content = archived.extractfile(member)
        files.write(path, b"" if content is None else content.read(), mode=member.mode & 0o777)


def _which(context: Context, words: Sequence[str]) -> Process:
    found = [name for name in words[1:] if name in context.programs]
    yield from context.say("".join(f"/bin/{name}\n" for name in found))
    return int(len(found) < len(words) - 1)


def _shell(context: Context, words: Sequence[str]) -> Process:
    try:
        return (yield from shell(context, words))
    except Exit as end:
        return end.code


PROGRAMS: Final[Mapping[str, Program]] = {
    "[": _test,
    "ash": _shell,
    "bash": _shell,
    "cat": _checked_program("uvn", _cat),
    "cp": _checked_program("rRafpv", _cp),
    "date": _date,
    "echo": _echo,
    "env": _env,
    "exit": _exit,
    "false": _ends(1),
    "grep": _checked_program("ivcqFE", _grep),
    "head": _with_count_option(_checked_program("n:c:q", _over_files(_head))),
    "hostname": _says(lambda context: context.hostname),
    "id": _checked_program("ugnG", _id),
    "ln": _checked_program("sf", _ln),
    "ls": _checked_program("la1AdhtrFR", _ls),
    "mkdir": _checked_program("pm:", _each(_mkdir, "can't create directory '{}'")),
    "mv": _checked_program("f", _cp),
    "printenv": _checked_program("0", _printenv),
    "printf": _printf,
    "pwd": _says(lambda context: context.cwd),
    "rm": _checked_program("rRfi", _each(_rm, "can't remove '{}'")),
    "rmdir": _checked_program("p", _each(_rmdir, "'{}'")),
    "seq": _seq,
    "sh": _shell,
    "sleep": _sleep,
    "tail": _with_count_option(_checked_program("n:c:q", _over_files(_tail))),
    "tar": _tar,
    "tee": _checked_program("ai", _tee),
    "test": _test,
    "touch": _checked_program("acm", _each(_touch, "{}")),
    "true": _ends(0),
    "uname": _checked_program("asnrm", _uname),
    "wc": _checked_program("lwc", _over_files(_wc)),
    "which": _which,
    "whoami": _whoami,
}
"""All programs, by name."""
