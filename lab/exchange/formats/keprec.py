"""Replay of keplab's own recordings: their first objects, then every version as a change.

The format: docs/reference/recordings.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import msgspec

from lab.exchange.format import Format, Reading
from lab.exchange.reading import Source
from lab.exchange.stream import Change, Method, Origin, Placed, Refused, Stream
from lab.recordings.format import ADDED, DELETED, META, Unreadable, Version
from lab.recordings.reader import Recording

_ZIP: Final = b"PK\x03\x04"
_METHODS: Final[dict[str, Method]] = {ADDED: "create", DELETED: "delete"}


def _fits(head: bytes) -> bool:
    return head.startswith(_ZIP) and head[30:].startswith(META.encode())


class _Read:
    """One reading of a recording. `notes`: counts of versions without a body."""

    def __init__(self, source: Source) -> None:
        if source.data is not None:
            raise Refused(f"{source.file}: a recording is read from a file")
        self._source, self.notes = source, dict[str, int]()
        with closing(self._open_recording()) as recording:
            self.began_s = recording.meta.clock.wall_s
            self._first = next((each.t for each in recording.versions()), 0.0)

    def _open_recording(self) -> Recording:
        try:
            return Recording.open(self._source.path)
        except Unreadable as error:
            raise Refused(f"{self._source.file}: {error}") from None

    def _with_bodies(self, *, is_snapshot: bool) -> Iterator[tuple[Version, bytes | None]]:
        with closing(self._open_recording()) as recording:
            is_past = False
            for version in recording.versions():
                # A recording of a mesh begins with all that is there, at one moment.
                is_past = is_past or version.t > self._first or version.type != ADDED
                if is_past == is_snapshot:
                    if is_past:
                        return
                    continue
                body = recording.body(version.sha) if version.type != DELETED and version.sha else None
                if body is None and version.type != DELETED:
                    what = "versions whose body is not recorded"
                    self.notes[what] = self.notes.get(what, 0) + 1
                    continue
                yield version, body

    def objects(self) -> Iterator[Placed]:
        for version, body in self._with_bodies(is_snapshot=True):
            assert body is not None, "only deletions have none"
            yield Placed(msgspec.json.decode(body), self._where(version))

    def changes(self) -> Iterator[Change]:
        for version, body in self._with_bodies(is_snapshot=False):
            document = msgspec.json.decode(body) if body is not None else None
            method = _METHODS.get(version.type, "update")
            at_s = max(version.t - self._first, 0.0)
            yield Change(at_s, method, version.resource, version.ns, version.name, document, "", self._where(version))

    def _where(self, version: Version) -> str:
        return f"{self._source.file}:version {version.rv}"


def _read(source: Source, reading: Reading) -> Stream:
    read = _Read(source)
    origin = Origin("keprec", read.began_s or None)
    return Stream(read.objects(), read.changes(), origin, notes=read.notes)


FORMAT = Format(
    name="keprec", title="a recording of keplab", fits=_fits, read=_read, has_changes=True, has_machines=True
)
