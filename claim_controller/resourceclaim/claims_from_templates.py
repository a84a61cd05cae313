"""Claims made from templates for a pod or a pod group: their names, documents, and owners.

Source: dra-core 4 (pod sync), kep-5194 12; upstream `pkg/controller/resourceclaim/controller.go`
(`handleClaim`).
"""

from typing import Final

from services.api.kinds.pod import Pod, PodResourceClaim
from services.api.kinds.podgroup import PodGroup, PodGroupResourceClaim
from services.api.kinds.resourceclaim import POD_CLAIM_NAME, ResourceClaim
from services.api.meta import Document
from services.reconcile.writes import controller_reference

BASE_MAX: Final = 57
"""Characters of a name's 63 that are left before a dash and the five that the server generates."""


def generate_name(owner: str, entry: str) -> str:
    """Return `<owner>-<entry>-`; if that is too long, both parts cut in proportion, without a trailing dash.

    Deviates: upstream may end the first part in a dot, and then the API server refuses the name.
    """
    whole = f"{owner}-{entry}-"
    if len(whole) <= BASE_MAX:
        return whole
    kept = owner[: len(owner) * BASE_MAX // len(whole)].rstrip("-.")
    return f"{kept}-{entry[: len(entry) * BASE_MAX // len(whole)]}"


def claim_of(owner: Pod | PodGroup, entry: str, template: Document) -> Document:
    """Return the claim to create from a ResourceClaimTemplate: spec, labels and annotations are the template's."""
    spec = template["spec"]
    given = spec.get("metadata") or {}
    metadata: Document = {
        "generateName": generate_name(owner.metadata.name, entry),
        "namespace": owner.metadata.namespace,
        "ownerReferences": [controller_reference(owner)],
        "annotations": {**(given.get("annotations") or {}), POD_CLAIM_NAME: entry},
    }
    if given.get("labels"):
        metadata["labels"] = given["labels"]
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return {**kind, "metadata": metadata, "spec": spec.get("spec") or {}}


def is_made_for(claim: ResourceClaim, uid: str) -> bool:
    """Whether the object of that uid is the claim's controller."""
    owner = claim.metadata.controller
    return owner is not None and owner.uid == uid


def pod_of(claim: ResourceClaim) -> tuple[str, str] | None:
    """Return name and uid of the pod that the claim was made for; None if it was not made for a pod."""
    owner = claim.metadata.controller
    if owner is None or owner.kind != "Pod" or POD_CLAIM_NAME not in claim.metadata.annotations:
        return None
    return owner.name, owner.uid


def binds_to(entry: PodResourceClaim, group: PodGroup) -> PodGroupResourceClaim | None:
    """Return the group's claim that a pod's entry refers to: name, claim and template are all equal.

    None: the entry is the pod's own. Source: kep-5194 12 (`BindTo`).
    """
    wanted = (entry.name, entry.resource_claim_name, entry.resource_claim_template_name)
    for group_claim in group.spec.resource_claims:
        if (group_claim.name, group_claim.resource_claim_name, group_claim.resource_claim_template_name) == wanted:
            return group_claim
    return None
