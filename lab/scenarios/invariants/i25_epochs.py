"""I25: no component writes under an expired leadership."""

from lab.scenarios.invariants.check import Check, Context, Report
from lab.scenarios.invariants.view import Commit, Recent
from services.api.wire import LeaseEpoch
from services.telemetry.eventlog import Line

REQUESTS_KEPT = 10_000


class LeaseEpochs(Check):
    """I25: no commit carries a lease epoch below the stored one, and each write that a leader reports carries
    its own epoch.

    A leader reports writes by `sched.bind_result` (the version its Binding made) and by `ctrl.write` (the id
    of its request, before it is sent). A write without epoch would not be fenced, so it counts as below all.
    """

    id = "I25"
    events = ("lease.acquire", "lease.lose", "proc.start", "store.commit", "sched.bind_result", "ctrl.write")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._stored: dict[tuple[str, str], int] = {}
        self._epochs: dict[str, str] = {}
        self._named: Recent[str, str] = Recent(REQUESTS_KEPT)
        """What the commit of a request is to carry, by request id."""

    def take(self, line: Line, report: Report) -> None:
        """Track leases and leaders."""
        match line.ev:
            case "lease.acquire":
                self._epochs[line.comp] = str(line.data.get("epoch", ""))
            case "lease.lose" | "proc.start":
                self._epochs.pop(line.comp, None)
            case "ctrl.write" if line.comp in self._epochs and line.req_id:
                self._named[line.req_id] = self._epochs[line.comp]
            case "sched.bind_result" if line.comp in self._epochs and line.data.get("resolved_how") == "reply":
                commit = self.view.by_rv.get(line.rv) if line.rv else None
                if commit is not None:
                    self._compare(line, commit.lease_epoch, self._epochs[line.comp], report)

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Check the epoch of a commit."""
        if commit.is_replayed:
            return
        wanted = self._named.pop(commit.req_id, "") if commit.req_id else ""
        if wanted:
            self._compare(line, commit.lease_epoch, wanted, report)
        if commit.lease_epoch:
            epoch = LeaseEpoch.parse(commit.lease_epoch)
            stored = self._stored.get((epoch.namespace, epoch.name), 0)
            if epoch.transitions < stored:
                report(line, f"written under {commit.lease_epoch}, the lease is at {stored} transitions")
        if commit.kind == "Lease":
            key = (commit.content.namespace, commit.content.name)
            if commit.type == "DELETED":
                self._stored.pop(key, None)
            else:
                self._stored[key] = int(line.data.get("transitions", 0))

    def _compare(self, line: Line, found: str, wanted: str, report: Report) -> None:
        if found != wanted:
            who = line.comp if line.ev != "store.commit" else "a leader"
            report(line, f"{who} leads by {wanted} and wrote under {found or 'no epoch'}")
