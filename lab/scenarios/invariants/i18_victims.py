"""I18: the scheduler deletes only victims."""

from lab.scenarios.invariants.check import Check, Context, Departed, Report, uid_of
from lab.scenarios.invariants.view import Commit
from services.telemetry.eventlog import Line


class VictimsHavePreemptors(Check):
    """I18: each deletion by the scheduler is a victim it announced, once, for a waiting pod of higher priority.

    A pod that wants more of its node (`resize`) waits there: its victims leave that node for it (KEP-5836).
    `sched.victim` has the preemptor's uid and, as `priority` and `preemptor_priority`, both priorities. Its
    `rv_seen` is the newest version the scheduler knew when it sent the delete: the scheduler cannot know
    later changes of the preemptor.
    """

    id = "I18"
    events = ("sched.victim", "store.commit")
    kinds = ("Pod",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._victims: dict[str, Line] = {}
        self._settled: dict[str, int] = {}
        """Uids of pods that wait no more, with the version that said so."""
        self._deleted: dict[str, None] = {}
        self._departed = Departed()

    def take(self, line: Line, report: Report) -> None:
        """Note a victim."""
        self._victims[uid_of(line)] = line

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Match the scheduler's deletes with its sched.victim lines."""
        uid = commit.content.uid
        if commit.type == "DELETED" or commit.content.node or commit.content.is_over:
            self._settled.setdefault(uid, commit.rv)
        else:
            self._settled.pop(uid, None)
        if commit.verb == "delete" and commit.identity == "system:kube-scheduler":
            if uid not in self._victims:
                report(line, "deleted by the scheduler without being a victim")
            elif uid in self._deleted:
                report(line, "deleted twice as a victim")
            else:
                self._judge(line, self._victims[uid], report)
            self._deleted[uid] = None
        if commit.type == "DELETED":
            forgotten = self._departed.add(uid)
            self._victims.pop(forgotten, None)
            self._settled.pop(forgotten, None)
            self._deleted.pop(forgotten, None)

    def _judge(self, line: Line, announced: Line, report: Report) -> None:
        data = announced.data
        mine, theirs = data.get("priority"), data.get("preemptor_priority")
        if mine is not None and theirs is not None and theirs <= mine:
            report(line, f"deleted at priority {mine} for a pod of priority {theirs}")
        preemptor = data.get("preemptor")
        if not preemptor or self._settled.get(preemptor, 0) > (announced.rv_seen or self._settled.get(preemptor, 0)):
            return
        preemptor_pod = next((pod for pod in self.view.tables["Pod"].objects.values() if pod.uid == preemptor), None)
        if preemptor_pod is None:
            report(line, f"deleted for pod {preemptor}, which is not stored")
        elif data.get("resize"):
            if preemptor_pod.is_over or preemptor_pod.node != announced.node:
                report(
                    line,
                    f"deleted for the resize of pod {preemptor_pod.namespace}/{preemptor_pod.name}, which is not there",
                )
        elif preemptor_pod.node or preemptor_pod.is_over:
            report(
                line,
                f"deleted for pod {preemptor_pod.namespace}/{preemptor_pod.name}, which is bound to "
                f"{preemptor_pod.node or 'no node'}",
            )
