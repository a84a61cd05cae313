"""The scheduler's share: upstream's workloads, by number of nodes, in both forms, and where the time goes.

Every run has an interpreter of its own, so that none inherits another's memory.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Final, Literal

from benchmarks.algorithm import bench_algorithm
from benchmarks.result import SchedulerBench
from benchmarks.scheduler_mesh import bench_scheduler_mesh
from benchmarks.workloads.register import workload

Form = Literal["algorithm", "mesh"]
SHOWN_PLUGINS: Final = 4
SHOWN_MIN_US: Final = 1.0


@dataclass(frozen=True)
class Run:
    """One workload at one size. `pods`: as upstream has it, scaled, when 0. `aim`: pods a second, 0 for none."""

    workload: str
    nodes: int
    form: Form = "algorithm"
    pods: int = 0
    aim: float = 0.0

    @property
    def title(self) -> str:
        """Which run it is, in words."""
        return f"{self.workload}, {self.nodes:,} nodes, {self.form}"


RUNS: Final = (
    Run("SchedulingBasic", 500),
    Run("SchedulingBasic", 5_000, aim=10_000),
    Run("SchedulingBasic", 15_000, pods=10_000),
    Run("TopologySpreading", 500),
    Run("TopologySpreading", 5_000, aim=5_000),
    Run("TopologySpreading", 15_000, pods=5_000),
    Run("SchedulingPodAntiAffinity", 500),
    Run("SchedulingPodAntiAffinity", 5_000, aim=5_000),
    Run("SchedulingPodAntiAffinity", 15_000, pods=5_000),
    Run("SchedulingNodeAffinity", 5_000, pods=5_000),
    Run("PreferredTopologySpreading", 5_000),
    Run("DefaultTopologySpreading", 5_000, pods=5_000),
    Run("SchedulingPodAffinity", 5_000),
    Run("SchedulingPreferredPodAffinity", 5_000),
    Run("SchedulingPreferredPodAntiAffinity", 5_000),
    Run("SchedulingRequiredPodAffinityWithNSSelector", 5_000),
    Run("MixedSchedulingBasePod", 5_000),
    Run("SchedulingSecrets", 5_000, pods=5_000),
    Run("SchedulingInTreePVs", 5_000),
    Run("SchedulingCSIPVs", 5_000, pods=2_000),
    Run("PreemptionBasic", 500),
    Run("PreemptionBasic", 1_000),
    Run("PreemptionAsync", 5_000),
    Run("Unschedulable", 5_000, pods=5_000),
    Run("SchedulingWithMixedChurn", 5_000, pods=5_000),
    Run("SchedulingWhileGated", 1, pods=5_000),
    Run("SchedulingBasic", 500, "mesh", pods=3_000),
    Run("SchedulingBasic", 5_000, "mesh", pods=6_000, aim=3_000),
    Run("SchedulingBasic", 15_000, "mesh", pods=6_000),
    Run("TopologySpreading", 5_000, "mesh", pods=3_000),
    Run("SchedulingPodAntiAffinity", 5_000, "mesh", pods=3_000),
    Run("PreemptionBasic", 500, "mesh"),
)
QUICK_RUNS: Final = (
    Run("SchedulingBasic", 500, pods=500),
    Run("TopologySpreading", 500, pods=500),
    Run("SchedulingPodAntiAffinity", 500, pods=300),
    Run("SchedulingBasic", 500, "mesh", pods=500),
)
SMALL, LARGE = 500, 15_000
"""Between these two the cost of a pod is compared."""


def bench(run: Run) -> SchedulerBench:
    """Do one run, in an interpreter of its own. Raises: TooSlow."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_bench, run).result()


def _bench(run: Run) -> SchedulerBench:
    chosen = workload(run.workload)
    size = chosen.size(run.nodes, pods=run.pods or None)
    return bench_algorithm(chosen, size) if run.form == "algorithm" else bench_scheduler_mesh(chosen, size)


def growth(results: dict[Run, SchedulerBench]) -> dict[str, float]:
    """Return, by workload, the CPU a pod costs at the large number of nodes, times that at the small one."""
    alone = {run: result for run, result in results.items() if run.form == "algorithm"}
    costs = {(run.workload, run.nodes): result.cpu_us_per_pod for run, result in alone.items()}
    return {
        name: round(costs[name, LARGE] / costs[name, SMALL], 2)
        for name, nodes in costs
        if nodes == LARGE and costs.get((name, SMALL))
    }


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


def section(results: dict[Run, SchedulerBench]) -> str:
    """Return the report's section about the scheduler, in Markdown."""
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
