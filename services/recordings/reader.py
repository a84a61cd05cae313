"""Reads a recording, also one that still grows or whose writer was killed: what is torn at its end is left out.

Versions are in memory, some hundred bytes each; bodies, lines and spans are read when they are asked for.
"""

import zipfile
import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Self, TypeVar

import msgspec
import numpy as np

from services.api.errors import UNREADABLE
from services.recordings.format import (
    BODIES,
    DECISIONS,
    DELETED,
    FORMAT,
    LINES,
    META,
    PACK,
    SPANS,
    VERSION,
    VERSIONS,
    Meta,
    Place,
    Unreadable,
    Version,
)
from services.recordings.model import Change, Model
from services.telemetry.eventlog import Line
from services.telemetry.spans import FinishedSpan

T = TypeVar("T")
PIECE: Final = 1 << 20
UNPACKED_MAX: Final = 64
"""So many pieces of the pack are kept unpacked."""
MOVED: Final = b'"ev":"sched.moved"'
Key = tuple[str, str, str]
_NEVER: Final = np.iinfo(np.int64).max


class _Folder:
    """The members of a recording that is a folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[str, IO[bytes]] = {}

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        """Return so many bytes of a member, b"" where there is none. Raises: OSError."""
        if name == META:
            return (self._path / name).read_bytes()  # it is replaced, not written to
        if (found := self._files.get(name)) is None:
            try:
                found = self._files[name] = (self._path / name).open("rb")
            except FileNotFoundError:
                return b""
        found.seek(offset)
        return found.read(size)

    def close(self) -> None:
        for each in self._files.values():
            each.close()


class _File:
    """The members of a recording that is one file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._places: dict[str, tuple[int, int]] = {}
        with zipfile.ZipFile(self._file) as found:
            for each in found.infolist():
                if each.compress_type != zipfile.ZIP_STORED:
                    raise Unreadable(f"{path}: member {each.filename} is compressed; a recording's are stored")
                self._file.seek(each.header_offset + 26)
                head = self._file.read(4)
                begin = (
                    each.header_offset + 30 + int.from_bytes(head[:2], "little") + int.from_bytes(head[2:], "little")
                )
                self._places[each.filename] = begin, each.file_size

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        """Return so many bytes of a member, b"" where there is none. Raises: OSError."""
        begin, length = self._places.get(name, (0, 0))
        left = max(0, length - offset)
        self._file.seek(begin + offset)
        return self._file.read(left if size < 0 else min(size, left))

    def close(self) -> None:
        self._file.close()


