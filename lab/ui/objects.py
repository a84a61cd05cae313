"""Objects for the page: rows with kubectl's columns, documents, versions, and changes."""

import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml

from lab.recordings.redaction import redact, redacted_text
from lab.ui.documents import kind_documents
from lab.ui.rest import MANAGER, Rest
from services.api.documents import yaml_text
from services.api.errors import ApiError, BadRequest, Conflict, Forbidden
from services.client.discovery import TABLE, ServedKind

PAGE_OBJECTS: Final = 500
LIMIT: Final = 500
LIMIT_MAX: Final = 5_000
LOOKED_AT_MAX: Final = 50_000
"""Number of objects that one request searches before it returns a continue token."""
DOCUMENTS_MAX: Final = 200
VERSION_MAX: Final = (1 << 63) - 1
DIGITS_MAX: Final = len(str(VERSION_MAX))
APPLY_TYPE: Final = "application/apply-patch+yaml"


def limit_of(text: str) -> int:
    """Return the number of rows that a request asks for. Raises: BadRequest."""
    if not text:
        return LIMIT
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS_MAX or not 1 <= int(text) <= LIMIT_MAX:
        raise BadRequest(f"limit: want 1 to {LIMIT_MAX}, not {text[:40]!r}")
    return int(text)


def version_of(text: str, name: str = "rv") -> int:
    """Return the resourceVersion that a request asks for, 0 for now. Raises: BadRequest."""
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS_MAX or int(text) > VERSION_MAX:
        raise BadRequest(f"{name}: want a resource version, not {text[:40]!r}")
    return int(text)


class Objects:
    """The objects of the mesh, as they are now or were within the API server's watch window."""

    def __init__(self, rest: Rest, *, may_write: bool) -> None:
        self._rest, self._may_write = rest, may_write

    async def kind(self, name: str) -> ServedKind:
        """Return the kind with that name. Raises: ApiError."""
        return await self._rest.kind_named(name, time.monotonic())

    async def kinds(self) -> list[dict[str, Any]]:
        """Return the served kinds, by title. Raises: ApiError."""
        kinds = await self._rest.kinds(time.monotonic())
        return kind_documents(sorted(kinds, key=lambda kind: kind.title))

    async def rows(
        self, kind: ServedKind, namespace: str, words: str, rv: int, limit: int, after: str
    ) -> dict[str, Any]:
        """Return rows of a kind: columns, rows, and a continue token. `words`: each must stand in a name, a namespace
        or a cell. Raises: ApiError.
        """
        wanted = words.lower().split()
        columns: list[dict[str, Any]] = []
        rows: list[dict[str, Any]] = []
        version, looked_at = "", 0
        while True:
            page = limit if not wanted else PAGE_OBJECTS
            query: dict[str, object] = {"limit": min(page, limit - len(rows)) if not wanted else page}
            query |= {"continue": after} if after else {"at": rv or ""}
            table = await self._rest.get(kind.place(namespace), query, TABLE)
            columns = table["columnDefinitions"]
            metadata = table.get("metadata") or {}
            version = version or str(metadata.get("resourceVersion", ""))
            page_rows = [_row(each) for each in table.get("rows") or ()]
            rows += [row for row in page_rows if _has(row, wanted)]
            looked_at += len(page_rows)
            after = metadata.get("continue", "")
            if not after or len(rows) >= limit or looked_at >= LOOKED_AT_MAX:
                break
        return {
            "kind": kind.title,
            "namespaced": kind.is_namespaced,
            "columns": [
                {"name": each["name"], "type": each.get("type", ""), "priority": each.get("priority", 0)}
                for each in columns
            ],
            "rows": rows,
            "rv": rv or int(version or 0),
            "continue": after,
            "recorded": True,
        }

    async def one(self, kind: ServedKind, namespace: str, name: str, rv: int) -> dict[str, Any]:
        """Return one object, with the values of Secrets hidden. Raises: ApiError."""
        found = await self._rest.get(kind.place(namespace, name), {"at": rv or ""})
        return _redact_document(kind, found)

    async def versions(self, kind: ServedKind, namespace: str, name: str) -> dict[str, Any]:
        """Return an object's versions as far back as the watch window goes, oldest first. Raises: ApiError."""
        history = await self._rest.get(kind.place(namespace, name, "history"))
        is_secret = kind.title == "secrets"
        items = [
            {
                "rv": int(each["resourceVersion"]),
                "type": each["type"],
                "time": each.get("time", ""),
                "writer": each.get("user", ""),
                "verb": each.get("verb", ""),
                "subresource": each.get("subresource", ""),
                "request_id": each.get("requestID", ""),
                "trace_id": each.get("traceID", ""),
                # What changed in a Secret says too much of what it is.
                "changed": [] if is_secret else [change["path"] for change in each["changed"]],
                "recorded": True,
            }
            for each in history["items"]
        ]
        return {"items": items, "window_start": int(history["metadata"]["windowStart"])}

    # -- changes -----------------------------------------------------------------------------------------

    def _check(self) -> None:
        if not self._may_write:
            raise Forbidden("this page only reads; start it with `keplab ui --allow-write` to change objects")

    async def update(
        self, kind: ServedKind, namespace: str, name: str, body: bytes, *, dry_run: bool
    ) -> dict[str, Any]:
        """Update an object and return it as it is then, or with `dry_run` would be.

        Raises: ApiError; Conflict whose details have both sides.
        """
        self._check()
        document = read_document(body)
        given = document.get("metadata") if isinstance(document.get("metadata"), dict) else {}
        assert isinstance(given, dict)
        if given.get("name") != name or given.get("namespace", namespace) != namespace:
            where = "/".join(str(part) for part in (given.get("namespace", ""), given.get("name")) if part)
            raise BadRequest(f"metadata: the object is {'/'.join(filter(None, (namespace, name)))}, not {where}")
        if not given.get("resourceVersion"):
            raise BadRequest("metadata.resourceVersion: want the version that was edited")
        _check_not_hidden(document)
        query = {"dryRun": "All" if dry_run else "", "fieldManager": MANAGER, "fieldValidation": "Strict"}
        try:
            response = await self._rest.change("PUT", kind.place(namespace, name), query, msgspec.json.encode(document))
        except Conflict as error:
            theirs = await self.one(kind, namespace, name, 0)
            raise Conflict(error.message, details={**error.details, "theirs": theirs, "yours": document}) from None
        return _redact_document(kind, response)

    async def delete(
        self, kind: ServedKind, namespace: str, name: str, *, dry_run: bool, uid: str = ""
    ) -> dict[str, Any]:
        """Delete an object and return the answer. Raises: ApiError."""
        self._check()
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid:
            options["preconditions"] = {"uid": uid}
        body = msgspec.json.encode(options)
        response = await self._rest.change(
            "DELETE", kind.place(namespace, name), {"dryRun": "All" if dry_run else ""}, body
        )
        return _redact_document(kind, response)

    async def apply(self, text: bytes, *, force: bool, dry_run: bool) -> dict[str, Any]:
        """Apply each document of a YAML text on the server, and return the results; a refused document does not end it.

        Raises: ApiError for a text that cannot be read.
        """
        self._check()
        documents = read_documents(text)
        items: list[dict[str, Any]] = []
        for number, document in enumerate(documents, 1):
            try:
                items.append({"document": number, "object": await self._apply(document, force=force, dry_run=dry_run)})
            except ApiError as error:
                items.append({"document": number, "status": error.status()})
        return {"items": items, "applied": sum("object" in each for each in items)}

    async def _apply(self, document: dict[str, Any], *, force: bool, dry_run: bool) -> dict[str, Any]:
        kind = await self._rest.kind_of(document, time.monotonic())
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
            raise BadRequest(f"{kind.kind}: metadata.name: want a name")
        _check_not_hidden(document)
        namespace = str(metadata.get("namespace") or ("default" if kind.is_namespaced else ""))
        query = {"fieldManager": MANAGER, "force": "true" if force else "", "dryRun": "All" if dry_run else ""}
        body = msgspec.json.encode(document)
        return _redact_document(
            kind, await self._rest.change("PATCH", kind.place(namespace, name), query, body, APPLY_TYPE)
        )


