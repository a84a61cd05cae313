"""Victims on one node: all pods of lower priority, minus those that can stay (preemption 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from scheduler.cache.node_info import PodInfo
from scheduler.framework.status import Status, failed, unresolvable
from scheduler.preemption.budgets import Budgets
from scheduler.preemption.units import Unit, by_importance

NO_VICTIMS: Final = "No preemption victims found for incoming pod"
PRIORITY_OFFSET: Final = 2**31
"""Added to each priority before summing, so that one pod of -10 is a smaller loss than two of -10."""


@dataclass(frozen=True)
class Victims:
    """The units to evict, the most important first; `violations`: pods among them that a budget would keep."""

    units: tuple[Unit, ...]
    violations: int = 0

    @cached_property
    def pods(self) -> tuple[PodInfo, ...]:
        """All pods to evict, in that order."""
        return tuple(pod for unit in self.units for pod in unit.pods)

    @cached_property
    def loss(self) -> tuple[float, ...]:
        """Return what this eviction costs: the criteria of `choice`, each smaller is better (3.4)."""
        top = self.units[0].priority
        return (
            self.violations,
            top,
            sum((unit.priority + PRIORITY_OFFSET) * len(unit.pods) for unit in self.units),
            sum(len(unit.pods) for unit in self.units),
            -min(unit.start_s for unit in self.units if unit.priority == top),
        )


class WhatIf(Protocol):
    """A node (or a cluster) whose pods can be removed and added for a dry run."""

    def remove(self, unit: Unit) -> None:
        """Remove the unit from the dry run."""
        ...

    def add(self, unit: Unit) -> None:
        """Put a removed unit back where it ran."""
        ...

    def fits(self) -> Status:
        """Return what the filters say now."""
        ...


def select_victims(
    potential: Sequence[Unit],
    what_if: WhatIf,
    budgets: Budgets,
    *,
    node: str = "",
) -> Victims | Status:
    """Return the victims, or why evicting all of `potential` (all of lower priority) would not help.

    Each unit is judged once, so the answer is neither the fewest nor the smallest victims: first those whose
    eviction would overdraw a budget, then the others, the most important first, are put back if the pod still
    fits beside them. A budget that nothing else meets is overdrawn.
    """
    if not potential:
        return unresolvable(NO_VICTIMS)
    for unit in potential:
        what_if.remove(unit)
    status = what_if.fits()
    if not status.is_success:
        return status
    violating, rest = budgets.split(by_importance(list(potential)))
    victims: list[Unit] = []
    violations = 0
    for unit, overdrawn in [*violating, *((unit, 0) for unit in rest)]:
        what_if.add(unit)
        if what_if.fits().is_success:
            continue
        what_if.remove(unit)
        victims.append(unit)
        violations += overdrawn
    if not victims:
        return failed(f'expected at least one victim pod on node "{node}"')
    if violating and rest:
        victims = by_importance(victims)
    return Victims(tuple(victims), violations)
