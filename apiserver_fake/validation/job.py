"""Rules of a Job's spec: what may be said, and what may be said otherwise later.

The texts are upstream's (`pkg/apis/batch/validation`). Source: controllers 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from apiserver_fake.strategy import Cause
from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import (
    duplicate,
    immutable,
    invalid,
    label_selector,
    labels,
    not_negative,
    qualified_name,
    required,
    selects,
    too_many,
    unsupported,
)
from apiserver_fake.validation.pod.spec import POD_SPEC
from services.api.kinds.job import parse_indexes
from services.api.meta import Document

PARALLELISM_MAX, RULES_MAX, VALUES_MAX, PATTERNS_MAX = 100_000, 20, 255, 20
COMPLETIONS_SOFT_MAX, PARALLELISM_SOFT_MAX, FAILED_INDEXES_MAX = 100_000, 10_000, 10_000
"""Above so many completions, fewer may run at once and fewer indexes may fail."""
NO_LIMIT = 2**31 - 1
ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
FIXED = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_CHANGEABLE_TEMPLATE = ("nodeSelector", "affinity", "tolerations", "schedulingGates")
"""What a queue may still decide for a suspended job (KEP-2926)."""


def _check_modes(spec: Document, at: str, report: Report) -> None:
    causes = report.causes
    mode, is_indexed = spec["completionMode"], spec["completionMode"] == "Indexed"
    completions, parallelism = spec.get("completions"), spec.get("parallelism") or 0
    if is_indexed and completions is None:
        causes.append(required("spec.completions", f"when completion mode is {mode}"))
    elif is_indexed and parallelism > PARALLELISM_MAX:
        text = f"must be less than or equal to {PARALLELISM_MAX} when completion mode is {mode}"
        causes.append(invalid("spec.parallelism", parallelism, text))
    for name in ("backoffLimitPerIndex", "successPolicy"):
        if spec.get(name) is not None and not is_indexed:
            causes.append(invalid(f"spec.{name}", spec[name], "requires indexed completion mode"))
    most = spec.get("maxFailedIndexes")
    if most is not None and spec.get("backoffLimitPerIndex") is None:
        causes.append(required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if most is not None and completions is not None and most > completions:
        causes.append(invalid("spec.maxFailedIndexes", most, "must be less than or equal to completions"))
    if spec.get("backoffLimitPerIndex") is not None and (completions or 0) > COMPLETIONS_SOFT_MAX:
        if most is None:
            text = f"must be specified when completions is above {COMPLETIONS_SOFT_MAX}"
            causes.append(required("spec.maxFailedIndexes", text))
        elif most > FAILED_INDEXES_MAX:
            causes.append(invalid("spec.maxFailedIndexes", most, f"must be less than or equal to {FAILED_INDEXES_MAX}"))
        if parallelism > PARALLELISM_SOFT_MAX:
            text = f"must be less than or equal to {PARALLELISM_SOFT_MAX}"
            causes.append(invalid("spec.parallelism", parallelism, text))
    policy = spec.get("podReplacementPolicy")
    allowed = ("Failed",) if spec.get("podFailurePolicy") else ("Failed", "TerminatingOrFailed")
    if policy is not None and policy not in allowed:
        causes.append(unsupported("spec.podReplacementPolicy", policy, allowed))


def _check_template(spec: Document, at: str, report: Report) -> None:
    """Check what the template and the spec around it say of each other; the pod itself follows."""
    template, selector, causes = spec.get("template"), spec.get("selector"), report.causes
    if template is None:
        return
    own = (template.get("metadata") or {}).get("labels") or {}
    wrong = labels("spec.template.metadata.labels", own)
    if selector is None:
        wrong.append(required("spec.selector"))
    else:
        wrong += label_selector("spec.selector", selector)
        if not wrong and not selects(selector, own):
            text = "`selector` does not match template `labels`"
            wrong.append(invalid("spec.template.metadata.labels", own, text))
    causes += wrong
    policy, here = (template.get("spec") or {}).get("restartPolicy"), "spec.template.spec.restartPolicy"
    if policy not in ("OnFailure", "Never"):
        allowed = ("OnFailure", "Never")
        causes.append(
            unsupported(here, policy, allowed) if policy else required(here, "valid values: OnFailure, Never")
        )
    elif policy != "Never" and (spec.get("podFailurePolicy") or spec.get("backoffLimitPerIndex") is not None):
        what = "pod failure policy" if spec.get("podFailurePolicy") else "backoffLimitPerIndex"
        causes.append(invalid(here, policy, f'only "Never" is supported when {what} is specified'))


def _check_rule(rule: Document, at: str, report: Report) -> None:
    action, codes, patterns = rule.get("action"), rule.get("onExitCodes"), rule.get("onPodConditions")
    if action == "FailIndex" and report.scope.get("backoffLimitPerIndex") is None:
        text = "requires the backoffLimitPerIndex to be set"
        report.causes.append(invalid(f"{at}action", action, text))
    if (codes is None) == (not patterns):
        text = "specifying one of OnExitCodes and OnPodConditions is required, and only one of them"
        report.causes.append(invalid(at[:-1], action, text))


def _check_exit_codes(codes: Document, at: str, report: Report) -> None:
    causes = report.causes
    operator, values, name = codes.get("operator"), codes.get("values") or [], codes.get("containerName")
    pod = (report.scope.get("template") or {}).get("spec") or {}
    containers = {each.get("name") for kind in ("initContainers", "containers") for each in pod.get(kind) or ()}
    if operator not in ("In", "NotIn"):
        causes.append(unsupported(f"{at}.operator", operator, ("In", "NotIn")))
    if name is not None and name not in containers:
        causes.append(invalid(f"{at}.containerName", name, "must be one of the container or initContainer names"))
    if not values:
        causes.append(invalid(f"{at}.values", values, "at least one value is required"))
    causes += too_many(f"{at}.values", len(values), VALUES_MAX)
    seen: set[int] = set()
    for index, value in enumerate(values[:VALUES_MAX]):
        if operator == "In" and value == 0:
            causes.append(invalid(f"{at}.values[{index}]", value, "must not be 0 for the In operator"))
        if value in seen:
            causes.append(duplicate(f"{at}.values[{index}]", value))
        seen.add(value)
    if values != sorted(values):
        causes.append(invalid(f"{at}.values", values, "must be ordered"))


def _check_success_policy(policy: Document, path: str, report: Report) -> None:
    at, rules, causes = f"{path}.rules", policy.get("rules") or [], report.causes
    if not policy:
        return
    if not rules:
        causes.append(required(at, "at least one rules must be specified when the successPolicy is specified"))
    causes += too_many(at, len(rules), RULES_MAX)
    completions = report.scope.get("completions") or 0
    for number, rule in enumerate(rules[:RULES_MAX]):
        here = f"{at}[{number}]"
        text, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        most = completions
        if text is None and count is None:
            causes.append(required(here, "at least one of succeededCount or succeededIndexes must be specified"))
        if text is not None:
            try:
                most = len(parse_indexes(text, completions))
            except ValueError as error:
                causes.append(invalid(f"{here}.succeededIndexes", text, f"error parsing succeededIndexes: {error}"))
        if count is not None:
            causes += not_negative(f"{here}.succeededCount", count)
            if count > most:
                what = "the number of indexes in the specified succeededIndexes field" if text else "completions"
                text_ = f"must be less than or equal to {most} ({what})"
                causes.append(invalid(f"{here}.succeededCount", count, text_))


def _managed_by(manager: str, path: str, report: Report) -> None:
    if manager:
        report.causes += qualified_name(path, manager)
        if "/" not in manager:
            text = "must be a domain-prefixed path (such as acme.io/foo)"
            report.causes.append(invalid(path, manager, text))


def _backoff_limit(spec: Mapping[str, Any]) -> int:
    return 6 if spec.get("backoffLimitPerIndex") is None else NO_LIMIT


def _completions(spec: Mapping[str, Any]) -> int | None:
    return 1 if spec.get("parallelism") is None and spec.get("completions") is None else None


def _replacement_policy(spec: Mapping[str, Any]) -> str:
    return "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"


def _open_scope(spec: Document, at: str, report: Report) -> None:
    report.scope = spec


PATTERN = Struct(
    Field("type", missing="", form=qualified_name),
    Field("status", default="True", enum=("False", "True", "Unknown")),
)
RULE = Struct(
    Field("action", required=True, enum=ACTIONS),
    _check_rule,
    Field("onExitCodes", rule=_check_exit_codes),
    Field("onPodConditions", most=PATTERNS_MAX, items=PATTERN),
)
SPEC = Struct(
    Field("parallelism", default=1, minimum=0),
    Field("completions", default=_completions, minimum=0),
    Field("activeDeadlineSeconds", minimum=0),
    Field("backoffLimit", default=_backoff_limit, minimum=0),
    Field("ttlSecondsAfterFinished", minimum=0),
    Field("backoffLimitPerIndex", minimum=0),
    Field("maxFailedIndexes", minimum=0),
    Field("completionMode", default="NonIndexed", enum=("NonIndexed", "Indexed")),
    Field("suspend", default=False),
    Field("podReplacementPolicy", default=_replacement_policy),
    _check_modes,
    _check_template,
    Field("template", required=True, struct=Struct(Field("spec", default={}, struct=POD_SPEC))),
    _open_scope,
    Field("podFailurePolicy", struct=Struct(Field("rules", most=RULES_MAX, items=RULE))),
    Field("successPolicy", rule=_check_success_policy),
    Field("managedBy", rule=_managed_by),
)
STATUS = Struct(
    *(Field(name, minimum=0) for name in ("active", "ready", "terminating", "succeeded", "failed")),
)


def check_update(old: Document, new: Document, status: Document) -> list[Cause]:
    """Return what may not be changed of a Job's spec; `status` is what is stored."""
    causes: list[Cause] = []
    # An Indexed job grows and shrinks when both numbers do (elastic).
    is_elastic = new["completionMode"] == "Indexed" and new.get("completions") == new.get("parallelism")
    if not is_elastic:
        causes += immutable("spec.completions", old.get("completions"), new.get("completions"))
    for name in FIXED:
        causes += immutable(f"spec.{name}", old.get(name), new.get(name))
    before, after = old.get("template") or {}, new.get("template") or {}
    if old.get("suspend") and not status.get("startTime"):
        before, after = _without_changeable(before), _without_changeable(after)
    return causes + immutable("spec.template", before, after)


