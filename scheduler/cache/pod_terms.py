"""What pods say of other pods, compiled once: label selectors, and terms of pod affinity and anti-affinity.

A selector that is missing selects nothing, an empty one everything; so does one that the API server would
have refused: it selects nothing, because one odd pod must not stop all others.
Source: scheduler-queue-and-cycles 6, 12.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from services.api.kinds.pod import Affinity, Pod, PodAffinityTerm
from services.api.meta import LabelSelector, LabelSelectorRequirement
from services.api.selectors import Selector, Term, from_label_selector

SELECTORS_MAX: Final = 16384


@lru_cache(maxsize=SELECTORS_MAX)
def _compiled(labels: tuple[tuple[str, str], ...], wanted: tuple[LabelSelectorRequirement, ...]) -> Selector | None:
    try:
        return from_label_selector(LabelSelector(match_labels=dict(labels), match_expressions=wanted))
    except ValueError:
        return None


def compile_selector(selector: LabelSelector | None) -> Selector | None:
    """Return the matcher, shared by equal selectors; None selects nothing."""
    if selector is None:
        return None
    return _compiled(tuple(selector.match_labels.items()), selector.match_expressions)


def with_labels(selector: Selector | None, labels: Iterable[tuple[str, str]]) -> Selector | None:
    """Return the selector that also asks for these labels; no labels change nothing."""
    more = tuple(Term(key, "in", (value,)) for key, value in labels)
    if not more:
        return selector
    return Selector(more + (selector.terms if selector is not None else ()))


class Identity(NamedTuple):
    """What selectors distinguish pods by; `labels` are sorted pairs."""

    namespace: str
    labels: tuple[tuple[str, str], ...]
    is_terminating: bool


def identity_of(pod: Pod) -> Identity:
    """Return the pod's identity."""
    meta = pod.metadata
    return Identity(meta.namespace, tuple(sorted(meta.labels.items())), meta.deletion_timestamp is not None)


class PodTerm(NamedTuple):
    """Pods in the namespaces whose labels match, grouped by a node label.

    A pod's namespace matches by name, or by its labels if there is a namespace selector.
    """

    namespaces: frozenset[str]
    namespace_selector: Selector | None
    selector: Selector | None
    topology_key: str

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Whether the term means a pod of that namespace with these labels."""
        if self.selector is None or not self.selector.matches(labels):
            return False
        return namespace in self.namespaces or (
            self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)
        )


class WeightedTerm(NamedTuple):
    """A preferred term."""

    weight: int
    term: PodTerm


class PodTerms(NamedTuple):
    """All that one pod says of others."""

    required_affinity: tuple[PodTerm, ...] = ()
    required_anti_affinity: tuple[PodTerm, ...] = ()
    preferred_affinity: tuple[WeightedTerm, ...] = ()
    preferred_anti_affinity: tuple[WeightedTerm, ...] = ()


NO_TERMS: Final = PodTerms()


def terms_of(pod: Pod) -> PodTerms:
    """Return the pod's terms; without namespaces and namespace selector a term means the pod's own namespace."""
    affinity: Affinity | None = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    own = pod.metadata.namespace
    likes, dislikes = affinity.pod_affinity, affinity.pod_anti_affinity
    return PodTerms(
        required_affinity=tuple(_term(t, own) for t in likes.required) if likes else (),
        required_anti_affinity=tuple(_term(t, own) for t in dislikes.required) if dislikes else (),
        preferred_affinity=tuple(WeightedTerm(t.weight, _term(t.pod_affinity_term, own)) for t in likes.preferred)
        if likes
        else (),
        preferred_anti_affinity=tuple(
            WeightedTerm(t.weight, _term(t.pod_affinity_term, own)) for t in dislikes.preferred
        )
        if dislikes
        else (),
    )


def _term(term: PodAffinityTerm, own: str) -> PodTerm:
    names = frozenset(term.namespaces)
    if not names and term.namespace_selector is None:
        names = frozenset((own,))
    return PodTerm(
        namespaces=names,
        namespace_selector=compile_selector(term.namespace_selector),
        selector=compile_selector(term.label_selector),
        topology_key=term.topology_key,
    )
