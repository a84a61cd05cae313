"""Devices, slices, claims and nodes for tests of the allocator, and the one way to ask it."""

from msgspec.structs import replace

from services.api.kinds.deviceclass import DeviceClass, DeviceClassSpec
from services.api.kinds.devicetaintrule import DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from services.api.kinds.node import Node
from services.api.kinds.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from services.api.kinds.resourceclaim import (
    CapacityRequirements,
    CELDeviceSelector,
    DeviceClaim,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from services.api.kinds.resourceslice import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from services.api.meta import ObjectMeta
from services.dra.allocated_devices import Allocated
from services.dra.allocator import Allocator
from services.dra.features import Features
from services.dra.pools import Slices

DRIVER = "gpu.example"
GPU = DeviceClass(metadata=ObjectMeta(name="gpu"))


def attribute(value):
    if isinstance(value, bool):
        return DeviceAttribute(bool_value=value)
    if isinstance(value, int):
        return DeviceAttribute(int_value=value)
    if isinstance(value, list):
        return DeviceAttribute(strings=tuple(value))
    return DeviceAttribute(string=value)


def device(name, *, consumes=None, taints=(), capacity=None, shared=False, **more):
    """`more` that are fields of a device stay so, all others are attributes; consumes: `{set: {counter: amount}}`."""
    fields = {key: more.pop(key) for key in list(more) if key in Device.__struct_fields__}
    return Device(
        name=name,
        attributes={key: attribute(value) for key, value in more.items()},
        consumes_counters=tuple(
            DeviceCounterConsumption(counter_set=key, counters={k: Counter(value=v) for k, v in amounts.items()})
            for key, amounts in (consumes or {}).items()
        ),
        taints=tuple(taints),
        capacity={key: each if isinstance(each, DeviceCapacity) else DeviceCapacity(value=each)
                  for key, each in (capacity or {}).items()},
        allow_multiple_allocations=shared,
        **fields,
    )  # fmt: skip


def offer(name, *devices, node="n1", pool="", generation=1, count=1, driver=DRIVER, counters=None, **where):
    spec = ResourceSliceSpec(
        driver=driver,
        devices=tuple(each if isinstance(each, Device) else device(each) for each in devices),
        shared_counters=tuple(
            CounterSet(name=key, counters={k: Counter(value=v) for k, v in amounts.items()})
            for key, amounts in (counters or {}).items()
        ),
        pool=ResourcePool(name=pool or node, generation=generation, resource_slice_count=count),
        **(where or {"node_name": node}),
    )
    return ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)


def policy(value, *, default=None, values=(), least=None, most=None, step=None):
    bounds = CapacityRequestPolicyRange(min=least, max=most, step=step) if least is not None else None
    rule = CapacityRequestPolicy(default=default, valid_values=tuple(values), valid_range=bounds)
    return DeviceCapacity(value=value, request_policy=rule)


def _parts(kind, *, count=1, mode="ExactCount", where=(), of="gpu", tolerate=(), capacity=None, **more):
    return kind(
        device_class_name=of,
        count=count,
        allocation_mode=mode,
        selectors=tuple(DeviceSelector(cel=CELDeviceSelector(expression=text)) for text in where),
        tolerations=tuple(tolerate),
        capacity=CapacityRequirements(requests=capacity) if capacity is not None else None,
        **more,
    )


def request(name="r", *, admin=False, **asked):
    return DeviceRequest(name=name, exactly=_parts(ExactDeviceRequest, admin_access=admin, **asked))


def alternative(name, **asked):
    return _parts(DeviceSubRequest, name=name, **asked)


def first_of(name, *alternatives):
    return DeviceRequest(name=name, first_available=alternatives)


def claim(name="c", *requests, constraints=(), config=(), allocation=None):
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=requests, constraints=tuple(constraints), config=config))
    made = ResourceClaim(metadata=ObjectMeta(name=name, namespace="default", uid=name), spec=spec)
    return replace(made, status=replace(made.status, allocation=allocation))


def match(name, *requests):
    return DeviceConstraint(match_attribute=f"{DRIVER}/{name}", requests=requests)


def distinct(name, *requests):
    return DeviceConstraint(distinct_attribute=f"{DRIVER}/{name}", requests=requests)


def taint(key="k", effect="NoSchedule", value=""):
    return DeviceTaint(key=key, value=value, effect=effect, time_added="2026-01-01T00:00:00Z")


def tolerate(key="", operator="Exists", value="", effect="", seconds=None):
    return DeviceToleration(key=key, operator=operator, value=value, effect=effect, toleration_seconds=seconds)


def rule(name, *, effect="NoSchedule", selector=None, **selected):
    chosen = selector if selector is not None or not selected else DeviceTaintSelector(**selected)
    return DeviceTaintRule(
        metadata=ObjectMeta(name=name), spec=DeviceTaintRuleSpec(device_selector=chosen, taint=taint(name, effect))
    )


def device_class(name, *where, config=()):
    selectors = tuple(DeviceSelector(cel=CELDeviceSelector(expression=text)) for text in where)
    return DeviceClass(metadata=ObjectMeta(name=name), spec=DeviceClassSpec(selectors=selectors, config=config))


def in_zone(zone):
    only = NodeSelectorRequirement(key="zone", operator="In", values=(zone,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(only,)),))


def on_node(name):
    only = NodeSelectorRequirement(key="metadata.name", operator="In", values=(name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(only,)),))


def node(name="n1", **labels):
    return Node(metadata=ObjectMeta(name=name, labels=labels))


def numbered():
    """Return what makes share ids 1, 2, ..."""
    made = iter(range(1, 1000))
    return lambda: str(next(made))


class Cluster:
    """Slices and what is allocated of them; `allocate` asks for claims on a node, `grant` keeps the answer."""

    def __init__(self, *slices, classes=(GPU,), **features):
        self.features = Features(**features)
        self.slices = Slices(slices, self.features)
        self.allocated = Allocated(consumable_capacity=self.features.consumable_capacity)
        self.classes = {each.metadata.name: each for each in classes}
        self.ids = numbered()

    def allocate(self, *claims, on="n1", tries_max=None):
        """Return one allocation a claim, or the reason why there is none."""
        at = on if isinstance(on, Node) else node(on)
        allocator = Allocator(claims, self.classes.get, self.allocated, self.features, tries_max=tries_max)
        found = allocator.allocate(at.metadata.name, self.slices.of_node(at))
        return found if isinstance(found, str) else found.allocations(at.metadata.name, self.ids)

    def grant(self, *claims, on="n1"):
        found = self.allocate(*claims, on=on)
        assert not isinstance(found, str), found
        for each, allocation in zip(claims, found, strict=True):
            self.allocated.put(each.metadata.uid, allocation)
        return found

    def devices(self, *claims, **more):
        """Return the names of the devices of each claim, or the reason."""
        found = self.allocate(*claims, **more)
        return found if isinstance(found, str) else [[each.device for each in one.devices.results] for one in found]
