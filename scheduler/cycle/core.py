"""The pure machines that wiring composes and the loops share."""

from dataclasses import dataclass

from scheduler.cache.cache import Cache
from scheduler.cycle.attempt import Decisions
from scheduler.cycle.profiles import Profiles
from scheduler.metrics import SchedulerMetrics
from scheduler.queue.exclusions import Exclusions
from scheduler.queue.scheduling_queue import SchedulingQueue


@dataclass(frozen=True)
class Core:
    """The pure machines that every loop works with."""

    cache: Cache
    queue: SchedulingQueue
    exclusions: Exclusions
    profiles: Profiles
    decisions: Decisions
    metrics: SchedulerMetrics
