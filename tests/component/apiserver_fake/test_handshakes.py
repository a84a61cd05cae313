"""TLS handshakes of many clients at once: each takes its turn when its client has spoken, and none before."""

import asyncio
import ssl

from apiserver_fake.rates import Count
from apiserver_fake.rest.listener import Listener
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
        while listener.count.total < CLIENTS:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
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


def trusting():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
