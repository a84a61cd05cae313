"""What a Pod gets beyond the defaults in the table of its spec: pods only, templates stay as they are.

Defaults copy what they change (a patched document shares the rest with the stored one).
"""

from __future__ import annotations

from apiserver_fake.validation.pod.container import CONTAINER_LISTS
from apiserver_fake.validation.pod.spec import POD_SPEC
from services.api.meta import Document
from services.api.quantity import amount


def with_defaults(spec: Document) -> Document:
    """Return the spec as the API server completes it for pods and templates alike."""
    return POD_SPEC.complete(spec)


def requests_from_limits(spec: Document) -> Document:
    """Return the spec with each limit that has no request taken as the request (pods only, as upstream)."""
    completed = dict(spec)
    for kind in CONTAINER_LISTS[:2]:
        if containers := spec.get(kind):
            completed[kind] = [_requested(each) for each in containers]
    return completed


def _requested(container: Document) -> Document:
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    if all(name in requests for name in limits):
        return container
    missing = {name: value for name, value in limits.items() if name not in requests}
    return {**container, "resources": {**resources, "requests": {**requests, **missing}}}


def with_resize_policies(spec: Document) -> Document:
    """Return the spec with NotRequired for cpu and memory that a container or sidecar asks for and says nothing about.

    Pods only, as upstream; what comes in by a resize is defaulted too, so that a whole pod can be put back as read.
    """
    completed = dict(spec)
    for kind in CONTAINER_LISTS[:2]:
        if containers := spec.get(kind):
            completed[kind] = [
                each if kind == "initContainers" and each.get("restartPolicy") != "Always" else _with_policies(each)
                for each in containers
            ]
    return completed


def _with_policies(container: Document) -> Document:
    requests = (container.get("resources") or {}).get("requests")
    if not requests:
        return container
    stated: list[Document] = container.get("resizePolicy") or []
    named = [each.get("resourceName") for each in stated]
    missing = [name for name in ("cpu", "memory") if name in requests and name not in named]
    if not missing:
        return container
    added = [{"resourceName": name, "restartPolicy": "NotRequired"} for name in missing]
    return {**container, "resizePolicy": [*stated, *added]}


_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def tolerations_with_defaults(tolerations: list[Document], seconds: int = 300) -> list[Document]:
    """Return the tolerations plus 300 s for unready and unreachable nodes (DefaultTolerationSeconds)."""
    missing = [
        taint
        for taint in _TAINTS
        if not any(
            each.get("key", "") in ("", taint) and each.get("effect", "") in ("", "NoExecute") for each in tolerations
        )
    ]
    return tolerations + [
        {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds} for taint in missing
    ]


def qos_class(spec: Document) -> str:
    """Return Guaranteed, Burstable or BestEffort (core/v1 helper `ComputePodQOS`). Quantities must be valid."""
    pod_level = spec.get("resources") or {}
    has_any, is_guaranteed = False, True
    sources = (
        [pod_level]
        if pod_level.get("requests") or pod_level.get("limits")
        else [container.get("resources") or {} for kind in CONTAINER_LISTS[:2] for container in spec.get(kind) or ()]
    )
    for resources in sources:
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            limit = amount(name, limits[name]) if name in limits else 0
            request = amount(name, requests[name]) if name in requests else limit
            has_any = has_any or bool(limit or request)
            is_guaranteed = is_guaranteed and limit > 0 and limit == request
    if not has_any:
        return "BestEffort"
    return "Guaranteed" if is_guaranteed else "Burstable"
