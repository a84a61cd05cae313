"""Node selection of a pod, for one node: node selector and required node affinity.

The kubelet and the controllers share this rule; the scheduler has a second form of it, over all nodes at once.
"""

from collections.abc import Mapping

from services.api.kinds.pod import NodeSelectorRequirement, NodeSelectorTerm, PodSpec

NAME_FIELD = "metadata.name"
"""The only field that `matchFields` supports."""


def integer_of(text: str | None) -> int | None:
    """Return the integer that a label value or a bound represents, or None."""
    if text is None or not text.removeprefix("-").removeprefix("+").isdecimal() or len(text) > 20:
        return None
    return int(text)


def accepts(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    """Whether a label value (None: missing) satisfies the requirement; NotIn holds for a missing label."""
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            number = integer_of(value)
            bound = integer_of(requirement.values[0]) if len(requirement.values) == 1 else None
            if number is not None and bound is not None:
                return number > bound if requirement.operator == "Gt" else number < bound
    return False


def is_met(term: NodeSelectorTerm, node_name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node of that name and those labels satisfies every requirement; an empty term matches nothing."""
    if not (term.match_expressions or term.match_fields):
        return False
    return all(accepts(each, labels.get(each.key)) for each in term.match_expressions) and all(
        each.key == NAME_FIELD and accepts(each, node_name) for each in term.match_fields
    )


def may_go_to(spec: PodSpec, node_name: str, labels: Mapping[str, str]) -> bool:
    """Whether such a node satisfies a pod's node selector and its required node affinity."""
    for key, value in spec.node_selector.items():
        if labels.get(key) != value:
            return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    return any(is_met(term, node_name, labels) for term in affinity.required.node_selector_terms)
