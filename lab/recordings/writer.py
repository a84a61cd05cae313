"""Write a recording while the run goes on: event lines, bodies as watches bring them, spans.

Everything is appended, bodies before the versions that name them, so that whatever ends the writer leaves a
recording that can be read up to that point. A disk that refuses ends the recording, never the recorded run. All
data passes `redaction` before it is written.
"""

import fcntl
import hashlib
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from lab.recordings.format import (
    ADDED,
    BLOCK_BYTES,
    BLOCK_VERSIONS,
    BODIES,
    COMMIT,
    DECISIONS,
    FORMAT,
    INDEX,
    LINES,
    MEMBERS,
    META,
    PACK,
    ROWS,
    SPANS,
    VERSIONS,
    Block,
    Clock,
    Index,
    Meta,
    Place,
    Version,
)
from lab.recordings.index import past_of
from lab.recordings.reader import Recording
from lab.recordings.redaction import redact, redacted_line, redacted_text
from lab.recordings.rows import NODES, PODS
from services.api.errors import UNREADABLE
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.meta import AnyObject
from services.api.resources import resources
from services.api.wire import WatchEvent
from services.telemetry.eventlog import Line, encode
from services.telemetry.spans import FinishedSpan

LEVEL: Final = 1
"""Compression level of zlib: the data repeats itself so much that more effort finds little more."""
FACTS_FOR: Final = frozenset((PODS, NODES))
"""Kinds whose rows can be made from the event log's facts, if the body is not recorded."""
_NO_FACTS: Final = frozenset(
    ("type", "group_end", "content_sha256", "prev_rv", "state_hash", "verb", "subresource", "replayed", "owners")
)
ROWS_FROM: Final = 1_000
"""Number of versions from which a recording stores their rows; with fewer, readers make them from the bodies."""
WITHOUT_BODY_MAX: Final = 4_000
"""Largest number of versions that may still get a body whose hash is not that of their line."""
LATE_MAX: Final = 10_000
"""Largest number of bodies that may wait for the line about their version."""
PLACES_KEPT, UIDS_KEPT = 10_000, 10_000
_STORED: Final = msgspec.json.Decoder(AnyObject)
_PRIVATE: Final = 0o600


class NotRecordable(ValueError):
    """No recording can be made at that path; the message says why in one line."""


class BeingRecorded(NotRecordable):
    """Another command is writing a recording at that path."""


@cache
def _resource_of_kind() -> dict[str, str]:
    return {each.kind: name for name, each in resources().items()}


