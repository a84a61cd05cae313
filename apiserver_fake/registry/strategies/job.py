"""Jobs: defaults, a generated selector, allowed values, and allowed changes (batch/v1).

The texts are upstream's (`pkg/apis/batch/validation`). Source: controllers 5.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from apiserver_fake.registry.strategies.networking import domain_path
from apiserver_fake.registry.strategy import WriteContext, declare_strategy
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    Causes,
    duplicate,
    immutable,
    invalid,
    label,
    label_selector,
    not_negative,
    not_supported,
    qualified_name,
    required,
    selects,
    too_long,
    too_many,
    value_text,
    wrong,
)
from apiserver_fake.registry.validation.pod.scope import CONTAINER_LISTS
from apiserver_fake.registry.validation.pod.spec import pod_template
from services.api.kinds.job import CONTROLLER_UID, JOB_NAME
from services.api.meta import Document

PARALLELISM_MAX, RULES_MAX, VALUES_MAX, PATTERNS_MAX = 100_000, 20, 255, 20
FAILED_INDEXES_MAX, MANAGER_MAX, INDEXES_MAX = 100_000, 63, 64 * 1024
COMPLETIONS_SOFT_MAX, SOFT_MAX = 100_000, 10_000
"""Number of completions above which parallelism and failed indexes have a lower limit, and that limit."""
NO_LIMIT = 2**31 - 1
ACTIONS, OPERATORS = ("Count", "FailIndex", "FailJob", "Ignore"), ("In", "NotIn")
SUCCEEDED = ("succeededIndexes", "succeededCount")
FIXED = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates")
"""Pod fields that a queue may still set for a suspended job, besides node affinity (KEP-2926)."""


def _check_limits(spec: Document, at: str, report: Report) -> Causes:
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield required(f"{at}backoffLimitPerIndex", "when maxFailedIndexes is specified")


def _managed_by(manager: str, path: str, report: Report) -> Causes:
    yield from domain_path(path, manager)
    if len(manager) > MANAGER_MAX:
        yield too_long(path, MANAGER_MAX)


def _check_modes(spec: Document, at: str, report: Report) -> Causes:
    mode = spec.get("completionMode")
    if mode == "Indexed":
        yield from _check_indexed(spec, at)
    elif mode in (None, "NonIndexed"):
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                yield invalid(f"{at}{name}", spec[name], "requires indexed completion mode")


def _check_indexed(spec: Document, at: str) -> Causes:
    completions, parallelism = spec.get("completions"), spec.get("parallelism") or 0
    most, path = spec.get("maxFailedIndexes"), f"{at}maxFailedIndexes"
    if completions is None:
        yield required(f"{at}completions", "when completion mode is Indexed")
    if parallelism > PARALLELISM_MAX:
        text = f"must be less than or equal to {PARALLELISM_MAX} when completion mode is Indexed"
        yield invalid(f"{at}parallelism", parallelism, text)
    if completions is not None and most is not None and most > completions:
        yield invalid(path, most, "must be less than or equal to completions")
    if most is not None and most > FAILED_INDEXES_MAX:
        yield invalid(path, most, f"must be less than or equal to {FAILED_INDEXES_MAX}")
    if (completions or 0) <= COMPLETIONS_SOFT_MAX or spec.get("backoffLimitPerIndex") is None:
        return
    if most is None:
        yield required(path, f"must be specified when completions is above {COMPLETIONS_SOFT_MAX}")
    for name, count in (("parallelism", parallelism), ("maxFailedIndexes", most or 0)):
        if count > SOFT_MAX:
            text = f"are above {COMPLETIONS_SOFT_MAX} and used with backoff limit per index"
            yield invalid(f"{at}{name}", count, f"must be less than or equal to {SOFT_MAX} when completions {text}")


def _check_replacement(spec: Document, at: str, report: Report) -> Causes:
    policy = spec.get("podReplacementPolicy")
    allowed = ("Failed",) if spec.get("podFailurePolicy") is not None else ("Failed", "TerminatingOrFailed")
    if policy is not None and policy not in allowed:
        yield not_supported(f"{at}podReplacementPolicy", policy, allowed)


def _check_restarts(spec: Document, at: str, report: Report) -> Causes:
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy") or "Always"
    here = f"{at}template.spec.restartPolicy"
    if policy == "Always":
        yield required(here, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield not_supported(here, policy, ("OnFailure", "Never"))
    elif policy != "Never" and spec.get("podFailurePolicy") is not None:
        yield invalid(here, policy, 'only "Never" is supported when podFailurePolicy is specified')


def _check_selector(spec: Document, at: str, report: Report) -> Causes:
    selector = spec.get("selector")
    if at != "spec.":
        # A CronJob's: each job gets a selector of its own.
        if selector is not None:
            yield invalid(f"{at}selector", selector, "`selector` will be auto-generated")
        if spec.get("manualSelector"):
            yield not_supported(f"{at}manualSelector", True, ("nil", "false"))
        return
    own = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    unreadable = label_selector(f"{at}selector", selector) if selector is not None else []
    yield from unreadable
    if selector is None:
        yield required(f"{at}selector")
    if not unreadable and (selector is None or not selects(selector, own or {})):
        yield invalid(f"{at}template.metadata.labels", own, "`selector` does not match template `labels`")


def _one_of(names: Iterable[str]) -> str:
    return f"valid values: [{' '.join(f'{chr(34)}{name}{chr(34)}' for name in names)}]"


def _check_action(rule: Document, at: str, report: Report) -> Causes:
    action = rule.get("action") or ""
    if not action:
        yield required(f"{at}action", _one_of(ACTIONS))
    elif action not in ACTIONS:
        yield not_supported(f"{at}action", action, ACTIONS)
    elif action == "FailIndex" and report.scope.get("backoffLimitPerIndex") is None:
        yield invalid(f"{at}action", action, "requires the backoffLimitPerIndex to be set")


def _check_one_requirement(rule: Document, at: str, report: Report) -> Causes:
    has_codes, has_patterns = rule.get("onExitCodes") is not None, bool(rule.get("onPodConditions"))
    if has_codes and has_patterns:
        yield wrong(at[:-1], "specifying both OnExitCodes and OnPodConditions is not supported")
    elif not has_codes and not has_patterns:
        yield wrong(at[:-1], "specifying one of OnExitCodes and OnPodConditions is required")


def _check_exit_codes(codes: Document, at: str, report: Report) -> Causes:
    operator, values, name = codes.get("operator") or "", codes.get("values") or [], codes.get("containerName")
    pod = (report.scope.get("template") or {}).get("spec") or {}
    containers = {each.get("name") for kind in CONTAINER_LISTS[:2] for each in pod.get(kind) or ()}
    if not operator:
        yield required(f"{at}.operator", _one_of(OPERATORS))
    elif operator not in OPERATORS:
        yield not_supported(f"{at}.operator", operator, OPERATORS)
    if name is not None and name not in containers:
        text = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{at}.containerName", name, text)
    if not values:
        yield invalid(f"{at}.values", codes.get("values"), "at least one value is required")
    yield from too_many(f"{at}.values", len(values), VALUES_MAX)
    seen: set[int] = set()
    for index, value in enumerate(values[:VALUES_MAX]):
        if operator == "In" and value == 0:
            yield invalid(f"{at}.values[{index}]", value, "must not be 0 for the In operator")
        if value in seen:
            yield duplicate(f"{at}.values[{index}]", value)
        seen.add(value)
    if values != sorted(values):
        yield invalid(f"{at}.values", values, "must be ordered")


def _check_success_policy(policy: Document, path: str, report: Report) -> Causes:
    at, rules, job = f"{path}.rules", policy.get("rules") or [], report.scope
    if job.get("completionMode") != "Indexed":
        # The value is shown as upstream's internal type is written, which has no JSON names.
        shown = [{f"{name[0].upper()}{name[1:]}": rule.get(name) for name in SUCCEEDED} for rule in rules]
        yield invalid(path, {"Rules": shown or policy.get("rules")}, "requires indexed completion mode")
        return
    if not rules:
        yield required(at, "at least one rules must be specified when the successPolicy is specified")
    yield from too_many(at, len(rules), RULES_MAX)
    for number, rule in enumerate(rules[:RULES_MAX]):
        yield from _check_success_rule(rule, f"{at}[{number}]", job.get("completions") or 0)


def _check_success_rule(rule: Document, at: str, completions: int) -> Causes:
    text, count, total = rule.get("succeededIndexes"), rule.get("succeededCount"), 0
    if text is None and count is None:
        yield required(at, "at least one of succeededCount or succeededIndexes must be specified")
    if text is not None:
        if len(text) > INDEXES_MAX:
            yield too_long(f"{at}.succeededIndexes", INDEXES_MAX)
        try:
            total = sum(end - start + 1 for start, end in intervals(text, completions))
        except ValueError as error:
            yield invalid(f"{at}.succeededIndexes", text, f"error parsing succeededIndexes: {error}")
    if count is None:
        return
    yield from not_negative(f"{at}.succeededCount", count)
    if count > completions:
        text_of = f"must be less than or equal to {completions} (the number of specified completions)"
        yield invalid(f"{at}.succeededCount", count, text_of)
    if text is not None and count > total:
        text_of = (
            f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        )
        yield invalid(f"{at}.succeededCount", count, text_of)


def intervals(text: str, completions: int) -> list[tuple[int, int]]:
    """Return the first and last index of each interval in a text. Raises: ValueError with upstream's text."""
    spans: list[tuple[int, int]] = []
    for part in text.split(",") if text else ():
        start, end = _interval(part, completions)
        if spans and spans[-1][1] >= start:
            raise ValueError(f"non-increasing order, previous: {spans[-1][1]}, current: {start}")
        spans.append((start, end))
    return spans


