"""`python -m lab.benchmarks`: measure everything and write `docs/benchmarks/`.

Each workload runs in a mesh of its own, so that none inherits another's memory. Figures are comparable
only within one run, because they depend on the machine.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, Protocol

import click

from lab.benchmarks.allocator import bench_allocator
from lab.benchmarks.apiserver import bench_fan_out, bench_start
from lab.benchmarks.cel import bench_cel
from lab.benchmarks.kubelet_host import HOST, bench_kubelet_host
from lab.benchmarks.mesh import BenchResult, bench_mesh
from lab.benchmarks.reporting import reliability_figures, scheduler_figures
from lab.benchmarks.reporting.aims import last_figures, read_aims
from lab.benchmarks.reporting.beside import add_times_ahead, read_times_ahead
from lab.benchmarks.reporting.machine import this_machine
from lab.benchmarks.reporting.own_interpreter import in_own_interpreter
from lab.benchmarks.reporting.report import LARGE, SMALL, Figures, Part, growth, write
from lab.benchmarks.rest import bench_rest
from lab.benchmarks.running_mesh import LOAD
from lab.benchmarks.server.handshakes import bench_handshakes
from lab.benchmarks.simulation import bench_simulation
from lab.benchmarks.units import Calibrator
from lab.interrupts import raise_lost_interrupts
from lab.scenarios.loading import load_scenario
from lab.scenarios.run import simulate
from services.api.switches import Value

Say = Callable[[str], None]
RUNAWAY = Path("experiments/runaway")
COMMITTED, PARTIAL = Path("docs/benchmarks"), Path("build/benchmarks")
"""Folder of the report that is committed, and folder of one that is not whole."""
INTERRUPTED: Final = 130
"""Exit code after Ctrl-C."""
SIDE_BY_SIDE = ("kubelet.status_batching=immediate",)
"""Switches with which a node writes its pods' statuses concurrently. By default it writes one after the
other, as upstream's status manager does.
"""
RUNS = 3
"""Number of runs of the main workload; the median run counts."""
SCENARIOS: tuple[tuple[str, str, str, dict[str, Value], float], ...] = (
    ("runaway_fail", "the runaway, arm fail", "runaway.txt", {"kubelet.on_reject": "fail"}, 100),
    ("runaway_unbind", "the runaway, arm unbind", "runaway.txt", {"kubelet.on_reject": "unbind"}, 100),
    ("unbinding", "the runaway's cure with its claims", "runaway-unbind.txt", {}, 100),
)
"""The simulated scenarios: name, title, file, switches, and the aim in simulated seconds a second."""
LIVES, LIVES_LARGE = (20, 500), ((200, 3_000), (200, 20_000))
"""Nodes and pods of the simulations of whole lives; the large ones are compared with the small one."""
PIECES = 40
"""Units measured before and after each part."""


class Measure(Protocol):
    """Function that measures one part, and adds its figures."""

    def __call__(self, figures: Figures, say: Say, /, *, is_quick: bool) -> None:
        """Measure with large or small workloads."""


@click.command()
@click.option("--quick", is_flag=True, help="run small workloads, about two minutes; docs/benchmarks stays as it is")
@click.option("--preliminary", is_flag=True, help="say in the report that other work ran beside it")
@click.option(
    "--part", "parts", multiple=True, metavar="PART", help="measure only this part; may be repeated; see --list"
)
@click.option(
    "--beside",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="also show the figures of this document of `keplab bench side-by-side -o json`",
)
@click.option("--list", "is_listed", is_flag=True, help="list the parts")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="directory of the report; default: docs/benchmarks for a whole run, else build/benchmarks",
)
def main(
    quick: bool, preliminary: bool, parts: tuple[str, ...], beside: Path | None, is_listed: bool, out: Path | None
) -> None:
    """Measure everything that the project reports, on this machine, in one go.

    What is measured so far is always in build/benchmarks, also after Ctrl-C or a part that failed. A whole run
    in which no part failed replaces docs/benchmarks.
    """
    names = tuple(PARTS)
    if is_listed:
        click.echo("\n".join(names))
        return
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise click.UsageError(f"--part {unknown[0]!r}: want one of {', '.join(names)}")
    try:
        ahead = {} if beside is None else read_times_ahead(beside)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--beside {beside}: {error}") from None
    sys.exit(_main(Choice(quick, preliminary, parts or names), out, ahead))


def _main(choice: "Choice", out: Path | None, ahead: Mapping[str, float]) -> int:
    begun = time.perf_counter()

    def say(text: str) -> None:
        click.echo(f"[{time.perf_counter() - begun:5.1f} s] {text}")

    figures = Figures(this_machine(), round(os.getloadavg()[0], 2), aims=read_aims(), last=last_figures())
    add_times_ahead(figures, ahead)

    def keep(folder: Path) -> None:
        write(figures, folder, command=choice.command, is_preliminary=choice.is_preliminary)

    failures: dict[str, str] = {}
    try:
        for name in choice.parts:
            try:
                with _part(figures, name):
                    PARTS[name](figures, say, is_quick=choice.is_quick)
            except Exception as error:
                failures[name] = f"{type(error).__name__}: {error}"
                say(f"{name}: {failures[name]}; the other parts are measured")
            keep(out or PARTIAL)
    except KeyboardInterrupt:
        say(f"interrupted; what was measured is in {out or PARTIAL}")
        return INTERRUPTED
    _show(figures)
    if failures:
        say(f"not measured: {', '.join(failures)}; the others are in {out or PARTIAL}")
        return 1
    target = out or (PARTIAL if choice.is_quick or choice.parts != tuple(PARTS) else COMMITTED)
    keep(target)
    say(f"wrote {target}/figures.json and {target}/README.md")
    return 0


@dataclass(frozen=True)
class Choice:
    """What is measured: the names of the parts, and whether with small workloads."""

    is_quick: bool
    is_preliminary: bool
    parts: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command that measures the same."""
        parts = () if self.parts == tuple(PARTS) else tuple(f"--part {name!r}" for name in self.parts)
        words = ("--quick",) * self.is_quick + parts
        return " ".join(("python -m lab.benchmarks", *words)) if words else "make bench"


