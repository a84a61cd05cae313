"""What of a snapshot or recording a mesh is given, and what it decides itself. Pure.

Under `as-they-are` pods keep their nodes and statuses. Under `pending` the mesh decides: pods lose node and status, and
what components did in the recording (statuses, endpoints, objects that their owners make) is left to the components.
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
"""Kinds whose objects components make; Endpoints that a client wrote cannot be told from them."""
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
    """How objects are changed on their way. `keep_owners`: references to owners stay, with the owners' new uids.

    `keeps_existing`: an object that is there stays as it is, as kube-scheduler-simulator replays. `has_kubelets`:
    kubelets act on what is loaded, so the status of a pod that is not over is that of its node's kubelet, which is
    given what was reported of it to go on with.
    """

    pods: Pods = "as-they-are"
    keep_owners: bool = True
    keeps_existing: bool = False
    has_kubelets: bool = False


def rank(resource: str) -> int:
    """Return when objects of a kind are loaded: what others need comes first, volumes come after their claims."""
    if resource in _ORDER:
        return _ORDER.index(resource)
    return len(_ORDER) + (1 + _LAST.index(resource) if resource in _LAST else 0)


class Prepared(NamedTuple):
    """An object as it is created, the status it is then given, and whether it was being deleted."""

    document: Document
    status: Document | None
    is_terminating: bool


def prepared(resource: str, document: Document, rules: Rules) -> Prepared:
    """Return what is created of an object; what the API server gives itself is left out."""
    given = metadata_of(document)
    metadata = {name: value for name, value in given.items() if name not in _GIVEN}
    made = {**{name: value for name, value in document.items() if name != "status"}, "metadata": metadata}
    status = document.get("status")
    if resource == PODS:
        made["metadata"] = metadata = without_began(metadata)
        made["spec"] = dict(document.get("spec") or {})
        if rules.pods == "pending":
            made["spec"].pop("nodeName", None)
            status = None
        if not rules.keep_owners:
            metadata.pop("ownerReferences", None)
            for name in ("serviceAccountName", "serviceAccount"):
                made["spec"].pop(name, None)
    return Prepared(made, status if isinstance(status, dict) and status else None, bool(given.get("deletionTimestamp")))


def without_began(metadata: Document) -> Document:
    """Return a pod's metadata without what an import said of it."""
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict) or BEGAN not in annotations:
        return dict(metadata)
    return {**metadata, "annotations": {name: text for name, text in annotations.items() if name != BEGAN}}


_TAKEN_OVER: Final = ("startTime", "conditions", "initContainerStatuses", "containerStatuses")


def handed_over(made: Prepared) -> Prepared:
    """Return a pod as it comes onto a node whose kubelet goes on with it: that writes the status. One that is over has
    nothing to go on with."""
    status = made.status or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return made
    metadata = metadata_of(made.document)
    if status.get("containerStatuses"):
        reported = encode({name: status[name] for name in _TAKEN_OVER if status.get(name)}).decode()
        metadata = {**metadata, "annotations": {**(metadata.get("annotations") or {}), BEGAN: reported}}
    return Prepared({**made.document, "metadata": metadata}, None, made.is_terminating)


_GROWING: Final = ("collisionCount", "failed", "succeeded")
"""Counters in statuses that an API server lets no one take back."""
_MADE_ONCE: Final = ("startTime", "completionTime")
"""Moments of a Job that stay once they are there."""
JOBS: Final = "jobs.batch"


def never_less(resource: str, status: Document, stored: Document) -> Document:
    """Return a status as it may be given to the object that is stored: what the mesh's controllers have counted up, or
    begun, meanwhile stays."""
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
    """Return the references to an object's owners."""
    found = metadata_of(document).get("ownerReferences")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def is_controlled(document: Document) -> bool:
    """Whether a controller made the object."""
    return any(each.get("controller") is True for each in owners_of(document))


def missing_owners(document: Document, uids: Mapping[str, str]) -> list[Document]:
    """Return the references to owners that are not there; `uids`: the new uid by the one in the stream."""
    return [each for each in owners_of(document) if str(each.get("uid") or "") not in uids]


def relinked(resource: str, document: Document, uids: Mapping[str, str]) -> Document:
    """Return the object with the new uids of its owners, of the claim that a volume is bound to, of a claim's pods."""
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
    """What of a patch or new state goes where: into the object, its size and its status, and onto which node a pod is
    bound."""

    body: Document
    status: Document
    node: str
    is_deletion: bool
    size: Document


def parts(change: Change, rules: Rules) -> Parts:
    """Return a patch or update in its parts. Under `pending` it has neither status nor node."""
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
    """Return why the mesh decides about a change itself, "" where it does not.

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
    """How often something was left out, by why; and the first few of each by name."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, why: str, what: str) -> None:
        """Count one."""
        self.counts[why] = self.counts.get(why, 0) + 1
        if len(found := self.examples.setdefault(why, [])) < EXAMPLES_MAX:
            found.append(what)

    def lines(self) -> Iterable[str]:
        """Yield a line for each reason: how many, and which first."""
        for why, count in self.counts.items():
            named = self.examples[why]
            yield f"{count} {why}: {', '.join(named)}{', …' if count > len(named) else ''}"


EXAMPLES_MAX: Final = 5
