"""Read a recording, also one that still grows or whose writer was killed: a torn end is left out.

Versions are in memory, some hundred bytes each; bodies, lines and spans are read when they are asked for.
Several threads may read a recording whose `guard` is a lock: the live page plays a recording while it answers
requests about it.
"""

import os
import zipfile
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Self, TypeVar

import msgspec
import numpy as np

from lab.recordings.format import (
    BODIES,
    DECISIONS,
    DELETED,
    FORMAT,
    LINES,
    META,
    PACK,
    ROWS,
    SPANS,
    VERSION,
    VERSIONS,
    Meta,
    Place,
    Unreadable,
    Version,
)
from lab.recordings.frames import Array
from lab.recordings.index import PastColumns, past_of, read_past
from lab.recordings.model import Change, Model
from lab.recordings.moves import SIGNS as MOVES_SIGNS
from lab.recordings.moves import Move, Moves
from services.api.errors import UNREADABLE
from services.api.lru import LRU
from services.telemetry.eventlog import Line
from services.telemetry.spans import FinishedSpan

T = TypeVar("T")
PIECE: Final = 1 << 20
UNPACKED_MAX: Final = 64
"""Number of pieces of the pack that are kept unpacked."""
Key = tuple[str, str, str]
NEVER: Final = 2**63 - 1


class _Numbers(NamedTuple):
    """Versions as arrays: their numbers, the number that replaces each, and the numbers at which a reader may stop."""

    rvs: Array
    over: Array
    stops: Array


def _read_at(file: IO[bytes], offset: int, size: int) -> bytes:
    """Return so many bytes from there on, whoever else reads the file meanwhile; a short read is the end of it."""
    found = bytearray()
    while size > 0 and (some := os.pread(file.fileno(), size, offset + len(found))):
        found += some
        size -= len(some)
    return bytes(found)


class _Folder:
    """The members of a recording that is a folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[str, IO[bytes]] = {}

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        """Return so many bytes of a member, b"" where there is none. Raises: OSError."""
        try:
            if name == META:
                return (self._path / name).read_bytes()  # it is replaced, not written to
            if (file := self._files.get(name)) is None:
                file = self._files[name] = (self._path / name).open("rb")
        except FileNotFoundError:
            return b""
        return _read_at(file, offset, size if size >= 0 else os.fstat(file.fileno()).st_size - offset)

    def close(self) -> None:
        for each in self._files.values():
            each.close()


class _File:
    """The members of a recording that is one file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._places: dict[str, tuple[int, int]] = {}
        with zipfile.ZipFile(self._file) as archive:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED:
                    raise Unreadable(f"{path}: member {member.filename} is compressed; a recording's are stored")
                self._file.seek(member.header_offset + 26)
                head = self._file.read(4)
                begin = (
                    member.header_offset + 30 + int.from_bytes(head[:2], "little") + int.from_bytes(head[2:], "little")
                )
                self._places[member.filename] = begin, member.file_size

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        """Return so many bytes of a member, b"" where there is none. Raises: OSError."""
        begin, length = self._places.get(name, (0, 0))
        left = max(0, length - offset)
        return _read_at(self._file, begin + offset, left if size < 0 else min(size, left))

    def close(self) -> None:
        self._file.close()


