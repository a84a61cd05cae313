"""The scheduler's view of nodes and pods: seen by watch, plus its own latest decisions.

A pod is *assumed* from Reserve on and its requests are charged at once; it becomes *added* when the watch
shows it bound, or is *forgotten* when the bind definitely failed. No timer ever drops an assumed pod (K2):
a bind without answer keeps its capacity until a read shows its outcome.

Invariant: every pod is on at most one node here; `columns` and `index` equal the sum over `nodes`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.columns import Columns
from scheduler.cache.node_info import NodeInfo, PodInfo, count
from scheduler.cache.pod_index import PodIndex
from services.api.kinds.node import Node
from services.api.meta import Key
from services.api.quantity import amount

REGION = "topology.kubernetes.io/region"
ZONE = "topology.kubernetes.io/zone"
Zone = tuple[str, str]
"""A node's `(region, zone)` from its labels; both empty when unlabelled."""


class NodeTree:
    """The order in which nodes are visited: round-robin over zones, so that sampling spreads.

    Zones come in the order they were first seen, nodes inside a zone likewise: z1n1, z2n1, z3n1, z1n2, …
    `version` counts changes, so that an order can be kept. Source: scheduler-queue-and-cycles 3.
    """

    def __init__(self) -> None:
        self.version = 0
        self._zones: dict[Zone, dict[str, None]] = {}
        self._zone_by_name: dict[str, Zone] = {}

    def set(self, name: str, labels: Mapping[str, str]) -> None:
        """Add the node, or move it to its new zone."""
        zone = labels.get(REGION, ""), labels.get(ZONE, "")
        if self._zone_by_name.get(name) == zone:
            return
        self.remove(name)
        self._zones.setdefault(zone, {})[name] = None
        self._zone_by_name[name] = zone
        self.version += 1

    def remove(self, name: str) -> None:
        """Forget the node; a zone without nodes loses its place."""
        zone = self._zone_by_name.pop(name, None)
        if zone is None:
            return
        del self._zones[zone][name]
        if not self._zones[zone]:
            del self._zones[zone]
        self.version += 1

    def order(self) -> list[str]:
        """Return all names, one of each zone in turn."""
        lists = [list(names) for names in self._zones.values()]
        longest = max((len(names) for names in lists), default=0)
        return [names[i] for i in range(longest) for names in lists if i < len(names)]


@dataclass(slots=True)
class Assumption:
    """The assumption that a pod will be bound.

    `is_obsolete`: the pod was changed meanwhile, so the later results of its binding cycle must touch neither
    cache nor queue (kubelet-unbinding 7.1). `state` is the cycle's `CycleState`, for Unreserve; the cache does
    not look into it. `is_confirmed`: the watch showed the pod bound there.
    """

    pod: PodInfo
    node_name: str
    state: Any
    is_obsolete: bool = False
    is_confirmed: bool = False


@dataclass(slots=True)
class PodState:
    """The node on which a pod is counted; `assumption` is set until the watch confirms it."""

    pod: PodInfo
    node_name: str
    assumption: Assumption | None = field(default=None)


