"""CSIDriver: capabilities of a storage driver, and the calls it requires (storage.k8s.io/v1)."""

from services.api.meta import AGE, NAME, NONE, Column, Document, ObjectView, Resource, View
from services.api.printing import join_values


class CSIDriverSpec(View, frozen=True):
    """Spec of a driver. `storage_capacity`: the driver publishes CSIStorageCapacity objects that scheduling must
    respect.
    """

    attach_required: bool = True
    storage_capacity: bool = False


class CSIDriver(ObjectView, frozen=True):
    """A driver as components see it."""

    spec: CSIDriverSpec = CSIDriverSpec()


def _audiences(requests: list[Document]) -> str:
    return ",".join(str(each.get("audience", "")) for each in requests) or "<unset>"


_COLUMNS = (
    NAME,
    Column("AttachRequired", "spec.attachRequired", "boolean", default=True),
    Column("PodInfoOnMount", "spec.podInfoOnMount", "boolean", default=False),
    Column("StorageCapacity", "spec.storageCapacity", "boolean", default=False),
    Column("TokenRequests", "spec.tokenRequests", default="<unset>", show=_audiences),
    Column("RequiresRepublish", "spec.requiresRepublish", "boolean", default=False),
    Column("Modes", "spec.volumeLifecycleModes", default=NONE, show=join_values),
    AGE,
)
DRIVERS = "csidrivers.storage.k8s.io"
RESOURCE = Resource(CSIDriver, "storage.k8s.io", namespaced=False, has_generation=True, columns=_COLUMNS)
