"""Volumes: one source that never changes, a phase that the volume binder writes, protected while in use."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.strategy import WriteContext, keep_all_but_status
from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import Causes, forbidden, invalid, required
from apiserver_fake.validation.pod.placement import NODE_TERM
from apiserver_fake.validation.storage import ACCESS_MODES, STORAGE_CLASS, VOLUME_MODE, some_storage, with_finalizer
from services.api.meta import Document
from services.api.times import format_time

IN_USE_FINALIZER = "kubernetes.io/pv-protection"
SOURCES = (
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "glusterfs",
    "hostPath",
    "iscsi",
    "local",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
)


def _one_source(spec: Document, at: str, report: Report) -> Causes:
    named = [name for name in SOURCES if spec.get(name) is not None]
    if not named:
        yield required("spec", "must specify a volume type")
    yield from [forbidden(f"spec.{name}", "may not specify more than 1 volume type") for name in named[1:]]


def _local_needs_affinity(spec: Document, at: str, report: Report) -> Causes:
    if spec.get("nodeAffinity") is None and spec.get("local") is not None:
        yield required("metadata.annotations", "Local volume requires node affinity")


NODE_TERMS = Field(
    "nodeSelectorTerms", required="must have at least one node selector term", missing=[], items=NODE_TERM
)
AFFINITY = Struct(Field("required", required="must specify required node constraints", struct=Struct(NODE_TERMS)))
CSI = Struct(Field("driver", required=True), Field("volumeHandle", required=True))
SPEC = Struct(
    ACCESS_MODES,
    Field("capacity", missing={}, rule=some_storage),
    Field("persistentVolumeReclaimPolicy", default="Retain", enum=("Delete", "Recycle", "Retain")),
    VOLUME_MODE,
    STORAGE_CLASS,
    _one_source,
    Field("csi", struct=CSI),
    _local_needs_affinity,
    Field("nodeAffinity", struct=AFFINITY),
)


def _create(new: Document, ctx: WriteContext) -> None:
    new["status"] = {"phase": "Pending", "lastPhaseTransitionTime": format_time(ctx.wall_s)}
    new["metadata"] = with_finalizer(new, IN_USE_FINALIZER)


def _prepare_status(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_all_but_status(old, new, ctx)
    before, status = old.get("status") or {}, new.get("status") or {}
    if status.get("phase") != before.get("phase"):
        new["status"] = {**status, "lastPhaseTransitionTime": format_time(ctx.wall_s)}


def _same_volume(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    if old is None:
        return
    before, spec = old["spec"], new["spec"]
    if any(before.get(name) != spec.get(name) for name in SOURCES):
        yield forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation")
    if before.get("nodeAffinity") is not None and before["nodeAffinity"] != spec.get("nodeAffinity"):
        text = "field is immutable, except for updating from beta label to GA"
        yield invalid("spec.nodeAffinity", spec.get("nodeAffinity"), text)


STRATEGIES = {
    "persistentvolumes": declared(
        Struct(Field("spec", default={}, struct=SPEC)),
        has_status=True,
        on_create=_create,
        rules=_same_volume,
        prepare_status=_prepare_status,
    )
}
