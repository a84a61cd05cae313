"""Roles and bindings: valid rules and subjects, and that a caller grants only rights it holds.

Source: upstream `pkg/apis/rbac/validation/validation.go`, `pkg/apis/rbac/v1/defaults.go`, and the `policybased`
storages below `pkg/registry/rbac`.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from apiserver_fake.registry.errors import forbidden as refused
from apiserver_fake.registry.policy import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    GROUP,
    ROLE_BINDINGS,
    ROLES,
    Attributes,
    Policy,
    PolicyRule,
    RoleRef,
    escalation_text,
    missing_rights,
)
from apiserver_fake.registry.strategy import Strategy, WriteContext, declare_strategy
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    Cause,
    Causes,
    invalid,
    label_selector,
    not_supported,
    path_segment,
    required,
    subdomain,
)
from services.api.errors import NotFound
from services.api.meta import Document

Rule = Callable[[Document, str, Report], Causes]
EVERYTHING = (
    PolicyRule(verbs=("*",), api_groups=("*",), resources=("*",)),
    PolicyRule(verbs=("*",), non_resource_urls=("*",)),
)


def _policy_rule(*, namespaced: bool) -> Rule:
    def check(rule: Document, at: str, report: Report) -> Causes:
        if not rule.get("verbs"):
            yield required(f"{at}verbs", "verbs must contain at least one value")
        urls = rule.get("nonResourceURLs") or []
        if urls:
            if namespaced:
                yield invalid(f"{at}nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                text = "rules cannot apply to both regular resources and non-resource URLs"
                yield invalid(f"{at}nonResourceURLs", urls, text)
            return
        if not rule.get("apiGroups"):
            yield required(f"{at}apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"{at}resources", "resource rules must supply at least one resource")

    return check


def _selectors(rule: Document, at: str, report: Report) -> Causes:
    if not rule.get("clusterRoleSelectors"):
        yield required(
            f"{at}clusterRoleSelectors", "at least one clusterRoleSelector required if aggregationRule is non-nil"
        )
    for index, selector in enumerate(rule.get("clusterRoleSelectors") or ()):
        path = f"{at}clusterRoleSelectors[{index}]"
        if wrong := label_selector(path, selector):
            yield from wrong
            yield invalid(path, None, "invalid label selector.")


def _complete_subject(subject: Document) -> None:
    if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
        subject["apiGroup"] = GROUP


def _subject(*, namespaced: bool) -> Rule:
    def check(subject: Document, at: str, report: Report) -> Causes:
        name, group, kind = subject.get("name") or "", subject.get("apiGroup") or "", subject.get("kind") or ""
        if not name:
            yield required(f"{at}name")
        match kind:
            case "ServiceAccount":
                if name:
                    yield from subdomain(f"{at}name", name)
                if group:
                    yield not_supported(f"{at}apiGroup", group, [""])
                if not namespaced and not subject.get("namespace"):
                    yield required(f"{at}namespace")
            case "User" | "Group":
                if group != GROUP:
                    yield not_supported(f"{at}apiGroup", group, [GROUP])
            case _:
                yield not_supported(f"{at}kind", kind, ["ServiceAccount", "User", "Group"])

    return check


def _role_ref(*kinds: str) -> Rule:
    def check(ref: Document, at: str, report: Report) -> Causes:
        if (group := ref.get("apiGroup") or "") != GROUP:
            yield not_supported(f"{at}apiGroup", group, [GROUP])
        if (kind := ref.get("kind") or "") not in kinds:
            yield not_supported(f"{at}kind", kind, kinds)
        if name := ref.get("name"):
            yield from path_segment(f"{at}name", name)
        else:
            yield required(f"{at}name")

    return check


def _same_role(old: Document, new: Document, ctx: WriteContext) -> Causes:
    if (old.get("roleRef") or {}) != (ref := new.get("roleRef") or {}):
        # The value is shown as upstream's internal type is written, which has no JSON names.
        shown = {
            field: ref.get(field[0].lower() + field[1:] if field != "APIGroup" else "apiGroup", "") for field in _REF
        }
        text = msgspec.json.encode(shown).decode()
        yield Cause("roleRef", "FieldValueInvalid", f"Invalid value: {text}: cannot change roleRef")


_REF = ("APIGroup", "Kind", "Name")


def _rules_of(document: Document) -> list[PolicyRule]:
    return [msgspec.convert(rule, PolicyRule) for rule in document.get("rules") or ()]


def _policy(ctx: WriteContext) -> Policy | None:
    """Return what the writer's rights are asked of; None for one who may grant anything."""
    return None if ctx.identity.is_privileged else ctx.policy


