"""Rules for what a mesh takes from a snapshot or recording, and what it decides itself. Pure.

Under `as-they-are` pods keep their nodes and statuses. Under `pending` the mesh decides: pods lose node and
status, and what components did in the recording (statuses, endpoints, objects that their owners make) is left
to the components.
Source: simulator 1, 4.1, 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from lab.exchange.stream import Change
from services.api.kinds.pod import BEGAN
from services.api.meta import Document, metadata_of
from services.api.wire import encode

Pods = Literal["as-they-are", "pending"]
PODS, NODES, VOLUMES, CLAIMS = "pods", "nodes", "persistentvolumes", "persistentvolumeclaims"
OF_COMPONENTS: Final = frozenset(
    ("endpoints", "endpointslices.discovery.k8s.io", "events", "events.events.k8s.io", "leases.coordination.k8s.io")
)
"""Kinds whose objects components make; Endpoints written by a client cannot be distinguished from them."""
_GIVEN: Final = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
OWN_TAINTS: Final = "node.kubernetes.io/"
_ORDER: Final = (
    "namespaces",
    "customresourcedefinitions.apiextensions.k8s.io",
    "priorityclasses.scheduling.k8s.io",
    "storageclasses.storage.k8s.io",
    "runtimeclasses.node.k8s.io",
    "deviceclasses.resource.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "serviceaccounts",
    "configmaps",
    "secrets",
    "limitranges",
    "resourcequotas",
    CLAIMS,
    NODES,
)
_LAST: Final = (PODS, VOLUMES)


@dataclass(frozen=True)
class Rules:
    """How objects are changed before they are loaded. `keep_owners`: owner references stay, with the owners' new uids.

    `keeps_existing`: an existing object stays as it is, as in a replay of kube-scheduler-simulator. `has_kubelets`:
    kubelets act on the loaded pods. The status of a pod that is not over is then written by its node's kubelet,
    which continues from the status in the file.
    """

    pods: Pods = "as-they-are"
    keep_owners: bool = True
    keeps_existing: bool = False
    has_kubelets: bool = False


def rank(resource: str) -> int:
    """Return the position of a kind in the order of loading: kinds that others need first, volumes after claims."""
    if resource in _ORDER:
        return _ORDER.index(resource)
    return len(_ORDER) + (1 + _LAST.index(resource) if resource in _LAST else 0)


class Prepared(NamedTuple):
    """An object to create, the status to set afterwards, and whether it was being deleted."""

    document: Document
    status: Document | None
    is_terminating: bool


def prepare_object(resource: str, document: Document, rules: Rules) -> Prepared:
    """Return an object prepared for creation, without the fields that the API server sets itself."""
    given = metadata_of(document)
    metadata = {name: value for name, value in given.items() if name not in _GIVEN}
    new_document = {**{name: value for name, value in document.items() if name != "status"}, "metadata": metadata}
    status = document.get("status")
    if resource == PODS:
        new_document["metadata"] = metadata = without_began(metadata)
        new_document["spec"] = dict(document.get("spec") or {})
        if rules.pods == "pending":
            new_document["spec"].pop("nodeName", None)
            status = None
        if not rules.keep_owners:
            metadata.pop("ownerReferences", None)
            for name in ("serviceAccountName", "serviceAccount"):
                new_document["spec"].pop(name, None)
    return Prepared(
        new_document, status if isinstance(status, dict) and status else None, bool(given.get("deletionTimestamp"))
    )


def without_began(metadata: Document) -> Document:
    """Return a pod's metadata without the annotation that an import set."""
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict) or BEGAN not in annotations:
        return dict(metadata)
    return {**metadata, "annotations": {name: text for name, text in annotations.items() if name != BEGAN}}


_TAKEN_OVER: Final = ("startTime", "conditions", "initContainerStatuses", "containerStatuses")


def handed_over(pod: Prepared) -> Prepared:
    """Return a pod prepared for a node whose kubelet continues it and writes its status.

    A pod that is over is returned unchanged.
    """
    status = pod.status or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return pod
    metadata = metadata_of(pod.document)
    if status.get("containerStatuses"):
        reported = encode({name: status[name] for name in _TAKEN_OVER if status.get(name)}).decode()
        metadata = {**metadata, "annotations": {**(metadata.get("annotations") or {}), BEGAN: reported}}
    return Prepared({**pod.document, "metadata": metadata}, None, pod.is_terminating)


_GROWING: Final = ("collisionCount", "failed", "succeeded")
"""Status counters that an API server does not let decrease."""
_MADE_ONCE: Final = ("startTime", "completionTime")
"""Times in a Job's status that never change once they are set."""
JOBS: Final = "jobs.batch"


def never_less(resource: str, status: Document, stored: Document) -> Document:
    """Return a status that may be set on the stored object.

    Counters that the mesh's controllers have increased, and times that they have set, keep the stored values.
    """
    held = stored.get("status") or {}
    given = dict(status)
    for name in _GROWING:
        if (count := held.get(name)) and isinstance(count, int) and count > (given.get(name) or 0):
            given[name] = count
    for name in _MADE_ONCE if resource == JOBS else ():
        if held.get(name):
            given[name] = held[name]
    return given


def owners_of(document: Document) -> list[Document]:
    """Return the owner references of an object."""
    found = metadata_of(document).get("ownerReferences")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def is_controlled(document: Document) -> bool:
    """Return whether a controller made the object."""
    return any(each.get("controller") is True for each in owners_of(document))


