"""Figures of `keplab bench side-by-side -o json`, which the report shows beside their aims."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from lab.benchmarks.reporting.report import Figures


class _SideBySide(msgspec.Struct):
    figures: dict[str, float]


def read_times_ahead(path: Path) -> Mapping[str, float]:
    """Return how many times keplab is ahead of the other control plane, by figure. Raises: OSError, ValueError."""
    return msgspec.json.decode(path.read_bytes(), type=_SideBySide).figures


def add_times_ahead(figures: Figures, ahead: Mapping[str, float]) -> None:
    """Add these figures to a report, with the words of the table of aims."""
    for name, times in ahead.items():
        row = figures.aims.of(name)
        figures.add(name, row.what if row is not None and row.what else name, times, "times")
