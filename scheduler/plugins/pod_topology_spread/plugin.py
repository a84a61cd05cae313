"""Filter and Score: spread pods that match a selector evenly over the values of a node label.

Hard constraints reject, soft ones score; pods without constraints get the cluster's defaults, with the
selector of the services and the workload they belong to. In scoring, the fuller a node's domains are, the
higher its raw score, and the worse its rank.

Source: KEP-895, KEP-1258, KEP-3022, KEP-3094, KEP-3243; scheduler-queue-and-cycles 6 and 12.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from scheduler.cache.cache import ZONE
from scheduler.cache.columns import Columns, Floats, Mask, Scores
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.cache.node_selection import matches_required
from scheduler.cache.pod_index import Area, Grouping, Tally
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import NODE, POD, Action, ClusterEvent, Hint, Registration, queue_if
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, unresolvable, unschedulable
from scheduler.framework.vectorized import Refusal
from scheduler.plugins.pod_topology_spread.constraints import (
    Areas,
    Census,
    Constraint,
    Constraints,
    HandCount,
    has_keys,
)
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod, TopologySpreadConstraint

HOSTNAME: Final = "kubernetes.io/hostname"
HARD: Final = "DoNotSchedule"
SOFT: Final = "ScheduleAnyway"
REASON: Final = "node(s) didn't match pod topology spread constraints"
MISSING_LABEL: Final = REASON + " (missing required label)"
SYSTEM_DEFAULTS: Final = (
    TopologySpreadConstraint(topology_key=HOSTNAME, when_unsatisfiable=SOFT, max_skew=3),
    TopologySpreadConstraint(topology_key=ZONE, when_unsatisfiable=SOFT, max_skew=5),
)


@dataclass(slots=True)
class Hard:
    """The state of PreFilter: the counts for each constraint, and the same for single nodes."""

    constraints: tuple[Constraint, ...]
    groupings: tuple[Grouping, ...]
    hand: HandCount

    def clone(self) -> Hard:
        """Return a copy for a what-if."""
        return replace(self, hand=self.hand.clone())


class DomainLoad(NamedTuple):
    """The state of PreScore: the raw score of each row, and the rows that lack a key (None: none), which get 0."""

    raw: Floats
    ignored: Mask | None


class PodTopologySpreadArgs(Args, frozen=True):
    """`defaultingType` System means upstream's defaults, List the constraints given here."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: str = "System"


