"""The order and content of status writes: versions, coalescing, merging, the fence. Pure.

A pod's status has a version; a write takes the newest and covers all before it. The status that the API
server acknowledged is remembered, and only the difference is sent, as a strategic merge patch that carries
the uid and the observed generation (N8). After any doubt the whole status is sent again. Source: kubelet 4;
kubelet-unbinding 4.3. Deviates: the read before each write is left out, because uid and generation are
checked inside the commit; after a refusal the pod is read.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from kubelet.switches import POLICY_FORMS
from kubelet.timers import EARLY_S
from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Document
from services.api.unbind import BLOCKED, REQUESTED

FULL_SYNC_S = 10.0
LOST_RETRY_S = 0.2
"""Seconds of the first wait after a write without an answer; it doubles up to the full sync."""
TERMINAL = ("Succeeded", "Failed")
_POLICIES = tuple(form.type for form in POLICY_FORMS.values())
TAKEN_BACK = ("PodResizePending", "PodResizeInProgress", *_POLICIES, REQUESTED, BLOCKED)
"""The kubelet's conditions that are removed instead of set to False (KEP-1287, unbinding).

A merge patch has to delete them explicitly.
"""


@dataclass(slots=True)
class _Entry:
    version: int = 0
    written: int = 0
    baseline: Document | None = None
    acked: Document | None = None
    since_s: float | None = None
    retry_at_s: float = 0.0


class Write(msgspec.Struct, frozen=True):
    """One status to write: the patch, and the status to remember when it is acknowledged."""

    key: WorkerKey
    version: int
    status: Document
    patch: Document
    uid: str
    """The uid of the object to write to: the pod itself, or the mirror of a static pod."""


class StatusVersions:
    """The statuses of one node's pods that the API server does not have yet.

    `faithful`: one write at a time for the whole node, the newest status of each pod in the order in which
    pods first changed. `immediate`: every change is a write of its own.
    Invariant: `written <= version` for every pod; an entry is dirty iff they differ.
    """

    def __init__(self, *, is_immediate: bool = False) -> None:
        self.is_immediate = is_immediate
        self._entries: dict[WorkerKey, _Entry] = {}
        self._dirty: dict[WorkerKey, None] = {}
        self._snapshots: list[tuple[WorkerKey, int, Document]] = []
        self.suppressed: dict[WorkerKey, None] = {}
        self._lost = 0
        self._lost_until_s = 0.0
        self.sync_seconds_sum = 0.0
        self.syncs = 0

    def on_changed(self, key: WorkerKey, now: float, status: Document | None = None) -> bool:
        """Note a new version; return whether a write is due. `status`: for immediate writes."""
        if key in self.suppressed:
            return False
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
        entry.version += 1
        if entry.since_s is None:
            entry.since_s = now
        if self.is_immediate and status is not None:
            self._snapshots.append((key, entry.version, status))
        else:
            self._dirty[key] = None
        return True

    def suppress(self, key: WorkerKey) -> None:
        """Stop writing this pod's status, and drop its pending writes (kubelet-unbinding 6.2)."""
        self.forget(key)
        self.suppressed[key] = None

    def permit(self, key: WorkerKey) -> None:
        """Allow writes of this pod's status again."""
        self.suppressed.pop(key, None)

    def forget(self, key: WorkerKey) -> None:
        """Forget this pod."""
        self._entries.pop(key, None)
        self._dirty.pop(key, None)
        self.suppressed.pop(key, None)

    def doubt(self, key: WorkerKey) -> None:
        """Forget the acknowledged status, because no object has it any more; send all of it after the next change."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.baseline = entry.acked = None
            entry.version += 1
        self._dirty.pop(key, None)
        self._snapshots = [each for each in self._snapshots if each[0] != key]

    def next_key(self, now: float) -> WorkerKey | None:
        """Return the pod to write next, or None; failed writes wait for their retry."""
        if self._snapshots:
            return self._snapshots[0][0]
        now += EARLY_S
        if now < self._lost_until_s:
            return None
        for key in self._dirty:
            if self._entries[key].retry_at_s <= now:
                return key
        return None

    def take(self, key: WorkerKey, pod: KubeletPod, rendered: Document) -> Write | None:
        """Return the write to send for this pod now; None when the API server has its whole status."""
        entry = self._entries.get(key)
        version = entry.version if entry is not None else 0
        if self._snapshots and self._snapshots[0][0] == key:
            _, version, rendered = self._snapshots.pop(0)
        else:
            self._dirty.pop(key, None)
        if entry is None:
            return None
        status = dict(rendered)
        if pod.is_terminal and status.get("phase") not in TERMINAL:
            # A terminal phase never changes again; the rest may still be reported.
            status["phase"] = pod.status.phase
        patch = _difference(entry.baseline, status, pod)
        if patch is None:
            entry.written = max(entry.written, version)
            entry.acked = status
            self._settle(entry)
            return None
        # Until the answer is known, it is unknown what the API server has.
        entry.baseline = None
        uid = pod.metadata.uid
        return Write(key, version, status, {"metadata": {"uid": uid}, "status": patch}, uid)

    def on_acknowledged(self, write: Write, now: float) -> None:
        """Note that the API server has this version."""
        self._lost = 0
        entry = self._entries.get(write.key)
        if entry is None:
            return
        entry.written = max(entry.written, write.version)
        entry.baseline = entry.acked = write.status
        if entry.since_s is not None:
            self.sync_seconds_sum += now - entry.since_s
            self.syncs += 1
        self._settle(entry)
        if entry.version > entry.written and not self.is_immediate:
            self._dirty.setdefault(write.key, None)

    @staticmethod
    def _settle(entry: _Entry) -> None:
        if entry.written >= entry.version:
            entry.since_s = None

    def on_failed(self, write: Write, now: float, *, is_lost: bool = False) -> float:
        """Schedule the newest whole status to be sent later; return when.

        `is_lost`: no answer came, so the link or the server fails and other pods' writes would fail too: all wait,
        and soon one tries again (C6).
        """
        if is_lost and now >= self._lost_until_s:
            self._lost_until_s = now + min(FULL_SYNC_S, LOST_RETRY_S * 2.0 ** min(self._lost, 10))
            self._lost += 1
        retry_at_s = self._lost_until_s if is_lost else now + FULL_SYNC_S
        entry = self._entries.get(write.key)
        if entry is None:
            return retry_at_s
        entry.baseline = None
        entry.retry_at_s = retry_at_s
        self._dirty.pop(write.key, None)
        self._dirty[write.key] = None
        return entry.retry_at_s

    def on_drift(self, key: WorkerKey, now: float) -> bool:
        """Schedule a write of the whole status, because another client changed it; return whether it is due."""
        entry = self._entries.get(key)
        if entry is None or entry.written < entry.version:
            return False
        entry.baseline = None
        return self.on_changed(key, now)

    def last_acked(self, key: WorkerKey) -> Document | None:
        """Return the status that the API server last acknowledged; None while a newer one waits."""
        entry = self._entries.get(key)
        if entry is None or entry.written < entry.version:
            return None
        return entry.acked

    def owes(self, key: WorkerKey) -> bool:
        """Return whether the API server does not have this pod's newest status yet."""
        entry = self._entries.get(key)
        return entry is not None and entry.written < entry.version

    def acked_phase(self, key: WorkerKey) -> str:
        """Return the phase the API server last acknowledged; empty when it has no status of ours."""
        entry = self._entries.get(key)
        return str(entry.acked.get("phase", "")) if entry is not None and entry.acked is not None else ""

    @property
    def waiting(self) -> int:
        """The number of pods whose newest status is not written."""
        return len(self._dirty)


