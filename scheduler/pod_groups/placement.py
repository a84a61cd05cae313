"""The placement of members one after the other, each seeing those before it; the caller keeps or undoes it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.cache.cache import Assumption
from scheduler.cycle.result import Result, ScheduleResult, Unschedulable
from scheduler.entry import Handle
from scheduler.framework.cycle_state import CycleError, CycleState
from scheduler.framework.proposal_points import PlacementProgress
from scheduler.framework.runner import Runner
from scheduler.framework.status import SUCCESS, Code, Status, error_status, unschedulable
from scheduler.queue.queued_pod import QueuedPod
from services.api.kinds.podgroup import PodGroup


@dataclass(slots=True)
class Placed:
    """A member with a node. `assumption` while it is assumed; `nominated`: its nominated node before.

    `needs_eviction`: the node has to be freed first, by `actions`.
    """

    member: QueuedPod
    result: ScheduleResult
    assumption: Assumption | None = None
    nominated: str = ""
    needs_eviction: bool = False

    @property
    def node_name(self) -> str:
        """The member's node."""
        return self.result.node_name

    @property
    def state(self) -> CycleState:
        """The cycle's state: made when the members before it, and none after it, were assumed."""
        return self.result.state


@dataclass(frozen=True, slots=True)
class Rejected:
    """A member without a node. `status` is the reason.

    `rejectors` and `pending`: the plugins whose answers would have to change. `nominated`: its nominated node
    once victims have left; "" clears its nomination. `by_none`: no node exists, so no plugin was called, and
    only the clock can decide when to try again.
    """

    member: QueuedPod
    status: Status
    rejectors: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    nominated: str = ""
    by_none: bool = False


@dataclass(slots=True)
class Placement:
    """The result for the members. `status`: of the group's constraint.

    Wait means that the existing members do not meet it yet. `untried`: members left out because the constraint
    could not be met any more. `actions`: evictions that members requested one by one.
    """

    placed: list[Placed] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    untried: list[QueuedPod] = field(default_factory=list)
    status: Status = SUCCESS
    actions: list[Any] = field(default_factory=list)

    @property
    def is_feasible(self) -> bool:
        """Whether the constraint is met and a member was placed for it."""
        return self.status.is_success and bool(self.placed)


class Placer:
    """Places the members of one group, in their order, with their profile's plugins.

    `schedule` is `SchedulingCycle.schedule`; `scheduled`: the number of members that have a node already.
    """

    def __init__(
        self,
        handle: Handle,
        runner: Runner,
        schedule: Callable[..., Result],
        group: PodGroup,
        members: Sequence[QueuedPod],
        now: float,
    ) -> None:
        self.group, self.members = group, members
        self.runner = runner
        self._schedule = schedule
        self._cache, self._nominator = handle.cache, handle.nominator
        self._now = now
        self.scheduled = sum(uid in handle.cache.pods for uid in handle.groups.uids(group.metadata.key))

    def place(self, *, with_preemption: bool = False) -> Placement:
        """Place as many members as possible, in order, and leave them assumed.

        `with_preemption`: each may preempt for itself (1.36).
        """
        placement, members = Placement(status=error_status("no member to place")), self.members
        for i, member in enumerate(members):
            status = self._place_one(placement, member, with_preemption=with_preemption)
            if not status.is_success and not status.code.is_rejected:
                placement.status = error_status(f"failed to schedule other pod from a pod group: {status.message}")
                placement.untried = list(members[i + 1 :])
                return placement
            progress = PlacementProgress(self.scheduled + len(placement.placed), len(members) - i - 1)
            placement.status = self.runner.placement_feasible(self.group, progress)
            if not placement.status.is_success and placement.status.code is not Code.WAIT:
                placement.untried = list(members[i + 1 :])
                return placement
        return placement

    def _place_one(self, placement: Placement, member: QueuedPod, *, with_preemption: bool) -> Status:
        result = self._schedule(member.info, self._now, with_post_filter=with_preemption)
        placed: Placed | Rejected
        match result:
            case ScheduleResult():
                placed = Placed(member, result)
            case Unschedulable():
                placed = self._on_credit(placement, member, result)
            case CycleError(is_rejection=True):
                placed = Rejected(member, unschedulable(result.message), by_none=True)
            case CycleError():
                placed = Rejected(member, error_status(result.message))
        if isinstance(placed, Placed):
            status = self.assume(placed)
            if status.is_success:
                placement.placed.append(placed)
                return status
            placed = Rejected(member, status, frozenset((status.plugin,)) if status.code.is_rejected else frozenset())
        placement.rejected.append(placed)
        return placed.status

    @staticmethod
    def _on_credit(placement: Placement, member: QueuedPod, result: Unschedulable) -> Placed | Rejected:
        """Place the member where it preempts for itself: the members after it must see it there."""
        post, diagnosis = result.post_filter, result.diagnosis
        if post is not None and post.nominated_node:
            placement.actions += post.actions
            there = ScheduleResult(post.nominated_node, result.state, diagnosis.node_count, 0)
            return Placed(member, there, needs_eviction=True)
        status = unschedulable(result.diagnosis.message)
        return Rejected(member, status, frozenset(diagnosis.rejectors), frozenset(diagnosis.pending))

    def assume(self, placed: Placed) -> Status:
        """Charge the member to its node and run Reserve; a rejection leaves no trace."""
        info, node = placed.member.info, placed.node_name
        placed.nominated = self._nominator.node_of(info.uid)
        placed.assumption = self._cache.assume(info, node, placed.state)
        self._nominator.remove(info.uid)
        status = self.runner.reserve(placed.state, info, node)
        if not status.is_success:
            # The runner has undone the reservations already.
            self._cache.forget(info.uid)
            self._nominator.set(info, placed.nominated)
            placed.assumption = None
        return status

    def retract(self, placed: Sequence[Placed]) -> None:
        """Undo `assume` for all members, the last first."""
        for placed_member in reversed(placed):
            info = placed_member.member.info
            self.runner.unreserve(placed_member.state, info, placed_member.node_name)
            self._cache.forget(info.uid)
            self._nominator.set(info, placed_member.nominated)
            placed_member.assumption = None
