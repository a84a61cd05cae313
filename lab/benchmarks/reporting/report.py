"""Figures with their aims, and the report of them: `figures.json` for programs and `README.md` for people."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from lab.benchmarks.reporting.aims import Aims
from lab.benchmarks.reporting.machine import Machine
from lab.benchmarks.result import SchedulerBench

Form = Literal["algorithm", "mesh"]
SHOWN_PLUGINS: Final = 4
SHOWN_MIN_US: Final = 1.0
US_OF: Final = {"µs": 1.0, "CPU s": 1e6}
"""Microseconds of the units of CPU time."""
SMALL, LARGE = 500, 15_000
"""The two numbers of nodes between which the CPU cost of a pod is compared."""
INTRODUCTION = """\
# Benchmarks

One run of `{command}` on {machine}, {date}, Python {python}, revision {revision}.
Everything ran on that machine at once: the mesh's processes and the program that made the load.{warning}

| Figure | Value | Units | Aim | Before |
|---|---:|---:|---|---:|
"""
NOTES = """
What the figures mean:

- *pods created → Running*: a client keeps 256 creations of bare pods under way; the clock runs from the first
  creation to the moment a watcher has seen the last pod Running. Containers take no time to start, so that the
  mesh is what is measured; nothing is traced and no event files are written. Latencies are those of this burst:
  most of them is waiting in line.
- *CPU a pod* is user and system time of the processes during the same span. Events for people are written behind
  the work, a few at a time, and some of them after it.
- *memory at rest*: of a fresh mesh with three nodes and one pod, as the kernel's PSS: a page that several processes
  share is divided among them, since those of a mesh share what their common importer loaded. *With all pages that it
  shares* is the resident memory, of which a mesh takes less than the sum.
- *watch events*: as many watches of one kind on one connection; writer and watchers are one process, the same one.
- *nodes in one process*: a mesh with one kubelet host; registered means that every node follows its pods. At rest and
  at a steady rate each process is watched for 20 s; 100 % is one core.
- *units* make machines and minutes comparable: one is what decoding and walking 60 JSON documents of about 250 bytes
  takes. It is measured in the same run, in simulations every 300 passes of the loop, else before and after each part.
- *before* is the figure of the report that this one replaces. Aims are rows of `aims.json`.
- *simulated seconds a second*: the scenario with every invariant judged; the scenario waits a lot in one arm, and makes
  thousands of pods in the other.

`figures.json` holds these and the whole results behind them.
"""
HEAD: Final = """
## The scheduler

Workloads of upstream's scheduler_perf (`keplab bench scheduler --list`), all nodes filtered and scored. *algorithm*:
cache, queue, handlers and cycles in one process, pods decoded beforehand, binds confirmed at once; latency from pop
to assume. *mesh*: API server (memory engine) and scheduler as processes, nodes without kubelets, pods created over
gRPC with 256 under way; latency from created to bound as a watch sees it. For orientation: kube-apiserver, etcd and
kube-scheduler v1.36.2 schedule 405 to 433 of the basic pods a second on the same two cores at 5,000 nodes, 423 with
node affinity, 312 with spreading, 260 with anti-affinity, sampling nodes as they do by default.

| Workload | Nodes | Form | Pods/s | CPU µs/pod | p50 ms | p99 ms | Aim |
|---|---:|---|---:|---:|---:|---:|---|
"""
WHERE: Final = """
Where the time goes, µs a pod, from a play of at most 1,000 pods in which every plugin is clocked (a plugin's own time;
clocking itself costs about as much again, so that the shares count more than the sums). *cycle* is the runner, what it
remembers of templates, and the choice among the best; *queue*, *cache* and *handlers* include confirming the bind.

| Workload | Nodes | Plugins | Besides |
|---|---:|---|---|
"""


@dataclass(frozen=True)
class Figure:
    """One figure. `aim`: its upper bound, or lower bound with `is_more_better`; None: the figure is only reported.

    `units`: a CPU time in units; None for other figures. `last`: the value that was committed last, if any.
    """

    name: str
    title: str
    value: float
    unit: str
    aim: float | None = None
    is_more_better: bool = False
    units: float | None = None
    last: float | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the aim is met; None when there is no aim."""
        if self.aim is None:
            return None
        return self.value >= self.aim if self.is_more_better else self.value <= self.aim

    @property
    def aim_text(self) -> str:
        """Return the aim and whether it is met, in words."""
        if self.aim is None:
            return "–"
        sign = "≥" if self.is_more_better else "≤"
        return f"{sign} {self.aim:,g}: {'met' if self.is_met else 'missed'}"


@dataclass(frozen=True)
class Run:
    """One workload at one size. `pods`: 0 for upstream's number, scaled. `aim`: pods a second; 0 for no aim."""

    workload: str
    nodes: int
    form: Form = "algorithm"
    pods: int = 0
    aim: float = 0.0

    @property
    def title(self) -> str:
        """Workload, number of nodes and form, in words."""
        return f"{self.workload}, {self.nodes:,} nodes, {self.form}"


@dataclass(frozen=True)
class Part:
    """CPU seconds, units and wall seconds of one part of a run, with its processes that have ended."""

    name: str
    cpu_s: float
    units: float
    wall_s: float


