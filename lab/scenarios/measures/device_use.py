"""Share of the devices of DRA drivers that is allocated to claims. Pure.

It is counted by driver: allocated devices out of those in its slices, in the newest generation of each
pool. A device that claims share counts once. A device of which parts can be allocated counts as any other
(KEP-4815). A device with only administrative access is not in use (KEP-5018).

Source: dra-core 2; KEP-4381.
"""

from collections import Counter

from lab.scenarios.measures.placement import Level
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.kinds.resourceslice import ResourceSlice
from services.api.meta import Key
from services.reconcile.controller import Change

_Device = tuple[str, str, str]
"""Driver, pool and name of a device."""


class DeviceUse:
    """The devices of all drivers. Times are seconds since the run began."""

    def __init__(self) -> None:
        self._slices: dict[str, ResourceSlice] = {}
        self._offered: Counter[str] = Counter()
        self._held: dict[Key, tuple[_Device, ...]] = {}
        self._claims_of: Counter[_Device] = Counter()
        self._allocated: Counter[str] = Counter()
        self._levels: dict[str, Level] = {}
        self._begun_s: dict[str, float] = {}

    def on_slice(self, change: Change[ResourceSlice], now_s: float) -> None:
        """Process a change of a slice, seen at `now_s`."""
        name, driver = change.object.metadata.name, change.object.spec.driver
        if change.new is not None:
            self._slices[name] = change.new
        else:
            self._slices.pop(name, None)
        own = [each.spec for each in self._slices.values() if each.spec.driver == driver]
        newest: dict[str, int] = {}
        for spec in own:
            newest[spec.pool.name] = max(newest.get(spec.pool.name, 0), spec.pool.generation)
        current = (each for each in own if each.pool.generation == newest[each.pool.name])
        self._offered[driver] = len({(each.pool.name, device.name) for each in current for device in each.devices})
        self._measure(driver, now_s)

    def on_claim(self, change: Change[ResourceClaim], now_s: float) -> None:
        """Process a change of a claim, seen at `now_s`."""
        key = change.object.metadata.key
        allocation = change.new.status.allocation if change.new is not None else None
        results = allocation.devices.results if allocation is not None else ()
        holds = tuple((each.driver, each.pool, each.device) for each in results if not each.admin_access)
        held = self._held.pop(key, ())
        if holds:
            self._held[key] = holds
        if holds == held:
            return
        for device in holds:
            self._claims_of[device] += 1
            self._allocated[device[0]] += self._claims_of[device] == 1
        for device in held:
            self._claims_of[device] -= 1
            self._allocated[device[0]] -= self._claims_of[device] == 0
        for driver in sorted({device[0] for device in (*held, *holds)}):
            self._measure(driver, now_s)

    def _measure(self, driver: str, now_s: float) -> None:
        offered, allocated = self._offered[driver], self._allocated[driver]
        if allocated:
            self._begun_s.setdefault(driver, now_s)
        self._levels.setdefault(driver, Level()).set(allocated / offered if offered else 0.0, now_s)

    def measures(self, begun_s: float, now_s: float) -> dict[str, float | None]:
        """Return the figures by name, for drivers with a device that was ever allocated; `begun_s`: start of the
        counted time.
        """
        figures: dict[str, float | None] = {}
        for driver in sorted(self._begun_s):
            level = self._levels[driver]
            figures[f"{driver}_utilization_end"] = level.value
            figures[f"{driver}_utilization_mean"] = level.mean(min(begun_s, self._begun_s[driver]), now_s)
            figures[f"{driver}_utilization_max"] = level.peak
        return figures
