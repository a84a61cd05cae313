"""Rules of a pod's scheduling constraints: tolerations, affinity, topology spread, and their label keys.

`matchLabelKeys` and `mismatchLabelKeys` name labels of the pod whose values are added to a label selector. The
API server writes them into the selector when a pod is created, so that no other component needs to know of
them. The texts are upstream's (`pkg/apis/core/validation`). Source: KEP-3633 (pod affinity), KEP-3243 (topology
spread).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    Cause,
    Causes,
    duplicate,
    forbidden,
    invalid,
    label,
    label_selector,
    label_value,
    not_supported,
    qualified_name,
    required,
    subdomain,
)
from services.api.meta import Document
from services.api.taints import is_decimal

SIDES = ("podAffinity", "podAntiAffinity")
REQUIRED_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED_TERMS = "preferredDuringSchedulingIgnoredDuringExecution"


def with_label_keys(spec: Document, labels: Mapping[str, str], *, spreads: bool) -> Document:
    """Return the spec with the keys' values in its affinity selectors. `spreads`: in those of topology spread, too."""
    completed = dict(spec)
    affinity = spec.get("affinity") or {}
    sides = {side: _side_with_keys(affinity[side], labels) for side in SIDES if affinity.get(side)}
    if sides:
        completed["affinity"] = {**affinity, **sides}
    if spreads and spec.get("topologySpreadConstraints"):
        completed["topologySpreadConstraints"] = [
            _term_with_keys(each, labels) for each in spec["topologySpreadConstraints"]
        ]
    return completed


def _side_with_keys(terms: Document, labels: Mapping[str, str]) -> Document:
    completed = dict(terms)
    if hard := terms.get(REQUIRED_TERMS):
        completed[REQUIRED_TERMS] = [_term_with_keys(each, labels) for each in hard]
    if soft := terms.get(PREFERRED_TERMS):
        completed[PREFERRED_TERMS] = [
            {**each, "podAffinityTerm": _term_with_keys(each.get("podAffinityTerm") or {}, labels)} for each in soft
        ]
    return completed


def _term_with_keys(term: Document, labels: Mapping[str, str]) -> Document:
    """Return the term with its selector extended; a selector that is missing selects nothing and stays missing."""
    selector = term.get("labelSelector")
    more = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(name) or ()
        if key in labels
    ]
    if selector is None or not more:
        return term
    expressions = [*(selector.get("matchExpressions") or ()), *more]
    return {**term, "labelSelector": {**selector, "matchExpressions": expressions}}


def _label_keys(term: Document, at: str, report: Report) -> Causes:
    # The selector has the keys' values already: one that it names besides is named twice.
    match, mismatch = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    selector = term.get("labelSelector")
    yield from _check_keys(match, selector, f"{at}matchLabelKeys")
    yield from _check_keys(mismatch, selector, f"{at}mismatchLabelKeys")
    if selector is not None:
        seen = dict.fromkeys(selector.get("matchLabels") or ())
        for expression in selector.get("matchExpressions") or ():
            key = expression.get("key") or ""
            if key in match and key in seen:
                place = len(match) - 1 - list(reversed(match)).index(key)
                yield invalid(f"{at[:-1]}[{place}]", key, "exists in both matchLabelKeys and labelSelector")
            seen[key] = None
    for index, key in enumerate(match):
        if key in mismatch:
            here = f"{at}matchLabelKeys[{index}]"
            yield invalid(here, key, "exists in both matchLabelKeys and mismatchLabelKeys")


def _check_keys(keys: Sequence[str], selector: Any, at: str) -> list[Cause]:
    if not keys:
        return []
    if selector is None:
        return [forbidden(at, "must not be specified when labelSelector is not set")]
    return [cause for index, key in enumerate(keys) for cause in qualified_name(f"{at}[{index}]", key)]


