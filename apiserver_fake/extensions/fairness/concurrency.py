"""Division of the server's concurrency among priority levels: by shares, and by lending and borrowing.
Pure.

Source: KEP-1040 (Dispatching, borrowing), upstream
`staging/src/k8s.io/apiserver/pkg/util/flowcontrol/conc_alloc.go`, `apf_controller.go`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from apiserver_fake.extensions.fairness.queue_set import Demand

SMOOTHING: Final = 0.977
"""Fraction of a level's smoothed demand that is kept from one adjustment to the next."""
MAX_SEATS_SHARE: Final = 0.15
"""Fraction of a level's nominal concurrency that one request may occupy."""
NOTHING: Final = Demand()
TARGET_MIN: Final = 0.001
EPSILON: Final = 1e-7


class Bounds(NamedTuple):
    """One class in an allocation of concurrency: its target, and its lower and upper limit."""

    target: float
    lower: float
    upper: float


class Impossible(ValueError):
    """No allocation within the bounds of all classes has the required sum."""


def allocate(total: int, classes: Sequence[Bounds]) -> tuple[list[float], float]:
    """Return allocations that sum to `total`, and the fair proportion.

    Each allocation is its class's target times that proportion, limited to the class's bounds. Raises: Impossible.
    """
    targets = [max(each.target, TARGET_MIN) for each in classes]
    low, high = sum(each.lower for each in classes), sum(each.upper for each in classes)
    if low - total > EPSILON:
        raise Impossible(f"lower bounds sum to {low}, which is higher than the required sum of {total}")
    if total - high > EPSILON:
        raise Impossible(f"upper bounds sum to {high}, which is lower than the required sum of {total}")
    if total == 0:
        return [0.0] * len(classes), 0.0

    def at(proportion: float) -> list[float]:
        return [
            min(each.upper, max(each.lower, proportion * target)) for each, target in zip(classes, targets, strict=True)
        ]

    # The sum grows with the proportion, linearly between the points where a class meets one of its bounds.
    points = sorted(
        {bound / target for each, target in zip(classes, targets, strict=True) for bound in (each.lower, each.upper)}
    )
    before = 0.0
    for point in points:
        if sum(at(point)) >= total:
            least, most = sum(at(before)), sum(at(point))
            share = (total - least) / (most - least) if most > least else 0.0
            proportion = before + share * (point - before)
            return at(proportion), proportion
        before = point
    return at(before), before


@dataclass(frozen=True)
class Limits:
    """The concurrency limits of a priority level, in seats. `nominal`: by its shares.

    `lower`: left when it has lent all it may. `upper`: reached when it has borrowed all it may.
    """

    nominal: int
    lower: int
    upper: int

    @property
    def initial(self) -> int:
        """The seats of a level before its demand is known."""
        return self.nominal - (self.nominal - self.lower) // 2


@dataclass(frozen=True)
class Shares:
    """A priority level's configuration of concurrency. `borrowing_percent`: None means no limit."""

    shares: int
    lendable_percent: int = 0
    borrowing_percent: int | None = None


def _round(value: float) -> int:
    """Return the nearest integer, halves away from zero as Go rounds."""
    return math.floor(value + 0.5)


def limits_of(levels: Mapping[str, Shares], server_limit: int) -> dict[str, Limits]:
    """Return the limits of every level, for a server that executes `server_limit` seats at once."""
    total = sum(each.shares for each in levels.values())
    limits: dict[str, Limits] = {}
    for name, level in levels.items():
        nominal = math.ceil(server_limit * level.shares / total) if total else 0
        lendable = _round(nominal * level.lendable_percent / 100)
        borrowed = server_limit
        if level.borrowing_percent is not None:
            borrowed = _round(nominal * level.borrowing_percent / 100)
        limits[name] = Limits(nominal, nominal - lendable, nominal + borrowed)
    return limits


def max_seats(nominal: int, hand: int) -> int:
    """Return the most seats that one request of a level with queues may occupy, before the estimator's own limit."""
    return max(1, min(math.ceil(nominal * MAX_SEATS_SHARE), nominal // hand))


@dataclass(frozen=True)
class Smoothed:
    """A level's demand for seats, smoothed for borrowing."""

    demand: Demand = NOTHING
    smoothed: float = 0.0

    def after(self, demand: Demand) -> "Smoothed":
        """Return the smoothed demand after another period: it rises with the demand's envelope at once, and falls
        slowly.
        """
        if demand.duration_s <= 0:
            return Smoothed(Demand(self.demand.average, self.demand.deviation, demand.most), self.smoothed)
        envelope = demand.average + demand.deviation
        return Smoothed(demand, max(envelope, SMOOTHING * self.smoothed + (1 - SMOOTHING) * envelope))


class Adjusted(NamedTuple):
    """The concurrency of all levels for the next period. `fair`: the fair proportion.

    `fair` is None when concurrency stays as it was, because the bounds contradict each other.
    """

    current: dict[str, int]
    targets: dict[str, float]
    fair: float | None


def adjust(limits: Mapping[str, Limits], demands: Mapping[str, Smoothed], current: Mapping[str, int]) -> Adjusted:
    """Return the levels' concurrency for the next period, lent and borrowed by the demand of the last period."""
    bounds: dict[str, Bounds] = {}
    for name, limit in limits.items():
        demand = demands[name]
        lower = max(limit.lower, min(limit.nominal, demand.demand.most))
        bounds[name] = Bounds(max(lower, demand.smoothed), lower, limit.upper)
    targets = {name: each.target for name, each in bounds.items()}
    try:
        allocations, fair = allocate(sum(each.nominal for each in limits.values()), list(bounds.values()))
    except Impossible:
        return Adjusted(dict(current), targets, None)
    return Adjusted({name: _round(each) for name, each in zip(bounds, allocations, strict=True)}, targets, fair)