def _show(figures: Figures) -> None:
    machine = figures.machine
    click.echo(f"revision {machine.revision} on {machine.text}, Python {machine.python}")
    for figure in figures.figures:
        units = "" if figure.units is None else f"{figure.units:,.2f} units"
        before = "" if figure.last is None else f"before {figure.last:,.2f}"
        value = f"{figure.value:>12,.2f} {figure.unit:<10}"
        click.echo(f"{figure.title:<58} {value} {units:>14} {figure.aim_text:<20} {before}".rstrip())
    for part in figures.parts:
        times = f"{part.cpu_s:>12,.2f} CPU s      {part.units:>14,.0f} units, {part.wall_s:,.1f} s"
        click.echo(f"{'all of: ' + part.name:<58} {times}")
    names = {figure.name for figure in figures.figures}
    for row in figures.aims.rows:
        if row.what and row.name not in names:
            click.echo(f"{row.what:<58} not measured; aim {'≤' if row.at_least is None else '≥'} {row.limit:g}")


@contextmanager
def _part(figures: Figures, name: str) -> Iterator[None]:
    """Measure units before and after one part of the run, and note what it took."""
    units, first = Calibrator(), len(figures.figures)
    for _ in range(PIECES):
        units.measure()
    began, cpu_s = time.perf_counter(), sum(os.times()[:4])
    yield
    took_s, spent_s = time.perf_counter() - began, sum(os.times()[:4]) - cpu_s
    for _ in range(PIECES):
        units.measure()
    part = Part(name, round(spent_s, 2), round(units.units(spent_s)), round(took_s, 2))
    figures.end_part(part, first, 1e6 * units.unit_s)


