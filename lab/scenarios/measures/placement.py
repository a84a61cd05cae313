"""Placement of pods: their number per node, the requested share of the nodes, and its evenness. Pure.

Pods are counted as in the scheduler's cache: every pod with a node that has neither succeeded nor failed,
with the requests that a resize may hold (KEP-1287). All existing nodes count, cordoned ones too. A
resource has figures if a placed pod requests it. `utilization` is requested divided by allocatable, over
all nodes.

`imbalance` over nodes is the standard deviation of the nodes' fractions, requested of allocatable: 0 when
all are alike, 0.5 when half are full and half empty. `node_imbalance` is the deviation within a node, of
cpu from memory, as in NodeResourcesBalancedAllocation (|cpu - memory| / 2, fractions at most 1), averaged
over nodes. `fragmentation` is 1 - (free on the freest node) / (free on all nodes): 0 when everything free
is on one node.

`mean` and `max` are over time, exact, from the creation of the first pod to the end. Source: upstream
`pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go`.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from typing import Final

from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.podresources import Amounts, amounts, as_in_use, pod_requests
from services.reconcile.controller import Change

_ONE: Final = 10**9
"""Denominator of the fractions, which are integers: their sums stay exact however often they change."""
_CORES: Final = 1000
_WITHIN: Final = ("cpu", "memory")
RESIZING: Final = -1


@dataclass(slots=True)
class Level:
    """A piecewise constant figure: its value, its integral over time, and its peak."""

    value: float = 0.0
    peak: float = 0.0
    _integral: float = 0.0
    _since_s: float = 0.0

    def set(self, value: float, now_s: float) -> None:
        """Set the value from now on."""
        if value != self.value:
            self._integral += self.value * (now_s - self._since_s)
            self._since_s, self.value = now_s, value
            self.peak = max(self.peak, value)

    def mean(self, begun_s: float, now_s: float) -> float | None:
        """Return the mean since `begun_s`, before which the value must be 0; None over no time."""
        if now_s <= begun_s:
            return None
        return (self._integral + self.value * (now_s - self._since_s)) / (now_s - begun_s)


@dataclass(slots=True)
class _Node:
    """A node, or the requests on one that does not exist yet, or no longer."""

    is_there: bool = False
    allocatable: Amounts = field(default_factory=dict)
    requested: Amounts = field(default_factory=dict)
    pods: int = 0
    within: int = 0
    """How far cpu is from memory, in billionths."""


@dataclass(slots=True)
class _Resource:
    """One resource over all nodes. `sum` and `squares`: of the nodes' fractions in billionths."""

    is_requested: bool = False
    nodes: int = 0
    allocatable: int = 0
    requested: int = 0
    sum: int = 0
    squares: int = 0
    utilization: Level = field(default_factory=Level)
    imbalance: Level = field(default_factory=Level)


@dataclass(slots=True)
class _Placed:
    """Requests of a placed pod, with its node. `generation`: of the spec for which `requests` was computed.
    RESIZING: any change of status may change the requests.
    """

    node: str
    requests: Amounts
    generation: int


