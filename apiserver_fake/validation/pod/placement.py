"""Rules of what a pod says about where it may go: tolerations, affinity, topology spread.

The texts are upstream's (`pkg/apis/core/validation`).
"""

from __future__ import annotations

from typing import Any

from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import (
    Causes,
    duplicate,
    forbidden,
    invalid,
    label,
    label_selector,
    label_value,
    qualified_name,
    required,
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
EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")


def _operator(each: Document, at: str, report: Report) -> Causes:
    operator, value = each.get("operator") or "", each.get("value") or ""
    if not each.get("key") and operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(f"{at}operator", operator, text)
    if each.get("tolerationSeconds") is not None and (effect := each.get("effect") or "") != "NoExecute":
        yield invalid(f"{at}effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
    if operator in ("", "Equal"):
        yield from label_value(f"{at}operator", value)
    elif operator == "Exists":
        if value:
            yield invalid(f"{at}operator", value, "value must be empty when `operator` is 'Exists'")
    elif operator in ("Gt", "Lt") and report.switches.toleration_comparison:
        if not is_decimal(value):
            yield invalid(f"{at}value", value, NOT_DECIMAL)
    else:
        known = ("Equal", "Exists", "Gt", "Lt") if report.switches.toleration_comparison else ("Equal", "Exists")
        yield unsupported(f"{at}operator", operator, known)


TOLERATION = Struct(Field("key", form=qualified_name), _operator, Field("effect", enum=EFFECTS, is_blank_absent=True))


def _node_requirement(each: Document, at: str, report: Report) -> Causes:
    operator, values = each.get("operator") or "", each.get("values") or []
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


def _field_requirement(each: Document, at: str, report: Report) -> Causes:
    key, operator = each.get("key") or "", each.get("operator") or ""
    if key != "metadata.name":
        yield invalid(f"{at}key", key, "not a valid field selector key")
    if operator not in ("In", "NotIn"):
        yield invalid(f"{at}operator", operator, "not a valid selector operator")
    elif len(each.get("values") or []) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{at}values", text)


NODE_TERM = Struct(
    Field("matchExpressions", items=Struct(_node_requirement, Field("key", missing="", form=qualified_name))),
    Field("matchFields", items=Struct(_field_requirement)),
)
"""One term of a node selector."""
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


def _label_keys(term: Document, at: str, report: Report) -> Causes:
    yield from label_keys.check(term, at[:-1])


_POD_TERM = Struct(
    Field("topologyKey", required="can not be empty", form=qualified_name),
    Field("labelSelector", form=label_selector),
    Field("namespaceSelector", form=label_selector),
    Field("namespaces", rule=_namespaces),
    _label_keys,
)
_POD_TERMS = Struct(
    Field(REQUIRED_TERMS, most=TERMS_MAX, items=_POD_TERM),
    Field(
        PREFERRED_TERMS,
        most=TERMS_MAX,
        items=Struct(_WEIGHT, Field("podAffinityTerm", missing={}, struct=_POD_TERM)),
    ),
)
AFFINITY = Struct(
    Field(
        "nodeAffinity",
        struct=Struct(
            Field(REQUIRED_TERMS, struct=Struct(NODE_SELECTOR_TERMS)),
            Field(PREFERRED_TERMS, most=TERMS_MAX, items=Struct(_WEIGHT, Field("preference", struct=NODE_TERM))),
        ),
    ),
    Field("podAffinity", struct=_POD_TERMS),
    Field("podAntiAffinity", struct=_POD_TERMS),
)


def _once(each: Document, at: str, report: Report) -> Causes:
    key: Any = (each.get("topologyKey") or "", each.get("whenUnsatisfiable") or "")
    if key in report.seen:
        yield duplicate(f"{at}{{topologyKey, whenUnsatisfiable}}", f"{{{key[0]}, {key[1]}}}")
    report.seen.add(key)


def _domains_need_a_hard_constraint(each: Document, at: str, report: Report) -> Causes:
    domains, action = each.get("minDomains"), each.get("whenUnsatisfiable") or ""
    if domains is not None and action != "DoNotSchedule":
        text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        yield invalid(f"{at}minDomains", domains, text)


SPREAD = Struct(
    Field("maxSkew", missing=0, minimum=1, text="must be greater than zero"),
    Field("topologyKey", required="can not be empty"),
    Field("whenUnsatisfiable", missing="", enum=("DoNotSchedule", "ScheduleAnyway")),
    _once,
    Field("minDomains", minimum=1, text="must be greater than zero"),
    _domains_need_a_hard_constraint,
    Field("nodeAffinityPolicy", enum=POLICIES),
    Field("nodeTaintsPolicy", enum=POLICIES),
    _label_keys,
    Field("labelSelector", form=label_selector),
)
