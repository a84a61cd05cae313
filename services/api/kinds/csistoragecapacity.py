"""CSIStorageCapacity: how much a driver can still provision in one part of the cluster (storage.k8s.io/v1)."""

from services.api.meta import NAME, Column, LabelSelector, ObjectView, Resource
from services.api.quantity import units


class CSIStorageCapacity(ObjectView, frozen=True):
    """One capacity answer of a driver. `node_topology` None: no node can reach the storage; {}: every node can."""

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | None = None
    maximum_volume_size: str | None = None

    @property
    def limit_bytes(self) -> int | None:
        """The size of the largest volume that can be made, in bytes; None if unknown."""
        text = self.maximum_volume_size if self.maximum_volume_size is not None else self.capacity
        return None if text is None else units(text)


_COLUMNS = (
    NAME,
    Column("StorageClassName", "storageClassName"),
    Column("Capacity", "capacity", default="<unset>", show=str),
)
RESOURCE = Resource(CSIStorageCapacity, plural="csistoragecapacities", group="storage.k8s.io", columns=_COLUMNS)
