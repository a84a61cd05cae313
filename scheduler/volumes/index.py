"""The volumes a claim could have, found without looking at all there are: most are bound for good."""

from __future__ import annotations

from scheduler.framework.world import World
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.meta import Key
from services.reconcile.controller import Change


class VolumeIndex:
    """Follows the informer: unbound volumes by class, and the others by the claim they name."""

    def __init__(self, world: World) -> None:
        self._free: dict[str, dict[str, PersistentVolume]] = {}
        self._reserved: dict[Key, dict[str, PersistentVolume]] = {}
        for volume in world.all(PersistentVolume):
            self._add(volume)
        world.on_change(PersistentVolume, self._on_change)

    def for_claim(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """Return the free volumes of the claim's class and those that name the claim."""
        free = self._free.get(claim.storage_class, {})
        reserved = self._reserved.get(claim.metadata.key, {})
        return [
            *free.values(),
            *(volume for volume in reserved.values() if volume.storage_class == claim.storage_class),
        ]

    def _on_change(self, change: Change[PersistentVolume]) -> None:
        if change.old is not None:
            self._drop(change.old)
        if change.new is not None:
            self._add(change.new)

    def _add(self, volume: PersistentVolume) -> None:
        reference = volume.spec.claim_ref
        if reference is None:
            self._free.setdefault(volume.storage_class, {})[volume.metadata.name] = volume
        else:
            key = Key(reference.namespace, reference.name)
            self._reserved.setdefault(key, {})[volume.metadata.name] = volume

    def _drop(self, volume: PersistentVolume) -> None:
        reference, name = volume.spec.claim_ref, volume.metadata.name
        if reference is None:
            self._free.get(volume.storage_class, {}).pop(name, None)
            return
        key = Key(reference.namespace, reference.name)
        left = self._reserved.get(key, {})
        left.pop(name, None)
        if not left:
            self._reserved.pop(key, None)
