"""`keplab bench simulation`: a simulated mesh under load, counted in units, which no other work on the machine moves.

The load `lives`: pods of four sizes that live 5 to 60 s arrive at a steady rate, some in gangs of eight.
The load `runaway`: the runaway's arm `fail`, whose pods are refused and replaced at once.
"""

import asyncio
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from lab.benchmarks.bench import Bench, Reporter, Table, option
from lab.benchmarks.result import Result
from lab.benchmarks.running_mesh import rss_mib
from lab.benchmarks.units import Calibrator
from lab.scenarios.observer import Observer
from lab.scenarios.result import RunResult
from lab.scenarios.run import simulate
from lab.scenarios.script.scenario import Scenario
from lab.scenarios.script.verbs import read_scenario
from lab.scenarios.simulation.simulated_mesh import SimMesh
from services.api.switches import find

PASSES_A_PIECE: Final = 300
"""Passes of the simulation's loop between two measurements of a unit."""
PODS_PER_NODE_S: Final = 0.4
"""Pods that arrive a node and second, so that about 60 % of the CPU is in use."""
GANG: Final = 8
CPU_MILLIS: Final = (250, 500, 1_000, 2_000)
LIFE_S: Final = (5, 60)
GARBAGE_MAX: Final = int(find("podgc.threshold").default)
"""Number of ended pods above which the oldest are deleted: all pods of a load are counted at its end."""
STEADY_S: Final = 2
"""Seconds of the mesh's time before the first pod; memory is counted from their end."""
RUNAWAY_S: Final = 6
LAB: Final = Path(__file__).parents[1]
Load = Literal["lives", "runaway"]
Progress = Callable[[str, int, int], None]


class LoadError(ValueError):
    """A load that cannot be, such as more pods in gangs than there are pods."""


class SimulationFailed(RuntimeError):
    """The simulated run failed; its figures would be those of something else."""


def lives_text(nodes: int, pods: int, gangs: int = 0, seed: int = 7) -> str:
    """Return the scenario of the load `lives`. Raises: LoadError."""
    singles = pods - GANG * gangs
    if singles < 0:
        raise LoadError(f"--gangs {gangs} are {GANG * gangs} pods, more than --pods {pods}")
    chance, since_s, numbers = random.Random(seed), 0.0, {"pod": 0, "gang": 0}
    lines = [f"# Load: {pods} pods on {nodes} nodes", f"limit {3_000 + 3 * pods // nodes}s"]
    lines += ["set GenericWorkload=true"] if gangs else []
    lines += [f"set podgc.threshold={pods}"] if pods > GARBAGE_MAX else []
    lines += [f"nodes n1..n{nodes} cpu=32 memory=128Gi", f"wait {STEADY_S}s"]
    coming = ["pod"] * singles + ["gang"] * gangs
    chance.shuffle(coming)
    for kind in coming:
        numbers[kind] += 1
        added = _single(numbers[kind], chance) if kind == "pod" else _gang(numbers[kind], chance)
        lines += added
        since_s += (GANG if kind == "gang" else 1) / (nodes * PODS_PER_NODE_S)
        if since_s >= 1:
            lines.append(f"wait {since_s:.1f}s")
            since_s = 0.0
    lines.append(f"expect within 300s count pods phase=Succeeded == {pods}")
    return "\n".join(lines) + "\n"


def _single(number: int, chance: random.Random) -> list[str]:
    millis, life_s = chance.choice(CPU_MILLIS), chance.randint(*LIFE_S)
    return [f'pod p{number} cpu={millis}m memory=1Gi run="exit 0 after {life_s}s" restart=Never']


def _gang(number: int, chance: random.Random) -> list[str]:
    life_s = chance.randint(*LIFE_S)
    member = f'cpu=1 memory=1Gi group=g{number} run="exit 0 after {life_s}s" restart=Never'
    return [f"podgroup g{number} min-count={GANG}", *(f"pod g{number}-{each} {member}" for each in range(GANG))]


