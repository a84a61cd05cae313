"""Definitions as JSON of Go structs: the form in which the API server shows a whole version or schema in a
refusal. Pure.

Source: kubernetes/kubernetes staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/types.go,
types_jsonschema.go: the internal types, which have no JSON tags, so that fields keep their Go names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from services.api.meta import Document

Shown = Callable[[Any], Any]


def _plain(value: Any) -> Any:
    return value


def _text(value: Any) -> Any:
    return value or ""


def _flag(value: Any) -> Any:
    return bool(value)


def _list(item: Shown) -> Shown:
    return lambda values: [item(each) for each in values] if values else None


def _map(item: Shown) -> Shown:
    return lambda values: {name: item(values[name]) for name in sorted(values)} if values else None


def _struct(*fields: tuple[str, str, Shown]) -> Shown:
    return lambda said: None if said is None else {go: show(said.get(name)) for go, name, show in fields}


def schema(said: Document | None) -> Document | None:
    """Return a schema as the API server shows it."""
    return None if said is None else {go: show(said.get(name)) for go, name, show in SCHEMA}


def _items(said: Any) -> Any:
    if said is None:
        return None
    is_list = isinstance(said, list)
    return {"Schema": None if is_list else schema(said), "JSONSchemas": _list(schema)(said) if is_list else None}


def _schema_or_bool(said: Any) -> Any:
    if said is None:
        return None
    is_schema = isinstance(said, Mapping)
    return {"Allows": True if is_schema else bool(said), "Schema": schema(said) if is_schema else None}


_SCHEMAS: Final = _list(schema)
_RULE: Final = _struct(
    ("Rule", "rule", _text),
    ("Message", "message", _text),
    ("MessageExpression", "messageExpression", _text),
    ("Reason", "reason", _plain),
    ("FieldPath", "fieldPath", _text),
    ("OptionalOldSelf", "optionalOldSelf", _plain),
)
SCHEMA: Final[tuple[tuple[str, str, Shown], ...]] = (
    ("ID", "id", _text),
    ("Schema", "$schema", _text),
    ("Ref", "$ref", _plain),
    ("Description", "description", _text),
    ("Type", "type", _text),
    ("Nullable", "nullable", _flag),
    ("Format", "format", _text),
    ("Title", "title", _text),
    ("Default", "default", _plain),
    ("Maximum", "maximum", _plain),
    ("ExclusiveMaximum", "exclusiveMaximum", _flag),
    ("Minimum", "minimum", _plain),
    ("ExclusiveMinimum", "exclusiveMinimum", _flag),
    ("MaxLength", "maxLength", _plain),
    ("MinLength", "minLength", _plain),
    ("Pattern", "pattern", _text),
    ("MaxItems", "maxItems", _plain),
    ("MinItems", "minItems", _plain),
    ("UniqueItems", "uniqueItems", _flag),
    ("MultipleOf", "multipleOf", _plain),
    ("Enum", "enum", _list(_plain)),
    ("MaxProperties", "maxProperties", _plain),
    ("MinProperties", "minProperties", _plain),
    ("Required", "required", _list(_plain)),
    ("Items", "items", _items),
    ("AllOf", "allOf", _SCHEMAS),
    ("OneOf", "oneOf", _SCHEMAS),
    ("AnyOf", "anyOf", _SCHEMAS),
    ("Not", "not", schema),
    ("Properties", "properties", _map(schema)),
    ("AdditionalProperties", "additionalProperties", _schema_or_bool),
    ("PatternProperties", "patternProperties", _map(schema)),
    ("Dependencies", "dependencies", _plain),
    ("AdditionalItems", "additionalItems", _schema_or_bool),
    ("Definitions", "definitions", _map(schema)),
    ("ExternalDocs", "externalDocs", _struct(("Description", "description", _text), ("URL", "url", _text))),
    ("Example", "example", _plain),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", _plain),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", _flag),
    ("XIntOrString", "x-kubernetes-int-or-string", _flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", _list(_plain)),
    ("XListType", "x-kubernetes-list-type", _plain),
    ("XMapType", "x-kubernetes-map-type", _plain),
    ("XValidations", "x-kubernetes-validations", _list(_RULE)),
)
"""The fields of a schema in their order: Go name, JSON name, and how the value is shown."""
_SCALE: Final = _struct(
    ("SpecReplicasPath", "specReplicasPath", _text),
    ("StatusReplicasPath", "statusReplicasPath", _text),
    ("LabelSelectorPath", "labelSelectorPath", _plain),
)
_COLUMN: Final = _struct(
    ("Name", "name", _text),
    ("Type", "type", _text),
    ("Format", "format", _text),
    ("Description", "description", _text),
    ("Priority", "priority", lambda value: value or 0),
    ("JSONPath", "jsonPath", _text),
)
_VERSION: Final = _struct(
    ("Name", "name", _text),
    ("Served", "served", _flag),
    ("Storage", "storage", _flag),
    ("Deprecated", "deprecated", _flag),
    ("DeprecationWarning", "deprecationWarning", _plain),
    ("Schema", "schema", _struct(("OpenAPIV3Schema", "openAPIV3Schema", schema))),
    ("Subresources", "subresources", _struct(("Status", "status", _struct()), ("Scale", "scale", _SCALE))),
    ("AdditionalPrinterColumns", "additionalPrinterColumns", _list(_COLUMN)),
    ("SelectableFields", "selectableFields", _list(_struct(("JSONPath", "jsonPath", _text)))),
)


def versions(said: list[Document]) -> Any:
    """Return the versions of a definition as the API server shows them."""
    return _list(_VERSION)(said)
