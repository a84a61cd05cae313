"""I22: an object that is being deleted stays so until it is removed, and never comes back."""

from lab.scenarios.invariants.check import Check, Context, Departed, Report
from lab.scenarios.invariants.view import Commit
from services.telemetry.eventlog import Line


class DeletionIsOneWay(Check):
    """I22: deletionTimestamp is never unset or moved later; a removed uid never comes back."""

    id = "I22"
    events = ("store.commit",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._deletion: dict[str, str] = {}
        self._removed = Departed(100_000)

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Track deletion timestamps (RFC 3339 in UTC compare as texts)."""
        if commit.is_replayed:
            return
        uid, stamp = commit.content.uid, commit.content.deletion
        if uid in self._removed:
            report(line, "a removed uid came back")
        before = self._deletion.get(uid, "")
        if commit.type == "DELETED":
            self._removed.add(uid)
            self._deletion.pop(uid, None)
            return
        if before and not stamp:
            report(line, f"deletionTimestamp {before} was unset")
        elif before and stamp > before:
            report(line, f"deletionTimestamp moved from {before} to {stamp}")
        if stamp:
            self._deletion[uid] = stamp
