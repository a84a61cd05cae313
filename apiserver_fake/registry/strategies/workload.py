"""Workloads: up to eight templates, none added or removed later; the controller reference is set once."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.registry.strategies.podgroup import GROUP, require_gate, unchanged_group, with_priority
from apiserver_fake.strategy import WriteContext, drop_status
from apiserver_fake.validation.fields import Field, Struct, unique
from apiserver_fake.validation.formats import Causes, forbidden, immutable, label, subdomain
from services.api.kinds.workload import TEMPLATES_MAX
from services.api.meta import Document

AT = "spec.podGroupTemplates"
TEMPLATE = Struct(Field("name", required=True, form=label), unique("name"), *GROUP)
REFERENCE = Struct(Field("apiGroup", form=subdomain), Field("kind", required=True), Field("name", required=True))
SPEC = Struct(
    Field(
        "podGroupTemplates",
        required="must have at least one template",
        missing=[],
        most=TEMPLATES_MAX,
        items=TEMPLATE,
    ),
    Field("controllerRef", struct=REFERENCE),
)


def _templates(spec: Document) -> list[Document]:
    found: list[Document] = spec.get("podGroupTemplates") or []
    return found


def _create(new: Document, ctx: WriteContext) -> None:
    drop_status(new, ctx)
    templates = [with_priority(new, each, ctx) for each in _templates(new["spec"])]
    new["spec"] = {**new["spec"], "podGroupTemplates": templates}


def _unchanged(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    if old is None:
        return
    before, after = old.get("spec") or {}, new["spec"]
    if before.get("controllerRef") is not None:
        yield from immutable("spec.controllerRef", before["controllerRef"], after.get("controllerRef"))
    was, now = ({each.get("name"): each for each in _templates(spec)} for spec in (before, after))
    if list(was) != list(now):
        yield forbidden(AT, "templates may not be added, removed or reordered")
        return
    for index, name in enumerate(was):
        yield from unchanged_group(was[name], now[name], f"{AT}[{index}]")


STRATEGIES = {
    "workloads.scheduling.k8s.io": declared(
        Struct(Field("spec", default={}, struct=SPEC)),
        before_create=require_gate,
        on_create=_create,
        rules=_unchanged,
    )
}
