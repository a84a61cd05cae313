"""Pods that are expected to land on a node: preemptors, and pods whose binding takes long (section 7)."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.node_info import PodInfo


class Nominator:
    """Nominated pods by node. A pod is nominated to at most one node."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_by_uid: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._node_by_uid)

    def node_of(self, uid: str) -> str:
        """Return the node the pod is nominated to, or ""."""
        return self._node_by_uid.get(uid, "")

    def set(self, pod: PodInfo, node: str) -> None:
        """Nominate the pod to the node; "" only removes."""
        self.remove(pod.uid)
        if node:
            self._by_node.setdefault(node, {})[pod.uid] = pod
            self._node_by_uid[pod.uid] = node

    def remove(self, uid: str) -> None:
        """Drop the pod's nomination, if any."""
        node = self._node_by_uid.pop(uid, "")
        if node:
            pods = self._by_node[node]
            del pods[uid]
            if not pods:
                del self._by_node[node]

    def competitors(self, pod: PodInfo) -> Iterable[tuple[str, list[PodInfo]]]:
        """Yield each node with the other pods of at least this priority nominated there."""
        for node, pods in self._by_node.items():
            rivals = [p for p in pods.values() if p.uid != pod.uid and p.priority >= pod.priority]
            if rivals:
                yield node, rivals

    def of_lower_priority(self, node: str, priority: int) -> list[PodInfo]:
        """Return pods nominated to the node with at most this priority."""
        return [p for p in self._by_node.get(node, {}).values() if p.priority <= priority]
