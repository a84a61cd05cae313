"""Collectors of metrics between two moments of a workload.

Source: kubernetes/kubernetes `test/integration/scheduler_perf/util.go`, the collectors, and
`executor.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from lab.benchmarks.scheduler_perf.cases import MetricsCollectorConfig
from lab.benchmarks.scheduler_perf.cluster import Cluster
from lab.benchmarks.scheduler_perf.data_items import DataItem, summary
from lab.benchmarks.scheduler_perf.histograms import DEFAULT, families, items
from services.api.meta import Key

SAMPLE_S: Final = 1.0
MEMORY_SAMPLE_S: Final = 0.5
THROUGHPUT: Final = "SchedulingThroughput"


class Throughput:
    """Pods scheduled per second, in samples of one second.

    The sample in which the first pod appears is left out. An interval in which no pod got a node is merged
    into the next; the value of that one then counts once for each.
    """

    def __init__(self, namespaces: Iterable[str], labels: Mapping[str, str]) -> None:
        self._namespaces, self._labels = frozenset(namespaces), dict(labels)
        self.scheduled = 0
        self.first_s = self.last_s = 0.0
        """When the first and the last pod got a node, as `observe` was called."""
        self.samples: list[float] = []
        self._last_count, self._last_at, self._skipped = 0, 0.0, 0
        self._has_begun = False

    def observe(self, key: Key, labels: Mapping[str, str], now: float) -> None:
        """Count a pod that got a node, if it matches namespaces and labels."""
        if key.namespace in self._namespaces and self._labels.items() <= labels.items():
            self.scheduled += 1
            self.first_s = self.first_s or now
            self.last_s = now

    def sample(self, now: float) -> None:
        """Take a sample; must be called every second."""
        if not self.scheduled:
            return
        if not self._has_begun:
            self._has_begun = True
            self._last_count, self._last_at = self.scheduled, now
            return
        new = self.scheduled - self._last_count
        if not new:
            self._skipped += 1
            return
        self.samples += [new / (now - self._last_at)] * (self._skipped + 1)
        self._last_count, self._last_at, self._skipped = self.scheduled, now, 0

    def item(self, labels: Mapping[str, str]) -> DataItem | None:
        """Return the data item; None when everything ended before a sample was taken."""
        if not self.samples:
            return None
        return DataItem(summary(self.samples), "pods/s", {**labels, "Metric": THROUGHPUT})


class Memory:
    """Resident memory of the scheduler in samples of half a second. Python reports no heap in use."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []

    def sample(self, now: float, megabytes: float) -> None:
        """Take a sample."""
        self._samples.append((now, megabytes))

    def items(self, labels: Mapping[str, str]) -> list[DataItem]:
        """Return the data items for usage and growth."""
        values = [value for _, value in self._samples]
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        rate = (last - first) / ((ended - began) / 60) if ended > began else 0.0
        usage = {**summary(values), "Max": max(values)}
        return [
            DataItem(usage, "MB", {**labels, "Metric": "heap_memory_usage"}),
            DataItem({"GrowthRate": rate}, "MB/min", {**labels, "Metric": "memory_growth_rate"}),
        ]


class Collection:
    """All running collectors, from `begun` to `end`."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        namespaces: Sequence[str],
        labels: Mapping[str, str],
        config: MetricsCollectorConfig | None,
        wanted: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.throughput = Throughput(namespaces, labels)
        self._cluster, self._config, self._wanted = cluster, config or DEFAULT, frozenset(wanted)
        self._memory = Memory()
        self._before = ""
        self.began_s = 0.0
        self._is_over = False

    async def begin(self) -> None:
        """Start to collect."""
        cluster = self._cluster
        self._before = await cluster.metrics()
        self._memory.sample(cluster.now(), cluster.memory_mb())
        self.began_s = cluster.now()
        cluster.pods.listeners.append(self._on_scheduled)
        cluster.every(SAMPLE_S, self._sample)
        cluster.every(MEMORY_SAMPLE_S, self._sample_memory)

    async def end(self) -> list[DataItem]:
        """Stop, and return the data items."""
        cluster, labels = self._cluster, {"Name": self.name}
        took_s = cluster.now() - self.began_s
        self._is_over = True
        cluster.pods.listeners.remove(self._on_scheduled)
        self._memory.sample(cluster.now(), cluster.memory_mb())
        data_items: list[DataItem] = []
        throughput = self.throughput.item(labels)
        if throughput is not None and self._is_wanted("Throughput"):
            data_items.append(throughput)
        if self._is_wanted("Metrics"):
            after = await cluster.metrics()
            data_items += items(families(self._before), families(after), self._config, self.name)
        if self._is_wanted("Memory"):
            data_items += self._memory.items(labels)
        if self._is_wanted("SchedulingDuration"):
            data_items.append(DataItem({"Duration": took_s}, "s", {**labels, "Metric": "SchedulingDuration"}))
        return data_items

    def _is_wanted(self, collector: str) -> bool:
        return not self._wanted or collector in self._wanted

    def _on_scheduled(self, key: Key, labels: Mapping[str, str]) -> None:
        self.throughput.observe(key, labels, self._cluster.now())

    async def _sample(self) -> bool:
        if not self._is_over:
            self.throughput.sample(self._cluster.now())
        return not self._is_over

    async def _sample_memory(self) -> bool:
        if not self._is_over:
            self._memory.sample(self._cluster.now(), self._cluster.memory_mb())
        return not self._is_over
