"""The register of measures: of each its name, unit, meaning, which direction is better, and where it comes from. Pure.

A run gives `{name: float | None}`; whatever shows these (tables, pages, the reference documentation) asks here what
they are. Names with `RESOURCE` stand for one measure a resource: `cpu_utilization_mean`,
`example.com/gpu_utilization_mean`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Better = Literal["lower", "higher", ""]
"""Which direction is better; empty: neither, it depends on what is asked."""
DIRECTIONS: Final[Mapping[str, Better]] = {"lower": "lower", "higher": "higher", "none": ""}
"""The words for it."""
NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
"""The names that scenarios and packages may give."""
OF_A_RESOURCE: Final = "RESOURCE"


@dataclass(frozen=True)
class Measure:
    """What a figure of a run is. `unit`: empty for counts and fractions; `source`: the event log's lines, the objects
    or the package that it comes from. `is_always`: every run has it; the others are there where there is any of
    it."""

    name: str
    unit: str
    meaning: str
    better: Better
    source: str
    is_always: bool = False
    relevant: float = 0.0
    """The least difference that matters, in its unit; 0: of a scenario's measure any difference, of one that comes with
    keplab a share (`least_relevant`)."""

    @property
    def direction(self) -> str:
        """`lower`, `higher` or `none`."""
        return self.better or "none"

    def document(self) -> dict[str, object]:
        """Return it as `keplab measures -o json` does."""
        return {
            "name": self.name,
            "unit": self.unit,
            "meaning": self.meaning,
            "better": self.direction,
            "always": self.is_always,
            "source": self.source,
            "relevant": self.relevant,
        }


RELEVANT_SHARE: Final = 0.05
"""Less than this share of the larger median is no difference of a measure that comes with keplab."""
OUTCOMES: Final = frozenset(
    {"pods_failed", "jobs_failed", "pods_disturbed", "pods_running_at_end", "jobs_complete", "resizes_met", "victims"}
)
"""What became of pods and Jobs: each one matters."""


def least_relevant(measure: Measure, medians: Iterable[float | None]) -> float:
    """Return the least difference that matters between arms with these medians, in the measure's unit."""
    if measure.relevant or find(measure.name) is None or measure.name in OUTCOMES:
        return measure.relevant
    return RELEVANT_SHARE * max((abs(each) for each in medians if each is not None), default=0.0)


_PODS: Final = "pods"
_STATUS: Final = "sched.attempt, sched.gated, pods"
_CLAIMS: Final = "store.commit of resourceclaims"
_PLACED: Final = "pods, nodes"
_QUEUE: Final = "sched.moved"

