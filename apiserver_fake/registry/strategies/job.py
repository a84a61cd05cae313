"""Jobs: defaults, a selector of their own, what may be said, and what may be said otherwise later (batch/v1).

The texts are upstream's (`pkg/apis/batch/validation`). Source: controllers 5.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any

from apiserver_fake.strategy import WriteContext, declared
from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import (
    Causes,
    duplicate,
    immutable,
    invalid,
    label_selector,
    not_negative,
    qualified_name,
    required,
    selects,
    too_many,
    unsupported,
)
from apiserver_fake.validation.pod.spec import pod_template
from services.api.kinds.job import CONTROLLER_UID, JOB_NAME, parse_indexes
from services.api.meta import Document

PARALLELISM_MAX, RULES_MAX, VALUES_MAX, PATTERNS_MAX = 100_000, 20, 255, 20
COMPLETIONS_SOFT_MAX, PARALLELISM_SOFT_MAX, FAILED_INDEXES_MAX = 100_000, 10_000, 10_000
"""Above so many completions, fewer may run at once and fewer indexes may fail."""
NO_LIMIT = 2**31 - 1
ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
FIXED = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates")
"""What a queue may still decide for a suspended job, besides node affinity (KEP-2926)."""


def _check_modes(spec: Document, at: str, report: Report) -> Causes:
    mode = spec.get("completionMode")
    is_indexed = mode == "Indexed"
    completions, parallelism = spec.get("completions"), spec.get("parallelism") or 0
    if is_indexed and completions is None:
        yield required(f"{at}completions", f"when completion mode is {mode}")
    elif is_indexed and parallelism > PARALLELISM_MAX:
        text = f"must be less than or equal to {PARALLELISM_MAX} when completion mode is {mode}"
        yield invalid(f"{at}parallelism", parallelism, text)
    for name in ("backoffLimitPerIndex", "successPolicy"):
        if spec.get(name) is not None and not is_indexed:
            yield invalid(f"{at}{name}", spec[name], "requires indexed completion mode")
    most = spec.get("maxFailedIndexes")
    if most is not None and spec.get("backoffLimitPerIndex") is None:
        yield required(f"{at}backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if most is not None and completions is not None and most > completions:
        yield invalid(f"{at}maxFailedIndexes", most, "must be less than or equal to completions")
    if spec.get("backoffLimitPerIndex") is not None and (completions or 0) > COMPLETIONS_SOFT_MAX:
        if most is None:
            text = f"must be specified when completions is above {COMPLETIONS_SOFT_MAX}"
            yield required(f"{at}maxFailedIndexes", text)
        elif most > FAILED_INDEXES_MAX:
            yield invalid(f"{at}maxFailedIndexes", most, f"must be less than or equal to {FAILED_INDEXES_MAX}")
        if parallelism > PARALLELISM_SOFT_MAX:
            yield invalid(f"{at}parallelism", parallelism, f"must be less than or equal to {PARALLELISM_SOFT_MAX}")
    policy = spec.get("podReplacementPolicy")
    allowed = ("Failed",) if spec.get("podFailurePolicy") else ("Failed", "TerminatingOrFailed")
    if policy is not None and policy not in allowed:
        yield unsupported(f"{at}podReplacementPolicy", policy, allowed)


def _check_template(spec: Document, at: str, report: Report) -> Causes:
    """Check what the template and the spec around it say of each other; the pod itself follows."""
    template, selector = spec.get("template"), spec.get("selector")
    if template is None:
        return
    own = (template.get("metadata") or {}).get("labels") or {}
    wrong = []
    if at != "spec.":
        # A CronJob's: each job gets a selector of its own.
        if selector is not None:
            wrong.append(invalid(f"{at}selector", selector, "`selector` will be auto-generated"))
        if spec.get("manualSelector"):
            wrong.append(unsupported(f"{at}manualSelector", True, ("nil", "false")))
    elif selector is None:
        wrong.append(required(f"{at}selector"))
    else:
        wrong += label_selector(f"{at}selector", selector)
        if not wrong and not selects(selector, own):
            text = "`selector` does not match template `labels`"
            wrong.append(invalid(f"{at}template.metadata.labels", own, text))
    yield from wrong
    policy, here = (template.get("spec") or {}).get("restartPolicy"), f"{at}template.spec.restartPolicy"
    if policy not in ("OnFailure", "Never"):
        allowed = ("OnFailure", "Never")
        yield unsupported(here, policy, allowed) if policy else required(here, "valid values: OnFailure, Never")
    elif policy != "Never" and (spec.get("podFailurePolicy") or spec.get("backoffLimitPerIndex") is not None):
        what = "pod failure policy" if spec.get("podFailurePolicy") else "backoffLimitPerIndex"
        yield invalid(here, policy, f'only "Never" is supported when {what} is specified')


def _check_rule(rule: Document, at: str, report: Report) -> Causes:
    action, codes, patterns = rule.get("action"), rule.get("onExitCodes"), rule.get("onPodConditions")
    if action == "FailIndex" and report.scope.get("backoffLimitPerIndex") is None:
        yield invalid(f"{at}action", action, "requires the backoffLimitPerIndex to be set")
    if (codes is None) == (not patterns):
        text = "specifying one of OnExitCodes and OnPodConditions is required, and only one of them"
        yield invalid(at[:-1], action, text)


def _check_exit_codes(codes: Document, at: str, report: Report) -> Causes:
    operator, values, name = codes.get("operator"), codes.get("values") or [], codes.get("containerName")
    pod = (report.scope.get("template") or {}).get("spec") or {}
    containers = {each.get("name") for kind in ("initContainers", "containers") for each in pod.get(kind) or ()}
    if operator not in ("In", "NotIn"):
        yield unsupported(f"{at}.operator", operator, ("In", "NotIn"))
    if name is not None and name not in containers:
        yield invalid(f"{at}.containerName", name, "must be one of the container or initContainer names")
    if not values:
        yield invalid(f"{at}.values", values, "at least one value is required")
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
    at, rules = f"{path}.rules", policy.get("rules") or []
    if not policy:
        return
    if not rules:
        yield required(at, "at least one rules must be specified when the successPolicy is specified")
    yield from too_many(at, len(rules), RULES_MAX)
    completions = report.scope.get("completions") or 0
    for number, rule in enumerate(rules[:RULES_MAX]):
        here = f"{at}[{number}]"
        text, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        most = completions
        if text is None and count is None:
            yield required(here, "at least one of succeededCount or succeededIndexes must be specified")
        if text is not None:
            try:
                most = len(parse_indexes(text, completions))
            except ValueError as error:
                yield invalid(f"{here}.succeededIndexes", text, f"error parsing succeededIndexes: {error}")
        if count is not None:
            yield from not_negative(f"{here}.succeededCount", count)
            if count > most:
                what = "the number of indexes in the specified succeededIndexes field" if text else "completions"
                yield invalid(f"{here}.succeededCount", count, f"must be less than or equal to {most} ({what})")


def _managed_by(manager: str, path: str, report: Report) -> Causes:
    if manager:
        yield from qualified_name(path, manager)
        if "/" not in manager:
            yield invalid(path, manager, "must be a domain-prefixed path (such as acme.io/foo)")


def _completions(job: Mapping[str, Any]) -> int | None:
    return 1 if job.get("parallelism") is None and job.get("completions") is None else None


def _open_scope(spec: Document, at: str, report: Report) -> Causes:
    report.scope = spec
    return ()


PATTERN = Struct(
    Field("type", missing="", form=qualified_name), Field("status", default="True", enum=("False", "True", "Unknown"))
)
RULE = Struct(
    Field("action", required=True, enum=ACTIONS),
    _check_rule,
    Field("onExitCodes", rule=_check_exit_codes),
    Field("onPodConditions", most=PATTERNS_MAX, items=PATTERN),
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
        Field("completionMode", default=defaults.get("completionMode"), enum=("NonIndexed", "Indexed")),
        Field("suspend", default=defaults.get("suspend")),
        Field("podReplacementPolicy", default=defaults.get("podReplacementPolicy")),
        _check_modes,
        _check_template,
        Field("template", required=True, struct=pod_template()),
        _open_scope,
        Field("podFailurePolicy", struct=Struct(Field("rules", most=RULES_MAX, items=RULE))),
        Field("successPolicy", rule=_check_success_policy),
        Field("managedBy", rule=_managed_by),
    )


SPEC = _spec(DEFAULTS)
JOB_TEMPLATE_SPEC = _spec({})
"""The spec inside a CronJob: completed only when a job is made of it (upstream, too, fills in the pod alone)."""
STATUS = Struct(*(Field(name, minimum=0) for name in ("active", "ready", "terminating", "succeeded", "failed")))


def check_update(old: Document, new: Document, status: Document, *, may_resize: bool = True) -> Causes:
    """Return what may not be changed of a Job's spec; `status` is what is stored.

    `may_resize`: a suspended job may be given other resources (KEP-5440).
    """
    # An Indexed job grows and shrinks when both numbers do (elastic).
    is_elastic = new["completionMode"] == "Indexed" and new.get("completions") == new.get("parallelism")
    if not is_elastic:
        yield from immutable("spec.completions", old.get("completions"), new.get("completions"))
    for name in FIXED:
        yield from immutable(f"spec.{name}", old.get(name), new.get(name))
    before, after = old.get("template") or {}, new.get("template") or {}
    is_idle = not status.get("startTime") or "Suspended" in _true_conditions(status)
    if old.get("suspend") and is_idle and not status.get("active"):
        before, after = (_without_changeable(template, may_resize=may_resize) for template in (before, after))
    yield from immutable("spec.template", before, after)


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
    """Return what no honest controller writes: an end taken back, both ends at once, counters that fall."""
    before, after = old.get("status") or {}, new.get("status") or {}
    was, now = _true_conditions(before), _true_conditions(after)
    for name in ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"):
        if name in was and name not in now:
            yield invalid("status.conditions", name, f"cannot disable the {name}=True condition")
    for one, other in product(("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget")):
        if one in now and other in now:
            yield invalid("status.conditions", one, f"cannot set {one}=True and {other}=True conditions")
    is_finished = "Complete" in now or "Failed" in now
    if is_finished and after.get("active"):
        yield invalid("status.active", after["active"], "active>0 is invalid for finished job")
    if after.get("completionTime") and "Complete" not in now:
        yield invalid("status.completionTime", after["completionTime"], "requires the Complete condition")
    if (after.get("failed") or 0) < (before.get("failed") or 0):
        yield invalid("status.failed", after.get("failed") or 0, "cannot decrease the failed counter")
    is_indexed = (new.get("spec") or {}).get("completionMode") == "Indexed"
    if not is_indexed and (after.get("succeeded") or 0) < (before.get("succeeded") or 0):
        yield invalid("status.succeeded", after.get("succeeded") or 0, "cannot decrease the succeeded counter")


def _true_conditions(status: Document) -> frozenset[str]:
    return frozenset(c.get("type") or "" for c in status.get("conditions") or () if c.get("status") == "True")


_OLD_LABELS = ("controller-uid", "job-name")
"""Written besides those with a prefix, for clients that are older than these (since 1.27)."""
_NAME_MAX = 63


def _with_own_selector(new: Document) -> None:
    """Let the job select pods by its uid, and its template carry what says whose pods they are.

    What a client says itself of these labels or of the selector stays; where it differs, the job is refused.
    Source: upstream `pkg/registry/batch/job/strategy.go`, `generateSelector`.
    """
    spec, meta = new["spec"], new["metadata"]
    template = dict(spec.get("template") or {})
    about = dict(template.get("metadata") or {})
    said = about.get("labels") or {}
    about["labels"] = {**said, **{name: value for name, value in _own_labels(meta).items() if name not in said}}
    template["metadata"] = about
    selector = dict(spec.get("selector") or {})
    selector["matchLabels"] = {CONTROLLER_UID: meta["uid"], **(selector.get("matchLabels") or {})}
    new["spec"] = {**spec, "selector": selector, "template": template}


def _own_labels(meta: Document) -> dict[str, str]:
    own = {CONTROLLER_UID: meta["uid"], JOB_NAME: meta["name"]}
    return own | dict(zip(_OLD_LABELS, own.values(), strict=True))


def _create(new: Document, ctx: WriteContext) -> None:
    if not new["spec"].get("manualSelector") and new["spec"].get("template") is not None:
        _with_own_selector(new)


def _generated(new: Document, at: str, report: Report) -> Causes:
    """Check that selector and labels are those that the server makes, unless the client selects by itself.

    Source: upstream `pkg/apis/batch/validation/validation.go`, `validateGeneratedSelector`.
    """
    spec = new["spec"]
    if report.update is not None or spec.get("manualSelector") or spec.get("selector") is None:
        return
    found, path = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}, "spec.template.metadata"
    wanted = _own_labels(new["metadata"])
    for name, value in wanted.items():
        if name not in found:
            yield required(f"{path}.labels[{name}]", f"must be '{value}'")
        elif found[name] != value:
            yield invalid(f"{path}.labels[{name}]", found, f"must be '{value}'")
    if not label_selector("", spec["selector"]) and not selects(spec["selector"], wanted):
        yield invalid("spec.selector", spec["selector"], "`selector` not auto-generated")


def _rules(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    spec = new["spec"]
    if old is not None:
        return check_update(old["spec"], spec, old.get("status") or {}, may_resize=ctx.switches.suspended_job_resources)
    if spec["completionMode"] != "Indexed":
        return []
    name = new["metadata"].get("name") or ""
    hostname = f"{name}-{max(0, (spec.get('completions') or 1) - 1)}"
    if len(hostname) <= _NAME_MAX:
        return []
    return [invalid("metadata.name", name, f"{hostname} will not be able to be a hostname: too long")]


STRATEGIES = {
    "jobs.batch": declared(
        Struct(_generated, Field("spec", default={}, struct=SPEC)),
        has_status=True,
        on_create=_create,
        rules=_rules,
        status=STATUS,
        status_rules=check_status,
        left_out_at_zero=("active", "succeeded", "failed"),
    )
}
