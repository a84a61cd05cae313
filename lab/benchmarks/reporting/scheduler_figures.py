"""Figures of the scheduler: upstream's workloads, by number of nodes and in both forms.

Each run has an interpreter of its own, so that none inherits another's memory.
"""

from typing import Final

from lab.benchmarks.algorithm import bench_algorithm
from lab.benchmarks.reporting.own_interpreter import in_own_interpreter
from lab.benchmarks.reporting.report import Run
from lab.benchmarks.result import SchedulerBench
from lab.benchmarks.scheduler_mesh import bench_scheduler_mesh
from lab.benchmarks.workloads.register import workload

CLAIMS: Final = (
    "SchedulingWithMultipleResourceClaims",
    "SchedulingWithResourceClaimTemplateStructured",
    "SchedulingWithSharedResourceClaims",
)
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
    Run("SchedulingWithResourceClaimTemplate", 100),
    Run("SchedulingWithResourceClaimTemplate", 5_000, aim=2_000),
    Run("SchedulingWithMultipleResourceClaims", 5_000, aim=1_000),
    Run("SchedulingWithResourceClaimTemplateStructured", 5_000, aim=2_000),
    Run("SchedulingWithSharedResourceClaims", 5_000, pods=2_000),
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
    *(Run(name, nodes, "mesh") for name in CLAIMS for nodes in (100, 1_000, 5_000)),
)
QUICK_RUNS: Final = (
    Run("SchedulingBasic", 500, pods=500),
    Run("TopologySpreading", 500, pods=500),
    Run("SchedulingPodAntiAffinity", 500, pods=300),
    Run("SchedulingBasic", 500, "mesh", pods=500),
)


def bench(run: Run) -> SchedulerBench:
    """Measure one run in an interpreter of its own. Raises: TooSlow."""
    return in_own_interpreter(_bench, run)


def _bench(run: Run) -> SchedulerBench:
    chosen = workload(run.workload)
    size = chosen.size(run.nodes, pods=run.pods or None)
    return bench_algorithm(chosen, size) if run.form == "algorithm" else bench_scheduler_mesh(chosen, size)
