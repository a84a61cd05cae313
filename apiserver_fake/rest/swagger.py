"""OpenAPI v2: one document of everything served, made from the documents of OpenAPI v3, and its protobuf
form.

v2 has no `oneOf`, `anyOf`, `not` and `nullable`: what they express is left open, as upstream publishes
definitions. The protobuf form is that of gnostic, which client-go reads; each message is a table of its fields
by number. Source: upstream
`staging/src/k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2/conversion.go`,
`staging/src/k8s.io/client-go/discovery/discovery_client.go`.
"""

import struct
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from apiserver_fake.rest.protobuf import bytes_field, number_field, varint
from services.api.meta import Document

_V3, _V2 = "#/components/schemas/", "#/definitions/"
_LEFT_OUT = frozenset(("oneOf", "anyOf", "not", "nullable"))
_PRODUCED = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_STREAMED = (*_PRODUCED, "application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")
METHODS = ("get", "put", "post", "delete", "options", "head", "patch")


def schema_of(schema: Document) -> Document:
    """Return a v3 schema converted to v2."""
    if isinstance(schema.get("allOf"), list) and len(schema["allOf"]) == 1 and "$ref" in schema["allOf"][0]:
        # A reference with a description of its own; v2 has both side by side.
        schema = {
            **{key: said for key, said in schema.items() if key not in ("allOf", "default")},
            **schema["allOf"][0],
        }
    v2_schema: Document = {key: said for key, said in schema.items() if key not in _LEFT_OUT and key != "allOf"}
    if "$ref" in v2_schema:
        v2_schema["$ref"] = _V2 + v2_schema["$ref"].removeprefix(_V3)
    if "properties" in v2_schema:
        v2_schema["properties"] = {name: schema_of(each) for name, each in v2_schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(v2_schema.get(key), dict):
            v2_schema[key] = schema_of(v2_schema[key])
    forms = [each.get("type") for each in schema.get("oneOf", ()) if isinstance(each, dict)]
    if "string" in forms and "type" not in v2_schema and not schema.get("x-kubernetes-int-or-string"):
        # Quantity and IntOrString: a text, to those who cannot have two types.
        v2_schema["type"] = "string"
    if schema.get("nullable"):
        for key in ("type", "format", "properties", "items", "additionalProperties", "default"):
            v2_schema.pop(key, None)
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        v2_schema.pop("items", None)
        v2_schema.pop("properties", None)
    return v2_schema


def _without_open_root(definition: Document) -> Document:
    """Return a definition of a kind that takes any field as an object of which nothing is known.

    kubectl takes fields that are published for all there are. Source: upstream
    `staging/src/k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder/builder.go`.
    """
    named = definition.get("x-kubernetes-group-version-kind")
    if named is None or not definition.get("x-kubernetes-preserve-unknown-fields"):
        return definition
    return {"type": "object", "x-kubernetes-group-version-kind": named}


def _operation(operation: Document) -> Document:
    content = (operation.get("requestBody") or {}).get("content") or {}
    parameters = [_parameter(each) for each in operation.get("parameters") or ()]
    if content:
        schema = schema_of(next(iter(content.values()))["schema"])
        parameters.insert(0, {"name": "body", "in": "body", "required": True, "schema": schema})
    responses: Document = {}
    for code, answer in operation["responses"].items():
        responses[code] = {"description": answer["description"]}
        for media_type in (answer.get("content") or {}).values():
            responses[code]["schema"] = schema_of(media_type["schema"])
            break
    action = operation.get("x-kubernetes-action", "")
    extensions = {key: said for key, said in operation.items() if key.startswith("x-")}
    return {
        "consumes": sorted(content) or ["*/*"],
        "produces": list(_STREAMED if action == "list" else _PRODUCED),
        "schemes": ["https"],
        "tags": operation["tags"],
        "operationId": operation["operationId"],
        **({"parameters": parameters} if parameters else {}),
        "responses": responses,
        **extensions,
    }


def _parameter(parameter: Document) -> Document:
    schema: Document = parameter.get("schema", {})
    return {key: said for key, said in parameter.items() if key != "schema"} | schema


def document(documents: Iterable[Document], version: str) -> Document:
    """Return the OpenAPI v2 document of these v3 documents. `version`: the server's version."""
    paths: Document = {}
    definitions: Document = {}
    for v3_document in documents:
        for path, item in v3_document["paths"].items():
            path_item: Document = {key: _operation(said) for key, said in item.items() if key in METHODS}
            if item.get("parameters"):
                path_item["parameters"] = [_parameter(said) for said in item["parameters"]]
            paths[path] = path_item
        for name, schema in v3_document["components"]["schemas"].items():
            definition = schema_of(schema)
            if (kinds := definitions.get(name, {}).get("x-kubernetes-group-version-kind")) is not None:
                more = definition.get("x-kubernetes-group-version-kind", [])
                definition["x-kubernetes-group-version-kind"] = kinds + [kind for kind in more if kind not in kinds]
            definitions[name] = _without_open_root(definition)
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": version},
        "paths": dict(sorted(paths.items())),
        "definitions": dict(sorted(definitions.items())),
    }


