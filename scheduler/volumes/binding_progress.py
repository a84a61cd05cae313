"""Whether the volumes of a pod on its way are bound by now, or never will be.

Source: upstream `pkg/scheduler/framework/plugins/volumebinding/binder.go` (`checkBindings`).
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.framework.world import World
from scheduler.volumes.reach import reaches
from services.api.kinds.node import Node
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.meta import Key


@dataclass(frozen=True)
class Begun:
    """What was written for a pod: the object and the version that the write made."""

    key: Key
    rv: int


def progress(
    world: World, node: Node, bindings: list[tuple[Begun, Key]], to_provision: list[Begun]
) -> tuple[bool, str]:
    """Return whether everything is bound, and else why it cannot be any more ("": not yet).

    `bindings`: volume written, and its claim; `to_provision`: claims written.
    """
    for written, key in bindings:
        is_done, problem = _binding(world, node, written, key)
        if not is_done or problem:
            return False, problem
    for written in to_provision:
        is_done, problem = _making(world, node, written)
        if not is_done or problem:
            return False, problem
    return True, ""


def _binding(world: World, node: Node, written: Begun, key: Key) -> tuple[bool, str]:
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


def _making(world: World, node: Node, written: Begun) -> tuple[bool, str]:
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
