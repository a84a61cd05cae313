"""The one way in which figures of runs are ranked."""

from __future__ import annotations


def quantile(values: list[float], q: float) -> float | None:
    """Return the nearest-rank quantile, or None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
