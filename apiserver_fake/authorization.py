"""May this identity do that? Decided twice: before the body is read, and inside the commit.

`authorize` looks at names, identity and stored objects only (guarantees 8.2, step 4). `admit` runs
inside the commit on the current object: field masks, the node rules that need the body, and
ownership once more, because a bind or unbind may have come between (X-NR17). The table is in
`authorization_rules`; what nodes may do depends on which pods are bound to them and is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import msgspec

from apiserver_fake.authorization_rules import (
    EVENTS_BURST,
    EVENTS_PER_S,
    LABELS_AT_REGISTRATION,
    LABELS_OF_NODES,
    RULES,
    Rule,
)
from apiserver_fake.rules import DeleteOptions, Lookup, WriteContext
from services.api.errors import BadRequest, Conflict, Forbidden, TooManyRequests
from services.api.identity import Identity
from services.api.kinds.pod import MIRROR_ANNOTATION
from services.api.meta import Document
from services.api.wire import Request

NODE_TEXT = "node may only act on objects it owns"
NODE_LEASES = "kube-node-lease"
_SPECIAL_VERBS = {"binding": "bind", "unbind": "unbind", "eviction": "evict", "token": "token"}
Listing = Callable[[str, str], Iterable[Document]]


def verb_of(request: Request) -> str:
    """Return the verb that is authorized: `create` on `pods/binding` is the special verb `bind`."""
    if request.resource == "nodetokens":
        return "token"
    if request.resource == "statehash":
        return "statehash"
    return _SPECIAL_VERBS.get(request.subresource, "create") if request.verb == "create" else request.verb


def authorize(identity: Identity, request: Request, lookup: Lookup, listing: Listing | None = None) -> None:
    """Return when the identity may try that, whatever the body says.

    `lookup(resource, namespace, name)` and `listing(resource, namespace)` show visible state; without
    a listing a node may read no secret or configmap. Raises: Forbidden, for nodes with one constant text.
    """
    if identity.node:
        _authorize_node(identity.node, request, lookup, listing)
    elif rule_for(identity, request, lookup) is None:
        raise _forbidden(identity, request)


def rule_for(identity: Identity, request: Request, lookup: Lookup) -> Rule | None:
    """Return the rule that allows the request, the one with the widest mask first; None when there is none."""
    if identity.user.startswith("system:node:"):
        return None  # only with its group is this a node, and then it is not looked up here (X-ID3)
    verb = verb_of(request)
    wanted = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    for rule in _rules_of(identity.user, identity.groups):
        if (
            verb in rule.verbs
            and _covers(rule.resources, wanted, request)
            and _is_there(rule, identity, request, lookup)
        ):
            return rule
    return None


@cache
def _rules_of(user: str, groups: tuple[str, ...]) -> tuple[Rule, ...]:
    mine = [
        rule
        for rule in RULES
        if rule.who == user
        or (rule.who.startswith("group:") and rule.who[6:] in groups)
        or (rule.who == "user:*" and user.startswith("user:") and len(user) > 5)
    ]
    return tuple(sorted(mine, key=lambda rule: bool(rule.may_change)))


def _covers(resources: tuple[str, ...], wanted: str, request: Request) -> bool:
    if wanted in resources:
        return True
    if request.resource in ("nodetokens", "statehash"):
        return False
    if request.subresource:
        return f"*/{request.subresource}" in resources
    return "*" in resources or ("*-secrets" in resources and request.resource != "secrets")


def _is_there(rule: Rule, identity: Identity, request: Request, lookup: Lookup) -> bool:
    match rule.where:
        case "own":
            return _owns_namespace(identity, request, lookup)
        case "lease":
            # A create may carry its name in the body alone; `admit` looks again.
            return request.namespace == "kube-system" and (
                _is_own_lease(identity, request.name) or (request.verb == "create" and not request.name)
            )
    return True


def _owns_namespace(identity: Identity, request: Request, lookup: Lookup) -> bool:
    """Whether a user owns the namespace: it has the user's name, or the label `emulation/owner` with it."""
    user = identity.user.removeprefix("user:")
    name = request.name if request.resource == "namespaces" else request.namespace
    if not name:
        return False
    if name == user:
        return True
    namespace = lookup("namespaces", "", name)
    return namespace is not None and (namespace["metadata"].get("labels") or {}).get("emulation/owner") == user


