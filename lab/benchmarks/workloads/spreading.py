"""Workloads of pods that are spread over zones or nodes."""

from typing import Final

from lab.benchmarks.workloads import templates
from lab.benchmarks.workloads.ops import CreateNodes, CreateObject, CreatePods, Size, Workload

MOONS: Final = ("moon-1", "moon-2", "moon-3")
SIZES: Final = (Size(500, 1_000, 1_000), Size(5_000, 5_000, 5_000))
APP: Final = {"app": "scheduler-perf"}
SERVICE: Final = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "service"},
    "spec": {"selector": APP, "ports": [{"protocol": "TCP", "port": 80, "targetPort": 8000}]},
}


def _over_zones(when: str) -> CreatePods:
    constraints = templates.spread_constraints(templates.BLUE, skew=5, key=templates.ZONE, when=when)
    template = templates.pod("spreading-pod", labels=templates.BLUE, topologySpreadConstraints=constraints)
    return CreatePods(template, is_measured=True)


WORKLOADS: Final = (
    Workload(
        "TopologySpreading",
        "pods that must be spread over three zones, skew at most 5",
        (CreateNodes(zones=MOONS), CreatePods(templates.DEFAULT, "init_pods"), _over_zones("DoNotSchedule")),
        SIZES,
    ),
    Workload(
        "PreferredTopologySpreading",
        "pods that would like to be spread over three zones",
        (CreateNodes(zones=MOONS), CreatePods(templates.DEFAULT, "init_pods"), _over_zones("ScheduleAnyway")),
        SIZES,
    ),
    Workload(
        "DefaultTopologySpreading",
        "pods of a service, spread by the default constraints",
        (
            CreateNodes(zones=MOONS),
            CreateObject("services", SERVICE, "service-ns"),
            CreatePods(templates.DEFAULT, "init_pods"),
            CreatePods(templates.pod("pod", labels=APP, is_light=True), namespace="service-ns", is_measured=True),
        ),
        (Size(500, 1_000, 1_000), Size(5_000, 5_000, 10_000)),
    ),
)
