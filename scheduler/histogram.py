"""Histograms with cumulative buckets; an observation is an integer addition."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

SLI_BOUNDS: Final = tuple(0.01 * 2**i for i in range(20))


class Histogram:
    """Cumulative buckets as Prometheus wants them."""

    __slots__ = ("_bounds", "_counts", "count", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.count = 0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value
        self.count += 1

    def samples(self, name: str, labels: str = "") -> Iterator[tuple[str, float]]:
        """Yield `name_bucket{…,le="…"}`, `name_sum` and `name_count`."""
        prefix = f"{labels}," if labels else ""
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            le = "+Inf" if bound == float("inf") else f"{bound:g}"
            yield f'{name}_bucket{{{prefix}le="{le}"}}', total
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces}", self.sum
        yield f"{name}_count{braces}", self.count
