"""The work of a request, in seats: that of a list by the bytes it loads, that of a write by its watchers.
Pure.

Source: upstream `staging/src/k8s.io/apiserver/pkg/util/flowcontrol/request` (width.go, list_work_estimator.go,
mutating_work_estimator.go, config.go).
"""

import math
from dataclasses import dataclass
from typing import Final

from apiserver_fake.extensions.fairness.queue_set import ONE, Work

SEATS_MAX: Final = 10
SEATS_BYTES: Final = 100_000
STREAMED_BYTES_MAX: Final = 1_000_000
"""Most bytes that a list holds in memory at once, since it is read from memory and sent piece by piece."""
SEATS_WATCHES: Final = 10
EVENT_S: Final = 0.005
"""Seconds for which a write's seats are kept for its events after the answer."""
WRITES: Final = frozenset(("create", "update", "patch", "delete"))


@dataclass(frozen=True)
class Stored:
    """The number of stored objects of a kind, and their total bytes."""

    objects: int
    bytes: int


def of_list(stored: Stored, limit: int, most: int, *, is_single: bool) -> Work:
    """Return the work of a list, or of a watch that begins with one. `limit`: page size, 0 for none.

    `is_single`: the request names its object. `most`: the most seats that a request of the level may occupy.
    """
    most = min(most or SEATS_MAX, SEATS_MAX)
    if not stored.objects:
        return ONE
    loaded = 1 if is_single else min(limit or stored.objects, stored.objects)
    size = min(loaded * (stored.bytes // stored.objects), STREAMED_BYTES_MAX)
    wanted = math.ceil(size / SEATS_BYTES)
    return Work(max(1, min(most, wanted)), is_long=True) if wanted > 1 else ONE


def of_write(watchers: int, most: int) -> Work:
    """Return the work of a write whose event `watchers` watches may receive."""
    if watchers < SEATS_WATCHES:
        return ONE
    most = min(most or SEATS_MAX, SEATS_MAX)
    wanted = math.ceil(watchers / SEATS_WATCHES)
    seats = min(wanted, most)
    # What is narrower lasts longer: the work is the same.
    return Work(1, seats, EVENT_S * wanted / seats)
