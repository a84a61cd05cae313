"""Commit times of a mesh's versions, thinned to what a time line can show. Pure."""

from array import array
from typing import Final

KEPT: Final = 20_000
STEP_S: Final = 0.05


class Times:
    """Pairs of a time (seconds of the live clock) and the newest version at that time; at most `KEPT` pairs.

    They are at least `STEP_S` apart. Whenever there are too many, every second one is dropped and the distance
    doubles.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept, self._step_s = kept, STEP_S
        self._t, self._rv = array("d"), array("d")
        self._last: tuple[float, int] | None = None

    @property
    def newest_rv(self) -> int:
        """Newest version that was added; 0 before the first."""
        return self._last[1] if self._last is not None else 0

    def add(self, t: float, rv: int) -> None:
        """Add a version committed at `t`; one that is not newer than the last is ignored."""
        if self._last is not None and rv <= self._last[1]:
            return
        self._last = t, rv
        if self._t and t - self._t[-1] < self._step_s:
            return
        self._t.append(t)
        self._rv.append(rv)
        if len(self._t) > self._kept:
            self._t, self._rv = self._t[::2], self._rv[::2]
            self._step_s *= 2

    def document(self) -> dict[str, list[float]]:
        """Return times and versions, the oldest first."""
        t, rv = self._t.tolist(), self._rv.tolist()
        if self._last is not None and self._last[1] > rv[-1]:
            t, rv = [*t, self._last[0]], [*rv, float(self._last[1])]
        return {"t": [round(each, 6) for each in t], "rv": rv}
