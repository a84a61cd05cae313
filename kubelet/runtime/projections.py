"""The variables, volume files and directories that a pod's spec puts into a container. Pure.

Objects that are read for it come as `(resource, name) -> object`; a missing object contributes nothing.
Source: upstream `pkg/kubelet/kubelet_pods.go` (makeEnvironmentVariables),
`pkg/volume/util/atomic_writer.go`.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubelet.runtime.outcome import PATH
from services.api.meta import Document
from services.api.quantity import milli

CONFIG_MAPS, SECRETS, TOKENS = "configmaps", "secrets", "serviceaccounts/token"
Objects = Mapping[tuple[str, str], Document]
_DEFAULTED: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources whose missing limit is the node's allocatable amount."""


def references(pod: Document, container: Document) -> list[tuple[str, str]]:
    """Return the objects to read for the container: (resource, name); a token is named by its audience."""
    pairs: list[tuple[str, str]] = []
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        pairs += _named_references(source.get("configMapKeyRef"), source.get("secretKeyRef"))
    for variable in container.get("envFrom") or ():
        pairs += _named_references(variable.get("configMapRef"), variable.get("secretRef"))
    for volume in mounted_volumes(pod, container):
        pairs += _named_references(volume.get("configMap"), None)
        if secret := volume.get("secret"):
            pairs.append((SECRETS, str(secret.get("secretName", ""))))
        for source in (volume.get("projected") or {}).get("sources") or ():
            pairs += _named_references(source.get("configMap"), source.get("secret"))
            if (token := source.get("serviceAccountToken")) is not None:
                pairs.append((TOKENS, str(token.get("audience", ""))))
    return list(dict.fromkeys(pairs))


def _named_references(config_map: Any, secret: Any) -> list[tuple[str, str]]:
    pairs = ((CONFIG_MAPS, config_map), (SECRETS, secret))
    return [(resource, str(each["name"])) for resource, each in pairs if each and each.get("name")]


def mounted_volumes(pod: Document, container: Document) -> list[Document]:
    """Return the volumes of the pod that the container mounts."""
    names = {str(mount.get("name")) for mount in container.get("volumeMounts") or ()}
    return [volume for volume in (pod.get("spec") or {}).get("volumes") or () if volume.get("name") in names]


# --- values ---


def _decode_base64(text: Any) -> bytes:
    try:
        return base64.b64decode(str(text))
    except (binascii.Error, ValueError):
        return b""


def data_of(resource: str, document: Document) -> dict[str, bytes]:
    """Return the keys of a ConfigMap or Secret."""
    if resource == SECRETS:
        return {key: _decode_base64(value) for key, value in (document.get("data") or {}).items()}
    plain = {key: str(value).encode() for key, value in (document.get("data") or {}).items()}
    return plain | {key: _decode_base64(value) for key, value in (document.get("binaryData") or {}).items()}


def _key_of(objects: Objects, resource: str, reference: Document | None) -> str | None:
    if not reference:
        return None
    document = objects.get((resource, str(reference.get("name"))))
    value = None if document is None else data_of(resource, document).get(str(reference.get("key")))
    return None if value is None else value.decode("utf-8", "replace")


def _quote_pairs(values: Mapping[str, Any]) -> str:
    text = "".join(f'{key}="{_escape(str(value))}"\n' for key, value in sorted(values.items()))
    return text.rstrip("\n")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def field_of(pod: Document, path: str) -> str:
    """Return the value of a downward API field; "" for an unknown field."""
    meta, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
    if (match := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)) is not None:
        return str((meta.get(match.group(1)) or {}).get(match.group(2), ""))
    match path:
        case "metadata.labels" | "metadata.annotations":
            return _quote_pairs(meta.get(path.partition(".")[2]) or {})
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(meta.get(path.partition(".")[2], ""))
        case "spec.nodeName" | "spec.serviceAccountName":
            return str(spec.get(path.partition(".")[2], ""))
        case "status.podIP" | "status.hostIP":
            return str(status.get(path.partition(".")[2], ""))
        case "status.podIPs" | "status.hostIPs":
            return ",".join(str(each.get("ip")) for each in status.get(path.partition(".")[2]) or ())
    return ""


