"""Eviction times of pods whose claims have devices with NoExecute taints. Pure.

Source: dra-core 8; upstream `pkg/controller/devicetainteviction/device_taint_eviction.go`
(`claimEvictionTime`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.api.kinds.devicetaintrule import DeviceTaintRule
from services.api.kinds.resourceclaim import DeviceRequestAllocationResult, ResourceClaim
from services.api.kinds.resourceslice import NO_EXECUTE, DeviceTaint, ResourceSlice
from services.api.meta import Key
from services.api.times import parse_time
from services.dra.taints import tolerates

Pool = tuple[str, str]
"""Driver and name of a device pool."""


@dataclass(frozen=True)
class Eviction:
    """An eviction time in epoch seconds, and the uids of the rules that cause it, perhaps besides other taints."""

    at_s: float
    rules: tuple[str, ...] = ()


class Offers:
    """The slices of every pool; only slices of a pool's newest generation count."""

    def __init__(self) -> None:
        self._pools: dict[Pool, dict[Key, ResourceSlice]] = {}

    def note(self, old: ResourceSlice | None, new: ResourceSlice | None) -> list[Pool]:
        """Record a changed slice; return the pools whose taints changed."""
        pools = list(dict.fromkeys(pool_of(each) for each in (old, new) if each is not None))
        before = [self.taints(pool) for pool in pools]
        if old is not None and (slices := self._pools.get(pool_of(old))) is not None:
            slices.pop(old.metadata.key, None)
            if not slices:
                del self._pools[pool_of(old)]
        if new is not None:
            self._pools.setdefault(pool_of(new), {})[new.metadata.key] = new
        return [pool for pool, taints in zip(pools, before, strict=True) if self.taints(pool) != taints]

    def taints(self, pool: Pool) -> dict[str, tuple[DeviceTaint, ...]]:
        """Return the NoExecute taints of the pool's devices, by device name."""
        taints_by_device: dict[str, tuple[DeviceTaint, ...]] = {}
        for resource_slice in self._newest(pool):
            for device in resource_slice.spec.devices:
                taints = tuple(taint for taint in device.taints if taint.effect == NO_EXECUTE)
                if taints:
                    taints_by_device[device.name] = taints
        return taints_by_device

    def count(self, rule: DeviceTaintRule) -> int:
        """Return the number of published devices that the rule selects."""
        selector = rule.spec.device_selector
        if selector is None:
            return 0
        named = (
            (*pool, device.name) for pool in self._pools for each in self._newest(pool) for device in each.spec.devices
        )
        return sum(selector.selects(*names) for names in named)

    def _newest(self, pool: Pool) -> list[ResourceSlice]:
        slices = self._pools.get(pool, {}).values()
        newest = max((each.spec.pool.generation for each in slices), default=0)
        return [each for each in slices if each.spec.pool.generation == newest]


def pool_of(offer: ResourceSlice) -> Pool:
    """Return the pool of a slice."""
    return offer.spec.driver, offer.spec.pool.name


def eviction_from(claim: ResourceClaim, offers: Offers, rules: Sequence[DeviceTaintRule]) -> Eviction | None:
    """Return when the claim's pods must be evicted: the earliest time over its devices and their taints; None:
    never.

    A taint that a toleration without seconds matches has no effect. A taint that other tolerations match counts
    from its time plus the fewest seconds; any other taint counts from its time. Deviates: upstream's controller
    ignores tolerations that name no effect, though the scheduler allocates by them.
    """
    if claim.status.allocation is None:
        return None
    deadlines = [
        (at_s, rule)
        for result in claim.status.allocation.devices.results
        for taint, rule in _taints_of(result, offers, rules)
        if (at_s := _until_s(result, taint)) is not None
    ]
    return earliest_eviction(Eviction(at_s, (rule,) if rule else ()) for at_s, rule in deadlines)


def earliest_eviction(evictions: Iterable[Eviction]) -> Eviction | None:
    """Return the earliest time and all rules of the evictions; None if there are none."""
    every = list(evictions)
    if not every:
        return None
    rules = dict.fromkeys(rule for each in every for rule in each.rules)
    return Eviction(min(each.at_s for each in every), tuple(rules))


def selects(rule: DeviceTaintRule, result: DeviceRequestAllocationResult) -> bool:
    """Whether the rule selects an allocated device, published or not."""
    selector = rule.spec.device_selector
    return selector is not None and selector.selects(*result.id)


def _taints_of(
    result: DeviceRequestAllocationResult, offers: Offers, rules: Sequence[DeviceTaintRule]
) -> list[tuple[DeviceTaint, str]]:
    """Return the device's taints with effect NoExecute, each with the uid of its rule, "" for the driver's own."""
    own = [(taint, "") for taint in offers.taints((result.driver, result.pool)).get(result.device, ())]
    by_rules = (rule for rule in rules if rule.spec.taint.effect == NO_EXECUTE and selects(rule, result))
    return own + [(rule.spec.taint, rule.metadata.uid) for rule in by_rules]


def _until_s(result: DeviceRequestAllocationResult, taint: DeviceTaint) -> float | None:
    matching = [each.toleration_seconds for each in result.tolerations if tolerates(each, taint)]
    if any(seconds is None for seconds in matching):
        return None
    added_s = parse_time(taint.time_added) if taint.time_added else 0.0
    return added_s + max(0, min((seconds for seconds in matching if seconds is not None), default=0))
