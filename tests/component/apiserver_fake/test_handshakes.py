"""TLS handshakes of many clients at once: each takes its turn when its client has spoken, and none before."""

import asyncio
import socket
import ssl
from collections import Counter
from contextlib import suppress
from itertools import pairwise

from structlog.testing import capture_logs

from apiserver_fake.rates import Count
from apiserver_fake.rest.listener import ACCEPTED_AT_ONCE, Listener
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


def test_of_many_clients_that_came_at_once_few_are_accepted_and_one_is_answered_in_a_turn(tmp_path):
    clients = 3 * ACCEPTED_AT_ONCE
    turns = Turns()
    context = server_context(tmp_path)
    answered = Counter()
    accepted = []

    async def scenario():
        all_answered = asyncio.Event()

        def answer(*_):
            answered.update([turns.number])
            if answered.total() == clients:
                all_answered.set()

        context.sni_callback = answer
        listener = Listener(asyncio.Protocol, Count(1_000, 1_000), RealClock(), context, 10.0, lambda: asyncio.sleep(0))
        port = await listener.open("127.0.0.1", 0)
        # Nothing runs in between: all are there, with their first message, when the loop looks.
        connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(clients)]
        message = first_message()
        for connection in connections:
            connection.sendall(message)
        turns.begin(lambda: accepted.append(listener.count.total))
        await all_answered.wait()
        for connection in connections:
            connection.close()
        await listener.close()

    asyncio.run(asyncio.wait_for(scenario(), 30.0))

    assert {1} == set(answered.values())
    assert ACCEPTED_AT_ONCE == max(after - before for before, after in pairwise(accepted))


def test_a_client_that_stays_silent_is_dropped_and_one_that_waits_for_its_turn_ends_with_the_listener(tmp_path):
    async def scenario():
        waits = asyncio.Event()

        async def never():
            waits.set()
            await asyncio.Event().wait()

        listener = Listener(asyncio.Protocol, Count(10, 10), RealClock(), server_context(tmp_path), 0.05, never)
        port = await listener.open("127.0.0.1", 0)
        silent_reader, silent_writer = await asyncio.open_connection("127.0.0.1", port)
        assert b"" == await silent_reader.read()
        assert 0 == listener.count.total
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(first_message())
        await waits.wait()
        assert 1 == listener.count.total
        await listener.close()
        assert 0 == listener.count.total
        with suppress(ConnectionResetError):
            assert b"" == await reader.read()
        silent_writer.close()
        writer.close()

    asyncio.run(asyncio.wait_for(scenario(), 30.0))


def test_connections_that_a_limit_refused_are_logged_together():
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
    assert [("rest.connections_refused", "127.0.0.1", "the address", 2, 3, 0)] == [
        (line["event"], line["address"], line["limit_of"], line["limit"], line["refused"], line["refused_of_others"])
        for line in lines
    ]


class Turns:
    """The number of the loop's turn, from `begin` on; `note` is called in each."""

    number = 0

    def begin(self, note):
        self.number += 1
        note()
        asyncio.get_running_loop().call_soon(self.begin, note)


def first_message():
    """Return the first message of a TLS client."""
    sent = ssl.MemoryBIO()
    client = trusting().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="apiserver")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return sent.read()
    raise AssertionError("a handshake that needs no answer")


def server_context(folder):
    files = authority(folder).server("apiserver")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    return context


def trusting():
    """Return a client's context that trusts everybody; it loads no authorities, which take longer than a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
