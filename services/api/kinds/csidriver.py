"""CSIDriver: what a storage driver can do and wants to be asked (storage.k8s.io/v1)."""

from __future__ import annotations

from typing import Any

from services.api.meta import Document, ObjectMeta, View
from services.api.printing import AGE, NAME, age
from services.api.resources import Column, Resource


class CSIDriverSpec(View, frozen=True):
    """`storage_capacity`: the driver publishes CSIStorageCapacity objects and wants them respected."""

    attach_required: bool = True
    storage_capacity: bool = False


class CSIDriver(View, frozen=True):
    """A driver as rooms see it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


def _cells(document: Document, now: float) -> list[Any]:
    spec = document.get("spec", {})
    requests = ",".join(str(each.get("audience", "")) for each in spec.get("tokenRequests") or ())
    return [
        document["metadata"].get("name", ""), spec.get("attachRequired", True), bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")), requests or "<unset>", bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or "<none>", age(document, now),
    ]  # fmt: skip


RESOURCE = Resource(
    kind="CSIDriver",
    plural="csidrivers",
    singular="csidriver",
    group="storage.k8s.io",
    namespaced=False,
    view=CSIDriver,
    has_spec=True,
    columns=(
        NAME, Column("AttachRequired", "boolean"), Column("PodInfoOnMount", "boolean"),
        Column("StorageCapacity", "boolean"), Column("TokenRequests"), Column("RequiresRepublish", "boolean"),
        Column("Modes"), AGE,
    ),
    cells=_cells,
)  # fmt: skip
