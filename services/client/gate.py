"""Injectable faults between a process, or one of its nodes, and the API server.

A kubelet host carries the calls of all its nodes over one connection. To cut off a single node, its calls and
watches pass a gate of their own. A gate without faults costs a comparison. Messages of one direction never
overtake each other; messages of different watches do, like separate streams of one connection.
Source: kubelet 9 (`network` gate); guarantees 7, FM-N1, FM-N3, FM-N5.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, TypeVar

from services.api.errors import ApiError, UnknownOutcome
from services.api.seams import Random, Transport
from services.api.wire import Api, Request, Response, WatchEvent, WatchRequest
from services.client.client import ATTEMPT_MAX_S
from services.client.link_faults import HEALTHY, LinkFaults, sort_of

T = TypeVar("T")

REQUEST_DEADLINE_S = 30.0
WATCH_SILENCE_S = 30.0
DUPLICATE_LATE_MAX_S = 3.0
"""Maximum delay of the second copy of a duplicated request, in seconds."""
APART_S = 1e-6
"""Minimum time between two arrivals, in seconds, so that their order is unambiguous."""


class Gate:
    """The gate of one link: its faults, and the tasks that wait for a change of them."""

    def __init__(self, random: Random, on_late: Callable[[Request, float], None] | None = None) -> None:
        self.faults = HEALTHY
        self.random = random
        self._on_late = on_late
        self._up_s = self._down_s = 0.0
        """When the last message of each direction arrives; nothing later arrives before."""
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._copies: dict[asyncio.Task[None], None] = {}

    def set(self, faults: LinkFaults) -> None:
        """Replace the link's faults."""
        self.faults = HEALTHY if faults == HEALTHY else faults
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)

    @property
    def is_open(self) -> bool:
        """Whether a message sent now passes without delay or fault."""
        return self.faults is HEALTHY and max(self._up_s, self._down_s) <= asyncio.get_running_loop().time()

    async def change(self) -> None:
        """Wait until the faults are replaced."""
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            await future
        finally:
            self._waiting.pop(future, None)

    async def pass_through(self, work: Callable[[], Awaitable[T]], sort: str, what: str, deadline_s: float) -> T:
        """Pass the request and the answer through the gate and return the work's result. Raises: UnknownOutcome at the
        deadline.
        """
        try:
            async with asyncio.timeout(deadline_s):
                if self.faults.cuts_requests or sort in self.faults.drop or self._is_lost():
                    await self._nothing()
                await self._take_time(is_up=True)
                if self.faults.duplicate and self.random.random() < self.faults.duplicate:
                    self._send_again(work)
                answer = await work()
                if self.faults.cuts_replies or self._is_lost():
                    await self._nothing()
                await self._take_time(is_up=False)
                return answer
        except TimeoutError:
            raise UnknownOutcome(f"no answer to {what} within {deadline_s:g} s") from None

    async def delivered_late(self, request: Request) -> Response:
        """Hand the request over for late delivery, and wait for an answer that never comes."""
        if self._on_late is not None:
            self._on_late(request, self.faults.late[sort_of(request)])
        await self._nothing()
        raise AssertionError("nothing has come to an end")

    async def wait_open(self, what: str) -> None:
        """Wait until a stream is open: one request, sent until it arrives. Raises: UnknownOutcome."""
        try:
            async with asyncio.timeout(WATCH_SILENCE_S):
                while self.faults.cuts_requests:
                    await self.change()
                await self._take_time(is_up=True)
        except TimeoutError:
            raise UnknownOutcome(f"{what}: silent for {WATCH_SILENCE_S:g} s") from None

    def _is_lost(self) -> bool:
        return self.faults.loss > 0 and self.random.random() < self.faults.loss

    @staticmethod
    async def _nothing() -> None:
        """Wait for an answer that does not come."""
        await asyncio.get_running_loop().create_future()

    async def _take_time(self, *, is_up: bool) -> None:
        now = asyncio.get_running_loop().time()
        due_s = max((self._up_s if is_up else self._down_s) + APART_S, now + self.faults.delay_s(self.random))
        if is_up:
            self._up_s = due_s
        else:
            self._down_s = due_s
        if due_s > now:
            await asyncio.sleep(due_s - now)

    def _send_again(self, work: Callable[[], Awaitable[Any]]) -> None:
        late_s = self.random.uniform(0.0, DUPLICATE_LATE_MAX_S) * self.random.random()

        async def send() -> None:
            await asyncio.sleep(late_s)
            with suppress(ApiError, UnknownOutcome):  # no caller waits for this answer
                await work()

        task = asyncio.get_running_loop().create_task(send())
        self._copies[task] = None
        task.add_done_callback(lambda done: self._copies.pop(done, None))


