"""Run a scenario while a seed's faults happen, then wait for rest.

Under chaos the scenario's own expectations are not judged: a bound that holds on a healthy mesh says
nothing about a broken one. The run is judged by the invariants, always; no process may end by itself;
the mesh must come to rest after the last heal (I28); and it must then have made what it makes
undisturbed (I20). One seed gives the same digest in every interpreter, whatever its hash seed.
"""

import asyncio
import os
import random
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from lab.chaos.plan import EVERYTHING, Fault, draw
from lab.scenarios.invariants import Auditor, unrest_of
from lab.scenarios.loading import load_scenario
from lab.scenarios.mesh import Mesh, Site
from lab.scenarios.observer import Observer
from lab.scenarios.result import RunResult
from lab.scenarios.run import simulate
from lab.scenarios.script.scenario import Scenario
from lab.scenarios.simulation.simulated_mesh import SimMesh
from lab.scenarios.sweep import Job, Outcome, crash_outcome, outcome_of
from services.api.meta import Document
from services.api.switches import Value
from services.client.link_faults import LinkFaults
from services.telemetry.eventlog import Line

HEAL_S = 20.0
REST_LIMIT_S = 60.0
"""I28: seconds after the last heal within which the mesh must reach the desired state."""
SLOW_MAX_S = 0.5
"""Longest extra delay of a message on a slow link, in seconds."""
QUIET_S = 10.0
"""I28: seconds at the desired state in which only heartbeats may happen."""
RESTLESS = ("Pod", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job")
RESOURCES = ("pods", "replicasets.apps", "deployments.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch")
PATIENCE = 8.0

_UNDISTURBED: dict[tuple[str, tuple[tuple[str, Value], ...]], Mapping[str, int]] = {}


@dataclass
class ChaosRun:
    """The run of one seed. `faults`: the planned faults, which all happened."""

    result: RunResult
    faults: list[Fault] = field(default_factory=list)

    @property
    def problem(self) -> str:
        """Return what went wrong; empty string if nothing did."""
        if self.result.error:
            return self.result.error
        found = [f"{v.invariant}: {' '.join((*v.objects, v.detail))}" for v in self.result.violations[:3]]
        return "; ".join([*found, *self.result.failures[:3]])


class _Counts:
    """Counts of one run's commits, by kind: changes of all types, and objects made."""

    def __init__(self) -> None:
        self.changes: Counter[str] = Counter()
        self.made: Counter[str] = Counter()

    def take(self, line: Line) -> None:
        """Count a commit."""
        if line.ev == "store.commit" and line.obj is not None and not line.data.get("replayed"):
            self.changes[line.obj["kind"]] += 1
            self.made[line.obj["kind"]] += line.data.get("type") == "ADDED"


async def _happen(mesh: SimMesh, fault: Fault) -> None:
    """Return when the fault is over."""
    await asyncio.sleep(fault.at_s)
    component, duration_s = fault.component, fault.duration_s
    match fault.kind:
        case "kill" | "power":
            if fault.site:
                await _reach(mesh, fault)
            for target in mesh.components() if component == EVERYTHING else (component,):
                mesh.sever(target, duration_s)
        case "pause":
            await mesh.pause(component, duration_s)
        case "corrupt":
            what, how = fault.detail.split()
            await mesh.corrupt(component, how, what)
        case "boot":
            await mesh.reboot(component, duration_s)
        case "clock":
            mesh.set_clock(component, float(fault.detail))
            await asyncio.sleep(duration_s)
            mesh.set_clock(component, 0.0)
        case "disk":
            mesh.set_disk(component, fault.detail, 0.0)
            await asyncio.sleep(duration_s)
            mesh.set_disk(component, "", 0.0)
        case _:
            mesh.link(component, _link_faults(fault))
            await asyncio.sleep(duration_s)
            mesh.link(component)


def _link_faults(fault: Fault) -> LinkFaults:
    of_kinds = {
        "cut": LinkFaults(cut=fault.detail),
        "slow": LinkFaults(slow_s=min(fault.duration_s / 10, SLOW_MAX_S)),
        "drop": LinkFaults(drop=(fault.detail,)),
        "delay": LinkFaults(watch_delay_s=fault.duration_s / 2),
        "loss": LinkFaults(loss=0.05),
        "duplicate": LinkFaults(duplicate=0.2),
    }
    return of_kinds[fault.kind.removeprefix("node-")]


async def _reach(mesh: SimMesh, fault: Fault) -> None:
    """Return after the fault's site; a site that is not reached in time is given up: strike anyway."""

    def strike() -> None:
        if not fault.after_s:
            # In this very instant: what the line reports is logged and has not happened yet.
            mesh.sever(fault.component, fault.duration_s)

    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, HEAL_S - fault.at_s)):
            await mesh.strike_at(fault.component, Site(fault.site, fault.count), strike)
        await asyncio.sleep(fault.after_s)


