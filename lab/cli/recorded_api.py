"""What commands ask an API server about objects, answered by a recording: kinds, objects at a version, histories."""

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from apiserver_fake.registry.differences import differences
from lab.cli.mesh_api import CHANGES_MAX, Refused, Wanted
from lab.cli.output import fail
from lab.recordings.format import DELETED, Version
from lab.recordings.reader import Recording
from services.api.errors import BadRequest
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.meta import AGE, NAME, Column, Document, Resource
from services.api.printing import cells
from services.api.resources import resources
from services.api.selectors import Selector, parse_field_selector, parse_label_selector
from services.api.times import format_micro_time
from services.client.discovery import ServedKind

GONE, NOT_FOUND, BAD_REQUEST = 410, 404, 400


class RecordedApi:
    """The objects of a recording, as `MeshApi` has those of a mesh."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def kinds(self) -> list[ServedKind]:
        """Return the kinds of which the recording has a version."""
        known = resources()
        return [_served(known[name]) if name in known else self._defined(name) for name in self.recording.resources]

    def kind_named(self, name: str) -> ServedKind:
        """Return the kind that a user means; one that there is none of ends the command."""
        known = (*self.kinds(), *map(_served, resources().values()))
        found = next((kind for kind in known if kind.is_called(name)), None)
        if found is None:
            fail(f"{self.recording.path}: there is no resource type {name!r} in the recording")
        return found

    def objects(self, wanted: Wanted) -> Any:
        """Return objects as they were, as a server answers a get or a list. Raises: Refused."""
        kind, name, rv = wanted.kind, wanted.name, self._version(wanted.at)
        found = self._found(wanted, rv)
        if name and not found:
            raise Refused(f'{kind.title} "{name}" not found at version {rv}', NOT_FOUND)
        if wanted.is_table:
            return self._table(kind, found, rv)
        bodies = [body for _, body in found if body is not None]
        if name:
            if not bodies:
                version = found[0][0]
                facts = f"; known are {msgspec.json.encode(version.facts).decode()}" if version.facts else ""
                raise Refused(f"{kind.title} {name}: the body of version {version.rv} is not recorded{facts}", GONE)
            return bodies[0]
        self._remark(kind, [version for version, body in found if body is None])
        if kind.title in resources():
            for body in bodies:  # lists of built-in kinds say it once
                del body["apiVersion"], body["kind"]
        return {
            "kind": f"{kind.kind}List",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": str(rv)},
            "items": bodies,
        }

    def items(self, kind: ServedKind, at: str) -> Iterator[dict[str, Any]]:
        """Yield all objects of a kind as they were at a version. Raises: Refused."""
        rv = self._version(at)
        yield from (body for _, body in self._found(Wanted(kind), rv) if body is not None)

    def history(self, kind: ServedKind, namespace: str, name: str, limit: int | None) -> Any:
        """Return the changes of an object, oldest first, as a server does. Raises: Refused."""
        place = namespace if kind.is_namespaced else ""
        versions = self.recording.versions_of(kind.title, place, name)
        if not versions:
            raise Refused(f'{kind.title} "{name}" not found in the recording', NOT_FOUND)
        left_out = max(0, len(versions) - (limit or CHANGES_MAX))
        metadata: dict[str, Any] = {
            "resourceVersion": str(self.recording.rv_range[1]),
            "windowStart": str(self.recording.rv_range[0]),
        }
        if left_out:
            metadata["remainingItemCount"] = left_out
        return {"kind": "ChangeList", "metadata": metadata, "items": list(self._changes(versions, left_out))}

    def _body(self, version: Version) -> Document | None:
        raw = self.recording.body(version.sha)
        body: Document | None = msgspec.json.decode(raw) if raw is not None else None
        return body

    def _changes(self, versions: list[Version], left_out: int) -> Iterator[dict[str, Any]]:
        """Yield the changes after the first so many."""
        wall_s, before = self.recording.meta.clock.wall_s, None
        if left_out and versions[left_out - 1].type != DELETED:
            before = self._body(versions[left_out - 1])
        for each in versions[left_out:]:
            body = self._body(each)
            now = None if each.type == DELETED else body
            changed = differences(before, now) if body is not None or each.type == DELETED else []
            yield {
                "type": each.type,
                "resourceVersion": str(each.rv),
                "uid": each.uid,
                "traceID": each.trace_id,
                "time": format_micro_time(wall_s + each.t),
                "user": each.identity,
                "verb": each.verb,
                "subresource": each.subresource,
                "requestID": each.req_id,
                "changed": msgspec.to_builtins(changed),
                "object": body,
                "recorded": body is not None,
            }
            before = now

    def _version(self, at: str) -> int:
        """Return the version at which to look: one may stop at the ends of groups. Raises: Refused."""
        first, last = self.recording.rv_range
        if not at:
            return last
        if not at.isdecimal():
            raise Refused(f"at: {at!r}: want a resource version, as `keplab history` shows them", BAD_REQUEST)
        rv = int(at)
        if not first <= rv <= last:
            raise Refused(f"the recording has versions {first} to {last}, not {rv}", GONE)
        stop = self.recording.stop_at(rv)
        if stop != rv:
            click.echo(
                f"version {rv} was committed together with later ones; shown is {stop}, before all of them", err=True
            )
        return stop

    def _found(self, wanted: Wanted, rv: int) -> list[tuple[Version, Document | None]]:
        """Return versions and bodies in the order of their names; with a selector, of those that have bodies."""
        kind = wanted.kind
        try:
            by_label, by_field = parse_label_selector(wanted.labels), parse_field_selector(wanted.fields)
        except BadRequest as error:
            raise Refused(str(error), BAD_REQUEST) from None
        namespace = wanted.namespace if kind.is_namespaced else ""
        found = []
        for (resource, ns, each), version in sorted(self.recording.state_at(rv).items()):
            if resource != kind.title or namespace not in ("", ns) or wanted.name not in ("", each):
                continue
            body = self._body(version)
            if _is_selected(kind, version, body, by_label, by_field):
                found.append((version, body))
        return found

    def _table(self, kind: ServedKind, found: list[tuple[Version, Document | None]], rv: int) -> dict[str, Any]:
        known = resources().get(kind.title)
        columns: tuple[Column, ...] = known.columns if known is not None and known.columns else (NAME, AGE)
        wall_s = self.recording.meta.clock.wall_s + self.recording.time_at(rv)
        rows = []
        for version, body in found:
            metadata = {"namespace": version.ns, "name": version.name}
            shown = cells(columns, body, wall_s) if body is not None else [version.name, *("-" for _ in columns[1:])]
            rows.append({"cells": shown, "object": {"metadata": metadata}})
        self._remark(kind, [version for version, body in found if body is None])
        names = [{"name": column.name, "priority": column.priority} for column in columns]
        return {"columnDefinitions": names, "rows": rows}

    def _remark(self, kind: ServedKind, missing: list[Version]) -> None:
        if missing:
            names = ", ".join(each.name for each in missing[:3]) + (" …" if len(missing) > 3 else "")
            click.secho(f"keplab: body not recorded of {len(missing)} {kind.title}: {names}", err=True, fg="yellow")

    def _defined(self, name: str) -> ServedKind:
        """Return a custom kind, as its definition says, if that is recorded."""
        plural, _, group = name.partition(".")
        versions = self.recording.versions_of(DEFINITIONS, "", name)
        raw = next((found for each in reversed(versions) if (found := self.recording.body(each.sha)) is not None), None)
        spec = msgspec.json.decode(raw)["spec"] if raw is not None else {}
        names = spec.get("names", {})
        some = next((each for each in self.recording.versions() if each.resource == name), None)
        kind = names.get("kind") or (some.kind if some is not None else name)
        is_namespaced = spec.get("scope", "Namespaced") == "Namespaced"
        singular, short = names.get("singular", kind.lower()), tuple(names.get("shortNames", ()))
        return ServedKind(kind, plural, singular, short, group, f"/apis/{group}", is_namespaced, True)


def _served(resource: Resource) -> ServedKind:
    path = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    names = (resource.kind, resource.plural, resource.kind.lower(), resource.short_names)
    return ServedKind(*names, resource.group, path, resource.namespaced, True)


def _is_selected(
    kind: ServedKind, version: Version, body: Document | None, by_label: Selector, by_field: Selector
) -> bool:
    if not by_label.terms and not by_field.terms:
        return True
    if body is None:
        return False
    known = resources().get(kind.title)
    fields = {"metadata.name": version.name, "metadata.namespace": version.ns}
    if known is not None:
        fields |= {label: str(value_of(body)) for label, value_of in known.selectable_fields.items()}
    unknown = next((term.key for term in by_field.terms if term.key not in fields), "")
    if unknown:
        raise Refused(f"field label not supported: {unknown}", BAD_REQUEST)
    return by_label.matches(body["metadata"].get("labels") or {}) and by_field.matches(fields)
