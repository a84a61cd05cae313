"""How measures are named and written: a label, a unit, which direction is better. Pure.

What the table below does not know, such as a measure that a scenario defines, is shown under its own name; its unit
follows from how the name ends.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

MINUS: Final = "−"
NOTHING: Final = "–"
_UNITS_BY_ENDING: Final = {"_s": "s", "_min": "min", "_kib": "KiB", "_mib": "MiB", "_gib": "GiB", "_percent": "%"}
_SHORT_S: Final = 1.0
_LONG_S: Final = 600.0


class Figure(NamedTuple):
    """How one measure is written. `better`: `lower`, `higher`, or nothing where neither is."""

    name: str
    label: str
    unit: str = ""
    better: str = ""


FIGURES: Final = tuple(
    Figure(*row)
    for row in (
        ("pods_created", "Pods created", ""),
        ("pods_failed", "Pods failed", "", "lower"),
        ("failed_per_min", "Failed pods per minute", "", "lower"),
        ("pods_running_at_end", "Pods Running at the end", "", "higher"),
        ("pods_disturbed", "Pods that ran and then failed", "", "lower"),
        ("unbinds", "Unbinds", ""),
        ("first_running_s", "First pod Running after", "s", "lower"),
        ("time_to_running_p50_s", "Time to Running, p50", "s", "lower"),
        ("time_to_running_p99_s", "Time to Running, p99", "s", "lower"),
        ("rejected_to_running_p50_s", "Rejection to Running, p50", "s", "lower"),
        ("rejected_to_running_p99_s", "Rejection to Running, p99", "s", "lower"),
        ("api_writes", "API writes (without heartbeats)", "", "lower"),
        ("api_writes_per_running_pod", "API writes per finally running pod", "", "lower"),
        ("status_patches", "Status patches by the scheduler", "", "lower"),
        ("status_missing_min", "Pods' status is missing a reason", "min", "lower"),
        ("status_stale_min", "Pods' status is stale", "min", "lower"),
        ("gate_reports", "Reports of PreEnqueue", "", "lower"),
        ("gate_report_kib", "Reports of PreEnqueue, size", "KiB", "lower"),
        ("gate_reason_seen_p50_s", "Rejection at PreEnqueue to its reason, p50", "s", "lower"),
        ("gate_reason_seen_p99_s", "Rejection at PreEnqueue to its reason, p99", "s", "lower"),
        ("status_misleading_min", "Pods untried said to need nodes", "min", "lower"),
        ("victims", "Victims of preemption", "", "lower"),
        ("evicted_cpu", "CPU that victims had", "cores", "lower"),
        ("evicted_memory_gib", "Memory that victims had", "GiB", "lower"),
        ("resizes_asked", "Resizes requested", ""),
        ("resizes_met", "Resizes that came true", "", "higher"),
        ("time_to_resized_p50_s", "Time to resized, p50", "s", "lower"),
        ("time_to_resized_p99_s", "Time to resized, p99", "s", "lower"),
        ("resize_attempts", "Attempts to preempt for resizes", ""),
        ("jobs_complete", "Jobs complete", "", "higher"),
        ("jobs_failed", "Jobs failed", "", "lower"),
        ("job_duration_p50_s", "Time from a Job's creation to its end, p50", "s", "lower"),
        ("claim_writes", "Writes of ResourceClaims", "", "lower"),
        ("claim_kib_written", "ResourceClaims written", "KiB", "lower"),
        ("claim_watch_kib", "ResourceClaims sent to watchers", "KiB", "lower"),
        ("claim_conflicts", "Conflicts at ResourceClaims", "", "lower"),
        ("claim_consumers_max", "Most consumers of one ResourceClaim", ""),
        ("claim_unused_p50_s", "From the last pod's end to deallocation, p50", "s", "lower"),
        ("claim_unused_p99_s", "From the last pod's end to deallocation, p99", "s", "lower"),
    )
)
"""In the order tables show them."""
_BY_NAME: Final = {figure.name: figure for figure in FIGURES}


def figure_of(name: str) -> Figure:
    """Return how a measure is written, also one that is not in the table."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    for ending, unit in _UNITS_BY_ENDING.items():
        if name.endswith(ending):
            return Figure(name, name.removesuffix(ending), unit)
    return Figure(name, name)


def in_order(names: Iterable[str]) -> list[str]:
    """Return measures in the order of tables; those that only their scenario knows stand first, as it has them."""
    known = list(dict.fromkeys(names))
    own = [name for name in known if name not in _BY_NAME]
    return own + [figure.name for figure in FIGURES if figure.name in known]


class Scale(NamedTuple):
    """How the values of one row are written, so that they can be compared at a glance: one unit, one precision."""

    factor: float
    unit: str
    digits: int

    def number(self, value: float | None, *, signed: bool = False) -> str:
        """Return the number alone; a dash of none."""
        if value is None:
            return NOTHING
        text = f"{abs(value) * self.factor:,.{self.digits}f}"
        is_zero = not text.strip("0.,")
        sign = "" if is_zero else MINUS if value < 0 else "+" if signed else ""
        return sign + text

    def text(self, value: float | None, *, signed: bool = False) -> str:
        """Return the number with its unit."""
        shown = self.number(value, signed=signed)
        return shown if value is None or not self.unit else f"{shown} {self.unit}"

    def between(self, low: float, high: float, *, signed: bool = False) -> str:
        """Return a range with its unit."""
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.number(low, signed=signed)} to {self.number(high, signed=signed)}{unit}"


def scale_of(unit: str, values: Iterable[float | None]) -> Scale:
    """Return how to write these values: seconds as ms, s or min by the largest, whole numbers without a fraction,
    others with about three digits that mean something."""
    there = [value for value in values if value is not None]
    top = max(map(abs, there), default=0.0)
    factor = 1.0
    if unit == "s" and 0 < top < _SHORT_S:
        factor, unit = 1000.0, "ms"
    elif unit == "s" and top >= _LONG_S:
        factor, unit = 1 / 60, "min"
    scaled = [value * factor for value in there]
    if all(value == int(value) for value in scaled):
        return Scale(factor, unit, 0)
    most = top * factor
    return Scale(factor, unit, 0 if most >= 1000 else 1 if most >= 100 else 2 if most >= 1 else 3)
