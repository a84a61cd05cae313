"""Templates of claims: checked as the claims made from them will be, and never changed (KEP-4381)."""

from __future__ import annotations

from apiserver_fake.strategy import Cause, Strategy, WriteContext
from apiserver_fake.validation.claim import check_claim_spec, with_defaults
from apiserver_fake.validation.formats import immutable, labels, metadata, qualified_name
from services.api.meta import Document


def _with_defaults(new: Document) -> None:
    spec = new.get("spec") or {}
    new["spec"] = {**spec, "spec": with_defaults(spec.get("spec") or {})}


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    _with_defaults(new)


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    if new.get("spec") is not old.get("spec"):
        _with_defaults(new)


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    if old is not None:
        return metadata(new) + immutable("spec", old.get("spec"), new.get("spec"))
    spec = new["spec"]
    meta = spec.get("metadata") or {}
    causes = metadata(new) + labels("spec.metadata.labels", meta.get("labels") or {})
    for key in meta.get("annotations") or {}:
        causes += qualified_name("spec.metadata.annotations", key.lower())
    return causes + check_claim_spec(spec["spec"], "spec.spec")


STRATEGIES = {
    "resourceclaimtemplates.resource.k8s.io": Strategy(
        prepare_create=_prepare_create, prepare_update=_prepare_update, validate=_validate
    )
}
