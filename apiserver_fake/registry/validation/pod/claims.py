"""Device claims in pods: the claims they use, the claims made for them, and the health of devices.

The texts are upstream's (`pkg/apis/core/validation`, v1.36). Source: KEP-4381; KEP-5004 for claims that the
scheduler makes for extended resources; KEP-4680 for the health of devices; dra-core 1.5.
"""

from collections.abc import Iterable

from apiserver_fake.registry.validation.fields import Report, Struct
from apiserver_fake.registry.validation.formats import (
    Causes,
    duplicate,
    invalid,
    label,
    not_supported,
    required,
    subdomain,
    too_long,
)
from apiserver_fake.registry.validation.pod.scope import as_internal
from services.api.meta import Document

CLAIMS_MAX, MESSAGE_MAX = 32, 256
HEALTH = ("Healthy", "Unhealthy", "Unknown")
NOT_AN_ENTRY = "must match the name of an entry in `spec.resourceClaims`"
NOT_A_CONTAINER = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
NOT_REQUESTED = (
    "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
    "spec.containers.resources.requests"
)
NOT_ITS_CLAIM = (
    "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or "
    "'claim:<claimName>' if request is empty"
)
NOT_ITS_RESOURCE = "must match one of the container's resource requests"
SOURCES = ("resourceClaimName", "resourceClaimTemplateName")


def _source(claim: Document, at: str, report: Report) -> Causes:
    named = [name for name in SOURCES if claim.get(name) is not None]
    if len(named) != 1:
        quoted = [f"`{name}`" for name in SOURCES]
        text = (
            f"at most one of {' or '.join(quoted)} may be specified"
            if named
            else f"must specify one of: {', '.join(quoted)}"
        )
        shown = as_internal([("name", claim.get("name") or ""), *((name, claim.get(name)) for name in SOURCES)])
        yield invalid(at[:-1], shown, text)
    for name in named:
        yield from subdomain(at + name, claim[name])


def _name_once(claim: Document, at: str, report: Report) -> Causes:
    name = claim.get("name") or ""
    if not name:
        yield required(f"{at}name")
    elif name in report.seen:
        yield duplicate(f"{at}name", name)
    else:
        yield from label(f"{at}name", name)
        report.seen.add(name)


POD_CLAIM = Struct(_name_once, _source)
"""Field table of a claim reference of a pod or a pod group, under the name that containers use."""


def made_claims(statuses: Iterable[Document], spec: Document, at: str) -> Causes:
    """Check `status.resourceClaimStatuses` of a pod or a pod group: the claims that were made."""
    names = {each.get("name") for each in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    for index, status in enumerate(statuses):
        name, claim_name, here = status.get("name") or "", status.get("resourceClaimName"), f"{at}[{index}].name"
        if name not in names:
            yield invalid(here, name, NOT_AN_ENTRY)
        if name in seen:
            yield duplicate(here, name)
        seen.add(name)
        if claim_name is not None:
            yield from subdomain(f"{at}[{index}].resourceClaimName", claim_name)


def extended_resource_claim(status: Document, spec: Document, at: str) -> Causes:
    """Check the claim that the scheduler made for a pod's extended resources."""
    containers = {each.get("name"): each for kind in ("initContainers", "containers") for each in spec.get(kind) or ()}
    mappings = status.get("requestMappings") or []
    if not mappings:
        yield required(f"{at}.requestMappings", "at least one request mapping is required")
    seen: set[tuple[str, ...]] = set()
    for index, mapping in enumerate(mappings):
        here = f"{at}.requestMappings[{index}]"
        key = tuple(mapping.get(name) or "" for name in ("containerName", "resourceName", "requestName"))
        container = containers.get(key[0])
        if container is None:
            yield invalid(f"{here}.containerName", key[0], NOT_A_CONTAINER)
        elif key[1] not in ((container.get("resources") or {}).get("requests") or {}):
            yield invalid(f"{here}.resourceName", key[1], NOT_REQUESTED)
        yield from label(f"{at}.requestName", key[2])
        if key in seen:
            for name, value in zip(("containerName", "resourceName", "requestName"), key, strict=True):
                yield duplicate(f"{here}.{name}", value)
        seen.add(key)
    if name := status.get("resourceClaimName") or "":
        yield from subdomain(f"{at}.resourceClaimName", name)
    else:
        yield required(f"{at}.resourceClaimName")


def device_health(statuses: Iterable[Document], containers: Iterable[Document], at: str) -> Causes:
    """Check `allocatedResourcesStatus` of containers: the resources of each, and the health of each of their
    devices.
    """
    specs = {each.get("name"): each for each in containers}
    for index, status in enumerate(statuses):
        container = specs.get(status.get("name"))
        for number, resource in enumerate(status.get("allocatedResourcesStatus") or ()):
            here = f"{at}[{index}].allocatedResourcesStatus[{number}]"
            if container is not None:
                yield from _has(container, resource.get("name") or "", f"{here}.name")
            seen: set[str] = set()
            for place, device in enumerate(resource.get("resources") or ()):
                health, name = device.get("health") or "", device.get("resourceID") or ""
                message, at_message = device.get("message"), f"{here}.resources[{place}].message"
                if health not in HEALTH:
                    yield not_supported(f"{here}.resources[{place}].health", health, HEALTH)
                if message == "":
                    yield required(at_message, "must be non-empty if specified")
                elif message is not None and len(message.encode()) > MESSAGE_MAX:
                    yield too_long(at_message, MESSAGE_MAX)
                if name in seen:
                    yield duplicate(f"{here}.resources[{place}].resourceID", name)
                seen.add(name)


def _has(container: Document, name: str, path: str) -> Causes:
    resources = container.get("resources") or {}
    if name.startswith("claim:"):
        used = {
            "/".join(filter(None, (each.get("name"), each.get("request")))) for each in resources.get("claims") or ()
        }
        if name.removeprefix("claim:") not in used:
            yield invalid(path, name, NOT_ITS_CLAIM)
    elif name not in (resources.get("requests") or {}):
        yield invalid(path, name, NOT_ITS_RESOURCE)