def read_document(text: bytes) -> dict[str, Any]:
    """Return the only object in a JSON or YAML text. Raises: BadRequest."""
    found = read_documents(text)
    if len(found) != 1:
        raise BadRequest(f"want one object, not {len(found)}")
    return found[0]


def read_documents(text: bytes) -> list[dict[str, Any]]:
    """Return the objects in a JSON or YAML text; empty documents are left out. Raises: BadRequest naming the line."""
    try:
        documents = [each for each in yaml.load_all(text, Loader=_Loader) if each is not None]
    except yaml.MarkedYAMLError as error:
        line, column, problem = yaml_text.mistake_of(error)
        raise BadRequest(f"line {line}, column {column}: {problem}" if line else problem) from None
    except (yaml.YAMLError, *yaml_text.TAG_MISTAKES, RecursionError) as error:
        raise BadRequest(f"that is neither JSON nor YAML: {' '.join(str(error).split())[:200]}") from None
    if not documents:
        raise BadRequest("there is no object in it")
    if len(documents) > DOCUMENTS_MAX:
        raise BadRequest(f"{len(documents)} documents; want at most {DOCUMENTS_MAX}")
    for number, document in enumerate(documents, 1):
        if not isinstance(document, dict):
            raise BadRequest(
                f"document {number}: want an object with apiVersion and kind, not {type(document).__name__}"
            )
    return documents


class _Loader(yaml.SafeLoader):
    """YAML loader like that of Kubernetes: only JSON's values, so that a date stays a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def as_yaml(document: Mapping[str, Any]) -> str:
    """Return a document as YAML."""
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)


def _check_not_hidden(document: Mapping[str, Any]) -> None:
    """Refuse a Secret that still has what the page shows instead of values: it would be stored."""
    if document.get("kind") != "Secret":
        return
    for field in ("data", "stringData"):
        values = document.get(field)
        for name, value in (values if isinstance(values, dict) else {}).items():
            if isinstance(value, str) and value.startswith("•••"):
                raise BadRequest(
                    f"{field}.{name}: the page does not show values of Secrets; give a new one or use kubectl"
                )


def _redact_document(kind: ServedKind, document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(redact(kind.title, msgspec.json.encode(document)))
    return found


def _row(row: dict[str, Any]) -> dict[str, Any]:
    metadata = row["object"]["metadata"]
    return {
        "ns": metadata.get("namespace", ""),
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
        "rv": int(metadata.get("resourceVersion") or 0),
        "cells": [msgspec.json.decode(redacted_text(msgspec.json.encode(cell))) for cell in row["cells"]],
    }


def _has(row: dict[str, Any], wanted: list[str]) -> bool:
    if not wanted:
        return True
    text = " ".join((row["ns"], row["name"], *map(str, row["cells"]))).lower()
    return all(word in text for word in wanted)
