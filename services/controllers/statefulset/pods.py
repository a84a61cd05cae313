"""A StatefulSet's pods and claims: how they are called, what they are made from, and whose the claims are.

Source: controllers 4; upstream `pkg/controller/statefulset` (`stateful_set_utils.go`, `stateful_pod_control.go`).
"""

import re
from collections.abc import Iterable

import msgspec

from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.pod import Pod
from services.api.kinds.statefulset import DELETE, POD_INDEX, POD_NAME, StatefulSet
from services.api.meta import Document, Key, OwnerReference
from services.controllers import shared_writes as writes
from services.controllers.shared_ownership import controller_reference, is_owner
from services.controllers.shared_revisions import POD_LABEL
from services.reconcile.actions import Patch

CLAIMS = "persistentvolumeclaims"
_NAME = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")


def parent_of(name: str) -> tuple[str, int] | None:
    """Return the set's name and the number in a pod's or claim's name; None for a name without number."""
    found = _NAME.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def pod_name(stateful_set: StatefulSet, ordinal: int) -> str:
    """Return the name of the set's pod of that number."""
    return f"{stateful_set.metadata.name}-{ordinal}"


def ordinal_of(stateful_set: StatefulSet, name: str) -> int | None:
    """Return the number of a pod, if its name makes it the set's."""
    parent = parent_of(name)
    return parent[1] if parent is not None and parent[0] == stateful_set.metadata.name else None


def pod_of(stateful_set: StatefulSet, template: Document, ordinal: int, revision: str) -> Document:
    """Return the pod of that number, from the template of that revision, unknown fields and all."""
    given, name = template.get("metadata") or {}, pod_name(stateful_set, ordinal)
    spec = dict(template.get("spec") or {})
    # The names of host and domain never change; the labels may be taken away and are put back.
    spec["hostname"] = name
    if stateful_set.spec.service_name:
        spec["subdomain"] = stateful_set.spec.service_name
    claims = {
        each.metadata.name: claim_name(stateful_set, each.metadata.name, ordinal)
        for each in stateful_set.spec.volume_claim_templates
    }
    if claims:
        own = [volume for volume in spec.get("volumes") or () if volume.get("name") not in claims]
        made = [{"name": volume, "persistentVolumeClaim": {"claimName": claim}} for volume, claim in claims.items()]
        spec["volumes"] = [*made, *own]
    metadata: Document = {
        "name": name,
        "namespace": stateful_set.metadata.namespace,
        **{field: given[field] for field in ("annotations", "finalizers") if given.get(field)},
        "labels": {**(given.get("labels") or {}), **identity_labels(name, ordinal), POD_LABEL: revision},
        "ownerReferences": [controller_reference(stateful_set)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def identity_labels(name: str, ordinal: int) -> dict[str, str]:
    """Return the labels that say which pod of its set this is."""
    return {POD_NAME: name, POD_INDEX: str(ordinal)}


def claim_name(stateful_set: StatefulSet, template: str, ordinal: int) -> str:
    """Return the name of the claim that the pod of that number has from a template."""
    return f"{template}-{stateful_set.metadata.name}-{ordinal}"


def claim_keys(stateful_set: StatefulSet, ordinal: int) -> list[Key]:
    """Return the claims of the pod of that number, in the order of the templates."""
    names = [each.metadata.name for each in stateful_set.spec.volume_claim_templates]
    return [Key(stateful_set.metadata.namespace, claim_name(stateful_set, name, ordinal)) for name in names]


def claim_of(stateful_set: StatefulSet, document: Document, key: Key) -> Document:
    """Return the claim of that key, from the set's template in the stored document."""
    template = next(
        each
        for each in document["spec"].get("volumeClaimTemplates") or ()
        if key.name.startswith(f"{each['metadata']['name']}-{stateful_set.metadata.name}-")
    )
    given, selector = template["metadata"], stateful_set.spec.selector
    metadata: Document = {
        "name": key.name,
        "namespace": key.namespace,
        **({"annotations": given["annotations"]} if given.get("annotations") else {}),
        "labels": {**(given.get("labels") or {}), **(selector.match_labels if selector is not None else {})},
    }
    # Whose it is on deletion is known from the start; who scales its pod away is known only then.
    if stateful_set.spec.persistent_volume_claim_retention_policy.when_deleted == DELETE:
        metadata["ownerReferences"] = [controller_reference(stateful_set)]
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"]}


def is_stale(stateful_set: StatefulSet, claim: PersistentVolumeClaim, pod: str) -> bool:
    """Whether a claim is still going, alone or with an earlier pod of that name: no new pod may use it."""
    if claim.metadata.deletion_timestamp is not None:
        return True
    if stateful_set.spec.persistent_volume_claim_retention_policy.when_scaled != DELETE:
        return False
    return any(is_owner(each, Pod) and each.name == pod for each in claim.metadata.owner_references)


def owned_rightly(stateful_set: StatefulSet, pod: Pod, claim: PersistentVolumeClaim, *, is_wanted: bool) -> list[Patch]:
    """Return the patch that gives a claim the owners its set's retention policy wants, if it has others.

    Retained in both cases: none. Deleted with the set: the set, unless the pod is scaled away and goes with it then.
    `is_wanted`: whether the pod's number is still asked for. Owners of an earlier set or pod of the name, and a
    another controller, are left alone.
    """
    held = claim.metadata.owner_references
    policy = stateful_set.spec.persistent_volume_claim_retention_policy
    goes_with_pod = policy.when_scaled == DELETE and not is_wanted
    goes_with_set = policy.when_deleted == DELETE and not goes_with_pod
    wanted = [_reference(stateful_set)] if goes_with_set else [_reference(pod)] if goes_with_pod else []
    uids = (stateful_set.metadata.uid, pod.metadata.uid)
    ours = [each for each in held if each.uid in uids]
    if [each.uid for each in ours] == [each.uid for each in wanted] and all(each.controller for each in ours):
        return []
    if any(_is_stale_reference(each, stateful_set, pod) for each in held):
        return []
    others = [each for each in held if each.uid not in uids]
    if any(each.controller for each in others):
        if not ours:
            return []
        wanted = []
    owners = [msgspec.to_builtins(each) for each in (*others, *wanted)]
    return [writes.patch(CLAIMS, claim, {"metadata": {"ownerReferences": owners or None}}, on_version=True)]


def _is_stale_reference(reference: OwnerReference, stateful_set: StatefulSet, pod: Pod) -> bool:
    return any(
        is_owner(reference, type(owner))
        and reference.name == owner.metadata.name
        and reference.uid != owner.metadata.uid
        for owner in (stateful_set, pod)
    )


def _reference(owner: StatefulSet | Pod) -> OwnerReference:
    return msgspec.convert(controller_reference(owner), OwnerReference)


def members(stateful_set: StatefulSet, pods: Iterable[Pod]) -> dict[int, Pod]:
    """Return the pods by number, the lowest first."""
    found = {n: pod for pod in pods if (n := ordinal_of(stateful_set, pod.metadata.name)) is not None}
    return dict(sorted(found.items()))
