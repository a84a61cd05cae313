"""Run one scenario once, simulated or as processes, and return a result in the same form for both."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec

import msgspec

from kubelet.node.definition import NodeDefinition
from kubelet.runtime.latency import LatencyModel
from lab.recordings.format import Parts
from lab.scenarios.absent_parts import absent_parts
from lab.scenarios.initial_state import State, StateError, defined_by
from lab.scenarios.invariants import Auditor
from lab.scenarios.invariants.auditor import checks
from lab.scenarios.loading import load_scenario, measures_of
from lab.scenarios.measures.history import SEEN_BY_CLIENTS, LineReader, Measures
from lab.scenarios.measures.queue_pools import QueuePools
from lab.scenarios.measures.recorded import Recorded
from lab.scenarios.measures.scenario_measures import FinishedRun, wanted_by
from lab.scenarios.mesh import Mesh, MeshPlan, NotPossible, identity_named
from lab.scenarios.observer import Observer
from lab.scenarios.observer_progress import Ending, PodCommits
from lab.scenarios.processes.access import Access
from lab.scenarios.recording import RunRecorder
from lab.scenarios.result import RunResult
from lab.scenarios.runner import Progress, ScenarioRun, run_scenario
from lab.scenarios.script.blocks import BlockError, locate_error
from lab.scenarios.script.drivers import drivers_beside
from lab.scenarios.script.nodes import node_definition
from lab.scenarios.script.scenario import Scenario, ScriptError
from lab.scenarios.script.streams import coming_nodes
from lab.scenarios.simulation import simloop
from lab.scenarios.simulation.imported_state import begun_state
from lab.scenarios.simulation.simulated_mesh import SimMesh
from lab.scenarios.simulation.traffic import Traffic
from lab.scenarios.skew import check_skew
from lab.scenarios.sweep import Job, Outcome, crash_outcome, outcome_of, problem_of
from scheduler.configuration.parser import read as read_configuration
from services.api.identity import ADMIN, SCHEDULER, Identity
from services.api.meta import Document
from services.api.switches import Switches, Value
from services.kwok.documents import load, read
from services.kwok.stages.document import load_stages, read_stages
from services.runtime.real import seeded_random
from services.telemetry import logs
from services.telemetry.eventlog import Line
from services.telemetry.spans import FinishedSpan
from services.telemetry.traces import read_spans

if TYPE_CHECKING:
    from lab.scenarios.processes.process_mesh import ProcessMesh

COUNTS: Final = "I33"
"""Id of the invariant that a run's counts of pods equal the store's commits."""
NO_LOGS: Final = "the event logs of a mesh that runs already are not here"


def plan_of(
    scenario: Scenario,
    *,
    seed: int,
    overrides: Mapping[str, Value] | None = None,
    traced: bool = False,
    arm: str = "",
    engine: str = "sqlite",
    state: State | None = None,
    coming: Sequence[Document] = (),
) -> MeshPlan:
    """Return the mesh that a scenario requests; `overrides` take precedence over the scenario's own switches.

    A node of the `state` that the scenario also declares is as the scenario says. `coming`: Nodes of machines
    that are off at the beginning, except those whose names already exist. Raises: ScriptError for a node
    option, a latency or a stage, SwitchError for a switch, StateError.
    """
    parts, own = state.parts if state is not None else Parts(), scenario.schedulers
    declared_names = {name for declared in scenario.nodes for name in declared.names}
    nodes = [node for node in (state.definitions() if state else ()) if node["name"] not in declared_names]
    for declared in scenario.nodes:
        try:
            drivers = drivers_beside(declared, scenario)
            for name in declared.names:
                nodes.append({**node_definition(name, declared.options), **drivers, **declared.fields})
                NodeDefinition.parse(nodes[-1])
        except BlockError as error:
            raise ScriptError(str(error)) from None
        except ValueError as error:
            if declared.block is not None:
                raise ScriptError(str(locate_error(declared.block, error))) from None
            raise ScriptError(f"{scenario.path}:{declared.line}: {error}") from None
    names = {str(node["name"]) for node in nodes}
    later = [node for node in map(defined_by, coming) if node["name"] not in names]
    try:
        for node in later:
            NodeDefinition.parse(node)
    except ValueError as error:
        raise StateError(str(error)) from None
    try:
        LatencyModel.parse(scenario.latencies, seed)
        load_stages(scenario.stages)
        load(scenario.stages, runs_commands=False)
    except ValueError as error:
        raise ScriptError(f"{scenario.path}: {error}") from None
    plan = MeshPlan(
        nodes=(*nodes, *later),
        off=frozenset(str(node["name"]) for node in later),
        switches=Switches.parse([*(state.switches if state else ()), *scenario.switches]).replace(overrides or {}),
        latencies=(*parts.latencies, *scenario.latencies),
        seed=seed,
        traced=traced,
        origin=_origin(scenario, seed, arm),
        engine=engine,
        schedulers=replace(own, others=tuple(dict.fromkeys((*parts.schedulers, *own.others)))),
        stages=scenario.stages,
        enable_crds=scenario.enable_crds,
        hosts=scenario.hosts,
        own_switches=(*((name, tuple(words)) for name, words in parts.own_switches.items()), *scenario.own_switches),
        window_s=scenario.window_s,
        state=state,
    )
    for name, words in plan.own_switches:
        if name not in (known := plan.components()):
            what = f"no process or component is called so; want {', '.join(known)}"
            raise ScriptError(f"{scenario.path}: set {name}: {what}")
        Switches.parse(words)
    check_skew(plan, scenario)
    return plan


@contextmanager
def _unpack_files(scenario: Scenario) -> Iterator[Scenario]:
    """Have files that stand inside the scenario, and that a process opens by its path, be files meanwhile.

    Raises: ScriptError with the line of what is wrong in one of them."""
    paths = {*scenario.stages, scenario.schedulers.config} & scenario.files.keys()
    if not paths:
        yield scenario
        return
    for path in paths:
        block = scenario.files[path]
        try:
            if path == scenario.schedulers.config:
                read_configuration(block.text)
            else:
                read_stages([(path, block.text)])
                read([(path, block.text)])
        except ValueError as error:
            raise ScriptError(str(locate_error(block, error))) from None
    with TemporaryDirectory(prefix="keplab-scenario-") as folder:
        places = {path: str(Path(folder) / f"{number}-{Path(path).name}") for number, path in enumerate(sorted(paths))}
        for path, place in places.items():
            Path(place).write_text(scenario.files[path].text, encoding="utf-8")
        stages = tuple(places.get(path, path) for path in scenario.stages)
        config = places.get(scenario.schedulers.config, scenario.schedulers.config)
        yield replace(scenario, stages=stages, schedulers=replace(scenario.schedulers, config=config))


P = ParamSpec("P")


def _with_files(run: Callable[Concatenate[Scenario, P], RunResult]) -> Callable[Concatenate[Scenario, P], RunResult]:
    """Have a run find the files that stand inside the scenario."""

    @wraps(run)
    def run_with_files(scenario: Scenario, /, *args: P.args, **options: P.kwargs) -> RunResult:
        with _unpack_files(scenario) as found:
            return run(found, *args, **options)

    return run_with_files


@_with_files
@simloop.without_collection()
def simulate(
    scenario: Scenario,
    *,
    seed: int = 0,
    overrides: Mapping[str, Value] | None = None,
    traced: bool = False,
    arm: str = "",
    progress: Progress | None = None,
    disturb: Callable[[Auditor, Mesh, Observer, asyncio.Event], Awaitable[None]] | None = None,
    patience: float = 1.0,
    beforehand: Callable[[SimMesh], None] | None = None,
    afterwards: Callable[[SimMesh], None] | None = None,
    traffic: Traffic | None = None,
    on_line: Callable[[Line], None] | None = None,
    state: State | None = None,
    recorder: RunRecorder | None = None,
) -> RunResult:
    """Run the scenario in virtual time, beginning from `state` if given, and judge every invariant as it goes.

    `traffic` may delay messages, `on_line` gets every line of the event log, `recorder` records the run.
    `beforehand` gets the mesh before it starts; `afterwards` may inspect it as the scenario left it.
    `disturb` gets the auditor, so that it can report violations found at rest.
    """
    if state is None and scenario.begin is not None:
        state = begun_state(scenario)
    try:
        coming = coming_nodes(scenario)
    except ValueError as error:
        raise ScriptError(f"{scenario.path}: {error}") from None
    plan = plan_of(scenario, seed=seed, overrides=overrides, traced=traced, arm=arm, state=state, coming=coming)
    logs.set_up("simulation", "error")  # what went wrong is in the result; a thousand components' log lines are not
    auditor, measured = Auditor(plan.switches), _Measured(scenario)
    started = time.perf_counter()

    def on_move(line: Line) -> None:
        measured.queue.take(line)
        if recorder is not None:
            recorder.take(line)

    async def run_it() -> tuple[SimMesh, ScenarioRun]:
        mesh = SimMesh(plan, recorder=auditor, traffic=traffic, on_move=on_move)
        for take in filter(None, (auditor.take, measured.take, on_line, recorder.take if recorder else None)):
            mesh.on_line(take)
        if recorder is not None:
            recorder.made_of(plan)
            recorder.look_into(mesh)
        if beforehand is not None:
            beforehand(mesh)
        disturbance = partial(disturb, auditor) if disturb is not None else None
        run = await run_scenario(
            scenario,
            mesh,
            progress=progress,
            disturb=disturbance,
            patience=patience,
            chance=random.Random(f"teller/{plan.draws}") if plan.state is not None else None,
            recorded=measured.recorded,
            recorder=recorder,
        )
        if afterwards is not None:
            afterwards(mesh)
        return mesh, run

    mesh, run = simloop.run(run_it(), seed=seed)
    result = _result(scenario, plan, run, auditor, measured, mode="simulated", wall_s=time.perf_counter() - started)
    result.digest, result.spans, result.failures = mesh.events.digest, mesh.spans.spans, mesh.failures
    result.absent = absent_parts(plan)
    if recorder is not None:
        recorder.end(result, result.spans)
    return result


@_with_files
def run_as_processes(
    scenario: Scenario,
    *,
    seed: int = 0,
    overrides: Mapping[str, Value] | None = None,
    progress: Progress | None = None,
    engine: str = "sqlite",
    data_dir: Path | None = None,
    on_line: Callable[[Line], None] | None = None,
    arm: str = "",
    recorder: RunRecorder | None = None,
) -> RunResult:
    """Run the scenario against real processes, and judge the invariants live from their event files.

    `on_line` gets every line of these files; `recorder` records the run. Spans exported to a collector carry
    the scenario, the seed and the `arm` of a comparison. Raises: MeshError when a process cannot start.
    """
    _check_begin(scenario)
    plan = plan_of(scenario, seed=seed, overrides=overrides, engine=engine, arm=arm)
    logs.set_up("keplab", "error", is_final=False)  # restarts and lost connections are what scenarios are about
    auditor, measured = Auditor(plan.switches, is_volatile=engine == "memory"), _Measured(scenario)
    started, commits, ending = time.perf_counter(), PodCommits(is_volatile=engine == "memory"), Ending()

    def take(line: Line) -> None:
        auditor.take(line)
        commits.take(line)
        if on_line is not None:
            on_line(line)
        if ending.includes(line):
            measured.take(line)
            if recorder is not None:
                recorder.take(line)

    if recorder is not None:
        recorder.made_of(plan)

    async def run_it(data_dir: Path | None) -> "tuple[ProcessMesh, ScenarioRun]":
        from lab.scenarios.processes.process_mesh import ProcessMesh  # gRPC and TLS, which a simulation does not need

        mesh = ProcessMesh(
            plan, identities=_identities(scenario), data_dir=data_dir, on_line=take, resource=plan.origin
        )
        return mesh, await run_scenario(
            scenario, mesh, progress=progress, recorded=measured.recorded, recorder=recorder, ending=ending
        )

    is_ours = data_dir is None and recorder is not None
    with TemporaryDirectory(prefix="keplab-") if is_ours else nullcontext(data_dir) as folder:
        mesh, run = asyncio.run(run_it(Path(folder) if folder is not None else None))
        spans = _spans(mesh.data_dir) if recorder is not None else []
    _compare(run, commits, auditor)
    result = _result(scenario, plan, run, auditor, measured, mode="processes", wall_s=time.perf_counter() - started)
    result.failures = mesh.failures
    if commits.why_not:
        result.not_judged[COUNTS] = commits.why_not
    else:
        del result.not_judged[COUNTS]
    if mesh.incomplete:
        _unknown(scenario, result, f"the event log is incomplete: {mesh.incomplete}")
    if recorder is not None:
        recorder.end(result, spans)
    return result


def _compare(run: ScenarioRun, commits: PodCommits, auditor: Auditor) -> None:
    """Hold what the observer of a run of processes saw of pods against what the store committed (I33)."""
    if run.seen is None:
        return
    behind_s = max(run.seen.behind_s, commits.behind_s(run.arrivals, run.started_s))
    run.seen = replace(run.seen, behind_s=behind_s)
    for text in [] if commits.why_not else commits.disagreements(run.history, run.seen.version):
        auditor.report(COUNTS, run.started_s + run.ended_s, ("Pod",), text)


def _unknown(scenario: Scenario, result: RunResult, why: str) -> None:
    """Have the run show neither success nor failure."""
    result.passed, result.unknown = False, why
    result.error = result.error or f"{scenario.path}: the result is unknown: {why}"


def _spans(data_dir: Path) -> list[FinishedSpan]:
    """Return what the processes of a mesh traced, in the order in which it ended."""
    found = [span for path in sorted((data_dir / "spans").glob("*.jsonl")) for span in read_spans(path)]
    return sorted(found, key=lambda span: span.end_ns)


@_with_files
def run_against(
    scenario: Scenario,
    access: Access,
    *,
    seed: int = 0,
    overrides: Mapping[str, Value] | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Run the scenario against a mesh that already runs. Its expectations and everything visible to clients are
    judged; invariants are not.

    Raises: MeshError when the mesh cannot be reached; ScriptError for what it cannot do.
    """
    _check_begin(scenario)
    plan = plan_of(scenario, seed=seed, overrides=overrides)
    logs.set_up("keplab", "error", is_final=False)
    auditor, measured, started = Auditor(plan.switches), _Measured(scenario), time.perf_counter()

    async def run_it() -> ScenarioRun:
        from lab.scenarios.processes.foreign_mesh import ForeignMesh

        mesh = ForeignMesh(plan, access)
        # A server remembers the requests of earlier runs.
        chance = seeded_random(None)
        return await run_scenario(scenario, mesh, progress=progress, chance=chance, recorded=measured.recorded)

    try:
        run = asyncio.run(run_it())
    except NotPossible as error:
        raise ScriptError(f"{scenario.path}: {error}") from None
    if access.switching is not None:
        access.switching.check()
    result = _result(scenario, plan, run, auditor, measured, mode="containers", wall_s=time.perf_counter() - started)
    result.not_judged = {check.id: NO_LOGS for check in checks()}
    seen = {*SEEN_BY_CLIENTS, *run.placement.measures(run.ended_s), *(each.name for each in result.stated)}
    result.measures = {name: value if name in seen else None for name, value in result.measures.items()}
    return result


