"""The simulated network: links with latency and faults between every component and the API server.

A `Network` connects every component with the one API server. Each component has a link: a pair of ordered
streams, as in a TCP connection. Messages on one link never overtake each other, while messages of
different links do. Faults are set on a link by direction: `requests` (component to server) and `replies`
(server to component, watch events included).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from lab.scenarios.simulation.lifetime import Lifetime
from lab.scenarios.simulation.simloop import SimLoop
from lab.scenarios.simulation.traffic import ArrivalRecorder, Carried, Traffic
from services.api.errors import ApiError, UnknownOutcome
from services.api.identity import Identity, node_identity
from services.api.seams import Random
from services.api.wire import Api, Request, Response, WatchEvent, WatchRequest
from services.client.client import ATTEMPT_MAX_S
from services.client.gate import Gate, GatedApi, Gates, ObservedApi
from services.client.link_faults import HEALTHY, LinkFaults, sort_of

REQUEST_DEADLINE_S = 30.0
CONNECTION_REFUSED_S = 0.001
WATCH_SILENCE_S = 30.0
DUPLICATE_LATE_MAX_S = 3.0
"""Longest delay of the second copy of a duplicated request, in seconds; its sender may be dead by then."""
RESEND_S = 0.1
"""Interval in seconds at which a connection with cut replies retries."""
WATCH_BATCHES_MAX = 4096
"""Maximum number of batches in transit to one watcher; beyond it the sender blocks, as with a full TCP window."""


@dataclass
class LinkProfile:
    """Behaviour of one link; latencies in seconds."""

    latency_min_s: float = 0.0002
    latency_max_s: float = 0.0008
    faults: LinkFaults = HEALTHY


Answer = asyncio.Future["Response | str"]
"""Future for a caller: the response, or the reason why there is none."""


class Watching(Protocol):
    """One watch at the server's end."""

    @property
    def is_over(self) -> bool:
        """Whether no more events will come."""

    def take(self) -> list[WatchEvent]:
        """Return the next events, oldest first; [] when none wait."""

    def close(self) -> None:
        """End the watch."""


class Served(Protocol):
    """The API server as one identity, at the server's end of a link."""

    def begin(self, request: Request) -> Response | Awaitable[Response]:
        """Begin a call and return its answer, or an awaitable for it, which must not be cancelled."""

    def open_watch(self, request: WatchRequest, notify: Callable[[Any], None]) -> Watching:
        """Begin a watch; `notify` is called whenever there are events to take. Raises: ApiError."""


class Up(NamedTuple):
    """The running API server: its API by identity, its incarnation, and a future that is set when it is gone."""

    api_for: Callable[[Identity], Served]
    life: Lifetime
    gone: asyncio.Future[None]


@dataclass
class _Stream:
    """One direction of a link: messages arrive in the order they were sent."""

    last_arrival: float = 0.0

    def arrival(self, now: float, delay: float) -> float:
        self.last_arrival = max(self.last_arrival, now + delay)
        return self.last_arrival


