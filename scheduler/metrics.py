"""Counters and histograms with upstream's names; an increment is an integer addition."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final

from scheduler.cache import Cache
from scheduler.exclusions import Exclusions
from scheduler.queue import Pool, SchedulingQueue

ATTEMPT_BOUNDS: Final = tuple(0.00001 * 2**i for i in range(22))
SLI_BOUNDS: Final = tuple(0.01 * 2**i for i in range(20))
COUNT_BOUNDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)


class Histogram:
    """Cumulative buckets as Prometheus wants them."""

    __slots__ = ("_bounds", "_counts", "count", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.count = 0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value
        self.count += 1

    def samples(self, name: str, labels: str = "") -> Iterator[tuple[str, float]]:
        """Yield `name_bucket{…,le="…"}`, `name_sum` and `name_count`."""
        prefix = f"{labels}," if labels else ""
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            le = "+Inf" if bound == float("inf") else f"{bound:g}"
            yield f'{name}_bucket{{{prefix}le="{le}"}}', total
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces}", self.sum
        yield f"{name}_count{braces}", self.count


class Metrics:
    """What this scheduler did since it started. `profile` is the scheduler's name."""

    def __init__(self, profile: str) -> None:
        self._profile = profile
        self.counters: dict[str, float] = {}
        self._attempt_seconds: dict[tuple[str, str], Histogram] = {}
        self.algorithm_seconds = Histogram(ATTEMPT_BOUNDS)
        self.bind_seconds = Histogram(SLI_BOUNDS)
        self._sli_seconds: dict[int, Histogram] = {}
        self.pod_attempts = Histogram(COUNT_BOUNDS)
        self.permit_wait_seconds = Histogram(SLI_BOUNDS)
        self.unbound_to_rebound_seconds = Histogram(SLI_BOUNDS)
        self.binding = 0
        self._unbound_at: dict[str, tuple[float, str]] = {}

    def count(self, name: str, by: float = 1) -> None:
        """Add to a counter; labels are part of the name."""
        self.counters[name] = self.counters.get(name, 0) + by

    def attempted(self, result: str, algorithm_s: float, profile: str = "") -> None:
        """Note one scheduling attempt of a profile's pod ("": the first's): scheduled, unschedulable or error."""
        profile = profile or self._profile
        self.count(f'scheduler_schedule_attempts_total{{profile="{profile}",result="{result}"}}')
        self.algorithm_seconds.observe(algorithm_s)
        histogram = self._attempt_seconds.get((profile, result))
        if histogram is None:
            histogram = self._attempt_seconds[profile, result] = Histogram(ATTEMPT_BOUNDS)
        histogram.observe(algorithm_s)

    def bound(self, uid: str, node: str, attempts: int, waited_s: float, now: float) -> None:
        """Note a pod that got its node, `waited_s` after its first attempt began."""
        bucket = min(attempts, 16)
        if bucket not in self._sli_seconds:
            self._sli_seconds[bucket] = Histogram(SLI_BOUNDS)
        self._sli_seconds[bucket].observe(waited_s)
        self.pod_attempts.observe(attempts)
        unbound = self._unbound_at.pop(uid, None)
        if unbound is not None:
            self.unbound_to_rebound_seconds.observe(now - unbound[0])
            if unbound[1] == node:
                self.count("scheduler_rebound_same_node_total")

    def unbound(self, uid: str, node: str, reason: str, now: float) -> None:
        """Note a pod that a node gave back."""
        self.count(f'scheduler_pod_unbinds_total{{reason="{reason}"}}')
        self._unbound_at[uid] = (now, node)
        if len(self._unbound_at) > 65536:
            del self._unbound_at[next(iter(self._unbound_at))]

    def samples(self, queue: SchedulingQueue, cache: Cache, exclusions: Exclusions) -> Mapping[str, float]:
        """Return all counters, histograms and gauges."""
        found: dict[str, float] = dict(self.counters)
        pools = queue.pools
        backoff = pools[Pool.BACKOFF] + pools[Pool.ERROR_BACKOFF]
        found['scheduler_pending_pods{queue="active"}'] = pools[Pool.ACTIVE]
        found['scheduler_pending_pods{queue="backoff"}'] = backoff
        found['scheduler_pending_pods{queue="unschedulable"}'] = pools[Pool.UNSCHEDULABLE]
        found['scheduler_pending_pods{queue="gated"}'] = pools[Pool.GATED]
        for (pool, event), pods in queue.incoming.items():
            found[f'scheduler_queue_incoming_pods_total{{event="{event}",queue="{pool}"}}'] = pods
        for plugin, pods in queue.unschedulable_plugins().items():
            found[f'scheduler_unschedulable_pods{{plugin="{plugin}",profile="{self._profile}"}}'] = pods
        found["scheduler_inflight_events"] = queue.in_flight_event_count
        found['scheduler_cache_size{type="nodes"}'] = cache.columns.count
        found['scheduler_cache_size{type="pods"}'] = len(cache.pods)
        found['scheduler_cache_size{type="assumed_pods"}'] = cache.assumed_count
        found['scheduler_goroutines{operation="binding"}'] = self.binding
        found["scheduler_node_exclusions"] = len(exclusions)
        profile = f'profile="{self._profile}"'
        for (of, result), histogram in self._attempt_seconds.items():
            labels = f'profile="{of}",result="{result}"'
            found.update(histogram.samples("scheduler_scheduling_attempt_duration_seconds", labels))
        for attempts, histogram in self._sli_seconds.items():
            labels = f'attempts="{attempts if attempts < 16 else "16+"}"'
            found.update(histogram.samples("scheduler_pod_scheduling_sli_duration_seconds", labels))
        found.update(self.algorithm_seconds.samples("scheduler_scheduling_algorithm_duration_seconds"))
        found.update(self.pod_attempts.samples("scheduler_pod_scheduling_attempts"))
        found.update(self.permit_wait_seconds.samples("scheduler_permit_wait_duration_seconds"))
        found.update(self.unbound_to_rebound_seconds.samples("scheduler_unbound_to_rebound_seconds"))
        bind = 'extension_point="Bind",' + profile
        found.update(self.bind_seconds.samples("scheduler_framework_extension_point_duration_seconds", bind))
        return found
