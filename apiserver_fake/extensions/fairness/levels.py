"""The priority levels of a server: their configuration, and which requests are executed, queued or refused.
Pure.

Each call takes the time and returns a decision. A request that is decided later is returned by the call that
decides it. Source: KEP-1040, upstream `staging/src/k8s.io/apiserver/pkg/util/flowcontrol/apf_controller.go`,
`apf_filter.go`, `dropped_requests_tracker.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from apiserver_fake.extensions.fairness.concurrency import Limits, Shares, Smoothed, adjust, limits_of, max_seats
from apiserver_fake.extensions.fairness.flow_schemas import FlowSchema, FlowSchemas, Matched, as_client
from apiserver_fake.extensions.fairness.queue_set import ONE, UNLIMITED, WAITING, QueuedRequest, QueueSet, Queuing, Work
from apiserver_fake.registry.policy import Attributes
from services.api.identity import Identity
from services.api.meta import ObjectMeta, View
from services.telemetry.metrics import Histogram

EXEMPT, CATCH_ALL = "exempt", "catch-all"
"""Names of the mandatory priority levels and flow schemas."""
FLOWS_MAX: Final = 8192
"""Limit of the kinds of requests whose flow is cached."""
RETRY_AFTER_MAX_S: Final = 32
DURATIONS_S: Final = (0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
LENGTHS: Final = (0, 10, 25, 50, 100, 250, 500, 1000)
SEATS: Final = (1, 2, 4, 10)


class _Queuing(View, frozen=True):
    queues: int = 64
    hand_size: int = 8
    queue_length_limit: int = 50


class _Response(View, frozen=True):
    type: str = ""
    queuing: _Queuing | None = None


class _Limited(View, frozen=True):
    nominal_concurrency_shares: int = 30
    lendable_percent: int = 0
    borrowing_limit_percent: int | None = None
    limit_response: _Response = _Response()


class _Exempt(View, frozen=True):
    nominal_concurrency_shares: int = 0
    lendable_percent: int = 0


class _LevelSpec(View, frozen=True):
    type: str = ""
    limited: _Limited | None = None
    exempt: _Exempt | None = None


class LevelConfiguration(View, frozen=True):
    """A PriorityLevelConfiguration, as far as its fields are used."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _LevelSpec = _LevelSpec()

    @property
    def shares(self) -> Shares:
        """Its configuration of concurrency."""
        if (limited := self.spec.limited) is not None:
            return Shares(limited.nominal_concurrency_shares, limited.lendable_percent, limited.borrowing_limit_percent)
        exempt = self.spec.exempt or _Exempt()
        return Shares(exempt.nominal_concurrency_shares, exempt.lendable_percent)

    @property
    def queuing(self) -> Queuing:
        """Its configuration of queues."""
        if self.spec.limited is None:
            return UNLIMITED
        found = self.spec.limited.limit_response.queuing
        return Queuing(found.queues, found.hand_size, found.queue_length_limit) if found is not None else Queuing()


class RetryAfter:
    """The Retry-After of refused requests, in seconds: it grows while many are refused, then shrinks again."""

    def __init__(self) -> None:
        self.seconds = 1
        self._raised_s = 0
        self._second = self._dropped = 0
        self._history: list[tuple[int, int]] = []

    def note(self, now_s: float) -> int:
        """Count a refusal and return its Retry-After in seconds."""
        second = int(now_s)
        if second == self._second:
            self._dropped += 1
            return self.seconds
        self._history = [each for each in self._history if second - each[0] <= RETRY_AFTER_MAX_S]
        self._history.append((self._second, self._dropped))
        self._second, self._dropped = second, 1
        dropped = sum(count for at, count in self._history if second - at <= self.seconds)
        if second - self._raised_s >= self.seconds and dropped >= 3 * self.seconds:
            self.seconds, self._raised_s = min(2 * self.seconds, RETRY_AFTER_MAX_S), second
        elif dropped < self.seconds and self.seconds > 1:
            self.seconds -= 1
        return self.seconds


