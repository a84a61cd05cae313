"""Disruption budgets: whose eviction would hurt one (preemption 3.3, "PDB split")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.cache.node_info import PodInfo
from scheduler.preemption.units import Unit
from services.api.kinds.poddisruptionbudget import PodDisruptionBudget
from services.api.selectors import Selector, from_label_selector


@dataclass(frozen=True, slots=True)
class Budget:
    """One PodDisruptionBudget; `allowed` may be negative. `disrupted`: pods whose eviction it has counted already."""

    namespace: str
    selector: Selector
    allowed: int
    disrupted: Mapping[str, str]


class Budgets:
    """The budgets of the cluster, by namespace, as their status says at this moment.

    `matches_empty`: whether an empty selector (`{}`) means all pods of the namespace, as policy/v1 defines; up
    to 1.37 preemption ignored such budgets, and pods without labels. A missing selector matches nothing.
    """

    def __init__(self, budgets: Sequence[PodDisruptionBudget], *, matches_empty: bool = True) -> None:
        self._matches_empty = matches_empty
        self._by_namespace: dict[str, list[Budget]] = {}
        for budget in budgets:
            found = _budget(budget, matches_empty=matches_empty)
            if found is not None:
                self._by_namespace.setdefault(found.namespace, []).append(found)

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def split(self, units: Sequence[Unit]) -> tuple[list[tuple[Unit, int]], list[Unit]]:
        """Return the units whose eviction would overdraw a budget, each with its number of such pods, and the rest.

        `units` come in order of importance, so that the more important consume what a budget allows and the less
        important are the violating ones. A unit is violating if any of its pods is. Every matching budget is
        charged, also when an earlier one was overdrawn.
        """
        if not self._by_namespace:
            return [], list(units)
        left: dict[int, int] = {}
        violating: list[tuple[Unit, int]] = []
        rest: list[Unit] = []
        for unit in units:
            overdrawn = sum(self._charge(pod, left) for pod in unit.pods)
            if overdrawn:
                violating.append((unit, overdrawn))
            else:
                rest.append(unit)
        return violating, rest

    def _charge(self, pod: PodInfo, left: dict[int, int]) -> bool:
        labels = pod.metadata.labels
        if not labels and not self._matches_empty:
            return False
        is_violating = False
        for budget in self._by_namespace.get(pod.key.namespace, ()):
            if not budget.selector.matches(labels) or pod.key.name in budget.disrupted:
                continue
            remaining = left[id(budget)] = left.get(id(budget), budget.allowed) - 1
            if remaining < 0:
                is_violating = True
        return is_violating


def _budget(found: PodDisruptionBudget, *, matches_empty: bool) -> Budget | None:
    if found.spec.selector is None:
        return None
    try:
        selector = from_label_selector(found.spec.selector)
    except ValueError:
        return None  # the API server refuses such selectors; one that came through matches nothing
    if not selector.terms and not matches_empty:
        return None
    status = found.status
    return Budget(found.metadata.namespace, selector, status.disruptions_allowed, status.disrupted_pods)