# -- protobuf

_TEXT, _FLAG, _COUNT, _DOUBLE, _ANY, _TEXTS, _ANYS = "text", "flag", "count", "double", "any", "texts", "anys"
_SCHEMA: Final[tuple[tuple[str, int, str], ...]] = (
    ("$ref", 1, _TEXT), ("format", 2, _TEXT), ("title", 3, _TEXT), ("description", 4, _TEXT), ("default", 5, _ANY),
    ("multipleOf", 6, _DOUBLE), ("maximum", 7, _DOUBLE), ("exclusiveMaximum", 8, _FLAG), ("minimum", 9, _DOUBLE),
    ("exclusiveMinimum", 10, _FLAG), ("maxLength", 11, _COUNT), ("minLength", 12, _COUNT), ("pattern", 13, _TEXT),
    ("maxItems", 14, _COUNT), ("minItems", 15, _COUNT), ("uniqueItems", 16, _FLAG), ("maxProperties", 17, _COUNT),
    ("minProperties", 18, _COUNT), ("required", 19, _TEXTS), ("enum", 20, _ANYS),
    ("additionalProperties", 21, "additional"),
    ("type", 22, "type"), ("items", 23, "items"), ("properties", 25, "schemas"),
)  # fmt: skip
_QUERY = (
    ("required", 1, _FLAG),
    ("in", 2, _TEXT),
    ("description", 3, _TEXT),
    ("name", 4, _TEXT),
    ("type", 6, _TEXT),
    ("format", 7, _TEXT),
    ("uniqueItems", 20, _FLAG),
)
_PATH = (
    ("required", 1, _FLAG),
    ("in", 2, _TEXT),
    ("description", 3, _TEXT),
    ("name", 4, _TEXT),
    ("type", 5, _TEXT),
    ("format", 6, _TEXT),
    ("uniqueItems", 19, _FLAG),
)
_BODY = (
    ("description", 1, _TEXT),
    ("name", 2, _TEXT),
    ("in", 3, _TEXT),
    ("required", 4, _FLAG),
    ("schema", 5, "schema"),
)
_RESPONSE = (("description", 1, _TEXT), ("schema", 2, "answer"))
_OPERATION = (("tags", 1, _TEXTS), ("description", 3, _TEXT), ("operationId", 5, _TEXT), ("produces", 6, _TEXTS),
              ("consumes", 7, _TEXTS), ("parameters", 8, "parameters"), ("responses", 9, "responses"),
              ("schemes", 10, _TEXTS))  # fmt: skip
