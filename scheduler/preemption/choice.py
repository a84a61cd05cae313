"""Which candidate node loses least (preemption 3.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scheduler.preemption.candidates import Candidate

Loss = Callable[[Candidate], tuple[float, ...]]


def loss_of(candidate: Candidate) -> tuple[float, ...]:
    """Return the five criteria, in order.

    Fewest PDB violations; the lowest priority of the most important victim; the smallest sum of priorities; the
    fewest pods; the most important victims that ran for the shortest time.
    """
    return candidate.victims.loss


def pick(candidates: Sequence[Candidate], *, loss: Loss = loss_of) -> Candidate:
    """Return the best; a tie goes to the first node by name."""
    return min(candidates, key=lambda candidate: (loss(candidate), candidate.node))