class Network:
    """Connections between components and the current incarnation of the API server."""

    def __init__(self, random: Random, recorder: ArrivalRecorder | None = None, traffic: Traffic | None = None) -> None:
        self.random = random
        self.recorder = recorder
        self.traffic = traffic
        self.profiles: dict[str, LinkProfile] = {}
        self.up: Up | None = None
        """None while no API server is up."""
        self._answers: dict[Answer, None] = {}
        self.server_context: contextvars.Context | None = None
        self.context = contextvars.copy_context()
        """Messages take no component's time, so that they arrive even while their sender is stopped."""

    @property
    def loop(self) -> SimLoop:
        """The loop in which this network runs."""
        return cast("SimLoop", asyncio.get_running_loop())

    def profile(self, component: str) -> LinkProfile:
        """Return the mutable profile of a component's link."""
        found = self.profiles.get(component)
        if found is None:
            found = self.profiles[component] = LinkProfile()
        return found

    def open(
        self, api_for: Callable[[Identity], Served], life: Lifetime, context: contextvars.Context | None = None
    ) -> None:
        """Start to route requests to this incarnation of the API server; its handlers run in the time of `context`."""
        self.up, self.server_context = Up(api_for, life, asyncio.get_running_loop().create_future()), context

    def close(self) -> None:
        """Reset every connection, because the API server is gone."""
        if self.up is not None:
            self.up.gone.set_result(None)
            self.up = None
        answers, self._answers = self._answers, {}
        for answer in answers:
            _settle(answer, "connection reset")

    def latency(self, link: LinkProfile) -> float:
        """Return the latency of the next message on that link, in seconds."""
        # `uniform`, without its call: each message draws once.
        latency_s = link.latency_min_s + (link.latency_max_s - link.latency_min_s) * self.random.random()
        return latency_s + link.faults.delay_s(self.random) if link.faults.slow_s else latency_s

    def delay(self, stream: _Stream, transport: SimTransport, way: str, what: Carried) -> float:
        """Return the seconds until a message sent now arrives, after all earlier ones on that stream."""
        now = asyncio.get_running_loop().time()
        return self.arrival(stream, transport.life.component, way, what, now, self.latency(transport.link)) - now

    def arrival(self, stream: _Stream, component: str, way: str, what: Carried, now: float, latency_s: float) -> float:
        """Return the time at which a message sent now arrives, after all earlier ones on that stream."""
        due_s = stream.arrival(now, latency_s)
        if self.traffic is not None:
            due_s = stream.last_arrival = self.traffic(component, way, what, now, due_s)
        return due_s

    def is_swallowed(self, transport: SimTransport) -> bool:
        """Return whether a request sent now is lost."""
        link = transport.link
        return bool(link.faults.cut and link.faults.cuts_requests) or self._is_lost(link)

    def _is_lost(self, link: LinkProfile) -> bool:
        return link.faults.loss > 0 and self.random.random() < link.faults.loss

    def send(self, transport: SimTransport, identity: Identity, request: Request, answer: Answer) -> None:
        """Send a request. From now on it is in transit: it arrives even if its sender dies."""
        link = transport.link
        if self.is_swallowed(transport) or (link.faults.drop and sort_of(request) in link.faults.drop):
            return
        loop = asyncio.get_running_loop()
        delay_s = self.delay(transport.up, transport, "request", request)
        loop.call_later(delay_s, self._arrive, transport, identity, request, answer, context=self.context)
        if link.faults.duplicate and self.random.random() < link.faults.duplicate:
            late_s = self.latency(link) + self.random.uniform(0.0, DUPLICATE_LATE_MAX_S) * self.random.random()
            loop.call_later(late_s, self._arrive, transport, identity, request, None, context=self.context)

    def deliver_late(self, node: str, request: Request, late_s: float) -> None:
        """Deliver a node's request `late_s` later, even if its sender has died; the response is dropped."""
        sender, orphaned = node_identity(node), SimTransport(self, Lifetime("network", 1))
        loop = asyncio.get_running_loop()
        loop.call_later(late_s, self._arrive, orphaned, sender, request, None, context=self.context)

    def _arrive(self, transport: SimTransport, identity: Identity, request: Request, answer: Answer | None) -> None:
        up = self.up
        if up is None:
            if answer is not None:
                asyncio.get_running_loop().call_later(CONNECTION_REFUSED_S, _settle, answer, "connection refused")
            return
        if answer is not None:
            self._answers[answer] = None
        self.loop.run_for(self.server_context, self._begin, transport, up, identity, request, answer)

    def _begin(
        self, transport: SimTransport, up: Up, identity: Identity, request: Request, answer: Answer | None
    ) -> None:
        """Have the server begin a call, in its own time; no task is made for what the writer will answer."""
        if up.life.is_over:
            return
        begun: Response | Awaitable[Response]
        try:
            begun = up.api_for(identity).begin(request)
        except ApiError as error:
            begun = _refusal(error)
        if isinstance(begun, Response):
            self._reply(transport, request, answer, begun)
        elif isinstance(begun, asyncio.Future):
            served = partial(self._on_answered, transport, up.life, request, answer)
            begun.add_done_callback(served, context=self.server_context)
        else:
            work = self._serve(transport, begun, request, answer)
            up.life.adopt(asyncio.create_task(work, context=self.server_context))

    async def _serve(
        self, transport: SimTransport, begun: Awaitable[Response], request: Request, answer: Answer | None
    ) -> None:
        try:
            response = await begun
        except ApiError as error:  # a refusal raised instead of returned is an answer all the same
            response = _refusal(error)
        self._reply(transport, request, answer, response)

    def _on_answered(
        self,
        transport: SimTransport,
        life: Lifetime,
        request: Request,
        answer: Answer | None,
        begun: asyncio.Future[Response],
    ) -> None:
        if life.is_over or begun.cancelled():
            return
        error = begun.exception()
        if isinstance(error, ApiError):
            self._reply(transport, request, answer, _refusal(error))
        else:
            self._reply(transport, request, answer, begun.result())

    def _reply(self, transport: SimTransport, request: Request, answer: Answer | None, response: Response) -> None:
        """Send an answer, unless its caller has given up or the link loses it."""
        if answer is None:
            return
        link = transport.link
        if (link.faults.cut and link.faults.cuts_replies) or self._is_lost(link):
            self._answers.pop(answer, None)
            return
        delay_s = self.delay(transport.down, transport, "reply", (request, response))
        deliver = self._deliver if delay_s else self._deliver_last
        asyncio.get_running_loop().call_later(delay_s, deliver, answer, response, context=self.context)

    def _deliver_last(self, answer: Answer, response: Response) -> None:
        """Deliver an answer over a link without latency after the watch events of its moment: who asks over it, a
        scenario's observer, has then seen what was answered.
        """
        self.loop.call_soon(self._deliver, answer, response, context=self.context)

    def _deliver(self, answer: Answer, response: Response) -> None:
        self._answers.pop(answer, None)
        _settle(answer, response)


