"""exec when clients read slowly, go away in the middle, or come by the hundred; over WebSockets and SPDY."""

import asyncio
import base64
import json
import os
import signal
import ssl
import time
import urllib.parse
from contextlib import asynccontextmanager

import aiohttp
import pytest
import yaml

from services.api.meta import Key
from services.client.client import Client
from services.runtime.mesh.options import MeshOptions
from services.runtime.real import RealClock, seeded_random
from services.runtime.spdy.connection import Connection, dial
from services.runtime.supervisor import Supervisor

pytestmark = pytest.mark.timeout(240)

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
SESSIONS = 8
MEMORY_MAX = 6 * MIB
"""For one session, in each process: TLS on both sides, and what waits on the way."""
STDIN, STDOUT, ERROR = 0, 1, 3


class Mesh:
    """One node with one pod, and ways to its containers."""

    def __init__(self, folder):
        self.supervisor = Supervisor(
            MeshOptions(data_dir=folder, nodes=1, engine="memory", log_level="error", serves_clients=True)
        )

    async def start(self):
        await self.supervisor.start()
        cluster = yaml.safe_load(self.supervisor.kubeconfig.read_text())
        self.url = cluster["clusters"][0]["cluster"]["server"]
        authority = base64.b64decode(cluster["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        self.trust = ssl.create_default_context(cadata=authority)
        self.headers = {"Authorization": f"Bearer {cluster['users'][0]['user']['token']}"}
        self.transport = self.supervisor.client_transport()
        client = Client(self.transport.api(), RealClock(), seeded_random(None))
        spec = {"nodeName": "node-0", "containers": [{"name": "c", "image": "i"}]}
        meta = {"name": "p", "namespace": "default"}
        await until_async(lambda: client.get("serviceaccounts", Key("default", "default")))
        await client.create(
            "pods", {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, namespace="default"
        )

        async def runs():
            return (await client.get("pods", Key("default", "p")))["status"].get("phase") == "Running"

        await until_async(runs)

    async def stop(self):
        await self.transport.close()
        await self.supervisor.stop()

    def path(self, *command, tty=False):
        flags = [("stdin", 1), ("stdout", 1)] + ([("tty", 1)] if tty else [])
        words = [("command", word) for word in command] + flags
        return f"/api/v1/namespaces/default/pods/p/exec?{urllib.parse.urlencode(words)}"

    def resident(self, process):
        with open(f"/proc/{self.supervisor.children[process].pid}/statm") as file:
            return int(file.read().split()[1]) * PAGE

    def open_files(self, process):
        return len(os.listdir(f"/proc/{self.supervisor.children[process].pid}/fd"))

    @asynccontextmanager
    async def web_socket(self, *command, **how):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield await session.ws_connect(
                self.url + self.path(*command, **how), headers=self.headers, ssl=self.trust,
                protocols=["v5.channel.k8s.io"], max_msg_size=0,
            )  # fmt: skip

    @asynccontextmanager
    async def spdy(self, *command):
        host, port = self.url.removeprefix("https://").split(":")
        answer = await dial(
            host, int(port), self.path(*command), protocols=["v4.channel.k8s.io"], tls=self.trust, headers=self.headers
        )
        assert answer.status == 101, answer.body
        connection = Connection(answer.reader, answer.writer, is_client=True)
        running = asyncio.create_task(connection.run())
        try:
            streams = [await connection.open({"streamType": kind}) for kind in ("error", "stdin", "stdout")]
            yield answer.writer.transport, streams
        finally:
            running.cancel()
            answer.writer.transport.abort()


async def until_async(holds, within_s=40.0):
    deadline = time.monotonic() + within_s
    while True:
        try:
            if await holds():
                return
        except Exception:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


async def until(holds, within_s=40.0):
    async def asked():
        return holds()

    await until_async(asked, within_s)


@pytest.fixture(scope="module")
def loop():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def mesh(loop, tmp_path_factory):
    found = Mesh(tmp_path_factory.mktemp("pressure"))
    try:
        loop.run(found.start())
        yield found
    finally:
        loop.run(found.stop())


async def pump_ws(mesh, command, sent, place):
    """Type without end, and read nothing."""
    async with mesh.web_socket(*command) as socket:
        transport = socket._response.connection.transport
        transport.pause_reading()
        transport.resume_reading = lambda: None
        try:
            while True:
                await socket.send_bytes(bytes([STDIN]) + b"x" * 32768)
                sent[place] += 32768
        finally:
            transport.abort()


async def pump_spdy(mesh, command, sent, place):
    async with mesh.spdy(*command) as (transport, streams):
        transport.pause_reading()
        transport.resume_reading = lambda: None
        while True:
            await streams[1].write(b"x" * 32768)
            sent[place] += 32768


@pytest.mark.parametrize("command", [("cat",), ("sleep", "600")], ids=" ".join)
@pytest.mark.parametrize("pump", [pump_ws, pump_spdy])
def test_a_client_that_does_not_read_is_held_back_and_one_that_is_gone_is_noticed(loop, mesh, pump, command):
    """`cat` echoes what nobody reads; `sleep` reads nothing. Either way the client waits, and no process grows."""

    async def scenario():
        files = {process: mesh.open_files(process) for process in ("apiserver", "kubelet/h0")}
        sent = [0] * SESSIONS
        pumps = [asyncio.create_task(pump(mesh, command, sent, place)) for place in range(SESSIONS)]
        before = {process: mesh.resident(process) for process in files}
        seen = -1
        while seen != sum(sent) or not all(sent):
            seen = sum(sent)
            await asyncio.sleep(2.0)
        grown = {process: mesh.resident(process) - size for process, size in before.items()}
        for each in pumps:
            each.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        await until(lambda: all(mesh.open_files(process) <= count + 1 for process, count in files.items()))
        return grown

    grown = loop.run(scenario())
    assert all(size < SESSIONS * MEMORY_MAX for size in grown.values()), grown


def test_two_hundred_commands_at_once_each_get_their_own_input_and_end(loop, mesh):
    """Standard input is closed and output still comes: half of a stream ends by itself."""

    async def one(number):
        async with mesh.web_socket("cat") as socket:
            await socket.send_bytes(bytes([STDIN]) + b"number %d\n" % number)
            await socket.send_bytes(bytes([255, STDIN]))
            printed, status = b"", None
            async for message in socket:
                if message.data[0] == STDOUT:
                    printed += message.data[1:]
                elif message.data[0] == ERROR:
                    status = json.loads(message.data[1:])["status"]
            return printed, status

    async def scenario():
        async with asyncio.timeout(60):
            return await asyncio.gather(*(one(number) for number in range(200)))

    assert loop.run(scenario()) == [(b"number %d\n" % number, "Success") for number in range(200)]


@pytest.mark.parametrize("command", [("sleep", "600"), ("seq", "1", "1000000000"), ("cat",)], ids=" ".join)
def test_ctrl_c_ends_a_command_that_sleeps_writes_or_reads(loop, mesh, command):
    async def scenario():
        async with mesh.web_socket(*command, tty=True) as socket, asyncio.timeout(30):
            assert (await socket.receive()).data == bytes([STDOUT])
            if command[0] == "seq":
                while b"1" not in (await socket.receive()).data[1:]:
                    pass
            await socket.send_bytes(bytes([STDIN]) + b"\x03")
            async for message in socket:
                if message.data[0] == ERROR:
                    return json.loads(message.data[1:])["details"]["causes"]
        return None

    assert loop.run(scenario()) == [{"reason": "ExitCode", "message": "130"}]


def test_commands_end_with_a_kubelet_that_is_killed(loop, mesh):
    async def one(is_running):
        async with mesh.web_socket("sleep", "600") as socket:
            await socket.receive()
            is_running.release()
            async for message in socket:
                if message.data[0] == ERROR:
                    return json.loads(message.data[1:])["message"]
        return None

    async def scenario():
        files = mesh.open_files("apiserver")
        is_running = asyncio.Semaphore(0)
        running = [asyncio.create_task(one(is_running)) for _ in range(20)]
        for _ in running:
            await is_running.acquire()
        mesh.supervisor.kill("kubelet/h0", signal.SIGKILL, down_s=0.1)
        async with asyncio.timeout(20):
            ends = await asyncio.gather(*running)
        await until(lambda: mesh.supervisor.children["kubelet/h0"].is_ready)
        await until(lambda: mesh.open_files("apiserver") <= files + 2)
        return ends

    assert set(loop.run(scenario())) == {"Internal error occurred: error reading from error stream: EOF"}
