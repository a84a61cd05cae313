"""Answer from a recording as an API server does: kinds, objects at a version, tables and histories. Pure.

The page and the commands use it alike. If a body is not recorded, the answer says so.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from apiserver_fake.extensions.customresources.columns import columns_of as defined_columns
from apiserver_fake.registry.differences import differences
from apiserver_fake.rest.tables import cells_of, columns_of
from lab.recordings.format import DELETED, Version
from lab.recordings.reader import Recording
from services.api.errors import BadRequest, Expired, NotFound
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.meta import Column, Document, Resource
from services.api.resources import resources
from services.api.selectors import parse_field_selector, parse_label_selector
from services.api.times import format_micro_time
from services.client.discovery import ObjectQuery, ServedKind

NOT_RECORDED: Final = "body not recorded"
CHANGES_MAX: Final = 500
"""Largest number of changes in an object's history, unless more are asked for."""
NAMES_MAX: Final = 3


class RecordedApi:
    """The objects of a recording. `remark`: called with notes that a reader should see beside an answer."""

    def __init__(self, recording: Recording, remark: Callable[[str], None] = lambda text: None) -> None:
        self.recording, self._remark = recording, remark

    # -- kinds -----------------------------------------------------------------------------------------

    def kinds(self) -> list[ServedKind]:
        """Return the kinds that have a version in the recording."""
        return [_served_kind(self.resource(title)) for title in self.recording.resources]

    def kind_named(self, name: str) -> ServedKind:
        """Return the kind that a user means, by any of its names. Raises: NotFound."""
        kinds = (*self.kinds(), *map(_served_kind, resources().values()))
        kind = next((each for each in kinds if each.is_called(name)), None)
        if kind is None:
            raise NotFound(f"there is no resource type {name!r} in the recording")
        return kind

    def resource(self, title: str) -> Resource:
        """Return a kind as it was served; a custom one from its definition, if that is recorded."""
        builtin = resources().get(title)
        if builtin is not None:
            return builtin
        plural, _, group = title.partition(".")
        bodies = map(self.body, reversed(self.recording.versions_of(DEFINITIONS, "", title)))
        spec: Document = next((body["spec"] for body in bodies if body is not None), {})
        names = spec.get("names", {})
        stored: Document = next((each for each in spec.get("versions", ()) if each.get("storage")), {})
        example = next((each for each in self.recording.versions() if each.resource == title), None)
        return Resource(
            group=group,
            version=stored.get("name", "v1"),
            kind=names.get("kind") or (example.kind if example is not None else title),
            plural=plural,
            singular=names.get("singular", ""),
            short_names=tuple(names.get("shortNames", ())),
            namespaced=spec.get("scope", "Namespaced") == "Namespaced",
            columns=defined_columns(stored.get("additionalPrinterColumns") or ()),
        )

    # -- versions --------------------------------------------------------------------------------------

    def body(self, version: Version) -> Document | None:
        """Return the object of a version; None when its body is not recorded."""
        raw = self.recording.body(version.sha)
        document: Document | None = msgspec.json.decode(raw) if raw is not None else None
        return document

    def is_recorded(self, version: Version) -> bool:
        """Return whether a version is completely recorded; a deletion has no body that could be missing."""
        return version.type == DELETED or self.recording.has_body(version)

    def versions_of(self, kind: ServedKind, namespace: str, name: str) -> list[Version]:
        """Return the versions of an object, oldest first."""
        return self.recording.versions_of(kind.title, namespace if kind.is_namespaced else "", name)

    def versions_at(self, kind: ServedKind, rv: int, namespace: str = "", name: str = "") -> list[Version]:
        """Return the newest versions of a kind's objects at a version, in the order of their names."""
        place = namespace if kind.is_namespaced else ""
        return [
            version
            for (title, ns, own), version in sorted(self.recording.state_at(rv).items(), key=lambda item: item[0])
            if title == kind.title and place in ("", ns) and name in ("", own)
        ]

    def time(self, version: Version) -> str:
        """Return the commit time of a version, as Kubernetes writes times."""
        return format_micro_time(self.recording.meta.clock.wall_s + version.t)

    def wall_at(self, rv: int) -> float:
        """Return the wall time at a version."""
        return self.recording.meta.clock.wall_s + (self.recording.time_at(rv) if rv else 0.0)

    def cells(
        self, resource: Resource, version: Version, body: Document | None, wall_s: float, absent: str = NOT_RECORDED
    ) -> list[Any]:
        """Return an object's row of `kubectl get`; `absent`: text of the cells whose body is missing."""
        columns = columns_of(resource)
        if body is not None:
            return cells_of(columns, body, wall_s)
        return [version.name if column.format == "name" else absent for column in columns]

    # -- answers ---------------------------------------------------------------------------------------

    def object_at(self, kind: ServedKind, namespace: str, name: str, rv: int) -> Document:
        """Return an object as it was at version `rv`. Raises: NotFound; Expired when its body is not recorded."""
        version = self.recording.version_of(kind.title, namespace if kind.is_namespaced else "", name, rv)
        if version is None:
            raise _not_found(kind, namespace, name, f"at version {rv}")
        body = self.body(version)
        if body is None:
            facts = f"; known are {msgspec.json.encode(version.facts).decode()}" if version.facts else ""
            message = f"{NOT_RECORDED}: {kind.title} {name} at version {version.rv}{facts}"
            raise Expired(message, details={"facts": version.facts, "rv": version.rv})
        return body

    def objects(self, query: ObjectQuery) -> Any:
        """Return an object, a list or a table, as a server answers a get or a list. Raises: ApiError."""
        kind, rv = query.kind, self._version(query.at)
        if query.name and not query.is_table:
            return self.object_at(kind, query.namespace, query.name, rv)
        selected = self._select_versions(query, rv)
        if query.name and not selected:
            raise _not_found(kind, query.namespace, query.name, f"at version {rv}")
        missing = [version.name for version, body in selected if body is None]
        if missing:
            names = ", ".join(missing[:NAMES_MAX]) + (" …" if len(missing) > NAMES_MAX else "")
            self._remark(f"{NOT_RECORDED} of {len(missing)} {kind.title}: {names}")
        if query.is_table:
            return self._table(kind, selected, rv)
        bodies = [body for _, body in selected if body is not None]
        if kind.title in resources():
            for body in bodies:  # lists of built-in kinds say it once
                body.pop("apiVersion", None)
                body.pop("kind", None)
        metadata = {"resourceVersion": str(rv)}
        return {"kind": f"{kind.kind}List", "apiVersion": "v1", "metadata": metadata, "items": bodies}

    def items(self, kind: ServedKind, at: str) -> Iterator[Document]:
        """Yield all objects of a kind at a version whose bodies are recorded. Raises: ApiError."""
        for version in self.versions_at(kind, self._version(at)):
            body = self.body(version)
            if body is not None:
                yield body

    def history(self, kind: ServedKind, namespace: str, name: str, limit: int | None) -> Any:
        """Return the changes of an object, oldest first, as a server does. Raises: NotFound."""
        versions = self.versions_of(kind, namespace, name)
        if not versions:
            raise _not_found(kind, namespace, name, "in the recording")
        first, last = self.recording.rv_range
        left_out = max(0, len(versions) - (limit or CHANGES_MAX))
        metadata: dict[str, Any] = {"resourceVersion": str(last), "windowStart": str(first)}
        if left_out:
            metadata["remainingItemCount"] = left_out
        return {"kind": "ChangeList", "metadata": metadata, "items": list(self._changes(versions, left_out))}

    def _changes(self, versions: Sequence[Version], left_out: int) -> Iterator[Document]:
        """Yield the changes after the first so many."""
        before = None
        if left_out and versions[left_out - 1].type != DELETED:
            before = self.body(versions[left_out - 1])
        for version in versions[left_out:]:
            body = self.body(version)
            now = None if version.type == DELETED else body
            changed = differences(before, now) if body is not None or version.type == DELETED else []
            yield {
                "type": version.type,
                "resourceVersion": str(version.rv),
                "uid": version.uid,
                "traceID": version.trace_id,
                "time": self.time(version),
                "user": version.identity,
                "verb": version.verb,
                "subresource": version.subresource,
                "requestID": version.req_id,
                "changed": msgspec.to_builtins(changed),
                "object": body,
                "recorded": self.is_recorded(version),
            }
            before = now

    def _version(self, at: str) -> int:
        """Return the version at which to look: one may stop at the ends of groups. Raises: BadRequest, Expired."""
        first, last = self.recording.rv_range
        if not at:
            return last
        if not at.isdecimal():
            raise BadRequest(f"at: {at!r}: want a resource version, as `keplab history` shows them")
        rv = int(at)
        if not first <= rv <= last:
            raise Expired(f"the recording has versions {first} to {last}, not {rv}")
        stop = self.recording.stop_at(rv)
        if stop != rv:
            self._remark(f"version {rv} was committed together with later ones; shown is {stop}, before all of them")
        return stop

    def _select_versions(self, query: ObjectQuery, rv: int) -> list[tuple[Version, Document | None]]:
        """Return versions and bodies in the order of their names; with a selector, of those that have bodies. Raises:
        BadRequest."""
        by_label, by_field = parse_label_selector(query.labels), parse_field_selector(query.fields)
        is_selective = bool(by_label.terms or by_field.terms)
        selectable = self.resource(query.kind.title).selectable_fields
        selected = []
        for version in self.versions_at(query.kind, rv, query.namespace, query.name):
            body = self.body(version)
            if is_selective:
                if body is None:
                    continue
                fields = {"metadata.name": version.name, "metadata.namespace": version.ns}
                fields |= {label: str(value_of(body)) for label, value_of in selectable.items()}
                unknown = next((term.key for term in by_field.terms if term.key not in fields), "")
                if unknown:
                    raise BadRequest(f"field label not supported: {unknown}")
                if not (by_label.matches(body["metadata"].get("labels") or {}) and by_field.matches(fields)):
                    continue
            selected.append((version, body))
        return selected

    def _table(self, kind: ServedKind, objects: list[tuple[Version, Document | None]], rv: int) -> Document:
        resource, wall_s = self.resource(kind.title), self.wall_at(rv)
        rows = [
            {
                "cells": self.cells(resource, version, body, wall_s, absent="-"),
                "object": {"metadata": {"namespace": version.ns, "name": version.name}},
            }
            for version, body in objects
        ]
        return {"columnDefinitions": column_documents(columns_of(resource)), "rows": rows}


def column_documents(columns: Sequence[Column]) -> list[Document]:
    """Return the column definitions of a table."""
    return [{"name": column.name, "type": column.type, "priority": column.priority} for column in columns]


def _served_kind(resource: Resource) -> ServedKind:
    path = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    names = (resource.kind, resource.plural, resource.singular, resource.short_names)
    return ServedKind(*names, resource.group, path, resource.namespaced, has_past=True)


def _not_found(kind: ServedKind, namespace: str, name: str, where: str) -> NotFound:
    place = f"{namespace}/{name}" if namespace and kind.is_namespaced else name
    return NotFound(f'{kind.title} "{place}" not found {where}')
