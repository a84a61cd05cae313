"""A pod's spread constraints, compiled: its own, or the cluster's defaults with the selector of its owners.

It also has the nodes that form the domains of the spread.

Source: scheduler-queue-and-cycles 6, 12.5.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from scheduler.cache.columns import Columns
from scheduler.cache.node_info import NodeInfo, PodInfo, compile_selector, with_labels
from scheduler.cache.node_selection import matches_required, required_mask
from scheduler.cache.pod_index import Area, Clause, Question
from scheduler.framework.world import World
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod, TopologySpreadConstraint
from services.api.kinds.replicaset import ReplicaSet
from services.api.kinds.service import Service
from services.api.kinds.statefulset import StatefulSet
from services.api.lru import LRU
from services.api.meta import Key
from services.api.selectors import Selector, Term
from services.api.taints import NO_EXECUTE, NO_SCHEDULE, untolerated_taint

HONOR: Final = "Honor"
_OWNERS: Final[Mapping[tuple[str, str], type[ReplicaSet] | type[StatefulSet]]] = {
    ("apps/v1", "ReplicaSet"): ReplicaSet,
    ("apps/v1", "StatefulSet"): StatefulSet,
}
"""Kinds of owners whose selectors identify the pods that belong together."""
NO_POD: Final = Question((Clause(frozenset(), Selector()),))


class Constraint(NamedTuple):
    """One constraint with the defaults filled in. `selector` None selects nothing."""

    max_skew: int
    key: str
    selector: Selector | None
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False

    def means(self, labels: Mapping[str, str]) -> bool:
        """Whether the constraint matches a pod with these labels, so that placing the pod adds to a domain."""
        return self.selector is not None and self.selector.matches(labels)

    def question(self, namespace: str) -> Question:
        """Return the question for the existing pods that count.

        An empty selector counts none, although it selects every pod (12.5).
        """
        if self.selector is None or not self.selector.terms:
            return NO_POD
        return Question((Clause(frozenset((namespace,)), self.selector),), with_terminating=False)


def compile_constraint(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> Constraint:
    """Return the constraint for a pod with these labels; `matchLabelKeys` add their values to the selector."""
    selector = with_labels(
        compile_selector(constraint.label_selector),
        ((key, labels[key]) for key in constraint.match_label_keys if key in labels),
    )
    return Constraint(
        constraint.max_skew,
        constraint.topology_key,
        selector,
        1 if constraint.min_domains is None else constraint.min_domains,
        (constraint.node_affinity_policy or HONOR) == HONOR,
        constraint.node_taints_policy == HONOR,
    )


class Constraints:
    """The constraints of pods. `is_system`: the defaults are upstream's own, not an administrator's."""

    def __init__(self, world: World, defaults: Sequence[TopologySpreadConstraint], *, is_system: bool) -> None:
        self._world = world
        self._defaults = tuple(defaults)
        self._default_actions = frozenset(each.when_unsatisfiable for each in defaults)
        self._is_system = is_system

    def of(self, pod: PodInfo, action: str) -> tuple[Constraint, ...]:
        """Return the pod's constraints with that `whenUnsatisfiable`."""
        labels, own = pod.metadata.labels, pod.spec.topology_spread_constraints
        if own:
            return tuple(compile_constraint(each, labels) for each in own if each.when_unsatisfiable == action)
        if action not in self._default_actions:
            return ()
        selector = default_selector(pod.pod, self._world)
        if not selector.terms:
            return ()
        return tuple(
            compile_constraint(each, labels)._replace(selector=selector)
            for each in self._defaults
            if each.when_unsatisfiable == action
        )

    def needs_all_keys(self, pod: PodInfo) -> bool:
        """Whether a node without one of the keys is left out; upstream's own defaults tolerate it."""
        return bool(pod.spec.topology_spread_constraints) or not self._is_system


def default_selector(pod: Pod, world: World) -> Selector:
    """Return the combined selector of all services that select the pod, and of the workload that owns it."""
    meta = pod.metadata
    labels: dict[str, str] = {}
    for service in world.all(Service, meta.namespace):
        wanted = service.spec.selector
        if wanted and wanted.items() <= meta.labels.items():
            labels.update(wanted)
    terms = tuple(Term(key, "in", (value,)) for key, value in sorted(labels.items()))
    owner = meta.controller
    view = _OWNERS.get((owner.api_version, owner.kind)) if owner is not None else None
    if owner is not None and view is not None:
        owned_by = world.get(view, Key(meta.namespace, owner.name))
        selector = compile_selector(owned_by.spec.selector) if owned_by is not None else None
        if selector is not None:
            terms += selector.terms
    return Selector(terms)


AREAS_MAX: Final = 128
REPELLING: Final = (NO_SCHEDULE, NO_EXECUTE)


