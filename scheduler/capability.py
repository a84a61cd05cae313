"""The lease by which this scheduler announces that it can take an unbound pod back (kubelet-unbinding 4.6)."""

from typing import Final

from services.api.meta import Document
from services.api.times import format_micro_time

RESOURCE: Final = "leases.coordination.k8s.io"
NAMESPACE: Final = "kube-system"
"""The namespace of the lease, which has the name of the pods' `spec.schedulerName`."""
ANNOTATION: Final = "emulation/unbind"
VERSION: Final = "v1"
DURATION_S: Final = 15
RENEW_S: Final = 5.0


def new_lease(scheduler_name: str, holder: str, wall_s: float) -> Document:
    """Return the lease to create."""
    stamp = format_micro_time(wall_s)
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": scheduler_name, "namespace": NAMESPACE, "annotations": {ANNOTATION: VERSION}},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": DURATION_S,
            "acquireTime": stamp,
            "renewTime": stamp,
        },
    }


def renewal(holder: str, wall_s: float) -> Document:
    """Return the merge patch that renews the lease, and takes it over after a predecessor."""
    return {
        "metadata": {"annotations": {ANNOTATION: VERSION}},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": DURATION_S, "renewTime": format_micro_time(wall_s)},
    }
