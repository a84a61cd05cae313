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
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from lab.scenarios.simulation.lifetime import Lifetime
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


class Up(NamedTuple):
    """The running API server: its API by identity, its incarnation, and a future that is set when it is gone."""

    api_for: Callable[[Identity], Api]
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

    def profile(self, component: str) -> LinkProfile:
        """Return the mutable profile of a component's link."""
        return self.profiles.setdefault(component, LinkProfile())

    def open(
        self, api_for: Callable[[Identity], Api], life: Lifetime, context: contextvars.Context | None = None
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
        latency_s = self.random.uniform(link.latency_min_s, link.latency_max_s)
        return latency_s + link.faults.delay_s(self.random) if link.faults.slow_s else latency_s

    def delay(self, stream: _Stream, transport: SimTransport, way: str, what: Carried) -> float:
        """Return the seconds until a message sent now arrives, after all earlier ones on that stream."""
        now = asyncio.get_running_loop().time()
        component = transport.life.component
        return self.arrival(stream, component, way, what, self.latency(self.profile(component))) - now

    def arrival(self, stream: _Stream, component: str, way: str, what: Carried, latency_s: float) -> float:
        """Return the time at which a message sent now arrives, after all earlier ones on that stream."""
        now = asyncio.get_running_loop().time()
        due_s = stream.arrival(now, latency_s)
        if self.traffic is not None:
            due_s = stream.last_arrival = self.traffic(component, way, what, now, due_s)
        return due_s

    def is_swallowed(self, transport: SimTransport) -> bool:
        """Return whether a request sent now is lost."""
        link = self.profile(transport.life.component)
        return bool(link.faults.cut and link.faults.cuts_requests) or self._is_lost(link)

    def _is_lost(self, link: LinkProfile) -> bool:
        return link.faults.loss > 0 and self.random.random() < link.faults.loss

    def send(self, transport: SimTransport, identity: Identity, request: Request, answer: Answer) -> None:
        """Send a request. From now on it is in transit: it arrives even if its sender dies."""
        link = self.profile(transport.life.component)
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
        work = self._serve(transport, up.api_for(identity), request, answer)
        up.life.adopt(asyncio.create_task(work, context=self.server_context))

    async def _serve(self, transport: SimTransport, api: Api, request: Request, answer: Answer | None) -> None:
        try:
            response = await api.call(request)
        except ApiError as error:  # a refusal raised instead of returned is an answer all the same
            response = Response(code=error.code, body=msgspec.json.encode(error.status()))
        if answer is None:
            return
        link = self.profile(transport.life.component)
        if (link.faults.cut and link.faults.cuts_replies) or self._is_lost(link):
            self._answers.pop(answer, None)
            return
        loop = asyncio.get_running_loop()
        delay_s = self.delay(transport.down, transport, "reply", (request, response))
        loop.call_later(delay_s, self._deliver, answer, response, context=self.context)

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
        pipe = _WatchPipe(self._network, self._transport, up.gone)
        served = pipe.pump(up.api_for(self._identity).watch(request))
        pump = asyncio.create_task(served, context=self._network.server_context)
        up.life.adopt(pump)
        recorder, mine = self._network.recorder, self._transport.life
        if recorder is not None:
            self.number = recorder.on_watch_opened(mine.component, mine.incarnation, self._identity.user, request)
        try:
            async for batch in pipe.batches():
                self.check_alive()
                yield batch
        finally:
            pipe.close()
            pump.cancel()


def _settle(answer: Answer, outcome: Response | str) -> None:
    if not answer.done():
        answer.set_result(outcome)


class _WatchPipe:
    """Pipe for one watch's batches: the server's side puts them in, the client's side takes them out.

    It is a stream of its own on the connection, so that delayed watch events delay nothing else.
    """

    def __init__(self, network: Network, transport: SimTransport, gone: asyncio.Future[None]) -> None:
        self._network, self._transport, self._gone = network, transport, gone
        self._loop = asyncio.get_running_loop()
        self._stream = _Stream()
        self._queue: deque[tuple[float, list[WatchEvent] | ApiError | None]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._has_capacity = asyncio.Event()
        self._has_capacity.set()
        self._received_s = self._resend_at = self._loop.time()
        self._silence = self._loop.call_later(WATCH_SILENCE_S, self._wake)
        gone.add_done_callback(self._wake)

    async def pump(self, source: AsyncIterator[list[WatchEvent]]) -> None:
        """Send what the server yields, its end or its refusal."""
        ending: ApiError | None = None
        try:
            async for batch in source:
                self._send(batch)
                if len(self._queue) >= WATCH_BATCHES_MAX:
                    self._has_capacity.clear()
                    await self._has_capacity.wait()
        except ApiError as error:
            ending = error
        self._send(ending)

    def _send(self, item: list[WatchEvent] | ApiError | None) -> None:
        component = self._transport.life.component
        link = self._network.profile(component)
        delay_s = self._network.latency(link) + link.faults.watch_delay_s
        arrival = self._network.arrival(self._stream, component, "watch", item, delay_s)
        self._queue.append((arrival, item))
        self._loop.call_at(arrival, self._wake, context=self._network.context)

    def _wake(self, _: object = None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        self._silence.cancel()
        self._gone.remove_done_callback(self._wake)

    async def batches(self) -> AsyncIterator[list[WatchEvent]]:
        """Yield each batch when it arrives; raise on reset, on a refusal and on 30 s of silence."""
        loop = self._loop
        while True:
            now = loop.time()
            if self._gone.done():
                raise UnknownOutcome("connection reset")
            faults = self._network.profile(self._transport.life.component).faults
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
            self._has_capacity.set()
            self._received_s = now
            if item is None:
                return
            if isinstance(item, ApiError):
                raise item
            yield item
