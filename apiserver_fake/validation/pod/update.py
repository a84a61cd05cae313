"""What may still change in the spec of a pod that exists (upstream `ValidatePodUpdate`).

While a pod is gated, what it asks for may only become narrower (KEP-3838).
"""

from __future__ import annotations

from apiserver_fake.validation.formats import (
    IMMUTABLE,
    Causes,
    forbidden,
    invalid,
)
from apiserver_fake.validation.pod.placement import REQUIRED_TERMS
from services.api.meta import Document

_FROZEN = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def check_update(old: Document, new: Document) -> Causes:
    """Return what a pod's new spec may not change (upstream `ValidatePodUpdate`)."""
    if old == new:
        return
    was_gated = bool(old.get("schedulingGates"))
    kept = {gate.get("name") for gate in old.get("schedulingGates") or []}
    for gate in new.get("schedulingGates") or []:
        if gate.get("name") not in kept:
            yield forbidden(
                "spec.schedulingGates",
                f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
            )
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if before is not None and after is None:
        yield invalid("spec.activeDeadlineSeconds", None, "must not update from a positive integer to nil value")
    elif before is not None and after is not None and after > before:
        yield invalid("spec.activeDeadlineSeconds", after, f"must be less than or equal to previous value, {before}")
    tolerations = [_timeless(each) for each in new.get("tolerations") or []]
    if any(_timeless(each) not in tolerations for each in old.get("tolerations") or []):
        yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
    if was_gated:
        yield from _tightened(old, new)
    frozen_old, frozen_new = _frozen(old, was_gated), _frozen(new, was_gated)
    changed = [
        name for name in dict.fromkeys([*frozen_old, *frozen_new]) if frozen_old.get(name) != frozen_new.get(name)
    ]
    if changed:
        yield forbidden("spec", f"{_FROZEN}; changed: {', '.join(f'spec.{name}' for name in changed)}")


def _timeless(toleration: Document) -> Document:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _frozen(spec: Document, was_gated: bool) -> Document:
    """Return the spec with everything that may change taken out."""
    rest = {
        name: value
        for name, value in spec.items()
        if name not in ("activeDeadlineSeconds", "tolerations", "schedulingGates")
        and not (was_gated and name in ("nodeSelector", "affinity"))
        and value not in (None, "", [], {})
    }
    for kind in ("containers", "initContainers"):
        if kind in rest:
            rest[kind] = [{**container, "image": ""} for container in rest[kind]]
    if rest.get("terminationGracePeriodSeconds", 0) in (1, -1):
        rest["terminationGracePeriodSeconds"] = 1
    return rest


def _tightened(old: Document, new: Document) -> Causes:
    # While gated, what the pod asks for may only become narrower (KEP-3838).
    selector = new.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in (old.get("nodeSelector") or {}).items()):
        yield invalid("spec.nodeSelector", selector, "only additions are allowed while the pod is gated")
    before, after = old.get("affinity") or {}, new.get("affinity") or {}
    for name in ("podAffinity", "podAntiAffinity"):
        if before.get(name) != after.get(name):
            yield invalid(f"spec.affinity.{name}", after.get(name), IMMUTABLE)
    terms, wanted = _required_terms(before), _required_terms(after)
    for index, term in enumerate(terms):
        now = wanted[index] if len(wanted) == len(terms) else {}
        for part in ("matchExpressions", "matchFields"):
            if any(each not in (now.get(part) or []) for each in term.get(part) or []):
                here = f"spec.affinity.nodeAffinity.{REQUIRED_TERMS}.nodeSelectorTerms[{index}]"
                yield invalid(here, now, "only additions are allowed (no mutations or deletions)")


def _required_terms(affinity: Document) -> list[Document]:
    hard = (affinity.get("nodeAffinity") or {}).get(REQUIRED_TERMS) or {}
    terms: list[Document] = hard.get("nodeSelectorTerms") or []
    return terms
