"""Node selectors and required node affinity: the nodes to which a pod may go, for one node and for all.

Not only NodeAffinity uses them: topology spreading counts eligible nodes, volumes and storage classes have
node selectors of their own, and `explain` shows what is missing. Source: upstream
`staging/src/k8s.io/component-helpers/scheduling/corev1/nodeaffinity`.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from scheduler.cache.columns import NAME_FIELD, Columns, Mask
from scheduler.cache.node_info import PodInfo
from services.api.kinds.node import Node
from services.api.kinds.pod import NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm
from services.api.node_selection import accepts, is_met, may_go_to


def _requirements(term: NodeSelectorTerm) -> tuple[tuple[str, NodeSelectorRequirement], ...]:
    fields = tuple((NAME_FIELD, r) for r in term.match_fields if r.key == NAME_FIELD)
    if len(fields) != len(term.match_fields):
        return ()
    return (*((r.key, r) for r in term.match_expressions), *fields)


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """Whether the node satisfies every requirement; an empty term matches nothing."""
    return is_met(term, node.metadata.name, node.metadata.labels)


def term_mask(term: NodeSelectorTerm, columns: Columns) -> Mask:
    """Return the rows that satisfy every requirement of the term."""
    mask: Mask | None = None
    for key, requirement in _requirements(term):
        part = _requirement_mask(key, requirement, columns)
        mask = part if mask is None else mask & part
    return columns.full(False) if mask is None else mask


def _requirement_mask(key: str, requirement: NodeSelectorRequirement, columns: Columns) -> Mask:
    ids, values = columns.label_ids(key)
    wanted: list[int] = [values[v] for v in requirement.values if v in values]
    result: Mask
    match requirement.operator:
        case "In" if len(wanted) == 1:
            result = ids == wanted[0]
        case "In":
            result = np.isin(ids, wanted)
        case "NotIn":
            result = ~np.isin(ids, wanted)
        case "Exists":
            result = ids != 0
        case "DoesNotExist":
            result = ids == 0
        case _:
            result = columns.label_mask(key, lambda value: accepts(requirement, value))
    return result


def _selector_term(selector: Mapping[str, str]) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=tuple(
            NodeSelectorRequirement(key=k, operator="In", values=(v,)) for k, v in sorted(selector.items())
        )
    )


def affinity_of(pod: PodInfo) -> NodeAffinity | None:
    """Return the pod's own node affinity."""
    return pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None


def matches_required(pod: PodInfo, node: Node) -> bool:
    """Whether the node satisfies the pod's node selector and its own required node affinity."""
    return may_go_to(pod.spec, node.metadata.name, node.metadata.labels)


def required_mask(pod: PodInfo, columns: Columns) -> Mask | None:
    """Return the rows that satisfy both; None when the pod has neither."""
    mask = term_mask(_selector_term(pod.spec.node_selector), columns) if pod.spec.node_selector else None
    affinity = affinity_of(pod)
    if affinity is None or affinity.required is None:
        return mask
    required = terms_mask(affinity.required.node_selector_terms, columns)
    return required if mask is None else mask & required


def terms_mask(terms: Sequence[NodeSelectorTerm], columns: Columns) -> Mask:
    """Return the rows that satisfy any of the terms; no row without terms."""
    mask = columns.full(False)
    for term in terms:
        mask |= term_mask(term, columns)
    return mask
