"""Validation of CustomResourceDefinitions: names, versions, schemas, columns, scale, conversion. Pure.

Paths are those of upstream's internal type, which its errors name. Fields that are equal in all versions are at
`spec.validation`, `spec.subresources`, `spec.additionalPrinterColumns` and `spec.selectableFields`, and a
conversion's webhook is at `spec.conversion.webhookClientConfig`. Rules that upstream waives on update for
definitions that are older than the rules are not waived: every stored definition has passed them.

Source: kubernetes/kubernetes
staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go,
staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1/conversion.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from apiserver_fake.extensions.customresources import conversion, defaults, gotypes, structurality
from apiserver_fake.extensions.customresources.causes import duplicate, invalid, not_supported, too_many
from apiserver_fake.extensions.customresources.formats import is_known
from apiserver_fake.extensions.customresources.names import dns_label, dns_subdomain, one_of
from apiserver_fake.extensions.customresources.structural import Structural
from apiserver_fake.extensions.customresources.type_mistakes import check_types
from apiserver_fake.registry.validation.formats import IMMUTABLE, Cause, Causes, forbidden, required
from services.api.meta import Document
from services.cel import rules, urls

_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_ALIKE: Final = (
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
)
"""Version fields that move to the spec if they are equal in all versions, and their names there."""
_ROOT_FIELDS: Final = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)
_APPROVED: Final = "api-approved.kubernetes.io"
_APPROVALS: Final = "see https://github.com/kubernetes/enhancements/pull/1111"
SELECTABLE_MAX: Final = 8


def validate_definition(new: Document, old: Document | None = None) -> list[Cause]:
    """Return the errors in a definition beyond those of its metadata. `old`: the stored definition, on an
    update.

    Raises: BadRequest when a schema has a value of the wrong JSON type.
    """
    check_types(new)
    spec = _internal(new.get("spec") or {})
    status = new.get("status") or {}
    causes = [*_object_name(new, spec), *_spec(spec, old)]
    if old is not None:
        causes += _immutable_fields(spec, old)
    causes += _names(status.get("acceptedNames") or {}, "status.acceptedNames")
    causes += _stored_versions(status.get("storedVersions") or [], spec.get("versions") or [])
    causes += _approval(new, old)
    was_kept = old is not None and (old.get("spec") or {}).get("preserveUnknownFields")
    if spec.get("preserveUnknownFields") and not was_kept:
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        causes.append(invalid("spec.preserveUnknownFields", True, text))
    return list(dict.fromkeys(causes))


def validate_definition_status(new: Document) -> list[Cause]:
    """Return the errors in the status of a definition."""
    return [*_names((new.get("status") or {}).get("acceptedNames") or {}, "status.acceptedNames")]


def definition_warnings(new: Document, old: Document | None = None) -> list[str]:
    """Return warnings about formats that the API server does not know; formats in `old` are not warned of again."""
    before = set() if old is None else set(_ignored_formats(old))
    return list(dict.fromkeys(f'unrecognized format "{each}"' for each in _ignored_formats(new) if each not in before))


def _ignored_formats(definition: Document) -> Iterator[str]:
    for version in (definition.get("spec") or {}).get("versions") or ():
        for each in structurality.everywhere((version.get("schema") or {}).get("openAPIV3Schema") or {}):
            name = each.get("format")
            if name and not is_known(name, each.get("type") or ""):
                yield name


def _internal(spec: Document) -> Document:
    """Return the spec as upstream's internal type: what all versions say alike is said once."""
    versions = [dict(each) for each in spec.get("versions") or ()]
    internal_spec = {**spec, "versions": versions}
    for name, moved in _ALIKE:
        version_values = [each.get(name) or None for each in versions]
        if version_values and all(each == version_values[0] for each in version_values):
            internal_spec[moved] = version_values[0]
            for version in versions:
                version.pop(name, None)
    return internal_spec


