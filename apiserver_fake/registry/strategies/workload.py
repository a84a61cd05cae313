"""Workloads: up to eight templates, none added or removed later; the controller reference is set once."""

from __future__ import annotations

from apiserver_fake.registry.strategies.podgroup import check_group, require_gate, unchanged_group, with_priority
from apiserver_fake.strategy import Cause, Strategy, WriteContext, drop_status
from apiserver_fake.validation.formats import (
    duplicate,
    forbidden,
    immutable,
    label,
    metadata,
    required,
    subdomain,
    too_many,
)
from services.api.kinds.workload import TEMPLATES_MAX
from services.api.meta import Document

_AT = "spec.podGroupTemplates"


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    require_gate(ctx)
    drop_status(new, ctx)
    spec = dict(new.get("spec") or {})
    spec["podGroupTemplates"] = [with_priority(new, dict(each), ctx) for each in spec.get("podGroupTemplates") or []]
    new["spec"] = spec


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    new["spec"] = dict(new.get("spec") or {})


def _templates(spec: Document) -> list[Document]:
    found: list[Document] = spec.get("podGroupTemplates") or []
    return found


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes, spec = metadata(new), new["spec"]
    templates = _templates(spec)
    if not templates:
        causes.append(required(_AT, "must have at least one template"))
    causes += too_many(_AT, len(templates), TEMPLATES_MAX)
    names: set[str] = set()
    for index, template in enumerate(templates[:TEMPLATES_MAX]):
        here = f"{_AT}[{index}]"
        name = template.get("name") or ""
        causes += label(f"{here}.name", name) if name else [required(f"{here}.name")]
        if name in names:
            causes.append(duplicate(f"{here}.name", name))
        names.add(name)
        causes += check_group(template, here, ctx)
    causes += _check_reference(spec.get("controllerRef"))
    return causes if old is None else causes + _unchanged(old.get("spec") or {}, spec)


def _check_reference(reference: Document | None) -> list[Cause]:
    if reference is None:
        return []
    causes = subdomain("spec.controllerRef.apiGroup", reference["apiGroup"]) if reference.get("apiGroup") else []
    return causes + [required(f"spec.controllerRef.{name}") for name in ("kind", "name") if not reference.get(name)]


def _unchanged(old: Document, new: Document) -> list[Cause]:
    causes: list[Cause] = []
    if old.get("controllerRef") is not None:
        causes += immutable("spec.controllerRef", old["controllerRef"], new.get("controllerRef"))
    before = {each.get("name"): each for each in _templates(old)}
    after = {each.get("name"): each for each in _templates(new)}
    if list(before) != list(after):
        causes.append(forbidden(_AT, "templates may not be added, removed or reordered"))
        return causes
    for index, name in enumerate(before):
        causes += unchanged_group(before[name], after[name], f"{_AT}[{index}]")
    return causes


STRATEGIES = {
    "workloads.scheduling.k8s.io": Strategy(
        prepare_create=_prepare_create, prepare_update=_prepare_update, validate=_validate
    )
}
