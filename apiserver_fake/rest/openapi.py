"""OpenAPI v3: one index and one document a group version, made from the catalogue, `schemas.json` and tables.

Types, descriptions and what is required are upstream's schemas; defaults, enums and bounds come from the tables that
check writes.

kubectl asks two things of it: does PATCH of this kind take `fieldValidation` (then it leaves validation to
the server), and what do the fields mean (`explain`, client-side strategic merge). A kind without a
schema gets one that keeps every field, so that it can be applied all the same.
"""

from functools import cache
from typing import Any

from apiserver_fake.catalogue import Catalogue
from apiserver_fake.rest import discovery
from apiserver_fake.rest.media_types import PATCH_TYPES
from apiserver_fake.rest.paths import CONNECTED, subresource_form
from apiserver_fake.schema.schemas import component_of, components
from apiserver_fake.validation.fields import Struct, constraints
from services.api.meta import Document, Resource
from services.api.metrics.apis import COMPUTED

_PREFIX = "#/components/schemas/"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_FIELDS = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"
_NAMED: dict[str, Document] = {
    _QUANTITY: {
        "description": 'An amount with a suffix, such as "100m" or "1Gi".',
        "oneOf": [{"type": "string"}, {"type": "number"}],
    },
    _INT_OR_STRING: {
        "description": "An integer or a text: a number or a percentage, the number or the name of a port.",
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
    _FIELDS: {"description": "A set of fields, as a tree of objects.", "type": "object"},
}
"""Types that upstream's documents name and ours have in place: kubectl explain prints the name."""
_NAMES = {"quantity": _QUANTITY, "int-or-string": _INT_OR_STRING}
_PARAMETERS: tuple[tuple[str, str, str], ...] = (
    ("dryRun", "string", "When present, indicates that modifications should not be persisted; the only value is All."),
    ("fieldManager", "string", "A name associated with the actor or entity that is making these changes."),
    ("fieldValidation", "string", "How unknown or duplicate fields are treated: Ignore, Warn (default) or Strict."),
)


def _closure(roots: list[str], invented: dict[str, Document]) -> dict[str, Document]:
    """Return the schemas reachable from these components, sorted by name; `invented`: those that no table has."""
    schemas, seen = {**components(), **invented}, set(roots)
    waiting: list[Any] = [schemas.get(name, {}) for name in roots]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item.values()
            target = item.get("$ref")
            if isinstance(target, str) and (name := target.removeprefix(_PREFIX)) not in seen:
                seen.add(name)
                waiting.append(schemas.get(name, {}))
        elif isinstance(item, list):
            waiting += item
    return {name: schemas[name] for name in sorted(seen) if name in schemas}


def _operation(
    action: str, r: Resource, component: str, kind: Document | None = None, *, has_strategic_merge: bool = True
) -> Document:
    parameters = [
        {"name": name, "in": "query", "description": text, "schema": {"type": form, "uniqueItems": True}}
        for name, form, text in _PARAMETERS
    ]
    content = {"application/json": {"schema": {"$ref": _PREFIX + component}}}
    operation: Document = {
        "tags": [f"{r.group.partition('.')[0] or 'core'}_{r.version}"],
        "operationId": f"{action}{'Namespaced' if r.namespaced else ''}{r.kind}",
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind or discovery.kind_of(r.group, r.version, r.kind),
    }
    if action in ("post", "put", "patch"):
        operation["parameters"] = parameters
        types = list(content)
        if action == "patch":
            types = sorted(name for name, kind in PATCH_TYPES.items() if kind != "strategic" or has_strategic_merge)
        operation["requestBody"] = {"content": dict.fromkeys(types, content["application/json"])}
    return operation


def _path_parameters(r: Resource, *, named: bool) -> list[Document]:
    names = (["name"] if named else []) + (["namespace"] if r.namespaced else [])
    return [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names]


def _constrain(components: dict[str, Document], name: str, table: Struct, seen: dict[str, None]) -> None:
    """Write what a kind's table of field rules says into the schemas of its types; shared schemas are copied."""
    if name in seen or name not in components:
        return
    seen[name] = None
    properties = {**components[name].get("properties", {})}
    for field in table.fields:
        schema = properties.get(field.name)
        if schema is None:
            continue
        if said := constraints(field):
            properties[field.name] = {**said, **schema}
        inner = field.items if isinstance(field.items, Struct) else field.struct
        target = schema.get("items", schema).get("$ref", "")
        if inner is not None and target:
            _constrain(components, target.removeprefix(_PREFIX), inner, seen)
    components[name] = {**components[name], "properties": properties}


def _name_types(components: dict[str, Document]) -> None:
    """Refer to quantities, and to integers or texts, by the names that upstream's documents have for them."""
    used: set[str] = set()

    def named(schema: Any) -> Any:
        if isinstance(schema, list):
            return [named(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        if target := _NAMES.get(str(schema.get("format", ""))):
            used.add(target)
            kept = {name: value for name, value in schema.items() if name not in ("format", "type", "oneOf")}
            return {"$ref": _PREFIX + target, **kept}
        return {name: named(value) for name, value in schema.items()}

    for name, schema in components.items():
        components[name] = named(schema)
        properties = components[name].get("properties", {})
        if (held := properties.get("fieldsV1")) is not None and name.endswith(".ManagedFieldsEntry"):
            used.add(_FIELDS)
            properties["fieldsV1"] = {"$ref": _PREFIX + _FIELDS, "description": held["description"]}
    components.update((name, _NAMED[name]) for name in used)


def document(catalogue: Catalogue, group: str, version: str) -> Document:
    """Return the OpenAPI v3 document of one group version; paths and components are sorted."""
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    found = catalogue.served.get((group, version), {}).values()
    served = [each.resource for each in found if each.resource.name not in COMPUTED]
    defined = {each.resource.kind: each for each in found if each.schema is not None}
    merging = {each.resource.name: each.has_strategic_merge for each in found}
    paths: Document = {}
    roots: list[str] = []
    invented: dict[str, Document] = {}
    kinds: dict[str, list[Document]] = {}

    def component(kind_group: str, kind_version: str, kind: str) -> str:
        name = component_of(f"{kind_group}/{kind_version}" if kind_group else kind_version, kind)
        if not name and (kind_group, kind_version) == (group, version) and kind in defined:
            # Named as upstream names it: `com.example.stable.v1.CronTab`.
            name = ".".join([*reversed(group.split(".")), version, kind])
            schema = defined[kind].schema
            assert schema is not None, "only kinds with a schema are in the table"
            invented[name] = schema()
        if not name:
            name = f"io.keplab.{kind_group.partition('.')[0] or 'core'}.{kind_version}.{kind}"
            said = f"{kind}: every field is kept."
            invented[name] = {"type": "object", "description": said, "x-kubernetes-preserve-unknown-fields": True}
        if name not in roots:
            roots.append(name)
            kinds[name] = [discovery.kind_of(kind_group, kind_version, kind)]
        return name

    for r in served:
        of = component(r.group, r.version, r.kind)
        base = f"{root}/namespaces/{{namespace}}/{r.plural}" if r.namespaced else f"{root}/{r.plural}"
        paths[base] = {
            "get": _operation("list", r, of),
            "post": _operation("post", r, of),
            "delete": _operation("deletecollection", r, of),
            "parameters": _path_parameters(r, named=False),
        }
        paths[f"{base}/{{name}}"] = {
            "get": _operation("get", r, of),
            "put": _operation("put", r, of),
            "patch": _operation("patch", r, of, has_strategic_merge=merging[r.name]),
            "delete": _operation("delete", r, of),
            "parameters": _path_parameters(r, named=True),
        }
        for name in sorted(set(r.subresources) - set(CONNECTED)):
            form = subresource_form(name)
            own = (form.group, form.version, form.kind) if form.kind else (r.group, r.version, r.kind)
            of_sub = component(*own)
            methods = {"create": "post", "get": "get", "patch": "patch", "update": "put"}
            entry: Document = {
                methods[v]: _operation(methods[v], r, of_sub, discovery.kind_of(*own)) for v in form.verbs
            }
            entry["parameters"] = _path_parameters(r, named=True)
            paths[f"{base}/{{name}}/{name}"] = entry
    for r in discovery.CREATED_ONLY:
        if (r.group, r.version) == (group, version):
            of = component(r.group, r.version, r.kind)
            path = f"{root}/namespaces/{{namespace}}/{r.plural}" if r.namespaced else f"{root}/{r.plural}"
            paths[path] = {"post": _operation("post", r, of), "parameters": _path_parameters(r, named=False)}
    # The closure shares the loaded schemas; a root is copied before its kinds are written into it.
    components = {**_closure(roots, invented), **invented}
    for r in served:
        # A second version under another group has no table of its own.
        if r.name in catalogue.resources and (table := catalogue.kind(r.name).strategy.fields) is not None:
            _constrain(components, component_of(r.api_version, r.kind), table, {})
    _name_types(components)
    for name in roots:
        components[name] = {**components[name], "x-kubernetes-group-version-kind": kinds[name]}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": discovery.GIT_VERSION},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted(components.items()))},
    }


SECOND_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
SECOND_PROTOBUF_ASKED = SECOND_PROTOBUF.replace(".v2.", ".v2@")
"""What a client accepts; as a media type that is read strictly it must not have the `@`."""


@cache
def second(*, is_protobuf: bool) -> discovery.Answer:
    """Return `/openapi/v2`: a document that defines nothing.

    kubectl reads it after `/openapi/v3`, when it has not found a kind there; only then it says that there is none.
    """
    title, version = "Kubernetes", discovery.GIT_VERSION
    if not is_protobuf:
        info = {"title": title, "version": version}
        return discovery.answer({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}})
    described = _text_field(1, title) + _text_field(2, version)
    return discovery.answer_of(_text_field(1, "2.0") + bytes((2 << 3 | 2, len(described))) + described)


def _text_field(number: int, text: str) -> bytes:
    """Return a protobuf field of less than 128 bytes."""
    value = text.encode()
    return bytes((number << 3 | 2, len(value))) + value


def group_version_answer(catalogue: Catalogue, group: str, version: str) -> discovery.Answer | None:
    """Return the encoded document of a group version, or None when it is not served."""
    if not discovery.is_served(catalogue, group, version):
        return None
    return catalogue.once(("openapi", group, version), lambda: discovery.answer(document(catalogue, group, version)))


def index(catalogue: Catalogue) -> discovery.Answer:
    """Return `/openapi/v3`: each group version with a URL that changes when its document does."""
    return catalogue.once("openapi", lambda: _index(catalogue))


def _index(catalogue: Catalogue) -> discovery.Answer:
    paths: Document = {}
    for group, versions in discovery.groups(catalogue).items():
        for version in versions:
            found = group_version_answer(catalogue, group, version)
            assert found is not None, f"{group}/{version} is served"
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            digest = found.etag.strip('"')
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return discovery.answer({"paths": paths})
