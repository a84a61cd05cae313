"""API servers over a real etcd: what `tests/component/apiserver_fake/test_etcd_engine.py` says, with its faults for real."""

import asyncio
import random
import signal
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

from apiserver_fake.storage.etcd.client import EtcdClient, EtcdFlags
from apiserver_fake.storage.etcd.keyvalues import CompactedError, DeniedError, TooLargeError, Txn, UnreachableError
from services.api.wire import Request, WatchRequest
from services.client.rpc import RpcTransport
from services.runtime.config import StartError
from services.runtime.real import RealClock
from tests.process.etcds import Etcd
from tests.process.test_apiserver_grpc import a_client, a_create, a_server, until


@pytest.fixture
def etcd(tmp_path):
    found = Etcd(tmp_path)
    found.start()
    yield found
    found.stop()


@pytest.fixture
def three(tmp_path):
    found = Etcd(tmp_path, 3)
    found.start()
    yield found
    found.stop()


def in_loop(scenario, bound_s=60):
    return asyncio.run(asyncio.wait_for(scenario(), bound_s))


@asynccontextmanager
async def a_client_of(servers, **flags):
    client = EtcdClient(EtcdFlags(servers, **flags))
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def two(etcd, tmp_path):
    """Two API servers over one etcd, and a client of each."""
    flags = {"engine": "etcd", "etcd_servers": etcd.servers}
    async with (
        a_server(tmp_path, **flags) as a,
        a_server(tmp_path, **flags) as b,
        a_client(a, admin="adm") as to_a,
        a_client(b, admin="adm") as to_b,
    ):
        yield (a.server, b.server), (to_a.api(), to_b.api())


async def names(api):
    answer = (await api.call(Request(verb="list", resource="configmaps"))).unwrap()
    return [each["metadata"]["name"] for each in msgspec.json.decode(answer.body)["items"]]


def patch(rv, **data):
    body = msgspec.json.encode({"data": data})
    return Request(
        verb="patch", resource="configmaps", namespace="default", name="c", patch_type="merge", body=body,
        resource_version=rv,
    )  # fmt: skip


def test_the_client_speaks_etcds_language(etcd):
    async def scenario():
        async with a_client_of(etcd.servers) as client:
            assert (await client.read(b"/x/head")).revision == 0
            first = await client.commit(Txn(b"/x/head", 0, [(b"/x/head", b"1"), (b"/x/a", b"a")]))
            assert first.is_committed
            again = await client.commit(Txn(b"/x/head", 0, [(b"/x/head", b"2")]))
            assert (again.is_committed, again.revision) == (False, first.revision)
            second = await client.commit(Txn(b"/x/head", first.revision, [(b"/x/head", b"2")], [b"/x/a"]))
            head = await client.read(b"/x/head")
            assert (head.value, head.revision, head.store_revision) == (b"2", second.revision, second.revision)
            then = await client.range(b"/x/", first.revision)
            assert [(kv.key, kv.value) for kv in then] == [(b"/x/a", b"a"), (b"/x/head", b"1")]
            assert [kv.key for kv in await client.range(b"/x/", first.revision, b"/x/a", 1)] == [b"/x/head"]
            seen = []
            async for events in client.watch(b"/x/", first.revision):
                seen += [(event.key, event.value, event.revision) for event in events]
                if seen[-1][2] == second.revision:
                    break
            assert seen[:2] == [(b"/x/head", b"1", first.revision), (b"/x/a", b"a", first.revision)]
            assert sorted(seen[2:]) == [(b"/x/a", None, second.revision), (b"/x/head", b"2", second.revision)]
            await client.compact(second.revision)
            await client.compact(second.revision)
            with pytest.raises(CompactedError) as compacted:
                await anext(client.watch(b"/x/", 1))
            assert compacted.value.revision == second.revision
            with pytest.raises(CompactedError):
                await client.range(b"/x/", first.revision)
            with pytest.raises(TooLargeError):
                await client.commit(Txn(b"/x/head", 0, [(b"/x/%d" % i, b"") for i in range(129)]))
            with pytest.raises(TooLargeError):
                await client.commit(Txn(b"/x/head", 0, [(b"/x/a", b"." * (2 << 20))]))

    in_loop(scenario)