def _check_begin(scenario: Scenario) -> None:
    if scenario.begin is not None:
        what = "a mesh of processes begins empty; run it simulated, or `keplab import` the file into a mesh that runs"
        raise ScriptError(f"{scenario.path}:{scenario.begin.line}: begin {scenario.begin.file}: {what}")


def run_job(job: Job) -> Outcome:
    """Run one scenario in this interpreter; a crash of the simulator is reported as a problem."""
    try:
        result = simulate(load_scenario(job.scenario), seed=job.seed, overrides=job.overrides)
    except Exception as error:  # one run that breaks the simulator must be reported, not end the other 999
        return crash_outcome(job, error)
    outcome = outcome_of(job, result, problem_of(result))
    return msgspec.structs.replace(outcome, expectations=result.expectations, violations=result.violations)


def _identities(scenario: Scenario) -> list[Identity]:
    """Return who the scenario speaks as, and whose requests it has arrive late, so that each gets a token."""
    named = dict.fromkeys(step.rest.split(" ", 1)[0] for step in scenario.steps if step.verb == "as")
    if any("late" in step.options for step in scenario.steps):
        named |= dict.fromkeys(f"node:{name}" for declared in scenario.nodes for name in declared.names)
    found = [identity_named(name) for name in named]
    return [identity for identity in found if identity not in (ADMIN, SCHEDULER)]


