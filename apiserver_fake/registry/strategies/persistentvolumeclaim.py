"""Claims: the default class, what is left to change once made, protected while a pod uses them."""

from __future__ import annotations

from apiserver_fake.admission.limit_ranger import check_claim
from apiserver_fake.strategy import Cause, Strategy, WriteContext, keep_status
from apiserver_fake.validation.formats import forbidden, label_selector, metadata, subdomain
from apiserver_fake.validation.storage import (
    STORAGE_CLASSES,
    VOLUME_MODES,
    check_choice,
    check_modes,
    check_storage,
    with_finalizer,
)
from services.api.kinds.persistentvolume import CLASS_ANNOTATION
from services.api.kinds.persistentvolumeclaim import IN_USE_FINALIZER
from services.api.kinds.storageclass import IS_DEFAULT
from services.api.meta import Document
from services.api.quantity import units

_CHANGEABLE = ("resources", "volumeAttributesClassName")


def _with_defaults(spec: Document) -> Document:
    return {"volumeMode": "Filesystem", **spec}


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    spec = _with_defaults(new.get("spec") or {})
    annotations = new["metadata"].get("annotations") or {}
    if spec.get("storageClassName") is None and CLASS_ANNOTATION not in annotations:
        name = _default_class(ctx)
        if name:
            spec["storageClassName"] = name
    new["spec"] = spec
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


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    if new.get("spec") is not old.get("spec"):
        new["spec"] = _with_defaults(new.get("spec") or {})


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes, spec = metadata(new), new["spec"]
    causes += check_modes(spec.get("accessModes") or [], "spec.accessModes")
    causes += check_storage((spec.get("resources") or {}).get("requests") or {}, "spec.resources.requests")
    causes += check_choice(spec, "volumeMode", VOLUME_MODES, "spec.")
    if spec.get("storageClassName"):
        causes += subdomain("spec.storageClassName", spec["storageClassName"])
    if spec.get("selector"):
        causes += label_selector("spec.selector", spec["selector"])
    return causes if old is None or causes else _check_update(old, new, ctx)


def _check_update(old: Document, new: Document, ctx: WriteContext) -> list[Cause]:
    before, spec = old["spec"], new["spec"]
    fixed = dict.fromkeys(name for name in (*before, *spec) if name not in _CHANGEABLE)
    changed = [name for name in fixed if before.get(name) != spec.get(name)]
    # Binding writes the volume's name once; a class may be named later, when one became the default (KEP-3333).
    is_late = ("volumeName", "storageClassName")
    if any(name not in is_late or before.get(name) for name in changed):
        text = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        return [forbidden("spec", text)]
    was, wanted = (each["resources"]["requests"]["storage"] for each in (before, spec))
    if units(wanted) == units(was):
        return []
    if units(wanted) < units(was):
        return [forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")]
    if (old.get("status") or {}).get("phase") != "Bound" or not _may_grow(spec, ctx):
        text = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
            "support resize"
        )
        return [forbidden("spec.resources.requests.storage", text)]
    return []


def _may_grow(spec: Document, ctx: WriteContext) -> bool:
    found = ctx.lookup(STORAGE_CLASSES, "", spec.get("storageClassName") or "")
    return found is not None and bool(found.get("allowVolumeExpansion"))


STRATEGIES = {
    "persistentvolumeclaims": Strategy(
        prepare_create=_prepare_create, prepare_update=_prepare_update, validate=_validate, check_bounds=check_claim
    )
}
