"""The definition of an emulated DRA driver, from a node's definition or a file: devices and behavior. Pure.

Source: dra-core 1.1 (slices, devices), 7.1 (emulated driver knobs).
"""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

import msgspec

from kubelet.runtime.latency import Distribution
from services.api.errors import UNREADABLE
from services.api.kinds.resourceslice import Device
from services.api.meta import Document

SLICE_MAX, GATED_SLICE_MAX = 128, 64
"""Maximal number of devices in a slice, and in a slice whose devices have taints or consume counters."""
DEVICES_MAX: Final = 100_000
"""Maximal number of devices that a pool may be given as a count."""
COUNTER_SETS_MAX: Final = 8
"""Maximal number of counter sets in a slice."""
NODE_NAME: Final = "$(NODE_NAME)"
"""The placeholder for the node's name in a pool's name, as in a container's environment."""
_GATED: Final = ("taints", "consumesCounters")
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_FIELDS: Final = frozenset(Device.__struct_encode_fields__)
_CHANCES: Final = ("fail_prepare", "fail_unprepare", "fail_call")
_TIMES: Final = ("prepare", "unprepare", "publish_delay", "slice_delay", "binding_delay")
FORM: Final = (
    "want NAME:DEVICES[:prepare=S][:unprepare=S][:dead=FROM-TO][:slices=N][:publish-delay=S][:slice-delay=S]"
    "[:fail-prepare=P][:fail-unprepare=P][:fail-call=P][:binding-condition=NAME:binding-failure-condition=NAME]"
    "[:binding-delay=S][:fail-binding=DEVICE]"
)
_OPTIONS: Final = {
    "prepare": "prepare",
    "unprepare": "unprepare",
    "slices": "slices",
    "publish-delay": "publishDelay",
    "slice-delay": "sliceDelay",
    "fail-prepare": "failPrepare",
    "fail-unprepare": "failUnprepare",
    "fail-call": "failCall",
    "binding-delay": "bindingDelay",
}
_LISTS: Final = {
    "binding-condition": "bindingConditions",
    "binding-failure-condition": "bindingFailureConditions",
    "fail-binding": "failBinding",
}


