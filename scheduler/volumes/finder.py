"""The nodes where a pod's claims can be satisfied: for one node, and for all nodes at once.

For one node: bound volumes must be reachable; waiting claims get the smallest reachable volume, or it must
be possible to provision one there. For all nodes the same is decided once for each *pattern*: the set of
offered volumes that a node reaches. Zonal volumes have as many patterns as there are zones, local ones as
many as there are nodes with volumes; the number of nodes does not matter. The use of a node's storage is
scored with the gate StorageCapacityScoring (KEP-4049). Source: upstream
`pkg/scheduler/framework/plugins/volumebinding/binder.go` (`FindPodVolumes`).
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.columns import Columns, Mask
from scheduler.framework.utilization_shape import ShapePoint, broken_line
from scheduler.volumes import reach
from scheduler.volumes.claims import PodClaims, Provisioning
from scheduler.volumes.reach import has_access
from services.api.kinds.node import Node
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.quantity import units
from services.api.volume_matching import capacity_of, match

NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE: Final = "node(s) did not have enough free storage"
VOLUME_MISSING: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
REASONS: Final = (NODE_CONFLICT, BIND_CONFLICT, NOT_ENOUGH_SPACE, VOLUME_MISSING)
"""All reasons, in the order in which a node's reasons are listed."""


@dataclass(frozen=True)
class VolumeMatch:
    """One node's offer. `bindings`: volumes to reserve; `to_provision`: claims to provision there.

    `reasons`: why the node is refused; empty when it is not.
    """

    bindings: tuple[tuple[PersistentVolume, PersistentVolumeClaim], ...] = ()
    to_provision: tuple[PersistentVolumeClaim, ...] = ()
    reasons: tuple[str, ...] = ()


def find(claims: PodClaims, node: Node) -> VolumeMatch:
    """Return the node's offer for the pod's claims."""
    reasons: list[str] = []
    for _, volume in claims.bound:
        if volume is None or not reach.reaches(volume, node):
            reasons.append(VOLUME_MISSING if volume is None else NODE_CONFLICT)
            break
    bindings: list[tuple[PersistentVolume, PersistentVolumeClaim]] = []
    to_make = [claim for claim in claims.waiting if claim.selected_node]
    if any(claim.selected_node != node.metadata.name for claim in to_make):
        # A volume is being made elsewhere, or was to be: the provisioner takes that back when it fails.
        reasons.append(BIND_CONFLICT)
        return VolumeMatch(reasons=_sort_reasons(reasons))
    to_match = [claim for claim in claims.waiting if not claim.selected_node]
    chosen = match(to_match, claims.offers, lambda volume: reach.reaches(volume, node))
    for claim in to_match:
        volume = chosen.get(claim.metadata.uid)
        if volume is not None:
            bindings.append((volume, claim))
        else:
            to_make.append(claim)
    problems = (_unmakeable(claims.to_provision[claim.metadata.uid], node) for claim in to_make)
    return VolumeMatch(tuple(bindings), tuple(to_make), _sort_reasons([*reasons, next(filter(None, problems), "")]))


def _sort_reasons(reasons: list[str]) -> tuple[str, ...]:
    return tuple(reason for reason in REASONS if reason in reasons)


def _unmakeable(provisioning: Provisioning, node: Node) -> str:
    if not provisioning.storage_class.can_provision or not reach.allows(provisioning.storage_class, node):
        return BIND_CONFLICT
    if provisioning.capacities is not None and not any(
        reach.has_access(each.node_topology, node) for each in provisioning.capacities
    ):
        return NOT_ENOUGH_SPACE
    return ""


class Everywhere:
    """The answer for all rows.

    `refused`: the rows by reason; a row may have several. `passed`: the rows without any.
    """

    def __init__(self, columns: Columns) -> None:
        self.refused: dict[str, Mask] = {}
        self.passed = columns.full(True)

    def refuse(self, reason: str, rows: Mask) -> None:
        """Refuse these rows for the reason."""
        self.refused[reason] = self.refused[reason] | rows if reason in self.refused else rows
        self.passed = self.passed & ~rows


def find_everywhere(claims: PodClaims, columns: Columns) -> Everywhere:
    """Return, for all rows at once, the reasons that `find` returns for each node."""
    found = Everywhere(columns)
    _check_bound(claims, columns, found)
    _check_waiting(claims, columns, found)
    return found


