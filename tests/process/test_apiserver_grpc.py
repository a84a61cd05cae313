"""The gRPC server with the real client on a real port, in one loop."""

import asyncio
import random
from contextlib import asynccontextmanager

import aiohttp
import grpc
import grpc.aio
import msgspec
import pytest

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.grpc import server as grpc_server
from apiserver_fake.wiring import build
from protos.mesh.v1 import apiserver_pb2 as pb
from protos.mesh.v1.apiserver_pb2_grpc import ApiServerStub
from services.api.errors import BadRequest, Forbidden, Unauthorized
from services.api.identity import ADMIN, NODE_HOSTS_GROUP
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request, WatchRequest
from services.client.rpc import RpcTransport
from services.runtime.config import StartError
from services.runtime.real import MemoryDisk, NoTransport, RealClock
from services.telemetry.eventlog import NullEventLog
from services.telemetry.traces import Tracer

TOKENS = [
    {"token": "adm", "user": "system:mesh-admin", "groups": ["system:mesh-admins"]},
    {"token": "host", "user": "system:node-host:h", "groups": [NODE_HOSTS_GROUP], "nodes": ["n1"]},
    {"token": "other", "user": "system:node-host:o", "groups": [NODE_HOSTS_GROUP], "node_prefix": "o-"},
]


def seams():
    clock, dice = RealClock(), random.Random(1)
    tracer = Tracer("apiserver", clock=clock, random=dice)
    return Seams("apiserver", clock, dice, MemoryDisk(), NoTransport(), NullEventLog(), tracer, Switches())