def _interval(part: str, completions: int) -> tuple[int, int]:
    ends = part.split("-")
    if len(ends) > 2:
        rule = "the requirement that an index interval can have at most two parts separated by '-'"
        raise ValueError(f"the fragment {value_text(part)} violates {rule}")
    numbers = []
    for end in ends:
        if not re.fullmatch(r"\+?[0-9]{1,18}", end):
            raise ValueError(f"cannot convert string to integer for index: {value_text(end)}")
        if int(end) >= completions:
            raise ValueError(f"too large index: {value_text(end)}")
        numbers.append(int(end))
    if len(numbers) == 2 and numbers[0] >= numbers[1]:
        raise ValueError(f"non-increasing order, previous: {numbers[0]}, current: {numbers[1]}")
    return numbers[0], numbers[-1]


def _completions(job: Mapping[str, Any]) -> int | None:
    return 1 if job.get("parallelism") is None and job.get("completions") is None else None


def _open_scope(spec: Document, at: str, report: Report) -> Causes:
    report.scope = spec
    return ()


PATTERN = Struct(
    Field("type", missing="", form=qualified_name),
    Field("status", default="True", is_blank_absent=True, enum=("False", "True", "Unknown")),
)
RULE = Struct(
    _check_action,
    Field("onExitCodes", rule=_check_exit_codes),
    Field("onPodConditions", most=PATTERNS_MAX, items=PATTERN),
    _check_one_requirement,
)
DEFAULTS: dict[str, Any] = {
    "parallelism": 1,
    "completions": _completions,
    "backoffLimit": lambda job: 6 if job.get("backoffLimitPerIndex") is None else NO_LIMIT,
    "completionMode": "NonIndexed",
    "suspend": False,
    "podReplacementPolicy": lambda job: "Failed" if job.get("podFailurePolicy") else "TerminatingOrFailed",
}


