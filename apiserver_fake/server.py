"""The API server as one object; the gRPC and REST servers call its `start` and `open_watch`.

It joins the parts: registry (reads and plans of writes), callers (authentication and authorization), writer (the one
order of commits), store, journal, hub of watches, extensions. This module begins, answers and counts calls, and passes
commits to every part.
"""

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.event_log import EventLines
from apiserver_fake.extensions.points import Extensions, LiveExtensions
from apiserver_fake.local_api import LocalApi, StreamingApi
from apiserver_fake.registry.admission.attributes import EXEMPT, VALIDATING_POLICIES, Complete, Connection
from apiserver_fake.registry.admission.policy_status import status_write
from apiserver_fake.registry.admission.rehearsals import Rehearsals
from apiserver_fake.registry.authorization import reviews
from apiserver_fake.registry.authorization.access import Access
from apiserver_fake.registry.authorization.authentication import Authenticator, TokenFile
from apiserver_fake.registry.authorization.callers import Callers
from apiserver_fake.registry.authorization.node import NODE_TEXT
from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.registry.controlplane.event_expiry import EventExpiry
from apiserver_fake.registry.controlplane.event_sweep import EVENTS, expire_events
from apiserver_fake.registry.controlplane.initial_objects import create_first_objects, keep_access_objects
from apiserver_fake.registry.decode import json_object
from apiserver_fake.registry.errors import no_such_path
from apiserver_fake.registry.raw import SUBRESOURCE as RAW
from apiserver_fake.registry.read import ContinueTokens, NotYet, list_head, with_items
from apiserver_fake.registry.registry import UNBINDS, Registry, as_unbind
from apiserver_fake.registry.sessions import Session
from apiserver_fake.registry.writes.new_objects import Limits
from apiserver_fake.registry.writes.spans import WriteSpans
from apiserver_fake.requests import MUTATING, PodWrites, Requests, group_resource
from apiserver_fake.storage.journal import Journal, Recovered
from apiserver_fake.storage.memory import end_for_memory
from apiserver_fake.storage.records import DELETED, Cause, Change, Record, Selection
from apiserver_fake.storage.store import Gap, Staged, Store, restore
from apiserver_fake.storage.watch_hub import Hub, Notify, Watcher
from apiserver_fake.storage.watch_starts import Place, Starts
from apiserver_fake.storage.watches import Watches
from apiserver_fake.storage.writer import Operation, Writer, answers_of, refusal
from services.api.errors import UNREADABLE, ApiError, BadRequest, Forbidden, NotFound, Timeout
from services.api.identity import ADMIN, Identity
from services.api.meta import Document
from services.api.metrics.apis import COMPUTED
from services.api.resources import hidden_resources
from services.api.seams import Seams, Span
from services.api.wire import STALE_LEASE_EPOCH, Api, Request, Response, WatchRequest, rpc_method
from services.runtime.config import EXIT_CONFIG, StartError
from services.telemetry.eventlog import NullEventLog
from services.telemetry.metrics import Metrics, Samples, counter, gauge, histogram
from services.telemetry.spans import Kind as SpanKind

if TYPE_CHECKING:
    from apiserver_fake.extensions.fairness.gate import FairDispatch

log = structlog.get_logger()

