"""What a request costs, in seats: lists by what they load, writes by who watches. Pure.

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
"""More than this a list that is read from memory and sent piece by piece does not hold at once."""
SEATS_WATCHES: Final = 10
EVENT_S: Final = 0.005
"""How long the seats of a write's events are kept after its answer."""
WRITES: Final = frozenset(("create", "update", "patch", "delete"))


@dataclass(frozen=True)
class Stored:
    """How many objects of a kind there are, and the bytes of all of them."""

    objects: int
    bytes: int


def of_list(stored: Stored, limit: int, most: int, *, is_single: bool) -> Work:
    """Return the work of a list, or of a watch that begins with one. `limit`: of a page, 0 for none; `is_single`: it
    names its object; `most`: the widest that a request of the level may be."""
    most = min(most or SEATS_MAX, SEATS_MAX)
    if not stored.objects:
        return ONE
    loaded = 1 if is_single else min(limit or stored.objects, stored.objects)
    size = min(loaded * (stored.bytes // stored.objects), STREAMED_BYTES_MAX)
    wanted = math.ceil(size / SEATS_BYTES)
    return Work(max(1, min(most, wanted)), is_long=True) if wanted > 1 else ONE


def of_write(watchers: int, most: int) -> Work:
    """Return the work of a write whose event that many watches may want."""
    if watchers < SEATS_WATCHES:
        return ONE
    most = min(most or SEATS_MAX, SEATS_MAX)
    wanted = math.ceil(watchers / SEATS_WATCHES)
    seats = min(wanted, most)
    # What is narrower lasts longer: the work is the same.
    return Work(1, seats, EVENT_S * wanted / seats)
