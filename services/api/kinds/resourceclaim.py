"""ResourceClaim: a request for devices, and which were granted to whom (resource.k8s.io/v1, KEP-4381)."""

from typing import Any

import msgspec

from services.api.kinds.pod import NodeSelector
from services.api.meta import AGE, NAME, Column, Document, ObjectView, Resource, View

CLAIMS = "resourceclaims.resource.k8s.io"
FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a generated claim: which of the pod's `resourceClaims` it was made for."""
EXACT_COUNT, ALL = "ExactCount", "All"
CONSUMERS_MAX, DEVICES_MAX = 256, 32


class CELDeviceSelector(View, frozen=True):
    """A CEL expression over one device."""

    expression: str = ""


class DeviceSelector(View, frozen=True):
    """What a device must be."""

    cel: CELDeviceSelector | None = None

    @property
    def expression(self) -> str:
        """The expression, "" when there is none."""
        return self.cel.expression if self.cel is not None else ""


class ExactDeviceRequest(View, frozen=True):
    """`count` devices of a class, or all of them."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = EXACT_COUNT
    count: int = 1


class DeviceRequest(View, frozen=True):
    """One request of a claim, by a name that pods and constraints refer to."""

    name: str = ""
    exactly: ExactDeviceRequest = ExactDeviceRequest()


class DeviceConstraint(View, frozen=True):
    """An attribute that must be equal on, or differ between, the devices of these requests (none named: of all)."""

    requests: tuple[str, ...] = ()
    match_attribute: str = ""
    distinct_attribute: str = ""


class DeviceClaim(View, frozen=True):
    """Which devices are asked for; `config` is for drivers, as documents."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[dict[str, Any], ...] = ()


class ResourceClaimSpec(View, frozen=True):
    """Never changes."""

    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(View, frozen=True):
    """One device for one request."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""

    @property
    def id(self) -> tuple[str, str, str]:
        """`(driver, pool, device)`: which device in the whole cluster."""
        return self.driver, self.pool, self.device


class DeviceAllocationResult(View, frozen=True):
    """The devices, and the configuration that their drivers get."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[dict[str, Any], ...] = ()


class AllocationResult(View, frozen=True):
    """What was granted, and where it can be used; no selector: on every node."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None

    @property
    def device_ids(self) -> tuple[tuple[str, str, str], ...]:
        """The devices that were granted."""
        return tuple(each.id for each in self.devices.results)


class ResourceClaimConsumerReference(View, frozen=True):
    """Who may use the claim: at most 256 of them."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(View, frozen=True):
    """`allocation` None: not granted yet."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()

    def is_reserved_for(self, uid: str) -> bool:
        """Whether the pod of that uid may use the claim."""
        return any(each.uid == uid for each in self.reserved_for)


class ResourceClaim(ObjectView, frozen=True):
    """A claim as components see it."""

    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)


def _state(document: Document, now: float) -> str:
    status = document.get("status") or {}
    states = {
        "allocated": status.get("allocation"),
        "reserved": status.get("reservedFor"),
        "deleted": document["metadata"].get("deletionTimestamp"),
    }
    return ",".join(state for state, holds in states.items() if holds) or "pending"


RESOURCE = Resource(
    ResourceClaim,
    "resource.k8s.io",
    subresources=("status",),
    has_spec=True,
    columns=(NAME, Column("State", _state), AGE),
)
