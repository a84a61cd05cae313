"""I12: the commit log has no gaps and no duplicates."""

from lab.scenarios.invariants.check import Check, Context, Report
from services.telemetry.eventlog import Line


class DenseVersions(Check):
    """I12: the commit log holds every resource version once, over all incarnations."""

    id = "I12"
    events = ("store.commit", "store.recovered")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._last = 0

    def take(self, line: Line, report: Report) -> None:
        """Check that each version follows the last one, and that a recovery has every version that was logged."""
        if line.rv is None:
            return
        if line.ev == "store.recovered":
            if self.context.is_volatile:
                self._last = 0
            elif not self._last:
                self._last = line.rv  # a store that begins with another's objects
            elif line.rv < self._last:
                report(line, f"recovered up to version {line.rv}, although {self._last} was logged")
            return
        if line.data.get("replayed") and line.rv <= self._last:
            return
        if self._last and line.rv != self._last + 1:
            report(line, f"resource version {line.rv} follows {self._last}")
        self._last = max(self._last, line.rv)
