"""Where a pod's claims can be satisfied: for one node, and for all nodes at once.

For one node: volumes that are bound must be reached; claims that wait get the smallest volume that is reached, or
must be possible to make there. For all nodes the same is decided once for each *pattern*: the set of offered
volumes that a node reaches. Zonal volumes have as many patterns as there are zones, local ones as many as there
are nodes with volumes; how many nodes there are does not matter.
Source: upstream `pkg/scheduler/framework/plugins/volumebinding/binder.go` (`FindPodVolumes`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.columns import Columns, Mask
from scheduler.volumes import reach
from scheduler.volumes.claims import PodClaims, Provisioning
from services.api.kinds.node import Node
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.volume_matching import match

NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE: Final = "node(s) did not have enough free storage"
VOLUME_MISSING: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
REASONS: Final = (NODE_CONFLICT, BIND_CONFLICT, NOT_ENOUGH_SPACE, VOLUME_MISSING)
"""In the order in which a node's reasons are listed."""


@dataclass(frozen=True)
class Found:
    """What one node offers. `bindings`: volumes to reserve; `to_provision`: claims a volume must be made for there.

    `reasons`: why the node will not do, empty when it will.
    """

    bindings: tuple[tuple[PersistentVolume, PersistentVolumeClaim], ...] = ()
    to_provision: tuple[PersistentVolumeClaim, ...] = ()
    reasons: tuple[str, ...] = ()


def find(claims: PodClaims, node: Node) -> Found:
    """Return what the node offers to the pod's claims."""
    reasons: list[str] = []
    for _, volume in claims.bound:
        if volume is None:
            reasons.append(VOLUME_MISSING)
            break
        if not reach.reaches(volume, node):
            reasons.append(NODE_CONFLICT)
            break
    bindings: list[tuple[PersistentVolume, PersistentVolumeClaim]] = []
    to_make = [claim for claim in claims.waiting if claim.selected_node]
    if any(claim.selected_node != node.metadata.name for claim in to_make):
        # A volume is being made elsewhere, or was to be: the provisioner takes that back when it fails.
        reasons.append(BIND_CONFLICT)
        return Found(reasons=_sorted(reasons))
    to_match = [claim for claim in claims.waiting if not claim.selected_node]
    chosen = match(to_match, claims.offers, lambda volume: reach.reaches(volume, node))
    for claim in to_match:
        volume = chosen.get(claim.metadata.uid)
        if volume is not None:
            bindings.append((volume, claim))
        else:
            to_make.append(claim)
    for claim in to_make:
        problem = _unmakeable(claims.to_provision[claim.metadata.uid], node)
        if problem:
            reasons.append(problem)
            break
    return Found(tuple(bindings), tuple(to_make), _sorted(reasons))


def _sorted(reasons: list[str]) -> tuple[str, ...]:
    return tuple(reason for reason in REASONS if reason in reasons)


def _unmakeable(provisioning: Provisioning, node: Node) -> str:
    if not provisioning.storage_class.can_provision or not reach.allows(provisioning.storage_class, node):
        return BIND_CONFLICT
    if provisioning.capacities is not None and not any(
        reach.has_access(each.node_topology, node) for each in provisioning.capacities
    ):
        return NOT_ENOUGH_SPACE
    return ""


@dataclass
class Everywhere:
    """`refused`: by reason, the rows that it holds for; a row may be in several. `passed`: the rows in none."""

    refused: dict[str, Mask] = field(default_factory=dict)
    passed: Mask = field(default_factory=lambda: np.zeros(0, bool))


def find_everywhere(claims: PodClaims, columns: Columns) -> Everywhere:
    """Return, for all rows at once, what `find` says of each node."""
    refused: dict[str, Mask] = {}

    def refuse(reason: str, mask: Mask) -> None:
        refused[reason] = refused[reason] | mask if reason in refused else mask

    _check_bound(claims, columns, refuse)
    _check_waiting(claims, columns, refuse)
    passed = columns.full(True)
    for mask in refused.values():
        passed &= ~mask
    return Everywhere(refused, passed)


Refuse = Callable[[str, Mask], None]


def _check_bound(claims: PodClaims, columns: Columns, refuse: Refuse) -> None:
    alive = columns.full(True)
    for _, volume in claims.bound:
        if volume is None:
            refuse(VOLUME_MISSING, alive)
            return
        reached = reach.volume_mask(volume, columns)
        if reached is not None:
            refuse(NODE_CONFLICT, alive & ~reached)
            alive = alive & reached


def _check_waiting(claims: PodClaims, columns: Columns, refuse: Refuse) -> None:
    alive = columns.full(True)
    selected = [claim for claim in claims.waiting if claim.selected_node]
    for claim in selected:
        alive &= columns.mask_of((claim.selected_node,))
    if selected:
        refuse(BIND_CONFLICT, ~alive)
    to_match = [claim for claim in claims.waiting if not claim.selected_node]
    matched = _matched(to_match, claims, columns)
    for claim in (*selected, *to_match):
        has_volume = matched.get(claim.metadata.uid)
        needs = alive if has_volume is None else alive & ~has_volume
        provisioning = claims.to_provision[claim.metadata.uid]
        allowed = (
            reach.class_mask(provisioning.storage_class, columns) if provisioning.storage_class.can_provision else None
        )
        if not provisioning.storage_class.can_provision:
            refuse(BIND_CONFLICT, needs)
            alive = alive & ~needs
            continue
        if allowed is not None:
            refuse(BIND_CONFLICT, needs & ~allowed)
            alive, needs = alive & ~(needs & ~allowed), needs & allowed
        if provisioning.capacities is not None:
            full = needs & ~reach.capacity_mask(provisioning.capacities, columns)
            refuse(NOT_ENOUGH_SPACE, full)
            alive = alive & ~full


def _matched(to_match: list[PersistentVolumeClaim], claims: PodClaims, columns: Columns) -> dict[str, Mask]:
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
