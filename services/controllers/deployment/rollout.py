"""Arithmetic of a rolling update: the number of pods of each set, as plain numbers.

Source: controllers 3; upstream `pkg/controller/deployment` (`util/deployment_util.go`, `rolling.go`,
`sync.go`).
"""

from collections.abc import Iterable, Sequence

from services.api.kinds.replicaset import ReplicaSet
from services.controllers.shared_int_or_percent import resolve

MAX = "deployment.kubernetes.io/max-replicas"
"""Annotation: the maximum number of pods of the Deployment when the set was last scaled."""


def oldest_first(sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Return the sets by age, and by name among equals."""
    return sorted(sets, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name))


def fenceposts(surge: int | str, unavailable: int | str, replicas: int) -> tuple[int, int]:
    """Return (surge, unavailable): surge rounded up, unavailable down; if both are 0, unavailable is 1.

    No more than all replicas may be unavailable.
    """
    up = resolve(surge, replicas, is_up=True)
    down = resolve(unavailable, replicas, is_up=False)
    if up == 0 and down == 0:
        down = 1
    return up, min(down, replicas)


def new_size(replicas: int, surge: int, current: int, every: Iterable[ReplicaSet]) -> int:
    """Return the allowed replicas of the new set, which has `current` now: never above `replicas + surge` over all
    sets.
    """
    if current >= replicas:
        return replicas
    free = replicas + surge - sum(each.spec.replicas for each in every)
    return current + max(0, min(free, replicas - current))


def old_sizes(replicas: int, unavailable: int, new: ReplicaSet, olds: Sequence[ReplicaSet]) -> dict[str, int]:
    """Return the new sizes of the old sets that shrink now, by name.

    Unavailable replicas go first, then available ones, the oldest set first, so that `replicas - unavailable` stay
    available.
    """
    ordered = oldest_first(old for old in olds if old.spec.replicas > 0)
    sizes = {old.metadata.name: old.spec.replicas for old in ordered}
    min_available, new_available = replicas - unavailable, new.status.available_replicas
    free = sum(sizes.values()) + new_available - min_available
    if free <= 0:
        return {}
    for old in ordered:
        step = min(free, max(0, old.spec.replicas - old.status.available_replicas))
        sizes[old.metadata.name] -= step
        free -= step
    spare = sum(old.status.available_replicas for old in ordered) + new_available - min_available
    for old in ordered:
        step = max(0, min(spare, sizes[old.metadata.name]))
        sizes[old.metadata.name] -= step
        spare -= step
    return {old.metadata.name: n for old in ordered if (n := sizes[old.metadata.name]) != old.spec.replicas}


def proportional(replicas: int, surge: int, current_max: int, sets: Sequence[ReplicaSet]) -> dict[str, int]:
    """Return the proportional size of each set after the Deployment was scaled during a rollout.

    `current_max`: default for a set without a `MAX` annotation. Larger sets are served first, and the first gets
    the remainder of rounding.
    """
    active = oldest_first(each for each in sets if each.spec.replicas > 0)
    allowed = replicas + surge if replicas > 0 else 0
    to_add = allowed - sum(each.spec.replicas for each in active)
    if to_add > 0:  # of equal ones the newer first
        active.reverse()
    active.sort(key=lambda each: -each.spec.replicas)
    sizes: dict[str, int] = {}
    added = 0
    for replica_set in active:
        share = _share(replica_set, replicas, surge, current_max, to_add - added)
        sizes[replica_set.metadata.name] = replica_set.spec.replicas + share
        added += share
    if active and to_add:
        first = active[0].metadata.name
        sizes[first] = max(0, sizes[first] + to_add - added)
    return sizes


def _share(replica_set: ReplicaSet, replicas: int, surge: int, current_max: int, allowed: int) -> int:
    if allowed == 0:
        return 0
    size, noted = replica_set.spec.replicas, replica_set.metadata.annotations.get(MAX, "")
    fraction = -size
    if replicas > 0:
        before = (int(noted) if noted.isdigit() else 0) or current_max
        if before <= 0:
            return 0
        fraction += (2 * size * (replicas + surge) + before) // (2 * before)  # rounded half up, as upstream
    return min(fraction, allowed) if allowed > 0 else max(fraction, allowed)
