"""Recording of one run in a `.keprec` file, without effect on the run.

It gets every line of the event log, and the events that the scenario's own observer receives; no watch is
opened for it.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from lab.recordings.client_watches import ObservedApi
from lab.recordings.format import Meta, Parts
from lab.recordings.writer import Writer
from lab.scenarios.decisions.decision import Decision
from lab.scenarios.decisions.scores import ScoredDecisions, SimulatedMesh
from lab.scenarios.mesh import MeshPlan
from lab.scenarios.result import RunResult
from lab.scenarios.revision import revision
from lab.scenarios.script.scenario import Scenario
from services.api.seams import Clock
from services.api.times import format_time
from services.api.wire import Api
from services.telemetry.eventlog import Line
from services.telemetry.spans import FinishedSpan

NOT_RECORDED: Final = (
    "values of Secrets, tokens and private keys",
    "bodies of versions that were replaced before the scenario began",
    "bodies of Secrets, Leases of nodes, custom resources and kinds of REST alone, which the observer does not follow",
)
NODES_SCORED: Final = 100
"""Number of nodes per attempt whose scores are recorded: the best ones."""
INTERRUPTED: Final = "what would have come after the run was interrupted"
NOT_TRACED: Final = "spans: the run was not traced"


class RunRecorder:
    """Recorder of a run; `run_recorder` creates and closes it."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._decisions = ScoredDecisions(NODES_SCORED, with_rejections=True)
        self._is_virtual = False
        self._encoder = msgspec.json.Encoder(enc_hook=str)

    @property
    def failure(self) -> str:
        """Reason why the recording ends before the run; empty if it does not."""
        return self._writer.failure

    def observer_api(self, api: Api) -> Api:
        """Return the API server for the run's observer; events of its watches are recorded as they pass."""
        return ObservedApi(api, self._writer.event)

    def begin(self, clock: Clock, started_s: float) -> None:
        """Start the recording's time at the start of the observer."""
        self._writer.begin(started_s, clock.wall() - (clock.now() - started_s), is_virtual=self._is_virtual)

    def made_of(self, plan: MeshPlan) -> None:
        """Record the mesh's configuration, so that another mesh can begin from one of the versions."""
        files = [*(f"stages {name}" for name in plan.stages)]
        if plan.schedulers.config:
            files.append(f"scheduler-config {plan.schedulers.config}")
        parts = Parts(
            nodes={str(node["name"]): dict(node) for node in plan.nodes},
            own_switches={name: list(words) for name, words in plan.own_switches},
            latencies=list(plan.latencies),
            schedulers=list(plan.schedulers.others),
            file_lines=files,
        )
        self._writer.meta = msgspec.structs.replace(self._writer.meta, parts=parts)

    def look_into(self, mesh: SimulatedMesh) -> None:
        """Set the simulated mesh, so that its schedulers' reasons are recorded as well."""
        self._is_virtual = True
        self._decisions.look_into(mesh)

    def take(self, line: Line) -> None:
        """Record a line of the event log, or a line about the scheduling queue, which is in no log."""
        self._writer.line(line)
        self._write(self._decisions.take(line))

    def _write(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self._writer.decision(self._encoder.encode(decision))

    def end(self, result: RunResult, spans: Iterable[FinishedSpan] = ()) -> None:
        """Record the result of the run, and its spans."""
        self._write(self._decisions.rest())
        for span in spans:
            self._writer.span(span)
        self._writer.meta = msgspec.structs.replace(
            self._writer.meta,
            mode=result.mode,
            switches=list(result.switches),
            passed=result.passed,
            digest=result.digest,
            not_recorded=[*NOT_RECORDED, *([] if self._writer.span_count else [NOT_TRACED])],
        )


@contextmanager
def run_recorder(
    path: Path, scenario: Scenario, *, seed: int, arm: str = "", command: str = ""
) -> Iterator[RunRecorder]:
    """Record a run of the scenario at `path` inside the context. The recording is kept however the run ends.
    Raises: NotRecordable, before the run.
    """
    code = revision()
    writer = Writer(
        path,
        Meta(
            title=scenario.title,
            scenario=scenario.name,
            arm=arm,
            seed=seed,
            versions={"keplab": code.version, "revision": code.text},
            started=format_time(time.time()),
            command=command,
            not_recorded=[*NOT_RECORDED, INTERRUPTED],
        ),
    )
    try:
        yield RunRecorder(writer)
    finally:
        writer.close(msgspec.structs.replace(writer.meta, ended=format_time(time.time())))
