"""The incoming pod's terms with their namespaces resolved, and the questions about existing pods.

Source: scheduler-queue-and-cycles 6, 12.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from scheduler.cache.node_info import NodeInfo, PodInfo, PodTerm, PodTerms, count
from scheduler.cache.pod_index import Clause, Question
from scheduler.framework.world import World
from services.api.kinds.namespace import Namespace
from services.api.meta import Key

NO_LABELS: Mapping[str, str] = {}


def namespace_labels(world: World, name: str) -> Mapping[str, str]:
    """Return the namespace's labels; empty when it is not known."""
    found = world.get(Namespace, Key("", name))
    return found.metadata.labels if found is not None else NO_LABELS


def unroll_namespaces(terms: PodTerms, world: World) -> PodTerms:
    """Return the terms with namespace selectors replaced by the namespaces they select now.

    An empty selector stays: it selects every namespace, unknown ones too.
    """

    def names(term: PodTerm) -> PodTerm:
        selector = term.namespace_selector
        if selector is None or not selector.terms:
            return term
        selected = (each.metadata.name for each in world.all(Namespace) if selector.matches(each.metadata.labels))
        return term._replace(namespaces=term.namespaces.union(selected), namespace_selector=None)

    return PodTerms(
        required_affinity=tuple(names(term) for term in terms.required_affinity),
        required_anti_affinity=tuple(names(term) for term in terms.required_anti_affinity),
        preferred_affinity=tuple(each._replace(term=names(each.term)) for each in terms.preferred_affinity),
        preferred_anti_affinity=tuple(each._replace(term=names(each.term)) for each in terms.preferred_anti_affinity),
    )


def means(term: PodTerm, namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether an unrolled term matches a pod of that namespace with these labels."""
    return term.matches(namespace, labels, NO_LABELS)


def means_all(terms: Sequence[PodTerm], namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether there are terms and all of them match the pod; only then the pod counts for affinity (12.4)."""
    return bool(terms) and all(means(term, namespace, labels) for term in terms)


def question(terms: Sequence[PodTerm]) -> Question | None:
    """Return the question for the existing pods that all the unrolled terms match; None when no pod can match."""
    clauses: list[Clause] = []
    for term in terms:
        if term.selector is None:
            return None
        clauses.append(Clause(None if term.namespace_selector is not None else term.namespaces, term.selector))
    return Question(tuple(clauses))


def has_no_terms(pod: PodInfo) -> bool:
    """Whether the pod has no required terms."""
    return not pod.terms.required_affinity and not pod.terms.required_anti_affinity


Pair = tuple[str, str]
Counts = dict[Pair, int]
"""Pods by label and value of the node they are on; values that fall to zero are dropped."""


class Neighbours:
    """Pod affinity by the plain rule, for one node: pods are counted one after the other.

    It is used for hypothetical nodes, for which the counts of all nodes do not hold, and tests compare both.
    Three counts: pods that the pod's affinity matches, pods that its anti-affinity matches, and pods whose
    anti-affinity matches it.

    `terms` are the pod's own, unrolled; existing pods' terms are matched with the labels of the pod's
    namespace.
    """

    def __init__(self, pod: PodInfo, terms: PodTerms, namespace_labels: Mapping[str, str]) -> None:
        self._pod = pod
        self._terms = terms
        self._namespace_labels = namespace_labels
        self.wanted: Counts = {}
        self.unwanted: Counts = {}
        self.hostile: Counts = {}

    def change(self, other: PodInfo, node_labels: Mapping[str, str], by: int) -> None:
        """Count a pod put on (1) or taken off (-1) a node with these labels."""
        pod, labels = self._pod, other.metadata.labels
        for term in other.terms.required_anti_affinity:
            if term.matches(pod.key.namespace, pod.metadata.labels, self._namespace_labels):
                _count(self.hostile, term.topology_key, node_labels, by)
        if means_all(self._terms.required_affinity, other.key.namespace, labels):
            for term in self._terms.required_affinity:
                _count(self.wanted, term.topology_key, node_labels, by)
        for term in self._terms.required_anti_affinity:
            if means(term, other.key.namespace, labels):
                _count(self.unwanted, term.topology_key, node_labels, by)


def _count(counts: Counts, key: str, labels: Mapping[str, str], by: int) -> None:
    if key in labels:
        count(counts, (key, labels[key]), by)


class Census:
    """The present cluster, counted at the first request."""

    def __init__(
        self, pod: PodInfo, terms: PodTerms, namespace_labels: Mapping[str, str], nodes: Iterable[NodeInfo]
    ) -> None:
        self.pod, self.terms, self.namespace_labels = pod, terms, namespace_labels
        self._nodes = nodes

    @cached_property
    def counts(self) -> Neighbours:
        """The counts of all pods on known nodes, terminating ones included."""
        counts = Neighbours(self.pod, self.terms, self.namespace_labels)
        for info in self._nodes:
            if info.node is not None:
                for other in info.pods.values():
                    counts.change(other, info.labels, 1)
        return counts


class HandCount:
    """A census, and the changes of a what-if since."""

    def __init__(self, census: Census) -> None:
        self._census = census
        self._changes = Neighbours(census.pod, census.terms, census.namespace_labels)

    def clone(self) -> HandCount:
        """Return a copy that can be changed independently."""
        copy = HandCount(self._census)
        mine, other = self._changes, copy._changes
        other.wanted, other.unwanted, other.hostile = dict(mine.wanted), dict(mine.unwanted), dict(mine.hostile)
        return copy

    def change(self, other: PodInfo, node_labels: Mapping[str, str], by: int) -> None:
        """Count a pod put on (1) or taken off (-1) a node with these labels."""
        self._changes.change(other, node_labels, by)

    def has_wanted(self, node_labels: Mapping[str, str]) -> bool:
        """Whether the node has every key of the affinity, and the matching pods are there or nowhere yet.

        The first pod of a set whose pods have affinity to each other has no pod to join: it may go anywhere (12.4).
        """
        terms = self._census.terms.required_affinity
        if any(term.topology_key not in node_labels for term in terms):
            return False
        pairs = [(term.topology_key, node_labels[term.topology_key]) for term in terms]
        there, changes = self._census.counts.wanted, self._changes.wanted
        if all(there.get(pair, 0) + changes.get(pair, 0) > 0 for pair in pairs):
            return True
        is_untouched = len(changes) < len(there) or any(pair not in changes for pair in there)
        if is_untouched or any(there.get(pair, 0) + change for pair, change in changes.items()):
            return False  # A matching pod is somewhere else.
        pod = self._census.pod
        return means_all(terms, pod.key.namespace, pod.metadata.labels)

    def has_unwanted(self, node_labels: Mapping[str, str]) -> bool:
        """Whether a pod that its anti-affinity matches is in one of the node's domains."""
        there, changes = self._census.counts.unwanted, self._changes.unwanted
        keys = (term.topology_key for term in self._census.terms.required_anti_affinity)
        pairs = ((key, node_labels[key]) for key in keys if key in node_labels)
        return any(there.get(pair, 0) + changes.get(pair, 0) > 0 for pair in pairs)

    def is_hostile(self, node_labels: Mapping[str, str]) -> bool:
        """Whether the anti-affinity of a pod in one of the node's domains matches this pod."""
        there, changes = self._census.counts.hostile, self._changes.hostile
        return any(there.get(pair, 0) + changes.get(pair, 0) > 0 for pair in node_labels.items())
