"""The API server as one object: every server is a way to its `start` and `open_watch`.

It joins the parts: registry (what a request means), writer (the one order of commits), store, journal, hub of
watches. Here are also spans and counters; lines in the event log are `event_lines`'.
"""

import asyncio
import hashlib
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.event_log import EventLines
from apiserver_fake.extensions.points import Definitions, Extensions, TokenSecrets
from apiserver_fake.registry.accounts import LEGACY_TYPE
from apiserver_fake.registry.admission.attributes import (
    EXEMPT,
    VALIDATING_POLICIES,
    Admission,
    Answer,
    Complete,
    Connection,
    Pending,
)
from apiserver_fake.registry.authorization import reviews
from apiserver_fake.registry.authorization.access import Access
from apiserver_fake.registry.authorization.authentication import Authenticator, TokenFile
from apiserver_fake.registry.authorization.authorizer import attributes_of, forbidden_action
from apiserver_fake.registry.authorization.impersonation import acting_as
from apiserver_fake.registry.authorization.node import NODE_TEXT
from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.registry.controlplane.event_expiry import EventExpiry
from apiserver_fake.registry.controlplane.initial_objects import FIRST_OBJECTS
from apiserver_fake.registry.decode import json_object
from apiserver_fake.registry.errors import no_such_path
from apiserver_fake.registry.policy import Attributes, Decision, PolicyRule
from apiserver_fake.registry.raw import SUBRESOURCE as RAW
from apiserver_fake.registry.read import ContinueTokens, NotYet, list_head, with_items
from apiserver_fake.registry.registry import Registry, as_unbind
from apiserver_fake.registry.sessions import Session, Unanswered, Unconverted
from apiserver_fake.registry.write import Limits
from apiserver_fake.requests import MUTATING, Requests, group_resource
from apiserver_fake.storage.backlog import SMALL
from apiserver_fake.storage.journal import Journal, Recovered
from apiserver_fake.storage.memory import end_for_memory
from apiserver_fake.storage.records import DELETED, Cause, Change, Record, Selection
from apiserver_fake.storage.store import Gap, Staged, Store, restore
from apiserver_fake.storage.watch_hub import SLOW, Hub, Notify, Watcher
from apiserver_fake.storage.watch_starts import Place, Starts
from apiserver_fake.storage.writer import Operation, Writer, answers_of, refusal
from services.api.errors import (
    UNREADABLE,
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
    Timeout,
    Unauthorized,
)
from services.api.identity import (
    ADMIN,
    LASTING,
    MASTERS_GROUP,
    MONITOR,
    PAGE,
    STAGE_PLAYER,
    Credential,
    Identity,
    external,
)
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.meta import Document
from services.api.metrics.apis import COMPUTED
from services.api.resources import hidden
from services.api.seams import Seams, Span
from services.api.unbind import may_be_sent
from services.api.wire import STALE_LEASE_EPOCH, Api, Request, Response, WatchEvent, WatchRequest, rpc_method
from services.runtime.config import EXIT_CONFIG, StartError
from services.telemetry.eventlog import NullEventLog
from services.telemetry.metrics import Metrics, Samples, counter, gauge, histogram
from services.telemetry.spans import Kind as SpanKind

if TYPE_CHECKING:
    from apiserver_fake.extensions.audit.auditor import Trail
    from apiserver_fake.extensions.fairness.gate import FairDispatch

log = structlog.get_logger()

