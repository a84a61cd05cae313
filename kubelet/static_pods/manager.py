"""The static pods of one node: manifests become pods, pods are shown by mirrors, and mirrors get their statuses.

Source: kubelet 3.1. A changed manifest ends the old pod first; the new one is asked whether it fits only then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubelet.effects import Outbox
from kubelet.pod.table import PodTable
from kubelet.static_pods.manifests import Manifests, StaticPod, is_mirror_of
from kubelet.static_pods.mirrors import Mirrors
from kubelet.status.manager import StatusManager
from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Key


class StaticPodManager:
    """Invariant: a name of `_waiting` is that of a static pod whose predecessor is being ended."""

    def __init__(
        self,
        node: str,
        table: PodTable,
        statuses: StatusManager,
        out: Outbox,
        *,
        add: Callable[[KubeletPod, float], None],
        remove: Callable[[KubeletPod, float], None],
        is_over: Callable[[WorkerKey], bool],
    ) -> None:
        self.manifests = Manifests(node)
        self.mirrors = Mirrors(node, self.manifests, out, self._is_settled, is_over)
        self._table, self._statuses, self._out = table, statuses, out
        self._add_pod, self._remove_pod = add, remove
        self._waiting: dict[Key, StaticPod] = {}
        self._undecided: dict[Key, None] = {}
        self._has_sources = False

    def files_changed(self, files: Mapping[str, bytes], wall_s: float, now: float) -> dict[str, str]:
        """Take all manifests as they are now; return what is wrong with which."""
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
            self.mirrors.reconcile(static.key)
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
                self.mirrors.reconcile(name)

    def sources_ready(self) -> None:
        """All objects of the node are known: from now on mirrors are made and removed."""
        self._has_sources = True
        self.mirrors.reconcile_all()

    def registered(self, node_uid: str) -> None:
        """The Node that owns the mirrors is this one."""
        if node_uid != self.mirrors.node_uid:
            self.mirrors.node_uid = node_uid
            self.mirrors.reconcile_all()

    def ended(self, name: Key, now: float) -> None:
        """Nothing of that pod runs any more, and pods that waited for capacity were decided again."""
        if name in self._waiting and not self._table.is_live(name):
            self._add(self._waiting.pop(name), now)
        elif name in self.manifests.by_name or self.mirrors.holds(name):
            self.mirrors.reconcile(name)
        if self._undecided:
            self._look()

    def mirror_changed(self, old: KubeletPod | None, new: KubeletPod | None, now: float) -> None:
        """Take one change of the watch."""
        if old is not None and (new is None or new.metadata.key != old.metadata.key):
            self.mirrors.changed(old.metadata.key, None)
        if new is None:
            return
        self.mirrors.changed(new.metadata.key, new)
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
