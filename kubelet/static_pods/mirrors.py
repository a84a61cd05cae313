"""The mirrors of a node's static pods: what the API server shows of them is made, and put right. Pure.

A mirror is an ordinary object that is not run. It is made once its pod is decided, removed when it is of an earlier
manifest, of none, or being deleted by anybody, and then made again: deleting it does not end its pod.
Source: kubelet 3.1; upstream `tryReconcileMirrorPods`, `deleteOrphanedMirrorPods`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kubelet.effects import CreateMirror, DeleteMirror, Outbox, SetTimer
from kubelet.static_pods.manifests import Manifests, is_mirror_of, mirror_document
from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Key

RETRY_S = 10.0


class Mirrors:
    """Invariant: of each name at most one call is in flight.

    `is_settled` says whether nothing of that name is being decided or ended on the node, `is_over` whether nothing of
    that pod runs, or ever will.
    """

    def __init__(
        self,
        node: str,
        manifests: Manifests,
        out: Outbox,
        is_settled: Callable[[Key], bool],
        is_over: Callable[[WorkerKey], bool],
    ) -> None:
        self._node, self._manifests, self._out = node, manifests, out
        self._is_settled, self._is_over = is_settled, is_over
        self.node_uid = ""
        """Of the Node that owns the mirrors; "": it is not registered, and nothing is called."""
        self._held: dict[Key, KubeletPod] = {}
        self._called: dict[Key, str] = {}
        """What was called for last, by name: the uid of a mirror to delete, or of a static pod to show."""
        self._retry_at_s: dict[Key, float] = {}

    def shown(self, pod: KubeletPod) -> KubeletPod | None:
        """Return the mirror that shows this static pod, None while there is none."""
        mirror = self._held.get(pod.metadata.key)
        return mirror if mirror is not None and is_mirror_of(mirror, pod.metadata.uid) else None

    def changed(self, name: Key, mirror: KubeletPod | None) -> None:
        """Take what the watch shows under that name; None: nothing."""
        if mirror is None:
            self._held.pop(name, None)
        else:
            self._held[name] = mirror
        self._called.pop(name, None)
        self._retry_at_s.pop(name, None)
        self.reconcile(name)

    def holds(self, name: Key) -> bool:
        """Whether the watch shows a mirror of that name."""
        return name in self._held

    def names(self) -> Iterator[Key]:
        """Return all names under which there is a pod or a mirror."""
        return iter(dict.fromkeys((*self._manifests.by_name, *self._held)))

    def reconcile_all(self) -> None:
        """The node is registered and knows all its objects: put everything right."""
        for name in list(self.names()):
            self.reconcile(name)

    def reconcile(self, name: Key) -> None:
        """Make, or remove, the mirror of that name if it is not as it should be."""
        if not self.node_uid or name in self._called or not self._is_settled(name):
            return
        static, mirror = self._manifests.by_name.get(name), self._held.get(name)
        if mirror is not None:
            is_right = static is not None and is_mirror_of(mirror, static.uid)
            if is_right and mirror.metadata.deletion_timestamp is None and not self._is_outlived(name, mirror):
                return
            self._called[name] = mirror.metadata.uid
            self._out.effects.append(DeleteMirror(mirror))
        elif static is not None:
            self._called[name] = static.uid
            self._out.effects.append(CreateMirror(name, mirror_document(static, self._node, self.node_uid)))

    def _is_outlived(self, name: Key, mirror: KubeletPod) -> bool:
        """Whether the mirror shows an end that is not one: its pod was started anew. A phase never goes back."""
        static = self._manifests.by_name.get(name)
        return mirror.is_terminal and static is not None and not self._is_over(WorkerKey(static.uid, 0))

    def answered(self, name: Key, code: int, now: float) -> None:
        """Take the answer to a call; `code` 0: none came. What is done the watch shows; what failed is tried again."""
        if name in self._called and not 200 <= code < 300:
            self._retry_at_s[name] = now + RETRY_S
            self._out.effects.append(SetTimer(now + RETRY_S, "mirrors", WorkerKey("", 0)))

    def due(self, now: float) -> None:
        """The time after a failed call is over."""
        for name in [n for n, at_s in self._retry_at_s.items() if at_s <= now + 1e-6]:
            del self._retry_at_s[name]
            self._called.pop(name, None)
            self.reconcile(name)
