"""Records of the runs of commands: `--runs`, and a warning where no record can be made."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from lab.cli.output import refusing
from lab.cli.run_options import NO_RUNS
from lab.recordings.writer import NotRecordable
from lab.runs.folder import RunsFolder
from lab.runs.origin import origin_of
from lab.runs.record import Origin, RunRecord, record_of
from lab.runs.recorder import Recorder, keep_document
from lab.scenarios.decisions.scores import SimulatedMesh
from lab.scenarios.recording import RunRecorder, run_recorder
from lab.scenarios.result import RunResult
from lab.scenarios.script.scenario import Scenario
from services.telemetry.eventlog import Line

if TYPE_CHECKING:
    from lab.experiments.document import Comparison


class Recording:
    """The record of the current run; does nothing where no record can be made."""

    def __init__(self, recorder: Recorder | None, folder: str, scenario: Scenario) -> None:
        self._recorder, self._folder, self._scenario = recorder, folder, scenario
        self._origin = origin_of(Path(scenario.path)) if recorder is not None else None

    @property
    def on_line(self) -> Callable[[Line], None] | None:
        """Function to call with each line of the event log; None if the run is not recorded."""
        return self._recorder.take if self._recorder is not None else None

    @property
    def beforehand(self) -> Callable[[SimulatedMesh], None] | None:
        """Function to call with the mesh before a simulation; None if the run is not recorded."""
        return self._recorder.look_into if self._recorder is not None else None

    def keep(self, result: RunResult, assignments: Sequence[str], command: str) -> str:
        """Keep the record; return its id, or an empty string, after a warning if it cannot be kept."""
        if self._recorder is None or self._origin is None:
            return ""
        from lab.experiments.bands import rows_of

        recorder, self._recorder = self._recorder, None
        recorder.finish()
        record = record_of(
            result,
            title=self._scenario.title,
            about=self._scenario.about,
            assignments=assignments,
            command=command,
            origin=self._origin,
            decisions=recorder.decision_count,
            samples=rows_of(result.samples),
        )
        try:
            return recorder.keep(record)
        except OSError as error:
            warn(self._folder, error)
            return ""

    def discard(self) -> None:
        """Forget the run, unless it is kept."""
        if self._recorder is not None:
            self._recorder.discard()
            self._recorder = None


@contextmanager
def recording(runs: str, scenario: Scenario, *, keeps_events: bool) -> Iterator[Recording]:
    """Record a run of the scenario in that folder; a record not kept by the end is forgotten."""
    recorder = None
    if runs != NO_RUNS:
        try:
            recorder = Recorder(RunsFolder(Path(runs)), keeps_events=keeps_events)
        except OSError as error:
            warn(runs, error)
    run_recording = Recording(recorder, runs, scenario)
    try:
        yield run_recording
    finally:
        run_recording.discard()


@contextmanager
def recorder_in(path: Path | None, scenario: Scenario, seed: int, command: str) -> Iterator[RunRecorder | None]:
    """Record all of a run in that file, or nothing if it is None; print a line if the disk ends the recording early."""
    if path is None:
        yield None
        return
    with refusing(NotRecordable), run_recorder(path, scenario, seed=seed, command=command) as recorder:
        yield recorder
    if recorder.failure:
        click.secho(f"keplab: {recorder.failure}", err=True, fg="yellow")


def keep(runs: str, record: Callable[[Origin], RunRecord], scenario: Path) -> str:
    """Keep the record of a sweep; return its id, or an empty string, after a warning if it cannot be kept."""
    return _keep_document(runs, record, scenario, b"")


def keep_comparison(runs: str, comparison: "Comparison", assignments: Sequence[str], scenario: Path) -> str:
    """Keep the record of a comparison and its document; return its id.

    The id is an empty string if no records are kept, or, after a warning, if this one cannot be. `assignments`: the
    switches that all arms share; `scenario`: its file.
    """

    def record(origin: Origin) -> RunRecord:
        return RunRecord(
            "",
            "comparison",
            comparison.scenario,
            comparison.mode,
            comparison.passed,
            comparison.provenance.command,
            origin,
            seed=comparison.seeds[0] if comparison.seeds else 0,
            assignments=list(assignments),
            wall_s=comparison.provenance.wall_s,
            title=comparison.title,
            about=comparison.about,
            arms={arm.name: arm.switches for arm in comparison.arms},
            seeds=comparison.seeds,
        )

    return _keep_document(runs, record, scenario, msgspec.json.encode(comparison))


def _keep_document(runs: str, record: Callable[[Origin], RunRecord], scenario: Path, document: bytes) -> str:
    if runs == NO_RUNS:
        return ""
    try:
        return keep_document(RunsFolder(Path(runs)), record(origin_of(scenario)), document)
    except OSError as error:
        warn(runs, error)
        return ""


def warn(runs: str, error: OSError) -> None:
    """Print in one line that no record was made, and why."""
    with suppress(OSError):
        click.secho(f"keplab: no record of this run in {runs}: {error.strerror or error}", err=True, fg="yellow")
