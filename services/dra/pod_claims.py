"""Which claims a pod has, which pods a claim has, and why claims cannot be used yet, in upstream's words. Pure.
Source: dra-core 1.5 (name resolution), 6.2; kep-5194-reservedfor-workloads 8, 12; upstream `resourceclaim.Name`,
`IsForPod`, `BindTo`."""

from collections.abc import Callable, Iterable

from services.api.kinds.pod import Pod, PodResourceClaim
from services.api.kinds.podgroup import PodGroup
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.meta import Key

FindClaim = Callable[[Key], ResourceClaim | None]


def claim_name(pod: Pod, wanted: PodResourceClaim) -> str | None:
    """Return the name of the claim; None: there is none, yet or at all."""
    if wanted.resource_claim_name:
        return wanted.resource_claim_name
    for status in pod.status.resource_claim_statuses:
        if status.name == wanted.name:
            return status.resource_claim_name
    return None


def claim_keys(pod: Pod) -> list[Key]:
    """Return the claims that the pod has by now, each once, in the pod's order."""
    names = (claim_name(pod, wanted) for wanted in pod.spec.resource_claims)
    return list(dict.fromkeys(Key(pod.metadata.namespace, name) for name in names if name))


def binds_to_group(pod: Pod, wanted: PodResourceClaim, group: PodGroup | None) -> bool:
    """Whether the pod has that claim through its group: the group has one of the same name and source (KEP-5729)."""
    own = pod.spec.scheduling_group
    if group is None or own is None or own.pod_group_name != group.metadata.name:
        return False
    if group.metadata.namespace != pod.metadata.namespace:
        return False
    source = wanted.name, wanted.resource_claim_name, wanted.resource_claim_template_name
    return any(
        source == (each.name, each.resource_claim_name, each.resource_claim_template_name)
        for each in group.spec.resource_claims
    )


def referenced_claims(pod: Pod) -> list[str]:
    """Return the claims that the pod refers to, as `namespace/name`: those of its spec, those made from templates for
    it or its group, and the one for its extended resources. What an index of pods by claim has as keys (kep-5194 8)."""
    names = [each.resource_claim_name for each in pod.spec.resource_claims]
    names += [each.resource_claim_name for each in pod.status.resource_claim_statuses]
    extended = pod.status.extended_resource_claim_status
    names.append(extended.resource_claim_name if extended is not None else None)
    return [f"{pod.metadata.namespace}/{name}" for name in dict.fromkeys(names) if name]


class PodsOfClaims:
    """Pods by the claims that they refer to, kept up to date pod by pod. Who refers to a claim need not use it."""

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self._claims_of: dict[Key, list[str]] = {}
        self._pods_of: dict[str, dict[Key, None]] = {}
        for each in pods:
            self.put(each)

    def put(self, pod: Pod) -> None:
        """Follow a pod that is new or has changed."""
        self.drop(pod.metadata.key)
        claims = referenced_claims(pod)
        if claims:
            self._claims_of[pod.metadata.key] = claims
        for each in claims:
            self._pods_of.setdefault(each, {})[pod.metadata.key] = None

    def drop(self, pod: Key) -> None:
        """Forget a pod."""
        for each in self._claims_of.pop(pod, ()):
            del self._pods_of[each][pod]
            if not self._pods_of[each]:
                del self._pods_of[each]

    def pods_of(self, claim: ResourceClaim) -> list[Key]:
        """Return the pods that refer to the claim, in the order in which they came to."""
        return list(self._pods_of.get(str(claim.metadata.key), ()))


def problem_of(pod: Pod, find: FindClaim, group: PodGroup | None = None) -> str:
    """Return what is wrong with the first claim that cannot be used, "" when all can. `group`: the pod's, where claims
    may be made for groups."""
    for wanted in pod.spec.resource_claims:
        problem = problem_with(pod, wanted, find, group)
        if problem:
            return problem
    return ""


def problem_with(pod: Pod, wanted: PodResourceClaim, find: FindClaim, group: PodGroup | None = None) -> str:
    """Return what is wrong with one claim, "" for nothing."""
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
    made_for = group.metadata if group is not None and binds_to_group(pod, wanted, group) else pod.metadata
    if wanted.resource_claim_template_name and (owner is None or owner.uid != made_for.uid):
        return f"ResourceClaim {namespace}/{name} was not created for pod {pod.metadata.key} (pod is not owner)"
    return ""