def _origin(scenario: Scenario, seed: int, arm: str) -> dict[str, str]:
    """Return which run it is as OpenTelemetry's resource attributes, so that traces of several can be kept apart."""
    found = {"keplab.scenario": scenario.name, "keplab.seed": str(seed)}
    return {**found, "keplab.arm": arm} if arm else found


class _Measured:
    """All measures of one run: those of every run, and those that its scenario states."""

    def __init__(self, scenario: Scenario) -> None:
        self.stated = measures_of(scenario)
        self.recorded = Recorded(wanted_by(self.stated))
        self.queue = QueuePools()
        self._measures = Measures()
        self._readers: tuple[LineReader, ...] = (*self._measures.readers(), self.queue, self.recorded)
        self._by_event: dict[str, list[Callable[[Line], None]]] = {}

    def take(self, line: Line) -> None:
        """Observe a line of the event log."""
        takers = self._by_event.get(line.ev)
        if takers is None:
            takers = [reader.take for reader in self._readers if line.ev in reader.events]
            self._by_event[line.ev] = takers
        for take in takers:
            take(line)

    def of(self, run: ScenarioRun) -> tuple[dict[str, float | None], dict[str, str]]:
        """Return the figures by name, and why there is none of those that could not be computed."""
        self.queue.end(run.started_s + run.ended_s)
        figures = {
            **self._measures.of(run.history, run.started_s, run.ended_s),
            **run.placement.measures(run.ended_s),
            **run.device_use.measures(run.placement.begun_s, run.ended_s),
            **self.queue.measures(),
        }
        finished = FinishedRun(run.history, run.placement, self.queue, self.recorded, run.started_s)
        own, errors = finished.values(self.stated)
        return {**figures, **own}, errors


