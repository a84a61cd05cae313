"""The topology manager: merges hints of several providers into one decision about NUMA nodes. Pure.

A hint says "these NUMA nodes could serve me", preferred or not; merging takes one hint of each provider in
every combination and keeps the best AND of their masks. A mask is an int with one bit per NUMA node. A
combination is preferred only if all its hints are, and name the same NUMA nodes. If no combination is
preferred, the best one has as many NUMA nodes as the provider that needs most of them; if that is
impossible, fewer, but as close to that as possible. Source: KEP-693, KEP-3545 (prefer-closest-numa-nodes);
kubelet 5.3; upstream `pkg/kubelet/cm/topologymanager/policy.go`.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import NamedTuple


class Hint(NamedTuple):
    """A NUMA hint. `mask` None: any NUMA node; after a merge: the managers may choose themselves."""

    mask: int | None
    is_preferred: bool


ProviderHints = Mapping[str, Sequence[Hint] | None]
"""Hints by resource. None: no opinion. An empty list: cannot be satisfied."""


_NO_OPINION, _NO_SOLUTION = (Hint(None, True),), (Hint(None, False),)


@cache
def masks(numa_count: int) -> tuple[int, ...]:
    """Return all non-empty sets of NUMA nodes, smallest first, then by value."""
    return tuple(sorted(range(1, 1 << numa_count), key=lambda mask: (mask.bit_count(), mask)))


def bits(mask: int) -> list[int]:
    """Return the NUMA ids of a mask."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def smallest_count(requested: int, total: Sequence[int]) -> int:
    """Return how many NUMA nodes the request would need on an empty machine; all of them if it never fits."""
    left = requested
    for count, units in enumerate(sorted(total, reverse=True), start=1):
        left -= units
        if left <= 0:
            return count
    return len(total)


def counted_hints(requested: int, free: Sequence[int], total: Sequence[int], needed: int = 0) -> list[Hint]:
    """Return the hints for `requested` units where `free[i]` of `total[i]` are on NUMA node i.

    Every set with enough free units is a hint; it is preferred iff no smaller set could hold the request on an
    *empty* machine. That is the source of rejections: 6 CPUs on 2x8 want one node, and with 4+4 free only both
    will do. Sets without the NUMA nodes `needed`, which have reusable units, are left out.
    """
    smallest = smallest_count(requested, total)
    hint_masks = (m for m in masks(len(total)) if m & needed == needed and sum(free[i] for i in bits(m)) >= requested)
    return [Hint(mask, mask.bit_count() == smallest) for mask in hint_masks]


def merge(
    providers: Sequence[ProviderHints], numa_count: int, *, policy: str, distances: Sequence[Sequence[int]] = ()
) -> tuple[Hint, bool]:
    """Return the merged hint and whether the policy admits.

    `policy`: none, best-effort, restricted or single-numa-node. With `distances`, among sets of equally many
    NUMA nodes the ones nearest to each other are best (prefer-closest-numa-nodes).
    """
    if policy == "none":
        return Hint(None, False), True
    given = [provider[resource] for provider in providers for resource in sorted(provider)]
    lists = [_NO_OPINION if hints is None else hints or _NO_SOLUTION for hints in given]
    everything = (1 << numa_count) - 1
    if policy == "single-numa-node":
        single = [
            [h for h in hints if h.is_preferred and (h.mask is None or h.mask.bit_count() == 1)] for hints in lists
        ]
        best = _best(single, everything, ())
        if best.mask == everything:
            best = Hint(None, best.is_preferred)
    else:
        best = _best(lists, everything, distances)
    return best, policy == "best-effort" or best.is_preferred


def _best(lists: Sequence[Sequence[Hint]], everything: int, distances: Sequence[Sequence[int]]) -> Hint:
    """Return the best combination; every NUMA node, not preferred, when none has a NUMA node at all."""

    def fitness(mask: int) -> tuple[int, float, int]:
        ids = bits(mask) if distances else []
        # Both directions and the distance to itself included, as upstream.
        average = sum(distances[i][j] for i in ids for j in ids) / len(ids) ** 2 if ids else 0.0
        return mask.bit_count(), average, mask

    if not all(lists):
        return Hint(everything, False)
    if common := _common(lists, everything):
        return Hint(min(common, key=fitness), True)
    met = _common_masks(lists, everything)
    if not met:
        return Hint(everything, False)
    widths = ([hint.mask.bit_count() for hint in hints if hint.mask is not None] for hints in lists)
    most = max((min(width, default=0) for width in widths), default=0)
    near = [mask for mask in met if mask.bit_count() <= most]
    widest = max((mask.bit_count() for mask in near), default=0)
    best = min((mask for mask in near if mask.bit_count() == widest) if near else met, key=fitness)
    return Hint(best, False)


def _common(lists: Sequence[Sequence[Hint]], everything: int) -> set[int]:
    """Return the masks that all providers prefer."""
    common: set[int] = set()
    is_free = True  # no hint has named a mask yet
    for hints in lists:
        preferred = [hint.mask for hint in hints if hint.is_preferred]
        named = {mask & everything for mask in preferred if mask is not None}
        has_any = None in preferred
        common = (common & named) | (common if has_any else set()) | (named if is_free else set())
        is_free = is_free and has_any
    if is_free:
        common.add(everything)
    return common - {0}


def _common_masks(lists: Sequence[Sequence[Hint]], everything: int) -> Collection[int]:
    """Return what the combinations' masks have in common, whether preferred or not."""
    met = {everything}
    for hints in lists:
        wanted = {everything if hint.mask is None else hint.mask for hint in hints}
        met = {mask & other for mask in met for other in wanted} - {0}
    return met
