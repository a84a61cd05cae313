"""Common writes of controllers: a patch of a part of an object, its status, conditions, the owner reference."""

from collections.abc import Iterable

import msgspec

from services.api.meta import Document, View
from services.api.resources import resource_of_view
from services.reconcile.actions import Described, Patch


def patch(
    resource: str,
    about: Described,
    change: Document,
    subresource: str = "",
    *,
    on_version: bool = False,
    is_strategic: bool = False,
) -> Patch:
    """Return a patch guarded by the object's uid; `on_version`: also by the version that was read."""
    meta = about.metadata
    version = meta.resource_version if on_version else ""
    return Patch(resource, meta.key, change, subresource, "strategic" if is_strategic else "merge", meta.uid, version)


def finalizers(resource: str, about: Described, wanted: Iterable[str]) -> Patch:
    """Return the write of an object's finalizers. It replaces the whole list, so the version that was read guards
    it.
    """
    return patch(resource, about, {"metadata": {"finalizers": list(wanted) or None}}, on_version=True)


def status(resource: str, about: Described, wanted: Document, *, on_version: bool = False) -> Patch:
    """Return the write of these fields of the object's status."""
    return patch(resource, about, {"status": wanted}, "status", on_version=on_version)


def conditions(resource: str, about: Described, *wanted: Document, on_version: bool = False) -> Patch:
    """Return the write of these conditions; those of other types stay."""
    change = {"status": {"conditions": list(wanted)}}
    return patch(resource, about, change, "status", on_version=on_version, is_strategic=True)


def differing(held: View, wanted: Document) -> Document:
    """Return the fields of `wanted`, by their JSON names, that differ from the stored status."""
    asked = msgspec.convert(wanted, type(held))
    fields = dict(zip(held.__struct_encode_fields__, held.__struct_fields__, strict=True))
    return {name: each for name, each in wanted.items() if getattr(asked, fields[name]) != getattr(held, fields[name])}


def controller_reference(owner: Described) -> Document:
    """Return the owner reference that makes `owner`, of a registered kind, an object's controller."""
    resource = resource_of_view(type(owner))  # type: ignore[arg-type]  # a view, as it has metadata
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
