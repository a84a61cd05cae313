"""I23: no object is removed before its finalizers."""

from lab.scenarios.invariants.check import Check, Report
from services.telemetry.eventlog import Line


class FinalizersHold(Check):
    """I23: no object is removed while it has a finalizer."""

    id = "I23"
    events = ("store.commit",)

    def take(self, line: Line, report: Report) -> None:
        """Check the finalizers of each removed object."""
        if line.data.get("type") == "DELETED" and line.data.get("finalizers"):
            report(line, f"removed with finalizers {', '.join(line.data['finalizers'])}")
