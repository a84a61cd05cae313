"""The scheduler's result for each pod, compared with the pod's status at that time. Pure.

The true result comes from the scheduler's own lines in the event log: rejected at PreEnqueue, admitted,
unschedulable. What users could read comes from the pod's PodScheduled condition. The comparison measures
how long nothing was reported (*missing*) and how long something else was (*stale*): the price of fewer
calls in the reporting models of KEP-5501. The time for which a pod was reported Unschedulable although no
node was examined is *misleading*: a cluster autoscaler would act on it. Source: kep-5501 7, "hypotheses
to measure".
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from services.api.identity import SCHEDULER
from services.telemetry.eventlog import Line

GATED: Final = "SchedulingGated"
UNSCHEDULABLE: Final = "Unschedulable"
NOT_READY: Final = "NotReadyForScheduling"
GENERIC: Final = "blocked on PreEnqueue by plugin: "


T = TypeVar("T")


class SchedulingResult(NamedTuple):
    """Current result. `plugin`: the plugin that rejects at PreEnqueue, empty for a failed attempt; `shown`: the
    message as users see it.

    All fields empty: the pod waits for its turn and nothing rejects it.
    """

    plugin: str = ""
    message: str = ""
    shown: str = ""


class ReportedReason(NamedTuple):
    """Content of a condition; all fields empty: it is absent."""

    reason: str = ""
    message: str = ""


class Misreported(NamedTuple):
    """Seconds in which a pod's status was wrong, by kind of error.

    `seen_s`: from the first rejection at PreEnqueue until the status of the pod or its group gave the reason;
    None: it never did.
    """

    missing: float = 0.0
    stale: float = 0.0
    misleading: float = 0.0
    seen_s: float | None = None


NOTHING: Final = SchedulingResult()


def is_missing(result: SchedulingResult, reported: ReportedReason) -> bool:
    """Return whether there is a result to report and nothing is reported."""
    return result != NOTHING and reported == ReportedReason()


def is_stale(result: SchedulingResult, reported: ReportedReason) -> bool:
    """Return whether the reported reason is not, or no longer, true."""
    if reported == ReportedReason():
        return False
    if result == NOTHING:
        # Why the last attempt failed stays true until the next one; a rejection at PreEnqueue does not.
        return reported.reason in (NOT_READY, GATED)
    if reported.reason == GATED:
        return result.plugin != "SchedulingGates"
    messages = (result.message, result.shown or result.message, GENERIC + result.plugin)
    return reported.message not in messages


class SchedulingResults:
    """Scheduling results by pod uid, in the order of time; seconds of the log's own clock."""

    events: Final = ("sched.reported", "sched.gated", "sched.ungated", "sched.attempt", "store.commit")

    def __init__(self) -> None:
        self.by_uid: dict[str, list[tuple[float, SchedulingResult]]] = {}
        self.patches_by_uid: dict[str, int] = {}
        """Status patches of the scheduler that changed something."""
        self.reports = 0
        self.report_bytes = 0
        """Reports of PreEnqueue that were sent, to pods or groups, and their bytes."""

    def take(self, line: Line) -> None:
        """Process a scheduler's line: its result for a pod, or a status that it wrote."""
        if line.ev == "sched.reported":
            self.reports += 1
            self.report_bytes += line.data["bytes"]
        if line.obj is None or line.obj["kind"] != "Pod":
            return
        uid, data = line.obj["uid"], line.data
        match line.ev:
            case "sched.gated":
                result = SchedulingResult(data["plugin"], data["message"], data.get("shown") or "")
            case "sched.ungated":
                result = NOTHING
            case "sched.attempt":
                is_scheduled = data["outcome"] == "scheduled"
                result = NOTHING if is_scheduled else SchedulingResult("", data["message"])
            case "store.commit":
                if (line.identity or data.get("identity")) == SCHEDULER.user and data.get("subresource") == "status":
                    self.patches_by_uid[uid] = self.patches_by_uid.get(uid, 0) + 1
                return
            case _:
                return
        self.by_uid.setdefault(uid, []).append((line.mono_ns / 1e9, result))

    def misreported_times(
        self,
        uid: str,
        reported: Sequence[tuple[float, ReportedReason]],
        started_s: float,
        until_s: float,
        of_group: Sequence[tuple[float, ReportedReason]] = (),
    ) -> Misreported:
        """Return how long the pod's status was missing, stale or misleading.

        `reported`: reasons with their start, in seconds since the run began, which was at `started_s` of the
        log's clock; `until_s`: end of the comparison, for example because the pod was bound; `of_group`: the same
        from the status of its group. An untrue text of the group is as stale as one of the pod's own. But a pod
        that only its group explains counts as missing.
        """
        results = [(at - started_s, result) for at, result in self.by_uid.get(uid, ())]
        of_gates = {text for _, result in results if result.plugin for text in (result.message, result.shown)}
        moments = sorted({at for series in (results, reported, of_group) for at, _ in series} | {until_s})
        rejected_s = next((at for at, result in results if result.plugin), None)
        missing = stale = misleading = 0.0
        seen_s: float | None = None
        for begin, end in pairwise(moments):
            if begin >= until_s:
                break
            result = _latest(results, begin, NOTHING)
            report = _latest(reported, begin, ReportedReason())
            its_group = _latest(of_group, begin, ReportedReason())
            if its_group.message not in of_gates:
                its_group = ReportedReason()  # why the group as a whole does not fit is no report of PreEnqueue
            length = min(end, until_s) - begin
            missing += length if is_missing(result, report) else 0.0
            is_untried = report.reason == UNSCHEDULABLE and report.message in of_gates
            is_wrong = is_stale(result, report) or is_stale(result, its_group) or (is_untried and result == NOTHING)
            stale += length if is_wrong else 0.0
            misleading += length if is_untried else 0.0
            is_said = report != ReportedReason() or its_group != ReportedReason()
            if rejected_s is not None and seen_s is None and result.plugin and is_said and not is_wrong:
                seen_s = begin - rejected_s
        return Misreported(missing, stale, misleading, seen_s)


def _latest(changes: Sequence[tuple[float, T]], at: float, before: T) -> T:
    return next((value for since, value in reversed(changes) if since <= at), before)
