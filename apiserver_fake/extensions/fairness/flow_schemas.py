"""The FlowSchema of a request, and with it the priority level. Pure.

Source: upstream `staging/src/k8s.io/apiserver/pkg/util/flowcontrol/rule.go`,
`staging/src/k8s.io/apiserver/pkg/server/filters/priority-and-fairness.go`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from apiserver_fake.registry.policy import Attributes
from services.api.identity import (
    CLAIM_MANAGER,
    CONTROLLER_PREFIX,
    NODE_HOSTS_GROUP,
    NODES_GROUP,
    Identity,
    account_groups,
    external,
)
from services.api.meta import ObjectMeta, View

SCHEMAS = "flowschemas.flowcontrol.apiserver.k8s.io"
LEVELS = "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io"
FLOW_HEADERS = ("X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid")
ALL = "*"
_ACCOUNT = "system:serviceaccount:"


class _Name(View, frozen=True):
    name: str = ""
    namespace: str = ""


class _Subject(View, frozen=True):
    kind: str = ""
    user: _Name | None = None
    group: _Name | None = None
    service_account: _Name | None = None


class _ResourceRule(View, frozen=True):
    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    cluster_scope: bool = False
    namespaces: tuple[str, ...] = ()


class _PathRule(View, frozen=True, rename={"urls": "nonResourceURLs"}):
    verbs: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()


class _Rule(View, frozen=True):
    subjects: tuple[_Subject, ...] = ()
    resource_rules: tuple[_ResourceRule, ...] = ()
    non_resource_rules: tuple[_PathRule, ...] = ()


class _Type(View, frozen=True):
    type: str = ""


class _Spec(View, frozen=True):
    distinguisher_method: _Type | None = None
    priority_level_configuration: _Name = _Name()
    matching_precedence: int = 1000
    rules: tuple[_Rule, ...] = ()


class FlowSchema(View, frozen=True):
    """A FlowSchema, as far as its fields are used."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()

    @classmethod
    def of(cls, body: bytes) -> "FlowSchema":
        """Decode a stored FlowSchema."""
        return msgspec.json.decode(body, type=cls)


class Matched(NamedTuple):
    """The flow schema of a request. `by`: its distinguisher method: ByUser, ByNamespace, or empty for none."""

    schema: str
    uid: str
    level: str
    by: str = ""

    def distinguisher(self, identity: Identity, asked: Attributes) -> str:
        """Return the flow distinguisher of a request: a user, a namespace, or empty."""
        if self.by == "ByUser":
            return identity.user
        return asked.namespace if self.by == "ByNamespace" else ""


class FlowSchemas:
    """Flow schemas, in the order in which they are matched."""

    def __init__(self, schemas: Iterable[FlowSchema], levels: Iterable[str]) -> None:
        """Sort the schemas by precedence. A schema whose priority level is not among `levels` is left out."""
        known = frozenset(levels)
        served = [each for each in schemas if each.spec.priority_level_configuration.name in known]
        self._ordered = sorted(served, key=_order)
        subjects = [subject for each in served for rule in each.spec.rules for subject in rule.subjects]
        self._users = frozenset(each.user.name for each in subjects if each.user is not None)
        self._groups = frozenset(each.group.name for each in subjects if each.group is not None)
        resources = [each for schema in served for rule in schema.spec.rules for each in rule.resource_rules]
        self._namespaces = frozenset(name for each in resources for name in each.namespaces)

    def kind_of(self, identity: Identity, asked: Attributes) -> tuple[object, ...]:
        """Return a key that two requests share only if they match the same schema: attributes that no rule uses are
        left out.
        """
        user = identity.user
        if user not in self._users and not user.startswith(_ACCOUNT):
            user = ""
        namespace = asked.namespace
        if namespace and namespace not in self._namespaces:
            namespace = ALL
        # Rules do not ask for names.
        return user, identity.groups, asked.verb, asked.group, asked.resource, asked.subresource, namespace, asked.path

    def match(self, identity: Identity, asked: Attributes) -> Matched | None:
        """Return the first schema that matches a request."""
        for schema in self._ordered:
            if any(_matches(rule, identity, asked) for rule in schema.spec.rules):
                return _matched_schema(schema)
        return None

    def find_by_name(self, name: str) -> Matched | None:
        """Return the schema of that name."""
        return next((_matched_schema(each) for each in self._ordered if each.metadata.name == name), None)


