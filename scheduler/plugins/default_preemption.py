"""PostFilter: preempt by evicting pods of lower priority; PreEnqueue: wait while evictions are under way.

The plugin only decides. The evictions that it returns are performed by `scheduler.preemption.evictions`.
Source: preemption 2 to 4; upstream `pkg/scheduler/framework/plugins/defaultpreemption`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from scheduler.cache.columns import Columns
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState, Diagnosis
from scheduler.framework.events import ASSIGNED_POD, Action, ClusterEvent, Hint, Registration
from scheduler.framework.plugin import PostFilterResult
from scheduler.framework.runner import Runner
from scheduler.framework.status import SUCCESS, Code, Status, unresolvable, unschedulable
from scheduler.preemption import candidates, eligibility
from scheduler.preemption.candidates import (
    ASKING,
    LEFT,
    NO_VICTIMS,
    SEARCHED,
    Budgets,
    Candidate,
    Memory,
    NodeWhatIf,
    Search,
    Victims,
    select_victims,
)
from scheduler.preemption.progress import Eviction, Preemptor
from scheduler.preemption.units import Units
from scheduler.switches import GangSwitches, PreemptionSwitches
from services.api.kinds.poddisruptionbudget import PodDisruptionBudget

NAME: Final = "DefaultPreemption"
EVICTIONS_DELAY_S: Final = 30.0
"""Seconds that evictions may take before that is reported, where plugins choose delays (KEP-5501).