def _object_name(new: Document, spec: Document) -> Causes:
    names = spec.get("names") or {}
    name = (new.get("metadata") or {}).get("name") or ""
    if name != f"{names.get('plural') or ''}.{spec.get('group') or ''}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _spec(spec: Document, old: Document | None) -> Causes:
    versions: list[Document] = spec["versions"]
    yield from _group(spec.get("group") or "")
    yield from one_of("spec.scope", spec.get("scope") or "", ("Cluster", "Namespaced"))
    if not (spec.get("validation") or {}).get("openAPIV3Schema"):
        for place, version in enumerate(versions):
            if not (version.get("schema") or {}).get("openAPIV3Schema"):
                yield required(f"spec.versions[{place}].schema.openAPIV3Schema", "schemas are required")
    if spec.get("preserveUnknownFields") and any(_has_default(each) for each in _schemas(spec)):
        text = "must be false in order to use defaults in the schema"
        yield invalid("spec.preserveUnknownFields", True, text)
    for place, version in enumerate(versions):
        where = f"spec.versions[{place}]"
        if wrong := dns_label(version.get("name") or ""):
            yield invalid(f"{where}.name", version.get("name") or "", wrong)
        subresources = spec.get("subresources") or version.get("subresources")
        yield from _deprecation(version, f"{where}.deprecationWarning")
        yield from _served_section(version, where, "schema", has_status=_has_status(subresources))
    yield from _versions(versions)
    names = spec.get("names") or {}
    for name in ("plural", "singular", "kind", "listKind"):
        if not names.get(name):
            yield required(f"spec.names.{name}")
    yield from _names(names, "spec.names")
    every = [spec.get("subresources"), *(version.get("subresources") for version in versions)]
    yield from _served_section(spec, "spec", "validation", has_status=any(map(_has_status, every)))
    conversion_spec = spec.get("conversion")
    if conversion_spec and conversion_spec.get("strategy") != "None" and spec.get("preserveUnknownFields"):
        text = "must be None if spec.preserveUnknownFields is true"
        yield invalid("spec.conversion.strategy", conversion_spec.get("strategy") or "", text)
    yield from conversion.problems(conversion_spec, old)


def _schemas(spec: Document) -> Iterator[Document]:
    for each in (spec.get("validation"), *(version.get("schema") for version in spec["versions"])):
        if each and each.get("openAPIV3Schema"):
            yield each["openAPIV3Schema"]


def _has_default(schema: Document) -> bool:
    return any(each.get("default") is not None for each in structurality.everywhere(schema))


def _group(group: str) -> Causes:
    if not group:
        yield required("spec.group")
    elif wrong := dns_subdomain(group):
        yield invalid("spec.group", group, wrong)
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")


def _versions(versions: list[Document]) -> Causes:
    names = [version.get("name") for version in versions]
    shown = gotypes.versions(versions)
    if len(set(names)) < len(names):
        yield invalid("spec.versions", shown, "must contain unique version names", in_order=True)
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield invalid("spec.versions", shown, text, in_order=True)
    if versions and (wrong := dns_label(names[0] or "")):
        yield invalid("spec.version", names[0] or "", wrong)


