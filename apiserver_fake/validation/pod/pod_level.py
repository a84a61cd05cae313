"""A pod's own resources beside its containers': what they are by default, and how the two must agree.

Source: KEP-2837, KEP-5419; kep-1287-in-place-resize 13; upstream `defaultPodRequests` and
`validatePodResourceConsistency` (v1.36).
"""

from __future__ import annotations

import msgspec

from apiserver_fake.validation.formats import Causes, invalid
from services.api.kinds.pod import Pod
from services.api.meta import Document
from services.api.podresources import POD_LEVEL, Amounts, pod_requests
from services.api.quantity import amount, format_amount

_NAMES = tuple(sorted(POD_LEVEL))


def with_requests(spec: Document) -> Document:
    """Return the spec with requests of the pod's own wherever it has limits of its own.

    They are what its containers ask for together, or else as large as the limit. Quantities that cannot be read are
    left to validation.
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


def check(spec: Document, at: str) -> Causes:
    """Return where containers ask for more than their pod does, or one may use more than its pod.

    Quantities must be valid.
    """
    level = spec.get("resources") or {}
    limits, requests = level.get("limits") or {}, level.get("requests") or {}
    if not limits and not requests:
        return
    asked = _asked_by_containers(spec) or {}
    for name in _NAMES:
        if name in requests and asked.get(name, 0) > amount(name, requests[name]):
            together = format_amount(name, asked[name])
            text = f"must be greater than or equal to aggregate container requests of {together}"
            yield invalid(f"{at}.resources.requests[{name}]", requests[name], text)
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or []):
            own = (container.get("resources") or {}).get("limits") or {}
            for name in _NAMES:
                if name in own and name in limits and amount(name, own[name]) > amount(name, limits[name]):
                    here = f"{at}.{kind}[{index}].resources.limits[{name}]"
                    yield invalid(here, own[name], f"must be less than or equal to pod limits of {limits[name]}")


def _asked_by_containers(spec: Document) -> Amounts | None:
    """Return what the containers ask for together; None when that cannot be read."""
    plain = {name: spec[name] for name in ("containers", "initContainers") if spec.get(name)}
    try:
        return pod_requests(msgspec.convert({"spec": plain}, Pod))
    except (msgspec.ValidationError, ValueError):
        return None