def test_user_and_password_are_used_and_asked_for_again_when_a_token_is_over(etcd, tmp_path):
    member = etcd.members[0]
    for path, document in (
        ("/v3/auth/user/add", {"name": "root", "password": "secret"}),
        ("/v3/auth/role/add", {"name": "root"}),
        ("/v3/auth/user/grant", {"user": "root", "role": "root"}),
        ("/v3/auth/enable", {}),
    ):
        member.ask(path, document)
    (tmp_path / "right").write_text("secret\n")
    (tmp_path / "wrong").write_text("guess")

    async def scenario():
        async with a_client_of(etcd.servers) as client:
            with pytest.raises(DeniedError, match="user name is empty"):
                await client.read(b"x")
        async with a_client_of(etcd.servers, user="root", password_file=str(tmp_path / "wrong")) as client:
            with pytest.raises(DeniedError, match="authentication failed"):
                await client.read(b"x")
        async with a_client_of(etcd.servers, user="root", password_file=str(tmp_path / "right")) as client:
            await client.read(b"x")
            client._token = "old.1"
            assert (await client.commit(Txn(b"x", 0, [(b"x", b"1")]))).is_committed
            client._token = "old.2"
            with pytest.raises(UnreachableError):
                await anext(client.watch(b"x", 1))
            assert (await anext(client.watch(b"x", 1)))[0].value == b"1"
        flags = {"engine": "etcd", "etcd_servers": etcd.servers, "etcd_user": "root"}
        with pytest.raises(BaseExceptionGroup) as refused:
            async with a_server(tmp_path, **flags, etcd_password_file=str(tmp_path / "wrong")):
                pass
        assert "authentication failed" in repr(refused.value)
        async with a_server(tmp_path, **flags, etcd_password_file=str(tmp_path / "right")):
            pass

    in_loop(scenario)


@pytest.mark.parametrize(
    ("servers", "words"),
    [("", "needs --etcd-servers"), ("ftp://x:1", "want http://HOST:PORT"), ("http://x:1/y", "want http://HOST:PORT")],
)
def test_servers_that_cannot_be_are_refused_by_name(servers, words, tmp_path):
    async def scenario():
        with pytest.raises(StartError, match=words):
            async with a_server(tmp_path, engine="etcd", etcd_servers=servers):
                pass

    in_loop(scenario)


def test_s6_s9_s10_s13_two_servers_are_one(etcd, tmp_path):
    async def scenario():
        async with two(etcd, tmp_path) as ((a, b), (to_a, to_b)):
            for i in range(20):
                made = (await to_a.call(a_create(f"p{i:02}"))).unwrap()
                assert f"p{i:02}" in await names(to_b)
                again = await to_b.call(msgspec.structs.replace(a_create(f"q{i:02}"), request_id=f"r{i}"))
                known = await to_a.call(msgspec.structs.replace(a_create(f"q{i:02}"), request_id=f"r{i}"))
                assert (known.code, known.body) == (again.code, again.body) == (201, again.body)
            rv = msgspec.json.decode((await to_a.call(a_create("c"))).body)["metadata"]["resourceVersion"]
            for turn in range(30):
                writers = enumerate((to_a, to_b, to_a, to_b))
                answers = await asyncio.gather(*(api.call(patch(rv, n=f"{turn}/{n}")) for n, api in writers))
                assert sorted(answer.code for answer in answers) == [200, 409, 409, 409]
                (won,) = (answer for answer in answers if answer.code == 200)
                rv = msgspec.json.decode(won.body)["metadata"]["resourceVersion"]
            page = await to_a.call(Request(verb="list", resource="configmaps", limit=5))
            token = msgspec.json.decode(page.body)["metadata"]["continue"]
            rest = (
                await to_b.call(Request(verb="list", resource="configmaps", limit=500, continue_token=token))
            ).unwrap()
            assert rest.rv == page.rv
            assert len(msgspec.json.decode(rest.body)["items"]) == 41 - 5
            assert made.rv < page.rv
            await until(lambda: a.store.rv == b.store.rv)

    in_loop(scenario)


