"""Resource quotas: names that something counts, scopes that go together; the server alone writes what is used."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.strategy import WriteContext
from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import IMMUTABLE, Cause, Causes, invalid, qualified_name, quantity, required
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
"""Standard names that a quota of that scope may have."""
_OPPOSITE = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
_ONLY_EXISTS = (
    "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def _amounts(amounts: Document, path: str, report: Report) -> Causes:
    for name, text in amounts.items():
        here = f"{path}[{name}]"
        yield from qualified_name(here, name)
        if "/" not in name and name not in quotas.STANDARD and quotas.resource_of(name) != quotas.PODS:
            yield invalid(here, name, "must be a standard resource for quota")
        yield from quantity(here, _measured_as(name), text)


def _measured_as(name: str) -> str:
    """Return a resource whose quantities obey the same rules: bytes and cpu are divisible, counts are not."""
    what = name.rpartition(".")[2]
    if name.endswith("/requests.storage") or what == "storage":
        return "memory"
    return what if what in quotas.COMPUTE else name


def _scopes(spec: Document) -> list[Cause]:
    scopes = spec.get("scopes") or []
    causes = [invalid("spec.scopes", scopes, "unsupported scope") for scope in scopes if scope not in _BY_SCOPE]
    for scope in scopes:
        causes += [
            invalid("spec.scopes", scopes, "unsupported scope applied to resource") for _ in _misplaced(spec, scope)
        ]
    return causes + _conflicts(scopes, "spec.scopes", scopes)


def _selector(spec: Document) -> list[Cause]:
    selector = spec.get("scopeSelector")
    if selector is None:
        return []
    at, causes = "spec.scopeSelector.matchExpressions", []
    terms = selector.get("matchExpressions") or []
    for term in terms:
        scope = term.get("scopeName") or ""
        if scope not in _BY_SCOPE:
            causes.append(invalid(f"{at}.scopeName", scope, "unsupported scope"))
        causes += [invalid(at, selector, "unsupported scope applied to resource") for _ in _misplaced(spec, scope)]
        causes += _operator(term, scope, at)
    return causes + _conflicts([term.get("scopeName") or "" for term in terms], at, spec.get("scopes") or [])


def _operator(term: Document, scope: str, at: str) -> list[Cause]:
    operator, values, causes = term.get("operator") or "", term.get("values") or [], []
    if scope in _BY_SCOPE and scope != "PriorityClass" and operator != "Exists":
        causes.append(invalid(f"{at}.operator", operator, _ONLY_EXISTS))
    if operator in ("In", "NotIn"):
        if not values:
            text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            causes.append(required(f"{at}.values", text))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            causes.append(invalid(f"{at}.values", values, text))
    else:
        causes.append(invalid(f"{at}.operator", operator, "not a valid selector operator"))
    return causes


def _misplaced(spec: Document, scope: str) -> list[str]:
    """Return the standard names that a quota of this scope may not have."""
    allowed = _BY_SCOPE.get(scope)
    if allowed is None:
        return []
    return [name for name in sorted(spec.get("hard") or {}) if name in quotas.STANDARD and name not in allowed]


def _conflicts(scopes: list[str], at: str, shown: list[str]) -> list[Cause]:
    return [invalid(at, shown, "conflicting scopes") for one, other in _OPPOSITE if one in scopes and other in scopes]


def _check_scopes(spec: Document, at: str, report: Report) -> Causes:
    yield from _scopes(spec) + _selector(spec)


SPEC = Struct(Field("hard", rule=_amounts), _check_scopes)
STATUS = Struct(Field("hard", rule=_amounts), Field("used", rule=_amounts))


def _empty_status(new: Document, ctx: WriteContext) -> None:
    new["status"] = {}


def _same_scopes(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    scopes = new["spec"].get("scopes") or []
    if old is None or sorted(scopes) == sorted((old.get("spec") or {}).get("scopes") or []):
        return []
    return [invalid("spec.scopes", scopes, IMMUTABLE)]


STRATEGIES = {
    quotas.RESOURCE: declared(
        Struct(Field("spec", default={}, struct=SPEC)),
        has_status=True,
        on_create=_empty_status,
        rules=_same_scopes,
        status=STATUS,
    )
}
