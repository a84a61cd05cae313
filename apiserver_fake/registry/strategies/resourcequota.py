"""Resource quotas: countable resource names and compatible scopes; only the server writes the usage.

Source: upstream `pkg/apis/core/validation/validation.go` (v1.36), `ValidateResourceQuotaSpec`,
`validateScopeSelector`.
"""

from typing import Any

from apiserver_fake.registry.strategy import WriteContext, declare_strategy
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import IMMUTABLE, Causes, invalid, quantity, required
from apiserver_fake.registry.validation.pod.resources import resource_name
from services.api import quotas
from services.api.meta import Document

_COMPUTE_OF_PODS = frozenset(
    ("cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory", quotas.PODS)
)
_BY_SCOPE = {
    "BestEffort": frozenset((quotas.PODS,)),
    "CrossNamespacePodAffinity": _COMPUTE_OF_PODS,
    "NotBestEffort": _COMPUTE_OF_PODS,
    "NotTerminating": _COMPUTE_OF_PODS,
    "PriorityClass": _COMPUTE_OF_PODS,
    "Terminating": _COMPUTE_OF_PODS,
}
"""Standard resource names that a quota of that scope may have."""
_OPPOSITE = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
_ONLY_EXISTS = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def _is_standard(name: str) -> bool:
    return name in quotas.STANDARD or name.startswith(("hugepages-", "requests.hugepages-"))


def _amounts(amounts: Document, path: str, report: Report) -> Causes:
    for name, text in amounts.items():
        here = f"{path}[{name}]"
        yield from resource_name(here, name)
        if "/" not in name and not _is_standard(name):
            yield invalid(here, name, "must be a standard resource for quota")
        # What begins like an amount of requests is no extended resource, and need not be whole.
        yield from quantity(here, "cpu" if name.startswith("requests.") else name, text)


def _scopes(spec: Document, at: str, report: Report) -> Causes:
    scopes = spec.get("scopes") or []
    for scope in scopes:
        if scope not in _BY_SCOPE:
            yield invalid("spec.scopes", scopes, "unsupported scope")
        yield from _misplaced_names(spec, scope, "spec.scopes", scopes)
    yield from _conflicts(scopes, "spec.scopes", scopes)


def _selector(spec: Document, at: str, report: Report) -> Causes:
    selector, here = spec.get("scopeSelector") or {}, "spec.scopeSelector.matchExpressions"
    terms = selector.get("matchExpressions") or []
    for term in terms:
        scope = term.get("scopeName") or ""
        if scope not in _BY_SCOPE:
            yield invalid(f"{here}.scopeName", scope, "unsupported scope")
        yield from _misplaced_names(spec, scope, here, _as_held(terms))
        yield from _operator(term, scope, here)
    yield from _conflicts([term.get("scopeName") or "" for term in terms], here, spec.get("scopes"))


def _operator(term: Document, scope: str, at: str) -> Causes:
    operator, values = term.get("operator") or "", term.get("values") or []
    if scope in _BY_SCOPE and scope != "PriorityClass" and operator != "Exists":
        yield invalid(f"{at}.operator", operator, _ONLY_EXISTS)
    if operator in ("In", "NotIn"):
        if not values:
            text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield required(f"{at}.values", text)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield invalid(f"{at}.values", values, text)
    else:
        yield invalid(f"{at}.operator", operator, "not a valid selector operator")


def _misplaced_names(spec: Document, scope: str, at: str, shown: Any) -> Causes:
    """Refuse each standard name that a quota of this scope may not have."""
    for name in spec.get("hard") or {}:
        if _is_standard(name) and scope in _BY_SCOPE and name not in _BY_SCOPE[scope]:
            yield invalid(at, shown, "unsupported scope applied to resource")


def _as_held(terms: list[Document]) -> Document:
    """Return a selector as the server holds it: a refusal shows its members by those names."""
    members = ("scopeName", ""), ("operator", ""), ("values", None)
    held = [{name[:1].upper() + name[1:]: term.get(name) or empty for name, empty in members} for term in terms]
    return {"MatchExpressions": held}


def _conflicts(scopes: list[str], at: str, shown: list[str] | None) -> Causes:
    for one, other in _OPPOSITE:
        if one in scopes and other in scopes:
            yield invalid(at, shown, "conflicting scopes")


SPEC = Struct(Field("hard", rule=_amounts), _scopes, _selector)
STATUS = Struct(Field("hard", rule=_amounts), Field("used", rule=_amounts))


def _same_scopes(old: Document, new: Document, ctx: WriteContext) -> Causes:
    scopes = new["spec"].get("scopes")
    if set(scopes or ()) != set((old.get("spec") or {}).get("scopes") or ()):
        yield invalid("spec.scopes", scopes, IMMUTABLE)


STRATEGIES = {
    quotas.RESOURCE: declare_strategy(
        Struct(Field("spec", default={}, struct=SPEC)),
        has_status=True,
        on_create=lambda new, ctx: new.update(status={}),
        update_rules=_same_scopes,
        status=STATUS,
    )
}