class SimTransport:
    """One incarnation's connection, which provides the API server for each of its identities. `gates`: fault
    gates of its nodes, over all its incarnations.
    """

    def __init__(self, network: Network, life: Lifetime, gates: Gates | None = None) -> None:
        self.network = network
        self.life = life
        self.link = network.profile(life.component)
        self.gates = gates if gates is not None else Gates(network.random)
        self.up, self.down = _Stream(), _Stream()
        self.identities: dict[str, Identity] = {}
        self.main: Identity | None = None

    def api(self, identity: str = "") -> Api:
        """Return the API server for the main identity or a named one."""
        caller = self.identities[identity] if identity else self.main
        assert caller is not None
        return ObservedApi(SimApi(self, caller), self.gates)

    async def node_api(self, node: str) -> Api:
        """Return the API server for a node, after one call to bootstrap, as in the real transport."""
        assert self.main is not None
        gate = self.gates.of(node)
        request = Request(verb="create", resource="nodetokens", name=node, deadline_s=ATTEMPT_MAX_S)
        (await SimApi(self, self.main, gate).call(request)).unwrap()
        return ObservedApi(SimApi(self, node_identity(node), gate), self.gates)


class SimApi:
    """`Api` over a simulated link, behind the gate of its node."""

    def __init__(self, transport: SimTransport, identity: Identity, gate: Gate | None = None) -> None:
        self._transport, self._identity, self._gate = transport, identity, gate
        self._recorder = transport.network.recorder
        self._way = self._over(_Wire(transport, identity))

    def _over(self, wire: _Wire) -> Api:
        return wire if self._gate is None else GatedApi(wire, self._gate)

    async def call(self, request: Request) -> Response:
        """Return the server's response, or raise `UnknownOutcome` at the deadline or a lost connection."""
        response = await self._way.call(request)
        if self._recorder is not None:
            self._recorder.on_response(request, response)
        return response

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches in order, each after the link's latency."""
        recorder, wire = self._recorder, _Wire(self._transport, self._identity)
        stream = self._over(wire).watch(request)
        try:
            async for batch in stream:
                wire.check_alive()
                if recorder is not None:
                    recorder.on_watch_events(wire.number, batch)
                yield batch
        finally:
            await stream.aclose()  # type: ignore[attr-defined]
            if recorder is not None and wire.number >= 0:
                recorder.on_watch_closed(wire.number)


class _Wire:
    """The link itself. `number`: the recorder's number for the watch that was opened last."""

    def __init__(self, transport: SimTransport, identity: Identity) -> None:
        self._transport = transport
        self._network = transport.network
        self._identity = identity
        self.number = -1

    async def call(self, request: Request) -> Response:
        self.check_alive()
        deadline_s = request.deadline_s or REQUEST_DEADLINE_S
        loop = asyncio.get_running_loop()
        answer: Answer = loop.create_future()
        late = f"no answer to {request.verb} {request.resource} within {deadline_s:g} s"
        timer = loop.call_later(deadline_s, _settle, answer, late)
        self._network.send(self._transport, self._identity, request, answer)
        try:
            response = await answer
        finally:
            timer.cancel()
        self.check_alive()
        if isinstance(response, str):
            raise UnknownOutcome(response)
        return response

    def check_alive(self) -> None:
        """Raise CancelledError in an incarnation that is over."""
        if self._transport.life.is_over:
            raise asyncio.CancelledError

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        self.check_alive()
        if self._network.is_swallowed(self._transport):
            await asyncio.sleep(WATCH_SILENCE_S)
            raise UnknownOutcome(f"watch silent for {WATCH_SILENCE_S:g} s")
        await asyncio.sleep(self._network.delay(self._transport.up, self._transport, "request", request))
        self.check_alive()
        up = self._network.up
        if up is None:
            await asyncio.sleep(CONNECTION_REFUSED_S)
            raise UnknownOutcome("connection refused")
        pipe = _WatchPipe(self._network, self._transport, up)
        pipe.open(self._identity, request)
        recorder, mine = self._network.recorder, self._transport.life
        if recorder is not None:
            self.number = recorder.on_watch_opened(mine.component, mine.incarnation, self._identity.user, request)
        try:
            async for batch in pipe.batches():
                yield batch
        finally:
            pipe.close()


