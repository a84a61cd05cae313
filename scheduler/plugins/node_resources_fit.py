"""Filter and Score: whether the pod's requests fit on the node, and which fit is best.

Three strategies: LeastAllocated spreads, MostAllocated packs, RequestedToCapacityRatio follows a shape.
"""

from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np

from scheduler.cache.columns import Columns, Mask, Scores
from scheduler.cache.node_info import NATIVE, NodeInfo, PodInfo, requests_of
from scheduler.dra.extended_resources import BackedResources
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import TOO_MANY_PODS, CycleState
from scheduler.framework.events import (
    ASSIGNED_POD,
    NODE,
    UNSCHEDULED_POD,
    Action,
    ClusterEvent,
    Hint,
    Registration,
    queue_if,
)
from scheduler.framework.plugin import PreFilterResult
from scheduler.framework.status import SUCCESS, Code, Status, unresolvable
from scheduler.framework.utilization_shape import ShapePoint, broken_line
from scheduler.framework.vectorized import Refusal
from scheduler.resize.accounting import ONCE_ACCEPTED
from scheduler.resize.deferral import waits
from scheduler.switches import DraSwitches, PluginSwitches, ResizeSwitches
from services.api.kinds.deviceclass import DeviceClass
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.quantity import amount
from services.api.switches import Switches
from services.reconcile.controller import Change

NONE: Final[frozenset[str]] = frozenset()
DEFAULT_RESOURCES: Final = (("cpu", 1), ("memory", 1))


class ResourceArgs(Args, frozen=True):
    """A scored resource and its weight; 0 is 1."""

    name: str
    weight: int = 1


class RatioArgs(Args, frozen=True):
    """The shape that RequestedToCapacityRatio follows."""

    shape: tuple[ShapePoint, ...] = (ShapePoint(0, 0), ShapePoint(100, 10))


class StrategyArgs(Args, frozen=True):
    """The scoring strategy: LeastAllocated, MostAllocated or RequestedToCapacityRatio.

    It scores CPU and memory if no resource is named. An incoming pod's pod-level resources do not count in
    scoring, as upstream (12.6).
    """

    type: str = "LeastAllocated"
    resources: tuple[ResourceArgs, ...] = ()
    requested_to_capacity_ratio: RatioArgs | None = None


class NodeResourcesFitArgs(Args, frozen=True):
    """The plugin's arguments.

    `ignored_*`: extended resources, or their prefixes, that Filter ignores; scoring does not.
    """

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: StrategyArgs = StrategyArgs()