DEADLINE_S, DEADLINE_MAX_S = 30.0, 60.0
GONE_TEXT = "the caller has gone before its answer"
COMMIT_S = 1.0
"""What a conversion webhook leaves of a write's deadline for the commit."""
NODE_TOKENS, STATE_HASH = "nodetokens", "statehash"
REVIEWS = {review.name: review for review in reviews.REVIEWS}
MONITORED = frozenset(("/metrics", "/healthz", "/livez", "/readyz"))
"""What `system:monitor` may get (guarantees 8.3)."""
SHOWN = re.compile("/(metrics|rates|configz|explain/.+)")
"""What `keplab:ui` may get of every process: figures, settings, and why a pod is where it is."""
EVENTS = "events"
SECRETS, ACCOUNTS = "secrets", "serviceaccounts"
PODS = "pods"
EVENTS_SWEEP_S = 30.0
EXPIRY_CHECK_S = 5.0
AUTH_EXPIRED = "AuthExpired"
DELETED_AT_ONCE = 100
"""Objects of one collection whose deletions wait for the writer at the same time."""
STALE_WRITES = ("StaleBinding", "Forbidden")
"""Why a node's status of a pod is refused: of an earlier binding, or of a pod that is another's."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ASKED = attrgetter("verb", "resource", "namespace", "name", "subresource", "patch_type", "uid", "resource_version")


class ApiServer:
    """The running API server; until `run` has recovered the store, every call is refused with 503."""

    def __init__(
        self,
        seams: Seams,
        journal: Journal,
        config: ApiServerConfig,
        tokens: TokenFile,
        access: Access,
        extensions: Extensions,
    ) -> None:
        """`access`: how clients are treated. `extensions`: what the server has besides its kernel."""
        self._seams, self._config, self._tokens = seams, config, tokens
        self.access, self._extensions = access, extensions
        self._journal = journal
        self._clock = seams.clock
        self.catalogue = Catalogue(hidden=hidden(seams.switches), extensions=extensions.kinds)
        self.release = seams.switches.choice("emulate.version")
        """The Kubernetes release that it says it is."""
        # Sampled spans of the writes under way, by what their changes will be known as.
        self._writing: dict[str, Span] = {}
        self.store = Store(hashing=config.state_hash, window_s=config.window_s, window_changes=config.window_changes)
        self._lines = (
            None if isinstance(seams.events, NullEventLog) else EventLines(seams.events, self.store, self.catalogue)
        )
        self.hub = Hub(
            self.store,
            seams.clock,
            seams.random,
            ended=self._lines.watch_closed if self._lines is not None else None,
            taken=self._lines.watch_events if self._lines is not None and config.log_watch_events else None,
            queue_events=config.watch_queue_events,
            queue_bytes=config.watch_queue_bytes,
        )
        self._stored_policy = extensions.stored_policy(self.store) if extensions.stored_policy is not None else None
        self.fairness: FairDispatch | None = None
        """Which requests of clients wait; None where there is no concurrency to divide, as in a simulation."""
        self._token_secrets = self._make_token_secrets()
        self.starts = Starts()
        self.writer = Writer(
            self.store,
            journal,
            seams.clock,
            self._published,
            publish_news=lambda changes: self._published(changes, is_own=False),
            resources=lambda: self.catalogue.resources,
        )
        self._expiry = EventExpiry(config.event_ttl_s)
        self._definitions: Definitions | None = None
        """Custom resources; made when the first definition is stored."""
        self._group: asyncio.TaskGroup | None = None
        self._controlling: asyncio.Task[None] | None = None
        self.requests = Requests(self._version_of)
        self._unbinds: dict[tuple[str, ...], float] = {}
        self._stale_statuses: dict[str, float] = {}
        self._ready = asyncio.Event()
        self._registry: Registry | None = None
        self._authenticator: Authenticator | None = None
        self._admission: Admission | None = None
        """Webhooks and policies; made when the first of them is stored."""
        self._admitted: dict[asyncio.Task[Response], None] = {}
        self.audit = extensions.audit
        """Keeps the audit log, if there is one."""
        self._failed_expressions: set[str] = set()
        self._expiring: dict[Watcher, Credential] = {}
        """Open watches of those who have shown what ends some day."""
        self._expiry_check: asyncio.Task[None] | None = None
        self._beginning: set[asyncio.Task[None]] = set()
        self.is_ready = False

    @property
    def is_shared(self) -> bool:
        """Whether other API servers write to the same store."""
        return self._journal.is_shared

    async def catch_up(self) -> None:
        """Return when this server knows what every other one has committed before the call. Raises: ApiError."""
        await self._journal.confirm()

    async def etcd_failure(self) -> str:
        """Return why etcd does not answer; empty when it does, or there is none."""
        return await self._journal.check()

    # -- life

    async def run(self) -> None:
        """Recover, then serve until cancelled. Raises: StartError (74, 75, 78)."""
        secret = f"{self._seams.random.getrandbits(256):064x}".encode()
        recovered = await self._journal.open(secret)
        try:
            self._recover(recovered)
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self.writer.run())
                group.create_task(self.hub.run())
                group.create_task(self._expire_events())
                if self._journal.is_shared:
                    group.create_task(self._journal.follow())
                if self._token_secrets is not None:
                    group.create_task(self._token_secrets.run())
                self.writer.is_open = True
                await self._create_first_objects()
                for record in self.store.select(DEFINITIONS, Selection()).records:
                    self._look_at_definition(record, is_gone=False)
                self.is_ready = True
                self._ready.set()
        finally:
            self.is_ready = self.writer.is_open = False
            self.hub.shut_down()
            for task in (*self._admitted, *self._beginning):
                task.cancel()
            if self._admission is not None:
                await self._admission.close()
            await self._journal.close()

    async def wait_until_ready(self) -> None:
        """Return once requests are served."""
        await self._ready.wait()

    def _recover(self, recovered: Recovered) -> None:
        store, now_s = self.store, self._clock.now()
        if not self._journal.is_durable:
            # Above every version an earlier life gave out, so that an old watch is refused as too old.
            store.rv = store.window_start = int(self._clock.wall() * 1_000_000)
            log.warning("store.is_volatile", durability="memory", resource_version=store.rv)
        try:
            if self._journal.is_durable:
                restore(store, recovered.base, recovered.base_rv, recovered.entries, now_s, self.catalogue.resources)
                records = store.select(DEFINITIONS, Selection()).records
                if records and (definitions := self.definitions()) is not None:
                    definitions.recover(records)
        except (Gap, *UNREADABLE) as error:
            raise StartError(f"the store is damaged: {error}", EXIT_CONFIG) from error
        for key, answer in answers_of(recovered.entries, now_s):
            self.writer.answers.keep(key, answer)
        for record in store.select(EVENTS, Selection()).records:
            self._expiry.note(Change(record.rv, "ADDED", record, None, record.rv), now_s)
        self._registry = Registry(
            store,
            self.catalogue,
            clock=self._clock,
            random=self._seams.random,
            switches=self._seams.switches,
            cursors=ContinueTokens(recovered.secret),
            limits=Limits(self._config.objects_max, self._config.objects_per_namespace_max),
            stored_policy=self._stored_policy,
            accounts=self.access.accounts,
            is_converting=self._extensions.is_converting,
            managers=self._extensions.managers,
            admission=self._made_admission,
        )
        node_key = bytes.fromhex(self._tokens.node_key) if self._tokens.node_key else b"node\0" + recovered.secret
        self._authenticator = Authenticator(
            self._tokens.tokens, node_key, self.access.accounts.tokens, self._document, self._clock.wall
        )
        if self._lines is not None:
            self._lines.recovered(recovered)

    # -- extensions, made when they are first needed

    def definitions(self) -> Definitions | None:
        """Return what custom resources are served by; None where the extension is left out."""
        if self._definitions is None and (make := self._extensions.definitions) is not None:
            self._definitions = make(self.store, self.catalogue, lambda: self.api_for(ADMIN), self.hub.end_kind)
        return self._definitions

    def _look_at_definition(self, record: Record, *, is_gone: bool) -> None:
        """Let the controller of definitions look at one; it runs from the first definition on."""
        definitions = self.definitions()
        if definitions is None:
            return
        definitions.look_at(record, is_gone=is_gone)
        self._control(definitions)

    def _control(self, definitions: Definitions) -> None:
        """Run the controller of definitions from the first one on."""
        if self._controlling is None and self._group is not None:
            self._controlling = self._group.create_task(definitions.run())

    def _made_admission(self) -> Admission | None:
        if self._admission is None and (make := self._extensions.admission) is not None:
            self._admission = make(self.store, self.catalogue)
        return self._admission

    def _make_token_secrets(self) -> TokenSecrets | None:
        make, tokens = self._extensions.token_secrets, self.access.accounts.tokens
        if make is None or tokens is None:
            return None
        find, listing = self._document, self._token_secrets_in
        return make(tokens, self.access.authority, find, listing, lambda: self.api_for(ADMIN))

    # -- first objects

    async def _create_first_objects(self) -> None:
        api = self.api_for(ADMIN)
        for resource, document in FIRST_OBJECTS:
            name = document["metadata"]["name"]
            if self.store.get(resource, "", name) is None:
                request = Request(verb="create", resource=resource, body=msgspec.json.encode(document))
                _check_made(await api.call(request))
        kwok = self._extensions.kwok
        for request in kwok.writes(self.store) if kwok is not None else ():
            _check_made(await api.call(request))
        await self._keep_access_objects()

    async def _keep_access_objects(self) -> None:
        is_changed = True
        while is_changed:
            # Written by another server at the same time: look at what that one has made of it.
            is_changed = False
            await self._journal.confirm()
            for request in self._extensions.access_objects(self.access, self._document):
                response = await self.api_for(ADMIN).call(request)
                is_changed = is_changed or response.code == Conflict.code
                _check_made(response)

    async def change_authority(self, authority: str) -> None:
        """Publish another bundle of certificates than `Access.authority`: the authorities of clients and servers have
        changed. Raises: ApiError."""
        self.access = replace(self.access, authority=authority)
        await self._keep_access_objects()
        if self._token_secrets is not None:
            self._token_secrets.change_authority(authority)

    async def _expire_events(self) -> None:
        while True:
            await asyncio.sleep(EVENTS_SWEEP_S)
            for namespace, name in self._expiry.due(self._clock.now()):
                request = Request(verb="delete", resource=EVENTS, namespace=namespace, name=name)
                response = await self.api_for(ADMIN).call(request)
                if response.code in (429, 503):
                    break

    async def _end_expired(self) -> None:
        """End watches whose certificate or token has expired, or whose account, pod or secret is gone (X-TOK2)."""
        _, authenticator = self._parts()
        while True:
            await asyncio.sleep(EXPIRY_CHECK_S)
            for watcher, credential in list(self._expiring.items()):
                if watcher.end_reason:
                    del self._expiring[watcher]
                    continue
                try:
                    authenticator.check(credential)
                except Unauthorized:
                    del self._expiring[watcher]
                    watcher.close(AUTH_EXPIRED)

    # -- who

    def authenticate(self, bearer: str, peer: str = "") -> Identity:
        """Return whose token this is; "" is anonymous. `peer`: whose connection it came over. Raises: Unauthorized,
        Unavailable before recovery."""
        return self._parts()[1].identify(bearer, peer)

    def certified(self, identity: Identity) -> Identity:
        """Return the identity of a certificate with what the server's list says of its user. Raises: Unauthorized when
        it has expired; Unavailable before recovery."""
        return self._parts()[1].certified(identity)

    def _document(self, resource: str, namespace: str, name: str) -> Document | None:
        record = self.store.get(resource, namespace, name)
        return None if record is None else msgspec.json.decode(record.body)

    def review_token(self, bearer: str, audiences: Sequence[str]) -> tuple[Identity, tuple[str, ...]] | None:
        """Return whose token it is and for which audiences it is good; None for an unknown one.

        Raises: Rejected for a token of this server that is not good any more.
        """
        return self._parts()[1].review(bearer, audiences)

    def rules_for(self, identity: Identity, namespace: str) -> tuple[list[PolicyRule], list[str]] | None:
        """Return every rule that RBAC objects give an identity in a namespace; None where they are not asked."""
        policy = self._parts()[0].policy_for(identity)
        return None if policy is None else policy.rules_for(identity, namespace)

    def authorize_action(self, identity: Identity, asked: Attributes) -> str:
        """Return why what RBAC knows and the mesh does not is allowed: paths, impersonation. Raises: Forbidden."""
        if identity.user == MONITOR.user and asked.path in MONITORED and asked.verb == "get":
            return ""
        if identity.user == PAGE.user and asked.verb == "get" and SHOWN.fullmatch(asked.path):
            return ""
        policy = self._parts()[0].policy_for(identity)
        decision = policy.decide(identity, asked) if policy is not None else Decision(MASTERS_GROUP in identity.groups)
        if not decision.allowed:
            raise forbidden_action(identity, asked, decision.reason)
        return decision.reason

    def acting(self, caller: Identity, request: Request) -> tuple[Identity, Request]:
        """Return as whom a component's call is made, and the call without its `as_user`.

        RBAC objects say whom it may be; without RBAC, the mesh's roles of that user bound what comes of it, and only
        what moves objects by Stages may be another. Raises: Forbidden.
        """

        def authorize(caller: Identity, asked: Attributes) -> None:
            if self.access.is_rbac or caller.user != STAGE_PLAYER.user:
                self.authorize_action(external(caller), asked)

        user = acting_as(caller, request.as_user, authorize)
        return user, msgspec.structs.replace(request, as_user="")

    def kubelet_token(self) -> str:
        """Return what this server shows to kubelets that it reaches without TLS. Raises: ApiError before recovery."""
        return self._parts()[1].kubelet_token()

    def api_for(self, identity: Identity, kind: SpanKind = "internal") -> Api:
        """Return the server as that identity reaches it: in this process, or from another one (`server`)."""
        return LocalApi(self, identity, kind)

    async def begin(self, identity: Identity, request: WatchRequest) -> Place | None:
        """Return the place of a watch that begins with much, once it is its turn; None for one with little. Raises:
        ApiError when it is refused, TooManyRequests when its turn does not come."""
        return await self.starts.turn(identity.user) if self.needs_turn(identity, request) else None

    def needs_turn(self, identity: Identity, request: WatchRequest) -> bool:
        """Whether a watch begins with so much that it has to wait for its turn. Raises: ApiError when it is refused."""
        self._parts()[0].authorize_watch(identity, request)
        return self.hub.size(self.catalogue.find(request.resource), request) > SMALL

    def streaming_api(
        self, identity: Identity, place: Place | None, send_blocked_max_s: float, started: Callable[[], None]
    ) -> Api:
        """Return the server for one watch of a client that is at the other end of a connection; `place` is left when
        the watch has begun or ended, and `started` called when it has begun."""
        return StreamingApi(self, identity, place, send_blocked_max_s, started)

    def authorize(self, identity: Identity, request: Request) -> str:
        """Refuse what the identity may not do, without doing it; the text is which binding allows it. Raises:
        Forbidden."""
        return self._parts()[0].authorize(identity, request)

    def decision(self, identity: Identity, asked: Attributes | Request) -> tuple[bool, str]:
        """Return whether the identity may do that, and why, for the audit log. Raises: ApiError before recovery."""
        if isinstance(asked, Request):
            return self._parts()[0].decision(identity, asked)
        if not asked.path:
            group = f".{asked.group}" if asked.group else ""
            request = Request(
                verb=asked.verb,
                resource=f"{asked.resource}{group}",
                subresource=asked.subresource,
                namespace=asked.namespace,
                name=asked.name,
            )
            return self._parts()[0].decision(identity, request)
        try:
            return True, self.authorize_action(identity, asked)
        except ApiError as refused:
            return False, refused.message.partition("RBAC: ")[2]

    def begin_trail(
        self, identity: Identity, request: Request, ips: tuple[str, ...], user_agent: str
    ) -> "Trail | None":
        """Begin the audit trail of a call over gRPC; None where none is recorded."""
        if self.audit is None or not self.is_ready:
            return None
        from apiserver_fake.extensions.audit.event import Source

        resource = self.catalogue.resources.get(request.resource)
        uri = uri_of(request, resource.version if resource is not None else "v1")
        source = Source(uri, ips, user_agent)
        version = resource.version if resource is not None else ""
        trail = self.audit.begin(identity, attributes_of(request), source, version=version)
        if trail is not None:
            trail.decided(*self.decision(identity, request))
            trail.sent(request.body, is_patch=request.verb == "patch")
        return trail

    def _parts(self) -> tuple[Registry, Authenticator]:
        if self._registry is None or self._authenticator is None:
            raise ApiError("the API server is not ready", reason="NotReady", code=503, retry_after_s=1)
        return self._registry, self._authenticator

    # -- calls

    def start(self, identity: Identity, request: Request, kind: SpanKind = "server") -> Response | Awaitable[Response]:
        """Begin a call and return its answer, or what to await for it. `kind`: internal for a call of this process.

        An awaitable future is the writer's: await it shielded, or leave it (P1). Refusals are Responses, and so is what
        a bug answers: every call that begins is counted once as ended.
        """
        span = self._seams.tracer.start(rpc_method(request), kind=kind, parent=request.traceparent)
        began, is_write = self._clock.now(), request.verb in MUTATING
        self.requests.begun[is_write] += 1
        if request.subresource:
            try:
                request = as_unbind(request, self._seams.switches)
            except Exception as error:
                response = _answer_to(error, request)
                self._finish(identity, request, span, began, response)
                return response
        if is_write and self._lines is not None:
            self._lines.request(identity, request, span)
        if not is_write and self._journal.is_shared and not (request.resource_version or request.continue_token):
            return self._finished(identity, request, span, began, self._read_newest(identity, request))
        try:
            if is_write and request.at:
                raise BadRequest(f"at: {request.at}: the past can be read, not changed")
            if is_write:
                return self._start_write(identity, request, span, began)
            response = self._read(identity, request)
        except (Forbidden, NotFound) as error:
            if is_write and self._journal.is_shared:
                return self._start_write_again(identity, request, span, began)
            response = refusal(error)
        except NotYet as wait:
            return self._finished(identity, request, span, began, self._read_later(identity, request, wait.rv))
        except Exception as error:
            response = _answer_to(error, request)
        self._finish(identity, request, span, began, response)
        return response

    async def _finished(
        self, identity: Identity, request: Request, span: Span, began: float, answering: Awaitable[Response]
    ) -> Response:
        """Return the answer to a call that takes a while, which is counted and logged however it ends."""
        response = refusal(Timeout(GONE_TEXT))
        try:
            response = await answering
        except Exception as error:
            response = _answer_to(error, request)
        finally:
            self._finish(identity, request, span, began, response)
        return response

    async def _read_newest(self, identity: Identity, request: Request) -> Response:
        """Read what was newest when the call began, whichever server wrote it (S5, S13). Raises: ApiError."""
        await self._journal.confirm()
        return self._read(identity, request)

    async def _start_write_again(self, identity: Identity, request: Request, span: Span, began: float) -> Response:
        """Begin a write that was refused by what this server knew: what allows it may be another server's write."""
        response: Response | None = refusal(Timeout(GONE_TEXT))
        try:
            await self._journal.confirm()
            begun = self._start_write(identity, request, span, began)
            response = None  # from now on the write counts itself
        except Exception as error:
            response = _answer_to(error, request)
        finally:
            if response is not None:
                self._finish(identity, request, span, began, response)
        if response is not None:
            return response
        return begun if isinstance(begun, Response) else await asyncio.shield(begun)

    def _start_write(
        self, identity: Identity, request: Request, span: Span, began: float
    ) -> Response | Awaitable[Response]:
        registry, authenticator = self._parts()
        if request.request_id and not _REQUEST_ID.fullmatch(request.request_id):
            raise BadRequest("x-request-id must have 1 to 64 characters of [A-Za-z0-9._-]")
        if request.resource == NODE_TOKENS:
            token = authenticator.node_token(identity, request.name)
            response = Response(code=201, body=msgspec.json.encode({"token": token}))
            self._finish(identity, request, span, began, response)
            return response
        if (review := REVIEWS.get(request.resource)) is not None:
            registry.authorize(identity, request)
            question = json_object(request.body, "the body is not JSON", "the body is not an object")
            said = reviews.answer(review, request.namespace, question, identity, self, self.catalogue)
            response = Response(code=201, body=msgspec.json.encode(said))
            self._finish(identity, request, span, began, response)
            return response
        fingerprint = _fingerprint(request) if request.request_id else b""
        if (known := self.writer.answered(identity.user, request.request_id, fingerprint)) is not None:
            # Before authorization: what was allowed and done may have taken away the right to do it again.
            self._finish(identity, request, span, began, known)
            return known
        registry.authorize(identity, request)
        if request.verb == "deletecollection":
            deleting = self._delete_collection(identity, request, span)
            return self._finished(identity, request, span, began, deleting)
        if span.trace_id:
            self._writing[span.traceparent] = span
        wait_s = min(request.deadline_s, DEADLINE_MAX_S) if request.deadline_s > 0 else DEADLINE_S
        session = Session(self._clock.wall()) if registry.may_call(request) else None

        def again(staged: Staged) -> Response:
            if session is not None:
                session.pending = None
            return registry.prepare(identity, request, span.traceparent, session)(staged)

        operation = Operation(
            # The span's traceparent, not the caller's: who reads the change is caused by this call.
            plan=registry.prepare(identity, request, span.traceparent, session),
            done=asyncio.get_running_loop().create_future(),
            deadline_s=self._clock.now() + wait_s,
            on_response=lambda response: self._finish(identity, request, span, began, response),
            identity=identity.user,
            request_id=request.request_id,
            fingerprint=fingerprint,
            size=len(request.body),
            cause=Cause(
                identity.user,
                request.verb,
                request.subresource,
                request.request_id,
                request.lease_epoch,
                self._clock.wall(),
            ),
            again=again if self._journal.is_shared else None,
        )
        if session is None:
            return self.writer.submit(operation)
        admitting = self._admit(operation, session, identity, request, span.traceparent)
        task = asyncio.create_task(self._finished(identity, request, span, began, admitting))
        self._admitted[task] = None
        task.add_done_callback(lambda done: self._admitted.pop(done, None))
        return task

    async def _admit(
        self, operation: Operation, session: Session, identity: Identity, request: Request, traceparent: str
    ) -> Response:
        """Commit a write after webhooks were asked about it, again whenever what they saw is not what is committed."""
        response: Response | None = None
        while response is None:
            session.is_rehearsing, session.pending = True, None
            try:
                operation.plan(self.store.stage())
            except Unanswered as pending:
                try:
                    await self._ask(session, pending, operation.deadline_s, traceparent)
                except ApiError as error:
                    response = refusal(pending.beside(error))
                continue
            except Exception:  # the commit will refuse it for the same reason, or find that it is gone
                log.debug("admission.rehearsal_failed", resource=request.resource)
            session.is_rehearsing, session.pending = False, None
            done = asyncio.get_running_loop().create_future()
            attempt = replace(operation, done=done, on_response=None)
            try:
                answered = await asyncio.shield(self.writer.submit(attempt))
            except ApiError as error:
                answered = refusal(error)
            # Another writer came in between: what the webhooks said was not about this object.
            response = answered if session.pending is None else None
        return response

    async def _ask(self, session: Session, unanswered: Unanswered, deadline_s: float, traceparent: str) -> None:
        """Let the session learn what a write waits for. Raises: ApiError when an admission webhook refuses it."""
        answer: Answer | list[Document] | ApiError
        try:
            if isinstance(unanswered, Pending):
                admission = self._made_admission()
                assert admission is not None, "a write waits for it"
                answer = await admission.answer(unanswered, deadline_s, traceparent)
            else:
                assert isinstance(unanswered, Unconverted), "a write waits for admission or for a conversion"
                answer = await self._converted(unanswered, deadline_s - COMMIT_S - self._clock.now())
        except Unconverted as before:
            # An admission webhook wants to see the object in another version: that is asked first.
            await self._ask(session, before, deadline_s, traceparent)
        else:
            session.learn(unanswered, answer)

    @staticmethod
    async def _converted(unanswered: Unconverted, left_s: float) -> list[Document] | ApiError:
        """Return the converted objects, or why they cannot be converted. `left_s`: seconds that may pass until then."""
        try:
            async with asyncio.timeout(left_s):
                return await unanswered.answer()
        except TimeoutError:
            return ApiError("the conversion webhook did not answer within the time of the request")

    async def admit_connection(
        self, identity: Identity, request: Request, options: Document, complete: Complete
    ) -> Connection:
        """Return a connection's options as admission leaves them. The caller's right is looked at before; webhooks have
        their own time limits and no other. Raises: ApiError."""
        registry, _ = self._parts()
        session = Session(self._clock.wall())
        session.is_rehearsing = True
        found: Connection | None = None
        try:
            while found is None:
                try:
                    found = registry.connect(identity, request, options, complete, session)
                except Unanswered as pending:
                    try:
                        await self._ask(session, pending, math.inf, request.traceparent)
                    except ApiError as error:
                        raise pending.beside(error) from None
        except ApiError as error:
            if self._lines is not None:
                self._lines.connection(identity, request, error)
            raise
        if self._lines is not None:
            self._lines.connection(identity, request, found)
        return found

    def _read(self, identity: Identity, request: Request) -> Response:
        registry, _ = self._parts()
        if request.at and (identity.node or request.resource in COMPUTED):
            # What a node may read follows from what is bound to it now; figures are computed when they are read.
            raise (
                Forbidden(NODE_TEXT)
                if identity.node
                else BadRequest(f"{request.resource} have no past: at {request.at}")
            )
        if request.resource == STATE_HASH:
            registry.authorize(identity, request)
            if not self.store.hashing:
                raise NotFound("this server keeps no state hash (state_hash is off)")
            # Source: guarantees 2.3.
            found = {"resourceVersion": str(self.store.rv), "stateHash": f"{self.store.state_hash:064x}"}
            return Response(code=200, rv=self.store.rv, body=msgspec.json.encode(found))
        if request.resource in COMPUTED:
            registry.authorize(identity, request)
            kwok, computed = self._extensions.kwok, self._extensions.computed
            if computed is None:
                raise no_such_path()
            usages = kwok.usages(self.store) if kwok is not None else None
            answer = computed(request, self.store, self._clock.wall(), self.hub.users(), usages)
            for expression, text in usages.failures.items() if usages is not None else ():
                if expression not in self._failed_expressions:
                    self._failed_expressions.add(expression)
                    log.warning("kwok.expression_failed", reason=text)
            return answer
        self.catalogue.find(request.resource)
        registry.authorize(identity, request)
        if request.verb == "get":
            return registry.reads.get(request)
        if request.verb == "list":
            return registry.reads.list(request)
        raise BadRequest(f"{request.verb!r} is not a verb of this server")

    async def _read_later(self, identity: Identity, request: Request, rv: int) -> Response:
        """Read once a version is there. Raises: ApiError."""
        try:
            await self.hub.wait_until_visible(rv)
            return self._read(identity, request)
        except NotYet as still:
            raise ApiError(str(still)) from None

    async def _delete_collection(self, identity: Identity, request: Request, span: Span) -> Response:
        """Delete what is selected now, each object by itself; the answer lists what was meant, as it was.

        So many at once that other writers do not wait for the whole collection. Raises: ApiError.
        """
        registry, _ = self._parts()
        await self._journal.confirm()
        resource = self.catalogue.find(request.resource)
        rv, meant = self.store.rv, self.store.select(resource.name, registry.reads.selection(resource, request))
        for first in range(0, len(meant.records), DELETED_AT_ONCE):
            waits: list[Awaitable[Response]] = []
            for record in meant.records[first : first + DELETED_AT_ONCE]:
                begun = self.start(identity, _deletion_of(record, request, span.traceparent), "internal")
                if isinstance(begun, Response):
                    _check_deleted(begun)
                else:
                    waits.append(begun)
            for wait in waits:
                _check_deleted(await wait)
        head, items = list_head(resource, meant, rv, ""), tuple([record.body for record in meant.records])
        if request.is_split:
            return Response(code=200, rv=self.store.rv, body=head, items=items, records=meant.records)
        return Response(code=200, rv=self.store.rv, body=with_items(head, items))

    def _finish(self, identity: Identity, request: Request, span: Span, began: float, response: Response) -> None:
        """Count, log and close one call; before its answer leaves."""
        self.requests.ended(request, response.code, self._clock.now() - began, span.trace_id)
        if request.subresource and request.resource == PODS:
            self._count_pod_writes(identity, request, response)
        if self._lines is not None and request.subresource == RAW and response.is_ok:
            self._lines.raw_write(identity, request, response)
        if self._lines is not None and (request.verb in MUTATING or response.code >= 400):
            self._lines.response(identity, request, span, response)
        if span.trace_id:
            self._writing.pop(span.traceparent, None)
            span.set(resource=request.resource, namespace=request.namespace, name=request.name, code=response.code)
            if request.resource == PODS and request.name:
                span.set(pod=request.name)
        span.end(str(response.code) if response.code >= 500 else "")

    def _count_pod_writes(self, identity: Identity, request: Request, response: Response) -> None:
        """Count unbinds by reason, and statuses that a node may not write any more (kubelet-unbinding 10)."""
        if request.subresource == "unbind":
            unbind = (_reason_of(request.body), str(response.code))
            self._unbinds[unbind] = self._unbinds.get(unbind, 0) + 1
        elif request.subresource == "status" and identity.node and response.code in (403, 409):
            why = response.error().reason
            if why in STALE_WRITES:
                self._stale_statuses[why] = self._stale_statuses.get(why, 0) + 1

    # -- commits

    def _published(self, changes: Sequence[Change], *, is_own: bool = True) -> None:
        if self._lines is not None:
            self._lines.commits(changes, is_replayed=not is_own)
        if self._stored_policy is not None:
            self._stored_policy.note(changes)
        if self.fairness is not None:
            self.fairness.note(changes)
        if self._token_secrets is not None:
            self._note_accounts(self._token_secrets, changes)
        now_s, is_configured = self._clock.now(), False
        redefined = [change for change in changes if change.record.resource == DEFINITIONS]
        definitions = self.definitions() if redefined else None
        if definitions is not None:
            for change in redefined:
                definitions.note(change)
        for change in changes:
            if change.record.resource == EVENTS:
                self._expiry.note(change, now_s)
            is_configured = is_configured or change.record.resource in EXEMPT
            if self._writing and (span := self._writing.get(change.traceparent)) is not None:
                span.sent(now_s)
                if change.record.resource == PODS:
                    _name_pod(span, change)
        if is_configured and self._registry is not None:
            self._registry.refresh_admission()
            for change in changes:
                if change.record.resource == VALIDATING_POLICIES and change.type != DELETED:
                    self._check_types(change.record)
        self.hub.publish(changes)
        if definitions is not None:
            definitions.published(redefined)
            self._control(definitions)

    def _note_accounts(self, secrets: TokenSecrets, changes: Sequence[Change]) -> None:
        for change in changes:
            record = change.record
            if record.resource == SECRETS and record.fields.get("type") == LEGACY_TYPE and change.type != DELETED:
                secrets.note_secret(record.namespace, record.name)
            elif record.resource == ACCOUNTS and change.type != "MODIFIED":
                secrets.note_account(record.namespace, record.name)

    def _token_secrets_in(self, namespace: str) -> Iterator[Document]:
        for record in self.store.select(SECRETS, Selection(namespace)).records:
            if record.fields.get("type") == LEGACY_TYPE:
                yield msgspec.json.decode(record.body)

    def _check_types(self, record: Record) -> None:
        """Write what type checking finds into a policy's status, unless it is there for this generation."""
        policy = msgspec.json.decode(record.body)
        status = policy.get("status") or {}
        if status.get("observedGeneration") == policy["metadata"].get("generation"):
            return
        admission = self._made_admission()
        assert admission is not None, "its policies are served"
        status = admission.status_of(policy)
        body = msgspec.json.encode([{"op": "add", "path": "/status", "value": status}])
        request = Request(
            verb="patch",
            resource=VALIDATING_POLICIES,
            name=record.name,
            subresource="status",
            patch_type="json",
            resource_version=str(record.rv),
            body=body,
        )
        task = asyncio.create_task(self.api_for(ADMIN).call(request))
        self._admitted[task] = None
        task.add_done_callback(lambda done: self._admitted.pop(done, None))

    # -- watches

    def open_watch(self, identity: Identity, request: WatchRequest, notify: Notify) -> Watcher:
        """Begin a watch; `notify` is called whenever there is something to take. Raises: ApiError."""
        registry, _ = self._parts()
        if not self.is_ready:
            raise ApiError("the API server is not ready", reason="NotReady", code=503, retry_after_s=1)
        resource = self.catalogue.find(request.resource)
        registry.authorize_watch(identity, request)
        if request.namespace and not resource.namespaced:
            raise BadRequest(f"{resource.plural} are not namespaced: namespace {request.namespace!r} does not apply")
        is_newest = self._journal.is_shared and not request.resource_version
        watcher = self.hub.open(identity, resource, request, notify, is_held=is_newest)
        if is_newest:
            task = asyncio.create_task(self._begin_newest(watcher))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)
        elif self._lines is not None:
            self._lines.watch_opened(watcher, request)
        if identity.credential != LASTING:
            self._expiring[watcher] = identity.credential
            if self._expiry_check is None and self._group is not None:
                self._expiry_check = self._group.create_task(self._end_expired())
        return watcher

    async def _begin_newest(self, watcher: Watcher) -> None:
        """Let a watch begin at what was newest when it was asked for."""
        try:
            await self._journal.confirm()
            if watcher.end_reason:
                return  # its client has left meanwhile
            self.hub.release(watcher)
        except ApiError as error:
            self.hub.release(watcher, error)
        if self._lines is not None:
            # Only now is it known where it begins; nothing was taken from it yet.
            self._lines.watch_opened(watcher, watcher.request)

    # -- figures

    def _version_of(self, name: str) -> str:
        """Return the version in which the kind of that wire name is stored, "" for none."""
        try:
            return self.catalogue.find(name).version
        except NotFound:
            return ""

    def metrics(self) -> Samples:
        """Return counters, gauges and histograms by Prometheus name."""
        found = METRICS.of(self) | self.requests.metrics()
        return found | self.fairness.metrics() if self.fairness is not None else found


