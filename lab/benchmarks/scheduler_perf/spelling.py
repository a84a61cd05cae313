"""Field names as Go's encoding/json decodes them into a type: case-insensitive, and strict. Pure.

Upstream decodes templates of nodes, pods, volumes and claims this way, and some of its own files rely on
it: `NodeTaintsPolicy: Honor` in a topology spread constraint. Source: kubernetes/kubernetes
`test/integration/scheduler_perf/scheduler_perf.go`, `getSpecFromFile`.
"""

from __future__ import annotations

from typing import Any

from apiserver_fake.registry.schema.schemas import Shape, shape_of
from services.api.meta import Document


class UnknownField(Exception):
    """A field that the kind does not have in any case."""


def correct_field_names(document: Document) -> Document:
    """Rename the fields of a document as its kind's schema spells them; a kind without a schema stays unchanged.
    Raises: UnknownField naming the path of the field.
    """
    version, kind = document.get("apiVersion"), document.get("kind")
    if isinstance(version, str) and isinstance(kind, str):
        _spell(shape_of(version, kind), document, "")
    return document


def _spell(shape: Shape, value: Any, path: str) -> None:
    if isinstance(value, list) and shape.items is not None:
        for number, member in enumerate(value):
            _spell(shape.items, member, f"{path}[{number}]")
    elif isinstance(value, dict):
        if shape.fields is not None:
            _rename(shape, shape.fields, value, path)
        for name, member in value.items():
            _spell(shape.member(name), member, f"{path}.{name}" if path else name)


def _rename(shape: Shape, fields: dict[str, Shape], value: Document, path: str) -> None:
    for name in [each for each in value if each not in fields]:
        meant = next((each for each in fields if each.casefold() == str(name).casefold()), None)
        if meant is not None:
            value.setdefault(meant, value.pop(name))
        elif not shape.keeps_unknown and shape.values is None:
            at = f"{path}.{name}" if path else name
            raise UnknownField(f"unknown field {at!r}")
