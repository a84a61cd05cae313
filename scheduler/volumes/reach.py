"""The nodes that can reach a volume, or where one could be provisioned: for one node, and for all at once.

Source: scheduler-queue-and-cycles 6; upstream `pkg/scheduler/framework/plugins/volumebinding/binder.go`.
"""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from scheduler.cache.columns import Columns, Mask
from scheduler.cache.node_selection import term_matches, terms_mask
from services.api.kinds.csistoragecapacity import CSIStorageCapacity
from services.api.kinds.node import Node
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.storageclass import StorageClass
from services.api.meta import LabelSelector
from services.api.selectors import Term, from_label_selector


def reaches(volume: PersistentVolume, node: Node) -> bool:
    """Whether the node satisfies the volume's node affinity."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(term_matches(term, node) for term in affinity.required.node_selector_terms)


def volume_mask(volume: PersistentVolume, columns: Columns) -> Mask | None:
    """Return the rows that reach the volume; None when all rows do."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return None
    return terms_mask(affinity.required.node_selector_terms, columns)


def allows(storage_class: StorageClass, node: Node) -> bool:
    """Whether the class may provision volumes for this node; without topologies, for any node."""
    topologies, labels = storage_class.allowed_topologies, node.metadata.labels
    return not topologies or any(
        all(labels.get(each.key) in each.values for each in term.match_label_expressions) for term in topologies
    )


def class_mask(storage_class: StorageClass, columns: Columns) -> Mask | None:
    """Return the rows for which the class may provision volumes; None when for all."""
    if not storage_class.allowed_topologies:
        return None
    mask = columns.full(False)
    for term in storage_class.allowed_topologies:
        allowed = columns.full(True)
        for requirement in term.match_label_expressions:
            allowed &= columns.label_mask(requirement.key, requirement.values.__contains__)
        mask |= allowed
    return mask


def has_access(topology: LabelSelector | None, node: Node) -> bool:
    """Whether the node is in the topology of a capacity; None is no topology at all."""
    return topology is not None and from_label_selector(topology).matches(node.metadata.labels)


def capacity_mask(capacities: Iterable[CSIStorageCapacity], columns: Columns) -> Mask:
    """Return the rows that are in the topology of one of the capacities."""
    mask = columns.full(False)
    values_by_key: dict[str, list[str]] = {}
    for capacity in capacities:
        topology = capacity.node_topology
        if topology is None:
            continue
        labels = topology.match_labels
        if len(labels) == 1 and not topology.match_expressions:
            # Drivers of node-local storage publish one object a node; all of them together are one look-up.
            key, value = next(iter(labels.items()))
            values_by_key.setdefault(key, []).append(value)
        else:
            mask |= _selector_mask(from_label_selector(topology).terms, columns)
    for key, values in values_by_key.items():
        ids, known = columns.label_ids(key)
        mask |= np.isin(ids, [known[value] for value in values if value in known])
    return mask


def _selector_mask(terms: Sequence[Term], columns: Columns) -> Mask:
    mask = columns.full(True)
    for term in terms:
        mask &= columns.label_mask(term.key, partial(_holds, term))
    return mask


def _holds(term: Term, value: str | None) -> bool:
    return term.matches({} if value is None else {term.key: value})
