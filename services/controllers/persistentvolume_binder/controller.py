"""Bind claims and volumes, provision volumes for claims without one, and reclaim released volumes.

A key names its kind: `claim/data` in a namespace, `volume/pv-1`. A binding has two sides, written in this
order, so that an interrupted binding can continue: the volume's `claimRef`, its phase, the claim's `volumeName`
and annotation, its phase. This is the volume controller and an external provisioner in one; provisioning takes
`volumes.provision_s`.
Source: upstream `pkg/controller/volume/persistentvolume`, sig-storage-lib-external-provisioner.
"""

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
from services.controllers.persistentvolume_binder.provisioner import cannot_make, new_volume, reference_to
from services.controllers.shared_switches import VolumeSwitches
from services.reconcile import writes
from services.reconcile.actions import NOTHING, Action, Create, Delete, Patch, Query, RecordEvent, Result, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.reconcile.kind_keys import CLAIM, VOLUME, kind_key, split

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"


class VolumeBinder:
    """Volumes in provisioning, and the reconcile function."""

    def __init__(self, switches: Switches) -> None:
        self._provision_s = switches.of(VolumeSwitches).provision_s
        self._began_s: dict[str, float] = {}
        self._last_message: dict[Key, str] = {}
        """By claim: an Event is not repeated."""

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Take the next steps of one claim or one volume."""
        kind, own_key = split(key)
        if kind == VOLUME:
            volume = listers.of(PersistentVolume).get(own_key)
            return NOTHING if volume is None else self._volume(volume, listers, moment)
        claim = listers.of(PersistentVolumeClaim).get(own_key)
        if claim is None:
            self._last_message.pop(own_key, None)
            return NOTHING
        if BIND_COMPLETED in claim.metadata.annotations:
            return self._bound_claim(claim, listers, moment)
        if claim.spec.volume_name:
            return self._named_claim(claim, listers)
        return self._free_claim(claim, listers, moment)

    def _bound_claim(self, claim: PersistentVolumeClaim, listers: Listers, moment: Moment) -> Result:
        """Complete the binding, or report that its volume is gone."""
        self._began_s.pop(claim.metadata.uid, None)
        name = claim.spec.volume_name
        volume = listers.of(PersistentVolume).get(Key("", name)) if name else None
        if volume is not None and (volume.spec.claim_ref is None or is_reserved_for(volume, claim)):
            return _bind(volume, claim)
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
        return Result((writes.status(CLAIMS, claim, {"phase": LOST}), self._event(claim, reason, message, warns=True)))

    def _named_claim(self, claim: PersistentVolumeClaim, listers: Listers) -> Result:
        """Bind a claim whose volume a person chose, once that volume is there and free."""
        volume = listers.of(PersistentVolume).get(Key("", claim.spec.volume_name))
        reference = volume.spec.claim_ref if volume is not None else None
        if volume is None or (reference is not None and not is_reserved_for(volume, claim)):
            return NOTHING
        if not is_large_enough(volume, claim):
            message = f'Cannot bind to requested volume "{volume.metadata.name}": requested PV is too small'
            return Result(self._report(claim, "VolumeMismatch", message, warns=True))
        return _bind(volume, claim)

    def _free_claim(self, claim: PersistentVolumeClaim, listers: Listers, moment: Moment) -> Result:
        """Find a volume, wait for the first consumer, or have a volume made."""
        storage_class = listers.of(StorageClass).get(Key("", claim.storage_class)) if claim.storage_class else None
        waits = storage_class is not None and storage_class.is_waiting
        volumes = candidates(claim, listers.of(PersistentVolume).all())
        if waits:
            # Among existing volumes the scheduler chooses, because it knows which node must reach it.
            volumes = [volume for volume in volumes if is_reserved_for(volume, claim)]
        if volumes:
            return _bind(volumes[0], claim)
        if storage_class is None:
            if claim.storage_class:
                message = f'storageclass.storage.k8s.io "{claim.storage_class}" not found'
                return Result(self._report(claim, "ProvisioningFailed", message, warns=True))
            message = "no persistent volumes available for this claim and no storage class is set"
            return Result(self._report(claim, "FailedBinding", message))
        if waits and not claim.selected_node:
            message = "waiting for first consumer to be created before binding"
            return Result(self._report(claim, "WaitForFirstConsumer", message))
        if not storage_class.can_provision:
            message = "no volume plugin matched name: kubernetes.io/no-provisioner"
            return Result(self._report(claim, "ProvisioningFailed", message, warns=True))
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
            live = moment.live.get(query)
            at = node if node is not None else live if isinstance(live, Node) else None
            if problem := cannot_make(storage_class, at, claim.selected_node):
                self._began_s.pop(uid, None)
                failed = self._event(claim, "ProvisioningFailed", problem, warns=True)
                return Result((_annotate(claim, {SELECTED_NODE: None}), failed))
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

    def _report(
        self, claim: PersistentVolumeClaim, reason: str, message: str, *, warns: bool = False
    ) -> tuple[RecordEvent, ...]:
        """Return the Event, unless it is the last one of this claim."""
        is_last = self._last_message.get(claim.metadata.key) == message
        return () if is_last else (self._event(claim, reason, message, warns=warns),)

    def _event(self, claim: PersistentVolumeClaim, reason: str, message: str, *, warns: bool) -> RecordEvent:
        self._last_message[claim.metadata.key] = message
        return event(claim, reason, message, warns=warns)

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

    def claim_changed(self, change: Change[PersistentVolumeClaim], listers: Listers) -> list[Key]:
        """Return the claim, and the volumes that it names or named."""
        keys = dict.fromkeys([kind_key(CLAIM, *change.object.metadata.key)])
        for side in (change.old, change.new):
            if side is not None and side.spec.volume_name:
                keys[kind_key(VOLUME, "", side.spec.volume_name)] = None
        if change.new is None:
            self._began_s.pop(change.object.metadata.uid, None)
        return list(keys)

    def volume_changed(self, change: Change[PersistentVolume], listers: Listers) -> list[Key]:
        """Return the volume and its claim; for a volume without claim, also all unbound claims of its class."""
        keys = dict.fromkeys([kind_key(VOLUME, "", change.object.metadata.name)])
        for side in (change.old, change.new):
            reference = side.spec.claim_ref if side is not None else None
            if reference is not None:
                keys[kind_key(CLAIM, reference.namespace, reference.name)] = None
        if change.new is not None and change.new.spec.claim_ref is None:
            keys.update(dict.fromkeys(_free_claims(listers, change.new.storage_class)))
        return list(keys)

    def class_changed(self, change: Change[StorageClass], listers: Listers) -> list[Key]:
        """Return the claims of the class that have no volume."""
        return list(_free_claims(listers, change.object.metadata.name))

    def node_changed(self, change: Change[Node], listers: Listers) -> list[Key]:
        """Return, for a deleted node, the claims whose volume was to be provisioned there."""
        if change.new is not None:
            return []
        name = change.object.metadata.name
        claims = listers.of(PersistentVolumeClaim).all()
        return [kind_key(CLAIM, *claim.metadata.key) for claim in claims if claim.selected_node == name]


def _free_claims(listers: Listers, storage_class: str) -> Iterable[Key]:
    for claim in listers.of(PersistentVolumeClaim).all():
        if not claim.spec.volume_name and claim.storage_class == storage_class:
            yield kind_key(CLAIM, *claim.metadata.key)


def _bind(volume: PersistentVolume, claim: PersistentVolumeClaim) -> Result:
    """Take the steps of a binding that are left to do."""
    actions: list[Action] = []
    reference = volume.spec.claim_ref
    if reference is None or reference.uid != claim.metadata.uid:
        patch: Document = {"spec": {"claimRef": reference_to(claim)}}
        if reference is None:
            patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
        actions.append(writes.patch(VOLUMES, volume, patch, on_version=True))
    actions += _phase(volume, BOUND)
    if not claim.is_fully_bound:
        marks = {BIND_COMPLETED: "yes", **({} if claim.spec.volume_name else {BOUND_BY_CONTROLLER: "yes"})}
        patch = {"metadata": {"annotations": marks}, "spec": {"volumeName": volume.metadata.name}}
        actions.append(writes.patch(CLAIMS, claim, patch))
    status = {"phase": BOUND, "accessModes": list(volume.spec.access_modes), "capacity": dict(volume.spec.capacity)}
    if writes.differing(claim.status, status):
        actions.append(writes.status(CLAIMS, claim, status))
    return Result(tuple(actions))


def _annotate(claim: PersistentVolumeClaim, annotations: Document) -> Patch:
    return writes.patch(CLAIMS, claim, {"metadata": {"annotations": annotations}})


def _phase(volume: PersistentVolume, phase: str, reason: str = "", message: str = "") -> list[Action]:
    if volume.status.phase == phase:
        return []
    return [writes.status(VOLUMES, volume, {"phase": phase, "reason": reason or None, "message": message or None})]


def _reclaim(volume: PersistentVolume) -> Result:
    meta, policy = volume.metadata, volume.spec.persistent_volume_reclaim_policy
    if volume.status.phase == FAILED:
        return NOTHING
    # Once it is no longer Bound, its protection lets it go.
    if policy == "Recycle" and meta.deletion_timestamp is None:
        return Result(tuple(_phase(volume, FAILED, "VolumeFailedRecycle", "No recycler plugin found for the volume!")))
    steps: list[Action] = _phase(volume, RELEASED)
    if policy == "Delete" and meta.deletion_timestamp is None:
        steps.append(Delete(VOLUMES, meta.key, uid=meta.uid))
    return Result(tuple(steps))


def _unbind(volume: PersistentVolume) -> Result:
    """The claim has another volume: what was made for it goes, what was found is free again."""
    annotations = volume.metadata.annotations
    if PROVISIONED_BY in annotations and volume.spec.persistent_volume_reclaim_policy == "Delete":
        return _reclaim(volume)
    if BOUND_BY_CONTROLLER in annotations:
        patch: Document = {"metadata": {"annotations": {BOUND_BY_CONTROLLER: None}}, "spec": {"claimRef": None}}
    else:
        patch = {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}}
    return Result((writes.patch(VOLUMES, volume, patch), *_phase(volume, AVAILABLE)))


def _build(switches: Switches) -> Controller:
    memory = VolumeBinder(switches)
    watches = (
        Watch(PersistentVolumeClaim, memory.claim_changed),
        Watch(PersistentVolume, memory.volume_changed),
        Watch(StorageClass, memory.class_changed),
        Watch(Node, memory.node_changed),
    )
    return Controller(
        "persistentvolume-binder",
        None,
        memory.reconcile,
        watches=watches,
        reads=(CSINode,),
        workers=4,
        reporter="persistentvolume-controller",
    )


CONTROLLER = Registration("persistentvolume-binder", _build, start_order=14)
