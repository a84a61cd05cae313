"""Authorization of one request. It is decided twice: before the body is read, and inside the commit.

`authorize` looks at names, identity and stored objects only (guarantees 8.2, step 4). `admit` runs inside the
commit on the current object: field masks, and the node rules that need the body.

The table is guarantees 8.3, deny by default: the roles are in `roles.yaml` and, for controllers, in their
folders. Only rules that name a special verb (bind, unbind, evict, token, impersonate, statehash) grant it: `*`
never includes one. Nodes are in neither, because their rules depend on which pod is bound where (`node`).

RBAC (`rbac`) applies besides the table, for callers from outside: roles and bindings may allow them more than
the table does. Components are authorized without RBAC; nothing extends their permissions. Unbind is authorized
by the table alone. Source: decision 0031.
"""

from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path

from apiserver_fake.registry.authorization.field_masks import check_changes, check_mask
from apiserver_fake.registry.authorization.node import (
    NODE_TEXT,
    Listing,
    admit_node,
    is_slice_of,
    may_node,
    may_slices_of,
)
from apiserver_fake.registry.policy import Attributes, Policy, forbidden_text
from apiserver_fake.registry.strategy import Lookup, WriteContext, delete_options
from services.api.errors import Forbidden
from services.api.identity import DRIVERS_GROUP, Identity, StageFields, may_change
from services.api.meta import Document
from services.api.wire import Request
from services.runtime.roles import CLAIM_FOLDER, Role, Rule, controller_roles, read_roles

_SPECIAL_VERBS = {"binding": "bind", "unbind": "unbind", "eviction": "evict", "token": "token"}


_added: list[Role] = []


@cache
def roles() -> tuple[Role, ...]:
    """Return all roles."""
    own = read_roles(Path(__file__).with_name("roles.yaml"))
    return (*own, *controller_roles(), *controller_roles(CLAIM_FOLDER), *_added)


def add_roles(more: Iterable[Role]) -> None:
    """Add roles of controllers that are not part of keplab, before the first request of this process.

    Raises: ValueError naming a user who has a role already.
    """
    for role in more:
        if any(role.user == known.user for known in roles()):
            raise ValueError(f"{role.user} has a role already")
        _added.append(role)
        roles.cache_clear()
        forget_rules()


def forget_rules() -> None:
    """Drop what is remembered of the rules of identities, after a change of the roles."""
    rules_of.cache_clear()
    _rules_for.cache_clear()


def verb_of(request: Request) -> str:
    """Return the verb to authorize: `create` on `pods/binding` is the special verb `bind`."""
    if request.resource == "nodetokens":
        return "token"
    if request.resource == "statehash":
        return "statehash"
    if request.verb == "create":
        return _SPECIAL_VERBS.get(request.subresource, "create")
    return "deletecollection" if request.is_of_collection else request.verb


def authorize(
    identity: Identity, request: Request, lookup: Lookup, listing: Listing, policy: Policy | None = None
) -> str:
    """Check that the identity may make the request, whatever its body; return the RBAC binding that allows it,
    or "".

    `lookup(resource, namespace, name)` and `listing(resource, namespace)` show visible state. `policy`: the RBAC
    policy; None for components of the mesh. Raises: Forbidden, for nodes with one constant text.
    """
    if node := identity.node:
        if may_node(node, request, lookup, listing):
            return ""
    elif rule_for(identity, request, lookup) is not None:
        return ""
    if policy is None or _is_of_the_table_alone(request):
        raise Forbidden(NODE_TEXT) if identity.node else _forbidden(identity, request)
    decision = policy.decide(identity, attributes_of(request))
    if not decision.allowed:
        raise Forbidden(NODE_TEXT) if identity.node else _forbidden(identity, request, decision.reason)
    return decision.reason


def authorize_in_write(identity: Identity, request: Request, ctx: WriteContext) -> str:
    """Return when the identity may try that, by the objects that one write sees. Raises: Forbidden."""
    return authorize(identity, request, ctx.lookup, ctx.list, ctx.policy)


def rule_name(identity: Identity, request: Request, lookup: Lookup) -> str:
    """Return the name of the mesh's own rule that allows the request, for the audit log; "" if none does."""
    if identity.node:
        return f"mesh: rules of node {identity.node}"
    rule = rule_for(identity, request, lookup)
    return f'mesh: rule "{rule.name}"' if rule is not None else ""


def _is_of_the_table_alone(request: Request) -> bool:
    return request.subresource == "unbind" or request.resource in ("nodetokens", "statehash")


