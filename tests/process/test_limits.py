"""Limits of connections, bodies, logins and memory, over real sockets (guarantees 9; FM-N6, FM-X8)."""

import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
import sys
from contextlib import asynccontextmanager

import aiohttp
import grpc
import msgspec
import pytest
from structlog.testing import capture_logs

from apiserver_fake.grpc import server as grpc_server
from apiserver_fake.rates import Count
from apiserver_fake.rest import http
from apiserver_fake.rest import server as rest
from apiserver_fake.rest.handlers import authentication
from apiserver_fake.rest.listener import Listener
from apiserver_fake.storage import memory
from services.runtime.certificates import authority
from services.runtime.real import RealClock
from tests.process import test_apiserver_grpc as endpoints
from tests.process.test_apiserver_grpc import a_client, a_create, in_loop, until

GET = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def a_server(tmp_path, monkeypatch, **settings):
    if settings:
        made = rest.RestSettings
        monkeypatch.setattr("apiserver_fake.rest.server.RestSettings", lambda *a, **more: made(*a, **more, **settings))
    async with endpoints.a_server(tmp_path) as server:
        yield server


async def opened(server):
    return await asyncio.open_connection("127.0.0.1", server.rest_port)


async def until_its_end(reader, within_s=10.0):
    async with asyncio.timeout(within_s):
        return await reader.read()


def test_a_body_that_does_not_end_is_refused_and_its_connection_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(http, "BODY_S", 0.1)
    head = (
        b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer adm\r\n"
        b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    )

    async def scenario():
        async with a_server(tmp_path, monkeypatch) as server:
            streams = [await opened(server) for _ in range(20)]
            for _, writer in streams:
                writer.write(head)
            answers = [await until_its_end(reader, 15.0) for reader, _ in streams]
            assert {answer.split(b"\r\n", 1)[0] for answer in answers} == {b"HTTP/1.1 504 Gateway Timeout"}
            body = msgspec.json.decode(answers[0].partition(b"\r\n\r\n")[2])
            assert (body["reason"], body["code"]) == ("Timeout", 504)
            assert all(level.queues.is_idle for level in server.server.fairness.levels.levels.values())

    in_loop(scenario)


def test_connect_is_refused_and_has_an_end(tmp_path, monkeypatch):
    async def scenario():
        async with a_server(tmp_path, monkeypatch) as server:
            reader, writer = await opened(server)
            writer.write(b"CONNECT example.com:443 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer adm\r\n\r\n")
            answer = await until_its_end(reader)
            assert answer.startswith(b"HTTP/1.1 405 ")

    in_loop(scenario)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GE T / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        GET + b"nonsense\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_without_an_error_in_the_log(tmp_path, monkeypatch, sent):
    async def scenario():
        async with a_server(tmp_path, monkeypatch) as server:
            reader, writer = await opened(server)
            writer.write(sent)
            assert b" 400 Bad Request" in await until_its_end(reader)

    with capture_logs() as lines:
        in_loop(scenario)
    assert [line for line in lines if line["log_level"] in ("error", "critical")] == []


def test_failed_logins_of_an_address_are_counted_and_right_ones_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(authentication, "FAILED_LOGINS_PER_S", 5)
    monkeypatch.setattr(grpc_server, "FAILED_LOGINS_PER_S", 3)

    async def scenario():
        async with a_server(tmp_path, monkeypatch) as server:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{server.rest_port}") as client:

                async def code(token):
                    async with client.get("/version", headers={"Authorization": f"Bearer {token}"}) as answer:
                        return answer.status, answer.headers.get("Retry-After")

                found = [await code("wrong") for _ in range(40)]
                assert found[:5] == [(401, None)] * 5
                assert (429, "1") in found
                assert await code("adm") == (200, None)
            codes = []
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
                stub = endpoints.ApiServerStub(channel)
                for _ in range(12):
                    codes.append(await stub.Mutate(metadata=(("authorization", "Bearer wrong"),)).code())
            assert codes[:3] == [grpc.StatusCode.UNAUTHENTICATED] * 3
            assert grpc.StatusCode.RESOURCE_EXHAUSTED in codes
            async with a_client(server, adm="adm") as good:
                assert (await good.api().call(a_create("x"))).code == 201

    in_loop(scenario)


def test_one_address_has_so_many_connections_and_a_place_that_becomes_free_is_taken(tmp_path, monkeypatch):
    async def scenario():
        async with a_server(tmp_path, monkeypatch, connections_per_address_max=3) as server:
            streams = [await opened(server) for _ in range(3)]
            for reader, writer in streams:
                writer.write(GET)
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            reader, writer = await opened(server)
            assert await until_its_end(reader) == b""
            streams[0][1].close()
            while True:
                reader, writer = await opened(server)
                try:
                    writer.write(GET)
                    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
                    break
                except (asyncio.IncompleteReadError, ConnectionError):
                    await asyncio.sleep(0.01)

    in_loop(scenario)


