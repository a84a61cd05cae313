"""Authorization of nodes, which depends on the pods that are bound to them.

Every refusal has one constant text, so that a node cannot learn what exists. Ownership is checked before the
body is read and once more inside the commit, because a bind or unbind may have come between (X-NR17).
"""

from collections.abc import Callable, Iterable

from apiserver_fake.registry.authorization.field_masks import changes
from apiserver_fake.registry.strategy import Lookup, WriteContext, delete_options
from services.api.errors import Conflict, Forbidden, TooManyRequests
from services.api.kinds.pod import MIRROR_ANNOTATION
from services.api.meta import Document
from services.api.wire import Request

LABELS_AT_REGISTRATION = (
    "topology.kubernetes.io/region", "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
)  # fmt: skip
"""Labels a node may give itself when it is created, and never change (X-NR3)."""

LABELS_OF_NODES = (
    "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
)  # fmt: skip
"""Labels a node may set on itself at any time; also everything below `kubelet.kubernetes.io/` (X-NR3)."""

EVENTS_PER_S, EVENTS_BURST = 20.0, 20.0
"""Events that one node may write per second, and the burst (X-NR15)."""
NODE_TEXT = "node may only act on objects it owns"
"""The one refusal that a node gets for objects it does not own, whether they exist or not."""
NODE_LEASES = "kube-node-lease"
Listing = Callable[[str, str], Iterable[Document]]


def is_bound_to(pod: Document | None, node: str) -> bool:
    """Whether the pod is bound to that node."""
    return pod is not None and (pod.get("spec") or {}).get("nodeName") == node


def may_node(node: str, request: Request, lookup: Lookup, listing: Listing) -> bool:
    """Whether the node may make that request, whatever its body."""
    verb, sub, name = request.verb, request.subresource, request.name
    is_own = (verb in ("get", "update", "patch") and name == node) or (verb == "create" and name in ("", node))
    match request.resource:
        case "pods":
            return _may_node_pods(node, request, lookup)
        case "nodes":
            if verb in ("list", "watch"):  # upstream's gate AuthorizeNodeWithSelectors
                return sub == "" and request.field_selector == f"metadata.name={node}"
            return is_own if sub == "" else sub == "status" and verb != "create" and is_own
        case "leases.coordination.k8s.io":
            is_own = is_own or (verb == "delete" and name == node)
            return sub == "" and request.namespace == NODE_LEASES and is_own
        case "events":
            return sub == "" and verb in ("create", "patch")
        case "csinodes.storage.k8s.io" | "noderesourcetopologies.topology.node.k8s.io":
            return sub == "" and is_own
        case "secrets" | "configmaps" | "persistentvolumeclaims":
            return sub == "" and _may_node_content(node, request, listing)
        case "persistentvolumes":
            return sub == "" and verb == "get" and _has_volume(node, request, lookup, listing)
        case "serviceaccounts":
            return sub == "token" and verb == "create" and _runs_as(node, request, listing)
        case "csidrivers.storage.k8s.io" | "runtimeclasses.node.k8s.io" | "services":
            return sub == "" and verb in ("get", "list", "watch")
        case "volumeattachments.storage.k8s.io":
            return sub == "" and verb == "get" and is_bound_to(lookup(request.resource, "", name), node)
        case "resourceclaims.resource.k8s.io":
            return _may_node_claims(node, request, lookup, listing)
        case "resourceslices.resource.k8s.io":
            return sub == "" and may_slices_of(node, request, lookup)
    return False


def _runs_as(node: str, request: Request, listing: Listing) -> bool:
    """X-TOK3: a service account of a pod bound to the node."""
    if not request.name or not request.namespace:
        return False
    pods = listing("pods", request.namespace)
    return any(is_bound_to(pod, node) and pod["spec"].get("serviceAccountName") == request.name for pod in pods)


def may_slices_of(node: str, request: Request, lookup: Lookup) -> bool:
    """Whether the request concerns only slices of that node, as far as this is known without the body (dra-core
    1.1).
    """
    match request.verb:
        case "list" | "watch" | "deletecollection":
            return request.field_selector == f"spec.nodeName={node}"
        case "create":
            return True  # whose it is, the body says
        case "get" | "update" | "patch" | "delete":
            return is_bound_to(lookup(request.resource, "", request.name), node)
    return False


