"""PreFilter, Filter: the number of volumes of each driver that a node can still attach.

The limits are in the node's CSINode; attached are the volumes of the pods on it, each once. A volume that
is not provisioned yet counts for the driver of its class. Volumes of drivers that once were part of
Kubernetes count for the driver that took over, on nodes whose CSINode says so. Source: upstream
`pkg/scheduler/framework/plugins/nodevolumelimits/csi.go`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from scheduler.cache.columns import Columns, Floats, Mask
from scheduler.cache.node_info import NodeInfo, PodInfo, volume_claims
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import ASSIGNED_POD, Action, ClusterEvent, Hint, Registration, queue_if
from scheduler.framework.plugin import PreFilterResult
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, unresolvable, unschedulable
from scheduler.framework.vectorized import Refusal
from scheduler.volumes.claims import claim_changed
from services.api.kinds.csinode import MIGRATED_PLUGINS, CSINode
from services.api.kinds.persistentvolume import PersistentVolume, PersistentVolumeSpec
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.pod import Pod, Volume
from services.api.kinds.storageclass import StorageClass
from services.api.meta import Key, View
from services.reconcile.controller import Change

NAME: Final = "NodeVolumeLimits"
REASON: Final = "node(s) exceed max volume count"
DRIVER_OF: Final = {
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}
"""Plugins that once were part of Kubernetes, and the drivers that took over."""
HANDLE_OF: Final = {
    "kubernetes.io/gce-pd": ("gce_persistent_disk", "pd_name"),
    "kubernetes.io/aws-ebs": ("aws_elastic_block_store", "volume_id"),
    "kubernetes.io/azure-disk": ("azure_disk", "disk_uri"),
    "kubernetes.io/cinder": ("cinder", "volume_id"),
    "kubernetes.io/vsphere-volume": ("vsphere_volume", "volume_path"),
}
"""The source of those plugins' volumes in a pod or a PersistentVolume, and the field with the volume's name."""


class Attachable(NamedTuple):
    """A volume that a driver attaches. `plugin` is set when it counts only on nodes that migrated the plugin."""

    driver: str
    handle: str
    plugin: str = ""


@dataclass
class _Notes:
    """The notes of one cycle: the pod's attachable volumes, and a claim that does not exist."""

    wanted: list[Attachable]
    missing: str = ""


class _Limits(NamedTuple):
    by_driver: dict[str, int]
    migrated: frozenset[str]


class _FreeSlots:
    """The nodes' limits as columns, one per driver, valid until rows come or go."""

    def __init__(self) -> None:
        self._known_as: tuple[int, int] = (-1, -1)
        self._by_driver: dict[str, Floats] = {}

    def of(self, columns: Columns, limits: Mapping[str, _Limits], drivers: Iterable[str]) -> Floats:
        """Return each row's lowest limit of these drivers, infinite without one. Where plugins have migrated, volumes
        without a claim count too: there it is -1, so that no caller relies on it."""
        if self._known_as != (columns.epoch, columns.layout):
            self._known_as, self._by_driver = (columns.epoch, columns.layout), {}
        lowest = np.full(columns.capacity, np.inf)
        for driver in drivers:
            if driver not in self._by_driver:
                column = self._by_driver[driver] = np.full(columns.capacity, np.inf)
                for name, limit in limits.items():
                    row = columns.slots.get(name)
                    if row is not None and driver in limit.by_driver:
                        column[row] = -1 if limit.migrated else limit.by_driver[driver]
            lowest = np.minimum(lowest, self._by_driver[driver])
        return lowest


