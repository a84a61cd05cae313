"""Events: about an object of their own namespace, and readable without surprises."""

from __future__ import annotations

from apiserver_fake.strategy import Cause, Strategy, WriteContext
from apiserver_fake.validation.formats import invalid, metadata, plain_text
from services.api.meta import Document

_MESSAGE_MAX = 4096


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["message"] = (new.get("message") or "")[:_MESSAGE_MAX]


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    _prepare_create(new, ctx)


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes = metadata(new)
    about, own = (new.get("involvedObject") or {}).get("namespace") or "", new["metadata"].get("namespace") or ""
    # Events about cluster-scoped objects name no namespace and live in default (or kube-system).
    if about != own and not (about == "" and own in ("default", "kube-system")):
        causes.append(invalid("involvedObject.namespace", about, "does not match event.namespace"))
    for name in ("reason", "message"):
        causes += plain_text(name, new.get(name) or "")
    return causes


STRATEGIES = {"events": Strategy(prepare_create=_prepare_create, prepare_update=_prepare_update, validate=_validate)}