def run_chaos(
    scenario: Scenario, *, seed: int, overrides: Mapping[str, Value] | None = None, must_rest: bool = True
) -> ChaosRun:
    """Run one seed in virtual time. `must_rest` False: judge safety only, for arms that never settle."""
    faults: list[Fault] = []
    undisturbed = _undisturbed_counts(scenario, overrides or {}) if must_rest else {}
    counts = _Counts()

    async def disturb(auditor: Auditor, mesh: Mesh, observer: Observer, finished: asyncio.Event) -> None:
        assert isinstance(mesh, SimMesh)
        faults.extend(draw(random.Random(f"chaos/{seed}"), mesh.components(), HEAL_S, mesh.nodes()))
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                group.create_task(_happen(mesh, fault))
        await finished.wait()
        if must_rest:
            await _rest(observer, auditor, counts.changes)
            for kind in RESTLESS:
                count, wanted = counts.made[kind], undisturbed.get(kind, 0)
                if count != wanted:
                    detail = f"{count} objects of kind {kind} were made, undisturbed {wanted}"
                    auditor.report("I20", 0.0, (), detail)

    result = simulate(scenario, seed=seed, overrides=overrides, disturb=disturb, patience=PATIENCE, on_line=counts.take)
    result.expectations = []
    result.passed = result.violation_count == 0 and not result.error and not result.failures
    return ChaosRun(result, faults)


async def _rest(observer: Observer, auditor: Auditor, changes: Mapping[str, int]) -> None:
    """Wait until workloads are as desired and only heartbeats happen; report I20 and I28 when that is not in time."""
    deadline = observer.now_s + REST_LIMIT_S
    last, since_s = -1, observer.now_s
    while True:
        documents = {resource: list(observer.documents(resource)) for resource in RESOURCES}
        unrest = [*unrest_of(documents), *_unscheduled_pods(documents["pods"])]
        count = sum(changes.get(kind, 0) for kind in RESTLESS)
        if unrest or count != last:
            last, since_s = count, observer.now_s
        if observer.now_s - since_s >= QUIET_S:
            return
        if since_s > deadline:
            for what, detail in unrest:
                auditor.report("I20", observer.now_s, (what,), detail)
            what_for = "at rest" if unrest else "quiet"
            auditor.report("I28", observer.now_s, (), f"not {what_for} {REST_LIMIT_S:g} s after the last heal")
            return
        await asyncio.sleep(0.5)


def _unscheduled_pods(pods: Iterable[Document]) -> list[tuple[str, str]]:
    """Return the pods that no node has; scenarios for chaos have capacity for all."""
    waiting = (pod for pod in pods if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"))
    pending = (pod["metadata"] for pod in waiting if pod.get("status", {}).get("phase", "Pending") == "Pending")
    return [(f"Pod {meta['namespace']}/{meta['name']}", "is still unscheduled at rest") for meta in pending]


def _undisturbed_counts(scenario: Scenario, overrides: Mapping[str, Value]) -> Mapping[str, int]:
    """Return how many objects of each kind the scenario makes on a healthy mesh; counted once a process."""
    key = (scenario.path, tuple(sorted(overrides.items())))
    if key not in _UNDISTURBED:
        counts = _Counts()
        simulate(scenario, overrides=overrides, on_line=counts.take)
        _UNDISTURBED[key] = counts.made
    return _UNDISTURBED[key]


@dataclass(frozen=True)
class ChaosJob(Job):
    """One seed of faults for one scenario. `must_rest` False: judge safety only."""

    must_rest: bool = True

    @property
    def command(self) -> str:
        """Return the command line that repeats exactly this run."""
        no_rest = "" if self.must_rest else " --no-rest"
        return f"keplab chaos {shlex.quote(self.scenario)} --seed {self.seed} --seeds 1{self.sets}{no_rest}"


def run_seed(job: ChaosJob) -> Outcome:
    """Run one job in this interpreter; a crash of the simulator itself is a problem too."""
    try:
        scenario = load_scenario(job.scenario)
        run = run_chaos(scenario, seed=job.seed, overrides=job.overrides, must_rest=job.must_rest)
    except Exception as error:  # a seed that breaks the simulator must be reported, not end the other 999
        return crash_outcome(job, error)
    return outcome_of(job, run.result, run.problem, len(run.faults))


def digest_elsewhere(job: ChaosJob, hash_seed: int) -> str:
    """Return the job's digest from a fresh interpreter with that PYTHONHASHSEED."""
    code = (
        "import sys, msgspec; from lab.chaos.run import ChaosJob, run_seed;"
        "print(run_seed(msgspec.json.decode(sys.argv[1], type=ChaosJob)).digest)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, msgspec.json.encode(job).decode()],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
