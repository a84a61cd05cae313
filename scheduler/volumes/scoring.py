"""How well a node's storage would be used: KEP-4049, gate StorageCapacityScoring."""

from __future__ import annotations

import math

from scheduler.framework.utilization_shape import ShapePoint, broken_line
from scheduler.volumes.claims import PodClaims, Provisioning
from scheduler.volumes.finder import Found, find
from scheduler.volumes.reach import has_access
from services.api.kinds.node import Node
from services.api.quantity import units
from services.api.volume_matching import capacity_of


def score_of(claims: PodClaims, node: Node, shape: tuple[ShapePoint, ...]) -> int:
    """Return 0 to 100: the mean over storage classes of the shape at each class's utilization, 0 without any.

    Volumes that exist count when there are any, and only else the capacity for volumes yet to be made.
    """
    found = find(claims, node)
    uses = _of_existing(found) if found.bindings else _of_free(found, claims, node)
    if not uses:
        return 0
    total = sum(broken_line(shape, _percent(requested, capacity)) for requested, capacity in uses.values())
    return math.floor(total / len(uses) + 0.5)


def _percent(requested: int, capacity: int) -> int:
    return 100 if capacity == 0 or requested > capacity else requested * 100 // capacity


def _of_existing(found: Found) -> dict[str, tuple[int, int]]:
    uses: dict[str, tuple[int, int]] = {}
    for volume, claim in found.bindings:
        requested, capacity = uses.get(volume.storage_class, (0, 0))
        uses[volume.storage_class] = (requested + claim.requested_bytes, capacity + capacity_of(volume))
    return uses


def _of_free(found: Found, claims: PodClaims, node: Node) -> dict[str, tuple[int, int]]:
    uses: dict[str, tuple[int, int]] = {}
    for claim in found.to_provision:
        free = _free(claims.to_provision[claim.metadata.uid], node)
        if free is not None:
            requested, _ = uses.get(claim.storage_class, (0, 0))
            uses[claim.storage_class] = (requested + claim.requested_bytes, free)
    return uses


def _free(provisioning: Provisioning, node: Node) -> int | None:
    """Return the bytes that the node's part of the cluster has, None when no driver says."""
    for each in provisioning.capacities or ():
        if has_access(each.node_topology, node):
            return units(each.capacity) if each.capacity is not None else 0
    return None