def _names(names: Mapping[str, Any], path: str) -> Causes:
    for name in ("plural", "singular"):
        if names.get(name) and (wrong := dns_label(names[name])):
            yield invalid(f"{path}.{name}", names[name], wrong)
    for name in ("kind", "listKind"):
        if names.get(name) and (wrong := dns_label(names[name].lower())):
            yield invalid(f"{path}.{name}", names[name], f"may have mixed case, but should otherwise match: {wrong}")
    yield from _labels(names.get("shortNames") or (), f"{path}.shortNames")
    if names.get("kind") and names["kind"] == names.get("listKind"):
        yield invalid(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same")
    yield from _labels(names.get("categories") or (), f"{path}.categories")


def _labels(values: Sequence[str], path: str) -> Causes:
    for place, each in enumerate(values):
        if wrong := dns_label(each):
            yield invalid(f"{path}[{place}]", each, wrong)


def _deprecation(version: Document, path: str) -> Causes:
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    if not version.get("deprecated"):
        yield invalid(path, warning, "can only be set for deprecated versions")
        return
    if len(warning.encode()) > 256:
        yield invalid(path, warning, "must be <= 256 characters long")
    if not warning:
        yield invalid(path, warning, "must not be an empty string")
    at = 0
    for sign in warning:
        if not sign.isprintable():
            text = "must only contain printable UTF-8 characters; non-printable character found at index"
            yield invalid(path, warning, f"{text} {at}")
            return
        at += len(sign.encode())


# What a version, or all of them, serve.


def _has_status(subresources: Document | None) -> bool:
    return subresources is not None and subresources.get("status") is not None


def _served_section(section: Document, path: str, schema_name: str, *, has_status: bool) -> Causes:
    """Yield what is wrong with schema, subresources, columns and selectable fields, which stand in `section`."""
    schema = (section.get(schema_name) or {}).get("openAPIV3Schema")
    if schema is not None:
        yield from _schema(schema, f"{path}.{schema_name}", has_status=has_status)
    scale = (section.get("subresources") or {}).get("scale")
    if scale is not None:
        yield from _scale(scale, f"{path}.subresources")
    for place, column in enumerate(section.get("additionalPrinterColumns") or ()):
        yield from _column(column, f"{path}.additionalPrinterColumns[{place}]")
    if selectable := section.get("selectableFields") or ():
        yield from _selectable(selectable, schema, f"{path}.selectableFields", is_of_all=schema_name == "validation")


def _scale(scale: Document, path: str) -> Causes:
    for name, needed in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        json_path, where = scale.get(name) or "", f"{path}.scale.{name}"
        if not json_path:
            yield required(where)
        elif wrong := _no_json_path(json_path):
            yield invalid(where, json_path, wrong)
        elif not json_path.startswith(needed):
            yield invalid(where, json_path, f"should be a json path under {needed[:-1]}")
    if json_path := scale.get("labelSelectorPath"):
        where = f"{path}.scale.labelSelectorPath"
        if wrong := _no_json_path(json_path):
            yield invalid(where, json_path, wrong)
        elif not json_path.startswith((".spec.", ".status.")):
            yield invalid(where, json_path, "should be a json path under either .spec or .status")


def _no_json_path(text: str) -> str:
    return "" if text.startswith(".") else "must be a simple json path starting with ."


def _column(column: Document, path: str) -> Causes:
    if not column.get("name"):
        yield required(f"{path}.name")
    kind, form, where = column.get("type") or "", column.get("format") or "", column.get("jsonPath") or ""
    if not kind:
        yield required(f"{path}.type", f"must be one of {','.join(_COLUMN_TYPES)}")
    elif kind not in _COLUMN_TYPES:
        yield invalid(f"{path}.type", kind, f"must be one of {','.join(_COLUMN_TYPES)}")
    if form and form not in _COLUMN_FORMATS:
        yield invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not where:
        yield required(f"{path}.JSONPath")
    elif wrong := _no_json_path(where):
        yield invalid(f"{path}.JSONPath", where, wrong)


def _selectable(fields: list[Document], schema: Document | None, path: str, *, is_of_all: bool) -> Causes:
    if schema is None:
        where = "validations.schema is included" if is_of_all else "version.schema.openAPIV3Schema is not included"
        yield invalid(path, "", f"selectableFields may only be set when {where}")
        return
    seen: set[str] = set()
    for place, selectable in enumerate(fields):
        json_path, where = selectable.get("jsonPath") or "", f"{path}[{place}].jsonPath"
        if not json_path:
            yield required(where)
            continue
        field_path, field, wrong = _field_at(json_path, schema)
        if wrong:
            yield invalid(where, json_path, f"is an invalid path: {wrong}")
            continue
        if field_path.partition(".")[0] == "metadata":
            yield invalid(where, json_path, "must not point to fields in metadata")
        if field.get("type") not in ("string", "boolean", "integer"):
            text = "must point to a field of type string, boolean or integer."
            yield invalid(where, json_path, f"{text} Enum string fields and strings with formats are allowed.")
        if field_path in seen:
            yield duplicate(where, json_path)
        seen.add(field_path)
    if len(seen) > SELECTABLE_MAX:
        yield too_many(path, len(seen), SELECTABLE_MAX)


_TOKEN: Final = re.compile(r"[.\[\]]|[^.\[\]]+")


def _field_at(path: str, schema: Document) -> tuple[str, Document, str]:
    """Return the place that a path such as `.spec.x` names, its schema, and why there is none."""
    tokens = iter(_TOKEN.findall(path))
    field_path = ""
    for token in tokens:
        if token == "[":
            return "", {}, "array notation is not allowed"
        if token != ".":
            return "", {}, f"expected [ or . but got: {token}"
        name = next(tokens, None)
        if name is None:
            return "", {}, "unexpected end of JSON path"
        named, others = schema.get("properties"), schema.get("additionalProperties")
        if named and name in named:
            schema, field_path = named[name], f"{field_path}.{name}" if field_path else name
        elif not named and isinstance(others, dict):
            schema, field_path = others, f"{field_path}[{name}]"
        else:
            return "", {}, "does not refer to a valid field"
    return field_path, schema, ""


# Schemas.


@dataclass(frozen=True)
class _Place:
    """Facts about a part of a schema. `no_default`: why it must not have a default.

    `is_meta`: it is part of a resource's apiVersion, kind or metadata.
    """

    no_default: str = ""
    is_meta: bool = False


def _schema(schema: Document, path: str, *, has_status: bool) -> Causes:
    where = f"{path}.openAPIV3Schema"
    if has_status:
        yield from _root(schema, where)
    if schema.get("nullable"):
        yield forbidden(f"{where}.nullable", "nullable cannot be true at the root")
    unreadable = structurality.unreadable(schema)
    causes = [] if unreadable else structurality.problems(schema, where)
    if not causes and not unreadable:
        causes = defaults.problems(Structural.of(schema, is_root=True), where)
    yield from causes
    plain = list(_part(schema, where, _Place(), is_root=True))
    yield from plain
    if unreadable:
        if not plain:
            yield invalid(where, "", unreadable)
    elif not causes:
        yield from _expressions(schema, where, plain)


def _expressions(schema: Document, path: str, plain: list[Cause]) -> Causes:
    """Yield which rules cannot be compiled or cost too much, at places with which nothing else is wrong."""
    for cause in rules.check(schema, path):
        at, marker, _ = cause.path.partition(f".{rules.RULES}")
        is_known_wrong = Cause(*cause) in plain or (marker and any(each.path.startswith(at) for each in plain))
        if not is_known_wrong:
            yield Cause(*cause)


def _root(schema: Document, path: str) -> Causes:
    """Yield what the root of a schema may not say, for its status is validated without it."""
    for name, keyword_value in (gotypes.schema(schema) or {}).items():
        if keyword_value in (None, "", False):
            continue
        if name == "Type" and keyword_value != "object":
            text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            yield invalid(f"{path}.type", keyword_value, text)
            return
        if name not in _ROOT_FIELDS.split():
            text = f"only [{_ROOT_FIELDS}] fields are allowed at the root of the schema if the status subresource is"
            yield invalid(path, gotypes.schema(schema), f"{text} enabled", in_order=True)
            return


def _part(schema: Document, path: str, place: _Place, *, is_root: bool = False) -> Causes:
    yield from _keywords(schema, path, place)
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", text)
    named, others = schema.get("properties") or {}, schema.get("additionalProperties")
    if others is not None and others is not True and named:
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if isinstance(others, dict):
        text = "inside additionalProperties applying to object metadata"
        inner = replace(place, no_default=text) if place.is_meta else place
        yield from _part(others, f"{path}.additionalProperties", inner)
    for name, part in named.items():
        inner = place
        if (is_root or schema.get("x-kubernetes-embedded-resource")) and name in ("metadata", "kind", "apiVersion"):
            inner = _Place(f"in top-level {name}" if is_root else place.no_default, is_meta=True)
        yield from _part(part, f"{path}.properties[{name}]", inner)
    if schema.get("not") is not None:
        yield from _part(schema["not"], f"{path}.not", place)
    for name in ("allOf", "oneOf", "anyOf"):
        for at, part in enumerate(schema.get(name) or ()):
            yield from _part(part, f"{path}.{name}[{at}]", place)
    items = schema.get("items")
    for at, part in enumerate(items if isinstance(items, list) else [items] if items is not None else []):
        yield from _part(part, f"{path}.items[{at}]" if isinstance(items, list) else f"{path}.items", place)
    yield from _merging(schema, path)
    for at, rule in enumerate(schema.get(rules.RULES) or ()):
        for cause in rules.malformed_causes(rule, f"{path}.{rules.RULES}[{at}]", schema):
            yield Cause(*cause)


def _keywords(schema: Document, path: str, place: _Place) -> Causes:
    kind = schema.get("type") or ""
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if schema.get("default") is not None and place.no_default:
        yield forbidden(f"{path}.default", f"must not be set {place.no_default}")
    for name in ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"):
        if schema.get(name) or (name in ("additionalItems", "dependencies", "$ref") and schema.get(name) is not None):
            yield forbidden(f"{path}.{name}", f"{name} is not supported")
    if kind == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), list) and schema["items"]:
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if place.is_meta and schema.get("x-kubernetes-embedded-resource"):
        yield forbidden(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta")


def _merging(schema: Document, path: str) -> Causes:
    """Yield what is wrong with the extensions that say how lists and maps merge."""
    list_type, map_type = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-map-type")
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
    yield from _needs_type(schema, path, "object", "x-kubernetes-map-type")
    if map_type not in (None, "atomic", "granular"):
        yield not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))
    yield from _needs_type(schema, path, "array", "x-kubernetes-list-type")
    items = schema.get("items")
    if list_type == "set" and schema.get("type") == "array" and isinstance(items, dict):
        yield from _set_items(items, f"{path}.items")
    if list_type not in (None, "atomic", "set", "map"):
        yield not_supported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if keys and list_type != "map":
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        where = f"{path}.x-kubernetes-list-type"
        yield required(where, text) if list_type is None else invalid(where, list_type, text)
    if list_type == "map":
        yield from _map_items(schema, keys, path)
    if list_type in ("set", "map") and isinstance(items, dict):
        yield from _never_null(items, keys if list_type == "map" else [], str(list_type), f"{path}.items")


