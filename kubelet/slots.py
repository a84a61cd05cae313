"""The choice of a kubelet host's slot; slots outlive hosts. Pure.

Hosts of one sort (containers of one service) have no lasting names: a host takes a slot, and its nodes are
named after the slot and not after the host. A slot is a Lease. A host takes the first slot without a
holder, or that was its own in an earlier life, or whose holder left or has been silent for the Lease's
duration. It takes a new slot only when it has seen every holder renew since it began to look: the nodes of
a slot whose holder may be dead wait for the next host.

A host relies on what it has seen, by its own clock; times that are written in a Lease do not count. Source:
decision 0052.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.client.lease_record import LeaseRecord


@dataclass
class Slot:
    """A host's observations of one slot since it began to look; `record`: of its Lease."""

    record: LeaseRecord
    looks: int = 0
    is_there: bool = False
    changed_s: float | None = None
    """The time of the Lease's last observed change."""
    is_left: bool = False
    """Whether the Lease's holder recorded on the volume that it left, as it does if it cannot reach the server."""

    def observe(self, *, is_there: bool, before: tuple[str, str, int] | None, now: float) -> None:
        """Take a look at the Lease, which the record has read already; `before`: the former reading."""
        if self.looks and (is_there != self.is_there or (is_there and before != self.record.seen)):
            self.changed_s = now
        self.looks += 1
        self.is_there = is_there

    def is_alive(self, now: float, silence_s: float) -> bool:
        """Whether the holder was seen to renew the Lease less than `silence_s` ago."""
        return self.is_there and self.changed_s is not None and now - self.changed_s < silence_s


def choose(slots: Sequence[Slot], now: float, silence_s: float) -> int | None:
    """Return the number of the slot to take now; None: look again soon.

    `slots`: the existing ones, in order, then the first that does not exist. `silence_s`: seconds without a
    renewal after which a holder no longer counts as alive, though its slot may not be taken yet.
    """
    there = [number for number, slot in enumerate(slots) if slot.is_there]
    own = (number for number in there if (seen := slots[number].record.seen) and seen[0] == slots[number].record.holder)
    free = (number for number in there if slots[number].is_left or slots[number].record.may_take(now))
    for number in (*own, *free):
        return number
    if all(slots[number].is_alive(now, silence_s) for number in there):
        return len(slots) - 1
    return None