def test_of_too_many_idle_connections_those_go_that_said_nothing_for_longest(tmp_path, monkeypatch):
    async def scenario():
        async with a_server(tmp_path, monkeypatch, idle_max=5, first_request_max_s=0.2) as server:
            streams = []
            for _ in range(12):
                reader, writer = await opened(server)
                writer.write(GET)
                await reader.readuntil(b"\r\n\r\n")
                streams.append(reader)
            for reader in streams[:7]:
                await until_its_end(reader)
            assert not any(reader.at_eof() for reader in streams[7:])

    in_loop(scenario)


def test_half_open_handshakes_end_and_others_are_not_kept_waiting(tmp_path):
    """FM-N6."""
    files = authority(tmp_path).server("apiserver")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)

    class Echo(asyncio.Protocol):
        def connection_made(self, transport):
            transport.write(b"hello")
            transport.close()

        def connection_lost(self, exc):
            listener.on_disconnect(self)

    listener = Listener(Echo, Count(600, 600), RealClock(), context, 3.0, lambda: asyncio.sleep(0))

    async def scenario():
        port = await listener.open("127.0.0.1", 0)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        await until(lambda: listener.count.total == 200)
        client = ssl.create_default_context(cafile=str(authority(tmp_path).path))
        client.check_hostname = False
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        assert await reader.read() == b"hello"
        writer.close()
        await until(lambda: listener.count.total == 0)
        for reader, writer in silent:
            await reader.read()
            writer.close()
        await listener.close()

    with capture_logs() as lines:
        in_loop(scenario)
    assert lines == []


def test_streams_of_one_identity_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(grpc_server, "STREAMS_PER_IDENTITY", 4)

    async def scenario():
        async with a_server(tmp_path, monkeypatch) as server:
            target = f"127.0.0.1:{server.grpc_port}"
            async with grpc.aio.insecure_channel(target) as channel:
                stub = endpoints.ApiServerStub(channel)
                metadata = (("authorization", "Bearer adm"),)
                calls = [stub.Watch(metadata=metadata) for _ in range(4)]
                for call in calls:
                    await call.initial_metadata()
                refused = stub.Mutate(metadata=metadata)
                assert await refused.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                calls[0].cancel()
                while True:
                    again = stub.Mutate(metadata=metadata)
                    if len(await again.initial_metadata()):
                        break
                other = stub.Mutate()  # an anonymous one has places of its own
                assert await other.initial_metadata()

    in_loop(scenario)


class Ended(Exception):
    """In place of the end of this process."""


@pytest.mark.parametrize("way", ["rest", "call", "mutate", "commit"])
def test_a_request_that_finds_no_memory_ends_the_process(tmp_path, monkeypatch, capfd, way):
    codes = []

    def end(code):
        codes.append(code)
        raise Ended

    monkeypatch.setattr(memory, "_exit", end)

    def fail(*_args, **_more):
        raise MemoryError

    async def scenario():
        async with a_server(tmp_path, monkeypatch) as server:
            if way == "commit":
                monkeypatch.setattr("apiserver_fake.storage.store.Staged.put", fail)
            else:
                monkeypatch.setattr(server.server, "start", fail)
            if way == "rest":
                _, writer = await opened(server)
                writer.write(b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer adm\r\n\r\n")
                await until(lambda: codes)
                return
            if way == "call":
                async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
                    stub = endpoints.ApiServerStub(channel)
                    call = stub.Call(
                        endpoints.pb.Request(verb="list", resource="pods"), metadata=(("authorization", "Bearer adm"),)
                    )
                    await until(lambda: codes)
                    call.cancel()
                return
            async with a_client(server, adm="adm") as client:
                calling = asyncio.create_task(client.api().call(a_create("x")))
                await until(lambda: codes)
                calling.cancel()
                await asyncio.gather(calling, return_exceptions=True)

    with contextlib.suppress(Ended, ExceptionGroup), capture_logs():  # the process would be gone
        in_loop(scenario)
    assert codes[0] == 70
    assert "apiserver: out of memory: the process ends" in capfd.readouterr().err


def test_without_file_descriptors_accepting_pauses_and_goes_on_later(tmp_path):
    """FM-X8."""
    (tmp_path / "tokens").write_bytes(msgspec.json.encode(endpoints.TOKENS))
    ready = tmp_path / "ready"
    command = [
        sys.executable, "-m", "apiserver_fake", "--engine", "memory", "--grpc-port", "none", "--rest-port", "0",
        "--token-file", str(tmp_path / "tokens"), "--ready-file", str(ready), "--health-port", "-1",
    ]  # fmt: skip
    limit = 96
    # A shell sets the limit: code of ours between fork and exec runs into gRPC's handlers of a fork, which may abort.
    process = subprocess.Popen(["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *command])

    async def scenario():
        while not ready.exists():
            assert process.poll() is None
            await asyncio.sleep(0.02)
        port = msgspec.json.decode(ready.read_bytes())["ports"]["rest"]
        first = await asyncio.open_connection("127.0.0.1", port)
        first[1].write(GET)
        await first[0].readuntil(b"\r\n\r\n")
        many = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        await first[0].read(1 << 16)
        for _ in range(3):
            first[1].write(GET)
            assert (await first[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert await first[0].read(1 << 16)
        held = len(os.listdir(f"/proc/{process.pid}/fd"))
        assert held < limit
        for _, writer in many:
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")

    try:
        in_loop(scenario)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
