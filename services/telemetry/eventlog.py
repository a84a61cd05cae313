"""The event log: actions of a process, one JSON line each, written before another process can notice
(guarantees 1).

`FileEventLog` is one file per process life, with one `write(2)` per line, so that SIGKILL cannot remove a
finished line. A disk that refuses costs lines, counted and visible as a gap in `seq`, never the process.
`MemoryEventLog` is the same in a simulation: all components write into one `MemoryEvents`, whose digest over
the bytes must be equal in two runs of one seed.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from services.api.seams import Clock, Random
from services.api.texts import json_of
from services.api.times import format_time
from services.telemetry.metrics import Metrics, Samples, counter, gauge
from services.telemetry.pieces import KEEP_ALL, Budget, Pieces

LINE_BYTES_MAX = 64 * 1024
BLOCK_LINES: Final = 64
"""Number of lines of a simulation that are encoded at once for its digest."""
_BLOCKS: Final = msgspec.json.Encoder(enc_hook=str)


class Line(msgspec.Struct, frozen=True):
    """One line of the event log, fields as in guarantees 1.1. `obj` is `{kind, ns, name, uid}`."""

    v: int
    seq: int
    mono_ns: int
    wall: str
    comp: str
    inc: str
    ev: str
    rv: int | None = None
    rv_seen: int | None = None
    obj: dict[str, str] | None = None
    node: str = ""
    gen: int | None = None
    req_id: str = ""
    identity: str = ""
    trace_id: str = ""
    data: dict[str, Any] = {}


class _Writer:
    """Writer of one incarnation of a component: it numbers and formats lines; a line is safe when `take` returns."""

    def __init__(self, component: str, clock: Clock, incarnation: str, take: Callable[[Line], None]) -> None:
        self._component, self._incarnation, self._clock, self._take = component, incarnation, clock, take
        self._seq = 0
        self._micros, self._text = -1, ""

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
        """Append one line. `obj` is `(kind, namespace, name, uid)`."""
        self._seq += 1
        line = Line(
            1,
            self._seq,
            int(self._clock.now() * 1e9),
            self._wall(),
            self._component,
            self._incarnation,
            ev,
            rv,
            rv_seen,
            None if obj is None else {"kind": obj[0], "ns": obj[1], "name": obj[2], "uid": obj[3]},
            node,
            gen,
            req_id,
            identity,
            trace_id,
            data or {},
        )
        self._take(line)

    def _wall(self) -> str:
        micros = int(self._clock.wall() * 1e6)
        if micros != self._micros:
            second, rest = divmod(micros, 1_000_000)
            self._micros, self._text = micros, f"{format_time(second)[:19]}.{rest:06d}Z"
        return self._text


def new_incarnation(random: Random) -> str:
    """Return a random 64-bit hexadecimal number as the name of one life of a process."""
    return f"{random.getrandbits(64):016x}"


def encode(line: Line) -> bytes:
    """Return the line with its newline, at most 64 KiB.

    Data too long for a line is replaced by its size, and values that are no JSON by their text, because an event
    must never make a process fail.
    """
    text = json_of(line) + b"\n"
    if len(text) > LINE_BYTES_MAX:
        cut = msgspec.structs.replace(line, data={"cut_bytes": len(text)})
        text = json_of(cut) + b"\n"
    return text


class FileEventLog(_Writer):
    """Event log in `<directory>/<comp>-<inc>.jsonl` and its further pieces.

    When `write` returns, the kernel has the line, or the line is dropped and counted. A dropped line keeps its
    `seq`, so that a reader sees the gap. Once there is space again, `log.dropped` says which lines are missing;
    until then the file is read-only. A slash in the component becomes `_`. Raises: OSError from the constructor
    when the file cannot be created.
    """

    def __init__(
        self, directory: Path, component: str, clock: Clock, incarnation: str, budget: Budget = KEEP_ALL
    ) -> None:
        self.path = directory / f"{component.replace('/', '_')}-{incarnation}.jsonl"
        super().__init__(component, clock, incarnation, self._append)
        self._pieces = Pieces(self.path, budget)
        self._first_missing = 0
        self.dropped = 0
        """Lines that the disk refused."""

    def _append(self, line: Line) -> None:
        if not self._pieces.append(encode(line)):
            self.dropped += 1
            if not self._first_missing:
                self._first_missing = line.seq
                self._pieces.mark_incomplete(True)
        elif self._first_missing:
            first, self._first_missing = self._first_missing, 0
            self.write("log.dropped", data={"first_seq": first, "last_seq": line.seq - 1, "total": self.dropped})
            if not self._first_missing:
                self._pieces.mark_incomplete(False)

    @property
    def is_incomplete(self) -> bool:
        """Whether the newest lines are missing, because the disk refuses."""
        return self._first_missing > 0

    def close(self) -> None:
        """Close the file; nothing may be written afterwards."""
        self._pieces.close()

    def metrics(self) -> Samples:
        """Return the number of missing lines, as a metric."""
        return METRICS.of(self)


METRICS: Final[Metrics[FileEventLog]] = Metrics(
    counter("keplab_event_lines_dropped_total", "Event lines that the disk refused.", lambda log: log.dropped),
    gauge("keplab_event_log_incomplete", "Whether the newest event lines are missing.", lambda log: log.is_incomplete),
)


class MemoryEvents:
    """The lines of all components of one simulated mesh, in the order of writing, with a running digest."""

    def __init__(self, *, keep: bool = True, on_line: Callable[[Line], None] | None = None) -> None:
        self.lines: list[Line] = []
        self.count = 0
        self._keep = keep
        self._on_line = on_line
        self._sha = hashlib.sha256()
        self._undigested: list[Line] = []

    def take(self, line: Line) -> None:
        """Add one line; the observer sees it before the writer goes on."""
        self.count += 1
        self._undigested.append(line)
        if len(self._undigested) >= BLOCK_LINES:
            self._digest_block()
        if self._keep:
            self.lines.append(line)
        if self._on_line is not None:
            self._on_line(line)

    @property
    def digest(self) -> str:
        """SHA-256 over every line so far, in hex."""
        self._digest_block()
        return self._sha.hexdigest()

    def _digest_block(self) -> None:
        """Digest the lines that wait, in one piece: the same bytes as line by line."""
        lines, self._undigested = self._undigested, []
        try:
            block = _BLOCKS.encode_lines(lines)
        except Exception:  # one of them has a value that is no JSON
            block = b""
        if not block or len(block) > LINE_BYTES_MAX:  # one of them may be too long
            block = b"".join(encode(line) for line in lines)
        self._sha.update(block)

    def dump(self) -> bytes:
        """Return all kept lines in the format of the file."""
        return b"".join(encode(line) for line in self.lines)


class MemoryEventLog(_Writer):
    """One component's log in a simulated mesh; `into` is shared by all of them. `take` gets each line in its place."""

    def __init__(
        self,
        component: str,
        clock: Clock,
        incarnation: str = "0" * 16,
        into: MemoryEvents | None = None,
        take: Callable[[Line], None] | None = None,
    ) -> None:
        self.events = into if into is not None else MemoryEvents()
        super().__init__(component, clock, incarnation, take if take is not None else self.events.take)


class NullEventLog:
    """An event log that writes nothing; for tools and for processes without an events directory."""

    def write(self, ev: str, **fields: object) -> None:
        """Do nothing."""
