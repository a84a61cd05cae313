"""I18: the scheduler deletes victims and nothing else."""

from __future__ import annotations

from services.scenarios.invariants.check import Check, Context, Report, pod_commit, uid_of
from services.telemetry.eventlog import Line


class VictimsHavePreemptors(Check):
    """I18: what the scheduler deletes is a victim it announced, once."""

    id = "I18"
    events = ("sched.victim", "store.commit")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._victims: dict[str, bool] = {}

    def take(self, line: Line, report: Report) -> None:
        """Match the scheduler's deletes with its sched.victim lines."""
        if line.ev == "sched.victim":
            self._victims.setdefault(uid_of(line), False)
        elif (
            pod_commit(self.view) is not None
            and line.data.get("verb") == "delete"
            and line.identity == "system:kube-scheduler"
        ):
            uid = uid_of(line)
            if uid not in self._victims:
                report(line, "deleted by the scheduler without being a victim")
            elif self._victims[uid]:
                report(line, "deleted twice as a victim")
            self._victims[uid] = True


CHECK = VictimsHavePreemptors
