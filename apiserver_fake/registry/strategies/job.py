"""Jobs: defaults, a selector of their own, and a spec of which little changes (batch/v1)."""

from __future__ import annotations

import apiserver_fake.validation.job as job_rules
from apiserver_fake.strategy import Cause, Strategy, WriteContext, drop_status, keep_status
from apiserver_fake.validation.formats import invalid, metadata
from apiserver_fake.validation.pod import defaults as pod_defaults
from services.api.kinds.job import CONTROLLER_UID, JOB_NAME
from services.api.meta import Document

_OLD_LABELS = ("controller-uid", "job-name")
"""Written besides those with a prefix, for clients that are older than these (since 1.27)."""
_NO_LIMIT = 2**31 - 1
_NAME_MAX = 63


def _with_defaults(spec: Document) -> Document:
    has_limit_per_index = spec.get("backoffLimitPerIndex") is not None
    completed: Document = {
        "parallelism": 1,
        **({"completions": 1} if spec.get("parallelism") is None and spec.get("completions") is None else {}),
        "backoffLimit": _NO_LIMIT if has_limit_per_index else 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed",
        **{name: value for name, value in spec.items() if value is not None},
    }
    if policy := completed.get("podFailurePolicy"):
        rules = [_with_statuses(rule) for rule in policy.get("rules") or ()]
        completed["podFailurePolicy"] = {**policy, "rules": rules}
    if template := completed.get("template"):
        completed["template"] = pod_defaults.template_with_defaults(template)
    return completed


def _with_statuses(rule: Document) -> Document:
    if not (patterns := rule.get("onPodConditions")):
        return rule
    return {**rule, "onPodConditions": [{"status": "True", **pattern} for pattern in patterns]}


def _with_own_selector(new: Document) -> None:
    """Let the job select pods by its uid, and its template carry what says whose pods they are."""
    spec, meta = new["spec"], new["metadata"]
    template = dict(spec.get("template") or {})
    about = dict(template.get("metadata") or {})
    ids = {CONTROLLER_UID: meta["uid"], JOB_NAME: meta["name"]}
    ids |= dict(zip(_OLD_LABELS, ids.values(), strict=True))
    about["labels"] = {**(about.get("labels") or {}), **ids}
    template["metadata"] = about
    new["spec"] = {**spec, "selector": {"matchLabels": {CONTROLLER_UID: meta["uid"]}}, "template": template}


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["spec"] = _with_defaults(new.get("spec") or {})
    if not new["spec"].get("manualSelector") and new["spec"].get("template") is not None:
        _with_own_selector(new)
    drop_status(new, ctx)


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    if new.get("spec") is not old.get("spec"):
        new["spec"] = _with_defaults(new.get("spec") or {})


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes, spec = metadata(new), new["spec"]
    if old is not None and spec is old["spec"]:
        return causes
    if old is None and spec["completionMode"] == "Indexed":
        name = new["metadata"].get("name") or ""
        hostname = f"{name}-{max(0, (spec.get('completions') or 1) - 1)}"
        if len(hostname) > _NAME_MAX:
            causes.append(invalid("metadata.name", name, f"{hostname} will not be able to be a hostname: too long"))
    causes += job_rules.check(spec, comparing=ctx.switches.flag("TaintTolerationComparisonOperators"))
    if old is not None:
        causes += job_rules.check_update(old["spec"], spec, old.get("status") or {})
    return causes


def _validate_status(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    return job_rules.check_status(old or {}, new)


STRATEGIES = {
    "jobs.batch": Strategy(
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_status=_validate_status,
    )
}