def missing_owners(document: Document, uids: Mapping[str, str]) -> list[Document]:
    """Return the references to owners that do not exist; `uids`: the new uid by the one in the stream."""
    return [each for each in owners_of(document) if str(each.get("uid") or "") not in uids]


def relink_uids(resource: str, document: Document, uids: Mapping[str, str]) -> Document:
    """Return the object with the new uids of its owners, of a volume's bound claim, and of a claim's pods."""
    if owners := owners_of(document):
        fresh = [{**each, "uid": uids.get(str(each.get("uid")), str(each.get("uid")))} for each in owners]
        document = {**document, "metadata": {**document["metadata"], "ownerReferences": fresh}}
    claim = (document.get("spec") or {}).get("claimRef") if resource == VOLUMES else None
    if isinstance(claim, dict) and claim.get("uid"):
        fresh_claim = {name: value for name, value in claim.items() if name not in ("uid", "resourceVersion")}
        if fresh_uid := uids.get(str(claim["uid"])):
            fresh_claim["uid"] = fresh_uid
        document = {**document, "spec": {**document["spec"], "claimRef": fresh_claim}}
    status = document.get("status")
    reserved = status.get("reservedFor") if isinstance(status, dict) else None
    if isinstance(reserved, list) and reserved:
        consumers = [
            {**each, "uid": uids.get(str(each.get("uid")), each.get("uid"))} if isinstance(each, dict) else each
            for each in reserved
        ]
        document = {**document, "status": {**document["status"], "reservedFor": consumers}}
    return document


class Parts(NamedTuple):
    """Parts of a patch or new state by destination: the object, its status, the node that a pod is bound to, deletion,
    and the pod's size.
    """

    body: Document
    status: Document
    node: str
    is_deletion: bool
    size: Document


def parts(change: Change, rules: Rules) -> Parts:
    """Split a patch or update into its parts. Under `pending` it has neither status nor node."""
    document = change.document or {}
    metadata = {name: value for name, value in metadata_of(document).items() if name not in _GIVEN}
    body = {name: value for name, value in document.items() if name not in ("status", "metadata")}
    if change.method == "patch":
        for name in ("apiVersion", "kind"):
            body.pop(name, None)
    if metadata:
        body["metadata"] = metadata
    status, node = document.get("status"), ""
    if change.resource == PODS and isinstance(spec := body.get("spec"), dict):
        node = str(spec.get("nodeName") or "")
        body["spec"] = {name: value for name, value in spec.items() if name != "nodeName"}
        if not body["spec"] and change.method == "patch":
            del body["spec"]
    size = _take_size(body) if change.resource == PODS and change.method == "patch" else {}
    if change.resource == NODES and rules.pods == "pending":
        _leave_own_taints(body)
    is_deletion = bool(metadata_of(document).get("deletionTimestamp"))
    if rules.pods == "pending" or not isinstance(status, dict):
        status = {}
    return Parts(body, status, node if rules.pods != "pending" else "", is_deletion, size)


def _take_size(body: Document) -> Document:
    """Take the containers' resources out of a pod's patch: they are changed by a resize alone (KEP-1287)."""
    spec = body.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(containers, list):
        return {}
    sizes = [
        {name: each[name] for name in ("name", "resources")}
        for each in containers
        if isinstance(each, dict) and "name" in each and isinstance(each.get("resources"), dict)
    ]
    if not sizes:
        return {}
    rest = [{n: v for n, v in e.items() if n != "resources"} if isinstance(e, dict) else e for e in containers]
    kept = {name: value for name, value in spec.items() if name != "containers"}
    if any(not isinstance(each, dict) or set(each) != {"name"} for each in rest):
        kept["containers"] = rest
    else:
        kept.pop("$setElementOrder/containers", None)
    if kept:
        body["spec"] = kept
    else:
        del body["spec"]
    return {"spec": {"containers": sizes}}


def _leave_own_taints(body: Document) -> None:
    spec = body.get("spec")
    if not isinstance(spec, dict):
        return
    kept: Document = {name: value for name, value in spec.items() if name != "$setElementOrder/taints"}
    if isinstance(kept.get("taints"), list):
        kept["taints"] = [each for each in kept["taints"] if not str(each.get("key", "")).startswith(OWN_TAINTS)]
        if not kept["taints"]:
            del kept["taints"]
    if kept:
        body["spec"] = kept
    else:
        del body["spec"]


def left_to_components(change: Change, controlled: frozenset[Any] | set[Any], rules: Rules) -> str:
    """Return the reason why the mesh itself decides about a change; empty string if it does not.

    `controlled`: `(resource, key)` of objects that controllers made.
    """
    if rules.pods != "pending":
        return ""
    if change.resource in OF_COMPONENTS:
        return "made by components"
    is_made = change.method in ("create", "update") and is_controlled(change.document or {})
    return "made by their owners" if is_made or (change.resource, change.key) in controlled else ""


@dataclass
class Counted:
    """Counts of left-out items by reason, with the names of the first few."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, why: str, what: str) -> None:
        """Count one left-out item."""
        self.counts[why] = self.counts.get(why, 0) + 1
        if len(found := self.examples.setdefault(why, [])) < EXAMPLES_MAX:
            found.append(what)

    def lines(self) -> Iterable[str]:
        """Yield one line for each reason: the count, and the first names."""
        for why, count in self.counts.items():
            named = self.examples[why]
            yield f"{count} {why}: {', '.join(named)}{', …' if count > len(named) else ''}"


EXAMPLES_MAX: Final = 5
