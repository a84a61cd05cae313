"""Read files of documents piece by piece: YAML streams, lines of JSON, and the members of one great JSON document.

At most one document is held at a time; one that is longer, deeper or more self-repeating than `LIMITS` is
refused. `.gz` and `.zst` are recognised by their first bytes, never by the name. Pure but for reading the file.
Source: simulator 1, 11.
"""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

import msgspec
import yaml

from lab.exchange.stream import Place, Placed, Refused, title_of
from services.api.documents import yaml_text
from services.api.errors import UNREADABLE
from services.api.meta import Document, metadata_of
from services.api.resources import resource_of_kind

HEAD: Final = 1 << 16
"""Number of bytes that are read to recognise a file's format."""
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_BLOCK: Final = 1 << 16
SHOWN_MAX: Final = 80
"""Number of characters of a refused value that messages show."""


class Limits(NamedTuple):
    """Limits of a document: bytes, levels of nesting, aliases, and values once its aliases are expanded."""

    bytes: int = 4 << 20
    nesting: int = 64
    aliases: int = 100
    values: int = 1_000_000


LIMITS: Final = Limits()


@dataclass(frozen=True)
class Source:
    """A file that can be read several times; `name`: its name in messages. `data`: its contents, if it is in memory."""

    path: Path
    name: str = ""
    data: bytes | None = None

    @property
    def file(self) -> str:
        """Name of the file in messages."""
        return self.name or str(self.path)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the file at its beginning, uncompressed. Raises: Refused, if it cannot be read, or is torn."""
        try:
            with io.BytesIO(self.data) if self.data is not None else self.path.open("rb") as raw:
                yield _uncompress(cast("BinaryIO", raw), self.file)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise Refused(f"{self.file}: torn or damaged compression: {error}") from None
        except OSError as error:
            raise Refused(f"{self.file}: {error.strerror or error}") from None

    def head(self, size: int = HEAD) -> bytes:
        """Return the first bytes, uncompressed; fewer if the file is torn before `size`. Raises: Refused."""
        content = bytearray()
        try:
            with self.open() as stream:
                while len(content) < size and (block := stream.read(size - len(content))):
                    content += block
        except Refused:
            if not content:
                raise
        return bytes(content).removeprefix(b"\xef\xbb\xbf")


def _uncompress(raw: BinaryIO, file: str) -> BinaryIO:
    first = raw.read(4)
    raw.seek(0)
    if first.startswith(_GZIP):
        return cast("BinaryIO", gzip.GzipFile(fileobj=raw))
    if first == _ZSTD:
        return _zstd(raw, file)
    return cast("BinaryIO", io.BufferedReader(cast("Any", raw))) if isinstance(raw, io.RawIOBase) else raw


def _zstd(raw: BinaryIO, file: str) -> BinaryIO:
    for module, make in (("compression.zstd", "ZstdFile"), ("zstandard", "open")):
        try:
            library = importlib.import_module(module)
        except ImportError:
            continue
        return cast("BinaryIO", getattr(library, make)(raw, "rb"))
    raise Refused(
        f"{file}: the file is compressed by zstd, for which no library is installed; uncompress it, or use .gz"
    )


# YAML


class Piece(NamedTuple):
    """The text of one document, and its place in the file."""

    text: bytes
    place: Place


def yaml_pieces(source: Source, limits: Limits = LIMITS) -> Iterator[Piece]:
    """Yield the texts between `---` lines, except those of only blanks and comments.

    Raises: Refused, if one is too long.
    """
    # A line that begins with `---` or `...` separates wherever it stands: no scalar but a document's own may begin in
    # the first column.
    with source.open() as stream:
        lines: list[bytes] = []
        number, size, first, at, is_blank = 1, 0, 1, 0, True
        while line := stream.readline(limits.bytes + 2):
            at += 1
            if at == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            mark = line[:3]
            if mark in (b"---", b"...") and line[3:4] in (b"", b"\n", b"\r", b" ", b"\t"):
                if not is_blank:
                    yield Piece(b"".join(lines), Place(source.file, number, first))
                    number += 1
                # What stands behind `---` belongs to the document: `--- {a: 1}`.
                rest = line[3:] if mark == b"---" else b"\n"
                lines, size, is_blank, first = [rest], len(rest), _is_idle(rest), at if rest.strip() else at + 1
                continue
            if is_blank and not _is_idle(line):
                lines, is_blank, first, size = [], False, at, 0
            size += len(line)
            if size > limits.bytes:
                raise Refused(f"{Place(source.file, number, first)}: longer than {limits.bytes >> 20} MiB")
            lines.append(line)
        if not is_blank:
            yield Piece(b"".join(lines), Place(source.file, number, first))


def _is_idle(line: bytes) -> bool:
    text = line.strip()
    return not text or text.startswith((b"#", b"%YAML"))


def yaml_documents(source: Source, limits: Limits = LIMITS) -> Iterator[Placed]:
    """Yield the objects of a YAML stream. Raises: Refused, if one is malformed or beyond the limits."""
    for piece in yaml_pieces(source, limits):
        yield Placed(document_of(piece, limits), str(piece.place))


def document_of(piece: Piece, limits: Limits = LIMITS) -> Document:
    """Return the object in a YAML or JSON text.

    Raises: Refused, if it is malformed, beyond the limits, or no object.
    """
    try:
        text = piece.text.decode()
    except UnicodeDecodeError as error:
        raise Refused(f"{piece.place}: byte {error.start} is no UTF-8: {error.reason}") from None
    aliases = _check_events(text, piece.place, limits)
    try:
        document = yaml_text.load(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise Refused(f"{piece.place}: {_shift_lines(str(error), piece.place.line)}") from None
    if aliases and _values(document, {}) > limits.values:
        raise Refused(f"{piece.place}: its aliases stand for more than {limits.values:,} values")
    return check_document(document, piece.place)


def check_document(found: Any, place: Place | str) -> Document:
    """Check that a document is an object and return it. Raises: Refused."""
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        what = "list" if isinstance(found, list) else type(found).__name__
        raise Refused(f"{place}: want an object with apiVersion and kind, not {what}")
    return found


def checked_object(document: Document, place: str) -> Document:
    """Check that a document has apiVersion, kind and name, and outermost fields of the right types; return it.

    Spec and status of a kind that is not built in are not checked. Raises: Refused naming field and value.
    """
    metadata = metadata_of(document)
    is_built_in = resource_of_kind(str(document.get("apiVersion")), str(document.get("kind"))) is not None
    values = (
        ("apiVersion", document.get("apiVersion"), str, True),
        ("kind", document.get("kind"), str, True),
        ("metadata.name", metadata.get("name"), str, True),
        *((f"metadata.{name}", metadata.get(name), str, False) for name in ("namespace", "uid")),
        *((f"metadata.{name}", metadata.get(name), dict, False) for name in ("labels", "annotations")),
        *((name, document.get(name), dict, False) for name in ("spec", "status") if is_built_in),
    )
    for field, value, wanted, is_needed in values:
        if (is_needed and not value) or not (value is None or isinstance(value, wanted)):
            value_text = "nothing" if value is None else repr(value)[:SHOWN_MAX]
            what = "a text" if wanted is str else "an object"
            raise Refused(f"{place}: {title_of(document)}: {field}: want {what}, not {value_text}")
    return document


_LINE = re.compile(r"^line (\d+)")


def _shift_lines(text: str, first: int) -> str:
    """Return a parser's message with its line counted in the whole file."""
    return _LINE.sub(lambda found: f"line {int(found[1]) + max(first, 1) - 1}", text)


