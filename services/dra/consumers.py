"""Pods that the entries of a claim's `reservedFor` cover. Pure.

A pod is covered by its own entry, by its pod group's, and by the entry of its controller. A Deployment's pods
belong to a ReplicaSet that is named after it and the hash of its template.
Source: kep-5194 4 and 9; KEP-5729.
"""

from collections.abc import Iterable

from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import ResourceClaimConsumerReference

TEMPLATE_HASH = "pod-template-hash"


def speaks_for(entry: ResourceClaimConsumerReference, pod: Pod) -> bool:
    """Whether this entry allows the pod to use the claim."""
    meta, owner = pod.metadata, pod.metadata.controller
    match entry.api_group, entry.resource:
        case "", "pods":
            return entry.uid == meta.uid
        case "scheduling.k8s.io", "podgroups":
            group = pod.spec.scheduling_group
            return group is not None and group.pod_group_name == entry.name
        case "apps", "deployments":
            name = f"{entry.name}-{meta.labels.get(TEMPLATE_HASH, '')}"
            return owner is not None and (owner.kind, owner.name) == ("ReplicaSet", name)
    return owner is not None and owner.uid == entry.uid


def without_entry(pods: Iterable[Pod], entries: Iterable[ResourceClaimConsumerReference]) -> list[Pod]:
    """Return the pods that no entry covers."""
    listed = tuple(entries)
    return [pod for pod in pods if not any(speaks_for(each, pod) for each in listed)]
