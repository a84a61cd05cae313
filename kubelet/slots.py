"""Which slot a kubelet host takes, of slots that outlive it. Pure.

Hosts of one sort (containers of one service) have no names of their own that last: a host takes a slot, and its nodes
are named after the slot and not after the host. A slot is a Lease. A host takes the first that has no holder, or was
its own in an earlier life, or whose holder left or has been silent for the Lease's duration; and a new one only when it
has seen every holder renew since it began to look: the nodes of a slot whose holder may be dead wait for the next.

What a host has seen counts, by its own clock; times that are written in a Lease do not. Source: decision 0052.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.client.lease_record import LeaseRecord


@dataclass
class Slot:
    """What a host has seen of one slot since it began to look; `record`: of its Lease."""

    record: LeaseRecord
    looks: int = 0
    is_there: bool = False
    changed_s: float | None = None
    """When the Lease was last not as it had been."""
    is_left: bool = False
    """Whether the holder that the Lease has wrote on the volume that it left, which it does when no server hears it."""

    def seen(self, *, is_there: bool, before: tuple[str, str, int] | None, now: float) -> None:
        """Take a look at the Lease, which the record has read already; `before`: the record's reading before that."""
        if self.looks and (is_there != self.is_there or (is_there and before != self.record.seen)):
            self.changed_s = now
        self.looks += 1
        self.is_there = is_there

    def is_alive(self, now: float, silence_s: float) -> bool:
        """Whether its holder was seen to renew it, and not too long ago."""
        return self.is_there and self.changed_s is not None and now - self.changed_s < silence_s


def choose(slots: Sequence[Slot], now: float, silence_s: float) -> int | None:
    """Return the number of the slot to take now, None: look again soon.

    `slots`: those that there are, in order, and behind them the first that there is not. `silence_s`: after how long
    without a renewal a holder counts no longer as alive, though its slot may not be taken yet.
    """
    there = [number for number, slot in enumerate(slots) if slot.is_there]
    own = (number for number in there if (seen := slots[number].record.seen) and seen[0] == slots[number].record.holder)
    free = (number for number in there if slots[number].is_left or slots[number].record.may_take(now))
    for number in (*own, *free):
        return number
    if all(slots[number].is_alive(now, silence_s) for number in there):
        return len(slots) - 1
    return None
