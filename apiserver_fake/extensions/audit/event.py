"""One audit event, with exactly upstream's fields in its order. Pure.

Source: upstream `staging/src/k8s.io/apiserver/pkg/apis/audit/v1/types.go`,
`staging/src/k8s.io/apiserver/pkg/audit/request.go`.
"""

from typing import Any

import msgspec

from apiserver_fake.extensions.audit.policy import API_VERSION, AuditSettings, Level
from apiserver_fake.registry.policy import Attributes
from services.api.identity import Identity
from services.api.meta import Document


class Event(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """The state of a request at one of its stages; a document of audit.k8s.io/v1."""

    kind: str
    api_version: str
    level: Level
    audit_id: str = msgspec.field(name="auditID")
    stage: str
    request_uri: str = msgspec.field(name="requestURI")
    verb: str
    user: Document
    impersonated_user: Document | None = None
    source_ips: tuple[str, ...] = msgspec.field(default=(), name="sourceIPs")
    user_agent: str = ""
    object_ref: Document | None = None
    response_status: Document | None = None
    request_object: msgspec.Raw | None = None
    response_object: msgspec.Raw | None = None
    request_received_timestamp: str
    stage_timestamp: str
    annotations: dict[str, str] = {}


class Source(msgspec.Struct, frozen=True):
    """The source of a request: its URI, source addresses and user agent."""

    uri: str
    ips: tuple[str, ...] = ()
    user_agent: str = ""


class _Names(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815


class _Object(msgspec.Struct, frozen=True):
    metadata: _Names = _Names()


def new_event(
    chosen: AuditSettings,
    audit_id: str,
    caller: Identity | None,
    asked: Attributes,
    source: Source,
    version: str,
    at: str,
) -> Event:
    """Return the event of a request at its receipt. `version`: of the API group requested; `at`: timestamp of
    receipt.
    """
    reference: Document | None = None
    if not asked.path:
        fields = {
            "resource": asked.resource,
            "namespace": asked.namespace,
            "name": asked.name,
            "apiGroup": asked.group,
            "apiVersion": version,
            "subresource": asked.subresource,
        }
        reference = {name: value for name, value in fields.items() if value}
    return Event(
        kind="Event",
        api_version=API_VERSION,
        level=chosen.level,
        audit_id=audit_id,
        stage="RequestReceived",
        request_uri=source.uri,
        verb=asked.verb,
        user=caller.user_info if caller is not None else {},
        source_ips=source.ips,
        user_agent=source.user_agent,
        object_ref=reference,
        request_received_timestamp=at,
        stage_timestamp=at,
    )


def complete_reference(event: Event, body: bytes) -> None:
    """Fill the object reference from the metadata of the object sent."""
    if event.object_ref is None:
        return
    try:
        meta = msgspec.json.decode(body, type=_Object).metadata
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return
    fields = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid, "resourceVersion": meta.resourceVersion}
    event.object_ref |= {name: value for name, value in fields.items() if value and not event.object_ref.get(name)}


def status_of(code: int, body: bytes) -> Document:
    """Return the `responseStatus` of an answer: the fields of a Status, or only the code of any other answer."""
    status: Document = {"metadata": {}}
    if code >= 400 or b'"kind":"Status"' in body[:512].replace(b" ", b""):
        try:
            document = msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            document = None
        if isinstance(document, dict) and document.get("kind") == "Status":
            status |= {
                name: document[name] for name in ("status", "message", "reason", "details") if document.get(name)
            }
        elif code >= 400:
            status |= {"status": "Failure", "message": body[:1024].decode("utf-8", "replace").strip()}
    return {**status, "code": code}


def recorded_object(body: bytes, *, omit_managed_fields: bool) -> msgspec.Raw | None:
    """Return an object as it is recorded; None if it is not JSON."""
    try:
        document: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    if omit_managed_fields:
        _drop(document)
    return msgspec.Raw(msgspec.json.encode(document))


def _drop(document: Any) -> None:
    if not isinstance(document, dict):
        return
    for each in (document, *(document.get("items") or () if isinstance(document.get("items"), list) else ())):
        metadata = each.get("metadata") if isinstance(each, dict) else None
        if isinstance(metadata, dict):
            metadata.pop("managedFields", None)