TOLERATIONS_MAX, TERMS_MAX = 200, 100
POLICIES = ("Honor", "Ignore")
NOT_DECIMAL = "must be a valid decimal integer in canonical form"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _operator(toleration: Document, at: str, report: Report) -> Causes:
    operator, value = toleration.get("operator") or "", toleration.get("value") or ""
    if not toleration.get("key") and operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(f"{at}operator", operator, text)
    if toleration.get("tolerationSeconds") is not None and (effect := toleration.get("effect") or "") != "NoExecute":
        yield invalid(f"{at}effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
    if operator in ("", "Equal"):
        yield from label_value(f"{at}operator", value)
    elif operator == "Exists":
        if value:
            yield invalid(f"{at}operator", value, "value must be empty when `operator` is 'Exists'")
    elif operator not in ("Gt", "Lt"):
        yield not_supported(f"{at}operator", operator, ("Equal", "Exists"))
    elif not report.switches.toleration_comparison:
        yield not_supported(f"{at}operator", operator, ("Equal", "Exists", "Lt", "Gt"))
    else:
        yield from _decimal(f"{at}value", value)


def _decimal(path: str, value: str) -> Causes:
    """Check a number of 64 bits as Go prints it, and name both of upstream's checks that it fails."""
    if is_decimal(value):
        return
    digits = value.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit()
    if not value:
        yield invalid(path, value, "must be non-empty")
    elif not is_number or (digits.startswith("0") and value != "0"):
        yield invalid(path, value, NOT_DECIMAL)
    unsigned = value[1:] if value[:1] in ("+", "-") else value
    if not (unsigned.isascii() and unsigned.isdigit()):
        yield invalid(path, value, f'strconv.ParseInt: parsing "{value}": invalid syntax')
    elif not -(2**63) <= int(value) < 2**63:
        yield invalid(path, value, f'strconv.ParseInt: parsing "{value}": value out of range')


TOLERATION = Struct(Field("key", form=qualified_name), _operator, Field("effect", enum=EFFECTS, is_blank_absent=True))


def _node_requirement(requirement: Document, at: str, report: Report) -> Causes:
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{at}values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(f"{at}values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{at}values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield invalid(f"{at}operator", operator, "not a valid selector operator")


def _field_requirement(requirement: Document, at: str, report: Report) -> Causes:
    key, operator, values = (
        requirement.get("key") or "",
        requirement.get("operator") or "",
        requirement.get("values") or [],
    )
    if operator not in ("In", "NotIn"):
        yield invalid(f"{at}operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{at}values", text)
    if key != "metadata.name":
        yield invalid(f"{at}key", key, "not a valid field selector key")
        return
    for index, value in enumerate(values):
        yield from subdomain(f"{at}values[{index}]", value)


_KEY = Field("key", missing="", form=qualified_name)
_FIELDS = Field("matchFields", items=Struct(_field_requirement))
_VALUES = Field("values", items=Field(missing="", form=label_value))
NODE_TERM = Struct(Field("matchExpressions", items=Struct(_node_requirement, _KEY, _VALUES)), _FIELDS)
"""One term of a node selector."""
_PREFERRED_TERM = Struct(Field("matchExpressions", items=Struct(_node_requirement, _KEY)), _FIELDS)
"""One term of a node preference: values need not be valid labels, and then match no node."""
NODE_SELECTOR_TERMS = Field(
    "nodeSelectorTerms",
    required="must have at least one node selector term",
    missing=[],
    most=TERMS_MAX,
    items=NODE_TERM,
)
_WEIGHT = Field("weight", missing=0, minimum=1, maximum=100, text="must be in the range 1-100")


def _namespaces(names: list[str], path: str, report: Report) -> Causes:
    for name in names:
        yield from label(path.removesuffix("s"), name)


def _topology_key(term: Document, at: str, report: Report) -> Causes:
    key = term.get("topologyKey") or ""
    if not key:
        yield required(f"{at}topologyKey", "can not be empty")
    yield from qualified_name(f"{at}topologyKey", key)


_POD_TERM = Struct(
    Field("labelSelector", form=label_selector),
    Field("namespaceSelector", form=label_selector),
    Field("namespaces", rule=_namespaces),
    _label_keys,
    _topology_key,
)
_POD_TERMS = Struct(
    Field(REQUIRED_TERMS, most=TERMS_MAX, items=_POD_TERM),
    Field(
        PREFERRED_TERMS, most=TERMS_MAX, items=Struct(_WEIGHT, Field("podAffinityTerm", missing={}, struct=_POD_TERM))
    ),
)
AFFINITY = Struct(
    Field(
        "nodeAffinity",
        struct=Struct(
            Field(REQUIRED_TERMS, struct=Struct(NODE_SELECTOR_TERMS)),
            Field(PREFERRED_TERMS, most=TERMS_MAX, items=Struct(_WEIGHT, Field("preference", struct=_PREFERRED_TERM))),
        ),
    ),
    Field("podAffinity", struct=_POD_TERMS),
    Field("podAntiAffinity", struct=_POD_TERMS),
)


def _spreads_once(constraint: Document, at: str, report: Report) -> Causes:
    """Each kind of constraint is there once; named is the first that comes again."""
    constraints, place = report.scope.spec["topologySpreadConstraints"], int(at[at.rindex("[") + 1 : -2])
    key = (constraint.get("topologyKey") or "", constraint.get("whenUnsatisfiable") or "")
    for other in constraints[place + 1 :]:
        if key == (other.get("topologyKey") or "", other.get("whenUnsatisfiable") or ""):
            yield duplicate(f"{at}{{topologyKey, whenUnsatisfiable}}", f"{{{key[0]}, {key[1]}}}")
            return


def _domains_need_a_hard_constraint(each: Document, at: str, report: Report) -> Causes:
    domains, action = each.get("minDomains"), each.get("whenUnsatisfiable") or ""
    if domains is not None and action != "DoNotSchedule":
        text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        yield invalid(f"{at}minDomains", domains, text)


SPREAD = Struct(
    Field("maxSkew", missing=0, minimum=1, text="must be greater than zero"),
    Field("topologyKey", required="can not be empty"),
    Field("whenUnsatisfiable", missing="", enum=("DoNotSchedule", "ScheduleAnyway")),
    _spreads_once,
    Field("minDomains", minimum=1, text="must be greater than zero"),
    _domains_need_a_hard_constraint,
    Field("nodeAffinityPolicy", enum=POLICIES),
    Field("nodeTaintsPolicy", enum=POLICIES),
    _label_keys,
    Field("labelSelector", form=label_selector),
)