class Cache:
    """The nodes, their pods, and the columns derived from them."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeInfo] = {}
        self.columns = Columns()
        self.index = PodIndex(self.columns)
        self.pods: dict[str, PodState] = {}
        self.assumed_count = 0
        self.claim_users: dict[Key, int] = {}
        """How many pods with a node use each volume claim."""
        self._tree = NodeTree()
        self._order: NDArray[np.intp] = np.zeros(0, np.intp)
        self._order_version = -1

    def set_node(self, node: Node) -> None:
        """Take in a new or changed node. Quantities that do not parse count as zero."""
        name = node.metadata.name
        info = self.nodes.get(name)
        if info is None:
            info = self.nodes[name] = NodeInfo(name)
        old, info.node = info.node, node
        if old is not None and _placement_of(old) == _placement_of(node):
            return  # a heartbeat: remembered answers stay good
        info.touch()
        info.allocatable = _parse(node.status.allocatable)
        self._tree.set(name, node.metadata.labels)
        is_new = info.slot < 0
        self.columns.set_node(info)
        if is_new:
            for pod in info.pods.values():
                self.index.add(pod, info.slot)

    def remove_node(self, name: str) -> None:
        """Drop the node; pods that still name it stay charged to the name until they go."""
        info = self.nodes.get(name)
        if info is None or info.node is None:
            return
        for pod in info.pods.values():
            self.index.remove(pod, info.slot)
        self.columns.remove_node(info)
        self._tree.remove(name)
        info.node = None
        info.allocatable = {}
        if not info.pods:
            del self.nodes[name]

    def order(self) -> NDArray[np.intp]:
        """Return the rows in visiting order: round-robin over zones."""
        if self._order_version != self._tree.version:
            slots = self.columns.slots
            self._order = np.array([slots[name] for name in self._tree.order()], np.intp)
            self._order_version = self._tree.version
        return self._order

    def node_of(self, uid: str) -> str:
        """Return the node the pod is counted on, or ""."""
        state = self.pods.get(uid)
        return state.node_name if state is not None else ""

    def assume(self, pod: PodInfo, node_name: str, state: Any) -> Assumption:
        """Charge the pod to the node before the bind is sent."""
        assert pod.uid not in self.pods, f"{pod.key} is on {self.node_of(pod.uid)} already, cannot assume {node_name}"
        assumption = Assumption(pod, node_name, state)
        self.pods[pod.uid] = PodState(pod, node_name, assumption)
        self.assumed_count += 1
        self._charge(pod, node_name)
        return assumption

    def forget(self, uid: str) -> None:
        """Drop the assumption: the bind definitely failed, or the pod was unbound before the watch showed it bound."""
        state = self.pods[uid]
        assert state.assumption is not None, f"{state.pod.key} on {state.node_name} is not assumed, cannot forget it"
        self.remove_pod(uid)

    def add_pod(self, pod: PodInfo, node_name: str) -> None:
        """Count a pod that the watch shows bound. If it was assumed there, this confirms it."""
        state = self.pods.get(pod.uid)
        if state is not None:
            assert state.node_name == node_name, f"{pod.key} is on {state.node_name}, cannot add it to {node_name}"
            if state.assumption is not None:
                pod.attempts = state.pod.attempts
                self.assumed_count -= 1
                state.assumption.is_confirmed = True
                state.assumption = None
            self.update_pod(pod)
            return
        self.pods[pod.uid] = PodState(pod, node_name)
        self._charge(pod, node_name)

    def update_pod(self, pod: PodInfo) -> None:
        """Replace the pod by its newer form on the same node; the row changes only if its costs did."""
        state = self.pods[pod.uid]
        old = state.pod
        state.pod = pod
        pod.attempts = max(pod.attempts, old.attempts)
        info = self.nodes[state.node_name]
        if pod.requests is old.requests and pod.ports == old.ports:
            info.pods[pod.uid] = pod
            info.touch()
            if info.slot >= 0 and not pod.is_seen_like(old):
                self.index.remove(old, info.slot)
                self.index.add(pod, info.slot)
            return
        self._discharge(old.uid, state.node_name)
        self._charge(pod, state.node_name)

    def renew_pod(self, pod: PodInfo) -> None:
        """Replace the pod by a newer form of which all that is counted is the same: what `update_pod` does then."""
        state = self.pods[pod.uid]
        pod.attempts = max(pod.attempts, state.pod.attempts)
        state.pod = pod
        node = self.nodes[state.node_name]
        node.pods[pod.uid] = pod
        node.touch()

    def remove_pod(self, uid: str) -> None:
        """Stop counting the pod; a pending assumption becomes obsolete."""
        state = self.pods.pop(uid)
        if state.assumption is not None:
            state.assumption.is_obsolete = True
            self.assumed_count -= 1
        self._discharge(uid, state.node_name)

    def take_out(self, uid: str) -> None:
        """Remove the pod for a dry run that ends before anything else reads the cache; see `put_back`."""
        self._discharge(uid, self.pods[uid].node_name)

    def put_back(self, uid: str) -> None:
        """Undo `take_out`."""
        state = self.pods[uid]
        self._charge(state.pod, state.node_name)

    def _charge(self, pod: PodInfo, node_name: str) -> None:
        info = self.nodes.get(node_name)
        if info is None:
            info = self.nodes[node_name] = NodeInfo(node_name)
        info.add(pod)
        for claim in pod.claims:
            count(self.claim_users, claim, 1)
        self.columns.pods_changed(info, pod, 1)
        if info.slot >= 0:
            self.index.add(pod, info.slot)

    def _discharge(self, uid: str, node_name: str) -> None:
        info = self.nodes[node_name]
        pod = info.remove(uid)
        assert pod is not None, f"pod {uid} is not on {node_name}"
        for claim in pod.claims:
            count(self.claim_users, claim, -1)
        self.columns.pods_changed(info, pod, -1)
        if info.slot >= 0:
            self.index.remove(pod, info.slot)
        if info.node is None and not info.pods:
            del self.nodes[node_name]


def _placement_of(node: Node) -> tuple[Any, ...]:
    status = node.status
    return status.allocatable, node.metadata.labels, node.spec, status.images, status.declared_features


def _parse(quantities: dict[str, str]) -> dict[str, int]:
    parsed: dict[str, int] = {}
    for name, text in quantities.items():
        try:
            parsed[name] = max(amount(name, text), 0)
        except ValueError:
            parsed[name] = 0
    return parsed
