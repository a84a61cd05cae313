"""Trend of a figure: a line through its samples, its confidence interval, and whether it is within its
limit. Pure.

Samples of one life of a process share a level; a restart begins another. The slope is therefore that
within lives. Successive samples are correlated, so the interval is that of Newey and West, which does not
treat them as independent.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

Result = Literal["ok", "grows", "unclear", "too short", "reported"]
Z: Final = 1.96
"""Standard errors on each side of the interval: 95 %."""
SAMPLES_MIN: Final = 12
LIFE_SAMPLES_MIN: Final = 4
FULL_HOURS: Final = 8.0
"""Length in hours of the soak for which limits per hour are stated (guarantees AS-46)."""


@dataclass(frozen=True)
class Trend:
    """A line through samples: slope in units per hour, with its 95 % interval; `hours` from first to last sample."""

    per_hour: float
    low: float
    high: float
    mean: float
    hours: float
    samples: int


@dataclass(frozen=True)
class Limit:
    """Allowed growth of a figure in a soak of eight hours. In a shorter one it may grow by as much, not more per
    hour.

    `growth`: in units of the figure; `share`: of its mean. The larger counts.
    """

    growth: float = 0.0
    share: float = 0.0

    def per_hour(self, trend: Trend) -> float:
        """Return the steepest allowed slope, in units per hour."""
        return max(self.growth, self.share * abs(trend.mean)) / min(max(trend.hours, 1e-9), FULL_HOURS)


def fit(at_s: Sequence[float], values: Sequence[float], lives: Sequence[object]) -> Trend | None:
    """Return the common slope of all lives; None if there are too few samples. All three sequences have the same
    length.
    """
    counts = Counter(lives)
    kept = [place for place, life in enumerate(lives) if counts[life] >= LIFE_SAMPLES_MIN]
    if len(kept) < SAMPLES_MIN:
        return None
    hours = np.array([at_s[place] / 3600 for place in kept])
    levels = np.array([values[place] for place in kept], dtype=float)
    groups = [lives[place] for place in kept]
    x, y = hours.copy(), levels.copy()
    for group in set(groups):
        own = np.array([other == group for other in groups])
        x[own] -= x[own].mean()
        y[own] -= y[own].mean()
    spread = float(x @ x)
    if spread == 0:
        return None
    slope = float(x @ y) / spread
    scores = x * (y - slope * x)
    variance = float(scores @ scores)
    lags = min(len(kept) - 1, math.ceil(1.3 * math.sqrt(len(kept))))
    for lag in range(1, lags + 1):
        variance += 2 * (1 - lag / (lags + 1)) * float(scores[lag:] @ scores[:-lag])
    free = len(kept) - len(set(groups)) - 1
    error = math.sqrt(max(variance, 0.0) * len(kept) / max(free, 1)) / spread
    span = sum(float(np.ptp(hours[[other == group for other in groups]])) for group in set(groups))
    return Trend(slope, slope - Z * error, slope + Z * error, float(levels.mean()), span, len(kept))


def judge(trend: Trend | None, limit: Limit | None, hours: float) -> Result:
    """Return the result for a figure with this trend that was judged for `hours`.

    "grows": the slope is above its limit, and surely above zero. "unclear": the slope is above its limit, but
    that may be chance. "too short": the usable samples cover less than half of the time. "reported": there is
    no limit.
    """
    if limit is None:
        return "reported"
    if trend is None or trend.hours < 0.5 * hours:
        return "too short"
    if trend.per_hour <= limit.per_hour(trend):
        return "ok"
    return "grows" if trend.low > 0 else "unclear"
