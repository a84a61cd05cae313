"""The client's half of the wire, against a server that answers as the test says, over a real channel."""

import asyncio
import random
from contextlib import asynccontextmanager

import grpc.aio
import msgspec
import pytest

from protos.mesh.v1 import apiserver_pb2 as pb
from protos.mesh.v1.apiserver_pb2_grpc import ApiServerServicer, add_ApiServerServicer_to_server
from services.api.errors import Expired, Forbidden, Unauthorized, UnknownOutcome
from services.api.wire import Request, WatchRequest
from services.client import watch_stream
from services.client.channel import SERVER_OPTIONS, STREAM_TAKEN
from services.client.rpc import RpcTransport
from services.runtime.real import RealClock

STOP = object()


class Server(ApiServerServicer):
    """Answers calls with `answer(request) -> Response | None` and watches with `frames(open) -> [WatchFrame]`."""

    def __init__(self):
        self.answer = lambda r: pb.Response(id=r.id, code=200, body=r.name.encode())
        self.frames = lambda w: []
        self.batch_sizes: list[int] = []
        self.closed: list[int] = []
        self.authorizations: list[str] = []
        self.hang_up = asyncio.Event()
        self.answers_unauthenticated = False

    async def _admit(self, context):
        self.authorizations.append(dict(context.invocation_metadata()).get("authorization", ""))
        if self.answers_unauthenticated:
            status = msgspec.json.encode(Unauthorized("the token is unknown").status())
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED, "who?", trailing_metadata=(("mesh-status-bin", status),)
            )
        await context.send_initial_metadata(STREAM_TAKEN)

    async def Mutate(self, request_iterator, context):  # noqa: N802
        await self._admit(context)
        async for batch in request_iterator:
            self.batch_sizes.append(len(batch.requests))
            answers = [answer for r in batch.requests if (answer := self.answer(r)) is not None]
            if any(a is STOP for a in answers):
                return
            if answers:
                yield pb.ResponseBatch(responses=[m for a in answers for m in (a if isinstance(a, list) else [a])])

    async def Watch(self, request_iterator, context):  # noqa: N802
        await self._admit(context)
        yield pb.WatchFrame(heartbeat=True)
        async for control in request_iterator:
            self.closed += control.close
            for opened in control.open:
                for frame in self.frames(opened):
                    if frame is STOP:
                        return
                    yield frame


@asynccontextmanager
async def a_wire(tokens=None):
    server, server_side = Server(), grpc.aio.server(options=SERVER_OPTIONS)
    add_ApiServerServicer_to_server(server, server_side)
    port = server_side.add_insecure_port("127.0.0.1:0")
    await server_side.start()
    transport = RpcTransport(
        f"127.0.0.1:{port}", {"system:kube-scheduler": "secret"} if tokens is None else tokens,
        clock=RealClock(), random=random.Random(1),
    )  # fmt: skip
    try:
        yield server, transport
    finally:
        await transport.close()
        await server_side.stop(None)


def run(scenario):
    async def bounded():
        async with asyncio.timeout(20):
            await scenario()

    asyncio.run(bounded())


def get(name="web", **rest):
    return Request(verb="get", resource="pods", namespace="default", name=name, **rest)


def event(rv, kind="ADDED"):
    return pb.WatchEvent(type=kind, name=f"p{rv}", rv=rv, body=b"{}", traceparent="tp")


def test_many_calls_at_once_share_messages_and_each_gets_its_own_answer():
    async def scenario():
        async with a_wire() as (server, transport):
            api = transport.api()
            answers = await asyncio.gather(*(api.call(get(f"p{i}")) for i in range(300)))

            assert [f"p{i}".encode() for i in range(300)] == [a.body for a in answers]
            assert 10 > len(server.batch_sizes)
            assert ["Bearer secret"] == server.authorizations

    run(scenario)


def test_a_refusal_is_an_answer_and_a_big_answer_comes_in_parts():
    async def scenario():
        async with a_wire() as (server, transport):
            status = msgspec.json.encode(Forbidden("no").status())
            server.answer = lambda r: [
                pb.Response(id=r.id, body=b"ab", more=True),
                pb.Response(id=r.id, code=403, body=status, rv=7, warnings=["w"]),
            ]
            answer = await transport.api().call(get())

            assert (403, b"ab" + status, 7, ("w",)) == (answer.code, answer.body, answer.rv, answer.warnings)

    run(scenario)


def test_another_identity_speaks_with_its_own_token_and_an_unknown_one_is_a_key_error():
    async def scenario():
        async with a_wire({"a": "ta", "b": "tb"}) as (server, transport):
            server.answer = lambda r: pb.Response(id=r.id, code=200, body=r.token.encode())

            assert b"" == (await transport.api("a").call(get())).body
            assert b"tb" == (await transport.api("b").call(get())).body
            with pytest.raises(KeyError, match="no token of c"):
                transport.api("c")

    run(scenario)


def test_a_node_token_is_fetched_once_and_again_after_it_was_refused():
    async def scenario():
        async with a_wire() as (server, transport):
            handed_out = []

            def answer(r):
                if r.resource == "nodetokens":
                    handed_out.append(r.name)
                    return pb.Response(id=r.id, code=201, body=msgspec.json.encode({"token": f"t{len(handed_out)}"}))
                if r.token == "t1":
                    return pb.Response(id=r.id, code=401, body=msgspec.json.encode(Unauthorized("old").status()))
                return pb.Response(id=r.id, code=200, body=r.token.encode())

            server.answer = answer
            api = await transport.node_api("n1")
            again = await transport.node_api("n1")

            assert b"t2" == (await api.call(get())).body == (await again.call(get())).body
            assert ["n1", "n1"] == handed_out

    run(scenario)