def resource_of(pod: Document, container: Document, reference: Document, allocatable: Mapping[str, str]) -> str:
    """Return a container's limit or request, divided and rounded up; a missing limit is the node's."""
    spec = pod.get("spec") or {}
    all_containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    named = next((c for c in all_containers if c.get("name") == reference.get("containerName")), container)
    kind, _, resource = str(reference.get("resource", "")).partition(".")
    amounts = (named.get("resources") or {}).get(kind) or {}
    text = amounts.get(resource)
    if text is None:
        text = allocatable.get(resource, "0") if kind == "limits" and resource in _DEFAULTED else "0"
    per = milli(str(reference.get("divisor") or "1")) or 1000
    return str(-(-milli(str(text)) // per))


_REFERENCE = re.compile(r"\$(\$|\(([^()]+)\))")


def expand_text(text: str, known: Mapping[str, str]) -> str:
    """Return the text with `$(NAME)` replaced where NAME is known, and `$$` by `$`."""

    def one(found: re.Match[str]) -> str:
        return "$" if found.group(1) == "$" else known.get(found.group(2), found.group(0))

    return _REFERENCE.sub(one, text)


def environment(
    pod: Document, container: Document, objects: Objects, allocatable: Mapping[str, str], services: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of the container. `services`: the variables that name services."""
    meta = pod.get("metadata") or {}
    hostname = str((pod.get("spec") or {}).get("hostname") or meta.get("name", ""))
    variables = {"PATH": PATH, "HOSTNAME": hostname, **services}
    for entry in container.get("envFrom") or ():
        for resource, name in _named_references(entry.get("configMapRef"), entry.get("secretRef")):
            for key, data in data_of(resource, objects.get((resource, name), {})).items():
                variables[f"{entry.get('prefix', '')}{key}"] = data.decode("utf-8", "replace")
    for entry in container.get("env") or ():
        source = entry.get("valueFrom")
        value: str | None
        if not source:
            value = expand_text(str(entry.get("value", "")), variables)
        elif field := source.get("fieldRef"):
            value = field_of(pod, str(field.get("fieldPath", "")))
        elif resource := source.get("resourceFieldRef"):
            value = resource_of(pod, container, resource, allocatable)
        else:
            value = _key_of(objects, CONFIG_MAPS, source.get("configMapKeyRef"))
            value = _key_of(objects, SECRETS, source.get("secretKeyRef")) if value is None else value
        if value is not None:
            variables[str(entry.get("name"))] = value
    return {**variables, "HOME": variables.get("HOME", "/root")}


# --- volumes ---


def _items(data: Mapping[str, bytes], source: Document) -> Iterable[tuple[str, bytes, int | None]]:
    items = source.get("items")
    if not items:
        return [(key, value, None) for key, value in data.items()]
    wanted = [(str(i.get("path")), data.get(str(i.get("key"))), i.get("mode")) for i in items]
    return [(path, value, mode) for path, value, mode in wanted if value is not None]


def _downward(
    pod: Document, container: Document, source: Document, allocatable: Mapping[str, str]
) -> Iterable[tuple[str, bytes, int | None]]:
    for item in source.get("items") or ():
        if field := item.get("fieldRef"):
            text = field_of(pod, str(field.get("fieldPath", "")))
        else:
            text = resource_of(pod, container, item.get("resourceFieldRef") or {}, allocatable)
        yield str(item.get("path")), text.encode(), item.get("mode")


def payload_of(
    pod: Document, container: Document, volume: Document, objects: Objects, allocatable: Mapping[str, str]
) -> tuple[list[tuple[str, bytes, int | None]], int] | None:
    """Return the files of a projected volume and their mode; None for another volume."""
    files: list[tuple[str, bytes, int | None]] = []
    if (source := volume.get("configMap")) is not None:
        files += _items(data_of(CONFIG_MAPS, objects.get((CONFIG_MAPS, str(source.get("name"))), {})), source)
    elif (source := volume.get("secret")) is not None:
        files += _items(data_of(SECRETS, objects.get((SECRETS, str(source.get("secretName"))), {})), source)
    elif (source := volume.get("downwardAPI")) is not None:
        files += _downward(pod, container, source, allocatable)
    elif (source := volume.get("projected")) is not None:
        for projection in source.get("sources") or ():
            for resource, field in ((CONFIG_MAPS, "configMap"), (SECRETS, "secret")):
                if (inner := projection.get(field)) is not None:
                    files += _items(data_of(resource, objects.get((resource, str(inner.get("name"))), {})), inner)
            if (inner := projection.get("downwardAPI")) is not None:
                files += _downward(pod, container, inner, allocatable)
            if (inner := projection.get("serviceAccountToken")) is not None:
                token = objects.get((TOKENS, str(inner.get("audience", ""))), {})
                if text := (token.get("status") or {}).get("token"):
                    files.append((str(inner.get("path")), str(text).encode(), None))
    else:
        return None
    return files, int(source.get("defaultMode") or 0o644)
