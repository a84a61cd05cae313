"""I6: a device belongs to one claim."""

from lab.scenarios.invariants.check import NO_CLAIMS, Check, Context, Report
from lab.scenarios.invariants.view import Commit
from services.telemetry.eventlog import Line


class DevicesAreGrantedOnce(Check):
    """I6: no device occurs in the allocations of two claims.

    With several schedulers nothing upstream prevents that, so it is only counted, unless the API server
    guards against it.
    """

    id = "I6"
    events = ("store.commit", "sched.attempt")
    kinds = ("ResourceClaim",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.why_not = NO_CLAIMS
        self._holders: dict[str, dict[str, None]] = {}
        self._schedulers: dict[str, None] = {}
        self._is_guarded = self.switches.choice("dra.double_allocation_guard") == "apiserver"

    def take(self, line: Line, report: Report) -> None:
        """Count the schedulers that choose nodes."""
        self._schedulers[line.comp] = None
        if len(self._schedulers) > 1 and not self._is_guarded:
            self.why_not = "several schedulers may grant one device; that is counted, not failed"

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Track the devices allocated to claims."""
        if self.why_not == NO_CLAIMS:
            self.why_not = ""
        uid = commit.content.uid
        before = commit.before.granted if commit.before is not None and commit.before.uid == uid else None
        after = commit.after.granted if commit.after is not None else None
        for device in before or ():
            self._holders.get(device, {}).pop(uid, None)
        for device in after or ():
            holders = self._holders.setdefault(device, {})
            if holders and not self.why_not:
                report(line, f"device {device} is granted to claim {uid} and to {', '.join(holders)}")
            holders[uid] = None
