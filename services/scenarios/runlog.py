"""The event log of a whole run: every line of every process, one order, one digest.

In simulation all components write into one `RunLog` as they go. For runs as processes the files are
merged by `mono_ns`, which is comparable on one host (guarantees 1.1). Auditors subscribe and judge each
line as it comes; afterwards the same lines can be judged again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from services.api.seams import Clock
from services.api.times import format_micro_time

SCHEMA = 1


class Subject(msgspec.Struct, frozen=True):
    """Which object a line is about."""

    kind: str
    ns: str
    name: str
    uid: str = ""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the event log (guarantees 1.1). `mono_ns` orders lines of one host."""

    v: int = SCHEMA
    seq: int
    mono_ns: int
    wall: str = ""
    comp: str
    inc: str
    ev: str
    rv: int | None = None
    rv_seen: int | None = None
    obj: Subject | None = None
    node: str = ""
    gen: int | None = None
    req_id: str = ""
    identity: str = ""
    trace_id: str = ""
    data: dict[str, Any] = {}


Listener = Callable[[Line], None]

_encode = msgspec.json.Encoder().encode


class RunLog:
    """All lines of a run, in order, with a running digest.

    Invariant: `digest` covers every line ever appended, in the order of appending.
    """

    def __init__(self, *, keep: bool = True) -> None:
        self.lines: list[Line] = []
        self.count = 0
        self._keep = keep
        self._hash = hashlib.sha256()
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call `listener` with each line from now on."""
        self._listeners.append(listener)

    def append(self, line: Line) -> None:
        """Take one line."""
        self.count += 1
        self._hash.update(_encode(line))
        if self._keep:
            self.lines.append(line)
        for listener in self._listeners:
            listener(line)

    @property
    def digest(self) -> str:
        """SHA-256 over all lines: equal for two runs exactly when the runs were equal."""
        return self._hash.hexdigest()


class SimEventLog:
    """`EventLog` of one incarnation; silent once that incarnation was killed."""

    def __init__(
        self, log: RunLog, clock: Clock, component: str, incarnation: str, is_over: Callable[[], bool]
    ) -> None:
        self._log, self._clock, self._component = log, clock, component
        self._incarnation, self._is_over = incarnation, is_over
        self._seq = 0

    def write(
        self,
        ev: str,
        *,
        obj: tuple[str, str, str, str] | None = None,
        rv: int | None = None,
        rv_seen: int | None = None,
        node: str = "",
        gen: int | None = None,
        req_id: str = "",
        identity: str = "",
        trace_id: str = "",
        data: dict[str, Any] | None = None,
    ) -> None:
        """Append one line to the run's log."""
        if self._is_over():
            return
        self._seq += 1
        self._log.append(
            Line(
                seq=self._seq,
                mono_ns=int(self._clock.now() * 1e9),
                wall=format_micro_time(self._clock.wall()),
                comp=self._component,
                inc=self._incarnation,
                ev=ev,
                rv=rv,
                rv_seen=rv_seen,
                obj=None if obj is None else Subject(*obj),
                node=node,
                gen=gen,
                req_id=req_id,
                identity=identity,
                trace_id=trace_id,
                data=data or {},
            )
        )


class Incomplete(ValueError):
    """A file of the event log has a gap or an undecodable line: the verdict is unknown (I27)."""


def read_files(paths: Iterable[Path]) -> list[Line]:
    """Return the lines of all files merged by `mono_ns`.

    A torn last line is tolerated (its process was killed). Raises: Incomplete naming file and line.
    """
    decoder = msgspec.json.Decoder(Line)
    merged: list[Line] = []
    for path in sorted(paths):
        expected = 1
        raw = path.read_bytes().split(b"\n")
        for number, text in enumerate(raw, 1):
            if not text:
                continue
            try:
                line = decoder.decode(text)
            except msgspec.DecodeError as error:
                if number == len(raw):
                    break
                raise Incomplete(f"{path.name}:{number}: {error}") from None
            if line.seq != expected:
                raise Incomplete(f"{path.name}:{number}: seq is {line.seq}, expected {expected}")
            expected += 1
            merged.append(line)
    merged.sort(key=lambda line: (line.mono_ns, line.comp, line.inc, line.seq))
    return merged