def _is_own_lease(identity: Identity, name: str) -> bool:
    if identity.user == "system:kube-scheduler":
        # One lease for itself and one for each profile, named as pods name it (kubelet-unbinding 4.6).
        return bool(name) and "controller" not in name
    own = identity.user.rpartition(":")[2]
    return name == own or name.startswith(f"{own}-") or name == "kube-controller-manager"


def _forbidden(identity: Identity, request: Request) -> Forbidden:
    plural, _, group = request.resource.partition(".")
    what = f"{plural}/{request.subresource}" if request.subresource else plural
    subject = f'{request.resource} "{request.name}"' if request.name else request.resource
    where = f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
    return Forbidden(
        f'{subject} is forbidden: User "{identity.user}" cannot {request.verb} resource "{what}" '
        f'in API group "{group}" {where}',
        details={"name": request.name, "group": group, "kind": plural},
    )


# --- inside the commit ------------------------------------------------------------------------------------------------


def admit(identity: Identity, request: Request, old: Document | None, new: Document | None, ctx: WriteContext) -> None:
    """Return when this identity may make exactly this change.

    `old` None: a create; `new` None: a delete. Raises: Forbidden naming the first path that the
    caller's mask does not contain; for nodes the constant text. Conflict `StaleBinding` for a status
    of an earlier binding.
    """
    if identity.node:
        _admit_node(identity.node, request, old, new, ctx)
        return
    rule = rule_for(identity, request, ctx.lookup)
    if rule is None:
        raise _forbidden(identity, request)
    if new is None:
        _check_preconditions(rule, identity, request, ctx)
    elif old is None:
        if rule.where == "lease" and not _is_own_lease(identity, new["metadata"].get("name") or ""):
            raise _forbidden(identity, request)
        if request.resource == "pods" and (new.get("spec") or {}).get("nodeName"):
            _check_preset_node(identity, new)
    elif rule.may_change:
        check_mask(identity, request, rule, old, new)


def _check_preset_node(identity: Identity, pod: Document) -> None:
    # S22: a pod born bound bypasses the scheduler.
    if rule_is_admin(identity) or identity.user == "system:controller:daemonset":
        return
    name = pod["metadata"].get("name") or ""
    raise Forbidden(
        f'pods "{name}" is forbidden: spec.nodeName: User "{identity.user}" may not choose the node of a pod',
        details={"name": name, "kind": "pods"},
    )


def rule_is_admin(identity: Identity) -> bool:
    """Whether this is an administrator."""
    return "system:mesh-admins" in identity.groups


def _check_preconditions(rule: Rule, identity: Identity, request: Request, ctx: WriteContext) -> None:
    if not rule.needs or (rule.unless[0] and ctx.switches.flag(rule.unless[0]) == rule.unless[1]):
        return
    options = _delete_options(request)
    missing = [
        name
        for name, value in (
            ("uid", options.uid or request.uid),
            ("rv", options.resource_version or request.resource_version),
        )
        if name in rule.needs and not value
    ]
    if missing:
        names = " and ".join({"uid": "uid", "rv": "resourceVersion"}[name] for name in missing)
        raise Forbidden(
            f'{request.resource} "{request.name}" is forbidden: User "{identity.user}" must name the {names} '
            "it deletes as a precondition",
            details={"name": request.name, "kind": request.resource.partition(".")[0]},
        )


def _delete_options(request: Request) -> DeleteOptions:
    try:
        body = msgspec.json.decode(request.body) if request.body else {}
    except msgspec.DecodeError as error:
        raise BadRequest(f"DeleteOptions: {error}") from None
    return DeleteOptions.from_document(body if isinstance(body, dict) else {})


def check_mask(identity: Identity, request: Request, rule: Rule, old: Document, new: Document) -> None:
    """Raise Forbidden naming the first changed path that the rule's mask does not contain."""
    for path, _, after in changes(old, new):
        if not any(_is_below(path, allowed) for allowed in rule.may_change):
            raise _masked(identity, request, path)
        if rule.to_unknown and path.endswith(".status") and after != "Unknown":
            raise _masked(identity, request, path)


def _masked(identity: Identity, request: Request, path: str) -> Forbidden:
    return Forbidden(
        f'{request.resource} "{request.name}" is forbidden: User "{identity.user}" may not change {path}',
        details={
            "name": request.name,
            "kind": request.resource.partition(".")[0],
            "causes": [{"reason": "FieldValueForbidden", "field": path, "message": "may not be changed"}],
        },
    )


