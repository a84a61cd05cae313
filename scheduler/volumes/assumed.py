"""What the scheduler assumes of volumes and claims before the API server confirms it.

A belief holds for the version it was made from: as soon as the informer shows a newer one, that is the truth, our
own write included. All profiles share the beliefs, so that two pods never get one volume.
Source: upstream `pkg/scheduler/util/assumecache`.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.meta import Key
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
        """Return what is assumed of an object that the informer shows as `known`."""
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
        """Follow the informer: a newer version, or the object's end, ends what was assumed of it."""
        if not self._assumed:
            return
        key = change.object.metadata.key
        assumed = self._assumed.get(key)
        if assumed is not None and (change.new is None or change.new.metadata.rv > assumed.metadata.rv):
            del self._assumed[key]


class AssumedVolumes:
    """Assumed volumes (which claim each is for) and claims (which node is chosen for each)."""

    def __init__(self) -> None:
        self.volumes: Beliefs[PersistentVolume] = Beliefs()
        self.claims: Beliefs[PersistentVolumeClaim] = Beliefs()
