"""One identity's convenient face over an `Api`: documents in, documents out, and honest retries.

A write whose outcome is unknown is repeated with the same request id until the server says what
became of it (guarantees C6); 429 and 503 are waited out as the server asks; every other refusal is definite and
is raised. Conflicts are the caller's: it must read and decide again (C5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from services.api.errors import ApiError, UnknownOutcome
from services.api.meta import Document, Key
from services.api.seams import Clock, Random
from services.api.wire import STALE_LEASE_EPOCH, Api, Request, Response, encode
from services.client.backoff import Backoff

DEADLINE_S = 30.0
ATTEMPT_MAX_S = 5.0
"""One attempt is given up after this long, so that a lost answer leaves time to ask again."""
PAGE = 500
LIST_RESTARTS_MAX = 3

Documents = list[Document]
RawItems = list[msgspec.Raw]
JsonPatch = list[Document]

_READS = frozenset(("get", "list"))
_DECODER: msgspec.json.Decoder[Document] = msgspec.json.Decoder(dict[str, Any])


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class ListBody(msgspec.Struct):
    """A `List` document whose items are left undecoded."""

    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] = msgspec.field(default_factory=list)


LIST_DECODER = msgspec.json.Decoder(ListBody)


def decode(response: Response) -> Document:
    """Return the document an answer carries.

    Raises: ApiError when the body is not a JSON object.
    """
    try:
        return _DECODER.decode(response.body)
    except msgspec.DecodeError as error:
        raise ApiError(f"the server's answer ({response.code}) cannot be decoded: {error}") from error


class Client:
    """Calls with C6 retries; one per identity.

    `lease_epoch`: what a leader writes under, see `lead`; "" for all others.
    """

    def __init__(
        self,
        api: Api,
        clock: Clock,
        random: Random,
        *,
        field_manager: str = "",
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._api = api
        self._clock = clock
        self._random = random
        self._field_manager = field_manager
        self._deadline_s = deadline_s
        self.lease_epoch = ""
        self._deposed: Callable[[], None] = _never_led
        self.retries_total = 0
        self.unknown_total = 0

    def lead(self, epoch: str, deposed: Callable[[], None]) -> None:
        """Send this lease epoch with every mutation from now on (C11).

        `deposed` is called when a write is refused because another leads; the refusal is raised as well.
        """
        self.lease_epoch, self._deposed = epoch, deposed

    async def get(self, resource: str, key: Key) -> Document:
        """Return the newest state of one object. Raises: NotFound."""
        request = Request(verb="get", resource=resource, namespace=key.namespace, name=key.name)
        return decode((await self.call(request)).unwrap())

    async def get_raw(self, resource: str, key: Key) -> bytes:
        """Return the newest state of one object as its JSON, for a typed decoder. Raises: NotFound."""
        request = Request(verb="get", resource=resource, namespace=key.namespace, name=key.name)
        return (await self.call(request)).unwrap().body

    async def list(
        self, resource: str, *, namespace: str = "", field_selector: str = "", label_selector: str = ""
    ) -> tuple[Documents, int]:
        """Return all matching objects at one version, and that version."""
        items, rv = await self.list_raw(
            resource, namespace=namespace, field_selector=field_selector, label_selector=label_selector
        )
        try:
            return [_DECODER.decode(item) for item in items], rv
        except msgspec.DecodeError as error:
            raise ApiError(f"an item in the list of {resource} cannot be decoded: {error}") from error

    async def list_raw(
        self, resource: str, *, namespace: str = "", field_selector: str = "", label_selector: str = ""
    ) -> tuple[RawItems, int]:
        """Return the JSON of all matching objects at one version, pages joined, and that version.

        When the version of the first page leaves the server's window meanwhile, the list begins anew.
        """
        first = request = Request(
            verb="list",
            resource=resource,
            namespace=namespace,
            field_selector=field_selector,
            label_selector=label_selector,
            limit=PAGE,
        )
        items: RawItems = []
        restarts = 0
        while True:
            response = await self.call(request)
            if response.code == 410 and request is not first and restarts < LIST_RESTARTS_MAX:
                items, request, restarts = [], first, restarts + 1
                continue
            response.unwrap()
            try:
                page = LIST_DECODER.decode(response.body)
            except msgspec.DecodeError as error:
                raise ApiError(f"the list of {resource} cannot be decoded: {error}") from error
            items += page.items
            if not page.metadata.continue_token:
                version = page.metadata.resource_version
                return items, int(version) if version else response.rv
            request = msgspec.structs.replace(request, continue_token=page.metadata.continue_token)

    async def create(
        self, resource: str, document: Document, *, namespace: str = "", subresource: str = "", traceparent: str = ""
    ) -> Document:
        """Create and return the stored object. Raises: AlreadyExists, Invalid, Forbidden."""
        metadata = document.get("metadata", {})
        request = Request(
            verb="create",
            resource=resource,
            namespace=namespace or metadata.get("namespace", ""),
            name=metadata.get("name", ""),
            subresource=subresource,
            body=encode(document),
            traceparent=traceparent,
        )
        return decode((await self.call(request)).unwrap())

    async def update(
        self, resource: str, key: Key, document: Document, *, subresource: str = "", traceparent: str = ""
    ) -> Document:
        """Replace the object, or its subresource, and return it. Raises: Conflict, NotFound, Invalid."""
        request = Request(
            verb="update",
            resource=resource,
            namespace=key.namespace,
            name=key.name,
            subresource=subresource,
            body=encode(document),
            traceparent=traceparent,
        )
        return decode((await self.call(request)).unwrap())

    async def patch(
        self,
        resource: str,
        key: Key,
        patch: Document | JsonPatch,
        *,
        subresource: str = "",
        patch_type: str = "merge",
        uid: str = "",
        resource_version: str = "",
        traceparent: str = "",
    ) -> Document:
        """Patch and return the stored object. Raises: Conflict when a precondition fails, NotFound, Invalid."""
        return decode(
            await self._patch(resource, key, patch, subresource, patch_type, uid, resource_version, traceparent)
        )

    async def patch_rv(
        self,
        resource: str,
        key: Key,
        patch: Document | JsonPatch,
        *,
        subresource: str = "",
        patch_type: str = "merge",
        uid: str = "",
        resource_version: str = "",
        traceparent: str = "",
    ) -> int:
        """Patch and return only the new resource version; for callers that would throw the object away."""
        return (await self._patch(resource, key, patch, subresource, patch_type, uid, resource_version, traceparent)).rv

    async def _patch(
        self,
        resource: str,
        key: Key,
        patch: Document | JsonPatch,
        subresource: str,
        patch_type: str,
        uid: str,
        resource_version: str,
        traceparent: str,
    ) -> Response:
        request = Request(
            verb="patch",
            resource=resource,
            namespace=key.namespace,
            name=key.name,
            subresource=subresource,
            body=encode(patch),
            patch_type=patch_type,
            uid=uid,
            resource_version=resource_version,
            traceparent=traceparent,
        )
        return (await self.call(request)).unwrap()

    async def delete(
        self,
        resource: str,
        key: Key,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_s: int | None = None,
        propagation: str = "",
        traceparent: str = "",
    ) -> None:
        """Delete, or begin a graceful deletion. Raises: NotFound, Conflict when a precondition fails."""
        request = delete_request(
            resource,
            key,
            uid=uid,
            resource_version=resource_version,
            grace_period_s=grace_period_s,
            propagation=propagation,
            traceparent=traceparent,
        )
        (await self.call(request)).unwrap()

    async def bind(
        self,
        key: Key,
        uid: str,
        node: str,
        *,
        expected_unbind_count: int | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        traceparent: str = "",
    ) -> int:
        """Bind the pod to the node and return the resource version of that change.

        Raises: Conflict (already bound, other uid, other unbind count), NotFound.
        """
        metadata: Document = {"name": key.name, "namespace": key.namespace, "uid": uid}
        if labels:
            metadata["labels"] = labels
        if annotations:
            metadata["annotations"] = annotations
        binding: Document = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        if expected_unbind_count is not None:
            binding["expectedUnbindCount"] = expected_unbind_count
        request = Request(
            verb="create",
            resource="pods",
            namespace=key.namespace,
            name=key.name,
            subresource="binding",
            body=encode(binding),
            uid=uid,
            traceparent=traceparent,
        )
        return (await self.call(request)).unwrap().rv

    def new_request_id(self) -> str:
        """Return a request id that was never used (S9)."""
        return f"{self._random.getrandbits(128):032x}"

    async def call(self, request: Request) -> Response:
        """Return the definite answer, refusals included.

        A mutation gets a request id (kept if it has one) and this client's field manager and lease epoch.
        Repeats on an unknown outcome with decorrelated jitter of 0.2 to 5 s; obeys `retryAfterSeconds` of
        429 and 503; gives up at `request.deadline_s`, or 30 s. A 429 without `retryAfterSeconds` is
        definite: such a refusal (a disruption budget, for example) does not go away by waiting.

        Raises: UnknownOutcome when at the deadline it is not known whether the write took effect, or when
        no answer to a read came. Source: guarantees C6, 2.2, 9.1.
        """
        is_write = request.verb not in _READS
        if is_write:
            request = msgspec.structs.replace(
                request,
                request_id=request.request_id or self.new_request_id(),
                field_manager=request.field_manager or self._field_manager,
                lease_epoch=request.lease_epoch or self.lease_epoch,
            )
        deadline = self._clock.now() + (request.deadline_s or self._deadline_s)
        lost: Backoff | None = None
        refused: Backoff | None = None
        is_unknown = False
        reason = "no attempt was made in time"
        while True:
            answer: Response | None = None
            now = self._clock.now()
            try:
                async with asyncio.timeout(max(0.001, min(ATTEMPT_MAX_S, deadline - now))):
                    answer = await self._api.call(request)
            except UnknownOutcome as error:
                reason = str(error)
            except TimeoutError:
                reason = f"no answer within {self._clock.now() - now:.1f} s"
            if answer is not None and answer.code not in (429, 503, 504):
                if answer.code == 409 and request.lease_epoch and answer.error().reason == STALE_LEASE_EPOCH:
                    self._deposed()
                return answer
            if answer is None or (answer.code == 504 and is_write):
                # From here on 429 and 503 say nothing about what the first attempt did.
                is_unknown = True
                lost = lost or Backoff(self._random)
                wait_s = lost.next_s()
            else:
                retry_after_s = answer.error().retry_after_s
                if answer.code == 429 and not retry_after_s:
                    return answer
                refused = refused or Backoff(self._random)
                wait_s = float(retry_after_s) + self._random.uniform(0, 0.2) if retry_after_s else refused.next_s()
            if self._clock.now() + wait_s >= deadline:
                if is_unknown or answer is None:
                    self.unknown_total += 1
                    raise UnknownOutcome(f"{_describe(request)}: {reason}; gave up at the deadline")
                return answer
            self.retries_total += 1
            await asyncio.sleep(wait_s)


def _never_led() -> None:
    """Do nothing: a client that does not lead cannot be deposed."""


def delete_request(
    resource: str,
    key: Key,
    *,
    uid: str = "",
    resource_version: str = "",
    grace_period_s: int | None = None,
    propagation: str = "",
    traceparent: str = "",
) -> Request:
    """Return the request of a delete; preconditions travel in the request, options in the body."""
    options: Document = {}
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    if propagation:
        options["propagationPolicy"] = propagation
    return Request(
        verb="delete",
        resource=resource,
        namespace=key.namespace,
        name=key.name,
        body=encode({"apiVersion": "v1", "kind": "DeleteOptions", **options}) if options else b"",
        uid=uid,
        resource_version=resource_version,
        traceparent=traceparent,
    )


def _describe(request: Request) -> str:
    target = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    return f"{request.verb} {target} {Key(request.namespace, request.name)}"