class Recording:
    """An open recording. Create it with `open`."""

    def __init__(self, path: Path, source: _Folder | _File, meta: Meta) -> None:
        self.path, self.meta = path, meta
        self._source = source
        self._read_to = dict.fromkeys((VERSIONS, BODIES), 0)
        self._versions: list[Version] = []
        self._places: dict[str, Place] = {}
        self._unpacked: LRU[int, bytes] = LRU(UNPACKED_MAX)
        self.guard: AbstractContextManager[Any] = nullcontext()
        """What is held while a piece is unpacked: a lock, where several threads read."""
        self._zero_s = 0.0
        self._by_key: dict[Key, list[int]] = {}
        """By resource, namespace and name: the places of its versions."""
        self._over: list[int] = []
        """From which version on a version is not its object's newest; that of a deletion never is."""
        self._arrays: _Numbers | None = None
        self._past: PastColumns | None = None
        self._moves: list[Move] | None = None
        self.refresh()

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open the recording at a path. Raises: Unreadable, in one line that says why."""
        path = Path(path)
        source: _Folder | _File | None = None
        try:
            if not path.exists() and path.with_name(f"{path.name}.part").is_dir():
                path = path.with_name(f"{path.name}.part")  # the writer was ended while it made the file
            source = _Folder(path) if path.is_dir() else _File(path)
            meta = _meta(path, source.read(META))
            return cls(path, source, meta)
        except (OSError, zipfile.BadZipFile, Unreadable) as error:
            if source is not None:
                source.close()
            if isinstance(error, Unreadable):
                raise
            what = "no recording" if isinstance(error, zipfile.BadZipFile) else getattr(error, "strerror", "") or error
            raise Unreadable(f"{path}: {what}") from None

    def close(self) -> None:
        """Close the recording's files."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_complete(self) -> bool:
        """Whether the writer ended the recording; otherwise it may still grow."""
        return bool(self.meta.ended)

    def refresh(self) -> bool:
        """Read the data written since the last call; return whether there was a new version."""
        with suppress(OSError, Unreadable):  # what was read before holds
            self.meta = _meta(self.path, self._source.read(META))
        for place in self._new(BODIES, Place):
            self._places[place.sha] = place
        versions = list(self._new(VERSIONS, Version))
        zero_s = self.meta.clock.zero_s
        if zero_s != self._zero_s:
            shift_s, self._zero_s = zero_s - self._zero_s, zero_s
            self._versions = [msgspec.structs.replace(each, t=each.t - shift_s) for each in self._versions]
        if not versions:
            return False
        versions = [msgspec.structs.replace(each, t=each.t - zero_s) for each in versions] if zero_s else versions
        last = self._versions[-1].rv if self._versions else 0
        is_dense = all(before.rv < after.rv for before, after in pairwise(versions)) and versions[0].rv > last
        if not is_dense or any(each.resource == each.kind for each in versions):
            versions = self._sort_versions(versions)
            self._versions.clear()
            self._by_key.clear()
            self._over.clear()
        self._index(versions)
        return True

    def _sort_versions(self, versions: list[Version]) -> list[Version]:
        """Return all versions in their order. Of two lines about a version the later counts: its body came after it was
        written."""
        by_rv = {each.rv: each for each in (*self._versions, *versions)}
        named = {each.kind: each.resource for each in by_rv.values() if each.resource != each.kind}
        for rv, version in by_rv.items():
            if version.resource == version.kind in named:
                # A custom kind, before the recorder knew its definition.
                by_rv[rv] = msgspec.structs.replace(version, resource=named[version.kind])
        return [by_rv[rv] for rv in sorted(by_rv)]

    def _index(self, versions: list[Version]) -> None:
        """Take versions that follow those that are known."""
        begin = len(self._versions)
        self._versions += versions
        for number, version in enumerate(versions, begin):
            numbers = self._by_key.setdefault(version.key, [])
            if numbers and self._over[numbers[-1]] == NEVER:
                self._over[numbers[-1]] = version.rv
            numbers.append(number)
            self._over.append(NEVER if version.type != DELETED else version.rv)
        self._arrays = None
        self._past = None
        self._moves = None

    def _numbers(self) -> _Numbers:
        """Return versions as arrays."""
        if self._arrays is None:
            count, versions = len(self._versions), self._versions
            rvs = np.fromiter((each.rv for each in versions), np.int64, count)
            ends = np.fromiter((each.group_end for each in versions), bool, count)
            self._arrays = _Numbers(rvs, np.asarray(self._over, np.int64), rvs[ends])
        return self._arrays

    # -- times and versions ----------------------------------------------------------------------------

    @property
    def rv_range(self) -> tuple[int, int]:
        """The first and the last version at which a reader may stop; (0, 0) for an empty recording."""
        stops = self._numbers().stops
        return (int(stops[0]), int(stops[-1])) if len(stops) else (0, 0)

    @property
    def time_range(self) -> tuple[float, float]:
        """Commit times of the first and the last version; (0, 0) for an empty recording."""
        return (self._versions[0].t, self._versions[-1].t) if self._versions else (0.0, 0.0)

    def time_of(self, line: Line) -> float:
        """Return the time of a line, in seconds of the recording's clock."""
        return line.mono_ns / 1e9 - self.meta.clock.zero_s

    def stop_at(self, rv: int) -> int:
        """Return the newest version up to `rv` at which a reader may stop: the end of a group; 0 before the first."""
        stops = self._numbers().stops
        place = int(np.searchsorted(stops, rv, "right"))
        return int(stops[place - 1]) if place else 0

    def version_at(self, t: float) -> int:
        """Return the newest version up to that time at which a reader may stop; 0 before the first."""
        place = bisect_right(self._versions, t, key=lambda each: each.t)
        return self.stop_at(self._versions[place - 1].rv) if place else 0

    def time_at(self, rv: int) -> float:
        """Return the commit time of a version, or of the next existing one; 0 after the last."""
        place = bisect_left(self._versions, rv, key=lambda each: each.rv)
        return self._versions[place].t if place < len(self._versions) else 0.0

    def __len__(self) -> int:
        return len(self._versions)

    def versions(self, after_rv: int = 0) -> Iterator[Version]:
        """Yield the versions after that one, in order."""
        begin = bisect_right(self._versions, after_rv, key=lambda each: each.rv)
        yield from self._versions[begin:]

    def versions_of(self, resource: str, ns: str, name: str) -> list[Version]:
        """Return all versions of an object, and of earlier objects with the same name."""
        return [self._versions[i] for i in self._by_key.get((resource, ns, name), ())]

    @property
    def resources(self) -> list[str]:
        """Wire names of the kinds that have a version in the recording."""
        return sorted({resource for resource, _, _ in self._by_key})

    # -- states ----------------------------------------------------------------------------------------

    def state_at(self, rv: int) -> dict[Key, Version]:
        """Return the objects stored at that version, or at the last end of a group before it."""
        versions, stop, numbers = self._versions, self.stop_at(rv), self._numbers()
        count = int(np.searchsorted(numbers.rvs, stop, "right"))
        live = np.flatnonzero(numbers.over[:count] > stop).tolist()
        return {versions[i].key: versions[i] for i in live}

    def version_of(self, resource: str, ns: str, name: str, rv: int) -> Version | None:
        """Return the newest version of an object at version `rv`, None if it did not exist then."""
        numbers, stop = self._by_key.get((resource, ns, name), []), self.stop_at(rv)
        place = bisect_right(numbers, stop, key=lambda i: self._versions[i].rv)
        found = self._versions[numbers[place - 1]] if place else None
        return found if found is not None and found.type != DELETED else None

    def object_at(self, resource: str, ns: str, name: str, rv: int) -> bytes | None:
        """Return the body of an object at version `rv`; None if it did not exist then, or its body is not recorded."""
        version = self.version_of(resource, ns, name, rv)
        return self.body(version.sha) if version is not None else None

    def has_body(self, version: Version) -> bool:
        """Return whether the body of that version is recorded."""
        return version.sha in self._places

    def body(self, sha: str) -> bytes | None:
        """Return the body with that hash; None if it is not recorded."""
        place = self._places.get(sha)
        if place is None:
            return None
        with self.guard:
            raw = self._unpacked.use(place.offset)
            if raw is None:
                raw = _unpack(self._source.read(PACK, place.offset, place.size))
                self._unpacked.put(place.offset, raw)
        body = raw[place.at : place.at + place.length]
        return body if len(body) == place.length else None

    def change(self, version: Version) -> Change:
        """Return the change that a version made, in the form that a `Model` takes."""
        return Change(
            version.type,
            version.resource,
            version.kind,
            version.ns,
            version.name,
            version.uid,
            self.body(version.sha) if version.type != DELETED else None,
            version.facts,
            version.owners,
        )

    def model_at(self, rv: int) -> Model:
        """Return the model at that version, or at the last end of a group before it.

        In a recording without stored rows (one that grows, or was torn) the first call reads all of it.
        """
        if self._past is None:
            self._past = read_past(self._source.read(ROWS), len(self._versions)) or past_of(self)
        stop = self.stop_at(rv)
        place = bisect_right(self._versions, stop, key=lambda each: each.rv)
        return self._past.model_at(stop, self._versions[place - 1].t if place else 0.0)

    def replay(self, model: Model, after_rv: int = 0) -> Iterator[Version]:
        """Apply the versions after that one to a model, and yield each version once it is applied.

        `model` is that of `model_at(after_rv)`. The moves in the scheduling queue between the versions are applied as
        well; they are read before this returns.
        """
        return self._apply_versions(model, after_rv, self._known_moves())

    def _apply_versions(self, model: Model, after_rv: int, moves: list[Move]) -> Iterator[Version]:
        place = bisect_right(moves, model.time, key=lambda each: each.t) if after_rv else 0
        for version in self.versions(after_rv):
            while place < len(moves) and moves[place].t <= version.t:
                model.move(moves[place].uid, moves[place].pool, moves[place].t)
                place += 1
            model.apply(version.rv, version.t, version.group_end, (self.change(version),))
            yield version

    def _known_moves(self) -> list[Move]:
        if self._moves is None:
            self._moves = sorted(self.moves(), key=lambda each: each.t)
        return self._moves

    def moves(self) -> Iterator[Move]:
        """Yield the moves of pods into pools of the scheduling queue, in the order of the lines that report them."""
        reader = Moves()
        decoder = msgspec.json.Decoder(Line)
        for _, raw in _streams(self._source, LINES, 0):
            if not any(sign in raw for sign in MOVES_SIGNS):
                continue
            for text in raw.splitlines():
                if any(sign in text for sign in MOVES_SIGNS):
                    line = decoder.decode(text)
                    yield from reader.of(line, self.time_of(line))

    # -- lines and spans -------------------------------------------------------------------------------

    def lines(self) -> Iterator[Line]:
        """Yield the lines of the event log, in the order in which they were recorded."""
        return self._of(LINES, Line)

    def spans(self) -> Iterator[FinishedSpan]:
        """Yield the spans, in the order in which they ended."""
        return self._of(SPANS, FinishedSpan)

    def decisions(self) -> Iterator[bytes]:
        """Yield the decisions that a simulation recorded with their scores, as JSON."""
        for _, raw in _streams(self._source, DECISIONS, 0):
            yield from raw.splitlines()

    def _of(self, name: str, form: type[T]) -> Iterator[T]:
        decoder = msgspec.json.Decoder(form)
        for _, raw in _streams(self._source, name, 0):
            for line in raw.splitlines():
                yield decoder.decode(line)

    def _new(self, name: str, form: type[T]) -> Iterator[T]:
        """Yield what a member has that was not read yet. Raises: Unreadable."""
        decoder = msgspec.json.Decoder(form)
        for end, raw in _streams(self._source, name, self._read_to[name]):
            for line in raw.splitlines():
                try:
                    yield decoder.decode(line)
                except UNREADABLE as error:
                    raise Unreadable(f"{self.path}: {name}: {error}") from None
            self._read_to[name] = end