def _needs_type(schema: Document, path: str, kind: str, name: str) -> Causes:
    said = schema.get("type") or ""
    if schema.get(name) is not None and said != kind:
        text = f"must be {kind} if {name} is specified"
        yield invalid(f"{path}.type", said, text) if said else required(f"{path}.type", text)


def _set_items(items: Document, path: str) -> Causes:
    list_type, text = items.get("x-kubernetes-list-type"), "must be atomic as item of a list with"
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        yield invalid(f"{path}.x-kubernetes-list-type", list_type, f"{text} x-kubernetes-list-type=set")
    elif items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        # The value that is shown is the list type, in upstream's words as well.
        yield invalid(f"{path}.x-kubernetes-map-type", list_type, f"{text} x-kubernetes-list-type=set")


def _map_items(schema: Document, keys: list[str], path: str) -> Causes:
    items = schema.get("items")
    if not keys:
        text = "must not be empty if x-kubernetes-list-type is map"
        yield required(f"{path}.x-kubernetes-list-map-keys", text)
    if items is None:
        yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
    elif isinstance(items, dict) and items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", items.get("type") or "", text)
    elif isinstance(items, dict):
        named = items.get("properties") or {}
        for at, key in enumerate(keys):
            if key not in named:
                text = "entries must all be names of item properties"
                yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, text)
            elif named[key].get("type") in ("array", "object"):
                text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
                yield invalid(f"{path}.items.properties[{key}].type", items["type"], text)
            if key in keys[:at]:
                yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, "must not contain duplicate entries")


