"""The binding conditions that a driver writes for allocated devices; pods wait for them before binding. Pure.

Only this driver's own entries of `status.devices` are written. Other drivers' entries and other fields of
its own entries stay. Source: dra-core 6.7; KEP-5007; KEP-4817.
"""

from collections.abc import Collection

import msgspec

from services.api.kinds.resourceclaim import DeviceRequestAllocationResult, ResourceClaim
from services.api.meta import Document
from services.api.times import format_time

READY, FAILED = "DeviceReady", "DeviceFailed"


class Waiting(msgspec.Struct, frozen=True):
    """One device of one allocation for which a pod's binding waits."""

    uid: str
    pool: str
    device: str
    share: str
    allocated: str
    """Timestamp of the allocation: a device that is allocated anew is waited for anew."""


def waiting(claim: ResourceClaim, driver: str, pools: Collection[str]) -> dict[Waiting, DeviceRequestAllocationResult]:
    """Return the devices in these pools whose awaited binding conditions the driver has not written yet."""
    allocation = claim.status.allocation
    if allocation is None or claim.metadata.deletion_timestamp:
        return {}
    results = {}
    for result in allocation.devices.results:
        if (
            result.driver == driver
            and result.pool in pools
            and result.binding_conditions
            and not _is_said(claim, result)
        ):
            stamp = allocation.allocation_timestamp or ""
            key = Waiting(claim.metadata.uid, result.pool, result.device, result.share_id or "", stamp)
            results[key] = result
    return results


def _is_said(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> bool:
    share = result.share_id or ""
    entry = next((e for e in claim.status.devices if (e.id, e.share_id or "") == (result.id, share)), None)
    if entry is None:
        return False
    true = [each.type for each in entry.conditions if each.status == "True"]
    return all(name in true for name in result.binding_conditions) or any(
        name in true for name in result.binding_failure_conditions
    )


def conditions_patch(document: Document, key: Waiting, driver: str, wall_s: float, *, fails: bool) -> Document | None:
    """Return a merge patch that puts the device's conditions into `status.devices` of a stored claim.

    The patch holds for that version only. None when that allocation of the device is gone. A condition keeps
    its `lastTransitionTime` while its status does not change.
    """
    status = document.get("status") or {}
    allocation = status.get("allocation") or {}
    wanted = (driver, key.pool, key.device, key.share)
    result = next((r for r in (allocation.get("devices") or {}).get("results") or () if _id(r) == wanted), None)
    is_same = document["metadata"]["uid"] == key.uid and (allocation.get("allocationTimestamp") or "") == key.allocated
    if result is None or not is_same:
        return None
    entries = [dict(entry) for entry in status.get("devices") or ()]
    entry = next((each for each in entries if _id(each) == wanted), None)
    if entry is None:
        entry = {"driver": driver, "pool": key.pool, "device": key.device}
        entry |= {"shareID": key.share} if key.share else {}
        entries.append(entry)
    conditions = {each["type"]: each for each in entry.get("conditions") or ()}
    names = result.get("bindingFailureConditions" if fails else "bindingConditions") or ()
    for name in names[:1] if fails else names:
        old = conditions.get(name) or {}
        changed_at = old["lastTransitionTime"] if old.get("status") == "True" else format_time(wall_s)
        conditions[name] = {
            "type": name,
            "status": "True",
            "reason": FAILED if fails else READY,
            "message": f"device {key.pool}/{key.device} cannot be attached" if fails else "",
            "lastTransitionTime": changed_at,
        }
    entry["conditions"] = list(conditions.values())
    return {"metadata": {"resourceVersion": document["metadata"]["resourceVersion"]}, "status": {"devices": entries}}


def _id(entry: Document) -> tuple[str, str, str, str]:
    return entry["driver"], entry["pool"], entry["device"], entry.get("shareID") or ""
