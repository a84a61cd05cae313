"""Pools of slices that a node reaches, complete or not. Pure.

A driver changes a pool by publishing slices of a higher generation. Until all of them exist nothing may be
allocated from the pool, because its free devices are unknown.
Source: dra-core 3.1; upstream `staging/src/k8s.io/dynamic-resource-allocation/structured/internal`,
`GatherPools`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from services.api.kinds.devicetaintrule import DeviceTaintRule
from services.api.kinds.node import Node
from services.api.kinds.pod import NodeSelector
from services.api.kinds.resourceslice import Device, DeviceAttribute, DeviceTaint, ResourceSlice, ResourceSliceSpec
from services.api.node_selection import is_met
from services.api.quantity import milli
from services.dra.changes import Changes
from services.dra.features import Features
from services.dra.ids import CounterId, DeviceId, PoolId
from services.dra.taints import blocking, concerns, with_rules

Values = frozenset[tuple[str, int | bool | str]]
"""Typed values of an attribute; versions are compared as text."""
EVERY_NODE: Final = ""
ANSWERS_KEPT: Final = 256
_DEFAULTS: Final = Features()
K = TypeVar("K")


class Content:
    """The part of a device that selectors, constraints and capacity requests can read.

    Devices with equal content share the object, and with it the computed answers (`memo`, by question).
    """

    __slots__ = ("__weakref__", "attributes", "device", "driver", "memo")

    def __init__(self, driver: str, device: Device) -> None:
        self.driver = driver
        self.device = device
        self.attributes: dict[str, Values | None] = {}
        self.memo: dict[Any, Any] = {}

    def remember(self, question: Any, answer: Any) -> None:
        """Store an answer; when there are too many, earlier answers are dropped."""
        if len(self.memo) >= ANSWERS_KEPT:
            self.memo.clear()
        self.memo[question] = answer

    def values(self, name: str, *, lists: bool) -> Values | None:
        """Return the values of a fully named attribute; None if the device lacks it. A driver may omit its own
        domain.
        """
        try:
            return self.attributes[name]
        except KeyError:
            domain, _, short = name.rpartition("/")
            attribute = self.device.attributes.get(name)
            if attribute is None and domain == self.driver:
                attribute = self.device.attributes.get(short)
            self.attributes[name] = _values(attribute, lists) if attribute is not None else None
            return self.attributes[name]


def _values(attribute: DeviceAttribute, lists: bool) -> Values:
    if attribute.typed_value is not None:
        return frozenset((attribute.typed_value,))
    if not lists:
        return frozenset()
    kinds: tuple[tuple[str, Sequence[int | bool | str] | None], ...] = (
        ("int", attribute.ints),
        ("bool", attribute.bools),
        ("string", attribute.strings),
        ("version", attribute.versions),
    )
    return frozenset((kind, value) for kind, values in kinds for value in values or ())


class Candidate:
    """A device in the slice that offers it, as one node reaches it.

    `is_reached`: False if the slice selects nodes per device, and this device is on other nodes. `blocking`: its
    taints that must be tolerated; `consumption`: the pool's counters that it takes.
    """

    __slots__ = ("blocking", "consumption", "content", "device", "id", "is_reached", "is_shared", "offer")

    def __init__(self, offer: ResourceSliceSpec, device: Device, content: Content, *, is_reached: bool) -> None:
        self.offer = offer
        self.device = device
        self.content = content
        self.id: DeviceId = (offer.driver, offer.pool.name, device.name)
        self.is_reached = is_reached
        self.is_shared = device.allow_multiple_allocations
        self.blocking: tuple[DeviceTaint, ...] = blocking(device) if device.taints else ()
        self.consumption = consumption(device) if device.consumes_counters else ()

    @property
    def node_name(self) -> str:
        """Node of a slice that belongs to one node; empty otherwise."""
        return (self.device.node_name or "") if self.offer.per_device_node_selection else self.offer.node_name

    @property
    def node_selector(self) -> NodeSelector | None:
        """Selector of the nodes that can use the device; None if no selector restricts them."""
        place = self.device if self.offer.per_device_node_selection else self.offer
        return place.node_selector


Consumed = tuple[tuple[CounterId, int], ...]


def consumption(device: Device) -> Consumed:
    """Return the counters that the device takes while it is allocated, in thousandths."""
    return tuple(
        ((each.counter_set, name), milli(counter.value))
        for each in device.consumes_counters
        for name, counter in each.counters.items()
    )


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """One pool as one node reaches it. `invalid`: why its devices cannot be used; empty if they can.

    `missing`: for an incomplete pool, the number of existing slices.
    `counters`: the amounts of its counter sets, in thousandths. `consumption`: the amounts its devices take, by
    device name, including devices that the node does not reach.
    """

    driver: str
    name: str
    candidates: tuple[Candidate, ...] = ()
    is_complete: bool = True
    missing: str = ""
    invalid: str = ""
    counters: Mapping[CounterId, int] = field(default_factory=dict)
    consumption: Mapping[str, Consumed] = field(default_factory=dict)
    has_binding_conditions: bool = False
    """Whether a pod may have to wait for one of its devices; such pools come last."""

    @property
    def id(self) -> PoolId:
        """The id of the pool: `(driver, name)`."""
        return self.driver, self.name

    @property
    def is_usable(self) -> bool:
        """Whether its devices may be allocated."""
        return self.is_complete and not self.invalid


class Slices:
    """All slices and taint rules, updated one by one, to find the pools that a node reaches.

    `changes`: the nodes whose pools changed, `EVERY_NODE` for all.
    """

    def __init__(self, slices: Iterable[ResourceSlice] = (), features: Features = _DEFAULTS) -> None:
        self._features = features
        self._by_name: dict[str, ResourceSlice] = {}
        self._published: dict[str, ResourceSlice] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self._near: dict[str, dict[str, ResourceSlice]] = {}
        self._wide: dict[PoolId, dict[str, ResourceSlice]] = {}
        self._wide_built: dict[PoolId, Pool | None] = {}
        self._by_pool: dict[PoolId, dict[str, ResourceSlice]] = {}
        self._contents: WeakValueDictionary[bytes, Content] = WeakValueDictionary()
        self._of_node: dict[str, tuple[Mapping[str, str], tuple[Pool, ...]]] = {}
        self._built: dict[PoolId, dict[tuple[str, ...], Pool]] = {}
        self._reaches: dict[tuple[int, ...], tuple[Pool, ...]] = {}
        self.changes: Changes[str] = Changes()
        for resource_slice in slices:
            self.put(resource_slice)

    def put(self, offer: ResourceSlice) -> None:
        """Add the slice, or replace the slice of the same name."""
        self.drop(offer.metadata.name)
        self._published[offer.metadata.name] = offer
        (offer,) = with_rules([offer], list(self._rules.values())) if self._rules else (offer,)
        name, spec = offer.metadata.name, offer.spec
        self._by_name[name] = offer
        if self._is_wide(spec):
            self._wide.setdefault(_pool_id(offer), {})[name] = offer
        else:
            self._near.setdefault(spec.node_name, {})[name] = offer
        self._by_pool.setdefault(_pool_id(offer), {})[name] = offer
        self._on_changed(_pool_id(offer))

    def drop(self, name: str) -> None:
        """Remove the slice of that name, if there is one."""
        self._published.pop(name, None)
        offer = self._by_name.pop(name, None)
        if offer is None:
            return
        key = _pool_id(offer)
        self._on_changed(key)
        _take_out(self._by_pool, key, name)
        if self._is_wide(offer.spec):
            _take_out(self._wide, key, name)
        else:
            _take_out(self._near, offer.spec.node_name, name)

    def put_rule(self, rule: DeviceTaintRule) -> None:
        """Add the rule, or replace the rule of the same name; its taint applies from now on."""
        self.drop_rule(rule.metadata.name)
        if self._features.device_taint_rules:
            self._rules[rule.metadata.name] = rule
            self._taint_anew(rule)

    def drop_rule(self, name: str) -> None:
        """Remove the rule of that name and its taint, if there is one."""
        rule = self._rules.pop(name, None)
        if rule is not None:
            self._taint_anew(rule)

    def _taint_anew(self, rule: DeviceTaintRule) -> None:
        for each in [s for s in self._published.values() if concerns(rule, *_pool_id(s))]:
            self.put(each)

    def nodes_of(self, pool: PoolId) -> list[str]:
        """Return the nodes that slices of a pool belong to; `EVERY_NODE` when some slice belongs to no single node."""
        found = dict.fromkeys(each.spec.node_name for each in self._by_pool.get(pool, {}).values())
        return [EVERY_NODE] if "" in found else list(found)

    def of_node(self, node: Node) -> tuple[Pool, ...]:
        """Return the pools that the node reaches, sorted by driver and name, without obsolete ones.

        Pools with binding conditions come last. Nodes that reach the same pools get the same tuple, as long as nothing
        changes.
        """
        name, labels = node.metadata.name, node.metadata.labels
        known = self._of_node.get(name)
        if known is not None and (known[0] is labels or known[0] == labels):
            return known[1]
        near: dict[PoolId, list[ResourceSlice]] = {}
        for resource_slice in (*self._near.get(name, {}).values(), *self._near.get("", {}).values()):
            if self._is_relevant(resource_slice, node):
                near.setdefault(_pool_id(resource_slice), []).append(resource_slice)
        reachable = []
        for key in sorted({*near, *self._wide}):
            wide = self._wide.get(key, {}).values()
            if key in near:
                pool = self._pool(key, [*near[key], *wide], node)
            else:
                if key not in self._wide_built:
                    self._wide_built[key] = self._pool(key, list(wide), node)
                pool = self._wide_built[key]
            if pool is not None:
                reachable.append(pool)
        reachable.sort(key=lambda pool: pool.has_binding_conditions)
        pools = self._reaches.setdefault(tuple(map(id, reachable)), tuple(reachable))
        self._of_node[name] = labels, pools
        return pools

    def _on_changed(self, key: PoolId) -> None:
        self._built.pop(key, None)
        self._wide_built.pop(key, None)
        self._reaches.clear()
        for node in self.nodes_of(key):
            if node == EVERY_NODE:
                self._of_node.clear()
            else:
                self._of_node.pop(node, None)
            self.changes.note(node)

    def _is_wide(self, spec: ResourceSliceSpec) -> bool:
        """Whether every node reaches the slice, so that no node need be asked."""
        has_counters = bool(spec.shared_counters) and self._features.partitionable_devices
        return not spec.node_name and (has_counters or (spec.all_nodes and not spec.shared_counters))

    def _is_relevant(self, offer: ResourceSlice, node: Node) -> bool:
        spec = offer.spec
        if spec.shared_counters:
            return self._features.partitionable_devices  # a pool cannot be used without them
        if spec.node_name or spec.all_nodes or spec.node_selector is not None:
            return _reaches(node, spec.node_name, spec.all_nodes, spec.node_selector)
        if not (spec.per_device_node_selection and self._features.partitionable_devices):
            return False  # a way of saying where devices are that is not known
        return any(_reaches(node, d.node_name or "", d.all_nodes, d.node_selector) for d in spec.devices)

    def _pool(self, key: PoolId, near: list[ResourceSlice], node: Node) -> Pool | None:
        newest = max(each.spec.pool.generation for each in near)
        near = sorted((s for s in near if s.spec.pool.generation == newest), key=lambda s: s.metadata.name)
        everywhere = near
        wanted = near[0].spec.pool.resource_slice_count
        if len(near) != wanted:
            # The rest may be for other nodes; or there is a newer generation, for other nodes only.
            others = self._by_pool[key].values()
            if any(each.spec.pool.generation > newest for each in others):
                return None
            everywhere = [each for each in others if each.spec.pool.generation == newest]
            if len(everywhere) != wanted:
                missing_text = f"{len(everywhere)} slices of generation {newest}, {near[0].metadata.name} says {wanted}"
                return Pool(*key, is_complete=False, missing=missing_text)
        if any(each.spec.per_device_node_selection for each in near):
            return self._build(key, near, everywhere, node)
        built = self._built.setdefault(key, {})
        names = tuple(each.metadata.name for each in near)
        if names not in built:
            built[names] = self._build(key, near, everywhere, node)
        return built[names]

    def _build(
        self, key: PoolId, near: Sequence[ResourceSlice], everywhere: Sequence[ResourceSlice], node: Node
    ) -> Pool:
        has_counters = self._features.partitionable_devices
        problem = _duplicate("device name", (device.name for each in near for device in each.spec.devices))
        counters: dict[CounterId, int] = {}
        consumed: dict[str, Consumed] = {}
        if has_counters and not problem:
            sets = [each for offer in near for each in offer.spec.shared_counters]
            problem = _duplicate("counter set name", (each.name for each in sets))
            counters = {(each.name, name): milli(c.value) for each in sets for name, c in each.counters.items()}
            devices = [d for offer in (*near, *everywhere) for d in offer.spec.devices if d.consumes_counters]
            problem = problem or next(filter(None, (_missing_counter(d, counters) for d in devices)), "")
            consumed = {device.name: consumption(device) for device in devices}
        if problem:
            return Pool(*key, invalid=problem)
        return Pool(
            *key,
            candidates=tuple(self._candidates(near, node)),
            counters=counters,
            consumption=consumed,
            has_binding_conditions=any(device.binding_conditions for each in near for device in each.spec.devices),
        )

    def _candidates(self, near: Sequence[ResourceSlice], node: Node) -> Iterable[Candidate]:
        for offer in near:
            spec = offer.spec
            for device in spec.devices:
                is_reached = not spec.per_device_node_selection or _reaches(
                    node, device.node_name or "", device.all_nodes, device.node_selector
                )
                yield Candidate(spec, device, self._content(spec.driver, device), is_reached=is_reached)

    def _content(self, driver: str, device: Device) -> Content:
        known = (driver, device.attributes, device.capacity, device.allow_multiple_allocations)
        key = msgspec.msgpack.encode(known)
        content = self._contents.get(key)
        if content is None:
            content = self._contents[key] = Content(driver, device)
        return content


def _take_out(index: dict[K, dict[str, ResourceSlice]], key: K, name: str) -> None:
    del index[key][name]
    if not index[key]:
        del index[key]


def _pool_id(offer: ResourceSlice) -> PoolId:
    return offer.spec.driver, offer.spec.pool.name


def _reaches(node: Node, node_name: str, all_nodes: bool, selector: NodeSelector | None) -> bool:
    meta = node.metadata
    if node_name:
        return node_name == meta.name
    if all_nodes:
        return True
    return selector is not None and any(is_met(term, meta.name, meta.labels) for term in selector.node_selector_terms)


def _duplicate(what: str, names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return f"duplicate {what} {name}"
        seen.add(name)
    return ""


def _missing_counter(device: Device, counters: Mapping[CounterId, int]) -> str:
    known = {name for name, _ in counters}
    for counter_consumption in device.consumes_counters:
        if counter_consumption.counter_set not in known:
            return f"counter set {counter_consumption.counter_set} not found"
        for name in counter_consumption.counters:
            if (counter_consumption.counter_set, name) not in counters:
                return f"counter {name} not found in counter set {counter_consumption.counter_set}"
    return ""
