"""The figures of a soak with their limits, a sample of one, and how they are read from metrics. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lab.benchmarks.soak.trend import Limit

QUEUES: Final = re.compile(
    r"workqueue_depth|scheduler_pending_pods|scheduler_pending_async_api_calls|keplab_controller_held_keys"
)
WATCHES: Final = re.compile(r"apiserver_longrunning_requests")
_SAMPLE: Final = re.compile(r"^([a-z_]+)(\{[^}]*\})? (\S+)$", re.MULTILINE)


@dataclass
class Counts:
    """Total counts of what the load did."""

    created: int = 0
    ran: int = 0
    stuck: int = 0
    failed_calls: int = 0


@dataclass(frozen=True)
class Figure:
    """A figure with its unit and its limit of growth; without a limit it is only reported.

    `of_process`: whether each process has its own, so that it starts anew after a restart.
    """

    title: str
    unit: str
    limit: Limit | None
    of_process: bool = False


FIGURES: Final = {
    # AS-46: at most 1 MB an hour and process in eight hours, descriptors and tasks flat to 5 %.
    "memory": Figure("memory (RSS)", "MiB", Limit(growth=8.0), of_process=True),
    "blocks": Figure("allocated Python blocks", "thousand", Limit(growth=60.0, share=0.05), of_process=True),
    "files": Figure("open files", "", Limit(growth=2.0, share=0.05), of_process=True),
    "threads": Figure("threads", "", Limit(growth=2.0, share=0.05), of_process=True),
    "tasks": Figure("asyncio tasks", "", Limit(growth=2.0, share=0.05), of_process=True),
    "queue": Figure("queue lengths", "", Limit(growth=5.0, share=0.5), of_process=True),
    "directory": Figure("size on disk", "MiB", None),
    "store": Figure("size of the store", "MiB", Limit(growth=64.0, share=0.25)),
    "watches": Figure("watches at the API server", "", Limit(growth=2.0, share=0.05)),
    "objects": Figure("objects but Events", "", Limit(growth=20.0, share=0.10)),
    "events": Figure("Events", "", Limit(growth=500.0, share=0.25)),
    "running p50": Figure("created → Running, p50", "ms", Limit(growth=100.0, share=0.5)),
    "running p99": Figure("created → Running, p99", "ms", Limit(growth=1_000.0, share=0.5)),
    "read p50": Figure("reads, p50", "ms", Limit(growth=10.0, share=0.5)),
    "read p99": Figure("reads, p99", "ms", Limit(growth=200.0, share=0.5)),
    "lease": Figure("age of the oldest node lease", "s", Limit(growth=5.0, share=0.25)),
}
"""Figures by name. Limits are for eight hours. In a shorter soak a figure may grow by as much in total, not
more per hour.
"""


@dataclass(frozen=True)
class Sample:
    """One value of a figure. `of`: the process, or other owner if there are several; `life`: the pid, 0 without
    a process.
    """

    at_s: float
    figure: str
    of: str
    life: int
    value: float


def of_metrics(at_s: float, name: str, pid: int, text: str) -> Iterator[Sample]:
    """Yield the samples in a process' `/metrics`."""
    sums: dict[str, float] = {}
    for match in _SAMPLE.finditer(text):
        metric, value = match[1], float(match[3])
        if metric == "keplab_python_allocated_blocks":
            sums["blocks"] = value / 1000
        elif metric == "keplab_asyncio_tasks":
            sums["tasks"] = value
        elif QUEUES.fullmatch(metric):
            sums["queue"] = sums.get("queue", 0.0) + value
        elif WATCHES.fullmatch(metric):
            sums["watches"] = sums.get("watches", 0.0) + value
        elif metric == "apiserver_storage_objects":
            kind = "events" if match[2] == '{resource="events"}' else "objects"
            sums[kind] = sums.get(kind, 0.0) + value
    for figure, value in sums.items():
        own = FIGURES[figure].of_process
        yield Sample(at_s, figure, name if own else "", pid if own else 0, value)
