"""Rules of limits and requests of containers and of a pod as a whole, and of its overhead.

Source: upstream `pkg/apis/core/validation/validation.go` (v1.36): `validateResourceRequirements`,
`ValidateContainerResourceName`, `validatePodResourceName`, `validatePodResourceConsistency`; KEP-2837.
"""

from collections.abc import Callable, Iterable

from apiserver_fake.registry.validation.fields import Report
from apiserver_fake.registry.validation.formats import (
    Cause,
    Causes,
    duplicate,
    forbidden,
    invalid,
    label,
    not_supported,
    qualified_name,
    quantity,
    required,
    unknown,
)
from services.api.meta import Document
from services.api.numa import PREFIX, page_size
from services.api.podresources import POD_LEVEL
from services.api.quantity import amount, canonical

OF_CONTAINERS = frozenset(("cpu", "memory", "ephemeral-storage"))
_OF_PODS = frozenset(("cpu", "memory"))
_KNOWN = OF_CONTAINERS | frozenset(
    (
        "configmaps",
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
        "requests.storage",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
        "storage",
    )
)
"""Known resource names without a domain, for any object."""
NOT_A_NAME = "must be one of the names in pod.spec.resourceClaims"
Naming = Callable[[str, str], list[Cause]]


def resource_name(path: str, name: str) -> list[Cause]:
    """Check a resource name of any object: it has a domain, or is a known name."""
    if wrong := qualified_name(path, name):
        return wrong
    if "/" not in name and name not in _KNOWN and not name.startswith((PREFIX, f"requests.{PREFIX}")):
        return [invalid(path, name, "must be a standard resource type or fully qualified")]
    return []


def is_native(name: str) -> bool:
    """Whether a resource is Kubernetes' own: its name has no domain, or the domain `kubernetes.io`."""
    return "/" not in name or "kubernetes.io/" in name


def name_of_container(path: str, name: str) -> list[Cause]:
    """Check the name of a resource of a container."""
    if name in OF_CONTAINERS:
        return []
    causes = resource_name(path, name)
    if "/" not in name:
        if not name.startswith(PREFIX):
            causes.append(invalid(path, name, "must be a standard resource for containers"))
    elif not is_native(name) and (name.startswith("requests.") or qualified_name("", f"requests.{name}")):
        causes.append(invalid(path, name, "doesn't follow extended resource name standard"))
    return causes


def _name_of_pod(path: str, name: str) -> list[Cause]:
    if wrong := resource_name(path, name):
        return wrong
    if name in POD_LEVEL or name.startswith(PREFIX):
        return []
    return [not_supported(path, name, sorted((*POD_LEVEL, PREFIX)))]


def check_resources(resources: Document, path: str, report: Report) -> Causes:
    """Check a container's limits, requests and claims."""
    if not resources:
        return ()
    return _requirements(resources, path, name_of_container, report)


def check_overhead(amounts: Document, path: str, report: Report) -> Causes:
    """Check a pod's overhead (KEP-688) by the rules for limits."""
    return _requirements({"limits": amounts}, path, name_of_container, report)


def check_pod_resources(resources: Document, path: str, report: Report) -> Causes:
    """Check a pod's own limits and requests."""
    if report.scope.os == "windows":
        yield forbidden(path, "may not be set for a windows pod")
        return
    if resources.get("claims") is not None:
        yield forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    yield from _requirements(resources, path, _name_of_pod, report)


def _requirements(resources: Document, path: str, name_form: Naming, report: Report) -> Causes:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    has_pages = False
    for name, text in limits.items():
        yield from _amount(name, text, f"{path}.limits", name_form)
        if name.startswith(PREFIX):
            has_pages = True
            yield from _whole_pages(name, text, f"{path}.limits[{name}]")
    for name, text in requests.items():
        yield from _amount(name, text, f"{path}.requests", name_form)
        if name in limits:
            if limits[name] != text:
                yield from _beside_limit(name, text, limits[name], f"{path}.requests")
        elif name not in OF_CONTAINERS and not _may_exceed(name):
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        if name.startswith(PREFIX):
            has_pages = True
            yield from _whole_pages(name, text, f"{path}.requests[{name}]")
    if has_pages and not _OF_PODS & {*limits, *requests}:
        yield forbidden(path, "HugePages require cpu or memory")
    if claims := resources.get("claims"):
        yield from _used_claims(claims, f"{path}.claims", report.scope.claims)


def _amount(name: str, text: str, path: str, name_form: Naming) -> list[Cause]:
    causes = name_form(f"{path}[{name}]", name) if name not in _OF_PODS else []
    return causes + quantity(f"{path}[{name}]", name, text)


def _whole_pages(name: str, text: str, path: str) -> Causes:
    try:
        is_whole = amount(name, text) % page_size(name) == 0
    except ValueError:
        is_whole = False
    if not is_whole:
        shown = canonical(text)
        yield invalid(path, shown, f"{shown} is not positive integer multiple of {name}")


def _may_exceed(name: str) -> bool:
    """Whether a limit may be above its request."""
    return is_native(name) and not name.startswith(PREFIX)


def _beside_limit(name: str, text: str, limit: str, path: str) -> Causes:
    try:
        asked, allowed = amount(name, text), amount(name, limit)
    except ValueError:
        return
    if asked != allowed and not _may_exceed(name):
        yield invalid(path, canonical(text), f"must be equal to {name} limit of {canonical(limit)}")
    elif asked > allowed:
        yield invalid(path, canonical(text), f"must be less than or equal to {name} limit of {canonical(limit)}")


def _used_claims(used: list[Document], path: str, claims: Iterable[str]) -> Causes:
    """Containers use claims that the pod names: each of them, or each request of one, once."""
    names = sorted({*claims})
    known = f": {', '.join(names)}" if names else " which is empty"
    seen: set[str] = set()
    for index, claim in enumerate(used):
        name, request, here = claim.get("name") or "", claim.get("request") or "", f"{path}[{index}]"
        if not name:
            yield required(here)
            continue
        if name in seen:
            yield duplicate(here, name)
        else:
            if request:
                yield from label(f"{here}.request", request)
            key = f"{name}/{request}" if request else name
            if key in seen:
                yield duplicate(here, key)
            elif not request:
                yield from [duplicate(here, name) for other in sorted(seen) if other.partition("/")[0] == name]
            seen.add(key)
        if name not in names:
            yield unknown(here, name, f"{NOT_A_NAME}{known}")
