"""Writes what was chosen for a pod's volumes, and waits until the volume controllers have made it true.

Upstream looks again every second; here the informers' changes of the claims and volumes in question wake the one that
waits, so that a pod goes on as soon as its volumes are bound.
Source: upstream `pkg/scheduler/framework/plugins/volumebinding/binder.go` (`BindPodVolumes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import PodInfo
from scheduler.framework.status import SUCCESS, Status, failed
from scheduler.framework.world import World
from scheduler.volumes.binding_progress import Begun, progress
from scheduler.volumes.reservation import Reserved
from services.api.errors import ApiError, UnknownOutcome
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import SELECTED_NODE, PersistentVolumeClaim
from services.api.meta import Key
from services.reconcile.controller import Change


class VolumeBinder:
    """Many pods' volumes at once. `timeout_s`: how long volumes may take (`bindTimeoutSeconds`)."""

    def __init__(self, world: World, cache: Cache, timeout_s: float) -> None:
        self._world = world
        self._cache = cache
        self._timeout_s = timeout_s
        self._waiting: dict[Key, dict[str, asyncio.Event]] = {}
        world.on_change(PersistentVolumeClaim, self._claim_changed)
        world.on_change(PersistentVolume, self._volume_changed)

    def _claim_changed(self, change: Change[PersistentVolumeClaim]) -> None:
        self._wake(change.object.metadata.key)

    def _volume_changed(self, change: Change[PersistentVolume]) -> None:
        if not self._waiting:
            return
        for side in (change.old, change.new):
            reference = side.spec.claim_ref if side is not None else None
            if reference is not None:
                self._wake(Key(reference.namespace, reference.name))

    def _wake(self, claim: Key) -> None:
        for event in self._waiting.get(claim, {}).values():
            event.set()

    def cancel(self, reserved: Reserved) -> None:
        """Have the PreBind that waits for these volumes give up."""
        reserved.is_cancelled = True
        for key in reserved.claims:
            self._wake(key)

    async def bind(self, pod: PodInfo, node_name: str, reserved: Reserved, client: Any) -> Status:
        """Write, then wait until all is bound; the status says why it never will be.

        Never raises ApiError: a refused write ends the attempt, and the pod is scheduled again.
        """
        event = asyncio.Event()
        for key in reserved.claims:
            self._waiting.setdefault(key, {})[pod.uid] = event
        try:
            try:
                bindings, to_provision = await self._write(pod, node_name, reserved, client)
            except (ApiError, UnknownOutcome) as error:
                return failed(str(error))
            async with asyncio.timeout(self._timeout_s):
                return await self._wait(node_name, reserved, bindings, to_provision, event)
        except TimeoutError:
            return failed("binding volumes: context deadline exceeded")
        finally:
            self._leave(pod.uid, reserved.claims)

    def _leave(self, uid: str, claims: Iterable[Key]) -> None:
        for key in claims:
            waiting = self._waiting.get(key, {})
            waiting.pop(uid, None)
            if not waiting:
                self._waiting.pop(key, None)

    async def _write(
        self, pod: PodInfo, node_name: str, reserved: Reserved, client: Any
    ) -> tuple[list[tuple[Begun, Key]], list[Begun]]:
        bindings: list[tuple[Begun, Key]] = []
        for before, volume, claim in reserved.bindings:
            rv = before.metadata.rv
            if volume is not before:
                reference = volume.spec.claim_ref
                assert reference is not None
                wanted = {
                    "kind": "PersistentVolumeClaim",
                    "apiVersion": "v1",
                    "namespace": reference.namespace,
                    "name": reference.name,
                    "uid": reference.uid,
                }
                patch = {"metadata": {"annotations": dict(volume.metadata.annotations)}, "spec": {"claimRef": wanted}}
                rv = await client.patch_rv(
                    "persistentvolumes",
                    volume.metadata.key,
                    patch,
                    uid=volume.metadata.uid,
                    resource_version=before.metadata.resource_version,
                )
            bindings.append((Begun(volume.metadata.key, rv), claim.metadata.key))
        to_provision: list[Begun] = []
        for claim in reserved.to_provision:
            meta = claim.metadata
            patch = {"metadata": {"annotations": {SELECTED_NODE: node_name}}}
            rv = await client.patch_rv(
                "persistentvolumeclaims", meta.key, patch, uid=meta.uid, resource_version=meta.resource_version
            )
            to_provision.append(Begun(meta.key, rv))
        return bindings, to_provision

    async def _wait(
        self,
        node_name: str,
        reserved: Reserved,
        bindings: list[tuple[Begun, Key]],
        to_provision: list[Begun],
        event: asyncio.Event,
    ) -> Status:
        while True:
            event.clear()
            if reserved.is_cancelled:
                return failed("binding volumes: pod does not exist any more")
            info = self._cache.nodes.get(node_name)
            if info is None or info.node is None:
                return failed(f'binding volumes: failed to get node "{node_name}": node "{node_name}" not found')
            is_done, problem = progress(self._world, info.node, bindings, to_provision)
            if is_done:
                return SUCCESS
            if problem:
                return failed(f"binding volumes: {problem}")
            await event.wait()
