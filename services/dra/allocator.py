"""The allocator: devices for a pod's claims on one node. Pure; the first solution wins.

Nothing is scored, so order decides: claims in the pod's order, requests in the claim's, alternatives in the
request's, pools by driver and name, slices by object name, devices as published. For several devices of one
request the search tries combinations, not permutations.
Source: dra-core 3.2 to 3.4; KEP-4381, KEP-4816; upstream
`staging/src/k8s.io/dynamic-resource-allocation/structured`.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import msgspec

from services.api.kinds.deviceclass import DeviceClass
from services.api.kinds.resourceclaim import DEVICES_MAX, DeviceClaim, ResourceClaim
from services.dra.allocated_devices import Allocated
from services.dra.capacity import Consumption
from services.dra.constraints import Constraint, constraint_for
from services.dra.counters import Available, Counters
from services.dra.features import Features
from services.dra.ids import DeviceId, PoolId
from services.dra.pools import Candidate, Pool
from services.dra.requests import AllocationError, FindClass, RequestOption, asked_by
from services.dra.solution import Pick, Solution
from services.dra.taints import is_tolerated

INVALID_POOLS: Final = "invalid resource pools were encountered"
NO_DEVICES: Final = "cannot allocate all claims"
_DEFAULTS: Final = Features()
Outcome = Solution | str
Asked = list[list[tuple[RequestOption, ...]]]
"""What each claim requests: one entry a request, with its alternatives."""


class Allocator:
    """Allocator of the unallocated claims of one pod, for one attempt; its inputs must not change meanwhile.

    `tries_max`: maximum number of device tries on a node.
    """

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        classes: FindClass,
        allocated: Allocated,
        features: Features = _DEFAULTS,
        *,
        tries_max: int | None = None,
    ) -> None:
        self.claims = claims
        self.allocated = allocated
        self.features = features
        self.tries_max = tries_max
        self.known_counters: Available = {}
        self._classes = classes
        self._asked: Asked = []
        self._outcomes: dict[int, tuple[tuple[Pool, ...], Outcome]] = {}

    @cached_property
    def kind(self) -> Hashable | None:
        """Key of pods whose claims get the same devices: the requests, and the class objects. None: no other pod is
        equal.
        """
        if self.features.counter_bugs:
            return None  # a node's outcome depends on the nodes before
        devices = [each.spec.devices for each in self.claims]
        names = dict.fromkeys(name for each in devices for name in _class_names(each))
        return msgspec.json.encode(devices), tuple(_Same(self._classes(name)) for name in names)

    def allocate(self, node_name: str, pools: tuple[Pool, ...]) -> Outcome:
        """Return the devices for all claims, or why there is no solution on this node.

        Nodes with the same pools, as the same tuple, share one outcome, which is computed once. Raises:
        AllocationError, which ends the attempt.
        """
        known = self._outcomes.get(id(pools))
        if known is None:
            known = self._outcomes[id(pools)] = pools, self._search(node_name, pools)
        return known[1]

    def _search(self, node_name: str, pools: tuple[Pool, ...]) -> Outcome:
        asked = [self._claim_demands(place, pools) for place in range(len(self.claims))]
        search = _Search(self, asked, pools, node_name)
        if search.run():
            return Solution(
                self.claims, search.chosen_options(), tuple(taken.pick for taken in search.picked_devices())
            )
        return INVALID_POOLS if any(pool.invalid for pool in pools) else NO_DEVICES

    def _claim_demands(self, place: int, pools: Sequence[Pool]) -> list[tuple["_DeviceDemand", ...]]:
        """Return what a claim asks for, with what All means on this node. Raises: AllocationError."""
        claim = self.claims[place]
        wanted = [tuple(self._demand_of(each, pools) for each in asked) for asked in self.asked_by(place)]
        least = sum(min(each.count for each in alternatives) for alternatives in wanted)
        if least > DEVICES_MAX:
            excess = f"number of requested devices {least} exceeds the claim limit of {DEVICES_MAX}"
            raise AllocationError(f"claim {claim.metadata.key}: {excess}")
        for index, rule in enumerate(claim.spec.devices.constraints):
            if not (rule.match_attribute or rule.distinct_attribute):
                empty = "empty constraint (unsupported constraint type?)"
                raise AllocationError(f"claim {claim.metadata.key}, constraint #{index}: {empty}")
        return wanted

    def share_requests(self, asked: Asked) -> None:
        """Use, and complete, what allocators of the same kind found that their claims request."""
        self._asked = asked

    def asked_by(self, place: int) -> list[tuple[RequestOption, ...]]:
        """Return the requests of the claim at that place, one entry per request. Raises: AllocationError."""
        while len(self._asked) <= place:
            at = len(self._asked)
            requests = range(len(self.claims[at].spec.devices.requests))
            self._asked.append([asked_by(at, self.claims[at], r, self._classes, self.features) for r in requests])
        return self._asked[place]

    def _demand_of(self, asked: RequestOption, pools: Sequence[Pool]) -> "_DeviceDemand":
        if not asked.is_all:
            return _DeviceDemand(asked, asked.count)
        claim = self.claims[asked.claim]
        fixed: list[Candidate] = []
        for pool in pools:
            if not pool.is_usable:
                state = "invalid" if pool.invalid else "being updated"
                raise AllocationError(
                    f"claim {claim.metadata.key}, request {asked.own_name}: asks for all devices, but resource pool "
                    f"{pool.driver}/{pool.name} is currently {state}"
                )
            for candidate in pool.candidates:
                if self.selects(asked, candidate) and self.fitting(asked, candidate, {}) is not None:
                    fixed.append(candidate)
        return _DeviceDemand(asked, len(fixed), tuple(fixed))

    def selects(self, asked: RequestOption, candidate: Candidate) -> bool:
        """Whether the request selects the device. Raises: AllocationError."""
        if candidate.device.binding_conditions and not self.features.binding_conditions:
            return False
        return asked.selects(candidate, self.claims[asked.claim])

    def fitting(
        self, asked: RequestOption, candidate: Candidate, in_search: dict[DeviceId, dict[str, int]]
    ) -> tuple[Consumption, ...] | None:
        """Return the request's consumption of the device's capacity; None if other consumers leave too little.

        `in_search`: consumption of the shares picked so far.
        """
        if not self.features.consumable_capacity or not (candidate.device.capacity or asked.capacity):
            return ()
        consumptions = asked.consumption(candidate.content)
        if consumptions:
            others, picked = self.allocated.capacity(candidate.id), in_search.get(candidate.id, {})
            for consumption in consumptions:
                name = consumption.full_name
                if consumption.amount + others.get(name, 0) + picked.get(name, 0) > consumption.value:
                    return None
        return consumptions


class _Same:
    """Wrapper that compares a class by identity."""

    __slots__ = ("known",)

    def __init__(self, known: DeviceClass | None) -> None:
        self.known = known

    def __hash__(self) -> int:
        return id(self.known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.known is self.known


def _class_names(claim: DeviceClaim) -> Iterator[str]:
    for request in claim.requests:
        if request.exactly is not None:
            yield request.exactly.device_class_name
        for each in request.first_available:
            yield each.device_class_name


@dataclass(frozen=True, slots=True)
class _DeviceDemand:
    """A request on one node: the number of devices; for All also the devices, in order."""

    asked: RequestOption
    count: int
    fixed: tuple[Candidate, ...] | None = None


@dataclass(slots=True)
class _PickedDevice:
    """A device picked in the search: the `k`-th of its request; `at` is its index among the devices."""

    wanted: _DeviceDemand
    k: int
    at: int
    pick: Pick
    has_counters: bool


@dataclass(slots=True)
class _Choice:
    """The alternative being tried. `is_too_many`: whether all tries so far exceeded the claim's limit of devices."""

    alternatives: tuple[_DeviceDemand, ...]
    at: int = 0
    is_too_many: bool = True


