"""Allocated devices of the cluster, updated claim by claim. Pure.

It counts three things: devices that a claim holds alone, shares of devices, and the capacity that shares
consume. Devices with admin access do not count. Consumed counters are computed from the devices, because only
the slices say what a device takes (`counters`).
Source: dra-core 3.3, 6.1; upstream
`staging/src/k8s.io/dynamic-resource-allocation/structured/internal/allocatedstate.go`,
`pkg/scheduler/framework/plugins/dynamicresources/allocateddevices.go`.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from services.api.kinds.resourceclaim import AllocationResult, DeviceRequestAllocationResult
from services.api.quantity import milli
from services.dra.capacity import full_name
from services.dra.changes import Changes
from services.dra.ids import DeviceId, PoolId

Use = tuple[DeviceId, str | None, tuple[tuple[str, int], ...]]
"""A device of a claim: its id, the id of the share (None: the whole device), and the share's consumption in
thousandths.
"""
NOTHING: Final[Mapping[str, int]] = {}
K = TypeVar("K")


class Allocated:
    """Allocated devices by claim uid. `put` and `drop` update one claim; reading is cheap.

    With DRAConsumableCapacity off a share counts as the whole device.
    """

    def __init__(self, *, consumable_capacity: bool = True) -> None:
        self._consumable = consumable_capacity
        self._by_claim: dict[str, tuple[Use, ...]] = {}
        self._by_pool: dict[PoolId, dict[str, int]] = {}
        self._capacity: dict[DeviceId, dict[str, int]] = {}
        self.devices: dict[DeviceId, int] = {}
        """The devices that claims have for themselves; how many claims, which is one if all is well."""
        self.shared: dict[DeviceId, int] = {}
        """The devices that claims have shares of; how many shares."""
        self.changes: Changes[PoolId] = Changes()
        """The pools whose devices were allocated or freed."""

    def put(self, uid: str, *allocations: AllocationResult | None) -> None:
        """Set the claim's devices; a device in several allocations counts once."""
        results = [each for one in allocations if one is not None for each in one.devices.results]
        uses = tuple(dict.fromkeys(self._use(each) for each in results if not each.admin_access))
        before = self._by_claim.get(uid, ())
        if uses == before:
            return
        self.drop(uid)
        if uses:
            self._by_claim[uid] = uses
        for use in uses:
            self._count(use, 1)

    def without(self, uids: Iterable[str]) -> "Allocated":
        """Return a copy without the devices of these claims."""
        left_out = frozenset(uids)
        remainder = Allocated(consumable_capacity=self._consumable)
        remainder._by_claim = {uid: uses for uid, uses in self._by_claim.items() if uid not in left_out}
        for uses in remainder._by_claim.values():
            for use in uses:
                remainder._count(use, 1)
        return remainder

    def drop(self, uid: str) -> None:
        """Remove all devices of the claim."""
        for use in self._by_claim.pop(uid, ()):
            self._count(use, -1)

    def capacity(self, device: DeviceId) -> Mapping[str, int]:
        """Return the capacity that a device's shares consume, by full name in thousandths."""
        return self._capacity.get(device, NOTHING)

    def of_pool(self, pool: PoolId) -> Iterable[str]:
        """Return the names of a pool's devices that claims hold, wholly or as shares."""
        return self._by_pool.get(pool, NOTHING)

    def _use(self, result: DeviceRequestAllocationResult) -> Use:
        if not (self._consumable and result.share_id is not None):
            return result.id, None, ()
        amounts = ((full_name(name, result.driver), milli(text)) for name, text in result.consumed_capacity.items())
        return result.id, result.share_id, tuple(amounts)

    def _count(self, use: Use, by: int) -> None:
        device, share, amounts = use
        driver, pool, name = device
        _add(self.devices if share is None else self.shared, device, by)
        names = self._by_pool.setdefault((driver, pool), {})
        _add(names, name, by)
        if not names:
            del self._by_pool[driver, pool]
        if amounts:
            consumed = self._capacity.setdefault(device, {})
            for key, amount in amounts:
                _add(consumed, key, by * amount)
            if not consumed:
                del self._capacity[device]
        self.changes.note((driver, pool))


def _add(counts: dict[K, int], key: K, by: int) -> None:
    value = counts.get(key, 0) + by
    if value:
        counts[key] = value
    else:
        counts.pop(key, None)
