"""I29: no pod waits for the periodic flush."""

from lab.scenarios.invariants.check import Check, Report
from services.telemetry.eventlog import Line


class NoRescues(Check):
    """I29: no pod gets its node only because the queue is flushed every so often.

    Such a pod fitted for up to five minutes without anybody noticing: a plugin that rejected it names an event too
    few, or its hint says Skip where it should say Queue.
    """

    id = "I29"
    events = ("sched.flush_rescue",)

    def take(self, line: Line, report: Report) -> None:
        """Blame the plugins that had rejected the pod."""
        plugins = ", ".join(line.data.get("plugins") or ()) or "no plugin"
        report(line, f"was placed on {line.node} by the periodic flush alone, rejected before by {plugins}")
