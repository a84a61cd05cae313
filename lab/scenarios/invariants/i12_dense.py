"""I12: the commit log has no gaps and no duplicates."""

from lab.scenarios.invariants.check import Check, Context, Report
from lab.scenarios.invariants.view import Commit
from services.telemetry.eventlog import Line


class DenseVersions(Check):
    """I12: the commit log holds every resource version once, over all incarnations."""

    id = "I12"
    events = ("store.commit", "store.recovered")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._last = 0

    def take(self, line: Line, report: Report) -> None:
        """Check that a recovery has every version that was logged."""
        if line.rv is None:
            return
        if self.context.is_volatile:
            self._last = 0
        elif not self._last:
            self._last = line.rv  # a store that begins with another's objects
        elif line.rv < self._last:
            report(line, f"recovered up to version {line.rv}, although {self._last} was logged")

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Check that the version follows the last one."""
        rv, last = commit.rv, self._last
        if commit.is_replayed and rv <= last:
            return
        if last and rv != last + 1:
            report(line, f"resource version {rv} follows {last}")
        self._last = max(last, rv)