class FlowCounters:
    """The counters of one flow schema's requests in one priority level.

    `at_once`: requests that did not wait. `of_one`: requests of one seat. Both enter the histograms only when these
    are read.
    """

    __slots__ = (
        "_seats",
        "_waited_s",
        "at_once",
        "dispatched",
        "executed_s",
        "executing",
        "in_queues",
        "lengths",
        "of_one",
        "rejected",
        "seats_executing",
        "seats_in_queues",
    )

    def __init__(self) -> None:
        self.dispatched = self.executing = self.in_queues = self.seats_executing = self.seats_in_queues = 0
        self.at_once = self.of_one = 0
        self.rejected: dict[str, int] = {}
        self._waited_s, self._seats = Histogram(DURATIONS_S), Histogram(SEATS)
        self.executed_s = Histogram(DURATIONS_S)
        self.lengths = Histogram(LENGTHS)

    @property
    def waited_s(self) -> Histogram:
        """Histogram of the time that requests waited, in seconds."""
        self._waited_s.observe(0.0, self.at_once)
        self.at_once = 0
        return self._waited_s

    @property
    def seats(self) -> Histogram:
        """Histogram of the estimated seats of requests."""
        self._seats.observe(1, self.of_one)
        self.of_one = 0
        return self._seats


class Level:
    """The state of one priority level. `current`: the seats it may use until the next adjustment of concurrency."""

    def __init__(self, configuration: LevelConfiguration, now_s: float) -> None:
        self.configuration = configuration
        self.name = configuration.metadata.name
        self.uid = configuration.metadata.uid
        self.queues = QueueSet(configuration.queuing, 0, now_s)
        self.limits = Limits(0, 0, 0)
        self.current = -1
        self.max_seats = 0
        self.demand = Smoothed()
        self.target = 0.0
        self.is_quiescing = False
        self.retry_after = RetryAfter()

    @property
    def is_exempt(self) -> bool:
        """Whether its requests are never limited."""
        return self.queues.queuing.queues < 0


class Flow:
    """The flow schema, priority level and counters of a kind of request."""

    __slots__ = ("counters", "level", "matched", "uids")

    def __init__(self, matched: Matched, level: Level, counters: FlowCounters) -> None:
        self.matched, self.level, self.counters = matched, level, counters
        self.uids = matched.uid, level.uid


class Refused(NamedTuple):
    """A refused request: the reason, and the seconds after which it may be sent again."""

    reason: str
    retry_after_s: int