def runaway_text() -> str:
    """Return the runaway's scenario, with a shorter wait at its end."""
    inside = LAB / "shipped" / "experiments"
    shipped = inside if inside.is_dir() else LAB.parent / "experiments"
    text = (shipped / "runaway" / "runaway.txt").read_text(encoding="utf-8")
    return re.sub(r"\nwait \d+s\s*$", f"\nwait {RUNAWAY_S}s\n", text)


@dataclass
class SimulationBench(Result):
    """Figures of one simulated run. CPU time and units are without what measuring itself takes.

    `unit_us`: CPU microseconds of one unit in this run. `kept_kib_per_pod`: growth of resident memory while
    the pods came and went; 0 for the runaway, whose pods are few. `calls_per_pod`, `callbacks_per_pod`: Python
    calls and callbacks of the loop in the whole run, if they were counted; counting doubles the other figures.
    """

    load: str
    nodes: int
    pods: int
    gangs: int
    seed: int
    cpu_s: float
    wall_s: float
    virtual_s: float
    unit_us: float
    units: float
    units_per_pod: float
    pods_per_cpu_s: float
    rss_mib: float
    kept_kib_per_pod: float
    digest: str
    calls_per_pod: float | None = None
    callbacks_per_pod: float | None = None
    workload: str = "Simulation"
    form: str = "simulated"


@dataclass
class _Meter:
    """What one run takes, read between passes of its loop and at each sample of its course."""

    pods: int
    progress: Progress
    units: Calibrator = field(default_factory=Calibrator)
    steady_rss_mib: float = 0.0
    last_rss_mib: float = 0.0
    _passes: int = 0

    def attach(self, _: SimMesh) -> None:
        """Measure a unit every so many passes of the loop that runs."""
        loop: Any = asyncio.get_running_loop()
        run_once: Callable[[], None] = loop._run_once

        def run_and_count() -> None:
            run_once()
            self._passes += 1
            if self._passes % PASSES_A_PIECE == 0:
                self.units.measure()

        loop._run_once = run_and_count

    def on_progress(self, observer: Observer, line: str) -> None:
        """Note the memory before the first pod, and show how many pods have come."""
        if line == f"wait {STEADY_S}s":
            self.steady_rss_mib = rss_mib(os.getpid())
        self.progress("pods seen", min(len(observer.history.pods), self.pods), self.pods)

    def end(self, _: SimMesh) -> None:
        """Note the memory at the end."""
        self.last_rss_mib = rss_mib(os.getpid())


@dataclass
class _Calls:
    """Count of Python calls, and of the loop's callbacks among them."""

    total: int = 0
    callbacks: int = 0

    def note(self, frame: Any, event: str, _: object) -> None:
        """Count one event of the profiler."""
        if event == "call":
            self.total += 1
            code = frame.f_code
            if code.co_name == "_run" and code is asyncio.Handle._run.__code__:
                self.callbacks += 1


def bench_simulation(
    *,
    load: Load = "lives",
    nodes: int = 20,
    pods: int = 500,
    gangs: int = 0,
    seed: int = 7,
    counts_calls: bool = False,
    progress: Progress = lambda what, done, total: None,
) -> SimulationBench:
    """Simulate the load and return what it takes; `nodes`, `pods` and `gangs` are of the load `lives`.

    Raises: LoadError, SimulationFailed.
    """
    is_lives = load == "lives"
    text = lives_text(nodes, pods, gangs, seed) if is_lives else runaway_text()
    scenario = read_scenario(text, load)
    # What is imported, or remembered for the life of a process, is not what a pod costs.
    _simulate_load(read_scenario(lives_text(1, 1), "warm-up"), _Meter(1, progress), seed, is_lives=True)
    meter, calls = _Meter(pods, progress), _Calls()
    began, cpu = time.perf_counter(), time.process_time()
    if counts_calls:
        sys.setprofile(calls.note)
    try:
        result = _simulate_load(scenario, meter, seed, is_lives=is_lives)
    finally:
        if counts_calls:
            sys.setprofile(None)
    cpu_s = time.process_time() - cpu - meter.units.spent_s
    count = pods if is_lives else len(result.pods)
    units = meter.units.units(cpu_s)
    kept_mib = meter.last_rss_mib - meter.steady_rss_mib if is_lives else 0.0
    return SimulationBench(
        load=load,
        nodes=nodes if is_lives else sum(len(declared.names) for declared in scenario.nodes),
        pods=count,
        gangs=gangs if is_lives else 0,
        seed=seed,
        cpu_s=round(cpu_s, 3),
        wall_s=round(time.perf_counter() - began, 3),
        virtual_s=round(result.virtual_s, 3),
        unit_us=round(1e6 * meter.units.unit_s, 1),
        units=round(units),
        units_per_pod=round(units / count, 2),
        pods_per_cpu_s=round(count / cpu_s, 1),
        rss_mib=round(meter.last_rss_mib, 1),
        kept_kib_per_pod=round(1024 * kept_mib / count, 1),
        digest=result.digest,
        calls_per_pod=round(calls.total / count, 1) if counts_calls else None,
        callbacks_per_pod=round(calls.callbacks / count, 1) if counts_calls else None,
    )


