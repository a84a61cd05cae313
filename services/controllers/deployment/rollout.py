"""The arithmetic of a rolling update: how many pods of which set, as plain numbers.

Source: controllers 3; upstream `pkg/controller/deployment` (`util/deployment_util.go`, `rolling.go`, `sync.go`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.controllers.shared_int_or_percent import resolve


@dataclass(frozen=True)
class Set:
    """One ReplicaSet as the arithmetic sees it.

    `replicas` is what its spec asks, `available` what its status says. `max_replicas`: the most pods the
    Deployment could have when it was last scaled, None when that was not written down. `created` and
    `name` order sets by age.
    """

    name: str
    replicas: int
    available: int = 0
    max_replicas: int | None = None
    created: str = ""


def fenceposts(surge: int | str, unavailable: int | str, replicas: int) -> tuple[int, int]:
    """Return (surge, unavailable): surge rounded up, unavailable down; if both are 0, unavailable is 1.

    No more than all replicas may be unavailable.
    """
    up = resolve(surge, replicas, is_up=True)
    down = resolve(unavailable, replicas, is_up=False)
    if up == 0 and down == 0:
        down = 1
    return up, min(down, replicas)


def new_size(replicas: int, surge: int, new: Set, every: Sequence[Set]) -> int:
    """Return how many replicas the new set may have now: never above `replicas + surge` over all sets."""
    if new.replicas >= replicas:
        return replicas
    free = replicas + surge - sum(each.replicas for each in every)
    return new.replicas + max(0, min(free, replicas - new.replicas))


def old_sizes(replicas: int, unavailable: int, new: Set, olds: Sequence[Set]) -> dict[str, int]:
    """Return the old sets that shrink now, by name, with their new sizes.

    First replicas that are not available, then available ones, the oldest set first, so that
    `replicas - unavailable` stay available.
    """
    ordered = sorted((old for old in olds if old.replicas > 0), key=lambda old: (old.created, old.name))
    min_available = replicas - unavailable
    free = sum(old.replicas for old in ordered) + new.replicas - min_available - (new.replicas - new.available)
    if not ordered or free <= 0:
        return {}
    sizes = {old.name: old.replicas for old in ordered}
    for old in ordered:
        step = min(free, max(0, old.replicas - old.available))
        sizes[old.name] -= step
        free -= step
    spare = sum(old.available for old in ordered) + new.available - min_available
    for old in ordered:
        step = max(0, min(spare, sizes[old.name]))
        sizes[old.name] -= step
        spare -= step
    return {old.name: sizes[old.name] for old in ordered if sizes[old.name] != old.replicas}


def proportional(replicas: int, surge: int, current_max: int, sets: Sequence[Set]) -> dict[str, int]:
    """Return the size of each set after the Deployment was scaled in mid-rollout, in proportion.

    `current_max`: stands in for a set without `max_replicas`. Larger sets are served first, and the
    first takes what rounding leaves over.
    """
    active = [each for each in sets if each.replicas > 0]
    allowed = replicas + surge if replicas > 0 else 0
    to_add = allowed - sum(each.replicas for each in active)
    if to_add > 0:  # of equal ones the newer first
        active.sort(key=lambda each: (each.created, each.name), reverse=True)
    else:
        active.sort(key=lambda each: (each.created, each.name))
    active.sort(key=lambda each: -each.replicas)
    sizes: dict[str, int] = {}
    added = 0
    for each in active:
        share = _share(each, replicas, surge, current_max, to_add - added) if to_add else 0
        sizes[each.name] = each.replicas + share
        added += share
    if active and to_add:
        first = active[0].name
        sizes[first] = max(0, sizes[first] + to_add - added)
    return sizes


def _share(each: Set, replicas: int, surge: int, current_max: int, allowed: int) -> int:
    if allowed == 0:
        return 0
    if replicas == 0:
        fraction = -each.replicas
    else:
        before = each.max_replicas or current_max
        if before <= 0:
            return 0
        product = each.replicas * (replicas + surge)
        fraction = (2 * product + before) // (2 * before) - each.replicas  # rounded half up, as upstream
    return min(fraction, allowed) if allowed > 0 else max(fraction, allowed)
