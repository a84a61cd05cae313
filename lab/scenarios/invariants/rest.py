"""Conditions of a mesh at rest (I20, I28), judged from the stored objects."""

from collections.abc import Iterable, Mapping

from services.api.meta import Document
from services.api.podresources import amounts


def unrest_of(documents: Mapping[str, Iterable[Document]]) -> list[tuple[str, str]]:
    """Return the workloads that are not at rest (I20): `(kind ns/name, the two numbers that disagree)` for each.

    `documents`: stored objects by resource. Only for scenarios whose workloads can be satisfied. The caller
    must wait until pods have settled and nothing changes any more (`lab.chaos.run`).
    """
    problems = []
    for resource in ("replicasets.apps", "deployments.apps", "statefulsets.apps"):
        for document in documents.get(resource, ()):
            wanted = document["spec"].get("replicas", 1)
            ready = document.get("status", {}).get("readyReplicas", 0)
            if wanted != ready:
                problems.append((_name(document), f"{ready} of {wanted} replicas are ready at rest"))
    for document in documents.get("daemonsets.apps", ()):
        status = document.get("status", {})
        wanted = status.get("desiredNumberScheduled", 0)
        rolls = (document["spec"].get("updateStrategy") or {}).get("type") != "OnDelete"
        for field, what in (("numberReady", "ready"), ("updatedNumberScheduled", "up to date")):
            if status.get(field, 0) != wanted and (field == "numberReady" or rolls):
                problems.append((_name(document), f"{status.get(field, 0)} of {wanted} nodes are {what} at rest"))
    for resource, unrest in (("jobs.batch", _idle), ("pods", _undecided_resize)):
        problems += [(_name(document), why) for document in documents.get(resource, ()) if (why := unrest(document))]
    return problems


def _idle(job: Document) -> str:
    """Return why a job that is neither over nor suspended does nothing, "" when it does something."""
    status = job.get("status", {})
    over = {c.get("type") for c in status.get("conditions", ()) if c.get("status") == "True"}
    if over & {"Complete", "Failed"} or job["spec"].get("suspend") or status.get("active"):
        return ""
    succeeded, failed = status.get("succeeded", 0), status.get("failed", 0)
    return f"no pod is active, {succeeded} have succeeded and {failed} failed, and it is not over"


def _undecided_resize(pod: Document) -> str:
    """Return what no condition says of a running pod's resize (KEP-1287); "" when it is done or one does."""
    status = pod.get("status", {})
    if status.get("phase") != "Running" or pod["metadata"].get("deletionTimestamp"):
        return ""
    conditions = status.get("conditions", ())
    reasons = {c["type"]: c.get("reason", "") for c in conditions if c["type"].startswith("PodResize")}
    desired = {each["name"]: each.get("resources") or {} for each in pod["spec"].get("containers", ())}
    is_allocated = is_done = is_as_desired = True
    for container_status in status.get("containerStatuses", ()):
        actual = container_status.get("resources")
        if (
            actual is None
            or "running" not in container_status.get("state", {})
            or container_status["name"] not in desired
        ):
            continue
        wanted, allocated = desired[container_status["name"]], container_status.get("allocatedResources")
        is_allocated = is_allocated and _is_equal(wanted.get("requests"), allocated)
        is_done = is_done and _is_equal(allocated, actual.get("requests"))
        parts = ("requests", "limits")
        is_as_desired = is_as_desired and all(_is_equal(wanted.get(part), actual.get(part)) for part in parts)
    if not is_allocated and "PodResizePending" not in reasons:
        return "asks for another size than its node has allocated, and no condition says why"
    if is_as_desired and "PodResizePending" in reasons:
        return "has the size it asks for, and is said to wait for it"
    if not is_done and reasons.get("PodResizeInProgress") != "Error":
        return "runs with another size than was allocated, and no error says why"
    return ""


def _is_equal(one: Mapping[str, str] | None, other: Mapping[str, str] | None) -> bool:
    return one == other or amounts(one or {}) == amounts(other or {})


def _name(document: Document) -> str:
    meta = document["metadata"]
    return f"{document['kind']} {meta.get('namespace', '')}/{meta['name']}"
