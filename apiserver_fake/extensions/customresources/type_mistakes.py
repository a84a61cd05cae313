"""The JSON types of all keywords in a definition's schemas, checked at any depth. Pure.

The OpenAPI of definitions does not say what `items`, `additionalProperties` and the like hold; Go's types do.

Source: kubernetes/kubernetes
staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1/types_jsonschema.go.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from services.api.errors import BadRequest
from services.api.meta import Document

_TEXT, _FLAG, _INT, _NUMBER = str | None, bool | None, int | None, float | None
_TEXTS: Final = list[str] | None


class _Docs(msgspec.Struct):
    description: str | None = None
    url: str | None = None


class _Rule(msgspec.Struct, rename="camel"):
    rule: str | None = None
    message: str | None = None
    message_expression: str | None = None
    reason: str | None = None
    field_path: str | None = None
    optional_old_self: bool | None = None


def _keywords(schema: Any) -> dict[str, Any]:
    """Return the type of each keyword; `schema`: that of a schema."""
    texts = "id $schema $ref description type format title pattern x-kubernetes-list-type x-kubernetes-map-type"
    flags = (
        "nullable exclusiveMaximum exclusiveMinimum uniqueItems x-kubernetes-preserve-unknown-fields "
        "x-kubernetes-embedded-resource x-kubernetes-int-or-string"
    )
    counts = "maxLength minLength maxItems minItems maxProperties minProperties"
    some, named = list[schema] | None, dict[str, schema] | None
    return {
        **dict.fromkeys(texts.split(), _TEXT),
        **dict.fromkeys(flags.split(), _FLAG),
        **dict.fromkeys(counts.split(), _INT),
        **dict.fromkeys(("maximum", "minimum", "multipleOf"), _NUMBER),
        **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), _TEXTS),
        **dict.fromkeys(("allOf", "anyOf", "oneOf"), some),
        **dict.fromkeys(("properties", "patternProperties", "definitions"), named),
        **dict.fromkeys(("additionalProperties", "additionalItems"), schema | bool | None),
        "not": schema | None,
        "items": schema | list[schema] | None,
        "enum": list[Any] | None,
        "externalDocs": _Docs | None,
        "dependencies": dict[str, Any] | None,
        "x-kubernetes-validations": list[_Rule] | None,
    }


class _Node(msgspec.Struct):
    """Type of a keyword that holds a schema: an object, which is checked as well."""


_FIELDS: Final = list(_keywords(_Node).items())
_Keywords: Final = msgspec.defstruct(
    "_Keywords",
    [(f"f{place}", kind, None) for place, (_, kind) in enumerate(_FIELDS)],
    rename={f"f{place}": name for place, (name, _) in enumerate(_FIELDS)},
)
_MISTAKE: Final = re.compile(r"Expected `([^`]*)`, got `([^`]*)`(?: - at `\$\.?([^`]*)`)?")
_GO: Final = {
    "str": "string",
    "int": "int64",
    "float": "float64",
    "object": "JSONSchemaProps",
    "array": "[]JSONSchemaProps",
}
_JSON: Final = {"str": "string", "int": "number", "float": "number"}


def check_types(definition: Document) -> None:
    """Check the types of every schema of a definition. Raises: BadRequest naming the field and both types."""
    for version in (definition.get("spec") or {}).get("versions") or ():
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is not None:
            _check(schema, "spec.versions.schema.openAPIV3Schema")


def _check(schema: Any, path: str) -> None:
    try:
        msgspec.convert(schema, _Keywords)
    except msgspec.ValidationError as error:
        raise BadRequest(_text(str(error), path)) from None
    for name in ("properties", "patternProperties", "definitions"):
        for child in (schema.get(name) or {}).values():
            _check(child, f"{path}.{name}")
    for name in ("items", "additionalProperties", "additionalItems", "not", "allOf", "anyOf", "oneOf"):
        inner = schema.get(name)
        for child in inner if isinstance(inner, list) else [inner] if isinstance(inner, dict) else []:
            _check(child, f"{path}.{name}")


def _text(mistake: str, path: str) -> str:
    head = 'CustomResourceDefinition in version "v1" cannot be handled as a CustomResourceDefinition: json:'
    match = _MISTAKE.search(mistake)
    if match is None:
        return f"{head} {mistake} in {path}"
    wanted = match[1].removesuffix(" | null").split(" | ")[0]
    inside = re.sub(r"\[[^\]]*\]", "", match[3] or "").strip(".")
    where = f"{path}.{inside}" if inside else path
    json_type, wanted = _JSON.get(match[2], match[2]), _GO.get(wanted, wanted)
    return f"{head} cannot unmarshal {json_type} into Go struct field JSONSchemaProps.{where} of type {wanted}"
