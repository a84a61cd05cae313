"""Preconditions of a write: the uid and the resourceVersion that the caller expects (S7)."""

from __future__ import annotations

from apiserver_fake.registry.errors import MODIFIED_TEXT, RECREATED_TEXT, conflict, not_found
from apiserver_fake.registry.validation.formats import Cause
from apiserver_fake.storage.records import Record, parse_rv
from apiserver_fake.storage.store import Staged
from services.api.errors import invalid
from services.api.meta import Resource
from services.api.wire import Request


def stored_object(staged: Staged, resource: Resource, request: Request) -> Record:
    """Return the object that a request names. Raises: NotFound."""
    stored = staged.get(resource.name, request.namespace, request.name)
    if stored is None:
        raise not_found(resource, request.name)
    return stored


def check_preconditions(resource: Resource, stored: Record, uid: str, version: str) -> None:
    """Check the uid and resourceVersion that a write expects; "" is not checked. Raises: Conflict, BadRequest."""
    name = stored.name
    if uid and uid != stored.uid:
        why = f"the UID in the precondition ({uid}) does not match the UID in record ({stored.uid}). {RECREATED_TEXT}"
        raise conflict(resource, name, why)
    if version and parse_rv(version) != stored.rv and version != "0":
        raise conflict(resource, name, MODIFIED_TEXT)


def check_uid(resource: Resource, stored: Record, uid: str, *, is_patch: bool) -> None:
    """Check that a document has the uid of the stored object. Raises: Invalid for a patch, else Conflict."""
    if not uid or uid == stored.uid:
        return
    if is_patch:
        text = f'Invalid value: "{uid}": field is immutable'
        raise invalid(resource.qualified_kind, stored.name, [Cause("metadata.uid", "FieldValueInvalid", text)])
    why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored.uid}"
    at = f"Key: {_storage_key(resource, stored)}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
    raise conflict(resource, stored.name, f"StorageError: invalid object, Code: 4, {at}")


_PREFIXES = {"nodes": "minions", "services": "services/specs", "endpoints": "services/endpoints"}


def _storage_key(resource: Resource, stored: Record) -> str:
    """Return the object's key in upstream's storage, which refusals name."""
    place = _PREFIXES.get(resource.name, resource.plural)
    parts = ["", "registry", place, stored.namespace, stored.name]
    return "/".join(parts if stored.namespace else [*parts[:3], stored.name])
