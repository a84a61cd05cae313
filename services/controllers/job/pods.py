"""Missing and surplus pods of a Job, and the document of a new pod. Pure. Source: controllers 5.1."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

from services.api.kinds.job import COMPLETION_INDEX, INDEX_FAILURES, INDEX_IGNORED_FAILURES, TRACKING_FINALIZER, Job
from services.api.kinds.pod import Pod
from services.api.meta import Document
from services.controllers.job.decision import succeeded_of
from services.controllers.job.policy import Meaning, index_failures, index_of
from services.controllers.job.survey import Survey
from services.controllers.shared_pods import in_deletion_order
from services.reconcile.actions import earliest
from services.reconcile.writes import controller_reference

BURST = 500


def wanted_active(job: Job, pod_survey: Survey) -> int:
    """Return the number of pods that should be active now."""
    if job.spec.suspend:
        return 0
    succeeded, completions = succeeded_of(job, pod_survey), job.spec.completions
    if completions is None:
        return len(pod_survey.active) if succeeded > 0 else job.spec.parallelism
    left = completions - succeeded - len(pod_survey.failed_indexes - pod_survey.completed)
    return max(0, min(job.spec.parallelism, left))


def surplus(job: Job, pod_survey: Survey, wall_s: float) -> list[Pod]:
    """Return the active pods to delete: those without an index or with a duplicate one, then the least advanced."""
    chosen: dict[str, Pod] = {}
    if job.spec.is_indexed and not job.spec.suspend:
        seen: set[int] = set()
        for pod in in_deletion_order(pod_survey.active, {}, wall_s)[::-1]:
            index = index_of(pod, job)
            if index is None or index in seen or index in pod_survey.completed:
                chosen[pod.metadata.uid] = pod
            else:
                seen.add(index)
    for pod in in_deletion_order(pod_survey.active, {}, wall_s):
        if len(pod_survey.active) - len(chosen) <= wanted_active(job, pod_survey):
            break
        chosen.setdefault(pod.metadata.uid, pod)
    return list(chosen.values())[:BURST]


@dataclass
class Missing:
    """Pods to create, by index (None without indexes), and the seconds until others are due."""

    indexes: list[int | None] = field(default_factory=list)
    again_s: float | None = None


def missing(job: Job, pod_survey: Survey, pods: list[Pod], wait_s: Callable[[int, Pod], float]) -> Missing:
    """Return the pods to create. `wait_s(index, last failed pod)`: the back-off of an index with a limit of its own."""
    terminating = pod_survey.terminating if job.spec.replaces_failed_only else 0
    count = min(wanted_active(job, pod_survey) - len(pod_survey.active) - terminating, BURST)
    if count <= 0 or not job.spec.is_indexed:
        return Missing([None] * count)
    taken = set(pod_survey.completed | pod_survey.failed_indexes)
    for pod in pods:
        is_terminating = pod.metadata.deletion_timestamp is not None and not pod.is_terminal
        if pod.is_active or (is_terminating and job.spec.replaces_failed_only):
            taken.add(-1 if (index := index_of(pod, job)) is None else index)
    result = Missing()
    for index in range(job.spec.completions or 0):
        if len(result.indexes) == count:
            break
        if index in taken:
            continue
        last = pod_survey.latest_failed.get(index)
        if last is not None and (left_s := wait_s(index, last)) > 0:
            result.again_s = earliest(result.again_s, left_s)
            continue
        result.indexes.append(index)
    return result


def pod_of(job: Job, document: Document, index: int | None, last: tuple[Pod, Meaning] | None) -> Document:
    """Return the pod to create, from the template in the stored document, with unknown fields.

    `last`: the index's latest failed pod and its meaning, if failures are counted by index.
    """
    template = document.get("spec", {}).get("template", {})
    given, name = template.get("metadata") or {}, job.metadata.name
    labels, annotations = dict(given.get("labels") or {}), dict(given.get("annotations") or {})
    spec = template.get("spec", {})
    if index is not None:
        labels[COMPLETION_INDEX] = annotations[COMPLETION_INDEX] = str(index)
        spec = _spec_for_index(spec, name, index)
        if job.spec.backoff_limit_per_index is not None:
            counted, ignored = 0, 0
            if last is not None:
                (counted, ignored), meaning = index_failures(last[0]), last[1]
                counted, ignored = counted + meaning.is_counted, ignored + (not meaning.is_counted)
            annotations[INDEX_FAILURES] = str(counted)
            if ignored:
                annotations[INDEX_IGNORED_FAILURES] = str(ignored)
    metadata: Document = {
        "generateName": f"{name}-" if index is None else f"{name}-{index}-",
        "namespace": job.metadata.namespace,
        "labels": labels,
        **({"annotations": annotations} if annotations else {}),
        "finalizers": [*(f for f in given.get("finalizers") or () if f != TRACKING_FINALIZER), TRACKING_FINALIZER],
        "ownerReferences": [controller_reference(job)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _spec_for_index(template: Document, name: str, index: int) -> Document:
    """Return the spec with a hostname of the index, and containers that can read it."""
    spec = copy.deepcopy(template)
    spec.setdefault("hostname", f"{name}-{index}")
    path = f"metadata.labels['{COMPLETION_INDEX}']"
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind) or ():
            env = container.setdefault("env", [])
            if not any(each.get("name") == "JOB_COMPLETION_INDEX" for each in env):
                source = {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}
                env.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
    return spec
