"""CSIDrivers: upstream's defaults, and what a driver may not take back."""

from __future__ import annotations

from apiserver_fake.strategy import Cause, Strategy, WriteContext
from apiserver_fake.validation.formats import immutable, metadata, unsupported
from services.api.meta import Document

_MODES = ("Ephemeral", "Persistent")
_DEFAULTS: Document = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "volumeLifecycleModes": ["Persistent"],
    "requiresRepublish": False,
    "seLinuxMount": False,
}


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    spec = new.get("spec") or {}
    new["spec"] = {**spec, **{name: value for name, value in _DEFAULTS.items() if spec.get(name) is None}}


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    if new.get("spec") is not old.get("spec"):
        _prepare_create(new, ctx)


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes, spec = metadata(new), new["spec"]
    for index, mode in enumerate(spec["volumeLifecycleModes"]):
        if mode not in _MODES:
            causes.append(unsupported(f"spec.volumeLifecycleModes[{index}]", mode, _MODES))
    if old is not None:
        for name in ("attachRequired", "volumeLifecycleModes"):
            causes += immutable(f"spec.{name}", old["spec"].get(name), spec[name])
    return causes


STRATEGIES = {
    "csidrivers.storage.k8s.io": Strategy(
        prepare_create=_prepare_create, prepare_update=_prepare_update, validate=_validate
    )
}
