"""Role-based access control: the permissions that Roles and ClusterRoles grant through their bindings.
Pure.

A `Policy` is made of the stored objects and used until one of them changes. Bindings are found by their
subjects. The rules they grant to an identity are compiled once into a table by verb, group and resource, so
that a decision costs a few look-ups however many rules there are. Source: upstream
`plugin/pkg/auth/authorizer/rbac/rbac.go`, `pkg/registry/rbac/validation/rule.go`,
`pkg/apis/rbac/v1/evaluation_helpers.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from services.api.identity import SERVICE_ACCOUNT_PREFIX, Identity
from services.api.meta import View

GROUP: Final = "rbac.authorization.k8s.io"
ROLES, CLUSTER_ROLES = f"roles.{GROUP}", f"clusterroles.{GROUP}"
ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS = f"rolebindings.{GROUP}", f"clusterrolebindings.{GROUP}"
KINDS: Final = (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS)
ALL: Final = "*"
IDENTITIES_MAX: Final = 4096
"""Most identities whose compiled rules are cached."""


_NAMES: Final = {"api_groups": "apiGroups", "resource_names": "resourceNames", "non_resource_urls": "nonResourceURLs"}


class PolicyRule(View, frozen=True, rename=_NAMES):
    """Verbs on resources of groups, or on paths."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = ()


class Attributes(NamedTuple):
    """The action to authorize: a verb on a resource, or on a `path`. `namespace`: "" at the cluster scope."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""

    @property
    def whole_resource(self) -> str:
        """The resource with its subresource, `pods/log`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Decision(NamedTuple):
    """An authorization decision, and its reason: the binding that allows the action, or errors that prevented a
    full check.
    """

    allowed: bool
    reason: str = ""


def forbidden_text(identity: Identity, asked: Attributes) -> str:
    """Return the text of a refusal, as `forbiddenMessage` of upstream's responsewriters does."""
    if asked.path:
        return f'User "{identity.user}" cannot {asked.verb} path "{asked.path}"'
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    what = f'resource "{asked.whole_resource}" in API group "{asked.group}"'
    return f'User "{identity.user}" cannot {asked.verb} {what} {where}'


def allows(rule: PolicyRule, asked: Attributes) -> bool:
    """Whether this one rule allows the action."""
    if asked.verb not in rule.verbs and ALL not in rule.verbs:
        return False
    if asked.path:
        return any(_is_below(asked.path, url) for url in rule.non_resource_urls)
    if asked.group not in rule.api_groups and ALL not in rule.api_groups:
        return False
    if rule.resource_names and asked.name not in rule.resource_names:
        return False
    return any(each in rule.resources for each in _spellings(asked))


def _is_below(path: str, url: str) -> bool:
    return url in (ALL, path) or (url.endswith(ALL) and path.startswith(url.rstrip(ALL)))


def _spellings(asked: Attributes) -> tuple[str, ...]:
    """Return how a rule may name the resource."""
    if asked.subresource:
        return asked.whole_resource, f"*/{asked.subresource}", ALL
    return asked.resource, ALL


class Role(NamedTuple):
    """A Role or ClusterRole, with its rules."""

    namespace: str
    name: str
    rules: tuple[PolicyRule, ...]


class Subject(View, frozen=True):
    """A subject of a binding: a User, a Group, or a ServiceAccount."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class RoleRef(View, frozen=True):
    """Reference to the role that a binding grants."""

    kind: str = ""
    name: str = ""


class Binding(NamedTuple):
    """A RoleBinding, or with `namespace` "" a ClusterRoleBinding."""

    namespace: str
    name: str
    role: RoleRef
    subjects: tuple[Subject, ...]

    def source(self, subject: Subject) -> str:
        """Return the text by which a decision's reason names this binding and its subject."""
        kind, name = "ClusterRoleBinding", self.name
        if self.namespace:
            kind, name = "RoleBinding", f"{self.name}/{self.namespace}"
        who = subject.name
        if subject.kind == "ServiceAccount":
            who = f"{subject.name}/{subject.namespace or self.namespace}"
        return f'{kind} "{name}" of {self.role.kind} "{self.role.name}" to {subject.kind} "{who}"'


class _Granted(NamedTuple):
    """One rule granted by a binding; `rule` None: `source` says why the role could not be found."""

    rule: PolicyRule | None
    source: str


