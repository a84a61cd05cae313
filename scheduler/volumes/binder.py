"""The binder of a pod's volumes: it reserves them, writes the choice, and waits for the volume controllers.

Reserve keeps volumes for the pod's claims, or the decision to provision one on the pod's node. Upstream
polls every second; here the informers' changes of these claims and volumes wake the waiting pod, so that it
goes on as soon as its volumes are bound. Source: upstream
`pkg/scheduler/framework/plugins/volumebinding/binder.go` (`AssumePodVolumes`, `RevertAssumedPodVolumes`,
`BindPodVolumes`, `checkBindings`).
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import PodInfo
from scheduler.framework.status import SUCCESS, Status, error_status
from scheduler.framework.world import World
from scheduler.volumes.claims import AssumedVolumes
from scheduler.volumes.finder import VolumeMatch
from scheduler.volumes.reach import reaches
from services.api.errors import ApiError, UnknownOutcome
from services.api.kinds.node import Node
from services.api.kinds.persistentvolume import BOUND_BY_CONTROLLER, PersistentVolume
from services.api.kinds.persistentvolumeclaim import SELECTED_NODE, PersistentVolumeClaim
from services.api.meta import Key, ObjectReference
from services.reconcile.controller import Change


@dataclass
class Reserved:
    """The reserved volumes of one pod.

    `bindings`: the volume as it was, as it will be bound (the same when nothing has to be written), and its
    claim. `to_provision`: claims with the node chosen for them. `is_cancelled`: the binding cycle was given up.
    """

    bindings: tuple[tuple[PersistentVolume, PersistentVolume, PersistentVolumeClaim], ...]
    to_provision: tuple[PersistentVolumeClaim, ...]
    is_cancelled: bool = False

    @property
    def claims(self) -> tuple[Key, ...]:
        """The claims of the reservation."""
        claims = (*(claim for _, _, claim in self.bindings), *self.to_provision)
        return tuple(claim.metadata.key for claim in claims)


def reserve(volume_match: VolumeMatch, node_name: str, assumed: AssumedVolumes) -> Reserved:
    """Reserve the node's offer, so that the next pod does not get the same."""
    bindings = []
    for volume, claim in volume_match.bindings:
        bound = _bound_to(volume, claim)
        if bound is not volume:
            assumed.volumes.assume(bound)
        bindings.append((volume, bound, claim))
    to_provision = []
    for claim in volume_match.to_provision:
        meta = msgspec.structs.replace(
            claim.metadata, annotations={**claim.metadata.annotations, SELECTED_NODE: node_name}
        )
        chosen = msgspec.structs.replace(claim, metadata=meta)
        assumed.claims.assume(chosen)
        to_provision.append(chosen)
    return Reserved(tuple(bindings), tuple(to_provision))


def revert(reserved: Reserved, assumed: AssumedVolumes) -> None:
    """Undo the reservation; objects that were written stay so."""
    for before, bound, _ in reserved.bindings:
        if bound is not before:
            assumed.volumes.drop(bound.metadata.key)
    for claim in reserved.to_provision:
        assumed.claims.drop(claim.metadata.key)


def _bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    reference = volume.spec.claim_ref
    if reference is not None and reference.uid == claim.metadata.uid:
        return volume
    meta = volume.metadata
    if reference is None:
        # Chosen by us and not by a person: then the binder may also take it back.
        meta = msgspec.structs.replace(meta, annotations={**meta.annotations, BOUND_BY_CONTROLLER: "yes"})
    key = claim.metadata
    wanted = ObjectReference(kind="PersistentVolumeClaim", namespace=key.namespace, name=key.name, uid=key.uid)
    return msgspec.structs.replace(volume, metadata=meta, spec=msgspec.structs.replace(volume.spec, claim_ref=wanted))


@dataclass(frozen=True)
class VolumeWrite:
    """A write for a pod: a volume and its claim, or a claim to be provisioned; `rv`: the written version."""

    key: Key
    rv: int
    claim: Key | None = None


def progress(world: World, node: Node, begun: list[VolumeWrite]) -> tuple[bool, str]:
    """Return whether all is bound, and otherwise why it cannot be any more ("": not yet)."""
    steps = (
        _making(world, node, each) if each.claim is None else _binding(world, node, each, each.claim) for each in begun
    )
    return next(((False, problem) for is_done, problem in steps if problem or not is_done), (True, ""))


