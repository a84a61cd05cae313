"""The schema of a custom resource as `/openapi/v3` and `/openapi/v2` publish it. Pure.

Source: kubernetes/kubernetes
staging/src/k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder/builder.go,
staging/src/k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2/conversion.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver_fake.extensions.customresources.structurality import INT_OR_STRING
from apiserver_fake.registry.schema.schemas import schemas
from services.api.meta import Document, Resource

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_CONVENTIONS: Final = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_TEXTS: Final = {
    "apiVersion": "apiVersion defines the versioned schema of this representation of an object. "
    f"More info: {_CONVENTIONS}#resources",
    "kind": "kind is a string value representing the type of this object. In CamelCase. "
    f"More info: {_CONVENTIONS}#types-kinds",
    "metadata": f"Standard object's metadata. More info: {_CONVENTIONS}#metadata",
}
_KEPT: Final = (
    "description",
    "type",
    "format",
    "title",
    "default",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "enum",
    "maxProperties",
    "minProperties",
    "required",
    "nullable",
    "externalDocs",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
)
_ALTERNATIVES: Final = ("allOf", "anyOf", "oneOf", "not")


def published_schema(schema: Document, resource: Resource | None = None, *, is_v2: bool = False) -> Document:
    """Return the published form of an object's schema; `resource` gives its group, version and kind."""
    if is_v2 and schema.get("x-kubernetes-preserve-unknown-fields"):
        result: Document = {"type": "object"}  # kubectl takes fields that are published for all there are
    else:
        result = _part(_for_v2(schema) if is_v2 else schema, is_v2)
        texts = schemas()["io.k8s.api.core.v1.ConfigMap"]["properties"]
        plain = {name: {"description": texts[name]["description"], "type": "string"} for name in ("apiVersion", "kind")}
        result["properties"] = {**(result.get("properties") or {}), **plain, "metadata": _metadata(is_v2)}
    if resource is not None:
        named = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        result["x-kubernetes-group-version-kind"] = [named]
    return result


def _metadata(is_v2: bool) -> Document:
    if is_v2:
        return {"description": _TEXTS["metadata"], "$ref": f"#/definitions/{_META}"}
    return {"description": _TEXTS["metadata"], "allOf": [{"$ref": f"#/components/schemas/{_META}"}]}


def _part(schema: Mapping[str, Any], is_v2: bool) -> Document:
    result: Document = {name: schema[name] for name in _KEPT if schema.get(name) not in (None, "", False, [])}
    if schema.get("properties"):
        result["properties"] = {name: _part(each, is_v2) for name, each in schema["properties"].items()}
    for name in ("items", "additionalProperties"):
        inner = schema.get(name)
        if inner is not None:
            result[name] = _part(inner, is_v2) if isinstance(inner, Mapping) else inner
    result |= {name: schema[name] for name in _ALTERNATIVES if schema.get(name)}
    if schema.get("x-kubernetes-int-or-string") and not is_v2:
        _spell_out(result)
    is_open = is_v2 and schema.get("x-kubernetes-preserve-unknown-fields")
    if schema.get("x-kubernetes-embedded-resource") and not is_open:
        _embed(result, is_v2)
    return result


def _spell_out(result: Document) -> None:
    """Say in the words of OpenAPI that a value is an integer or a text."""
    every = result.get("allOf") or []
    if result.get("anyOf") == INT_OR_STRING or (every and every[0].get("anyOf") == INT_OR_STRING):
        return
    if "anyOf" in result:
        result["allOf"] = [{"anyOf": INT_OR_STRING}, *every]
    else:
        result["anyOf"] = INT_OR_STRING


def _embed(result: Document, is_v2: bool) -> None:
    """Add what every resource has to one within another."""
    plain = {name: {"description": _TEXTS[name], "type": "string"} for name in ("apiVersion", "kind")}
    result["properties"] = {**(result.get("properties") or {}), **plain, "metadata": _metadata(is_v2)}
    needed = result.get("required") or []
    result["required"] = [*needed, *(name for name in ("kind", "apiVersion") if name not in needed)]


def _for_v2(schema: Mapping[str, Any]) -> Document:
    """Return what version 2 can say of a part, and kubectl can read: no alternatives, no null, no open structure."""
    result = {name: value for name, value in schema.items() if name not in _ALTERNATIVES}
    if schema.get("nullable"):
        for name in ("type", "nullable", "items", "properties"):
            result.pop(name, None)
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        result.pop("items", None)
        result.pop("properties", None)
    if result.get("type") == "array" and "items" not in result:
        del result["type"]
    named, others = result.get("properties") or {}, result.get("additionalProperties")
    is_open = isinstance(others, Mapping) and others.get("nullable")
    nullable = {name for name, each in named.items() if each.get("nullable")}
    if needed := result.pop("required", None):
        left = [name for name in needed if name not in nullable and not is_open]
        result |= {"required": left} if left else {}
    if named:
        result["properties"] = {name: _for_v2(each) for name, each in named.items()}
    for name in ("items", "additionalProperties"):
        if isinstance(result.get(name), Mapping):
            result[name] = _for_v2(result[name])
    return result