METRICS: Final[Metrics[ApiServer]] = Metrics(
    counter(
        "apiserver_pod_unbind_total",
        "Requests to unbind a pod.",
        lambda server: dict(sorted(server._unbinds.items())),
        "reason", "code",
    ),
    counter(
        "stale_status_writes_rejected_total",
        "Statuses that a node may not write any more.",
        lambda server: dict(sorted(server._stale_statuses.items())),
        "why",
    ),
    counter(
        "keplab_requests_forbidden_total",
        "Requests and watches of a component that its role does not allow.",
        lambda server: dict(sorted(server._registry.forbidden.items())) if server._registry is not None else {},
        "user", "verb", "resource",
    ),
    gauge(
        "apiserver_longrunning_requests",
        "Watches open.",
        lambda server: {
            ("WATCH", *group_resource(resource)): count for resource, count in server.hub.counts().items()
        },
        "verb", "group", "resource",
    ),
    gauge("keplab_watch_starts_waiting", "Watches that wait to begin.", lambda server: server.starts.waiting),
    counter("keplab_watch_starts_refused_total", "Watches that could not begin.", lambda server: server.starts.refused),
    gauge("apiserver_storage_objects", "Objects stored.", lambda server: server.store.counts(), "resource"),
    counter("apiserver_watch_events_total", "Changes sent to watches.", lambda server: server.hub.events_sent),
    gauge("keplab_watch_queued_bytes", "Distinct bytes that wait for watches.", lambda server: server.hub.queued_bytes),
    histogram(
        "keplab_watch_send_seconds", "From a change's commit until a stream takes it.", lambda server: server.hub.sent_s
    ),
    counter("apiserver_terminated_watchers_total", "Watches cut as too slow.", lambda server: server.hub.closed_slow),
    gauge("keplab_store_resource_version", "Newest resource version.", lambda server: server.store.rv),
    gauge("keplab_store_window_start", "Oldest version to watch from.", lambda server: server.store.window_start),
    gauge("keplab_store_window_bytes", "Size of the changes kept.", lambda server: server.store.window_bytes),
    counter("keplab_store_batches_total", "Group commits.", lambda server: server.writer.batches),
    gauge("keplab_writer_queue", "Writes that wait for a commit.", lambda server: server.writer.queued),
    counter("keplab_writer_failures_total", "Commits that failed.", lambda server: server.writer.failures),
    gauge(
        "keplab_store_read_only", "Whether writes are refused.", lambda server: server.writer.read_only is not None
    ),
    gauge(
        "keplab_store_read_only_since_seconds",
        "Since when, in seconds since the epoch; 0 while they are not.",
        lambda server: server.writer.read_only.since_s if server.writer.read_only is not None else 0.0,
    ),
    counter("apiserver_audit_event_total", "Audit events written.", lambda server: _audited(server)[0]),
    counter("apiserver_audit_error_total", "Audit events lost.", lambda server: _audited(server)[1]),
    counter(
        "apiserver_audit_level_total",
        "Requests by the level at which they are recorded.",
        lambda server: dict(sorted(server.audit.levels.items())) if server.audit is not None else {},
        "level",
    ),
    counter("keplab_etcd_conflicts_total", "Commits overtaken by others.", lambda server: server._journal.conflicts),
    counter("keplab_etcd_failures_total", "Calls that etcd did not answer.", lambda server: server._journal.failures),
)  # fmt: skip


