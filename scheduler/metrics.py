"""Counters and histograms with upstream's names; an increment is an integer addition."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from scheduler.cache.cache import Cache
from scheduler.queue.exclusions import Exclusions
from scheduler.queue.scheduling_queue import Pool, SchedulingQueue
from services.telemetry.metrics import Counts, Histogram, Metrics, Samples, counter, gauge, histogram

SLI_BOUNDS: Final = tuple(0.01 * 2**i for i in range(20))
PLUGIN_BOUNDS: Final = tuple(0.00001 * 1.5**i for i in range(20))
POINT_BOUNDS: Final = tuple(0.0001 * 2**i for i in range(12))
ATTEMPT_BOUNDS: Final = tuple(0.00001 * 2**i for i in range(22))
COUNT_BOUNDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
INITIAL, RESIZE = "initial_placement", "pod_resize"
"""The values of the label `operation` (kep-5836 12)."""
ATTEMPTS: Final = "scheduler_schedule_attempts_total"
REBOUND: Final = "scheduler_rebound_same_node_total"
UNBINDS: Final = "scheduler_pod_unbinds_total"
WASTED: Final = "unbind_wasted_preemptions_total"
BINDING_FAILURES: Final = "keplab_scheduler_binding_failures_total"
CLUSTER: Final = "cluster"
"""The label value of the node in the eviction of a whole group."""
PLUGINS: Final = "scheduler_plugin_execution_duration_seconds"
POINTS: Final = "scheduler_framework_extension_point_duration_seconds"
HINTS: Final = "scheduler_queueing_hint_execution_duration_seconds"
EVENTS: Final = "scheduler_event_handling_duration_seconds"
_TIMED: Final = {PLUGINS: PLUGIN_BOUNDS, POINTS: POINT_BOUNDS, HINTS: POINT_BOUNDS, EVENTS: POINT_BOUNDS}


def _histograms(bounds: tuple[float, ...]) -> defaultdict[tuple[str, ...], Histogram]:
    """Return histograms by labels, each made when it is first asked for."""
    return defaultdict(partial(Histogram, bounds))


def _unschedulable(queue: SchedulingQueue) -> dict[tuple[str, str], int]:
    """Return how many pods each plugin rejected, by plugin and profile; those being tried again do not count."""
    rejected = (each for each in queue.all() if each.pool is not Pool.IN_FLIGHT)
    return Counter((plugin, each.info.spec.scheduler_name) for each in rejected for plugin in sorted(each.rejectors))


class SchedulerMetrics:
    """The counts of this scheduler since it started.

    `profile` is the first profile's name; `now`: monotonic seconds. It is the watch of runners and queue:
    durations are measured in one attempt, hint or event in ten.
    """

    def __init__(self, profile: str, now: Callable[[], float] | None = None) -> None:
        self._profile = profile
        self.now: Callable[[], float] = now or (lambda: 0.0)
        self.timed = {name: _histograms(bounds) for name, bounds in _TIMED.items()}
        """How long plugins, points, hints and events took, by metric and labels."""
        self.counts = Counts()
        self.attempt_seconds = _histograms(ATTEMPT_BOUNDS)
        self.algorithm_seconds = Histogram(ATTEMPT_BOUNDS)
        self.bind_seconds = Histogram(SLI_BOUNDS)
        self.sli_seconds: defaultdict[int, Histogram] = defaultdict(partial(Histogram, SLI_BOUNDS))
        self.pod_attempts = Histogram(COUNT_BOUNDS)
        self.permit_wait_seconds = _histograms(SLI_BOUNDS)
        self.unbound_to_rebound_seconds = Histogram(SLI_BOUNDS)
        self.binding = 0
        self._unbound_at: dict[str, tuple[float, str]] = {}
        self._evicted_for: dict[str, tuple[str, int]] = {}
        """Preemptors by uid: the node that victims left, and how many."""

    def observe_attempt(self, result: str, algorithm_s: float, profile: str = "", trace_id: str = "") -> None:
        """Count one scheduling attempt of a profile's pod ("": the first's): scheduled, unschedulable or error.

        `trace_id`: of the attempt's span, "" if it is not sampled.
        """
        profile = profile or self._profile
        self.counts.add(ATTEMPTS, profile, result)
        self.algorithm_seconds.observe(algorithm_s, 1, trace_id)
        self.attempt_seconds[profile, result].observe(algorithm_s, 1, trace_id)

    def plugin(self, plugin: str, point: str, status: str, took_s: float) -> None:
        """Observe how long a plugin took at a point."""
        self.timed[PLUGINS][point, plugin, status].observe(took_s)

    def point(self, point: str, status: str, profile: str, took_s: float) -> None:
        """Observe how long all plugins together took at a point."""
        self.timed[POINTS][point, profile, status].observe(took_s)

    def hint(self, plugin: str, event: str, hint: str, took_s: float) -> None:
        """Observe how long a plugin's hint took, and its answer."""
        self.timed[HINTS][event, hint, plugin].observe(took_s)

    def event(self, event: str, took_s: float) -> None:
        """Observe how long it took to find the pods that an event may help."""
        self.timed[EVENTS][event,].observe(took_s)

    def observe_bind(self, uid: str, node: str, attempts: int, waited_s: float, now: float, trace_id: str = "") -> None:
        """Count a pod that got its node, `waited_s` after its first attempt began."""
        self.sli_seconds[min(attempts, 16)].observe(waited_s, 1, trace_id)
        self.pod_attempts.observe(attempts)
        unbound = self._unbound_at.pop(uid, None)
        if unbound is not None:
            self.unbound_to_rebound_seconds.observe(now - unbound[0], 1, trace_id)
            if unbound[1] == node:
                self.counts.add(REBOUND)

    def observe_eviction(self, uid: str, node: str) -> None:
        """Note that a pod was evicted from the node for this one."""
        emptied, victims = self._evicted_for.pop(uid, (node, 0))
        self._evicted_for[uid] = (node, victims + 1 if emptied == node else 1)
        if len(self._evicted_for) > 65536:
            del self._evicted_for[next(iter(self._evicted_for))]

    def unbound(self, uid: str, node: str, reason: str, now: float) -> None:
        """Count a pod that was unbound from a node."""
        self.counts.add(UNBINDS, reason)
        emptied, victims = self._evicted_for.pop(uid, ("", 0))
        if emptied in (node, CLUSTER):
            # They were evicted for a placement that did not last (kubelet-unbinding 7.3).
            self.counts.add(WASTED, by=victims)
        self._unbound_at[uid] = (now, node)
        if len(self._unbound_at) > 65536:
            del self._unbound_at[next(iter(self._unbound_at))]

    def samples(self, queue: SchedulingQueue, cache: Cache, exclusions: Exclusions) -> Samples:
        """Return all counters, histograms and gauges."""
        return METRICS.of(Reading(self, queue, cache, exclusions))


