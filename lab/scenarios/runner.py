"""Runner of a scenario against a mesh: it acts line by line, judges every expectation and watches every
invariant.

The same runner serves both forms of the mesh; only the clock differs. Nothing polls or sleeps: an
expectation is judged again whenever something that may affect it has changed.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from lab.scenarios.freshness import JUDGED_WITHIN_S, Freshness, UntilVersion
from lab.scenarios.measures.device_use import DeviceUse
from lab.scenarios.measures.history import History
from lab.scenarios.measures.placement import Placement
from lab.scenarios.measures.recorded import Recorded
from lab.scenarios.mesh import Mesh
from lab.scenarios.observer import Observer
from lab.scenarios.observer_progress import Ending, ObserverProgress
from lab.scenarios.recording import RunRecorder
from lab.scenarios.result import Judgement
from lab.scenarios.script.context import ScenarioContext, substitute
from lab.scenarios.script.expectation import Expectation, Judging
from lab.scenarios.script.scenario import Scenario, Step
from lab.scenarios.script.verbs import VERBS
from services.api.errors import ApiError, UnknownOutcome
from services.api.identity import ADMIN
from services.client.client import Client
from services.kwok.definitions import resource_of

SAMPLE_EVERY_S = 0.5


@dataclass
class ScenarioRun:
    """One run: judgements in order, the pods' history, and errors of the scenario itself."""

    judgements: list[Judgement] = field(default_factory=list)
    history: History = field(default_factory=History)
    placement: Placement = field(default_factory=Placement)
    device_use: DeviceUse = field(default_factory=DeviceUse)
    error: str = ""
    is_mistake: bool = False
    """Whether `error` is the scenario's own mistake: it requested something impossible."""
    started_s: float = 0.0
    """Start of the run on the mesh's own clock; all other times count from here."""
    ended_s: float = 0.0
    seen: ObserverProgress | None = None
    """Progress of the observer; None for a simulation, whose observer sees everything."""
    arrivals: dict[int, float] = field(default_factory=dict)
    """Time at which each version of a pod was seen, for a run of processes."""

    @property
    def passed(self) -> bool:
        """Whether all expectations held and the scenario ran to its end."""
        return not self.error and all(j.passed for j in self.judgements)


class _Monitor:
    """An `always` or `for` expectation: judged after every change until it fails or ends."""

    def __init__(self, step: Step, expectation: Expectation, observer: Observer) -> None:
        self._step, self._resource, self._observer = step, expectation.resource, observer
        self._judging = Judging(expectation, observer)
        self._failed_s: float | None = None
        self._seen = ""
        self._is_active = True
        self._on_change(self._resource)
        self._stop_listening = observer.on_change(self._on_change)

    def _on_change(self, resource: str) -> None:
        if not self._is_active or resource != self._resource:
            return
        if self._judging.holds():
            self._seen = self._seen or self._judging.finding()
        else:
            self._is_active, self._failed_s = False, self._observer.now_s
            self._seen = self._judging.finding()

    def close(self) -> Judgement:
        self._is_active = False
        self._stop_listening()
        at_s = self._observer.now_s if self._failed_s is None else self._failed_s
        return Judgement(self._step.line, self._step.text, self._failed_s is None, self._seen, at_s)


Progress = Callable[[Observer, str], None]
"""Progress callback: called about twice a second of the mesh's time with the observer and the current line."""


Disturb = Callable[[Mesh, Observer, asyncio.Event], Awaitable[None]]
"""Function that injects faults while the scenario runs, heals them, and may wait for rest afterwards, as
chaos does.

The event is set when the scenario's last line was run.
"""


