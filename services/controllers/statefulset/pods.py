"""A StatefulSet's pods and claims: their names, templates, owners of the claims, and the writes.

Owners of claims are written first, then missing claims, then pods: each step needs the one before.
Source: controllers 4; upstream `pkg/controller/statefulset` (`stateful_set_utils.go`,
`stateful_pod_control.go`).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from services.api.kinds.controllerrevision import ControllerRevision
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.pod import Pod
from services.api.kinds.statefulset import DELETE, POD_INDEX, POD_NAME, StatefulSet
from services.api.meta import Document, Key, OwnerReference
from services.controllers import shared_revisions as revisions
from services.controllers.shared_ownership import is_owner
from services.controllers.statefulset.order import Desired, Steps
from services.reconcile import writes
from services.reconcile.actions import Action, Batch, Create, Delete, Patch, RecordEvent, event
from services.reconcile.controller import Listers
from services.reconcile.writes import controller_reference

CLAIMS = "persistentvolumeclaims"
_NAME = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")


def parent_of(name: str) -> tuple[str, int] | None:
    """Split a pod's or claim's name into the set's name and the number; None for a name without number."""
    found = _NAME.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def pod_name(stateful_set: StatefulSet, ordinal: int) -> str:
    """Return the name of the set's pod of that number."""
    return f"{stateful_set.metadata.name}-{ordinal}"


def ordinal_of(stateful_set: StatefulSet, name: str) -> int | None:
    """Return the number of a pod; None if its name does not belong to the set."""
    parent = parent_of(name)
    return parent[1] if parent is not None and parent[0] == stateful_set.metadata.name else None