_BRACKETS = re.compile(r"[\[{]")
_INDENT = re.compile(r"^[ ]*(?:[-?:][ \t]+)*", re.MULTILINE)


def _check_events(text: str, place: Place, limits: Limits) -> int:
    """Return how many aliases there are. Raises: Refused: too deep, or too many.

    The parser that is written in C has no bound of its own for what is nested, so it may not see such a text.
    """
    # Levels are at most the brackets that stand open and the columns before a line's first word.
    if "*" not in text and len(_BRACKETS.findall(text)) + max(map(len, _INDENT.findall(text))) <= limits.nesting:
        return 0
    depth = aliases = 0
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > limits.nesting:
                    raise Refused(f"{place}: nested deeper than {limits.nesting} levels")
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            elif isinstance(event, yaml.AliasEvent):
                aliases += 1
                if aliases > limits.aliases:
                    raise Refused(f"{place}: more than {limits.aliases} aliases")
    except yaml.YAMLError as error:
        mistake = yaml_text.mistake_of(error)
        line = mistake.line and mistake.line - 1 + max(place.line, 1)
        raise Refused(f"{place}: {mistake._replace(line=line)}") from None
    return aliases


def _values(value: Any, known: dict[int, int]) -> int:
    """Return how many values there are with every alias written out; each is looked at once."""
    if not isinstance(value, dict | list):
        return 1
    count = known.get(id(value))
    if count is None:
        known[id(value)] = 1  # one that stands within itself
        below = value.values() if isinstance(value, dict) else value
        count = known[id(value)] = 1 + sum(_values(each, known) for each in below)
    return count


# CSV

CSV_ROW_MAX: Final = 1 << 16


