"""A pod's claims, sorted by what is left to do: nothing, choose a volume, or wait for a controller.

The scheduler's assumptions about volumes and claims take precedence over the informers until the API server
confirms them. An assumption holds for the version it was made from: as soon as the informer shows a newer
one, that counts, our own write included. All profiles share the assumptions, so that two pods never get one
volume.

Source: upstream `pkg/scheduler/framework/plugins/volumebinding/binder.go` (`GetPodVolumeClaims`),
`staging/src/k8s.io/component-helpers/storage/ephemeral`; upstream `pkg/scheduler/util/assumecache`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from scheduler.cache.node_info import PodInfo
from scheduler.framework.events import Hint, queue_if
from scheduler.framework.status import Status, unresolvable
from scheduler.framework.world import World
from services.api.kinds.csidriver import CSIDriver
from services.api.kinds.csistoragecapacity import CSIStorageCapacity
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import LOST, PersistentVolumeClaim
from services.api.kinds.pod import Volume
from services.api.kinds.storageclass import StorageClass
from services.api.meta import Key, View
from services.api.volume_matching import candidates
from services.reconcile.controller import Change

V = TypeVar("V", PersistentVolume, PersistentVolumeClaim)


class Beliefs(Generic[V]):
    """Assumed forms of objects of one kind, by key."""

    def __init__(self) -> None:
        self._assumed: dict[Key, V] = {}

    def __len__(self) -> int:
        return len(self._assumed)

    def assume(self, item: V) -> None:
        """Assume this form of the object; its version must be the one it was made from."""
        self._assumed[item.metadata.key] = item

    def drop(self, key: Key) -> None:
        """Drop the assumed form: the informer's counts again."""
        self._assumed.pop(key, None)

    def of(self, known: V) -> V:
        """Return the assumed form of an object that the informer shows as `known`."""
        if not self._assumed:
            return known
        assumed = self._assumed.get(known.metadata.key)
        if assumed is None:
            return known
        if (known.metadata.uid, known.metadata.rv) == (assumed.metadata.uid, assumed.metadata.rv):
            return assumed
        del self._assumed[known.metadata.key]
        return known

    def on_change(self, change: Change[V]) -> None:
        """Take a change of the informer: a newer version, or the object's deletion, ends the assumption."""
        if not self._assumed:
            return
        key = change.object.metadata.key
        assumed = self._assumed.get(key)
        if assumed is not None and (change.new is None or change.new.metadata.rv > assumed.metadata.rv):
            del self._assumed[key]


@dataclass(frozen=True)
class AssumedVolumes:
    """Assumed volumes (with their claims) and claims (with their chosen nodes)."""

    volumes: Beliefs[PersistentVolume] = field(default_factory=Beliefs)
    claims: Beliefs[PersistentVolumeClaim] = field(default_factory=Beliefs)