def _lives(figures: Figures, say: Say, *, is_quick: bool) -> None:
    sizes = ((5, 60),) if is_quick else (LIVES, *LIVES_LARGE)
    small = 0.0
    for nodes, pods in sizes:
        say(f"simulating the lives of {pods:,} pods on {nodes} nodes")
        result = in_own_interpreter(bench_simulation, nodes=nodes, pods=pods)
        figures.runs.append(result.document())
        name, where = f"simulation.lives.{nodes}.{pods}", f"{pods:,} pods' whole lives on {nodes} nodes, simulated"
        figures.add(f"{name}.units_per_pod", where, result.units_per_pod, "units/pod")
        figures.add(f"{name}.pods_per_cpu_s", "… a CPU-second", result.pods_per_cpu_s, "pods")
        figures.add(f"{name}.kept_kib_per_pod", "… kept for an ended pod", result.kept_kib_per_pod, "KiB")
        if small:
            figures.add(f"{name}.of_small", "… times the small one", round(result.units_per_pod / small, 2), "times")
        small = small or result.units_per_pod
    say("simulating the runaway, counted in units")
    result = in_own_interpreter(bench_simulation, load="runaway")
    figures.runs.append(result.document())
    figures.add("simulation.runaway.units_per_pod", "a pod of the runaway, arm fail", result.units_per_pod, "units/pod")


def _start(figures: Figures, say: Say, *, is_quick: bool) -> None:
    say("starting a mesh of three nodes, and calling it one by one")
    result = bench_start(nodes=3)
    figures.runs.append({"workload": "Start", **result.document()})
    nodes = bench_mesh(nodes=5, pods=50, engine="memory")
    figures.runs.append(nodes.document())
    figures.add("start.nodes.5_s", "start of a mesh to all of 5 nodes Ready", nodes.nodes_ready_s, "s")
    figures.add("start.first_running_s", "nothing → first pod Running, 3 nodes, SQLite", result.first_running_s, "s")
    for name, size in result.idle_pss_mib.items():
        figures.add(f"idle_mib.{name}", f"memory at rest, {name}", size, "MiB", at_most=60)
        figures.add(f"idle_rss_mib.{name}", "… with all pages that it shares", result.idle_rss_mib[name], "MiB")
    figures.add("call.get_p50_ms", "one call after the other, get, p50", result.call_p50_ms["get"], "ms")
    figures.add(
        "call.create_p50_ms", "one call after the other, durable create, p50", result.call_p50_ms["create"], "ms"
    )


def _simulate(figures: Figures, say: Say, *, is_quick: bool) -> None:
    for name, title, file, overrides, aim in SCENARIOS[1:] if is_quick else SCENARIOS:
        say(f"simulating {title}")
        result = simulate(load_scenario(RUNAWAY / file), seed=1, overrides=overrides)
        rate = result.virtual_s / result.wall_s
        figures.runs.append(
            {
                "workload": "Simulate",
                "scenario": file,
                "switches": overrides,
                "virtual_s": round(result.virtual_s, 3),
                "wall_s": round(result.wall_s, 3),
                "event_lines": result.lines,
            }
        )
        figures.add(f"simulation.{name}", f"simulated seconds a second, {title}", round(rate, 1), "s/s", at_least=aim)


def _storm(figures: Figures, say: Say, *, is_quick: bool) -> None:
    seeds = 1 if is_quick else 5
    say(f"simulating a storm of rejections, {seeds} seeds")
    scenario = load_scenario(Path("experiments/unbinding/storm.txt"))
    walls = [simulate(scenario, seed=seed).wall_s for seed in range(seeds)]
    figures.runs.append({"workload": "SimulateStorm", "wall_s": [round(wall_s, 3) for wall_s in walls]})
    rate = round(seeds / sum(walls), 2)
    figures.add("simulation.storm", "seeds a second, one core, the storm of 200 replicas", rate, "1/s")


def _cel(figures: Figures, say: Say, *, is_quick: bool) -> None:
    say("device selectors")
    result = bench_cel()
    figures.runs.append(result.document())
    for name in ("comparisons", "version"):
        rate = result.evaluations_per_s[name]
        figures.add(f"cel.{name}.evaluations_per_s", f"evaluations of a selector, {name}", rate, "1/s")
        rate = result.compilations_per_s[name]
        figures.add(f"cel.{name}.compilations_per_s", f"compilations of a selector, {name}", rate, "1/s")


def _fan_out(figures: Figures, say: Say, *, is_quick: bool) -> None:
    watchers, changes = (20, 200) if is_quick else (100, 1_000)
    say(f"{changes} changes to {watchers} watchers")
    result = bench_fan_out(watchers=watchers, changes=changes)
    figures.runs.append({"workload": "FanOut", **result.document()})
    figures.add("watch.events_per_s", f"watch events received by {watchers} watchers", result.events_per_s, "events/s")
    figures.add("watch.server_us_per_event", "CPU of the API server for each", result.server_us_per_event, "µs")