def _may_node_claims(node: str, request: Request, lookup: Lookup, listing: Listing) -> bool:
    """Claims are read; a driver that acts as the node also reports on the devices.

    A claim is the node's business when a pod that is bound there uses it, or when it is allocated there alone: binding
    may wait for what the driver says (KEP-5007). Source: dra-core 9, guarantees X-NR12.
    """
    verbs = {"": ("get",), "status": ("get", "update", "patch")}
    if request.verb not in verbs.get(request.subresource, ()):
        return False
    claim = lookup(request.resource, request.namespace, request.name)
    allocation = ((claim or {}).get("status") or {}).get("allocation") or {}
    return node_of(allocation) == node or _uses_devices(node, request, listing)


def node_of(allocation: Document) -> str:
    """Return the one node on which allocated devices can be used; "" if there are several, or none was chosen."""
    match (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms"):
        case [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [str(name)]}], **others}]:
            return "" if others.get("matchExpressions") else name
    return ""


def _uses_devices(node: str, request: Request, listing: Listing) -> bool:
    """X-NR12: a claim that a pod bound to the node uses."""
    if not request.name or not request.namespace:
        return False
    pods = listing("pods", request.namespace)
    return any(is_bound_to(pod, node) and request.name in device_claims(pod) for pod in pods)


def device_claims(pod: Document) -> list[str]:
    """Return the names of the pod's claims for devices, including generated claims and that for its extended
    resources.
    """
    named = [each.get("resourceClaimName") for each in (pod.get("spec") or {}).get("resourceClaims") or ()]
    status = pod.get("status") or {}
    generated_names = [each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()]
    extended = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    return [str(name) for name in (*named, *generated_names, extended) if name]


def _may_node_pods(node: str, request: Request, lookup: Lookup) -> bool:
    verb, sub = request.verb, request.subresource
    if sub == "unbind":
        # Who owns the pod, or asks again about an unbind of its own, is decided inside the commit (X-UB2, X-UB3).
        return verb == "create"
    if sub == "" and verb in ("list", "watch"):
        return request.field_selector == f"spec.nodeName={node}"
    if sub == "" and verb == "create":
        return True
    allowed = {"": ("get", "delete"), "status": ("get", "update", "patch"), "eviction": ("create",)}
    if verb not in allowed.get(sub, ()):
        return False
    return is_bound_to(lookup("pods", request.namespace, request.name), node)


def _may_node_content(node: str, request: Request, listing: Listing) -> bool:
    name = request.name
    if request.verb == "watch" and not name and request.field_selector.startswith("metadata.name="):
        name = request.field_selector.removeprefix("metadata.name=")
    if request.verb not in ("get", "watch") or not name or "," in name or not request.namespace:
        return False
    kind = {"secrets": "secret", "configmaps": "configmap"}.get(request.resource, "claim")
    return any(is_bound_to(pod, node) and (kind, name) in references(pod) for pod in listing("pods", request.namespace))


def _has_volume(node: str, request: Request, lookup: Lookup, listing: Listing) -> bool:
    """Whether the volume is bound to a claim that a pod bound to the node uses."""
    volume = lookup(request.resource, "", request.name)
    bound = ((volume or {}).get("spec") or {}).get("claimRef") or {}
    claim, namespace = bound.get("name") or "", bound.get("namespace") or ""
    pods = listing("pods", namespace) if claim and namespace else ()
    return any(is_bound_to(pod, node) and ("claim", claim) in references(pod) for pod in pods)


def references(pod: Document) -> list[tuple[str, str]]:
    """Return `(kind, name)` of every secret, configmap, claim and token source that the pod names, in order."""
    spec = pod.get("spec") or {}
    targets = [("secret", str(each.get("name"))) for each in spec.get("imagePullSecrets") or ()]
    for volume in spec.get("volumes") or ():
        targets += _volume_references(volume)
        if volume.get("ephemeral"):
            targets.append(("claim", f"{pod['metadata'].get('name', '')}-{volume.get('name', '')}"))
        for source in (volume.get("projected") or {}).get("sources") or ():
            targets += _volume_references(source)
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            variables = [variable.get("valueFrom") or {} for variable in container.get("env") or ()]
            for end, sources in (("Ref", container.get("envFrom") or ()), ("KeyRef", variables)):
                for source in sources:
                    targets.append(("secret", str((source.get(f"secret{end}") or {}).get("name") or "")))
                    targets.append(("configmap", str((source.get(f"configMap{end}") or {}).get("name") or "")))
    return [each for each in targets if each[1]]