class Areas:
    """Cached areas, valid while no node changes its labels or taints."""

    def __init__(self) -> None:
        self._known: LRU[Hashable, tuple[int, Area]] = LRU(AREAS_MAX)

    def of(self, pod: PodInfo, columns: Columns, keys: tuple[str, ...], by: Constraint | None = None) -> Area:
        """Return the rows that have all the labels and, as far as the constraint honours them, suit the pod.

        Honoured affinity is node selector and required node affinity; taints are NoSchedule and NoExecute (12.5).
        """
        spec = pod.spec
        honors_affinity, honors_taints = by is not None and by.honors_affinity, by is not None and by.honors_taints
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        wanted = affinity.required if affinity is not None else None
        chosen = (tuple(sorted(spec.node_selector.items())), wanted) if honors_affinity else ((), None)
        name = (keys, chosen, spec.tolerations if honors_taints else None)
        known = self._known.get(name)
        if known is not None and known[0] == columns.layout:
            return known[1]
        mask = columns.valid.copy()
        for key in keys:
            mask &= columns.label_ids(key)[0] != 0
        if honors_affinity and (suited := required_mask(pod, columns)) is not None:
            mask &= suited
        if honors_taints:
            tolerated = columns.taint_mask(
                lambda taints: untolerated_taint(taints, spec.tolerations, REPELLING) is None
            )
            mask = mask if tolerated is None else mask & tolerated
        area = Area(name, mask)
        self._known.put(name, (columns.layout, area))
        return area


def has_keys(labels: Mapping[str, str], constraints: Iterable[Constraint]) -> bool:
    """Whether a node with these labels has every constraint's key; without one it is in no domain (12.5)."""
    return all(each.key in labels for each in constraints)


def suits(pod: PodInfo, node: Node, constraint: Constraint) -> bool:
    """Whether the constraint's policies let the node form a domain for the pod."""
    if constraint.honors_affinity and not matches_required(pod, node):
        return False
    return not constraint.honors_taints or untolerated_taint(node.spec.taints, pod.spec.tolerations, REPELLING) is None


class Census:
    """Spreading by the plain rule, for one node: pods are counted one after the other, at the first request.

    It is used for hypothetical nodes, for which the counts of all nodes do not hold, and tests compare both.
    """

    def __init__(self, pod: PodInfo, constraints: Sequence[Constraint], nodes: Iterable[NodeInfo]) -> None:
        self.pod, self.constraints = pod, constraints
        self._nodes = nodes

    @cached_property
    def counts(self) -> list[dict[str, int]]:
        """The number of matching pods by domain, for each constraint."""
        counts: list[dict[str, int]] = [{} for _ in self.constraints]
        for info in self._nodes:
            if info.node is None or not has_keys(info.labels, self.constraints):
                continue
            for constraint, of in zip(self.constraints, counts, strict=True):
                if suits(self.pod, info.node, constraint):
                    value = info.labels[constraint.key]
                    of[value] = of.get(value, 0) + self._on(info, constraint)
        return counts

    def _on(self, info: NodeInfo, constraint: Constraint) -> int:
        selector, namespace = constraint.selector, self.pod.key.namespace
        if selector is None or not selector.terms:
            return 0
        return sum(
            pod.key.namespace == namespace
            and pod.metadata.deletion_timestamp is None
            and selector.matches(pod.metadata.labels)
            for pod in info.pods.values()
        )

    @cached_property
    def domains_by_count(self) -> list[list[tuple[int, str]]]:
        """The domains of each constraint, the emptiest first."""
        return [sorted((count, value) for value, count in of.items()) for of in self.counts]


class HandCount:
    """A census, and the changes of a what-if since."""

    def __init__(self, census: Census, changes: Sequence[dict[str, int]]) -> None:
        self._census, self._pod, self._constraints = census, census.pod, census.constraints
        self._changes = [dict(each) for each in changes]

    def clone(self) -> HandCount:
        """Return a copy that can be changed independently."""
        return HandCount(self._census, self._changes)

    def change(self, other: PodInfo, node: Node, by: int) -> None:
        """Count a pod put on (1) or taken off (-1) the node.

        As upstream, this ignores whether the pod terminates and whether the selector is empty.
        """
        if other.key.namespace != self._pod.key.namespace or not has_keys(node.metadata.labels, self._constraints):
            return
        for constraint, changes in zip(self._constraints, self._changes, strict=True):
            if constraint.means(other.metadata.labels) and suits(self._pod, node, constraint):
                value = node.metadata.labels[constraint.key]
                changes[value] = changes.get(value, 0) + by

    def skew(self, index: int, value: str) -> int:
        """Return how far the domain would be above the emptiest one with the pod in it."""
        constraint = self._constraints[index]
        counts, changes = self._census.counts[index], self._changes[index]
        there = counts.get(value, 0) + changes.get(value, 0)
        return there + constraint.means(self._pod.metadata.labels) - self._least(index)

    def _least(self, index: int) -> int:
        counts, changes = self._census.counts[index], self._changes[index]
        if len(counts) < self._constraints[index].min_domains:
            return 0
        untouched = next((count for count, value in self._census.domains_by_count[index] if value not in changes), None)
        touched = [counts[value] + change for value, change in changes.items() if value in counts]
        return min((*touched, *(() if untouched is None else (untouched,))), default=0)