def pod_of(stateful_set: StatefulSet, template: Document, ordinal: int, revision: str) -> Document:
    """Return the pod of that number, from the template of that revision, with unknown fields."""
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
        claim_volumes = [
            {"name": volume, "persistentVolumeClaim": {"claimName": claim}} for volume, claim in claims.items()
        ]
        spec["volumes"] = [*claim_volumes, *own]
    metadata: Document = {
        "name": name,
        "namespace": stateful_set.metadata.namespace,
        **{field: given[field] for field in ("annotations", "finalizers") if given.get(field)},
        "labels": {**(given.get("labels") or {}), **identity_labels(name, ordinal), revisions.POD_LABEL: revision},
        "ownerReferences": [controller_reference(stateful_set)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def identity_labels(name: str, ordinal: int) -> dict[str, str]:
    """Return the labels that identify a pod within its set."""
    return {POD_NAME: name, POD_INDEX: str(ordinal)}


def claim_name(stateful_set: StatefulSet, template: str, ordinal: int) -> str:
    """Return the name of a template's claim for the pod of that number."""
    return f"{template}-{stateful_set.metadata.name}-{ordinal}"


def claim_keys(stateful_set: StatefulSet, ordinal: int) -> list[Key]:
    """Return the keys of the claims of the pod of that number, in the order of the templates."""
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
    """Whether a claim is being deleted, alone or with an earlier pod of that name: no new pod may use it."""
    if claim.metadata.deletion_timestamp is not None:
        return True
    if stateful_set.spec.persistent_volume_claim_retention_policy.when_scaled != DELETE:
        return False
    return any(is_owner(each, Pod) and each.name == pod for each in claim.metadata.owner_references)


def owned_rightly(stateful_set: StatefulSet, pod: Pod, claim: PersistentVolumeClaim, *, is_wanted: bool) -> list[Patch]:
    """Return the patch that gives a claim the owners of its set's retention policy, if it has others.

    Retained in both cases: no owner. Deleted with the set: the set, unless the pod is scaled away and the claim
    goes with it. `is_wanted`: whether the pod's number is still desired. Owners of an earlier set or pod of the
    name, and another controller, are left alone.
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
    others = [each for each in held if each.uid not in uids]
    if any(is_owner(each, type(o)) and each.name == o.metadata.name for each in others for o in (stateful_set, pod)):
        return []
    if any(each.controller for each in others):
        if not ours:
            return []
        wanted = []
    owners = [msgspec.to_builtins(each) for each in (*others, *wanted)]
    return [writes.patch(CLAIMS, claim, {"metadata": {"ownerReferences": owners or None}}, on_version=True)]


def _reference(owner: StatefulSet | Pod) -> OwnerReference:
    return msgspec.convert(controller_reference(owner), OwnerReference)


def members(stateful_set: StatefulSet, pods: Iterable[Pod]) -> dict[int, Pod]:
    """Return the pods by number, the lowest first."""
    found = {n: pod for pod in pods if (n := ordinal_of(stateful_set, pod.metadata.name)) is not None}
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class SetState:
    """State of the set in one reconcile. `pods`: the set's own, by number; `current`, `update`: its revisions."""

    stateful_set: StatefulSet
    document: Document
    pods: dict[int, Pod]
    current: ControllerRevision
    update: ControllerRevision


def is_blocked(stateful_set: StatefulSet, ordinal: int, listers: Listers) -> bool:
    """Whether a missing pod cannot be created yet: another pod has its name, or a claim is still being deleted."""
    name = pod_name(stateful_set, ordinal)
    if listers.of(Pod).get(Key(stateful_set.metadata.namespace, name)) is not None:
        return True
    claims = (listers.of(PersistentVolumeClaim).get(key) for key in claim_keys(stateful_set, ordinal))
    return any(claim is not None and is_stale(stateful_set, claim, name) for claim in claims)


def changes_of_steps(known: SetState, desired: Desired, steps: Steps, listers: Listers) -> list[Action | Batch]:
    """Return the writes of the steps, and those that correct existing pods and claims."""
    here = [(n, known.pods[n]) for n in known.stateful_set.ordinals if n in known.pods]
    pending = [n for n, pod in here if pod.status.phase == "Pending" and pod.metadata.deletion_timestamp is None]
    claims = _missing_claims(known, [*pending, *steps.made], listers)
    creations: list[Action] = []
    for ordinal in steps.made:
        name = desired.revision_of_new(ordinal)
        revision = known.current if name == known.current.metadata.name else known.update
        template = revisions.template_of(revision.data)
        creations.append(Create("pods", pod_of(known.stateful_set, template, ordinal, name)))
        creations.append(_pod_event(known.stateful_set, "Create", pod_name(known.stateful_set, ordinal)))
    ended = [each for pod in steps.recreated for each in _recreation_actions(known.stateful_set, pod)]
    for pod in (*steps.removed, *steps.replaced):
        ended += [_delete(pod), _pod_event(known.stateful_set, "Delete", pod.metadata.name)]
    return [*_maintenance_actions(known, listers), *(Batch(tuple(each)) for each in (claims, creations, ended) if each)]


def _maintenance_actions(known: SetState, listers: Listers) -> Iterable[Action]:
    """Give pods the labels of their identity, and claims the owners that the retention policy wants."""
    for ordinal, pod in known.pods.items():
        name = pod.metadata.name
        labels = identity_labels(name, ordinal)
        if pod.is_active and not labels.items() <= pod.metadata.labels.items():
            yield writes.patch("pods", pod, {"metadata": {"labels": labels}})
            yield _pod_event(known.stateful_set, "Update", name)
        is_wanted = ordinal in known.stateful_set.ordinals
        for key in claim_keys(known.stateful_set, ordinal):
            claim = listers.of(PersistentVolumeClaim).get(key)
            if claim is not None:
                yield from owned_rightly(known.stateful_set, pod, claim, is_wanted=is_wanted)


def _missing_claims(known: SetState, ordinals: Iterable[int], listers: Listers) -> list[Action]:
    actions: list[Action] = []
    for ordinal in ordinals:
        for key in claim_keys(known.stateful_set, ordinal):
            if listers.of(PersistentVolumeClaim).get(key) is None:
                actions.append(Create(CLAIMS, claim_of(known.stateful_set, known.document, key)))
                pod = pod_name(known.stateful_set, ordinal)
                text = f"create Claim {key.name} Pod {pod} in StatefulSet {known.stateful_set.metadata.name} success"
                actions.append(event(known.stateful_set, "SuccessfulCreate", text))
    return actions


def _delete(pod: Pod) -> Delete:
    return Delete("pods", pod.metadata.key, uid=pod.metadata.uid)


def _recreation_actions(stateful_set: StatefulSet, pod: Pod) -> list[Action]:
    name, has_failed = pod.metadata.name, pod.status.phase == "Failed"
    end = "Failed" if has_failed else "Terminated"
    text = f"StatefulSet {stateful_set.metadata.key} is recreating {end.lower()} Pod {name}"
    reason = f"Recreating{end}Pod"
    return [_delete(pod), event(stateful_set, reason, text, warns=has_failed), _pod_event(stateful_set, "Delete", name)]


def _pod_event(stateful_set: StatefulSet, verb: str, pod: str) -> RecordEvent:
    text = f"{verb.lower()} Pod {pod} in StatefulSet {stateful_set.metadata.name} successful"
    return event(stateful_set, f"Successful{verb}", text)
