"""StorageClass: provisioner, topology and binding mode of volumes (storage.k8s.io/v1)."""

from services.api.meta import AGE, Column, Document, ObjectView, Resource, View

IMMEDIATE, WAIT_FOR_FIRST_CONSUMER = "Immediate", "WaitForFirstConsumer"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"


class TopologySelectorLabelRequirement(View, frozen=True):
    """Requirement on a node's label: it must have one of the values."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(View, frozen=True):
    """A term of ANDed requirements; a term without requirements matches every node."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(ObjectView, frozen=True):
    """A class as components see it. `allowed_topologies` are ORed; an empty list allows every node."""

    provisioner: str = ""
    reclaim_policy: str = "Delete"
    volume_binding_mode: str = IMMEDIATE
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()

    @property
    def can_provision(self) -> bool:
        """Whether volumes of this class are provisioned."""
        return self.provisioner not in ("", NO_PROVISIONER)

    @property
    def is_waiting(self) -> bool:
        """Whether a claim waits for the first pod that uses it before it is bound."""
        return self.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def _name(document: Document, now: float) -> str:
    meta = document["metadata"]
    mark = " (default)" if (meta.get("annotations") or {}).get(IS_DEFAULT) == "true" else ""
    return f"{meta.get('name', '')}{mark}"


RESOURCE = Resource(
    StorageClass,
    plural="storageclasses",
    group="storage.k8s.io",
    namespaced=False,
    short_names=("sc",),
    columns=(
        Column("Name", _name, format="name"),
        Column("Provisioner", "provisioner"),
        Column("ReclaimPolicy", "reclaimPolicy", default="Delete"),
        Column("VolumeBindingMode", "volumeBindingMode", default=IMMEDIATE),
        Column("AllowVolumeExpansion", "allowVolumeExpansion", default=False),
        AGE,
    ),
)
