"""OpenAPI v3: one index, and one document per group version, made from the catalogue, `schemas.json` and
tables.

Types, descriptions and required fields come from upstream's schemas; defaults, enums and bounds from the tables
that validate writes.

kubectl uses it for two things: whether PATCH of this kind takes `fieldValidation` (then it leaves validation to
the server), and the meaning of fields (`explain`, client-side strategic merge). A kind without a schema gets
one that keeps every field, so that it can still be applied.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.registry.schema.schemas import component_of, components
from apiserver_fake.registry.validation.fields import Struct, constraints
from apiserver_fake.rest import discovery, swagger
from apiserver_fake.rest.media_types import JSON, PATCH_TYPES, clauses_of
from apiserver_fake.rest.paths import CONNECTED, subresource_form
from services.api.meta import Document, Resource
from services.api.metrics.apis import COMPUTED

_PREFIX = "#/components/schemas/"
_PARAMETERS: tuple[tuple[str, str, str], ...] = (
    ("dryRun", "string", "When present, indicates that modifications should not be persisted; the only value is All."),
    ("fieldManager", "string", "A name associated with the actor or entity that is making these changes."),
    ("fieldValidation", "string", "How unknown or duplicate fields are treated: Ignore, Warn (default) or Strict."),
)


def _closure(roots: list[str], invented: dict[str, Document]) -> dict[str, Document]:
    """Return the schemas reachable from these components, sorted by name; `invented`: those that no table has."""
    schemas, seen = {**_named_components(), **invented}, set(roots)
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


META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_QUANTITY, _INT_OR_STRING = (
    "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
)
_TIME, _MICRO_TIME = f"{META}.Time", f"{META}.MicroTime"
NAMED_TYPES: dict[str, Document] = {
    _QUANTITY: {
        "description": "Quantity is a fixed-point representation of a number with a decimal or binary suffix.",
        "oneOf": [{"type": "string"}, {"type": "number"}],
    },
    _INT_OR_STRING: {
        "description": "IntOrString is a type that can hold an int32 or a string.",
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
    _TIME: {"description": "Time is a timestamp with a precision of seconds.", "format": "date-time", "type": "string"},
    _MICRO_TIME: {
        "description": "MicroTime is a timestamp with a precision of microseconds.",
        "format": "date-time",
        "type": "string",
    },
}
"""Types with a JSON form of their own; fields refer to them by name."""
_BY_FORMAT = {"quantity": _QUANTITY, "int-or-string": _INT_OR_STRING, "date-time": _TIME}
_MICRO_TIMES = frozenset(
    (
        ("io.k8s.api.coordination.v1.LeaseSpec", "acquireTime"),
        ("io.k8s.api.coordination.v1.LeaseSpec", "renewTime"),
        ("io.k8s.api.core.v1.Event", "eventTime"),
        ("io.k8s.api.core.v1.EventSeries", "lastObservedTime"),
        ("io.k8s.api.events.v1.Event", "eventTime"),
        ("io.k8s.api.events.v1.EventSeries", "lastObservedTime"),
    )
)
_OF_FORM = ("format", "oneOf", "type")


def _by_name(schema: Document, target: str = "") -> Document:
    """Return the schema of a field with its type's name instead of the type's form."""
    target = target or _BY_FORMAT.get(schema.get("format", ""), "")
    if target:
        return {"$ref": _PREFIX + target, **{key: said for key, said in schema.items() if key not in _OF_FORM}}
    inner = {
        key: _by_name(schema[key]) for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)
    }
    return {**schema, **inner} if inner else schema


@cache
def _named_components() -> dict[str, Document]:
    """Return upstream's components, their fields of named types referring to those."""
    all_components = dict(NAMED_TYPES)
    for name, schema in components().items():
        fields = schema.get("properties", {})
        targets = {field: _MICRO_TIME if (name, field) in _MICRO_TIMES else "" for field in fields}
        named = {field: _by_name(said, targets[field]) for field, said in fields.items()}
        all_components[name] = {**schema, "properties": named} if named else schema
    return all_components


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
        "responses": {"200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}},
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
        if keywords := constraints(field):
            properties[field.name] = {**keywords, **schema}
        inner = field.items if isinstance(field.items, Struct) else field.struct
        target = schema.get("items", schema).get("$ref", "")
        if inner is not None and target:
            _constrain(components, target.removeprefix(_PREFIX), inner, seen)
    components[name] = {**components[name], "properties": properties}


class _Types:
    """The types that the paths of one group version refer to, including those that are in no loaded schema."""

    def __init__(self, catalogue: Catalogue, group: str, version: str) -> None:
        self._catalogue, self._group_version = catalogue, (group, version)
        found = catalogue.served_versions.get((group, version), {}).values()
        self._defined = {each.resource.kind: each for each in found if each.schema is not None}
        self._invented: dict[str, Document] = {}
        self._kinds: dict[str, list[Document]] = {}
        """By name of each type that is a kind: which."""

    def status(self) -> str:
        """Return the name of the type of what a delete answers."""
        name = f"{META}.Status"
        self._kinds[name] = [discovery.kind_of("", "v1", "Status")]
        return name

    def of(self, group: str, version: str, kind: str) -> str:
        """Return the name of a kind's type."""
        name = component_of(f"{group}/{version}" if group else version, kind)
        if not name and (group, version) == self._group_version and kind in self._defined:
            # Named as upstream names it: `com.example.stable.v1.CronTab`.
            name = ".".join([*reversed(group.split(".")), version, kind])
            schema = self._defined[kind].schema
            assert schema is not None, "only kinds with a schema are in the table"
            self._invented[name] = schema()
        if not name:
            name = f"io.keplab.{group.partition('.')[0] or 'core'}.{version}.{kind}"
            description = f"{kind}: every field is kept."
            self._invented[name] = {
                "type": "object",
                "description": description,
                "x-kubernetes-preserve-unknown-fields": True,
            }
        self._kinds.setdefault(name, [discovery.kind_of(group, version, kind)])
        return name

    def list_of(self, r: Resource, of: str) -> str:
        """Return the name of the type of a kind's lists."""
        name = of.removesuffix(r.kind) + r.list_kind
        head = {key: _named_components()[f"{META}.Status"]["properties"][key] for key in ("apiVersion", "kind")}
        items = {"type": "array", "items": {"$ref": _PREFIX + of}, "description": f"items is the list of {r.kind}s."}
        metadata = {"$ref": f"{_PREFIX}{META}.ListMeta", "description": "Standard list metadata."}
        self._invented[name] = {
            "description": f"{r.list_kind} is a list of {r.kind}s.",
            "type": "object",
            "required": ["items"],
            "properties": {**head, "metadata": metadata, "items": items},
        }
        self._kinds[name] = [discovery.kind_of(r.group, r.version, r.list_kind)]
        return name

    def schemas(self, served: Iterable[Resource]) -> dict[str, Document]:
        """Return all types by name, with what the tables of field rules say of the kinds that are served."""
        # The closure shares the loaded schemas; a root is copied before its kinds are written into it.
        type_schemas = {**_closure(list(self._kinds), self._invented), **self._invented}
        for r in served:
            # A second version under another group has no table of its own.
            if (
                r.name in self._catalogue.resources
                and (table := self._catalogue.kind(r.name).strategy.fields) is not None
            ):
                _constrain(type_schemas, component_of(r.api_version, r.kind), table, {})
        for name, kinds in self._kinds.items():
            type_schemas[name] = {**type_schemas[name], "x-kubernetes-group-version-kind": kinds}
        return type_schemas


def _paths_of(root: str, r: Resource, types: _Types, *, has_strategic_merge: bool) -> dict[str, Document]:
    """Return the paths of a kind, with those of its subresources."""
    status, of = types.status(), types.of(r.group, r.version, r.kind)
    listed = types.list_of(r, of)
    paths: dict[str, Document] = {}
    if r.namespaced:
        everywhere = _operation("list", r, listed)
        everywhere["operationId"] = f"list{r.kind}ForAllNamespaces"
        paths[f"{root}/{r.plural}"] = {"get": everywhere}
    base = _collection(root, r)
    paths[base] = {
        "get": _operation("list", r, listed),
        "post": _operation("post", r, of),
        "delete": _operation("deletecollection", r, status),
        "parameters": _path_parameters(r, named=False),
    }
    paths[f"{base}/{{name}}"] = {
        "get": _operation("get", r, of),
        "put": _operation("put", r, of),
        "patch": _operation("patch", r, of, has_strategic_merge=has_strategic_merge),
        "delete": _operation("delete", r, status),
        "parameters": _path_parameters(r, named=True),
    }
    for name in sorted(set(r.subresources) - set(CONNECTED)):
        form = subresource_form(name)
        own = (form.group, form.version, form.kind) if form.kind else (r.group, r.version, r.kind)
        of_sub = types.of(*own)
        methods = {"create": "post", "get": "get", "patch": "patch", "update": "put"}
        entry: Document = {
            methods[v]: _operation(
                methods[v], r, of_sub, discovery.kind_of(*own), has_strategic_merge=has_strategic_merge
            )
            for v in form.verbs
        }
        entry["parameters"] = _path_parameters(r, named=True)
        paths[f"{base}/{{name}}/{name}"] = entry
    return paths


def _collection(root: str, r: Resource) -> str:
    return f"{root}/namespaces/{{namespace}}/{r.plural}" if r.namespaced else f"{root}/{r.plural}"


def document(catalogue: Catalogue, group: str, version: str) -> Document:
    """Return the OpenAPI v3 document of one group version; paths and components are sorted."""
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    served_versions = [
        each
        for each in catalogue.served_versions.get((group, version), {}).values()
        if each.resource.name not in COMPUTED
    ]
    types = _Types(catalogue, group, version)
    paths: dict[str, Document] = {}
    for served_version in served_versions:
        paths |= _paths_of(root, served_version.resource, types, has_strategic_merge=served_version.has_strategic_merge)
    for r in discovery.CREATED_ONLY:
        if (r.group, r.version) == (group, version):
            of = types.of(r.group, r.version, r.kind)
            paths[_collection(root, r)] = {
                "post": _operation("post", r, of),
                "parameters": _path_parameters(r, named=False),
            }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": discovery.GIT_VERSION},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted(types.schemas(each.resource for each in served_versions).items()))},
    }