def _spec(defaults: Mapping[str, Any]) -> Struct:
    return Struct(
        Field("parallelism", default=defaults.get("parallelism"), minimum=0),
        Field("completions", default=defaults.get("completions"), minimum=0),
        Field("activeDeadlineSeconds", minimum=0),
        Field("backoffLimit", default=defaults.get("backoffLimit"), minimum=0),
        Field("ttlSecondsAfterFinished", minimum=0),
        Field("backoffLimitPerIndex", minimum=0),
        Field("maxFailedIndexes", minimum=0),
        _check_limits,
        Field("managedBy", rule=_managed_by),
        Field("completionMode", default=defaults.get("completionMode"), enum=("NonIndexed", "Indexed")),
        _check_modes,
        Field("suspend", default=defaults.get("suspend")),
        _open_scope,
        Field("podFailurePolicy", struct=Struct(Field("rules", most=RULES_MAX, items=RULE))),
        Field("successPolicy", rule=_check_success_policy),
        Field("podReplacementPolicy", default=defaults.get("podReplacementPolicy")),
        _check_replacement,
        Field("template", missing={}, struct=pod_template()),
        _check_restarts,
        _check_selector,
    )


SPEC = _spec(DEFAULTS)
JOB_TEMPLATE_SPEC = _spec({})
"""The spec inside a CronJob. Job defaults are only set when a job is made of it (upstream, too, only
defaults the pod).
"""
STATUS = Struct(*(Field(name, minimum=0) for name in ("active", "succeeded", "failed", "ready", "terminating")))