DEADLINE_S, DEADLINE_MAX_S = 30.0, 60.0
GONE_TEXT = "the caller has gone before its answer"
NODE_TOKENS, STATE_HASH = "nodetokens", "statehash"
REVIEWS = {review.name: review for review in reviews.REVIEWS}
PODS = "pods"
DELETED_AT_ONCE = 100
"""Number of deletions of one collection that may wait for the writer at the same time."""
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
        """Join the parts. `access`: access settings of clients. `extensions`: the extensions of the kernel."""
        self._seams, self._config, self._tokens = seams, config, tokens
        self.access, self._places = access, extensions
        self._journal = journal
        self._clock = seams.clock
        self.catalogue = Catalogue(hidden=hidden_resources(seams.switches), extensions=extensions.kinds)
        self.release = seams.switches.choice("emulate.version")
        """The Kubernetes release that the server reports."""
        self._spans = WriteSpans()
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
        self.extensions = LiveExtensions(
            extensions,
            self.store,
            self.catalogue,
            access=access,
            find=self._document,
            api=lambda: self.api_for(ADMIN),
            ended=self.hub.end_kind,
            spawn=self._spawn,
        )
        self.fairness: FairDispatch | None = None
        """Priority and fairness of client requests; None without concurrency to divide, as in a simulation."""
        self.starts = Starts()
        self.writer = Writer(
            self.store,
            journal,
            seams.clock,
            self._on_published,
            publish_news=lambda changes: self._on_published(changes, is_own=False),
            resources=lambda: self.catalogue.resources,
        )
        self._rehearsals = Rehearsals(self.store, seams.clock, self.writer.submit, self.extensions.admission)
        self._expiry = EventExpiry(config.event_ttl_s)
        self._group: asyncio.TaskGroup | None = None
        self.requests, self.pod_writes = Requests(self._version_of), PodWrites()
        self._ready = asyncio.Event()
        self._registry: Registry | None = None
        self._callers: Callers | None = None
        self._watches: Watches | None = None
        self.audit = extensions.audit
        """The audit log; None if there is none."""
        self._failed_expressions: set[str] = set()
        self.is_ready = False

    @property
    def is_shared(self) -> bool:
        """Whether other API servers write to the same store."""
        return self._journal.is_shared

    async def catch_up(self) -> None:
        """Wait until this server knows everything that other servers committed before the call. Raises: ApiError."""
        await self._journal.confirm()

    async def etcd_failure(self) -> str:
        """Return why etcd does not answer; empty if it does, or if there is no etcd."""
        return await self._journal.check()

    # -- start and stop

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
                group.create_task(expire_events(self._expiry, self._clock, lambda: self.api_for(ADMIN)))
                if self._journal.is_shared:
                    group.create_task(self._journal.follow())
                self.extensions.run_token_secrets()
                self.writer.is_open = True
                kwok = self._places.kwok
                further = kwok.writes(self.store) if kwok is not None else ()
                await create_first_objects(self.api_for(ADMIN), self.store, further)
                await self._keep_access_objects()
                self.extensions.look_at_definitions()
                self.is_ready = True
                self._ready.set()
        finally:
            self.is_ready = self.writer.is_open = False
            self.hub.shut_down()
            self._rehearsals.cancel()
            if self._watches is not None:
                self._watches.cancel()
            await self.extensions.close()
            await self._journal.close()

    async def wait_until_ready(self) -> None:
        """Wait until requests are served."""
        await self._ready.wait()

    def _recover(self, recovered: Recovered) -> None:
        store, now_s = self.store, self._clock.now()
        if not self._journal.is_durable:
            # Above every version of an earlier run, so that an old watch is refused as too old.
            store.rv = store.window_start = int(self._clock.wall() * 1_000_000)
            log.warning("store.is_volatile", durability="memory", resource_version=store.rv)
        try:
            if self._journal.is_durable:
                restore(store, recovered.base, recovered.base_rv, recovered.entries, now_s, self.catalogue.resources)
                self.extensions.recover()
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
            stored_policy=self.extensions.stored_policy,
            accounts=self.access.accounts,
            is_converting=self._places.is_converting,
            managers=self._places.managers,
            admission=self.extensions.admission,
        )
        node_key = bytes.fromhex(self._tokens.node_key) if self._tokens.node_key else b"node\0" + recovered.secret
        authenticator = Authenticator(
            self._tokens.tokens, node_key, self.access.accounts.tokens, self._document, self._clock.wall
        )
        self._callers = Callers(self._registry, authenticator, is_rbac=self.access.is_rbac)
        self._watches = Watches(
            self.hub,
            self.starts,
            find=self.catalogue.find,
            authorize=self._registry.authorize_watch,
            check=authenticator.check,
            confirm=self._journal.confirm if self._journal.is_shared else None,
            on_open=self._lines.watch_opened if self._lines is not None else None,
            spawn=self._spawn,
        )
        if self._lines is not None:
            self._lines.on_recovered(recovered)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task for as long as the server runs."""
        assert self._group is not None, "nothing is begun before the server runs"
        self._group.create_task(work)

    def _document(self, resource: str, namespace: str, name: str) -> Document | None:
        record = self.store.get(resource, namespace, name)
        return None if record is None else msgspec.json.decode(record.body)

    # -- first objects

    async def _keep_access_objects(self) -> None:
        find, access_objects = self._document, self._places.access_objects
        api, confirm = self.api_for(ADMIN), self._journal.confirm
        await keep_access_objects(api, confirm, lambda: access_objects(self.access, find))

    async def change_authority(self, authority: str) -> None:
        """Publish a new certificate bundle in place of `Access.authority`, because the authorities of clients and
        servers have changed. Raises: ApiError.
        """
        self.access = replace(self.access, authority=authority)
        await self._keep_access_objects()
        self.extensions.change_authority(authority)

    # -- parts that exist once the store is recovered

    @property
    def callers(self) -> Callers:
        """Authentication and authorization of callers. Raises: ApiError before recovery."""
        if self._callers is None:
            raise _not_ready()
        return self._callers

    @property
    def watches(self) -> Watches:
        """The open watches, and those that wait for their turn. Raises: ApiError before recovery."""
        if self._watches is None:
            raise _not_ready()
        return self._watches

    @property
    def registry(self) -> Registry:
        """The registry of all kinds. Raises: ApiError before recovery."""
        if self._registry is None:
            raise _not_ready()
        return self._registry

    # -- entry points

    def api_for(self, identity: Identity, kind: SpanKind = "internal") -> LocalApi:
        """Return the API of this server for an identity. `kind`: whether calls come from this process (internal) or
        from another one (`server`).
        """
        return LocalApi(self, identity, kind)

    def streaming_api(
        self, identity: Identity, place: Place | None, send_blocked_max_s: float, started: Callable[[], None]
    ) -> Api:
        """Return the API for one watch of a client at the other end of a connection.

        `place` is released when the watch has sent its start or has ended; `started` is called when it has sent its
        start.
        """
        return StreamingApi(self, identity, place=place, send_blocked_max_s=send_blocked_max_s, started=started)

    def open_watch(self, identity: Identity, request: WatchRequest, notify: Notify) -> Watcher:
        """Begin a watch; `notify` is called whenever there are events to take. Raises: ApiError."""
        watches = self.watches
        if not self.is_ready:
            raise _not_ready()
        return watches.open(identity, request, notify)

    # -- calls

    def start(self, identity: Identity, request: Request, kind: SpanKind = "server") -> Response | Awaitable[Response]:
        """Begin a call and return its answer, or an awaitable for it. `kind`: internal for a call of this process.

        An awaitable future is the writer's: await it shielded, or not at all (P1). Refusals are Responses, and so are
        unexpected errors: every call that begins is counted once as ended.
        """
        span = self._seams.tracer.start(rpc_method(request), kind=kind, parent=request.traceparent)
        began, is_write = self._clock.now(), request.verb in MUTATING
        self.requests.begun[is_write] += 1
        if request.subresource in UNBINDS:
            try:
                request = as_unbind(request, self._seams.switches)
            except Exception as error:
                response = _answer_to(error, request)
                self._finish(identity, request, span, began, response)
                return response
        if is_write and self._lines is not None:
            self._lines.request(identity, request, span)
        if not is_write and self._journal.is_shared and not (request.resource_version or request.continue_token):
            return self._answer_and_finish(identity, request, span, began, self._read_newest(identity, request))
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
            return self._answer_and_finish(identity, request, span, began, self._read_later(identity, request, wait.rv))
        except Exception as error:
            response = _answer_to(error, request)
        self._finish(identity, request, span, began, response)
        return response

    async def _answer_and_finish(
        self, identity: Identity, request: Request, span: Span, began: float, answering: Awaitable[Response]
    ) -> Response:
        """Await the answer to a call and return it; the call is counted and logged however it ends."""
        response = refusal(Timeout(GONE_TEXT))
        try:
            response = await answering
        except Exception as error:
            response = _answer_to(error, request)
        finally:
            self._finish(identity, request, span, began, response)
        return response

    async def _read_newest(self, identity: Identity, request: Request) -> Response:
        """Read after catching up with the other servers' writes (S5, S13). Raises: ApiError."""
        await self._journal.confirm()
        return self._read(identity, request)

    async def _start_write_again(self, identity: Identity, request: Request, span: Span, began: float) -> Response:
        """Begin a refused write again after catching up with other servers, whose writes may allow it."""
        response: Response | None = refusal(Timeout(GONE_TEXT))
        try:
            await self._journal.confirm()
            begun = self._start_write(identity, request, span, began)
            response = None  # from now on `_start_write` counts the call
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
        registry, callers = self._registry, self._callers
        if registry is None or callers is None:
            raise _not_ready()
        if request.request_id and not _REQUEST_ID.fullmatch(request.request_id):
            raise BadRequest("x-request-id must have 1 to 64 characters of [A-Za-z0-9._-]")
        if request.resource == NODE_TOKENS:
            token = callers.node_token(identity, request.name)
            response = Response(code=201, body=msgspec.json.encode({"token": token}))
            self._finish(identity, request, span, began, response)
            return response
        if (review := REVIEWS.get(request.resource)) is not None:
            registry.authorize(identity, request)
            question = json_object(request.body, "the body is not JSON", "the body is not an object")
            answer = reviews.answer(review, request.namespace, question, identity, callers, self.catalogue)
            response = Response(code=201, body=msgspec.json.encode(answer))
            self._finish(identity, request, span, began, response)
            return response
        fingerprint = b""
        if request.request_id:
            fingerprint = _fingerprint(request)
            known = self.writer.find_answer(identity.user, request.request_id, fingerprint)
            if known is not None:
                # Before authorization: the first write may have removed the right to repeat it.
                self._finish(identity, request, span, began, known)
                return known
        registry.authorize(identity, request)
        if request.verb == "deletecollection":
            deleting = self._delete_collection(identity, request, span)
            return self._answer_and_finish(identity, request, span, began, deleting)
        if span.trace_id:
            self._spans.begin(span)
        wait_s = min(request.deadline_s, DEADLINE_MAX_S) if request.deadline_s > 0 else DEADLINE_S
        session = Session(self._clock.wall()) if registry.may_call(request) else None

        def plan_again(staged: Staged) -> Response:
            if session is not None:
                session.pending = None
            return registry.prepare(identity, request, span.traceparent, session)(staged)

        operation = Operation(
            # The span's traceparent, not the caller's: reactions to the change are caused by this call.
            plan=registry.prepare(identity, request, span.traceparent, session),
            done=asyncio.get_running_loop().create_future(),
            deadline_s=self._clock.now() + wait_s,
            on_response=partial(self._finish, identity, request, span, began),
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
            again=plan_again if self._journal.is_shared else None,
        )
        if session is None:
            return self.writer.submit(operation)
        admitting = self._rehearsals.admit(operation, session, request, span.traceparent)
        return self._rehearsals.start(self._answer_and_finish(identity, request, span, began, admitting))

    async def admit_connection(
        self, identity: Identity, request: Request, options: Document, complete: Complete
    ) -> Connection:
        """Return a connection's options after admission. The caller must be authorized before.

        Only the webhooks' own time limits apply. Raises: ApiError.
        """
        registry = self.registry
        try:
            connection = await self._rehearsals.admit_connection(
                lambda session: registry.connect(identity, request, options, complete, session), request.traceparent
            )
        except ApiError as error:
            if self._lines is not None:
                self._lines.connection(identity, request, error)
            raise
        if self._lines is not None:
            self._lines.connection(identity, request, connection)
        return connection

    def _read(self, identity: Identity, request: Request) -> Response:
        registry = self.registry
        if request.at and (identity.node or request.resource in COMPUTED):
            # The rights of a node follow from the pods bound to it now; computed kinds have only present values.
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
            document = {"resourceVersion": str(self.store.rv), "stateHash": f"{self.store.state_hash:064x}"}
            return Response(code=200, rv=self.store.rv, body=msgspec.json.encode(document))
        if request.resource in COMPUTED:
            registry.authorize(identity, request)
            kwok, computed = self._places.kwok, self._places.computed
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
        """Wait until a version is visible, then read. Raises: ApiError."""
        try:
            await self.hub.wait_until_visible(rv)
            return self._read(identity, request)
        except NotYet as still:
            raise ApiError(str(still)) from None

    async def _delete_collection(self, identity: Identity, request: Request, span: Span) -> Response:
        """Delete the objects that are selected now, one by one; the answer lists them as they were before.

        The number of concurrent deletions is limited, so that other writers need not wait for all. Raises: ApiError.
        """
        registry = self.registry
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
        """Count and log one call and end its span, before its answer is sent."""
        self.requests.on_ended(request, response.code, self._clock.now() - began, span.trace_id)
        if request.subresource and request.resource == PODS:
            self.pod_writes.count(identity, request, response)
        if self._lines is not None and request.subresource == RAW and response.is_ok:
            self._lines.raw_write(identity, request, response)
        if self._lines is not None and (request.verb in MUTATING or response.code >= 400):
            self._lines.response(identity, request, span, response)
        if span.trace_id:
            self._spans.end(span)
            span.set(resource=request.resource, namespace=request.namespace, name=request.name, code=response.code)
            if request.resource == PODS and request.name:
                span.set(pod=request.name)
        span.end(str(response.code) if response.code >= 500 else "")

    # -- commits

    def _on_published(self, changes: Sequence[Change], *, is_own: bool = True) -> None:
        """Pass commits to every part; parts that watches must not be ahead of get them before the watches."""
        if self._lines is not None:
            self._lines.commits(changes, is_replayed=not is_own)
        if self.fairness is not None:
            self.fairness.note(changes)
        redefined = self.extensions.note(changes)
        now_s, is_configured = self._clock.now(), False
        for change in changes:
            if change.record.resource == EVENTS:
                self._expiry.note(change, now_s)
            is_configured = is_configured or change.record.resource in EXEMPT
        if self._spans.sampled:
            self._spans.note(changes, now_s)
        if is_configured and self._registry is not None:
            self._registry.refresh_admission()
            self._check_types(changes)
        self.hub.publish(changes)
        if redefined:
            self.extensions.on_published(redefined)

    def _check_types(self, changes: Sequence[Change]) -> None:
        """Write the results of type checking into the status of changed policies."""
        for change in changes:
            if change.record.resource == VALIDATING_POLICIES and change.type != DELETED:
                admission = self.extensions.admission()
                assert admission is not None, "its policies are served"
                if (request := status_write(change.record, admission)) is not None:
                    self._rehearsals.start(self.api_for(ADMIN).call(request))

    # -- metrics

    def _version_of(self, name: str) -> str:
        """Return the storage version of a kind by its wire name; empty for an unknown kind."""
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
        lambda server: dict(sorted(server.pod_writes.unbinds.items())),
        "reason", "code",
    ),
    counter(
        "stale_status_writes_rejected_total",
        "Statuses that a node may not write any more.",
        lambda server: dict(sorted(server.pod_writes.stale_statuses.items())),
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
    gauge("keplab_writer_queue", "Writes that wait for a commit.", lambda server: server.writer.queue_length),
    counter("keplab_writer_failures_total", "Commits that failed.", lambda server: server.writer.failures),
    gauge(
        "keplab_store_read_only", "Whether writes are refused.", lambda server: server.writer.read_only is not None
    ),
    gauge(
        "keplab_store_read_only_since_seconds",
        "Time at which the store became read-only, in seconds since the epoch; 0 while it accepts writes.",
        lambda server: server.writer.read_only.since_s if server.writer.read_only is not None else 0.0,
    ),
    counter("apiserver_audit_event_total", "Audit events written.", lambda server: _audit_counts(server)[0]),
    counter("apiserver_audit_error_total", "Audit events lost.", lambda server: _audit_counts(server)[1]),
    counter(
        "apiserver_audit_level_total",
        "Requests by the level at which they are recorded.",
        lambda server: dict(sorted(server.audit.levels.items())) if server.audit is not None else {},
        "level",
    ),
    counter("keplab_etcd_conflicts_total", "Commits overtaken by others.", lambda server: server._journal.conflicts),
    counter("keplab_etcd_failures_total", "Calls that etcd did not answer.", lambda server: server._journal.failures),
)  # fmt: skip


