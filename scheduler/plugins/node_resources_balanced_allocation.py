"""Score: prefer nodes whose CPU and memory would be used to the same degree."""

import math
from collections.abc import Hashable

import numpy as np

from scheduler.cache.columns import Columns, Mask, Scores
from scheduler.cache.node_info import NATIVE, NodeInfo, PodInfo
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.status import SKIP, SUCCESS, Status
from scheduler.switches import PluginSwitches


def _balance(fractions: list[float]) -> int:
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        mean = sum(fractions) / len(fractions)
        deviation = math.sqrt(sum((f - mean) * (f - mean) for f in fractions) / len(fractions))
    else:
        deviation = 0.0
    return int((1 - deviation) * 100)


class ResourceSpec(Args, frozen=True):
    """A resource that counts; all have the weight 1."""

    name: str
    weight: int = 1


class NodeResourcesBalancedAllocationArgs(Args, frozen=True):
    """The plugin's arguments: the resources to balance."""

    resources: tuple[ResourceSpec, ...] = (ResourceSpec("cpu"), ResourceSpec("memory"))


class NodeResourcesBalancedAllocation:
    """The plugin, by `balanced.formula`: v135 scores the balance with the pod; v136 its improvement by the pod.

    It uses real requests. Source: scheduler-queue-and-cycles 6.
    """

    name = "NodeResourcesBalancedAllocation"

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, handle: Handle) -> None:
        self._formula = handle.switches.of(PluginSwitches).balanced_formula
        self._resources = tuple(resource.name for resource in args.resources) or ("cpu", "memory")

    def row_signature(self, pod: PodInfo) -> Hashable:
        """Return the parsed requests, shared by pods of one template."""
        return pod.requests

    def pre_score(self, state: CycleState, pod: PodInfo, columns: Columns, feasible: Mask) -> Status:
        """Skip pods that request none of the resources."""
        return SUCCESS if self._applies(pod) else SKIP

    def _applies(self, pod: PodInfo) -> bool:
        return any(pod.requests.amounts.get(resource, 0) for resource in self._resources)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return 0 to 100; 0 for pods that PreScore skips."""
        if not self._applies(pod):
            return 0
        with_pod: list[float] = []
        without: list[float] = []
        for resource in self._resources:
            have = node.allocatable.get(resource, 0)
            asked = pod.requests.amounts.get(resource, 0)
            if have == 0 or (asked == 0 and resource not in NATIVE):
                continue
            used = node.requested.get(resource, 0)
            with_pod.append(min((used + asked) / have, 1.0))
            without.append(min(used / have, 1.0))
        balance = _balance(with_pod)
        if self._formula == "v135":
            return balance
        return 50 + (50 + balance - _balance(without)) // 2

    def score_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Scores | int:
        """Return the same for every row."""
        if not self._applies(pod):
            return 0
        with_pod: list[tuple[Scores, Mask]] = []
        without: list[tuple[Scores, Mask]] = []
        for resource in self._resources:
            have = columns.allocatable.get(resource)
            asked = pod.requests.amounts.get(resource, 0)
            if have is None or (asked == 0 and resource not in NATIVE):
                continue
            exists = have > 0
            divisor = have if exists.all() else np.where(exists, have, 1.0)
            used = columns.requested[resource]
            with_pod.append((_fraction(used + asked, divisor), exists))
            if self._formula != "v135":
                without.append((_fraction(used.copy(), divisor), exists))
        balance = _balance_all(with_pod, columns.capacity)
        if self._formula == "v135":
            return balance
        balance -= _balance_all(without, columns.capacity)
        balance += 50.0
        balance /= 2.0
        np.floor(balance, out=balance)
        balance += 50.0
        return balance


def _fraction(used: Scores, have: Scores) -> Scores:
    """Return used / have, at most 1, in the memory of `used`."""
    used /= have
    return np.minimum(used, 1.0, out=used)


def _balance_all(fractions: list[tuple[Scores, Mask]], size: int) -> Scores:
    if len(fractions) == 2:
        (a, has_a), (b, has_b) = fractions
        deviation = a - b
        deviation /= 2
        np.abs(deviation, out=deviation)
        both = has_a & has_b
        if not both.all():
            deviation = np.where(both, deviation, 0.0)
    else:
        count = np.zeros(size)
        total = np.zeros(size)
        for value, has in fractions:
            count += has
            total += np.where(has, value, 0.0)
        mean = total / np.maximum(count, 1.0)
        squares = np.zeros(size)
        for value, has in fractions:
            squares += np.where(has, (value - mean) * (value - mean), 0.0)
        deviation = np.sqrt(squares / np.maximum(count, 1.0))
        if len(fractions) > 2:
            # Where exactly two of them exist, upstream halves the difference: the same up to rounding.
            pair = count == 2
            if pair.any():
                deviation = np.where(pair, _half_difference(fractions, size), deviation)
        deviation = np.where(count < 2, 0.0, deviation)
    scores: Scores = np.subtract(1.0, deviation, out=deviation)
    scores *= 100
    return np.trunc(scores, out=scores)


def _half_difference(fractions: list[tuple[Scores, Mask]], size: int) -> Scores:
    difference, sign = np.zeros(size), np.ones(size)
    for value, has in fractions:
        difference += np.where(has, sign * value, 0.0)
        sign = np.where(has, -sign, sign)
    return np.abs(difference / 2)


PLUGIN = PluginEntry(
    "NodeResourcesBalancedAllocation", NodeResourcesBalancedAllocation, args=NodeResourcesBalancedAllocationArgs
)
