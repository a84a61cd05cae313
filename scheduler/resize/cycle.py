"""One attempt for one deferred resize: does it fit on the pod's node, and if not, who would have to leave.

Other nodes are not looked at, and of the filters only the fit and the node's policy have a say: where a pod runs it
may go on running (kep-5836 6.1). Serial and synchronous, as every cycle. What the pod asks for is known twice, by the
queue and by the cache; usually they agree, and which of them is believed otherwise is a generation's choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.handle import Handle
from scheduler.pod_groups.units import GroupUnits
from scheduler.preemption import eligibility
from scheduler.preemption.budgets import Budgets
from scheduler.preemption.dry_run import NodeWhatIf, nowhere
from scheduler.preemption.progress import Eviction, Preemptor
from scheduler.preemption.units import Unit, pod_unit
from scheduler.preemption.victims import NO_VICTIMS, Victims, WhatIf, select_victims
from scheduler.resize.deferral import allocated, desired, opts_out, waits
from scheduler.resize.fit import CapacityAndFilters, Count, NodeCapacity, counted
from scheduler.resize.out_of_tree import OutOfTreeAttempt, OutOfTreePlugins
from scheduler.resize.outcome import FIT, NAME, PREEMPTION, ResizeOutcome, Waits
from scheduler.resize.rules import ResizeRules
from scheduler.switches import PreemptionSwitches
from services.api.kinds.poddisruptionbudget import PodDisruptionBudget
from services.api.podresources import Amounts

OPTED_OUT: Final = "node had resize preemption disabled"
NO_NODE: Final = "the pod's node is not known"
DEGRADED: Final = "not eligible while the pod's group has fewer members than it needs."
MALFORMED: Final = "pod has malformed resource quantities"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The pod and its node. `need`: what the pod asks for; `rivals`: pods nominated there that matter as much.

    `out_of_tree`: what plugins say that are not kube-scheduler's own; None when the profile has none.
    `post_filters`: the plugins that may evict, by name.
    """

    pod: PodInfo
    node: NodeInfo
    need: Amounts
    rivals: Sequence[PodInfo]
    out_of_tree: OutOfTreeAttempt | None
    post_filters: Sequence[str]