def _binding(world: World, node: Node, written: VolumeWrite, key: Key) -> tuple[bool, str]:
    volume, claim = world.get(PersistentVolume, written.key), world.get(PersistentVolumeClaim, key)
    if volume is None:
        return False, f'failed to check binding: persistentvolume "{written.key}" not found'
    if claim is None:
        return False, f'failed to check binding: persistentvolumeclaim "{key}" not found'
    if volume.metadata.rv < written.rv:
        return False, ""
    if not reaches(volume, node):
        return False, _out_of_reach(volume, node)
    reference = volume.spec.claim_ref
    if reference is None or not reference.uid:
        return False, f'ClaimRef got reset for pv "{volume.metadata.name}"'
    return claim.is_fully_bound, ""


def _making(world: World, node: Node, written: VolumeWrite) -> tuple[bool, str]:
    claim = world.get(PersistentVolumeClaim, written.key)
    if claim is None:
        return False, f'failed to check provisioning pvc: persistentvolumeclaim "{written.key}" not found'
    if claim.metadata.rv < written.rv:
        return False, ""
    if claim.selected_node != node.metadata.name:
        # A provisioner says so that it cannot make one there.
        return False, f'provisioning failed for PVC "{claim.metadata.name}"'
    if claim.spec.volume_name:
        volume = world.get(PersistentVolume, Key("", claim.spec.volume_name))
        if volume is None:
            return False, ""
        if not reaches(volume, node):
            return False, _out_of_reach(volume, node)
    return claim.is_fully_bound, ""


def _out_of_reach(volume: PersistentVolume, node: Node) -> str:
    return (
        f'pv "{volume.metadata.name}" node affinity doesn\'t match node "{node.metadata.name}": '
        "no matching NodeSelectorTerms"
    )


class VolumeBinder:
    """The binder of many pods' volumes at once. `timeout_s`: how long volumes may take (`bindTimeoutSeconds`)."""

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
        """Cancel the PreBind that waits for these volumes."""
        reserved.is_cancelled = True
        for key in reserved.claims:
            self._wake(key)

    async def bind(self, pod: PodInfo, node_name: str, reserved: Reserved, client: Any) -> Status:
        """Write the reservation, then wait until all is bound; the status says why it cannot be.

        Never raises ApiError: a refused write ends the attempt, and the pod is scheduled again.
        """
        event = asyncio.Event()
        for key in reserved.claims:
            self._waiting.setdefault(key, {})[pod.uid] = event
        try:
            try:
                begun = await self._write(node_name, reserved, client)
            except (ApiError, UnknownOutcome) as error:
                return error_status(str(error))
            async with asyncio.timeout(self._timeout_s):
                return await self._wait(pod, node_name, reserved, begun, event)
        except TimeoutError:
            return error_status("binding volumes: context deadline exceeded")
        finally:
            self._leave(pod.uid, reserved.claims)

    def _leave(self, uid: str, claims: Iterable[Key]) -> None:
        for key in claims:
            waiting = self._waiting.get(key, {})
            waiting.pop(uid, None)
            if not waiting:
                self._waiting.pop(key, None)

    async def _write(self, node_name: str, reserved: Reserved, client: Any) -> list[VolumeWrite]:
        begun: list[VolumeWrite] = []
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
                meta, version = volume.metadata, before.metadata.resource_version
                rv = await client.patch_rv("persistentvolumes", meta.key, patch, uid=meta.uid, resource_version=version)
            begun.append(VolumeWrite(volume.metadata.key, rv, claim.metadata.key))
        for claim in reserved.to_provision:
            meta = claim.metadata
            patch = {"metadata": {"annotations": {SELECTED_NODE: node_name}}}
            rv = await client.patch_rv(
                "persistentvolumeclaims", meta.key, patch, uid=meta.uid, resource_version=meta.resource_version
            )
            begun.append(VolumeWrite(meta.key, rv))
        return begun

    async def _wait(
        self, pod: PodInfo, node_name: str, reserved: Reserved, begun: list[VolumeWrite], event: asyncio.Event
    ) -> Status:
        while True:
            event.clear()
            if reserved.is_cancelled:
                return error_status(f'binding volumes: pod does not exist any more: pod "{pod.key.name}" not found')
            info = self._cache.nodes.get(node_name)
            if info is None or info.node is None:
                return error_status(f'binding volumes: failed to get node "{node_name}": node "{node_name}" not found')
            is_done, problem = progress(self._world, info.node, begun)
            if is_done:
                return SUCCESS
            if problem:
                return error_status(f"binding volumes: {problem}")
            await event.wait()
