"""Jobs: defaults, a selector of their own, and a spec of which little changes (batch/v1)."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.strategy import WriteContext
from apiserver_fake.validation.fields import Field, Struct
from apiserver_fake.validation.formats import Causes, invalid
from apiserver_fake.validation.job import SPEC, STATUS, check_status, check_update
from services.api.kinds.job import CONTROLLER_UID, JOB_NAME
from services.api.meta import Document

_OLD_LABELS = ("controller-uid", "job-name")
"""Written besides those with a prefix, for clients that are older than these (since 1.27)."""
_NAME_MAX = 63


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


def _create(new: Document, ctx: WriteContext) -> None:
    if not new["spec"].get("manualSelector") and new["spec"].get("template") is not None:
        _with_own_selector(new)


def _rules(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    spec = new["spec"]
    if old is not None:
        return check_update(old["spec"], spec, old.get("status") or {})
    if spec["completionMode"] != "Indexed":
        return []
    name = new["metadata"].get("name") or ""
    hostname = f"{name}-{max(0, (spec.get('completions') or 1) - 1)}"
    if len(hostname) <= _NAME_MAX:
        return []
    return [invalid("metadata.name", name, f"{hostname} will not be able to be a hostname: too long")]


STRATEGIES = {
    "jobs.batch": declared(
        Struct(Field("spec", default={}, struct=SPEC)),
        has_status=True,
        on_create=_create,
        rules=_rules,
        status=STATUS,
        status_rules=check_status,
    )
}
