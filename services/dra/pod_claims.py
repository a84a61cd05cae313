"""Claims of a pod, and the reason why they cannot be used yet, in upstream's words. Pure.
Source: dra-core 1.5 (name resolution), 6.2; upstream `resourceclaim.Name`, `IsForPod`.
"""

from collections.abc import Callable

from services.api.kinds.pod import Pod, PodResourceClaim
from services.api.kinds.podgroup import PodGroup
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.meta import Key

FindClaim = Callable[[Key], ResourceClaim | None]


def claim_name(pod: Pod, wanted: PodResourceClaim) -> str | None:
    """Return the name of the claim; None if there is none, or none yet."""
    if wanted.resource_claim_name:
        return wanted.resource_claim_name
    for status in pod.status.resource_claim_statuses:
        if status.name == wanted.name:
            return status.resource_claim_name
    return None


def claim_keys(pod: Pod) -> list[Key]:
    """Return the keys of the pod's existing claims, without duplicates, in the pod's order."""
    namespace, found = pod.metadata.namespace, dict[Key, None]()
    for wanted in pod.spec.resource_claims:
        if name := claim_name(pod, wanted):
            found[Key(namespace, name)] = None
    return list(found)


def problem_of(pod: Pod, find: FindClaim, group: PodGroup | None = None) -> str:
    """Return the problem of the first unusable claim; empty if all are usable. `group`: the pod's group, where
    claims may be made for groups (KEP-5729).
    """
    for wanted in pod.spec.resource_claims:
        problem = problem_with(pod, wanted, find, group)
        if problem:
            return problem
    return ""


def is_of_group(wanted: PodResourceClaim, group: PodGroup | None) -> bool:
    """Whether a claim of the pod is the group's: name and source are equal to one of the group's claims (upstream's
    `BindTo`).
    """
    named = (wanted.name, wanted.resource_claim_name, wanted.resource_claim_template_name)
    return group is not None and any(
        named == (each.name, each.resource_claim_name, each.resource_claim_template_name)
        for each in group.spec.resource_claims
    )


def problem_with(pod: Pod, wanted: PodResourceClaim, find: FindClaim, group: PodGroup | None = None) -> str:
    """Return the problem of one claim; empty if there is none."""
    namespace = pod.metadata.namespace
    if not wanted.resource_claim_name:
        if not wanted.resource_claim_template_name:
            return f'pod "{pod.metadata.key}", spec.resourceClaim "{wanted.name}": none of the supported fields are set'
        if all(status.name != wanted.name for status in pod.status.resource_claim_statuses):
            return f'pod "{pod.metadata.key}": ResourceClaim not created yet'
    name = claim_name(pod, wanted)
    if name is None:
        return ""  # the controller decided that this pod needs no claim
    claim = find(Key(namespace, name))
    if claim is None:
        return f'could not find ResourceClaim "{namespace}/{name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'resourceclaim "{name}" is being deleted'
    owner = claim.metadata.controller
    shared_by = group if is_of_group(wanted, group) else None
    if wanted.resource_claim_template_name and (owner is None or owner.uid != (shared_by or pod).metadata.uid):
        if shared_by is not None:
            whose = f"PodGroup {shared_by.metadata.key} (PodGroup is not owner)"
            return f"ResourceClaim {namespace}/{name} was not created for {whose}"
        return f"ResourceClaim {namespace}/{name} was not created for pod {pod.metadata.key} (pod is not owner)"
    return ""
