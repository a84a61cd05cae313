"""Client of one identity over an `Api`: documents in, documents out, with safe retries.

A write whose outcome is unknown is repeated with the same request id until the server reports its outcome
(guarantees C6). After 429 and 503 the client waits as the server asks; every other refusal is definite and is
raised. Conflicts are the caller's: it must read and decide again (C5).
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypedDict, Unpack

import msgspec

from services.api.errors import UNREADABLE, ApiError, UnknownOutcome
from services.api.meta import Document, Key
from services.api.seams import Clock, Random
from services.api.wire import STALE_LEASE_EPOCH, Api, Request, Response, encode

BACKOFF_BASE_S, BACKOFF_MAX_S = 0.2, 5.0
DEADLINE_S = 30.0
ATTEMPT_MAX_S = 5.0
"""Timeout of one attempt in seconds; it leaves time to ask again after a lost answer."""
PAGE = 500
LIST_RESTARTS_MAX = 3

Documents = list[Document]
RawItems = list[msgspec.Raw]
JsonPatch = list[Document]

_READS = frozenset(("get", "list"))
_DECODER: msgspec.json.Decoder[Document] = msgspec.json.Decoder(dict[str, Any])


class Part(TypedDict, total=False):
    """Selection of objects of a kind; without any field, all of them."""

    namespace: str
    field_selector: str
    label_selector: str


class Options(TypedDict, total=False):
    """Options of a call besides object and body, as in `Request`; a patch is a merge patch by default."""

    subresource: str
    patch_type: str
    uid: str
    resource_version: str
    traceparent: str


_MERGE: Final[Options] = {"patch_type": "merge"}


class Backoff:
    """Delays between attempts: decorrelated jitter.

    Each delay is drawn between the base and three times the previous one. Source: guarantees C3, C6.
    """

    def __init__(self, random: Random) -> None:
        self._random, self._last_s = random, BACKOFF_BASE_S

    def next_s(self) -> float:
        """Return the next delay, in seconds."""
        self._last_s = min(BACKOFF_MAX_S, self._random.uniform(BACKOFF_BASE_S, self._last_s * 3))
        return self._last_s

    def reset(self) -> None:
        """Start again from the base."""
        self._last_s = BACKOFF_BASE_S


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class ListBody(msgspec.Struct):
    """A `List` document whose items are left undecoded."""

    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: RawItems = msgspec.field(default_factory=list)


LIST_DECODER = msgspec.json.Decoder(ListBody)


def decode(response: Response) -> Document:
    """Return the document in an answer. Raises: ApiError when the body is not a JSON object."""
    try:
        return _DECODER.decode(response.body)
    except UNREADABLE as error:
        raise ApiError(f"the server's answer ({response.code}) cannot be decoded: {error}") from error


class Client:
    """API client with C6 retries; one per identity.

    `lease_epoch`: the epoch of a leader's writes, see `lead`; empty for all other clients.
    """

    def __init__(
        self, api: Api, clock: Clock, random: Random, *, field_manager: str = "", deadline_s: float = DEADLINE_S
    ) -> None:
        self._api = api
        self._clock = clock
        self._random = random
        self._field_manager = field_manager
        self._deadline_s = deadline_s
        self.lease_epoch = ""
        self._deposed: Callable[[], None] = lambda: None  # who does not lead cannot be deposed

    def lead(self, epoch: str, deposed: Callable[[], None]) -> None:
        """Send this lease epoch with every mutation from now on (C11).

        `deposed` is called when a write is refused because another leads; the refusal is raised as well.
        """
        self.lease_epoch, self._deposed = epoch, deposed

    async def get(self, resource: str, key: Key) -> Document:
        """Return the newest state of one object. Raises: NotFound."""
        return decode((await self.call(request_of("get", resource, key))).unwrap())

    async def get_raw(self, resource: str, key: Key) -> bytes:
        """Return the newest state of one object as its JSON, for a typed decoder. Raises: NotFound."""
        return (await self.call(request_of("get", resource, key))).unwrap().body

    async def list(self, resource: str, **part: Unpack[Part]) -> tuple[Documents, int]:
        """Return all matching objects at one version, and that version."""
        items, rv = await self.list_raw(resource, **part)
        try:
            return [_DECODER.decode(item) for item in items], rv
        except UNREADABLE as error:
            raise ApiError(f"an item in the list of {resource} cannot be decoded: {error}") from error

    async def list_raw(self, resource: str, **part: Unpack[Part]) -> tuple[RawItems, int]:
        """Return the JSON of all matching objects at one version, pages joined, and that version.

        If the version of the first page leaves the server's window meanwhile, the list starts over.
        """
        first = request = Request(verb="list", resource=resource, limit=PAGE, **part)
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
            except UNREADABLE as error:
                raise ApiError(f"the list of {resource} cannot be decoded: {error}") from error
            items += page.items
            if not page.metadata.continue_token:
                version = page.metadata.resource_version
                return items, int(version) if version else response.rv
            request = msgspec.structs.replace(request, continue_token=page.metadata.continue_token)

    async def create(
        self, resource: str, document: Document, *, namespace: str = "", **options: Unpack[Options]
    ) -> Document:
        """Create and return the stored object. Raises: AlreadyExists, Invalid, Forbidden."""
        metadata = document.get("metadata", {})
        key = Key(namespace or metadata.get("namespace", ""), metadata.get("name", ""))
        return decode((await self.call(request_of("create", resource, key, encode(document), **options))).unwrap())

    async def update(self, resource: str, key: Key, document: Document, **options: Unpack[Options]) -> Document:
        """Replace the object, or its subresource, and return it. Raises: Conflict, NotFound, Invalid."""
        return decode((await self.call(request_of("update", resource, key, encode(document), **options))).unwrap())

    async def patch(self, resource: str, key: Key, patch: Document | JsonPatch, **options: Unpack[Options]) -> Document:
        """Patch and return the stored object. Raises: Conflict when a precondition fails, NotFound, Invalid."""
        request = request_of("patch", resource, key, encode(patch), **_MERGE | options)
        return decode((await self.call(request)).unwrap())

    async def patch_rv(self, resource: str, key: Key, patch: Document | JsonPatch, **options: Unpack[Options]) -> int:
        """Patch and return only the new resource version; for callers that do not need the object."""
        request = request_of("patch", resource, key, encode(patch), **_MERGE | options)
        return (await self.call(request)).unwrap().rv

    async def delete(
        self,
        resource: str,
        key: Key,
        *,
        grace_period_s: int | None = None,
        propagation: str = "",
        **options: Unpack[Options],
    ) -> None:
        """Delete, or begin a graceful deletion. Raises: NotFound, Conflict when a precondition fails."""
        request = delete_request(resource, key, grace_period_s=grace_period_s, propagation=propagation, **options)
        (await self.call(request)).unwrap()

    async def bind(
        self, key: Key, uid: str, node: str, *, expected_unbind_count: int | None = None, traceparent: str = ""
    ) -> int:
        """Bind the pod to the node and return the resource version of that change. Raises: Conflict (already bound,
        other uid, other unbind count), NotFound.
        """
        binding: Document = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        if expected_unbind_count is not None:
            binding["expectedUnbindCount"] = expected_unbind_count
        body = encode(binding)
        request = request_of("create", "pods", key, body, subresource="binding", uid=uid, traceparent=traceparent)
        return (await self.call(request)).unwrap().rv

    def new_request_id(self) -> str:
        """Return a new, unique request id (S9)."""
        return f"{self._random.getrandbits(128):032x}"

    async def call(self, request: Request) -> Response:
        """Return the definite answer, refusals included.

        A mutation gets a request id (kept if it has one) and this client's field manager and lease epoch. Repeats on an
        unknown outcome with decorrelated jitter of 0.2 to 5 s; obeys `retryAfterSeconds` of 429 and 503; gives up at
        `request.deadline_s`, or 30 s. A 429 without `retryAfterSeconds` is definite: such a refusal (a disruption
        budget, for example) does not go away by waiting.

        Raises: UnknownOutcome when a write's outcome is still unknown at the deadline, or when no answer to a read
        came. Source: guarantees C6, 2.2, 9.1.
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
                    raise UnknownOutcome(f"{_describe(request)}: {reason}; gave up at the deadline")
                return answer
            await asyncio.sleep(wait_s)


def request_of(verb: str, resource: str, key: Key, body: bytes = b"", **options: Unpack[Options]) -> Request:
    """Return a request about one object."""
    return Request(verb=verb, resource=resource, namespace=key.namespace, name=key.name, body=body, **options)


def delete_request(
    resource: str, key: Key, *, grace_period_s: int | None = None, propagation: str = "", **options: Unpack[Options]
) -> Request:
    """Return a delete request; preconditions are in the request, options in the body."""
    body: Document = {}
    if grace_period_s is not None:
        body["gracePeriodSeconds"] = grace_period_s
    if propagation:
        body["propagationPolicy"] = propagation
    text = encode({"apiVersion": "v1", "kind": "DeleteOptions", **body}) if body else b""
    return request_of("delete", resource, key, text, **options)


def _describe(request: Request) -> str:
    target = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    return f"{request.verb} {target} {Key(request.namespace, request.name)}"
