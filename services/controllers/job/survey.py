"""A Job's pods at one moment, grouped: active pods, ended pods not counted yet, and completed indexes.

Counting is exactly once through the finalizer of the pods (KEP-2307), in repeatable steps. The uids of ended
pods go into `uncountedTerminatedPods`, then their finalizers are removed, then the uids become numbers. An
Indexed job stores the index of each success. Pure. Source: controllers 5.1; guarantees J1.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from services.api.kinds.job import TRACKING_FINALIZER, Job, parse_indexes
from services.api.kinds.pod import Pod
from services.controllers.job import policy
from services.controllers.job.policy import Meaning, has_failed, index_failures, index_of
from services.controllers.shared_pods import is_ready

UNCOUNTED_MAX = 500


@dataclass
class Survey:
    """A Job's pods by state. Uids and pods are in the order of the cache.

    `releasable`: pods whose finalizer may be removed now, because their end is stored. `counted_*`: uids in the
    stored list whose finalizers are gone. `new_*`: ended pods that are in no list yet; of the failed only those
    that count. `completed`, `failed_indexes`: indexes, new ones included.
    """

    active: list[Pod] = field(default_factory=list)
    terminating: int = 0
    ready: int = 0
    uncounted: dict[str, list[str]] = field(default_factory=lambda: {"succeeded": [], "failed": []})
    counted: dict[str, list[str]] = field(default_factory=lambda: {"succeeded": [], "failed": []})
    new_succeeded: list[Pod] = field(default_factory=list)
    new_failed: list[Pod] = field(default_factory=list)
    ended: list[tuple[Pod, Meaning | None]] = field(default_factory=list)
    """Ended pods that still carry the finalizer, each with its meaning; None for a success."""
    releasable: list[Pod] = field(default_factory=list)
    completed: frozenset[int] = frozenset()
    failed_indexes: frozenset[int] = frozenset()
    latest_failed: dict[int, Pod] = field(default_factory=dict)
    """With a limit per index: the pod that records the number of failures, by index."""
    is_held: bool = False
    """Whether some pod still carries the finalizer."""
    fails_job: str = ""

    @property
    def succeeded_count(self) -> int:
        """Successes of a job without indexes that are not in its counter yet."""
        return len(self.uncounted["succeeded"]) + len(self.counted["succeeded"]) + len(self.new_succeeded)

    @property
    def failed_count(self) -> int:
        """Failures that are not in the job's counter yet."""
        return len(self.uncounted["failed"]) + len(self.counted["failed"]) + len(self.new_failed)


def survey(job: Job, pods: Iterable[Pod], released: Iterable[str], *, counts_rejections: bool, wall_s: float) -> Survey:
    """Return the job's pods grouped by state. `released`: uids whose finalizer removal was sent but may not be seen
    yet.
    """
    gone, pod_survey = frozenset(released), Survey()
    pods = list(pods)
    held = {p.metadata.uid: p for p in pods if TRACKING_FINALIZER in p.metadata.finalizers}
    tracked = [pod for uid, pod in held.items() if uid not in gone]
    pod_survey.is_held = bool(held)
    stored = job.status.uncounted_terminated_pods
    for kind in ("succeeded", "failed"):
        for uid in getattr(stored, kind) if stored is not None else ():
            (pod_survey.uncounted if uid in held else pod_survey.counted)[kind].append(uid)
    for pod in pods:
        if pod.is_active:
            pod_survey.active.append(pod)
            pod_survey.ready += is_ready(pod)
        elif not pod.is_terminal:
            pod_survey.terminating += 1
    completed = _stored_indexes(job.status.completed_indexes, job)
    pod_survey.completed = completed
    known = {uid for uids in pod_survey.uncounted.values() for uid in uids}
    failed = [pod for pod in tracked if has_failed(pod, job)]
    meanings = {pod.metadata.uid: policy.meaning_of(pod, job, counts_rejections=counts_rejections) for pod in failed}
    delayed = _judge_indexes(job, [(pod, meanings[pod.metadata.uid]) for pod in failed], pods, pod_survey, wall_s)
    for pod in tracked:
        if pod.metadata.uid in known:
            pod_survey.releasable.append(pod)
        elif pod.status.phase == "Succeeded":
            _record_success(job, pod, completed, pod_survey)
        elif (meaning := meanings.get(pod.metadata.uid)) is not None:
            pod_survey.ended.append((pod, meaning))
            pod_survey.fails_job = pod_survey.fails_job or meaning.fails_job
            counts = meaning.is_counted and (not job.spec.is_indexed or index_of(pod, job) is not None)
            if pod.metadata.uid not in delayed:
                (pod_survey.new_failed if counts else pod_survey.releasable).append(pod)
    return pod_survey


def _record_success(job: Job, pod: Pod, completed: frozenset[int], pod_survey: Survey) -> None:
    pod_survey.ended.append((pod, None))
    if not job.spec.is_indexed:
        pod_survey.new_succeeded.append(pod)
    elif (index := index_of(pod, job)) is None or index in completed:
        pod_survey.releasable.append(pod)
    else:
        pod_survey.completed |= {index}


def _judge_indexes(
    job: Job, failures: list[tuple[Pod, Meaning]], pods: list[Pod], pod_survey: Survey, wall_s: float
) -> set[str]:
    """Note which indexes failed; return uids of failed pods that still record how often (KEP-3850)."""
    if job.spec.backoff_limit_per_index is None:
        return set()
    pod_survey.failed_indexes = _stored_indexes(job.status.failed_indexes or "", job)
    for pod, meaning in failures:
        if (index := index_of(pod, job)) is None:
            continue
        if policy.fails_index(pod, job, meaning):
            pod_survey.failed_indexes |= {index}
        earlier = pod_survey.latest_failed.get(index)
        if earlier is None or _age(pod, wall_s) > _age(earlier, wall_s):
            pod_survey.latest_failed[index] = pod
    if any(c.type in ("FailureTarget", "SuccessCriteriaMet") and c.status == "True" for c in job.status.conditions):
        return set()  # no index gets another pod
    followed = {
        (index, sum(index_failures(pod)))
        for pod in pods
        if not has_failed(pod, job) and (index := index_of(pod, job)) is not None
    }
    return {
        pod.metadata.uid
        for index, pod in pod_survey.latest_failed.items()
        if index not in pod_survey.completed | pod_survey.failed_indexes
        and not any(i == index and n > sum(index_failures(pod)) for i, n in followed)
    }


def _age(pod: Pod, wall_s: float) -> tuple[int, float]:
    return sum(index_failures(pod)), policy.ended_at_s(pod, wall_s)


def _stored_indexes(text: str, job: Job) -> frozenset[int]:
    try:
        return parse_indexes(text, job.spec.completions or 0)
    except ValueError:
        return frozenset()  # only this controller writes them