class ResizeCycle:
    """Decides; changes nothing but its counts, and what it remembers with `double_preemption` memory.

    `attempts` counts searches for victims, the futile ones too; `violations` victims that a budget would have kept.
    `out_of_tree`: by the name of a profile.
    """

    def __init__(self, handle: Handle, rules: ResizeRules, out_of_tree: Mapping[str, OutOfTreePlugins]) -> None:
        switches = handle.switches
        self._handle = handle
        self._rules = rules
        self._out_of_tree = out_of_tree
        self._units = GroupUnits(handle.groups, handle.cache, handle.world)
        self._switches = switches.of(PreemptionSwitches)
        self._evicted_for: dict[str, str] = {}
        self.attempts = self.violations = 0

    def forget(self, uid: str) -> None:
        """The pod does not wait any more."""
        self._evicted_for.pop(uid, None)

    def decide(self, queued: PodInfo, now: float = 0.0) -> ResizeOutcome | None:
        """Return what the attempt of a pod, as it is queued, finds; None when it waits for no resize any more."""
        state = self._handle.cache.pods.get(queued.uid)
        pod = state.pod if state is not None and self._rules.refreshes else queued
        if state is None or not waits(pod.pod):
            return None
        node = self._handle.cache.nodes.get(state.node_name)
        if node is None or node.node is None:
            return _refused(pod, state.node_name, _hopeless(NO_NODE))
        if self._rules.reads_field and opts_out(node.node):
            return _refused(pod, node.name, _hopeless(OPTED_OUT), Waits.POLICY)
        try:
            need = desired(pod.pod)
        except ValueError:
            return _refused(pod, node.name, _hopeless(MALFORMED, FIT))
        rivals = self._handle.nominator.rivals(node.name, pod)
        others = self._out_of_tree[pod.spec.scheduler_name]
        out_of_tree = None if others.are_none else others.attempt(pod, node, self._handle.cache.columns, now)
        return self._look(Attempt(pod, node, need, rivals, out_of_tree, others.post_filters))

    def _look(self, attempt: Attempt) -> ResizeOutcome:
        """Find out whether it fits, and if not, which pods would have to leave."""
        capacity = self._capacity(attempt)
        no = attempt.out_of_tree.pre_filter() if attempt.out_of_tree is not None else SUCCESS
        if no.is_success:
            no = self._first_no(attempt, capacity)
        if no.is_success and self._rules.looks_first:
            return self._fitting(attempt)
        if no.code not in (Code.SUCCESS, Code.UNSCHEDULABLE):
            return _refused(attempt.pod, attempt.node.name, no)
        short = tuple(capacity.shortage().items())
        return replace(self._post_filter(attempt, no), missing=short, has_tried=True)

    def _first_no(self, attempt: Attempt, capacity: NodeCapacity) -> Status:
        """Return who refuses, the fit first; what follows the fit is not asked where the fit parks pods itself."""
        no = capacity.fits()
        if not no.is_success or attempt.out_of_tree is None or self._rules.on_fit == "park_filter":
            return Status(no.code, no.reasons, FIT)
        others = attempt.out_of_tree
        no = others.runner.filter_beside(others.state, attempt.pod, attempt.node, attempt.rivals)
        return Status(no.code, no.reasons, no.plugin or FIT)

    def _capacity(self, attempt: Attempt, count: Count = counted) -> NodeCapacity:
        rules = self._rules
        return NodeCapacity(
            attempt.node,
            attempt.pod,
            attempt.need,
            rivals=attempt.rivals,
            count=count,
            adjusts_pod_count=rules.adjusts_pod_count,
            without_self=rules.removes_self,
        )

    def _fitting(self, attempt: Attempt) -> ResizeOutcome:
        pod, node, others, on_fit = attempt.pod, attempt.node.name, attempt.out_of_tree, self._rules.on_fit
        if others is not None and on_fit != "park_filter":
            no = others.reserve()
            if no.is_success and on_fit == "complete_bind":
                no = others.permit()
            else:
                others.unreserve()
            if not no.is_success:
                return _refused(pod, node, no)
        if on_fit == "complete_bind":
            return ResizeOutcome(pod, node, Waits.NOTHING)
        return ResizeOutcome(pod, node, Waits.KUBELET, NAME if on_fit == "park_permit" else FIT)

    # -- preemption ------------------------------------------------------------------------------------

    def _post_filter(self, attempt: Attempt, no: Status) -> ResizeOutcome:
        """Ask the profile's PostFilter plugins in their order, until one succeeds or is final."""
        outcome, others = _refused(attempt.pod, attempt.node.name, no), tuple[str, ...]()
        for name in attempt.post_filters:
            if name == PREEMPTION:
                outcome = self._preempt(attempt, no)
                if outcome.evictions or outcome.fits:
                    return outcome
            result = attempt.out_of_tree.post_filter(name, no) if attempt.out_of_tree is not None else None
            if result is None:
                continue
            if result.status.is_success:
                evictions = tuple(each for each in result.actions if isinstance(each, Eviction))
                return ResizeOutcome(
                    attempt.pod, attempt.node.name, Waits.CAPACITY, no.plugin, no.reasons, evictions=evictions
                )
            others += result.status.reasons
            if result.status.code is not Code.UNSCHEDULABLE:
                break
        return replace(outcome, others=others)

    def _preempt(self, attempt: Attempt, no: Status) -> ResizeOutcome:
        self.attempts += 1
        pod, node = attempt.pod, attempt.node
        priority = self.priority_of(pod)
        why_not = self._refusal(pod, node, priority)
        if why_not:
            is_guarded = why_not in (eligibility.GUARDED, eligibility.IN_PROGRESS)
            return replace(_refused(pod, node.name, no), after=why_not, is_guarded=is_guarded)
        potential = self._potential(pod, node, priority)
        if not potential:
            return replace(_refused(pod, node.name, no), after=_nowhere(NO_VICTIMS))
        budgets = Budgets(self._handle.world.all(PodDisruptionBudget), matches_empty=self._switches.matches_empty)
        found = select_victims(potential, self._what_if(attempt), budgets, node=node.name)
        if not isinstance(found, Victims):
            if found.code is Code.ERROR:  # every pod may stay: the kubelet has the capacity, or will have it
                return self._fitting(attempt)
            return replace(_refused(pod, node.name, no), after=_nowhere(*found.reasons))
        eviction = Eviction(
            Preemptor(pod.uid, priority, (pod,)),
            node.name,
            found.pods,
            (node.name,),
            PREEMPTION,
            self._switches.is_async,
        )
        self._evicted_for[pod.uid] = node.name
        self.violations += found.violations
        return replace(_refused(pod, node.name, no), evictions=(eviction,))

    def _what_if(self, attempt: Attempt) -> WhatIf:
        """Return the node to be changed in thought: its capacity, and the filters of out-of-tree plugins."""
        capacity, others = (
            self._capacity(attempt, allocated if self._rules.counts_allocated else counted),
            attempt.out_of_tree,
        )
        if others is None or not others.has_filters:
            return capacity
        node = attempt.node
        if self._rules.removes_self:
            node = node.with_pods([])
            node.remove(attempt.pod.uid)
        whereabouts = self._units.node_of if self._handle.groups.is_on else nowhere
        filters = NodeWhatIf(others.runner, others.state, attempt.pod, node, attempt.rivals, whereabouts)
        return CapacityAndFilters(capacity, filters)

    def priority_of(self, pod: PodInfo) -> int:
        """Return what the pod counts for as a preemptor: itself, or its group."""
        return self._units.priority_of(pod) if self._rules.acts_for_group else pod.priority

    def _refusal(self, pod: PodInfo, node: NodeInfo, priority: int) -> str:
        if self._switches.is_async and self._handle.preempting.is_running(pod.uid):
            return eligibility.IN_PROGRESS
        if self._rules.acts_for_group and self._is_degraded(pod):
            return DEGRADED
        return eligibility.refusal(
            pod,
            node if self._is_nominated(pod, node.name) else None,
            is_hopeless=False,
            priority=priority,
            priority_of=self._units.priority_of,
        )

    def _is_nominated(self, pod: PodInfo, node: str) -> bool:
        """Whether the pod counts as one that waits for victims of its own."""
        match self._rules.double_preemption:
            case "spec_node_name":
                return True
            case "memory":
                return pod.uid in self._evicted_for
            case "nnn":
                # What was written yesterday, or was decided just now and is not seen yet.
                return pod.pod.status.nominated_node_name == node or pod.uid in self._evicted_for
        return False

    def _is_degraded(self, pod: PodInfo) -> bool:
        """Whether fewer members of the pod's gang run than it needs: it would not make use of the capacity."""
        group = self._units.group_of(pod)
        if group is None or not group.spec.is_gang:
            return False
        cache = self._handle.cache.pods
        members = (cache[uid].pod for uid in self._handle.groups.uids(group.metadata.key) if uid in cache)
        running = sum(member.metadata.deletion_timestamp is None for member in members)
        return running < group.spec.min_count

    def _potential(self, pod: PodInfo, node: NodeInfo, priority: int) -> list[Unit]:
        """Return who may be evicted: of lower priority, and not together with the pod itself."""
        others = [other for other in node.pods.values() if other.uid != pod.uid and not self._is_kin(pod, other)]
        units = self._units.of(others) if self._handle.groups.is_on else [pod_unit(other) for other in others]
        return [unit for unit in units if unit.priority < priority and all(p.uid != pod.uid for p in unit.pods)]

    def _is_kin(self, pod: PodInfo, other: PodInfo) -> bool:
        """Whether the other is of the group that the pod acts for."""
        if not self._rules.acts_for_group:
            return False
        group = self._handle.groups.group_of(pod)
        return group is not None and self._handle.groups.group_of(other) == group


def _hopeless(reason: str, plugin: str = NAME) -> Status:
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,), plugin)


def _refused(pod: PodInfo, node: str, no: Status, waits_for: Waits | None = None) -> ResizeOutcome:
    """Return that the pod cannot grow now; who refused it says what it waits for."""
    waits_for = waits_for or (Waits.CAPACITY if no.plugin in (FIT, NAME) else Waits.PLUGIN)
    return ResizeOutcome(
        pod, node, waits_for, no.plugin, no.reasons, is_pending=no.code is Code.PENDING, is_error=no.code is Code.ERROR
    )


def _nowhere(*reasons: str) -> str:
    return f"0/1 nodes are available: {', '.join(f'1 {reason}' for reason in reasons)}."