SECOND_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_SECOND_FORMS = {JSON: JSON, SECOND_PROTOBUF.replace(".v2.", ".v2@"): SECOND_PROTOBUF, SECOND_PROTOBUF: SECOND_PROTOBUF}
"""Accepted media types, and the media type sent for each: a strictly parsed media type has no `@`."""


def second_type(accept: str) -> str:
    """Return the media type of `/openapi/v2` that a client prefers; "" if it accepts none."""
    for main, sub, _ in clauses_of(accept or "*/*"):
        for asked, sent in _SECOND_FORMS.items():
            if main in ("application", "*") and sub in ("*", asked.partition("/")[2]):
                return sent
    return ""


def second(catalogue: Catalogue, *, is_protobuf: bool) -> discovery.Answer:
    """Return `/openapi/v2`: everything served in one document, which older clients read."""
    return catalogue.once(("openapi/v2", is_protobuf), lambda: _second(catalogue, is_protobuf))


def _second(catalogue: Catalogue, is_protobuf: bool) -> discovery.Answer:
    if is_protobuf:
        document = msgspec.json.decode(second(catalogue, is_protobuf=False).body)
        # Both forms have one tag: Vary distinguishes them.
        return discovery.Answer(swagger.encode(document), second(catalogue, is_protobuf=False).etag)
    served = []
    for group, versions in discovery.groups(catalogue).items():
        for version in versions:
            answer = group_version_answer(catalogue, group, version)
            assert answer is not None, f"{group}/{version} is served"
            served.append(msgspec.json.decode(answer.body))
    return discovery.answer(swagger.document(served, discovery.GIT_VERSION))


def group_version_answer(catalogue: Catalogue, group: str, version: str) -> discovery.Answer | None:
    """Return the encoded document of a group version, or None when it is not served."""
    if not discovery.is_served(catalogue, group, version):
        return None
    return catalogue.once_of(group, version, "openapi", lambda: discovery.answer(document(catalogue, group, version)))


def index(catalogue: Catalogue) -> discovery.Answer:
    """Return `/openapi/v3`: each group version with a URL that changes with its document."""
    return catalogue.once("openapi", lambda: _index(catalogue))


def _index(catalogue: Catalogue) -> discovery.Answer:
    paths: Document = {}
    for group, versions in discovery.groups(catalogue).items():
        for version in versions:
            answer = group_version_answer(catalogue, group, version)
            assert answer is not None, f"{group}/{version} is served"
            paths[_path_of(group, version)] = {"serverRelativeURL": url_of(group, version, answer.etag)}
    return discovery.answer({"paths": paths})


def _path_of(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def url_of(group: str, version: str, etag: str) -> str:
    """Return the URL of a group version's document, with the hash of its present content."""
    return f"/openapi/v3/{_path_of(group, version)}?hash={etag.strip(chr(34))}"
