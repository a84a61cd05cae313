"""PreFilter, Filter, Score, Reserve, PreBind: nodes where a pod's volume claims are, or can be, satisfied.

Claims that wait for their first consumer get their volume here: an existing one is reserved, or the node is
written into the claim and a provisioner makes a volume that this node can reach. The pod is bound only after that.
Source: scheduler-queue-and-cycles 6; upstream `pkg/scheduler/framework/plugins/volumebinding`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from scheduler.cache.columns import Columns, Mask, Scores
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import NODE, Action, ClusterEvent, Hint, Registration, queue_if
from scheduler.framework.plugin import PreFilterResult
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, error_status, unresolvable
from scheduler.framework.utilization_shape import ShapePoint
from scheduler.framework.vectorized import Refusal
from scheduler.switches import PluginSwitches
from scheduler.volumes.binder import Reserved, VolumeBinder, reserve, revert
from scheduler.volumes.claims import ClaimReader, PodClaims, claim_changed
from scheduler.volumes.finder import Everywhere, find, find_everywhere, score_of
from services.api.kinds.csidriver import CSIDriver
from services.api.kinds.csinode import MIGRATED_PLUGINS, CSINode
from services.api.kinds.csistoragecapacity import CSIStorageCapacity
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.storageclass import StorageClass
from services.api.switches import Switches

NAME: Final = "VolumeBinding"


class UtilizationShapePoint(ShapePoint, frozen=True):
    """A point of the shape whose zeros may be left out."""

    utilization: int = 0
    score: int = 0


class VolumeBindingArgs(Args, frozen=True):
    """The plugin's arguments. `shape` counts only with the gate StorageCapacityScoring.

    By default the emptiest storage is best.
    """

    bind_timeout_seconds: int = 600
    shape: tuple[UtilizationShapePoint, ...] = ()


_SHAPE: Final = (UtilizationShapePoint(utilization=0, score=10), UtilizationShapePoint(utilization=100, score=0))


@dataclass
class _Notes:
    """The notes of one cycle. `everywhere`: the answer for all rows, computed once.

    `feasible`: the rows to score; `reserved`: the result of Reserve.
    """

    claims: PodClaims
    everywhere: Everywhere | None = None
    feasible: Mask | None = None
    reserved: Reserved | None = None


class VolumeBinding:
    """The plugin; volumes count in scoring only with the gate StorageCapacityScoring."""

    name = NAME

    def __init__(self, args: VolumeBindingArgs, handle: Handle) -> None:
        self._handle = handle
        self._assumed = handle.volumes
        self._reader = ClaimReader(handle.world, self._assumed)
        self._shape = (args.shape or _SHAPE) if handle.switches.of(PluginSwitches).scores_capacity else None
        self._binder = VolumeBinder(handle.world, handle.cache, float(args.bind_timeout_seconds))
        handle.world.on_change(PersistentVolume, self._assumed.volumes.on_change)
        handle.world.on_change(PersistentVolumeClaim, self._assumed.claims.on_change)

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> PreFilterResult | Status:
        """Skip pods without claims; reject pods whose claims cannot be used yet."""
        if not pod.claims:
            return SKIP
        claims = self._reader.of_pod(pod)
        if isinstance(claims, Status):
            return claims
        state.data[NAME] = _Notes(claims)
        return SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Reject a node that cannot reach a bound volume, or where a waiting claim gets none."""
        if node.node is None:
            return SUCCESS
        reasons = find(_notes(state).claims, node.node).reasons
        return unresolvable(*reasons) if reasons else SUCCESS

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None:
        """Return the rows where all claims are satisfied."""
        notes = _notes(state)
        notes.everywhere = find_everywhere(notes.claims, columns)
        return notes.everywhere.passed if notes.everywhere.refused else None

    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Return the refusals; a node may be refused for several reasons."""
        everywhere = _notes(state).everywhere or find_everywhere(_notes(state).claims, columns)
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return [Refusal(reason, refused & mask, code) for reason, mask in everywhere.refused.items()]

    def pre_score(self, state: CycleState, pod: PodInfo, columns: Columns, feasible: Mask) -> Status:
        """Skip unless storage is scored and the pod has waiting claims."""
        notes = state.data.get(NAME)
        if self._shape is None or notes is None or not notes.claims.waiting:
            return SKIP
        notes.feasible = feasible
        return SUCCESS

    def score_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Scores | int:
        """Return how well the storage of each feasible row would be used."""
        notes, scores = _notes(state), np.zeros(columns.capacity)
        if self._shape is None or notes.feasible is None:
            return 0
        for row in np.flatnonzero(notes.feasible):
            node = columns.nodes[row]
            if node is not None and node.node is not None:
                scores[row] = score_of(notes.claims, node.node, self._shape)
        return scores

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Reserve the volumes found for the pod, and the node for claims whose volume is to be provisioned."""
        notes = state.data.get(NAME)
        if notes is None or not notes.claims.waiting:
            return SUCCESS
        info = self._handle.cache.nodes.get(node_name)
        if info is None or info.node is None:
            return error_status(f'node "{node_name}" not found')
        notes.reserved = reserve(find(notes.claims, info.node), node_name, self._assumed)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Undo the reservation, and cancel PreBind if it still waits."""
        notes = state.data.get(NAME)
        if notes is not None and notes.reserved is not None:
            revert(notes.reserved, self._assumed)
            self._binder.cancel(notes.reserved)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Skip when every claim is bound already (KEP-5278)."""
        notes = state.data.get(NAME)
        return SKIP if notes is None or notes.reserved is None else SUCCESS

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str, client: Any) -> Status:
        """Write the reservation and return once all claims are bound, or why they cannot be."""
        reserved = _notes(state).reserved
        assert reserved is not None, f"{pod.key}: PreBind without Reserve"
        return await self._binder.bind(pod, node_name, reserved, client)

    def events_to_register(self) -> Sequence[Registration]:
        """Return the events: storage comes or becomes usable, or a node comes that can reach it."""
        add, change = Action.ADD, Action.ADD | Action.UPDATE
        return (
            Registration(ClusterEvent("StorageClass", change), _class_changed),
            Registration(ClusterEvent("PersistentVolumeClaim", change), claim_changed),
            Registration(ClusterEvent("PersistentVolume", change)),
            Registration(ClusterEvent(NODE, add | Action.UPDATE_NODE_LABEL)),
            Registration(ClusterEvent("CSINode", change), _csi_node_changed),
            Registration(ClusterEvent("CSIDriver", Action.UPDATE), _driver_changed),
            Registration(ClusterEvent("CSIStorageCapacity", change), _capacity_changed),
        )


