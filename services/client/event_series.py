"""Event series of the newer API, events.k8s.io: events that differ only in their note join the first one
(KEP-383).

The first event is an Event of its own. The second turns the same object into a series of two, with the first
note. Later ones are counted in memory. The count is written every thirty minutes, and when the series is over:
nothing came for six minutes, checked every six minutes. No event is dropped for being too frequent.
Source: upstream `staging/src/k8s.io/client-go/tools/events/event_broadcaster.go`.
Deviates: a count that is written already is not written again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from services.api.meta import Document
from services.api.times import format_micro_time
from services.reconcile.actions import RecordEvent

FINISH_S: Final = 360.0
REFRESH_TICKS: Final = 5
"""Number of checks for finished series after which running series are written."""
MEMORY_MAX: Final = 4096


@dataclass(slots=True)
class Series:
    """One Event object. `count` 1: not a series yet. `last_s`: wall-clock time of the latest observation."""

    action: RecordEvent
    name: str
    first_s: float
    last_s: float
    seen_s: float
    """Monotonic time of the latest observation."""
    count: int = 1
    is_created: bool = False
    traceparent: str = ""

    def patch(self) -> Document:
        """Return the patch for a stored Event."""
        return {"series": {"count": self.count, "lastObservedTime": format_micro_time(self.last_s)}}

    def fields(self, component: str, host: str) -> Document:
        """Return the newer API's fields for counts, stamps and source, as they are stored (core/v1)."""
        return {
            "message": self.action.message,
            "eventTime": format_micro_time(self.first_s),
            **(self.patch() if self.count > 1 else {}),
            "source": {},
            "reportingComponent": component,
            "reportingInstance": f"{component}-{host}",
        }


@dataclass
class SeriesCorrelator:
    """Decides which Event object an observation belongs to, and when its count is written. Pure."""

    started_s: float
    _known: dict[RecordEvent, Series] = field(default_factory=dict)
    _behind: dict[RecordEvent, Series] = field(default_factory=dict)
    """Series whose count is not written yet."""
    _ticks: int = 0

    def knows(self, action: RecordEvent) -> bool:
        """Whether the observation would join an existing object."""
        return _key(action) in self._known

    def observe(self, action: RecordEvent, name: str, now: float, wall: float) -> tuple[RecordEvent, Series] | None:
        """Return the object to create or patch now, with its identity; None if the observation is only counted."""
        key = _key(action)
        series = self._known.get(key)
        if series is None:
            if len(self._known) >= MEMORY_MAX:
                self._forget(next(iter(self._known)))
            series = self._known[key] = Series(action, name, wall, wall, now)
            return key, series
        series.count += 1
        series.last_s, series.seen_s = wall, now
        if series.count == 2:
            return key, series
        self._behind[key] = series
        return None

    @property
    def next_due_s(self) -> float | None:
        """When a count may have to be written next; None if all are written."""
        return self.started_s + (self._ticks + 1) * FINISH_S if self._behind else None

    def tick(self, now: float) -> Iterator[tuple[RecordEvent, Series]]:
        """Yield the series that are over or due for a refresh, at most once per interval; forget those that are
        over.
        """
        ticks = int((now - self.started_s) / FINISH_S)
        if ticks == self._ticks:
            return
        is_refreshed = ticks // REFRESH_TICKS > self._ticks // REFRESH_TICKS
        self._ticks = ticks
        at_s = self.started_s + ticks * FINISH_S
        for key, series in list(self._known.items()):
            is_over = series.seen_s < at_s - FINISH_S
            if (is_over or is_refreshed) and self._behind.pop(key, None) is not None:
                yield key, series
            if is_over:
                self._forget(key)

    def _forget(self, key: RecordEvent) -> None:
        self._known.pop(key, None)
        self._behind.pop(key, None)


def _key(action: RecordEvent) -> RecordEvent:
    return msgspec.structs.replace(action, message="")