def csv_rows(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a CSV file with their places.

    Raises: Refused, if a row has more or fewer cells than columns.
    """
    with source.open() as raw:
        text = io.TextIOWrapper(raw, "utf-8-sig", newline="")
        try:
            rows = csv.reader(text, strict=True)
            header = [name.strip() for name in next(rows, [])]
            for count, cells in enumerate(rows, 1):
                if not cells:
                    continue
                where = str(Place(source.file, count, rows.line_num))
                if len(cells) != len(header):
                    raise Refused(f"{where}: {len(cells)} cells where the header has {len(header)}")
                if sum(map(len, cells)) > CSV_ROW_MAX:
                    raise Refused(f"{where}: longer than {CSV_ROW_MAX >> 10} KiB")
                yield where, dict(zip(header, cells, strict=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise Refused(f"{source.file} (line {rows.line_num}): {error}") from None
        finally:
            text.detach()


# JSON


class Line(NamedTuple):
    """A line that is not blank, and its place. `is_torn`: it is the last one and lacks its newline."""

    text: bytes
    place: Place
    is_torn: bool


def lines(source: Source, limits: Limits = LIMITS) -> Iterator[Line]:
    """Yield the lines of a file with one document a line. Raises: Refused, if one is too long."""
    with source.open() as stream:
        number = at = 0
        while line := stream.readline(limits.bytes + 2):
            at += 1
            if at == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            number += 1
            place = Place(source.file, number, at)
            if len(line) > limits.bytes:
                raise Refused(f"{place}: longer than {limits.bytes >> 20} MiB")
            yield Line(line, place, not line.endswith(b"\n"))


def json_value(text: bytes, place: Place, limits: Limits = LIMITS) -> Any:
    """Return the value of a JSON text. Raises: Refused, if it is malformed or too deep."""
    if text.count(b"{") + text.count(b"[") > limits.nesting:
        _check_depth(text, place, limits)
    try:
        return msgspec.json.decode(text)
    except UNREADABLE as error:
        raise Refused(f"{place}: {_locate_message(str(error), text, place)}") from None


_BYTE = re.compile(r"^(?:JSON is malformed: )?(.*?) \(byte (\d+)\)$", re.DOTALL)


def _locate_message(problem: str, text: bytes, place: Place) -> str:
    """Return a decoder's message with the line and column that it is about, counted in the whole file."""
    match = _BYTE.match(problem)
    if match is None and "truncated" not in problem:
        return problem
    before = text[: int(match[2])] if match is not None else text.rstrip()
    line, column = max(place.line, 1) + before.count(b"\n"), len(before) - before.rfind(b"\n")
    if b"\n" not in before:
        column += max(place.column, 1) - 1
    return f"line {line}, column {column}: {match[1] if match is not None else 'it ends too early'}"


def json_object(text: bytes, place: Place, limits: Limits = LIMITS) -> Document:
    """Return the object in a JSON text. Raises: Refused, if it is malformed, too deep, or no object."""
    return check_document(json_value(text, place, limits), place)


_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def _check_depth(text: bytes, place: Place, limits: Limits) -> None:
    depth = 0
    for match in _STRUCTURE.finditer(text):
        sign = match[0]
        if sign in (b"{", b"["):
            depth += 1
            if depth > limits.nesting:
                raise Refused(f"{place}: nested deeper than {limits.nesting} levels")
        elif sign in (b"}", b"]"):
            depth -= 1


class Element(NamedTuple):
    """A part of a JSON object: an element of the array in `member`, or the whole value of a member that is no array.

    `number` counts the elements of an array from 1; it is 0 for a whole value. In a stream of objects, `member` ""
    is an element of a top-level list, or with number 0 the end of an object; its place is the object's.
    """

    member: str
    number: int
    text: bytes
    place: Place


def json_elements(source: Source, limits: Limits = LIMITS) -> Iterator[Element]:
    """Yield the parts of a JSON object in order, such as the items of a List: one is held at a time.

    Raises: Refused, if the file is no JSON object, ends too early, or has a part that is too long.
    """
    with source.open() as stream:
        yield from _Scanner(stream, source.file, limits).elements()


def json_stream(source: Source, limits: Limits = LIMITS) -> Iterator[Element]:
    """Yield the parts of consecutive JSON objects and lists, with blanks or `---` between them.

    Raises: Refused, if one is malformed, ends too early, or has a part that is too long.
    """
    with source.open() as stream:
        yield from _Scanner(stream, source.file, limits).stream()


class _Scanner:
    """Scanner of JSON that finds where values begin and end. `_number`: number of parts so far, used for their places;
    `_base`: offset in the file of the text in memory; `_line_at`: offset in the file of the current line.
    """

    def __init__(self, stream: BinaryIO, file: str, limits: Limits) -> None:
        self._stream, self._file, self._limits = stream, file, limits
        self._text, self._at, self._line, self._number = b"", 0, 1, 0
        self._base = self._line_at = 0

    def elements(self) -> Iterator[Element]:
        yield from self._object()
        if self._sign():
            raise self._wrong("more follows the object")

    def stream(self) -> Iterator[Element]:
        number = 0
        while sign := self._between():
            number += 1
            place = self._place(number)
            if sign == b"{":
                yield from self._object()
                yield Element("", 0, b"", place)
            elif self._take(b"["):
                yield from self._array("")
            else:
                raise self._wrong(f"want an object or a list of objects, not {sign.decode('latin-1')!r}")

    def _between(self) -> bytes:
        """Return the next byte that is neither blank nor of a line `---`, "" at the end; it stays."""
        while self._sign() == b"-":
            while len(self._text) - self._at < len(_DASHES) and self._more():
                pass
            if self._column() > 1 or _DASHES_LINE.match(self._text, self._at) is None:
                break
            self._at += len(_DASHES)
        return self._sign()

    def _object(self) -> Iterator[Element]:
        self._expect(b"{")
        if self._take(b"}"):
            return
        while True:
            name = self._value()
            if not name.startswith(b'"'):
                raise self._wrong("want the name of a member")
            member = str(json_value(name, self._place(), self._limits))
            self._expect(b":")
            if self._take(b"["):
                yield from self._array(member)
            else:
                yield self._part(member, 0)
            if self._take(b"}"):
                return
            self._expect(b",")

    def _array(self, member: str) -> Iterator[Element]:
        if self._take(b"]"):
            return
        number = 0
        while True:
            number += 1
            yield self._part(member, number)
            if self._take(b"]"):
                return
            self._expect(b",")

    def _part(self, member: str, number: int) -> Element:
        self._sign()
        self._number += 1
        place = self._place()
        return Element(member, number, self._value(), place)

    def _place(self, number: int = 0) -> Place:
        return Place(self._file, number or self._number, self._line, self._column())

    def _column(self) -> int:
        return self._base + self._at - self._line_at + 1

    def _wrong(self, what: str) -> Refused:
        return Refused(f"{self._file}: line {self._line}, column {self._column()}: {what}")

    def _more(self) -> bool:
        block = self._stream.read(_BLOCK)
        if not self._base and not self._text:
            # A byte order mark is no column.
            self._line_at = len(block) - len(block := block.removeprefix(b"\xef\xbb\xbf"))
            self._base = self._line_at
        self._base += self._at
        self._text, self._at = self._text[self._at :] + block, 0
        return bool(block)

    def _sign(self) -> bytes:
        """Return the next byte that is no blank, "" at the end; it stays."""
        while True:
            while self._at < len(self._text):
                sign = self._text[self._at : self._at + 1]
                if sign not in b" \t\r\n":
                    return sign
                self._at += 1
                if sign == b"\n":
                    self._line, self._line_at = self._line + 1, self._base + self._at
            if not self._more():
                return b""

    def _take(self, sign: bytes) -> bool:
        if self._sign() != sign:
            return False
        self._at += 1
        return True

    def _expect(self, sign: bytes) -> None:
        found = self._sign()
        if not self._take(sign):
            what = repr(found.decode("latin-1")) if found else "the end of the file"
            raise self._wrong(f"want {sign.decode()!r}, not {what}")

    def _value(self) -> bytes:
        """Return the text of the value that begins here."""
        self._sign()
        scan, depth = self._at, 0
        while True:
            match = _BOUNDARY.search(self._text, scan)
            if match is not None and (match.end() < len(self._text) or match[0] in (b"{", b"[", b"}", b"]", b",")):
                sign = match[0]
                scan = match.end()
                if sign in (b"{", b"["):
                    depth += 1
                elif sign in (b"}", b"]"):
                    depth -= 1
                if depth < 0 or (depth == 0 and sign in (b",", b":")):
                    return self._cut(match.start())
                if depth == 0 and sign not in (b"{", b"["):
                    return self._cut(match.end())
                continue
            taken = scan - self._at
            if len(self._text) - self._at > self._limits.bytes:
                raise Refused(f"{self._place()}: longer than {self._limits.bytes >> 20} MiB")
            if not self._more():
                raise self._wrong("the file ends within a value")
            scan = taken

    def _cut(self, end: int) -> bytes:
        text, begin = self._text[self._at : end].rstrip(), self._at
        self._at = end
        if not text:
            raise self._wrong("want a value")
        if len(text) > self._limits.bytes:
            raise Refused(f"{self._place()}: longer than {self._limits.bytes >> 20} MiB")
        if breaks := text.count(b"\n"):
            self._line += breaks
            self._line_at = self._base + begin + text.rfind(b"\n") + 1
        return text


_DASHES: Final = b"---"
_DASHES_LINE = re.compile(rb"---(?=[ \t\r\n{\[]|\Z)")
_BOUNDARY = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[\]{},:]', re.DOTALL)
"""Pattern of a JSON string, complete or cut at the end of the text; or of a structural character."""