class PodTopologySpread:
    """The plugin: hard constraints reject, soft ones score; the arguments have those of pods without any."""

    name = "PodTopologySpread"

    def __init__(self, args: PodTopologySpreadArgs, handle: Handle) -> None:
        self._cache = handle.cache
        is_system = args.defaulting_type == "System"
        defaults = SYSTEM_DEFAULTS if is_system else args.default_constraints
        self._constraints = Constraints(handle.world, defaults, is_system=is_system)
        self._areas = Areas()
        self._scoring = f"{self.name}.score"

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> Status:
        """Skip pods without hard constraints."""
        constraints = self._constraints.of(pod, HARD)
        if not constraints:
            return SKIP
        keys = tuple(each.key for each in constraints)
        groupings: list[Grouping] = []
        for constraint in constraints:
            area = self._areas.of(pod, columns, keys, constraint)
            tally = self._cache.index.tally(constraint.question(pod.key.namespace))
            groupings.append(tally.by(constraint.key, area))
        census = Census(pod, constraints, self._cache.nodes.values())
        state.data[self.name] = Hard(constraints, tuple(groupings), HandCount(census, [{} for _ in constraints]))
        return SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Reject the node at the first constraint whose key it lacks or whose skew would be too large."""
        hard: Hard = state.data[self.name]
        for index, constraint in enumerate(hard.constraints):
            value = node.labels.get(constraint.key)
            if value is None:
                return unresolvable(MISSING_LABEL)
            if hard.hand.skew(index, value) > constraint.max_skew:
                return unschedulable(REASON)
        return SUCCESS

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        """Count a pod that a what-if puts on the node."""
        if node.node is not None:
            state.data[self.name].hand.change(added, node.node, 1)

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        """Stop counting a pod that a what-if takes off the node."""
        if node.node is not None:
            state.data[self.name].hand.change(removed, node.node, -1)

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None:
        """Return the rows where every constraint holds."""
        hard: Hard = state.data[self.name]
        mask: Mask | None = None
        for constraint, grouping in zip(hard.constraints, hard.groupings, strict=True):
            part = _even(pod, constraint, grouping)
            mask = part if mask is None else mask & part
        return mask

    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Return the refusals; a node is charged to its first constraint that does not hold."""
        hard: Hard = state.data[self.name]
        lacking, uneven = np.zeros_like(refused), np.zeros_like(refused)
        left = refused.copy()
        for constraint, grouping in zip(hard.constraints, hard.groupings, strict=True):
            missing = left & (grouping.ids == 0)
            lacking |= missing
            left &= ~missing
            skewed = left & ~_even(pod, constraint, grouping)
            uneven |= skewed
            left &= ~skewed
        return [Refusal(REASON, uneven), Refusal(MISSING_LABEL, lacking, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)]

    def pre_score(self, state: CycleState, pod: PodInfo, columns: Columns, feasible: Mask) -> Status:
        """Skip pods without soft constraints; for others count the matching pods in their domains."""
        constraints = self._constraints.of(pod, SOFT)
        if not constraints:
            return SKIP
        keys = tuple(each.key for each in constraints) if self._constraints.needs_all_keys(pod) else ()
        ignored = ~self._areas.of(pod, columns, keys).mask if keys else None
        scored = feasible if ignored is None else feasible & ~ignored
        raw = np.zeros(columns.capacity)
        for constraint in constraints:
            area = self._areas.of(pod, columns, keys, constraint)
            raw += _load(
                constraint, self._cache.index.tally(constraint.question(pod.key.namespace)), area, scored, columns
            )
        # Rounded halves up. Adding 0.5 first would round the number just below a half up, too.
        whole = np.floor(raw)
        whole += raw - whole >= 0.5
        state.data[self._scoring] = DomainLoad(whole, ignored)
        return SUCCESS

    def score_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Scores | int:
        """Return how full each row's domains are."""
        load: DomainLoad = state.data[self._scoring]
        return load.raw

    def normalize(self, state: CycleState, raw: Scores | int, feasible: Mask) -> Scores | int:
        """Give the emptiest row the highest score."""
        return rank_scores(state.data[self._scoring], feasible)

    def events_to_register(self) -> Sequence[Registration]:
        """Return events: counted pods come, go or change labels; domains do; or the pod itself gets tolerations."""
        pods = Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION
        nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        return (
            Registration(ClusterEvent(POD, pods), self._after_pod),
            Registration(ClusterEvent(NODE, nodes), self._after_node),
        )

    def _after_pod(self, pod: PodInfo, old: Pod | None, new: Pod | None) -> Hint:
        if any(each is not None and not _concerns(pod, each) for each in (old, new)):
            return Hint.SKIP
        constraints = self._constraints.of(pod, HARD)
        if old is not None and new is not None:
            tolerates_more = pod.uid == new.metadata.uid and old.spec.tolerations != new.spec.tolerations
            if tolerates_more and any(each.honors_taints for each in constraints):
                return Hint.QUEUE
            before, after = old.metadata.labels, new.metadata.labels
            return queue_if(any(each.means(before) != each.means(after) for each in constraints))
        changed = new if new is not None else old
        assert changed is not None
        return queue_if(any(each.means(changed.metadata.labels) for each in constraints))

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        constraints = self._constraints.of(pod, HARD)
        was_domain = old is not None and has_keys(old.metadata.labels, constraints)
        is_domain = new is not None and has_keys(new.metadata.labels, constraints)
        if old is None or new is None:
            return queue_if(was_domain or is_domain)
        if was_domain != is_domain:
            return Hint.QUEUE
        has_moved = any(old.metadata.labels.get(each.key) != new.metadata.labels.get(each.key) for each in constraints)
        # A node that the pod's node affinity does not mean any more takes its domain with it; upstream forgets that.
        honors_affinity = any(each.honors_affinity for each in constraints)
        has_moved |= honors_affinity and matches_required(pod, old) != matches_required(pod, new)
        return queue_if(is_domain and (has_moved or old.spec.taints != new.spec.taints))


def _concerns(pod: PodInfo, other: Pod) -> bool:
    """Whether the other pod is the pod itself, or one in its namespace that has a node."""
    if other.metadata.uid == pod.uid:
        return True
    return bool(other.spec.node_name) and other.metadata.namespace == pod.key.namespace


def _even(pod: PodInfo, constraint: Constraint, grouping: Grouping) -> Mask:
    """Return the rows that have the key and whose domain may take one more."""
    least = 0.0 if grouping.size < constraint.min_domains else grouping.least
    limit = constraint.max_skew + least - constraint.means(pod.metadata.labels)
    allowed = grouping.counts <= limit
    allowed[0] = False
    mask: Mask = allowed[grouping.ids]
    return mask


def _load(constraint: Constraint, tally: Tally, area: Area, scored: Mask, columns: Columns) -> Floats:
    """Return count * weight + maxSkew - 1 for each row, 0 without the key.

    The weight is ln(domains + 2), so that a label with few values is not drowned by one with many. For the hostname a
    node counts its own pods, whatever the policies say (12.5).
    """
    ids, values = columns.label_ids(constraint.key)
    if constraint.key == HOSTNAME:
        part = tally.on_rows() * math.log(int(np.count_nonzero(scored)) + 2)
        part += constraint.max_skew - 1
        part *= ids != 0
        return part
    domains = int(np.count_nonzero(np.bincount(ids[scored], minlength=len(values) + 1)))
    of_value = tally.by(constraint.key, area).counts * math.log(domains + 2) + (constraint.max_skew - 1)
    of_value[0] = 0.0
    return of_value[ids]


def rank_scores(load: DomainLoad, feasible: Mask) -> Floats:
    """Return 0 to 100: the emptiest row gets 100, the fullest the lowest raw score as a share of the highest."""
    raw, ignored = load.raw, load.ignored
    among = raw[feasible if ignored is None else feasible & ~ignored]
    most = float(among.max(initial=0.0))
    if most:
        scores = most + float(among.min()) - raw
        scores *= 100.0
        scores /= most
        np.floor(scores, out=scores)
    else:
        scores = np.full(len(raw), 100.0)
    if ignored is not None:
        scores[ignored] = 0.0
    return scores


PLUGIN = PluginEntry("PodTopologySpread", PodTopologySpread, args=PodTopologySpreadArgs)
