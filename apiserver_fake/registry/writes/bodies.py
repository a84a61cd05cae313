"""Reading of the bodies of one write: types, versions, unknown fields, names and namespaces.

Source: kubectl-requests 5 and 7 for the refusals.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from apiserver_fake.registry.catalogue import Catalogue, Kind
from apiserver_fake.registry.patch.patch import apply_patch
from apiserver_fake.registry.schema.mistakes import go_text
from apiserver_fake.registry.schema.schemas import Mistyped, Shape, conform, strict_refusal, unknown_fields
from apiserver_fake.registry.sessions import Session
from apiserver_fake.registry.validation.formats import invalid as invalid_value
from apiserver_fake.registry.validation.formats import value_text
from apiserver_fake.registry.versions import Versions
from apiserver_fake.storage.records import Record
from services.api.errors import UNREADABLE, ApiError, BadRequest, invalid
from services.api.meta import Document, ObjectMeta, Resource, metadata_of
from services.api.wire import Request

APPLY = "apply"


class Bodies:
    """Reads the body of one request, and the stored object; remembers the unknown fields that reading dropped."""

    def __init__(self, catalogue: Catalogue, kind: Kind, request: Request, session: Session | None) -> None:
        """`session`: the webhooks' answers about the write, including conversions."""
        self._catalogue, self._kind, self._request, self.resource = catalogue, kind, request, kind.resource
        self._strategy, self._shape = kind.strategy, kind.shape
        self._session = session
        self._is_in_stored_version = request.api_version in ("", kind.resource.api_version)
        self.repeated: list[str] | None = [] if request.field_validation else None
        """Duplicate keys of the body; None for requests of components, whose duplicate keys are refused at once."""
        self._unknown: list[str] = []

    @cached_property
    def versions(self) -> Versions:
        """The versions of the kind, made for a write that needs them."""
        kind = self._kind
        return Versions(kind.resource.api_version, lambda: kind.versions, self._session)

    def forget_unknown(self) -> None:
        """Forget the fields that an earlier attempt dropped."""
        self._unknown.clear()

    def own(self, body: Document, old: Document | None = None) -> Document:
        """Return a typed copy of the document, its kind first. Raises: BadRequest for another kind or type."""
        resource = self.resource
        kind, version = body.get("kind") or resource.kind, body.get("apiVersion") or resource.api_version
        if (version, kind) != (resource.api_version, resource.kind):
            raise self._catalogue.wrong_type(resource, str(version), str(kind))
        meta = body.get("metadata")
        if meta is not None and not isinstance(meta, dict):
            raise BadRequest(f"metadata must be an object, got {type(meta).__name__}")
        new: Document = {"apiVersion": version, "kind": kind, "metadata": {}}
        new.update(body)
        new["apiVersion"], new["kind"] = version, kind
        meta = meta or {}
        has_nulls = None in meta.values()
        new["metadata"] = {n: v for n, v in meta.items() if v is not None} if has_nulls else dict(meta)
        return self._typed_document(new, old)

    def as_stored(self, sent: Document, old: Document | None) -> Document:
        """Check a document by the rules of the caller's version, and return it in the stored version.

        Raises: BadRequest and Invalid in the terms of the caller's version, Unanswered if a webhook must convert it.
        """
        if self._is_in_stored_version:
            return sent
        served = self.versions.caller_version(self._request.api_version)
        if served is None:
            return sent
        resource = served.resource
        kind, version = sent.get("kind") or resource.kind, sent.get("apiVersion") or resource.api_version
        if (version, kind) != (resource.api_version, resource.kind):
            raise self._catalogue.wrong_type(resource, str(version), str(kind))
        if served.check is None:
            return self._stored_form(self._read_as(served.shape, resource, sent, None))
        before = None if old is None else self.versions.convert([old], self.versions.stored, version)[0]
        read, dropped, causes = served.check(
            {"apiVersion": version, "kind": kind, **sent}, before, self._request.subresource
        )
        self._unknown += dropped
        if causes:
            raise invalid(
                resource.qualified_kind, self._request.name or str(metadata_of(sent).get("name") or ""), causes
            )
        return self._stored_form(read)

    def _stored_form(self, document: Document) -> Document:
        return self.versions.convert([document], self._request.api_version, self.versions.stored)[0]

    def apply_patch(self, old: Document, patch: Any) -> Document:
        """Return the stored object after a patch in the caller's version; `old` if nothing changes.

        Raises: ApiError, Unanswered.
        """
        kind, how = self._kind, self._request.patch_type
        served = None
        if not self._is_in_stored_version:
            served = self.versions.caller_version(self._request.api_version)
        if served is None:
            return apply_patch(old, patch, how, kind.shape, kind.resource.kind)
        [before] = self.versions.convert([old], self.versions.stored, served.resource.api_version)
        after = apply_patch(before, patch, how, served.shape, kind.resource.kind)
        return old if after == before else self.as_stored(after, old)

    def patched_form(self, form: Document, patch: Any) -> Document:
        """Return a patched document whose type is not the object's, such as a Scale. Raises: ApiError."""
        version, kind = str(form.get("apiVersion") or ""), str(form.get("kind") or "")
        return apply_patch(form, patch, self._request.patch_type, self._catalogue.shape_of(version, kind), kind)

    def faults(self) -> list[str]:
        """Return the warnings about unknown and duplicate fields.

        Source: upstream's `fieldValidation`, which is Warn unless the client sets it. Raises: BadRequest if it is
        Strict, Invalid for a patch.
        """
        request, resource = self._request, self.resource
        if request.field_validation not in ("Warn", "Strict"):
            return []
        faults = [f'duplicate field "{path}"' for path in self.repeated or ()]
        if request.patch_type == APPLY:
            faults = [
                f"yaml: unmarshal errors:\n  line 1: key {_name_of(path)} already set in map"
                for path in self.repeated or ()
            ]
        faults += unknown_fields(self._unknown)
        if not faults or request.field_validation == "Warn":
            return faults
        if request.patch_type == APPLY:
            raise BadRequest(f"error strict decoding YAML: error converting YAML to JSON: {'; '.join(faults)}")
        if request.patch_type:
            raise self._bad_patch(f"strict decoding error: {', '.join(faults)}", None)
        raise strict_refusal(request.api_version or resource.api_version, resource.kind, faults)

    def _bad_patch(self, why: str, result: Document | None) -> ApiError:
        """Return the refusal of a patch with a result of the wrong type; as upstream, it shows the decoded document."""
        try:
            patch = msgspec.json.decode(self._request.body)
        except UNREADABLE:
            patch = self._request.body.decode(errors="replace")
        is_merged = self._request.patch_type == "strategic"
        shown = go_text(patch) if is_merged else msgspec.json.encode(patch if result is None else result).decode()
        return invalid("", "", [invalid_value("patch", shown, why)])

    def _type_error(self, refusal: Mistyped, new: Document) -> ApiError:
        request, resource = self._request, self.resource
        if request.patch_type == APPLY:
            version = request.api_version or resource.api_version
            group, _, name = version.rpartition("/")
            meta = new.get("metadata") or {}
            what = f"{meta.get('namespace') or ''}/{meta.get('name') or ''}; {group}/{name}, Kind={resource.kind}"
            return BadRequest(
                f"failed to convert new object ({what}) to proper version: unable to convert unstructured object to "
                f"{version}, Kind={resource.kind}: {refusal.mistake}"
            )
        return self._bad_patch(refusal.mistake, new) if request.patch_type else refusal

    def _read_as(self, shape: Shape, resource: Resource, new: Document, old: Document | None) -> Document:
        """Return a document decoded as a type. Raises: BadRequest, Invalid for a patch."""
        is_converted = self._request.patch_type in ("strategic", APPLY)
        try:
            return conform(
                shape, resource.api_version, resource.kind, new, old, self._unknown, is_converted=is_converted
            )
        except Mistyped as refusal:
            raise self._type_error(refusal, new) from None

    def _typed_document(self, new: Document, old: Document | None) -> Document:
        strategy, resource = self._strategy, self.resource
        is_converted = self._request.patch_type in ("strategic", APPLY)
        try:  # as in `_read_as`
            typed = conform(
                strategy.typed or self._shape,
                resource.api_version,
                resource.kind,
                new,
                old,
                self._unknown,
                is_converted=is_converted,
            )
        except Mistyped as refusal:
            raise self._type_error(refusal, new) from None
        try:
            msgspec.convert(typed["metadata"], ObjectMeta)
        except msgspec.ValidationError as error:
            raise BadRequest(f"metadata cannot be read: {error}") from None
        if strategy.read is not None:
            typed, dropped = strategy.read(typed)
            self._unknown += dropped
        return typed

    def old(self, stored: Record) -> Document:
        """Return the stored object in the present storage version. Raises: ApiError, Unanswered."""
        old: Document = msgspec.json.decode(stored.body)
        if self._strategy.read_stored is None:
            return old
        old = self._strategy.read_stored(old)[0]
        return self.versions.convert([old], str(old["apiVersion"]), self.versions.stored)[0]

    def check_name(self, name: str) -> None:
        """Check that the object's name is the name in the path. Raises: BadRequest."""
        wanted = self._request.name
        if name != wanted:
            raise BadRequest(f"the name of the object ({name}) does not match the name on the URL ({wanted})")

    def place(self, meta: Document) -> None:
        """Set the object's namespace to that of the path. Raises: BadRequest for an object of another namespace."""
        request, resource = self._request, self.resource
        if not resource.namespaced:
            meta.pop("namespace", None)
            return
        if meta.get("namespace") and meta["namespace"] != request.namespace:
            raise BadRequest(
                f"the namespace of the provided object does not match the namespace sent on the request: "
                f"{meta['namespace']} and {request.namespace}"
            )
        meta["namespace"] = request.namespace

    def with_path_identity(self, config: Document) -> Document:
        """Return an applied configuration with the name of the path. Raises: BadRequest if it names another object."""
        request, resource = self._request, self.resource
        meta = {} if config.get("metadata") is None else config["metadata"]
        if not isinstance(meta, dict):
            raise BadRequest("metadata: want an object")
        version, kind = str(config.get("apiVersion") or ""), str(config.get("kind") or "")
        wanted = request.api_version or resource.api_version
        if kind != resource.kind or version != wanted:
            if not version or not kind:
                raise BadRequest(
                    f"an apply patch of {request.resource} needs "
                    f"apiVersion {value_text(wanted)}, kind {value_text(resource.kind)}"
                )
            group, _, name = version.rpartition("/")
            raise BadRequest(f"invalid object type: {group}/{name}, Kind={kind}")
        if meta.get("name", request.name) != request.name:
            raise BadRequest(
                f"the name in the patch ({meta['name']}) does not match the name in the URL ({request.name})"
            )
        if meta.get("namespace", request.namespace) != request.namespace:
            raise BadRequest(
                f"the namespace in the patch ({meta['namespace']}) does not match the one in the URL "
                f"({request.namespace})"
            )
        return {**config, "metadata": {**meta, "name": request.name}}

    def own_patched(self, changed: Document, old: Document) -> Document:
        """Return a typed copy of the patched object, metadata copied. Raises: BadRequest, Invalid."""
        for field in ("apiVersion", "kind"):
            if changed.get(field) != old.get(field):
                raise BadRequest(
                    f"a patch cannot change {field} from {value_text(old.get(field))} to "
                    f"{value_text(changed.get(field))}"
                )
        meta = changed.get("metadata")
        if not isinstance(meta, dict):
            raise BadRequest("a patch cannot replace metadata by something that is not an object")
        new = self._typed_document({**changed}, old)
        return {**new, "metadata": dict(new["metadata"])}

    def typed_form(self, body: Document, old: Document) -> Document:
        """Return a subresource's body in the form of the object, decoded as the object's type. Raises: ApiError."""
        body = {"apiVersion": old["apiVersion"], "kind": old["kind"], **body}
        if not isinstance(body.get("metadata", {}), dict):
            raise BadRequest("metadata must be an object")
        body.setdefault("metadata", old["metadata"])
        return self._typed_document(body, old)


def _name_of(path: str) -> str:
    return msgspec.json.encode(path.rpartition(".")[2]).decode()