def _order(schema: FlowSchema) -> tuple[int, str]:
    return schema.spec.matching_precedence, schema.metadata.name


def _matched_schema(schema: FlowSchema) -> Matched:
    by, level = schema.spec.distinguisher_method, schema.spec.priority_level_configuration.name
    return Matched(schema.metadata.name, schema.metadata.uid, level, by.type if by is not None else "")


def as_client(identity: Identity) -> Identity:
    """Return the caller as upstream identifies it.

    Mesh components have users of their own; the suggested schemas name `kube-system` service accounts for them. A
    node host is treated as its nodes.
    """
    client = external(identity)
    user, groups = client.user, client.groups
    if user == CLAIM_MANAGER.user:
        user = f"{_ACCOUNT}kube-system:resourceclaim-controller"
    elif user.startswith(CONTROLLER_PREFIX):
        user = f"{_ACCOUNT}kube-system:{user.removeprefix(CONTROLLER_PREFIX)}"
    elif NODE_HOSTS_GROUP in groups:
        return replace(client, groups=(*groups, NODES_GROUP))
    if user == client.user:
        return client
    return replace(client, user=user, groups=(*groups, *account_groups("kube-system")))


def _matches(rule: _Rule, identity: Identity, asked: Attributes) -> bool:
    if not any(_is_subject(subject, identity) for subject in rule.subjects):
        return False
    if asked.path:
        return any(_covers_path(each, asked) for each in rule.non_resource_rules)
    return any(_covers_resource(each, asked) for each in rule.resource_rules)


def _is_subject(subject: _Subject, identity: Identity) -> bool:
    if subject.kind == "User" and subject.user is not None:
        return subject.user.name in (ALL, identity.user)
    if subject.kind == "Group" and subject.group is not None:
        return subject.group.name == ALL or subject.group.name in identity.groups
    if subject.kind == "ServiceAccount" and subject.service_account is not None:
        account = subject.service_account
        prefix = f"{_ACCOUNT}{account.namespace}:"
        return identity.user.startswith(prefix) if account.name == ALL else identity.user == prefix + account.name
    return False


def _has(text: str, listed: tuple[str, ...]) -> bool:
    return ALL in listed or text in listed


def _covers_resource(rule: _ResourceRule, asked: Attributes) -> bool:
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    if not (_has(asked.verb, rule.verbs) and _has(asked.group, rule.api_groups) and _has(resource, rule.resources)):
        return False
    return _has(asked.namespace, rule.namespaces) if asked.namespace else rule.cluster_scope


def _covers_path(rule: _PathRule, asked: Attributes) -> bool:
    if not _has(asked.verb, rule.verbs):
        return False
    prefixes = tuple(url.rstrip(ALL) for url in rule.urls if url.endswith(ALL))
    return _has(asked.path, rule.urls) or asked.path.startswith(prefixes)


_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_PARTS = ("finalize", "status")


def attributes_of(method: str, path: str, parts: Sequence[str], query: Mapping[str, str]) -> Attributes:
    """Return the attributes of a request, read from its path alone, whether or not the path is served.

    Source: upstream `staging/src/k8s.io/apiserver/pkg/endpoints/request/requestinfo.go`.
    """
    after = {"api": 2, "apis": 3}.get(parts[0], 0)
    if not after or len(parts) <= after:
        return Attributes(method.lower(), path=path)
    group, rest, verb = (parts[1] if after == 3 else ""), list(parts[after:]), _VERBS.get(method, "")
    if rest[0] in ("watch", "proxy") and len(rest) > 1:
        verb, rest = rest[0], rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_PARTS:
            rest = rest[2:]
    resource, name, subresource, *_ = [*rest, "", ""]
    if not name and verb == "get":
        verb = "watch" if query.get("watch", "0") not in ("0", "false") else "list"
    elif not name and verb == "delete":
        verb = "deletecollection"
    return Attributes(verb, group, resource, subresource, name=name, namespace=namespace)
