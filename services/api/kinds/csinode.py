"""CSINode: the storage drivers of a node, and how many volumes each can attach there (storage.k8s.io/v1)."""

from __future__ import annotations

from typing import Any

from services.api.meta import Document, ObjectMeta, View
from services.api.printing import AGE, NAME, age
from services.api.resources import Column, Resource

MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"


class VolumeNodeResources(View, frozen=True):
    """`count` None: no limit."""

    count: int | None = None


class CSINodeDriver(View, frozen=True):
    """One driver on the node."""

    name: str = ""
    node_id: str = ""
    topology_keys: tuple[str, ...] = ()
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(View, frozen=True):
    """The drivers that registered themselves."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(View, frozen=True):
    """A node's drivers as rooms see them; it has the name of its node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


def _cells(document: Document, now: float) -> list[Any]:
    drivers = document.get("spec", {}).get("drivers") or ()
    return [document["metadata"].get("name", ""), len(drivers), age(document, now)]


RESOURCE = Resource(
    kind="CSINode",
    plural="csinodes",
    singular="csinode",
    group="storage.k8s.io",
    namespaced=False,
    view=CSINode,
    columns=(NAME, Column("Drivers", "integer"), AGE),
    cells=_cells,
)