class _Member:
    """A member that grows by gzip streams of whole lines. `blocks`: places of the streams."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE)
        self.offset = 0
        self.blocks: list[Block] = []
        self.count = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def add(self, line: bytes) -> bool:
        """Append a line; whether a block is full."""
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        return self._waiting_bytes >= BLOCK_BYTES

    def flush(self, rv: int = 0, t: float = 0.0) -> None:
        """Write what waits. Raises: OSError, after which nothing more is written."""
        if not self._waiting:
            return
        offset, size = self.append(b"".join(self._waiting))
        self.blocks.append(Block(offset, size, self.count, len(self._waiting), rv, t))
        self.count += len(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0

    def append(self, raw: bytes) -> tuple[int, int]:
        """Write one gzip stream; return its offset and size. Raises: OSError; the file is as it was."""
        packer = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)
        data = memoryview(packer.compress(raw) + packer.flush())
        offset, written = self.offset, 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._fd, offset)
            raise
        self.offset += len(data)
        return offset, len(data)

    def close(self) -> None:
        os.close(self._fd)


class Writer:
    """Writer of one recording. Only the constructor raises: NotRecordable."""

    def __init__(self, path: Path, meta: Meta) -> None:
        """Begin a recording; an existing recording is replaced, any other file or folder is not."""
        self.path, self.meta = path, meta
        self.failure = ""
        """Why nothing more is recorded."""
        self.version_count = self.body_count = self.line_count = self.span_count = 0
        self._folder = path
        try:
            self._lock = _begin(path)
            self._members = [_Member(path / name) for name in (LINES, VERSIONS, BODIES, SPANS, DECISIONS, PACK)]
            self._lines, self._versions, self._bodies, self._spans, self._decisions, self._pack = self._members
            self._write_meta()
        except OSError as error:
            raise NotRecordable(f"cannot record in {path}: {error.strerror or error}") from None
        self._waiting: list[Version] = []
        self._places = _Lately(PLACES_KEPT)
        """Hashes of the bodies that were recorded lately, those in `_raw` included."""
        self._raw: list[tuple[str, bytes]] = []
        self._raw_bytes = 0
        self._seen = _Numbers()
        self._known_uids = _Lately(UIDS_KEPT)
        """Of which the owners were written; of one that is forgotten they are written again."""
        self._late: dict[int, str] = {}
        """Hashes of bodies whose version is not known yet, by version: where they are not those that it will name."""
        self._unflushed: dict[int, int] = {}
        """Where in `_waiting` a version is."""
        self._without_body: dict[int, Version] = {}
        """Versions that were written without a body, which may still come."""
        self._resources = dict(_resource_of_kind())
        self._zero_s = 0.0
        self._is_begun = False
        self._is_closed = False

    # -- what is recorded ------------------------------------------------------------------------------

    def begin(self, zero_s: float, wall_s: float, *, is_virtual: bool = False) -> None:
        """Set the zero of times: `zero_s` of the run's own clock, which is `wall_s` of the wall clock."""
        self._zero_s, self._is_begun = zero_s, True
        self.meta = msgspec.structs.replace(self.meta, clock=Clock(zero_s, wall_s, is_virtual))
        self._guard(self._write_meta)

    def line(self, line: Line, text: bytes = b"") -> None:
        """Record a line of the event log; a commit's line is also a version. `text`: the redacted line, if it is known
        already.
        """
        if self.failure or self._is_closed:
            return
        if not text or line.ev == COMMIT:
            line = redacted_line(line)
        if line.ev == COMMIT:
            self._commit(line)
        self.line_count += 1
        if self._lines.add(text + b"\n" if text else redacted_text(encode(line))):
            self._guard(self.flush)

    def _commit(self, line: Line) -> None:
        assert line.obj is not None
        assert line.rv is not None
        rv, obj, data = line.rv, line.obj, line.data
        if not self._seen.add(rv):
            return  # committed before: a server that starts, or another one, says it again
        resource = self._resources.get(obj["kind"], obj["kind"])
        is_new = obj["uid"] not in self._known_uids
        self._known_uids.add(obj["uid"])
        sha = self._late.pop(rv, "") or data.get("content_sha256", "")
        # Of a version whose body is recorded already facts say nothing.
        has_facts = resource in FACTS_FOR and sha not in self._places
        self._unflushed[rv] = len(self._waiting)
        self._waiting.append(
            Version(
                rv=rv,
                t=line.mono_ns / 1e9,
                type=data.get("type", ADDED),
                resource=resource,
                kind=obj["kind"],
                ns=obj["ns"],
                name=obj["name"],
                uid=obj["uid"],
                sha=sha,
                group_end=data.get("group_end", rv) <= rv,
                line=self.line_count,
                identity=line.identity or data.get("identity", ""),
                verb=data.get("verb", ""),
                subresource=data.get("subresource", ""),
                req_id=line.req_id,
                trace_id=line.trace_id,
                owners=tuple(data.get("owners", ())) if is_new else (),
                facts={k: v for k, v in data.items() if k not in _NO_FACTS} if has_facts else {},
            )
        )
        self.version_count += 1
        if len(self._waiting) >= BLOCK_VERSIONS:
            self._guard(self._flush_versions)

    def event(self, event: WatchEvent) -> None:
        """Record the body in a watch event."""
        if event.body and event.type not in ("BOOKMARK", "ERROR"):
            self.body(event.resource, event.rv, event.body)

    def body(self, resource: str, rv: int, body: bytes) -> None:
        """Record the body of a version.

        The last body of a deleted object is the one sent to watchers, with the version of the deletion; its hash is
        therefore not that of the stored body.
        """
        if self.failure or self._is_closed:
            return
        if resource == DEFINITIONS:
            self._learn_kind(body)
        shown = redact(resource, body)
        sha = hashlib.sha256(shown).hexdigest()
        place = self._unflushed.get(rv)
        if place is not None:
            version = self._waiting[place]
            if (version.sha, version.resource) != (sha, resource):
                self._waiting[place] = msgspec.structs.replace(version, sha=sha, resource=resource)
        elif (written := self._without_body.pop(rv, None)) is not None:
            if (written.sha, written.resource) != (sha, resource):
                # Written again, with what is known now; of two lines about a version the later counts.
                self._unflushed[rv] = len(self._waiting)
                self._waiting.append(msgspec.structs.replace(written, sha=sha, resource=resource))
        elif not self._seen.has(rv):
            self._late[rv] = sha
            if len(self._late) > LATE_MAX:
                del self._late[next(iter(self._late))]
        if sha in self._places:
            return
        self._places.add(sha)
        self._raw.append((sha, shown))
        self._raw_bytes += len(shown)
        self.body_count += 1
        if self._raw_bytes >= BLOCK_BYTES:
            self._guard(self._flush_bodies)

    def write_object(self, resource: str, body: bytes, type_: str = ADDED, at_s: float | None = None) -> None:
        """Record an object from a list or a watch, with its version if no event-log line reports it.

        This is for lists, beginnings of watches, and watches of a mesh without event files. Such a version has no line.
        `at_s`: of the run's own clock, None for the time at which the recording began.
        """
        if self.failure or self._is_closed:
            return
        try:
            document = _STORED.decode(body)
            rv = int(document.metadata.resource_version)
        except (*UNREADABLE, ValueError):
            return
        meta = document.metadata
        if self._seen.add(rv):
            is_new = meta.uid not in self._known_uids
            self._known_uids.add(meta.uid)
            self._unflushed[rv] = len(self._waiting)
            self._waiting.append(
                Version(
                    rv=rv,
                    t=self._zero_s if at_s is None else at_s,
                    type=type_,
                    resource=resource,
                    kind=document.kind,
                    ns=meta.namespace,
                    name=meta.name,
                    uid=meta.uid,
                    owners=tuple(each.uid for each in meta.owner_references) if is_new else (),
                )
            )
            self.version_count += 1
        self.body(resource, rv, body)
        if len(self._waiting) >= BLOCK_VERSIONS:
            self._guard(self._flush_versions)

    def _learn_kind(self, body: bytes) -> None:
        """Know how the wire names the objects of a custom kind."""
        with suppress(*UNREADABLE, LookupError, TypeError):
            document: dict[str, Any] = msgspec.json.decode(body)
            names, group = document["spec"]["names"], document["spec"]["group"]
            self._resources.setdefault(names["kind"], f"{names['plural']}.{group}")

    def span(self, span: FinishedSpan) -> None:
        """Record a span."""
        if self.failure or self._is_closed:
            return
        self.span_count += 1
        if self._spans.add(redacted_text(msgspec.json.encode(span)) + b"\n"):
            self._guard(self._spans.flush)

    def decision(self, decision: bytes) -> None:
        """Record a decision as JSON, with the scores, which no event-log line has."""
        if not (self.failure or self._is_closed) and self._decisions.add(redacted_text(decision) + b"\n"):
            self._guard(self._decisions.flush)

    # -- how it is written -----------------------------------------------------------------------------

    def flush(self) -> None:
        """Write out everything recorded so far, so that readers find it."""
        self._guard(self._flush)

    def _flush(self) -> None:
        self._flush_versions()
        last = self._versions.blocks[-1] if self._versions.blocks else None
        self._lines.flush(last.rv if last else 0, last.t if last else 0.0)
        self._spans.flush()
        self._decisions.flush()

    def _flush_bodies(self) -> None:
        if not self._raw:
            return
        offset, size = self._pack.append(b"".join(body for _, body in self._raw))
        at = 0
        for sha, body in self._raw:
            self._bodies.add(msgspec.json.encode(Place(sha, offset, size, at, len(body))) + b"\n")
            at += len(body)
        self._raw.clear()
        self._raw_bytes = 0
        self._bodies.flush()

    def _flush_versions(self) -> None:
        self._flush_bodies()
        if not self._waiting:
            return
        last = self._waiting[-1]
        for version in self._waiting:
            if version.sha not in self._places:
                self._without_body[version.rv] = version
            elif version.facts:
                version = msgspec.structs.replace(version, facts={})
            self._versions.add(msgspec.json.encode(version) + b"\n")
        self._waiting.clear()
        self._unflushed.clear()
        while len(self._without_body) > WITHOUT_BODY_MAX:
            del self._without_body[next(iter(self._without_body))]
        self._versions.flush(last.rv, last.t)

    def _write_meta(self) -> None:
        _replace(self._folder / META, msgspec.json.encode(self.meta) + b"\n")

    def _guard(self, act: Callable[[], None]) -> None:
        """Do what writes; a disk that refuses ends the recording."""
        if self.failure:
            return
        try:
            act()
        except OSError as error:
            self.failure = f"the recording {self.path} ends early: {error.strerror or error}"

    def close(self, meta: Meta | None = None) -> None:
        """End the recording and pack it into one file; without space for that it stays a folder."""
        if self._is_closed:
            return
        if meta is not None:
            self.meta = msgspec.structs.replace(meta, clock=self.meta.clock)
        self.flush()
        self._guard(self._complete)
        self._is_closed = True
        for member in self._members:
            member.close()
        if not self.failure:
            with suppress(OSError):
                self._become_file()
        os.close(self._lock)

    def _complete(self) -> None:
        if self.version_count >= ROWS_FROM:
            with Recording.open(self._folder) as recording:
                rows_of_all = past_of(recording).encode()
            packer = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)
            _replace(self._folder / ROWS, packer.compress(rows_of_all) + packer.flush())
        index = Index(self._versions.blocks, self._lines.blocks, self._spans.blocks, self.body_count)
        _replace(self._folder / INDEX, msgspec.json.encode(index) + b"\n")
        self._write_meta()

    def _become_file(self) -> None:
        """Pack the folder. Raises: OSError, after which the folder is as it was."""
        archive = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        aside = self.path.with_name(f"{self.path.name}.part")
        try:
            pack(self._folder, archive)
            shutil.rmtree(aside, ignore_errors=True)
            self.path.rename(aside)
            archive.rename(self.path)
        except OSError:
            archive.unlink(missing_ok=True)
            if aside.exists() and not self.path.exists():
                aside.rename(self.path)
            raise
        shutil.rmtree(aside, ignore_errors=True)


