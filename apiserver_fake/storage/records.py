"""The values of the store: objects at a version, their changes, journal entries, and selections of lists."""

from __future__ import annotations

import hashlib
from sys import intern
from typing import Any, Final, TypedDict

import msgspec

from services.api.errors import BadRequest, Timeout
from services.api.meta import Document, Key, Resource
from services.api.selectors import EVERYTHING, Selector, Term, parse_field_selector, parse_label_selector

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
RV_MAX = (1 << 63) - 1
NO_LABELS: Final[dict[str, str]] = {}
"""The shared label map of objects without labels: most objects are Events, and have none."""


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One object at one version.

    `fields` holds the selectable fields, without `metadata.name` and `metadata.namespace`. `digest` is its summand
    in the state hash, 0 when hashing is off.
    """

    resource: str
    namespace: str
    name: str
    uid: str
    rv: int
    body: bytes
    labels: dict[str, str]
    fields: dict[str, str]
    owners: tuple[str, ...] = ()
    is_deleting: bool = False
    digest: int = 0

    @property
    def key(self) -> Key:
        """The object's `(namespace, name)`."""
        return Key(self.namespace, self.name)


class Cause(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The request that caused a change; for the event log, by which invariants are judged (I2, I14, I24, I25),
    and history.

    `at_s`: time of the request, by the wall clock.
    """

    identity: str
    verb: str
    subresource: str = ""
    request_id: str = ""
    lease_epoch: str = ""
    at_s: float = 0.0


UNNAMED = Cause("", "")


class Change(msgspec.Struct, frozen=True, gc=False):
    """One change of one object, with the record before it.

    For a removal `record` is the last content at the removal's RV (S19). `group_end` is the RV at which the
    change's group is complete (S4).
    """

    rv: int
    type: str
    record: Record
    previous: Record | None
    group_end: int
    traceparent: str = ""
    cause: Cause | None = None


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One change as a journal keeps it.

    `request_id`, `fingerprint`, `code` and `answer` are empty except in a group's last change. `at_s`: time of the
    request, by the wall clock.
    """

    rv: int
    type: str
    group_end: int
    previous_rv: int
    resource: str
    namespace: str
    name: str
    uid: str
    body: bytes
    traceparent: str = ""
    identity: str = ""
    request_id: str = ""
    fingerprint: bytes = b""
    code: int = 0
    answer: bytes | None = None
    verb: str = ""
    subresource: str = ""
    at_s: float = 0.0

    @property
    def cause(self) -> Cause | None:
        """The request that caused the change; None for a change that an older journal kept."""
        if not self.verb:
            return None
        return Cause(self.identity, self.verb, self.subresource, self.request_id, at_s=self.at_s)


class BaseObject(msgspec.Struct, frozen=True, array_like=True):
    """One object of a base state."""

    resource: str
    rv: int
    body: bytes


def entry_of(
    change: Change,
    identity: str = "",
    cause: Cause = UNNAMED,
    request_id: str = "",
    fingerprint: bytes = b"",
    code: int = 0,
    answer: bytes | None = None,
) -> Entry:
    """Return a change as a journal entry, with the request's answer if it has an id and this is its last change."""
    record = change.record
    return Entry(
        change.rv,
        change.type,
        change.group_end,
        change.previous.rv if change.previous else 0,
        record.resource,
        record.namespace,
        record.name,
        record.uid,
        record.body,
        change.traceparent,
        identity,
        request_id,
        fingerprint,
        code,
        answer,
        verb=cause.verb,
        subresource=cause.subresource,
        at_s=cause.at_s,
    )


class _Metadata(TypedDict, total=False):
    namespace: str
    name: str
    uid: str
    labels: Any
    ownerReferences: Any
    deletionTimestamp: Any


class _PodSpec(TypedDict, total=False):
    nodeName: Any
    schedulerName: Any
    restartPolicy: Any
    serviceAccountName: Any
    hostNetwork: Any


class _PodStatus(TypedDict, total=False):
    phase: Any
    podIP: Any
    nominatedNodeName: Any


class _PodHead(TypedDict, total=False):
    """The part of a pod's document from which its record is made: about a twentieth."""

    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus


_HEADS: Final[dict[str, msgspec.json.Decoder[Any]]] = {"pods": msgspec.json.Decoder(_PodHead)}
"""Decoders of the part of a document from which its record is made, for pods, which are many and large.

They halve the time to restore a store with many pods.
"""


def head_of(name: str, body: bytes) -> Document:
    """Return the part of a stored object of that kind that `record_of` needs without hashing."""
    try:
        if (decoder := _HEADS.get(name)) is not None:
            return decoder.decode(body)  # type: ignore[no-any-return]
    except msgspec.ValidationError:
        pass  # a value of a wrong shape counts as absent, but not the whole document
    return msgspec.json.decode(body)  # type: ignore[no-any-return]


def record_of(resource: Resource, document: Document, rv: int, body: bytes, *, hashing: bool = False) -> Record:
    """Return the record of a document that was encoded to `body`. Values of a wrong shape count as absent."""
    meta: dict[str, Any] = document["metadata"]
    namespace, name, owners = meta.get("namespace", ""), meta["name"], meta.get("ownerReferences")
    return Record(
        resource=resource.name,
        namespace=intern(namespace),
        name=name,
        uid=meta.get("uid", ""),
        rv=rv,
        body=body,
        labels=meta.get("labels") or NO_LABELS,
        fields=fields_of(resource, document),
        owners=tuple([str(owner.get("uid", "")) for owner in owners]) if owners else (),
        is_deleting=bool(meta.get("deletionTimestamp")),
        digest=digest(resource.kind, namespace, name, document) if hashing else 0,
    )


def beside(record: Record, previous: Record) -> Record:
    """Return the record with all parts that equal the previous one's shared with it, usually all but the body.

    The window keeps both records.
    """
    return msgspec.structs.replace(
        record,
        name=previous.name,
        uid=previous.uid if previous.uid == record.uid else record.uid,
        labels=previous.labels if previous.labels == record.labels else record.labels,
        fields=previous.fields if previous.fields == record.fields else record.fields,
        owners=previous.owners if previous.owners == record.owners else record.owners,
    )


def fields_of(resource: Resource, document: Document) -> dict[str, str]:
    """Return the values of a kind's selectable fields; a value of a wrong shape becomes "".

    Values that many objects share, such as a pod's uid in its Events, are kept once.
    """
    fields: dict[str, str] = {}
    for label, value_of in resource.selectable_fields.items():
        try:
            fields[label] = intern(str(value_of(document) or ""))
        except (AttributeError, TypeError, KeyError):
            fields[label] = ""
    return fields


def undefined_resource(name: str, document: Document) -> Resource | None:
    """Return the kind of a stored object whose wire name is not defined now, but was, and may be again.

    None if the object cannot be a custom resource: the group of a custom kind contains a dot.
    """
    plural, _, group = name.partition(".")
    stored_group, _, version = str(document.get("apiVersion") or "").rpartition("/")
    kind = str(document.get("kind") or "")
    if "." not in group or stored_group != group or not kind:
        return None
    return Resource(group=group, version=version, kind=kind, plural=plural)


def digest(kind: str, namespace: str, name: str, document: Document) -> int:
    """Return one object's summand in the state hash. Canonical JSON has sorted keys. Source: guarantees 2.3."""
    text = msgspec.json.encode(document, order="deterministic")
    head = f"{kind}\0{namespace}\0{name}\0".encode()
    return int.from_bytes(hashlib.sha256(head + text).digest(), "big")


def parse_rv(text: str) -> int:
    """Return the version; "" is 0. Raises: BadRequest unless it is a decimal number without leading zeros."""
    if not text:
        return 0
    if text.isascii() and text.isdigit() and len(text) <= 19 and (text[0] != "0" or len(text) == 1):
        rv = int(text)
        if rv <= RV_MAX:
            return rv
    raise BadRequest(f'resourceVersion: Invalid value: "{text[:80]}": must be a decimal number up to {RV_MAX}')


def future_version(wanted: int, visible: int) -> Timeout:
    """Return the refusal of a version that does not exist yet (S12)."""
    message = f"Too large resource version: {wanted}, current: {visible}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return Timeout(message, details={"causes": [cause]}, retry_after_s=1)


class Selection(msgspec.Struct, frozen=True):
    """The objects that a list or watch selects; an empty namespace means all."""

    namespace: str = ""
    labels: Selector = EVERYTHING
    fields: tuple[Term, ...] = ()

    @classmethod
    def parse(cls, resource: Resource, namespace: str, label_selector: str, field_selector: str) -> Selection:
        """Read both selectors. Raises: BadRequest for bad syntax and for a field this kind cannot select by."""
        terms = parse_field_selector(field_selector).terms if field_selector else ()
        for term in terms:
            if term.key not in ("metadata.name", "metadata.namespace") and term.key not in resource.selectable_fields:
                raise BadRequest(f"field label not supported: {term.key}")
        return cls(namespace, parse_label_selector(label_selector) if label_selector else EVERYTHING, terms)

    def matches(self, record: Record) -> bool:
        """Whether the selection includes the object."""
        if self.namespace and record.namespace != self.namespace:
            return False
        for term in self.fields:
            if term.key == "metadata.name":
                value = record.name
            elif term.key == "metadata.namespace":
                value = record.namespace
            else:
                value = record.fields.get(term.key, "")
            if (value in term.values) != (term.op == "in"):
                return False
        return not self.labels.terms or self.labels.matches(record.labels)

    def exact(self, field: str) -> str | None:
        """Return the value that a field must equal; None if the selection does not restrict it to one value."""
        for term in self.fields:
            if term.key == field and term.op == "in":
                return term.values[0]
        return None

    @property
    def is_filtered(self) -> bool:
        """Whether the selection has any criterion but the namespace."""
        return bool(self.fields or self.labels.terms)


class Page(msgspec.Struct, frozen=True):
    """A part of a list, in key order. `next_after` None: the list ends with this page; `remaining` None: unknown."""

    records: list[Record]
    next_after: Key | None = None
    remaining: int | None = None


class ReadOnly(msgspec.Struct, frozen=True):
    """The reason why writes are refused, and since when by the wall clock (S16)."""

    since_s: float
    why: str