class PoolDefinition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One pool of devices.

    `devices`: their number, or each device as ResourceSlices spell it, attributes, capacity, counters and
    taints included. `shared_counters`: the counters that they consume (KEP-4815). `$(NODE_NAME)` in its name is
    the node's. `slice_sizes`: the number of devices in each slice, instead of the driver's `slices`, as long as
    the pool has so many devices.
    """

    name: str
    devices: int | list[dict[str, Any]] = 0
    shared_counters: list[dict[str, Any]] = []
    slice_sizes: tuple[int, ...] = ()


class DriverDefinition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One driver on a node.

    `devices` and `shared_counters` are those of the pool that has the node's name; `pools` are further ones. A
    pool is published in `slices` slices (0: as few as possible), and first with that `generation`. Times are
    seconds, or a distribution such as `lognormal:0.3,0.5`: `prepare` and `unprepare` of a call, `publish_delay`
    before devices are offered, `slice_delay` between the slices of a pool, so that the pool is incomplete
    meanwhile. `fail_prepare` and `fail_unprepare` are the probabilities that a claim fails, `fail_call` that a
    whole call fails. `refuses_double_use`: a device that is prepared for a claim is refused to another; None:
    as the switch `dra.double_allocation_guard` says. `health`: it streams the health of its devices (KEP-4680).
    `binding_conditions`, `binding_failure_conditions`: defaults for devices without their own (KEP-5007). A
    driver sets the former to True when such a device has been allocated for `binding_delay`. For a device in
    `fail_binding` it sets the first of the latter; with `taints_failed` it taints the device `NoSchedule`
    before, without which the scheduler may choose it again. The driver is away in the spans `dead`: seconds
    since it began.
    """

    name: str
    devices: int | list[dict[str, Any]] = 0
    shared_counters: list[dict[str, Any]] = []
    pools: tuple[PoolDefinition, ...] = ()
    slices: int = 0
    generation: int = 1
    prepare: float | str = 0.2
    unprepare: float | str = 0.1
    publish_delay: float | str = 0.0
    slice_delay: float | str = 0.0
    fail_prepare: float = 0.0
    fail_unprepare: float = 0.0
    fail_call: float = 0.0
    refuses_double_use: bool | None = None
    health: bool = True
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    binding_delay: float | str = 0.0
    fail_binding: tuple[str, ...] = ()
    taints_failed: bool = True
    dead: tuple[tuple[float, float], ...] = ()

    def check(self) -> None:
        """Raise ValueError naming the field when the definition is invalid."""
        if not NAME.fullmatch(self.name) or len(self.name) > 63:
            raise ValueError(f"name: {self.name!r}, want a DNS subdomain of at most 63 characters")
        for field in _CHANCES:
            chance = float(getattr(self, field))
            if not 0.0 <= chance <= 1.0:
                raise ValueError(f"{_camel(field)}: {chance:g}, want 0 to 1")
        for field in _TIMES:
            try:
                self.duration(field)
            except ValueError as error:
                raise ValueError(f"{_camel(field)}: {error}") from None
        if self.slices < 0:
            raise ValueError(f"slices: {self.slices}, want 0 or more")
        if self.generation < 0:
            raise ValueError(f"generation: {self.generation}, want 0 or more")
        for number, (start, end) in enumerate(self.dead):
            if not 0.0 <= start < end:
                raise ValueError(f"dead[{number}]: from {start:g} to {end:g}, want 0 or more, and an end after it")
        if bool(self.binding_conditions) != bool(self.binding_failure_conditions):
            raise ValueError(
                f"bindingConditions: {_list_text(self.binding_conditions)} with bindingFailureConditions: "
                f"{_list_text(self.binding_failure_conditions)}, want some of both or of neither"
            )
        names: dict[str, None] = {}
        for pool in self.all_pools(""):
            if pool.name in names:
                raise ValueError(f"pools: two are called {pool.name!r}")
            names[pool.name] = None
            self._check_devices(pool, f"pool {pool.name!r}: " if pool.name else "")
        known = [device for pool in self.all_pools("") for device in self.devices_of(pool)]
        bindable = [str(device["name"]) for device in known if device.get("bindingFailureConditions")]
        if unknown := next((name for name in self.fail_binding if name not in bindable), None):
            raise ValueError(
                f"failBinding: {unknown!r} is no device with binding conditions; there are: "
                f"{', '.join(bindable) or 'none'}"
            )

    def _check_devices(self, pool: PoolDefinition, where: str) -> None:
        if isinstance(pool.devices, int) and not 0 <= pool.devices <= DEVICES_MAX:
            raise ValueError(f"{where}devices: {pool.devices}, want 0 to {DEVICES_MAX}")
        seen: dict[str, int] = {}
        for number, device in enumerate(self.devices_of(pool)):
            name = device.get("name", "")
            if name == "":
                raise ValueError(f"{where}device {number} has no name")
            if not isinstance(name, str) or not _LABEL.fullmatch(name) or len(name) > 63:
                raise ValueError(f"{where}devices[{number}].name: {name!r}, want a DNS label of at most 63 characters")
            if name in seen:
                raise ValueError(
                    f"{where}devices[{number}].name: two devices are called {name!r}, this and {seen[name]}"
                )
            seen[name] = number
            if unknown := next((field for field in device if field not in _FIELDS), None):
                raise ValueError(
                    f"{where}devices[{number}]: no field {unknown!r}; there are: {', '.join(sorted(_FIELDS))}"
                )
        _check_counters(pool, where)

    def duration(self, field: str) -> Distribution:
        """Return the distribution of one of the times. Raises: ValueError."""
        value = getattr(self, field)
        if isinstance(value, str):
            return Distribution.parse(value)
        if value < 0:
            raise ValueError(f"{value:g}, want 0 or more")
        return Distribution("constant", (float(value),))

    def all_pools(self, node: str) -> list[PoolDefinition]:
        """Return the pools, the node's own first; only the others if the node's own has no devices configured."""
        own = PoolDefinition(name=node, devices=self.devices, shared_counters=self.shared_counters)
        others = [msgspec.structs.replace(pool, name=pool.name.replace(NODE_NAME, node)) for pool in self.pools]
        return [own, *others] if self.devices or not others else others

    def devices_of(self, pool: PoolDefinition) -> list[Document]:
        """Return a pool's devices as a ResourceSlice lists them."""
        word, more = self.name.partition(".")[0], self._conditions
        if isinstance(pool.devices, list):
            return [{**({} if "bindingConditions" in device else more), **device} for device in pool.devices]
        return [{"name": f"{word}-{number}", **more} for number in range(pool.devices)]

    @property
    def _conditions(self) -> Document:
        if not self.binding_conditions:
            return {}
        return {
            "bindingConditions": list(self.binding_conditions),
            "bindingFailureConditions": list(self.binding_failure_conditions),
        }

    @property
    def is_bindable(self) -> bool:
        """Whether any device has binding conditions."""
        pools = self.all_pools("")
        return any(device.get("bindingConditions") for pool in pools for device in self.devices_of(pool))


