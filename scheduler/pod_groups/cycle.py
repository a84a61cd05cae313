"""The pod-group scheduling cycle: from a group and the present nodes to the result for each member.

Source: preemption 6.4, with its table of when to bind and when to preempt; upstream
`pkg/scheduler/schedule_one_podgroup.go`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from scheduler.cache.node_info import PodInfo
from scheduler.cycle.profiles import Profile, Profiles
from scheduler.cycle.result import Result
from scheduler.dispatcher.calls import SCHEDULER_ERROR, UNSCHEDULABLE, SetCondition
from scheduler.entry import Handle
from scheduler.framework.status import Code, Status, error_status, unschedulable
from scheduler.pod_groups.placement import Placed, Placement, Placer, Rejected
from scheduler.pod_groups.preemption import GroupPreemption, GroupPreemptor
from scheduler.pod_groups.queue import GroupInfo
from scheduler.queue.queued_pod import QueuedPod
from scheduler.switches import GangSwitches
from services.api.kinds.podgroup import INITIALLY_SCHEDULED, PodGroup

WAITING: Final = "pod group is waiting for preemption to complete"
GANG_PLUGIN: Final = "GangScheduling"
SCHEDULED: Final = "Scheduled"


class Outcome(StrEnum):
    """The outcome for the group; the values are the results that metrics count."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    WAITING_ON_PREEMPTION = "waiting_on_preemption"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The result of a group cycle. `message`: of the group.

    `placed` members are assumed and go on to be bound; all others are in `rejected`. `actions`: evictions to
    make. `preemption`: the result of the attempt, if one was made.
    """

    outcome: Outcome
    message: str = ""
    placed: tuple[Placed, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    actions: tuple[Any, ...] = ()
    preemption: GroupPreemption | None = None

    @property
    def rejectors(self) -> frozenset[str]:
        """Return the plugins whose events may help the group: those that rejected a member, and the quorum's own.

        If empty, the group is tried again by its back-off, after an error and while there are no nodes.
        """
        if self.outcome is Outcome.ERROR or any(each.by_none for each in self.rejected):
            return frozenset()
        return frozenset((GANG_PLUGIN,)).union(*(each.rejectors for each in self.rejected))

    @property
    def pending(self) -> frozenset[str]:
        """Return the plugins whose events spare the group the back-off."""
        return frozenset().union(*(each.pending for each in self.rejected))

    def condition(self, group: PodGroup) -> SetCondition | None:
        """Return the group's desired condition, or None for no change: True is terminal."""
        status, reason = "False", SCHEDULER_ERROR if self.outcome is Outcome.ERROR else UNSCHEDULABLE
        if self.outcome is Outcome.SCHEDULED:
            status, reason = "True", SCHEDULED
        elif group.is_scheduled:
            return None
        return SetCondition(reason, self.message, INITIALLY_SCHEDULED, status, group.metadata.generation)


