"""Several profiles in one scheduler: each has its own plugins and cycle, all share queue, cache and nominations.

A pod belongs to the profile whose name is its `spec.schedulerName`, for life.
Source: scheduler-queue-and-cycles 9; upstream `pkg/scheduler/profile`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from scheduler.cache.node_info import PodInfo
from scheduler.cycle.scheduling_cycle import Batching, SchedulingCycle
from scheduler.framework.events import Registration
from scheduler.framework.failures import failure_of
from scheduler.framework.runner import Runner
from scheduler.framework.status import Status
from scheduler.framework.timing import PluginTimes, Turns, Watch
from services.telemetry.metrics import Metrics, Samples, counter

SortKey = Callable[[PodInfo, float], tuple[float, ...]]


@dataclass(frozen=True)
class Profile:
    """One way of scheduling. `name`: the schedulerName of its pods."""

    name: str
    runner: Runner
    cycle: SchedulingCycle


class Profiles:
    """The profiles by name, in the order of the configuration; there is at least one.

    `others`: what rejects pods of any profile without being a plugin, and the events that may change that.
    """

    def __init__(
        self, profiles: Sequence[Profile], others: Mapping[str, tuple[Registration, ...]] | None = None
    ) -> None:
        self._by_name = {profile.name: profile for profile in profiles}
        self.names = tuple(self._by_name)
        self._others = dict(others or {})
        self._watched: dict[str, Profile] = {}
        self._attempts = Turns()
        self._current = self._by_name
        # One queue has one order: that all profiles sort alike is validated.
        sort_key = profiles[0].runner.sort_key
        assert sort_key is not None, "that a profile has a QueueSort plugin is validated"
        self.sort_key = last_when_failing(sort_key)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def all(self) -> tuple[Profile, ...]:
        """Return the profiles, none of them watched."""
        return tuple(self._by_name.values())

    def watch(self, watch: Watch) -> None:
        """Have one attempt in ten watched from now on."""
        for name, profile in self._by_name.items():
            runner = profile.runner.observed(PluginTimes(watch, name))
            self._watched[name] = replace(profile, runner=runner, cycle=replace(profile.cycle, runner=runner))

    def attempt(self) -> None:
        """Begin a new attempt: until the next one the plain profiles are used, or their observed twins."""
        self._current = self._watched if self._watched and self._attempts.is_next() else self._by_name

    def of(self, pod: PodInfo) -> Profile:
        """Return the pod's profile. Raises: KeyError for a pod that is not ours."""
        return self._current[pod.spec.scheduler_name]

    def batching(self) -> dict[str, Batching]:
        """Return what became of hints and batches, by profile (KEP-5598)."""
        found = ((name, profile.cycle.batching) for name, profile in self._by_name.items())
        return {name: batching for name, batching in found if batching is not None}

    def metrics(self) -> Samples:
        """Return what became of hints and batches."""
        return METRICS.of(self)

    def runner_of(self, pod: PodInfo) -> Runner:
        """Return the plugins that decide about the pod. Raises: KeyError for a pod that is not ours."""
        return self._current[pod.spec.scheduler_name].runner

    def lineups(self) -> list[dict[str, Any]]:
        """Return which plugins run where in each profile, as KubeSchedulerConfiguration writes it."""
        return [self._lineup(profile) for profile in self.all()]

    def _lineup(self, profile: Profile) -> dict[str, dict[str, list[dict[str, Any]]]]:
        weights = profile.runner.weights
        return {
            point: {
                "enabled": [
                    {"name": plugin, **({"weight": weights[plugin]} if point == "score" else {})} for plugin in plugins
                ]
            }
            for point, plugins in profile.runner.points.items()
        }

    def pre_enqueue(self, pod: PodInfo, first: str = "") -> Status:
        """Return what the pod's own profile says at PreEnqueue."""
        return self.runner_of(pod).pre_enqueue(pod, first)

    def registrations(self) -> Mapping[str, Mapping[str, tuple[Registration, ...]]]:
        """Return, by profile and plugin, the events that may change its no: one plugin may hint by its arguments."""
        return {name: {**profile.runner.registrations(), **self._others} for name, profile in self._by_name.items()}


METRICS: Final[Metrics[Profiles]] = Metrics(
    counter("scheduler_batch_attempts_total", "Attempts with a hint, by result.",
            lambda own: {(name, result): count for name, batching in own.batching().items()
                         for result, count in batching.attempts.items()}, "profile", "result"),
    counter("scheduler_batch_cache_flushed_total", "Batches given up, by reason.",
            lambda own: {(name, reason): count for name, batching in own.batching().items()
                         for reason, count in batching.flushed.items()}, "profile", "reason"),
)  # fmt: skip


def last_when_failing(sort_key: SortKey) -> SortKey:
    """Return the order of the queue; a pod of which the QueueSort plugin raises comes last."""

    def key(pod: PodInfo, since: float) -> tuple[float, ...]:
        try:
            return sort_key(pod, since)
        except Exception as error:
            failure_of(error, "QueueSort", "queue")
            return (math.inf,)

    return key
