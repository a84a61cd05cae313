"""I23: finalizers hold."""

from lab.scenarios.invariants.check import Check, Report
from services.telemetry.eventlog import Line


class FinalizersHold(Check):
    """I23: nothing is removed while it has a finalizer."""

    id = "I23"
    events = ("store.commit",)

    def take(self, line: Line, report: Report) -> None:
        """Look at what a removal still had."""
        if line.data.get("type") == "DELETED" and line.data.get("finalizers"):
            report(line, f"removed with finalizers {', '.join(line.data['finalizers'])}")