@dataclass
class Figures:
    """The figures of one run, and the full results behind them. `load`: the machine's load average at the start.

    `aims`: table of aims; `last`: the figures committed last, by name.
    """

    machine: Machine
    load: float
    aims: Aims = field(default_factory=Aims)
    last: Mapping[str, float] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    scheduler: dict[Run, SchedulerBench] = field(default_factory=dict)

    def add(
        self,
        name: str,
        title: str,
        value: float,
        unit: str,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """Add one figure; a row of the table of aims goes before the bound given here."""
        row = self.aims.of(name)
        if row is not None:
            at_most, at_least = row.at_most, row.at_least
        is_more_better = at_least is not None
        aim, last = at_least if is_more_better else at_most, self.last.get(name)
        self.figures.append(Figure(name, title, value, unit, aim, is_more_better, last=last))

    def end_part(self, part: Part, first: int, unit_us: float) -> None:
        """Add a part, and give the CPU times among its figures, those from `first` on, their units."""
        self.parts.append(part)
        for place, figure in enumerate(self.figures[first:], first):
            if figure.unit in US_OF:
                self.figures[place] = replace(figure, units=round(US_OF[figure.unit] * figure.value / unit_us, 3))


def write(figures: Figures, folder: Path, *, command: str, is_preliminary: bool) -> None:
    """Write both files into the folder; existing ones are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    machine = figures.machine
    document = {
        "command": command,
        "date": today,
        "machine": machine.text,
        "processor": machine.processor,
        "cores": machine.cores,
        "python": machine.python,
        "revision": machine.revision,
        "load_before": figures.load,
        "preliminary": is_preliminary,
        "figures": [
            {
                "name": figure.name,
                "title": figure.title,
                "value": figure.value,
                "unit": figure.unit,
                "units": figure.units,
                "before": figure.last,
                "aim": figure.aim,
                "more_is_better": figure.is_more_better,
                "met": figure.is_met,
            }
            for figure in figures.figures
        ],
        "parts": msgspec.to_builtins(figures.parts),
        "runs": figures.runs,
    }
    text = msgspec.json.format(msgspec.json.encode(document), indent=2)
    (folder / "figures.json").write_bytes(text + b"\n")
    warning = (
        f"\n\n**Preliminary**: other work ran on the machine meanwhile (load average {figures.load:g} at the start)."
        if is_preliminary
        else ""
    )
    head = INTRODUCTION.format(
        command=command,
        machine=machine.text,
        date=today,
        python=machine.python,
        revision=machine.revision,
        warning=warning,
    )
    # The scheduler's figures have a table of their own.
    first = [figure for figure in figures.figures if not figure.name.startswith("scheduler.")]
    rows = "".join(_figure_row(figure) for figure in first)
    last = section(figures.scheduler) if figures.scheduler else ""
    (folder / "README.md").write_text(head + rows + NOTES + last, encoding="utf-8")


def _figure_row(figure: Figure) -> str:
    units = "" if figure.units is None else _number(figure.units)
    last = "" if figure.last is None else _number(figure.last)
    return f"| {figure.title} | {_number(figure.value)} {figure.unit} | {units} | {figure.aim_text} | {last} |\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}".rstrip("0").rstrip(".")


def growth(results: dict[Run, SchedulerBench]) -> dict[str, float]:
    """Return, by workload, the CPU of a pod at the large number of nodes divided by that at the small one."""
    alone = {run: result for run, result in results.items() if run.form == "algorithm"}
    costs = {(run.workload, run.nodes): result.cpu_us_per_pod for run, result in alone.items()}
    return {
        name: round(costs[name, LARGE] / costs[name, SMALL], 2)
        for name, nodes in costs
        if nodes == LARGE and costs.get((name, SMALL))
    }


def section(results: dict[Run, SchedulerBench]) -> str:
    """Return the report's section on the scheduler, in Markdown."""
    rows = "".join(_row(run, result) for run, result in results.items())
    where = "".join(_where(run, result) for run, result in results.items() if run.form == "algorithm")
    grown = ", ".join(f"{name} {times:g}" for name, times in growth(results).items())
    text = f"\nCPU a pod at {LARGE:,} nodes, times that at {SMALL:,} (30 times the nodes): {grown}.\n" if grown else ""
    return HEAD + rows + text + WHERE + where


def _row(run: Run, result: SchedulerBench) -> str:
    met = "met" if result.pods_per_s >= run.aim else "missed"
    aim = f"≥ {run.aim:,g}: {met}" if run.aim else "–"
    return (
        f"| {run.workload} | {result.nodes:,} | {run.form} | {result.pods_per_s:,.0f} | {result.cpu_us_per_pod:,.0f} "
        f"| {result.p50_ms:,.3g} | {result.p99_ms:,.3g} | {aim} |\n"
    )


def _where(run: Run, result: SchedulerBench) -> str:
    plugins = list(result.by_plugin.items())[:SHOWN_PLUGINS]
    shown = ", ".join(f"{name} {spent:,.0f}" for name, spent in plugins if spent >= SHOWN_MIN_US)
    parts = ", ".join(f"{name} {spent:,.0f}" for name, spent in result.by_part.items() if spent >= SHOWN_MIN_US)
    return f"| {run.workload} | {result.nodes:,} | {shown or '–'} | {parts} |\n"
