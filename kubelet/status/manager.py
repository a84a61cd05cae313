"""The pending writes of a node's pods to the API server: statuses, final ones included, and deletions. Pure.

A status is written once it was reported as changed; its content is rendered only then. A pod without a
machine has its final status here. An object is deleted only after its terminal phase is in the API and
nothing of it runs. Source: kubelet 3.4, 4; guarantees N8.
"""

from collections.abc import Callable, Mapping

from kubelet.effects import DeletePod, Outbox, ReadPod, SetTimer, WriteStatuses
from kubelet.status.versions import TAKEN_BACK, StatusVersions, Write
from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Document

RETRY_S = 10.0
WRITE_STATUSES = WriteStatuses()
_TAKEN_BACK = frozenset(TAKEN_BACK)


class StatusManager:
    """The pending statuses and deletions of one node's pods.

    The kubelet supplies a pod's status as it sees it (`render`), the API object of the pod (`shown`), and
    whether nothing of the pod runs now or will run later (`is_over`).

    Invariant: a key of `_deleting` has one delete in flight, or a timer to try again.
    """

    def __init__(
        self,
        pods: Mapping[str, KubeletPod],
        versions: StatusVersions,
        out: Outbox,
        *,
        render: Callable[[WorkerKey], Document | None],
        shown: Callable[[WorkerKey], KubeletPod | None],
        is_over: Callable[[WorkerKey], bool],
        acknowledged: Callable[[WorkerKey, float], None],
    ) -> None:
        self.versions = versions
        self.final_statuses: dict[WorkerKey, Document] = {}
        """Final statuses of pods that have no machine and never will."""
        self._pods, self._out = pods, out
        self._render, self.shown, self.is_over, self._acknowledged = render, shown, is_over, acknowledged
        self._deleting: dict[WorkerKey, None] = {}
        self._recreated: dict[WorkerKey, None] = {}

    def forget(self, key: WorkerKey) -> None:
        """Forget a pod whose object is gone, or that has left the node."""
        self.final_statuses.pop(key, None)
        self._recreated.pop(key, None)
        self._deleting.pop(key, None)
        self.versions.forget(key)

    def set_final(self, key: WorkerKey, pod: KubeletPod, status: Document, now: float) -> None:
        """Write this final status of a pod that has no worker and never will."""
        self.final_statuses[key] = {**status, "observedGeneration": pod.metadata.generation}
        self.status_changed(key, now)

    def status_changed(self, key: WorkerKey, now: float) -> None:
        """Schedule a write of the pod's status, because it may have changed."""
        status = self._render(key) if self.versions.is_immediate else None
        if self.versions.on_changed(key, now, status):
            self._out.effects.append(WRITE_STATUSES)

    def pod_updated(self, key: WorkerKey, pod: KubeletPod, now: float) -> None:
        """Take the pod as the API shows it; if another client changed its status, write it again."""
        if self._has_drifted(key, pod) and self.versions.on_drift(key, now):
            self._out.effects.append(WRITE_STATUSES)

    def next_write(self, now: float) -> Write | None:
        """Return the next status to write, or None when nothing more may be written now."""
        while (key := self.versions.next_key(now)) is not None:
            pod = self._pods.get(key.uid)
            rendered = self._render(key)
            if pod is None or rendered is None or pod.status.binding_generation != key.generation:
                self.versions.forget(key)
                continue
            shown = self.shown(key)
            if shown is None:
                self.versions.doubt(key)  # a static pod whose mirror is still to come
                continue
            write = self.versions.take(key, shown, rendered)
            if write is not None:
                return write
            self._after_ack(key, now)
        return None

    def status_written(self, write: Write, code: int, reason: str, now: float) -> None:
        """Take the answer to a status write; `code` 0: no answer (N8)."""
        key = write.key
        if 200 <= code < 300:
            self.versions.on_acknowledged(write, now)
            self._after_ack(key, now)
            return
        is_mirrored = write.uid != key.uid
        if code == 404 or (code == 409 and reason == "UIDMismatch") or (code == 403 and is_mirrored):
            if is_mirrored:
                self.versions.doubt(key)  # the next mirror gets everything
            else:
                self.versions.forget(key)
            return
        if code == 403 or (code == 409 and reason == "StaleBinding"):
            # Re-read; the old status is not sent again.
            self.versions.on_failed(write, now)
            if (pod := self._pods.get(key.uid)) is not None:
                self._out.effects.append(ReadPod(key, pod))
            self._out.effects.append(SetTimer(now + RETRY_S, "status", key))
            return
        is_lost = code in (0, 503, 504)
        self._out.effects.append(SetTimer(self.versions.on_failed(write, now, is_lost=is_lost), "status", key))

    def _after_ack(self, key: WorkerKey, now: float) -> None:
        if self._out.has_span(key) and self.versions.acked_phase(key) not in ("", "Pending"):
            self._out.end_span(key, "")
        self._acknowledged(key, now)
        self.maybe_delete(key)

    def is_synced(self, key: WorkerKey) -> bool:
        """Whether the API server has the pod's newest status."""
        return self.versions.last_acked(key) is not None

    def maybe_delete(self, key: WorkerKey) -> None:
        """Confirm a deletion once the terminal phase is in the API and nothing runs (kubelet 3.4)."""
        pod = self._pods.get(key.uid)
        if pod is None or pod.status.binding_generation != key.generation:
            return
        if pod.metadata.deletion_timestamp is None:
            if key in self._recreated:  # the first delete was lost or refused: ask again
                self._out.effects.append(DeletePod(key, pod, None))
            return
        if self.is_over(key) and self.is_synced(key):
            self.delete(key, pod)

    def delete(self, key: WorkerKey, pod: KubeletPod) -> None:
        """Remove the object of a pod that is being deleted and is over."""
        if key not in self._deleting:
            self._deleting[key] = None
            self._out.effects.append(DeletePod(key, pod, 0))

    def recreate(self, key: WorkerKey, pod: KubeletPod) -> None:
        """Delete the pod as any client would: its controller creates another (`kubelet.on_reject=recreate`)."""
        self._recreated[key] = None
        self._out.effects.append(DeletePod(key, pod, None))

    def delete_again(self, key: WorkerKey) -> None:
        """Retry a failed delete, because its delay is over."""
        self._deleting.pop(key, None)
        self.maybe_delete(key)

    def delete_answered(self, key: WorkerKey, code: int, now: float) -> None:
        """Take the answer to a delete; the watch shows when the pod is gone."""
        if not (200 <= code < 300 or code in (404, 409)):
            self._out.effects.append(SetTimer(now + RETRY_S, "delete", key))

    def _has_drifted(self, key: WorkerKey, pod: KubeletPod) -> bool:
        """Whether the API shows our own fields otherwise than we last wrote them."""
        acked = self.versions.last_acked(key)
        if acked is None:
            return False
        if pod.status.phase != acked.get("phase", pod.status.phase):
            return True
        held = {c.type: c.status for c in pod.status.conditions}
        ours = acked.get("conditions", ())
        for condition in ours:
            if held.pop(condition["type"], None) != condition["status"]:
                return True
        return not _TAKEN_BACK.isdisjoint(held)  # what is left is not ours
