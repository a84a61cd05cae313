"""May this identity do that? Decided twice: before the body is read, and inside the commit.

`authorize` looks at names, identity and stored objects only (guarantees 8.2, step 4). `admit` runs
inside the commit on the current object: field masks, and the node rules that need the body.

The table is guarantees 8.3, deny by default: the roles stand in `roles.yaml` and, for controllers, in their folders.
Special verbs (bind, unbind, evict, token, impersonate, statehash) are held by those rules alone that name them: `*`
never includes one. Nodes are in neither, because their rules depend on which pod is bound where (`node`).
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from apiserver_fake.authorization.field_masks import check_mask
from apiserver_fake.authorization.node import NODE_TEXT, Listing, admit_node, is_slice_of, may_node, may_slices_of
from apiserver_fake.errors import forbidden
from apiserver_fake.strategy import Lookup, WriteContext, delete_options
from services.api.errors import Forbidden
from services.api.identity import DRIVERS_GROUP, Identity
from services.api.meta import Document
from services.api.wire import Request
from services.runtime.roles import CLAIM_FOLDER, Role, Rule, controller_roles, read_roles

_SPECIAL_VERBS = {"binding": "bind", "unbind": "unbind", "eviction": "evict", "token": "token"}


_added: list[Role] = []


@cache
def roles() -> tuple[Role, ...]:
    """Return every role there is."""
    own = read_roles(Path(__file__).with_name("roles.yaml"))
    return (*own, *controller_roles(), *controller_roles(CLAIM_FOLDER), *_added)


def add_roles(more: Iterable[Role]) -> None:
    """Add roles of controllers that are no part of keplab, before the first request of this process. Raises:
    ValueError naming a user who has a role already."""
    for role in more:
        if any(role.user == known.user for known in roles()):
            raise ValueError(f"{role.user} has a role already")
        _added.append(role)
        roles.cache_clear()
        rules_of.cache_clear()


def verb_of(request: Request) -> str:
    """Return the verb that is authorized: `create` on `pods/binding` is the special verb `bind`."""
    if request.resource == "nodetokens":
        return "token"
    if request.resource == "statehash":
        return "statehash"
    return _SPECIAL_VERBS.get(request.subresource, "create") if request.verb == "create" else request.verb


def authorize(identity: Identity, request: Request, lookup: Lookup, listing: Listing) -> None:
    """Return when the identity may try that, whatever the body says.

    `lookup(resource, namespace, name)` and `listing(resource, namespace)` show visible state.
    Raises: Forbidden, for nodes with one constant text.
    """
    if identity.node:
        if not may_node(identity.node, request, lookup, listing):
            raise Forbidden(NODE_TEXT)
    elif rule_for(identity, request, lookup) is None:
        raise _forbidden(identity, request)


def rule_for(identity: Identity, request: Request, lookup: Lookup) -> Rule | None:
    """Return the rule that allows the request, the one with the widest mask first; None when there is none."""
    if identity.user.startswith("system:node:"):
        return None  # only with its group is this a node, and then it is not looked up here (X-ID3)
    verb = verb_of(request)
    wanted = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    for rule in rules_of(identity.user, identity.groups):
        if (
            verb in rule.verbs
            and _covers(rule.resources, wanted, request)
            and _is_there(rule, identity, request, lookup)
        ):
            return rule
    return None


@cache
def rules_of(user: str, groups: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return what an identity may do, those rules first whose mask is wider."""
    mine = [rule for role in roles() if _has(role, user, groups) for rule in role.rules]
    return tuple(sorted(mine, key=lambda rule: bool(rule.may_change)))


def _has(role: Role, user: str, groups: tuple[str, ...]) -> bool:
    if role.user.startswith("group:"):
        return role.user[6:] in groups
    if DRIVERS_GROUP in groups:
        return False  # a driver may be called like a controller, and is none
    return role.user == user or (role.user == "user:*" and user.startswith("user:") and len(user) > 5)


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
        case "node":
            return identity.on_node != "" and may_slices_of(identity.on_node, request, lookup)
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


def admit(identity: Identity, request: Request, old: Document | None, new: Document | None, ctx: WriteContext) -> None:
    """Return when this identity may make exactly this change.

    `old` None: a create; `new` None: a delete. Raises: Forbidden naming the first path that the caller's mask does not
    contain; for nodes the constant text. Conflict `StaleBinding` for a status of an earlier binding.
    """
    if identity.node:
        admit_node(identity.node, request, old, new, ctx)
        return
    rule = rule_for(identity, request, ctx.lookup)
    if rule is None:
        raise _forbidden(identity, request)
    if rule.where == "node" and not is_slice_of(identity.on_node, old, new, ctx):
        raise _forbidden(identity, request)
    if new is None:
        _check_preconditions(rule, identity, request, ctx)
    elif old is None:
        if rule.where == "lease" and not _is_own_lease(identity, new["metadata"].get("name") or ""):
            raise _forbidden(identity, request)
        is_bound = request.resource == "pods" and (new.get("spec") or {}).get("nodeName")
        if is_bound and not rule.may_choose_node:
            # S22: a pod born bound bypasses the scheduler.
            why = f'spec.nodeName: User "{identity.user}" may not choose the node of a pod'
            raise forbidden("pods", new["metadata"].get("name") or "", why)
    elif rule.may_change:
        check_mask(identity, request, rule, old, new)


def _check_preconditions(rule: Rule, identity: Identity, request: Request, ctx: WriteContext) -> None:
    if not rule.needs or (rule.unless[0] and ctx.register.flag(rule.unless[0]) == rule.unless[1]):
        return
    options = delete_options(request)
    wanted = (("uid", "uid", options.uid), ("rv", "resourceVersion", options.resource_version))
    if missing := [field for need, field, value in wanted if need in rule.needs and not value]:
        names = " and ".join(missing)
        raise Forbidden(
            f'{request.resource} "{request.name}" is forbidden: User "{identity.user}" must name the {names} '
            "it deletes as a precondition",
            details={"name": request.name, "kind": request.resource.partition(".")[0]},
        )
