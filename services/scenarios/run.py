"""Run one scenario once, simulated or as processes, and give one result that both forms share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from kubelet.node.definition import NodeDefinition
from kubelet.runtime.latency import LatencyModel
from kubelet.stages.document import load_stages
from services.api.identity import ADMIN, SCHEDULER, Identity
from services.api.switches import Switches, Value
from services.runtime import simloop
from services.scenarios.invariants import Auditor
from services.scenarios.measures.history import Writes, measures
from services.scenarios.measures.rejections import Rejections
from services.scenarios.measures.resizes import Preemptions
from services.scenarios.measures.scheduling_results import SchedulingResults
from services.scenarios.mesh import MeshPlan, identity_named
from services.scenarios.processes.process_mesh import ProcessMesh
from services.scenarios.result import RunResult
from services.scenarios.runner import Disturb, Progress, ScenarioRun, run_scenario
from services.scenarios.script.nodes import node_definition
from services.scenarios.script.scenario import Scenario, ScriptError, parse_scenario
from services.scenarios.script.verbs import VERBS, check
from services.scenarios.simulation.simulated_mesh import SimMesh
from services.scenarios.simulation.traffic import Traffic
from services.scenarios.sweep import Job, Outcome, crashed, outcome_of, problem_of
from services.telemetry import logs
from services.telemetry.eventlog import Line
from services.telemetry.spans import FinishedSpan


class Takers:
    """What reads the event log for a run's measures."""

    def __init__(self) -> None:
        self._writes, self._scheduling_results = Writes(), SchedulingResults()
        self._preemptions, self._rejections = Preemptions(), Rejections()

    def beside(self, auditor: Auditor) -> Callable[[Line], None]:
        """Return what takes each line: the auditor, and then all of these."""
        readers = (auditor, self._writes, self._scheduling_results, self._preemptions, self._rejections)

        def take(line: Line) -> None:
            for reader in readers:
                reader.take(line)

        return take

    def measures(self, run: ScenarioRun) -> dict[str, float | None]:
        """Return the figures of a run that is over, by name."""
        return measures(
            run.history,
            self._writes,
            self._scheduling_results,
            self._preemptions,
            self._rejections,
            run.started_s,
            run.ended_s,
        )


