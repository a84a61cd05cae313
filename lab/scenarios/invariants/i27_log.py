"""I27: the log itself is complete."""

from lab.scenarios.invariants.check import Check, Context, Report
from services.telemetry.eventlog import Line


class CompleteLog(Check):
    """I27: every process's lines are numbered without a gap."""

    id = "I27"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._seq: dict[tuple[str, str], int] = {}

    def take(self, line: Line, report: Report) -> None:
        """Check that the line's number follows that of the process's last line."""
        key = (line.comp, line.inc)
        if line.seq != self._seq.get(key, 0) + 1:
            report(line, f"line {line.seq} of {line.comp}-{line.inc} follows {self._seq.get(key, 0)}")
        self._seq[key] = line.seq
