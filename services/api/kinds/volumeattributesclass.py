"""VolumeAttributesClass: attributes of a volume that may change during its lifetime (storage.k8s.io/v1, KEP-3751)."""

from services.api.meta import AGE, NAME, Column, ObjectView, Resource


class VolumeAttributesClass(ObjectView, frozen=True):
    """A VolumeAttributesClass as components see it."""

    driver_name: str = ""
    parameters: dict[str, str] = {}


RESOURCE = Resource(
    VolumeAttributesClass,
    "storage.k8s.io",
    plural="volumeattributesclasses",
    namespaced=False,
    short_names=("vac",),
    columns=(NAME, Column("DriverName", "driverName"), AGE),
)
