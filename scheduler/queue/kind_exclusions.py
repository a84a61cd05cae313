"""Nodes that gave a pod back stay closed to its like for a while: so not every replica tries the bad node once.

Pods are alike when one controller made them and they ask for the same: resources, node selector, affinity,
tolerations. In memory only: a scheduler that starts anew lets one pod of each kind try again, by design.
Source: kubelet-unbinding 7.3 (`exclusion.scope=signature`).
"""

from __future__ import annotations

import heapq
from typing import Final

import msgspec

from services.api.kinds.pod import Pod
from services.api.podresources import pod_requests

KIND_S: Final = 30.0
"""How long a node stays closed to the kind; each further pod that it unbinds begins that anew."""

Kind = tuple[str, bytes]
"""Uid of the controller, and what its pods ask for."""

_NONE: dict[str, str] = {}


def kind_of(pod: Pod) -> Kind | None:
    """Return the pod's kind; None for a pod without an owner that makes others like it."""
    owner = pod.metadata.controller
    if owner is None:
        return None
    spec = pod.spec
    asked = (sorted(pod_requests(pod).items()), sorted(spec.node_selector.items()), spec.affinity, spec.tolerations)
    return owner.uid, msgspec.json.encode(asked)


class KindExclusions:
    """By kind and node name. `_heap` entries that were overtaken are dropped when they come up."""

    def __init__(self) -> None:
        self._nodes: dict[Kind, dict[str, tuple[float, str]]] = {}
        self._turned_away: dict[Kind, dict[str, None]] = {}
        self._heap: list[tuple[float, Kind, str]] = []

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def learn(self, pod: Pod, now: float) -> None:
        """Close the node that gave this pod back last to all of its kind."""
        history, kind = pod.status.unbind_history, kind_of(pod)
        if not history or kind is None or history[0].exclude_seconds <= 0:
            return
        node, until = history[0].node_name, now + KIND_S
        self._nodes.setdefault(kind, {})[node] = (until, history[0].reason)
        heapq.heappush(self._heap, (until, kind, node))

    def facing(self, pod: Pod) -> dict[str, str]:
        """Return node name to reason for this pod, and remember whom to wake when one opens again."""
        kind = kind_of(pod)
        if kind is None or kind not in self._nodes:
            return _NONE
        self._turned_away.setdefault(kind, {})[pod.metadata.uid] = None
        return {node: reason for node, (_, reason) in self._nodes[kind].items()}

    def clear_node(self, node: str) -> None:
        """Open the node to every kind: something on it changed."""
        for kind in [kind for kind, nodes in self._nodes.items() if node in nodes]:
            self._open(kind, node)

    def next_expiry(self) -> float | None:
        """Return when the next node may open again."""
        return self._heap[0][0] if self._heap else None

    def expire(self, now: float) -> list[str]:
        """Open what is due; return the uids of those who were turned away, each once."""
        uids: dict[str, None] = {}
        while self._heap and self._heap[0][0] <= now:
            until, kind, node = heapq.heappop(self._heap)
            held = self._nodes.get(kind, {}).get(node)
            if held is not None and held[0] == until:
                uids |= self._turned_away.get(kind, {})
                self._open(kind, node)
        return list(uids)

    def _open(self, kind: Kind, node: str) -> None:
        nodes = self._nodes[kind]
        del nodes[node]
        if not nodes:
            del self._nodes[kind]
            self._turned_away.pop(kind, None)