async def churn(api, number, stop, acknowledged, name="n"):
    """Create objects one after the other, each with a request id that a repetition has again."""
    i = 0
    while not stop.is_set():
        i += 1
        key = f"{name}{number}-{i:04}"
        request = msgspec.structs.replace(a_create(key), request_id=key, deadline_s=10.0)
        while True:
            try:
                answer = await api.call(request)
            except Exception:
                await asyncio.sleep(0.1)
                continue
            if answer.code not in (429, 503, 504):
                break
            await asyncio.sleep(0.05)
        assert answer.code == 201, answer.body
        acknowledged[key] = answer.rv


async def follow(api, seen, start):
    """Follow all configmaps from a version, over any number of ends."""
    rv = start
    while True:
        try:
            async for batch in api.watch(WatchRequest(resource="configmaps", resource_version=str(rv))):
                for event in batch:
                    assert event.type != "ERROR", event.body
                    if event.name:
                        seen.append((event.rv, event.name))
                    rv = event.rv
        except AssertionError:
            raise
        except Exception:
            await asyncio.sleep(0.05)


async def proven(servers, apis, seen, acknowledged):
    """Check that nothing is lost or doubled: in the stores, and on the watches."""
    listed = [await names(api) for api in apis]
    assert [sorted(set(acknowledged) - set(each)) for each in listed] == [[] for _ in apis], "acknowledged, not listed"
    assert all(each == listed[0] for each in listed)
    rv = max(acknowledged.values())
    for followed in seen:
        await until(lambda followed=followed: followed and followed[-1][0] >= rv)
        versions = [each for each, _ in followed]
        assert versions == sorted(set(versions))
        assert {name: each for each, name in followed if name in acknowledged} == acknowledged
    await until(lambda: servers[0].store.rv == servers[1].store.rv)
    (first, second) = ({r.key: r.body for r in s.store.state_at(s.store.rv)} for s in servers)
    assert first == second


async def under_churn(etcd, tmp_path, disturb):
    """Write through two servers meanwhile; return how many writes were acknowledged, each of which is proven."""
    async with two(etcd, tmp_path) as (servers, apis):
        acknowledged: dict[str, int] = {}
        seen: list[list[tuple[int, str]]] = [[], []]
        stop = asyncio.Event()
        start = servers[0].store.rv
        following = [asyncio.create_task(follow(api, each, start)) for api, each in zip(apis, seen, strict=True)]
        writing = [asyncio.create_task(churn(apis[n % 2], n, stop, acknowledged)) for n in range(6)]
        await until(lambda: len(acknowledged) > 50)

        async def more():
            """Wait until writes have gone on."""
            before = len(acknowledged)
            await until(lambda: len(acknowledged) > before + 50)

        await disturb(more)
        stop.set()
        await asyncio.gather(*writing)
        await proven(servers, apis, seen, acknowledged)
        for task in following:
            task.cancel()
    return len(acknowledged)


def test_an_etcd_that_is_killed_and_comes_back_has_lost_and_doubled_nothing(etcd, tmp_path):
    async def disturb(more):
        for _ in range(3):
            etcd.members[0].kill()
            await asyncio.sleep(random.Random(1).random())
            etcd.members[0].start()
            await more()

    assert in_loop(lambda: under_churn(etcd, tmp_path, disturb)) > 200


def test_of_three_members_the_leader_is_killed_and_another_stopped_in_turn(three, tmp_path):
    async def disturb(more):
        for how in (signal.SIGKILL, signal.SIGSTOP):
            leader = await asyncio.to_thread(three.leader)
            leader.process.send_signal(how)
            await more()
            if how == signal.SIGSTOP:
                leader.process.send_signal(signal.SIGCONT)
            else:
                leader.kill()
                leader.start()
            await asyncio.to_thread(three.wait)
            await more()

    assert in_loop(lambda: under_churn(three, tmp_path, disturb), 90) > 250


