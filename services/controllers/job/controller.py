"""Run pods until enough of them have succeeded, or until it is certain that they will not.

Each ended pod is counted exactly once (`survey`), and an outcome is reported before it is carried out
(`decision`). After failures new pods wait: 10 s, doubled with each failure since the last success. An unbound
pod stays active: it is neither counted nor replaced. Source: controllers 1.2 to 1.4 and 5; guarantees J1, J2;
KEP-2307.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from services.api.kinds.job import TRACKING_FINALIZER, Job
from services.api.kinds.pod import Pod
from services.api.meta import Document, Key
from services.api.switches import Switches
from services.controllers.job import decision
from services.controllers.job.decision import Outcome
from services.controllers.job.pods import missing, pod_of, surplus
from services.controllers.job.policy import ended_at_s, index_failures, meaning_of
from services.controllers.job.survey import Survey, survey
from services.controllers.shared_claim_release import is_over_or_suspended
from services.controllers.shared_owned_pods import REJECTED_AGAIN_S, deletions, is_refusal
from services.controllers.shared_ownership import Orphans, adopters, changes_of, claim, is_alive, owner_key, selector_of
from services.controllers.shared_switches import WorkloadSwitches
from services.reconcile import writes
from services.reconcile.actions import NOTHING, Action, Batch, Create, Delete, Patch, Query, Result, earliest, event
from services.reconcile.claim_release import Releases, releasing
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch, refusal_message
from services.reconcile.expectations import Expectations
from services.reconcile.interest import Interest
from services.telemetry.metrics import Counts, Metrics, counter

RESOURCE = "jobs.batch"
MANAGER = "kubernetes.io/job-controller"
BACKOFF_BASE_S, BACKOFF_MAX_S = 10.0, 600.0
"""Back-off of a Job in seconds: after its first failed pod, doubled with each further one, and the maximum (as
upstream).
"""
BATCH_S = 1.0
"""Seconds after the first change of a pod until all pending changes are handled together."""
STALE_MAX_S = 10.0
"""Seconds to wait for the controller's own status write to reach the cache; after that the cached job is used."""
_RELEASE: Document = {"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}}


@dataclass
class _Backoff:
    """Failures since the last success. `seen`: uids of failed pods that count here but not yet in the status."""

    failures: int = 0
    failed_at_s: float = 0.0
    seen: set[str] = field(default_factory=set)


@dataclass
class _Memory:
    """Memory of one job between two reconciles."""

    has_news: bool = False
    """Something that need not wait for more of its kind."""
    batch_due_s: float | None = None
    has_batch: bool = False
    released: dict[str, float] = field(default_factory=dict)
    """Uids whose finalizers were asked to go, and when; the cache may still show them."""
    written: tuple[str, float] = ("", 0.0)
    """The resource version that our last status write was made on, and when."""
    backoff: _Backoff = field(default_factory=_Backoff)
    created: list[str] = field(default_factory=list)
    refusal: str = ""


FINISHED = "job_controller_jobs_finished_total"


class Jobs:
    """The controller's memory and its reconcile function."""

    def __init__(self, switches: Switches) -> None:
        self.expectations = Expectations()
        self.counts = Counts()
        self._counts_rejections = switches.of(WorkloadSwitches).counts_rejections
        self._orphans = Orphans()
        self._memories: dict[Key, _Memory] = {}
        self._tracked: dict[Key, dict[Key, None]] = {}
        """Pods with the finalizer by the job they name: theirs to be released when the job is gone."""

    def job_changed(self, change: Change[Job], listers: Listers) -> Iterable[Key]:
        """Note a change of the job itself: it is handled without waiting."""
        key = change.object.metadata.key
        if change.new is None or (change.old is not None and change.old.metadata.uid != change.new.metadata.uid):
            self.expectations.forget(key)
            self._memories.pop(key, None)
        if change.new is not None:
            self._of(key).has_news = True
            if change.old is not None and not change.old.is_finished and change.new.is_finished:
                self._count(change.new)
        return (key,)

    def _count(self, job: Job) -> None:
        """Count a job that has finished."""
        end = next(c for c in job.status.conditions if c.type in ("Complete", "Failed") and c.status == "True")
        result = "succeeded" if end.type == "Complete" else "failed"
        self.counts.add(FINISHED, job.spec.completion_mode, result, end.reason)

    def pod_changed(self, change: Change[Pod], listers: Listers) -> list[Key]:
        """Lower expectations, update the memory of finalizers, and return the affected jobs."""
        old, new = change.old, change.new
        self._orphans.note(old, new)
        keys: dict[Key, None] = {}
        for pod in (old, new):
            if pod is not None and (key := owner_key(Job, pod.metadata)) is not None:
                keys[key] = None
                self._track(key, pod, is_there=pod is new)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._on_deleted(old)
        if new is not None:
            self._is_here(old if old is not None and old.metadata.uid == new.metadata.uid else None, new)
            if not keys and new.metadata.labels:
                keys = dict.fromkeys(adopters(Job, new, listers))
        is_released = old is not None and new is not None and _is_tracked(old) and not _is_tracked(new)
        for key in keys:
            memory = self._of(key)
            memory.has_news = memory.has_news or is_released
            memory.has_batch = True
        return list(keys)

    def _track(self, key: Key, pod: Pod, *, is_there: bool) -> None:
        held = self._tracked.setdefault(key, {})
        if is_there and _is_tracked(pod):
            held[pod.metadata.key] = None
            return
        held.pop(pod.metadata.key, None)
        if not held:
            del self._tracked[key]

    def _on_deleted(self, pod: Pod) -> None:
        if (key := owner_key(Job, pod.metadata)) is not None:
            self.expectations.deletion_observed(key, pod.metadata.uid)
            self._of(key).released.pop(pod.metadata.uid, None)

    def _is_here(self, old: Pod | None, new: Pod) -> None:
        if (key := owner_key(Job, new.metadata)) is None:
            return
        if old is None and new.metadata.deletion_timestamp is None:
            if self.expectations.pending_counts(key)[0]:
                self._of(key).created.append(new.metadata.name)
            self.expectations.creation_observed(key)
        if new.metadata.deletion_timestamp is not None:
            self.expectations.deletion_observed(key, new.metadata.uid)
        if not _is_tracked(new):
            self._of(key).released.pop(new.metadata.uid, None)

    def on_failed(self, key: Key, action: Action, reason: str) -> None:
        """Undo the expectation of a failed call."""
        memory = self._of(key)
        match action:
            case Create():
                self.expectations.creation_observed(key)
                if is_refusal(reason):
                    memory.refusal = memory.refusal or f"Error creating: {refusal_message(reason)}"
            case Delete():
                self.expectations.deletion_observed(key, action.uid)
            case Patch() if action.resource == RESOURCE:
                memory.written = ("", 0.0)
            case Patch():
                memory.released.pop(action.uid, None)

    def _of(self, key: Key) -> _Memory:
        return self._memories.setdefault(key, _Memory())

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Survey the pods, decide, count, then create missing pods or delete surplus ones."""
        job = listers.of(Job).get(key)
        if job is None or job.is_finished:
            return Result(tuple(self._release_finished(key, job, listers, moment.now_s)))
        if job.spec.managed_by not in (None, "", MANAGER) or (selector := selector_of(job)) is None:
            return NOTHING
        memory = self._of(key)
        if wait_s := self._wait_s(memory, job, moment.now_s):
            return Result(requeue_after_s=wait_s)
        orphans: list[Pod] = []
        if not job.metadata.deletion_timestamp:
            found_orphans = self._orphans.adoptable(listers.of(Pod), key.namespace, selector)
            orphans = [pod for pod in found_orphans if not pod.is_terminal]
        query = Query(Job, key)
        if orphans and query not in moment.live:
            return Result(refresh=(query,))
        can_adopt = is_alive(moment.live.get(query), job)
        claimed_pods = claim(listers.of(Pod).owned_by(job.metadata.uid), orphans, job, selector, can_adopt=can_adopt)
        memory.has_news = memory.has_batch = False
        memory.batch_due_s = None
        memory.released = {u: at_s for u, at_s in memory.released.items() if moment.now_s - at_s < STALE_MAX_S}
        claims: list[Action] = [_with_tracking(patch) for patch in changes_of("pods", claimed_pods, job)]
        actions, again_s = self._decide(job, list(claimed_pods.kept), memory, listers, moment)
        foreign = self._release_foreign(key, job, listers, moment.now_s)
        if memory.released:
            again_s = earliest(again_s, STALE_MAX_S)
        return Result((*self._events(job, memory), *claims, *foreign, *actions), again_s)

    @staticmethod
    def _wait_s(memory: _Memory, job: Job, now_s: float) -> float:
        """Return how long to wait for more changes of pods, or for our own last write to be seen."""
        version, written_s = memory.written
        if version == job.metadata.resource_version and now_s - written_s < STALE_MAX_S:
            return written_s + STALE_MAX_S - now_s
        if memory.has_news or not memory.has_batch:
            return 0.0
        if memory.batch_due_s is None:
            memory.batch_due_s = now_s + BATCH_S
        return max(0.0, memory.batch_due_s - now_s)

    def _release_finished(self, key: Key, job: Job | None, listers: Listers, now_s: float) -> list[Action]:
        """Release the pods of a job that is over or gone: they are no longer counted."""
        if job is None:
            self.expectations.forget(key)
            self._memories.pop(key, None)
            return self._release_foreign(key, None, listers, now_s)
        memory = self._of(key)
        over = [pod for pod in listers.of(Pod).owned_by(job.metadata.uid) if not pod.is_active]
        events = self._events(job, memory)
        return [*events, *self._release(over, memory, now_s), *self._release_foreign(key, job, listers, now_s)]

    def _release_foreign(self, key: Key, job: Job | None, listers: Listers, now_s: float) -> list[Action]:
        """Release pods of a job of this name that no longer exists."""
        memory, pods = _Memory() if job is None else self._of(key), []
        for pod_key in self._tracked.get(key, ()):
            pod = listers.of(Pod).get(pod_key)
            reference = pod.metadata.controller if pod is not None else None
            if pod is not None and reference is not None and (job is None or reference.uid != job.metadata.uid):
                pods.append(pod)
        return self._release(pods, memory, now_s)

    @staticmethod
    def _release(pods: Iterable[Pod], memory: _Memory, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for pod in pods:
            if _is_tracked(pod) and pod.metadata.uid not in memory.released:
                memory.released[pod.metadata.uid] = now_s
                actions.append(writes.patch("pods", pod, _RELEASE, is_strategic=True))
        return actions

    def _decide(
        self, job: Job, pods: list[Pod], memory: _Memory, listers: Listers, moment: Moment
    ) -> tuple[list[Action | Batch], float | None]:
        wall_s = moment.wall_s
        pod_survey = survey(job, pods, memory.released, counts_rejections=self._counts_rejections, wall_s=wall_s)
        if job.metadata.deletion_timestamp is not None:
            return list(self._release(pods, memory, moment.now_s)), None
        self._note_failures(memory.backoff, pod_survey, wall_s)
        outcome = decision.outcome_of(job, pod_survey, wall_s)
        again_s = decision.deadline_in_s(job, wall_s) if outcome is None else None
        # What still runs of a job that is over keeps its finalizers, because its end counts.
        managed = deletions(job, pod_survey.active) if outcome is not None else []
        is_managed = outcome is None and self.expectations.are_satisfied(job.metadata.key, moment.now_s)
        if is_managed:
            managed, later_s = self._manage(job, pods, pod_survey, memory, listers, moment)
            again_s = earliest(again_s, later_s)
            if decision.is_complete(job, pod_survey, len(pod_survey.active)):
                outcome = decision.COMPLETED
        status = self._status(job, pod_survey, outcome, memory, moment, is_managed=is_managed)
        return [*status, *self._release(pod_survey.releasable, memory, moment.now_s), *managed], again_s

    def _note_failures(self, backoff: _Backoff, pod_survey: Survey, wall_s: float) -> None:
        """Count failures since the last success, each end once."""
        news = [(ended_at_s(p, wall_s), m) for p, m in pod_survey.ended if p.metadata.uid not in backoff.seen]
        for at_s, meaning in sorted(news, key=lambda item: item[0]):
            if meaning is None:
                backoff.failures = 0
            else:
                backoff.failures, backoff.failed_at_s = backoff.failures + 1, at_s
        backoff.seen = {pod.metadata.uid for pod, _ in pod_survey.ended}

    def _manage(
        self, job: Job, pods: list[Pod], pod_survey: Survey, memory: _Memory, listers: Listers, moment: Moment
    ) -> tuple[list[Action | Batch], float | None]:
        key, wall_s = job.metadata.key, moment.wall_s
        if victims := surplus(job, pod_survey, wall_s):
            self.expectations.expect(key, deletions=[p.metadata.uid for p in victims], now_s=moment.now_s)
            # Released first, they count neither way.
            return [*self._release(victims, memory, moment.now_s), *deletions(job, victims)], None

        def wait_s(index: int, last: Pod) -> float:
            return ended_at_s(last, wall_s) + _delay_s(sum(index_failures(last)) + 1) - wall_s

        wanted = missing(job, pod_survey, pods, wait_s)
        if not wanted.indexes:
            return [], wanted.again_s
        if job.spec.backoff_limit_per_index is None and memory.backoff.failures:
            left_s = memory.backoff.failed_at_s + _delay_s(memory.backoff.failures) - wall_s
            if left_s > 0:
                return [], left_s
        document = listers.of(Job).document(key)
        if document is None:
            return [], None
        creates: list[Action] = []
        for index in wanted.indexes:
            last = pod_survey.latest_failed.get(index) if index is not None else None
            meant = (last, meaning_of(last, job, counts_rejections=self._counts_rejections)) if last else None
            creates.append(Create("pods", pod_of(job, document, index, meant)))
        self.expectations.expect(key, creations=len(creates), now_s=moment.now_s)
        return [Batch(tuple(creates))], earliest(REJECTED_AGAIN_S, wanted.again_s)

    def _status(
        self,
        job: Job,
        pod_survey: Survey,
        outcome: Outcome | None,
        memory: _Memory,
        moment: Moment,
        *,
        is_managed: bool,
    ) -> list[Action]:
        wanted = decision.status_of(job, pod_survey, outcome, is_managed=is_managed, wall_s=moment.wall_s)
        changed = decision.changes_of_status(job, wanted)
        if not changed:
            return []
        memory.written = (job.metadata.resource_version, moment.now_s)
        events: list[Action] = []
        for news in decision.news_of(job, wanted):
            match news.type, news.status:
                case "Complete", _:
                    events.append(event(job, "Completed", "Job completed"))
                case "Failed", _:
                    events.append(event(job, news.reason, news.message, warns=True))
                case "Suspended", status:
                    events.append(event(job, "Suspended" if status == "True" else "Resumed", news.message))
        return [writes.status(RESOURCE, job, changed, on_version=True), *events]

    def _events(self, job: Job, memory: _Memory) -> list[Action]:
        events: list[Action] = [event(job, "SuccessfulCreate", f"Created pod: {name}") for name in memory.created]
        if memory.refusal:
            events.append(event(job, "FailedCreate", memory.refusal, warns=True))
        memory.created, memory.refusal = [], ""
        return events


def _delay_s(failures: int) -> float:
    return min(BACKOFF_BASE_S * 2.0 ** min(failures - 1, 30), BACKOFF_MAX_S) if failures > 0 else 0.0


def _is_tracked(pod: Pod) -> bool:
    return TRACKING_FINALIZER in pod.metadata.finalizers


def _with_tracking(patch: Patch) -> Patch:
    """Return an adoption that also tracks the pod; a released pod is no longer tracked."""
    assert isinstance(patch.patch, dict)
    references = patch.patch["metadata"]["ownerReferences"]
    more = _RELEASE["metadata"] if "$patch" in references[0] else {"finalizers": [TRACKING_FINALIZER]}
    return replace(patch, patch={"metadata": {"ownerReferences": references, **more}})


METRICS: Final[Metrics[Jobs]] = Metrics(
    counter(
        FINISHED,
        "The number of finished jobs.",
        lambda controller: controller.counts.of(FINISHED),
        "completion_mode",
        "result",
        "reason",
    )
)


def _build(switches: Switches) -> Controller:
    memory = Jobs(switches)
    watches = (Watch(Job, memory.job_changed), Watch(Pod, memory.pod_changed, Interest(owner=Job)))
    controller = Controller(
        "job",
        Job,
        memory.reconcile,
        watches=watches,
        failed=memory.on_failed,
        workers=5,
        metrics=lambda: METRICS.of(memory),
    )
    settled, is_over = memory.expectations.are_satisfied, is_over_or_suspended(switches)
    return releasing(controller, switches, Releases(Job, is_over, settled))


CONTROLLER = Registration("job", _build, start_order=5)