def _rest(figures: Figures, say: Say, *, is_quick: bool) -> None:
    pods, calls = (500, 50) if is_quick else (5_000, 300)
    say(f"writes over REST, lists of {pods:,} pods")
    result = bench_rest(pods=pods, calls=calls)
    figures.runs.append({"workload": "Rest", **result.document()})
    for kind, costs in result.operations.items():
        for name, cost in costs.items():
            key = f"rest.{kind}.{name.replace(', ', '_').replace(' ', '_')}"
            figures.add(f"{key}.cpu_us", f"REST, {kind}: {name}, CPU of the API server", cost.cpu_us, "µs")
            figures.add(f"{key}.of_get", f"… in gets of a {kind}", cost.of_get, "gets")
    for name, listed in result.lists.items():
        key = f"rest.list.{name.replace(', ', '_')}"
        at_most = 1.0 if name in ("Table", "PartialObjectMetadata") else None
        figures.add(f"{key}.p50_ms", f"LIST of {pods:,} pods as {name}, to the last byte, p50", listed.p50_ms, "ms")
        figures.add(f"{key}.cpu_ms", "… CPU of the API server", listed.cpu_ms, "ms")
        figures.add(f"{key}.of_json", "… in lists as JSON", listed.of_json, "lists", at_most=at_most)
    say("1,000 HTTPS requests at once, each on a connection of its own")
    shaken = in_own_interpreter(bench_handshakes)
    figures.runs.append({"workload": "Handshakes", **shaken.document()})
    title = f"{shaken.count:,} TLS handshakes at once: longest hold of the API server's loop, CPU time"
    figures.add(f"handshakes.{shaken.count}.hold_ms", title, shaken.hold_ms, "ms")


def _meshes(figures: Figures, say: Say, *, is_quick: bool) -> None:
    nodes, pods = (20, 300) if is_quick else (100, 2_000)
    _mesh(figures, say, nodes, pods, "memory", runs=1 if is_quick else RUNS)
    _mesh(figures, say, nodes, pods, "memory", runs=1 if is_quick else RUNS, switches=SIDE_BY_SIDE)
    _mesh(figures, say, nodes, pods, "sqlite", runs=1)
    _mesh(figures, say, nodes, pods, "sqlite", runs=1, switches=SIDE_BY_SIDE)
    if not is_quick:
        _mesh(figures, say, 5_000, 2_000, "memory", runs=1)


def _mesh(
    figures: Figures, say: Say, nodes: int, pods: int, engine: str, *, runs: int, switches: tuple[str, ...] = ()
) -> None:
    results: list[BenchResult] = []
    for number in range(runs):
        say(f"{pods} pods on {nodes} nodes, {engine}" + (f", run {number + 1} of {runs}" if runs > 1 else ""))
        results.append(bench_mesh(nodes=nodes, pods=pods, engine=engine, switches=switches))
        figures.runs.append(results[-1].document())
    middle = median(result.pods_per_s for result in results)
    result = min(results, key=lambda each: abs(each.pods_per_s - middle))
    name, where = f"mesh.{nodes}.{engine}", f"{nodes:,} nodes, {engine}"
    if switches:
        name, where = f"{name}.side_by_side", f"{where}, {', '.join(switches)}"
    is_main = nodes == 100 and engine == "memory"
    figures.add(
        f"{name}.pods_per_s",
        f"pods created → Running, {where}",
        result.pods_per_s,
        "pods/s",
        at_least=2_000 if is_main else None,
    )
    figures.add(f"{name}.bound_p50_ms", f"created → bound, p50, {where}", result.create_to_bound_p50_ms, "ms")
    figures.add(f"{name}.bound_p99_ms", f"created → bound, p99, {where}", result.create_to_bound_p99_ms, "ms")
    figures.add(f"{name}.cpu_us", f"CPU a pod, all processes, {where}", result.cpu_us_per_pod, "µs")
    for process, used in result.cpu_us_per_pod_by_process.items():
        title = f"… of it {process}" if process != LOAD else "… beside it, making the load"
        figures.add(f"{name}.cpu_us.{process}", title, used, "µs")


