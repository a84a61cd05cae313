"""DeviceClass: devices that claims ask for by one name, and how their drivers are configured (KEP-4381)."""

from typing import Any

from services.api.kinds.resourceclaim import DeviceSelector
from services.api.meta import AGE, NAME, ObjectView, Resource, View

CLASSES = "deviceclasses.resource.k8s.io"


class DeviceClassSpec(View, frozen=True):
    """A device belongs to the class when all selectors say so. `config` is for drivers, as documents."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[dict[str, Any], ...] = ()
    extended_resource_name: str | None = None
    """The extended resource that pods may request devices of this class by, without a claim (KEP-5004)."""


class DeviceClass(ObjectView, frozen=True):
    """A class as components see it."""

    spec: DeviceClassSpec = DeviceClassSpec()


RESOURCE = Resource(
    DeviceClass,
    plural="deviceclasses",
    group="resource.k8s.io",
    namespaced=False,
    has_generation=True,
    columns=(NAME, AGE),
)
