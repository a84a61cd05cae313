"""ReplicaSets: defaults, and a selector that matches the template and never changes."""

from __future__ import annotations

from apiserver_fake.strategy import Cause, Strategy, WriteContext, drop_status, keep_status
from apiserver_fake.validation.formats import immutable, metadata
from apiserver_fake.validation.pod import defaults as pod_defaults
from apiserver_fake.validation.pod import spec as pod_rules
from services.api.meta import Document


def with_defaults(spec: Document) -> Document:
    """Return a ReplicaSet's spec completed."""
    completed = {"replicas": 1, **spec}
    if template := spec.get("template"):
        completed["template"] = pod_defaults.template_with_defaults(template)
    return completed


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["spec"] = with_defaults(new.get("spec") or {})
    drop_status(new, ctx)


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    if new.get("spec") is not old.get("spec"):
        new["spec"] = with_defaults(new.get("spec") or {})


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes, spec = metadata(new), new["spec"]
    if old is not None and spec is old["spec"]:
        return causes
    causes += pod_rules.check_template(
        spec, "replicaset", comparing=ctx.switches.flag("TaintTolerationComparisonOperators")
    )
    if old is not None:
        causes += immutable("spec.selector", old["spec"].get("selector"), spec.get("selector"))
    return causes


STRATEGIES = {
    "replicasets.apps": Strategy(prepare_create=_prepare_create, prepare_update=_prepare_update, validate=_validate)
}
