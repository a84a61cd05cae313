"""Status of a stored ValidatingAdmissionPolicy: the results of type checking its expressions."""

import msgspec

from apiserver_fake.registry.admission.attributes import VALIDATING_POLICIES, Admission
from apiserver_fake.storage.records import Record
from services.api.wire import Request


def status_write(record: Record, admission: Admission) -> Request | None:
    """Return the patch that writes the results of type checking into a policy's status.

    None if the status already has the results for this generation.
    """
    policy = msgspec.json.decode(record.body)
    status = policy.get("status") or {}
    if status.get("observedGeneration") == policy["metadata"].get("generation"):
        return None
    status = admission.status_of(policy)
    body = msgspec.json.encode([{"op": "add", "path": "/status", "value": status}])
    return Request(
        verb="patch",
        resource=VALIDATING_POLICIES,
        name=record.name,
        subresource="status",
        patch_type="json",
        resource_version=str(record.rv),
        body=body,
    )
