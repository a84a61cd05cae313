"""PersistentVolumeClaim: a request for storage, and the volume that fulfils it (core/v1)."""

from services.api.kinds.persistentvolume import CLASS_ANNOTATION, class_text, modes_text
from services.api.kinds.pod import ResourceRequirements
from services.api.meta import AGE, NAME, Column, Document, LabelSelector, ObjectView, Resource, View
from services.api.printing import phase
from services.api.quantity import units

BOUND, LOST, PENDING = "Bound", "Lost", "Pending"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
"""Annotation: both sides of the binding are written; from then on a vanished volume makes the claim Lost."""
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation: where the scheduler wants the volume to be; the provisioner removes it after a failure."""
STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
IN_USE_FINALIZER = "kubernetes.io/pvc-protection"


class PersistentVolumeClaimSpec(View, frozen=True):
    """What is requested. `storage_class_name`: None was not said (and no default existed), "" is no class.

    Of `resources` only `requests.storage` is meant.
    """

    access_modes: tuple[str, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""
    selector: LabelSelector | None = None


class PersistentVolumeClaimStatus(View, frozen=True):
    """Pending, Bound or Lost; once bound, what the volume really is."""

    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: dict[str, str] = {}


class PersistentVolumeClaim(ObjectView, frozen=True):
    """A claim as components see it."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def storage_class(self) -> str:
        """The class's name, "" for none."""
        return self.metadata.annotations.get(CLASS_ANNOTATION, self.spec.storage_class_name or "")

    @property
    def requested_bytes(self) -> int:
        """How much storage is asked for."""
        return units(self.spec.resources.requests.get("storage", "0"))

    @property
    def is_fully_bound(self) -> bool:
        """Whether both sides of the binding are written."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations

    @property
    def selected_node(self) -> str:
        """The node the scheduler chose for a volume that is yet to be made, or ""."""
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
