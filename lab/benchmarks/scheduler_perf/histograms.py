"""Histograms of a scheduler between two scrapes, split by label values, as data items. Pure.

Source: kubernetes/kubernetes `staging/src/k8s.io/component-base/metrics/testutil/metrics.go`,
`bucketQuantile`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from lab.benchmarks.scheduler_perf.cases import LabelValues, MetricsCollectorConfig
from lab.benchmarks.scheduler_perf.data_items import QUANTILES, DataItem

DEFAULT: Final = MetricsCollectorConfig(
    metrics={
        "scheduler_framework_extension_point_duration_seconds": [LabelValues("extension_point")],
        "scheduler_scheduling_attempt_duration_seconds": [LabelValues("result")],
        "scheduler_pod_scheduling_duration_seconds": None,
        "scheduler_plugin_execution_duration_seconds": [LabelValues("plugin"), LabelValues("extension_point")],
        "scheduler_queueing_hint_execution_duration_seconds": [LabelValues("plugin"), LabelValues("event")],
        "scheduler_event_handling_duration_seconds": [LabelValues("event")],
    }
)
"""Histograms to collect unless a test case names others."""
IN_FLIGHT: Final = "scheduler_inflight_events"
Labels = tuple[tuple[str, str], ...]


@dataclass
class Distribution:
    """Cumulative counts by upper bound in seconds, and the sum of the values."""

    below: dict[float, float] = field(default_factory=dict)
    total: float = 0.0

    @property
    def count(self) -> float:
        """Number of values."""
        return self.below.get(math.inf, 0.0)

    def add(self, other: Distribution, by: int = 1) -> None:
        """Add the counts of another distribution; `by=-1` subtracts them."""
        for bound, count in other.below.items():
            self.below[bound] = self.below.get(bound, 0.0) + by * count
        self.total += by * other.total

    def quantile(self, q: float) -> float:
        """Return a quantile, interpolated linearly within its bucket."""
        buckets = sorted(self.below.items())
        rank = q * self.count
        place = next(i for i, (_, count) in enumerate(buckets) if count >= rank)
        bound, count = buckets[place]
        if math.isinf(bound):
            return buckets[place - 1][0] if place else 0.0
        if place == 0:
            return bound * rank / count if count else 0.0
        lower, before = buckets[place - 1]
        return lower + (bound - lower) * (rank - before) / (count - before)


Families = dict[str, dict[Labels, Distribution]]


def families(text: str) -> Families:
    """Parse the histograms of a scrape, by name and labels."""
    histograms: Families = {}
    for family in text_string_to_metric_families(text):
        if family.type != "histogram":
            continue
        series = histograms.setdefault(family.name, {})
        for sample in family.samples:
            labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
            one = series.setdefault(labels, Distribution())
            if sample.name.endswith("_bucket"):
                one.below[float(sample.labels["le"])] = sample.value
            elif sample.name.endswith("_sum"):
                one.total = sample.value
    return histograms


def gauge(text: str, name: str) -> float:
    """Return the sum of a gauge's samples."""
    parsed = text_string_to_metric_families(text)
    return sum(sample.value for family in parsed if family.name == name for sample in family.samples)


def items(before: Families, after: Families, config: MetricsCollectorConfig, name: str) -> Iterator[DataItem]:
    """Yield a data item in milliseconds for each histogram that grew, split by the configured label values."""
    for metric, asked in config.metrics.items():
        grown: dict[Labels, Distribution] = {}
        for labels, now in after.get(metric, {}).items():
            one = grown[labels] = Distribution()
            one.add(now)
            one.add(before.get(metric, {}).get(labels, Distribution()), -1)
        for values in _combinations(asked or [], grown):
            merged = Distribution()
            for labels, one in grown.items():
                if values.items() <= dict(labels).items():
                    merged.add(one)
            if merged.count:
                yield _item(metric, merged, {"Name": name, "Metric": metric, **values})


def _combinations(asked: list[LabelValues], grown: Iterable[Labels]) -> Iterator[Mapping[str, str]]:
    present = [dict(labels) for labels in grown]
    choices = [
        [(each.label, value) for value in each.values or sorted({known.get(each.label, "") for known in present})]
        for each in asked
    ]
    for chosen in itertools.product(*choices):
        yield dict(chosen)


def _item(metric: str, merged: Distribution, labels: dict[str, str]) -> DataItem:
    data = {name: 1000 * merged.quantile(percent / 100) for name, percent in QUANTILES.items()}
    return DataItem({"Average": 1000 * merged.total / merged.count, **data}, "ms", labels)
