"""Which FlowSchema a request belongs to, and so which priority level: answers name both in their headers.

Nothing is queued by it. Source: upstream `staging/src/k8s.io/apiserver/pkg/util/flowcontrol/rule.go`,
`staging/src/k8s.io/apiserver/pkg/server/filters/priority-and-fairness.go`.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from apiserver_fake.rbac.policy import Attributes
from apiserver_fake.storage.records import Change, Selection
from apiserver_fake.storage.store import Store
from services.api.identity import Identity
from services.api.meta import ObjectMeta, View

SCHEMAS = "flowschemas.flowcontrol.apiserver.k8s.io"
LEVELS = "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io"
FLOW_HEADERS = ("X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid")
ALL = "*"
MATCHED_MAX = 4096
"""Of how many kinds of requests it is remembered where they belong."""
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


class _Spec(View, frozen=True):
    priority_level_configuration: _Name = _Name()
    matching_precedence: int = 1000
    rules: tuple[_Rule, ...] = ()


class _FlowSchema(View, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


class _Level(View, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class FlowSchemas:
    """The flow schemas as they are stored, in the order in which they are asked."""

    def __init__(self, schemas: Iterable[bytes], levels: Iterable[bytes]) -> None:
        """Both are the JSON of objects. A schema whose priority level does not exist matches nothing."""
        found = [msgspec.json.decode(each, type=_Level).metadata for each in levels]
        self._uids = {level.name: level.uid for level in found}
        decoded = [msgspec.json.decode(each, type=_FlowSchema) for each in schemas]
        served = [each for each in decoded if each.spec.priority_level_configuration.name in self._uids]
        self._ordered = sorted(served, key=lambda each: (each.spec.matching_precedence, each.metadata.name))

    def match(self, identity: Identity, asked: Attributes) -> tuple[str, str] | None:
        """Return the UIDs of the schema and of the priority level of a request."""
        for schema in self._ordered:
            if any(_matches(rule, identity, asked) for rule in schema.spec.rules):
                return schema.metadata.uid, self._uids[schema.spec.priority_level_configuration.name]
        return None


class StoredFlowSchemas:
    """The flow schemas of what is stored: read again when one of them changed, not before."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._schemas: FlowSchemas | None = None
        self._matched: dict[tuple[Identity, Attributes], tuple[str, str] | None] = {}

    def note(self, changes: Iterable[Change]) -> None:
        """Take notice of commits."""
        if any(change.record.resource in (SCHEMAS, LEVELS) for change in changes):
            self._schemas = None

    def match(self, identity: Identity, asked: Attributes) -> tuple[str, str] | None:
        """Return the UIDs of the flow schema and of the priority level of a request."""
        if self._schemas is None or len(self._matched) >= MATCHED_MAX:
            self._matched.clear()
        if self._schemas is None:
            schemas, levels = (self._store.select(kind, Selection()).records for kind in (SCHEMAS, LEVELS))
            self._schemas = FlowSchemas([each.body for each in schemas], [each.body for each in levels])
        # Rules do not ask for names.
        key = identity, asked._replace(name="")
        if key not in self._matched:
            self._matched[key] = self._schemas.match(*key)
        return self._matched[key]


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
    """Return what a request asks for, read from its path alone, whether that is served or not.

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