class Reading(NamedTuple):
    """The objects from which the metrics are read."""

    own: SchedulerMetrics
    queue: SchedulingQueue
    cache: Cache
    exclusions: Exclusions


QUEUES: Final[Mapping[str, tuple[Pool, ...]]] = {
    "active": (Pool.ACTIVE,),
    "backoff": (Pool.BACKOFF, Pool.ERROR_BACKOFF),
    "unschedulable": (Pool.UNSCHEDULABLE,),
    "gated": (Pool.GATED,),
}


def _pending(read: Reading) -> dict[str, float]:
    return {queue: sum(read.queue.pools[pool] for pool in pools) for queue, pools in QUEUES.items()}


PENDING_PODS: Final = ("scheduler_pending_pods", "Pods that wait, by the queue they wait in.")
GOROUTINES: Final = ("scheduler_goroutines", "Tasks under way.")
PDB_VIOLATIONS: Final = ("scheduler_preemption_pdb_violations_total", "Victims whose disruption budget was exceeded.")
METRICS: Final[Metrics[Reading]] = Metrics(
    counter(ATTEMPTS, "Scheduling attempts.", lambda read: read.own.counts.of(ATTEMPTS), "profile", "result"),
    counter(REBOUND, "Unbound pods bound to the same node again.", lambda read: read.own.counts.of(REBOUND)),
    counter(UNBINDS, "Pods unbound from their node.", lambda read: read.own.counts.of(UNBINDS), "reason"),
    counter(WASTED, "Victims of a placement that was unbound.", lambda read: read.own.counts.of(WASTED)),
    counter(BINDING_FAILURES, "Bindings that failed.", lambda read: read.own.counts.of(BINDING_FAILURES), "reason"),
    gauge(*PENDING_PODS, _pending, "queue"),
    counter("scheduler_queue_incoming_pods_total", "Pods added to a queue.",
            lambda read: {(event, pool): count for (pool, event), count in read.queue.incoming.items()},
            "event", "queue"),
    gauge("scheduler_unschedulable_pods", "Pods that a plugin rejected.", lambda read: _unschedulable(read.queue),
          "plugin", "profile"),
    gauge("scheduler_inflight_events", "Events kept for pods in flight.",
          lambda read: read.queue.in_flight_event_count),
    gauge("scheduler_cache_size", "What the cache holds.",
          lambda read: {"nodes": read.cache.columns.count, "pods": len(read.cache.pods),
                        "assumed_pods": read.cache.assumed_count}, "type"),
    gauge(*GOROUTINES, lambda read: {"binding": read.own.binding}, "operation"),
    gauge("scheduler_node_exclusions", "Nodes that pods are kept away from.", lambda read: len(read.exclusions)),
    histogram("scheduler_scheduling_attempt_duration_seconds", "Time of an attempt.",
              lambda read: read.own.attempt_seconds, "profile", "result"),
    histogram("scheduler_pod_scheduling_sli_duration_seconds", "Time from a pod's first attempt to its binding.",
              lambda read: {str(n) if n < 16 else "16+": each for n, each in read.own.sli_seconds.items()}, "attempts"),
    histogram("scheduler_scheduling_algorithm_duration_seconds", "Time of the scheduling cycle.",
              lambda read: read.own.algorithm_seconds),
    histogram("scheduler_pod_scheduling_attempts", "Attempts that a pod needed.", lambda read: read.own.pod_attempts),
    histogram("scheduler_permit_wait_duration_seconds", "Time that pods waited for permission.",
              lambda read: read.own.permit_wait_seconds, "result"),
    histogram(PLUGINS, "Time of a plugin at a point, of one attempt in ten.", lambda read: read.own.timed[PLUGINS],
              "extension_point", "plugin", "status"),
    histogram(POINTS, "Time of all plugins at a point, of one attempt in ten.",  # every Bind is timed
              lambda read: read.own.timed[POINTS] | {("Bind", read.own._profile, "Success"): read.own.bind_seconds},
              "extension_point", "profile", "status"),
    histogram(HINTS, "Time of a queueing hint, of one in ten.", lambda read: read.own.timed[HINTS],
              "event", "hint", "plugin"),
    histogram(EVENTS, "Time to find the pods an event may help, of one in ten.", lambda read: read.own.timed[EVENTS],
              "event"),
    histogram("scheduler_unbound_to_rebound_seconds", "Time from a pod's unbind to its next binding.",
              lambda read: read.own.unbound_to_rebound_seconds),
)  # fmt: skip
