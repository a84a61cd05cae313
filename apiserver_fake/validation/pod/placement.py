"""Rules of what a pod says about where it may go: tolerations, affinity, topology spread.

The texts are upstream's (`pkg/apis/core/validation`).
"""

from __future__ import annotations

from apiserver_fake.strategy import Cause
from apiserver_fake.validation.formats import (
    duplicate,
    forbidden,
    invalid,
    label,
    label_selector,
    label_value,
    qualified_name,
    required,
    too_many,
    unsupported,
)
from apiserver_fake.validation.pod import label_keys
from services.api.meta import Document
from services.api.taints import is_decimal

TOLERATIONS_MAX, TERMS_MAX = 200, 100
POLICIES = ("Honor", "Ignore")
NOT_DECIMAL = "must be a valid decimal integer in canonical form"
REQUIRED_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED_TERMS = "preferredDuringSchedulingIgnoredDuringExecution"


def check_tolerations(tolerations: list[Document], at: str, causes: list[Cause], *, comparing: bool) -> None:
    """Add what is wrong with tolerations; `at` is their path. `comparing`: Gt and Lt are known (KEP-5471)."""
    causes += too_many(at, len(tolerations), TOLERATIONS_MAX)
    for index, each in enumerate(tolerations[:TOLERATIONS_MAX]):
        here = f"{at}[{index}]"
        key, operator, effect = each.get("key") or "", each.get("operator") or "", each.get("effect") or ""
        if key:
            causes += qualified_name(f"{here}.key", key)
        elif operator != "Exists":
            causes.append(
                invalid(
                    f"{here}.operator",
                    operator,
                    'operator must be Exists when `key` is empty, which means "match all values and all keys"',
                )
            )
        if each.get("tolerationSeconds") is not None and effect != "NoExecute":
            causes.append(
                invalid(f"{here}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
            )
        if operator in ("", "Equal"):
            causes += label_value(f"{here}.operator", each.get("value") or "")
        elif operator == "Exists":
            if each.get("value"):
                causes.append(
                    invalid(f"{here}.operator", each["value"], "value must be empty when `operator` is 'Exists'")
                )
        elif comparing and operator in ("Gt", "Lt"):
            if not is_decimal(each.get("value") or ""):
                causes.append(invalid(f"{here}.value", each.get("value") or "", NOT_DECIMAL))
        else:
            known = ("Equal", "Exists", "Gt", "Lt") if comparing else ("Equal", "Exists")
            causes.append(unsupported(f"{here}.operator", operator, known))
        if effect and effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            causes.append(unsupported(f"{here}.effect", effect, ("NoExecute", "NoSchedule", "PreferNoSchedule")))


def check_affinity(affinity: Document, at: str, causes: list[Cause]) -> None:
    """Add what is wrong with an affinity; `at` is its path."""
    node = affinity.get("nodeAffinity") or {}
    here = f"{at}.nodeAffinity"
    if (hard := node.get(REQUIRED_TERMS)) is not None:
        terms, place = hard.get("nodeSelectorTerms") or [], f"{here}.{REQUIRED_TERMS}.nodeSelectorTerms"
        if not terms:
            causes.append(required(place, "must have at least one node selector term"))
        causes += too_many(place, len(terms), TERMS_MAX)
        for index, term in enumerate(terms[:TERMS_MAX]):
            check_node_term(term, f"{place}[{index}]", causes)
    soft = node.get(PREFERRED_TERMS) or []
    causes += too_many(f"{here}.{PREFERRED_TERMS}", len(soft), TERMS_MAX)
    for index, term in enumerate(soft[:TERMS_MAX]):
        _check_weight(term, f"{here}.{PREFERRED_TERMS}[{index}]", causes)
        check_node_term(term.get("preference") or {}, f"{here}.{PREFERRED_TERMS}[{index}].preference", causes)
    for side in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(side) or {}
        here = f"{at}.{side}"
        hard_terms, soft_terms = pods.get(REQUIRED_TERMS) or [], pods.get(PREFERRED_TERMS) or []
        causes += too_many(f"{here}.{REQUIRED_TERMS}", len(hard_terms), TERMS_MAX)
        causes += too_many(f"{here}.{PREFERRED_TERMS}", len(soft_terms), TERMS_MAX)
        for index, term in enumerate(hard_terms[:TERMS_MAX]):
            _check_pod_term(term, f"{here}.{REQUIRED_TERMS}[{index}]", causes)
        for index, term in enumerate(soft_terms[:TERMS_MAX]):
            place = f"{here}.{PREFERRED_TERMS}[{index}]"
            _check_weight(term, place, causes)
            _check_pod_term(term.get("podAffinityTerm") or {}, f"{place}.podAffinityTerm", causes)


def _check_weight(term: Document, at: str, causes: list[Cause]) -> None:
    weight = term.get("weight", 0)
    if not 1 <= weight <= 100:
        causes.append(invalid(f"{at}.weight", weight, "must be in the range 1-100"))


def check_node_term(term: Document, at: str, causes: list[Cause]) -> None:
    """Add what is wrong with one term of a node selector; `at` is its path."""
    for index, each in enumerate(term.get("matchExpressions") or []):
        here = f"{at}.matchExpressions[{index}]"
        _check_node_requirement(each, here, causes)
        causes += qualified_name(f"{here}.key", each.get("key") or "")
    for index, each in enumerate(term.get("matchFields") or []):
        here = f"{at}.matchFields[{index}]"
        if each.get("key") != "metadata.name":
            causes.append(invalid(f"{here}.key", each.get("key") or "", "not a valid field selector key"))
        if each.get("operator") not in ("In", "NotIn"):
            causes.append(invalid(f"{here}.operator", each.get("operator") or "", "not a valid selector operator"))
        elif len(each.get("values") or []) != 1:
            causes.append(
                required(
                    f"{here}.values",
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                )
            )


def _check_node_requirement(each: Document, at: str, causes: list[Cause]) -> None:
    operator, values = each.get("operator") or "", each.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            causes.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            causes.append(
                forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
            )
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            causes.append(required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    else:
        causes.append(invalid(f"{at}.operator", operator, "not a valid selector operator"))


def _check_pod_term(term: Document, at: str, causes: list[Cause]) -> None:
    if not term.get("topologyKey"):
        causes.append(required(f"{at}.topologyKey", "can not be empty"))
    else:
        causes += qualified_name(f"{at}.topologyKey", term["topologyKey"])
    for name in ("labelSelector", "namespaceSelector"):
        if term.get(name):
            causes += label_selector(f"{at}.{name}", term[name])
    for namespace in term.get("namespaces") or ():
        causes += label(f"{at}.namespace", namespace)
    causes += label_keys.check(term, at)


def check_spread(constraints: list[Document], at: str, causes: list[Cause]) -> None:
    """Add what is wrong with topology spread constraints; `at` is their path."""
    causes += too_many(at, len(constraints), TERMS_MAX)
    seen: set[tuple[str, str]] = set()
    for index, each in enumerate(constraints[:TERMS_MAX]):
        here = f"{at}[{index}]"
        skew, key, action = each.get("maxSkew", 0), each.get("topologyKey") or "", each.get("whenUnsatisfiable") or ""
        if skew <= 0:
            causes.append(invalid(f"{here}.maxSkew", skew, "must be greater than zero"))
        if not key:
            causes.append(required(f"{here}.topologyKey", "can not be empty"))
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            causes.append(unsupported(f"{here}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway")))
        if (key, action) in seen:
            causes.append(duplicate(f"{here}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        seen.add((key, action))
        domains = each.get("minDomains")
        if domains is not None and domains <= 0:
            causes.append(invalid(f"{here}.minDomains", domains, "must be greater than zero"))
        if domains is not None and action != "DoNotSchedule":
            detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            causes.append(invalid(f"{here}.minDomains", domains, detail))
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if each.get(name) is not None and each[name] not in POLICIES:
                causes.append(unsupported(f"{here}.{name}", each[name], POLICIES))
        causes += label_keys.check(each, here)
        if each.get("labelSelector"):
            causes += label_selector(f"{here}.labelSelector", each["labelSelector"])
