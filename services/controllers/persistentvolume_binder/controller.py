"""Bring claims and volumes together, make volumes for claims that find none, and reclaim what is released.

A key names its kind: `claim/data` in a namespace, `volume/pv-1`. A binding has two sides, written in this order, so
that an interrupted binding can go on: the volume's `claimRef`, its phase, the claim's `volumeName` and mark, its
phase. This is the volume controller and an external provisioner in one; making a volume takes `volumes.provision_s`.
Source: upstream `pkg/controller/volume/persistentvolume`, sig-storage-lib-external-provisioner.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.api.kinds.csinode import CSINode
from services.api.kinds.node import Node
from services.api.kinds.persistentvolume import (
    AVAILABLE,
    BOUND,
    BOUND_BY_CONTROLLER,
    FAILED,
    PROVISIONED_BY,
    RELEASED,
    PersistentVolume,
)
from services.api.kinds.persistentvolumeclaim import (
    BIND_COMPLETED,
    LOST,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    PersistentVolumeClaim,
)
from services.api.kinds.storageclass import StorageClass
from services.api.meta import Document, Key
from services.api.switches import Switches
from services.api.volume_matching import candidates, is_large_enough, is_reserved_for
from services.controllers.persistentvolume_binder.provisioner import cannot_make, new_volume
from services.controllers.shared_volume_keys import CLAIM, CLAIMS, VOLUME, VOLUMES, claim_key, volume_key
from services.reconcile.actions import NOTHING, Action, Create, Delete, Patch, Query, RecordEvent, Result, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch


class VolumeBinder:
    """What is being made, and the reconcile."""

    def __init__(self, switches: Switches) -> None:
        self._provision_s = switches.number("volumes.provision_s")
        self._began_s: dict[str, float] = {}
        self._last_message: dict[Key, str] = {}

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Take the next steps of one claim or one volume."""
        kind, _, name = key.name.partition("/")
        if kind == VOLUME:
            volume = listers.of(PersistentVolume).get(Key("", name))
            return NOTHING if volume is None else self._volume(volume, listers, moment)
        claim = listers.of(PersistentVolumeClaim).get(Key(key.namespace, name))
        if claim is None:
            self._last_message.pop(key, None)
            return NOTHING
        if BIND_COMPLETED in claim.metadata.annotations:
            return self._bound_claim(claim, listers, moment)
        if claim.spec.volume_name:
            return self._named_claim(claim, listers)
        return self._free_claim(claim, listers, moment)

    # -- claims

    def _bound_claim(self, claim: PersistentVolumeClaim, listers: Listers, moment: Moment) -> Result:
        """Complete the binding, or report that its volume is gone."""
        self._began_s.pop(claim.metadata.uid, None)
        name = claim.spec.volume_name
        volume = listers.of(PersistentVolume).get(Key("", name)) if name else None
        if volume is not None and (volume.spec.claim_ref is None or is_reserved_for(volume, claim)):
            return Result(tuple(_bind(volume, claim)))
        if claim.status.phase == LOST:
            return NOTHING
        query = Query(PersistentVolume, Key("", name))
        if volume is None and name and query not in moment.live:
            return Result(refresh=(query,))
        if volume is None and moment.live.get(query) is not None:
            return NOTHING  # our cache is behind; the volume's own event leads here again
        reason, message = ("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
        if volume is not None:
            reason, message = "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly"
        return Result((_claim_status(claim, {"phase": LOST}), self._event(claim, reason, message, "Warning")))

    def _named_claim(self, claim: PersistentVolumeClaim, listers: Listers) -> Result:
        """Bind a claim whose volume a person chose, once that volume is there and free."""
        volume = listers.of(PersistentVolume).get(Key("", claim.spec.volume_name))
        reference = volume.spec.claim_ref if volume is not None else None
        if volume is None or (reference is not None and not is_reserved_for(volume, claim)):
            return NOTHING
        if not is_large_enough(volume, claim):
            message = f'Cannot bind to requested volume "{volume.metadata.name}": requested PV is too small'
            return Result(tuple(self._report(claim, "VolumeMismatch", message, "Warning")))
        return Result(tuple(_bind(volume, claim)))

    def _free_claim(self, claim: PersistentVolumeClaim, listers: Listers, moment: Moment) -> Result:
        """Find a volume, wait for the first consumer, or have a volume made."""
        storage_class = listers.of(StorageClass).get(Key("", claim.storage_class)) if claim.storage_class else None
        waits = storage_class is not None and storage_class.is_waiting
        found = candidates(claim, listers.of(PersistentVolume).all())
        if waits:
            # Among existing volumes the scheduler chooses, because it knows which node must reach it.
            found = [volume for volume in found if is_reserved_for(volume, claim)]
        if found:
            return Result(tuple(_bind(found[0], claim)))
        if storage_class is None:
            message = "no persistent volumes available for this claim and no storage class is set"
            if claim.storage_class:
                message = f'storageclass.storage.k8s.io "{claim.storage_class}" not found'
            reason = "ProvisioningFailed" if claim.storage_class else "FailedBinding"
            return Result(tuple(self._report(claim, reason, message, "Warning" if claim.storage_class else "Normal")))
        if waits and not claim.selected_node:
            message = "waiting for first consumer to be created before binding"
            return Result(tuple(self._report(claim, "WaitForFirstConsumer", message)))
        if not storage_class.can_provision:
            message = "no volume plugin matched name: kubernetes.io/no-provisioner"
            return Result(tuple(self._report(claim, "ProvisioningFailed", message, "Warning")))
        return self._make(claim, storage_class, listers, moment)

    def _make(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, listers: Listers, moment: Moment
    ) -> Result:
        uid, node = claim.metadata.uid, None
        if claim.selected_node:
            query = Query(Node, Key("", claim.selected_node))
            node = listers.of(Node).get(query.key)
            if node is None and query not in moment.live:
                return Result(refresh=(query,))
            problem = cannot_make(storage_class, node or _as_node(moment, query), claim.selected_node)
            if problem:
                self._began_s.pop(uid, None)
                return Result(
                    (
                        _annotate(claim, {SELECTED_NODE: None}),
                        self._event(claim, "ProvisioningFailed", problem, "Warning"),
                    )
                )
        started: list[Action] = []
        if uid not in self._began_s:
            self._began_s[uid] = moment.now_s
            message = f'External provisioner is provisioning volume for claim "{claim.metadata.key}"'
            started += self._report(claim, "Provisioning", message)
            if claim.metadata.annotations.get(STORAGE_PROVISIONER) != storage_class.provisioner:
                started.append(_annotate(claim, {STORAGE_PROVISIONER: storage_class.provisioner}))
        left_s = self._began_s[uid] + self._provision_s - moment.now_s
        if left_s > 0:
            return Result(tuple(started), left_s)
        document = new_volume(claim, storage_class, node, listers.of(Node).all(), listers.of(CSINode).get)
        message = f"Successfully provisioned volume {document['metadata']['name']}"
        return Result((*started, Create(VOLUMES, document), *self._report(claim, "ProvisioningSucceeded", message)))

    def _report(self, claim: PersistentVolumeClaim, reason: str, message: str, kind: str = "Normal") -> list[Action]:
        """Return the Event, unless it is the last one of this claim."""
        key = claim_key(claim.metadata)
        if self._last_message.get(key) == message:
            return []
        return [self._event(claim, reason, message, kind)]

    def _event(self, claim: PersistentVolumeClaim, reason: str, message: str, kind: str = "Normal") -> RecordEvent:
        meta = claim.metadata
        self._last_message[claim_key(meta)] = message
        return event(claim, reason, message, warns=kind == "Warning")

    # -- volumes

    def _volume(self, volume: PersistentVolume, listers: Listers, moment: Moment) -> Result:
        """Set the phase, and reclaim a volume whose claim is gone."""
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            return Result(tuple(_phase(volume, AVAILABLE)))
        query = Query(PersistentVolumeClaim, Key(reference.namespace, reference.name))
        claim = listers.of(PersistentVolumeClaim).get(query.key)
        if claim is None or claim.metadata.uid != reference.uid:
            # The volume may have been bound before our cache had the claim: data is never dropped on a cache's word.
            if query not in moment.live:
                return Result(refresh=(query,))
            live = moment.live[query]
            if isinstance(live, PersistentVolumeClaim) and live.metadata.uid == reference.uid:
                return NOTHING
            return _reclaim(volume)
        if not claim.spec.volume_name:
            return NOTHING  # the claim's own key completes the binding
        if claim.spec.volume_name == volume.metadata.name:
            return Result(tuple(_phase(volume, BOUND)))
        return _unbind(volume)

    # -- what changes lead to

    def claim_changed(self, change: Change[PersistentVolumeClaim], listers: Listers) -> list[Key]:
        """The claim, and the volumes it names or named."""
        keys = dict.fromkeys([claim_key(change.object.metadata)])
        for side in (change.old, change.new):
            if side is not None and side.spec.volume_name:
                keys[volume_key(side.spec.volume_name)] = None
        if change.new is None:
            self._began_s.pop(change.object.metadata.uid, None)
        return list(keys)

    def volume_changed(self, change: Change[PersistentVolume], listers: Listers) -> list[Key]:
        """The volume, its claim, and while it has no claim, every claim of its class that has no volume."""
        keys = dict.fromkeys([volume_key(change.object.metadata.name)])
        for side in (change.old, change.new):
            reference = side.spec.claim_ref if side is not None else None
            if reference is not None:
                keys[Key(reference.namespace, f"{CLAIM}/{reference.name}")] = None
        if change.new is not None and change.new.spec.claim_ref is None:
            keys.update(dict.fromkeys(_free_claims(listers, change.new.storage_class)))
        return list(keys)

    def class_changed(self, change: Change[StorageClass], listers: Listers) -> list[Key]:
        """The claims of the class that have no volume."""
        return list(_free_claims(listers, change.object.metadata.name))

    def node_changed(self, change: Change[Node], listers: Listers) -> list[Key]:
        """A node that is gone: the claims a volume was to be made for there."""
        if change.new is not None:
            return []
        name = change.object.metadata.name
        return [claim_key(c.metadata) for c in listers.of(PersistentVolumeClaim).all() if c.selected_node == name]


def _free_claims(listers: Listers, storage_class: str) -> Iterable[Key]:
    for claim in listers.of(PersistentVolumeClaim).all():
        if not claim.spec.volume_name and claim.storage_class == storage_class:
            yield claim_key(claim.metadata)


def _as_node(moment: Moment, query: Query) -> Node | None:
    live = moment.live.get(query)
    return live if isinstance(live, Node) else None


def _bind(volume: PersistentVolume, claim: PersistentVolumeClaim) -> list[Action]:
    """Return the steps of a binding that are left to do."""
    actions: list[Action] = []
    meta, own = volume.metadata, claim.metadata
    reference = volume.spec.claim_ref
    if reference is None or reference.uid != own.uid:
        wanted = {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "namespace": own.namespace,
            "name": own.name,
            "uid": own.uid,
        }
        patch: Document = {"spec": {"claimRef": wanted}}
        if reference is None:
            patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
        actions.append(Patch(VOLUMES, meta.key, patch, uid=meta.uid, resource_version=meta.resource_version))
    actions += _phase(volume, BOUND)
    if not claim.is_fully_bound:
        marks = {BIND_COMPLETED: "yes", **({} if claim.spec.volume_name else {BOUND_BY_CONTROLLER: "yes"})}
        patch = {"metadata": {"annotations": marks}, "spec": {"volumeName": meta.name}}
        actions.append(Patch(CLAIMS, own.key, patch, uid=own.uid))
    status = {"phase": BOUND, "accessModes": list(volume.spec.access_modes), "capacity": dict(volume.spec.capacity)}
    known = {
        "phase": claim.status.phase,
        "accessModes": list(claim.status.access_modes),
        "capacity": dict(claim.status.capacity),
    }
    if status != known:
        actions.append(_claim_status(claim, status))
    return actions


def _claim_status(claim: PersistentVolumeClaim, status: Document) -> Patch:
    return Patch(CLAIMS, claim.metadata.key, {"status": status}, subresource="status", uid=claim.metadata.uid)


def _annotate(claim: PersistentVolumeClaim, annotations: Document) -> Patch:
    return Patch(CLAIMS, claim.metadata.key, {"metadata": {"annotations": annotations}}, uid=claim.metadata.uid)


def _phase(volume: PersistentVolume, phase: str, reason: str = "", message: str = "") -> list[Action]:
    if volume.status.phase == phase:
        return []
    status = {"phase": phase, "reason": reason or None, "message": message or None}
    meta = volume.metadata
    return [Patch(VOLUMES, meta.key, {"status": status}, subresource="status", uid=meta.uid)]


def _reclaim(volume: PersistentVolume) -> Result:
    meta = volume.metadata
    policy = volume.spec.persistent_volume_reclaim_policy
    if volume.status.phase == FAILED:
        return NOTHING
    released = _phase(volume, RELEASED)
    if meta.deletion_timestamp is not None:
        return Result(tuple(released))  # all that its protection waits for: no longer Bound, it may go
    if policy == "Recycle":
        return Result(tuple(_phase(volume, FAILED, "VolumeFailedRecycle", "No recycler plugin found for the volume!")))
    if policy == "Delete":
        return Result((*released, Delete(VOLUMES, meta.key, uid=meta.uid)))
    return Result(tuple(released))


def _unbind(volume: PersistentVolume) -> Result:
    """The claim has another volume: what was made for it goes, what was found is free again."""
    meta = volume.metadata
    if PROVISIONED_BY in meta.annotations and volume.spec.persistent_volume_reclaim_policy == "Delete":
        return _reclaim(volume)
    if BOUND_BY_CONTROLLER in meta.annotations:
        patch: Document = {"metadata": {"annotations": {BOUND_BY_CONTROLLER: None}}, "spec": {"claimRef": None}}
    else:
        patch = {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}}
    return Result((Patch(VOLUMES, meta.key, patch, uid=meta.uid), *_phase(volume, AVAILABLE)))


def controller(switches: Switches) -> Controller:
    """Return the volume binder with an empty memory."""
    memory = VolumeBinder(switches)
    return Controller(
        name="persistentvolume-binder",
        reconciles=None,
        reconcile=memory.reconcile,
        watches=(
            Watch(PersistentVolumeClaim, memory.claim_changed),
            Watch(PersistentVolume, memory.volume_changed),
            Watch(StorageClass, memory.class_changed),
            Watch(Node, memory.node_changed),
        ),
        reads=(CSINode,),
        workers=4,
    )


CONTROLLER = Registration("persistentvolume-binder", controller, start_order=14)
