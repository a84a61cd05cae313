"""Workload of new pods beside running pods whose deferred resizes exceed what their nodes have left
(KEP-5836).

It is not upstream's: scheduler_perf has no resizes. Nodes are short of memory, which the new pods do not
request, and no pod there may be evicted, so that no resize succeeds. Source: kep-5836, acceptance
scenario 20.
"""

from typing import Final

from lab.benchmarks.workloads import templates
from lab.benchmarks.workloads.ops import CreateNodes, CreatePods, DeferResizes, DeletePods, Size, Workload

SMALL: Final = templates.node(memory="1Gi")
WISHING: Final = templates.pod("wishing", requests={"cpu": "10m", "memory": "200Mi"})
CPU_ONLY: Final = templates.cpu_only("pod")
LEAVING: Final = templates.cpu_only("leaving")
DEFER: Final = DeferResizes(WISHING, {"cpu": "10m", "memory": "100Mi"})
"""Step that creates the deferred resizes: ten pods per node of 1 GiB request 200 MiB each, and have 100."""

WORKLOADS: Final = (
    Workload(
        "DeferredResizes",
        "100 schedulable pods a second, beside ten deferred resizes a node that nothing helps",
        (CreateNodes(template=SMALL), DEFER, CreatePods(CPU_ONLY, is_measured=True, per_s=100.0)),
        (Size(100, 1_000, 500),),
    ),
    Workload(
        "DeferredResizesChurn",
        "the same, while on those nodes ten other pods leave every second",
        (
            CreateNodes(template=SMALL),
            CreatePods(LEAVING, "pods", namespace="leaving"),
            DEFER,
            DeletePods("leaving", 10.0),
            CreatePods(CPU_ONLY, is_measured=True, per_s=100.0),
        ),
        (Size(100, 1_000, 500),),
    ),
)
