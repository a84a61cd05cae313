"""ResourceClaim: a request for devices, and where it was granted (resource.k8s.io/v1).

Only what scheduling has to know before it allocates anything: whose the claim is and whether it is going away.
"""

from __future__ import annotations

from typing import Any

import msgspec

from services.api.meta import Document, ObjectMeta, View
from services.api.printing import AGE, NAME, age
from services.api.resources import Column, Resource


class ResourceClaimConsumerReference(View, frozen=True):
    """Who may use the claim: at most 256 of them."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(View, frozen=True):
    """`allocation` is the document as it stands; None: not granted yet."""

    allocation: dict[str, Any] | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()


class ResourceClaim(View, frozen=True):
    """A claim as rooms see it."""

    metadata: ObjectMeta = ObjectMeta()
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)


def _cells(document: Document, now: float) -> list[Any]:
    status = document.get("status") or {}
    states = [
        word
        for word, holds in (
            ("allocated", status.get("allocation")),
            ("reserved", status.get("reservedFor")),
            ("deleted", document["metadata"].get("deletionTimestamp")),
        )
        if holds
    ]
    return [document["metadata"].get("name", ""), ",".join(states) or "pending", age(document, now)]


RESOURCE = Resource(
    kind="ResourceClaim",
    plural="resourceclaims",
    singular="resourceclaim",
    group="resource.k8s.io",
    subresources=("status",),
    view=ResourceClaim,
    has_spec=True,
    columns=(NAME, Column("State"), AGE),
    cells=_cells,
)