def _volume_references(volume: Document) -> list[tuple[str, str]]:
    secret, configmap = volume.get("secret") or {}, volume.get("configMap") or {}
    tokens = ("serviceAccountToken", "clusterTrustBundle", "podCertificate", "ephemeral", "csi")
    return [
        ("secret", str(secret.get("secretName") or secret.get("name") or "")),
        ("configmap", str(configmap.get("name") or "")),
        ("claim", str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "")),
        *((name, name) for name in tokens if volume.get(name)),
    ]


def admit_node(node: str, request: Request, old: Document | None, new: Document | None, ctx: WriteContext) -> None:
    """Check that the node may make exactly this change; `old` None: a create, `new` None: a delete.

    Raises: Forbidden with one constant text; Conflict `StaleBinding` for a status of an earlier binding.
    """
    if request.subresource == "unbind":
        return  # its own fourteen checks decided
    match request.resource:
        case "pods":
            is_allowed = _admit_node_pods(node, request, old, new, ctx)
        case "nodes":
            is_allowed = new is not None and _admit_own_node(node, old, new)
        case "leases.coordination.k8s.io":
            is_allowed = new is None or _admit_own_object(node, new, ctx)
        case "events":
            is_allowed = new is not None and _admit_event(node, old, new, ctx)
        case "csinodes.storage.k8s.io" | "noderesourcetopologies.topology.node.k8s.io":
            is_allowed = new is not None and _admit_own_object(node, new, ctx)
        case "resourceclaims.resource.k8s.io":
            is_allowed = old is not None and new is not None and _only_devices(old, new)
        case "resourceslices.resource.k8s.io":
            is_allowed = is_slice_of(node, old, new, ctx)
        case _:
            is_allowed = False
    if not is_allowed:
        raise Forbidden(NODE_TEXT)


def is_slice_of(node: str, old: Document | None, new: Document | None, ctx: WriteContext) -> bool:
    """Whether a slice belongs to that node before and after the write, and has no owner but the node."""
    return all(is_bound_to(each, node) for each in (old, new) if each is not None) and (
        new is None or all(_is_own_node(o, node, ctx) for o in new["metadata"].get("ownerReferences") or ())
    )


def _only_devices(old: Document, new: Document) -> bool:
    """Whether nothing of a claim changes but what is said of its devices."""
    return all(path == "status.devices" for path, _, _ in changes(old, new))


def _admit_own_node(node: str, old: Document | None, new: Document) -> bool:
    meta = new["metadata"]
    before = old["metadata"] if old else {}
    if meta.get("name") != node:
        return False
    if any((meta.get(name) or []) != (before.get(name) or []) for name in ("ownerReferences", "finalizers")):
        return False
    if old is not None:
        taints = [(each.get("spec") or {}).get("taints") or [] for each in (old, new)]
        if taints[0] != taints[1]:
            return False
    labels, labelled = meta.get("labels") or {}, before.get("labels") or {}
    changed = [key for key in dict.fromkeys([*labels, *labelled]) if labels.get(key) != labelled.get(key)]
    return all(_may_label(key, is_new=old is None) for key in changed)


def _may_label(key: str, *, is_new: bool) -> bool:
    domain = "." + key.rpartition("/")[0]
    if key in LABELS_OF_NODES or domain.endswith(".kubelet.kubernetes.io"):
        return True
    # What a node is configured with besides, it may say once; names of Kubernetes' own domains it may not.
    return is_new and (key in LABELS_AT_REGISTRATION or not domain.endswith((".kubernetes.io", ".k8s.io")))


def _admit_own_object(node: str, new: Document, ctx: WriteContext) -> bool:
    meta = new["metadata"]
    if meta.get("name") != node:
        return False
    return all(_is_own_node(each, node, ctx) for each in meta.get("ownerReferences") or ())


