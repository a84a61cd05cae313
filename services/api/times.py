"""RFC 3339 timestamps, the one place that spells wall-clock time (the `datetime` exception of the floors)."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def format_time(wall_s: float) -> str:
    """Return whole seconds as Kubernetes' `Time` does: `2026-01-02T03:04:05Z`."""
    return _spelt(int(wall_s))


@lru_cache(maxsize=64)
def _spelt(second: int) -> str:
    # Thousands of writes happen in one second, and each spells it several times.
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(wall_s: float) -> str:
    """Return microseconds as Kubernetes' `MicroTime` does: `2026-01-02T03:04:05.000006Z`."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> float:
    """Return seconds since the epoch.

    Raises: ValueError when the text is not RFC 3339 or the year is outside 1970 to 2200 (V13).
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    if not 1970 <= moment.year <= 2200:
        raise ValueError(f"{text!r} is outside the years 1970 to 2200")
    return moment.timestamp()
