"""An answer that comes in pieces: sent as they come, and not made any more when the client has gone."""

import asyncio

import pytest

from services.runtime.health import HealthServer
from services.telemetry.exposition import PIECE_LINES
from services.telemetry.metrics import Metrics, gauge


def ask(pieces, talk, request_line=b"GET /pieces"):
    async def scenario():
        server = HealthServer(
            is_ready=lambda: True,
            metrics=dict,
            configuration=dict,
            routes=[("/pieces", lambda _: (200, "text/plain", pieces()))],
        )
        await server.start("127.0.0.1", 0)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(request_line + b" HTTP/1.1\r\n\r\n")
            return await talk(reader, writer)
        finally:
            await server.stop()

    return asyncio.run(asyncio.wait_for(scenario(), 10))


def test_pieces_are_sent_as_they_come_and_the_end_of_the_connection_is_their_end():
    go_on = asyncio.Event()

    async def pieces():
        yield b"one\n"
        await go_on.wait()
        yield b"two\n"

    async def talk(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        first = await reader.readline()
        go_on.set()
        rest = await reader.read()
        writer.close()
        return head, first, rest

    head, first, rest = ask(pieces, talk)
    assert b"Content-Length" not in head
    assert (first, rest) == (b"one\n", b"two\n")


def test_a_streamed_answer_ends_when_its_client_has_gone():
    ended = asyncio.Event()

    async def pieces():
        try:
            while True:
                yield b""
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    async def talk(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await ended.wait()
        return True

    assert ask(pieces, talk)


@pytest.mark.parametrize(
    ("request_line", "status"), [(b"GET /nowhere", 404), (b"POST /pieces", 405), (b"nonsense", 400)]
)
def test_a_refusal_is_plain_text_and_says_what_to_do_instead(request_line, status):
    async def pieces():
        yield b""

    async def talk(reader, writer):
        whole = await reader.read()
        writer.close()
        return whole

    head, _, body = ask(pieces, talk, request_line).partition(b"\r\n\r\n")
    assert f"HTTP/1.1 {status}".encode() in head
    assert b"Content-Type: text/plain" in head
    assert body


SIZES = Metrics(gauge("scraped_sizes", "Sizes by name.", dict, "name"))


def test_others_have_a_turn_after_every_few_lines_of_a_scrape():
    pieces = 30
    turns = []

    def metrics():
        # From here on one turn of the loop is one entry, until the answer is there.
        asyncio.get_running_loop().call_soon(count)
        return SIZES.of({str(number): number for number in range(pieces * PIECE_LINES)})

    def count():
        turns.append(None)
        asyncio.get_running_loop().call_soon(count)

    async def scenario():
        server = HealthServer(is_ready=lambda: True, metrics=metrics, configuration=dict)
        await server.start("127.0.0.1", 0)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            return len(turns), (await reader.read()).count(b"scraped_sizes{")
        finally:
            await server.stop()

    counted, lines = asyncio.run(asyncio.wait_for(scenario(), 10))

    assert lines == pieces * PIECE_LINES
    assert counted >= pieces
