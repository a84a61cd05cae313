"""A stream of calls that its client has closed ends when everything on it is answered, and not before."""

import asyncio

import grpc.aio
import msgspec
import pytest

from apiserver_fake.grpc.server import GrpcServer
from protos.mesh.v1 import apiserver_pb2 as pb
from services.api.identity import ADMIN
from services.scenarios.simulation import simloop
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
            monkeypatch.setattr(server, "authenticate", lambda bearer, peer="": ADMIN)
            stream = Stream(*(pb.RequestBatch(requests=frame) for frame in frames))
            async with asyncio.timeout(60.0):
                await GrpcServer(server, LoopClock()).Mutate(None, stream)
            return {each.id: each.code for each in stream.sent}

    assert simloop.run(scenario()) == codes
