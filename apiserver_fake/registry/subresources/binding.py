"""`pods/binding`: sets a pod's node, once, and records what the Binding added.

The preconditions are checked in the order in which a reader needs them explained: first that this is the pod
meant, then that it may still be bound. The keys that the Binding adds besides the node are recorded in
`status.bindingAdditions`, so that an unbind removes exactly those.
"""

from apiserver_fake.registry.errors import MODIFIED_TEXT, RECREATED_TEXT
from apiserver_fake.registry.strategies.pod import transition
from apiserver_fake.registry.strategy import Subresource, SubresourceResult, WriteContext, next_generation
from apiserver_fake.registry.validation.formats import Cause, not_supported, required, subdomain
from services.api.errors import BadRequest, Conflict, invalid
from services.api.meta import Document
from services.api.times import parse_time

TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
"""Labels copied from the node to the pod since 1.35, as by PodTopologyLabels (kubelet-unbinding 3, constraint 7)."""
SUCCESS: Document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _bind(stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    name = ctx.request.name
    meta, node = _read(body, name)
    _check_preconditions(stored, meta, body, ctx)
    _check_state(stored, name)
    if ctx.switches.enforce_exclusion:
        _check_exclusion(stored, node, name, ctx)
    return SubresourceResult(document=_bound_pod(stored, meta, node, ctx), response=SUCCESS, code=201)


def _read(body: Document, name: str) -> tuple[Document, str]:
    """Return the Binding's metadata and its node. Raises: BadRequest, Invalid."""
    meta, target = body.get("metadata") or {}, body.get("target") or {}
    if not isinstance(meta, dict) or not isinstance(target, dict):
        raise BadRequest("a Binding's metadata and target must be objects")
    for field in ("labels", "annotations"):
        values = meta.get(field) or {}
        if not isinstance(values, dict) or not all(isinstance(each, str) for each in values.values()):
            raise BadRequest(f"a Binding's metadata.{field} must be a map of texts")
    if (meta.get("name") or name) != name:
        raise BadRequest(f"the name of the Binding ({meta['name']}) does not match the name on the URL ({name})")
    causes: list[Cause] = []
    kind, node = target.get("kind") or "Node", target.get("name") or ""
    if kind != "Node":
        causes.append(not_supported("target.kind", str(kind), ("Node", "<empty>")))
    if not node or not isinstance(node, str):
        causes.append(required("target.name"))
    else:
        causes += subdomain("target.name", node)
    if causes:
        raise invalid("Binding", name, causes)
    return meta, str(node)


def _check_preconditions(stored: Document, meta: Document, body: Document, ctx: WriteContext) -> None:
    name, now = stored["metadata"]["name"], stored["metadata"]
    uid = ctx.request.uid or str(meta.get("uid") or "")
    if uid and uid != now["uid"]:
        why = f"the UID in the precondition ({uid}) does not match the UID in record ({now['uid']}). {RECREATED_TEXT}"
        raise conflict(name, why, reason="UIDMismatch")
    version = ctx.request.resource_version or str(meta.get("resourceVersion") or "")
    if version and version != now["resourceVersion"]:
        raise conflict(name, MODIFIED_TEXT)
    expected = body.get("expectedUnbindCount")
    if expected is not None and ctx.switches.bind_precondition == "uid+unbindCount":
        count = (stored.get("status") or {}).get("unbindCount") or 0
        if expected != count:
            raise conflict(name, f"pod was unbound since: expected unbindCount {expected}, it is {count}")


def _check_state(stored: Document, name: str) -> None:
    if stored["metadata"].get("deletionTimestamp"):
        raise conflict(name, f"pod {name} is being deleted, cannot be assigned to a host")
    spec = stored.get("spec") or {}
    if bound := spec.get("nodeName"):
        raise conflict(name, f'pod {name} is already assigned to node "{bound}"')
    if spec.get("schedulingGates"):
        raise conflict(name, f"pod {name} has non-empty .spec.schedulingGates")


def _check_exclusion(stored: Document, node: str, name: str, ctx: WriteContext) -> None:
    # Both times are this server's: the entry's, and now. A restart must not forget an exclusion, so no
    # monotonic clock can carry it.
    for entry in (stored.get("status") or {}).get("unbindHistory") or ():
        if entry.get("nodeName") == node and entry.get("time"):
            left_s = parse_time(entry["time"]) + (entry.get("excludeSeconds") or 0) - ctx.wall_s
            if left_s > 0:
                raise conflict(name, f"node {node} rejected pod {name} earlier ({entry.get('reason')})")


def _bound_pod(stored: Document, binding: Document, node: str, ctx: WriteContext) -> Document:
    meta, status = next_generation(stored)["metadata"], dict(stored.get("status") or {})
    generation = meta["generation"]
    additions: dict[str, list[str]] = {}
    topology = ctx.labels("nodes", "", node) or {}
    offered = {key: topology[key] for key in TOPOLOGY_LABELS if key in topology}
    for field, values in (
        ("labels", {**offered, **(binding.get("labels") or {})}),
        ("annotations", binding.get("annotations") or {}),
    ):
        before = meta.get(field) or {}
        added = [key for key in values if key not in before]
        if field == "annotations" and values:
            meta[field] = {**before, **values}
        elif added:
            # What the owner said stays: a label is only added (upstream `copyLabelsWithoutOverwriting`).
            meta[field] = {**values, **before}
        if added:
            additions[field] = added
    if ctx.switches.clearing_nominated_node_name:
        status.pop("nominatedNodeName", None)
    status.pop("bindingAdditions", None)
    status["bindingGeneration"] = generation
    if additions:
        status["bindingAdditions"] = additions
    scheduled = {"type": "PodScheduled", "status": "True", "observedGeneration": generation}
    status["conditions"] = transition(status.get("conditions") or [], scheduled, ctx.wall_s)
    return {**stored, "metadata": meta, "spec": {**stored["spec"], "nodeName": node}, "status": status}


def conflict(name: str, why: str, *, subresource: str = "binding", reason: str = "") -> Conflict:
    """Return a 409 with the text that schedulers and kubectl know (kubectl-requests 7)."""
    kind = f"pods/{subresource}"
    return Conflict(
        f'Operation cannot be fulfilled on {kind} "{name}": {why}', reason=reason, details={"name": name, "kind": kind}
    )


SUBRESOURCES = (Subresource("pods", "binding", ("create",), _bind, body=("v1", "Binding")),)
