"""I19: a Job counts the end of each of its pods once, and starts no pod after it has finished."""

from dataclasses import dataclass, field

from lab.scenarios.invariants.check import Check, Context, Report
from lab.scenarios.invariants.view import Commit, JobCounts
from services.api.kinds.job import TRACKING_FINALIZER
from services.telemetry.eventlog import Line


@dataclass
class _Job:
    """State of one Job, by uid. `ended`: uids of its pods that ended, or whose deletion was requested, while
    they were tracked.
    """

    ended: dict[str, None] = field(default_factory=dict)
    seen: dict[str, None] = field(default_factory=dict)
    """Uids that have left the uncounted list: they are in the counters."""
    finished_rv: int = 0


class JobCountsAreExact(Check):
    """I19: a uid enters the counters once; counters never fall; no more is counted than ended; nothing starts
    after.

    With `exact` jobs, the counters of a finished Job equal the number of pods that ended. Pods released
    before, because there were too many, did not end while tracked. For Indexed Jobs only existing indexes
    count, and a failure policy may ignore ends: there the numbers are upper bounds.
    """

    id = "I19"
    events = ("store.commit",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._jobs: dict[str, _Job] = {}

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Count the ends of a Job's pods, and hold its counters against them."""
        if commit.kind == "Pod" and commit.content.owners:
            self._take_pod(line, commit, report)
        elif commit.kind == "Job":
            self._take_job(line, commit, report)

    def _take_pod(self, line: Line, commit: Commit, report: Report) -> None:
        pod, before = commit.content, commit.before
        job = next((owner_job for owner in pod.owners if (owner_job := self._jobs.get(owner)) is not None), None)
        if job is None:
            return
        if commit.type == "ADDED" and job.finished_rv and not commit.is_replayed:
            report(line, f"created at version {pod.rv} after its job had finished at {job.finished_rv}")
        is_tracked = TRACKING_FINALIZER in pod.finalizers or (
            before is not None and before.uid == pod.uid and TRACKING_FINALIZER in before.finalizers
        )
        if is_tracked and (pod.is_over or pod.deletion):
            job.ended[pod.uid] = None

    def _take_job(self, line: Line, commit: Commit, report: Report) -> None:
        stored = commit.content
        if commit.type == "DELETED":
            self._jobs.pop(stored.uid, None)
            return
        job, counts = self._jobs.setdefault(stored.uid, _Job()), stored.job or JobCounts()
        same = commit.before is not None and commit.before.uid == stored.uid
        old = (commit.before.job if commit.before is not None and same else None) or JobCounts()
        if counts.failed < old.failed or (counts.exact and counts.succeeded < old.succeeded):
            before = f"{old.succeeded} succeeded and {old.failed} failed"
            report(line, f"counters fell from {before} to {counts.succeeded} and {counts.failed}")
        for uid in old.uncounted:
            if uid not in counts.uncounted:
                job.seen[uid] = None
        for uid in counts.uncounted:
            if uid in job.seen:
                report(line, f"pod {uid} is to be counted a second time")
        counted = counts.succeeded + counts.failed + len(counts.uncounted)
        if counted > len(job.ended) and not commit.is_replayed:
            report(line, f"{counted} ends are counted or about to be, {len(job.ended)} tracked pods have ended")
        if counts.finished and not job.finished_rv:
            job.finished_rv = stored.rv
            if counts.exact and counted < len(job.ended):
                report(line, f"finished with {counted} ends counted, {len(job.ended)} tracked pods have ended")
