"""Workloads of pods with ResourceClaims; each node has a pool of devices of its own (scheduler_perf's
directory `dra`).
"""

from typing import Final

from lab.benchmarks.workloads import templates
from lab.benchmarks.workloads.ops import CreateDevices, CreateNodes, CreatePods, Size, Workload
from services.api.meta import Document

DRIVER: Final = "test-driver.cdi.k8s.io"
POD: Final = templates.pod("claims", is_light=True)
NODES: Final = CreateNodes(template=templates.node(pods="3000"))
SIZES: Final = (Size(100, 1_000, 1_000), Size(1_000, 2_500, 2_500), Size(5_000, 2_500, 5_000))
"""Sizes of the workloads. Upstream's are 100 to 500 nodes; with 20 devices per node, all pods find some."""


def _claim(*selectors: str, count: int = 1) -> Document:
    exactly = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": each}} for each in selectors]}
    return {"devices": {"requests": [{"name": "req-0", "exactly": {**exactly, "count": count}}]}}


def _with(
    devices: CreateDevices, *claims: Document, pods_per_claim: int = 1
) -> tuple[CreateNodes, CreateDevices, CreatePods, CreatePods]:
    return (
        NODES,
        devices,
        CreatePods(POD, "init_pods", claims=claims, pods_per_claim=pods_per_claim),
        CreatePods(POD, is_measured=True, claims=claims, pods_per_claim=pods_per_claim),
    )


PLAIN: Final = CreateDevices(DRIVER, per_node=20)
STRUCTURED: Final = CreateDevices(
    DRIVER,
    per_node=20,
    device={
        "attributes": {"model": {"string": "A100"}, "driverVersion": {"version": "1.2.3"}, "healthy": {"bool": True}},
        "capacity": {"memory": {"value": "80Gi"}},
    },
    selector=f'device.driver == "{DRIVER}"',
)
OF_MODEL: Final = f'device.attributes["{DRIVER}"].model == "A100"'
LARGE: Final = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'

WORKLOADS: Final = (
    Workload(
        "SchedulingWithResourceClaimTemplate",
        "pods each with a claim of its own on one device",
        _with(PLAIN, _claim()),
        SIZES,
    ),
    Workload(
        "SchedulingWithMultipleResourceClaims",
        "pods each with two claims of their own",
        _with(PLAIN, _claim(), _claim()),
        (Size(100, 500, 500), Size(1_000, 2_500, 2_500), Size(5_000, 2_500, 5_000)),
    ),
    Workload(
        "SchedulingWithResourceClaimTemplateStructured",
        "pods each with a claim that selects devices by class, attribute and capacity",
        _with(STRUCTURED, _claim(OF_MODEL, LARGE)),
        SIZES,
    ),
    Workload(
        "SchedulingWithSharedResourceClaims",
        "pods of which four share a claim, and go where it is",
        _with(PLAIN, _claim(), pods_per_claim=4),
        SIZES,
    ),
)
