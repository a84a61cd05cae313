"""One attempt for one deferred resize: does it fit on the pod's node, and if not, who would have to leave.

Other nodes are not looked at, and of the filters only the fit and the node's policy have a say: where a pod runs it
may go on running (kep-5836 6.1). Serial and synchronous, as every cycle. What the pod asks for is known twice, by the
queue and by the cache; usually they agree, and which of them is believed otherwise is a generation's choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from scheduler.framework.interface import Code, Status, unresolvable
from scheduler.handle import Handle
from scheduler.node_info import NodeInfo, PodInfo
from scheduler.pod_groups.units import GroupUnits
from scheduler.preemption import eligibility
from scheduler.preemption.budgets import Budgets
from scheduler.preemption.progress import Eviction, Preemptor
from scheduler.preemption.units import TieBreak, Unit, by_uid, pod_unit
from scheduler.preemption.victims import NO_VICTIMS, Victims, select_victims
from scheduler.resize.deferral import allocated, desired, opts_out, waits
from scheduler.resize.room import Count, NodeRoom, counted
from scheduler.resize.rules import ResizeRules
from services.api.kinds.poddisruptionbudget import PodDisruptionBudget
from services.api.podresources import Amounts

NAME: Final = "DeferredPodScheduling"
FIT: Final = "NodeResourcesFit"
PREEMPTION: Final = "DefaultPreemption"
FITS: Final = "pod resize fits, waiting for Kubelet actuation"
OPTED_OUT: Final = "node had resize preemption disabled"
NO_NODE: Final = "the pod's node is not known"
DEGRADED: Final = "not eligible while the pod's group has fewer members than it needs."
MALFORMED: Final = "pod has malformed resource quantities"


class Waits(StrEnum):
    """What a deferred pod waits for."""

    TURN = "turn"
    ROOM = "room"
    POLICY = "policy"
    KUBELET = "kubelet"
    """It fits, and is parked."""
    NOTHING = "nothing"
    """It fits, and is not queued any more."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an attempt found. `plugin` and `reasons` say why the pod cannot grow now; none when it can.

    `after`: what preemption could not do about it. `eviction`: who is to leave. `missing`: how much of what was short,
    known only where victims were sought (`has_tried`). `is_guarded`: victims of an earlier attempt are leaving, and are
    waited for.
    """

    pod: PodInfo
    node: str
    waits_for: Waits
    plugin: str = NAME
    reasons: tuple[str, ...] = ()
    after: str = ""
    eviction: Eviction | None = None
    missing: tuple[tuple[str, int], ...] = ()
    has_tried: bool = False
    is_guarded: bool = False

    @property
    def fits(self) -> bool:
        """Whether there is room, or will be as soon as the kubelet looks."""
        return self.waits_for in (Waits.KUBELET, Waits.NOTHING)

    @property
    def message(self) -> str:
        """The sentence for people, in the words of a fit error over the one node."""
        lines = ", ".join(sorted(f"1 {reason}" for reason in self.reasons or (FITS,)))
        return f"0/1 nodes are available: {lines}." + (f" preemption: {self.after}" if self.after else "")


class ResizeCycle:
    """Decides; changes nothing but its counts, and what it remembers with `double_preemption` memory.

    `attempts` counts searches for victims, the futile ones too; `violations` victims that a budget would have kept.
    """

    def __init__(self, handle: Handle, rules: ResizeRules) -> None:
        switches = handle.switches
        self._handle = handle
        self._rules = rules
        self._units = GroupUnits(handle.groups, handle.cache, handle.world)
        self._is_async = switches.flag("SchedulerAsyncPreemption")
        self._matches_empty = switches.choice("preemption.pdb_empty_selector") == "match"
        self._is_strict = switches.choice("preemption.pdb_mode") == "strict"
        self._draws_victims = switches.choice("preemption.victim_tie") == "random"
        self._evicted_for: dict[str, str] = {}
        self.attempts = self.violations = 0

    def forget(self, uid: str) -> None:
        """The pod does not wait any more."""
        self._evicted_for.pop(uid, None)

    def decide(self, queued: PodInfo) -> Verdict | None:
        """Return what the attempt of a pod, as it is queued, finds; None when it waits for no resize any more."""
        state = self._handle.cache.pods.get(queued.uid)
        pod = state.pod if state is not None and self._rules.refreshes else queued
        if state is None or not waits(pod.pod):
            return None
        node = self._handle.cache.nodes.get(state.node_name)
        if node is None or node.node is None:
            return self._refused(pod, state.node_name, unresolvable(NO_NODE), NAME)
        if self._rules.reads_field and opts_out(node.node):
            return self._refused(pod, node.name, unresolvable(OPTED_OUT), NAME, Waits.POLICY)
        try:
            need = desired(pod.pod)
        except ValueError:
            return self._refused(pod, node.name, unresolvable(MALFORMED), FIT)
        rivals = self._handle.nominator.rivals(node.name, pod)
        room = self._room(node, pod, need, rivals)
        status = room.fits()
        if status.is_success and self._rules.looks_first:
            return self._fitting(pod, node)
        if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return self._refused(pod, node.name, status, FIT)
        short = tuple(room.shortage().items())
        return replace(self._preempt(pod, node, need, rivals, status), missing=short, has_tried=True)

    def _room(self, node: NodeInfo, pod: PodInfo, need: Amounts, rivals: Sequence[PodInfo],
              count: Count = counted) -> NodeRoom:  # fmt: skip
        return NodeRoom(node, pod, need, rivals=rivals, count=count, adjusts_pod_count=self._rules.adjusts_pod_count,
                        without_self=self._rules.removes_self)  # fmt: skip

    # -- outcomes --------------------------------------------------------------------------------------

    def _fitting(self, pod: PodInfo, node: NodeInfo) -> Verdict:
        if self._rules.on_fit == "complete_bind":
            return Verdict(pod, node.name, Waits.NOTHING)
        plugin = NAME if self._rules.on_fit == "park_permit" else FIT
        return Verdict(pod, node.name, Waits.KUBELET, plugin)

    def _refused(self, pod: PodInfo, node: str, status: Status, plugin: str, waits_for: Waits = Waits.ROOM,
                 after: str = "") -> Verdict:  # fmt: skip
        return Verdict(pod, node, waits_for, plugin, status.reasons, after)

    # -- preemption ------------------------------------------------------------------------------------

    def _preempt(self, pod: PodInfo, node: NodeInfo, need: Amounts, rivals: Sequence[PodInfo],
                 status: Status) -> Verdict:  # fmt: skip
        self.attempts += 1
        priority = self.priority_of(pod)
        why_not = self._refusal(pod, node, priority)
        if why_not:
            is_guarded = why_not in (eligibility.GUARDED, eligibility.IN_PROGRESS)
            return replace(self._refused(pod, node.name, status, FIT, after=why_not), is_guarded=is_guarded)
        potential = self._potential(pod, node, priority)
        if not potential:
            return self._refused(pod, node.name, status, FIT, after=_nowhere(NO_VICTIMS))
        what_if = self._room(node, pod, need, rivals, allocated if self._rules.counts_allocated else counted)
        budgets = Budgets(self._handle.world.all(PodDisruptionBudget), matches_empty=self._matches_empty)
        found = select_victims(potential, what_if, budgets, node=node.name, tie=self._tie(), is_strict=self._is_strict)
        if not isinstance(found, Victims):
            if found.code is Code.ERROR:  # everybody may stay: the kubelet has the room, or will have it
                return self._fitting(pod, node)
            return self._refused(pod, node.name, status, FIT, after=_nowhere(*found.reasons))
        eviction = Eviction(Preemptor(pod.uid, priority, (pod,)), node.name, found.pods, (node.name,), PREEMPTION,
                            self._is_async)  # fmt: skip
        self._evicted_for[pod.uid] = node.name
        self.violations += found.violations
        return Verdict(pod, node.name, Waits.ROOM, FIT, status.reasons, eviction=eviction)

    def priority_of(self, pod: PodInfo) -> int:
        """Return what the pod counts for as a preemptor: itself, or its group."""
        return self._units.priority_of(pod) if self._rules.acts_for_group else pod.priority

    def _refusal(self, pod: PodInfo, node: NodeInfo, priority: int) -> str:
        if self._is_async and self._handle.preempting.is_running(pod.uid):
            return eligibility.IN_PROGRESS
        if self._rules.acts_for_group and self._is_degraded(pod):
            return DEGRADED
        return eligibility.refusal(pod, node if self._is_nominated(pod, node.name) else None, is_hopeless=False,
                                   priority=priority, priority_of=self._units.priority_of)  # fmt: skip

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
        """Whether fewer members of the pod's gang run than it needs: it would not make use of the room."""
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

    def _tie(self) -> TieBreak:
        if not self._draws_victims:
            return by_uid
        random = self._handle.random
        return lambda unit: random.random()


def _nowhere(*reasons: str) -> str:
    return f"0/1 nodes are available: {', '.join(f'1 {reason}' for reason in reasons)}."
