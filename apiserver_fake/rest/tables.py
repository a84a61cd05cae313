"""What `kubectl get` prints: objects and lists turned into `meta.k8s.io` Tables.

Columns and cells are defined with each kind (`services/api/kinds`). Ages are counted from the server's wall
clock. An object that a cell function cannot read still gets a row: one odd object must not hide the rest.
"""

from __future__ import annotations

from typing import Any

from services.api.errors import BadRequest
from services.api.meta import Document
from services.api.printing import AGE, NAME, age
from services.api.resources import Cells, Column, Resource

INCLUDES = ("", "Metadata", "Object", "None")
_DESCRIPTIONS = {
    "Name": "Name must be unique within a namespace.",
    "Age": "CreationTimestamp is a timestamp representing the server time when this object was created.",
    "Created At": "CreationTimestamp is a timestamp representing the server time when this object was created.",
}


def _scale_cells(document: Document, now: float) -> list[Any]:
    spec, status = document.get("spec", {}), document.get("status", {})
    return [
        document["metadata"].get("name", ""),
        spec.get("replicas", 0),
        status.get("replicas", 0),
        age(document, now),
    ]


def _default_cells(document: Document, now: float) -> list[Any]:
    meta = document["metadata"]
    return [meta.get("name", ""), meta.get("creationTimestamp", "")]


_SCALE = ((NAME, Column("Desired", "integer"), Column("Available", "integer"), AGE), _scale_cells)
_DEFAULT = ((NAME, Column("Created At", "date")), _default_cells)


def _layout(resource: Resource, kind: str) -> tuple[tuple[Column, ...], Cells]:
    if kind == "Scale":
        return _SCALE
    if resource.cells is None or not resource.columns:
        return _DEFAULT
    return resource.columns, resource.cells


def _definitions(columns: tuple[Column, ...]) -> list[Document]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description or _DESCRIPTIONS.get(column.name, column.name),
            "priority": column.priority,
        }
        for column in columns
    ]


def _cells_of(columns: tuple[Column, ...], cells: Cells, document: Document, now_wall_s: float) -> list[Any]:
    try:
        return cells(document, now_wall_s)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        # A value of an unexpected shape (V11): show the name and that the rest could not be read.
        name = (document.get("metadata") or {}).get("name", "")
        return [str(name) if column.format == "name" else "<unknown>" for column in columns]


def partial_metadata(document: Document, version: str = "v1") -> Document:
    """Return the object's metadata alone, as a `PartialObjectMetadata`."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": document.get("metadata", {}),
    }


def partial_metadata_list(body: Document, version: str = "v1") -> Document:
    """Return a list of metadata only."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": body.get("metadata", {}),
        "items": [partial_metadata(item, version) for item in body.get("items") or ()],
    }


def check_include(include: str) -> str:
    """Return the policy; "" is Metadata. Raises: BadRequest for an unknown one."""
    if include not in INCLUDES:
        raise BadRequest(f"unrecognized includeObject value {include[:32]!r}: want None, Metadata or Object")
    return include or "Metadata"


def table(
    resource: Resource,
    documents: list[Document],
    metadata: Document,
    now_wall_s: float,
    *,
    include: str = "Metadata",
    version: str = "v1",
    with_columns: bool = True,
) -> Document:
    """Return a Table with one row an object.

    `metadata` is the list's or the object's own; `with_columns` is False after the first event of a watch.
    """
    kind = str(documents[0].get("kind", "")) if documents else ""
    columns, cells = _layout(resource, kind)
    rows: list[Document] = []
    for document in documents:
        row: Document = {"cells": _cells_of(columns, cells, document, now_wall_s)}
        if include == "Object":
            row["object"] = document
        elif include == "Metadata":
            row["object"] = partial_metadata(document, version)
        rows.append(row)
    kept = {name: metadata[name] for name in ("resourceVersion", "continue", "remainingItemCount") if name in metadata}
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": kept,
        "columnDefinitions": _definitions(columns) if with_columns else None,
        "rows": rows,
    }


def table_of(
    resource: Resource, body: Document, now_wall_s: float, *, include: str = "Metadata", version: str = "v1"
) -> Document:
    """Return the Table of a decoded answer: a list, when it has `items` and a kind ending in List, or one object."""
    if str(body.get("kind", "")).endswith("List") and "items" in body:
        # Items of a list carry no kind of their own on the wire; rows that show the whole object need it.
        items = [{"kind": resource.kind, "apiVersion": resource.api_version, **item} for item in body["items"] or ()]
        documents = items
    else:
        documents = [body]
    return table(resource, documents, body.get("metadata") or {}, now_wall_s, include=include, version=version)
