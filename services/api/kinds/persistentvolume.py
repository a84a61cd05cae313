"""PersistentVolume: a piece of storage, where it can be reached from, and which claim has it (core/v1)."""

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
"""Annotation: the claimRef (or volumeName) was written by the machine, so the machine may take it back."""
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
"""Access modes and how people abbreviate them, in the order in which they are printed."""
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
"""Where volumes and claims named their class before there was a field; it still wins."""


class VolumeNodeAffinity(View, frozen=True):
    """The nodes that can reach the volume."""

    required: NodeSelector | None = None


class CSIPersistentVolumeSource(View, frozen=True):
    """A volume of a CSI driver, by its handle."""

    driver: str = ""
    volume_handle: str = ""


class CinderVolume(View, frozen=True):
    """A disk by id."""

    volume_id: str = msgspec.field(name="volumeID", default="")


class VsphereVolume(View, frozen=True):
    """A disk by path."""

    volume_path: str = ""


class PersistentVolumeSpec(View, frozen=True):
    """What the volume is; of its sources only those are read that scheduling counts.

    `claim_ref`: the claim it belongs to; without uid it is reserved by a person and not yet bound.
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
    """Available, Bound, Released, Failed or Pending."""

    phase: str = ""
    reason: str = ""
    message: str = ""


class PersistentVolume(ObjectView, frozen=True):
    """A volume as components see it."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def unique_name(self) -> str:
        """What the Node's status calls a volume of a CSI driver, and "" for another one."""
        csi = self.spec.csi
        return f"kubernetes.io/csi/{csi.driver}^{csi.volume_handle}" if csi is not None else ""

    @property
    def storage_class(self) -> str:
        """The class's name, "" for none."""
        return self.metadata.annotations.get(CLASS_ANNOTATION, self.spec.storage_class_name)


def modes_text(modes: list[str] | tuple[str, ...]) -> str:
    """Return `RWO,RWX`: each mode once, in the usual order."""
    return ",".join(short for mode, short in MODES.items() if mode in modes)


def class_text(document: Document, now_wall_s: float = 0.0) -> str:
    """Return the class's name of a volume's or claim's document."""
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
