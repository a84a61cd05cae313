"""Filter and Score: place a pod near pods that affinity matches, and apart from those of anti-affinity.

Required terms reject, preferred ones score; existing pods' terms count in both.

Source: scheduler-queue-and-cycles 6 and 12.4; KEP-2249 (namespace selector), KEP-3633 (match label keys).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scheduler.cache.columns import Columns, Floats, Mask, Scores
from scheduler.cache.node_info import NO_TERMS, NodeInfo, PodInfo, PodTerm, PodTerms, terms_of
from scheduler.cache.pod_index import REQUIRED_AFFINITY, REQUIRED_ANTI_AFFINITY, Grouping, Tally
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import NODE, POD, Action, ClusterEvent, Hint, Registration, queue_if
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, unresolvable, unschedulable
from scheduler.framework.vectorized import Refusal
from scheduler.plugins.inter_pod_affinity.terms import (
    Census,
    HandCount,
    has_no_terms,
    means,
    means_all,
    namespace_labels,
    question,
    unroll_namespaces,
)
from scheduler.switches import PluginSwitches
from services.api.kinds.namespace import Namespace
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod

AFFINITY_REASON = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY_REASON = "node(s) didn't match pod anti-affinity rules"
HOSTILE_REASON = "node(s) didn't satisfy existing pods anti-affinity rules"


@dataclass(slots=True)
class Required:
    """The state of PreFilter. `affinity`: counts of pods that all affinity terms match, one grouping per term."""

    terms: PodTerms
    affinity: tuple[Grouping | None, ...]
    is_first: bool
    unwanted: tuple[Grouping, ...]
    hostile: tuple[Grouping, ...]
    hand: HandCount

    def clone(self) -> Required:
        """Return a copy for a what-if."""
        return replace(self, hand=self.hand.clone())


class InterPodAffinityArgs(Args, frozen=True):
    """The plugin's arguments.

    `hardPodAffinityWeight`, 0 to 100: the weight of an existing pod's required affinity in scoring.
    `ignorePreferredTermsOfExistingPods`: pods without preferred terms are not scored by those of others.
    """

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class InterPodAffinity:
    """The plugin: required terms of the pod and of existing pods reject; preferred ones score."""

    name = "InterPodAffinity"

    def __init__(self, args: InterPodAffinityArgs, handle: Handle) -> None:
        self._args = args
        self._cache = handle.cache
        self._world = handle.world
        self._scoring = f"{self.name}.score"
        self._is_faithful = handle.switches.of(PluginSwitches).has_faithful_hints

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> Status:
        """Skip pods without required terms that no existing pod's anti-affinity matches."""
        index = self._cache.index
        if not index.term_count and has_no_terms(pod):
            return SKIP
        labels = namespace_labels(self._world, pod.key.namespace)
        hostile: list[Grouping] = []
        for kind, term, tally in index.terms_about(pod, labels):
            if kind == REQUIRED_ANTI_AFFINITY:
                grouping = tally.by(term.topology_key)
                if grouping.counts.any():
                    hostile.append(grouping)
        if not hostile and has_no_terms(pod):
            return SKIP
        terms = unroll_namespaces(pod.terms, self._world)
        affinity = self._groupings_of_all(terms.required_affinity)
        is_first = not any(grouping is not None and grouping.counts.any() for grouping in affinity) and means_all(
            terms.required_affinity, pod.key.namespace, pod.metadata.labels
        )
        apart = (self._groupings_of_all((term,))[0] for term in terms.required_anti_affinity)
        unwanted = tuple(grouping for grouping in apart if grouping is not None)
        hand = HandCount(Census(pod, terms, labels, self._cache.nodes.values()))
        state.data[self.name] = Required(terms, affinity, is_first, unwanted, tuple(hostile), hand)
        return SUCCESS

    def _groupings_of_all(self, terms: tuple[PodTerm, ...]) -> tuple[Grouping | None, ...]:
        """Return, for each term's key, the counts of pods that all the terms mean; None when no pod can be meant."""
        asked = question(terms)
        if asked is None:
            return (None,) * len(terms)
        if not terms:
            return ()
        tally = self._cache.index.tally(asked)
        return tuple(tally.by(term.topology_key) for term in terms)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Reject when affinity matches no pod, anti-affinity matches one, or another pod's matches this one."""
        hand, labels = state.data[self.name].hand, node.labels
        if not hand.has_wanted(labels):
            return unresolvable(AFFINITY_REASON)
        if hand.has_unwanted(labels):
            return unschedulable(ANTI_AFFINITY_REASON)
        return unschedulable(HOSTILE_REASON) if hand.is_hostile(labels) else SUCCESS

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        """Count a pod that a what-if puts on the node."""
        state.data[self.name].hand.change(added, node.labels, 1)

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        """Stop counting a pod that a what-if takes off the node."""
        state.data[self.name].hand.change(removed, node.labels, -1)

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None:
        """Return the rows where all three conditions hold."""
        required: Required = state.data[self.name]
        mask = _near(required, columns)
        for grouping in (*required.unwanted, *required.hostile):
            part = _away(grouping)
            mask = part if mask is None else mask & part
        return mask

    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Return the refusals; a node is charged to the first of the three conditions that fails."""
        required: Required = state.data[self.name]
        near = _near(required, columns)
        alone = np.zeros_like(refused) if near is None else refused & ~near
        left = refused & ~alone
        unwanted = np.zeros_like(refused)
        for grouping in required.unwanted:
            unwanted |= left & ~_away(grouping)
        return [
            Refusal(AFFINITY_REASON, alone, Code.UNSCHEDULABLE_AND_UNRESOLVABLE),
            Refusal(ANTI_AFFINITY_REASON, unwanted),
            Refusal(HOSTILE_REASON, left & ~unwanted),
        ]

    def pre_score(self, state: CycleState, pod: PodInfo, columns: Columns, feasible: Mask) -> Status:
        """Add up the weights of the terms by label and value; skip when no term matches any pod."""
        index, own = self._cache.index, pod.terms
        has_preferences = bool(own.preferred_affinity or own.preferred_anti_affinity)
        if not has_preferences and (self._args.ignore_preferred_terms_of_existing_pods or not index.term_count):
            return SKIP
        worth: dict[str, Floats] = {}
        terms = unroll_namespaces(own, self._world) if has_preferences else NO_TERMS
        for sign, preferences in ((1, terms.preferred_affinity), (-1, terms.preferred_anti_affinity)):
            for weight, term in preferences:
                asked = question((term,))
                if asked is not None:
                    _add(worth, term.topology_key, index.tally(asked), sign * weight)
        for kind, term, tally in index.terms_about(pod, namespace_labels(self._world, pod.key.namespace)):
            if kind.is_required:
                weight = self._args.hard_pod_affinity_weight if kind == REQUIRED_AFFINITY else 0
            else:
                weight = kind.weight
            if weight:
                _add(worth, term.topology_key, tally, weight)
        if not worth:
            return SKIP
        total = np.zeros(columns.capacity)
        for key, of_value in worth.items():
            total += of_value[columns.label_ids(key)[0]]
        state.data[self._scoring] = total
        return SUCCESS

    def score_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Scores | int:
        """Return each row's sum over its labels."""
        total: Scores = state.data[self._scoring]
        return total

    def normalize(self, state: CycleState, raw: Scores | int, feasible: Mask) -> Scores | int:
        """Scale the best sum to 100 and the worst to 0.

        The scale is computed in floating point and then truncated, as upstream: 29 of 100 is 28.
        """
        if isinstance(raw, int):
            return 0
        among = raw[feasible]
        low, high = float(among.min(initial=np.inf)), float(among.max(initial=-np.inf))
        if high <= low:
            return 0
        scores: Scores = np.trunc(100.0 * ((raw - low) / (high - low)))
        return scores

    def events_to_register(self) -> Sequence[Registration]:
        """Return events of pods that come, go or change labels, and of nodes that come or change labels.

        Without `interpodaffinity.faithful_hints`, deleted nodes and namespaces count, too.

        With `interpodaffinity.faithful_hints` the releases' registrations and node hint are used; their gap is that
        a pod that only other pods' terms reject, or that a namespace's new labels would help, waits for the
        leftover flush.
        """
        pods = Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL
        if self._is_faithful:
            return (
                Registration(ClusterEvent(POD, pods), self._after_pod),
                Registration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_LABEL), _after_node_of_release),
            )
        return (
            Registration(ClusterEvent(POD, pods), self._after_pod),
            Registration(ClusterEvent(NODE, Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL), self._after_node),
            Registration(ClusterEvent("Namespace", Action.ADD | Action.UPDATE), _after_namespace),
        )

    def _after_pod(self, pod: PodInfo, old: Pod | None, new: Pod | None) -> Hint:
        if new is not None and new.metadata.uid == pod.uid:
            return Hint.QUEUE  # Its own labels changed: others may want it, or want it no more.
        if not all(each.spec.node_name or each.status.nominated_node_name for each in (old, new) if each is not None):
            return Hint.SKIP
        terms = unroll_namespaces(pod.terms, self._world)

        def joins(other: Pod | None) -> bool:
            return other is not None and means_all(
                terms.required_affinity, other.metadata.namespace, other.metadata.labels
            )

        def annoys(other: Pod | None) -> bool:
            return other is not None and any(
                means(term, other.metadata.namespace, other.metadata.labels) for term in terms.required_anti_affinity
            )

        if (joins(new) and not joins(old)) or (annoys(old) and not annoys(new)):
            return Hint.QUEUE
        if old is not None and new is None and self._dislikes(old, pod):
            return Hint.QUEUE
        # The last pod it wants may have gone: the first of its kind may go anywhere.
        return queue_if(joins(old) and not joins(new) and joins(pod.pod))

    def _dislikes(self, other: Pod, pod: PodInfo) -> bool:
        of_namespace = namespace_labels(self._world, pod.key.namespace)
        disliked = terms_of(other).required_anti_affinity
        return any(term.matches(pod.key.namespace, pod.metadata.labels, of_namespace) for term in disliked)

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        after = new.metadata.labels if new is not None else {}
        wanted = [term.topology_key for term in pod.terms.required_affinity]
        if old is None:
            return queue_if(all(key in after for key in wanted) and (new is None or self._is_away(pod, new)))
        before = old.metadata.labels
        moved = [key for key in wanted if before.get(key) != after.get(key)]
        # A pod that wants its like may be the first of its kind once those are in no domain any more.
        if any(key in after for key in moved):
            return Hint.QUEUE
        terms = unroll_namespaces(pod.terms, self._world) if moved else NO_TERMS
        if means_all(terms.required_affinity, pod.key.namespace, pod.metadata.labels):
            return Hint.QUEUE
        shunned = [term.topology_key for term in pod.terms.required_anti_affinity]
        if self._cache.index.term_count:
            # Upstream forgets pods that only others keep away: they would wait for the leftover flush.
            about = self._cache.index.terms_about(pod, namespace_labels(self._world, pod.key.namespace))
            shunned += [term.topology_key for kind, term, _ in about if kind == REQUIRED_ANTI_AFFINITY]
        return queue_if(any(key in before and before[key] != after.get(key) for key in shunned))

    def _is_away(self, pod: PodInfo, node: Node) -> bool:
        """Whether neither the pod's anti-affinity nor that of others keeps it off the node as things stand."""
        columns, index = self._cache.columns, self._cache.index
        row = columns.slots.get(node.metadata.name)
        if row is None:
            return True
        about = index.terms_about(pod, namespace_labels(self._world, pod.key.namespace)) if index.term_count else ()
        hostile = [tally.by(term.topology_key) for kind, term, tally in about if kind == REQUIRED_ANTI_AFFINITY]
        own = unroll_namespaces(pod.terms, self._world).required_anti_affinity
        unwanted = (self._groupings_of_all((term,))[0] for term in own)
        return not any(each.counts[each.ids[row]] > 0 for each in (*hostile, *unwanted) if each is not None)


