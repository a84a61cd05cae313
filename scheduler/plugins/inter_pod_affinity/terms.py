"""The incoming pod's terms with their namespaces filled in, and questions about existing pods made of them.

Source: scheduler-queue-and-cycles 6, 12.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler.cache.node_info import PodInfo, PodTerm, PodTerms
from scheduler.cache.pod_index import Clause, Question
from scheduler.framework.world import World
from services.api.kinds.namespace import Namespace
from services.api.meta import Key

NO_LABELS: Mapping[str, str] = {}


def namespace_labels(world: World, name: str) -> Mapping[str, str]:
    """Return the namespace's labels; none when it is not known."""
    found = world.get(Namespace, Key("", name))
    return found.metadata.labels if found is not None else NO_LABELS


def unrolled(terms: PodTerms, world: World) -> PodTerms:
    """Return the terms with namespace selectors replaced by the namespaces they select now.

    An empty selector stays: it means every namespace, those that are not known, too.
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
    """Whether an unrolled term means a pod of that namespace with these labels."""
    return term.matches(namespace, labels, NO_LABELS)


def means_all(terms: Sequence[PodTerm], namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether there are terms and every one means the pod; only then the pod counts for affinity (12.4)."""
    return bool(terms) and all(means(term, namespace, labels) for term in terms)


def question(terms: Sequence[PodTerm]) -> Question | None:
    """Return which existing pods all the unrolled terms mean; None when no pod can."""
    clauses: list[Clause] = []
    for term in terms:
        if term.selector is None:
            return None
        clauses.append(Clause(None if term.namespace_selector is not None else term.namespaces, term.selector))
    return Question(tuple(clauses))


def has_no_terms(pod: PodInfo) -> bool:
    """Whether the pod has no required terms."""
    return not pod.terms.required_affinity and not pod.terms.required_anti_affinity
