"""Units: what is evicted together, and which of two matters more.

Source: preemption 3.3, 7.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Final

from scheduler.cache.node_info import PodInfo
from services.api.times import parse_time

NEVER: Final = math.inf
"""The start of a pod that has not started: later than any other (upstream takes "now", each time anew)."""


class UnitKind(IntEnum):
    """Of equal priority, the larger structure matters more."""

    POD = 0
    GROUP = 1
    COMPOSITE = 2


@lru_cache(maxsize=65536)
def _seconds(text: str) -> float:
    try:
        return parse_time(text)
    except ValueError:
        return NEVER


def started(pod: PodInfo) -> float:
    """Return when the kubelet took the pod, in seconds since 1970, or NEVER."""
    text = pod.pod.status.start_time
    return NEVER if text is None else _seconds(text)


@dataclass(frozen=True, slots=True)
class Unit:
    """Pods that are evicted together. `start_s`: when the first of them started; `name`: of a group, "" of a pod."""

    pods: tuple[PodInfo, ...]
    priority: int
    start_s: float
    kind: UnitKind = UnitKind.POD
    name: str = ""

    @property
    def uid(self) -> str:
        """The uid of the first pod; breaks ties."""
        return self.pods[0].uid


def pod_unit(pod: PodInfo) -> Unit:
    """Return the pod as a unit of its own."""
    return Unit((pod,), pod.priority, started(pod))


def group_unit(name: str, pods: tuple[PodInfo, ...], priority: int, kind: UnitKind = UnitKind.GROUP) -> Unit:
    """Return a group that is evicted as a whole; its own priority counts, not its members'."""
    return Unit(pods, priority, min(started(pod) for pod in pods), kind, name)


def by_importance(units: list[Unit]) -> list[Unit]:
    """Return the units, the most important first.

    Higher priority; then the larger structure; then, for groups, more members; then the earlier start;
    then the uid, as upstream does after 1.37 (before, an unstable sort decided).
    """
    if len(units) < 2:
        return units

    def rank(unit: Unit) -> tuple[int, int, int, float, str]:
        return (-unit.priority, -unit.kind, -len(unit.pods) if unit.kind else 0, unit.start_s, unit.uid)

    return sorted(units, key=rank)
