"""Units of eviction, and their order of importance.

A group that asked for it is one unit, wherever its members run (KEP-5710); a member of any group has the
importance of its group, whatever its own priority. Source: preemption 3.3, 7.1, 7.2.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.cache.pod_group_membership import PodGroups
from scheduler.framework.world import World
from services.api.kinds.podgroup import PodGroup
from services.api.meta import Key
from services.api.times import parse_time

NEVER: Final = math.inf
"""The start of a pod that has not started: later than any other (upstream takes "now", each time anew)."""


@lru_cache(maxsize=65536)
def _seconds(text: str) -> float:
    try:
        return parse_time(text)
    except ValueError:
        return NEVER


def start_time_of(pod: PodInfo) -> float:
    """Return when the kubelet started the pod, in seconds since 1970, or NEVER."""
    text = pod.pod.status.start_time
    return NEVER if text is None else _seconds(text)


@dataclass(frozen=True, slots=True)
class Unit:
    """Pods that are evicted together. `start_s`: the start of the first of them."""

    pods: tuple[PodInfo, ...]
    priority: int
    start_s: float
    is_group: bool = False

    @property
    def uid(self) -> str:
        """The uid of the first pod, which breaks ties."""
        return self.pods[0].uid


def pod_unit(pod: PodInfo) -> Unit:
    """Return the pod as a unit of its own."""
    return Unit((pod,), pod.priority, start_time_of(pod))


def group_unit(pods: tuple[PodInfo, ...], priority: int) -> Unit:
    """Return a group that is evicted as a whole; its own priority counts, not its members'."""
    return Unit(pods, priority, min(start_time_of(pod) for pod in pods), is_group=True)


def by_importance(units: list[Unit]) -> list[Unit]:
    """Return the units, the most important first.

    Higher priority; then groups before pods; then, for groups, more members; then the earlier start;
    then the uid, as upstream does after 1.37 (before, an unstable sort decided).
    """
    if len(units) < 2:
        return units

    def rank(unit: Unit) -> tuple[int, int, float, str]:
        return (-unit.priority, -len(unit.pods) if unit.is_group else 0, unit.start_s, unit.uid)

    return sorted(units, key=rank)


class Units:
    """The units, from the present cache and groups; a group that does not exist makes no unit."""

    def __init__(self, groups: PodGroups, cache: Cache, world: World) -> None:
        self._groups = groups
        self._cache = cache
        self._world = world

    def group_of(self, pod: PodInfo) -> PodGroup | None:
        """Return the pod's group, if the group exists."""
        key = self._groups.group_of(pod)
        return None if key is None else self._world.get(PodGroup, key)

    def priority_of(self, pod: PodInfo) -> int:
        """Return the pod's effective priority: its group's, or its own."""
        group = self.group_of(pod)
        return pod.priority if group is None else group.spec.priority

    def of(self, pods: Iterable[PodInfo]) -> list[Unit]:
        """Return the whole units of these pods, without duplicates, in the order of the pods."""
        units: list[Unit] = []
        seen: set[Key] = set()
        for pod in pods:
            group = self.group_of(pod)
            if group is None:
                units.append(pod_unit(pod))
            elif not group.spec.is_disrupted_as_a_whole:
                units.append(replace(pod_unit(pod), priority=group.spec.priority))
            elif group.metadata.key not in seen:
                seen.add(group.metadata.key)
                units.append(group_unit(self._members(group.metadata.key), group.spec.priority))
        return units

    def below(self, priority: int, pods: Iterable[PodInfo]) -> list[Unit]:
        """Return the pods' units with a priority below this one."""
        if not self._groups.is_on:
            return [pod_unit(pod) for pod in pods if pod.priority < priority]
        return [unit for unit in self.of(pods) if unit.priority < priority]

    def node_of(self, pod: PodInfo) -> NodeInfo | None:
        """Return the node on which a pod is counted.

        None without groups: then every unit is on the node in question.
        """
        return self._cache.nodes.get(self._cache.node_of(pod.uid)) if self._groups.is_on else None

    def _members(self, key: Key) -> tuple[PodInfo, ...]:
        pods = self._cache.pods
        return tuple(pods[uid].pod for uid in self._groups.uids(key) if uid in pods)
