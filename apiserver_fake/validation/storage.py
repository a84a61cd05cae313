"""Rules that volumes and claims share: access modes, modes of use, amounts, and the defaults of both."""

from __future__ import annotations

from collections.abc import Iterable

from apiserver_fake.strategy import Cause
from apiserver_fake.validation.formats import forbidden, invalid, quantity, required, unsupported
from services.api.kinds.persistentvolume import MODES
from services.api.meta import Document
from services.api.quantity import units

STORAGE_CLASSES = "storageclasses.storage.k8s.io"
VOLUME_MODES = ("Block", "Filesystem")


def with_finalizer(document: Document, finalizer: str) -> Document:
    """Return the metadata with the finalizer (admission plugin StorageObjectInUseProtection)."""
    meta: Document = document["metadata"]
    finalizers = list(meta.get("finalizers") or ())
    return meta if finalizer in finalizers else {**meta, "finalizers": [*finalizers, finalizer]}


def check_modes(modes: list[str], at: str) -> list[Cause]:
    """Check access modes; ReadWriteOncePod stands alone."""
    if not modes:
        return [required(at, "at least 1 access mode is required")]
    causes = [unsupported(at, mode, MODES) for mode in modes if mode not in MODES]
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        causes.append(forbidden(at, "may not use ReadWriteOncePod with other access modes"))
    return causes


def check_storage(amounts: Document, at: str) -> list[Cause]:
    """Check a map that must say how much storage, and more than none."""
    text = amounts.get("storage")
    if text is None:
        return [required(f"{at}[storage]")]
    causes = quantity(f"{at}[storage]", "storage", text)
    if not causes and units(text) <= 0:
        causes.append(invalid(f"{at}[storage]", text, "must be greater than zero"))
    return causes


def check_choice(holder: Document, name: str, values: Iterable[str], at: str) -> list[Cause]:
    """Check an optional field with a fixed set of values."""
    value = holder.get(name)
    return [] if value is None or value in tuple(values) else [unsupported(f"{at}{name}", value, values)]
