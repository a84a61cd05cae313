"""Lease: heartbeats of nodes and leader election (coordination.k8s.io/v1)."""

from __future__ import annotations

from typing import Any

from services.api.meta import Document, ObjectMeta, View
from services.api.printing import AGE, NAME, age
from services.api.resources import Column, Resource


class LeaseSpec(View, frozen=True):
    """`renew_time` is a MicroTime; durations in seconds."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(View, frozen=True):
    """A lease as rooms see it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


def _cells(document: Document, now: float) -> list[Any]:
    return [
        document["metadata"].get("name", ""),
        document.get("spec", {}).get("holderIdentity", ""),
        age(document, now),
    ]


RESOURCE = Resource(
    kind="Lease",
    plural="leases",
    singular="lease",
    group="coordination.k8s.io",
    view=Lease,
    columns=(NAME, Column("Holder"), AGE),
    cells=_cells,
)