async def until(holds):
    """Wait for a state; the whole scenario has a bound."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


@asynccontextmanager
async def a_server(tmp_path, **config):
    (tmp_path / "tokens").write_bytes(msgspec.json.encode(TOKENS))
    settings = {"engine": "memory", "grpc_port": 0, "rest_port": 0, "token_file": str(tmp_path / "tokens"), **config}
    server = build(ApiServerConfig(**settings), seams())
    task = asyncio.create_task(server.run())
    try:
        async with asyncio.timeout(10):
            await until(lambda: server.is_ready or task.done())
        if task.done():
            task.result()
        yield server
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def a_client(server, **tokens):
    transport = RpcTransport(f"127.0.0.1:{server.grpc_port}", tokens, clock=RealClock(), random=random.Random(2))
    try:
        yield transport
    finally:
        await transport.close()


def a_create(name, **data):
    body = msgspec.json.encode({"metadata": {"name": name}, "data": data})
    return Request(verb="create", resource="configmaps", namespace="default", body=body)


def in_loop(scenario):
    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_client_that_wants_progress_gets_bookmarks_at_once_on_its_quiet_watches(tmp_path):
    async def main():
        async with a_server(tmp_path, rest_port=None) as server, a_client(server, admin="adm") as transport:
            api, marks = transport.api(), {"secrets": [], "configmaps": []}

            async def follow(resource):
                async for batch in api.watch(WatchRequest(resource=resource, allow_bookmarks=True)):
                    marks[resource] += [event.rv for event in batch if event.type == "BOOKMARK"]

            following = [asyncio.create_task(follow(resource)) for resource in marks]
            async with asyncio.timeout(5):  # a bookmark that comes by itself takes ten
                await until(lambda: len(server.server.hub.counts()) == 2)
                newest = (await api.call(a_create("a"))).rv
                transport.request_progress(("secrets",))
                await until(lambda: marks["secrets"])
            for task in following:
                task.cancel()
            assert {"secrets": [newest], "configmaps": []} == marks

    in_loop(main)


def test_calls_watches_and_big_lists_over_the_wire(tmp_path):
    async def scenario():
        async with a_server(tmp_path) as server, a_client(server, admin="adm") as transport:
            api = transport.api()
            events = []

            async def follow():
                while True:
                    start = str(events[-1].rv if events else server.server.store.window_start)
                    async for batch in api.watch(WatchRequest(resource="configmaps", resource_version=start)):
                        events.extend(event for event in batch if event.name)

            following = asyncio.create_task(follow())
            answers = await asyncio.gather(*(api.call(a_create(f"p{i}", k="x" * 25_000)) for i in range(200)))
            assert [answer.code for answer in answers] == [201] * 200
            listed = await api.call(Request(verb="list", resource="configmaps"))
            assert len(msgspec.json.decode(listed.body)["items"]) == 200
            assert len(listed.body) > 4 << 20
            await until(lambda: len(events) >= 200)
            assert [event.rv for event in events] == sorted(answer.rv for answer in answers)
            assert (events[0].type, events[0].resource, events[0].namespace) == ("ADDED", "configmaps", "default")
            following.cancel()

    in_loop(scenario)


def test_refusals_are_answers_and_a_refused_watch_is_an_error(tmp_path):
    async def scenario():
        async with a_server(tmp_path) as server, a_client(server, admin="adm") as transport:
            api = transport.api()
            missing = await api.call(Request(verb="get", resource="configmaps", namespace="default", name="nope"))
            assert (missing.code, missing.error().reason) == (404, "NotFound")
            with pytest.raises(BadRequest, match="field label not supported"):
                await anext(aiter(api.watch(WatchRequest(resource="pods", field_selector="spec.foo=1"))))

    in_loop(scenario)


def test_a_host_speaks_as_its_nodes_over_one_connection(tmp_path):
    async def scenario():
        async with a_server(tmp_path) as server, a_client(server, host="host") as transport:
            node = await transport.node_api("n1")
            body = msgspec.json.encode({"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4"}}})
            made = await node.call(Request(verb="create", resource="nodes", body=body))
            assert made.code == 201, made.body
            assert (await transport.api().call(Request(verb="get", resource="nodes", name="n1"))).code == 403
            assert (await transport.api().call(Request(verb="list", resource="pods"))).code == 403
            pods = node.watch(WatchRequest(resource="pods", field_selector="spec.nodeName=n1", resource_version="0"))
            first = asyncio.create_task(anext(aiter(pods)))
            admin = server.server.api_for(ADMIN)
            pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}}
            body = msgspec.json.encode(pod)
            (await admin.call(Request(verb="create", resource="pods", namespace="default", body=body))).unwrap()
            assert [event.name for event in await first] == ["p"]
            await pods.aclose()

    in_loop(scenario)


def test_guarantees_x_id5_a_nodes_token_is_good_on_its_own_hosts_connection_alone(tmp_path):
    async def scenario():
        async with a_server(tmp_path) as server:
            get = Request(verb="get", resource="nodes", name="n1")
            async with a_client(server, host="host") as host, a_client(server, other="other") as other:
                node = await host.node_api("n1")
                assert (await node.call(get)).code == 404
                stolen = host._node_apis["n1"]._token
                other._tokens["n1"] = stolen
                assert (await other.api("n1").call(get)).code == 401
                with pytest.raises(Unauthorized):
                    await anext(aiter(other.api("n1").watch(WatchRequest(resource="pods"))))
                with pytest.raises(Forbidden, match="is for nodes that begin with 'o-' alone"):
                    await other.node_api("n1")
                await other.node_api("o-1")
                headers = {"Authorization": f"Bearer {stolen}"}
                url = f"http://127.0.0.1:{server.rest_port}/api/v1/nodes/n1"
                async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as answer:
                    assert answer.status == 401

    in_loop(scenario)


def test_an_unknown_token_is_refused_as_a_whole_with_a_status(tmp_path):
    async def scenario():
        async with a_server(tmp_path) as server:
            async with a_client(server, admin="wrong") as transport:
                response = await transport.api().call(Request(verb="list", resource="configmaps"))
                assert response.code == Unauthorized.code
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
                call = ApiServerStub(channel).Call(
                    pb.Request(verb="list", resource="configmaps"), metadata=(("authorization", "Bearer wrong"),)
                )
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call
                trailer = dict(refused.value.trailing_metadata())
                assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
                assert msgspec.json.decode(trailer["mesh-status-bin"])["code"] == 401

    in_loop(scenario)


def test_unary_calls_are_for_tools(tmp_path):
    async def scenario():
        async with a_server(tmp_path) as server, grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            request = pb.Request(verb="list", resource="namespaces")
            answer = await ApiServerStub(channel).Call(request, metadata=(("authorization", "Bearer adm"),))
            assert (answer.code, len(msgspec.json.decode(answer.body)["items"])) == (200, 4)

    in_loop(scenario)


def test_as_20_a_watcher_that_takes_nothing_is_cut_and_others_are_not(tmp_path):
    async def scenario():
        async with a_server(tmp_path) as server, a_client(server, admin="adm") as transport:
            api = transport.api()
            got = []

            async def follow():
                while True:
                    start = str(got[-1].rv if got else server.server.store.window_start)
                    async for batch in api.watch(WatchRequest(resource="configmaps", resource_version=start)):
                        got.extend(event for event in batch if event.name)

            following = asyncio.create_task(follow())
            options = (("grpc.http2.bdp_probe", 0), ("grpc.max_receive_message_length", 4 << 20))
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=options) as channel:
                stream = ApiServerStub(channel).Watch(metadata=(("authorization", "Bearer adm"),))
                await stream.write(pb.WatchControl(open=[pb.WatchRequest(id=1, resource="configmaps")]))
                await stream.read()
                for i in range(300):
                    await api.call(a_create(f"p{i}", k="x" * 20_000))
                assert server.server.hub.closed_slow >= 1
                await until(lambda: len(got) >= 300)
                assert len({event.name for event in got}) == 300
                reasons = []
                while not reasons:
                    frame = await stream.read()
                    reasons = [end.reason for end in frame.ends]
                assert reasons == ["SlowWatcher"]
                stream.cancel()
            following.cancel()

    in_loop(scenario)


@pytest.mark.parametrize("which", ["grpc_port", "rest_port"])
def test_a_busy_port_is_one_clear_line(tmp_path, which):
    async def scenario():
        async with a_server(tmp_path) as server:
            port = server.ports()[which.removesuffix("_port")]
            with pytest.raises(BaseExceptionGroup) as refused:
                async with a_server(tmp_path, **{which: port}):
                    pass
            error = refused.value
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            assert isinstance(error, StartError)
            assert f"127.0.0.1:{port}" in error.message
            assert error.exit_code == 78

    in_loop(scenario)


def test_sqlite_keeps_everything_over_a_restart(tmp_path):
    async def scenario():
        data = {"engine": "sqlite", "data_dir": str(tmp_path / "data"), "state_hash": True}
        async with a_server(tmp_path, **data) as server, a_client(server, admin="adm") as transport:
            answers = await asyncio.gather(*(transport.api().call(a_create(f"p{i}")) for i in range(50)))
            rv, state_hash = server.server.store.rv, server.server.store.state_hash
        async with a_server(tmp_path, **data) as server, a_client(server, admin="adm") as transport:
            assert (server.server.store.rv, server.server.store.state_hash) == (rv, state_hash)
            assert len(answers) == 50
            start = WatchRequest(resource="configmaps", resource_version=str(answers[0].rv))
            events = await anext(aiter(transport.api().watch(start)))
            assert [event.rv for event in events] == list(range(answers[0].rv + 1, rv + 1))

    in_loop(scenario)


def test_w13_a_quiet_stream_of_watches_carries_a_frame_every_ten_seconds(tmp_path, monkeypatch):
    assert grpc_server.HEARTBEAT_S == 10.0
    monkeypatch.setattr(grpc_server, "HEARTBEAT_S", 0.05)

    async def scenario():
        async with a_server(tmp_path) as server, a_raw_stream(server) as stream:
            opened = pb.WatchRequest(id=1, resource="configmaps", resource_version=str(server.server.store.rv))
            await stream.write(pb.WatchControl(open=[opened]))
            frames = [await stream.read() for _ in range(4)]
            assert [frame.heartbeat for frame in frames] == [True] * 4

    in_loop(scenario)


def test_w14_a_stream_that_takes_nothing_ends_with_the_reason_in_its_trailer(tmp_path, monkeypatch):
    assert grpc_server.BLOCKED_SEND_S == 10.0
    monkeypatch.setattr(grpc_server, "BLOCKED_SEND_S", 0.5)

    async def scenario():
        async with a_server(tmp_path) as server, a_client(server, admin="adm") as transport:
            api, ended = transport.api(), []
            server.server.hub._ended = ended.append
            async with a_raw_stream(server) as stream:
                opened = pb.WatchRequest(id=1, resource="configmaps", resource_version=str(server.server.store.rv))
                await stream.write(pb.WatchControl(open=[opened]))
                await until(lambda: server.server.hub.counts())
                number = 0
                while not ended:
                    number += 1
                    await api.call(a_create(f"p{number}", k="x" * 20_000))
                    await asyncio.sleep(0.01)
                received = []
                while (frame := await stream.read()) is not grpc.aio.EOF:
                    received += [event.rv for batch in frame.batches for event in batch.events]
                trailer = dict(await stream.trailing_metadata())
                assert (ended[0].end_reason, trailer[grpc_server.END_REASON]) == ("SlowWatcher", "SlowWatcher")
                assert received == list(range(received[0], received[0] + len(received))), "a contiguous prefix"

    in_loop(scenario)


def test_as_16_a_state_of_many_pieces_arrives_whole_for_every_watch_of_a_stream(tmp_path):
    async def scenario():
        async with a_server(tmp_path) as server, a_client(server, admin="adm") as transport:
            api = transport.api()
            await asyncio.gather(*(api.call(a_create(f"p{i:04d}", k="x" * 500)) for i in range(1_200)))
            listed = msgspec.json.decode((await api.call(Request(verb="list", resource="configmaps"))).body)["items"]
            start = {"send_initial_events": True, "resource_version_match": "NotOlderThan"}

            async def state():
                seen = []
                async for batch in api.watch(WatchRequest(resource="configmaps", **start)):
                    assert server.server.starts.held <= 4
                    seen += batch
                    if batch[-1].initial_events_end:
                        return [msgspec.json.decode(event.body) for event in seen[:-1]]
                return None

            assert all(found == listed for found in await asyncio.gather(*(state() for _ in range(12))))
            await until(lambda: server.server.starts.held == 0)
            assert server.server.starts.waiting == 0

    in_loop(scenario)


@asynccontextmanager
async def a_raw_stream(server):
    options = (("grpc.http2.bdp_probe", 0), ("grpc.max_receive_message_length", 4 << 20))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=options) as channel:
        stream = ApiServerStub(channel).Watch(metadata=(("authorization", "Bearer adm"),))
        yield stream
        stream.cancel()
