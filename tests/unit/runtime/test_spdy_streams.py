"""SPDY streams between two sides of one connection: bytes, ends, resets, and how much may wait."""

import asyncio
import contextlib

import pytest

from lab.scenarios.simulation import simloop
from services.runtime.spdy import frames as spdy
from services.runtime.spdy.connection import CHUNK_BYTES, STREAMS_MAX, WAITING_BYTES_MAX, Connection
from services.runtime.spdy.frames import Frame


class Pipe:
    """The writing end of one direction; what is written is read at the other end at once."""

    def __init__(self, reader):
        self._reader, self._closed = reader, False

    def write(self, data):
        self._reader.feed_data(data)

    async def drain(self):
        await asyncio.sleep(0)

    def is_closing(self):
        return self._closed

    def close(self):
        if not self._closed:
            self._closed = True
            self._reader.feed_eof()

    @property
    def transport(self):
        return self

    def abort(self):
        self.close()


@contextlib.asynccontextmanager
async def sides():
    """Yield client and server, whose `run` is running."""
    to_client, to_server = asyncio.StreamReader(), asyncio.StreamReader()
    client = Connection(to_client, Pipe(to_server), is_client=True)
    server = Connection(to_server, Pipe(to_client), is_client=False)
    running = [asyncio.create_task(each.run()) for each in (client, server)]
    try:
        yield client, server
    finally:
        client.close()
        server.close()
        await asyncio.gather(*running)


def play(act):
    async def main():
        async with sides() as (client, server):
            return await act(client, server)

    return simloop.run(main())


async def opened(client, server, **headers):
    """Return both ends of a new stream."""
    mine = await client.open(headers)
    return mine, await anext(aiter(server.accept()))


async def whole(stream):
    return b"".join([data async for data in pieces(stream)])


async def pieces(stream):
    while data := await stream.read():
        yield data


def test_bytes_flow_both_ways_and_each_side_ends_by_itself():
    async def act(client, server):
        mine, theirs = await opened(client, server, streamType="data", port="80")
        await mine.write(b"ping")
        await mine.finish()
        asked = await whole(theirs)
        await theirs.write(b"pong")
        await theirs.finish()
        return theirs.kind, theirs.headers["port"], asked, await whole(mine), mine.is_done, theirs.is_done

    assert play(act) == ("data", "80", b"ping", b"pong", True, True)


def test_what_is_long_arrives_whole_in_pieces_and_does_not_wait_beyond_what_may():
    data = bytes(range(256)) * 4096

    async def act(client, server):
        mine, theirs = await opened(client, server)
        sending = asyncio.create_task(mine.write(data))
        await asyncio.sleep(1)
        waiting = server._waiting_bytes
        sizes = []
        found = b""
        while len(found) < len(data):
            piece = await theirs.read()
            sizes.append(len(piece))
            found += piece
        await sending
        return waiting, max(sizes), found == data, server._waiting_bytes

    waiting, largest, is_same, left = play(act)

    assert WAITING_BYTES_MAX < waiting <= WAITING_BYTES_MAX + 2 * CHUNK_BYTES
    assert (largest, is_same, left) == (CHUNK_BYTES, True, 0)


def test_a_stream_that_is_reset_gives_back_what_waited_and_takes_and_sends_no_more():
    async def act(client, server):
        mine, theirs = await opened(client, server)
        await mine.write(b"x" * 1000)
        await asyncio.sleep(1)
        before = server._waiting_bytes
        await theirs.reset()
        await asyncio.sleep(1)
        for call in (mine.read(), mine.write(b"more"), theirs.read()):
            with pytest.raises(ConnectionResetError, match="the stream was reset"):
                await call
        await mine.finish()  # says nothing any more
        return before, server._waiting_bytes, client._streams, server._streams

    assert play(act) == (1000, 0, {}, {})


def test_streams_of_each_side_have_numbers_of_their_own_and_others_are_refused():
    async def act(client, server):
        numbers = [(await client.open({})).number for _ in range(2)]
        numbers += [(await server.open({})).number for _ in range(2)]
        await asyncio.sleep(1)
        known = set(server._streams)
        for number in (1, 2, 8):  # one that is there, one of the other side's twice
            await client.send(Frame(spdy.SYN_STREAM, number))
        await asyncio.sleep(1)
        return numbers, known, set(server._streams)

    numbers, known, after = play(act)

    assert numbers == [1, 3, 2, 4]
    assert known == {1, 2, 3, 4}
    assert after <= known


def test_no_more_streams_than_so_many_are_open_at_once():
    async def act(client, server):
        streams = [await client.open({}) for _ in range(STREAMS_MAX + 1)]
        await asyncio.sleep(1)
        return [stream.is_reset for stream in streams]

    assert play(act) == [False] * STREAMS_MAX + [True]


def test_a_stream_that_is_opened_with_its_end_has_nothing_to_read():
    async def act(client, server):
        await client.send(Frame(spdy.SYN_STREAM, 1, spdy.FIN, headers={"streamtype": "error"}))
        return await whole(await anext(aiter(server.accept())))

    assert play(act) == b""


def test_a_ping_is_answered_by_the_side_that_did_not_send_it():
    async def act(client, server):
        sent = []
        plain = server.send

        async def send(frame):
            sent.append((frame.kind, frame.number))
            await plain(frame)

        server.send = send
        await client.send(Frame(spdy.PING, number=1))
        await client.send(Frame(spdy.PING, number=2))  # an answer to one of the server's
        await asyncio.sleep(1)
        return sent

    assert play(act) == [(spdy.PING, 1)]


def test_when_the_other_side_is_gone_streams_are_reset_and_none_is_opened_or_accepted():
    async def act(client, server):
        _, theirs = await opened(client, server)
        client.close()
        await asyncio.sleep(1)
        with pytest.raises(ConnectionResetError, match="the stream was reset"):
            await theirs.read()
        for call in (server.open({}), client.send(Frame(spdy.PING, number=1))):
            with pytest.raises(ConnectionResetError, match="the connection is closed"):
                await call
        return server.is_over, [stream async for stream in server.accept()]

    assert play(act) == (True, [])


def test_after_a_goaway_the_streams_that_are_open_go_on_and_without_any_the_connection_ends():
    async def act(client, server):
        mine, theirs = await opened(client, server)
        await client.send(Frame(spdy.GOAWAY, number=0))
        await mine.write(b"still")
        first = await theirs.read()
        await mine.reset()
        await client.send(Frame(spdy.GOAWAY, number=0))
        await asyncio.sleep(1)
        return first, server.is_over

    assert play(act) == (b"still", True)


def test_what_is_no_spdy_ends_the_connection():
    async def act(client, server):
        client._writer.write(b"\x80\x02\x00\x01\x00\x00\x00\x00")
        await asyncio.sleep(1)
        return server.is_over

    assert play(act)
