"""The register of measures: name, unit, meaning, better direction, and source of each. Pure.

A run gives `{name: float | None}`; all views (tables, pages, the reference documentation) look the
measures up here. Names with `RESOURCE` stand for one measure per resource: `cpu_utilization_mean`,
`example.com/gpu_utilization_mean`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Better = Literal["lower", "higher", ""]
"""Better direction of a measure; empty if neither is better in general."""
DIRECTIONS: Final[Mapping[str, Better]] = {"lower": "lower", "higher": "higher", "none": ""}
"""Words for the better direction."""
NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
"""Pattern of measure names that scenarios and packages may choose."""
OF_A_RESOURCE: Final = "RESOURCE"


@dataclass(frozen=True)
class Measure:
    """Description of a measure. `unit`: empty for counts and fractions; `source`: the event log's lines, the
    objects or the package that it comes from.

    `is_always`: every run has it; the other measures exist only where they apply.
    """

    name: str
    unit: str
    meaning: str
    better: Better
    source: str
    is_always: bool = False
    relevant: float = 0.0
    """The least difference that matters, in the measure's unit.

    0 means any difference for a scenario's measure, and a share for one of keplab's own (`least_relevant`).
    """

    @property
    def direction(self) -> str:
        """`lower`, `higher` or `none`."""
        return self.better or "none"

    def document(self) -> dict[str, object]:
        """Return the JSON values for `keplab measures -o json`."""
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
"""Share of the larger median below which a difference of one of keplab's own measures does not matter."""
OUTCOMES: Final = frozenset(
    {"pods_failed", "jobs_failed", "pods_disturbed", "pods_running_at_end", "jobs_complete", "resizes_met", "victims"}
)
"""Measures of outcomes of pods and Jobs, for which any difference matters."""


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
"""Keplab's own measures, in the order of tables."""

_BY_NAME: Final = {each.name: each for each in MEASURES}
_OF_RESOURCES: Final = tuple(each for each in MEASURES if each.name.startswith(OF_A_RESOURCE))


def find(name: str, declared: Iterable[Measure] = ()) -> Measure | None:
    """Return the measure of that name; None if it is unknown. `declared`: those of the scenario and of packages."""
    for measure in declared:
        if measure.name == name:
            return measure
    if (known := _BY_NAME.get(name)) is not None:
        return known
    for measure in _OF_RESOURCES:
        ending = measure.name.removeprefix(OF_A_RESOURCE)
        if name.endswith(ending):
            resource = name.removesuffix(ending)
            meaning = measure.meaning.replace(OF_A_RESOURCE, resource)
            return Measure(name, measure.unit, meaning, measure.better, measure.source, measure.is_always)
    return None


def reference(measures: Sequence[Measure] = MEASURES) -> str:
    """Return a markdown table of the measures, for the reference documentation."""
    lines = ["| Measure | Unit | Meaning | Better | From |", "|---|---|---|---|---|"]
    lines += [
        f"| `{each.name}` | {each.unit} | {each.meaning} | {each.better or '-'} | {each.source} |" for each in measures
    ]
    return "\n".join(lines) + "\n"
