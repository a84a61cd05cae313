"""How long resizes wait for capacity, by the priority of their pods. Pure.

Source: kep-5836 11; kep-1287-in-place-resize 12. Deviates: upstream's names of waiting times are known from a digest of
its change only; KEP-1287 calls the time of an attempt kubelet_pod_resize_duration_seconds, and the name served by
kubelets since v1.34 counts milliseconds and says whether the attempt succeeded.
"""

from typing import Final

from kubelet.effects import Outbox
from kubelet.view import WorkerKey

BOUNDS: Final = (5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180, 300, 600, 1200, 1800, 3600)
PRIORITIES: Final = (
    (2_000_000_000, "system-critical"), (100_000, "high"), (1, "medium"), (0, "normal"), (-999, "low"),
)  # fmt: skip
WAITED: Final = "kubelet_pod_deferred_resize_duration_seconds"
TOOK_MS: Final = "kubelet_pod_resize_duration_milliseconds"
"""Attempts to carry a resize out (kep-1287-in-place-resize 12). The KEP calls it kubelet_pod_resize_duration_seconds;
the name served by kubelets since v1.34 counts milliseconds and says whether the attempt succeeded."""
BOUNDS_MS: Final = (10, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000)


def priority_bucket(priority: int) -> str:
    """Return the class of a priority: the first whose least priority it reaches."""
    return next((name for least, name in PRIORITIES if priority >= least), "very-low")


class DeferredTimes:
    """Since when each resize is deferred. A request that replaces a deferred one goes on waiting."""

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self._since: dict[WorkerKey, tuple[float, str]] = {}

    def began(self, key: WorkerKey, priority: int, now: float) -> None:
        """The resize is deferred, newly or still."""
        if key not in self._since:
            self._since[key] = (now, priority_bucket(priority))

    def ended(self, key: WorkerKey, resolution: str, now: float) -> None:
        """It is not deferred any more: accepted, reverted or terminated."""
        if not self._since or (found := self._since.pop(key, None)) is None:
            return
        since_s, bucket = found
        self._out.observe(WAITED, now - since_s, bucket, resolution, bounds=BOUNDS)
