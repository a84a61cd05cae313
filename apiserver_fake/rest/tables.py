"""Conversion of objects and lists into `meta.k8s.io` Tables, which `kubectl get` prints.

Columns and cells are defined with each kind (`services/api/kinds`). Ages are counted from the server's wall
clock. An object whose columns cannot be read still gets a row: one odd object must not hide the rest.
"""

from typing import Any

from services.api.errors import BadRequest
from services.api.meta import AGE, NAME, Column, Document, Resource
from services.api.printing import cells

INCLUDES = ("", "Metadata", "Object", "None")
_DESCRIPTIONS = {
    "Name": "Name must be unique within a namespace.",
    "Age": "CreationTimestamp is a timestamp representing the server time when this object was created.",
    "Created At": "CreationTimestamp is a timestamp representing the server time when this object was created.",
}


_SCALE = (
    NAME,
    Column("Desired", "spec.replicas", "integer", default=0),
    Column("Available", "status.replicas", "integer", default=0),
    AGE,
)
_PLAIN = (NAME, Column("Created At", "metadata.creationTimestamp", "date"))


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


UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError)
"""Exceptions that a value of an unexpected shape raises (V11)."""


def columns_of(resource: Resource) -> tuple[Column, ...]:
    """Return the columns of a kind's table."""
    return resource.columns or _PLAIN


def cells_of(columns: tuple[Column, ...], document: Document, now_wall_s: float) -> list[Any]:
    """Return one object's cells; if they cannot be computed, its name alone."""
    try:
        return cells(columns, document, now_wall_s)
    except UNREADABLE:
        # Show the name and that the rest could not be read.
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
    items = [partial_metadata(item, version) for item in body.get("items") or ()]
    return {**partial_metadata(body, version), "kind": "PartialObjectMetadataList", "items": items}


def check_include(include: str) -> str:
    """Return the include policy; "" means Metadata. Raises: BadRequest for an unknown policy."""
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
    """Return a Table with one row per object; `metadata` is that of the list or object.

    `with_columns` False: without columns, for later events of a watch.
    """
    kind = str(documents[0].get("kind", "")) if documents else ""
    columns = _SCALE if kind == "Scale" else columns_of(resource)
    rows: list[Document] = []
    for document in documents:
        row: Document = {"cells": cells_of(columns, document, now_wall_s)}
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
    """Return the Table of a decoded answer. It is a list if it has `items` and its kind ends in List, else one
    object.
    """
    if body.get("kind", "") in (resource.list_kind, "List") and "items" in body:
        # Items of a list carry no kind of their own on the wire; rows that show the whole object need it.
        kind = {"kind": resource.kind, "apiVersion": resource.api_version}
        documents = [{**kind, **item} for item in body["items"] or ()]
    else:
        documents = [body]
    return table(resource, documents, body.get("metadata") or {}, now_wall_s, include=include, version=version)