class Recording:
    """A recording that is open. Made by `open`."""

    def __init__(self, path: Path, source: _Folder | _File, meta: Meta) -> None:
        self.path, self.meta = path, meta
        self._source = source
        self._read_to = dict.fromkeys((VERSIONS, BODIES), 0)
        self._versions: list[Version] = []
        self._places: dict[str, Place] = {}
        self._unpacked: OrderedDict[int, bytes] = OrderedDict()
        self._resources: set[str] = set()
        self._is_indexed = False
        self.refresh()

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Return the recording there. Raises: Unreadable, in one line that says why."""
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
        """Have its files be closed."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_complete(self) -> bool:
        """Whether its writer ended it; one that is not may grow."""
        return bool(self.meta.ended)

    def refresh(self) -> bool:
        """Read what was written since; whether there was anything."""
        with suppress(OSError, Unreadable):  # what was read before holds
            self.meta = _meta(self.path, self._source.read(META))
        for place in self._new(BODIES, Place):
            self._places[place.sha] = place
        found = list(self._new(VERSIONS, Version))
        if not found and self._is_indexed:
            return False
        # Of two lines about a version the later counts: its body came after it was written.
        by_rv = {each.rv: each for each in (*self._versions, *found)}
        named = {each.kind: each.resource for each in by_rv.values() if each.resource != each.kind}
        for each in found:
            if each.resource == each.kind in named:
                # A custom kind, before the recorder knew its definition.
                by_rv[each.rv] = msgspec.structs.replace(by_rv[each.rv], resource=named[each.kind])
        self._versions = [by_rv[rv] for rv in sorted(by_rv)]
        self._resources = {each.resource for each in self._versions}
        self._index()
        self._is_indexed = True
        return bool(found)

    def _index(self) -> None:
        """Find out which versions are live when, and at which one may stop."""
        versions = self._versions
        self._rvs = np.fromiter((each.rv for each in versions), np.int64, len(versions))
        ends = np.fromiter((each.group_end for each in versions), bool, len(versions))
        self._stops = self._rvs[ends]
        """Versions at which everything that was committed together is complete."""
        self._by_key: dict[Key, list[int]] = {}
        self._over = np.full(len(versions), _NEVER, np.int64)
        """From which version on a version of an object is not its newest."""
        for number, each in enumerate(versions):
            numbers = self._by_key.setdefault(each.key, [])
            if numbers:
                self._over[numbers[-1]] = each.rv
            numbers.append(number)
        self._is_there = np.fromiter((each.type != DELETED for each in versions), bool, len(versions))

    # -- times and versions ----------------------------------------------------------------------------

    @property
    def rv_range(self) -> tuple[int, int]:
        """The first and the last version at which one may stop; (0, 0) of an empty recording."""
        return (int(self._stops[0]), int(self._stops[-1])) if len(self._stops) else (0, 0)

    @property
    def time_range(self) -> tuple[float, float]:
        """When the first and the last version were committed; (0, 0) of an empty recording."""
        return (self.time_of(self._versions[0]), self.time_of(self._versions[-1])) if self._versions else (0.0, 0.0)

    def time_of(self, of: Version | Line) -> float:
        """Return when that was, in seconds of the recording's clock."""
        at_s = of.t if isinstance(of, Version) else of.mono_ns / 1e9
        return at_s - self.meta.clock.zero_s

    def stop_at(self, rv: int) -> int:
        """Return the newest version up to `rv` at which one may stop: the end of a group; 0 before the first."""
        place = int(np.searchsorted(self._stops, rv, "right"))
        return int(self._stops[place - 1]) if place else 0

    def version_at(self, t: float) -> int:
        """Return the newest version up to that time at which one may stop; 0 before the first."""
        at_s = t + self.meta.clock.zero_s
        place = bisect_right(self._versions, at_s, key=lambda each: each.t)
        return self.stop_at(self._versions[place - 1].rv) if place else 0

    def __len__(self) -> int:
        return len(self._versions)

    def versions(self, after_rv: int = 0) -> Iterator[Version]:
        """Yield the versions after that one, in their order; `t` is in seconds of the recording's clock."""
        begin = int(np.searchsorted(self._rvs, after_rv, "right"))
        for each in self._versions[begin:]:
            yield self._shown(each)

    def _shown(self, version: Version) -> Version:
        zero_s = self.meta.clock.zero_s
        return msgspec.structs.replace(version, t=version.t - zero_s) if zero_s else version

    def versions_of(self, resource: str, ns: str, name: str) -> list[Version]:
        """Return all versions of an object, and of others before it that had its name."""
        return [self._shown(self._versions[i]) for i in self._by_key.get((resource, ns, name), ())]

    @property
    def resources(self) -> list[str]:
        """The kinds of which there is a version, by wire name."""
        return sorted(self._resources)

    # -- states ----------------------------------------------------------------------------------------

    def state_at(self, rv: int) -> dict[Key, Version]:
        """Return what was stored at that version, or at the last end of a group before it."""
        return {each.key: self._shown(each) for each in (self._versions[i] for i in self._live(self.stop_at(rv)))}

    def _live(self, rv: int) -> Any:
        """Return the numbers of the versions that are the newest of an object then, in their order."""
        count = int(np.searchsorted(self._rvs, rv, "right"))
        return np.flatnonzero((self._over[:count] > rv) & self._is_there[:count])

    def version_of(self, resource: str, ns: str, name: str, rv: int) -> Version | None:
        """Return the newest version of an object then, None when it is not there."""
        numbers = self._by_key.get((resource, ns, name), [])
        stop = self.stop_at(rv)
        place = bisect_right(numbers, stop, key=lambda i: self._versions[i].rv)
        found = self._versions[numbers[place - 1]] if place else None
        return self._shown(found) if found is not None and found.type != DELETED else None

    def object_at(self, resource: str, ns: str, name: str, rv: int) -> bytes | None:
        """Return the body of an object then; None when it was not there, or its body is not recorded."""
        version = self.version_of(resource, ns, name, rv)
        return self.body(version.sha) if version is not None else None

    def has_body(self, version: Version) -> bool:
        """Whether the body of that version is recorded."""
        return version.sha in self._places

    def body(self, sha: str) -> bytes | None:
        """Return a body; None when it is not recorded."""
        place = self._places.get(sha)
        if place is None:
            return None
        raw = self._unpacked.get(place.offset)
        if raw is None:
            raw = _unpacked(self._source.read(PACK, place.offset, place.size))
            self._unpacked[place.offset] = raw
            if len(self._unpacked) > UNPACKED_MAX:
                self._unpacked.popitem(last=False)
        else:
            self._unpacked.move_to_end(place.offset)
        found = raw[place.at : place.at + place.length]
        return found if len(found) == place.length else None

    def change(self, version: Version) -> Change:
        """Return what a version changed, as a `Model` takes it."""
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
        """Return the columns at that version, or at the last end of a group before it."""
        model, stop = Model(), self.stop_at(rv)
        for version in self.versions():
            if version.rv > stop:
                break
            model.apply(version.rv, version.t, version.group_end, (self.change(version),))
        model.forget_changes()
        return model

    # -- lines and spans -------------------------------------------------------------------------------

    def lines(self) -> Iterator[Line]:
        """Yield the lines of the event log, in the order in which they were recorded."""
        return self._of(LINES, Line)

    def spans(self) -> Iterator[FinishedSpan]:
        """Yield the spans, in the order in which they ended."""
        return self._of(SPANS, FinishedSpan)

    def decisions(self) -> Iterator[bytes]:
        """Yield the decisions that were recorded with their scores, as JSON; those of a simulation."""
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
        found = msgspec.json.decode(raw)
        kind, version = found.get("format", ""), found.get("version", 0)
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


def _unpacked(data: bytes) -> bytes:
    try:
        return zlib.decompress(data, 31)
    except zlib.error:
        return b""