def _name_pod(span: Span, change: Change) -> None:
    """Write into the span of a sampled write which pod it changed, and the phase when that is new.

    When it is committed and not earlier: the span whose write made a pod Running is the one that committed it.
    """
    record, previous = change.record, change.previous
    span.set(pod=record.name, namespace=record.namespace, uid=record.uid)
    phase = record.fields.get("status.phase", "")
    if phase and (previous is None or phase != previous.fields.get("status.phase")):
        span.set(phase=phase)


def _audited(server: ApiServer) -> tuple[int, int]:
    """Return how many audit events were written and lost."""
    return (server.audit.sink.written, server.audit.sink.lost) if server.audit is not None else (0, 0)


def uri_of(request: Request, version: str) -> str:
    """Return the path that REST has for a call over gRPC."""
    plural, _, group = request.resource.partition(".")
    parts = ["apis", group, version] if group else ["api", version]
    if request.namespace and plural != "namespaces":
        parts += ["namespaces", request.namespace]
    parts += [each for each in (plural, request.name, request.subresource) if each]
    return "/" + "/".join(parts) + ("?watch=true" if request.verb == "watch" else "")


def _deletion_of(record: Record, collection: Request, traceparent: str) -> Request:
    """Return the deletion of one object of a collection, of exactly that one."""
    return msgspec.structs.replace(
        collection,
        verb="delete",
        is_of_collection=True,
        name=record.name,
        namespace=record.namespace,
        uid=record.uid,
        label_selector="",
        field_selector="",
        is_split=False,
        request_id="",
        traceparent=traceparent,
    )


