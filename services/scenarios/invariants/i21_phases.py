"""I21: a pod's phase goes forward only."""

from services.scenarios.invariants.check import Check, Context, Report, pod_commit, uid_of
from services.telemetry.eventlog import Line

_PHASES = {"": 0, "Pending": 0, "Running": 1, "Unknown": 1, "Succeeded": 2, "Failed": 2}


class PhaseOrder(Check):
    """I21: Pending, Running, then Succeeded or Failed; terminal is final."""

    id = "I21"
    events = ("store.commit",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._phase: dict[str, str] = {}

    def take(self, line: Line, report: Report) -> None:
        """Compare each commit's phase with the one before."""
        if pod_commit(self.view) is None:
            return
        uid, phase = uid_of(line), str(line.data.get("phase", ""))
        before = self._phase.get(uid, "")
        if line.data.get("type") == "DELETED":
            self._phase.pop(uid, None)
            return
        if _PHASES[phase] < _PHASES[before] or (_PHASES[before] == 2 and phase != before):
            report(line, f"phase went from {before} to {phase}")
        self._phase[uid] = phase