_ITEM = (("get", 2, "operation"), ("put", 3, "operation"), ("post", 4, "operation"), ("delete", 5, "operation"),
         ("options", 6, "operation"), ("head", 7, "operation"), ("patch", 8, "operation"),
         ("parameters", 9, "parameters"))  # fmt: skip
_INFO = (("title", 1, _TEXT), ("version", 2, _TEXT))
_DOCUMENT = (("swagger", 1, _TEXT), ("info", 2, "info"), ("paths", 8, "paths"), ("definitions", 9, "schemas"))
_MESSAGES: Final = {"schema": (_SCHEMA, 31), "operation": (_OPERATION, 13), "info": (_INFO, 7)}
"""Messages that are encoded without a wrapper, with the field number of their extensions."""


def encode(document: Document) -> bytes:
    """Return an OpenAPI v2 document as gnostic's `openapi.v2.Document`."""
    return _message(document, _DOCUMENT, 16)


def _any(value: Any) -> bytes:
    # JSON is YAML.
    return bytes_field(2, msgspec.json.encode(value))


def _message(document: Document, fields: tuple[tuple[str, int, str], ...], extensions: int) -> bytes:
    parts = [_field(number, form, document[name]) for name, number, form in fields if name in document]
    parts += [
        bytes_field(extensions, bytes_field(1, name.encode()) + bytes_field(2, _any(said)))
        for name, said in document.items()
        if name.startswith("x-")
    ]
    return b"".join(parts)


def _named_fields(number: int, values: Document, table: tuple[tuple[str, int, str], ...], extensions: int) -> bytes:
    return b"".join(
        bytes_field(number, bytes_field(1, name.encode()) + bytes_field(2, _message(each, table, extensions)))
        for name, each in values.items()
    )


def _field(number: int, form: str, value: Any) -> bytes:
    """Return one field; what is empty is not there, as in all of protobuf's third version."""
    match form:
        case "text":
            return bytes_field(number, value.encode()) if value else b""
        case "flag":
            return number_field(number, 1) if value else b""
        case "count":
            return number_field(number, int(value)) if value else b""
        case "double":
            return varint(number << 3 | 1) + struct.pack("<d", value) if value else b""
        case "any":
            return bytes_field(number, _any(value))
        case "texts":
            return b"".join(bytes_field(number, each.encode()) for each in value)
        case "anys":
            return b"".join(bytes_field(number, _any(each)) for each in value)
        case "type":
            types = [value] if isinstance(value, str) else value
            return bytes_field(number, b"".join(bytes_field(1, each.encode()) for each in types))
        case "items":
            return bytes_field(number, bytes_field(1, _message(value, *_MESSAGES["schema"])))
        case "additional" if isinstance(value, bool):
            return bytes_field(number, number_field(2, int(value)))
        case "additional" | "answer":
            return bytes_field(number, bytes_field(1, _message(value, *_MESSAGES["schema"])))
        case "schemas":
            return bytes_field(number, _named_fields(1, value, *_MESSAGES["schema"]))
        case "paths":
            return bytes_field(number, _named_fields(2, value, _ITEM, 10))
        case "responses":
            entries = (
                bytes_field(
                    1, bytes_field(1, code.encode()) + bytes_field(2, bytes_field(1, _message(each, _RESPONSE, 5)))
                )
                for code, each in value.items()
            )
            return bytes_field(number, b"".join(entries))
        case "parameters":
            return b"".join(bytes_field(number, bytes_field(1, _encoded_parameter(each))) for each in value)
        case _:
            return bytes_field(number, _message(value, *_MESSAGES[form]))


def _encoded_parameter(parameter: Document) -> bytes:
    if parameter["in"] == "body":
        return bytes_field(1, _message(parameter, _BODY, 6))
    if parameter["in"] == "path":
        return bytes_field(2, bytes_field(4, _message(parameter, _PATH, 22)))
    return bytes_field(2, bytes_field(3, _message(parameter, _QUERY, 23)))