def _refuse_escalation(ctx: WriteContext, new: Document, policy: Policy, rules: list[PolicyRule]) -> None:
    held, errors = policy.rules_for(ctx.identity, ctx.request.namespace)
    if missing := missing_rights(held, rules):
        why = escalation_text(ctx.identity, missing)
        why += f"; resolution errors: [{', '.join(errors)}]" if errors else ""
        raise refused(ctx.request.resource, new["metadata"].get("name") or "", why)


def _check_role(old: Document | None, new: Document, ctx: WriteContext) -> None:
    policy = _policy(ctx)
    if policy is None or (
        old is not None and all(old.get(part) == new.get(part) for part in ("rules", "aggregationRule"))
    ):
        return
    name, plural = new["metadata"].get("name") or "", ctx.request.resource.partition(".")[0]
    asked = Attributes("escalate", GROUP, plural, "", name, ctx.request.namespace)
    if policy.decide(ctx.identity, asked).allowed:
        return
    _refuse_escalation(ctx, new, policy, _rules_of(new))
    if new.get("aggregationRule") and missing_rights(policy.rules_for(ctx.identity, "")[0], EVERYTHING):
        raise refused(ctx.request.resource, name, "must have cluster-admin privileges to use an aggregationRule")


def _check_binding(old: Document | None, new: Document, ctx: WriteContext) -> None:
    policy = _policy(ctx)
    if policy is None or (old is not None and all(old.get(part) == new.get(part) for part in ("roleRef", "subjects"))):
        return
    ref, namespace = new.get("roleRef") or {}, ctx.request.namespace
    kind, name = str(ref.get("kind") or ""), str(ref.get("name") or "")
    if kind not in ("Role", "ClusterRole"):
        return  # a fault of the object itself, which validation names
    plural = "roles" if kind == "Role" else "clusterroles"
    if policy.decide(ctx.identity, Attributes("bind", GROUP, plural, "", name, namespace)).allowed:
        return
    role = policy.role(RoleRef(kind=kind, name=name), namespace)
    if role is None:
        details = {"name": name, "group": GROUP, "kind": plural}
        raise NotFound(f'{plural}.{GROUP} "{name}" not found', details=details)
    _refuse_escalation(ctx, new, policy, list(role.rules))


def _role_strategy(*, namespaced: bool) -> Strategy:
    parts: list[Any] = [Field("rules", items=Struct(_policy_rule(namespaced=namespaced)))]
    if not namespaced:
        parts.append(Field("aggregationRule", struct=Struct(_selectors)))
    return declare_strategy(
        Struct(*parts), name=path_segment, on_create=lambda new, ctx: _check_role(None, new, ctx), on_update=_check_role
    )


def _binding_strategy(*, namespaced: bool) -> Strategy:
    ref = Struct(
        Field("apiGroup", default=GROUP, is_blank_absent=True),
        _role_ref(*(["Role"] if namespaced else []), "ClusterRole"),
    )
    subject = Struct(_subject(namespaced=namespaced), completion=_complete_subject)
    return declare_strategy(
        Struct(Field("roleRef", default={}, struct=ref), Field("subjects", items=subject)),
        name=path_segment,
        on_create=lambda new, ctx: _check_binding(None, new, ctx),
        on_update=_check_binding,
        update_rules=_same_role,
    )


STRATEGIES = {
    ROLES: _role_strategy(namespaced=True),
    CLUSTER_ROLES: _role_strategy(namespaced=False),
    ROLE_BINDINGS: _binding_strategy(namespaced=True),
    CLUSTER_ROLE_BINDINGS: _binding_strategy(namespaced=False),
}