async def run_scenario(
    scenario: Scenario,
    mesh: Mesh,
    *,
    progress: Progress | None = None,
    disturb: Disturb | None = None,
    patience: float = 1.0,
    chance: random.Random | None = None,
    recorded: Recorded | None = None,
    recorder: RunRecorder | None = None,
    ending: Ending | None = None,
) -> ScenarioRun:
    """Start the mesh, run the scenario, stop the mesh.

    `disturb` runs concurrently with the scenario, and the mesh is stopped when both are done. `patience`:
    factor on the bounds of `within` expectations, for meshes with faults. `recorded` keeps the data for the
    scenario's own measures, `recorder` the observer's events, `ending` the end of the run. `chance`: random
    numbers for a mesh that has run other scenarios, whose request ids must not recur. Raises: what `progress`
    raises, which ends the run; a note says when.
    """
    run = ScenarioRun()
    await mesh.start()
    course = _begin(run, scenario, mesh, chance or random.Random("teller"), patience, recorded, recorder, ending)
    own_task = asyncio.current_task()
    assert own_task is not None
    eyes = asyncio.create_task(course.observer.run())
    pulse = asyncio.create_task(course.pulse(progress, ends=own_task))
    try:
        await course.perform(disturb)
        await course.freshness.end()
    except asyncio.CancelledError:
        if not pulse.done():
            raise
        own_task.uncancel()
    finally:
        await course.end(eyes, pulse)
    if not pulse.cancelled() and (failure := pulse.exception()) is not None:
        # Without samples, half of what the run shows would be missing.
        when = f"{run.ended_s:.3f} s after its start, when it was shown at: {course.line}"
        failure.add_note(f"{scenario.path}: the run ended {when}")
        raise failure
    return run


def _begin(
    run: ScenarioRun,
    scenario: Scenario,
    mesh: Mesh,
    chance: random.Random,
    patience: float,
    recorded: Recorded | None,
    recorder: RunRecorder | None,
    ending: Ending | None,
) -> "_Course":
    """Return the course of a scenario through a mesh that has started, before its first line."""
    api = mesh.api(ADMIN)
    until = UntilVersion(api)
    followed = recorder.observer_api(until) if recorder is not None else until
    defined = [resource_of(kind) for kind in scenario.enable_crds]
    arrivals = run.arrivals if mesh.progress is not None else None
    observer = Observer(followed, mesh.clock, chance, recorded, defined, arrivals)
    freshness = Freshness(mesh, observer, until, ending or Ending())
    if recorder is not None:
        recorder.begin(mesh.clock, observer.started_s)
    run.history, run.placement, run.started_s = observer.history, observer.placement, observer.started_s
    run.device_use = observer.device_use
    client = Client(api, mesh.clock, chance, field_manager="keplab-scenario")
    context = ScenarioContext(mesh, client, observer, scenario, chance, freshness)
    return _Course(run, context, freshness, patience)


