"""Raw writes: objects straight into the store, past defaults, validation, admission and every rule of a
kind.

A raw write corresponds to writing to etcd by hand in a real cluster. Only administrators may do it, and only
where `store.raw` is on; each write is a line `raw.write` of the event log. Source: simulator 5.3.
"""

from collections.abc import Callable

import msgspec

from apiserver_fake.registry.decode import decode_object
from apiserver_fake.registry.errors import method_not_allowed
from apiserver_fake.registry.switches import ApiServerSwitches
from apiserver_fake.registry.validation.formats import value_text
from apiserver_fake.storage.store import Staged
from services.api.errors import BadRequest, Forbidden, NotFound
from services.api.identity import MASTERS_GROUP, Identity
from services.api.meta import Document, Key, Resource
from services.api.switches import Switches
from services.api.wire import Request, Response

SUBRESOURCE = "raw"


def check_raw(identity: Identity, switches: Switches) -> None:
    """Check that the identity may write past admission, whatever roles say. Raises: Forbidden."""
    if not switches.of(ApiServerSwitches).writes_raw:
        raise Forbidden("writing past admission needs the switch store.raw=true, which is false")
    if MASTERS_GROUP not in identity.groups:
        raise Forbidden(f"writing past admission is for administrators ({MASTERS_GROUP}), not {identity.user}")


def raw_plan(
    resource: Resource, request: Request, traceparent: str, new_uid: Callable[[], str]
) -> Callable[[Staged], Response]:
    """Return a plan for a put (`update`) or `delete` that runs inside the commit. Raises: BadRequest, NotFound."""
    key = Key(request.namespace, request.name)
    if not request.name:
        raise BadRequest("want the name of an object")
    if request.dry_run:
        raise BadRequest("dryRun: nothing is checked that a write past admission could be tried for")
    if request.verb == "delete":

        def delete(staged: Staged) -> Response:
            record = staged.get(resource.name, key.namespace, key.name)
            if record is None:
                raise NotFound(f'{resource.name} "{key.name}" not found')
            gone = staged.remove(resource, msgspec.json.decode(record.body), traceparent)
            return Response(code=200, rv=gone.rv, body=gone.body)

        return delete
    if request.verb != "update":
        raise method_not_allowed()
    document = decode_object(request.body, f"a {resource.kind}", None)

    def put(staged: Staged) -> Response:
        previous = staged.get(resource.name, key.namespace, key.name)
        uid = previous.uid if previous is not None else new_uid()
        record = staged.put(resource, _stored_document(document, resource, key, uid), traceparent)
        return Response(code=200, rv=record.rv, body=record.body)

    return put


def _stored_document(document: Document, resource: Resource, key: Key, uid: str) -> Document:
    """Return what is stored: as it was given, but that kind, name, namespace and uid are there. Raises: BadRequest."""
    for name, wanted in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        if document.get(name, wanted) != wanted:
            raise BadRequest(f"{name} {value_text(document[name])}: want {wanted}, as it is stored")
    given = document.get("metadata") or {}
    if not isinstance(given, dict):
        raise BadRequest("metadata must be an object")
    for name, own in (("name", key.name), ("namespace", key.namespace)):
        if given.get(name, own) != own:
            raise BadRequest(f"metadata.{name} {value_text(given[name])}: want {value_text(own)}, as the request says")
    metadata = {"uid": uid, **given, "name": key.name, **({"namespace": key.namespace} if key.namespace else {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, **document, "metadata": metadata}