class _Search:
    """Depth-first search with a stack of choices; a failure goes back to the latest choice.

    When a request would exceed the claim's limit of devices, other devices for earlier picks cannot help, only
    other alternatives can: the failure goes back to these at once (`_is_too_many`). It stays within the claim,
    whose smallest alternatives are within the limit together.
    """

    def __init__(
        self, allocator: Allocator, wanted: list[list[tuple[_DeviceDemand, ...]]], pools: Sequence[Pool], node_name: str
    ) -> None:
        self._allocator = allocator
        self._wanted = wanted
        self._node_name = node_name
        self._pools: dict[PoolId, Pool] = {pool.id: pool for pool in pools}
        self._candidates = [each for pool in pools if pool.is_usable for each in pool.candidates]
        self._constraints: list[list[Constraint]] = [
            [constraint_for(rule, allocator.features) for rule in claim.spec.devices.constraints]
            for claim in allocator.claims
        ]
        self._counters = Counters(
            allocator.allocated, allocator.known_counters, has_upstreams_defects=allocator.features.counter_bugs
        )
        self._stack: list[_PickedDevice | _Choice] = []
        self._count = [0] * len(wanted)
        self._picked: dict[DeviceId, list[int]] = {}
        self._shared: dict[DeviceId, int] = {}
        self._capacity: dict[DeviceId, dict[str, int]] = {}
        self._is_too_many = False
        self._tries = 0

    def picked_devices(self) -> list[_PickedDevice]:
        """Return the devices picked, in order."""
        return [each for each in self._stack if isinstance(each, _PickedDevice)]

    def chosen_options(self) -> tuple[tuple[RequestOption, ...], ...]:
        """Return, by claim and request, what was asked, with alternatives the one taken."""
        choices = iter([each for each in self._stack if isinstance(each, _Choice)])
        options = []
        for claim in self._wanted:
            options.append(
                tuple(
                    (each[0] if each[0].asked.alternative is None else each[next(choices).at]).asked for each in claim
                )
            )
        return tuple(options)

    def run(self) -> bool:
        """Return whether there is a solution; then it is on the stack. Raises: AllocationError."""
        wanted, k, start = self._begin(0, 0), 0, 0
        while True:
            if wanted is None:
                return True
            if self._may_begin(wanted, k):
                if k == wanted.count:
                    wanted, k, start = self._begin(wanted.asked.claim, wanted.asked.index + 1), 0, 0
                    continue
                if self._advance(wanted, k, start):
                    k, start = k + 1, self._latest_place() + 1
                    continue
            back = self._go_back()
            if back is None:
                return False
            wanted, k, start = back

    def _latest_place(self) -> int:
        latest = self._stack[-1]
        assert isinstance(latest, _PickedDevice)
        return latest.at

    def _begin(self, claim: int, index: int) -> _DeviceDemand | None:
        """Return the next request at or after these places, with its first alternative; None: all is done."""
        while claim < len(self._wanted) and index >= len(self._wanted[claim]):
            claim, index = claim + 1, 0
        if claim == len(self._wanted):
            return None
        alternatives = self._wanted[claim][index]
        if alternatives[0].asked.alternative is not None:
            self._stack.append(_Choice(alternatives))
        return alternatives[0]

    def _may_begin(self, wanted: _DeviceDemand, k: int) -> bool:
        """Whether the request asks for anything, and the claim may have so many devices."""
        if wanted.fixed is not None and not wanted.fixed:
            return False
        if k == 0 and wanted.count and self._count[wanted.asked.claim] + wanted.count > DEVICES_MAX:
            self._is_too_many = True
            return False
        return True

    def _go_back(self) -> tuple[_DeviceDemand, int, int] | None:
        """Undo choices until there is another one; return what to go on with, None when there is none left."""
        while self._stack:
            latest = self._stack.pop()
            if isinstance(latest, _PickedDevice):
                self._undo(latest)
                if not self._is_too_many and latest.wanted.fixed is None:
                    return latest.wanted, latest.k, latest.at + 1
                continue
            latest.is_too_many &= self._is_too_many
            latest.at += 1
            if latest.at < len(latest.alternatives):
                self._is_too_many = False
                self._stack.append(latest)
                return latest.alternatives[latest.at], 0, 0
            self._is_too_many = latest.is_too_many
        return None

    def _advance(self, wanted: _DeviceDemand, k: int, start: int) -> bool:
        """Take the first device at or after `start` that will do. Raises: AllocationError."""
        if wanted.fixed is not None:
            self._count_try()
            return self._take(wanted, k, k, wanted.fixed[k])
        asked, allocator = wanted.asked, self._allocator
        devices, picked, candidates = allocator.allocated.devices, self._picked, self._candidates
        for at in range(start, len(candidates)):
            self._count_try()
            candidate = candidates[at]
            if asked.admin_access:
                if asked.claim in picked.get(candidate.id, ()):
                    continue
            elif candidate.id in devices or picked.get(candidate.id):
                continue
            if not allocator.selects(asked, candidate):
                continue
            if allocator.fitting(asked, candidate, self._capacity) is not None and self._take(wanted, k, at, candidate):
                return True
        return False

    def _count_try(self) -> None:
        self._tries += 1
        if self._allocator.tries_max is not None and self._tries > self._allocator.tries_max:
            raise AllocationError(f"node {self._node_name}: timed out trying to allocate devices")

    def _take(self, wanted: _DeviceDemand, k: int, at: int, candidate: Candidate) -> bool:
        """Pick the device, if nothing is against it; else change nothing (3.3). Raises: AllocationError."""
        asked, features, key = wanted.asked, self._allocator.features, candidate.id
        is_shared = candidate.is_shared and features.consumable_capacity
        if self._is_in_use(asked, key, is_shared) or (candidate.consumption and not features.partitionable_devices):
            return False
        has_counters = bool(candidate.consumption) and not (is_shared and self._is_shared_already(key))
        if has_counters and not self._counters.take(self._pools[key[:2]], candidate):
            return False
        consumed = self._admit(wanted, candidate)
        if consumed is None:
            if has_counters and not features.counter_bugs:
                self._counters.give_back(self._pools[key[:2]], candidate)
            return False
        if is_shared:
            self._shared[key] = self._shared.get(key, 0) + 1
            amounts = self._capacity.setdefault(key, {})
            for consumption in consumed:
                amounts[consumption.full_name] = amounts.get(consumption.full_name, 0) + consumption.amount
        else:
            self._picked.setdefault(key, []).append(asked.claim)
        self._count[asked.claim] += 1
        pick = Pick(asked, candidate, consumed if is_shared else None)
        self._stack.append(_PickedDevice(wanted, k, at, pick, has_counters))
        return True

    def _is_in_use(self, asked: RequestOption, key: DeviceId, is_shared: bool) -> bool:
        if asked.admin_access:
            return not is_shared and asked.claim in self._picked.get(key, ())
        return key in self._allocator.allocated.devices or bool(self._picked.get(key))

    def _is_shared_already(self, key: DeviceId) -> bool:
        return key in self._allocator.allocated.shared or bool(self._shared.get(key))

    def _admit(self, wanted: _DeviceDemand, candidate: Candidate) -> tuple[Consumption, ...] | None:
        """Return what is consumed of the device's capacity when taints, constraints and capacity admit it; the
        constraints have taken it in then. Raises: AllocationError."""
        asked, features = wanted.asked, self._allocator.features
        blocking = candidate.blocking if features.device_taints else ()
        if blocking and not all(is_tolerated(taint, asked.tolerations) for taint in blocking):
            return None
        taken_in: list[Constraint] = []
        for index in asked.rules:
            constraint = self._constraints[asked.claim][index]
            rule = self._allocator.claims[asked.claim].spec.devices.constraints[index]
            name = rule.match_attribute or rule.distinct_attribute
            values = candidate.content.values(name, lists=features.list_attributes)
            if values is None or not constraint.add(values, asked.request):
                for earlier in reversed(taken_in):
                    earlier.drop(asked.request)
                if wanted.fixed is not None:
                    raise AllocationError(
                        f"claim {self._allocator.claims[asked.claim].metadata.key}, request {asked.own_name}: cannot "
                        f"add device {'/'.join(candidate.id)} because a claim constraint would not be satisfied"
                    )
                return None
            taken_in.append(constraint)
        consumed = self._allocator.fitting(asked, candidate, self._capacity)
        if consumed is None:
            for earlier in reversed(taken_in):
                earlier.drop(asked.request)
        return consumed

    def _undo(self, taken: _PickedDevice) -> None:
        asked, candidate = taken.wanted.asked, taken.pick.candidate
        key, consumed = candidate.id, taken.pick.consumed
        for index in asked.rules:
            self._constraints[asked.claim][index].drop(asked.request)
        if consumed is None:
            self._picked[key].remove(asked.claim)
        else:
            self._shared[key] -= 1
            for consumption in consumed:
                self._capacity[key][consumption.full_name] -= consumption.amount
        if taken.has_counters and not (consumed is not None and self._allocator.features.counter_bugs):
            self._counters.give_back(self._pools[key[:2]], candidate)
        self._count[asked.claim] -= 1
