"""What claims for volumes ask for, wherever they stand: by themselves, or as the template of a pod's own volume.

Source: upstream `pkg/apis/core/validation/validation.go` (v1.36): `ValidatePersistentVolumeClaimSpec`,
`ValidatePersistentVolumeClaimTemplate`.
"""

from dataclasses import replace

from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import (
    Causes,
    annotations,
    forbidden,
    invalid,
    label_selector,
    labels,
    quantity,
    required,
    subdomain,
    unsupported,
)
from services.api.kinds.persistentvolume import MODES
from services.api.meta import Document
from services.api.quantity import units


def _access_modes(modes: list[str], path: str, report: Report) -> Causes:
    yield from [unsupported(path, mode, sorted(MODES)) for mode in modes if mode not in MODES]
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
CLAIM_SPEC = Struct(
    ACCESS_MODES,
    Field("resources", missing={}, struct=Struct(Field("requests", missing={}, rule=some_storage))),
    replace(VOLUME_MODE, is_immutable=False),
    STORAGE_CLASS,
    Field("selector", form=label_selector),
)


def _only_labels_and_annotations(metadata: Document, at: str, report: Report) -> Causes:
    for name, value in metadata.items():
        if value and name not in ("annotations", "labels"):
            yield forbidden(f"{at}{name}", "cannot be set")


CLAIM_TEMPLATE = Struct(
    Field(
        "metadata",
        struct=Struct(
            Field("annotations", form=annotations), Field("labels", form=labels), _only_labels_and_annotations
        ),
    ),
    Field("spec", missing={}, struct=CLAIM_SPEC),
)
"""The claim that is made for a pod's own volume (KEP-1698)."""
