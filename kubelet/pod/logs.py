"""The logs that `kubectl logs` reads: the lines of one run of a container, and the requested part of them.

A container whose command is made of known programs logs the output of these. Any other container writes
nothing itself, so its log is its life: a start line, a line every ten seconds, the exit. Lines are made
when a client asks; a node keeps none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kubelet.pod.container import Container
from kubelet.pod.states import ContainerState
from kubelet.runtime.outcome import OutputPiece
from services.api.times import format_micro_time, parse_time

HEARTBEAT_LINE_S = 10.0
HEARTBEAT_LINES_MAX = 1000
_WAITS_FOR = {"ErrImagePull": "image can't be pulled", "ImagePullBackOff": "trying and failing to pull image"}


class LogLine(NamedTuple):
    """One line of a log.

    `at_s`: wall seconds; `place` grows within a run, and is the same whenever the line is made. `is_output`:
    the line is output of a program, not of the container's life, whose lines contain the time.
    """

    at_s: float
    place: int
    text: str
    is_output: bool = False

    def encode(self, *, is_stamped: bool) -> bytes:
        """Return the line as it is sent; `is_stamped`: add the time, for `kubectl logs --timestamps`."""
        at = format_micro_time(self.at_s)
        stamps = f"{at} " * (is_stamped + (not self.is_output))
        return f"{stamps}{self.text}\n".encode()


class LogOptions(NamedTuple):
    """The options of a log request; `since_s`: wall seconds. `tail` and `limit_bytes` None: no limit."""

    previous: bool = False
    follow: bool = False
    stamps: bool = False
    tail: int | None = None
    since_s: float = 0.0
    limit_bytes: int | None = None

    @classmethod
    def of(cls, query: Mapping[str, str], wall_s: float) -> LogOptions | str:
        """Return the options of a query as the API server sends it, or why it cannot be read."""
        numbers: dict[str, int] = {}
        for name in ("tailLines", "sinceSeconds", "limitBytes"):
            if text := query.get(name, ""):
                if not text.isascii() or not text.isdigit():
                    return f"{name}={text[:32]!r}: want a number"
                numbers[name] = int(text[:18])
        since_s = wall_s - numbers["sinceSeconds"] if "sinceSeconds" in numbers else 0.0
        if text := query.get("sinceTime", ""):
            try:
                since_s = max(since_s, parse_time(text))
            except ValueError as error:
                return f"sinceTime: {error}"
        previous, follow, stamps = (query.get(name) == "true" for name in ("previous", "follow", "timestamps"))
        return cls(previous, follow, stamps, numbers.get("tailLines"), since_s, numbers.get("limitBytes"))

    def cut(self, lines: list[LogLine]) -> bytes:
        """Return the lines that these options request, as bytes."""
        kept = [line for line in lines if line.at_s >= self.since_s]
        if self.tail is not None:
            kept = kept[max(0, len(kept) - self.tail) :]
        return b"".join(line.encode(is_stamped=self.stamps) for line in kept)[: self.limit_bytes]


class Run(NamedTuple):
    """One run of a container: its number (0: the first), its lines until now, whether it has ended."""

    restart: int
    lines: list[LogLine]
    is_over: bool


Speaks = Callable[[float, float], Sequence[OutputPiece] | None]
"""Output of a container's command, by the wall seconds of its start and its age; None: unknown command."""


def silent(_: float, __: float) -> None:
    """Return no output, for a container whose command is unknown."""


def run_of(
    pod: str,
    container: Container,
    reason: str,
    now: float,
    wall_offset_s: float,
    *,
    previous: bool,
    speaks: Speaks = silent,
) -> Run | str:
    """Return the run whose log can be read, or why there is none in a kubelet's words.

    That is the present run, or the last one if there is no present run; `previous`: the one of `lastState`.
    `reason`: what the container waits for, if it waits; `now` in monotonic seconds, `now + wall_offset_s` in
    wall seconds.
    """
    name = container.name
    between_runs = not container.is_running and container.state != ContainerState.EXITED and container.ended is not None
    if previous:
        last = container.ended if between_runs else container.last
        if last is None or not last.started_at or not last.finished_at:
            return f'previous terminated container "{name}" in pod "{pod}" not found'
        restart = container.restarts if between_runs else container.restarts - 1
        times = parse_time(last.started_at), parse_time(last.finished_at)
        return Run(restart, _lines(name, speaks, restart, *times, last.exit_code), is_over=True)
    if container.is_running:
        times = container.started_s + wall_offset_s, now + wall_offset_s
        return Run(container.restarts, _lines(name, speaks, container.restarts, *times, None), is_over=False)
    if container.ended is None:
        return f'container "{name}" in pod "{pod}" is waiting to start: {_WAITS_FOR.get(reason, reason)}'
    times = container.started_s + wall_offset_s, container.finished_s + wall_offset_s
    return Run(container.restarts, _lines(name, speaks, container.restarts, *times, container.exit_code), is_over=True)


def _lines(
    name: str, speaks: Speaks, restart: int, started_s: float, until_s: float, exit_code: int | None
) -> list[LogLine]:
    written = speaks(started_s, until_s - started_s)
    if written is not None:
        return _written_lines(started_s, written, is_over=exit_code is not None)
    lines = [LogLine(started_s, 0, f"container {name} started, restart {restart}")]
    beats = int((until_s - started_s) / HEARTBEAT_LINE_S)
    for beat in range(max(1, beats - HEARTBEAT_LINES_MAX + 1), beats + 1):
        after_s = beat * HEARTBEAT_LINE_S
        lines.append(LogLine(started_s + after_s, beat, f"still running after {after_s:g} s"))
    if exit_code is not None:
        lines.append(LogLine(until_s, beats + 1, f"exit {exit_code}"))
    return lines


def _written_lines(started_s: float, written: Sequence[OutputPiece], *, is_over: bool) -> list[LogLine]:
    """Return the lines of what was written, each dated by the write that ended it; at the end also what no line end
    follows."""
    lines: list[LogLine] = []
    rests: dict[int, bytes] = {}
    for piece in written:
        *whole, rest = (rests.get(piece.stream, b"") + piece.data).split(b"\n")
        rests[piece.stream] = rest
        for text in whole:
            lines.append(
                LogLine(started_s + piece.after_s, len(lines), text.decode("utf-8", "replace"), is_output=True)
            )
    last_s = started_s + (written[-1].after_s if written else 0.0)
    for rest in filter(None, rests.values() if is_over else ()):
        lines.append(LogLine(last_s, len(lines), rest.decode("utf-8", "replace"), is_output=True))
    return lines
