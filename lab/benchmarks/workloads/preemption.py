"""Workloads of pods that have to preempt others."""

from typing import Final

from lab.benchmarks.workloads import templates
from lab.benchmarks.workloads.ops import Churn, CreateNodes, CreatePods, Size, Workload

FULL: Final = CreatePods(templates.LOW, "init_pods")
"""Step that fills the nodes: four low-priority pods per node, 3.6 of its 4 CPUs."""

WORKLOADS: Final = (
    Workload(
        "PreemptionBasic",
        "pods that fit where three of a node's four have left",
        (CreateNodes(), FULL, CreatePods(templates.HIGH, is_measured=True)),
        (Size(1_000, 4_000, 1_000),),
    ),
    Workload(
        "PreemptionAsync",
        "schedulable pods, while five a second come that have to preempt",
        (CreateNodes(), FULL, Churn((("pods", templates.HIGH),), 0.2), CreatePods(templates.DEFAULT, is_measured=True)),
        (Size(500, 2_000, 500), Size(5_000, 20_000, 5_000)),
    ),
    Workload(
        "PreemptionPVs",
        "pods with a volume that fit where three of a node's four have left",
        (CreateNodes(), FULL, CreatePods(templates.HIGH, is_measured=True, volume="in-tree")),
        (Size(1_000, 4_000, 1_000),),
    ),
)
