"""PersistentVolume: a piece of storage, the nodes that reach it, and its claim (core/v1)."""

import msgspec

from services.api.kinds.pod import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    GCEPersistentDiskVolumeSource,
    NodeSelector,
)
from services.api.meta import AGE, NAME, Column, Document, ObjectReference, ObjectView, Resource, View
from services.api.printing import phase

AVAILABLE, BOUND, RELEASED, FAILED, PENDING = "Available", "Bound", "Released", "Failed", "Pending"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""Annotation: the controller wrote the claimRef (or volumeName), so the controller may remove it."""
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
"""Access modes and their abbreviations, in print order."""
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
"""Annotation in which volumes and claims named their class before the field existed; it still takes precedence."""


class VolumeNodeAffinity(View, frozen=True):
    """The nodes that can reach the volume."""

    required: NodeSelector | None = None


class CSIPersistentVolumeSource(View, frozen=True):
    """A volume of a CSI driver, by its handle."""

    driver: str = ""
    volume_handle: str = ""


class CinderVolume(View, frozen=True):
    """A Cinder disk, by id."""

    volume_id: str = msgspec.field(name="volumeID", default="")


class VsphereVolume(View, frozen=True):
    """A vSphere disk, by path."""

    volume_path: str = ""


class PersistentVolumeSpec(View, frozen=True):
    """Spec of a volume; only the sources that count for scheduling are read.

    `claim_ref`: the claim it belongs to; without uid a person reserved it and it is not yet bound.
    """

    capacity: dict[str, str] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str = "Retain"
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIPersistentVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    cinder: CinderVolume | None = None
    vsphere_volume: VsphereVolume | None = None


class PersistentVolumeStatus(View, frozen=True):
    """Phase of a volume: Available, Bound, Released, Failed or Pending."""

    phase: str = ""
    reason: str = ""
    message: str = ""


class PersistentVolume(ObjectView, frozen=True):
    """A volume as components see it."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def unique_name(self) -> str:
        """Name of a CSI volume in the node's status; empty for other volumes."""
        csi = self.spec.csi
        return f"kubernetes.io/csi/{csi.driver}^{csi.volume_handle}" if csi is not None else ""

    @property
    def storage_class(self) -> str:
        """Name of the storage class; empty if none."""
        return self.metadata.annotations.get(CLASS_ANNOTATION, self.spec.storage_class_name)


def modes_text(modes: list[str] | tuple[str, ...]) -> str:
    """Return `RWO,RWX`: each mode once, in the usual order."""
    return ",".join(short for mode, short in MODES.items() if mode in modes)


def class_text(document: Document, now_wall_s: float = 0.0) -> str:
    """Return the storage class name from the document of a volume or claim."""
    annotations = document["metadata"].get("annotations") or {}
    return str(annotations.get(CLASS_ANNOTATION) or document.get("spec", {}).get("storageClassName") or "")


def _claim(reference: Document) -> str:
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else ""


RESOURCE = Resource(
    PersistentVolume,
    namespaced=False,
    short_names=("pv",),
    subresources=("status",),
    columns=(
        NAME,
        Column("Capacity", "spec.capacity.storage", default="0", show=str),
        Column("Access Modes", "spec.accessModes", show=modes_text),
        Column("Reclaim Policy", "spec.persistentVolumeReclaimPolicy"),
        Column("Status", phase),
        Column("Claim", "spec.claimRef", show=_claim),
        Column("StorageClass", class_text),
        Column("VolumeAttributesClass", "spec.volumeAttributesClassName", default="<unset>"),
        Column("Reason", "status.reason"),
        AGE,
        Column("VolumeMode", "spec.volumeMode", priority=1, default="<unset>"),
    ),
    selectable_fields={"name": lambda d: d["metadata"].get("name", "")},
)