class PriorityLevels:
    """All priority levels of a server that executes `server_limit` seats at once."""

    def __init__(self, server_limit: int, now_s: float = 0.0) -> None:
        self.server_limit = server_limit
        self.levels: dict[str, Level] = {}
        self.counters: dict[tuple[str, str], FlowCounters] = {}
        self.fair = 0.0
        self._schemas = FlowSchemas((), ())
        self._read: dict[bytes, FlowSchema] = {}
        self._flows: dict[tuple[object, ...], Flow] = {}
        self._clients: dict[Identity, Identity] = {}

    # -- configuration

    def configure(
        self, levels: Iterable[LevelConfiguration], schemas: Iterable[bytes], now_s: float
    ) -> list[QueuedRequest]:
        """Apply the stored configuration, mandatory objects included, and return the requests that are executed
        now.

        A level that is no longer configured finishes its requests and gets no new ones.
        """
        wanted = {each.metadata.name: each for each in levels}
        for name, configuration in wanted.items():
            level = self.levels.get(name)
            if level is None:
                level = self.levels[name] = Level(configuration, now_s)
            level.configuration, level.uid, level.is_quiescing = configuration, configuration.metadata.uid, False
        for name, level in list(self.levels.items()):
            if name not in wanted:
                level.is_quiescing = True
                if level.queues.is_idle:
                    del self.levels[name]
        self._read = {body: self._read.get(body) or FlowSchema.of(body) for body in schemas}
        self._schemas = FlowSchemas(self._read.values(), wanted)
        self._flows.clear()
        limits = limits_of({name: each.configuration.shares for name, each in self.levels.items()}, self.server_limit)
        for name, level in self.levels.items():
            level.limits = limits[name]
            queuing = level.configuration.queuing
            if queuing.queues > 0:
                level.max_seats = max_seats(level.limits.nominal, queuing.hand)
            if level.current < 0:
                level.current = level.limits.initial
        return self.adjust(now_s)

    def adjust(self, now_s: float) -> list[QueuedRequest]:
        """Lend and borrow concurrency by the demand since the last call; return the requests that are executed now."""
        for level in self.levels.values():
            level.demand = level.demand.after(level.queues.demand(now_s))
        adjustment = adjust(
            {name: level.limits for name, level in self.levels.items()},
            {name: level.demand for name, level in self.levels.items()},
            {name: level.current for name, level in self.levels.items()},
        )
        self.fair = self.fair if adjustment.fair is None else adjustment.fair
        started: list[QueuedRequest] = []
        for name, level in self.levels.items():
            level.current, level.target = adjustment.current[name], adjustment.targets[name]
            started += self._count_dispatches(
                level.queues.configure(level.configuration.queuing, level.current, now_s), now_s
            )
        return started

    def flow_of(self, identity: Identity, asked: Attributes) -> Flow:
        """Return the flow of a request; catch-all if no schema matches."""
        client = self.client(identity)
        key = self._schemas.kind_of(client, asked)
        flow = self._flows.get(key)
        if flow is None:
            matched = self._schemas.match(client, asked) or self._schemas.find_by_name(CATCH_ALL)
            if matched is None or matched.level not in self.levels:
                matched = Matched(CATCH_ALL, "", CATCH_ALL)
            if len(self._flows) >= FLOWS_MAX:
                self._flows.clear()
            level = self.levels[matched.level]
            counters = self.counters.setdefault((level.name, matched.schema), FlowCounters())
            flow = self._flows[key] = Flow(matched, level, counters)
        return flow

    def client(self, identity: Identity) -> Identity:
        """Return the caller's identity as flow schemas match it."""
        known = self._clients.get(identity)
        if known is None:
            if len(self._clients) >= FLOWS_MAX:
                self._clients.clear()
            known = self._clients[identity] = as_client(identity)
        return known

    # -- requests

    def start(
        self, flow: Flow, identity: Identity, asked: Attributes, work: Work, now_s: float
    ) -> tuple[QueuedRequest | Refused, list[QueuedRequest]]:
        """Admit a request: return it, executing or waiting, or its refusal; and the other requests that are
        executed now.
        """
        level, counters = flow.level, flow.counters
        request = QueuedRequest(flow, work, (identity, asked))
        queues = level.queues
        distinguisher = flow.matched.distinguisher(identity, asked) if queues.queuing.queues > 1 else ""
        refused = queues.start(request, flow.matched.schema, distinguisher, now_s)
        if work is ONE:
            counters.of_one += 1
        else:
            counters.seats.observe(request.most)
        if refused:
            counters.rejected[refused] = counters.rejected.get(refused, 0) + 1
            return Refused(refused, level.retry_after.note(now_s)), []
        if request.state is not WAITING:
            counters.at_once += 1
            counters.dispatched += 1
            counters.executing += 1
            counters.seats_executing += request.most
            return request, []
        counters.in_queues += 1
        counters.seats_in_queues += request.most
        assert request.queue is not None
        counters.lengths.observe(len(request.queue.waiting))
        return request, self._count_dispatches(queues.dispatch(now_s), now_s)

    def finish(self, request: QueuedRequest, now_s: float) -> list[QueuedRequest]:
        """End an executed request and return the requests that are executed now.

        If its work has `additional_s`, call `release` after that time.
        """
        flow: Flow = request.flow
        counters = flow.counters
        counters.executing -= 1
        counters.executed_s.observe(now_s - request.start_s)
        if not request.work.additional_s:
            counters.seats_executing -= request.most
        queues = flow.level.queues
        if queues.waiting:
            return self._count_dispatches(queues.finish(request, now_s), now_s)
        queues.finish(request, now_s)
        return []

    def release(self, request: QueuedRequest, now_s: float) -> list[QueuedRequest]:
        """Release the seats that a finished request has kept, and return the requests that are executed now."""
        flow: Flow = request.flow
        flow.counters.seats_executing -= request.most
        return self._count_dispatches(flow.level.queues.release(request, now_s), now_s)

    def withdraw(self, request: QueuedRequest, why: str, now_s: float) -> tuple[int, list[QueuedRequest]]:
        """Remove a waiting request. Return its Retry-After in seconds, and the requests that are executed now."""
        flow: Flow = request.flow
        counters = flow.counters
        counters.in_queues -= 1
        counters.seats_in_queues -= request.most
        counters.rejected[why] = counters.rejected.get(why, 0) + 1
        counters.waited_s.observe(now_s - request.arrival_s)
        started = self._count_dispatches(flow.level.queues.withdraw(request, why, now_s), now_s)
        return flow.level.retry_after.note(now_s), started

    def _count_dispatches(self, requests: list[QueuedRequest], now_s: float) -> list[QueuedRequest]:
        for request in requests:
            counters = request.flow.counters
            counters.in_queues -= 1
            counters.seats_in_queues -= request.most
            counters.waited_s.observe(now_s - request.arrival_s)
            counters.dispatched += 1
            counters.executing += 1
            counters.seats_executing += request.most
        return requests

    # -- dumps

    def dump_priority_levels(self) -> str:
        """Return a row for each priority level."""
        heads = "PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests"

        def rows() -> Iterator[tuple[object, ...]]:
            for name, level in sorted(self.levels.items()):
                queues = level.queues
                if level.is_exempt:
                    yield name, *("<none>",) * 5
                    continue
                active = sum(bool(queue.waiting) for queue in queues.queues)
                yield name, active, queues.is_idle, level.is_quiescing, queues.waiting, queues.executing

        return _table(heads, rows())

    def dump_queues(self) -> str:
        """Return a row for each queue."""
        heads = (
            "PriorityLevelName",
            "Index",
            "PendingRequests",
            "ExecutingRequests",
            "SeatsInUse",
            "NextDispatchR",
            "InitialSeatsSum",
            "MaxSeatsSum",
            "TotalWorkSum",
        )

        def rows() -> Iterator[tuple[object, ...]]:
            for name, level in sorted(self.levels.items()):
                if level.is_exempt:
                    yield name, *("<none>",) * 8
                for queue in level.queues.queues:
                    initial = sum(request.work.seats for request in queue.waiting)
                    yield (
                        name,
                        queue.index,
                        len(queue.waiting),
                        queue.executing,
                        queue.seats_in_use,
                        f"{queue.next_r:.8f}ss",
                        initial,
                        queue.seats_waiting,
                        f"{queue.work_waiting:.8f}ss",
                    )

        return _table(heads, rows())

    def dump_requests(self, wall_of: Any, *, has_details: bool = False) -> str:
        """Return a row for each request that waits. `wall_of`: turns the time of a request into text."""
        heads: tuple[str, ...] = (
            "PriorityLevelName",
            "FlowSchemaName",
            "QueueIndex",
            "RequestIndexInQueue",
            "FlowDistingsher",
            "ArriveTime",
            "InitialSeats",
            "FinalSeats",
            "AdditionalLatency",
        )
        if has_details:
            heads += ("UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")

        def rows() -> Iterator[tuple[object, ...]]:
            for name, level in sorted(self.levels.items()):
                for queue in level.queues.queues:
                    for place, request in enumerate(queue.waiting):
                        identity, asked = request.about
                        matched, work = request.flow.matched, request.work
                        row: tuple[object, ...] = (
                            name,
                            matched.schema,
                            queue.index,
                            place,
                            matched.distinguisher(identity, asked),
                            wall_of(request.arrival_s),
                            work.seats,
                            work.final_seats,
                            f"{1000 * work.additional_s:g}ms" if work.additional_s else "0s",
                        )
                        if has_details:
                            version = f"{asked.group}/v1" if asked.group else "v1"
                            row += (identity.user, asked.verb, asked.path, asked.namespace, asked.name, version)
                            row += (asked.resource, asked.subresource)
                        yield row

        return _table(heads, rows())


def _table(heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """Return rows as upstream's tabwriter aligns them: a comma behind each cell but the last."""
    lines = [heads, *(tuple(_cell(each) for each in row) for row in rows)]
    widths = [max(len(line[place]) for line in lines) + 2 for place in range(len(heads) - 1)]
    return "".join(
        "".join(f"{cell},".ljust(max(8, width)) for cell, width in zip(line, widths, strict=False)) + line[-1] + "\n"
        for line in lines
    )


def _cell(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def configuration_of(body: bytes) -> LevelConfiguration:
    """Return a stored PriorityLevelConfiguration. Raises: msgspec.ValidationError."""
    return msgspec.json.decode(body, type=LevelConfiguration)
