"""Several profiles in one scheduler: each has its own plugins and cycle; queue, cache and nominations are shared.

A pod belongs to the profile whose name is its `spec.schedulerName`, for life. Source:
scheduler-queue-and-cycles 9; upstream `pkg/scheduler/profile`.
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
    """One profile. `name`: the schedulerName of its pods."""

    name: str
    runner: Runner
    cycle: SchedulingCycle


class Profiles:
    """The profiles by name, in the order of the configuration; at least one.

    `others`: rejectors of any profile's pods that are not plugins, and the events that may change their
    answers.
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
        """Return the profiles without observation of plugins' times."""
        return tuple(self._by_name.values())

    def watch(self, watch: Watch) -> None:
        """Observe the plugins' times in one attempt in ten from now on."""
        for name, profile in self._by_name.items():
            runner = profile.runner.with_observer(PluginTimes(watch, name))
            self._watched[name] = replace(profile, runner=runner, cycle=replace(profile.cycle, runner=runner))

    def attempt(self) -> None:
        """Begin a new attempt: until the next one the plain profiles are used, or the observed ones."""
        self._current = self._watched if self._watched and self._attempts.is_next() else self._by_name

    def of(self, pod: PodInfo) -> Profile:
        """Return the pod's profile. Raises: KeyError for a pod of another scheduler."""
        return self._current[pod.spec.scheduler_name]

    def batching(self) -> dict[str, Batching]:
        """Return the counts of hints and batches, by profile (KEP-5598)."""
        found = ((name, profile.cycle.batching) for name, profile in self._by_name.items())
        return {name: batching for name, batching in found if batching is not None}

    def metrics(self) -> Samples:
        """Return the metrics of hints and batches."""
        return METRICS.of(self)

    def runner_of(self, pod: PodInfo) -> Runner:
        """Return the plugins for the pod. Raises: KeyError for a pod of another scheduler."""
        return self._current[pod.spec.scheduler_name].runner

    def lineups(self) -> list[dict[str, Any]]:
        """Return the plugins of each point in each profile, in the form of KubeSchedulerConfiguration."""
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
        """Return the answer of the pod's own profile at PreEnqueue."""
        return self.runner_of(pod).pre_enqueue(pod, first)

    def registrations(self) -> Mapping[str, Mapping[str, tuple[Registration, ...]]]:
        """Return, by profile and plugin, the events that may change a rejection.

        The profile matters because a plugin's hints may depend on its arguments.
        """
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
    """Return the queue's sort key; a pod for which the QueueSort plugin raises comes last."""

    def key(pod: PodInfo, since: float) -> tuple[float, ...]:
        try:
            return sort_key(pod, since)
        except Exception as error:
            failure_of(error, "QueueSort", "queue")
            return (math.inf,)

    return key
