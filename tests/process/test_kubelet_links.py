"""The connection between kubelets and the API server, broken below gRPC: pieces, little bandwidth, resets, silence."""

import asyncio
import socket
from contextlib import suppress

import pytest

from lab.scenarios.invariants import Auditor
from lab.scenarios.processes.event_files import Tail
from services.api.meta import Key
from services.api.switches import Switches
from services.client.client import Client
from services.runtime.mesh.options import MeshOptions
from services.runtime.real import RealClock, seeded_random
from services.runtime.supervisor import Supervisor


class Proxy:
    """Carries TCP to the API server as well, or as badly, as its toxics say. Toxics are Toxiproxy's."""

    def __init__(self, port):
        self.port = port
        self.speaks = asyncio.Event()
        self.speaks.set()
        self.piece = 65536
        self.bytes_per_s = 0.0
        self.writers = []
        self.server = None

    async def start(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self.server.sockets[0].getsockname()[1]

    async def _serve(self, reader, writer):
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers += [writer, up_writer]
        await asyncio.gather(self._carry(reader, up_writer), self._carry(up_reader, writer))

    async def _carry(self, reader, writer):
        with suppress(OSError, asyncio.IncompleteReadError):
            while data := await reader.read(65536):
                await self.speaks.wait()
                for start in range(0, len(data), self.piece):
                    piece = data[start : start + self.piece]
                    writer.write(piece)
                    await writer.drain()
                    if self.piece < 65536:
                        await asyncio.sleep(0)
                    if self.bytes_per_s:
                        await asyncio.sleep(len(piece) / self.bytes_per_s)
        writer.close()

    def reset(self):
        """End every connection with RST, in the middle of whatever is on its way."""
        for writer in self.writers:
            with suppress(OSError):  # it is closed already
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            writer.transport.abort()
        self.writers.clear()

    def close(self):
        self.reset()
        self.server.close()


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


async def until(condition, limit_s):
    async with asyncio.timeout(limit_s):
        while not await condition():  # noqa: ASYNC110  no event reports it
            await asyncio.sleep(0.1)


async def noticed_as_processes(tmp_path):
    """Break the link in every way while pods are started; return what the log shows."""
    port = free_port()
    proxy = Proxy(port)
    target = f"127.0.0.1:{await proxy.start()}"
    options = MeshOptions(
        data_dir=tmp_path, nodes=4, hosts=1, grpc_port=port, engine="memory", log_level="error",
        arguments={"kubelet": ["--server", target]},
    )  # fmt: skip
    mesh = Supervisor(options)
    await mesh.start()
    transport = mesh.client_transport()
    client = Client(transport.api(), RealClock(), seeded_random(None))
    try:
        made = 0

        async def starts_pods(limit_s):
            nonlocal made
            for _ in range(4):
                name = f"web-{made}"
                spec = {"nodeName": f"node-{made % 4}", "containers": [{"name": "main", "image": "i"}]}
                metadata = {"name": name, "namespace": "default"}
                document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
                await client.create("pods", document, namespace="default")
                made += 1

            async def all_run():
                pods = [await client.get("pods", Key("default", f"web-{n}")) for n in range(made)]
                return all(pod["status"]["phase"] == "Running" for pod in pods)

            await until(all_run, limit_s)

        await starts_pods(20.0)
        proxy.piece = 1
        await starts_pods(20.0)
        proxy.piece, proxy.bytes_per_s = 1024, 8000.0
        await starts_pods(40.0)
        proxy.piece, proxy.bytes_per_s = 65536, 0.0
        for _ in range(3):
            proxy.reset()
            await starts_pods(20.0)
        proxy.speaks.clear()
        silent_s = RealClock().now()

        async def is_noticed():
            lines = [line for line in Tail(mesh.events_dir).poll(None) if line.comp.startswith("kubelet")]
            return any(x.ev == "watch.close" and x.mono_ns > silent_s * 1e9 for x in lines)

        await until(is_noticed, 25.0)
        noticed_s = RealClock().now() - silent_s
        proxy.speaks.set()
        await starts_pods(30.0)
        return noticed_s, Tail(mesh.events_dir).poll(None)
    finally:
        await transport.close()
        await mesh.stop()
        proxy.close()


@pytest.mark.timeout(180)
def test_fm_n2_n4_a_link_in_pieces_slow_reset_and_silent_loses_and_repeats_nothing(tmp_path):
    noticed_s, lines = asyncio.run(noticed_as_processes(tmp_path))

    auditor = Auditor(Switches(), is_volatile=True)
    for line in lines:
        auditor.take(line)
    starts = [line.obj["uid"] for line in lines if line.ev == "kubelet.start"]
    # L-KA: a ping after 10 s, an answer within 5 s; a busy machine takes its time, and TCP alone takes minutes.
    assert noticed_s < 40.0
    assert [(v.invariant, v.detail) for v in auditor.violations] == []
    assert len(starts) == len(set(starts)) == 28
