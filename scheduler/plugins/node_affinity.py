"""PreFilter, Filter, Score: nodeSelector and node affinity, over interned label values.
Source: scheduler-queue-and-cycles 4.2, 6; upstream `pkg/scheduler/framework/plugins/nodeaffinity`."""

import json
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from scheduler.cache.columns import NAME_FIELD, Columns, Mask, Scores
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.cache.node_selection import (
    affinity_of,
    matches_required,
    required_mask,
    term_mask,
    term_matches,
    terms_mask,
)
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import NODE, Action, ClusterEvent, Hint, Registration, queue_if
from scheduler.framework.plugin import PreFilterResult
from scheduler.framework.runner import default_normalize
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, error_status, unresolvable
from scheduler.framework.vectorized import Refusal
from services.api.kinds.node import Node
from services.api.kinds.pod import NodeAffinity as NodeAffinitySpec
from services.api.kinds.pod import NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm
from services.api.label_syntax import value_problem
from services.api.node_selection import integer_of

REASON: Final = "node(s) didn't match Pod's node affinity/selector"
ENFORCED_REASON: Final = "node(s) didn't match scheduler-enforced node affinity"


def _problems(terms: Iterable[PreferredSchedulingTerm]) -> str:
    """Return all that is wrong with preferred terms, which the API server lets through (12.8), or ""."""
    problems = {
        f"[{i}].matchExpressions[{j}].values{problem}": None
        for i, term in enumerate(terms)
        if term.weight
        for j, requirement in enumerate(term.preference.match_expressions)
        for problem in _problems_of(requirement)
    }
    return f"[{', '.join(problems)}]" if len(problems) > 1 else "".join(problems)


def _problems_of(requirement: NodeSelectorRequirement) -> Iterator[str]:
    """Yield what is wrong with the values: first as numbers, then as values of labels."""
    spelled = [json.dumps(value, ensure_ascii=False) for value in requirement.values]
    if requirement.operator in ("Gt", "Lt"):
        if len(spelled) != 1:
            yield f": Invalid value: [{','.join(spelled)}]: for 'Gt', 'Lt' operators, exactly one value is required"
        for k, value in enumerate(requirement.values):
            if integer_of(value) is None:
                yield f"[{k}]: Invalid value: {spelled[k]}: for 'Gt', 'Lt' operators, the value must be an integer"
    for k, value in enumerate(requirement.values):
        if problem := value_problem(value):
            yield f"[{k}][{requirement.key}]: Invalid value: {spelled[k]}: {problem}"


class NodeAffinityArgs(Args, frozen=True):
    """The plugin's arguments.

    `added_affinity` is the administrator's, for every pod of the profile, besides the pod's own.
    """

    added_affinity: NodeAffinitySpec | None = None


class NodeAffinity:
    """The plugin for the pod's own affinity and the administrator's added one."""

    name = "NodeAffinity"

    def __init__(self, args: NodeAffinityArgs, handle: Handle) -> None:
        self._added = args.added_affinity or NodeAffinitySpec()

    def row_signature(self, pod: PodInfo) -> Hashable:
        """Return the selector and the affinity."""
        return (tuple(sorted(pod.spec.node_selector.items())), affinity_of(pod))

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> PreFilterResult | Status:
        """Skip pods without selector and affinity, and narrow to the names that every term's matchFields allow."""
        affinity = affinity_of(pod)
        required = affinity.required if affinity is not None else None
        if required is None:
            return SKIP if not pod.spec.node_selector and self._added.required is None else SUCCESS
        names: dict[str, None] = {}
        for term in required.node_selector_terms:
            named: set[str] | None = None
            for field in term.match_fields:
                if field.key == NAME_FIELD and field.operator == "In":
                    named = set(field.values) if named is None else named & set(field.values)
            if named is None:
                return SUCCESS
            names.update(dict.fromkeys(sorted(named)))
        if not required.node_selector_terms:
            return SUCCESS
        if not names:
            return unresolvable("pod affinity terms conflict")
        return PreFilterResult(node_names=tuple(names))

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Reject the node when selector or required affinity does not match."""
        if node.node is None:
            return SUCCESS
        if self._added.required is not None and not self._matches_added(node.node):
            return unresolvable(ENFORCED_REASON)
        return SUCCESS if matches_required(pod, node.node) else unresolvable(REASON)

    def _matches_added(self, node: Node) -> bool:
        added = self._added.required
        return added is None or any(term_matches(term, node) for term in added.node_selector_terms)

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None:
        """Return the rows that match both."""
        enforced, own = self._enforced_mask(columns), required_mask(pod, columns)
        if enforced is None or own is None:
            return own if enforced is None else enforced
        return enforced & own

    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Return the refusals; the administrator's affinity is checked first."""
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        enforced = self._enforced_mask(columns)
        if enforced is None:
            return [Refusal(REASON, refused, code)]
        return [Refusal(ENFORCED_REASON, refused & ~enforced, code), Refusal(REASON, refused & enforced, code)]

    def _enforced_mask(self, columns: Columns) -> Mask | None:
        if self._added.required is None:
            return None
        return terms_mask(self._added.required.node_selector_terms, columns)

    def pre_score(self, state: CycleState, pod: PodInfo, columns: Columns, feasible: Mask) -> Status:
        """Skip without preferred terms; reject invalid terms."""
        if not self._preferred_terms(pod):
            return SKIP
        affinity = affinity_of(pod)
        problems = _problems(affinity.preferred) if affinity is not None else ""
        return error_status(problems) if problems else SUCCESS

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Sum the weights of the preferred terms that match."""
        if node.node is None:
            return 0
        return sum(weight for weight, term in self._preferred_terms(pod) if weight and term_matches(term, node.node))

    def score_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Scores | int:
        """Return the sum for every row."""
        terms = [(weight, term) for weight, term in self._preferred_terms(pod) if weight]
        if not terms:
            return 0
        total = np.zeros(columns.capacity)
        for weight, term in terms:
            total[term_mask(term, columns)] += weight
        return total

    def normalize(self, state: CycleState, raw: Scores | int, feasible: Mask) -> Scores | int:
        """Scale the best sum to 100."""
        return default_normalize(raw, feasible, reverse=False)

    def _preferred_terms(self, pod: PodInfo) -> list[tuple[int, NodeSelectorTerm]]:
        affinity = affinity_of(pod)
        own = affinity.preferred if affinity is not None else ()
        return [(p.weight, p.preference) for p in (*self._added.preferred, *own)]

    def events_to_register(self) -> Sequence[Registration]:
        """Return the events: a node comes, or changes its labels."""
        return (Registration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_LABEL), self._matches_now),)

    def _matches_now(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        was, matches = (
            each is not None and self._matches_added(each) and matches_required(pod, each) for each in (old, new)
        )
        return queue_if(matches and not was)


PLUGIN = PluginEntry("NodeAffinity", NodeAffinity, args=NodeAffinityArgs)
