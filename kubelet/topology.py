"""The topology manager: hints of several providers become one decision about NUMA nodes. Pure.

A hint says "these NUMA nodes could serve me", preferred or not; merging takes one hint of each provider
in every combination and keeps the best AND of their masks. A mask is an int with one bit a NUMA node.
Source: KEP-693; kubelet 5.3.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Hint(NamedTuple):
    """`mask` None: no NUMA node can serve (merged result only)."""

    mask: int | None
    is_preferred: bool


ProviderHints = Mapping[str, Sequence[Hint] | None]
"""Resource to hints. None: no opinion. An empty list: cannot be satisfied."""


def masks(numa_count: int) -> list[int]:
    """Return all non-empty sets of NUMA nodes, smallest first, then by value."""
    return sorted(range(1, 1 << numa_count), key=lambda mask: (mask.bit_count(), mask))


def bits(mask: int) -> list[int]:
    """Return the NUMA ids of a mask."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def counted_hints(requested: int, free: Sequence[int], total: Sequence[int]) -> list[Hint]:
    """Return the hints for `requested` units where `free[i]` of `total[i]` are on NUMA node i.

    Every set with enough free units is a hint; it is preferred iff no smaller set could hold the
    request on an *empty* machine. That is the source of rejections: 6 CPUs on 2x8 want one node, and
    with 4+4 free only both will do.
    """
    smallest = len(total) + 1
    found: list[int] = []
    for mask in masks(len(total)):
        ids = bits(mask)
        if sum(total[i] for i in ids) >= requested:
            smallest = min(smallest, len(ids))
        if sum(free[i] for i in ids) >= requested:
            found.append(mask)
    return [Hint(mask, mask.bit_count() == smallest) for mask in found]


def average_distance(mask: int, distances: Sequence[Sequence[int]]) -> float:
    """Return the mean NUMA distance within a mask, both directions and self included."""
    ids = bits(mask)
    return sum(distances[i][j] for i in ids for j in ids) / (len(ids) ** 2)


def _better(a: Hint, b: Hint | None, narrowness: Callable[[int], float]) -> bool:
    """Whether `a` beats `b`: preferred first, then narrower, then the smaller mask."""
    if b is None or b.mask is None:
        return True
    assert a.mask is not None
    if a.is_preferred != b.is_preferred:
        return a.is_preferred
    return (narrowness(a.mask), a.mask) < (narrowness(b.mask), b.mask)


def merge(
    providers: Sequence[ProviderHints],
    numa_count: int,
    *,
    policy: str,
    distances: Sequence[Sequence[int]] = (),
) -> tuple[Hint, bool]:
    """Return the merged hint and whether the policy admits.

    `policy`: none, best-effort, restricted or single-numa-node. With `distances`, sets are compared by
    average distance instead of size (prefer-closest-numa-nodes).
    """
    everything = (1 << numa_count) - 1
    if policy == "none":
        return Hint(everything, True), True
    anywhere = Hint(everything, True)
    lists: list[Sequence[Hint]] = []
    for provider in providers:
        for resource in sorted(provider):
            hints = provider[resource]
            if hints is None:
                lists.append((anywhere,))
            elif not hints:
                lists.append((Hint(None, False),))
            else:
                lists.append(hints)
    if policy == "single-numa-node":
        lists = [
            [h for h in hints if h is anywhere or (h.mask is not None and h.mask.bit_count() == 1 and h.is_preferred)]
            for hints in lists
        ]
        if any(not hints for hints in lists):
            return Hint(None, False), False
    narrowness: Callable[[int], float] = (
        (lambda mask: average_distance(mask, distances)) if distances else (lambda mask: float(mask.bit_count()))
    )
    best: Hint | None = None
    for combination in itertools.product(*lists):
        mask = everything
        for hint in combination:
            mask &= everything if hint.mask is None else hint.mask
        if mask == 0:
            continue
        is_preferred = all(hint.is_preferred for hint in combination)
        merged = Hint(mask, is_preferred)
        if _better(merged, best, narrowness):
            best = merged
    if best is None:
        best = Hint(everything, False)
    return best, policy == "best-effort" or best.is_preferred