def _simulate_load(scenario: Scenario, meter: _Meter, seed: int, *, is_lives: bool) -> RunResult:
    result = simulate(
        scenario,
        seed=seed,
        overrides={} if is_lives else {"kubelet.on_reject": "fail"},
        progress=meter.on_progress if is_lives else None,
        beforehand=meter.attach,
        afterwards=meter.end,
    )
    if not result.passed:
        failed = [judgement.text for judgement in result.expectations if not judgement.passed]
        broken = [f"invariant {violation.invariant}" for violation in result.violations]
        raise SimulationFailed("; ".join([result.error, *failed, *broken]).strip("; "))
    return result


@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """The options of `keplab bench simulation`."""

    load: Load = option(
        "lives",
        "lives: pods that come, run and end; runaway: the runaway's arm fail, of a size of its own",
        choices=("lives", "runaway"),
    )
    nodes: int = option(20, "simulated nodes", least=1, most=15_000)
    pods: int = option(500, "pods that come, those of gangs included", least=1, most=200_000)
    gangs: int = option(0, f"gangs of {GANG} among the pods", least=0, most=25_000)
    seed: int = option(7, "seed of the load and of the run", least=0)
    counts_calls: bool = option(False, "count Python calls and callbacks a pod; takes twice as long", flag="--calls")


def _run(options: SimulationOptions, reporter: Reporter) -> SimulationBench:
    return bench_simulation(
        load=options.load,
        nodes=options.nodes,
        pods=options.pods,
        gangs=options.gangs,
        seed=options.seed,
        counts_calls=options.counts_calls,
        progress=reporter.progress,
    )


def _table(_: SimulationOptions, result: SimulationBench) -> Iterator[str | Table]:
    gangs = f", {result.gangs:,} gangs of {GANG}" if result.gangs else ""
    yield (
        f"{result.units_per_pod:,.1f} units a pod, {result.pods_per_cpu_s:,.0f} pods a CPU-second: "
        f"{result.pods:,} pods on {result.nodes:,} nodes{gangs}, seed {result.seed}"
    )
    rows: list[tuple[str, str]] = [
        ("CPU", f"{result.cpu_s:,.2f} s"),
        ("wall", f"{result.wall_s:,.2f} s"),
        ("simulated", f"{result.virtual_s:,.1f} s"),
        ("a unit", f"{result.unit_us:,.0f} µs"),
        ("units", f"{result.units:,.0f}"),
        ("memory", f"{result.rss_mib:,.0f} MiB"),
    ]
    if result.load == "lives":
        rows.append(("kept for an ended pod", f"{result.kept_kib_per_pod:,.0f} KiB"))
    if result.calls_per_pod is not None and result.callbacks_per_pod is not None:
        rows += [
            ("Python calls a pod", f"{result.calls_per_pod:,.0f}"),
            ("callbacks a pod", f"{result.callbacks_per_pod:,.0f}"),
        ]
    yield Table(("FIGURE", "VALUE"), rows, texts=1)


BENCH: Final = Bench(
    name="simulation",
    help="Simulate a mesh under load, and show what a pod costs from its creation to its end.",
    options=SimulationOptions,
    run=_run,
    table=_table,
    document=SimulationBench.document,
    refusals=(LoadError, SimulationFailed),
    has_bar=True,
)
