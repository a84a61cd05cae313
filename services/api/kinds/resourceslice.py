"""ResourceSlice: devices of one pool that a driver offers on the same nodes (resource.k8s.io/v1, KEP-4381)."""

import msgspec

from services.api.kinds.pod import NodeSelector
from services.api.meta import AGE, NAME, Column, ObjectView, Resource, View

SLICES = "resourceslices.resource.k8s.io"


NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"


class DeviceAttribute(View, frozen=True):
    """A typed attribute value; exactly one member is set. `version` follows semver 2.0.0. The lists exist with the
    gate DRAListTypeAttributes.
    """

    int_value: int | None = msgspec.field(name="int", default=None)
    bool_value: bool | None = msgspec.field(name="bool", default=None)
    string: str | None = None
    version: str | None = None
    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None

    @property
    def typed_value(self) -> tuple[str, int | bool | str] | None:
        """The type of the value, and the value; None if no scalar member is set. Versions are compared as text."""
        values = {"int": self.int_value, "bool": self.bool_value, "string": self.string, "version": self.version}
        return next(((kind, value) for kind, value in values.items() if value is not None), None)


class CapacityRequestPolicyRange(View, frozen=True):
    """Range of allowed values: from `min` in steps to `max`, as quantities; None: no bound."""

    min: str = "0"
    max: str | None = None
    step: str | None = None


class CapacityRequestPolicy(View, frozen=True):
    """Rounding of requests for a share of a capacity (KEP-5075): to one of `valid_values`, or within a range.

    `default` applies to a claim that requests none.
    """

    default: str | None = None
    valid_values: tuple[str, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(View, frozen=True):
    """Amount of one capacity of a device, as a quantity."""

    value: str = "0"
    request_policy: CapacityRequestPolicy | None = None


class Counter(View, frozen=True):
    """An amount that devices of a pool share, as a quantity."""

    value: str = "0"


class CounterSet(View, frozen=True):
    """Counters of a pool that its devices draw from (partitionable devices, KEP-4815)."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(View, frozen=True):
    """Counters that a device consumes from a counter set while it is allocated."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(View, frozen=True):
    """Device taint: keeps pods off a device (NoSchedule), or evicts pods that use it (NoExecute); effect None only
    informs.
    """

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Device(View, frozen=True):
    """One device; its name is unique in the pool.

    The slice says which nodes reach it, or, with `perDeviceNodeSelection`, the device does. `binds_to_node`: an
    allocation is for one node even if the device is reachable from several. Before a pod is bound, all
    `binding_conditions` must be True and no `binding_failure_conditions` may be True (KEP-5007).
    `allow_multiple_allocations`: claims share its capacity (KEP-5075).
    """

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False


class ResourcePool(View, frozen=True):
    """A pool of devices. It is complete when there are `resource_slice_count` slices of its newest generation."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(View, frozen=True):
    """Devices that a driver offers: on one node, on the selected nodes, on all nodes, or where each device says."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(ObjectView, frozen=True):
    """A slice as components see it."""

    spec: ResourceSliceSpec = ResourceSliceSpec()


RESOURCE = Resource(
    ResourceSlice,
    "resource.k8s.io",
    namespaced=False,
    has_generation=True,
    columns=(
        NAME,
        Column("Node", "spec.nodeName"),
        Column("Driver", "spec.driver"),
        Column("Pool", "spec.pool.name"),
        AGE,
    ),
    selectable_fields={
        "spec.nodeName": lambda d: (d.get("spec") or {}).get("nodeName") or "",
        "spec.driver": lambda d: (d.get("spec") or {}).get("driver") or "",
        "spec.pool.name": lambda d: ((d.get("spec") or {}).get("pool") or {}).get("name") or "",
    },
)