def check_update(old: Document, new: Document, status: Document, *, may_resize: bool = True) -> Causes:
    """Yield the forbidden changes of a Job's spec; `status` is the stored one.

    `may_resize`: the resources of a suspended job may change (KEP-5440).
    """
    completions = new.get("completions")
    if new["completionMode"] != "Indexed":
        yield from immutable("spec.completions", old.get("completions"), completions)
    elif completions not in (None, old.get("completions"), new.get("parallelism")):
        # An Indexed job grows and shrinks when both numbers do (elastic).
        yield invalid("spec.completions", completions, "can only be modified in tandem with spec.parallelism")
    yield from immutable("spec.selector", old.get("selector"), new.get("selector"))
    before, after = old.get("template") or {}, new.get("template") or {}
    is_idle = not status.get("startTime") or "Suspended" in _true_conditions(status)
    if old.get("suspend") and is_idle and not status.get("active"):
        before, after = (_without_changeable(template, may_resize=may_resize) for template in (before, after))
    yield from immutable("spec.template", before, after)
    for name in FIXED:
        yield from immutable(f"spec.{name}", old.get(name), new.get(name))


def _without_changeable(template: Document, *, may_resize: bool) -> Document:
    """Return a template without what a queue may decide while its job is suspended and nothing runs."""
    metadata = {n: v for n, v in (template.get("metadata") or {}).items() if n not in ("labels", "annotations")}
    spec = {n: v for n, v in (template.get("spec") or {}).items() if n not in _DIRECTIVES}
    if affinity := spec.pop("affinity", None):
        rest = {kind: terms for kind, terms in affinity.items() if kind != "nodeAffinity"}
        spec |= {"affinity": rest} if rest else {}
    for kind in ("initContainers", "containers") if may_resize else ():
        if kind in spec:
            spec[kind] = [{n: v for n, v in each.items() if n != "resources"} for each in spec[kind] or ()]
    return {"metadata": metadata, "spec": spec}


def check_status(old: Document, new: Document, ctx: WriteContext) -> Causes:
    """Yield errors that a correct controller never writes: a removed end, two ends at once, or decreasing
    counters.

    An error that was stored before may stay as long as it does not change. Source: upstream
    `pkg/apis/batch/validation/validation.go`, `validateJobStatus` and `ValidateJobStatusUpdate`, with the options
    that the strategy of jobs derives from the change.
    """
    before, after = old.get("status") or {}, new.get("status") or {}
    was, now = _true_conditions(before), _true_conditions(after)
    changed = {*(was ^ now), *(name for name in {*before, *after} if before.get(name) != after.get(name))}
    if bool(was & FINAL) != bool(now & FINAL):
        changed.add("finished")
    yield from _check_uncounted(after.get("uncountedTerminatedPods") or {})
    yield from _check_ends(new.get("spec") or {}, after, now, changed)
    for name in ("Failed", "Complete", "FailureTarget"):
        if name in was - now:
            yield wrong("status.conditions", f"cannot disable the terminal {name}=True condition")
    if (after.get("failed") or 0) < (before.get("failed") or 0):
        yield invalid("status.failed", after.get("failed") or 0, "cannot decrease the failed counter")
    spec = new.get("spec") or {}
    is_elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if not is_elastic and (after.get("succeeded") or 0) < (before.get("succeeded") or 0):
        yield invalid("status.succeeded", after.get("succeeded") or 0, "cannot decrease the succeeded counter")
    if before.get("completionTime") and after.get("completionTime") and "completionTime" in changed:
        yield invalid("status.completionTime", after["completionTime"], "completionTime cannot be mutated")
    if before.get("startTime") and "startTime" in changed and not spec.get("suspend"):
        yield required("status.startTime", "startTime cannot be removed for unsuspended job")
    if "SuccessCriteriaMet" in was - now:
        yield wrong("status.conditions", "cannot disable the SuccessCriteriaMet=True condition")
    if "Complete" in was and "SuccessCriteriaMet" in now - was:
        text = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        yield wrong("status.conditions", text)


