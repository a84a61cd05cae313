"""Entry of requests at both endpoints: a request is executed at once, executed after waiting, or refused
with 429.

The stored FlowSchemas and PriorityLevelConfigurations decide, and changes of them act at once. The status of a
schema says whether its level exists. Source: decision 0038, upstream
`staging/src/k8s.io/apiserver/pkg/util/flowcontrol/apf_controller.go`,
`staging/src/k8s.io/apiserver/pkg/server/filters/priority-and-fairness.go`.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import structlog

from apiserver_fake.extensions.fairness import metrics, work
from apiserver_fake.extensions.fairness.flow_schemas import LEVELS, SCHEMAS
from apiserver_fake.extensions.fairness.levels import (
    Flow,
    LevelConfiguration,
    PriorityLevels,
    Refused,
    configuration_of,
)
from apiserver_fake.extensions.fairness.queue_set import (
    CANCELLED,
    EXECUTING,
    ONE,
    TIME_OUT,
    WAITING,
    QueuedRequest,
    Work,
)
from apiserver_fake.rates import Rate
from apiserver_fake.registry.policy import Attributes
from apiserver_fake.storage.decoded_records import Decoded
from apiserver_fake.storage.records import Change, Record, Selection
from apiserver_fake.storage.store import Store
from services.api.errors import TooManyRequests
from services.api.identity import Identity
from services.api.meta import Document
from services.api.seams import Clock
from services.api.times import format_time
from services.api.wire import Api, Request
from services.telemetry.metrics import Samples

log = structlog.get_logger()

ADJUSTED_S: Final = 10.0
"""Period in seconds of the adjustment of lent and borrowed concurrency."""
REQUEST_S: Final = 60.0
WAIT_SHARE: Final = 4
"""Divisor of a request's deadline: it waits in a queue for at most a quarter of its time."""
MANAGER: Final = "api-priority-and-fairness-config-consumer-v1"
EVENTS_OF_NODE, TOKENS_OF_NODE = (50.0, 1_000.0), (5.0, 250.0)
"""Limits of what one node may create: (requests per second, burst). Its kubelet records at most as many Events."""
UPDATES_MAX, UPDATES_S = 6, 60.0
"""Most status writes of one flow schema, and the period in seconds to which that limit applies."""
TOO_MANY: Final = "Too many requests, please try again later."


