"""Volumes that a provisioner makes for claims: the volume's document, and the nodes that reach it.

Source: kubernetes-sigs/sig-storage-lib-external-provisioner; kubernetes-csi/external-provisioner,
`topology.go`.
"""

import re
import zlib
from collections.abc import Callable, Iterable, Mapping

from services.api.kinds.csinode import CSINode
from services.api.kinds.node import Node
from services.api.kinds.persistentvolume import PROVISIONED_BY
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.storageclass import StorageClass, TopologySelectorTerm
from services.api.meta import Document, Key

TOPOLOGY_KEYS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
"""Node labels that bound the reach of a volume whose driver registered no topology keys."""

_DRIVER = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.IGNORECASE)
HOST_PATH = "/var/lib/keplab/volumes"

Segments = tuple[tuple[str, str], ...]
"""Node labels of a volume's location; empty: anywhere."""


def cannot_make(storage_class: StorageClass, node: Node | None, name: str) -> str:
    """Return why no volume can be provisioned for the chosen node; empty if one can."""
    if node is None:
        return f'failed to get target node: nodes "{name}" not found'
    if not _allows(storage_class.allowed_topologies, node.metadata.labels):
        return (
            f'selected node "{name}" is not in the allowed topologies of storage class "{storage_class.metadata.name}"'
        )
    return ""


def _allows(terms: tuple[TopologySelectorTerm, ...], labels: Mapping[str, str]) -> bool:
    return not terms or any(
        all(labels.get(each.key) in each.values for each in term.match_label_expressions) for term in terms
    )


def reference_to(claim: PersistentVolumeClaim) -> Document:
    """Return the volume's `claimRef` for a claim."""
    meta, kind = claim.metadata, {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
    return {**kind, "namespace": meta.namespace, "name": meta.name, "uid": meta.uid}


def new_volume(
    claim: PersistentVolumeClaim,
    storage_class: StorageClass,
    node: Node | None,
    nodes: Iterable[Node],
    csi_node: Callable[[Key], CSINode | None],
) -> Document:
    """Return the volume for a claim: near its node; without a node, in a location derived from the claim's name."""
    name, driver = f"pvc-{claim.metadata.uid}", storage_class.provisioner
    spec: Document = {
        "capacity": {"storage": claim.spec.resources.requests.get("storage", "0")},
        "accessModes": list(claim.spec.access_modes),
        "persistentVolumeReclaimPolicy": storage_class.reclaim_policy,
        "storageClassName": storage_class.metadata.name,
        "volumeMode": claim.spec.volume_mode,
        "claimRef": reference_to(claim),
        **_source(driver, name),
    }
    where = _segments(node, driver, csi_node) if node is not None else _anywhere(claim, storage_class, nodes, csi_node)
    if where:
        expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in where]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    metadata = {"name": name, "annotations": {PROVISIONED_BY: driver}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def _source(provisioner: str, name: str) -> Document:
    """Return where a volume's bytes are: at a CSI driver, which a provisioner with a slash in its name is none of."""
    if _DRIVER.fullmatch(provisioner):
        return {"csi": {"driver": provisioner, "volumeHandle": name}}
    return {"hostPath": {"path": f"{HOST_PATH}/{name}", "type": "DirectoryOrCreate"}}


def _segments(node: Node, driver: str, csi_node: Callable[[Key], CSINode | None]) -> Segments:
    registered = csi_node(node.metadata.key)
    drivers = registered.spec.drivers if registered is not None else ()
    keys = next((each.topology_keys for each in drivers if each.name == driver), TOPOLOGY_KEYS)
    labels = node.metadata.labels
    return tuple((key, labels[key]) for key in keys if key in labels)


def _anywhere(
    claim: PersistentVolumeClaim,
    storage_class: StorageClass,
    nodes: Iterable[Node],
    csi_node: Callable[[Key], CSINode | None],
) -> Segments:
    """Choose a place without knowing the pod: evenly over the places that the class allows."""
    places = {
        _segments(node, storage_class.provisioner, csi_node): None
        for node in nodes
        if _allows(storage_class.allowed_topologies, node.metadata.labels)
    }
    ordered = sorted(places)
    return ordered[zlib.crc32(claim.metadata.name.encode()) % len(ordered)] if ordered else ()
