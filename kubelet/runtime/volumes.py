"""The claims that are attached to a node, and the pods that use them. Pure.

A claim that another pod of the node uses is attached already; a claim beyond the number that the node's
driver can attach is refused, whatever its CSINode says. Source: kubelet 5.2, 8; upstream
`pkg/kubelet/volumemanager` (reason, message).
"""

from collections.abc import Sequence
from typing import Final

from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Key

REASON: Final = "VolumeAttachmentLimitExceeded"
MESSAGE: Final = "Node has reached its volume attachment limit, rejecting pod"


class NodeVolumes:
    """The attached claims of one node. `limit` 0: any number.

    Invariant: a claim is in `_users` as long as some pod that mounts it is on the node. `is_controlled`: the
    attach/detach controller attaches volumes, if their CSI driver attaches any.
    """

    def __init__(self, limit: int = 0, *, is_controlled: bool = False) -> None:
        self._limit, self.is_controlled = limit, is_controlled
        self._users: dict[Key, dict[WorkerKey, None]] = {}

    def take(self, key: WorkerKey, claims: Sequence[Key]) -> bool:
        """Attach the claims for a pod, whatever the limit; return whether any was not attached yet."""
        is_new = False
        for claim in claims:
            is_new = is_new or claim not in self._users
            self._users.setdefault(claim, {})[key] = None
        return is_new

    def refuses(self, claims: Sequence[Key]) -> bool:
        """Return whether these claims would exceed the number that can be attached."""
        missing = sum(1 for claim in dict.fromkeys(claims) if claim not in self._users)
        return bool(self._limit and missing) and len(self._users) + missing > self._limit

    def release(self, key: WorkerKey) -> None:
        """Detach the claims that only this pod used, because it is over."""
        for claim in [claim for claim, users in self._users.items() if key in users]:
            del self._users[claim][key]
            if not self._users[claim]:
                del self._users[claim]


def claims_of(pod: KubeletPod) -> list[Key]:
    """Return the claims that the pod mounts, in the order of its volumes."""
    meta = pod.metadata
    names = [volume.claim_name(meta.name) for volume in pod.spec.volumes]
    return [Key(meta.namespace, name) for name in names if name]