def _check_bound(claims: PodClaims, columns: Columns, everywhere: Everywhere) -> None:
    alive = columns.full(True)
    for _, volume in claims.bound:
        if volume is None:
            everywhere.refuse(VOLUME_MISSING, alive)
            return
        reached = reach.volume_mask(volume, columns)
        if reached is not None:
            everywhere.refuse(NODE_CONFLICT, alive & ~reached)
            alive = alive & reached


def _check_waiting(claims: PodClaims, columns: Columns, everywhere: Everywhere) -> None:
    alive = columns.full(True)
    selected = [claim for claim in claims.waiting if claim.selected_node]
    for claim in selected:
        alive &= columns.mask_of((claim.selected_node,))
    if selected:
        everywhere.refuse(BIND_CONFLICT, ~alive)
    to_match = [claim for claim in claims.waiting if not claim.selected_node]
    matched = _match_volumes(to_match, claims, columns)
    for claim in (*selected, *to_match):
        has_volume = matched.get(claim.metadata.uid)
        needs = alive if has_volume is None else alive & ~has_volume
        provisioning = claims.to_provision[claim.metadata.uid]
        if not provisioning.storage_class.can_provision:
            everywhere.refuse(BIND_CONFLICT, needs)
            alive = alive & ~needs
            continue
        allowed = reach.class_mask(provisioning.storage_class, columns)
        if allowed is not None:
            everywhere.refuse(BIND_CONFLICT, needs & ~allowed)
            alive, needs = alive & ~(needs & ~allowed), needs & allowed
        if provisioning.capacities is not None:
            full = needs & ~reach.capacity_mask(provisioning.capacities, columns)
            everywhere.refuse(NOT_ENOUGH_SPACE, full)
            alive = alive & ~full


def _match_volumes(to_match: list[PersistentVolumeClaim], claims: PodClaims, columns: Columns) -> dict[str, Mask]:
    """Return, by uid of each claim with offers, the rows where it gets a volume."""
    offered: dict[str, PersistentVolume] = {}
    for claim in to_match:
        for volume in claims.offers[claim.metadata.uid]:
            offered.setdefault(volume.metadata.name, volume)
    if not offered:
        return {}
    reached = np.ones((len(offered), columns.capacity), bool)
    for index, volume in enumerate(offered.values()):
        mask = reach.volume_mask(volume, columns)
        if mask is not None:
            reached[index] = mask
    patterns, pattern_of = _patterns(reached)
    place = {name: index for index, name in enumerate(offered)}
    table = {claim.metadata.uid: np.zeros(len(patterns), bool) for claim in to_match}
    for number, row in enumerate(patterns.tolist()):
        within = {name for name, index in place.items() if reached[index, row]}
        for uid in match(to_match, claims.offers, partial(_is_within, within)):
            table[uid][number] = True
    return {uid: by_pattern[pattern_of] for uid, by_pattern in table.items()}


def _is_within(names: set[str], volume: PersistentVolume) -> bool:
    return volume.metadata.name in names


def _patterns(reached: Mask) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return a row for each distinct column of the matrix, and for each row the number of its pattern."""
    packed = np.packbits(reached, axis=0)
    _, first, inverse = np.unique(packed, axis=1, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1)


def score_of(claims: PodClaims, node: Node, shape: tuple[ShapePoint, ...]) -> int:
    """Return 0 to 100: the mean over storage classes of the shape at each class's utilization.

    Without classes 0. Existing volumes count if there are any; otherwise the capacity for volumes to be
    provisioned.
    """
    volume_match = find(claims, node)
    uses = _of_existing(volume_match) if volume_match.bindings else _of_free(volume_match, claims, node)
    if not uses:
        return 0
    total = 0
    for requested, capacity in uses.values():
        is_full = capacity == 0 or requested > capacity
        total += broken_line(shape, 100 if is_full else requested * 100 // capacity)
    return math.floor(total / len(uses) + 0.5)


def _of_existing(found: VolumeMatch) -> dict[str, tuple[int, int]]:
    uses: dict[str, tuple[int, int]] = {}
    for volume, claim in found.bindings:
        requested, capacity = uses.get(volume.storage_class, (0, 0))
        uses[volume.storage_class] = (requested + claim.requested_bytes, capacity + capacity_of(volume))
    return uses


def _of_free(volume_match: VolumeMatch, claims: PodClaims, node: Node) -> dict[str, tuple[int, int]]:
    uses: dict[str, tuple[int, int]] = {}
    for claim in volume_match.to_provision:
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