def test_no_answer_within_the_deadline_is_an_unknown_outcome():
    async def scenario():
        async with a_wire() as (server, transport):
            server.answer = lambda r: None

            with pytest.raises(UnknownOutcome, match=r"get pods default/web: no answer within 0.1 s"):
                await transport.api().call(get(deadline_s=0.1))

    run(scenario)


def test_a_lost_connection_is_an_unknown_outcome_for_what_was_sent_and_the_next_call_succeeds():
    async def scenario():
        async with a_wire() as (server, transport):
            whole = server.answer
            server.answer = lambda r: STOP
            with pytest.raises(UnknownOutcome, match="connection lost"):
                await transport.api().call(get())
            server.answer = whole

            assert 200 == (await transport.api().call(get())).code

    run(scenario)


def test_nothing_listening_waits_and_says_so_until_the_deadline(capfd):
    async def scenario():
        transport = RpcTransport("127.0.0.1:1", {"a": "t"}, clock=RealClock(), random=random.Random(1))
        with pytest.raises(UnknownOutcome, match=r"no connection to 127.0.0.1:1 within 3 s"):
            await transport.api().call(get(deadline_s=3))
        await transport.close()

    run(scenario)
    reported = capfd.readouterr()
    assert 1 == (reported.out + reported.err).count("apiserver.unreachable")


def test_a_refused_token_is_a_definite_401_for_calls_and_watches():
    async def scenario():
        async with a_wire() as (server, transport):
            server.answers_unauthenticated = True

            assert 401 == (await transport.api().call(get())).code
            with pytest.raises(Unauthorized, match="the token is unknown"):
                async for _ in transport.api().watch(WatchRequest(resource="pods")):
                    pass

    run(scenario)


def test_nothing_is_written_before_the_server_has_taken_the_stream():
    """A write into a refusal would hide its reason."""

    async def scenario():
        async with a_wire() as (server, transport):
            asked, may_answer = asyncio.Event(), asyncio.Event()
            server.answers_unauthenticated = True

            async def admit(context, admit=server._admit):
                asked.set()
                await may_answer.wait()
                await admit(context)

            server._admit = admit
            call = asyncio.create_task(transport.api().call(get()))
            await asked.wait()
            for _ in range(3):
                # Whole round trips of another call: time enough for a write that should not be.
                with pytest.raises(grpc.aio.AioRpcError):
                    await transport._link.stub.Call(pb.Request())
            sent = transport.metrics()["keplab_rpc_requests_total"]
            may_answer.set()

            assert 401 == (await call).code
            assert sent == 0

    run(scenario)


def test_two_watches_share_a_stream_and_each_sees_its_own_events_in_order():
    async def scenario():
        async with a_wire() as (server, transport):
            server.frames = lambda w: [
                pb.WatchFrame(batches=[pb.WatchBatch(id=w.id, events=[event(1), event(2)])]),
                pb.WatchFrame(batches=[pb.WatchBatch(id=w.id, events=[event(3)])], ends=[pb.WatchEnd(id=w.id)]),
            ]

            async def read(resource):
                return [e async for b in transport.api().watch(WatchRequest(resource=resource)) for e in b]

            pods, nodes = await asyncio.gather(read("pods"), read("nodes"))

            assert [("pods", 1), ("pods", 2), ("pods", 3)] == [(e.resource, e.rv) for e in pods]
            assert [("nodes", 1), ("nodes", 2), ("nodes", 3)] == [(e.resource, e.rv) for e in nodes]
            assert 1 == len(server.authorizations)

    run(scenario)


def test_a_refused_watch_raises_and_a_broken_stream_is_an_unknown_outcome_after_what_had_come():
    async def scenario():
        async with a_wire() as (server, transport):
            status = msgspec.json.encode(Expired("too old").status())
            server.frames = lambda w: [pb.WatchFrame(ends=[pb.WatchEnd(id=w.id, code=410, status=status)])]
            with pytest.raises(Expired, match="too old"):
                async for _ in transport.api().watch(WatchRequest(resource="pods")):
                    pass

            server.frames = lambda w: [pb.WatchFrame(batches=[pb.WatchBatch(id=w.id, events=[event(5)])]), STOP]
            batches = transport.api().watch(WatchRequest(resource="pods"))

            assert [5] == [e.rv for e in await anext(batches)]
            with pytest.raises(UnknownOutcome, match="connection lost"):
                await anext(batches)

    run(scenario)


def test_a_reader_that_leaves_closes_its_watch_at_the_server():
    async def scenario():
        async with a_wire() as (server, transport):
            server.frames = lambda w: [pb.WatchFrame(batches=[pb.WatchBatch(id=w.id, events=[event(1)])])]
            batches = transport.api().watch(WatchRequest(resource="pods"))
            await anext(batches)
            await batches.aclose()
            while not server.closed:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

            assert 0 == transport.metrics()["keplab_rpc_watches_open"]

    run(scenario)


def test_a_silent_server_is_given_up(monkeypatch):
    monkeypatch.setattr(watch_stream, "SILENCE_MAX_S", 0.3)

    async def scenario():
        async with a_wire() as (server, transport):
            server.frames = lambda w: [pb.WatchFrame(batches=[pb.WatchBatch(id=w.id, events=[event(1)])])]

            with pytest.raises(UnknownOutcome, match="no frame for"):
                async for _ in transport.api().watch(WatchRequest(resource="pods")):
                    pass

    run(scenario)
