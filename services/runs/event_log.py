"""The event log of a run: as it is kept, or made again and kept from then on."""

import shutil
from collections.abc import Iterator

from services.runs.again import make_again, wanted_of
from services.runs.folder import EVENTS_FILE, RunsFolder
from services.runs.record import RunRecord
from services.runs.recorder import Compressed
from services.scenarios.runner import Progress
from services.telemetry.eventlog import Line, encode


def is_kept(folder: RunsFolder, record: RunRecord) -> bool:
    """Whether the event log is there."""
    return record.kind == "run" and folder.file(record.id, EVENTS_FILE).exists()


def events_of(
    folder: RunsFolder, record: RunRecord, arm: str = "", seed: int | None = None, progress: Progress | None = None
) -> tuple[Iterator[Line], float]:
    """Return the lines of a run, or of a run of a comparison, and when it began on their clock.

    They are made again where they are not kept, and not one is shown before all are known to be the run's. Raises:
    NotAgain, UnknownRun, Unreadable, OSError.
    """
    if is_kept(folder, record):
        return folder.events(record.id), record.started_s
    wanted = wanted_of(folder, record, arm, seed)
    partial = folder.begin()
    try:
        file = Compressed(partial / EVENTS_FILE)
        try:
            result = make_again(wanted, lambda line: file.write(encode(line)), progress=progress)
        finally:
            file.close()
        if record.kind == "run":
            (partial / EVENTS_FILE).rename(folder.file(record.id, EVENTS_FILE))
            return folder.events(record.id), record.started_s
        # Of a comparison nothing is kept: it may have a hundred runs.
        return iter(list(folder.events(partial.name))), result.started_s
    finally:
        shutil.rmtree(partial, ignore_errors=True)
