"""The pod-group scheduling cycle: a group and the nodes as they are, and what becomes of each member.

Source: preemption 6.4, with its table of when to bind and when to preempt; upstream
`pkg/scheduler/schedule_one_podgroup.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scheduler.cycle.profiles import Profile, Profiles
from scheduler.framework.status import Code, Status, failed, unschedulable
from scheduler.handle import Handle
from scheduler.pod_groups.entity import GroupInfo
from scheduler.pod_groups.placement import Placed, Placement, Placer, Refused
from scheduler.pod_groups.preemption import GroupPreemption, GroupPreemptor
from scheduler.pod_groups.status import Outcome
from scheduler.pod_groups.units import GroupUnits
from scheduler.queue.queued_pod import QueuedPod
from scheduler.switches import GangSwitches
from services.api.kinds.podgroup import PodGroup

WAITING: Final = "pod group is waiting for preemption to complete"
GANG_PLUGIN: Final = "GangScheduling"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A member that is not to be bound. `nominated`: "" clears its nomination."""

    member: QueuedPod
    status: Status
    rejectors: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    nominated: str = ""


@dataclass(frozen=True, slots=True)
class GroupResult:
    """`placed` members are assumed and go on to be bound; all others are in `rejected`. `message`: of the group.

    `actions`: evictions to make. `preemption`: what the attempt found, if one was made.
    """

    outcome: Outcome
    message: str = ""
    placed: tuple[Placed, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    actions: tuple[Any, ...] = ()
    preemption: GroupPreemption | None = None

    @property
    def rejectors(self) -> frozenset[str]:
        """Whose events may help the group: of every plugin that rejected a member, and the quorum's own."""
        if self.outcome is Outcome.ERROR:
            return frozenset()
        return frozenset((GANG_PLUGIN,)).union(*(each.rejectors for each in self.rejected))

    @property
    def pending(self) -> frozenset[str]:
        """Whose events spare the group the back-off."""
        return frozenset().union(*(each.pending for each in self.rejected))


class GroupCycle:
    """Schedules groups for all profiles."""

    def __init__(self, handle: Handle, profiles: Profiles) -> None:
        self._handle = handle
        self._profiles = profiles
        self._switches = handle.switches.of(GangSwitches)
        self._units = GroupUnits(handle.groups, handle.cache, handle.world)

    def run(self, info: GroupInfo, now: float) -> GroupResult:
        """Return what is to be done for a group with at least one member."""
        members = info.in_order()
        group = self._handle.world.get(PodGroup, info.group)
        if group is None:
            # Gone since its gate was asked; the gate will hold the members back.
            text = f'pod group "{info.group.name}" does not exist'
            return self._reject(Outcome.UNSCHEDULABLE, unschedulable(text), Placement(untried=members))
        mistake = self._mistake(group, members)
        if mistake:
            return self._reject(Outcome.ERROR, failed(mistake), Placement(untried=members))
        return self._schedule(group, members, now)

    # -- what makes a group impossible -----------------------------------------------------------------

    def _mistake(self, group: PodGroup, members: Sequence[QueuedPod]) -> str:
        first = members[0].info.spec
        for member in members:
            spec = member.info.spec
            if spec.scheduler_name != first.scheduler_name:
                return (
                    "all pods in a single pod group should have the same .spec.schedulerName set, got: "
                    f'"{first.scheduler_name}" and "{spec.scheduler_name}"'
                )
        if not self._switches.checks_priority:
            return ""
        policy = group.spec.preemption_policy if self._switches.has_policy else first.preemption_policy
        for member in members:
            spec = member.info.spec
            if spec.priority != group.spec.priority:
                return (
                    "all pods in a single pod group should match the priority of the pod group, got: "
                    f"{group.spec.priority} and {spec.priority}"
                )
            if policy and spec.preemption_policy != policy:
                return (
                    "all pods in a single pod group should match the preemptionPolicy of the pod group, got: "
                    f"{policy} and {spec.preemption_policy}"
                )
        return ""

    # -- bind or preempt -------------------------------------------------------------------------------

    def _schedule(self, group: PodGroup, members: list[QueuedPod], now: float) -> GroupResult:
        profile = self._profiles.of(members[0].info)
        placer = self._placer(profile)
        scheduled = sum(1 for uid in self._handle.groups.uids(group.metadata.key) if uid in self._handle.cache.pods)

        def place(*, with_preemption: bool = False) -> Placement:
            return placer.place(group, members, scheduled, now, with_preemption=with_preemption)

        found = place(with_preemption=True)
        if found.status.code is Code.ERROR:
            placer.retract(found.placed)
            return self._reject(Outcome.ERROR, found.status, found)
        if found.is_feasible and not any(each.needs_eviction for each in found.placed):
            if found.refused and scheduled and group.spec.is_gang:
                better = self._preempt_for_growth(profile, placer, group, members, found, place)
                if better is not None:
                    return better
            return self._bind(found)
        return self._cannot_bind(profile, placer, group, members, found, place)

    def _placer(self, profile: Profile) -> Placer:
        return Placer(
            self._handle.cache,
            profile.runner,
            profile.cycle.schedule,
            self._handle.nominator,
            per_pod=self._switches.group_preemption == "per-pod",
        )

    def _bind(self, found: Placement) -> GroupResult:
        return GroupResult(Outcome.SCHEDULED, "", tuple(found.placed), tuple(map(_as_rejected, found.refused)))

    def _preempt_for_growth(
        self,
        profile: Profile,
        placer: Placer,
        group: PodGroup,
        members: list[QueuedPod],
        found: Placement,
        place: Callable[[], Placement],
    ) -> GroupResult | None:
        """Preempt for a gang that grows and does not fit as a whole; None: bind those that do."""
        if self._switches.group_preemption != "cluster":
            return None
        placer.retract(found.placed)
        preemption = self._preempt(profile, placer, group, members, place)
        if preemption.status.is_success:
            return self._wait_for_victims(found, preemption)
        for each in found.placed:
            status = placer.assume(each)
            assert status.is_success, f"{each.member.key} fitted {each.node_name} a moment ago: {status.message}"
        return None

    def _cannot_bind(
        self,
        profile: Profile,
        placer: Placer,
        group: PodGroup,
        members: list[QueuedPod],
        found: Placement,
        place: Callable[[], Placement],
    ) -> GroupResult:
        placer.retract(found.placed)
        actions = tuple(found.actions)
        if found.is_feasible:
            # Each member that did not fit has preempted for itself (1.36).
            nominated = {each.member.uid: each.node_name for each in found.placed}
            return self._reject(Outcome.WAITING_ON_PREEMPTION, unschedulable(WAITING), found, nominated, actions)
        status = unschedulable(*found.status.reasons)
        if self._switches.group_preemption != "cluster":
            return self._reject(Outcome.UNSCHEDULABLE, status, found, actions=actions)
        preemption = self._preempt(profile, placer, group, members, place)
        if preemption.status.is_success:
            return self._wait_for_victims(found, preemption)
        if not preemption.status.code.is_rejected:
            return self._reject(Outcome.ERROR, preemption.status, found)
        status = unschedulable(*status.reasons, *preemption.status.reasons)
        return self._reject(Outcome.UNSCHEDULABLE, status, found, preemption=preemption)

    def _preempt(
        self,
        profile: Profile,
        placer: Placer,
        group: PodGroup,
        members: list[QueuedPod],
        place: Callable[[], Placement],
    ) -> GroupPreemption:
        preemptor = GroupPreemptor(self._handle, profile.runner, placer, self._units)
        return preemptor.attempt(group, [member.info for member in members], place)

    # -- results ---------------------------------------------------------------------------------------

    def _wait_for_victims(self, found: Placement, preemption: GroupPreemption) -> GroupResult:
        nominated = {each.member.uid: each.node_name for each in preemption.placed}
        actions = (preemption.eviction,) if preemption.eviction is not None else ()
        return self._reject(
            Outcome.WAITING_ON_PREEMPTION, unschedulable(WAITING), found, nominated, actions, preemption
        )

    @staticmethod
    def _reject(
        outcome: Outcome,
        status: Status,
        found: Placement,
        nominated: dict[str, str] | None = None,
        actions: tuple[Any, ...] = (),
        preemption: GroupPreemption | None = None,
    ) -> GroupResult:
        """Return the members rejected: with their own reason where they have one, else with the group's.

        While the group waits for victims, members that will fit say so; an error is that of all members.
        """
        nominated = nominated or {}
        rejected: list[Rejected] = []
        for refused in found.refused:
            node = nominated.get(refused.member.uid, "")
            is_own = not node and (outcome is not Outcome.ERROR or not refused.status.code.is_rejected)
            own = refused.status if is_own else status
            rejected.append(Rejected(refused.member, own, refused.rejectors, refused.pending, node))
        for member in (*(each.member for each in found.placed), *found.untried):
            rejected.append(Rejected(member, status, nominated=nominated.get(member.uid, "")))
        return GroupResult(outcome, status.message, (), tuple(rejected), actions, preemption)


def _as_rejected(refused: Refused) -> Rejected:
    return Rejected(refused.member, refused.status, refused.rejectors, refused.pending)
