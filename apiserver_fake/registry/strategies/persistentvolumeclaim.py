"""Claims: the default class, what is left to change once made, protected while a pod uses them."""

from __future__ import annotations

from dataclasses import replace

from apiserver_fake.admission.limit_ranger import check_claim
from apiserver_fake.registry.declared import declared
from apiserver_fake.strategy import WriteContext
from apiserver_fake.validation.fields import Field, Struct
from apiserver_fake.validation.formats import Cause, forbidden, label_selector
from apiserver_fake.validation.storage import (
    ACCESS_MODES,
    STORAGE_CLASS,
    STORAGE_CLASSES,
    VOLUME_MODE,
    some_storage,
    with_finalizer,
)
from services.api.kinds.persistentvolume import CLASS_ANNOTATION
from services.api.kinds.persistentvolumeclaim import IN_USE_FINALIZER
from services.api.kinds.storageclass import IS_DEFAULT
from services.api.meta import Document
from services.api.quantity import units

CHANGEABLE = ("resources", "volumeAttributesClassName")
SPEC = Struct(
    ACCESS_MODES,
    Field("resources", missing={}, struct=Struct(Field("requests", missing={}, rule=some_storage))),
    replace(VOLUME_MODE, is_immutable=False),
    STORAGE_CLASS,
    Field("selector", form=label_selector),
)
FIXED_TEXT = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
NO_GROWTH_TEXT = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
)


def _create(new: Document, ctx: WriteContext) -> None:
    spec, annotations = new["spec"], new["metadata"].get("annotations") or {}
    if spec.get("storageClassName") is None and CLASS_ANNOTATION not in annotations and (name := _default_class(ctx)):
        spec["storageClassName"] = name
    new["status"] = {"phase": "Pending"}
    new["metadata"] = with_finalizer(new, IN_USE_FINALIZER)


def _default_class(ctx: WriteContext) -> str:
    """Return the newest class marked as the default, by name among equals (admission DefaultStorageClass)."""
    defaults = [
        each
        for each in ctx.list(STORAGE_CLASSES, "")
        if (each["metadata"].get("annotations") or {}).get(IS_DEFAULT) == "true"
    ]
    # Sorted twice, because one key counts down.
    defaults.sort(key=lambda each: str(each["metadata"]["name"]))
    defaults.sort(key=lambda each: str(each["metadata"].get("creationTimestamp") or ""), reverse=True)
    return str(defaults[0]["metadata"]["name"]) if defaults else ""


def _check_update(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    if old is None:
        return []
    before, spec = old["spec"], new["spec"]
    fixed = dict.fromkeys(name for name in (*before, *spec) if name not in CHANGEABLE)
    changed = [name for name in fixed if before.get(name) != spec.get(name)]
    # Binding writes the volume's name once; a class may be named later, when one became the default (KEP-3333).
    is_late = ("volumeName", "storageClassName")
    if any(name not in is_late or before.get(name) for name in changed):
        return [forbidden("spec", FIXED_TEXT)]
    was, wanted = (units(each["resources"]["requests"]["storage"]) for each in (before, spec))
    if wanted < was:
        return [forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")]
    if wanted > was and ((old.get("status") or {}).get("phase") != "Bound" or not _may_grow(spec, ctx)):
        return [forbidden("spec.resources.requests.storage", NO_GROWTH_TEXT)]
    return []


def _may_grow(spec: Document, ctx: WriteContext) -> bool:
    found = ctx.lookup(STORAGE_CLASSES, "", spec.get("storageClassName") or "")
    return found is not None and bool(found.get("allowVolumeExpansion"))


STRATEGIES = {
    "persistentvolumeclaims": declared(
        Struct(Field("spec", default={}, struct=SPEC)),
        has_status=True,
        on_create=_create,
        rules=_check_update,
        rules_need_valid=True,
        check_bounds=check_claim,
    )
}
