"""What a pod's claims are, sorted by what is left to do: nothing, choose a volume, or wait for a controller.

Source: upstream `pkg/scheduler/framework/plugins/volumebinding/binder.go` (`GetPodVolumeClaims`),
`staging/src/k8s.io/component-helpers/storage/ephemeral`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.cache.node_info import PodInfo
from scheduler.framework.status import Status, unresolvable
from scheduler.framework.world import World
from scheduler.volumes.assumed import AssumedVolumes
from scheduler.volumes.index import VolumeIndex
from services.api.kinds.csidriver import CSIDriver
from services.api.kinds.csistoragecapacity import CSIStorageCapacity
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import LOST, PersistentVolumeClaim
from services.api.kinds.pod import Volume
from services.api.kinds.storageclass import StorageClass
from services.api.meta import Key
from services.api.volume_matching import candidates

UNBOUND_IMMEDIATE: Final = "pod has unbound immediate PersistentVolumeClaims"


@dataclass(frozen=True)
class Provisioning:
    """How a volume for a claim could be made. `capacities` None: no driver publishes how much capacity is free."""

    storage_class: StorageClass
    capacities: tuple[CSIStorageCapacity, ...] | None


@dataclass
class PodClaims:
    """A pod's claims. `bound`: with their volumes, None for one that does not exist, in the pod's order.

    `waiting` claims have no volume and wait for this pod, the smallest first; `offers` are the volumes each could
    have and `to_provision` how one could be made, both by the claim's uid.
    """

    bound: list[tuple[PersistentVolumeClaim, PersistentVolume | None]] = field(default_factory=list)
    waiting: list[PersistentVolumeClaim] = field(default_factory=list)
    offers: dict[str, Sequence[PersistentVolume]] = field(default_factory=dict)
    to_provision: dict[str, Provisioning] = field(default_factory=dict)


class ClaimReader:
    """Reads claims, volumes and classes as informers show them, corrected by what is assumed."""

    def __init__(self, world: World, assumed: AssumedVolumes) -> None:
        self._world = world
        self._assumed = assumed
        self._volumes = VolumeIndex(world)

    def claim(self, key: Key) -> PersistentVolumeClaim | None:
        """Return the claim as it is assumed to be."""
        known = self._world.get(PersistentVolumeClaim, key)
        return None if known is None else self._assumed.claims.of(known)

    def volume(self, name: str) -> PersistentVolume | None:
        """Return the volume as it is assumed to be."""
        known = self._world.get(PersistentVolume, Key("", name))
        return None if known is None else self._assumed.volumes.of(known)

    def storage_class(self, name: str) -> StorageClass | None:
        """Return the class."""
        return self._world.get(StorageClass, Key("", name))

    def of_pod(self, pod: PodInfo) -> PodClaims | Status:
        """Return the pod's claims, or why they cannot be used now: an unresolvable no."""
        found = PodClaims()
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
                found.bound.append((claim, self.volume(claim.spec.volume_name)))
                continue
            storage_class = self.storage_class(claim.storage_class) if claim.storage_class else None
            # Without its class a claim waits for nothing, as upstream reads it; the class's coming wakes the pod.
            if storage_class is None or not storage_class.is_waiting or claim.spec.volume_name:
                immediate = True
            elif all(each.metadata.uid != claim.metadata.uid for each in found.waiting):
                found.waiting.append(claim)
                found.to_provision[claim.metadata.uid] = self._making(claim, storage_class)
        if immediate:
            return unresolvable(UNBOUND_IMMEDIATE)
        self._offer(found)
        return found

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


def missing_claim(volume: Volume, name: str) -> str:
    """Return what is said of a claim that does not exist."""
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