class VolumeIndex:
    """The volumes that a claim could have, indexed because most volumes are bound for good.

    It follows the informer: unbound volumes by class, and the others by the claim they name.
    """

    def __init__(self, world: World) -> None:
        self._volumes: dict[str | Key, dict[str, PersistentVolume]] = {}
        for volume in world.all(PersistentVolume):
            self._on_change(Change(None, volume))
        world.on_change(PersistentVolume, self._on_change)

    def for_claim(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """Return the free volumes of the claim's class and those that name the claim."""
        free, reserved = (self._volumes.get(place, {}) for place in (claim.storage_class, claim.metadata.key))
        return [*free.values(), *(each for each in reserved.values() if each.storage_class == claim.storage_class)]

    def _on_change(self, change: Change[PersistentVolume]) -> None:
        if change.old is not None:
            place = _place(change.old)
            left = self._volumes.get(place, {})
            left.pop(change.old.metadata.name, None)
            if not left:
                self._volumes.pop(place, None)
        if change.new is not None:
            self._volumes.setdefault(_place(change.new), {})[change.new.metadata.name] = change.new


def _place(volume: PersistentVolume) -> str | Key:
    reference = volume.spec.claim_ref
    return volume.storage_class if reference is None else Key(reference.namespace, reference.name)


UNBOUND_IMMEDIATE: Final = "pod has unbound immediate PersistentVolumeClaims"


@dataclass(frozen=True)
class Provisioning:
    """The way to provision a volume for a claim. `capacities` None: no driver publishes free capacity."""

    storage_class: StorageClass
    capacities: tuple[CSIStorageCapacity, ...] | None


@dataclass
class PodClaims:
    """A pod's claims. `bound`: with their volumes, None for a missing volume, in the pod's order.

    `waiting` claims have no volume and wait for this pod, the smallest first; `offers` are the volumes each
    could have and `to_provision` how one could be provisioned, both by the claim's uid.
    """

    bound: list[tuple[PersistentVolumeClaim, PersistentVolume | None]] = field(default_factory=list)
    waiting: list[PersistentVolumeClaim] = field(default_factory=list)
    offers: dict[str, Sequence[PersistentVolume]] = field(default_factory=dict)
    to_provision: dict[str, Provisioning] = field(default_factory=dict)


class ClaimReader:
    """Reads claims, volumes and classes from the informers, corrected by assumptions."""

    def __init__(self, world: World, assumed: AssumedVolumes) -> None:
        self._world = world
        self._assumed = assumed
        self._volumes = VolumeIndex(world)

    def claim(self, key: Key) -> PersistentVolumeClaim | None:
        """Return the assumed form of the claim."""
        known = self._world.get(PersistentVolumeClaim, key)
        return None if known is None else self._assumed.claims.of(known)

    def volume(self, name: str) -> PersistentVolume | None:
        """Return the assumed form of the volume."""
        known = self._world.get(PersistentVolume, Key("", name))
        return None if known is None else self._assumed.volumes.of(known)

    def storage_class(self, name: str) -> StorageClass | None:
        """Return the class."""
        return self._world.get(StorageClass, Key("", name))

    def of_pod(self, pod: PodInfo) -> PodClaims | Status:
        """Return the pod's claims, or an unresolvable rejection if they cannot be used now."""
        pod_claims = PodClaims()
        immediate = False
        for volume in pod.spec.volumes:
            name = volume.claim_name(pod.key.name)
            if not name:
                continue
            claim = self.claim(Key(pod.key.namespace, name))
            if claim is None:
                return unresolvable(missing_claim(volume, name))
            problem = unusable(pod, volume, claim)
            if problem:
                return unresolvable(problem)
            if claim.is_fully_bound:
                pod_claims.bound.append((claim, self.volume(claim.spec.volume_name)))
                continue
            storage_class = self.storage_class(claim.storage_class) if claim.storage_class else None
            # Without its class a claim waits for nothing, as upstream reads it; the class's coming wakes the pod.
            if storage_class is None or not storage_class.is_waiting or claim.spec.volume_name:
                immediate = True
            elif all(each.metadata.uid != claim.metadata.uid for each in pod_claims.waiting):
                pod_claims.waiting.append(claim)
                pod_claims.to_provision[claim.metadata.uid] = self._making(claim, storage_class)
        if immediate:
            return unresolvable(UNBOUND_IMMEDIATE)
        self._offer(pod_claims)
        return pod_claims

    def _offer(self, found: PodClaims) -> None:
        """Find the volumes that the waiting claims could have."""
        found.waiting.sort(key=lambda claim: claim.requested_bytes)
        for claim in found.waiting:
            if not claim.selected_node:
                known = (self._assumed.volumes.of(volume) for volume in self._volumes.for_claim(claim))
                found.offers[claim.metadata.uid] = candidates(claim, known)

    def _making(self, claim: PersistentVolumeClaim, storage_class: StorageClass) -> Provisioning:
        driver = self._world.get(CSIDriver, Key("", storage_class.provisioner))
        if driver is None or not driver.spec.storage_capacity:
            return Provisioning(storage_class, None)
        size, name = claim.requested_bytes, storage_class.metadata.name
        enough = (
            each
            for each in self._world.all(CSIStorageCapacity)
            if each.storage_class_name == name and each.limit_bytes is not None and each.limit_bytes >= size
        )
        return Provisioning(storage_class, tuple(enough))


def claim_changed(pod: PodInfo, old: View | None, new: PersistentVolumeClaim | None) -> Hint:
    """Return the hint for a claim that came or changed: it may help the pods that use it."""
    return queue_if(new is not None and new.metadata.key in pod.claims)


def missing_claim(volume: Volume, name: str) -> str:
    """Return the message about a claim that does not exist."""
    if volume.ephemeral is not None:
        return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
    return f'persistentvolumeclaim "{name}" not found'


def unusable(pod: PodInfo, volume: Volume, claim: PersistentVolumeClaim) -> str:
    """Return why a pod cannot use an existing claim, or ""."""
    meta = claim.metadata
    if claim.status.phase == LOST:
        return f'persistentvolumeclaim "{meta.name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if meta.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{meta.name}" is being deleted'
    if volume.ephemeral is not None and (meta.controller is None or meta.controller.uid != pod.uid):
        return f"PVC {meta.key} was not created for pod {pod.key} (pod is not owner)"
    return ""
