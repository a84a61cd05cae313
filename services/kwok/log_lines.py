r"""Lines of log files that container runtimes write: CRI's form, and Docker's. Pure.

    2026-01-01T00:00:00.000000000Z stdout F the text of a whole line
    {"log": "the text of a line\n", "stream": "stdout", "time": "2026-01-01T00:00:00.000000000Z"}

Source: upstream `staging/src/k8s.io/cri-client/pkg/logs/logs.go`.
"""

from typing import Any, NamedTuple

import msgspec

from services.api.errors import UNREADABLE
from services.api.times import parse_time


class LogText(NamedTuple):
    """One line, or a part of one: `at_s` in epoch seconds, `stamp` as written, `stream` 1 or 2."""

    at_s: float
    stamp: str
    stream: int
    text: bytes


_STREAMS = {"stdout": 1, "stderr": 2}


def read_line(line: bytes) -> LogText:
    """Parse a line without its line end. Raises: ValueError."""
    return _docker(line) if line.startswith(b"{") else _cri(line)


def _cri(line: bytes) -> LogText:
    stamp, _, rest = line.partition(b" ")
    stream, _, rest = rest.partition(b" ")
    tags, _, text = rest.partition(b" ")
    if not tags:
        raise ValueError(f"unsupported log format: {line[:100]!r}")
    is_part = tags.split(b":")[0] == b"P"
    return _log_text(stamp.decode("latin-1"), stream.decode("latin-1"), text + (b"" if is_part else b"\n"))


def _docker(line: bytes) -> LogText:
    try:
        found: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    except UNREADABLE as error:
        raise ValueError(f"unsupported log format: {line[:100]!r}: {error}") from None
    return _log_text(str(found.get("time", "")), str(found.get("stream", "")), str(found.get("log", "")).encode())


def _log_text(stamp: str, stream: str, text: bytes) -> LogText:
    try:
        at_s = parse_time(stamp)
    except ValueError:
        raise ValueError(f"unexpected timestamp format {stamp[:40]!r}") from None
    if stream not in _STREAMS:
        raise ValueError(f"unexpected stream type {stream[:40]!r}")
    return LogText(at_s, stamp, _STREAMS[stream], text)
