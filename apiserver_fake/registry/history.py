"""The history of one object: who wrote what, when and under which trace, as far as the window of changes
reaches.

`GET .../NAME/history` answers with a `ChangeList` of keplab.dev/v1, newest last, of all objects that had that
name.
"""

import msgspec

from apiserver_fake.registry.differences import differences
from apiserver_fake.registry.errors import not_found
from apiserver_fake.storage.records import Change, Record
from apiserver_fake.storage.store import Store
from services.api.errors import BadRequest
from services.api.meta import Document, Resource
from services.api.times import format_micro_time
from services.api.wire import Request, Response

HISTORY = "history"
API_VERSION = "keplab.dev/v1"
CHANGES_MAX = 500
"""Most changes in one answer; the newest ones."""


def history(store: Store, resource: Resource, request: Request) -> Response:
    """Return the changes of an object. Raises: BadRequest for a collection, NotFound if the name is unknown."""
    if not request.name:
        raise BadRequest(f"the history of {resource.plural} is kept for each by itself: name one")
    changes = store.changes_of(resource.name, request.namespace, request.name)
    if not changes and store.get(resource.name, request.namespace, request.name) is None:
        raise not_found(resource, request.name)
    shown = changes[-(request.limit or CHANGES_MAX) :]
    metadata: Document = {"resourceVersion": str(store.rv), "windowStart": str(store.window_start)}
    if len(shown) < len(changes):
        metadata["remainingItemCount"] = len(changes) - len(shown)
    items = [_item(change) for change in shown]
    document = {"kind": "ChangeList", "apiVersion": API_VERSION, "metadata": metadata, "items": items}
    return Response(code=200, rv=store.rv, body=msgspec.json.encode(document))


def _item(change: Change) -> Document:
    cause, previous = change.cause, change.previous
    item: Document = {
        "type": change.type,
        "resourceVersion": str(change.rv),
        "previousResourceVersion": str(previous.rv) if previous is not None else "",
        "uid": change.record.uid,
        "traceID": change.traceparent.split("-")[1] if change.traceparent else "",
    }
    if cause is not None:
        item |= {
            "time": format_micro_time(cause.at_s),
            "user": cause.identity,
            "verb": cause.verb,
            "subresource": cause.subresource,
            "requestID": cause.request_id,
        }
    is_gone = change.type == "DELETED"
    item["changed"] = differences(_document(previous), None if is_gone else _document(change.record))
    item["object"] = msgspec.Raw(change.record.body)
    return item


def _document(record: Record | None) -> Document | None:
    return None if record is None else msgspec.json.decode(record.body)
