"""Which node gave which pod back, and how long the pod should stay away from it.

Counted from when the scheduler saw it, on its own monotonic clock, so that no clock skew matters. The
pod's `unbindHistory` is authoritative: after a restart it is learned again from there. An exclusion ends
by its timer, or early when something on the node changed that might have cured it.

Source: kubelet-unbinding 7.3.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from scheduler.queue.kind_exclusions import KindExclusions
from services.api.kinds.pod import Pod

_NONE: dict[str, str] = {}


@dataclass(slots=True)
class _OfPod:
    until_s: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    seen: dict[str, None] = field(default_factory=dict)


class Exclusions:
    """By pod uid and node name. `due` entries are left in the heap and checked when they come up.

    `by_kind`: what one pod met with holds for its like, too (switch exclusion.scope).
    """

    def __init__(self, *, by_kind: bool = False) -> None:
        self.kinds: KindExclusions | None = KindExclusions() if by_kind else None
        self._pods: dict[str, _OfPod] = {}
        self._by_node: dict[str, dict[str, None]] = {}
        self._heap: list[tuple[float, str, str]] = []

    def __len__(self) -> int:
        return sum(len(entry.reasons) for entry in self._pods.values())

    def of(self, uid: str) -> dict[str, str]:
        """Return node name to reason, of the exclusions in force."""
        entry = self._pods.get(uid)
        return _NONE if entry is None else entry.reasons

    def of_kind(self, pod: Pod) -> dict[str, str]:
        """Return node name to reason, of the exclusions that others of the pod's kind brought upon it."""
        return self.kinds.facing(pod) if self.kinds else _NONE

    def learn_kind(self, pod: Pod, now: float) -> None:
        """Take in that a node has just given the pod back."""
        if self.kinds is not None:
            self.kinds.learn(pod, now)

    def learn(self, pod: Pod, now: float) -> None:
        """Take in what the pod's history says and we have not seen yet; newest entries win."""
        history = pod.status.unbind_history
        if not history:
            return
        uid = pod.metadata.uid
        entry = self._pods.setdefault(uid, _OfPod())
        for record in reversed(history):
            identity = record.request_id or f"{record.node_name}/{record.binding_generation}"
            if identity in entry.seen:
                continue
            entry.seen[identity] = None
            if record.exclude_seconds > 0:
                until = now + record.exclude_seconds
                entry.until_s[record.node_name] = until
                entry.reasons[record.node_name] = record.reason
                self._by_node.setdefault(record.node_name, {})[uid] = None
                heapq.heappush(self._heap, (until, uid, record.node_name))

    def forget_pod(self, uid: str) -> None:
        """Drop everything about a pod that is gone."""
        entry = self._pods.pop(uid, None)
        if entry is not None:
            for node in entry.reasons:
                self._drop_index(node, uid)

    def clear_node(self, node: str) -> list[str]:
        """End every exclusion of the node early; return the uids concerned."""
        if self.kinds:
            self.kinds.clear_node(node)
        uids = list(self._by_node.pop(node, {}))
        for uid in uids:
            entry = self._pods[uid]
            del entry.until_s[node]
            del entry.reasons[node]
        return uids

    def end(self, node: str, reason: str) -> list[str]:
        """End every exclusion of the node that was for this reason; return the uids concerned."""
        uids = [uid for uid in self._by_node.get(node, ()) if self._pods[uid].reasons[node] == reason]
        for uid in uids:
            entry = self._pods[uid]
            del entry.until_s[node]
            del entry.reasons[node]
            self._drop_index(node, uid)
        return uids

    def next_expiry(self) -> float | None:
        """Return when the next exclusion may end, in the clock's seconds."""
        own = self._heap[0][0] if self._heap else None
        of_kind = self.kinds.next_expiry() if self.kinds is not None else None
        return of_kind if own is None or (of_kind is not None and of_kind < own) else own

    def expire(self, now: float) -> list[str]:
        """End what is due; return the uids concerned, each once."""
        uids: dict[str, None] = {}
        while self._heap and self._heap[0][0] <= now:
            until, uid, node = heapq.heappop(self._heap)
            entry = self._pods.get(uid)
            if entry is not None and entry.until_s.get(node) == until:
                del entry.until_s[node]
                del entry.reasons[node]
                self._drop_index(node, uid)
                uids[uid] = None
        if self.kinds is not None:
            uids |= dict.fromkeys(self.kinds.expire(now))
        return list(uids)

    def _drop_index(self, node: str, uid: str) -> None:
        users = self._by_node.get(node)
        if users is not None:
            users.pop(uid, None)
            if not users:
                del self._by_node[node]