class _Lately:
    """The most recently added texts: at least `kept`, at most twice as many."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._new: set[str] = set()
        self._old: set[str] = set()

    def __contains__(self, text: str) -> bool:
        return text in self._new or text in self._old

    def add(self, text: str) -> None:
        self._new.add(text)
        if len(self._new) >= self._kept:
            self._new, self._old = set(), self._new


class _Numbers:
    """Set of the versions seen, which are nearly dense."""

    def __init__(self) -> None:
        self._base: int | None = None
        self._bits = bytearray()
        self._below: set[int] = set()

    def has(self, number: int) -> bool:
        if self._base is None or number < self._base:
            return number in self._below
        return number - self._base < len(self._bits) and bool(self._bits[number - self._base])

    def add(self, number: int) -> bool:
        """Note a number; whether it is new."""
        if self.has(number):
            return False
        if self._base is None:
            self._base = number
        place = number - self._base
        if place < 0:
            self._below.add(number)
            return True
        if place >= len(self._bits):
            self._bits.extend(bytes(place - len(self._bits) + 1))
        self._bits[place] = 1
        return True


def pack(folder: Path, path: Path) -> None:
    """Pack a recording's folder into one file. Raises: OSError."""
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED) as archive:
        for name in MEMBERS:
            if (folder / name).exists():
                # Always the same moment: equal recordings are equal files.
                entry = zipfile.ZipInfo(name)
                entry.external_attr = _PRIVATE << 16
                with (folder / name).open("rb") as member, archive.open(entry, "w", force_zip64=True) as into:
                    shutil.copyfileobj(member, into, BLOCK_BYTES)
    path.chmod(_PRIVATE)


