"""Reservations of claims: the consumer written into `reservedFor` when a pod is bound, and present users. Pure.

Three designs (`reserved_for.mode`): every pod for itself, as Kubernetes releases do; the workload that the
claim's spec names, once for all its pods (KEP-5194); the pod group that lists the claim (KEP-5729). Source:
kep-5194-reservedfor-workloads 3.1, 12; upstream `resourceclaim.IsReservedForPod`.
"""

from dataclasses import dataclass
from typing import Final

from scheduler.cache.pod_group_membership import group_of
from services.api.kinds.pod import Pod
from services.api.kinds.podgroup import PodGroup
from services.api.kinds.resourceclaim import AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from services.dra.pod_claims import claim_name, is_of_group

PODS: Final = "pods"
WORKLOADS: Final = "kep5194"
POD_GROUPS: Final = "kep5729"
GROUP_API: Final = "scheduling.k8s.io"
GROUP_RESOURCE: Final = "podgroups"


@dataclass(frozen=True, slots=True)
class Reservation:
    """The entry for a claim. `consumer`: the consumer to append, None when the pod needs no entry.

    `for_any_pod`: the `reservedForAnyPod` of the new allocation.
    """

    consumer: ResourceClaimConsumerReference | None
    for_any_pod: bool = False


def is_group_entry(entry: ResourceClaimConsumerReference) -> bool:
    """Whether the entry names a pod group."""
    return entry.api_group == GROUP_API and entry.resource == GROUP_RESOURCE


def shares_claims_of(pod: Pod, group: PodGroup | None, name: str) -> bool:
    """Whether the pod has the claim of that name through its group."""
    if group is None or group_of(pod) != group.metadata.key:
        return False
    return any(claim_name(pod, each) == name and is_of_group(each, group) for each in pod.spec.resource_claims)


def is_reserved(mode: str, claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the pod may use the claim without any further entry."""
    status = claim.status
    if status.is_reserved_for(pod.metadata.uid):
        return True
    if mode == WORKLOADS:
        is_for_any = status.allocation is not None and status.allocation.reserved_for_any_pod
        return is_for_any and any(not each.is_pod for each in status.reserved_for)
    group = group_of(pod) if mode == POD_GROUPS else None
    # The pod does not know its group's uid: the group's finalizer keeps the name from meaning another one.
    return group is not None and any(is_group_entry(each) and each.name == group.name for each in status.reserved_for)


def reservation(
    mode: str, claim: ResourceClaim, pod: Pod, allocation: AllocationResult | None, group: PodGroup | None
) -> Reservation:
    """Return the entry that the pod's binding adds to the claim; `allocation`: the one written with it.

    KEP-5194: `reservedForAnyPod` is set with the allocation or never; without it the kubelet requires an entry
    of the pod itself.
    """
    own = ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
    if is_reserved(mode, claim, pod):
        return Reservation(None)
    if mode == POD_GROUPS and group is not None and shares_claims_of(pod, group, claim.metadata.name):
        meta = group.metadata
        entry = ResourceClaimConsumerReference(
            api_group=GROUP_API, resource=GROUP_RESOURCE, name=meta.name, uid=meta.uid
        )
        return Reservation(entry)
    workload = claim.spec.reserved_for if mode == WORKLOADS else None
    if workload is None:
        return Reservation(own)
    present = claim.status.allocation
    if allocation is None and not (present is not None and present.reserved_for_any_pod):
        return Reservation(own)
    if any(not each.is_pod for each in claim.status.reserved_for):
        return Reservation(None, for_any_pod=allocation is not None)
    return Reservation(workload, for_any_pod=allocation is not None)
