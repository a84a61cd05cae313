"""KWOK's kinds as CustomResourceDefinitions: names, scope and schema of each, and validation of objects. Pure.

The schemas come from the types that read documents, so that an object and a file mean the same. Rules that a
schema cannot express, for expressions and templates for example, are checked as in a file.
Source: kubernetes-sigs/kwok kustomize/crd/bases, pkg/kwok/cmd/root.go (`--enable-crds`); decision 0078.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, Final, NamedTuple

from msgspec import inspect

from services.api.meta import Document, Resource, key_of
from services.kwok.documents import STAGE, KwokError, kinds, read_one
from services.kwok.kind import API_VERSION, CLUSTER, Selector
from services.kwok.stages.document import SPEC, StageError, read_stage

GROUP, VERSION = API_VERSION.split("/")
ALL: Final = "all"
"""Word for every kind, in place of a list of kinds."""
LABEL: Final = {"app.kubernetes.io/managed-by": "keplab"}
"""Label of definitions that the API server made; it keeps them as its release defines them, and no others."""
HOST_COMMAND: Final = "it runs a command on the kubelets' machine, which only --host-commands allows"
_PLURALS: Final = {
    "Attach": "attaches",
    "Logs": "logs",
    "ClusterAttach": "clusterattaches",
    "ClusterLogs": "clusterlogs",
}
_TYPES: Final[dict[type[inspect.Type], str]] = {
    inspect.StrType: "string",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.BoolType: "boolean",
}
_STATUS: Final[Document] = {
    "type": "object",
    "description": "What is observed of the object; nothing here writes it.",
    "properties": {
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "required": ["type", "status"],
                "properties": {
                    "type": {"type": "string"},
                    "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                    "reason": {"type": "string"},
                    "message": {"type": "string"},
                    "lastTransitionTime": {"type": "string", "format": "date-time"},
                },
            },
        }
    },
}


class Problem(NamedTuple):
    """Problem of an object: the path of a field, and the message."""

    path: str
    message: str


def names() -> tuple[str, ...]:
    """Return every kind, Stage first."""
    return (STAGE, *kinds())


def choose_kinds(given: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds that these words name: kinds, or `all`, separated by commas. Raises: ValueError naming an
    unknown word.
    """
    words = [word for text in given for word in text.split(",") if word]
    known = names()
    for word in words:
        if word != ALL and word not in known:
            raise ValueError(f"{word!r} is none of {', '.join((ALL, *known))}")
    return tuple(kind for kind in known if ALL in words or kind in words)


def is_namespaced(kind: str) -> bool:
    """Whether objects of this kind are namespaced: true for those of a single pod."""
    return kind != STAGE and not kind.startswith(CLUSTER) and kinds()[kind].is_of_pods


@cache
def resource_of(kind: str) -> Resource:
    """Return the resource that a definition of this kind defines."""
    return Resource(
        group=GROUP, version=VERSION, kind=kind, plural=_PLURALS.get(kind, ""), namespaced=is_namespaced(kind)
    )


@cache
def resources() -> dict[str, Resource]:
    """Return the resources of all kinds, by kind."""
    return {kind: resource_of(kind) for kind in names()}


@cache
def definition(kind: str) -> Document:
    """Return the CustomResourceDefinition of a kind; it is shared and must not be changed."""
    resource = resource_of(kind)
    schema = {
        "type": "object",
        "description": f"{kind}: see docs/how-to/kwok-kinds.md.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _spec_schema(kind),
            "status": _STATUS,
        },
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    named = {"kind": kind, "listKind": resource.list_kind, "plural": resource.plural, "singular": resource.singular}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.name, "labels": LABEL},
        "spec": {
            "group": GROUP,
            "names": named,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }


def _spec_schema(kind: str) -> Document:
    if kind == STAGE:
        return structural(SPEC)
    found = structural(kinds()[kind].spec)
    if kind.startswith(CLUSTER):
        found["properties"] = {"selector": structural(Selector), **found["properties"]}
    return found


def structural(given: type[Any]) -> Document:
    """Return the structural schema of a type: without references, and without null beside another type."""
    return _schema(inspect.type_info(given))


def _schema(given: inspect.Type) -> Document:
    match given:
        case inspect.StructType():
            schema: Document = {"type": "object"}
            if about := " ".join((given.cls.__doc__ or "").partition("\n\n")[0].split()):
                schema["description"] = about
            if required := [field.encode_name for field in given.fields if field.required]:
                schema["required"] = required
            schema["properties"] = {field.encode_name: _schema(field.type) for field in given.fields}
            return schema
        case inspect.VarTupleType() | inspect.ListType():
            return {"type": "array", "items": _schema(given.item_type)}
        case inspect.DictType():
            return {"type": "object", "additionalProperties": _schema(given.value_type)}
        case inspect.LiteralType():
            return {"type": "string", "enum": list(given.values)}
        case inspect.UnionType():
            some = [each for each in given.types if not isinstance(each, inspect.NoneType)]
            return _schema(some[0]) if len(some) == 1 else {"x-kubernetes-int-or-string": True}
        case inspect.CustomType():
            return {"type": "string"}  # a template
    return {"type": _TYPES[type(given)]}


def problem_of(document: Document, *, runs_commands: bool = True) -> Problem | None:
    """Return the problem of an object of these kinds; None if it can be used.

    `runs_commands`: whether forwards may run commands on the kubelets' machine.
    """
    kind = str(document.get("kind"))
    before = "object"
    try:
        if kind == STAGE:
            read_stage(document)
            return None
        rule = read_one(document, before)
    except StageError as error:
        return _problem(str(error).removeprefix(f"stage {document['metadata'].get('name')}: "))
    except KwokError as error:
        return _problem(str(error).removeprefix(f"{before}: {kind} ").removeprefix(f"{key_of(document)}: "))
    if rule.kind == "PortForward" and not runs_commands:
        for number, entry in enumerate(rule.entries):
            if entry.command:
                return Problem(f"spec.forwards[{number}].command", HOST_COMMAND)
    return None


def _problem(text: str) -> Problem:
    path, separator, message = text.partition(": ")
    path, _, value = path.partition(" ")
    if not separator or not path.startswith(("spec", "metadata")):
        return Problem("spec", text)
    return Problem(path, f"{value}: {message}" if value else message)
