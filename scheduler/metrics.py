"""Counters and histograms with upstream's names; an increment is an integer addition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from scheduler.cache.cache import Cache
from scheduler.histogram import SLI_BOUNDS, Histogram
from scheduler.queue.exclusions import Exclusions
from scheduler.queue.scheduling_queue import Pool, SchedulingQueue

PLUGIN_BOUNDS: Final = tuple(0.00001 * 1.5**i for i in range(20))
POINT_BOUNDS: Final = tuple(0.0001 * 2**i for i in range(12))
ATTEMPT_BOUNDS: Final = tuple(0.00001 * 2**i for i in range(22))
COUNT_BOUNDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
INITIAL, RESIZE = "initial_placement", "pod_resize"
"""The values of the label `operation` (kep-5836 12)."""
CLUSTER: Final = "cluster"
"""What the node of a whole group's eviction is called."""
PLUGINS: Final = "scheduler_plugin_execution_duration_seconds"
POINTS: Final = "scheduler_framework_extension_point_duration_seconds"
HINTS: Final = "scheduler_queueing_hint_execution_duration_seconds"
EVENTS: Final = "scheduler_event_handling_duration_seconds"
_TIMED: Final = {PLUGINS: PLUGIN_BOUNDS, POINTS: POINT_BOUNDS, HINTS: POINT_BOUNDS, EVENTS: POINT_BOUNDS}


def _no_time() -> float:
    return 0.0


def _unschedulable(queue: SchedulingQueue) -> dict[tuple[str, str], int]:
    """Return how many pods each plugin rejected, by plugin and profile; those being tried again do not count."""
    found: dict[tuple[str, str], int] = {}
    for queued in queue.all():
        if queued.pool is not Pool.IN_FLIGHT:
            for plugin in sorted(queued.rejectors):
                key = (plugin, queued.info.spec.scheduler_name)
                found[key] = found.get(key, 0) + 1
    return found


class Metrics:
    """What this scheduler did since it started. `profile` is the first profile's name; `now`: monotonic seconds.

    It is the watch of runners and queue: what takes how long is known from one attempt, hint or event in ten.
    """

    def __init__(self, profile: str, now: Callable[[], float] | None = None) -> None:
        self._profile = profile
        self.now: Callable[[], float] = now or _no_time
        self._timed: dict[str, dict[str, Histogram]] = {name: {} for name in _TIMED}
        self.counters: dict[str, float] = {}
        self._attempt_seconds: dict[tuple[str, str], Histogram] = {}
        self.algorithm_seconds = Histogram(ATTEMPT_BOUNDS)
        self.bind_seconds = Histogram(SLI_BOUNDS)
        self._sli_seconds: dict[int, Histogram] = {}
        self.pod_attempts = Histogram(COUNT_BOUNDS)
        self._permit_wait_seconds: dict[str, Histogram] = {}
        self.unbound_to_rebound_seconds = Histogram(SLI_BOUNDS)
        self.binding = 0
        self._unbound_at: dict[str, tuple[float, str]] = {}
        self._evicted_for: dict[str, tuple[str, int]] = {}
        """For whom others had to go: on which node, and how many."""

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

    def permit_waited(self, result: str, waited_s: float) -> None:
        """Note a pod that waited for permission, and what it got."""
        self._permit_wait_seconds.setdefault(result, Histogram(SLI_BOUNDS)).observe(waited_s)

    # -- the watch

    def plugin(self, plugin: str, point: str, status: str, took_s: float) -> None:
        """Note how long a plugin took at a point."""
        self._time(PLUGINS, f'extension_point="{point}",plugin="{plugin}",status="{status}"', took_s)

    def point(self, point: str, status: str, profile: str, took_s: float) -> None:
        """Note how long all plugins together took at a point."""
        self._time(POINTS, f'extension_point="{point}",profile="{profile}",status="{status}"', took_s)

    def hint(self, plugin: str, event: str, hint: str, took_s: float) -> None:
        """Note how long a plugin's hint took, and what it said."""
        self._time(HINTS, f'event="{event}",hint="{hint}",plugin="{plugin}"', took_s)

    def event(self, event: str, took_s: float) -> None:
        """Note how long it took to find out whom an event may help."""
        self._time(EVENTS, f'event="{event}"', took_s)

    def _time(self, metric: str, labels: str, took_s: float) -> None:
        found = self._timed[metric].get(labels)
        if found is None:
            found = self._timed[metric][labels] = Histogram(_TIMED[metric])
        found.observe(took_s)

    # -- pods

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

    def evicted(self, uid: str, node: str) -> None:
        """Note that a pod was evicted from the node for this one."""
        emptied, victims = self._evicted_for.pop(uid, (node, 0))
        self._evicted_for[uid] = (node, victims + 1 if emptied == node else 1)
        if len(self._evicted_for) > 65536:
            del self._evicted_for[next(iter(self._evicted_for))]

    def unbound(self, uid: str, node: str, reason: str, now: float) -> None:
        """Note a pod that was unbound from a node."""
        self.count(f'scheduler_pod_unbinds_total{{reason="{reason}"}}')
        emptied, victims = self._evicted_for.pop(uid, ("", 0))
        if emptied in (node, CLUSTER):
            # They were evicted for a placement that did not last (kubelet-unbinding 7.3).
            self.count("unbind_wasted_preemptions_total", victims)
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
        for (plugin, name), pods in _unschedulable(queue).items():
            found[f'scheduler_unschedulable_pods{{plugin="{plugin}",profile="{name}"}}'] = pods
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
        for result, histogram in self._permit_wait_seconds.items():
            found.update(histogram.samples("scheduler_permit_wait_duration_seconds", f'result="{result}"'))
        for metric, by_labels in self._timed.items():
            for labels, histogram in by_labels.items():
                found.update(histogram.samples(metric, labels))
        found.update(self.unbound_to_rebound_seconds.samples("scheduler_unbound_to_rebound_seconds"))
        found.update(self.bind_seconds.samples(POINTS, f'extension_point="Bind",{profile},status="Success"'))
        return found
