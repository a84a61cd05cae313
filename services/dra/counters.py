"""Counters that the devices of a pool share (partitionable devices, KEP-4815). Pure.

The available amount is that of the pool's counter sets, minus the consumption of its allocated devices, on any
node. A pool that is over-committed, because a driver made a set smaller, has nothing available.
Source: dra-core 3.3; upstream
`staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating/allocator_incubating.go`,
`checkAvailableCounters`.
"""

from services.dra.allocated_devices import Allocated
from services.dra.ids import CounterId, PoolId
from services.dra.pools import Candidate, Pool

Available = dict[PoolId, dict[CounterId, int]]
"""Available amount of each counter by pool, in thousandths."""


class Counters:
    """The counters of one search.

    `has_upstreams_defects`: pools of one name share one budget, even of different drivers: that of the pool seen
    first (`known` outlives the search for that).
    """

    def __init__(self, allocated: Allocated, known: Available, *, has_upstreams_defects: bool) -> None:
        self._allocated = allocated
        self._available = known if has_upstreams_defects else {}
        self._overdrawn: dict[PoolId, bool] = {}
        self._taken: dict[PoolId, dict[CounterId, int]] = {}
        self._is_by_name = has_upstreams_defects

    def take(self, pool: Pool, candidate: Candidate) -> bool:
        """Consume the device's counters if enough is available; return whether they were consumed."""
        key = self._key(pool)
        available = self._available.get(key)
        if available is None:
            available = self._available[key] = available_of(pool, self._allocated)
        if key not in self._overdrawn:
            self._overdrawn[key] = any(amount < 0 for amount in available.values())
        if self._overdrawn[key]:
            return False
        taken = self._taken.setdefault(key, {})
        for counter, amount in candidate.consumption:
            if counter in available and taken.get(counter, 0) + amount > available[counter]:
                return False
        for counter, amount in candidate.consumption:
            taken[counter] = taken.get(counter, 0) + amount
        return True

    def give_back(self, pool: Pool, candidate: Candidate) -> None:
        """Undo `take`."""
        taken = self._taken[self._key(pool)]
        for counter, amount in candidate.consumption:
            taken[counter] -= amount

    def _key(self, pool: Pool) -> PoolId:
        return ("", pool.name) if self._is_by_name else pool.id


def available_of(pool: Pool, allocated: Allocated) -> dict[CounterId, int]:
    """Return the available amount of each counter of the pool, in thousandths; negative when it is over-committed."""
    left = dict(pool.counters)
    for name in allocated.of_pool(pool.id):
        for counter, amount in pool.consumption.get(name, ()):
            left[counter] -= amount
    return left
