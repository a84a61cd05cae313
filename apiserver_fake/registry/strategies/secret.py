"""Secrets: `stringData` is folded into `data`, values are base64, the type never changes."""

from __future__ import annotations

import base64

from apiserver_fake.registry.declared import declared
from apiserver_fake.registry.strategies.configmap import base64_values, frozen, keys
from apiserver_fake.strategy import WriteContext
from apiserver_fake.validation.fields import Field, Struct
from services.api.meta import Document


def _fold(new: Document) -> None:
    if plain := new.pop("stringData", None):
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in plain.items()}
        new["data"] = {**(new.get("data") or {}), **encoded}


def _keep_type(old: Document, new: Document, ctx: WriteContext) -> None:
    if not new.get("type"):
        new["type"] = old.get("type") or "Opaque"


FIELDS = Struct(
    Field("data", rule=keys),
    Field("data", rule=base64_values),
    Field("type", default="Opaque", is_blank_absent=True, is_immutable=True),
    completion=_fold,
)
STRATEGIES = {"secrets": declared(FIELDS, before_update=_keep_type, rules=frozen("data"))}
