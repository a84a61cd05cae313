"""Event files of one run, read back: merged by `mono_ns`, which is comparable on one host (guarantees 1.1)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from services.telemetry.eventlog import Line


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
