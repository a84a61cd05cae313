"""Rules that volumes and claims share: access modes, modes of use, amounts, and the defaults of both."""

from __future__ import annotations

from apiserver_fake.validation.fields import Field, Report
from apiserver_fake.validation.formats import (
    Causes,
    forbidden,
    invalid,
    quantity,
    required,
    subdomain,
    unsupported,
)
from services.api.kinds.persistentvolume import MODES
from services.api.meta import Document
from services.api.quantity import units

STORAGE_CLASSES = "storageclasses.storage.k8s.io"


def with_finalizer(document: Document, finalizer: str) -> Document:
    """Return the metadata with the finalizer (admission plugin StorageObjectInUseProtection)."""
    meta: Document = document["metadata"]
    finalizers = list(meta.get("finalizers") or ())
    return meta if finalizer in finalizers else {**meta, "finalizers": [*finalizers, finalizer]}


def _access_modes(modes: list[str], path: str, report: Report) -> Causes:
    yield from [unsupported(path, mode, MODES) for mode in modes if mode not in MODES]
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield forbidden(path, "may not use ReadWriteOncePod with other access modes")


def some_storage(amounts: Document, path: str, report: Report) -> Causes:
    """Check a map that must say how much storage, and more than none."""
    text = amounts.get("storage")
    if text is None:
        yield required(f"{path}[storage]")
        return
    wrong = quantity(f"{path}[storage]", "storage", text)
    if not wrong and units(text) <= 0:
        wrong.append(invalid(f"{path}[storage]", text, "must be greater than zero"))
    yield from wrong


ACCESS_MODES = Field("accessModes", required="at least 1 access mode is required", missing=[], rule=_access_modes)
VOLUME_MODE = Field("volumeMode", default="Filesystem", enum=("Block", "Filesystem"), is_immutable=True)
STORAGE_CLASS = Field("storageClassName", form=subdomain)
