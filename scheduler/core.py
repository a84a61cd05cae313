"""All pure machines of a scheduler: what the loops share, and what only one of them needs."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.cycle.core import Core
from scheduler.event_handlers import EventHandlers
from scheduler.pod_groups.cycle import GroupCycle
from scheduler.resize.deferred_pods import DeferredPods


@dataclass(frozen=True)
class SchedulerCore(Core):
    """`handlers` follow the watch. `group_cycle`: None while pods are scheduled one by one.

    `resizes`: follows deferred resizes; None while the scheduler leaves them to their nodes.
    """

    handlers: EventHandlers
    group_cycle: GroupCycle | None
    resizes: DeferredPods | None