def attributes_of(request: Request) -> Attributes:
    """Return the attributes of the request for RBAC, in the API group that the caller named.

    A watch or list with a field selector for one name is about that object.
    """
    plural, _, group = request.resource.partition(".")
    if request.api_version:
        group = request.api_version.rpartition("/")[0]
    name = request.name
    if not name and request.verb in ("list", "watch", "deletecollection"):
        terms = [term for term in request.field_selector.split(",") if term.startswith("metadata.name=")]
        name = terms[0].partition("=")[2].lstrip("=") if len(terms) == 1 else ""
    verb = "deletecollection" if request.is_of_collection else request.verb
    return Attributes(verb, group, plural, request.subresource, name, request.namespace)


def rule_for(identity: Identity, request: Request, lookup: Lookup) -> Rule | None:
    """Return the first rule that allows the request, wider masks first; None if there is none."""
    if identity.user.startswith("system:node:"):
        return None  # only with its group is this a node, and then it is not looked up here (X-ID3)
    asked = request.verb, request.resource, request.subresource, request.is_of_collection
    for rule in _rules_for(identity.user, identity.groups, *asked):
        if not rule.where or _is_there(rule, identity, request, lookup):
            return rule
    return None


@lru_cache(maxsize=4096)
def rules_of(user: str, groups: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the rules of an identity, wider masks first."""
    mine = [rule for role in roles() if _has(role, user, groups) for rule in role.rules]
    return tuple(sorted(mine, key=lambda rule: bool(rule.may_change)))


@lru_cache(maxsize=4096)
def _rules_for(
    user: str, groups: tuple[str, ...], verb: str, resource: str, subresource: str, is_of_collection: bool
) -> tuple[Rule, ...]:
    """Return the rules of an identity that name such requests, wherever they allow them, wider masks first."""
    request = Request(verb=verb, resource=resource, subresource=subresource, is_of_collection=is_of_collection)
    wanted = f"{resource}/{subresource}" if subresource else resource
    verb = verb_of(request)
    rules = rules_of(user, groups)
    return tuple(rule for rule in rules if verb in rule.verbs and _covers(rule.resources, wanted, request))


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
        case "host":
            return _is_hosted(identity, request, lookup)
    return True


def _is_hosted(identity: Identity, request: Request, lookup: Lookup) -> bool:
    """Whether stages of that host change such objects at all, and this one is its node or bound to one of them."""
    if request.subresource or _stage_fields(identity, request) is None:
        return False
    if request.resource == "nodes":
        return identity.hosting.has(request.name)
    pod = lookup(request.resource, request.namespace, request.name)
    return identity.hosting.has(((pod or {}).get("spec") or {}).get("nodeName") or "")


def _stage_fields(identity: Identity, request: Request) -> StageFields | None:
    stages = identity.hosting.stages
    return stages.nodes if request.resource == "nodes" else stages.pods


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


def _forbidden(identity: Identity, request: Request, reason: str = "") -> Forbidden:
    return forbidden_action(identity, attributes_of(request), reason)


def forbidden_action(identity: Identity, asked: Attributes, reason: str = "") -> Forbidden:
    """Return the refusal of an action in upstream's words."""
    text = forbidden_text(identity, asked) + (f": {reason}" if reason else "")
    if asked.path:
        return Forbidden(f"forbidden: {text}")
    resource = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    subject = f'{resource} "{asked.name}"' if asked.name else resource
    details = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    nonempty_details = {name: value for name, value in details.items() if value}
    return Forbidden(f"{subject} is forbidden: {text}", details=nonempty_details)


def _allows(policy: Policy, identity: Identity, request: Request) -> bool:
    return not _is_of_the_table_alone(request) and policy.decide(identity, attributes_of(request)).allowed


def admit(identity: Identity, request: Request, old: Document | None, new: Document | None, ctx: WriteContext) -> None:
    """Check that this identity may make exactly this change.

    `old` None: a create; `new` None: a delete. Raises: Forbidden naming the first path that the caller's mask does
    not contain (for nodes with the constant text), Conflict `StaleBinding` for a status of an earlier binding.
    """
    if node := identity.node:
        admit_node(node, request, old, new, ctx)
        return
    policy = ctx.policy
    if policy is not None and _allows(policy, identity, request):
        return  # roles and bindings know no masks; what the table alone allows keeps its own
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
    elif rule.where == "host":
        fields = _stage_fields(identity, request)
        assert fields is not None, "the rule asked for it"
        check_changes(identity, request, old, new, lambda *change: may_change(fields, *change))
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