def load_scenario(path: str | Path) -> Scenario:
    """Read a scenario file. Raises: ScriptError, also when the file cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScriptError(f"{path}: a scenario is text in UTF-8, byte {error.start} is not: {error.reason}") from None
    except OSError as error:
        raise ScriptError(f"{path}: {error.strerror or error}") from None
    scenario = parse_scenario(text, str(path), frozenset(VERBS))
    for step in scenario.steps:
        try:
            check(step)
        except ValueError as error:
            raise ScriptError(f"{path}:{step.line}: {error}") from None
    return scenario


def plan_of(
    scenario: Scenario,
    *,
    seed: int,
    overrides: Mapping[str, Value] | None = None,
    traced: bool = False,
    engine: str = "sqlite",
) -> MeshPlan:
    """Return the mesh a scenario asks for; `overrides` win over the scenario's own switches.

    Raises: ScriptError for a node option, a latency or a stage, SwitchError for a switch.
    """
    nodes = []
    for declared in scenario.nodes:
        for name in declared.names:
            try:
                definition = node_definition(name, declared.options)
                NodeDefinition.parse(definition)
                nodes.append(definition)
            except ValueError as error:
                raise ScriptError(f"{scenario.path}:{declared.line}: {error}") from None
    try:
        LatencyModel.parse(scenario.latencies, seed)
        load_stages(scenario.stages)
    except ValueError as error:
        raise ScriptError(f"{scenario.path}: {error}") from None
    switches = Switches.parse(scenario.switches).replace(overrides or {})
    made = MeshPlan(
        nodes=tuple(nodes),
        switches=switches,
        latencies=scenario.latencies,
        seed=seed,
        traced=traced,
        engine=engine,
        schedulers=scenario.schedulers,
        stages=scenario.stages,
        hosts=scenario.hosts,
        own_switches=scenario.own_switches,
        window_s=scenario.window_s,
    )
    for name, words in made.own_switches:
        if name not in (known := made.components()):
            raise ScriptError(
                f"{scenario.path}: set {name}: no process or component is called so; want {', '.join(known)}"
            )
        Switches.parse(words)
    return made


def simulate(
    scenario: Scenario,
    *,
    seed: int = 0,
    overrides: Mapping[str, Value] | None = None,
    traced: bool = False,
    progress: Progress | None = None,
    disturb: Callable[[Auditor], Disturb] | None = None,
    patience: float = 1.0,
    afterwards: Callable[[SimMesh], None] | None = None,
    traffic: Traffic | None = None,
    on_line: Callable[[Line], None] | None = None,
) -> RunResult:
    """Run the scenario in virtual time and judge every invariant as it goes.

    `traffic` may hold messages back, `on_line` sees every line of the event log.
    `afterwards` may look into the mesh as the scenario left it.
    `disturb` is given the auditor, so that what it finds at rest is reported beside the rest.
    """
    plan = plan_of(scenario, seed=seed, overrides=overrides, traced=traced)
    logs.set_up("simulation", "error")  # what went wrong is in the result; a thousand components' log lines are not
    auditor, takers = Auditor(plan.switches), Takers()
    started = time.perf_counter()
    meshes: list[SimMesh] = []

    async def run_it() -> ScenarioRun:
        take = takers.beside(auditor)
        mesh = SimMesh(plan, on_line=take, recorder=auditor, traffic=traffic)
        if on_line is not None:
            mesh.on_line(on_line)
        meshes.append(mesh)
        disturb_run = disturb(auditor) if disturb is not None else None
        run = await run_scenario(scenario, mesh, progress=progress, disturb=disturb_run, patience=patience)
        if afterwards is not None:
            afterwards(mesh)
        return run

    run = simloop.run(run_it(), seed=seed)
    mesh = meshes[0]
    return _result(
        scenario,
        plan,
        run,
        auditor,
        takers,
        mode="simulated",
        digest=mesh.events.digest,
        wall_s=time.perf_counter() - started,
        spans=mesh.spans.spans,
        failures=mesh.failures,
    )


def run_as_processes(
    scenario: Scenario,
    *,
    seed: int = 0,
    overrides: Mapping[str, Value] | None = None,
    progress: Progress | None = None,
    engine: str = "sqlite",
    data_dir: Path | None = None,
) -> RunResult:
    """Run the scenario against real processes; invariants are judged from their event files, live.

    Raises: MeshError when a process cannot start.
    """
    plan = plan_of(scenario, seed=seed, overrides=overrides, engine=engine)
    logs.set_up("keplab", "error", is_final=False)  # restarts and lost connections are what scenarios are about
    auditor = Auditor(plan.switches, is_volatile=engine == "memory")
    takers = Takers()
    started = time.perf_counter()
    meshes: list[ProcessMesh] = []

    async def run_it() -> ScenarioRun:
        take = takers.beside(auditor)
        mesh = ProcessMesh(plan, identities=_identities(scenario), data_dir=data_dir, on_line=take)
        meshes.append(mesh)
        return await run_scenario(scenario, mesh, progress=progress)

    run = asyncio.run(run_it())
    return _result(
        scenario,
        plan,
        run,
        auditor,
        takers,
        mode="processes",
        digest="",
        wall_s=time.perf_counter() - started,
        spans=[],
        failures=meshes[0].failures,
    )


def run_job(job: Job) -> Outcome:
    """Run one scenario in this interpreter; a crash of the simulator itself is a problem too."""
    try:
        result = simulate(load_scenario(job.scenario), seed=job.seed, overrides=job.overrides)
    except Exception as error:  # one run that breaks the simulator must be reported, not end the other 999
        return crashed(job, error)
    return outcome_of(job, result, problem_of(result))


def _not_judged(scenario: Scenario, auditor: Auditor) -> dict[str, str]:
    """Return which invariants were not judged, and why; a scenario that settles judges those of a mesh at rest."""
    settles = any(step.verb == "settle" for step in scenario.steps)
    return {name: why for name, why in auditor.not_judged.items() if not (settles and name in ("I20", "I28"))}


def _identities(scenario: Scenario) -> list[Identity]:
    """Return who the scenario speaks as, and whose requests it has arrive late, so that each gets a token."""
    named = dict.fromkeys(step.rest.split(" ", 1)[0] for step in scenario.steps if step.verb == "as")
    if any("late" in step.options for step in scenario.steps):
        named |= dict.fromkeys(f"node:{name}" for declared in scenario.nodes for name in declared.names)
    found = [identity_named(name) for name in named]
    return [identity for identity in found if identity not in (ADMIN, SCHEDULER)]


def _result(
    scenario: Scenario,
    plan: MeshPlan,
    run: ScenarioRun,
    auditor: Auditor,
    takers: Takers,
    *,
    mode: str,
    digest: str,
    wall_s: float,
    spans: list[FinishedSpan],
    failures: list[str],
) -> RunResult:
    return RunResult(
        scenario=scenario.name,
        mode=mode,
        seed=plan.seed,
        switches=plan.switches.assignments,
        digest=digest,
        passed=run.passed and auditor.count == 0,
        expectations=run.judgements,
        violations=auditor.violations,
        violation_count=auditor.count,
        error=run.error,
        is_mistake=run.is_mistake,
        virtual_s=run.ended_s,
        wall_s=wall_s,
        measures=takers.measures(run),
        pods=list(run.history.pods.values()),
        samples=run.history.samples,
        spans=spans,
        lines=auditor.lines,
        failures=failures,
        not_judged=_not_judged(scenario, auditor),
        started_s=run.started_s,
    )
