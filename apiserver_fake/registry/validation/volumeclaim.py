"""Validation of the spec of PersistentVolumeClaims, also as the template of a pod's ephemeral volume.

Source: upstream `pkg/apis/core/validation/validation.go` (v1.36): `ValidatePersistentVolumeClaimSpec`,
`ValidatePersistentVolumeClaimTemplate`.
"""

from dataclasses import replace

from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    QUANTITY_TEXT,
    Causes,
    annotations,
    forbidden,
    invalid,
    label,
    label_selector,
    labels,
    not_supported,
    quantity,
    required,
    subdomain,
)
from services.api.kinds.persistentvolume import MODES
from services.api.meta import Document
from services.api.quantity import units


def _access_modes(modes: list[str], path: str, report: Report) -> Causes:
    yield from [not_supported(path, mode, sorted(MODES)) for mode in modes if mode not in MODES]
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield forbidden(path, "may not use ReadWriteOncePod with other access modes")


def _storage(spec: Document, at: str, report: Report) -> Causes:
    """Check that a claim says how much storage, and more than none; requests are not named in the path, as upstream."""
    resources = spec.get("resources") or {}
    for part in ("requests", "limits"):
        for name, other in (resources.get(part) or {}).items():
            # Of other resources it is only asked whether they can be counted.
            if (part, name) != ("requests", "storage"):
                causes = quantity(f"{at}resources.{part}[{name}]", name, other)
                yield from (each for each in causes if QUANTITY_TEXT in each.message)
    text, path = (resources.get("requests") or {}).get("storage"), f"{at}resources[storage]"
    if text is None:
        yield required(path)
        return
    wrong = [each for each in quantity(path, "storage", text) if "greater than or equal" not in each.message]
    if not wrong and units(text) <= 0:
        wrong.append(invalid(path, text, "must be greater than zero"))
    yield from wrong


def _source(source: Document, path: str, report: Report) -> Causes:
    group, kind = source.get("apiGroup") or "", source.get("kind") or ""
    for name in ("name", "kind"):
        if not source.get(name):
            yield required(f"{path}.{name}")
    if not group and kind != "PersistentVolumeClaim":
        yield invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
    if group:
        yield from subdomain(f"{path}.apiGroup", group)
    if source.get("namespace"):
        yield from label(f"{path}.namespace", source["namespace"])


def _one_source(spec: Document, at: str, report: Report) -> Causes:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is None or reference is None:
        return
    if reference.get("namespace"):
        yield invalid(at[:-1], {}, "may not be specified when dataSourceRef.namespace is specified")
    elif any((source.get(name) or "") != (reference.get(name) or "") for name in ("apiGroup", "kind", "name")):
        yield invalid(at[:-1], {}, "must match dataSourceRef")


ACCESS_MODES = Field("accessModes", required="at least 1 access mode is required", missing=[], rule=_access_modes)
VOLUME_MODE = Field("volumeMode", default="Filesystem", enum=("Block", "Filesystem"), is_immutable=True)
STORAGE_CLASS = Field("storageClassName", form=subdomain)
CLAIM_SPEC = Struct(
    replace(ACCESS_MODES, rule=None),
    Field("selector", form=label_selector),
    Field("accessModes", rule=_access_modes),
    _storage,
    STORAGE_CLASS,
    replace(VOLUME_MODE, is_immutable=False),
    Field("dataSource", rule=_source),
    Field("dataSourceRef", rule=_source),
    _one_source,
    Field("volumeAttributesClassName", form=subdomain),
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
"""Field table of the claim template of a pod's ephemeral volume (KEP-1698)."""
