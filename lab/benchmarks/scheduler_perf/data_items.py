"""Results of a workload in the format that upstream's perf-dash reads: data items, thresholds, the file.
Pure.

Source: kubernetes/kubernetes `test/integration/scheduler_perf/util.go`, `applyThreshold`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from lab.benchmarks.scheduler_perf.cases import MetricSelector

VERSION: Final = "v1"
NOT_APPLICABLE: Final = "not applicable"
FORM: Final = "Form"
QUANTILES: Final = {"Perc50": 50, "Perc90": 90, "Perc95": 95, "Perc99": 99}


class DataItem(msgspec.Struct):
    """Figures of one metric by bucket, such as `Perc90`, with their unit and labels."""

    data: dict[str, float]
    unit: str
    labels: dict[str, str]


class Comparison(msgspec.Struct, frozen=True):
    """A figure and its threshold. `is_met`: whether it is strictly above the threshold, or strictly below with
    `expect_lower`.
    """

    name: str
    metric: str
    bucket: str
    value: float
    threshold: float
    expect_lower: bool
    is_met: bool

    @property
    def ratio(self) -> float:
        """The figure divided by its threshold: above 1 is better, or worse with `expect_lower`."""
        return self.value / self.threshold


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return mean and nearest-rank percentiles of some values, as upstream computes them."""
    ordered = sorted(values)
    count = len(ordered)
    ranked = {name: ordered[math.ceil(count * percent / 100) - 1] for name, percent in QUANTILES.items()}
    return {"Average": sum(ordered) / count, **ranked}


def compare(items: Iterable[DataItem], threshold: float, selector: MetricSelector) -> list[Comparison]:
    """Add the threshold to the items it applies to, and return the comparisons; none for a threshold of 0."""
    comparisons: list[Comparison] = []
    if threshold == 0:
        return comparisons
    bucket = selector.data_bucket
    for item in items:
        if item.labels.get("Metric") != selector.name or not has_labels(item.labels, selector.labels):
            continue
        item.data[f"{bucket}Threshold"] = threshold
        value = item.data.get(bucket, math.nan)
        is_met = value < threshold if selector.expect_lower else value > threshold
        name = item.labels.get("Name", "")
        comparisons.append(Comparison(name, selector.name, bucket, value, threshold, selector.expect_lower, is_met))
    return comparisons


def has_labels(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Return whether `labels` contains all wanted labels with their values."""
    return all(labels.get(name) == value for name, value in wanted.items())


def document(items: Iterable[DataItem]) -> dict[str, Any]:
    """Return the document of all items; each gets every label that any item has."""
    listed = list(items)
    names = sorted({name for item in listed for name in item.labels})
    return {
        "version": VERSION,
        "dataItems": [
            {
                "data": dict(sorted(item.data.items())),
                "unit": item.unit,
                "labels": {name: item.labels.get(name, NOT_APPLICABLE) for name in names},
            }
            for item in listed
        ],
    }


def file_name(topic: str, written_at: str) -> str:
    """Return upstream's name for the results file; `written_at`: as 2006-01-02T15:04:05Z."""
    return f"BenchmarkPerfScheduling_benchmark_{topic}_{written_at}.json"
