"""DeviceClass: a name by which claims request devices, and the configuration of their drivers (KEP-4381)."""

from typing import Any

from services.api.kinds.resourceclaim import DeviceSelector
from services.api.meta import AGE, NAME, ObjectView, Resource, View

CLASSES = "deviceclasses.resource.k8s.io"


class DeviceClassSpec(View, frozen=True):
    """Spec of a class. A device belongs to it when all selectors match. `config` holds documents for drivers."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[dict[str, Any], ...] = ()
    extended_resource_name: str | None = None
    """Name of the extended resource by which pods request devices of this class without a claim (KEP-5004)."""


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