class Gates:
    """The gates of one process by name: "" is the process's own, others are nodes'. They outlive a transport."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._gates: dict[str, Gate] = {}
        self.on_call: Callable[[str, str], None] | None = None
        """Called with `before` or `after`, and which call: `pods/status`."""
        self.on_late_request: Callable[[str, Request, float], None] | None = None
        """Takes the gate that a request passed, the request, and how many seconds later it is to arrive, whatever
        becomes of its sender."""

    def of(self, name: str) -> Gate:
        """Return the gate of that name."""
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = Gate(self._random, partial(self._late_request, name))
        return gate

    def _late_request(self, name: str, request: Request, late_s: float) -> None:
        if self.on_late_request is not None:
            self.on_late_request(name, request, late_s)

    def set_all(self, faults: dict[str, LinkFaults]) -> None:
        """Set these faults; all other gates become healthy."""
        for name in [*self._gates, *(name for name in faults if name not in self._gates)]:
            wanted = faults.get(name, HEALTHY)
            if wanted != self.of(name).faults:
                self.of(name).set(wanted)


class GatedApi:
    """`Api` behind a gate."""

    def __init__(self, api: Api, gate: Gate) -> None:
        self._api, self._gate = api, gate

    async def call(self, request: Request) -> Response:
        """Return the answer. Raises: UnknownOutcome when it, or the request, was lost."""
        if self._gate.is_open:
            return await self._api.call(request)
        what = f"{request.verb} {request.resource}"
        deadline_s = request.deadline_s or REQUEST_DEADLINE_S
        sort = sort_of(request)
        call = self._gate.delivered_late if sort in self._gate.faults.late else self._api.call
        return await self._gate.pass_through(lambda: call(request), sort, what, deadline_s)

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches in order; while the gate has faults, late or not at all."""
        gate = self._gate
        if not gate.is_open:
            await gate.wait_open(f"watch {request.resource}")
        source = self._api.watch(request)
        try:
            while gate.is_open:
                batch = await anext(source, None)
                if batch is None:
                    return
                if not gate.is_open:
                    break
                yield batch
            else:
                batch = None
            async with aclosing(_late(gate, source, batch)) as batches:
                async for batch in batches:
                    yield batch
        finally:
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()


async def _late(
    gate: Gate, source: AsyncIterator[list[WatchEvent]], first: list[WatchEvent] | None
) -> AsyncGenerator[list[WatchEvent], None]:
    """Yield the rest of a stream, each batch when it arrives. Raises: UnknownOutcome after 30 s without any."""
    loop = asyncio.get_running_loop()
    pipe = _Pipe(gate, first)
    pump = loop.create_task(pipe.pump(source))
    try:
        while True:
            batch = await pipe.take()
            if batch is None:
                pump.result()
                return
            yield batch
    finally:
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)


class _Pipe:
    """Batches in transit to one watcher, ordered by arrival time."""

    def __init__(self, gate: Gate, first: list[WatchEvent] | None) -> None:
        self._gate = gate
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[float, list[WatchEvent]]] = deque()
        self._more = asyncio.Event()
        self._is_over = False
        self._last_s = 0.0
        self._received_s = self._loop.time()
        if first is not None:
            self._put(first)

    async def pump(self, source: AsyncIterator[list[WatchEvent]]) -> None:
        """Read the source to its end; what it raises reaches the watcher behind what came before."""
        try:
            async for batch in source:
                self._put(batch)
        finally:
            self._is_over = True
            self._more.set()

    def _put(self, batch: list[WatchEvent]) -> None:
        faults = self._gate.faults
        delay_s = faults.delay_s(self._gate.random) + faults.watch_delay_s
        self._last_s = max(self._last_s, self._loop.time() + delay_s)
        self._queue.append((self._last_s, batch))
        self._more.set()

    async def take(self) -> list[WatchEvent] | None:
        """Return the next batch; None: the source is over. Raises: UnknownOutcome."""
        try:
            async with asyncio.timeout_at(self._received_s + WATCH_SILENCE_S):
                while not self._queue:
                    if self._is_over:
                        return None
                    self._more.clear()
                    await self._more.wait()
                await asyncio.sleep(max(0.0, self._queue[0][0] - self._loop.time()))
                while self._gate.faults.cuts_replies:
                    await self._gate.change()
        except TimeoutError:
            raise UnknownOutcome(f"watch silent for {WATCH_SILENCE_S:g} s") from None
        self._received_s = self._loop.time()
        return self._queue.popleft()[1]


class ObservedApi:
    """`Api` whose calls are reported to an observer."""

    def __init__(self, api: Api, gates: Gates) -> None:
        self._api, self._gates = api, gates

    def call(self, request: Request) -> Coroutine[Any, Any, Response]:
        """Return the answer. Raises: UnknownOutcome."""
        return self._api.call(request) if self._gates.on_call is None else self._call_observed(request)

    async def _call_observed(self, request: Request) -> Response:
        what = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
        if self._gates.on_call is not None:
            self._gates.on_call("before", what)
        response = await self._api.call(request)
        if self._gates.on_call is not None:
            self._gates.on_call("after", what)
        return response

    def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches."""
        return self._api.watch(request)


class GatedTransport:
    """A `Transport` with a gate on every connection; a node's calls pass the process's own gate and then the node's."""

    def __init__(self, inner: Transport, gates: Gates) -> None:
        self._inner, self._gates = inner, gates

    def api(self, identity: str = "") -> Api:
        """Return the API for one of this process's identities."""
        return ObservedApi(GatedApi(self._inner.api(identity), self._gates.of("")), self._gates)

    async def node_api(self, node: str) -> Api:
        """Return the API for a node. Raises: Forbidden; UnknownOutcome."""
        own, its = self._gates.of(""), self._gates.of(node)
        if own.is_open and its.is_open:
            api = await self._inner.node_api(node)
        else:
            gate = own if not own.is_open else its
            what = f"create nodetokens {node}"
            api = await gate.pass_through(lambda: self._inner.node_api(node), "", what, ATTEMPT_MAX_S)
        return ObservedApi(GatedApi(GatedApi(api, own), its), self._gates)
