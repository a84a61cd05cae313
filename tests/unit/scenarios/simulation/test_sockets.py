"""Sockets in virtual time behave as Unix sockets do: refused, broken, late, gone."""

import asyncio
import contextvars
import random

import pytest

from lab.scenarios.simulation import simloop
from lab.scenarios.simulation.lifetime import Lifetime
from lab.scenarios.simulation.simloop import OWNER
from lab.scenarios.simulation.sockets import MachineSockets, SimSockets
from services.api.local_rpc import LocalService, RpcError, caller_traceparent


def run_simulated(scenario):
    async def main():
        machine = MachineSockets(random.Random(1))
        server, client = Lifetime("server", 1), Lifetime("client", 1)
        return await scenario(SimSockets(machine, server), SimSockets(machine, client), server)

    return simloop.run(main())


async def echo(request):
    return request + b"!"


async def never(_):
    await asyncio.Event().wait()


async def code_of(call):
    with pytest.raises(RpcError) as error:
        await call
    return error.value.code


def test_a_call_is_answered_and_an_unknown_method_is_not():
    async def scenario(server, client, _):
        await server.serve("n1/a.sock", LocalService({"/echo": echo}))
        connection = client.dial("n1/a.sock")
        return await connection.call("/echo", b"hi"), await code_of(connection.call("/other", b""))

    assert run_simulated(scenario) == (b"hi!", "Unimplemented")


def test_a_handler_knows_what_trace_the_call_belongs_to_and_no_other_does():
    async def named(_):
        return caller_traceparent.get().encode()

    async def scenario(server, client, _):
        await server.serve("n1/a.sock", LocalService({"/named": named}))
        connection = client.dial("n1/a.sock")
        traced = await connection.call("/named", b"", traceparent="00-a-b-01")
        return traced, await connection.call("/named", b""), caller_traceparent.get()

    assert run_simulated(scenario) == (b"00-a-b-01", b"", "")


def test_without_anybody_behind_it_a_socket_refuses_whether_it_is_there_or_not():
    async def scenario(server, client, life):
        missing = await code_of(client.dial("n1/a.sock").call("/echo", b""))
        await server.serve("n1/a.sock", LocalService({"/echo": echo}))
        life.end()
        return missing, await code_of(client.dial("n1/a.sock").call("/echo", b"")), client.exists("n1/a.sock")

    assert run_simulated(scenario) == ("Unavailable", "Unavailable", True)


def test_a_killed_server_breaks_the_calls_and_streams_under_way():
    async def scenario(server, client, life):
        async def numbers(_):
            yield b"1"
            await never(b"")

        await server.serve("n1/a.sock", LocalService({"/wait": never}, {"/list": numbers}))
        connection = client.dial("n1/a.sock")
        call = asyncio.create_task(code_of(connection.call("/wait", b"")))
        seen = []

        async def follow():
            async for message in connection.stream("/list", b""):
                seen.append(message)

        stream = asyncio.create_task(code_of(follow()))
        await asyncio.sleep(1)
        life.end()
        return await call, await stream, seen

    assert run_simulated(scenario) == ("Unavailable", "Unavailable", [b"1"])


def test_a_stopped_server_answers_when_it_goes_on_and_a_deadline_does_not_wait_for_that():
    async def scenario(server, client, _):
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        context.run(OWNER.set, "server")
        await loop.create_task(server.serve("n1/a.sock", LocalService({"/echo": echo})), context=context)
        loop.freeze("server")
        connection = client.dial("n1/a.sock")
        late = asyncio.create_task(connection.call("/echo", b"hi"))
        code = await code_of(connection.call("/echo", b"", 2.0))
        waited_s = loop.time()
        loop.thaw("server")
        return code, round(waited_s), await late

    assert run_simulated(scenario) == ("DeadlineExceeded", 2, b"hi!")


def test_clearing_a_directory_removes_its_sockets_and_not_those_below():
    async def scenario(server, client, _):
        for path in ("n1/a.sock", "n1/plugins/b.sock", "n2/a.sock"):
            await server.serve(path, LocalService({"/echo": echo}))
        client.clear("n1")
        return [client.exists(path) for path in ("n1/a.sock", "n1/plugins/b.sock", "n2/a.sock")]

    assert run_simulated(scenario) == [False, True, True]


def test_connecting_waits_for_the_server_to_be_there():
    async def scenario(server, client, _):
        connection = client.dial("n1/a.sock")
        code = await code_of(connection.connect(10.0))
        waited_s = round(asyncio.get_running_loop().time())
        await server.serve("n1/a.sock", LocalService({"/echo": echo}))
        await connection.connect(10.0)
        return code, waited_s

    assert run_simulated(scenario) == ("DeadlineExceeded", 10)