FINAL = frozenset(("Complete", "Failed"))


def _check_uncounted(uncounted: Document) -> Causes:
    seen: set[str] = set()
    for kind in ("succeeded", "failed"):
        for index, uid in enumerate(uncounted.get(kind) or ()):
            path = f"status.uncountedTerminatedPods.{kind}[{index}]"
            if not uid:
                yield invalid(path, uid, "must not be empty")
            elif uid in seen:
                yield duplicate(path, uid)
            seen.add(uid)


_NEED = (
    ("Failed", "FailureTarget", "cannot set Failed=True condition without the FailureTarget=true condition"),
    (
        "Complete",
        "SuccessCriteriaMet",
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    ),
)


def _check_ends(spec: Document, status: Document, now: frozenset[str], changed: set[str]) -> Causes:
    at, is_finished, is_complete = "status.conditions", bool(now & FINAL), "Complete" in now
    started, completed = status.get("startTime"), status.get("completionTime")
    for other in ("Failed", "FailureTarget"):
        if {"Complete", other} & changed and {"Complete", other} <= now:
            yield wrong(at, f"cannot set Complete=True and {other}=true conditions")
    if {"Complete", "completionTime"} & changed:
        if completed and not is_complete:
            text = "cannot set completionTime when there is no Complete=True condition"
            yield invalid("status.completionTime", completed, text)
        if is_complete and not completed:
            yield required("status.completionTime", "completionTime is required for Complete jobs")
    if {"startTime", "completionTime"} & changed and started and completed and completed < started:
        yield invalid("status.completionTime", completed, "completionTime cannot be set before startTime")
    for name, need, text in _NEED:
        if {name, need} & changed and name in now and need not in now:
            yield wrong(at, text)
    if {"finished", "active"} & changed and is_finished and status.get("active"):
        yield invalid("status.active", status["active"], "active>0 is invalid for finished job")
    if {"finished", "startTime"} & changed and is_finished and not started:
        yield required("status.startTime", "startTime is required for finished job")
    uncounted = status.get("uncountedTerminatedPods") or {}
    if {"finished", "uncountedTerminatedPods"} & changed and is_finished and any(uncounted.values()):
        shown = {"Succeeded": uncounted.get("succeeded"), "Failed": uncounted.get("failed")}
        text = "uncountedTerminatedPods needs to be empty for finished job"
        yield invalid("status.uncountedTerminatedPods", shown, text)
    yield from _check_index_lists(spec, status, changed)
    if {"finished", "terminating"} & changed and is_finished and status.get("terminating"):
        yield invalid("status.terminating", status["terminating"], "terminating>0 is invalid for finished job")
    if {"ready", "active"} & changed and (status.get("ready") or 0) > (status.get("active") or 0):
        yield invalid("status.ready", status["ready"], "cannot set more ready pods than active")
    if "SuccessCriteriaMet" in now:
        if "Failed" in now:
            yield wrong(at, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
        if "FailureTarget" in now:
            yield wrong(at, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
    elif is_complete and spec.get("successPolicy") is not None:
        text = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        yield wrong(at, text)


def _check_index_lists(spec: Document, status: Document, changed: set[str]) -> Causes:
    completions, per_index = spec.get("completions"), spec.get("backoffLimitPerIndex")
    completed, failed = status.get("completedIndexes") or "", status.get("failedIndexes")
    read: dict[str, list[tuple[int, int]]] = {}
    for name, text in (("completedIndexes", completed), ("failedIndexes", failed or "")):
        try:
            read[name] = intervals(text, completions or 0) if completions is not None else []
        except ValueError as error:
            read[name] = []
            if name in changed and (name == "completedIndexes" or per_index is not None):
                yield invalid(f"status.{name}", text, f"error parsing {name}: {error}")
    if "completedIndexes" in changed and completed and spec.get("completionMode") != "Indexed":
        text = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield invalid("status.completedIndexes", completed, text)
    if "failedIndexes" in changed and per_index is None and failed is not None:
        text = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield invalid("status.failedIndexes", failed, text)
    if {"completedIndexes", "failedIndexes"} & changed:
        pairs = product(read["completedIndexes"], read["failedIndexes"])
        overlaps = [max(one[0], two[0]) for one, two in pairs if one[0] <= two[1] and two[0] <= one[1]]
        if overlaps:
            text = f"failedIndexes and completedIndexes overlap at index: {min(overlaps)}"
            yield invalid("status.failedIndexes", failed, text)


def _true_conditions(status: Document) -> frozenset[str]:
    return frozenset(c.get("type") or "" for c in status.get("conditions") or () if c.get("status") == "True")


_OLD_LABELS = ("controller-uid", "job-name")
"""Labels without a prefix, set besides the prefixed ones for clients that do not know those (since 1.27)."""


def _with_own_selector(new: Document) -> None:
    """Let the job select pods by its uid, and its template carry what says whose pods they are.

    What a client says itself of these labels or of the selector stays; where it differs, the job is refused.
    Source: upstream `pkg/registry/batch/job/strategy.go`, `generateSelector`.
    """
    spec, meta = new["spec"], new["metadata"]
    template = dict(spec.get("template") or {})
    about = dict(template.get("metadata") or {})
    labels = about.get("labels") or {}
    about["labels"] = {**labels, **{name: value for name, value in _own_labels(meta).items() if name not in labels}}
    template["metadata"] = about
    selector = dict(spec.get("selector") or {})
    selector["matchLabels"] = {CONTROLLER_UID: meta["uid"], **(selector.get("matchLabels") or {})}
    new["spec"] = {**spec, "selector": selector, "template": template}


def _own_labels(meta: Document) -> dict[str, str]:
    own = {CONTROLLER_UID: meta["uid"], JOB_NAME: meta["name"]}
    return own | dict(zip(_OLD_LABELS, own.values(), strict=True))


def _create(new: Document, ctx: WriteContext) -> None:
    if not new["spec"].get("manualSelector"):
        _with_own_selector(new)


def _generated_labels(new: Document, at: str, report: Report) -> Causes:
    """Check that selector and labels are those that the server makes, unless the client selects by itself.

    Source: upstream `pkg/apis/batch/validation/validation.go`, `validateGeneratedSelector`.
    """
    spec = new["spec"]
    if report.update is not None or spec.get("manualSelector") or spec.get("selector") is None:
        return
    labels, path = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}, "spec.template.metadata"
    wanted = _own_labels(new["metadata"])
    for name in (*_OLD_LABELS, CONTROLLER_UID, JOB_NAME):
        value = wanted[name]
        if name not in labels:
            yield required(f"{path}.labels[{name}]", f"must be '{value}'")
        elif labels[name] != value:
            yield invalid(f"{path}.labels[{name}]", labels, f"must be '{value}'")
    if not label_selector("", spec["selector"]) and not selects(spec["selector"], wanted):
        yield invalid("spec.selector", spec["selector"], "`selector` not auto-generated")


def _rules(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    spec = new["spec"]
    if old is not None:
        return check_update(old["spec"], spec, old.get("status") or {}, may_resize=ctx.switches.suspended_job_resources)
    completions = spec.get("completions") or 0
    if spec["completionMode"] != "Indexed" or completions <= 0:
        return []
    # The pods' host names end with their indexes.
    name = new["metadata"].get("name") or ""
    hostname = f"{name}-{completions - 1}"
    if not label("", hostname):
        return []
    return [invalid("metadata.name", name, f"will not able to create pod with invalid DNS label: {hostname}")]


STRATEGIES = {
    "jobs.batch": declare_strategy(
        Struct(_generated_labels, Field("spec", default={}, struct=SPEC)),
        has_status=True,
        on_create=_create,
        rules=_rules,
        status=STATUS,
        status_rules=check_status,
        left_out_at_zero=("active", "succeeded", "failed"),
    )
}
