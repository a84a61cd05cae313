"""ResourceClaim: a request for devices, the allocated devices, and the consumers they are reserved for (KEP-4381)."""

from typing import Any

import msgspec

from services.api.kinds.pod import NodeSelector
from services.api.meta import AGE, NAME, Column, Condition, Document, ObjectView, Resource, View

CLAIMS = "resourceclaims.resource.k8s.io"
FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a generated claim: the entry of the pod's `resourceClaims` it was made for."""
EXACT_COUNT, ALL = "ExactCount", "All"
CONSUMERS_MAX, DEVICES_MAX, ALTERNATIVES_MAX = 256, 32, 8
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of a claim that the scheduler made for a pod's extended resources (KEP-5004)."""
ADMIN_NAMESPACE_LABEL = "resource.kubernetes.io/admin-access"
"""Label of namespaces in which claims may ask for admin access; its value is "true" (KEP-5018)."""


class CELDeviceSelector(View, frozen=True):
    """A CEL expression over one device."""

    expression: str = ""


class DeviceSelector(View, frozen=True):
    """Selector of devices."""

    cel: CELDeviceSelector | None = None

    @property
    def expression(self) -> str:
        """The CEL expression; empty if there is none."""
        return self.cel.expression if self.cel is not None else ""


class DeviceToleration(View, frozen=True):
    """Toleration of device taints (KEP-5055). No key with Exists: every taint; no effect: every effect.

    `toleration_seconds` limits how long a NoExecute taint is tolerated; None: for ever.
    """

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(View, frozen=True):
    """Requested amount of each capacity of one device, as quantities (KEP-5075)."""

    requests: dict[str, str] = {}


class DeviceSubRequest(View, frozen=True):
    """One alternative of a request; the first that can be allocated is taken (KEP-4816)."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class ExactDeviceRequest(View, frozen=True):
    """Request for `count` devices of a class, or for all of them. `admin_access`: also devices in use (KEP-5018)."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceRequest(View, frozen=True):
    """Request of a claim, with a name that pods and constraints refer to: `exactly` one, or alternatives."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(View, frozen=True):
    """Constraint that an attribute be equal, or distinct, across the devices of these requests (none named: of all)."""

    requests: tuple[str, ...] = ()
    match_attribute: str = ""
    distinct_attribute: str = ""


class DeviceClaim(View, frozen=True):
    """Requested devices; `config` holds documents for drivers."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[dict[str, Any], ...] = ()


class ResourceClaimConsumerReference(View, frozen=True):
    """Reference to a consumer of the claim. `resource` is the lower-case plural: `pods`, `jobs`, `podgroups`."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""

    @property
    def is_pod(self) -> bool:
        """Whether the reference names a pod."""
        return not self.api_group and self.resource == "pods"

    @property
    def is_claim(self) -> bool:
        """Whether the reference names a claim: the claim that contains it, as its own consumer (reservedFor.self)."""
        return self.api_group == "resource.k8s.io" and self.resource == "resourceclaims"


class ResourceClaimSpec(View, frozen=True):
    """Spec of a claim; it never changes. `reserved_for`: the workload whose pods may all use the claim (KEP-5194)."""

    devices: DeviceClaim = DeviceClaim()
    reserved_for: ResourceClaimConsumerReference | None = None


class DeviceRequestAllocationResult(View, frozen=True):
    """Device that was allocated for one request; `request` is `name` or `name/alternative`.

    Tolerations and binding conditions are copies, made at allocation. `share_id` distinguishes shares of one
    device; `consumed_capacity` is the capacity that this share takes (KEP-5075).
    """

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, str] = {}

    @property
    def id(self) -> tuple[str, str, str]:
        """The cluster-wide id of the device: `(driver, pool, device)`."""
        return self.driver, self.pool, self.device


class DeviceAllocationResult(View, frozen=True):
    """The allocated devices, and the configuration for their drivers."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[dict[str, Any], ...] = ()


class AllocationResult(View, frozen=True):
    """The allocation, and the nodes that can use it; no selector: every node."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None
    reserved_for_any_pod: bool = False
    """Whether any pod that references the claim may use it (KEP-5194)."""

    @property
    def device_ids(self) -> tuple[tuple[str, str, str], ...]:
        """Ids of the allocated devices."""
        return tuple(each.id for each in self.devices.results)


class AllocatedDeviceStatus(View, frozen=True):
    """Status of an allocated device, reported by its driver (KEP-4817); `conditions` decide on binding (KEP-5007)."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(name="shareID", default=None)
    conditions: tuple[Condition, ...] = ()

    @property
    def id(self) -> tuple[str, str, str]:
        """The id of the device: `(driver, pool, device)`."""
        return self.driver, self.pool, self.device


class ResourceClaimStatus(View, frozen=True):
    """Status of a claim. `allocation` None: not allocated yet."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()

    def is_reserved_for(self, uid: str) -> bool:
        """Whether the pod with that uid may use the claim."""
        return any(each.uid == uid for each in self.reserved_for)


class ResourceClaim(ObjectView, frozen=True):
    """A claim as components see it."""

    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)


def _state(document: Document, now: float) -> str:
    status = document.get("status") or {}
    is_allocated, is_deleted = bool(status.get("allocation")), bool(document["metadata"].get("deletionTimestamp"))
    states = {
        "deleted": is_deleted,
        "pending": not is_allocated and not is_deleted,
        "allocated": is_allocated,
        "reserved": is_allocated and status.get("reservedFor"),
    }
    return ",".join(state for state, holds in states.items() if holds)


RESOURCE = Resource(
    ResourceClaim,
    "resource.k8s.io",
    subresources=("status",),
    has_generation=True,
    columns=(NAME, Column("State", _state), AGE),
)
