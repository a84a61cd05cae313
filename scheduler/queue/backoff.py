"""The back-off of failed pods from the active queue (scheduler-queue-and-cycles 2.2).

Plugin rejections and errors are counted separately, and each error in a row doubles the wait. With
pop-from-back-off (KEP-5142) expiry is truncated to the whole second, and a pod whose second is the current
one still waits.
"""

import math
from dataclasses import dataclass
from typing import Final

from scheduler.queue.queued_pod import QueuedPod

WINDOW_S: Final = 1.0


@dataclass
class Backoff:
    """The back-off rules. `is_in_windows`: expiry counts by whole seconds."""

    initial_s: float
    max_s: float
    is_in_windows: bool

    def duration(self, queued: QueuedPod) -> float:
        """Return the seconds after the pod's last failure: 1, 2, 4, 8, 10, 10; 0 for a pod that never failed."""
        count = queued.consecutive_errors or queued.unschedulable_count
        most_s = self.max_s if queued.backoff_max_s is None else queued.backoff_max_s
        return float(min(most_s, self.initial_s * 2.0 ** min(count - 1, 62))) if count else 0.0

    def expiration(self, queued: QueuedPod) -> float:
        """Return when the pod's back-off ends, 0 without one; computed once for each failure."""
        if queued.backoff_expiration is None:
            duration = self.duration(queued)
            expiration = queued.timestamp + duration
            if self.is_in_windows:
                expiration = math.floor(expiration)
            queued.backoff_expiration = expiration if duration else 0.0
        return max(queued.backoff_expiration, queued.not_before)

    def is_backing_off(self, queued: QueuedPod, now: float) -> bool:
        """Whether the pod must not be tried yet."""
        if now < queued.not_before:
            return True
        self.expiration(queued)
        expiration = queued.backoff_expiration
        if not expiration:
            return False
        return expiration >= math.floor(now) if self.is_in_windows else expiration > now

    def first_free(self, queued: QueuedPod) -> float:
        """Return when the once-a-second flush first finds the pod free."""
        self.expiration(queued)
        expiration = queued.backoff_expiration or 0.0
        if expiration:
            expiration = expiration + WINDOW_S if self.is_in_windows else math.ceil(expiration)
        return max(expiration, queued.not_before)
