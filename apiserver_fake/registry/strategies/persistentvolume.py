"""Volumes: one source that never changes, a phase that the volume binder writes, protected while in use."""

from __future__ import annotations

from apiserver_fake.strategy import Cause, Strategy, WriteContext, keep_all_but_status, keep_status
from apiserver_fake.validation.formats import forbidden, immutable, invalid, metadata, required, subdomain
from apiserver_fake.validation.pod.placement import check_node_term
from apiserver_fake.validation.storage import VOLUME_MODES, check_choice, check_modes, check_storage, with_finalizer
from services.api.meta import Document
from services.api.times import format_time

IN_USE_FINALIZER = "kubernetes.io/pv-protection"
SOURCES = (
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc", "flexVolume", "flocker",
    "gcePersistentDisk", "glusterfs", "hostPath", "iscsi", "local", "nfs", "photonPersistentDisk", "portworxVolume",
    "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume",
)  # fmt: skip
_POLICIES = ("Delete", "Recycle", "Retain")


def _with_defaults(spec: Document) -> Document:
    return {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem", **spec}


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["spec"] = _with_defaults(new.get("spec") or {})
    new["status"] = {"phase": "Pending", "lastPhaseTransitionTime": format_time(ctx.wall_s)}
    new["metadata"] = with_finalizer(new, IN_USE_FINALIZER)


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    if new.get("spec") is not old.get("spec"):
        new["spec"] = _with_defaults(new.get("spec") or {})


def _prepare_status(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_all_but_status(old, new, ctx)
    before, status = old.get("status") or {}, new.get("status") or {}
    if status.get("phase") != before.get("phase"):
        new["status"] = {**status, "lastPhaseTransitionTime": format_time(ctx.wall_s)}


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes, spec = metadata(new), new["spec"]
    causes += check_modes(spec.get("accessModes") or [], "spec.accessModes")
    causes += check_storage(spec.get("capacity") or {}, "spec.capacity")
    causes += check_choice(spec, "persistentVolumeReclaimPolicy", _POLICIES, "spec.")
    causes += check_choice(spec, "volumeMode", VOLUME_MODES, "spec.")
    if spec.get("storageClassName"):
        causes += subdomain("spec.storageClassName", spec["storageClassName"])
    causes += _check_source(spec)
    _check_affinity(spec, causes)
    return causes if old is None else causes + _check_update(old["spec"], spec)


def _check_source(spec: Document) -> list[Cause]:
    named = [name for name in SOURCES if spec.get(name) is not None]
    if not named:
        return [required("spec", "must specify a volume type")]
    causes = [forbidden(f"spec.{name}", "may not specify more than 1 volume type") for name in named[1:]]
    if csi := spec.get("csi"):
        causes += [required(f"spec.csi.{name}") for name in ("driver", "volumeHandle") if not csi.get(name)]
    return causes


def _check_affinity(spec: Document, causes: list[Cause]) -> None:
    affinity, at = spec.get("nodeAffinity"), "spec.nodeAffinity.required"
    if affinity is None:
        if spec.get("local") is not None:
            causes.append(required("metadata.annotations", "Local volume requires node affinity"))
        return
    terms = (affinity.get("required") or {}).get("nodeSelectorTerms") or []
    if affinity.get("required") is None:
        causes.append(required(at, "must specify required node constraints"))
    elif not terms:
        causes.append(required(f"{at}.nodeSelectorTerms", "must have at least one node selector term"))
    for index, term in enumerate(terms):
        check_node_term(term, f"{at}.nodeSelectorTerms[{index}]", causes)


def _check_update(before: Document, spec: Document) -> list[Cause]:
    causes = immutable("spec.volumeMode", before.get("volumeMode", "Filesystem"), spec["volumeMode"])
    if any(before.get(name) != spec.get(name) for name in SOURCES):
        text = "spec.persistentvolumesource is immutable after creation"
        causes.append(forbidden("spec.persistentvolumesource", text))
    if before.get("nodeAffinity") is not None and before["nodeAffinity"] != spec.get("nodeAffinity"):
        text = "field is immutable, except for updating from beta label to GA"
        causes.append(invalid("spec.nodeAffinity", spec.get("nodeAffinity"), text))
    return causes


STRATEGIES = {
    "persistentvolumes": Strategy(
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        prepare_status=_prepare_status,
    )
}