class Placement:
    """The nodes, and the requests on them. Times are seconds since the run began."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._placed: dict[str, _Placed] = {}
        self._resources: dict[str, _Resource] = {}
        self._by_count: Counter[int] = Counter()
        """How many nodes have so many pods."""
        self._most = self._fewest = self._there = 0
        self._within = 0
        self._spread, self._used, self._inner = Level(), Level(), Level()
        self._begun_s: float | None = None

    # -- what happens -----------------------------------------------------------------------------------

    def on_node(self, change: Change[Node], now_s: float) -> None:
        """Process a change of a node, seen at `now_s`."""
        old, new = change.old, change.new
        if old is not None and new is not None and old.status.allocatable == new.status.allocatable:
            return
        node = self._nodes.setdefault(change.object.metadata.name, _Node())
        try:
            allocatable = amounts(new.status.allocatable) if new is not None else {}
        except ValueError:  # a malformed quantity: the node offers nothing that could be counted
            allocatable = {}

        def become() -> None:
            node.allocatable, node.is_there = allocatable, new is not None

        self._change(node, {*node.allocatable, *allocatable}, become, now_s)

    def on_pod(self, change: Change[Pod], now_s: float) -> None:
        """Process a change of a pod, seen at `now_s`."""
        if self._begun_s is None:
            self._begun_s = now_s
        pod = change.object
        uid, generation = pod.metadata.uid, pod.metadata.generation
        node = pod.spec.node_name if change.new is not None and not pod.is_terminal else ""
        held = self._placed.get(uid)
        if held is not None and node == held.node and generation == held.generation:
            return
        if held is None and not node:
            return
        requests, is_settled = _requests(pod) if node else ({}, True)
        if held is not None and held.node == node and held.requests == requests:
            held.generation = generation if is_settled else RESIZING
            return
        if held is not None:
            self._charge(held.node, held.requests, -1, now_s)
            del self._placed[uid]
        if node:
            self._placed[uid] = _Placed(node, requests, generation if is_settled else RESIZING)
            self._charge(node, requests, 1, now_s)

    def _charge(self, name: str, requests: Amounts, sign: int, now_s: float) -> None:
        node = self._nodes.setdefault(name, _Node())

        def become() -> None:
            node.pods += sign
            for resource, amount in requests.items():
                node.requested[resource] = node.requested.get(resource, 0) + sign * amount

        for resource, amount in requests.items():
            if amount:
                self._resources.setdefault(resource, _Resource()).is_requested = True
        self._change(node, set(requests), become, now_s)

    def _change(self, node: _Node, resources: set[str], become: Callable[[], None], now_s: float) -> None:
        """Take the node out of the sums, have it become another, and put it back."""
        self._count(node, resources, -1)
        become()
        self._count(node, resources, 1)
        self._measure(resources, now_s)

    def _count(self, node: _Node, resources: set[str], sign: int) -> None:
        if not node.is_there:
            return
        self._there += sign
        self._by_count[node.pods] += sign
        for name in resources:
            have = node.allocatable.get(name, 0)
            if have <= 0:
                continue
            resource = self._resources.setdefault(name, _Resource())
            used = node.requested.get(name, 0)
            fraction = used * _ONE // have
            resource.nodes += sign
            resource.allocatable += sign * have
            resource.requested += sign * used
            resource.sum += sign * fraction
            resource.squares += sign * fraction * fraction
        if sign > 0:
            node.within = self._deviation(node)
            is_first = self._there == 1
            self._most = node.pods if is_first else max(self._most, node.pods)
            self._fewest = node.pods if is_first else min(self._fewest, node.pods)
        self._within += sign * node.within

    @staticmethod
    def _deviation(node: _Node) -> int:
        """Return half of what cpu and memory are apart, in billionths; 0 for a node that has only one of them."""
        have = [node.allocatable.get(name, 0) for name in _WITHIN]
        if not all(have):
            return 0
        used = [min(node.requested.get(name, 0) * _ONE // each, _ONE) for name, each in zip(_WITHIN, have, strict=True)]
        return abs(used[0] - used[1]) // 2

    def _measure(self, resources: set[str], now_s: float) -> None:
        for name in resources:
            if (resource := self._resources.get(name)) is None:
                continue
            there = resource.allocatable
            resource.utilization.set(resource.requested / there if there else 0.0, now_s)
            spread = sqrt(resource.nodes * resource.squares - resource.sum**2)
            resource.imbalance.set(spread / (resource.nodes * _ONE) if resource.nodes else 0.0, now_s)
        while self._there and not self._by_count[self._most]:
            self._most -= 1
        while self._there and not self._by_count[self._fewest]:
            self._fewest += 1
        self._spread.set(float(self._most - self._fewest) if self._there else 0.0, now_s)
        self._used.set(float(self._there - self._by_count[0]), now_s)
        self._inner.set(self._within / (self._there * _ONE) if self._there else 0.0, now_s)

    # -- what came of it ----------------------------------------------------------------------------------

    @property
    def begun_s(self) -> float:
        """Time of the creation of the first pod; 0 before."""
        return self._begun_s or 0.0

    def measures(self, now_s: float) -> dict[str, float | None]:
        """Return the figures by name as of `now_s`, the end; {} if no pod was placed on a node."""
        figures: dict[str, float | None] = {}
        if not any(resource.is_requested for resource in self._resources.values()) and not self._used.peak:
            return figures
        begun_s = self.begun_s
        figures["pods_per_node_max"], figures["pods_per_node_min"] = float(self._most), float(self._fewest)
        figures["pods_per_node_spread"] = self._spread.value
        figures["pods_per_node_spread_mean"] = self._spread.mean(begun_s, now_s)
        figures["nodes_used_mean"] = self._used.mean(begun_s, now_s)
        for name, resource in sorted(self._resources.items()):
            if not resource.is_requested:
                continue
            figures[f"{name}_utilization_end"] = resource.utilization.value
            figures[f"{name}_utilization_mean"] = resource.utilization.mean(begun_s, now_s)
            figures[f"{name}_utilization_max"] = resource.utilization.peak
            figures[f"{name}_imbalance_end"] = resource.imbalance.value
            figures[f"{name}_imbalance_mean"] = resource.imbalance.mean(begun_s, now_s)
            figures[f"{name}_fragmentation_end"] = self._fragmentation(name)
        if all(name in self._resources and self._resources[name].is_requested for name in _WITHIN):
            figures["node_imbalance_end"] = self._inner.value
            figures["node_imbalance_mean"] = self._inner.mean(begun_s, now_s)
        return figures

    def _fragmentation(self, resource: str) -> float | None:
        free = [
            max(node.allocatable[resource] - node.requested.get(resource, 0), 0)
            for node in self._nodes.values()
            if node.is_there and node.allocatable.get(resource)
        ]
        return 1.0 - max(free) / sum(free) if any(free) else None

    def node(self, name: str) -> Mapping[str, object]:
        """Return the fields of a node for expressions: `requested`, `allocatable` and `utilization` by resource,
        `pods`.
        """
        node = self._nodes.get(name, _Node())
        return {
            "requested": _as_numbers(dict.fromkeys(node.allocatable, 0) | node.requested),
            "allocatable": _as_numbers(node.allocatable),
            "utilization": {
                name: node.requested.get(name, 0) / have for name, have in node.allocatable.items() if have > 0
            },
            "pods": node.pods,
        }


def _requests(pod: Pod) -> tuple[Amounts, bool]:
    """Return what the pod asks for, and whether its node reports nothing else."""
    counted = as_in_use(pod)
    try:
        return pod_requests(counted), counted is pod
    except ValueError:  # a malformed quantity is nothing that could be counted
        return {}, True


def _as_numbers(held: Amounts) -> dict[str, float]:
    """Return amounts as numbers: cores of cpu, units of all else."""
    return {name: amount / _CORES if name == "cpu" else float(amount) for name, amount in held.items()}
