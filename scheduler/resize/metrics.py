"""Metrics of resizes apart from those of new pods, as the beta plans them (kep-5836 12). Pure.

Until then the queue's gauges count deferred pods like any others.
"""

from collections.abc import Mapping
from typing import Final

from scheduler.metrics import INITIAL, RESIZE
from scheduler.resize.outcome import NAME

WITH_OPERATION: Final = (
    "scheduler_queued_entities",
    "scheduler_preemption_evaluation_duration_seconds",
    "scheduler_preemption_execution_duration_seconds",
    "scheduler_preemption_pdb_violations_total",
    "scheduler_preemption_goroutines_execution_total",
)
_PARTS: Final = ("_bucket", "_sum", "_count")


def apart(samples: Mapping[str, float], pending: Mapping[str, int]) -> dict[str, float]:
    """Return the samples with deferred pods taken out of the gauges and every operation named."""
    found: dict[str, float] = {}
    for name, value in samples.items():
        if name.startswith(f'scheduler_unschedulable_pods{{plugin="{NAME}"'):
            continue
        metric, queue, entity = name.partition("{")[0], label_of(name, "queue"), label_of(name, "type")
        if metric == "scheduler_pending_pods":
            value -= pending.get(queue, 0)
        if _base(metric) in WITH_OPERATION and "operation=" not in name:
            if metric == "scheduler_queued_entities" and entity == "Pod":
                value -= pending.get(queue, 0)
                found[labelled(name, RESIZE)] = pending.get(queue, 0)
            name = labelled(name, INITIAL)
        found[name] = value
    return found


def labelled(name: str, operation: str) -> str:
    """Return the sample's name with its operation among the labels."""
    metric, _, labels = name.partition("{")
    rest = labels.removesuffix("}")
    return f'{metric}{{operation="{operation}"{"," if rest else ""}{rest}}}'


def label_of(name: str, label: str) -> str:
    """Return a label's value, "" when the sample has no such label."""
    _, sign, rest = name.partition(f'{label}="')
    return rest.partition('"')[0] if sign else ""


def _base(metric: str) -> str:
    for part in _PARTS:
        metric = metric.removesuffix(part)
    return metric