def _list_text(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


def _check_counters(pool: PoolDefinition, where: str) -> None:
    """Raise ValueError for a device that draws from a counter its pool does not have: no scheduler would use the pool.

    Source: dra-core 3.1, step 4.
    """
    declared: dict[str, dict[str, Any]] = {}
    for place, counter_set in enumerate(pool.shared_counters):
        name = str(counter_set.get("name", ""))
        if name in declared:
            raise ValueError(f"{where}sharedCounters[{place}].name: two counter sets are called {name!r}")
        declared[name] = counter_set.get("counters") or {}
    for number, device in enumerate(pool.devices if isinstance(pool.devices, list) else ()):
        consumed = device.get("consumesCounters") or ()
        for place, consumption in enumerate(consumed if isinstance(consumed, list) else ()):
            at, name = f"{where}devices[{number}].consumesCounters[{place}]", consumption.get("counterSet")
            if name not in declared:
                raise ValueError(
                    f"{at}.counterSet: {name!r} is not among the pool's sharedCounters: {', '.join(declared) or 'none'}"
                )
            if unknown := next(
                (counter for counter in consumption.get("counters") or () if counter not in declared[name]), ""
            ):
                raise ValueError(
                    f"{at}.counters: {unknown!r} is not in counter set {name!r}, which has: "
                    f"{', '.join(declared[name]) or 'none'}"
                )


def chunks(devices: list[Document], wanted: int, sizes: Sequence[int] = ()) -> list[list[Document]]:
    """Return the devices by slice.

    If `sizes` covers all devices, it decides. Otherwise there are `wanted` slices, or more if a slice would be
    too large.
    """
    most = GATED_SLICE_MAX if any(device.get(field) for device in devices for field in _GATED) else SLICE_MAX
    if sizes and sum(sizes) == len(devices) and max(sizes) <= most:
        ends = [0, *accumulate(sizes)]
        return [devices[start:end] for start, end in pairwise(ends)]
    count = max(1 if devices else 0, wanted, -(-len(devices) // most))
    if count == 0:
        return []
    size, larger = divmod(len(devices), count)
    ends = [place * size + min(place, larger) for place in range(count + 1)]
    return [devices[start:end] for start, end in pairwise(ends)]


def read_definition(shape: Mapping[str, Any] | bytes) -> DriverDefinition:
    """Return the driver that a JSON object describes. Raises: ValueError naming the field."""
    try:
        if isinstance(shape, bytes):
            definition = msgspec.json.decode(shape, type=DriverDefinition, strict=False)
        else:
            definition = msgspec.convert(shape, DriverDefinition, strict=False)
    except UNREADABLE as error:
        raise ValueError(str(error)) from None
    definition.check()
    return definition


def parse_drivers(text: str) -> list[dict[str, Any]]:
    """Return the definitions in a text such as `gpu.example.com:4:prepare=2+nic.example.com:1:dead=60-100`.

    Raises: ValueError.
    """
    drivers = []
    for part in text.split("+"):
        name, *rest = part.split(":")
        if not name or not rest or not rest[0].isdigit():
            raise ValueError(f"drivers: {part!r}, {FORM}")
        drivers.append({"name": name, "devices": int(rest[0]), **parse_options(rest[1:])})
    return drivers


def parse_options(options: Sequence[str]) -> dict[str, Any]:
    """Return the fields that options such as `prepare=2` and `dead=60-100` set. Raises: ValueError."""
    fields: dict[str, Any] = {}
    for option in options:
        key, sign, value = option.partition("=")
        if sign and value and key in _LISTS:
            fields.setdefault(_LISTS[key], []).append(value)
            continue
        if not sign or (key not in _OPTIONS and key != "dead"):
            raise ValueError(f"drivers: {option!r}, {FORM}")
        try:
            if key == "dead":
                start, _, end = value.partition("-")
                fields[key] = [[float(start), float(end)]]
            else:
                fields[_OPTIONS[key]] = int(value) if key == "slices" else float(value)
        except ValueError:
            raise ValueError(f"drivers: {option!r}: {value!r} is not a number") from None
    return fields


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)
