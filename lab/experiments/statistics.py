"""Statistics of a measure over seeds: its spread in one arm, and the difference between two arms, seed by
seed. Pure.

Arms share seeds, so a difference is taken within a seed first and then over seeds: the effect of the seed
itself cancels out. Differences are summarized by their median, with a percentile bootstrap interval over
the seeds (Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13).
"""

import math
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

LEVEL: Final = 0.95
SEEDS_MIN: Final = 6
"""Least number of seeds for an interval of a median at this level.

With 5, even equal signs in all seeds happen by chance in 2 · 0.5^5 = 6 % of cases. With fewer seeds, only
the lowest and highest difference are reported.
"""
RESAMPLES: Final = 4999


class Spread(msgspec.Struct, frozen=True):
    """A measure in one arm. `seeds`: number of runs with a value; if it is 0, the other fields are None."""

    seeds: int
    median: float | None = None
    q25: float | None = None
    q75: float | None = None
    low: float | None = None
    high: float | None = None


class Paired(msgspec.Struct, frozen=True):
    """The difference of an arm from the first one, over the seeds in which both have a value.

    `interval`: of the median, at `LEVEL`; None with fewer than `SEEDS_MIN` seeds. `higher`, `lower`, `equal`:
    numbers of seeds. `p`: of the two-sided sign test, None where no seed differs.
    """

    arm: str
    seeds: int
    median: float | None = None
    interval: tuple[float, float] | None = None
    low: float | None = None
    high: float | None = None
    higher: int = 0
    lower: int = 0
    equal: int = 0
    p: float | None = None

    @property
    def sign(self) -> int:
        """Sign of the median: 1, -1, or 0."""
        return 0 if not self.median else 1 if self.median > 0 else -1

    @property
    def holds_in(self) -> int:
        """Number of seeds in which the difference has the sign of the median."""
        return (self.equal, self.higher, self.lower)[self.sign]

    @property
    def is_constant(self) -> bool:
        """Whether every seed has the same difference."""
        return self.seeds > 0 and self.low == self.high

    @property
    def is_clear(self) -> bool:
        """Whether it has a direction: the interval excludes zero; without an interval, all seeds have one sign."""
        if self.interval is not None:
            return self.interval[0] > 0 or self.interval[1] < 0
        return self.sign != 0 and self.holds_in == self.seeds


def spread_of(values: Sequence[float]) -> Spread:
    """Return the median, the quartiles (by linear interpolation), the least and the greatest of the values."""
    if not values:
        return Spread(0)
    low, q25, median, q75, high = (float(q) for q in np.quantile(values, (0, 0.25, 0.5, 0.75, 1)))
    return Spread(len(values), median, q25, q75, low, high)


def summarize_differences(arm: str, differences: Sequence[float]) -> Paired:
    """Summarize the differences of one arm from the first; `differences` has one value per seed."""
    if not differences:
        return Paired(arm, 0)
    summary = spread_of(differences)
    higher, lower = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    return Paired(
        arm,
        len(differences),
        summary.median,
        _interval(differences),
        summary.low,
        summary.high,
        higher,
        lower,
        len(differences) - higher - lower,
        _sign_test(higher, lower),
    )


def _interval(differences: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval of the median; the same for the same differences, whatever was asked before."""
    if len(differences) < SEEDS_MIN:
        return None
    if min(differences) == max(differences):
        return differences[0], differences[0]
    values, chance = np.asarray(differences, dtype=float), np.random.default_rng(0)
    medians: list[float] = []
    # In parts, so that a resampling of ten thousand seeds does not take gigabytes.
    part = min(RESAMPLES, max(1, 2_000_000 // len(values)))
    while len(medians) < RESAMPLES:
        drawn = chance.integers(0, len(values), (min(part, RESAMPLES - len(medians)), len(values)))
        medians.extend(np.median(values[drawn], axis=1))
    outside = (1 - LEVEL) / 2
    low, high = np.percentile(medians, (100 * outside, 100 * (1 - outside)))
    return float(low), float(high)


def _sign_test(higher: int, lower: int) -> float | None:
    """Return how often chance alone has the signs lie at least as far apart; seeds without a difference are left
    out."""
    count = higher + lower
    if not count:
        return None
    tail: int = sum(math.comb(count, fewer) for fewer in range(min(higher, lower) + 1))
    return min(1.0, float(2 * tail / 2**count))
