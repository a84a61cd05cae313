"""ResourceSlice: devices of one pool that a driver offers on the same nodes (resource.k8s.io/v1, KEP-4381)."""

import msgspec

from services.api.kinds.pod import NodeSelector
from services.api.meta import AGE, NAME, Column, ObjectView, Resource, View

SLICES = "resourceslices.resource.k8s.io"


class DeviceAttribute(View, frozen=True):
    """Exactly one of the four; `version` by semver 2.0.0."""

    int_value: int | None = msgspec.field(name="int", default=None)
    bool_value: bool | None = msgspec.field(name="bool", default=None)
    string: str | None = None
    version: str | None = None

    @property
    def typed(self) -> tuple[str, int | bool | str] | None:
        """What kind of value it is, and the value; versions are compared as text."""
        values = {"int": self.int_value, "bool": self.bool_value, "string": self.string, "version": self.version}
        return next(((kind, value) for kind, value in values.items() if value is not None), None)


class DeviceCapacity(View, frozen=True):
    """How much of something a device has, as a quantity."""

    value: str = "0"


class Device(View, frozen=True):
    """One device; its name is unique in the pool."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}


class ResourcePool(View, frozen=True):
    """A pool is complete when there are `resource_slice_count` slices of its newest generation."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(View, frozen=True):
    """What a driver offers: on one node, on those the selector names, or on all."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    devices: tuple[Device, ...] = ()


class ResourceSlice(ObjectView, frozen=True):
    """A slice as components see it."""

    spec: ResourceSliceSpec = ResourceSliceSpec()


RESOURCE = Resource(
    ResourceSlice,
    "resource.k8s.io",
    namespaced=False,
    has_spec=True,
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