def _never_null(items: Document, keys: list[str], list_type: str, path: str) -> Causes:
    if items.get("nullable"):
        yield forbidden(f"{path}.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}")
    named, needed = items.get("properties") or {}, items.get("required") or ()
    for key in keys:
        key_schema = named.get(key)
        if key_schema is None:
            continue
        where, text = f"{path}.properties[{key}]", "this property is in x-kubernetes-list-map-keys, so it"
        if key not in needed and key_schema.get("default") is None:
            yield required(f"{where}.default", f"{text} must have a default or be a required property")
        if key_schema.get("nullable"):
            yield forbidden(f"{where}.nullable", f"{text} cannot be nullable")


# What an update may not change, and what is stored.


def _immutable_fields(spec: Document, old: Document) -> Causes:
    before = old.get("spec") or {}
    names, names_before = spec.get("names") or {}, before.get("names") or {}
    fixed = [("group", spec, before), ("names.plural", names, names_before)]
    if conversion.is_established(old):
        fixed = [("scope", spec, before), ("names.kind", names, names_before), *fixed]
    for path, now, was in fixed:
        name = path.rpartition(".")[2]
        if now.get(name) != was.get(name):
            yield invalid(f"spec.{path}", now.get(name) or "", IMMUTABLE)


def _stored_versions(stored: list[str], versions: list[Document]) -> Causes:
    path = "status.storedVersions"
    if not stored:
        yield invalid(path, stored, "must have at least one stored version")
        return
    for version in versions:
        if version.get("storage") and version.get("name") not in stored:
            yield invalid(path, stored, f"must have the storage version {version.get('name')}")
    names = [version.get("name") for version in versions]
    for place, stored_version in enumerate(stored):
        if stored_version not in names:
            text = (
                f"missing from spec.versions; {stored_version} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {stored_version} "
                "and removes "
                f"{stored_version} from status.storedVersions"
            )
            yield invalid(f"{path}[{place}]", stored_version, text)


def _approval(new: Document, old: Document | None) -> Causes:
    """Yield why a definition of one of Kubernetes' own groups is not approved; what was not before may stay so."""
    group = (new.get("spec") or {}).get("group") or ""
    if not f".{group}".endswith((".k8s.io", ".kubernetes.io")):
        return
    state = _approval_state(new)
    if state in ("approved", "bypassed") or (old is not None and _approval_state(old) == state):
        return
    path, needed = f"metadata.annotations[{_APPROVED}]", f'protected groups must have approval annotation "{_APPROVED}"'
    if state == "missing":
        yield required(path, f"{needed}, {_APPROVALS}")
    else:
        annotation = new["metadata"]["annotations"][_APPROVED]
        yield invalid(
            path, annotation, f'{needed} with either a URL or a reason starting with "unapproved", {_APPROVALS}'
        )


def _approval_state(definition: Document) -> str:
    said = ((definition.get("metadata") or {}).get("annotations") or {}).get(_APPROVED) or ""
    if not said:
        return "missing"
    if said.startswith("unapproved"):
        return "bypassed"
    return "approved" if not urls.problem(said) and urls.url(said).host and urls.url(said).scheme else "invalid"
