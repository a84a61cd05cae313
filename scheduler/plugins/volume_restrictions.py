"""PreFilter, Filter: disks that only one pod of a node may mount, and claims that only one pod may use at all.

Both rejections end when the other pod goes, so preemption may help.
Source: upstream `pkg/scheduler/framework/plugins/volumerestrictions`; KEP-2485 (ReadWriteOncePod).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from scheduler.cache.columns import Columns, Mask
from scheduler.cache.node_info import NodeInfo, PodInfo, volume_claims
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import ASSIGNED_POD, NODE, Action, ClusterEvent, Hint, Registration, queue_if
from scheduler.framework.plugin import PreFilterResult
from scheduler.framework.status import SKIP, SUCCESS, Status, unresolvable, unschedulable
from scheduler.framework.vectorized import Refusal
from scheduler.volumes.claims import claim_changed
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.pod import Pod, Volume
from services.api.meta import Key, View

NAME: Final = "VolumeRestrictions"
DISK_CONFLICT: Final = "node(s) had no available disk"
CLAIM_CONFLICT: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
ONE_POD: Final = "ReadWriteOncePod"


def in_conflict(wanted: Volume, existing: Volume) -> bool:
    """Whether both volumes are one disk that cannot be shared: all but Amazon's may be shared if both only read."""
    if wanted.gce_persistent_disk is not None and existing.gce_persistent_disk is not None:
        disk, held = wanted.gce_persistent_disk, existing.gce_persistent_disk
        return disk.pd_name == held.pd_name and not (disk.read_only and held.read_only)
    if wanted.aws_elastic_block_store is not None and existing.aws_elastic_block_store is not None:
        return wanted.aws_elastic_block_store.volume_id == existing.aws_elastic_block_store.volume_id
    if wanted.iscsi is not None and existing.iscsi is not None:
        target, used = wanted.iscsi, existing.iscsi
        return target.iqn == used.iqn and not (target.read_only and used.read_only)
    if wanted.rbd is not None and existing.rbd is not None:
        image, mapped = wanted.rbd, existing.rbd
        is_same = (image.pool, image.image) == (mapped.pool, mapped.image)
        is_near = any(monitor in mapped.monitors for monitor in image.monitors)
        return is_same and is_near and not (image.read_only and mapped.read_only)
    return False


@dataclass
class _Notes:
    """The notes of one cycle.

    `exclusive`: the pod's claims for one pod alone; `others`: their uses by other pods, anywhere.
    """

    exclusive: tuple[Key, ...]
    others: int
    disks: tuple[Volume, ...]

    def clone(self) -> _Notes:
        return replace(self)

    def uses(self, pod: PodInfo) -> int:
        """How many of the exclusive claims another pod uses."""
        return sum(claim in pod.claims for claim in self.exclusive)


class VolumeRestrictions:
    """The plugin: it counts users of exclusive claims in the whole cluster, on whatever node they run."""

    name = NAME

    def __init__(self, args: Args, handle: Handle) -> None:
        self._world = handle.world
        self._cache = handle.cache

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> PreFilterResult | Status:
        """Skip pods that can share all their volumes."""
        if not pod.spec.volumes:
            return SKIP
        disks = tuple(
            v for v in pod.spec.volumes if v.gce_persistent_disk or v.aws_elastic_block_store or v.rbd or v.iscsi
        )
        exclusive: dict[Key, None] = {}
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is None:
                continue
            key = Key(pod.key.namespace, volume.persistent_volume_claim.claim_name)
            claim = self._world.get(PersistentVolumeClaim, key)
            if claim is None:
                return unresolvable(f'persistentvolumeclaim "{key.name}" not found')
            if ONE_POD in claim.spec.access_modes:
                exclusive[key] = None
        others = sum(self._cache.claim_users.get(claim, 0) > 0 for claim in exclusive)
        if not disks and not others:
            return SKIP
        state.data[NAME] = _Notes(tuple(exclusive), others, disks)
        return SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Reject a node where the disk is in use, and all nodes while an exclusive claim is in use."""
        notes: _Notes = state.data[NAME]
        if notes.disks and _has_conflict(notes.disks, node):
            return unschedulable(DISK_CONFLICT)
        return unschedulable(CLAIM_CONFLICT) if notes.others > 0 else SUCCESS

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None:
        """Return the rows whose disks are free; no row while an exclusive claim is in use."""
        notes: _Notes = state.data[NAME]
        if notes.others > 0:
            return columns.full(False)
        return ~_conflicts(notes.disks, columns) if notes.disks else None

    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Return the refusals; disks are checked first."""
        notes: _Notes = state.data[NAME]
        disks = _conflicts(notes.disks, columns) if notes.disks else columns.full(False)
        return [Refusal(DISK_CONFLICT, refused & disks), Refusal(CLAIM_CONFLICT, refused & ~disks)]

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        """Count the exclusive claims of a pod that a what-if adds."""
        notes: _Notes = state.data[NAME]
        notes.others += notes.uses(added)

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        """Stop counting the exclusive claims of a pod that a what-if removes."""
        notes: _Notes = state.data[NAME]
        notes.others -= notes.uses(removed)

    def events_to_register(self) -> Sequence[Registration]:
        """Return the events: the other pod goes, or a node or the claim comes."""
        return (
            Registration(ClusterEvent(ASSIGNED_POD, Action.DELETE), _pod_gone),
            Registration(ClusterEvent(NODE, Action.ADD)),
            Registration(ClusterEvent("PersistentVolumeClaim", Action.ADD | Action.UPDATE), claim_changed),
        )


def _has_conflict(disks: Sequence[Volume], node: NodeInfo) -> bool:
    return any(
        in_conflict(disk, existing)
        for other in node.pods.values()
        if other.spec.volumes
        for existing in other.spec.volumes
        for disk in disks
    )


def _conflicts(disks: Sequence[Volume], columns: Columns) -> Mask:
    found = [node is not None and _has_conflict(disks, node) for node in columns.nodes]
    return np.fromiter(found, bool, count=columns.capacity)


def _pod_gone(pod: PodInfo, old: Pod | None, new: View | None) -> Hint:
    if old is None:
        return Hint.SKIP
    is_disk_free = any(in_conflict(wanted, held) for wanted in pod.spec.volumes for held in old.spec.volumes)
    return queue_if(is_disk_free or any(claim in pod.claims for claim in volume_claims(old)))


PLUGIN = PluginEntry(NAME, VolumeRestrictions)