class _Course:
    """Progress of a scenario through a mesh: its current line, and its background tasks."""

    def __init__(self, run: ScenarioRun, context: ScenarioContext, freshness: Freshness, patience: float) -> None:
        self._run, self._context, self._patience = run, context, patience
        self.freshness, self.observer = freshness, context.observer
        self.line = context.scenario.steps[0].text
        self._monitors: list[_Monitor] = []
        self._disturbance: asyncio.Future[None] | None = None

    async def perform(self, disturb: Disturb | None) -> None:
        """Perform all lines within the scenario's limit; what prevents that is the run's error."""
        scenario, mesh, finished = self._context.scenario, self._context.mesh, asyncio.Event()
        try:
            await self.observer.wait_until_synced()
            if disturb is not None:
                self._disturbance = asyncio.ensure_future(disturb(mesh, self.observer, finished))
            async with asyncio.timeout(scenario.limit_s * self._patience):
                for step in scenario.steps:
                    self.line = step.text
                    await self._perform(step)
            finished.set()
            if self._disturbance is not None:
                self.line = "(waiting for rest)"
                await self._disturbance
        except TimeoutError:
            limit = f"{scenario.limit_s:g} s, at: {self.line}"
            self._run.error = f"{scenario.path}: ran for longer than its limit of {limit}"
        except _StepFailed as error:
            self._run.error, self._run.is_mistake = f"{scenario.path}:{error}", error.is_mistake

    async def end(self, *followers: asyncio.Task[None]) -> None:
        """Take the last judgements, stop what goes on beside the scenario, then the mesh."""
        self._run.seen = self.freshness.seen
        self._judge_last()
        helpers: list[asyncio.Future[Any]] = [
            *followers,
            *self._context.background,
            *(task for _, task in self._context.playing),
            *([self._disturbance] if self._disturbance is not None else []),
        ]
        for task in helpers:
            task.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        await self._context.mesh.stop()

    async def pulse(self, progress: Progress | None, *, ends: "asyncio.Task[object]") -> None:
        """Sample and show the run until it is cancelled; what is raised meanwhile cancels `ends`."""
        try:
            while True:
                self.observer.history.sample(self.observer.now_s)
                if progress is not None:
                    progress(self.observer, self.line)
                await asyncio.sleep(SAMPLE_EVERY_S)
        except Exception:
            ends.cancel()
            raise

    def _judge_last(self) -> None:
        """Take the last judgements and samples, at the moment at which the scenario ends."""
        run, observer = self._run, self.observer
        # A fault whose moment did not come: without it this was no run of the scenario.
        late = [step for step, task in self._context.planned if not task.done()]
        never = "did not happen before the scenario ended"
        run.judgements += [Judgement(step.line, step.text, False, never, observer.now_s) for step in late]
        run.judgements += [monitor.close() for monitor in self._monitors]
        run.judgements.sort(key=lambda j: j.line)
        run.ended_s = observer.now_s
        observer.history.sample(observer.now_s)
        observer.recorded.end(observer.now_s, observer.documents)

    async def _perform(self, step: Step) -> None:
        """Perform one line, and take the judgements it leads to. Raises: _StepFailed."""
        context, judgements = self._context, self._run.judgements
        try:
            if (expectation := step.expectation) is not None:
                if "$" in expectation.value:
                    expectation = replace(expectation, value=substitute(context, expectation.value))
                judgements += await self._expect(step, expectation)
            else:
                await VERBS[step.verb].perform(context, step)
        except ValueError as error:
            raise _StepFailed(f"{step.line}: {error}", is_mistake=True) from None
        except (ApiError, UnknownOutcome) as error:
            raise _StepFailed(f"{step.line}: {step.text}: {error}", is_mistake=False) from None
        for answered, met, seen in context.answers:
            judgements.append(Judgement(answered.line, answered.text, met, seen, self.observer.now_s))
        context.answers.clear()

    async def _expect(self, step: Step, expectation: Expectation) -> list[Judgement]:
        """Judge it as its mode says, from a view that has seen what the store had when the line was reached.

        `always` is only begun, so it has no result yet.
        """
        observer, mode, begun_s = self.observer, expectation.mode, self.observer.now_s
        lasts_s = expectation.duration_s * (self._patience if mode == "within" else 1.0)
        resources = (expectation.resource,)
        limits_s = {"within": lasts_s, "for": min(JUDGED_WITHIN_S, lasts_s)}
        is_current = await self.freshness.reach(resources, limits_s.get(mode, JUDGED_WITHIN_S))
        left_s = lasts_s - (observer.now_s - begun_s)
        match mode:
            case "always":
                self._monitors.append(_Monitor(step, expectation, observer))
                return []
            case "for":
                monitor = _Monitor(step, expectation, observer)
                await asyncio.sleep(left_s)
                is_current = await self.freshness.reach(resources) and is_current
                judged = monitor.close()
            case "within":
                # What was true before the line was reached is no answer to it.
                holds, seen = await _within(observer, expectation, left_s) if is_current else (False, "")
                if not holds:
                    is_current = await self.freshness.reach(resources)
                    holds, seen = expectation.judge(observer)
                judged = Judgement(step.line, step.text, holds, seen, observer.now_s)
            case _:
                holds, seen = expectation.judge(observer)
                judged = Judgement(step.line, step.text, holds, seen, observer.now_s)
        if not is_current:
            self.freshness.note_late(resources, f"line {step.line}, {step.text}")
        return [judged]


class _StepFailed(Exception):
    """A step that could not be performed: `line: why`."""

    def __init__(self, text: str, *, is_mistake: bool) -> None:
        super().__init__(text)
        self.is_mistake = is_mistake


async def _within(observer: Observer, expectation: Expectation, limit_s: float) -> tuple[bool, str]:
    changed = asyncio.Event()
    end = observer.on_change(lambda resource: changed.set() if resource == expectation.resource else None)
    judging = Judging(expectation, observer)
    try:
        async with asyncio.timeout(limit_s):
            while not judging.holds():
                await changed.wait()
                changed.clear()
    except TimeoutError:
        pass
    finally:
        end()
    return judging.judge()