class GroupCycle:
    """Schedules groups for all profiles."""

    def __init__(self, handle: Handle, profiles: Profiles) -> None:
        self._handle = handle
        self._profiles = profiles
        self._switches = handle.switches.of(GangSwitches)
        self._preemptor = GroupPreemptor(handle)
        self.on_result: Callable[[PodInfo, Profile, Result, float], None] | None = None
        """Called after each member's own cycle, before the member is assumed."""

    def run(self, info: GroupInfo, now: float) -> GroupResult:
        """Return the result for a group with at least one member."""
        members = info.in_order()
        group = self._handle.world.get(PodGroup, info.group)
        if group is None:
            # Gone since its gate was asked; the gate will hold the members back.
            text = f'pod group "{info.group.name}" does not exist'
            return self._reject(Outcome.UNSCHEDULABLE, unschedulable(text), Placement(untried=members))
        mistake = self._mistake(group, members)
        if mistake:
            return self._reject(Outcome.ERROR, error_status(mistake), Placement(untried=members))
        profile = self._profiles.of(members[0].info)
        return self._schedule(Placer(self._handle, profile.runner, self._cycle_of(profile), group, members, now))

    def _cycle_of(self, profile: Profile) -> Callable[..., Result]:
        """Return what schedules one member."""
        schedule, on_result = profile.cycle.schedule, self.on_result
        if on_result is None:
            return schedule

        def observed_schedule(pod: PodInfo, now: float, *, with_post_filter: bool = True) -> Result:
            result = schedule(pod, now, with_post_filter=with_post_filter)
            on_result(pod, profile, result, now)
            return result

        return observed_schedule

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

    def _schedule(self, placer: Placer) -> GroupResult:
        placement = placer.place(with_preemption=self._switches.group_preemption == "per-pod")
        if placement.status.code is Code.ERROR:
            placer.retract(placement.placed)
            return self._reject(Outcome.ERROR, placement.status, placement)
        if not placement.is_feasible or any(each.needs_eviction for each in placement.placed):
            return self._cannot_bind(placer, placement)
        if placement.rejected and placer.scheduled and placer.group.spec.is_gang:
            better = self._preempt_for_growth(placer, placement)
            if better is not None:
                return better
        return GroupResult(Outcome.SCHEDULED, "", tuple(placement.placed), tuple(placement.rejected))

    def _preempt_for_growth(self, placer: Placer, placement: Placement) -> GroupResult | None:
        """Preempt for a gang that grows and does not fit as a whole; None: bind those that do."""
        if self._switches.group_preemption != "cluster":
            return None
        placer.retract(placement.placed)
        preemption = self._preemptor.attempt(placer)
        if preemption.status.is_success:
            return self._wait_for_victims(placement, preemption)
        for placed_member in placement.placed:
            status = placer.assume(placed_member)
            assert status.is_success, (
                f"{placed_member.member.key} fitted {placed_member.node_name} a moment ago: {status.message}"
            )
        return None

    def _cannot_bind(self, placer: Placer, placement: Placement) -> GroupResult:
        placer.retract(placement.placed)
        actions = tuple(placement.actions)
        if placement.is_feasible:
            # Each member that did not fit has preempted for itself (1.36).
            nominated = {each.member.uid: each.node_name for each in placement.placed}
            return self._reject(Outcome.WAITING_ON_PREEMPTION, unschedulable(WAITING), placement, nominated, actions)
        status = unschedulable(*placement.status.reasons)
        if self._switches.group_preemption != "cluster":
            return self._reject(Outcome.UNSCHEDULABLE, status, placement, actions=actions)
        preemption = self._preemptor.attempt(placer)
        if preemption.status.is_success:
            return self._wait_for_victims(placement, preemption)
        if not preemption.status.code.is_rejected:
            return self._reject(Outcome.ERROR, preemption.status, placement)
        status = unschedulable(*status.reasons, *preemption.status.reasons)
        return self._reject(Outcome.UNSCHEDULABLE, status, placement, preemption=preemption)

    def _wait_for_victims(self, found: Placement, preemption: GroupPreemption) -> GroupResult:
        nominated = {each.member.uid: each.node_name for each in preemption.placed}
        actions = (preemption.eviction,) if preemption.eviction is not None else ()
        status = unschedulable(WAITING)
        return self._reject(Outcome.WAITING_ON_PREEMPTION, status, found, nominated, actions, preemption)

    @staticmethod
    def _reject(
        outcome: Outcome,
        status: Status,
        placement: Placement,
        nominated: dict[str, str] | None = None,
        actions: tuple[Any, ...] = (),
        preemption: GroupPreemption | None = None,
    ) -> GroupResult:
        """Return the members rejected: with their own reason where they have one, else with the group's.

        While the group waits for victims, members that will fit say so; an error is that of all members.
        """
        nominated = nominated or {}
        rejected: list[Rejected] = []
        for rejected_member in placement.rejected:
            node = nominated.get(rejected_member.member.uid, "")
            is_own = not node and (outcome is not Outcome.ERROR or not rejected_member.status.code.is_rejected)
            rejected.append(
                replace(rejected_member, status=rejected_member.status if is_own else status, nominated=node)
            )
        for member in (*(each.member for each in placement.placed), *placement.untried):
            rejected.append(Rejected(member, status, nominated=nominated.get(member.uid, "")))
        return GroupResult(outcome, status.message, (), tuple(rejected), actions, preemption)