MEASURES: Final[tuple[Measure, ...]] = (
    Measure("pods_created", "", "Pods created", "", _PODS, True),
    Measure("pods_failed", "", "Pods failed", "lower", _PODS, True),
    Measure("failed_per_min", "1/min", "Failed pods per minute", "lower", _PODS, True),
    Measure("pods_running_at_end", "", "Pods Running at the end", "higher", _PODS, True),
    Measure("pods_disturbed", "", "Pods that ran and then failed", "lower", _PODS, True),
    Measure("unbinds", "", "Unbinds", "", _PODS, True),
    Measure("first_running_s", "s", "First pod Running after", "lower", _PODS, True),
    Measure("time_to_running_p50_s", "s", "Time to Running, p50", "lower", _PODS, True),
    Measure("time_to_running_p99_s", "s", "Time to Running, p99", "lower", _PODS, True),
    Measure("rejected_to_running_p50_s", "s", "Rejection to Running, p50", "lower", "kubelet.reject, pods", True),
    Measure("rejected_to_running_p99_s", "s", "Rejection to Running, p99", "lower", "kubelet.reject, pods", True),
    Measure("api_writes", "", "API writes (without heartbeats)", "lower", "store.commit", True),
    Measure("api_writes_per_running_pod", "", "API writes per finally running pod", "lower", "store.commit", True),
    Measure("status_patches", "", "Status patches by the scheduler", "lower", "store.commit", True),
    Measure("status_missing_min", "min", "Pods' status is missing a reason, minutes", "lower", _STATUS, True),
    Measure("status_stale_min", "min", "Pods' status is stale, minutes", "lower", _STATUS, True),
    Measure("gate_reports", "", "Reports of PreEnqueue", "lower", "sched.reported"),
    Measure("gate_report_kib", "KiB", "Reports of PreEnqueue, KiB", "lower", "sched.reported"),
    Measure("gate_reason_seen_p50_s", "s", "Rejection at PreEnqueue to its reason, p50", "lower", _STATUS),
    Measure("gate_reason_seen_p99_s", "s", "Rejection at PreEnqueue to its reason, p99", "lower", _STATUS),
    Measure("status_misleading_min", "min", "Pods untried said to need nodes, minutes", "lower", _STATUS),
    Measure("victims", "", "Victims of preemption", "lower", "sched.victim", True),
    Measure("evicted_cpu", "cores", "CPU that victims had", "lower", "sched.victim, pods", True),
    Measure("evicted_memory_gib", "GiB", "Memory that victims had, GiB", "lower", "sched.victim, pods", True),
    Measure("resizes_asked", "", "Resizes asked for", "", _PODS, True),
    Measure("resizes_met", "", "Resizes that came true", "higher", _PODS, True),
    Measure("time_to_resized_p50_s", "s", "Time to resized, p50", "lower", _PODS, True),
    Measure("time_to_resized_p99_s", "s", "Time to resized, p99", "lower", _PODS, True),
    Measure("resize_attempts", "", "Attempts to preempt for resizes", "lower", "sched.resize", True),
    Measure("jobs_complete", "", "Jobs complete", "higher", "store.commit of jobs"),
    Measure("jobs_failed", "", "Jobs failed", "lower", "store.commit of jobs"),
    Measure("job_duration_p50_s", "s", "Time from a Job's creation to its end, p50", "lower", "store.commit of jobs"),
    Measure("claim_writes", "", "Writes of ResourceClaims", "lower", _CLAIMS),
    Measure("claim_kib_written", "KiB", "ResourceClaims written, KiB", "lower", _CLAIMS),
    Measure("claim_watch_kib", "KiB", "ResourceClaims sent to watchers, KiB", "lower", "store.commit, watch.open"),
    Measure("claim_conflicts", "", "Conflicts at ResourceClaims", "lower", "api.response"),
    Measure("claim_consumers_max", "", "Most consumers of one ResourceClaim", "", _CLAIMS),
    Measure("claim_unused_p50_s", "s", "From the last pod's end to deallocation, p50", "lower", _CLAIMS),
    Measure("claim_unused_p99_s", "s", "From the last pod's end to deallocation, p99", "lower", _CLAIMS),
    Measure("pods_per_node_max", "", "Pods on the fullest node at the end", "", _PLACED),
    Measure("pods_per_node_min", "", "Pods on the emptiest node at the end", "", _PLACED),
    Measure("pods_per_node_spread", "", "Fullest minus emptiest node, pods at the end", "", _PLACED),
    Measure("pods_per_node_spread_mean", "", "Fullest minus emptiest node, pods over time", "", _PLACED),
    Measure("nodes_used_mean", "", "Nodes that have pods, over time", "", _PLACED),
    Measure("RESOURCE_utilization_end", "", "RESOURCE requested of allocatable at the end, 0 to 1", "", _PLACED),
    Measure("RESOURCE_utilization_mean", "", "RESOURCE requested of allocatable over time, 0 to 1", "", _PLACED),
    Measure("RESOURCE_utilization_max", "", "RESOURCE requested of allocatable at most, 0 to 1", "", _PLACED),
    Measure("RESOURCE_imbalance_end", "", "Imbalance of RESOURCE over nodes at the end", "", _PLACED),
    Measure("RESOURCE_imbalance_mean", "", "Imbalance of RESOURCE over nodes, over time", "", _PLACED),
    Measure("RESOURCE_fragmentation_end", "", "Free RESOURCE that is not on the freest node, of all", "", _PLACED),
    Measure("node_imbalance_end", "", "Imbalance of cpu and memory within nodes at the end", "lower", _PLACED),
    Measure("node_imbalance_mean", "", "Imbalance of cpu and memory within nodes, over time", "lower", _PLACED),
    Measure("queue_active_s", "s", "Time of all pods in the queue's active pool", "lower", _QUEUE),
    Measure("queue_backoff_s", "s", "Time of all pods in the queue's backoff pools", "lower", _QUEUE),
    Measure("queue_unschedulable_s", "s", "Time of all pods in the queue's unschedulable pool", "lower", _QUEUE),
    Measure("queue_gated_s", "s", "Time of all pods in the queue's gated pool", "lower", _QUEUE),
)
"""What comes with keplab, in the order tables show it."""

_BY_NAME: Final = {each.name: each for each in MEASURES}
_OF_RESOURCES: Final = tuple(each for each in MEASURES if each.name.startswith(OF_A_RESOURCE))


def find(name: str, declared: Iterable[Measure] = ()) -> Measure | None:
    """Return what the measure of that name is; `declared`: those of the scenario and of packages. None: not known."""
    for each in declared:
        if each.name == name:
            return each
    if (known := _BY_NAME.get(name)) is not None:
        return known
    for each in _OF_RESOURCES:
        ending = each.name.removeprefix(OF_A_RESOURCE)
        if name.endswith(ending):
            resource = name.removesuffix(ending)
            meaning = each.meaning.replace(OF_A_RESOURCE, resource)
            return Measure(name, each.unit, meaning, each.better, each.source, each.is_always)
    return None


def reference(measures: Sequence[Measure] = MEASURES) -> str:
    """Return a table of them in markdown, for the reference documentation."""
    lines = ["| Measure | Unit | Meaning | Better | From |", "|---|---|---|---|---|"]
    lines += [
        f"| `{each.name}` | {each.unit} | {each.meaning} | {each.better or '-'} | {each.source} |" for each in measures
    ]
    return "\n".join(lines) + "\n"
