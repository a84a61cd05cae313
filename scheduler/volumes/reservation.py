"""What Reserve keeps for a pod: volumes for its claims, or that one is made for them on its node.

Source: upstream `pkg/scheduler/framework/plugins/volumebinding/binder.go` (`AssumePodVolumes`,
`RevertAssumedPodVolumes`).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from scheduler.volumes.assumed import AssumedVolumes
from scheduler.volumes.finder import Found
from services.api.kinds.persistentvolume import BOUND_BY_CONTROLLER, PersistentVolume
from services.api.kinds.persistentvolumeclaim import SELECTED_NODE, PersistentVolumeClaim
from services.api.meta import Key, ObjectReference


@dataclass
class Reserved:
    """`bindings`: the volume as it was, as it will be bound (the same when nothing has to be written), and its claim.

    `to_provision`: claims with the node chosen for them. `is_cancelled`: the binding cycle was given up.
    """

    bindings: tuple[tuple[PersistentVolume, PersistentVolume, PersistentVolumeClaim], ...]
    to_provision: tuple[PersistentVolumeClaim, ...]
    is_cancelled: bool = False

    @property
    def claims(self) -> tuple[Key, ...]:
        """The claims it is about."""
        return (
            *(claim.metadata.key for _, _, claim in self.bindings),
            *(claim.metadata.key for claim in self.to_provision),
        )


def reserve(found: Found, node_name: str, assumed: AssumedVolumes) -> Reserved:
    """Reserve what the node offers, so that the next pod does not get the same."""
    bindings = []
    for volume, claim in found.bindings:
        bound = _bound_to(volume, claim)
        if bound is not volume:
            assumed.volumes.assume(bound)
        bindings.append((volume, bound, claim))
    to_provision = []
    for claim in found.to_provision:
        meta = msgspec.structs.replace(
            claim.metadata, annotations={**claim.metadata.annotations, SELECTED_NODE: node_name}
        )
        chosen = msgspec.structs.replace(claim, metadata=meta)
        assumed.claims.assume(chosen)
        to_provision.append(chosen)
    return Reserved(tuple(bindings), tuple(to_provision))


def revert(reserved: Reserved, assumed: AssumedVolumes) -> None:
    """Undo the reservation; what was written stays written."""
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
