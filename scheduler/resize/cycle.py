"""One attempt for one deferred resize: whether it fits on the pod's node, and otherwise the victims.

Other nodes are not considered, and among the filters only the fit and the node's policy count: a pod may go
on running on its node (kep-5836 6.1). Serial and synchronous, as every cycle. Queue and cache both have the
pod's request; usually they agree, and a generation chooses which one counts otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.entry import Handle
from scheduler.framework.status import Code, Status
from scheduler.preemption import eligibility
from scheduler.preemption.candidates import NO_VICTIMS, Budgets, NodeWhatIf, Victims, WhatIf, select_victims
from scheduler.preemption.progress import Eviction, Preemptor
from scheduler.preemption.units import Unit, Units
from scheduler.resize.deferral import allocated_amounts, opts_out, waits
from scheduler.resize.fit import Count, NodeCapacity, counted_amounts
from scheduler.resize.out_of_tree import OutOfTreePlugins, ResizeAttempt
from scheduler.resize.outcome import FIT, NAME, PREEMPTION, ResizeOutcome, Waits
from scheduler.resize.rules import ResizeRules
from scheduler.switches import PreemptionSwitches
from services.api.kinds.poddisruptionbudget import PodDisruptionBudget
from services.api.podresources import pod_requests

OPTED_OUT: Final = "node had resize preemption disabled"
NO_NODE: Final = "the pod's node is not known"
DEGRADED: Final = "not eligible while the pod's group has fewer members than it needs."
MALFORMED: Final = "pod has malformed resource quantities"


@dataclass(frozen=True)
class CapacityAndFilters:
    """The node's capacity and filters together: a `WhatIf` of two."""

    capacity: NodeCapacity
    filters: WhatIf

    def remove(self, unit: Unit) -> None:
        """Remove the unit from the dry run."""
        self.capacity.remove(unit)
        self.filters.remove(unit)

    def add(self, unit: Unit) -> None:
        """Put a removed unit back."""
        self.capacity.add(unit)
        self.filters.add(unit)

    def fits(self) -> Status:
        """Return the first rejection, the one for lack of capacity first, or success."""
        status = self.capacity.fits()
        return self.filters.fits() if status.is_success else status


