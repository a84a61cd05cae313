"""Validation of PersistentVolumes: capacity, the one source, and node affinity.

Source: upstream `pkg/apis/core/validation/validation.go`, `ValidatePersistentVolumeSpec` and what it calls.
"""

import posixpath
from dataclasses import replace

from apiserver_fake.registry.validation.fields import Check, Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    Cause,
    Causes,
    forbidden,
    invalid,
    label,
    not_supported,
    required,
    subdomain,
)
from apiserver_fake.registry.validation.pod.paths import no_backsteps
from apiserver_fake.registry.validation.pod.placement import NODE_TERM
from apiserver_fake.registry.validation.pod.volumes import SOURCES as POD_SOURCES
from apiserver_fake.registry.validation.pod.volumes import driver_name
from apiserver_fake.registry.validation.volumeclaim import ACCESS_MODES, STORAGE_CLASS, VOLUME_MODE
from services.api.meta import Document
from services.api.quantity import units


def _needs(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, required=True) for name in names)


def _of_pod(name: str) -> Field:
    return POD_SOURCES[name]


_SECRET = Field("secretRef", struct=Struct(*_needs("name", "namespace")))
_MONITORS = Field("monitors", required=True, missing=[])


def _endpoints(source: Document, at: str, report: Report) -> Causes:
    name = source.get("endpointsNamespace")
    if name == "":
        text = "if the endpointnamespace is set, it must be a valid namespace name"
        yield invalid(f"{at}endpointsNamespace", name, text)
    elif name is not None:
        yield from label(f"{at}endpointsNamespace", name)


def _secret_namespace(source: Document, at: str, report: Report) -> Causes:
    if source.get("secretNamespace") == "":
        yield required(f"{at}secretNamespace")


def _secret_reference(secret: Document, path: str, report: Report) -> Causes:
    for member, form in (("name", subdomain), ("namespace", label)):
        value = secret.get(member) or ""
        yield from form(f"{path}.{member}", value) if value else [required(f"{path}.{member}")]


def _local(source: Document, at: str, report: Report) -> Causes:
    path = source.get("path") or ""
    yield from no_backsteps(f"{at}path", path) if path else [required(f"{at}path")]


_PUBLISH_SECRETS = (
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
)
SOURCES = (
    _of_pod("hostPath"),
    _of_pod("gcePersistentDisk"),
    _of_pod("awsElasticBlockStore"),
    Field("glusterfs", struct=Struct(*_needs("endpoints", "path"), _endpoints)),
    _of_pod("flocker"),
    _of_pod("nfs"),
    Field("rbd", struct=Struct(_MONITORS, *_needs("image"))),
    _of_pod("quobyte"),
    Field("cephfs", struct=Struct(_MONITORS)),
    _of_pod("iscsi"),
    Field("cinder", struct=Struct(*_needs("volumeID"), _SECRET)),
    _of_pod("fc"),
    _of_pod("flexVolume"),
    Field("azureFile", struct=Struct(*_needs("secretName", "shareName"), _secret_namespace)),
    _of_pod("vsphereVolume"),
    _of_pod("photonPersistentDisk"),
    _of_pod("portworxVolume"),
    _of_pod("azureDisk"),
    Field("scaleIO", struct=Struct(*_needs("gateway", "system", "volumeName"))),
    Field("local", struct=Struct(_local)),
    Field(
        "storageos",
        struct=Struct(Field("volumeName", required=True, form=label), Field("volumeNamespace", form=label), _SECRET),
    ),
    Field(
        "csi",
        struct=Struct(
            Field("driver", required=True, rule=driver_name),
            *_needs("volumeHandle"),
            *(Field(name, rule=_secret_reference) for name in _PUBLISH_SECRETS),
        ),
    ),
)
"""The sources of a volume, in the order in which they are checked."""
_RULES: dict[str, Check | None] = {field.name: field.compile_check() for field in SOURCES}
_PATHS = {"gcePersistentDisk": "persistentDisk"}
_SECOND_PATHS = {"cephfs": "cephFS"}


def _one_source(spec: Document, at: str, report: Report) -> Causes:
    named = [name for name in _RULES if spec.get(name) is not None]
    if not named:
        yield required(at[:-1], "must specify a volume type")
    for index, name in enumerate(named):
        if index and name != "flexVolume":
            yield forbidden(f"{at}{_SECOND_PATHS.get(name, name)}", "may not specify more than 1 volume type")
        elif (rule := _RULES[name]) is not None:
            source_report = Report(report.switches)
            source_report.causes += rule(spec[name], f"{at}{_PATHS.get(name, name)}", source_report)
            yield from source_report.causes
            if name == "local" and spec.get("nodeAffinity") is None:
                yield required(f"{at}nodeAffinity", "Local volume requires node affinity")


def _capacity(amounts: Document, path: str, report: Report) -> Causes:
    if not amounts:
        yield required(path)
    if "storage" not in amounts or len(amounts) > 1:
        yield not_supported(path, amounts, ("storage",))
    for name, text in amounts.items():
        yield from _some(f"{path}[{name}]", text)


def _some(path: str, text: str) -> list[Cause]:
    try:
        value = units(text)
    except ValueError as error:
        return [invalid(path, text, str(error))]
    causes = [invalid(path, value, "must be a valid resource quantity")] if value < 0 else []
    return [*causes, invalid(path, text, "must be greater than zero")] if value <= 0 else causes


def _not_recycled(spec: Document, at: str, report: Report) -> Causes:
    source, policy = spec.get("hostPath"), spec.get("persistentVolumeReclaimPolicy")
    if source is not None and policy == "Recycle" and posixpath.normpath(source.get("path") or ".") in ("/", "//"):
        yield forbidden(f"{at}persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'")


def _attributes_class(spec: Document, at: str, report: Report) -> Causes:
    if (name := spec.get("volumeAttributesClassName")) is None:
        return
    path = f"{at}volumeAttributesClassName"
    yield from subdomain(path, name) if name else [required(path, "an empty string is disallowed")]
    if spec.get("csi") is None:
        yield required(f"{at}csi", "has to be specified when using volumeAttributesClassName")


NODE_TERMS = Field(
    "nodeSelectorTerms", required="must have at least one node selector term", missing=[], items=NODE_TERM
)
AFFINITY = Struct(Field("required", required="must specify required node constraints", struct=Struct(NODE_TERMS)))
VOLUME_SPEC = Struct(
    replace(ACCESS_MODES, required=True),
    Field("capacity", missing={}, rule=_capacity),
    Field("persistentVolumeReclaimPolicy", default="Retain", enum=("Delete", "Recycle", "Retain")),
    Field("nodeAffinity", struct=AFFINITY),
    _one_source,
    _not_recycled,
    STORAGE_CLASS,
    replace(VOLUME_MODE, is_immutable=False),
    _attributes_class,
)
