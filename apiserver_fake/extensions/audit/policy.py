"""Audit policies: at which level and at which stages a request is recorded. Pure.

The first rule that matches decides; if none does, nothing is recorded. Source: upstream
`staging/src/k8s.io/apiserver/pkg/audit/policy`, `staging/src/k8s.io/apiserver/pkg/apis/audit/v1`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from apiserver_fake.registry.policy import Attributes
from services.api.documents import yaml_text
from services.api.identity import Identity

Level = Literal["None", "Metadata", "Request", "RequestResponse"]
Stage = Literal["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"]
LEVELS: Final[tuple[Level, ...]] = ("None", "Metadata", "Request", "RequestResponse")
API_VERSION: Final = "audit.k8s.io/v1"
DEFAULT: Final = Path(__file__).with_name("policy.yaml")
"""Audit policy of `keplab up --audit`: every request at level Metadata, no bodies."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of the structs of a policy: camelCase; an unknown field is an error that names it."""


class GroupResources(_Part, frozen=True):
    """Resources of one API group; an empty list means all of them."""

    group: str = ""
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()


class PolicyRule(_Part, frozen=True):
    """Audit level and stages for the requests that match in every field; an empty field matches all."""

    level: Level
    users: tuple[str, ...] = ()
    user_groups: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resources: tuple[GroupResources, ...] = ()
    namespaces: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")
    omit_stages: tuple[Stage, ...] = ()
    omit_managed_fields: bool | None = None

    def matches(self, identity: Identity | None, asked: Attributes) -> bool:
        """Whether the rule matches the request; `identity` None: authentication failed."""
        if self.users and (identity is None or identity.user not in self.users):
            return False
        if self.user_groups and (identity is None or not set(self.user_groups) & set(identity.groups)):
            return False
        if self.verbs and asked.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            return not asked.path and self._is_about(asked)
        if self.non_resource_urls:
            return asked.path != "" and any(_is_path(asked.path, spec) for spec in self.non_resource_urls)
        return True

    def _is_about(self, asked: Attributes) -> bool:
        if self.namespaces and asked.namespace not in self.namespaces:
            return False
        return not self.resources or any(
            each.group == asked.group and (not each.resources or _is_named(each, asked)) for each in self.resources
        )


def _is_path(path: str, spec: str) -> bool:
    return spec in ("*", path) or (spec.endswith("*") and path.startswith(spec.rstrip("*")))


def _is_named(group: GroupResources, asked: Attributes) -> bool:
    if group.resource_names and asked.name not in group.resource_names:
        return False
    meant = {"*", asked.whole_resource, f"{asked.resource}/*"}
    if asked.subresource:
        meant.add(f"*/{asked.subresource}")
    return not meant.isdisjoint(group.resources)


class AuditSettings(NamedTuple):
    """The audit level, stages and options for one request."""

    level: Level
    omit_stages: frozenset[str] = frozenset()
    omit_managed_fields: bool = False

    def has(self, level: Level) -> bool:
        """Whether the level is at least `level`."""
        return LEVELS.index(self.level) >= LEVELS.index(level)


class Policy(_Part, frozen=True):
    """A document of the kind Policy."""

    api_version: str
    kind: str
    metadata: dict[str, Any] = {}
    rules: tuple[PolicyRule, ...] = ()
    omit_stages: tuple[Stage, ...] = ()
    omit_managed_fields: bool = False

    def of(self, identity: Identity | None, asked: Attributes) -> AuditSettings:
        """Return the audit level, stages and options for a request."""
        for rule in self.rules:
            if rule.matches(identity, asked):
                own = rule.omit_managed_fields
                is_omitted = self.omit_managed_fields if own is None else own
                return AuditSettings(rule.level, frozenset((*self.omit_stages, *rule.omit_stages)), is_omitted)
        return AuditSettings("None")


def read_policy(path: Path) -> Policy:
    """Read the policy of a file. Raises: ValueError naming the file and the error."""
    try:
        policy = msgspec.convert(yaml_text.load(path.read_bytes()), Policy)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None
    if (policy.api_version, policy.kind) != (API_VERSION, "Policy"):
        raise ValueError(f"{path}: {policy.api_version} {policy.kind}: want {API_VERSION} Policy")
    if not policy.rules:
        raise ValueError(f"{path}: rules: a policy without rules records nothing")
    if wrong := next(_faults(policy.rules), ""):
        raise ValueError(f"{path}: {wrong}")
    return policy


def _faults(rules: Sequence[PolicyRule]) -> Iterator[str]:
    """Yield what upstream's validation refuses, with its texts."""
    for place, rule in enumerate(rules):
        at, urls = f"rules[{place}]", rule.non_resource_urls
        if urls and (rule.resources or rule.namespaces):
            yield f"{at}.nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs"
        for url in urls:
            if url != "*" and not url.startswith("/"):
                yield f"{at}.nonResourceURLs: {url!r}: non-resource URL rules must begin with a '/' character"
            if "*" in url[:-1]:
                why = "non-resource URL wildcards '*' must be the final character of the rule"
                yield f"{at}.nonResourceURLs: {url!r}: {why}"
        for group in rule.resources:
            if "/" in group.group:
                yield f"{at}.resources.group: {group.group!r}: the name of a group has no version"
            if group.resource_names and not group.resources:
                yield f"{at}.resources.resourceNames: using resourceNames requires at least one resource"
