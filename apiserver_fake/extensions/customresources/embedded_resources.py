"""Resources within resources (`x-kubernetes-embedded-resource`): their apiVersion, kind and metadata. Pure.

Source: kubernetes/kubernetes staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta.
"""

from __future__ import annotations

from typing import Any, Final

from apiserver_fake.extensions.customresources.causes import invalid
from apiserver_fake.registry.schema.schemas import Shape, conform, shape_of
from apiserver_fake.registry.validation.formats import Cause, Causes, label, label_1035, metadata, required
from services.api.errors import BadRequest
from services.api.meta import Document

META: Final = ("apiVersion", "kind", "metadata")
_NO_NAME: Final = "fakename"


def object_meta() -> Shape:
    """Return the type of every object's metadata."""
    return shape_of("v1", "ConfigMap").member("metadata")


def prune_metadata(value: Any, path: str, dropped: list[str], shape: Shape | None = None) -> None:
    """Drop unknown fields of metadata, in place, and append their paths to `dropped`."""
    shape = object_meta() if shape is None else shape
    if isinstance(value, list) and shape.items is not None:
        for place, child in enumerate(value):
            prune_metadata(child, f"{path}[{place}]", dropped, shape.items)
    elif isinstance(value, dict) and shape.fields:
        for name in list(value):
            inner = shape.fields.get(name)
            if inner is not None:
                prune_metadata(value[name], f"{path}.{name}", dropped, inner)
            else:
                dropped.append(f"{path}.{name}")
                del value[name]


def causes(resource: Document, path: str) -> Causes:
    """Yield the errors in a resource's apiVersion, kind and metadata. `path`: path of the resource; "" for the
    object itself.
    """
    at = f"{path}." if path else ""
    yield from _group_version(resource, f"{at}apiVersion")
    yield from _kind(resource, f"{at}kind")
    if "metadata" in resource:
        yield from _metadata(resource["metadata"], f"{at}metadata")


def _group_version(resource: Document, path: str) -> Causes:
    api_version = resource.get("apiVersion", "")
    if not isinstance(api_version, str):
        yield invalid(path, api_version, "must be a string")
    elif not api_version:
        yield required(path)
    elif api_version.count("/") > 1:
        yield invalid(path, api_version, f"unexpected GroupVersion string: {api_version}")


def _kind(resource: Document, path: str) -> Causes:
    kind = resource.get("kind", "")
    if not isinstance(kind, str):
        yield invalid(path, kind, "must be a string")
    elif not kind:
        yield required(path)
    else:
        for cause in label_1035("", kind.lower()):
            detail = cause.message.partition(": ")[2].partition(": ")[2]
            yield invalid(path, kind, f"may have mixed case, but should otherwise match: {detail}")


def _metadata(value: Any, path: str) -> Causes:
    try:
        if not isinstance(value, dict):
            raise BadRequest("json: cannot unmarshal into Go value of type v1.ObjectMeta")
        conform(object_meta(), "v1", "ObjectMeta", value)
    except BadRequest as error:
        yield invalid(path, value, error.message.partition("as a ObjectMeta: ")[2] or error.message)
        return
    known = {name: each for name, each in value.items() if each is not None}
    if namespace := known.get("namespace"):
        yield from label(f"{path}.namespace", namespace)
    known["name"] = known.get("name") or _NO_NAME
    for cause in metadata({"metadata": known}, _path_segment):
        yield Cause(f"{path}{cause.path.removeprefix('metadata')}", cause.reason, cause.message)


def _path_segment(path: str, name: str) -> list[Cause]:
    if name in (".", ".."):
        return [invalid(path, name, f"may not be '{name}'")]
    return [invalid(path, name, f"may not contain '{sign}'") for sign in "/%" if sign in name]
