"""TLS handshakes of many clients at once: each takes its turn when its client has spoken, and none before."""

import asyncio
import ssl

from structlog.testing import capture_logs

from apiserver_fake.rates import Count
from apiserver_fake.rest.listener import Listener
from services.runtime.certificates import authority
from services.runtime.real import RealClock

CLIENTS = 40


def test_a_handshake_takes_a_turn_once_its_client_has_spoken(tmp_path):
    turns = []
    silent_turns = []

    async def turn():
        turns.append(len(turns))
        await asyncio.sleep(0)

    async def scenario():
        loop = asyncio.get_running_loop()
        listener = Listener(asyncio.Protocol, Count(1_000, 1_000), RealClock(), server_context(tmp_path), 10.0, turn)
        port = await listener.open("127.0.0.1", 0)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CLIENTS)]
        for _ in range(10 * CLIENTS):
            await asyncio.sleep(0)
        assert CLIENTS == listener.count.total
        silent_turns.append(len(turns))
        made = await asyncio.gather(
            *(loop.create_connection(asyncio.Protocol, "127.0.0.1", port, ssl=trusting()) for _ in range(CLIENTS))
        )
        for _, writer in silent:
            writer.close()
        for transport, _ in made:
            transport.close()
        await listener.close()

    asyncio.run(scenario())

    assert [0] == silent_turns
    assert CLIENTS <= len(turns)


def test_a_limit_is_logged_once_a_minute(tmp_path):
    async def turn():
        await asyncio.sleep(0)

    async def scenario():
        listener = Listener(asyncio.Protocol, Count(1_000, 2), RealClock(), None, 10.0, turn)
        port = await listener.open("127.0.0.1", 0)
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        ends = [await reader.read() for reader, _ in pairs[2:]]
        for _, writer in pairs:
            writer.close()
        await listener.close()
        return ends

    with capture_logs() as lines:
        ends = asyncio.run(scenario())

    assert [b""] * 3 == ends
    assert [("rest.connections_refused", "127.0.0.1", "the address", 2, 1)] == [
        (line["event"], line["address"], line["limit_of"], line["connections"], line["refused"]) for line in lines
    ]


def server_context(folder):
    files = authority(folder).server("apiserver")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    return context


def trusting():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
