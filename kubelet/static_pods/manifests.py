"""Pods that a node has from files instead of from the API server: manifests in, pods out. Pure.

A manifest is one v1 Pod, as YAML or JSON. Its pod belongs to one node: the name ends with the node's, and
the uid is a hash of node, file and content, so that a changed manifest is another pod. It cannot refer to
objects of the API server. Source: kubelet 3.1; upstream `pkg/kubelet/config` (`file.go`, `common.go`).
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kubelet.view import STATIC_ANNOTATION, KubeletPod
from services.api.documents import yaml_text
from services.api.kinds.pod import MIRROR_ANNOTATION
from services.api.meta import Document, Key
from services.api.times import format_time

HASH_ANNOTATION: Final = "kubernetes.io/config.hash"
SEEN_ANNOTATION: Final = "kubernetes.io/config.seen"
SUFFIXES: Final = (".yaml", ".yml", ".json")
NAME_MAX: Final = 253
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_TOLERATION: Final = {"operator": "Exists", "effect": "NoExecute"}
_API_VOLUMES: Final = ("secret", "configMap", "persistentVolumeClaim", "ephemeral")
_API_PROJECTIONS: Final = ("secret", "configMap", "serviceAccountToken", "clusterTrustBundle", "podCertificate")


class ManifestError(ValueError):
    """Error: a file describes no pod that this node could run; the message names field and value."""


class StaticPod(msgspec.Struct, frozen=True):
    """One pod of one file. `document`: the document from which its mirror is made."""

    file: str
    pod: KubeletPod
    document: Document

    @property
    def uid(self) -> str:
        """The pod's uid, which is also the hash on its mirror."""
        return self.pod.metadata.uid

    @property
    def key(self) -> Key:
        """The namespace and name of the pod and of its mirror."""
        return self.pod.metadata.key


def read_manifest(file: str, data: bytes, node: str, seen_wall_s: float) -> StaticPod:
    """Return the pod that a file describes for this node. Raises: ManifestError."""
    try:
        document = yaml_text.load(data.decode())
    except (UnicodeDecodeError, ValueError) as error:
        raise ManifestError(f"neither YAML nor JSON: {error}") from None
    if not isinstance(document, dict) or (document.get("apiVersion"), document.get("kind")) != ("v1", "Pod"):
        kind_text = (
            f"{document.get('apiVersion')}, {document.get('kind')}" if isinstance(document, dict) else "no object"
        )
        raise ManifestError(f"apiVersion, kind: {kind_text}; want v1, Pod")
    meta, spec = document.get("metadata"), document.get("spec")
    if not isinstance(meta, dict) or not isinstance(spec, dict):
        raise ManifestError("metadata and spec: want objects")
    _check(meta, spec, node)
    content = f"host:{node}file:{file}".encode() + msgspec.json.encode(document, order="deterministic")
    uid = hashlib.md5(content, usedforsecurity=False).hexdigest()
    seen = format_time(seen_wall_s)
    annotations = {
        **(meta.get("annotations") or {}),
        HASH_ANNOTATION: uid,
        SEEN_ANNOTATION: seen,
        STATIC_ANNOTATION: "file",
    }
    document_for_api: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{meta['name']}-{node.lower()}",
            "namespace": meta.get("namespace") or "default",
            "labels": dict(meta.get("labels") or {}),
            "annotations": annotations,
        },
        "spec": {**_spelt(spec), "nodeName": node, "tolerations": _tolerations(spec)},
    }
    if (priority := _SYSTEM_CLASSES.get(spec.get("priorityClassName") or "")) is not None:
        # These two classes are everywhere what they are; others only the API server knows.
        document_for_api["spec"]["priority"] = priority
    own = {"uid": uid, "generation": 1, "creationTimestamp": seen}
    try:
        pod = msgspec.convert({**document_for_api, "metadata": {**document_for_api["metadata"], **own}}, KubeletPod)
    except msgspec.ValidationError as error:
        raise ManifestError(str(error)) from None
    return StaticPod(file, pod, document_for_api)


def _check(meta: Mapping[str, Any], spec: Mapping[str, Any], node: str) -> None:
    name = meta.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ManifestError(f"metadata.name: {name!r}; want a DNS subdomain")
    if len(name) + 1 + len(node) > NAME_MAX:
        raise ManifestError(f"metadata.name: {name!r} and the node's name are longer than {NAME_MAX} together")
    namespace = meta.get("namespace") or "default"
    if not isinstance(namespace, str) or "." in namespace or not _NAME.fullmatch(namespace):
        raise ManifestError(f"metadata.namespace: {namespace!r}; want a DNS label")
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        raise ManifestError("spec.containers: want at least one")
    for index, container in enumerate(containers):
        if not isinstance(container, dict) or not container.get("name") or not container.get("image"):
            raise ManifestError(f"spec.containers[{index}]: want a name and an image")
    if reference := api_references(spec):
        raise ManifestError(f"static pods may not reference {reference}")