def _kubelet_host(figures: Figures, say: Say, *, is_quick: bool) -> None:
    nodes, pods, span_s = (200, 400, 5.0) if is_quick else (5_000, 10_000, 20.0)
    say(f"{nodes:,} kubelets in one process")
    result = bench_kubelet_host(nodes=nodes, pods=pods, span_s=span_s)
    figures.runs.append(result.document())
    name, where = f"kubelet_host.{nodes}", f"{nodes:,} nodes in one process"
    figures.add(f"{name}.registered_s", f"{where}: started → all registered", result.registered_s, "s", at_most=5)
    figures.add(f"{name}.nodes_s", f"{where}: started → all without taints", result.nodes_s, "s")
    figures.add(f"{name}.rush_s", f"{where}: {pods:,} pods created → Running", result.rush_s, "s", at_most=15)
    for process, share in result.idle_cpu.items():
        figures.add(f"{name}.idle_cpu.{process}", f"{where}, at rest: {process}", 100 * share, "% of a core")
    for process, share in result.rate_cpu.items():
        title = f"{where}, {result.rate} pod starts a second: {process}"
        figures.add(f"{name}.rate_cpu.{process}", title, 100 * share, "% of a core")
    figures.add(
        f"{name}.rate_p99_ms", f"{where}, {result.rate} a second: created → Running, p99", result.rate_p99_ms, "ms"
    )
    figures.add(f"{name}.rss_mib", f"{where}: memory at rest", result.idle_rss_mib[HOST], "MiB")
    figures.add(f"{name}.rss_after_mib", f"{where}: memory after the pods", result.rss_mib[HOST], "MiB")


def _allocator(figures: Figures, say: Say, *, is_quick: bool) -> None:
    say("allocating devices")
    result = bench_allocator((10_000,) if is_quick else (10_000, 100_000))
    figures.runs.append({"workload": "Allocator", **result.document()})
    title = "devices found on nodes not searched before, one claim each, CPU time"
    figures.add("allocator.searches_per_s", title, result.searches_per_s, "claims/s", at_least=2_000)
    figures.add("allocator.back_ms", "one card's 8 partitions of 64, the last card's, CPU time", result.back_ms, "ms")
    for devices, mib in result.mib.items():
        figures.add(f"allocator.mib.{devices}", f"memory of {devices:,} devices in the scheduler", mib, "MiB")


def _scheduler(figures: Figures, say: Say, *, is_quick: bool) -> None:
    for run in scheduler_figures.QUICK_RUNS if is_quick else scheduler_figures.RUNS:
        say(f"scheduling: {run.title}")
        result = figures.scheduler[run] = scheduler_figures.bench(run)
        figures.runs.append(result.document())
        name = f"scheduler.{run.form}.{run.workload}.{run.nodes}.pods_per_s"
        figures.add(name, run.title, result.pods_per_s, "pods/s", at_least=run.aim or None)
        name = f"scheduler.{run.form}.{run.workload}.{run.nodes}.units_per_pod"
        figures.add(name, f"… CPU a pod, {run.title}", round(result.units_per_pod, 2), "units/pod")
        if run.form == "mesh" and result.claims:
            name = f"claims.mesh.{run.workload}.{run.nodes}.per_s"
            rate = round(result.pods_per_s * result.claims / result.pods, 1)
            figures.add(name, f"claims allocated, {run.title}", rate, "claims/s")
    for name, times in growth(figures.scheduler).items():
        title = f"{name}, CPU a pod, 15,000 nodes over 500"
        figures.add(f"scheduler.algorithm.{name}.growth", title, times, "times", at_most=LARGE / SMALL)


PARTS: Final[Mapping[str, Measure]] = {
    "start": _start,
    "lives": _lives,
    "simulations": _simulate,
    "storm": _storm,
    "selectors": _cel,
    "fan-out": _fan_out,
    "rest": _rest,
    "mesh": _meshes,
    "kubelets": _kubelet_host,
    "reliability": reliability_figures.measure,
    "scheduler": _scheduler,
    "allocator": _allocator,
}
"""The parts of a run, in order."""

if __name__ == "__main__":
    raise_lost_interrupts()
    main()