def _result(
    scenario: Scenario,
    plan: MeshPlan,
    run: ScenarioRun,
    auditor: Auditor,
    measured: _Measured,
    *,
    mode: str,
    wall_s: float,
) -> RunResult:
    # A scenario that settles judges the invariants of a mesh at rest.
    at_rest: tuple[str, ...] = ("I20", "I28") if any(step.verb == "settle" for step in scenario.steps) else ()
    measures, errors = measured.of(run)
    run_result = RunResult(
        scenario=scenario.name,
        mode=mode,
        seed=plan.seed,
        switches=plan.switches.assignments,
        passed=run.passed and auditor.count == 0,
        expectations=run.judgements,
        violations=auditor.violations,
        violation_count=auditor.count,
        error=run.error,
        is_mistake=run.is_mistake,
        virtual_s=run.ended_s,
        wall_s=wall_s,
        measures=measures,
        stated=tuple(each.measure for each in measured.stated),
        measure_errors=errors,
        pods=list(run.history.pods.values()),
        samples=run.history.measured_samples,
        lines=auditor.lines,
        not_judged={name: why for name, why in auditor.not_judged.items() if name not in at_rest},
        started_s=run.started_s,
        forbidden=auditor.forbidden,
        seen=run.seen,
    )
    if run.seen is not None and run.seen.missing:
        _unknown(scenario, run_result, run.seen.missing)
    return run_result
