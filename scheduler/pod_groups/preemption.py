"""Preemption by a group: it is placed on a cluster without less important pods, which then return if they fit.

The placement is chosen once, where all potential victims are gone, and kept; so the victims are neither the
fewest nor the least important possible ones (preemption 7.3, "Consequences"). Source: KEP-5710; preemption
7.3; upstream `pkg/scheduler/framework/preemption/podgrouppreemption.go`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scheduler.cache.node_info import PodInfo
from scheduler.entry import Handle
from scheduler.framework.status import SUCCESS, Code, Status, unresolvable, unschedulable
from scheduler.pod_groups.placement import Placed, Placer
from scheduler.preemption import eligibility
from scheduler.preemption.candidates import Budgets, select_victims
from scheduler.preemption.progress import Eviction, Preemptor
from scheduler.preemption.units import Unit, Units
from scheduler.switches import GangSwitches, PreemptionSwitches
from services.api.kinds.poddisruptionbudget import PodDisruptionBudget

CLUSTER: Final = "cluster"
NO_VICTIMS: Final = "No preemption victims found for incoming preemptor"
TOPOLOGY: Final = "not supported with topology constraints"
PREFIX: Final = "pod group preemption: "
_PLUGIN: Final = "DefaultPreemption"


@dataclass(frozen=True, slots=True)
class GroupPreemption:
    """The result of a group's preemption.

    `status` success: nominate `placed` and make `eviction`, if any. `violations`: pods whose eviction violates
    a budget.
    """

    status: Status
    placed: tuple[Placed, ...] = ()
    eviction: Eviction | None = None
    violations: int = 0


class GroupPreemptor:
    """Tries preemption once for a group and leaves cache, nominations and plugins unchanged."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._units = Units(handle.groups, handle.cache, handle.world)
        self._switches = handle.switches.of(PreemptionSwitches)
        self._has_policy = handle.switches.of(GangSwitches).has_policy

    def attempt(self, placer: Placer) -> GroupPreemption:
        """Return the victims and the nodes of the members."""
        group = placer.group
        self._handle.preempting.attempts += 1
        refusal = self._refusal(placer)
        if refusal:
            return _no(unschedulable(refusal))
        nodes = self._handle.cache.nodes.values()
        running = (pod for node in nodes if node.node is not None for pod in node.pods.values())
        potential = self._units.below(group.spec.priority, running)
        if not potential:
            return _no(unresolvable(NO_VICTIMS))
        what_if = _ClusterWhatIf(self._handle, placer)
        budgets = Budgets(self._handle.world.all(PodDisruptionBudget), matches_empty=self._switches.matches_empty)
        try:
            victims = select_victims(potential, what_if, budgets, node=CLUSTER)
        finally:
            what_if.restore()
        placed = tuple(what_if.placed)
        if isinstance(victims, Status):
            # Every pod could stay: the placement itself was all that was missing, and waits for its next cycle.
            is_free = victims.code is Code.ERROR and bool(placed)
            return GroupPreemption(SUCCESS, placed) if is_free else _no(victims)
        members = tuple(member.info for member in placer.members)
        preemptor = Preemptor(group.metadata.uid, group.spec.priority, members, is_group=True)
        names = tuple(dict.fromkeys(each.node_name for each in placed))
        eviction = Eviction(preemptor, CLUSTER, victims.pods, names, _PLUGIN, self._switches.is_async)
        return GroupPreemption(SUCCESS, placed, eviction, victims.violations)

    def _refusal(self, placer: Placer) -> str:
        group = placer.group
        constraints = group.spec.scheduling_constraints
        if constraints is not None and constraints.topology:
            return TOPOLOGY
        if self._handle.preempting.is_running(group.metadata.uid):
            return eligibility.GROUP_IN_PROGRESS
        policy = group.spec.preemption_policy if self._has_policy else placer.members[0].info.spec.preemption_policy
        if policy == "Never":
            return eligibility.NEVER_POLICY
        for member in placer.members:
            node = self._handle.cache.nodes.get(self._handle.nominator.node_of(member.uid))
            if node is not None and eligibility.is_guarded(node, group.spec.priority, self._units):
                return eligibility.GUARDED
        return ""


def _no(status: Status) -> GroupPreemption:
    return GroupPreemption(Status(status.code, (PREFIX + status.message,)))


class _ClusterWhatIf:
    """The live cluster, changed in place and restored: nothing else reads it meanwhile.

    The first `fits` places the group; each later one runs the filters again for every member on its fixed node.
    If filters depend on nothing but the node, only members on the nodes of the unit put back last are checked.
    """

    def __init__(self, handle: Handle, placer: Placer) -> None:
        self._cache, self._nominator = handle.cache, handle.nominator
        self._runner = placer.runner
        self._placer = placer
        self._out: dict[str, PodInfo] = {}
        self._is_placed = False
        self._is_local = False
        self._touched: dict[str, None] = {}
        self.placed: list[Placed] = []

    def remove(self, unit: Unit) -> None:
        """Remove the unit from the dry run."""
        for pod in unit.pods:
            self._cache.take_out(pod.uid)
            self._out[pod.uid] = pod
            self._follow(pod, self._runner.remove_pod)

    def add(self, unit: Unit) -> None:
        """Put a removed unit back where it ran."""
        self._touched = {self._cache.node_of(pod.uid): None for pod in unit.pods}
        for pod in unit.pods:
            del self._out[pod.uid]
            self._cache.put_back(pod.uid)
            self._follow(pod, self._runner.add_pod)

    def _follow(self, pod: PodInfo, follow: Callable[..., None]) -> None:
        node = self._cache.nodes.get(self._cache.node_of(pod.uid))
        for each in self.placed if node is not None else ():
            follow(each.state, each.member.info, pod, node)

    def fits(self) -> Status:
        """Place the group, or ask whether it still fits where it was placed."""
        if not self._is_placed:
            self._is_placed = True
            placement = self._placer.place()
            self._placer.retract(placement.placed)
            if not placement.is_feasible:
                status = placement.status
                return status if status.code is not Code.WAIT else unschedulable(*status.reasons)
            self.placed = placement.placed
            self._is_local = all(self._runner.has_only_row_filters(each.state) for each in self.placed)
            return SUCCESS
        seen: list[Placed] = []
        status, members = SUCCESS, {each.member.uid for each in self.placed}
        asked = [p for p in self.placed if p.node_name in self._touched] if self._is_local else self.placed
        for placed_member in asked:
            info, node = placed_member.member.info, self._cache.nodes[placed_member.node_name]
            rivals = [p for p in self._nominator.rivals(placed_member.node_name, info) if p.uid not in members]
            status = self._runner.filter_beside(placed_member.state, info, node, rivals)
            if not status.is_success:
                break
            status = self._placer.assume(placed_member)
            if not status.is_success:
                break
            seen.append(placed_member)
        self._placer.retract(seen)
        return status

    def restore(self) -> None:
        """Put back every pod that is still out."""
        for uid in self._out:
            self._cache.put_back(uid)
        self._out.clear()