def _without_changeable(template: Document) -> Document:
    metadata = {n: v for n, v in (template.get("metadata") or {}).items() if n not in ("labels", "annotations")}
    spec = {n: v for n, v in (template.get("spec") or {}).items() if n not in _CHANGEABLE_TEMPLATE}
    return {"metadata": metadata, "spec": spec}


def check_status(old: Document, new: Document) -> list[Cause]:
    """Return what no honest controller writes: an end taken back, both ends at once, counters that fall."""
    causes: list[Cause] = []
    before, after = old.get("status") or {}, new.get("status") or {}
    was, now = _true_conditions(before), _true_conditions(after)
    for name in ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"):
        if name in was and name not in now:
            causes.append(invalid("status.conditions", name, f"cannot disable the {name}=True condition"))
    for one, other in product(("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget")):
        if one in now and other in now:
            causes.append(invalid("status.conditions", one, f"cannot set {one}=True and {other}=True conditions"))
    is_finished = "Complete" in now or "Failed" in now
    if is_finished and after.get("active"):
        causes.append(invalid("status.active", after["active"], "active>0 is invalid for finished job"))
    if after.get("completionTime") and "Complete" not in now:
        causes.append(invalid("status.completionTime", after["completionTime"], "requires the Complete condition"))
    if (after.get("failed") or 0) < (before.get("failed") or 0):
        causes.append(invalid("status.failed", after.get("failed") or 0, "cannot decrease the failed counter"))
    is_indexed = (new.get("spec") or {}).get("completionMode") == "Indexed"
    if not is_indexed and (after.get("succeeded") or 0) < (before.get("succeeded") or 0):
        causes.append(invalid("status.succeeded", after.get("succeeded") or 0, "cannot decrease the succeeded counter"))
    return causes


def _true_conditions(status: Document) -> frozenset[str]:
    return frozenset(c.get("type") or "" for c in status.get("conditions") or () if c.get("status") == "True")
