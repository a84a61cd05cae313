"""Workloads of pods with volumes; their claims are bound before the pods are created."""

from typing import Final

from lab.benchmarks.workloads import templates
from lab.benchmarks.workloads.ops import CreateNodes, CreatePods, Size, Volume, Workload

SECRET: Final = templates.pod("secret-volume", volumes=[{"name": "secret", "secret": {"secretName": "secret"}}])
DRIVER: Final = "ebs.csi.aws.com"


def _with(volume: Volume, nodes: CreateNodes) -> tuple[CreateNodes, CreatePods, CreatePods]:
    return (
        nodes,
        CreatePods(templates.DEFAULT, "init_pods", volume=volume),
        CreatePods(templates.DEFAULT, is_measured=True, volume=volume),
    )


WORKLOADS: Final = (
    Workload(
        "SchedulingSecrets",
        "pods with a secret as a volume, which no plugin minds",
        (CreateNodes(), CreatePods(SECRET, "init_pods"), CreatePods(SECRET, is_measured=True)),
        (Size(500, 500, 1_000), Size(5_000, 1_000, 10_000)),
    ),
    Workload(
        "SchedulingInTreePVs",
        "pods each with a bound claim on an in-tree volume",
        _with("in-tree", CreateNodes()),
        (Size(500, 500, 1_000), Size(5_000, 1_000, 2_000)),
    ),
    Workload(
        "SchedulingCSIPVs",
        "pods each with a bound claim on a CSI volume, of which a node takes 39",
        _with("csi", CreateNodes(attachable=((DRIVER, 39),))),
        (Size(500, 500, 1_000), Size(5_000, 5_000, 5_000)),
    ),
)
