"""I21: a pod's phase goes forward only."""

from lab.scenarios.invariants.check import Check, Context, Report
from lab.scenarios.invariants.view import Commit
from services.telemetry.eventlog import Line

_PHASES = {"": 0, "Pending": 0, "Running": 1, "Unknown": 1, "Succeeded": 2, "Failed": 2}


class PhaseOrder(Check):
    """I21: Pending, Running, then Succeeded or Failed; terminal is final."""

    id = "I21"
    events = ("store.commit",)
    kinds = ("Pod",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._phase: dict[str, str] = {}

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Check that the phase moves forward."""
        uid, phase = commit.content.uid, commit.content.phase
        before = self._phase.get(uid, "")
        if commit.type == "DELETED":
            self._phase.pop(uid, None)
            return
        if _PHASES[phase] < _PHASES[before] or (_PHASES[before] == 2 and phase != before):
            report(line, f"phase went from {before} to {phase}")
        self._phase[uid] = phase
