"""Whom an eviction hits together: a group that asked for it is one unit, wherever its members run (KEP-5710).

A member of any group matters as much as its group, whatever its own priority says. Source: preemption 7.1, 7.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.cache.pod_group_membership import PodGroups
from scheduler.framework.world import World
from scheduler.preemption.units import Unit, group_unit, pod_unit
from services.api.kinds.podgroup import PodGroup
from services.api.meta import Key


class GroupUnits:
    """Units as the cache and the groups are at this moment; a group that does not exist makes no unit."""

    def __init__(self, groups: PodGroups, cache: Cache, world: World) -> None:
        self._groups = groups
        self._cache = cache
        self._world = world

    def group_of(self, pod: PodInfo) -> PodGroup | None:
        """Return the pod's group, if it has one that exists."""
        key = self._groups.group_of(pod)
        return None if key is None else self._world.get(PodGroup, key)

    def priority_of(self, pod: PodInfo) -> int:
        """Return what the pod counts for: its group's priority, or its own."""
        group = self.group_of(pod)
        return pod.priority if group is None else group.spec.priority

    def of(self, pods: Iterable[PodInfo]) -> list[Unit]:
        """Return the units that these pods are part of, each once and whole, in the order of the pods."""
        found: list[Unit] = []
        seen: set[Key] = set()
        for pod in pods:
            group = self.group_of(pod)
            if group is None:
                found.append(pod_unit(pod))
            elif not group.spec.is_disrupted_as_a_whole:
                found.append(replace(pod_unit(pod), priority=group.spec.priority))
            elif group.metadata.key not in seen:
                seen.add(group.metadata.key)
                found.append(group_unit(group.metadata.name, self._members(group.metadata.key), group.spec.priority))
        return found

    def everywhere(self) -> list[Unit]:
        """Return every unit of the cluster, in the order of the nodes."""
        return self.of(
            pod for node in self._cache.nodes.values() if node.node is not None for pod in node.pods.values()
        )

    def node_of(self, pod: PodInfo) -> NodeInfo | None:
        """Return the node that a pod is counted on."""
        return self._cache.nodes.get(self._cache.node_of(pod.uid))

    def _members(self, key: Key) -> tuple[PodInfo, ...]:
        pods = self._cache.pods
        return tuple(pods[uid].pod for uid in self._groups.uids(key) if uid in pods)