class Overloaded(TooManyRequests):
    """The refusal of a request that its priority level cannot execute or queue."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(TOO_MANY, retry_after_s=retry_after_s)


class Slices:
    """Takes long requests in turns: one piece of work of one request per turn of the event loop.

    So a turn stays short however many long lists are in progress, and short requests are answered between two
    pieces.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_set = False
        self.count = 0

    async def next(self) -> None:
        """Wait until the caller may do its next piece."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if not self._is_set:
            self._is_set = True
            loop.call_soon(self._release)
        await turn

    def _release(self) -> None:
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        self._is_set = bool(self._waiting)
        if self._waiting:
            self.count += 1
            self._waiting.popleft().set_result(None)
            asyncio.get_running_loop().call_soon(self._release)


class _Dangling(NamedTuple):
    """The priority level of a flow schema, and its Dangling conditions."""

    level: str
    conditions: tuple[Document, ...]

    @classmethod
    def of(cls, body: bytes) -> "_Dangling":
        schema = msgspec.json.decode(body)
        conditions = (schema.get("status") or {}).get("conditions") or ()
        level = schema["spec"].get("priorityLevelConfiguration", {}).get("name", "")
        return cls(level, tuple(each for each in conditions if each["type"] == "Dangling"))


class FairDispatch:
    """Priority and fairness of one API server."""

    def __init__(self, store: Store, clock: Clock, server_limit: int, mandatory: Sequence[Document], api: Api) -> None:
        """Configure the levels from the store. `server_limit`: total seats.

        `mandatory`: objects that count as stored while no object of their name is. `api`: used to write conditions.
        """
        self._store, self._clock, self._api = store, clock, api
        self.levels = PriorityLevels(server_limit, clock.now())
        self.slices = Slices()
        self._mandatory = {
            kind: {each["metadata"]["name"]: msgspec.json.encode(each) for each in mandatory if each["kind"] == kind}
            for kind in ("FlowSchema", "PriorityLevelConfiguration")
        }
        self._dangling = Decoded(store, SCHEMAS, _Dangling.of)
        self._has_changed = asyncio.Event()
        self._written: dict[str, list[float]] = {}
        self._rates = {"events/": Rate(*EVENTS_OF_NODE), "serviceaccounts/token": Rate(*TOKENS_OF_NODE)}
        self._configure()

    # -- configuration

    def note(self, changes: Iterable[Change]) -> None:
        """Take in committed changes."""
        if any(change.record.resource in (SCHEMAS, LEVELS) for change in changes):
            self._configure()

    def _stored_bodies(self, kind: str, resource: str) -> dict[str, bytes]:
        records = self._store.select(resource, Selection()).records
        return {**self._mandatory[kind], **{each.name: each.body for each in records}}

    def _configure(self) -> None:
        configurations: list[LevelConfiguration] = []
        for name, body in self._stored_bodies("PriorityLevelConfiguration", LEVELS).items():
            try:
                configurations.append(configuration_of(body))
            except msgspec.ValidationError as error:  # it was taken by an older server: as if it did not exist
                log.warning("fairness.level_ignored", name=name, why=str(error))
        self._admit_requests(
            self.levels.configure(
                configurations, self._stored_bodies("FlowSchema", SCHEMAS).values(), self._clock.now()
            )
        )
        self._has_changed.set()

    async def run(self) -> None:
        """Adjust concurrency and write conditions, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._adjust())
            group.create_task(self._write_conditions())

    async def _adjust(self) -> None:
        while True:
            await asyncio.sleep(ADJUSTED_S)
            self._admit_requests(self.levels.adjust(self._clock.now()))
            if any(level.is_quiescing and level.queues.is_idle for level in self.levels.levels.values()):
                self._configure()

    async def _write_conditions(self) -> None:
        wait_s: float | None = None
        while True:
            try:
                async with asyncio.timeout(wait_s):
                    await self._has_changed.wait()
            except TimeoutError:
                pass
            self._has_changed.clear()
            wait_s = None
            for record, shown in self._dangling:
                condition = self._condition(shown)
                if condition is None:
                    continue
                now_s = self._clock.now()
                recent = self._written[record.name] = [
                    at for at in self._written.get(record.name, ()) if now_s - at < UPDATES_S
                ]
                if len(recent) >= UPDATES_MAX:  # two servers that disagree must not fight
                    wait_s = UPDATES_S / 2
                    continue
                recent.append(now_s)
                await self._write(record, condition)

    def _condition(self, shown: "_Dangling") -> Document | None:
        """Return the condition Dangling that a flow schema should have and has not."""
        level, level_state = shown.level, self.levels.levels.get(shown.level)
        text = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}"'
        if level_state is not None and not level_state.is_quiescing:
            wanted = {"status": "False", "reason": "Found", "message": f"{text} and it exists"}
        else:
            wanted = {"status": "True", "reason": "NotFound", "message": f"{text} but there is no such object"}
        if any(wanted.items() <= each.items() for each in shown.conditions):
            return None
        return {"type": "Dangling", "lastTransitionTime": format_time(self._clock.wall()), **wanted}

    async def _write(self, record: Record, condition: Document) -> None:
        applied = {
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
            "kind": "FlowSchema",
            "metadata": {"name": record.name},
            "status": {"conditions": [condition]},
        }
        request = Request(
            verb="patch",
            resource=SCHEMAS,
            name=record.name,
            subresource="status",
            patch_type="apply",
            field_manager=MANAGER,
            force=True,
            body=msgspec.json.encode(applied),
        )
        response = await self._api.call(request)
        if not response.is_ok and response.code != 404:
            log.warning("fairness.condition_not_written", name=record.name, why=response.error().message)

    # -- requests

    def flow_of(self, identity: Identity, asked: Attributes) -> Flow:
        """Return the flow of a request."""
        return self.levels.flow_of(identity, asked)

    def work_of(self, flow: Flow, asked: Attributes, resource: str, limit: int, watchers: int) -> Work:
        """Return the work (seats) of a request. `resource`: its kind as stored; `limit`: that of a list's page.

        `watchers`: the number of watches that may receive the event of a write.
        """
        if asked.verb in ("list", "watch"):
            objects, size = self._store.size_of(resource)
            return work.of_list(work.Stored(objects, size), limit, flow.level.max_seats, is_single=bool(asked.name))
        if asked.verb in work.WRITES:
            return work.of_write(watchers, flow.level.max_seats)
        return ONE

    def enter_call(self, identity: Identity, call: Request, watchers: int) -> QueuedRequest:
        """Admit a call of a component, as `enter` does."""
        plural, _, group = call.resource.partition(".")
        asked = Attributes(call.verb, group, plural, call.subresource, call.name, call.namespace)
        flow = self.levels.flow_of(identity, asked)
        return self.enter(flow, identity, asked, self.work_of(flow, asked, call.resource, call.limit, watchers))

    def enter(self, flow: Flow, identity: Identity, asked: Attributes, cost: Work = ONE) -> QueuedRequest:
        """Admit a request: it is executed, or it waits and the caller must call `wait`. Raises: Overloaded."""
        if asked.verb == "create" and identity.node:
            kind = f"{asked.resource}/{asked.subresource}"
            rate = self._rates.get(kind)
            if rate is not None and not rate.take(identity.user, self._clock.now()):
                raise TooManyRequests(f"{identity.user} creates too many {kind.rstrip('/')}", retry_after_s=1)
        request, started = self.levels.start(flow, identity, asked, cost, self._clock.now())
        if started:
            self._admit_requests(started)
        if isinstance(request, Refused):
            raise Overloaded(request.retry_after_s)
        return request

    async def wait(self, request: QueuedRequest, deadline_s: float = REQUEST_S) -> None:
        """Wait until the request is executed. `deadline_s`: total time it may take, in seconds. Raises: Overloaded."""
        if request.state is not WAITING:
            return
        decided = asyncio.get_running_loop().create_future()

        def decide(is_executed: bool) -> None:
            if not decided.done():
                decided.set_result(is_executed)

        request.decide = decide
        try:
            async with asyncio.timeout(deadline_s / WAIT_SHARE):
                await decided
        except TimeoutError:
            if request.state is WAITING:
                raise Overloaded(self._withdraw(request, TIME_OUT)) from None

    def leave(self, request: QueuedRequest) -> None:
        """End a request: it was executed, or its client no longer waits. A second call has no effect."""
        if request.state is not EXECUTING:
            if request.state is WAITING:
                self._withdraw(request, CANCELLED)
            return
        started = self.levels.finish(request, self._clock.now())
        if started:
            self._admit_requests(started)
        if request.work.additional_s > 0:
            asyncio.get_running_loop().call_later(request.work.additional_s, self._release, request)

    def _release(self, request: QueuedRequest) -> None:
        self._admit_requests(self.levels.release(request, self._clock.now()))

    def _withdraw(self, request: QueuedRequest, why: str) -> int:
        retry_after_s, started = self.levels.withdraw(request, why, self._clock.now())
        self._admit_requests(started)
        return retry_after_s

    def _admit_requests(self, requests: Iterable[QueuedRequest]) -> None:
        for request in requests:
            if request.decide is not None:
                request.decide(True)

    # -- what is shown

    def metrics(self) -> Samples:
        """Return its counters and gauges by Prometheus name."""
        return metrics.METRICS.of(self.levels)

    def dump(self, what: str, *, has_details: bool = False) -> str | None:
        """Return the text of upstream's debug endpoint of that name; None if there is no such endpoint."""
        match what:
            case "dump_priority_levels":
                return self.levels.dump_priority_levels()
            case "dump_queues":
                return self.levels.dump_queues()
            case "dump_requests":
                since = self._clock.wall() - self._clock.now()
                return self.levels.dump_requests(lambda at_s: format_time(since + at_s), has_details=has_details)
        return None
