"""Exclusions: which node unbound which pod, and how long the pod, or similar pods, should avoid it.

Times count from when the scheduler saw the unbind, on its own monotonic clock, so that no clock skew
matters. The pod's `unbindHistory` is authoritative: after a restart it is read again from there. An
exclusion ends by its timer, or early when a change of the node might have cured it.

With `exclusion.scope=signature` a node that unbound a pod is closed to similar pods, too, so that not every
replica tries the bad node once. Pods are similar when one controller made them and they have the same
requests, node selector, affinity and tolerations. That is kept in memory only: a scheduler that starts anew
lets one pod of each kind try again, by design. Source: kubelet-unbinding 7.3.
"""

import heapq
from typing import Final, Generic, TypeVar

import msgspec

from services.api.kinds.pod import Pod
from services.api.podresources import pod_requests

KIND_S: Final = 30.0
"""Seconds for which a node stays closed to a kind; each further pod that it unbinds begins them anew."""

Kind = tuple[str, bytes]
"""The uid of the controller, and its pods' requirements."""

_NONE: dict[str, str] = {}
W = TypeVar("W", str, Kind)


def kind_of(pod: Pod) -> Kind | None:
    """Return the pod's kind; None for a pod without a controller that makes similar pods."""
    owner = pod.metadata.controller
    if owner is None:
        return None
    spec = pod.spec
    asked = (sorted(pod_requests(pod).items()), sorted(spec.node_selector.items()), spec.affinity, spec.tolerations)
    return owner.uid, msgspec.json.encode(asked)


class ClosedNodes(Generic[W]):
    """The end and the reason of each node's closure, by node and pod uid, or by node and kind.

    Outdated entries of the heap are left there and checked when they come up.
    """

    def __init__(self) -> None:
        self.nodes: dict[W, dict[str, tuple[float, str]]] = {}
        self.heap: list[tuple[float, W, str]] = []
        self._by_node: dict[str, dict[W, None]] = {}

    def __bool__(self) -> bool:
        return bool(self.nodes)

    def close(self, node: str, to: W, until: float, reason: str) -> None:
        """Close the node to a pod or kind, or extend the closure."""
        self.nodes.setdefault(to, {})[node] = (until, reason)
        self._by_node.setdefault(node, {})[to] = None
        heapq.heappush(self.heap, (until, to, node))

    def open(self, node: str, to: W) -> None:
        """Open the node again."""
        del self.nodes[to][node], self._by_node[node][to]
        if not self.nodes[to]:
            del self.nodes[to]
        if not self._by_node[node]:
            del self._by_node[node]

    def closed_to(self, node: str) -> list[W]:
        """Return the pods or kinds to which the node is closed."""
        return list(self._by_node.get(node, ()))

    def reasons(self, to: W) -> dict[str, str]:
        """Return the closed nodes and the reasons."""
        return {node: reason for node, (_, reason) in self.nodes[to].items()} if to in self.nodes else _NONE

    def expire(self, now: float) -> list[W]:
        """Open the nodes whose closure is over; return the pods or kinds that were excluded."""
        subjects: list[W] = []
        while self.heap and self.heap[0][0] <= now:
            until, to, node = heapq.heappop(self.heap)
            if self.nodes.get(to, {}).get(node, (0.0, ""))[0] == until:
                self.open(node, to)
                subjects.append(to)
        return subjects


class Exclusions:
    """The exclusions by pod uid and node name.

    `kinds`: closures that hold for similar pods, too; None: exclusions hold for single pods only.
    """

    def __init__(self, *, by_kind: bool = False) -> None:
        self.kinds: ClosedNodes[Kind] | None = ClosedNodes() if by_kind else None
        self._pods: ClosedNodes[str] = ClosedNodes()
        self._seen: dict[str, set[str]] = {}
        self._turned_away: dict[Kind, dict[str, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._pods.nodes.values()))

    def of(self, uid: str) -> dict[str, str]:
        """Return the nodes that exclude the pod now, with the reasons."""
        return self._pods.reasons(uid) if self._pods.nodes else _NONE

    def of_kind(self, pod: Pod) -> dict[str, str]:
        """Return the nodes that exclude the pod's kind, with the reasons; the pod is woken when a node opens."""
        kind = kind_of(pod) if self.kinds else None
        if self.kinds is None or kind is None or kind not in self.kinds.nodes:
            return _NONE
        self._turned_away.setdefault(kind, {})[pod.metadata.uid] = None
        return self.kinds.reasons(kind)

    def learn_kind(self, pod: Pod, now: float) -> None:
        """Close the node that has just unbound the pod to all pods of its kind."""
        history, kind = pod.status.unbind_history, kind_of(pod) if self.kinds is not None else None
        if self.kinds is not None and history and kind is not None and history[0].exclude_seconds > 0:
            self.kinds.close(history[0].node_name, kind, now + KIND_S, history[0].reason)

    def learn(self, pod: Pod, now: float) -> None:
        """Take the new entries of the pod's history; the newest entries win."""
        history = pod.status.unbind_history
        if not history:
            return
        uid = pod.metadata.uid
        seen = self._seen.setdefault(uid, set())
        for record in reversed(history):
            identity = record.request_id or f"{record.node_name}/{record.binding_generation}"
            if identity not in seen and record.exclude_seconds > 0:
                self._pods.close(record.node_name, uid, now + record.exclude_seconds, record.reason)
            seen.add(identity)

    def forget_pod(self, uid: str) -> None:
        """Drop everything about a pod that is gone."""
        self._seen.pop(uid, None)
        for node in list(self._pods.nodes.get(uid, ())):
            self._pods.open(node, uid)

    def clear_node(self, node: str) -> None:
        """End every exclusion of the node early, because the node changed."""
        if self.kinds is not None:
            for kind in self.kinds.closed_to(node):
                self.kinds.open(node, kind)
                self._forget_turned_away(kind)
        for uid in self._pods.closed_to(node):
            self._pods.open(node, uid)

    def end(self, node: str, reason: str) -> list[str]:
        """End every exclusion of the node with this reason; return the uids of its pods."""
        uids = [uid for uid in self._pods.closed_to(node) if self._pods.nodes[uid][node][1] == reason]
        for uid in uids:
            self._pods.open(node, uid)
        return uids

    def next_expiry(self) -> float | None:
        """Return when the next exclusion may end, in the clock's seconds."""
        own = self._pods.heap[0][0] if self._pods.heap else None
        if self.kinds is None or not self.kinds.heap:
            return own
        of_kind = self.kinds.heap[0][0]
        return of_kind if own is None else min(own, of_kind)

    def expire(self, now: float) -> list[str]:
        """End the exclusions that are over; return the uids of their pods, pods rejected by their kind included."""
        uids = dict.fromkeys(self._pods.expire(now))
        for kind in self.kinds.expire(now) if self.kinds is not None else ():
            uids |= self._turned_away.get(kind, {})
            self._forget_turned_away(kind)
        return list(uids)

    def _forget_turned_away(self, kind: Kind) -> None:
        if self.kinds is not None and kind not in self.kinds.nodes:
            self._turned_away.pop(kind, None)