def _refusal(error: ApiError) -> Response:
    return Response(code=error.code, body=msgspec.json.encode(error.status()))


def _settle(answer: Answer, outcome: Response | str) -> None:
    if not answer.done():
        answer.set_result(outcome)


class _WatchPipe:
    """Pipe for one watch's batches: the server's side puts them in, the client's side takes them out.

    It is a stream of its own on the connection, so that delayed watch events delay nothing else.
    """

    def __init__(self, network: Network, transport: SimTransport, up: Up) -> None:
        self._network, self._transport, self._up = network, transport, up
        self._server_context = network.server_context
        self._loop = network.loop
        self._stream = _Stream()
        self._queue: deque[tuple[float, list[WatchEvent] | ApiError | None]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._watcher: Watching | None = None
        self._is_full = self._is_planned = self._is_closed = False
        self._received_s = self._resend_at = self._loop.time()
        self._silence = self._loop.call_later(WATCH_SILENCE_S, self._wake)
        up.gone.add_done_callback(self._wake)

    def open(self, identity: Identity, request: WatchRequest) -> None:
        """Have the server begin the watch, in its own time."""
        self._loop.run_for(self._server_context, self._begin, identity, request)

    def _begin(self, identity: Identity, request: WatchRequest) -> None:
        if self._is_closed or self._up.life.is_over:
            return
        try:
            self._watcher = self._up.api_for(identity).open_watch(request, self._plan)
        except ApiError as error:
            self._send(error)
            return
        self._plan(self._watcher)

    def _plan(self, _: object) -> None:
        """Have what the server has for this watch sent in its next turn, so that a group is one batch."""
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._take, context=self._server_context)

    def _take(self) -> None:
        """Send what the server has for this watch, as far as there is room, and then its end."""
        self._is_planned = False
        if self._is_closed or self._up.life.is_over or self._watcher is None:
            return
        while batch := self._watcher.take():
            self._send(batch)
            if len(self._queue) >= WATCH_BATCHES_MAX:
                self._is_full = True
                return
        if self._watcher.is_over:
            self._watcher.close()
            self._watcher = None
            self._send(None)

    def _end(self) -> None:
        """Tell the server that its client has gone."""
        if self._watcher is not None and not self._up.life.is_over:
            self._watcher.close()

    def _send(self, item: list[WatchEvent] | ApiError | None) -> None:
        network, transport, link = self._network, self._transport, self._transport.link
        delay_s = network.latency(link) + link.faults.watch_delay_s
        arrival = network.arrival(self._stream, transport.life.component, "watch", item, self._loop.time(), delay_s)
        self._queue.append((arrival, item))
        self._loop.call_at(arrival, self._wake, context=self._network.context)

    def _wake(self, _: object = None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Stop; the server learns of it in its own time."""
        self._is_closed = True
        if self._watcher is not None:
            self._loop.call_soon(self._end, context=self._server_context)
        self._silence.cancel()
        self._up.gone.remove_done_callback(self._wake)

    async def batches(self) -> AsyncIterator[list[WatchEvent]]:
        """Yield each batch when it arrives; raise on reset, on a refusal and on 30 s of silence."""
        loop = self._loop
        while True:
            now = loop.time()
            if self._up.gone.done():
                raise UnknownOutcome("connection reset")
            faults = self._transport.link.faults
            is_cut = faults.cut and faults.cuts_replies
            if not self._queue or self._queue[0][0] > now or is_cut:
                if now >= self._received_s + WATCH_SILENCE_S:
                    raise UnknownOutcome(f"watch silent for {WATCH_SILENCE_S:g} s")
                if now >= self._silence.when():
                    self._silence = loop.call_at(self._received_s + WATCH_SILENCE_S, self._wake)
                if is_cut and now >= self._resend_at:
                    self._resend_at = now + RESEND_S
                    loop.call_at(self._resend_at, self._wake)
                self._waiter = loop.create_future()
                await self._waiter
                continue
            _, item = self._queue.popleft()
            if self._is_full:
                self._is_full = False
                self._plan(None)
            self._received_s = now
            if item is None:
                return
            if isinstance(item, ApiError):
                raise item
            yield item