def _audit_counts(server: ApiServer) -> tuple[int, int]:
    """Return the numbers of audit events that were written and lost."""
    return (server.audit.sink.written, server.audit.sink.lost) if server.audit is not None else (0, 0)


def _deletion_of(record: Record, collection: Request, traceparent: str) -> Request:
    """Return the deletion of one object of a collection, with its uid as precondition."""
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


def _not_ready() -> ApiError:
    return ApiError("the API server is not ready", reason="NotReady", code=503, retry_after_s=1)


def _answer_to(error: Exception, request: Request) -> Response:
    """Return the answer to a call that raised: the refusal itself, or 500 for a bug, which is logged."""
    if isinstance(error, ApiError):
        return refusal(error)
    if isinstance(error, MemoryError):
        end_for_memory()
    log.error("request.failed", verb=request.verb, resource=request.resource[:100], exc_info=error)
    return refusal(ApiError(f"internal error: {type(error).__name__}"))


def _check_deleted(response: Response) -> None:
    """Raise the refusal of one deletion of a collection, unless the object is gone or was replaced meanwhile."""
    if response.code not in (404, 409) or response.error().reason == STALE_LEASE_EPOCH:
        response.unwrap()


def _fingerprint(request: Request) -> bytes:
    parts = (*_ASKED(request), str(request.dry_run))
    return hashlib.blake2b("\0".join(parts).encode() + b"\0" + request.body, digest_size=16).digest()