def limits_of(node: CSINode) -> dict[str, int]:
    """Return how many volumes each driver can attach on the node; a driver without a limit is left out."""
    return {
        driver.name: driver.allocatable.count
        for driver in node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


class NodeVolumeLimits:
    """The plugin: it caches the limits of all nodes; a node without limits is never refused."""

    name = NAME

    def __init__(self, args: Args, handle: Handle) -> None:
        self._world = handle.world
        self._limits: dict[str, _Limits] = {}
        self._free_slots = _FreeSlots()
        for node in handle.world.all(CSINode):
            self._csi_node_changed(Change(None, node))
        handle.world.on_change(CSINode, self._csi_node_changed)

    def _csi_node_changed(self, change: Change[CSINode]) -> None:
        node, name = change.new, change.object.metadata.name
        self._free_slots = _FreeSlots()
        by_driver = limits_of(node) if node is not None else {}
        if node is None or not by_driver:
            self._limits.pop(name, None)
            return
        plugins = node.metadata.annotations.get(MIGRATED_PLUGINS, "").split(",")
        self._limits[name] = _Limits(by_driver, frozenset(plugins) & frozenset(DRIVER_OF))

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> PreFilterResult | Status:
        """Skip pods without attachable volumes."""
        if not pod.spec.volumes:
            return SKIP
        notes = _Notes(_inline(pod.spec.volumes))
        for key in pod.claims:
            claim = self._world.get(PersistentVolumeClaim, key)
            if claim is not None:
                notes.wanted += self._of_claim(claim)
            else:
                notes.missing = f'looking up PVC {key}: persistentvolumeclaim "{key.name}" not found'
        if not notes.wanted and not notes.missing:
            return SKIP
        state.data[NAME] = notes
        return SUCCESS

    def _of_claim(self, claim: PersistentVolumeClaim) -> list[Attachable]:
        name = claim.spec.volume_name
        volume = self._world.get(PersistentVolume, Key("", name)) if name else None
        if volume is not None:
            csi = volume.spec.csi
            return _migratable(volume.spec) if csi is None else [Attachable(csi.driver, csi.volume_handle)]
        storage_class = self._world.get(StorageClass, Key("", claim.storage_class)) if claim.storage_class else None
        if storage_class is None:
            return []
        # Not made yet: its claim stands for it, and cannot be mistaken for a handle, which the driver chooses.
        provisioner, handle = storage_class.provisioner, f"claim/{claim.metadata.key}"
        if provisioner in DRIVER_OF:
            return [Attachable(DRIVER_OF[provisioner], handle, provisioner)]
        return [Attachable(provisioner, handle)]

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Reject a node where a driver would exceed its limit."""
        notes: _Notes = state.data[NAME]
        if notes.missing:
            return unresolvable(notes.missing)
        return SUCCESS if self._fits(notes.wanted, node) else unschedulable(REASON)

    def _fits(self, wanted: Iterable[Attachable], node: NodeInfo) -> bool:
        limits = self._limits.get(node.name)
        if limits is None:
            return True
        attached = self._attached_volumes(node, limits.migrated)
        count: dict[str, int] = {}
        for volume in attached:
            count[volume.driver] = count.get(volume.driver, 0) + 1
        for volume in dict.fromkeys(wanted):
            if volume in attached or (volume.plugin and volume.plugin not in limits.migrated):
                continue
            count[volume.driver] = count.get(volume.driver, 0) + 1
            if count[volume.driver] > limits.by_driver.get(volume.driver, count[volume.driver]):
                return False
        return True

    def _attached_volumes(self, node: NodeInfo, migrated: frozenset[str]) -> dict[Attachable, None]:
        volumes: dict[Attachable, None] = {}
        for key in node.claims:
            claim = self._world.get(PersistentVolumeClaim, key)
            if claim is not None:
                volumes.update(dict.fromkeys(self._of_claim(claim)))
        if migrated:
            for pod in node.pods.values():
                if pod.spec.volumes:
                    volumes.update(dict.fromkeys(_inline(pod.spec.volumes)))
        return {each: None for each in volumes if not each.plugin or each.plugin in migrated}

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None:
        """Return the rows that can attach all volumes; only nodes near a limit are counted exactly."""
        notes: _Notes = state.data[NAME]
        if notes.missing:
            return columns.full(False)
        wanted = notes.wanted
        free = self._free_slots.of(columns, self._limits, dict.fromkeys(each.driver for each in wanted))
        # All claims of a node together are at least as many as the volumes of one driver.
        near = columns.claim_count + len(wanted) > free
        nodes = ((row, columns.nodes[row]) for row in near.nonzero()[0].tolist())
        refused = [row for row, node in nodes if node is not None and not self._fits(wanted, node)]
        if not refused:
            return None
        mask = columns.full(True)
        mask[refused] = False
        return mask

    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Return the refusals; a claim that does not exist is not one of limits."""
        notes: _Notes = state.data[NAME]
        if notes.missing:
            return [Refusal(notes.missing, refused, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)]
        return [Refusal(REASON, refused)]

    def events_to_register(self) -> Sequence[Registration]:
        """Return the events: a pod with volumes goes, a node's limits grow, or the claim comes."""
        return (
            Registration(ClusterEvent("CSINode", Action.ADD | Action.UPDATE), _limit_raised),
            Registration(ClusterEvent(ASSIGNED_POD, Action.DELETE), _pod_gone),
            Registration(ClusterEvent("PersistentVolumeClaim", Action.ADD), claim_changed),
        )


def _inline(volumes: Iterable[Volume]) -> list[Attachable]:
    """Return what pods attach without a claim."""
    return [found for each in volumes for found in _migratable(each)]


def _migratable(spec: Volume | PersistentVolumeSpec) -> list[Attachable]:
    sources = ((plugin, getattr(spec, source, None), name) for plugin, (source, name) in HANDLE_OF.items())
    return [Attachable(DRIVER_OF[plugin], getattr(disk, name), plugin) for plugin, disk, name in sources if disk]


def _limit_raised(pod: PodInfo, old: CSINode | None, new: CSINode | None) -> Hint:
    if old is None or new is None:
        return Hint.QUEUE
    before, after = limits_of(old), limits_of(new)
    return queue_if(any(name not in after or after[name] > before[name] for name in before))


def _pod_gone(pod: PodInfo, old: Pod | None, new: View | None) -> Hint:
    return queue_if(old is not None and bool(volume_claims(old) or _inline(old.spec.volumes)))


PLUGIN = PluginEntry(NAME, NodeVolumeLimits)
