"""The metadata that a write of an object's status also changes, as in upstream for every kind with a
status.

Source: upstream `pkg/registry` (`PrepareForUpdate` of each kind's status strategy),
`staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresource/status_strategy.go`,
`staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition/strategy.go`,
`staging/src/k8s.io/kube-aggregator/pkg/registry/apiservice/strategy.go`,
`staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/helpers.go` (`ResetObjectMetaForStatus`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver_fake.registry.validation.formats import Cause, metadata, new_finalizers
from services.api.meta import Document

ALL: Final = ("labels", "annotations", "finalizers", "ownerReferences")
NONE: Final = ()

STATUS_METADATA: Final[Mapping[str, tuple[str, ...]]] = {
    "apiservices.apiregistration.k8s.io": NONE,
    "certificatesigningrequests.certificates.k8s.io": ALL,
    "cronjobs.batch": ALL,
    "customresourcedefinitions.apiextensions.k8s.io": ALL,
    "daemonsets.apps": ALL,
    "deployments.apps": ("annotations", "finalizers", "ownerReferences"),
    "devicetaintrules.resource.k8s.io": NONE,
    "flowschemas.flowcontrol.apiserver.k8s.io": NONE,
    "horizontalpodautoscalers.autoscaling": ALL,
    "ingresses.networking.k8s.io": ALL,
    "jobs.batch": ALL,
    "namespaces": ALL,
    "nodes": ALL,
    "persistentvolumeclaims": ALL,
    "persistentvolumes": ALL,
    "poddisruptionbudgets.policy": ALL,
    "podgroups.scheduling.k8s.io": NONE,
    "pods": ("labels", "annotations", "finalizers"),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": NONE,
    "replicasets.apps": ALL,
    "replicationcontrollers": ALL,
    "resourceclaims.resource.k8s.io": NONE,
    "resourcequotas": ALL,
    "servicecidrs.networking.k8s.io": NONE,
    "services": ALL,
    "statefulsets.apps": ALL,
    "validatingadmissionpolicies.admissionregistration.k8s.io": NONE,
    "volumeattachments.storage.k8s.io": NONE,
}
"""Members of the metadata that are written with the status, by wire name. Custom resources: none."""


def writable_members(resource: str) -> tuple[str, ...]:
    """Return the members of the metadata that a write of that kind's status changes."""
    return STATUS_METADATA.get(resource, NONE)


def with_written(stored: Document, sent: Document, names: tuple[str, ...]) -> Document:
    """Return the stored metadata with those members as sent; the same object if they do not differ."""
    before, after = stored["metadata"], sent.get("metadata") or {}
    if after == before or all(before.get(name) == after.get(name) for name in names):
        metadata: Document = before
        return metadata
    kept = {name: value for name, value in before.items() if name not in names}
    return {**kept, **{name: after[name] for name in names if after.get(name)}}


def metadata_causes(stored: Document, new: Document) -> list[Cause]:
    """Return the errors in metadata that was written along with a status or another subresource."""
    if new["metadata"] is stored["metadata"] or new["metadata"] == stored["metadata"]:
        return []
    return [*new_finalizers(stored, new), *metadata(new, lambda path, name: ())]
