"""Job: run pods until enough of them have succeeded (batch/v1)."""

from collections.abc import Iterable
from itertools import groupby

from services.api.meta import AGE, NAME, Column, Condition, Document, LabelSelector, ObjectView, Resource, View
from services.api.printing import TEMPLATE_COLUMNS
from services.api.times import duration, parse_time

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
"""Finalizer that keeps a finished pod until the job has counted it (KEP-2307)."""
JOB_NAME, CONTROLLER_UID = "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
"""Annotation of a pod: number of earlier failures of its index that count (KEP-3850)."""
INDEX_IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"


class OnExitCodes(View, frozen=True):
    """Requirement on exit codes: a container ended with one of these codes, or with none of them. `operator`: In or
    NotIn.
    """

    container_name: str | None = None
    operator: str = ""
    values: tuple[int, ...] = ()


class OnPodCondition(View, frozen=True):
    """Requirement on conditions: the pod has a condition of that type and status."""

    type: str = ""
    status: str = "True"


class PodFailurePolicyRule(View, frozen=True):
    """Rule of a pod failure policy. `action`, taken for a failed pod that matches: FailJob, FailIndex, Ignore or
    Count.
    """

    action: str = ""
    on_exit_codes: OnExitCodes | None = None
    on_pod_conditions: tuple[OnPodCondition, ...] = ()


class PodFailurePolicy(View, frozen=True):
    """Rules for failed pods; the first rule that matches applies (KEP-3329)."""

    rules: tuple[PodFailurePolicyRule, ...] = ()


class SuccessPolicyRule(View, frozen=True):
    """Rule that is met when `succeeded_count` of the indexes have succeeded; without a count all of them, without
    indexes any.
    """

    succeeded_indexes: str | None = None
    succeeded_count: int | None = None


class SuccessPolicy(View, frozen=True):
    """Rules for success: the job has succeeded once one rule is met (KEP-3998)."""

    rules: tuple[SuccessPolicyRule, ...] = ()


class JobSpec(View, frozen=True):
    """Spec of a Job. `template` stays in the document. `completions` None: one success is enough; after it no pod
    starts.
    """

    parallelism: int = 1
    completions: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int = 6
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: SuccessPolicy | None = None
    selector: LabelSelector | None = None
    ttl_seconds_after_finished: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    pod_replacement_policy: str = "TerminatingOrFailed"
    managed_by: str | None = None

    @property
    def is_indexed(self) -> bool:
        """Whether every pod has an index, and each index must succeed once."""
        return self.completion_mode == "Indexed"

    @property
    def replaces_failed_only(self) -> bool:
        """Whether a terminating pod is replaced only after it has ended (KEP-3939)."""
        return self.pod_replacement_policy == "Failed"


class UncountedTerminatedPods(View, frozen=True):
    """Uids of pods that have ended but are not in the counters yet (KEP-2307)."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(View, frozen=True):
    """Counters and conditions that the controller writes."""

    conditions: tuple[Condition, ...] = ()
    start_time: str | None = None
    completion_time: str | None = None
    active: int = 0
    ready: int | None = None
    terminating: int | None = None
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedTerminatedPods | None = None


class Job(ObjectView, frozen=True):
    """A Job as components see it."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def is_finished(self) -> bool:
        """Whether it is Complete or Failed; both are final."""
        return any(c.type in ("Complete", "Failed") and c.status == "True" for c in self.status.conditions)


def parse_indexes(text: str, completions: int) -> frozenset[int]:
    """Parse a list of indexes and return those below `completions`.

    The text is in order, and three or more consecutive indexes form an interval: `1,3-5,7`. Raises: ValueError
    saying what is wrong.
    """
    indexes: set[int] = set()
    last = -1
    for part in filter(None, text.split(",")):
        first, sign, end = part.partition("-")
        if not (first.isascii() and first.isdigit()) or (sign and not (end.isascii() and end.isdigit())):
            raise ValueError(f"cannot convert {part!r} to an index or an interval of indexes")
        low, high = int(first), int(end) if sign else int(first)
        if low <= last or high < low:
            raise ValueError(f"{part!r} is not in increasing order")
        indexes.update(range(low, min(high + 1, completions)))
        last = high
    return frozenset(indexes)


def format_indexes(indexes: Iterable[int]) -> str:
    """Return the indexes as text, the inverse of `parse_indexes`."""
    parts: list[str] = []
    for _, numbered in groupby(enumerate(sorted(indexes)), key=lambda item: item[1] - item[0]):
        run = [index for _, index in numbered]
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
    return ",".join(parts)


_STATES = ("Complete", "Failed", "Terminating", "Suspended", "FailureTarget", "SuccessCriteriaMet")


def _status(document: Document, now: float) -> str:
    found = {c.get("type") for c in document.get("status", {}).get("conditions", ()) if c.get("status") == "True"}
    if document["metadata"].get("deletionTimestamp"):
        found.add("Terminating")
    return next((state for state in _STATES if state in found), "Running")


def _completions(document: Document, now: float) -> str:
    spec, status = document.get("spec", {}), document.get("status", {})
    succeeded, parallelism = status.get("succeeded", 0), spec.get("parallelism") or 0
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _duration_cell(document: Document, now: float) -> str:
    status = document.get("status", {})
    if not (start := status.get("startTime")):
        return ""
    end = status.get("completionTime")
    return duration((parse_time(end) if end else now) - parse_time(start))


RESOURCE = Resource(
    Job,
    "batch",
    categories=("all",),
    subresources=("status",),
    has_generation=True,
    columns=(
        NAME,
        Column("Status", _status),
        Column("Completions", _completions),
        Column("Duration", _duration_cell),
        AGE,
        *TEMPLATE_COLUMNS,
    ),
    selectable_fields={"status.successful": lambda d: str(d.get("status", {}).get("succeeded", 0))},
)