class LocalApi:
    """`Api` as one identity."""

    def __init__(self, server: ApiServer, identity: Identity, kind: SpanKind = "internal") -> None:
        self._server, self.identity, self._kind = server, identity, kind

    async def call(self, request: Request) -> Response:
        """Answer one request; refusals are Responses too."""
        identity = self.identity
        if request.as_user:
            try:
                identity, request = self._server.acting(identity, request)
            except ApiError as error:
                return refusal(error)
        begun = self._server.start(identity, request, self._kind)
        if isinstance(begun, Response):
            return begun
        # Shielded: a caller that gives up must not take its write back half way (P1).
        return await asyncio.shield(begun)

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches of events until the server ends the watch. Raises: ApiError when it is refused."""
        woken = asyncio.Event()
        watcher = self._server.open_watch(self.identity, request, lambda _: woken.set())
        try:
            while not watcher.is_over:
                if batch := watcher.take():
                    yield batch
                elif not watcher.is_over:
                    await woken.wait()
                    woken.clear()
        finally:
            watcher.close()


class StreamingApi(LocalApi):
    """`Api` for one watch over a connection: what it begins with is taken in pieces, and a client that takes nothing
    for too long is cut (L-WS)."""

    def __init__(
        self,
        server: ApiServer,
        identity: Identity,
        place: Place | None,
        send_blocked_max_s: float,
        started: Callable[[], None],
    ) -> None:
        super().__init__(server, identity)
        self._place, self._send_blocked_max_s, self._started = place, send_blocked_max_s, started

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches until the server ends the watch; between two pieces others have their turn. Raises: ApiError
        when it is refused."""
        woken, place, loop = asyncio.Event(), self._place, asyncio.get_running_loop()
        watcher: Watcher | None = None
        try:
            watcher = self._server.open_watch(self.identity, request, lambda _: woken.set())
            while not watcher.is_over:
                if place is not None:
                    if watcher.is_beginning:
                        await place.turn()
                    else:
                        place.leave()
                        place = None
                if not (is_beginning := watcher.is_beginning):
                    self._started()
                if batch := watcher.take_piece():
                    timers = [loop.call_later(self._send_blocked_max_s, watcher.close, SLOW)]
                    if place is not None:
                        timers.append(place.stalls_later())
                    try:
                        yield batch
                    finally:
                        for timer in timers:
                            timer.cancel()
                if is_beginning and not watcher.is_held:
                    await asyncio.sleep(0)
                elif not batch and not watcher.is_over:
                    await woken.wait()
                    woken.clear()
        finally:
            if place is not None:
                place.leave()
            if watcher is not None:
                watcher.close()