class NodeResourcesFit:
    """The plugin: Filter checks whether the pod's requests fit; a strategy scores the nodes.

    With `resize.reserved_space` ignore_unactuated, resources that a pod of lower priority has not been given
    are free for one of higher priority (kep-5836 13.3).
    """

    name = "NodeResourcesFit"

    def __init__(self, args: NodeResourcesFitArgs, handle: Handle) -> None:
        strategy = args.scoring_strategy
        self._strategy = strategy.type
        self._resources = tuple((each.name, each.weight or 1) for each in strategy.resources) or DEFAULT_RESOURCES
        self._shape = (strategy.requested_to_capacity_ratio or RatioArgs()).shape
        self._curve = np.array([broken_line(self._shape, u) for u in range(101)], np.float64)
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._columns = handle.cache.columns
        self._backed = BackedResources()
        if handle.switches.of(DraSwitches).has_extended_resources:
            handle.world.on_change(DeviceClass, self._class_changed)
            for device_class in handle.world.all(DeviceClass):
                self._backed.on_change(Change(None, device_class))
        self._awaits_acceptance = handle.switches.of(ResizeSwitches).reserved_space == ONCE_ACCEPTED
        self._takes_unactuated = handle.switches.of(ResizeSwitches).reserved_space == "ignore_unactuated"

    def _class_changed(self, change: Change[DeviceClass]) -> None:
        """Follow the classes. What is remembered of nodes may not hold for pods with extended resources any more."""
        before, after = (
            each.spec.extended_resource_name if each is not None else None for each in (change.old, change.new)
        )
        self._backed.on_change(change)
        if before != after or change.old is None or change.new is None:
            self._columns.epoch += 1

    def row_signature(self, pod: PodInfo) -> Hashable:
        """Return the parsed requests, shared by pods of one template."""
        return (pod.requests, pod.priority) if self._takes_unactuated else pod.requests

    def _wanted_amounts(self, pod: PodInfo) -> tuple[tuple[str, int], ...]:
        wanted = pod.requests.wanted
        if not self._ignored and not self._ignored_groups:
            return wanted
        ignored, groups = self._ignored, self._ignored_groups
        return tuple((r, n) for r, n in wanted if r in NATIVE or (r not in ignored and r.split("/")[0] not in groups))

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> PreFilterResult | Status:
        """Reject requests that could not be parsed; pass all others."""
        if pod.requests.is_malformed:
            return unresolvable("pod has malformed resource quantities")
        return SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Return all resources that are short; above the allocatable amount preemption cannot help (12.3)."""
        allocatable = node.allocatable
        requested = node.requested_to(pod.priority) if self._takes_unactuated else node.requested
        reasons: list[str] = []
        code = Code.UNSCHEDULABLE
        if len(node.pods) + 1 > allocatable.get("pods", 0):
            reasons.append(TOO_MANY_PODS)
        backed = self._backed.among(pod.requests.wanted) if self._backed.classes else NONE
        for resource, need in self._wanted_amounts(pod):
            have = allocatable.get(resource, 0)
            if not have and resource in backed:
                continue  # DynamicResources finds devices for it, or refuses the node (KEP-5004)
            if need > have - requested.get(resource, 0):
                reasons.append(f"Insufficient {resource}")
                if need > have:
                    code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code, tuple(reasons)) if reasons else SUCCESS

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None:
        """Return the rows where no resource is short."""
        mask: Mask = columns.pod_count < columns.pod_limit
        backed = self._backed.among(pod.requests.wanted) if self._backed.classes else NONE
        for resource, need in self._wanted_amounts(pod):
            have = columns.allocatable.get(resource)
            if resource in backed:
                if have is not None:
                    mask &= (have == 0) | (have - columns.requested[resource] >= need)
                continue
            if have is None:
                return columns.full(False)
            mask &= have - columns.requested[resource] >= need
        return self._with_unactuated(state, pod, columns, mask) if self._takes_unactuated else mask

    def _with_unactuated(self, state: CycleState, pod: PodInfo, columns: Columns, mask: Mask) -> Mask:
        """Add the rows where nothing is short once what pods of lower priority have not been given does not count."""
        for row in np.flatnonzero(columns.valid & ~mask):
            node = columns.nodes[row]
            mask[row] = node is not None and bool(node.unactuated_pods) and self.filter(state, pod, node).is_success
        return mask

    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Return the refusals: a node may have several reasons; all of them have its gravest code."""
        if self._takes_unactuated:
            return self._explain_each(state, pod, columns, refused)
        hopeless = np.zeros(columns.capacity, bool)
        short: list[tuple[str, Mask]] = []
        full: Mask = refused & (columns.pod_count >= columns.pod_limit)
        if full.any():
            short.append((TOO_MANY_PODS, full))
        backed = self._backed.among(pod.requests.wanted) if self._backed.classes else NONE
        for resource, need in self._wanted_amounts(pod):
            reason = f"Insufficient {resource}"
            have = columns.allocatable.get(resource)
            if resource in backed:
                if have is not None:
                    offered = refused & (have > 0)
                    hopeless |= offered & (have < need)
                    short.append((reason, offered & (have - columns.requested[resource] < need)))
                continue
            if have is None:
                hopeless |= refused
                short.append((reason, refused))
                continue
            hopeless |= refused & (have < need)
            lacking: Mask = refused & (have - columns.requested[resource] < need)
            if lacking.any():
                short.append((reason, lacking))
        refusals: list[Refusal] = []
        for reason, mask in short:
            refusals.append(Refusal(reason, mask & ~hopeless, Code.UNSCHEDULABLE))
            refusals.append(Refusal(reason, mask & hopeless, Code.UNSCHEDULABLE_AND_UNRESOLVABLE))
        return refusals

    def _explain_each(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Ask node by node: what is short depends on what has not been actuated there."""
        masks: dict[tuple[str, Code], Mask] = {}
        for row in np.flatnonzero(refused):
            node = columns.nodes[row]
            status = self.filter(state, pod, node) if node is not None else SUCCESS
            for reason in status.reasons:
                masks.setdefault((reason, status.code), np.zeros(columns.capacity, bool))[row] = True
        return [Refusal(reason, mask, code) for (reason, code), mask in masks.items()]

    def _requested_amount(self, pod: PodInfo, resource: str) -> int:
        if resource == "cpu":
            return pod.requests.scoring_cpu
        if resource == "memory":
            return pod.requests.scoring_memory
        return pod.requests.amounts.get(resource, 0)

    def pre_score(self, state: CycleState, pod: PodInfo, columns: Columns, feasible: Mask) -> Status:
        """Do nothing: upstream's plugin extends this point; requests were computed when the pod was read."""
        return SUCCESS

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the weighted mean over resources, by the strategy, in Go's integer arithmetic."""
        total = weights = 0
        kind = self._strategy
        for resource, weight in self._resources:
            have = node.allocatable.get(resource, 0)
            asked = self._requested_amount(pod, resource)
            if have == 0 or (asked == 0 and resource not in NATIVE):
                continue
            if resource == "cpu":
                used = node.nonzero_cpu + asked
            elif resource == "memory":
                used = node.nonzero_memory + asked
            else:
                used = node.requested.get(resource, 0) + asked
            if kind == "LeastAllocated":
                score = (have - used) * 100 // have if used <= have else 0
            elif kind == "MostAllocated":
                score = min(used, have) * 100 // have
            else:
                score = broken_line(self._shape, used * 100 // have if used <= have else 100)
                if score == 0:
                    continue
            total += score * weight
            weights += weight
        if weights == 0:
            return 0
        if kind == "RequestedToCapacityRatio":
            return (2 * total + weights) // (2 * weights)
        return total // weights

    def score_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Scores | int:
        """Return the same for every row."""
        kind = self._strategy
        total = np.zeros(columns.capacity)
        weights = np.zeros(columns.capacity)
        for resource, weight in self._resources:
            have = columns.allocatable.get(resource)
            asked = self._requested_amount(pod, resource)
            if have is None or (asked == 0 and resource not in NATIVE):
                continue
            if resource == "cpu":
                used = columns.nonzero_cpu + asked
            elif resource == "memory":
                used = columns.nonzero_memory + asked
            else:
                used = columns.requested[resource] + asked
            exists = have > 0
            divisor = have if exists.all() else np.where(exists, have, 1.0)
            counts: Mask = exists
            if kind == "LeastAllocated":
                # In place: at thousands of nodes, allocating the result costs as much as computing it.
                score = np.maximum(np.subtract(have, used, out=used), 0.0, out=used)
                score *= 100.0
                score /= divisor
                np.floor(score, out=score)
            elif kind == "MostAllocated":
                score = np.floor(np.minimum(used, have) * 100.0 / divisor)
            else:
                utilization = np.where(used > have, 100.0, np.floor(used * 100.0 / divisor))
                score = self._curve[utilization.clip(0, 100).astype(np.intp)]
                counts = exists & (score != 0)
            if counts.all():
                total += score if weight == 1 else score * weight
                weights += weight
                continue
            total += np.where(counts, score * weight, 0.0)
            weights += counts * float(weight)
        total /= np.maximum(weights, 1.0)
        return np.floor(total + 0.5) if kind == "RequestedToCapacityRatio" else np.floor(total, out=total)

    def events_to_register(self) -> Sequence[Registration]:
        """Return the events: a pod leaves or shrinks, a node comes or grows, or the pod itself requests less."""
        return (
            Registration(
                ClusterEvent(ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN), self._frees_capacity
            ),
            Registration(ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_POD_SCALE_DOWN)),
            Registration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE), self._fits_empty),
            Registration(ClusterEvent("DeviceClass", Action.ADD | Action.UPDATE), self._after_class_change),
        )

    def _after_class_change(self, pod: PodInfo, old: DeviceClass | None, new: DeviceClass | None) -> Hint:
        """A class that is added, or names another resource, helps pods that ask for it."""
        backed = self._backed.among(pod.requests.wanted) if self._backed.classes else NONE
        return queue_if(new is not None and any(self._backed.class_of(r) == new.metadata.name for r in backed))

    def _fits_empty(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        if new is None or not _allocatable(new, "pods"):
            return Hint.SKIP
        backed = self._backed.among(pod.requests.wanted) if self._backed.classes else NONE
        wanted = [(r, need) for r, need in self._wanted_amounts(pod) if r not in backed or _allocatable(new, r)]
        if any(need > _allocatable(new, resource) for resource, need in wanted):
            return Hint.SKIP
        names = ("pods", *(resource for resource, _ in wanted))
        return queue_if(old is None or any(_allocatable(new, name) > _allocatable(old, name) for name in names))

    def _frees_capacity(self, pod: PodInfo, old: Pod | None, new: Pod | None) -> Hint:
        """A pod that left freed something; one that shrank, only if it gave up what the waiting pod asks for."""
        if old is None or not (old.spec.node_name or old.status.nominated_node_name):
            return Hint.SKIP
        if new is None:
            return Hint.QUEUE
        if self._awaits_acceptance and waits(new) and not waits(old):
            return Hint.QUEUE
        before, after = requests_of(old).amounts, requests_of(new).amounts
        return queue_if(
            any(after.get(resource, 0) < before.get(resource, 0) for resource, _ in self._wanted_amounts(pod))
        )


def _allocatable(node: Node, resource: str) -> int:
    return amount(resource, node.status.allocatable.get(resource, "0"))


def _default_args(switches: Switches) -> NodeResourcesFitArgs:
    return NodeResourcesFitArgs(scoring_strategy=StrategyArgs(type=switches.of(PluginSwitches).scoring_strategy))


PLUGIN = PluginEntry("NodeResourcesFit", NodeResourcesFit, args=NodeResourcesFitArgs, default_args=_default_args)
