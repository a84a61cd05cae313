"""Lease: heartbeats of nodes and leader election (coordination.k8s.io/v1)."""

from services.api.meta import AGE, NAME, Column, ObjectView, Resource, View


class LeaseSpec(View, frozen=True):
    """`renew_time` is a MicroTime; durations in seconds."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(ObjectView, frozen=True):
    """A lease as components see it."""

    spec: LeaseSpec = LeaseSpec()


RESOURCE = Resource(Lease, "coordination.k8s.io", columns=(NAME, Column("Holder", "spec.holderIdentity"), AGE))
