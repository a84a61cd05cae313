"""gRPC on real Unix sockets: long paths, refusals, a socket that others took over."""

import asyncio
import contextlib
import socket

import pytest

from services.api.local_rpc import LocalService, RpcError, caller_traceparent
from services.runtime.unix_sockets import UnixSockets


async def echo(request):
    return request + b"!"


async def refuse(_):
    raise RpcError("Unknown", "not today")


async def numbers(_):
    yield b"1"
    yield b"2"
    raise RpcError("Unavailable", "enough")


SERVICE = LocalService({"/echo": echo, "/refuse": refuse}, {"/numbers": numbers})


@contextlib.asynccontextmanager
async def connected(path, service=SERVICE):
    sockets = UnixSockets()
    server = await sockets.serve(str(path), service)
    connection = sockets.dial(str(path))
    try:
        yield connection, server
    finally:
        await connection.close()
        await server.close()


async def error_of(call):
    with pytest.raises(RpcError) as error:
        await call
    return str(error.value)


@pytest.mark.parametrize("folders", [1, 12])
def test_a_path_of_any_length_is_served_and_dialled(tmp_path, folders):
    path = tmp_path.joinpath(*["a-rather-long-name"] * folders, "kubelet.sock")

    async def scenario():
        async with connected(path) as (connection, _):
            await connection.connect(5.0)
            return len(str(path)) > 107, await connection.call("/echo", b"hi", 5.0), path.is_socket()

    assert asyncio.run(scenario()) == (folders == 12, b"hi!", True)


def test_a_handler_knows_what_trace_the_call_belongs_to_and_no_other_does(tmp_path):
    async def named(_):
        return caller_traceparent.get().encode()

    async def scenario():
        async with connected(tmp_path / "a.sock", LocalService({"/named": named})) as (connection, _):
            traced = await connection.call("/named", b"", 5.0, traceparent="00-a-b-01")
            return traced, await connection.call("/named", b"", 5.0)

    assert asyncio.run(scenario()) == (b"00-a-b-01", b"")


def test_refusals_and_ends_have_the_codes_that_go_gives_them(tmp_path):
    async def scenario():
        async with connected(tmp_path / "a.sock") as (connection, _):
            seen = []

            async def follow():
                async for message in connection.stream("/numbers", b""):
                    seen.append(message)

            return await error_of(connection.call("/refuse", b"", 5.0)), await error_of(follow()), seen

    assert asyncio.run(scenario()) == (
        "rpc error: code = Unknown desc = not today", "rpc error: code = Unavailable desc = enough", [b"1", b"2"]
    )  # fmt: skip


def test_an_absent_server_is_a_deadline_when_connecting_and_unavailable_when_calling(tmp_path):
    async def scenario():
        connection = UnixSockets().dial(str(tmp_path / "absent.sock"))
        try:
            return await error_of(connection.connect(0.3)), await error_of(connection.call("/echo", b"", 5.0))
        finally:
            await connection.close()

    dialled, called = asyncio.run(scenario())

    assert dialled == "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    assert called.startswith("rpc error: code = Unavailable desc = ")


def test_a_server_that_closes_leaves_the_socket_of_its_successor(tmp_path):
    path = str(tmp_path / "a.sock")

    async def scenario():
        sockets = UnixSockets()
        first = await sockets.serve(path, SERVICE)
        second = await sockets.serve(path, SERVICE)
        await first.close()
        connection = sockets.dial(path)
        answer = await connection.call("/echo", b"still here", 5.0)
        await connection.close()
        await second.close()
        return answer, sockets.exists(path)

    assert asyncio.run(scenario()) == (b"still here!", False)


def test_clearing_a_directory_leaves_everything_but_sockets(tmp_path):
    async def scenario():
        async with connected(tmp_path / "a.sock"), connected(tmp_path / "plugins" / "b.sock"):
            (tmp_path / "note").write_text("keep")
            UnixSockets().clear(str(tmp_path))
            return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))

    assert asyncio.run(scenario()) == ["note", "plugins", "plugins/b.sock"]


def test_a_listing_has_a_mark_for_each_socket_and_none_for_other_files(tmp_path):
    async def scenario():
        sockets = UnixSockets()
        folder = tmp_path / "registry"
        seen = [sockets.listing(str(folder))]
        (folder / "file").write_text("no socket")
        (folder / ".hidden").write_text("")
        for _ in range(2):
            server = await sockets.serve(str(folder / "below" / "a.sock"), LocalService({}))
            seen.append(sockets.listing(str(folder)))
            await server.close()
        return seen, sockets.listing(str(folder))

    (empty, first, second), after = asyncio.run(scenario())

    path = str(tmp_path / "registry" / "below" / "a.sock")
    assert empty == {}
    assert list(first) == list(second) == [str(tmp_path / "registry" / "file"), path]
    assert first[path] not in ("", second[path])
    assert after == {str(tmp_path / "registry" / "file"): ""}


def test_a_connection_is_broken_once_its_server_is_gone(tmp_path):
    async def scenario():
        sockets = UnixSockets()
        server = await sockets.serve(str(tmp_path / "a.sock"), LocalService({}))
        connection = sockets.dial(str(tmp_path / "a.sock"))
        await connection.connect(5.0)
        broken = asyncio.create_task(connection.wait_until_broken())
        done_before = (await asyncio.wait([broken], timeout=0.2))[0]
        await server.close()
        async with asyncio.timeout(5.0):
            await broken
        await connection.close()
        return done_before

    assert asyncio.run(scenario()) == set()


def test_a_name_that_a_directory_has_is_named_and_nothing_is_left(tmp_path):
    (tmp_path / "dra.sock").mkdir()

    with pytest.raises(OSError, match="Is a directory") as raised:
        asyncio.run(UnixSockets().serve(str(tmp_path / "dra.sock"), LocalService({})))

    assert raised.value.filename == str(tmp_path / "dra.sock")
    assert [each.name for each in tmp_path.iterdir()] == ["dra.sock"]


def test_a_socket_without_a_server_is_unavailable_in_the_words_of_go(tmp_path):
    path = str(tmp_path / "dra.sock")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(path)

    async def scenario():
        connection = UnixSockets().dial(path)
        try:
            await connection.call("/s/M", b"", 5.0)
        except RpcError as error:
            return str(error)
        finally:
            await connection.close()

    assert asyncio.run(scenario()) == (
        'rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: '
        f'dial unix {path}: connect: connection refused"'
    )


def test_a_call_ends_with_an_error_when_its_own_side_hangs_up(tmp_path):
    async def never(_: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def scenario():
        sockets, path = UnixSockets(), str(tmp_path / "dra.sock")
        server = await sockets.serve(path, LocalService({"/s/M": never}))
        connection = sockets.dial(path)
        await connection.connect(5.0)
        call = asyncio.create_task(error_of(connection.call("/s/M", b"", 20.0)))
        await asyncio.sleep(0.1)
        await connection.close()
        try:
            return await asyncio.wait_for(call, 5.0)
        finally:
            await server.close()

    assert asyncio.run(scenario()) == ("rpc error: code = Canceled desc = grpc: the client connection is closing")
