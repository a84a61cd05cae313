"""The desired and the actual state of the world for one volume, from caches alone. Pure.

Source: controllers 20; upstream `pkg/controller/volume/attachdetach` (cache, util, populator),
`pkg/volume/csi/csi_attacher.go`.
"""

import hashlib
from collections.abc import Container, Iterable, Mapping

from services.api.kinds.csidriver import CSIDriver
from services.api.kinds.node import Node
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.pod import Pod
from services.api.kinds.volumeattachment import VolumeAttachment
from services.api.meta import Key
from services.reconcile.controller import Listers

CONTROLLED = "volumes.kubernetes.io/controller-managed-attach-detach"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
SHARED_MODES = ("ReadWriteMany", "ReadOnlyMany")


def attachment_name(volume: PersistentVolume, node: str) -> str:
    """Return the only possible name of the attachment of this volume to this node."""
    csi = volume.spec.csi
    assert csi is not None
    return "csi-" + hashlib.sha256(f"{csi.volume_handle}{csi.driver}{node}".encode()).hexdigest()


def is_controlled(node: Node | None) -> bool:
    """Whether the node leaves attaching to the controller."""
    return node is not None and CONTROLLED in node.metadata.annotations


def is_attachable(volume: PersistentVolume, listers: Listers) -> bool:
    """Whether the volume's driver attaches volumes; a driver without a CSIDriver object does."""
    if volume.spec.csi is None:
        return False
    driver = listers.of(CSIDriver).get(Key("", volume.spec.csi.driver))
    return driver is None or driver.spec.attach_required


def may_be_shared(volume: PersistentVolume) -> bool:
    """Whether the volume may be attached to several nodes; without an access mode, the driver decides."""
    modes = volume.spec.access_modes
    return not modes or any(mode in SHARED_MODES for mode in modes)


def holds_volumes(pod: Pod) -> bool:
    """Whether the pod is on a node and has not ended; a pod being deleted has ended when no container runs."""
    if not pod.spec.node_name or pod.is_terminal:
        return False
    if pod.metadata.deletion_timestamp is None:
        return True
    states = (each.state for each in pod.status.container_statuses)
    return any(state.waiting is None and state.terminated is None for state in states)


def volumes_of(pod: Pod, listers: Listers) -> list[str]:
    """Return the names of the volumes that the pod's claims are bound to."""
    names = (volume.claim_name(pod.metadata.name) for volume in pod.spec.volumes)
    claims = [listers.of(PersistentVolumeClaim).get(Key(pod.metadata.namespace, name)) for name in names if name]
    return list(dict.fromkeys(claim.spec.volume_name for claim in claims if claim and claim.spec.volume_name))


def wanted_by(volume: PersistentVolume, attached: Container[str], listers: Listers) -> dict[str, list[Pod]]:
    """Return the pods that want the volume, by node.

    A deleted node still counts while the volume is attached there and a pod names the node.
    """
    pods_by_node: dict[str, list[Pod]] = {}
    bound = volume.spec.claim_ref
    if bound is None or not is_attachable(volume, listers):
        return pods_by_node
    claim = listers.of(PersistentVolumeClaim).get(Key(bound.namespace, bound.name))
    if claim is None or claim.spec.volume_name != volume.metadata.name:
        return pods_by_node
    for pod in listers.of(Pod).all(bound.namespace):
        if not pod.spec.volumes or not holds_volumes(pod):
            continue
        name = pod.spec.node_name
        node = listers.of(Node).get(Key("", name))
        is_ours = is_controlled(node) or (node is None and name in attached)
        if is_ours and any(each.claim_name(pod.metadata.name) == bound.name for each in pod.spec.volumes):
            pods_by_node.setdefault(name, []).append(pod)
    return pods_by_node


def attachments_of(volume: str, listers: Listers) -> dict[str, VolumeAttachment]:
    """Return the attachments of the volume by node: attached, being attached, or being detached."""
    found = listers.of(VolumeAttachment).all()
    return {va.spec.node_name: va for va in found if va.spec.source.persistent_volume_name == volume}


def on_node(node: str, listers: Listers) -> list[VolumeAttachment]:
    """Return the attachments to this node."""
    return [each for each in listers.of(VolumeAttachment).all() if each.spec.node_name == node]


def is_out_of_service(node: Node | None) -> bool:
    """Whether an administrator marked the node as out of service: nothing on it runs any more (KEP-2268)."""
    taints = node.spec.taints if node is not None else ()
    return any(taint.key == OUT_OF_SERVICE and taint.effect == "NoExecute" for taint in taints)


def multi_attach_text(pod: Pod, others: Iterable[Pod]) -> str:
    """Return why a volume cannot be attached for this pod; pods of other namespaces are only counted."""
    users = list(others)
    if not users:
        return "Volume is already exclusively attached to one node and can't be attached to another"
    near = [each.metadata.name for each in users if each.metadata.namespace == pod.metadata.namespace]
    far = len(users) - len(near)
    if not near:
        return f"Volume is already used by {far} pod(s) in different namespaces"
    text = f"Volume is already used by pod(s) {', '.join(near)}"
    return f"{text} and {far} pod(s) in different namespaces" if far else text


def users_elsewhere(wanted: Mapping[str, list[Pod]], nodes: Iterable[str]) -> list[Pod]:
    """Return the pods that want the volume on these nodes."""
    return [pod for node in nodes for pod in wanted.get(node, ())]
