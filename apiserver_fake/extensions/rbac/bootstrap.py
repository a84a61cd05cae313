"""The default roles and bindings of every cluster, and how each start reconciles them.

They carry the label `kubernetes.io/bootstrapping: rbac-defaults`. Each start adds the rules, subjects and
labels that they lack, unless their annotation `rbac.authorization.kubernetes.io/autoupdate` is "false".
Additions by users stay. Pure but for reading `bootstrap.yaml` once. Source: upstream `bootstrappolicy` for
their content, `pkg/registry/rbac/reconciliation` for the reconciliation.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from apiserver_fake.registry.policy import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    GROUP,
    ROLE_BINDINGS,
    ROLES,
    PolicyRule,
    missing_rights,
)
from services.api.meta import Document

AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
AGGREGATE_TO: Final = "rbac.authorization.k8s.io/aggregate-to-"
LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_VERBS: Final = {"read": "get list watch", "write": "create delete deletecollection patch update"}
_EVENTS: Final = "create patch update; core events.k8s.io; events"
_KINDS: Final = {"u": "User", "g": "Group", "s": "ServiceAccount"}
_PREFIX: Final = "system:controller:"


class _File(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    cluster_roles: dict[str, list[str]]
    aggregated: list[str]
    labels: dict[str, list[str]]
    controllers: dict[str, list[str]]
    cluster_role_bindings: dict[str, list[str]]
    roles: dict[str, dict[str, list[str]]]
    role_bindings: dict[str, dict[str, list[str]]]


@cache
def bootstrap_objects() -> tuple[tuple[str, Document], ...]:
    """Return `(resource, document)` of every default object, roles before their bindings."""
    return tuple(_objects(msgspec.yaml.decode(Path(__file__).with_name("bootstrap.yaml").read_bytes(), type=_File)))


def _objects(file: _File) -> Iterator[tuple[str, Document]]:
    plain = {**file.cluster_roles, **{f"{_PREFIX}{name}": rules for name, rules in file.controllers.items()}}
    labels = {name: {f"{AGGREGATE_TO}{into}": "true" for into in many} for name, many in file.labels.items()}
    for name in file.aggregated:
        rule = {"clusterRoleSelectors": [{"matchLabels": {f"{AGGREGATE_TO}{name}": "true"}}]}
        body: Document = {"aggregationRule": rule, "rules": None}
        yield CLUSTER_ROLES, _document("ClusterRole", name, "", body, labels.get(name, {}))
    for name, rules in plain.items():
        body = {"rules": [_rule(text) for text in rules]}
        yield CLUSTER_ROLES, _document("ClusterRole", name, "", body, labels.get(name, {}))
    bound = {
        **file.cluster_role_bindings,
        **{f"{_PREFIX}{name}": [f"s:kube-system/{name}"] for name in file.controllers},
    }
    for name, subjects in bound.items():
        yield CLUSTER_ROLE_BINDINGS, _binding("ClusterRoleBinding", name, "", "ClusterRole", name, subjects)
    for namespace, roles in file.roles.items():
        for name, rules in roles.items():
            yield ROLES, _document("Role", name, namespace, {"rules": [_rule(text) for text in rules]}, {})
    for namespace, bindings in file.role_bindings.items():
        for name, (role, *subjects) in bindings.items():
            yield ROLE_BINDINGS, _binding("RoleBinding", name, namespace, "Role", role, subjects)


def _document(kind: str, name: str, namespace: str, body: Document, labels: Mapping[str, str]) -> Document:
    metadata: Document = {"name": name, "labels": {**LABELS, **labels}, "annotations": {AUTOUPDATE: "true"}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, **body}


def _binding(kind: str, name: str, namespace: str, role_kind: str, role: str, subjects: Iterable[str]) -> Document:
    body: Document = {"roleRef": {"apiGroup": GROUP, "kind": role_kind, "name": role}}
    if found := [_subject(text) for text in subjects]:
        body["subjects"] = found
    return _document(kind, name, namespace, body, {})


def _rule(text: str) -> Document:
    """Return a rule, its lists sorted as upstream's are."""
    parts = [part.split() for part in (_EVENTS if text == "events" else text).split(";")]
    verbs = sorted(each for word in parts[0] for each in _VERBS.get(word, word).split())
    if len(parts) == 2:
        return {"nonResourceURLs": sorted(parts[1]), "verbs": verbs}
    groups = sorted("" if group == "core" else group for group in parts[1])
    rule: Document = {"apiGroups": groups, "resources": sorted(each.strip('"') for each in parts[2]), "verbs": verbs}
    if len(parts) > 3:
        rule["resourceNames"] = sorted(parts[3])
    return rule


def _subject(text: str) -> Document:
    kind, _, name = text.partition(":")
    if kind == "s":
        namespace, _, name = name.partition("/")
        return {"kind": _KINDS[kind], "name": name, "namespace": namespace}
    return {"apiGroup": GROUP, "kind": _KINDS[kind], "name": name}


def reconcile(stored: Document, wanted: Document) -> Document:
    """Return the stored object with the parts it lacked; the same object if it lacks nothing or opts out of updates."""
    meta = stored["metadata"]
    if (meta.get("annotations") or {}).get(AUTOUPDATE) == "false":
        return stored
    new: Document = {**stored, "metadata": {**meta}}
    for name in ("labels", "annotations"):
        new["metadata"][name] = {**wanted["metadata"][name], **(meta.get(name) or {})}
    if wanted.get("rules"):
        held = [msgspec.convert(rule, PolicyRule) for rule in stored.get("rules") or ()]
        lacking = missing_rights(held, [msgspec.convert(rule, PolicyRule) for rule in wanted["rules"]])
        if lacking:
            new["rules"] = [*(stored.get("rules") or ()), *map(msgspec.to_builtins, lacking)]
    if wanted.get("aggregationRule") and not stored.get("aggregationRule"):
        new["aggregationRule"] = wanted["aggregationRule"]
    if wanted.get("subjects"):
        known = stored.get("subjects") or []
        new["subjects"] = [*known, *(each for each in wanted["subjects"] if each not in known)]
    return stored if new == stored else new
