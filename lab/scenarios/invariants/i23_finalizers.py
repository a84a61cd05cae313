"""I23: no object is removed before its finalizers."""

from lab.scenarios.invariants.check import Check, Report
from lab.scenarios.invariants.view import Commit
from services.telemetry.eventlog import Line


class FinalizersHold(Check):
    """I23: no object is removed while it has a finalizer."""

    id = "I23"
    events = ("store.commit",)

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Check the finalizers of a removed object."""
        if commit.type == "DELETED" and commit.content.finalizers:
            report(line, f"removed with finalizers {', '.join(commit.content.finalizers)}")
