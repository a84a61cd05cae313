"""The static pods of one node: manifests become pods, and each pod has a mirror with its status. Pure.

A changed manifest ends the old pod first; only then is the new one admitted. A mirror is an ordinary object
that is not run. It is created once its pod is decided. It is deleted and created again when it is of an
earlier manifest, of no manifest, or being deleted by any client: deleting it does not end its pod. Source:
kubelet 3.1; upstream `tryReconcileMirrorPods`, `deleteOrphanedMirrorPods`.
"""

from collections.abc import Callable, Mapping

from kubelet.effects import NODE_KEY, CreateMirror, DeleteMirror, Outbox, SetTimer
from kubelet.pod.table import PodTable
from kubelet.static_pods.manifests import Manifests, StaticPod, is_mirror_of, mirror_document
from kubelet.status.manager import StatusManager
from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Key

RETRY_S = 10.0


class StaticPodManager:
    """The static pods of one node.

    Invariants: a name of `_waiting` is that of a static pod whose predecessor is being ended; for each name at
    most one call about a mirror is in flight.
    """

    def __init__(
        self,
        node: str,
        table: PodTable,
        statuses: StatusManager,
        out: Outbox,
        *,
        add: Callable[[KubeletPod, float], None],
        remove: Callable[[KubeletPod, float], None],
    ) -> None:
        self.manifests = Manifests(node)
        self.node_uid = ""
        """Of the Node that owns the mirrors; "": it is not registered, and nothing is called."""
        self._node, self._table, self._statuses, self._out = node, table, statuses, out
        self._add_pod, self._remove_pod = add, remove
        self._waiting: dict[Key, StaticPod] = {}
        self._undecided: dict[Key, None] = {}
        self._has_sources = False
        self._mirrors: dict[Key, KubeletPod] = {}
        """What the watch shows, by name."""
        self._called: dict[Key, str] = {}
        """What was called for last, by name: the uid of a mirror to delete, or of a static pod to show."""
        self._retry_at_s: dict[Key, float] = {}

    def files_changed(self, files: Mapping[str, bytes], wall_s: float, now: float) -> dict[str, str]:
        """Replace all manifests; return the error of each bad file."""
        gone, new, wrong = self.manifests.read(files, wall_s)
        for static in gone:
            self._out.log("kubelet.static", static.pod, WorkerKey(static.uid, 0), {"file": static.file, "gone": True})
            if self._waiting.pop(static.key, None) is None:
                self._remove_pod(static.pod, now)
        for static in new:
            self._out.log("kubelet.static", static.pod, WorkerKey(static.uid, 0), {"file": static.file})
            if self._table.is_live(static.key):
                self._waiting[static.key] = static
            else:
                self._add(static, now)
        for static in gone:
            self._reconcile(static.key)
        return wrong

    def _add(self, static: StaticPod, now: float) -> None:
        self._undecided[static.key] = None
        self._add_pod(static.pod, now)
        self._look()

    def _look(self) -> None:
        """Show the pods that were decided meanwhile."""
        for name in list(self._undecided):
            static = self.manifests.by_name.get(name)
            if static is None or self._is_decided(WorkerKey(static.uid, 0)):
                del self._undecided[name]
                self._reconcile(name)

    def sources_ready(self) -> None:
        """Create and delete mirrors from now on, because all objects of the node are known."""
        self._has_sources = True
        self._reconcile_all()

    def on_registered(self, node_uid: str) -> None:
        """Set the uid of the Node that owns the mirrors."""
        if node_uid != self.node_uid:
            self.node_uid = node_uid
            self._reconcile_all()

    def on_ended(self, name: Key, now: float) -> None:
        """Go on after the end of a pod: nothing of it runs, and pods that waited for capacity were decided again."""
        if name in self._waiting and not self._table.is_live(name):
            self._add(self._waiting.pop(name), now)
        elif name in self.manifests.by_name or name in self._mirrors:
            self._reconcile(name)
        if self._undecided:
            self._look()

    def mirror_changed(self, old: KubeletPod | None, new: KubeletPod | None, now: float) -> None:
        """Take one change of the watch."""
        if old is not None and (new is None or new.metadata.key != old.metadata.key):
            self._mirrors.pop(old.metadata.key, None)
            self._settle(old.metadata.key)
        if new is None:
            return
        self._mirrors[new.metadata.key] = new
        self._settle(new.metadata.key)
        static = self.manifests.by_name.get(new.metadata.key)
        if static is None or not is_mirror_of(new, static.uid):
            return
        key = WorkerKey(static.uid, 0)
        if old is None or old.metadata.uid != new.metadata.uid:
            self._statuses.versions.doubt(key)
            self._statuses.status_changed(key, now)
        else:
            self._statuses.pod_updated(key, new, now)

    def _is_decided(self, key: WorkerKey) -> bool:
        return key in self._table.pods or key in self._statuses.final_statuses

    def _is_settled(self, name: Key) -> bool:
        static = self.manifests.by_name.get(name)
        if not self._has_sources:
            return False
        if static is None:
            return not self._table.is_live(name)
        return name not in self._waiting and self._is_decided(WorkerKey(static.uid, 0))

    def mirror_of(self, pod: KubeletPod) -> KubeletPod | None:
        """Return the mirror of this static pod; None while it has no mirror."""
        mirror = self._mirrors.get(pod.metadata.key)
        return mirror if mirror is not None and is_mirror_of(mirror, pod.metadata.uid) else None

    def _settle(self, name: Key) -> None:
        """A call about the mirror of that name has ended, or failed a while ago: look at it again."""
        self._called.pop(name, None)
        self._retry_at_s.pop(name, None)
        self._reconcile(name)

    def _reconcile_all(self) -> None:
        """Put everything right: the node is registered and knows all its objects."""
        for name in dict.fromkeys((*self.manifests.by_name, *self._mirrors)):
            self._reconcile(name)

    def _reconcile(self, name: Key) -> None:
        """Make, or remove, the mirror of that name if it is not as it should be."""
        if not self.node_uid or name in self._called or not self._is_settled(name):
            return
        static, mirror = self.manifests.by_name.get(name), self._mirrors.get(name)
        if mirror is not None:
            if static is not None and self._is_right(mirror, static):
                return
            self._called[name] = mirror.metadata.uid
            self._out.effects.append(DeleteMirror(mirror))
        elif static is not None:
            self._called[name] = static.uid
            self._out.effects.append(CreateMirror(name, mirror_document(static, self._node, self.node_uid)))

    def _is_right(self, mirror: KubeletPod, static: StaticPod) -> bool:
        """Whether it stays. A phase never goes back: one that shows an end is wrong if the pod was started anew."""
        if not is_mirror_of(mirror, static.uid) or mirror.metadata.deletion_timestamp is not None:
            return False
        return not mirror.is_terminal or self._statuses.is_over(WorkerKey(static.uid, 0))

    def on_answer(self, name: Key, code: int, now: float) -> None:
        """Take the answer to a call; `code` 0: no answer. The watch shows a success; a failure is tried again."""
        if name in self._called and not 200 <= code < 300:
            self._retry_at_s[name] = now + RETRY_S
            self._out.effects.append(SetTimer(now + RETRY_S, "mirrors", NODE_KEY))

    def due(self, now: float) -> None:
        """Retry the calls whose delay after a failure is over."""
        for name in [n for n, at_s in self._retry_at_s.items() if at_s <= now + 1e-6]:
            self._settle(name)
