"""CSINode: the storage drivers of a node, and how many volumes each can attach there (storage.k8s.io/v1)."""

from services.api.meta import AGE, NAME, Column, ObjectView, Resource, View

MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"


class VolumeNodeResources(View, frozen=True):
    """Volume limit of a driver on the node. `count` None: no limit."""

    count: int | None = None


class CSINodeDriver(View, frozen=True, rename={"node_id": "nodeID", "topology_keys": "topologyKeys"}):
    """One driver on the node."""

    name: str = ""
    node_id: str = ""
    topology_keys: tuple[str, ...] = ()
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(View, frozen=True):
    """The drivers that registered on the node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(ObjectView, frozen=True):
    """A node's drivers as components see them; it has the name of its node."""

    spec: CSINodeSpec = CSINodeSpec()


RESOURCE = Resource(
    CSINode,
    "storage.k8s.io",
    namespaced=False,
    columns=(NAME, Column("Drivers", "spec.drivers", "integer", default=0, show=len), AGE),
)
