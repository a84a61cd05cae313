"""`keplab import --into FILE.keprec`: a recording made of files of other tools, as the page shows it."""

from __future__ import annotations

import heapq
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import msgspec

from services.api.meta import Document
from services.api.times import format_time
from services.cli.exchange.files import show_notes
from services.cli.output import EXIT_FAILED, EXIT_OK, fail
from services.exchange.format import Format
from services.exchange.into_recording import NOT_RECORDED, IntoRecording
from services.exchange.stream import Placed, Refused, Stream
from services.recordings.format import SUFFIX, Meta
from services.recordings.writer import NotRecordable, Writer
from services.scenarios.revision import revision


def write_recording(
    path: Path,
    title: str,
    streams: Sequence[tuple[Format, Stream]],
    read_wall_s: float,
    wanted: Callable[[Document], bool] | None,
) -> int:
    """Write streams as one recording, and return the exit code. `read_wall_s`: from when times were counted that are
    relative to the beginning. Raises: Refused: a stream cannot be read on."""
    if path.suffix != SUFFIX:
        raise Refused(f"--into {path}: want a file that ends in {SUFFIX}; a folder with a scenario is --into-scenario")
    wall_s = next((each.origin.started_wall_s for _, each in streams if each.origin.started_wall_s), read_wall_s)
    meta = Meta(
        title=title,
        versions={"keplab": revision().version, "revision": revision().text},
        started=format_time(time.time()),
        command=shlex.join(["keplab", *sys.argv[1:]]),
        not_recorded=[NOT_RECORDED],
        about=[each.source for each, _ in streams if each.source],
    )
    try:
        writer = Writer(path, meta)
    except NotRecordable as error:
        raise Refused(str(error)) from None
    writer.begin(0.0, wall_s, is_virtual=True)
    made, is_whole = IntoRecording(writer, wall_s, wanted), False
    try:
        for placed in _objects(streams):
            made.put(placed)
        for change in heapq.merge(*(each.changes for _, each in streams), key=lambda each: each.at_s):
            made.change(change)
        is_whole = True
    finally:
        writer.close(msgspec.structs.replace(writer.meta, ended=format_time(time.time()) if is_whole else ""))
    for _, stream in streams:
        show_notes(stream)
    for line in made.left_out.lines():
        click.echo(f"  left out: {line}")
    if writer.failure:
        fail(writer.failure, EXIT_FAILED)
    click.echo(f"{writer.version_count} versions are in {path}; try: keplab ui --run {path}")
    return EXIT_OK


def _objects(streams: Sequence[tuple[Format, Stream]]) -> Iterator[Placed]:
    for _, stream in streams:
        yield from stream.objects