@dataclass
class ResizeCycle:
    """Decides attempts; it changes only its counts, and its memory with `double_preemption` memory.

    `attempts` counts searches for victims, the futile ones too; `violations` victims whose eviction violated a
    budget. `out_of_tree`: by the name of a profile.
    """

    handle: Handle
    rules: ResizeRules
    out_of_tree: Mapping[str, OutOfTreePlugins]
    attempts: int = 0
    violations: int = 0
    _evicted_for: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._units = Units(self.handle.groups, self.handle.cache, self.handle.world)
        self._switches = self.handle.switches.of(PreemptionSwitches)

    def forget(self, uid: str) -> None:
        """Forget a pod that no longer waits."""
        self._evicted_for.discard(uid)

    def decide(self, queued: PodInfo, now: float = 0.0) -> ResizeOutcome | None:
        """Return the outcome of an attempt for a pod, as it is queued; None when it waits for no resize any more."""
        state = self.handle.cache.pods.get(queued.uid)
        pod = state.pod if state is not None and self.rules.refreshes else queued
        if state is None or not waits(pod.pod):
            return None
        node = self.handle.cache.nodes.get(state.node_name)
        if node is None or node.node is None:
            return _refused_outcome(pod, state.node_name, _hopeless(NO_NODE))
        if self.rules.reads_field and opts_out(node.node):
            return _refused_outcome(pod, node.name, _hopeless(OPTED_OUT), Waits.POLICY)
        try:
            need = pod_requests(pod.pod)
        except ValueError:
            return _refused_outcome(pod, node.name, _hopeless(MALFORMED, FIT))
        rivals = self.handle.nominator.rivals(node.name, pod)
        plugins, columns = self.out_of_tree[pod.spec.scheduler_name], self.handle.cache.columns
        return self._look(ResizeAttempt(plugins, pod, node, need, rivals, columns, now))

    def _look(self, attempt: ResizeAttempt) -> ResizeOutcome:
        """Find out whether it fits, and if not, which pods would have to leave."""
        capacity = self._capacity(attempt)
        no = attempt.pre_filter()
        if no.is_success:
            no = capacity.fits()
            # What follows the fit is not asked where the fit parks pods itself.
            asked = attempt.filter() if no.is_success and self.rules.on_fit != "park_filter" else no
            no = Status(asked.code, asked.reasons, asked.plugin or FIT)
        if no.is_success and self.rules.looks_first:
            return self._fitting(attempt)
        if no.code not in (Code.SUCCESS, Code.UNSCHEDULABLE):
            return _refused_outcome(attempt.pod, attempt.node.name, no)
        short = tuple(capacity.shortage().items())
        return replace(self._post_filter(attempt, no), missing=short, has_tried=True)

    def _capacity(self, attempt: ResizeAttempt, count: Count = counted_amounts) -> NodeCapacity:
        return NodeCapacity(
            attempt.node,
            attempt.pod,
            attempt.need,
            rivals=attempt.rivals,
            count=count,
            adjusts_pod_count=self.rules.adjusts_pod_count,
            without_self=self.rules.removes_self,
        )

    def _fitting(self, attempt: ResizeAttempt) -> ResizeOutcome:
        pod, node, on_fit = attempt.pod, attempt.node.name, self.rules.on_fit
        if on_fit != "park_filter":
            no = attempt.reserve(is_bound=on_fit == "complete_bind")
            if not no.is_success:
                return _refused_outcome(pod, node, no)
        if on_fit == "complete_bind":
            return ResizeOutcome(pod, node, Waits.NOTHING)
        return ResizeOutcome(pod, node, Waits.KUBELET, NAME if on_fit == "park_permit" else FIT)

    def _post_filter(self, attempt: ResizeAttempt, no: Status) -> ResizeOutcome:
        """Ask the profile's PostFilter plugins in their order, until one succeeds or is final."""
        outcome, others = _refused_outcome(attempt.pod, attempt.node.name, no), tuple[str, ...]()
        for name in attempt.post_filters:
            if name == PREEMPTION:
                outcome = self._preempt(attempt, no)
                if outcome.evictions or outcome.fits:
                    return outcome
            result = attempt.post_filter(name, no)
            if result is None:
                continue
            if result.status.is_success:
                evictions = tuple(each for each in result.actions if isinstance(each, Eviction))
                capacity_outcome = ResizeOutcome(attempt.pod, attempt.node.name, Waits.CAPACITY, no.plugin, no.reasons)
                return replace(capacity_outcome, evictions=evictions)
            others += result.status.reasons
            if result.status.code is not Code.UNSCHEDULABLE:
                break
        return replace(outcome, others=others)

    def _preempt(self, attempt: ResizeAttempt, no: Status) -> ResizeOutcome:
        self.attempts += 1
        pod, node = attempt.pod, attempt.node
        refused = _refused_outcome(pod, node.name, no)
        priority = self.priority_of(pod)
        why_not = self._refusal(pod, node, priority)
        if why_not:
            is_guarded = why_not in (eligibility.GUARDED, eligibility.IN_PROGRESS)
            return replace(refused, after=why_not, is_guarded=is_guarded)
        potential = self._potential(pod, node, priority)
        if not potential:
            return replace(refused, after=_nowhere(NO_VICTIMS))
        budgets = Budgets(self.handle.world.all(PodDisruptionBudget), matches_empty=self._switches.matches_empty)
        victims = select_victims(potential, self._what_if(attempt), budgets, node=node.name)
        if not isinstance(victims, Victims):
            if victims.code is Code.ERROR:  # every pod may stay: the kubelet has the capacity, or will have it
                return self._fitting(attempt)
            return replace(refused, after=_nowhere(*victims.reasons))
        preemptor = Preemptor(pod.uid, priority, (pod,))
        eviction = Eviction(preemptor, node.name, victims.pods, (node.name,), PREEMPTION, self._switches.is_async)
        self._evicted_for.add(pod.uid)
        self.violations += victims.violations
        return replace(refused, evictions=(eviction,))

    def _what_if(self, attempt: ResizeAttempt) -> WhatIf:
        """Return the node to be changed in thought: its capacity, and the filters of out-of-tree plugins."""
        capacity = self._capacity(attempt, allocated_amounts if self.rules.counts_allocated else counted_amounts)
        if not attempt.has_filters:
            return capacity
        node, pod = attempt.node, attempt.pod
        if self.rules.removes_self:
            node = node.with_pods([])
            node.remove(pod.uid)
        return CapacityAndFilters(
            capacity, NodeWhatIf(attempt.runner, attempt.state, pod, node, attempt.rivals, self._units)
        )

    def priority_of(self, pod: PodInfo) -> int:
        """Return the pod's effective priority as a preemptor: its own, or its group's."""
        return self._units.priority_of(pod) if self.rules.acts_for_group else pod.priority

    def _refusal(self, pod: PodInfo, node: NodeInfo, priority: int) -> str:
        if self._switches.is_async and self.handle.preempting.is_running(pod.uid):
            return eligibility.IN_PROGRESS
        if self.rules.acts_for_group and self._is_degraded(pod):
            return DEGRADED
        nominated = node if self._is_nominated(pod, node.name) else None
        return eligibility.refusal(pod, priority, nominated, self._units)

    def _is_nominated(self, pod: PodInfo, node: str) -> bool:
        """Whether the pod counts as one that waits for victims of its own."""
        match self.rules.double_preemption:
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
        cache = self.handle.cache.pods
        members = (cache[uid].pod for uid in self.handle.groups.uids(group.metadata.key) if uid in cache)
        running = sum(member.metadata.deletion_timestamp is None for member in members)
        return running < group.spec.min_count

    def _potential(self, pod: PodInfo, node: NodeInfo, priority: int) -> list[Unit]:
        """Return who may be evicted: of lower priority, not with the pod itself, nor of the group that it acts for."""
        group_of = self.handle.groups.group_of
        group = group_of(pod) if self.rules.acts_for_group else None
        others = (o for o in node.pods.values() if o.uid != pod.uid and (group is None or group_of(o) != group))
        return [unit for unit in self._units.below(priority, others) if all(p.uid != pod.uid for p in unit.pods)]


def _hopeless(reason: str, plugin: str = NAME) -> Status:
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,), plugin)


def _refused_outcome(pod: PodInfo, node: str, no: Status, waits_for: Waits | None = None) -> ResizeOutcome:
    """Return that the pod cannot grow now; who refused it says what it waits for."""
    waits_for = waits_for or (Waits.CAPACITY if no.plugin in (FIT, NAME) else Waits.PLUGIN)
    return ResizeOutcome(
        pod, node, waits_for, no.plugin, no.reasons, is_pending=no.code is Code.PENDING, is_error=no.code is Code.ERROR
    )


def _nowhere(*reasons: str) -> str:
    return f"0/1 nodes are available: {', '.join(f'1 {reason}' for reason in reasons)}."
