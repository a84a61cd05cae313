"""The check that a schema is structural: every field that a rule names has a type of its own. Pure.

Source: kubernetes/kubernetes staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema/convert.go,
validation.go, complete.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

from apiserver_fake.extensions.customresources.causes import invalid
from apiserver_fake.registry.validation.formats import Cause, Causes, forbidden, required
from services.cel import regex
from services.cel.values import EvaluationError

Schema = Mapping[str, Any]
INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_UNSUPPORTED: Final = ("id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions")
_STRUCTURE: Final = (
    ("title", "must be empty"),
    ("description", "must be empty"),
    ("nullable", "must be false"),
    ("externalDocs", "must be undefined"),
    ("x-kubernetes-preserve-unknown-fields", "must be false"),
    ("x-kubernetes-embedded-resource", "must be false"),
    ("x-kubernetes-int-or-string", "must be false"),
    ("x-kubernetes-list-map-keys", "must be empty"),
    ("x-kubernetes-list-type", "must be undefined"),
    ("x-kubernetes-map-type", "must be undefined"),
    ("x-kubernetes-validations", "must be empty"),
)
"""Keywords that an alternative must not have, because they describe structure."""


class Level(Enum):
    """Position of a part of a schema, as errors about a missing type state it."""

    ROOT = "at the root"
    ITEM = "for specified array items"
    FIELD = "for specified object fields"


def unreadable(schema: Schema) -> str:
    """Return why a schema cannot be read at all; empty if it can be read."""
    for name in _UNSUPPORTED:
        keyword_value = schema.get(name)
        if keyword_value or (name == "additionalItems" and keyword_value is not None):
            return f"OpenAPIV3Schema '{name.removeprefix('$') if name == '$schema' else name}' is not supported"
    if isinstance(schema.get("items"), list):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    return next((why for inner in parts(schema) if (why := unreadable(inner))), "")


def parts(schema: Schema) -> Iterator[Schema]:
    """Yield the direct subschemas of a schema, alternatives included."""
    yield from (schema.get("properties") or {}).values()
    for name in ("items", "additionalProperties", "not"):
        if isinstance(schema.get(name), Mapping):
            yield schema[name]
    for name in ("allOf", "anyOf", "oneOf"):
        yield from schema.get(name) or ()


def everywhere(schema: Schema) -> Iterator[Schema]:
    """Yield a schema and all its subschemas, at any depth."""
    yield schema
    for inner in parts(schema):
        yield from everywhere(inner)


def problems(schema: Schema, path: str) -> list[Cause]:
    """Return why a readable schema is not structural, sorted as upstream does."""
    found = [*_invariants(schema, Level.ROOT, path), *_completeness(schema, schema, path, path)]
    return sorted(found, key=lambda cause: f"{cause.path}: {cause.message}")


def _invariants(schema: Schema, level: Level, path: str) -> Causes:
    kind = schema.get("type") or ""
    items, others = schema.get("items"), schema.get("additionalProperties")
    if kind == "array" and items is None:
        yield required(f"{path}.items", "must be specified")
    if isinstance(items, Mapping):
        yield from _invariants(items, Level.ITEM, f"{path}.items")
    for name, property_schema in (schema.get("properties") or {}).items():
        yield from _invariants(property_schema, Level.FIELD, f"{path}.properties[{name}]")
    if others is not None:
        if level is Level.ROOT:
            yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
        if isinstance(others, Mapping):
            yield from _invariants(others, Level.FIELD, f"{path}.additionalProperties")
    yield from _extensions(schema, path)
    yield from _alternatives(schema, path, is_any=schema.get("anyOf") == INT_OR_STRING, is_all=_is_all_of(schema))
    yield from _type(schema, kind, level, path)
    yield from _resource(schema, level, path)


def _is_all_of(schema: Schema) -> bool:
    every = schema.get("allOf") or []
    return bool(every) and every[0].get("anyOf") == INT_OR_STRING


def _extensions(schema: Schema, path: str) -> Causes:
    if schema.get("x-kubernetes-int-or-string"):
        for name in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
            if schema.get(name):
                yield invalid(f"{path}.{name}", True, "must be false if x-kubernetes-int-or-string is true")


def _type(schema: Schema, kind: str, level: Level, path: str) -> Causes:
    is_resource = bool(schema.get("x-kubernetes-embedded-resource"))
    is_open = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if is_resource and kind != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        yield invalid(f"{path}.type", kind, text) if kind else required(f"{path}.type", text)
    elif not kind and not is_open:
        yield required(f"{path}.type", f"must not be empty {level.value}")
    if is_resource and schema.get("additionalProperties") is not None:
        text = "must not be used if x-kubernetes-embedded-resource is set"
        yield forbidden(f"{path}.additionalProperties", text)
    if level is Level.ROOT and kind and kind != "object":
        yield invalid(f"{path}.type", kind, "must be object at the root")


def _resource(schema: Schema, level: Level, path: str) -> Causes:
    """Yield what is wrong with the parts that every resource has: kind, apiVersion and metadata."""
    named = schema.get("properties") or {}
    is_resource = bool(schema.get("x-kubernetes-embedded-resource"))
    if level is Level.ROOT or is_resource:
        for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
            if name in named and named[name].get("type") != wanted:
                text = f"must be {wanted}"
                yield invalid(f"{path}.properties[{name}].type", named[name].get("type") or "", text)
    if "metadata" in named and level is Level.ROOT and not _is_name_alone(named["metadata"]):
        text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield forbidden(f"{path}.properties[metadata]", text)
    if is_resource and not schema.get("x-kubernetes-preserve-unknown-fields") and not named:
        text = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        yield required(f"{path}.properties", text)


def _is_name_alone(metadata: Schema) -> bool:
    said = {name for name, value in metadata.items() if value not in (None, "", False, [], {})}
    is_name = set(metadata.get("properties") or ()) <= {"name", "generateName"}
    return is_name and said <= {"type", "default", "properties", "example"}


def _alternatives(schema: Schema, path: str, *, is_any: bool, is_all: bool) -> Causes:
    """Yield what is wrong with alternatives. `is_any`, `is_all`: it is one of the two ways to say integer or text."""
    if not is_any:
        for place, alternative in enumerate(schema.get("anyOf") or ()):
            yield from _nested_schema(alternative, f"{path}.anyOf[{place}]")
    for place, alternative in enumerate(schema.get("allOf") or ()):
        yield from _nested_schema(alternative, f"{path}.allOf[{place}]", is_any=is_all and place == 0)
    for place, alternative in enumerate(schema.get("oneOf") or ()):
        yield from _nested_schema(alternative, f"{path}.oneOf[{place}]")
    if schema.get("not") is not None:
        yield from _nested_schema(schema["not"], f"{path}.not")
    if pattern := schema.get("pattern"):
        try:
            regex.compile_pattern(pattern)
        except EvaluationError as error:
            yield invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {error}")


def _nested_schema(schema: Schema, path: str, *, is_any: bool = False) -> Causes:
    yield from _alternatives(schema, path, is_any=is_any, is_all=False)
    if isinstance(schema.get("items"), Mapping):
        yield from _nested_schema(schema["items"], f"{path}.items")
    for name, property_schema in (schema.get("properties") or {}).items():
        yield from _nested_schema(property_schema, f"{path}.properties[{name}]")
    if schema.get("type"):
        yield forbidden(f"{path}.type", "must be empty to be structural")
    if schema.get("additionalProperties") is not None:
        yield forbidden(f"{path}.additionalProperties", "must be undefined to be structural")
    if schema.get("default") is not None:
        yield forbidden(f"{path}.default", "must be undefined to be structural")
    for name, text in _STRUCTURE:
        if schema.get(name):
            yield forbidden(f"{path}.{name}", f"{text} to be structural")
    if "metadata" in (schema.get("properties") or {}):
        yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _completeness(rule: Schema, schema: Any, schema_path: str, rule_path: str) -> Causes:
    """Yield what an alternative names that the schema itself does not have.

    Upstream looks for that at the root alone; alternatives of a field may name fields that nothing else describes.
    """
    for name in ("allOf", "anyOf", "oneOf"):
        for place, alternative in enumerate(rule.get(name) or ()):
            yield from _complete(alternative, schema, schema_path, f"{rule_path}.{name}[{place}]")
    if rule.get("not") is not None:
        yield from _complete(rule["not"], schema, schema_path, f"{rule_path}.not")


def _complete(rule: Schema, schema: Any, schema_path: str, rule_path: str) -> Causes:
    if not isinstance(schema, Mapping):
        yield required(schema_path, f"because it is defined in {rule_path}")
        return
    yield from _completeness(rule, schema, schema_path, rule_path)
    if isinstance(rule.get("items"), Mapping):
        yield from _complete(rule["items"], schema.get("items"), f"{schema_path}.items", f"{rule_path}.items")
    for name, property_rule in (rule.get("properties") or {}).items():
        inner = (schema.get("properties") or {}).get(name)
        yield from _complete(
            property_rule, inner, f"{schema_path}.properties[{name}]", f"{rule_path}.properties[{name}]"
        )