class _Compiled:
    """The rules that bindings of one scope grant to one identity, in the order in which they are checked."""

    __slots__ = ("by_resource", "errors", "granted", "paths")

    def __init__(self, granted: list[_Granted]) -> None:
        self.granted = granted
        self.errors = [each.source for each in granted if each.rule is None]
        self.by_resource: dict[tuple[str, str, str], list[tuple[int, frozenset[str]]]] = {}
        self.paths: list[tuple[int, PolicyRule]] = []
        for at, (rule, _) in enumerate(granted):
            if rule is None:
                continue
            if rule.non_resource_urls:
                self.paths.append((at, rule))
            names = frozenset(rule.resource_names)
            for verb in rule.verbs:
                for group in rule.api_groups:
                    for resource in rule.resources:
                        self.by_resource.setdefault((verb, group, resource), []).append((at, names))

    def find(self, asked: Attributes) -> str | None:
        """Return which binding allows it, the first one; None when none does."""
        if asked.path:
            return next((self.granted[at].source for at, rule in self.paths if allows(rule, asked)), None)
        first, name = len(self.granted), asked.name
        for verb in (asked.verb, ALL):
            for group in (asked.group, ALL):
                for resource in _spellings(asked):
                    for at, names in self.by_resource.get((verb, group, resource), ()):
                        if at < first and (not names or name in names):
                            first = at
                            break
        return self.granted[first].source if first < len(self.granted) else None


_EVERYTHING: Final = Decision(True)


class PolicySource(Protocol):
    """Source of the policy of the stored Roles and bindings."""

    def current(self) -> Policy:
        """Return the policy as of the newest commit."""


class Policy:
    """The roles and bindings at one moment."""

    def __init__(self, roles: Iterable[Role], bindings: Iterable[Binding]) -> None:
        self._roles = {(role.namespace, role.name): role for role in roles}
        self._by_subject: dict[tuple[str, str], list[tuple[int, Binding, Subject]]] = {}
        self._compiled: dict[tuple[str, tuple[str, ...]], dict[str, _Compiled]] = {}
        for at, binding in enumerate(sorted(bindings, key=lambda each: (each.namespace, each.name))):
            for subject in binding.subjects:
                if key := _key_of(subject, binding.namespace):
                    self._by_subject.setdefault(key, []).append((at, binding, subject))

    def decide(self, identity: Identity, asked: Attributes) -> Decision:
        """Return whether the identity may take the action: only if a binding allows it. The privileged group always
        may.
        """
        if identity.is_privileged:
            return _EVERYTHING
        scopes = self._scopes(identity)
        errors: list[str] = []
        for namespace in ("", asked.namespace) if asked.namespace else ("",):
            compiled = scopes.get(namespace)
            if compiled is None:
                continue
            if (source := compiled.find(asked)) is not None:
                return Decision(True, f"RBAC: allowed by {source}")
            errors += compiled.errors
        unique_errors = list(dict.fromkeys(errors))
        text = unique_errors[0] if len(unique_errors) == 1 else f"[{', '.join(unique_errors)}]"
        return Decision(False, f"RBAC: {text}" if unique_errors else "")

    def rules_for(self, identity: Identity, namespace: str) -> tuple[list[PolicyRule], list[str]]:
        """Return every rule that applies to an identity in a namespace, and the errors because of which there may
        be more.

        Namespace "": only cluster-wide rules.
        """
        rules: list[PolicyRule] = []
        errors: list[str] = []
        scopes = self._scopes(identity)
        for scope in ("", namespace) if namespace else ("",):
            if scope in scopes:
                rules += [each.rule for each in scopes[scope].granted if each.rule is not None]
                errors += scopes[scope].errors
        return rules, errors

    def role(self, ref: RoleRef, namespace: str) -> Role | None:
        """Return the role that a binding of that namespace refers to; None if it does not exist."""
        return self._roles.get(("" if ref.kind == "ClusterRole" else namespace, ref.name))

    def _scopes(self, identity: Identity) -> dict[str, _Compiled]:
        """Return what is granted to an identity by namespace; "" by ClusterRoleBindings."""
        key = (identity.user, identity.groups)
        scopes = self._compiled.get(key)
        if scopes is None:
            if len(self._compiled) >= IDENTITIES_MAX:
                self._compiled.clear()
            scopes = self._compiled[key] = self._compile(identity)
        return scopes

    def _compile(self, identity: Identity) -> dict[str, _Compiled]:
        matched: dict[int, tuple[Binding, Subject]] = {}
        for subject in (("User", identity.user), *(("Group", group) for group in identity.groups)):
            for at, binding, named in self._by_subject.get(subject, ()):
                # Of several subjects that match, upstream names the first in the binding.
                known = matched.get(at)
                if known is None or binding.subjects.index(named) < binding.subjects.index(known[1]):
                    matched[at] = (binding, named)
        granted: dict[str, list[_Granted]] = {}
        for at in sorted(matched):
            binding, named = matched[at]
            into = granted.setdefault(binding.namespace, [])
            role = self.role(binding.role, binding.namespace)
            if role is None:
                plural = "clusterrole" if binding.role.kind == "ClusterRole" else "role"
                into.append(_Granted(None, f'{plural}.{GROUP} "{binding.role.name}" not found'))
            else:
                source = binding.source(named)
                into += [_Granted(rule, source) for rule in role.rules]
        return {namespace: _Compiled(each) for namespace, each in granted.items()}