def _notes(state: CycleState) -> _Notes:
    notes: _Notes = state.data[NAME]
    return notes


def _class_changed(pod: PodInfo, old: StorageClass | None, new: StorageClass | None) -> Hint:
    return queue_if(old is None or (new is not None and new.allowed_topologies != old.allowed_topologies))


def _csi_node_changed(pod: PodInfo, old: CSINode | None, new: CSINode | None) -> Hint:
    if old is None or new is None:
        return queue_if(old is None)
    before, after = (each.metadata.annotations.get(MIGRATED_PLUGINS) for each in (old, new))
    return queue_if(before != after)


def _driver_changed(pod: PodInfo, old: CSIDriver | None, new: CSIDriver | None) -> Hint:
    """Only inline volumes are looked at, as upstream does; others wait for a change of capacity or claim."""
    if old is None or new is None:
        return Hint.SKIP
    is_freed = old.spec.storage_capacity and not new.spec.storage_capacity
    name = new.metadata.name
    return queue_if(is_freed and any(v.csi is not None and v.csi.driver == name for v in pod.spec.volumes))


def _capacity_changed(pod: PodInfo, old: CSIStorageCapacity | None, new: CSIStorageCapacity | None) -> Hint:
    if old is None or new is None:
        return queue_if(old is None)
    before, after = old.limit_bytes, new.limit_bytes
    return queue_if(after is not None and (before is None or after > before))


def _default_args(switches: Switches) -> VolumeBindingArgs:
    return VolumeBindingArgs(shape=_SHAPE if switches.of(PluginSwitches).scores_capacity else ())


PLUGIN = PluginEntry(NAME, VolumeBinding, args=VolumeBindingArgs, default_args=_default_args)
