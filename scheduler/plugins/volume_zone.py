"""PreFilter, Filter: volumes with zone or region labels keep their pods in that zone or region.

The labels were in use before volumes had node affinity; both spellings of the keys count. Source: upstream
`pkg/scheduler/framework/plugins/volumezone`.
"""

from collections.abc import Sequence
from typing import Final

from scheduler.cache.cache import REGION, ZONE
from scheduler.cache.columns import Columns, Mask
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import NODE, Action, ClusterEvent, Hint, Registration, queue_if
from scheduler.framework.plugin import PreFilterResult
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, unresolvable
from scheduler.framework.vectorized import Refusal
from scheduler.volumes.claims import claim_changed
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.storageclass import StorageClass
from services.api.meta import Key, View

NAME: Final = "VolumeZone"
REASON: Final = "node(s) had no available volume zone"
GA_OF: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    ZONE: ZONE,
    REGION: REGION,
}
"""The label keys that count, each with its present spelling."""
SEPARATOR: Final = "__"
"""The separator between the zones of a volume that is in several."""

Place = tuple[str, frozenset[str]]
"""A label key and its allowed values."""


def places_of(volume: PersistentVolume) -> list[Place]:
    """Return the volume's label keys and allowed values; a malformed label is ignored."""
    places: list[Place] = []
    for key in GA_OF:
        text = volume.metadata.labels.get(key)
        zones = [zone.strip() for zone in text.split(SEPARATOR)] if text is not None else []
        if zones and all(zones):
            places.append((key, frozenset(zones)))
    return places


class VolumeZone:
    """The plugin: it checks bound claims; claims that wait for a node have no zone yet."""

    name = NAME

    def __init__(self, args: Args, handle: Handle) -> None:
        self._world = handle.world

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> PreFilterResult | Status:
        """Skip pods whose volumes have no zone; reject pods whose volumes do not exist."""
        if not pod.claims:
            return SKIP
        places: list[Place] = []
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is None:
                continue
            claim_places = self._places(Key(pod.key.namespace, volume.persistent_volume_claim.claim_name))
            if isinstance(claim_places, Status):
                return claim_places
            places += claim_places
        if not places:
            return SKIP
        state.data[NAME] = places
        return SUCCESS

    def _places(self, key: Key) -> list[Place] | Status:
        claim = self._world.get(PersistentVolumeClaim, key)
        if claim is None:
            return unresolvable(f'persistentvolumeclaim "{key.name}" not found')
        if not claim.spec.volume_name:
            return self._unbound(claim)
        volume = self._world.get(PersistentVolume, Key("", claim.spec.volume_name))
        if volume is None:
            return unresolvable(f'persistentvolume "{claim.spec.volume_name}" not found')
        return places_of(volume)

    def _unbound(self, claim: PersistentVolumeClaim) -> list[Place] | Status:
        name = claim.storage_class
        if not name:
            return unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
        storage_class = self._world.get(StorageClass, Key("", name))
        if storage_class is None:
            return unresolvable(f'storageclass.storage.k8s.io "{name}" not found')
        return [] if storage_class.is_waiting else unresolvable("PersistentVolume had no name")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Reject a node in another zone; a node without zone labels may take every volume."""
        labels = node.labels
        if not any(key in labels for key in GA_OF):
            return SUCCESS
        places: list[Place] = state.data[NAME]
        for key, values in places:
            value = labels.get(key, labels.get(GA_OF[key]))
            if value is None or value not in values:
                return unresolvable(REASON)
        return SUCCESS

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None:
        """Return the rows of the right zones, and those without zone labels."""
        places: list[Place] = state.data[NAME]
        mask = columns.full(True)
        for key, values in places:
            allowed = columns.label_mask(key, values.__contains__)
            if GA_OF[key] != key:
                without = columns.label_ids(key)[0] == 0
                allowed |= without & columns.label_mask(GA_OF[key], values.__contains__)
            mask &= allowed
        nowhere = columns.full(True)
        for key in GA_OF:
            nowhere &= columns.label_ids(key)[0] == 0
        return mask | nowhere

    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Return the one reason for all refused rows."""
        return [Refusal(REASON, refused, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)]

    def events_to_register(self) -> Sequence[Registration]:
        """Return the events: a claim, its volume or a node in the right zone comes."""
        change = Action.ADD | Action.UPDATE
        return (
            Registration(ClusterEvent("StorageClass", Action.ADD), _class_added),
            Registration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_LABEL)),
            Registration(ClusterEvent("PersistentVolumeClaim", change), claim_changed),
            Registration(ClusterEvent("PersistentVolume", change), _volume_changed),
        )


def _class_added(pod: PodInfo, old: View | None, new: StorageClass | None) -> Hint:
    return queue_if(new is not None and new.is_waiting)


def _volume_changed(pod: PodInfo, old: PersistentVolume | None, new: PersistentVolume | None) -> Hint:
    return queue_if(old is None or new is None or places_of(old) != places_of(new))


PLUGIN = PluginEntry(NAME, VolumeZone)