def _is_own_node(owner: Document, node: str, ctx: WriteContext) -> bool:
    stored = ctx.lookup("nodes", "", node)
    return (
        stored is not None
        and (owner.get("kind"), owner.get("apiVersion"), owner.get("name")) == ("Node", "v1", node)
        and owner.get("uid") == stored["metadata"].get("uid")
    )


def _admit_event(node: str, old: Document | None, new: Document, ctx: WriteContext) -> bool:
    for event in (old, new):
        host = ((event or {}).get("source") or {}).get("host")
        if event is not None and host != node and event.get("reportingInstance") != node:
            return False
    bucket = ctx.memory.bucket(f"events/{node}", EVENTS_BURST, ctx.now_s)
    wait_s = bucket.wait_s(EVENTS_PER_S, EVENTS_BURST, ctx.now_s)
    if wait_s > 0:
        raise TooManyRequests(f"node {node} writes more than {EVENTS_PER_S:g} events a second", retry_after_s=1)
    if not ctx.request.dry_run:
        bucket.level -= 1
    return True


def _admit_node_pods(
    node: str, request: Request, old: Document | None, new: Document | None, ctx: WriteContext
) -> bool:
    if old is None:
        return request.subresource == "" and new is not None and _is_own_mirror(node, new, ctx)
    if not is_bound_to(old, node):
        return False
    if new is None:
        # X-NR8: a running pod is not cut short by its node; it is first asked to end.
        meta = old["metadata"]
        is_ending = bool(meta.get("deletionTimestamp")) or MIRROR_ANNOTATION in (meta.get("annotations") or {})
        return is_ending or delete_options(request).grace_period_s != 0
    if request.subresource == "status":
        return admit_status(node, old, new)
    return request.subresource == "eviction"


def _is_own_mirror(node: str, pod: Document, ctx: WriteContext) -> bool:
    """X-NR7: a mirror pod of this node that reaches for nothing."""
    meta, spec = pod["metadata"], pod.get("spec") or {}
    owners = meta.get("ownerReferences") or []
    return (
        MIRROR_ANNOTATION in (meta.get("annotations") or {})
        and spec.get("nodeName") == node
        and len(owners) == 1
        and _is_own_node(owners[0], node, ctx)
        and not spec.get("resourceClaims")
        and not spec.get("serviceAccountName")
        and not references(pod)
        and not _extended_claims(spec)
    )


def _extended_claims(spec: Document) -> bool:
    return any(
        (container.get("resources") or {}).get("claims")
        for kind in ("initContainers", "containers", "ephemeralContainers")
        for container in spec.get(kind) or ()
    )


_NOT_OF_NODES = (
    "nominatedNodeName", "resourceClaimStatuses", "extendedResourceClaimStatus", "bindingGeneration", "unbindCount",
    "unbindHistory", "bindingAdditions",
)  # fmt: skip
_RANK = {"": 0, "Pending": 0, "Unknown": 0, "Running": 1, "Succeeded": 2, "Failed": 2}


def admit_status(node: str, old: Document, new: Document) -> bool:
    """Whether this node may change the pod's status in this way; `new` is the requested object.

    Raises: Conflict `StaleBinding` when the status is of an earlier binding (kubelet-unbinding 4.3).
    """
    if not is_bound_to(old, node):
        return False
    before, after = old.get("status") or {}, new.get("status") or {}
    generation, seen = before.get("bindingGeneration") or 0, after.get("observedGeneration") or 0
    if seen < generation:
        raise Conflict(
            f'the status of pod "{old["metadata"]["name"]}" is of generation {seen}, '
            f"the pod was bound at generation {generation}",
            reason="StaleBinding",
        )
    is_rest_same = {**old, "status": None} == {**new, "status": None}
    if not is_rest_same and any(old.get(name) != new.get(name) for name in (*old, *new) if name != "status"):
        # Not the same document; but versions may differ, and an empty list is no list.
        before_rest, rest = ({n: v for n, v in document.items() if n != "status"} for document in (old, new))
        if next(changes(before_rest, rest), None) is not None:
            return False
    for name in _NOT_OF_NODES:
        if name in after and after[name] != before.get(name):
            return False
    was, phase = before.get("phase") or "", after.get("phase") or ""
    is_forward = _RANK.get(phase, 0) >= _RANK.get(was, 0) and (_RANK.get(was, 0) < 2 or phase == was)
    return is_forward or not phase
