"""Device classes: may change at any time; what was allocated keeps the configuration it was given (KEP-4381)."""

from __future__ import annotations

from apiserver_fake.strategy import Cause, Strategy, WriteContext
from apiserver_fake.validation.device import LIST_MAX, beyond, check_opaque, check_selectors
from apiserver_fake.validation.formats import metadata, too_many
from services.api.kinds.deviceclass import CLASSES
from services.api.meta import Document


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["spec"] = new.get("spec") or {}


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    new["spec"] = new.get("spec") or {}


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    spec = new["spec"]
    causes = metadata(new) + beyond(spec, ("extendedResourceName",), "spec")
    causes += check_selectors(spec.get("selectors") or [], "spec.selectors")
    configs = spec.get("config") or []
    causes += too_many("spec.config", len(configs), LIST_MAX)
    for index, each in enumerate(configs[:LIST_MAX]):
        causes += check_opaque(each, f"spec.config[{index}]")
    return causes


STRATEGIES = {CLASSES: Strategy(prepare_create=_prepare_create, prepare_update=_prepare_update, validate=_validate)}
