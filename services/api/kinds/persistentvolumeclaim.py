"""PersistentVolumeClaim: a request for storage, and the volume bound to it (core/v1)."""

from services.api.kinds.persistentvolume import CLASS_ANNOTATION, class_text, modes_text
from services.api.kinds.pod import ResourceRequirements
from services.api.meta import AGE, NAME, Column, Document, LabelSelector, ObjectView, Resource, View
from services.api.printing import phase
from services.api.quantity import units

BOUND, LOST, PENDING = "Bound", "Lost", "Pending"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
"""Annotation: both sides of the binding are written. If the volume disappears later, the claim becomes Lost."""
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation: the node that the scheduler selected for the volume; the provisioner removes it after a failure."""
STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
IN_USE_FINALIZER = "kubernetes.io/pvc-protection"


class PersistentVolumeClaimSpec(View, frozen=True):
    """Spec of a claim. `storage_class_name`: None: not given (and no default existed); "": no class.

    Only `requests.storage` of `resources` is used.
    """

    access_modes: tuple[str, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""
    selector: LabelSelector | None = None


class PersistentVolumeClaimStatus(View, frozen=True):
    """Status of a claim: phase Pending, Bound or Lost; once bound, the actual properties of the volume."""

    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: dict[str, str] = {}


class PersistentVolumeClaim(ObjectView, frozen=True):
    """A claim as components see it."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def storage_class(self) -> str:
        """Name of the storage class; empty if none."""
        return self.metadata.annotations.get(CLASS_ANNOTATION, self.spec.storage_class_name or "")

    @property
    def requested_bytes(self) -> int:
        """Requested storage in bytes."""
        return units(self.spec.resources.requests.get("storage", "0"))

    @property
    def is_fully_bound(self) -> bool:
        """Whether both sides of the binding are written."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations

    @property
    def selected_node(self) -> str:
        """Node that the scheduler selected for a volume yet to be provisioned; empty if none."""
        return self.metadata.annotations.get(SELECTED_NODE, "")


def _capacity(document: Document, now: float) -> str:
    capacity = document.get("status", {}).get("capacity") or {}
    return str(capacity.get("storage", "0")) if document.get("spec", {}).get("volumeName") else ""


def _modes(document: Document, now: float) -> str:
    modes = document.get("status", {}).get("accessModes") or ()
    return modes_text(modes) if document.get("spec", {}).get("volumeName") else ""


RESOURCE = Resource(
    PersistentVolumeClaim,
    short_names=("pvc",),
    subresources=("status",),
    columns=(
        NAME,
        Column("Status", phase),
        Column("Volume", "spec.volumeName"),
        Column("Capacity", _capacity),
        Column("Access Modes", _modes),
        Column("StorageClass", class_text),
        Column("VolumeAttributesClass", "spec.volumeAttributesClassName", default="<unset>"),
        AGE,
        Column("VolumeMode", "spec.volumeMode", priority=1, default="<unset>"),
    ),
    selectable_fields={"name": lambda d: d["metadata"].get("name", "")},
)
