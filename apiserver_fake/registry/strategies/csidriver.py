"""CSIDrivers: upstream's defaults, and what a driver may not take back."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.validation.fields import Field, Struct

SPEC = Struct(
    Field("attachRequired", default=True, is_immutable=True),
    Field("podInfoOnMount", default=False),
    Field("storageCapacity", default=False),
    Field("fsGroupPolicy", default="ReadWriteOnceWithFSType"),
    Field(
        "volumeLifecycleModes",
        default=["Persistent"],
        items=Field(enum=("Ephemeral", "Persistent")),
        is_immutable=True,
    ),
    Field("requiresRepublish", default=False),
    Field("seLinuxMount", default=False),
    are_defaults_last=True,
)
STRATEGIES = {"csidrivers.storage.k8s.io": declared(Struct(Field("spec", default={}, struct=SPEC)))}
