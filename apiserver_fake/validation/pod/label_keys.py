"""matchLabelKeys and mismatchLabelKeys: label keys whose values, as the pod has them, join a label selector.

The API server writes them into the selector when a pod is created, so that no other component needs to know of them.
Source: KEP-3633 (pod affinity), KEP-3243 (topology spread). The texts are upstream's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apiserver_fake.validation.formats import Cause, forbidden, invalid, qualified_name
from services.api.meta import Document

SIDES = ("podAffinity", "podAntiAffinity")
REQUIRED_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED_TERMS = "preferredDuringSchedulingIgnoredDuringExecution"


def merged(spec: Document, labels: Mapping[str, str], *, spreads: bool) -> Document:
    """Return the spec with the keys' values in its selectors; `spreads`: in those of topology spread, too."""
    completed = dict(spec)
    affinity = spec.get("affinity") or {}
    sides = {side: _side(affinity[side], labels) for side in SIDES if affinity.get(side)}
    if sides:
        completed["affinity"] = {**affinity, **sides}
    if spreads and spec.get("topologySpreadConstraints"):
        completed["topologySpreadConstraints"] = [_term(each, labels) for each in spec["topologySpreadConstraints"]]
    return completed


def _side(terms: Document, labels: Mapping[str, str]) -> Document:
    completed = dict(terms)
    if hard := terms.get(REQUIRED_TERMS):
        completed[REQUIRED_TERMS] = [_term(each, labels) for each in hard]
    if soft := terms.get(PREFERRED_TERMS):
        completed[PREFERRED_TERMS] = [
            {**each, "podAffinityTerm": _term(each.get("podAffinityTerm") or {}, labels)} for each in soft
        ]
    return completed


def _term(term: Document, labels: Mapping[str, str]) -> Document:
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


def check(term: Document, at: str) -> list[Cause]:
    """Return what is wrong with a term's keys; `at` is the term's path.

    The selector has the keys' values already: one that it names besides is named twice.
    """
    match, mismatch = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    selector = term.get("labelSelector")
    causes = [
        *_check_keys(match, selector, f"{at}.matchLabelKeys"),
        *_check_keys(mismatch, selector, f"{at}.mismatchLabelKeys"),
    ]
    if selector is not None:
        seen = dict.fromkeys(selector.get("matchLabels") or ())
        for expression in selector.get("matchExpressions") or ():
            key = expression.get("key") or ""
            if key in match and key in seen:
                place = len(match) - 1 - list(reversed(match)).index(key)
                causes.append(invalid(f"{at}[{place}]", key, "exists in both matchLabelKeys and labelSelector"))
            seen[key] = None
    for index, key in enumerate(match):
        if key in mismatch:
            here = f"{at}.matchLabelKeys[{index}]"
            causes.append(invalid(here, key, "exists in both matchLabelKeys and mismatchLabelKeys"))
    return causes


def _check_keys(keys: Sequence[str], selector: Any, at: str) -> list[Cause]:
    if not keys:
        return []
    if selector is None:
        return [forbidden(at, "must not be specified when labelSelector is not set")]
    return [cause for index, key in enumerate(keys) for cause in qualified_name(f"{at}[{index}]", key)]
