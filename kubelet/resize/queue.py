"""The resizes of one node that wait for capacity, in the order in which they are tried again. Pure.

The order is found when one is added and not again before a pass (kep-1287 6). One that still does not fit
never holds up those behind it. Source: kep-1287-in-place-resize 6; KEP-1287 "Priority of Resize Requests".
Deviates: upstream's comparison lets any resize that asks for no more win against any other, even another of
its kind; here those are ordered among themselves by the other rules, so that there is an order at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kubelet.view import WorkerKey

RETRY_S = 180.0
UNREADY_RETRY_S = 30.0
"""As long as the pod sources are not ready (kep-1287 6)."""

_QOS_RANK = {"Guaranteed": 0, "Burstable": 1, "BestEffort": 2}
_NEVER_JUDGED = "~"  # after every RFC 3339 time


class Rank(NamedTuple):
    """Smaller is tried earlier: what asks for no more, then priority, QoS, and who has waited longest."""

    grows: bool
    minus_priority: int
    qos: int
    since: str

    @classmethod
    def of(cls, *, grows: bool, priority: int, qos: str, since: str) -> Rank:
        """Return the rank of a resize; `since`: when it was found pending, RFC 3339, "" when never judged."""
        return cls(grows, -priority, _QOS_RANK[qos], since or _NEVER_JUDGED)


class ResizeQueue:
    """Who waits. Invariant: every key is in it at most once."""

    def __init__(self) -> None:
        self._keys: list[WorkerKey] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: WorkerKey) -> bool:
        return key in self._keys

    def push(self, key: WorkerKey, rank: Callable[[WorkerKey], Rank]) -> None:
        """Add one and sort all; one that waits already keeps its place."""
        if key in self._keys:
            return
        self._keys.append(key)
        self._keys.sort(key=rank)

    def discard(self, key: WorkerKey) -> None:
        """Wait no longer for this one."""
        if key in self._keys:
            self._keys.remove(key)

    def in_order(self) -> tuple[WorkerKey, ...]:
        """Return all, the first to be tried first."""
        return tuple(self._keys)
