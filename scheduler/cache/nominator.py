"""Nominations: the nodes on which preemptors, and pods with a long binding, are expected.

Source: scheduler-queue-and-cycles 7.
"""

from typing import Final

from scheduler.cache.node_info import PodInfo

LOG_MAX: Final = 65536


class Nominator:
    """Nominated pods by node. A pod is nominated to at most one node."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_by_uid: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        self._log: list[str] = []
        self._log_start = 0

    def __len__(self) -> int:
        return len(self._node_by_uid)

    def node_of(self, uid: str) -> str:
        """Return the node the pod is nominated to, or ""."""
        return self._node_by_uid.get(uid, "")

    def generation_of(self, node: str) -> int:
        """Return a number that changes with the nominations to the node; 0 without nominations."""
        return self._generations.get(node, 0)

    def set(self, pod: PodInfo, node: str) -> None:
        """Nominate the pod to the node; "" only removes."""
        self.remove(pod.uid)
        if node:
            self._by_node.setdefault(node, {})[pod.uid] = pod
            self._node_by_uid[pod.uid] = node
            self._note(node)

    def update(self, old: PodInfo | None, new: PodInfo) -> None:
        """Take a pod's newer form: its status's nomination counts, once the status has had one.

        A nomination made here, and not yet written, outlives updates without one.
        """
        node_name = new.pod.status.nominated_node_name
        if not node_name and (old is None or not old.pod.status.nominated_node_name):
            node_name = self.node_of(new.uid)
        self.set(new, node_name)

    def remove(self, uid: str) -> None:
        """Drop the pod's nomination, if any."""
        node = self._node_by_uid.pop(uid, "")
        if node:
            pods = self._by_node[node]
            del pods[uid]
            self._note(node)
            if not pods:
                del self._by_node[node]
                # Nothing there is like nothing ever there; only live numbers are kept.
                del self._generations[node]

    def _note(self, node: str) -> None:
        self._log.append(node)
        self._generations[node] = self.changes
        if len(self._log) > LOG_MAX:
            half = len(self._log) // 2
            self._log_start += half
            del self._log[:half]

    @property
    def changes(self) -> int:
        """The number of changes so far."""
        return self._log_start + len(self._log)

    def changed_since(self, changes: int) -> list[str] | None:
        """Return the nodes of the nominations changed after that count; None when that is not known any more."""
        return None if changes < self._log_start else self._log[changes - self._log_start :]

    def nodes(self) -> list[str]:
        """Return the nodes to which pods are nominated."""
        return list(self._by_node)

    def at_least(self, node: str, priority: int) -> list[PodInfo]:
        """Return the pods of at least this priority that are nominated to the node."""
        return [p for p in self._by_node.get(node, {}).values() if p.priority >= priority]

    def rivals(self, node: str, pod: PodInfo) -> list[PodInfo]:
        """Return the other pods of at least this priority that are nominated to the node."""
        pods = self._by_node.get(node)
        if not pods:
            return []
        return [p for p in pods.values() if p.priority >= pod.priority and p.uid != pod.uid]

    def of_lower_priority(self, node: str, priority: int) -> list[PodInfo]:
        """Return pods nominated to the node with a priority below this one."""
        return [p for p in self._by_node.get(node, {}).values() if p.priority < priority]
