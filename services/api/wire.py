"""Values that a component and the API server exchange, over any transport.

One `Request` and one `Response` serve every verb; a watch is a `WatchRequest` and a stream of batches of
`WatchEvent`. gRPC (`protos/mesh/v1`), the simulated transport and the in-memory server all carry exactly these,
so a component does not know which one it uses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from services.api.errors import ApiError, from_status

_ENCODER = msgspec.json.Encoder()
STALE_LEASE_EPOCH = "StaleLeaseEpoch"
"""Reason of the refusal of a write by a replaced leader (409, C11)."""


def encode(document: Any) -> bytes:
    """Return the JSON of a document or patch."""
    return _ENCODER.encode(document)


class LeaseEpoch(msgspec.Struct, frozen=True):
    """The Lease of a leader, and its number of transitions when the leader took it (C11)."""

    namespace: str
    name: str
    transitions: int

    @classmethod
    def parse(cls, text: str) -> LeaseEpoch:
        """Parse the epoch `<namespace>/<name>/<transitions>`. Raises: ValueError."""
        parts = text.split("/")
        if len(parts) != 3 or not all(parts) or not (parts[2].isascii() and parts[2].isdigit()):
            raise ValueError(f"{text!r}: want NAMESPACE/NAME/TRANSITIONS")
        return cls(parts[0], parts[1], int(parts[2]))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}/{self.transitions}"


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call. `resource` is `pods` for the core group, `replicasets.apps` otherwise.

    `verb`: get, list, create, update, patch, delete, deletecollection.
    `subresource`: "", status, scale, binding, unbind, eviction. `api_version`: the version in which the caller
    knows the kind; "" is the storage version.
    `patch_type`: merge, strategic, json (RFC 6902), apply (`force`: take over fields of other managers).
    `field_validation`: Strict, Warn or Ignore; "" is for components, which get no warnings.
    `body`: JSON; for delete a DeleteOptions or empty.
    `uid` / `resource_version`: preconditions on any write, checked inside the commit (S7).
    `lease_epoch`: the `LeaseEpoch` a leader writes under; the write is refused once another leads (C11).
    `deadline_s`: seconds the caller is willing to wait; 0 means the server's default.
    `at`: for get and list, the wanted version of the objects, in the window of changes; not together with a
    `resource_version`.
    `as_user`: the user that the caller acts as (impersonation), for calls of components; "" for the caller itself.
    `is_split`: return a list's items separately; for callers in the server's own process. `is_of_collection`: one
    of the deletions of a `deletecollection`, allowed by the right to that verb; only the server sets it.
    """

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    api_version: str = ""
    body: bytes = b""
    patch_type: str = ""
    uid: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    field_manager: str = ""
    field_validation: str = ""
    force: bool = False
    dry_run: bool = False
    request_id: str = ""
    traceparent: str = ""
    lease_epoch: str = ""
    deadline_s: float = 0.0
    at: str = ""
    as_user: str = ""
    is_split: bool = False
    is_of_collection: bool = False


_METHODS = {"binding": "Bind", "unbind": "Unbind", "eviction": "Evict"}


def rpc_method(request: Request) -> str:
    """Return the name of a call in traces, `mesh.v1.ApiServer/Create`, the same on both sides of the wire."""
    return f"mesh.v1.ApiServer/{_METHODS.get(request.subresource) or request.verb.capitalize()}"


class Response(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer: HTTP code, the RV it reflects, the JSON body (object, list or `Status`), warnings.

    `items`: the items of a list that was requested split; the body then has none. `records`: the same items as the
    store's records. `audit`: annotations of admission, for the event log only.
    """

    code: int
    rv: int = 0
    body: bytes = b""
    warnings: tuple[str, ...] = ()
    items: tuple[bytes, ...] | None = None
    records: Sequence[Any] = ()
    audit: Mapping[str, str] = {}

    @property
    def is_ok(self) -> bool:
        """Whether the call succeeded."""
        return self.code < 400

    def error(self) -> ApiError:
        """Return the refusal as an exception value; only for answers that are not ok."""
        return from_status(self.code, self.body)

    def unwrap(self) -> Response:
        """Return self, or raise the refusal."""
        if self.code >= 400:
            raise self.error()
        return self


class WatchRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Kind and start of a watch; `resource_version` "" or "0" starts with the state as ADDED (2.1).

    `api_version`: as in a `Request`.
    """

    resource: str
    api_version: str = ""
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    allow_bookmarks: bool = True
    send_initial_events: bool = False
    timeout_s: float = 0.0


class WatchEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change as one watcher sees it.

    `type`: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR (body is a `Status`). `traceparent` is the writer's.
    `initial_events_end` marks the bookmark of W12.
    """

    type: str
    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    rv: int = 0
    body: bytes = b""
    traceparent: str = ""
    initial_events_end: bool = False


class Api(Protocol):
    """The API server for one identity. The API server, the gRPC client and the simulation implement it.

    `call` returns every definite answer, refusals included, as a Response, and raises `UnknownOutcome` when no
    answer came. `watch` yields batches and ends when the server ends it; a lost connection raises `UnknownOutcome`;
    a refused watch raises `ApiError`.
    """

    async def call(self, request: Request) -> Response: ...

    def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]: ...
