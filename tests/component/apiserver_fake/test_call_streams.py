"""A stream of calls that its client has closed ends when everything on it is answered, and not before."""

import asyncio

import grpc.aio
import msgspec
import pytest

from apiserver_fake.grpc.server import GrpcServer
from lab.scenarios.simulation import simloop
from protos.mesh.v1 import apiserver_pb2 as pb
from services.api.identity import ADMIN
from services.api.wire import Request
from tests.component.apiserver_fake.test_server import LoopClock, Machine


class Stream:
    """The server's side of a stream: the frames the client sends, then its end; `sent`: what it was answered."""

    def __init__(self, *frames):
        self._frames, self.sent = list(frames), []

    def peer(self):
        return "unix:client"

    def invocation_metadata(self):
        return (("authorization", "Bearer t"),)

    async def send_initial_metadata(self, metadata):
        pass

    async def read(self):
        return self._frames.pop(0) if self._frames else grpc.aio.EOF

    async def write(self, message):
        self.sent += pb.ResponseBatch.FromString(message).responses


def node(number, name):
    body = msgspec.json.encode({"metadata": {"name": name}})
    return pb.Request(id=number, verb="create", resource="nodes", body=body)


def read(number, name):
    return pb.Request(id=number, verb="get", resource="nodes", name=name)


def broken(*_, **__):
    raise RuntimeError("broken on purpose")


class BrokenTrail:
    annotated = answered = completed = broken


def answers(server, frame):
    """Return the code of each call of a frame, by its number."""

    async def scenario():
        stream = Stream(pb.RequestBatch(requests=frame))
        async with asyncio.timeout(60.0):
            await GrpcServer(server, LoopClock()).Mutate(None, stream)
        return {each.id: each.code for each in stream.sent}

    return scenario()


def break_beginning(server, monkeypatch):
    start = server.start
    monkeypatch.setattr(server, "start", lambda who, request: (broken if request.name == "x" else start)(who, request))


def break_waiting(server, monkeypatch):
    start = server.start

    async def later():
        await asyncio.sleep(0)
        broken()

    monkeypatch.setattr(server, "start", lambda who, request: later() if request.name == "x" else start(who, request))


def break_future(server, monkeypatch):
    start = server.start

    def begin(who, request):
        if request.name != "x":
            return start(who, request)
        future = asyncio.get_running_loop().create_future()
        future.set_exception(RuntimeError("broken on purpose"))
        return future

    monkeypatch.setattr(server, "start", begin)


def break_audit(server, monkeypatch):
    monkeypatch.setattr(server, "audit", object())
    trail = lambda server, caller, who, request: BrokenTrail() if request.name == "x" else None  # noqa: E731
    monkeypatch.setattr("apiserver_fake.grpc.server._begin_trail", trail)


@pytest.mark.parametrize("break_it", [break_beginning, break_waiting, break_future, break_audit])
def test_a_call_that_trips_over_a_bug_is_answered_500_and_its_stream_goes_on(monkeypatch, break_it):
    async def scenario():
        async with Machine().server() as server:
            monkeypatch.setattr(server.callers, "authenticate", lambda bearer, peer="": ADMIN)
            break_it(server, monkeypatch)
            return await answers(server, [read(1, "n"), read(2, "x"), node(3, "n"), read(4, "x")])

    assert {1: 404, 2: 500, 3: 201, 4: 500} == simloop.run(scenario())


@pytest.mark.parametrize("part", ["_read", "_start_write", "registry"])
def test_a_call_that_trips_over_a_bug_is_counted_as_ended(monkeypatch, part):
    async def scenario():
        async with Machine().server() as server:
            monkeypatch.setattr(server.callers, "authenticate", lambda bearer, peer="": ADMIN)
            monkeypatch.setattr(type(server), part, property(broken) if part == "registry" else broken)
            codes = await answers(server, [read(1, "n"), node(2, "n")])
            return codes, server.requests.in_flight()

    codes, in_flight = simloop.run(scenario())
    assert 500 in codes.values()
    assert {"readOnly": 0, "mutating": 0} == in_flight


def test_a_call_whose_caller_leaves_is_counted_as_ended(monkeypatch):
    async def scenario():
        async with Machine().server() as server:
            task = asyncio.create_task(
                server.start(ADMIN, Request(verb="get", resource="nodes", name="n", resource_version=str(1 << 60)))
            )
            await asyncio.sleep(0.01)
            during = server.requests.in_flight()["readOnly"]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return during, server.requests.in_flight()["readOnly"]

    assert (1, 0) == simloop.run(scenario())


@pytest.mark.parametrize(
    ("frames", "codes"),
    [
        ((), {}),
        (([read(1, "n")],), {1: 404}),
        (([node(1, "n")],), {1: 201}),
        (([node(1, "n"), read(2, "m"), node(3, "o")], [node(4, "n")]), {1: 201, 2: 404, 3: 201, 4: 409}),
    ],
)
def test_a_stream_that_is_closed_by_its_client_ends_once_every_call_is_answered(monkeypatch, frames, codes):
    async def scenario():
        async with Machine().server() as server:
            monkeypatch.setattr(server.callers, "authenticate", lambda bearer, peer="": ADMIN)
            stream = Stream(*(pb.RequestBatch(requests=frame) for frame in frames))
            async with asyncio.timeout(60.0):
                await GrpcServer(server, LoopClock()).Mutate(None, stream)
            return {each.id: each.code for each in stream.sent}

    assert simloop.run(scenario()) == codes