def _is_below(path: str, allowed: str) -> bool:
    return path.startswith(allowed) and (len(path) == len(allowed) or path[len(allowed)] in ".[")


_KEYED = {"conditions": "type", "taints": "key"}
_SERVERS_OWN = frozenset(("metadata.resourceVersion", "metadata.generation", "metadata.managedFields"))


def changes(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield `(path, before, after)` for every leaf that differs, in document order.

    Conditions are named by type and taints by key (`status.conditions[Ready].status`); other lists
    are leaves. Versions that the server counts itself are left out.
    """
    if old is new or path in _SERVERS_OWN:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from changes(old.get(name), new.get(name), f"{path}.{name}" if path else name)
        return
    key = _KEYED.get(path.rpartition(".")[2])
    if key and (isinstance(old, list) or isinstance(new, list)):
        before, after = _by_key(old, key), _by_key(new, key)
        if before is not None and after is not None:
            for name in dict.fromkeys([*before, *after]):
                yield from _entry_changes(before.get(name), after.get(name), f"{path}[{name}]")
            return
    if isinstance(old, dict) and new is None:
        yield from changes(old, {}, path) if old else iter(((path, old, new),))
    elif isinstance(new, dict) and old is None:
        if new:
            yield from changes({}, new, path)
    elif old != new and not (old in (None, []) and new in (None, [])):
        yield path, old, new


def _entry_changes(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, list) or isinstance(new, list) or old is None or new is None:
        # Several taints of one key differ in effect: compared as a whole.
        if old != new:
            yield path, old, new
            if isinstance(new, dict) and "status" in new:
                yield f"{path}.status", None, new["status"]
        return
    yield from changes(old, new, path)


def _by_key(entries: Any, key: str) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for entry in entries or []:
        if not isinstance(entry, dict) or not isinstance(entry.get(key), str):
            return None
        name = entry[key]
        if name in found:
            before = found[name]
            found[name] = [*before, entry] if isinstance(before, list) else [before, entry]
        else:
            found[name] = entry
    return found


# --- nodes ------------------------------------------------------------------------------------------------------------


def not_yours() -> Forbidden:
    """Return the one answer a node gets for what it does not own, whether it exists or not."""
    return Forbidden(NODE_TEXT)


def is_bound_to(pod: Document | None, node: str) -> bool:
    """Whether the pod is bound to that node."""
    return pod is not None and (pod.get("spec") or {}).get("nodeName") == node


def _authorize_node(node: str, request: Request, lookup: Lookup, listing: Listing | None) -> None:
    if not _may_node(node, request, lookup, listing):
        raise not_yours()


def _may_node(node: str, request: Request, lookup: Lookup, listing: Listing | None) -> bool:
    verb, sub, name = request.verb, request.subresource, request.name
    match request.resource:
        case "pods":
            return _may_node_pods(node, request, lookup)
        case "nodes":
            if sub == "":
                return (verb in ("get", "update", "patch") and name == node) or (
                    verb == "create" and name in ("", node)
                )
            return sub == "status" and verb in ("get", "update", "patch") and name == node
        case "leases.coordination.k8s.io":
            if sub or request.namespace != NODE_LEASES:
                return False
            return (verb in ("get", "update", "patch", "delete") and name == node) or (
                verb == "create" and name in ("", node)
            )
        case "events":
            return sub == "" and verb in ("create", "patch")
        case "secrets" | "configmaps":
            return sub == "" and _may_node_content(node, request, listing)
    return False


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


def _may_node_content(node: str, request: Request, listing: Listing | None) -> bool:
    name = request.name
    if request.verb == "watch" and not name and request.field_selector.startswith("metadata.name="):
        name = request.field_selector.removeprefix("metadata.name=")
    if request.verb not in ("get", "watch") or not name or "," in name or not request.namespace or listing is None:
        return False
    kind = "secret" if request.resource == "secrets" else "configmap"
    return any(is_bound_to(pod, node) and (kind, name) in references(pod) for pod in listing("pods", request.namespace))


def references(pod: Document) -> list[tuple[str, str]]:
    """Return `(kind, name)` of every secret, configmap, claim and token source that the pod names, in order."""
    spec = pod.get("spec") or {}
    found = [("secret", str(each.get("name"))) for each in spec.get("imagePullSecrets") or ()]
    for volume in spec.get("volumes") or ():
        found += _volume_references(volume)
        for source in (volume.get("projected") or {}).get("sources") or ():
            found += _volume_references(source)
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            for each in container.get("envFrom") or ():
                found += [
                    ("secret", str((each.get("secretRef") or {}).get("name") or "")),
                    ("configmap", str((each.get("configMapRef") or {}).get("name") or "")),
                ]
            for variable in container.get("env") or ():
                source = variable.get("valueFrom") or {}
                found += [
                    ("secret", str((source.get("secretKeyRef") or {}).get("name") or "")),
                    ("configmap", str((source.get("configMapKeyRef") or {}).get("name") or "")),
                ]
    return [each for each in found if each[1]]


def _volume_references(volume: Document) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    secret, configmap = volume.get("secret") or {}, volume.get("configMap") or {}
    if secret:
        found.append(("secret", str(secret.get("secretName") or secret.get("name") or "")))
    if configmap:
        found.append(("configmap", str(configmap.get("name") or "")))
    if claim := volume.get("persistentVolumeClaim"):
        found.append(("claim", str(claim.get("claimName") or "")))
    for name in ("serviceAccountToken", "clusterTrustBundle", "podCertificate", "ephemeral", "csi"):
        if volume.get(name):
            found.append((name, name))
    return found


def _admit_node(node: str, request: Request, old: Document | None, new: Document | None, ctx: WriteContext) -> None:
    if request.subresource == "unbind":
        return  # its own fourteen checks decided
    match request.resource:
        case "pods":
            is_allowed = _admit_node_pods(node, request, old, new, ctx)
        case "nodes":
            is_allowed = new is not None and _admit_own_node(node, old, new)
        case "leases.coordination.k8s.io":
            is_allowed = new is None or _admit_own_lease(node, new, ctx)
        case "events":
            is_allowed = new is not None and _admit_event(node, old, new, ctx)
        case _:
            is_allowed = False
    if not is_allowed:
        raise not_yours()


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
    if key in LABELS_OF_NODES:
        return True
    domain = key.rpartition("/")[0]
    if domain == "kubelet.kubernetes.io" or domain.endswith(".kubelet.kubernetes.io"):
        return True
    if not is_new:
        return False
    if key in LABELS_AT_REGISTRATION:
        return True
    # What a node is configured with besides, it may say once; names of Kubernetes' own domains it may not.
    return not any(domain == own or domain.endswith(f".{own}") for own in ("kubernetes.io", "k8s.io"))


def _admit_own_lease(node: str, new: Document, ctx: WriteContext) -> bool:
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
        return _may_delete(request, old)
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


def _may_delete(request: Request, pod: Document) -> bool:
    # X-NR8: a running pod is not cut short by its node; it is first asked to end.
    if _delete_options(request).grace_period_s != 0:
        return True
    meta = pod["metadata"]
    return bool(meta.get("deletionTimestamp")) or MIRROR_ANNOTATION in (meta.get("annotations") or {})


_NOT_OF_NODES = (
    "nominatedNodeName", "resourceClaimStatuses", "extendedResourceClaimStatus", "bindingGeneration", "unbindCount",
    "unbindHistory", "bindingAdditions",
)  # fmt: skip
_RANK = {"": 0, "Pending": 0, "Unknown": 0, "Running": 1, "Succeeded": 2, "Failed": 2}


def admit_status(node: str, old: Document, new: Document) -> bool:
    """Whether this node may change the pod's status so; `new` is what was asked for.

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
    if any(old.get(name) != new.get(name) for name in (*old, *new) if name != "status"):
        # Not the same document; but versions may differ, and an empty list is no list.
        before_rest, rest = ({n: v for n, v in document.items() if n != "status"} for document in (old, new))
        if next(changes(before_rest, rest), None) is not None:
            return False
    if any(after.get(name) != before.get(name) for name in _NOT_OF_NODES if name in after):
        return False
    was, phase = before.get("phase") or "", after.get("phase") or ""
    is_forward = _RANK.get(phase, 0) >= _RANK.get(was, 0) and (_RANK.get(was, 0) < 2 or phase == was)
    return is_forward or not phase
