"""Spreading as the rule reads, for one node: pods counted by hand, one after the other.

Asked about nodes that were changed in thought, where the counts kept for all nodes do not hold, and held
equal to them by tests.
Source: scheduler-queue-and-cycles 6, 12.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.cache.node_selection import matches_required
from scheduler.plugins.pod_topology_spread.constraints import REPELLING, Constraint
from services.api.kinds.node import Node
from services.api.taints import untolerated


def has_keys(labels: Mapping[str, str], constraints: Iterable[Constraint]) -> bool:
    """Whether a node with these labels has every constraint's key; without one it is no domain for any (12.5)."""
    return all(each.key in labels for each in constraints)


def suits(pod: PodInfo, node: Node, constraint: Constraint) -> bool:
    """Whether the constraint's policies let the node form a domain for the pod."""
    if constraint.honors_affinity and not matches_required(pod, node):
        return False
    return not constraint.honors_taints or untolerated(node.spec.taints, pod.spec.tolerations, REPELLING) is None


class Census:
    """The cluster as it is, counted when first asked for."""

    def __init__(self, pod: PodInfo, constraints: Sequence[Constraint], nodes: Iterable[NodeInfo]) -> None:
        self._pod = pod
        self._constraints = constraints
        self._nodes = nodes

    @cached_property
    def counts(self) -> list[dict[str, int]]:
        """For each constraint, how many pods it means there are in each of its domains."""
        counts: list[dict[str, int]] = [{} for _ in self._constraints]
        for info in self._nodes:
            if info.node is None or not has_keys(info.labels, self._constraints):
                continue
            for constraint, of in zip(self._constraints, counts, strict=True):
                if suits(self._pod, info.node, constraint):
                    value = info.labels[constraint.key]
                    of[value] = of.get(value, 0) + self._on(info, constraint)
        return counts

    def _on(self, info: NodeInfo, constraint: Constraint) -> int:
        selector, namespace = constraint.selector, self._pod.key.namespace
        if selector is None or not selector.terms:
            return 0
        return sum(
            pod.key.namespace == namespace
            and pod.metadata.deletion_timestamp is None
            and selector.matches(pod.metadata.labels)
            for pod in info.pods.values()
        )

    @cached_property
    def ranked(self) -> list[list[tuple[int, str]]]:
        """For each constraint its domains, the emptiest first."""
        return [sorted((count, value) for value, count in of.items()) for of in self.counts]


class HandCount:
    """A census, and what a what-if has changed since."""

    def __init__(
        self,
        pod: PodInfo,
        constraints: Sequence[Constraint],
        census: Census,
        changes: Sequence[dict[str, int]] | None = None,
    ) -> None:
        self._pod = pod
        self._constraints = constraints
        self._census = census
        self._changes = [dict(each) for each in changes] if changes is not None else [{} for _ in constraints]

    def clone(self) -> HandCount:
        """Return a copy that may be changed by itself."""
        return HandCount(self._pod, self._constraints, self._census, self._changes)

    def change(self, other: PodInfo, node: Node, by: int) -> None:
        """Follow a pod put on (1) or taken off (-1) the node.

        As upstream, this looks neither at whether the pod terminates nor for an empty selector.
        """
        if other.key.namespace != self._pod.key.namespace or not has_keys(node.metadata.labels, self._constraints):
            return
        for constraint, changes in zip(self._constraints, self._changes, strict=True):
            if constraint.means(other.metadata.labels) and suits(self._pod, node, constraint):
                value = node.metadata.labels[constraint.key]
                changes[value] = changes.get(value, 0) + by

    def skew(self, index: int, value: str) -> int:
        """Return how far the domain would lie above the emptiest one with the pod in it."""
        constraint = self._constraints[index]
        counts, changes = self._census.counts[index], self._changes[index]
        there = counts.get(value, 0) + changes.get(value, 0)
        return there + constraint.means(self._pod.metadata.labels) - self._least(index)

    def _least(self, index: int) -> int:
        counts, changes = self._census.counts[index], self._changes[index]
        if len(counts) < self._constraints[index].min_domains:
            return 0
        untouched = next((count for count, value in self._census.ranked[index] if value not in changes), None)
        touched = [counts[value] + change for value, change in changes.items() if value in counts]
        return min((*touched, *(() if untouched is None else (untouched,))), default=0)