def _key_of(subject: Subject, namespace: str) -> tuple[str, str] | None:
    match subject.kind:
        case "User" | "Group":
            return subject.kind, subject.name
        case "ServiceAccount" if at := subject.namespace or namespace:
            return "User", f"{SERVICE_ACCOUNT_PREFIX}{at}:{subject.name}"
    return None


# -- escalation: a caller grants only what it holds


def missing_rights(held: Iterable[PolicyRule], granted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return the rights that are granted but not held, as rules of one verb, group, resource and name each."""
    owned = list(held)
    return [part for rule in granted for part in _parts(rule) if not any(_covers(own, part) for own in owned)]


def _parts(rule: PolicyRule) -> Iterator[PolicyRule]:
    for group in rule.api_groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                for names in _singles(rule.resource_names):
                    yield PolicyRule(verbs=(verb,), api_groups=(group,), resources=(resource,), resource_names=names)
    for url in rule.non_resource_urls:
        for verb in rule.verbs:
            yield PolicyRule(verbs=(verb,), non_resource_urls=(url,))


def _singles(names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple((name,) for name in names) or ((),)


def _covers(own: PolicyRule, part: PolicyRule) -> bool:
    verb = part.verbs[0]
    if verb not in own.verbs and ALL not in own.verbs:
        return False
    if part.non_resource_urls:
        return any(_is_below(part.non_resource_urls[0], url) for url in own.non_resource_urls)
    group, resource = part.api_groups[0], part.resources[0]
    if group not in own.api_groups and ALL not in own.api_groups:
        return False
    _, slash, sub = resource.partition("/")
    if not {ALL, resource, *([f"*/{sub}"] if slash else [])}.intersection(own.resources):
        return False
    return not own.resource_names or (bool(part.resource_names) and part.resource_names[0] in own.resource_names)


def escalation_text(identity: Identity, missing: Iterable[PolicyRule]) -> str:
    """Return upstream's refusal to grant these rights: the user, and each right with the missing verbs."""
    merged: dict[tuple[object, ...], list[str]] = {}
    described: list[str] = []
    for rule in missing:
        if rule.non_resource_urls:
            described.append(_compact(rule))
        else:
            key = (rule.api_groups, rule.resources, rule.resource_names)
            merged.setdefault(key, []).extend(verb for verb in rule.verbs if verb not in merged.get(key, ()))
    for (groups, resources, names), verbs in merged.items():
        rule = PolicyRule(
            verbs=tuple(verbs),
            api_groups=groups,  # type: ignore[arg-type]
            resources=resources,  # type: ignore[arg-type]
            resource_names=names,  # type: ignore[arg-type]
        )
        described.append(_compact(rule))
    who = f'user "{identity.user}" (groups={_quoted_list(identity.groups)})'
    lines = "\n".join(sorted(set(described)))
    return f"{who} is attempting to grant RBAC permissions not currently held:\n{lines}"


def _compact(rule: PolicyRule) -> str:
    parts: Mapping[str, tuple[str, ...]] = {
        "APIGroups": rule.api_groups,
        "Resources": rule.resources,
        "NonResourceURLs": rule.non_resource_urls,
        "ResourceNames": rule.resource_names,
        "Verbs": rule.verbs,
    }
    return "{" + ", ".join(f"{name}:{_quoted_list(values)}" for name, values in parts.items() if values) + "}"


def _quoted_list(values: Iterable[str]) -> str:
    """Return texts as Go's %q writes a list of them."""
    return "[" + " ".join(f'"{value}"' for value in values) + "]"
