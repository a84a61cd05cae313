"""Secrets: `stringData` is folded into `data`, values are base64, the type never changes."""

from __future__ import annotations

import base64

from apiserver_fake.registry.strategies.configmap import base64_values, frozen, keys
from apiserver_fake.strategy import Cause, Strategy, WriteContext
from apiserver_fake.validation.formats import immutable, metadata
from services.api.meta import Document


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["type"] = new.get("type") or "Opaque"
    if plain := new.pop("stringData", None):
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in plain.items()}
        new["data"] = {**(new.get("data") or {}), **encoded}


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    if not new.get("type"):
        new["type"] = old.get("type") or "Opaque"
    _prepare_create(new, ctx)


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    data = new.get("data") or {}
    causes = metadata(new) + keys("data", data) + base64_values("data", data)
    if old is not None:
        causes += immutable("type", old.get("type"), new.get("type"))
    return causes + frozen(old, new, ("data",))


STRATEGIES = {"secrets": Strategy(prepare_create=_prepare_create, prepare_update=_prepare_update, validate=_validate)}
