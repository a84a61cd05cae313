"""Graceful node shutdown: the order in which pods are ended, and the time each may take. A pure machine.

Pods are ended group by group, the lowest priority first. A group that is over early does not pass its time
on, and a group that is not over in its time is left behind. No new pods are admitted meanwhile. Source:
kubelet 6; KEP-2000, KEP-2712; upstream `pkg/kubelet/nodeshutdown` (groups, reasons, messages).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kubelet.view import CRITICAL_PRIORITY, KubeletPod, WorkerKey

REASON: Final = "Terminated"
MESSAGE: Final = "Pod was terminated in response to imminent node shutdown."
REFUSED: Final = "NodeShutdown", "Pod was rejected as the node is shutting down."
NOT_READY: Final = "node is shutting down"
EVENT: Final = "NodeShutdown"
DETECTED: Final = "Shutdown manager detected shutdown event"


class Period(NamedTuple):
    """The seconds within which pods of this priority or more, up to the next period's, are ended."""

    priority: int
    seconds: float


def plain_periods(total_s: float, critical_s: float) -> tuple[Period, ...]:
    """Return the two groups of `shutdownGracePeriod` and `shutdownGracePeriodCriticalPods`.

    Empty: the shutdown is not graceful.
    """
    return (Period(0, total_s - critical_s), Period(CRITICAL_PRIORITY, critical_s)) if total_s > 0 else ()


def group_of(priority: int, periods: Sequence[Period]) -> int:
    """Return the index of the period for a priority; priorities below the lowest period belong to it."""
    return max(0, bisect_right([period.priority for period in periods], priority) - 1)


class Step(NamedTuple):
    """The pods to end now, each within so many seconds; the next look is at `next_s`.

    None: all groups had their turn.
    """

    ending: tuple[tuple[WorkerKey, float], ...]
    next_s: float | None


class Shutdown:
    """A shutdown under way. Invariant: a group begins once the one before it is over, or has had its time."""

    def __init__(self, periods: Iterable[Period], pods: Iterable[tuple[WorkerKey, KubeletPod]]) -> None:
        self._periods = tuple(sorted(periods))
        self._groups: list[list[tuple[WorkerKey, float]]] = [[] for _ in self._periods]
        for key, pod in pods if self._periods else ():
            self._groups[group_of(pod.spec.priority, self._periods)].append(
                (key, float(pod.spec.termination_grace_period_seconds))
            )
        self._next = 0
        self._until_s = float("-inf")

    def step(self, now: float, is_over: Callable[[WorkerKey], bool]) -> Step:
        """Return the next step that is due."""
        current = self._groups[self._next - 1] if self._next else []
        if now < self._until_s - 1e-6 and not all(is_over(key) for key, _ in current):
            return Step((), self._until_s)
        while self._next < len(self._groups):
            group, seconds = self._groups[self._next], self._periods[self._next].seconds
            self._next += 1
            if group:
                self._until_s = now + seconds
                return Step(tuple((key, min(grace_s, seconds)) for key, grace_s in group), self._until_s)
        return Step((), None)