def api_references(spec: Mapping[str, Any]) -> str:
    """Return the first reference to an API object in the spec, or "" (upstream `HasAPIObjectReference`)."""
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        return "serviceaccounts"
    if spec.get("imagePullSecrets"):
        return "secrets"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in spec.get("volumes") or ():
        sources = (volume.get("projected") or {}).get("sources") or ()
        kinds = [kind for kind in _API_VOLUMES if volume.get(kind)]
        kinds += [kind for source in sources for kind in _API_PROJECTIONS if source.get(kind)]
        if kinds:
            return f"{kinds[0]} in volume {volume.get('name')!r}"
    for part in ("initContainers", "containers"):
        for container in spec.get(part) or ():
            for source in container.get("envFrom") or ():
                if source.get("secretRef") or source.get("configMapRef"):
                    return f"envFrom of container {container.get('name')!r}"
            for variable in container.get("env") or ():
                origin = variable.get("valueFrom") or {}
                if origin.get("secretKeyRef") or origin.get("configMapKeyRef"):
                    return f"env {variable.get('name')!r} of container {container.get('name')!r}"
    return ""


def _spelt(spec: Mapping[str, Any]) -> Document:
    """Return the spec with quantities as texts: YAML reads `cpu: 2` as a number."""

    def container(given: Mapping[str, Any]) -> Document:
        resources = given.get("resources")
        if not isinstance(resources, dict):
            return dict(given)
        spelt = {
            part: {name: value if isinstance(value, str) else str(value) for name, value in amounts.items()}
            if part in ("requests", "limits") and isinstance(amounts, dict)
            else amounts
            for part, amounts in resources.items()
        }
        return {**given, "resources": spelt}

    parts = {part: [container(c) for c in spec[part]] for part in ("initContainers", "containers") if spec.get(part)}
    return {**spec, **parts}


def _tolerations(spec: Mapping[str, Any]) -> list[Document]:
    """Static pods are not evicted when their node has problems."""
    held = list(spec.get("tolerations") or ())
    return held if _TOLERATION in held else [*held, dict(_TOLERATION)]


def mirror_document(static: StaticPod, node: str, node_uid: str) -> Document:
    """Return the mirror that the node creates in the API server for a static pod (X-NR7)."""
    meta = static.document["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": True}
    return {
        **static.document,
        "metadata": {
            **meta,
            "annotations": {**meta["annotations"], MIRROR_ANNOTATION: static.uid},
            "ownerReferences": [owner],
        },
    }


def is_mirror(pod: KubeletPod) -> bool:
    """Whether the object is the mirror of a static pod."""
    return MIRROR_ANNOTATION in pod.metadata.annotations


def is_mirror_of(mirror: KubeletPod, uid: str) -> bool:
    """Whether the object is the mirror of the static pod with that uid, rather than of an earlier manifest."""
    return mirror.metadata.annotations.get(MIRROR_ANNOTATION) == uid


class Manifests:
    """The manifests of one node's files. Invariant: for each name at most one pod, that of the first file."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._data: dict[str, bytes] = {}
        self._pods: dict[str, StaticPod] = {}
        self.by_name: dict[Key, StaticPod] = {}

    def read(
        self, files: Mapping[str, bytes], wall_s: float
    ) -> tuple[list[StaticPod], list[StaticPod], dict[str, str]]:
        """Replace all files. Return the pods that are gone, the new pods, and the error of each bad file.

        A file that cannot be read describes no pod.
        """
        wrong: dict[str, str] = {}
        pods: dict[str, StaticPod] = {}
        for file in sorted(files):
            if self._data.get(file) == files[file] and file in self._pods:
                pods[file] = self._pods[file]
                continue
            try:
                pods[file] = read_manifest(file, files[file], self._node, wall_s)
            except ManifestError as error:
                wrong[file] = str(error)
        by_name: dict[Key, StaticPod] = {}
        for file, static in pods.items():
            first = by_name.setdefault(static.key, static)
            if first is not static:
                wrong[file] = f"pod {static.key} is in {first.file} already"
        before, self.by_name = self.by_name, by_name
        self._data, self._pods = dict(files), pods
        gone = [s for name, s in before.items() if name not in by_name or by_name[name].uid != s.uid]
        new = [s for name, s in by_name.items() if name not in before or before[name].uid != s.uid]
        return gone, new, wrong