def _meta(path: Path, raw: bytes) -> Meta:
    """Return what a recording says of itself. Raises: Unreadable."""
    try:
        document = msgspec.json.decode(raw)
        kind, version = document.get("format", ""), document.get("version", 0)
    except (*UNREADABLE, AttributeError):
        raise Unreadable(f"{path}: no recording; it has no {META}") from None
    if kind != FORMAT:
        raise Unreadable(f"{path}: is of format {kind!r}; want {FORMAT!r}")
    if version != VERSION:
        raise Unreadable(f"{path}: is of version {version} of the format; this keplab reads version {VERSION}")
    try:
        return msgspec.json.decode(raw, type=Meta)
    except UNREADABLE as error:
        raise Unreadable(f"{path}: {META}: {error}") from None


def _streams(source: _Folder | _File, name: str, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield the gzip streams of a member from there on, with where each ends; one that is torn ends it."""
    waiting = source.read(name, offset, PIECE)
    position = offset + len(waiting)
    while waiting:
        unpacker, raw, size = zlib.decompressobj(31), [], 0
        while not unpacker.eof:
            if not waiting:
                waiting = source.read(name, position, PIECE)
                position += len(waiting)
                if not waiting:
                    return
            size += len(waiting)
            try:
                raw.append(unpacker.decompress(waiting))
            except zlib.error:
                return
            waiting = b""
        waiting = unpacker.unused_data
        offset += size - len(waiting)
        yield offset, b"".join(raw)
        if not waiting:
            waiting = source.read(name, position, PIECE)
            position += len(waiting)


def _unpack(data: bytes) -> bytes:
    try:
        return zlib.decompress(data, 31)
    except zlib.error:
        return b""
