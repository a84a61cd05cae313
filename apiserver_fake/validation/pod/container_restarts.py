"""A container's own restart policy, and rules by exit code above it (KEP-5307, gate ContainerRestartRules)."""

from __future__ import annotations

from apiserver_fake.strategy import Cause
from apiserver_fake.validation.formats import forbidden, invalid, required, too_many, unsupported
from services.api.meta import Document

RULES_MAX, CODES_MAX = 20, 255
_POLICIES = ("Always", "Never", "OnFailure")


def without_own_policies(spec: Document) -> Document:
    """Return the spec as a server whose gate is off takes it: of all this only sidecars are left."""
    changed = dict(spec)
    for kind in ("initContainers", "containers"):
        if containers := spec.get(kind):
            changed[kind] = [_without(each, is_init=kind == "initContainers") for each in containers]
    return changed


def _without(container: Document, *, is_init: bool) -> Document:
    dropped = ["restartPolicyRules"]
    if not (is_init and container.get("restartPolicy") == "Always"):
        dropped.append("restartPolicy")
    return {name: value for name, value in container.items() if name not in dropped}


def check_restarts(container: Document, at: str, kind: str) -> list[Cause]:
    """Return what is wrong with one container's restart policy and rules; `kind`: the list it is in."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or []
    if kind == "ephemeralContainers":
        return [
            forbidden(f"{at}.{name}", "may not be set for ephemeral containers")
            for name in ("restartPolicy", "restartPolicyRules")
            if container.get(name) is not None
        ]
    causes: list[Cause] = []
    if policy is not None and policy not in _POLICIES:
        causes.append(unsupported(f"{at}.restartPolicy", policy, _POLICIES))
    if rules and policy is None:
        causes.append(required(f"{at}.restartPolicy", "must specify restartPolicy when restart rules are used"))
    causes += too_many(f"{at}.restartPolicyRules", len(rules), RULES_MAX)
    for index, rule in enumerate(rules[:RULES_MAX]):
        causes += _check_rule(rule, f"{at}.restartPolicyRules[{index}]")
    return causes


def _check_rule(rule: Document, at: str) -> list[Cause]:
    causes: list[Cause] = []
    if rule.get("action") != "Restart":
        causes.append(unsupported(f"{at}.action", rule.get("action") or "", ("Restart",)))
    codes = rule.get("exitCodes")
    if not codes:
        return [*causes, required(f"{at}.exitCodes", "must be specified")]
    if codes.get("operator") not in ("In", "NotIn"):
        causes.append(unsupported(f"{at}.exitCodes.operator", codes.get("operator") or "", ("In", "NotIn")))
    values = codes.get("values") or []
    if not values:
        causes.append(required(f"{at}.exitCodes.values"))
    causes += too_many(f"{at}.exitCodes.values", len(values), CODES_MAX)
    return causes + [
        invalid(f"{at}.exitCodes.values[{index}]", value, "must be between 0 and 255, inclusive")
        for index, value in enumerate(values[:CODES_MAX])
        if not 0 <= value <= 255
    ]
