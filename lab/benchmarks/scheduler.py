"""`keplab bench scheduler`: one of upstream's scheduler_perf workloads, in the form `algorithm` or `mesh`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from lab.benchmarks.bench import Bench, Reporter, Table, option, switch_option
from lab.benchmarks.result import SchedulerBench
from lab.benchmarks.workloads import register
from lab.benchmarks.workloads.capacity import TooManyPods, check_fits
from lab.benchmarks.workloads.ops import UPSTREAM_NODES_MAX, Workload
from services.api.switches import Switches

SHOWN_MIN_US: Final = 0.05
"""Least time per pod, in microseconds, for a row of the table."""


@dataclass(frozen=True, kw_only=True)
class SchedulerOptions:
    """The options of `keplab bench scheduler`.

    `pods`: number of measured pods; `init_pods`: number created before; None for upstream's numbers, scaled
    to `nodes`.
    """

    workload: str = option("SchedulingBasic", "name of a workload of --list", metavar="NAME")
    nodes: int = option(500, "nodes without kubelets; more than 15,000 only for algorithm", least=1, most=1_000_000)
    pods: int | None = option(None, "pods measured; default: upstream's, scaled", least=1, most=200_000)
    init_pods: int | None = option(None, "pods that exist first; default: upstream's, scaled", least=0, most=200_000)
    form: Literal["algorithm", "mesh"] = option(
        "algorithm",
        "algorithm: the scheduler's core in this process; mesh: scheduler and API server as processes",
        choices=("algorithm", "mesh"),
    )
    is_list: bool = option(False, "list the workloads and end", flag="--list")
    assignments: tuple[str, ...] = switch_option()


class TooManyNodes(ValueError):
    """More nodes than the form takes."""


Workloads = tuple[Workload, ...]
"""Workloads to list, as the result of `--list`."""


def _run(options: SchedulerOptions, reporter: Reporter) -> SchedulerBench | Workloads:
    if options.is_list:
        return tuple(register.WORKLOADS.values())
    Switches.parse(options.assignments)  # a wrong one is refused before anything starts
    workload = register.workload(options.workload)
    size = workload.size(options.nodes, init_pods=options.init_pods, pods=options.pods)
    if options.form == "mesh" and size.nodes > UPSTREAM_NODES_MAX:
        raise TooManyNodes(f"--form mesh takes {UPSTREAM_NODES_MAX:,} nodes at most, not {size.nodes:,}")
    check_fits(workload, size)
    # Each form is imported when it is chosen: the workloads are listed without either.
    if options.form == "algorithm":
        from lab.benchmarks.algorithm import bench_algorithm

        return bench_algorithm(workload, size, assignments=options.assignments, progress=reporter.progress)
    from lab.benchmarks.scheduler_mesh import bench_scheduler_mesh

    return bench_scheduler_mesh(workload, size, assignments=options.assignments, progress=reporter.progress)


def _document(figures: SchedulerBench | Workloads) -> object:
    if isinstance(figures, SchedulerBench):
        return figures.document()
    return [{"workload": each.name, "what": each.what} for each in figures]


def _table(_: SchedulerOptions, figures: SchedulerBench | Workloads) -> Iterator[str | Table]:
    if not isinstance(figures, SchedulerBench):
        yield Table(("WORKLOAD", "WHAT"), [(each.name, each.what) for each in figures])
        return
    what = "pop (or due) → assume" if figures.form == "algorithm" else "created → bound"
    yield (
        f"{figures.pods_per_s:,.0f} pods/s: {figures.pods:,} pods of {figures.workload} on {figures.nodes:,} nodes, "
        f"{figures.cpu_us_per_pod:,.0f} µs of CPU a pod"
    )
    if figures.resize_attempts:
        yield f"attempts to preempt for deferred resizes: {figures.resize_attempts:,}"
    if figures.unit_us:
        yield f"{figures.units_per_pod:,.2f} units a pod; a unit took {figures.unit_us:,.0f} µs of CPU"
    if figures.node_evaluations_per_core_s:
        yield f"{figures.node_evaluations_per_core_s:,.0f} nodes evaluated a core-second"
    yield f"{what}  p50 {figures.p50_ms:,.3f} ms, p99 {figures.p99_ms:,.3f} ms"
    rows = [("process", name, f"{used:,.1f}") for name, used in figures.cpu_us_per_pod_by_process.items()]
    for kind, spent_us in (
        ("plugin", figures.by_plugin),
        ("extension point", figures.by_extension_point),
        ("besides plugins", figures.by_part),
    ):
        rows += [(kind, name, f"{spent:,.1f}") for name, spent in spent_us.items() if spent >= SHOWN_MIN_US]
    yield Table(("", "WHERE THE TIME GOES", "µs/POD"), rows, texts=2)


BENCH: Final = Bench(
    name="scheduler",
    help="Schedule the pods of one of upstream's scheduler_perf workloads; all nodes are scored.",
    options=SchedulerOptions,
    run=_run,
    table=_table,
    document=_document,
    late="the pods were not scheduled in time",
    refusals=(register.UnknownWorkload, TooManyNodes, TooManyPods),
    has_bar=True,
)