The number is our own.
"""
_NO_VICTIMS: Final = unresolvable(NO_VICTIMS)


class DefaultPreemptionArgs(Args, frozen=True):
    """The number of candidates that end the search.

    It is a percentage of the potential nodes, with an absolute minimum.
    """

    min_candidate_nodes_percentage: int = candidates.PERCENTAGE
    min_candidate_nodes_absolute: int = candidates.ABSOLUTE

    def __post_init__(self) -> None:
        percentage, absolute = self.min_candidate_nodes_percentage, self.min_candidate_nodes_absolute
        if not 0 <= percentage <= 100:
            raise ValueError(f"minCandidateNodesPercentage: {percentage} is not in the range [0, 100]")
        if absolute < 0:
            raise ValueError(f"minCandidateNodesAbsolute: {absolute} is not in the range [0, inf)")
        if percentage == 0 and absolute == 0:
            raise ValueError("minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be zero")


class DefaultPreemption:
    """The preemption plugin; one attempt is one `post_filter`."""

    name = NAME
    gate_delay_s = EVICTIONS_DELAY_S

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        switches = handle.switches
        self._args = args
        self._handle = handle
        self._switches = switches.of(PreemptionSwitches)
        self._memory = Memory()
        self._units = Units(handle.groups, handle.cache, handle.world)
        # Members preempt for themselves where they are placed by themselves, or are configured to (1.36).
        gangs = switches.of(GangSwitches)
        self._speaks_for_groups = not gangs.is_one_by_one and gangs.group_preemption != "per-pod"
        self._filters: Runner | None = None

    def use_filters(self, filters: Runner) -> None:
        """Set the filters for hypothetical nodes."""
        self._filters = filters

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Hold the pod back while its victims are being evicted."""
        if not self._switches.is_async:
            return SUCCESS
        if self._handle.preempting.is_running(pod.uid):
            return unresolvable(eligibility.IN_PROGRESS)
        group = self._units.group_of(pod)
        if group is not None and self._handle.preempting.is_running(group.metadata.uid):
            return unresolvable(eligibility.GROUP_IN_PROGRESS)
        return SUCCESS

    def delay_of_gate(self, pod: PodInfo, status: Status) -> float:
        """Return the report's delay: evictions end by themselves, whichever pods are the victims."""
        return self.gate_delay_s

    def gate_message(self, pod: PodInfo, status: Status) -> str:
        """Return "": users should go on reading why no node fits (kep-5501 7)."""
        return ""

    def events_to_register(self) -> Sequence[Registration]:
        """Return deletions of pods: they may open the gate, but the rejecting plugins decide whether they help."""
        if not self._switches.is_async:
            return ()
        return (Registration(ClusterEvent(ASSIGNED_POD, Action.DELETE), lambda pod, old, new: Hint.SKIP),)

    def post_filter(self, state: CycleState, pod: PodInfo, columns: Columns, diagnosis: Diagnosis) -> PostFilterResult:
        """Return the node to wait for and the victims there, or why preemption does not help."""
        if LEFT not in state.data:  # else the attempt goes on after a question
            self._handle.preempting.attempts += 1
        result = self.decide(state, pod, columns, diagnosis)
        status = result.status
        if not status.message:
            return result
        text = f"preemption: {status.message}"
        return PostFilterResult(Status(status.code, (text,)), result.nominated_node, result.actions)

    def decide(self, state: CycleState, pod: PodInfo, columns: Columns, diagnosis: Diagnosis) -> PostFilterResult:
        """Return the same as `post_filter`, without its prefix and without counting an attempt: a prediction."""
        if self._switches.is_async and self._handle.preempting.is_running(pod.uid):
            return PostFilterResult(unschedulable(eligibility.IN_PROGRESS))
        why_not = self._refusal(pod, columns, diagnosis)
        if why_not:
            return PostFilterResult(unschedulable(why_not))
        search = state.data.pop(SEARCHED, None) or self._search(state, pod, columns, diagnosis)
        if not search.candidates:
            if search.errors:
                return PostFilterResult(Status(Code.ERROR, ("; ".join(search.errors),)))
            return PostFilterResult(unschedulable(search.message(diagnosis.node_count)), nominated_node="")
        if state.data.get(ASKING) and LEFT not in state.data:
            state.data[SEARCHED] = search
            return PostFilterResult(Status(Code.WAIT), asks=tuple(search.candidates))
        left: list[Candidate] | Status = state.data.get(LEFT, search.candidates)
        if isinstance(left, Status):
            return PostFilterResult(left)
        chosen = candidates.pick(left)
        preemptor = Preemptor(pod.uid, pod.priority, (pod,))
        eviction = Eviction(
            preemptor, chosen.node, chosen.victims.pods, (chosen.node,), self.name, self._switches.is_async
        )
        return PostFilterResult(SUCCESS, nominated_node=chosen.node, actions=(eviction,))

    def _refusal(self, pod: PodInfo, columns: Columns, diagnosis: Diagnosis) -> str:
        if self._speaks_for_groups and self._handle.groups.group_of(pod) is not None:
            return eligibility.GROUPED
        # What was decided here counts, before the API server has it.
        name = self._handle.nominator.node_of(pod.uid)
        row = columns.slots.get(name, -1)
        is_hopeless = row < 0 or bool(diagnosis.unresolvable[row])
        node = None if is_hopeless else self._handle.cache.nodes.get(name)
        return eligibility.refusal(pod, pod.priority, node, self._units)

    def _search(self, state: CycleState, pod: PodInfo, columns: Columns, diagnosis: Diagnosis) -> Search:
        """Visit the nodes that filters refused but did not call unresolvable, from a random one on."""
        order = self._handle.cache.order()
        potential = columns.valid.copy()
        potential[: len(diagnosis.unresolvable)] &= ~diagnosis.unresolvable
        rows: list[int] = order[potential[order]].tolist()
        if not rows:
            return Search()
        offset = self._handle.random.randrange(0, len(rows))
        args = self._args
        enough = candidates.candidate_count(
            len(rows), args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
        )
        return candidates.search(rows, offset, enough, self._judge(state, pod))

    def _judge(self, state: CycleState, pod: PodInfo) -> Callable[[int], Candidate | Status]:
        """Return what judges one node after the other for the pod; what a node's row alone decides is remembered."""
        nominator, units, filters = self._handle.nominator, self._units, self._filters
        assert filters is not None, "the plugin is not part of a profile yet"
        pdbs = self._handle.world.all(PodDisruptionBudget)
        budgets = Budgets(pdbs, matches_empty=self._switches.matches_empty)
        is_local = pod.signature is not None and filters.has_only_row_filters(state) and not self._handle.groups.is_on
        results = self._memory.of((pod.signature, pod.priority), pdbs) if is_local else None
        own_node, nodes = nominator.node_of(pod.uid), self._handle.cache.columns.nodes

        def anew(node: NodeInfo) -> Candidate | Status:
            potential = units.below(pod.priority, node.pods.values())
            if not potential:
                return _NO_VICTIMS
            what_if = NodeWhatIf(filters, state, pod, node, nominator.rivals(node.name, pod), units)
            victims = select_victims(potential, what_if, budgets, node=node.name)
            return Candidate(node.name, victims) if isinstance(victims, Victims) else victims

        def judge(row: int) -> Candidate | Status:
            node = nodes[row]
            assert node is not None, f"row {row} is in the visiting order but has no node"
            if results is None or node.name == own_node:
                return anew(node)
            stamp = (node.generation, nominator.generation_of(node.name))
            known = results.get(node.name)
            if known is None or known[0] != stamp:
                known = results[node.name] = (stamp, anew(node))
            return known[1]

        return judge


PLUGIN = PluginEntry(NAME, DefaultPreemption, args=DefaultPreemptionArgs)