class _Reason(msgspec.Struct):
    reason: str = ""


def _reason_of(body: bytes) -> str:
    """Return the reason in the body of an unbind, "other" for one that no caller may give: a metric's label."""
    try:
        reason = msgspec.json.decode(body, type=_Reason).reason
    except UNREADABLE:
        return "other"
    return reason if may_be_sent(reason) else "other"


def _answer_to(error: Exception, request: Request) -> Response:
    """Return what a call is answered that raised: a refusal is its answer; a bug answers 500, and is logged."""
    if isinstance(error, ApiError):
        return refusal(error)
    if isinstance(error, MemoryError):
        end_for_memory()
    log.error("request.failed", verb=request.verb, resource=request.resource[:100], exc_info=error)
    return refusal(ApiError(f"internal error: {type(error).__name__}"))


def _check_made(response: Response) -> None:
    """Raise the refusal of an object that the server makes; another API server may have made it meanwhile."""
    if response.code != AlreadyExists.code:
        response.unwrap()


def _check_deleted(response: Response) -> None:
    """Raise the refusal of one delete of many; an object that is gone or was replaced meanwhile is none."""
    if response.code not in (404, 409) or response.error().reason == STALE_LEASE_EPOCH:
        response.unwrap()


def _fingerprint(request: Request) -> bytes:
    parts = (*_ASKED(request), str(request.dry_run))
    return hashlib.blake2b("\0".join(parts).encode() + b"\0" + request.body, digest_size=16).digest()