def test_c3_c6_a_client_of_two_servers_goes_on_with_the_other_when_one_ends(etcd, tmp_path):
    async def scenario():
        flags = {"engine": "etcd", "etcd_servers": etcd.servers}
        async with AsyncExitStack() as stack:
            running = {}

            async def start(name, **more):
                running[name] = each = AsyncExitStack()
                server = await each.enter_async_context(a_server(tmp_path, **flags, **more))
                stack.push_async_callback(each.aclose)
                return server

            a, b = await start("a"), await start("b")
            ports = {"a": a.grpc_port, "b": b.grpc_port}
            both = f"127.0.0.1:{a.grpc_port},127.0.0.1:{b.grpc_port}"
            clock = RealClock()
            ways = [RpcTransport(both, {"admin": "adm"}, clock=clock, random=random.Random(n)) for n in range(6)]
            assert len({way._link.target for way in ways}) == 2, "both are used from the start"
            apis = [way.api() for way in ways]
            acknowledged: dict[str, int] = {}
            seen: list[list[tuple[int, str]]] = [[] for _ in ways]
            stop = asyncio.Event()
            begin = a.server.store.rv
            following = [asyncio.create_task(follow(api, each, begin)) for api, each in zip(apis, seen, strict=True)]
            writing = [asyncio.create_task(churn(api, n, stop, acknowledged)) for n, api in enumerate(apis)]
            servers = {"a": a, "b": b}
            for name in ("a", "b", "a"):
                before = len(acknowledged)
                await until(lambda before=before: len(acknowledged) > before + 60)
                await running[name].aclose()
                before = len(acknowledged)
                await until(lambda before=before: len(acknowledged) > before + 60)
                servers[name] = await start(name, grpc_port=ports[name])
            stop.set()
            await asyncio.gather(*writing)
            await proven([each.server for each in servers.values()], apis, seen, acknowledged)
            for task in following:
                task.cancel()
            for way in ways:
                await way.close()

    in_loop(scenario)


async def patiently(api, request):
    while (answer := await api.call(request)).code == 503:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    return answer


def test_s16_a_used_up_quota_makes_servers_read_only_until_it_is_cleared(tmp_path):
    etcd = Etcd(tmp_path, 1, "--quota-backend-bytes", str(3 << 20))
    etcd.start()
    member = etcd.members[0]

    async def scenario():
        async with two(etcd, tmp_path) as ((a, b), (to_a, to_b)):
            made = 0
            while (answer := await to_a.call(a_create(f"p{made}", x="y" * 100_000))).code == 201:
                made += 1
            assert (answer.code, answer.error().reason) == (503, "StoreReadOnly")
            assert (await to_b.call(a_create("other"))).code == 503
            assert len(await names(to_b)) == made
            for i in range(made):
                assert (
                    await to_a.call(Request(verb="get", resource="configmaps", namespace="default", name=f"p{i}"))
                ).is_ok
            await asyncio.to_thread(member.ask, "/v3/kv/compaction", {"revision": member.status["header"]["revision"]})
            await asyncio.to_thread(member.ask, "/v3/maintenance/defragment", {})
            # More space than there was, as by a larger quota: what lies there is all needed.
            await asyncio.to_thread(member.kill)
            member.allow(64 << 20)
            await asyncio.to_thread(etcd.wait)
            whose = member.status["header"]["member_id"]
            alarm = {"action": "DEACTIVATE", "memberID": whose, "alarm": "NOSPACE"}
            await asyncio.to_thread(member.ask, "/v3/maintenance/alarm", alarm)
            for name, api in (("more", to_a), ("other", to_b)):
                assert (await patiently(api, a_create(name))).code == 201
            assert len(await names(to_a)) == made + 2
            await until(lambda: a.store.rv == b.store.rv)

    try:
        in_loop(scenario)
    finally:
        etcd.stop()
