"""Members placed one after the other, each seeing those before it; nothing of it lasts unless the caller keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.cache.cache import Assumption, Cache
from scheduler.cache.nominator import Nominator
from scheduler.cycle.result import ScheduleResult, Unschedulable
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.diagnosis import CycleError
from scheduler.framework.plugin import PlacementProgress
from scheduler.framework.runner import Runner
from scheduler.framework.status import SUCCESS, Code, Status, failed, unschedulable
from scheduler.queue.queued_pod import QueuedPod
from services.api.kinds.podgroup import PodGroup

Schedule = Callable[..., ScheduleResult | Unschedulable | CycleError]
"""`SchedulingCycle.schedule`."""


@dataclass(slots=True)
class Placed:
    """A member with a node. `assumption` while it is assumed; `nominated`: where it was expected before.

    `needs_eviction`: the node has to be freed first, by what `actions` say.
    """

    member: QueuedPod
    result: ScheduleResult
    assumption: Assumption | None = None
    nominated: str = ""
    needs_eviction: bool = False

    @property
    def node_name(self) -> str:
        """Where it goes."""
        return self.result.node_name

    @property
    def state(self) -> CycleState:
        """The cycle's state: made when the members before it, and none after it, were assumed."""
        return self.result.state


@dataclass(frozen=True, slots=True)
class Refused:
    """A member without a node: `status` says why, `rejectors` and `pending` who would have to change their minds."""

    member: QueuedPod
    status: Status
    rejectors: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()


@dataclass(slots=True)
class Placement:
    """What became of the members. `status`: of the group's constraint; Wait means not met by those there are.

    `untried`: members left out because the constraint could not be met any more. `actions`: evictions that members
    asked for one by one.
    """

    placed: list[Placed] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    untried: list[QueuedPod] = field(default_factory=list)
    status: Status = SUCCESS
    actions: list[Any] = field(default_factory=list)

    @property
    def is_feasible(self) -> bool:
        """Whether the constraint is met and a member was placed for it."""
        return self.status.is_success and bool(self.placed)


class Placer:
    """Places members with one profile's plugins. `schedule`: its cycle for one pod.

    `per_pod`: each member may preempt for itself (1.36).
    """

    def __init__(
        self, cache: Cache, runner: Runner, schedule: Schedule, nominator: Nominator, *, per_pod: bool
    ) -> None:
        self._cache = cache
        self._runner = runner
        self._schedule = schedule
        self._nominator = nominator
        self._per_pod = per_pod

    def place(
        self, group: PodGroup, members: Sequence[QueuedPod], scheduled: int, now: float, *, with_preemption: bool
    ) -> Placement:
        """Place as many members as can be, in order, and leave them assumed. `scheduled`: members that have a node."""
        found = Placement(status=failed("no member to place"))
        for i, member in enumerate(members):
            status = self._place_one(found, member, now, with_preemption=with_preemption and self._per_pod)
            if not status.is_success and not status.code.is_rejected:
                found.status = failed(f"failed to schedule other pod from a pod group: {status.message}")
                found.untried = list(members[i + 1 :])
                return found
            progress = PlacementProgress(scheduled + len(found.placed), len(members) - i - 1)
            found.status = self._runner.placement_feasible(group, progress)
            if not found.status.is_success and found.status.code is not Code.WAIT:
                found.untried = list(members[i + 1 :])
                return found
        return found

    def _place_one(self, found: Placement, member: QueuedPod, now: float, *, with_preemption: bool) -> Status:
        result = self._schedule(member.info, now, with_post_filter=with_preemption)
        if isinstance(result, CycleError):
            status = unschedulable(result.message) if result.is_rejection else failed(result.message)
            rejectors = frozenset(("NodeResourcesFit",)) if result.is_rejection else frozenset()
            found.refused.append(Refused(member, status, rejectors))
            return status
        placed = (
            Placed(member, result) if isinstance(result, ScheduleResult) else self._on_credit(found, member, result)
        )
        if isinstance(placed, Refused):
            found.refused.append(placed)
            return placed.status
        status = self.assume(placed)
        if status.is_success:
            found.placed.append(placed)
        else:
            rejectors = frozenset((status.plugin,)) if status.code.is_rejected else frozenset()
            found.refused.append(Refused(member, status, rejectors))
        return status

    @staticmethod
    def _on_credit(found: Placement, member: QueuedPod, result: Unschedulable) -> Placed | Refused:
        """Place the member where it preempts for itself: the members after it must see it there."""
        post, diagnosis = result.post_filter, result.error.diagnosis
        if post is not None and post.nominated_node:
            found.actions += post.actions
            return Placed(
                member, ScheduleResult(post.nominated_node, result.state, diagnosis.node_count, 0), needs_eviction=True
            )
        return Refused(
            member, unschedulable(result.error.message), frozenset(diagnosis.rejectors), frozenset(diagnosis.pending)
        )

    def assume(self, placed: Placed) -> Status:
        """Charge the member to its node and reserve; a rejection leaves no trace."""
        info, node = placed.member.info, placed.node_name
        placed.nominated = self._nominator.node_of(info.uid)
        placed.assumption = self._cache.assume(info, node, placed.state)
        self._nominator.remove(info.uid)
        status = self._runner.reserve(placed.state, info, node)
        if not status.is_success:
            # The runner has undone the reservations already.
            self._cache.forget(info.uid)
            self._nominator.set(info, placed.nominated)
            placed.assumption = None
        return status

    def retract(self, placed: Sequence[Placed]) -> None:
        """Undo `assume` of all, the last first."""
        for each in reversed(placed):
            info = each.member.info
            self._runner.unreserve(each.state, info, each.node_name)
            self._cache.forget(info.uid)
            self._nominator.set(info, each.nominated)
            each.assumption = None
