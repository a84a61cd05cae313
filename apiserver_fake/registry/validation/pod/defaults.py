"""Defaults of a Pod beyond those in the table of its spec; templates do not get them.

Defaults copy what they change (a patched document shares the rest with the stored one). A pod may have
resources of its own besides those of its containers; this module sets their defaults and checks that both
agree. Source: KEP-2837, KEP-5419; kep-1287-in-place-resize 13; upstream `defaultPodRequests` and
`validatePodResourceConsistency` (v1.36).
"""

import msgspec

from apiserver_fake.registry.validation.formats import Causes, invalid
from apiserver_fake.registry.validation.pod.scope import CONTAINER_LISTS
from services.api.kinds.pod import Pod
from services.api.meta import Document
from services.api.numa import PREFIX
from services.api.podresources import POD_LEVEL, Amounts, pod_requests
from services.api.quantity import amount, canonical, format_amount


def requests_from_limits(spec: Document) -> Document:
    """Return the spec with missing requests set from the limits (pods only, as upstream)."""
    completed = dict(spec)
    for kind in CONTAINER_LISTS[:2]:
        if containers := spec.get(kind):
            completed[kind] = [_with_requests(each) for each in containers]
    return completed


def _with_requests(container: Document) -> Document:
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    if all(name in requests for name in limits):
        return container
    missing = {name: value for name, value in limits.items() if name not in requests}
    return {**container, "resources": {**resources, "requests": {**requests, **missing}}}


def with_resize_policies(spec: Document) -> Document:
    """Return the spec with resize policy NotRequired for cpu and memory requests of containers and sidecars
    without a policy.

    Pods only, as upstream; the spec of a resize gets these defaults too, so that a whole pod can be sent back as
    read.
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


_NAMES = tuple(sorted(POD_LEVEL))


def with_pod_level_requests(spec: Document) -> Document:
    """Return the spec with pod-level requests added for its pod-level limits.

    A request is the sum of the containers' requests, or else equal to the limit. Unreadable quantities are left to
    validation.
    """
    level = spec.get("resources") or {}
    limits, requests = level.get("limits") or {}, level.get("requests") or {}
    if not limits or all(name in requests for name in _NAMES):
        return spec
    asked = _asked_by_containers(spec)
    if asked is None:
        return spec
    together = {name: format_amount(name, asked[name]) for name in _NAMES if name in asked}
    added = {name: limits[name] for name in _NAMES if name in limits} | together
    missing = {name: text for name, text in added.items() if name not in requests}
    return {**spec, "resources": {**level, "requests": {**requests, **missing}}} if missing else spec


def check_pod_level(spec: Document, at: str) -> Causes:
    """Yield an error where containers request more than the pod, or where a limit exceeds the pod's limit.

    `at`: path of the pod's resources. Unreadable quantities are skipped.
    """
    level = spec.get("resources") or {}
    limits, requests = level.get("limits") or {}, level.get("requests") or {}
    if not limits and not requests:
        return
    asked = _asked_by_containers(spec) or {}
    for name in asked:
        if name in requests and _exceeds(asked[name], name, requests[name]):
            together = format_amount(name, asked[name])
            text = f"must be greater than or equal to aggregate container requests of {together}"
            yield invalid(f"{at}.requests[{name}]", canonical(requests[name]), text)
    if any(name.startswith(PREFIX) for name in limits):
        allowed = _asked_by_containers(_with_limits_as_requests(spec)) or {}
        for name in allowed:
            if name.startswith(PREFIX) and name in limits and _exceeds(allowed[name], name, limits[name]):
                together = format_amount(name, allowed[name])
                text = f"must be greater than or equal to aggregate container limits of {together}"
                yield invalid(f"{at}.limits[{name}]", canonical(limits[name]), text)
    for index, container in enumerate(spec.get("containers") or []):
        for name, text in ((container.get("resources") or {}).get("limits") or {}).items():
            try:
                is_above = name in limits and amount(name, text) > amount(name, limits[name])
            except ValueError:
                continue
            if is_above:
                # As upstream: named below the pod's resources.
                here, most = f"{at}.containers[{index}][{name}].limits", canonical(limits[name])
                yield invalid(here, canonical(text), f"must be less than or equal to pod limits of {most}")


def _exceeds(value: int, name: str, text: str) -> bool:
    try:
        return value > amount(name, text)
    except ValueError:
        return False


def _with_limits_as_requests(spec: Document) -> Document:
    def container_with_limits(container: Document) -> Document:
        resources = container.get("resources") or {}
        return {**container, "resources": {**resources, "requests": resources.get("limits") or {}}}

    return {kind: [container_with_limits(each) for each in spec.get(kind) or ()] for kind in CONTAINER_LISTS[:2]}


def _asked_by_containers(spec: Document) -> Amounts | None:
    """Return what the containers ask for together; None when that cannot be read."""
    plain = {name: spec[name] for name in ("containers", "initContainers") if spec.get(name)}
    try:
        return pod_requests(msgspec.convert({"spec": plain}, Pod))
    except (msgspec.ValidationError, ValueError):
        return None