def _after_node_of_release(pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
    """Look at the keys of the pod's own terms alone: a node that comes has one, or a node's value of one changed.

    Affinity may be helped by a key that appears, anti-affinity by one that goes.
    Source: upstream `isSchedulableAfterNodeChange`.
    """
    before, after = (each.metadata.labels if each is not None else {} for each in (old, new))
    near = [term.topology_key for term in pod.terms.required_affinity]
    apart = [term.topology_key for term in pod.terms.required_anti_affinity]
    if old is None:
        return queue_if(any(key in after for key in (*near, *apart)))
    return queue_if(
        any(key in after and before.get(key) != after[key] for key in near)
        or any(key in before and before[key] != after.get(key) for key in apart)
    )


def _after_namespace(pod: PodInfo, old: Namespace | None, new: Namespace | None) -> Hint:
    """Selectors of namespaces, the pod's own or of others that know it, may mean other pods now."""
    before, after = (each.metadata.labels if each is not None else {} for each in (old, new))
    return queue_if(before != after)


def _near(required: Required, columns: Columns) -> Mask | None:
    """Return the rows with every key of the affinity and a matching pod in each domain; None without affinity."""
    mask: Mask | None = None
    for grouping in required.affinity:
        if grouping is None:
            return columns.full(False)
        allowed = np.ones(len(grouping.counts), bool) if required.is_first else grouping.counts > 0
        allowed[0] = False
        part: Mask = allowed[grouping.ids]
        mask = part if mask is None else mask & part
    return mask


def _away(grouping: Grouping) -> Mask:
    """Return the rows in whose domain no pod counts."""
    mask: Mask = (grouping.counts <= 0)[grouping.ids]
    return mask


def _add(worth: dict[str, Floats], key: str, tally: Tally, weight: int) -> None:
    counts = tally.by(key).counts
    if counts.any():
        known = worth.get(key)
        worth[key] = counts * weight if known is None else known + counts * weight


PLUGIN = PluginEntry("InterPodAffinity", InterPodAffinity, args=InterPodAffinityArgs)
