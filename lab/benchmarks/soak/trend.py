"""Does a figure grow? A line through its samples, how sure it is, and whether it is within what is allowed. Pure.

Samples of one life of a process share a level; a restart begins another, so that a slope is that within lives.
Successive samples are alike, so the interval is Newey and West's, which does not take each of them for news.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

Result = Literal["ok", "grows", "unclear", "too short", "reported"]
Z: Final = 1.96
"""Standard errors to both sides: 95 %."""
SAMPLES_MIN: Final = 12
LIFE_SAMPLES_MIN: Final = 4
FULL_HOURS: Final = 8.0
"""The length of the soak whose limits are said an hour (guarantees AS-46)."""


@dataclass(frozen=True)
class Trend:
    """A line through samples: units an hour, with the ends of its 95 % interval; `hours` from first to last sample."""

    per_hour: float
    low: float
    high: float
    mean: float
    hours: float
    samples: int


@dataclass(frozen=True)
class Limit:
    """What a figure may grow by during a soak of eight hours; a shorter one may grow by as much, not by more an hour.

    `growth`: in units of the figure; `share`: of its mean. The larger counts.
    """

    growth: float = 0.0
    share: float = 0.0

    def per_hour(self, trend: Trend) -> float:
        """Return the steepest slope that is allowed."""
        return max(self.growth, self.share * abs(trend.mean)) / min(max(trend.hours, 1e-9), FULL_HOURS)


def fit(at_s: Sequence[float], values: Sequence[float], lives: Sequence[object]) -> Trend | None:
    """Return the common slope of all lives, None when there are too few samples. All three are of one length."""
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
    """Return what a trend says of a figure that was judged for `hours`.

    "grows": the slope is above its limit, and surely above nothing. "unclear": above its limit, but it may be chance.
    "too short": what could be used of the samples covers less than half of the time. "reported": there is no limit.
    """
    if limit is None:
        return "reported"
    if trend is None or trend.hours < 0.5 * hours:
        return "too short"
    if trend.per_hour <= limit.per_hour(trend):
        return "ok"
    return "grows" if trend.low > 0 else "unclear"