def _difference(baseline: Document | None, status: Document, pod: KubeletPod) -> Document | None:
    """Return the fields to send; conditions only those that changed; None when none did. `pod`: as the API shows it."""
    if baseline is None:
        gone = _deletions((c.type for c in pod.status.conditions), status.get("conditions") or ())
        status = {**status, "conditions": [*(status.get("conditions") or ()), *gone]} if gone else status
        return _with_own_addresses(status, pod)
    patch: dict[str, Any] = {}
    for field, value in status.items():
        held = baseline.get(field)
        if held == value:
            continue
        if field == "conditions" and held:
            before = {c["type"]: c for c in held}
            value = [
                # A merge keeps what a patch does not name: the reason of a condition that is True now must go.
                {**{n: None for n in before.get(c["type"], {}) if n not in c}, **c}
                for c in value
                if before.get(c["type"]) != c
            ] + _deletions(before, value)
            if not value:
                continue
        patch[field] = value
    if not patch:
        return None
    patch.setdefault("observedGeneration", status.get("observedGeneration", 0))
    return _with_own_addresses(patch, pod)


def _with_own_addresses(patch: Document, pod: KubeletPod) -> Document:
    """Return the patch with an address that the pod lost taken away: a merge keeps it beside the new one."""
    addresses, held = patch.get("podIPs"), pod.status.pod_ip
    if not addresses or not held or any(each["ip"] == held for each in addresses):
        return patch
    return {**patch, "podIPs": [*addresses, {"$patch": "delete", "ip": held}]}


def _deletions(before: Iterable[str], now: Iterable[Document]) -> list[Document]:
    held = [kind for kind in before if kind in TAKEN_BACK]
    if not held:
        return []
    standing = [c["type"] for c in now]
    return [{"$patch": "delete", "type": kind} for kind in held if kind not in standing]
