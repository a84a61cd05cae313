"""I29: no pod waits for the periodic flush."""

from lab.scenarios.invariants.check import Check, Report
from services.telemetry.eventlog import Line


class NoRescues(Check):
    """I29: no pod gets its node only because of the queue's periodic flush.

    Such a pod was schedulable unnoticed for up to five minutes: a plugin that rejected it registers too few
    events, or its queueing hint returns Skip instead of Queue.
    """

    id = "I29"
    events = ("sched.flush_rescue",)

    def take(self, line: Line, report: Report) -> None:
        """Report the plugins that had rejected the pod."""
        plugins = ", ".join(line.data.get("plugins") or ()) or "no plugin"
        report(line, f"was placed on {line.node} by the periodic flush alone, rejected before by {plugins}")