def _begin(path: Path) -> int:
    """Make the empty folder, and hold it; return the lock. Raises: NotRecordable, OSError."""
    if path.exists() and not is_recording(path):
        what = "a folder with other things" if path.is_dir() else "a file that is no recording"
        raise NotRecordable(f"{path} is {what}; it is not replaced")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file():
        path.unlink()
    path.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise BeingRecorded(f"{path} is being written by another command") from None
    for name in MEMBERS:
        (path / name).unlink(missing_ok=True)
    return lock


def is_recording(path: Path) -> bool:
    """Return whether a path is a recording, or an empty folder for one, so that it may be replaced."""
    try:
        if path.is_dir():
            names = {each.name for each in path.iterdir()}
            return not names or (META in names and names <= {*MEMBERS, f".{META}", f".{INDEX}"})
        with zipfile.ZipFile(path) as archive:
            return bool(msgspec.json.decode(archive.read(META))["format"] == FORMAT)
    except (OSError, zipfile.BadZipFile, *UNREADABLE, LookupError, TypeError):
        return False


def _replace(path: Path, data: bytes) -> None:
    """Write a small file that is there whole or not at all. Raises: OSError."""
    beside = path.with_name(f".{path.name}")
    beside.write_bytes(data)
    beside.chmod(_PRIVATE)
    beside.replace(path)
