"""Several API servers over one etcd in a loop of virtual time: they are one server to whoever asks (guarantees S1 to S13).

The etcd is `fake_etcd`; `tests/process/test_etcd.py` does it over a real one.
"""

import asyncio
import random
from contextlib import asynccontextmanager

import msgspec
import pytest

from apiserver_fake import wiring
from apiserver_fake.config import ApiServerConfig
from apiserver_fake.registry.controlplane.server_endpoints import LEASES, SLICES, ServerEndpoints
from apiserver_fake.storage.etcd.commits import OWN
from apiserver_fake.storage.etcd.journal import EtcdJournal
from lab.scenarios.simulation import simloop
from services.api.identity import ADMIN
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request, WatchRequest
from services.runtime.config import StartError
from services.runtime.real import MemoryDisk, NoTransport
from services.telemetry.eventlog import MemoryEventLog, MemoryEvents
from services.telemetry.traces import Tracer
from tests.component.apiserver_fake.fake_etcd import Access, FakeEtcd

CONFIGMAPS = "configmaps"


class LoopClock:
    """Virtual time."""

    def now(self):
        return asyncio.get_running_loop().time()

    def wall(self):
        return 1_700_000_000 + self.now()


class Running:
    """One API server of a test, and its way to etcd."""

    def __init__(self, server, access, task, journal, events):
        self.server, self.access, self.task, self.journal, self._events = server, access, task, journal, events
        self.api = server.api_for(ADMIN)
        self.reads_before = access.reads

    @property
    def store(self):
        return self.server.store

    def lines(self, ev):
        return [line for line in map(msgspec.json.decode, self._events.dump().splitlines()) if line["ev"] == ev]

    async def call(self, verb, name="", resource=CONFIGMAPS, namespace="default", body=None, **fields):
        content = b"" if body is None else msgspec.json.encode(body)
        request = Request(verb=verb, resource=resource, namespace=namespace, name=name, body=content, **fields)
        return await self.api.call(request)

    async def create(self, name, data=None, **fields):
        return await self.call("create", body={"metadata": {"name": name}, "data": data or {}}, **fields)

    async def patch(self, name, data, rv="", **fields):
        return await self.call("patch", name, body={"data": data}, patch_type="merge", resource_version=rv, **fields)

    async def names(self):
        answer = (await self.call("list")).unwrap()
        return [each["metadata"]["name"] for each in msgspec.json.decode(answer.body)["items"]]


@asynccontextmanager
async def a_server(etcd, *, monkeypatch, watch_delay_s=0.001, **config):
    """Run a server; it is killed without warning at the end. All are started with one seed."""
    clock, dice, events = LoopClock(), random.Random(1), MemoryEvents()
    access = Access(etcd, watch_delay_s=watch_delay_s)
    journal = EtcdJournal(lambda: access, "/registry")
    monkeypatch.setattr(wiring, "_journal", lambda config, seams: journal)
    seams = Seams(
        component="apiserver",
        clock=clock,
        random=dice,
        disk=MemoryDisk(),
        transport=NoTransport(),
        events=MemoryEventLog("apiserver", clock, f"{dice.getrandbits(64):016x}", events),
        tracer=Tracer("apiserver", clock=clock, random=dice),
        switches=Switches(),
    )
    component = wiring.build(
        ApiServerConfig(engine="etcd", grpc_port=None, rest_port=None, state_hash=True, **config), seams
    )
    task = asyncio.create_task(component.run())
    ready = asyncio.create_task(component.server.wait_until_ready())
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if task.done():
        task.result()
    try:
        yield Running(component.server, access, task, journal, events)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def two(monkeypatch, etcd=None, **both):
    etcd = etcd or FakeEtcd()
    async with (
        a_server(etcd, monkeypatch=monkeypatch, **both) as a,
        a_server(etcd, monkeypatch=monkeypatch, **both) as b,
    ):
        yield etcd, a, b


def rv_of(answer):
    return msgspec.json.decode(answer.unwrap().body)["metadata"]["resourceVersion"]


def versions(etcd):
    """Return the resource versions of all changes in etcd's history, in order."""
    from apiserver_fake.storage.etcd.commits import Keys

    return [entry.rv for row in etcd.history for commit in Keys("registry").commits(row) for entry in commit.entries]


async def settled(*servers):
    """Wait until all mirrors show the same."""
    for server in servers:
        (await server.call("list")).unwrap()


def test_s13_what_one_server_has_acknowledged_the_other_shows_however_slow_its_watch_is(monkeypatch):
    async def scenario():
        async with two(monkeypatch, watch_delay_s=1.0) as (_, a, b):
            for i in range(3):
                made = await a.create(f"c{i}")
                assert rv_of(await b.call("get", f"c{i}")) == rv_of(made)
                assert f"c{i}" in await b.names()
                assert (await b.call("delete", f"c{i}")).code == 200
                assert (await a.call("get", f"c{i}")).code == 404

    simloop.run(scenario())


def test_s13_a_read_is_not_answered_by_what_an_earlier_read_found(monkeypatch):
    async def scenario():
        async with two(monkeypatch) as (_, a, b):
            a.access.delay_s = 1.0
            early = [asyncio.create_task(a.names()) for _ in range(3)]
            await asyncio.sleep(1.5)  # the head was looked at, and the answer is on its way
            await b.create("c")
            late = [asyncio.create_task(a.names()) for _ in range(3)]
            assert await asyncio.gather(*late) == [["c"]] * 3
            await asyncio.gather(*early)
            assert a.access.reads - a.reads_before == 2

    simloop.run(scenario())


def test_s13_a_watch_without_a_version_begins_with_what_the_other_server_has_acknowledged(monkeypatch):
    async def scenario():
        async with two(monkeypatch, watch_delay_s=1.0) as (_, a, b):
            await a.create("c")
            (first,) = await anext(aiter(b.api.watch(WatchRequest(resource=CONFIGMAPS))))
            assert (first.type, first.name) == ("ADDED", "c")
            await a.create("d")
            request = WatchRequest(
                resource=CONFIGMAPS,
                send_initial_events=True,
                allow_bookmarks=True,
                resource_version_match="NotOlderThan",
            )
            events = await anext(aiter(b.api.watch(request)))
            assert [(e.type, e.name) for e in events] == [("ADDED", "c"), ("ADDED", "d"), ("BOOKMARK", "")]
            opened = [line["data"]["start_rv"] for line in b.lines("watch.open")]
            assert opened == [first.rv, events[-1].rv], "judges of streams read where a watch began"

    simloop.run(scenario())


def test_s6_of_two_writers_at_two_servers_with_one_version_one_wins(monkeypatch):
    async def scenario():
        async with two(monkeypatch) as (etcd, a, b):
            made = await a.create("c", {"n": "0"})
            rv = rv_of(made)
            for turn in range(20):
                writers = enumerate((a, b, a, b))
                answers = await asyncio.gather(*(s.patch("c", {"n": f"{turn}/{n}"}, rv) for n, s in writers))
                assert sorted(answer.code for answer in answers) == [200, 409, 409, 409]
                (rv,) = (rv_of(answer) for answer in answers if answer.code == 200)
            assert a.journal.conflicts + b.journal.conflicts > 5
            assert versions(etcd) == list(range(1, a.store.rv + 1))

    simloop.run(scenario())


def test_s5_a_name_is_taken_once_and_what_is_refused_was_refused_by_the_newest_state(monkeypatch):
    async def scenario():
        async with two(monkeypatch, watch_delay_s=0.5) as (_, a, b):
            answers = await asyncio.gather(a.create("c"), b.create("c"))
            assert sorted(answer.code for answer in answers) == [201, 409]
            assert (await a.call("delete", "c")).code == 200
            assert (await b.create("c")).code == 201
            # Nothing of this is known to the other one yet: neither refusal may come from what it has in memory.
            assert (await a.create("c")).code == 409
            await b.call("delete", "c")
            assert (await a.patch("c", {})).code == 404

    simloop.run(scenario())


@pytest.mark.parametrize("fault", ["lost", "dropped", 0.3, 30.0])
def test_a_transaction_of_unknown_outcome_is_settled_before_the_answer(fault, monkeypatch):
    async def scenario():
        async with two(monkeypatch) as (etcd, a, b):
            a.access.faults = [fault]
            answers = await asyncio.gather(a.create("c"), a.create("d"))
            assert [answer.code for answer in answers] == [201, 201]
            a.access.faults = [fault, fault]
            answers = await asyncio.gather(a.create("e"), b.create("f"))
            assert [answer.code for answer in answers] == [201, 201]
            assert await b.names() == ["c", "d", "e", "f"]
            await asyncio.sleep(60.0)  # what was late has arrived
            assert not any(outcome.is_committed for outcome in a.access.late)
            assert len(a.access.late) == (3 if isinstance(fault, float) else 0)
            assert versions(etcd) == list(range(1, a.store.rv + 1))
            assert a.store.state_hash == b.store.state_hash

    simloop.run(scenario())


def test_s9_a_request_id_is_answered_by_the_other_server_as_by_the_first(monkeypatch):
    async def scenario():
        async with two(monkeypatch, watch_delay_s=0.5) as (_, a, b):
            first = await a.create("c", request_id="r1")
            again = await b.create("c", request_id="r1")
            assert (again.code, again.body) == (201, first.body)
            other = await b.create("d", request_id="r1")
            assert other.error().reason == "RequestIDReused"

    simloop.run(scenario())


def test_s10_pages_of_one_list_come_from_any_server_at_one_version(monkeypatch):
    async def scenario():
        async with two(monkeypatch, watch_delay_s=0.5) as (_, a, b):
            for name in "cdef":
                await a.create(name)
            page = msgspec.json.decode((await a.call("list", limit=2)).unwrap().body)
            await a.call("delete", "e")
            rest = await b.call("list", limit=2, continue_token=page["metadata"]["continue"])
            rest = msgspec.json.decode(rest.unwrap().body)
            assert [each["metadata"]["name"] for each in rest["items"]] == ["e", "f"]
            assert rest["metadata"]["resourceVersion"] == page["metadata"]["resourceVersion"]

    simloop.run(scenario())


def test_w5_a_watch_resumes_at_a_server_that_was_not_there_when_it_began(monkeypatch):
    async def scenario():
        etcd = FakeEtcd()
        async with a_server(etcd, monkeypatch=monkeypatch) as a:
            start = rv_of(await a.create("c"))
            for i in range(5):
                await a.patch("c", {"n": str(i)})
            await a.call("delete", "c")
            state_hash = a.store.state_hash
        async with a_server(etcd, monkeypatch=monkeypatch) as b:
            assert b.store.state_hash == state_hash
            watching = b.api.watch(WatchRequest(resource=CONFIGMAPS, resource_version=start))
            events = await anext(aiter(watching))
            assert [event.type for event in events] == ["MODIFIED"] * 5 + ["DELETED"]
            assert [event.rv for event in events] == list(range(int(start) + 1, int(start) + 7))
            assert b.lines("store.recovered")[0]["data"]["durable_rv"] == int(start) + 6

    simloop.run(scenario())


def test_w11_what_left_the_window_is_compacted_and_a_new_server_refuses_it(monkeypatch):
    monkeypatch.setattr("apiserver_fake.storage.etcd.journal.COMPACT_AFTER_CHANGES", 20)

    async def scenario():
        etcd = FakeEtcd()
        window = {"window_s": 5.0, "window_changes": 30}
        async with a_server(etcd, monkeypatch=monkeypatch, **window) as a:
            first = rv_of(await a.create("c"))
            for i in range(40):
                await a.patch("c", {"n": str(i)})
            await asyncio.sleep(10.0)
            for i in range(40):
                await a.create(f"d{i}")
            await asyncio.sleep(10.0)
            for i in range(40):
                await a.call("delete", f"d{i}")
            assert 1 < etcd.compacted < etcd.revision
            kept = a.store.window_start
        async with a_server(etcd, monkeypatch=monkeypatch, **window) as b:
            assert 0 < b.store.window_start <= kept
            assert await b.names() == ["c"]
            (gone,) = await anext(aiter(b.api.watch(WatchRequest(resource=CONFIGMAPS, resource_version=first))))
            assert msgspec.json.decode(gone.body)["code"] == 410
            events = await anext(aiter(b.api.watch(WatchRequest(resource=CONFIGMAPS, resource_version=str(kept)))))
            assert [event.rv for event in events] == list(range(kept + 1, b.store.rv + 1))

    simloop.run(scenario())


def test_a_server_that_another_client_compacted_away_from_ends_and_says_so(monkeypatch):
    async def scenario():
        async with two(monkeypatch) as (etcd, a, b):
            b.access.is_down = True
            await asyncio.sleep(1.0)
            await a.create("c")
            etcd.compact(etcd.revision)
            b.access.is_down = False
            with pytest.raises(ExceptionGroup) as ended:
                await b.task
            (error,) = errors_in(ended.value)
            assert isinstance(error, StartError)
            assert error.exit_code == 74
            assert "compacted" in error.message

    simloop.run(scenario())


def test_a_compaction_without_a_change_of_this_mesh_harms_no_server(monkeypatch):
    async def scenario():
        async with two(monkeypatch) as (etcd, a, b):
            await settled(a, b)
            for i in range(10):
                etcd.change({b"/other/x": b"%d" % i})
            b.access.is_down = True
            await asyncio.sleep(1.0)
            etcd.change({b"/other/x": b"last"})
            etcd.compact(etcd.revision)
            b.access.is_down = False
            await asyncio.sleep(3.0)
            await a.create("c")
            assert await b.names() == ["c"]

    simloop.run(scenario())


def errors_in(group):
    found = []
    for error in group.exceptions:
        found += errors_in(error) if isinstance(error, ExceptionGroup) else [error]
    return found


@pytest.mark.parametrize("how", ["put", "deleted", "head"])
def test_s15_what_no_api_server_wrote_is_refused_by_name(how, monkeypatch):
    async def scenario():
        async with two(monkeypatch) as (etcd, a, b):
            await a.create("c")
            key = b"/registry/configmaps/default/c"
            changes = {"put": ({key: b"{}"}, ()), "deleted": ({}, (key,)), "head": ({}, (b"/registry/.keplab/head",))}
            etcd.change(*changes[how])
            for server in (a, b):
                with pytest.raises(ExceptionGroup) as ended:
                    await server.task
                (error,) = errors_in(ended.value)
                assert error.exit_code == 78
                assert "/registry/" in error.message
                assert f"revision {etcd.revision}" in error.message

    simloop.run(scenario())


def test_s15_a_registry_of_kubernetes_is_not_taken_for_one_of_a_mesh(monkeypatch):
    async def scenario():
        etcd = FakeEtcd()
        etcd.change({b"/registry/pods/default/p": b"k8s\0..."})
        etcd.compact(etcd.change({b"x": b"y"}))
        with pytest.raises(ExceptionGroup) as ended:
            async with a_server(etcd, monkeypatch=monkeypatch):
                pass
        assert "/registry/pods/default/p" in str(errors_in(ended.value)[0])

    simloop.run(scenario())


def test_objects_lie_as_json_where_they_are_looked_for_and_removed_ones_do_not(monkeypatch):
    async def scenario():
        etcd = FakeEtcd()
        async with a_server(etcd, monkeypatch=monkeypatch) as a:
            made = await a.create("c")
            await a.create("d")
            await a.call("delete", "d")
            now = etcd.at(etcd.revision)
            assert now[b"/registry/configmaps/default/c"][0] == made.body
            assert b"/registry/configmaps/default/d" not in now
            assert b"/registry/scheduling.k8s.io/priorityclasses/system-node-critical" in now
            own = f"/registry/{OWN}/".encode()
            assert sorted(key.removeprefix(own) for key in now if key.startswith(own)) == [
                b"head",
                b"secret",
                b"servers",
            ]

    simloop.run(scenario())


def test_s4_what_does_not_fit_into_one_transaction_is_refused_and_never_split(monkeypatch):
    async def scenario():
        async with two(monkeypatch) as (etcd, a, b):
            many = await asyncio.gather(*(a.create(f"c{i:03}", {"x": "y" * 9_000}) for i in range(300)))
            assert {answer.code for answer in many} == {201}
            assert max(len(row) for row in etcd.history) <= 128
            assert max(sum(len(e.value or b"") for e in row) for row in etcd.history) < 1_536 << 10
            a.journal.bytes_max = 500_000
            large = await a.create("large", {"x": "y" * 500_000})
            assert (large.code, large.error().reason) == (413, "RequestEntityTooLarge")
            assert "etcdserver: request is too large" in str(large.error())
            assert len(await b.names()) == 300

    simloop.run(scenario())


def test_an_etcd_that_takes_less_than_by_default_is_given_less(monkeypatch):
    async def scenario():
        etcd = FakeEtcd()
        etcd.operations_max, etcd.bytes_max = 8, 100_000
        async with two(monkeypatch, etcd) as (_, a, b):
            many = await asyncio.gather(*(a.create(f"c{i:03}", {"x": "y" * 9_000}) for i in range(50)))
            assert {answer.code for answer in many} == {201}
            large = await a.create("large", {"x": "y" * 200_000})
            assert large.code == 413
            assert (await a.create("small")).code == 201
            assert len(await b.names()) == 51

    simloop.run(scenario())


def test_s16_a_full_etcd_makes_servers_read_only_until_there_is_space(monkeypatch):
    async def scenario():
        async with two(monkeypatch) as (etcd, a, b):
            await a.create("c")
            etcd.is_full = True
            refused = await a.create("d")
            assert (refused.code, refused.error().reason) == (503, "StoreReadOnly")
            assert await b.names() == ["c"]
            etcd.is_full = False
            await asyncio.sleep(2.0)
            assert (await a.create("d")).code == 201
            assert versions(etcd) == list(range(1, a.store.rv + 1))

    simloop.run(scenario())


def test_without_etcd_nothing_is_answered_that_only_it_can_know_and_all_heals(monkeypatch):
    async def scenario():
        async with two(monkeypatch) as (etcd, a, b):
            await a.create("c")
            watching = aiter(a.api.watch(WatchRequest(resource=CONFIGMAPS)))
            assert [event.name for event in await anext(watching)] == ["c"]
            a.access.is_down = True
            overtaken = asyncio.create_task(a.patch("c", {"by": "a"}))
            fresh = await a.call("get", "c")
            assert (fresh.code, fresh.error().reason, fresh.error().retry_after_s) == (503, "ServiceUnavailable", 1)
            assert "etcdserver: no leader" in str(fresh.error())
            assert (await a.call("get", "c", resource_version="0")).code == 200
            await asyncio.sleep(3.0)
            refused = await a.create("d")
            assert (refused.code, refused.error().reason) == (503, "ServiceUnavailable")
            assert (await b.patch("c", {"by": "b"})).code == 200
            a.access.is_down = False
            assert (await overtaken).code == 200
            assert (await a.create("d")).code == 201
            seen = []
            while len(seen) < 3:
                seen += [event for event in await anext(watching) if event.name]
            assert [event.type for event in seen] == ["MODIFIED", "MODIFIED", "ADDED"]
            assert versions(etcd) == list(range(1, a.store.rv + 1))

    simloop.run(scenario())


def test_health_checks_ask_etcd_and_fail_after_two_seconds_without_an_answer(monkeypatch):
    async def scenario():
        async with two(monkeypatch) as (_, a, b):
            loop = asyncio.get_running_loop()
            assert await a.server.etcd_failure() == ""
            a.access.is_down = True
            assert await a.server.etcd_failure() == "error getting data from etcd: etcdserver: no leader"
            a.access.delay_s = 60.0
            reads, began = a.access.reads, loop.time()
            found = await asyncio.gather(*(a.server.etcd_failure() for _ in range(20)))
            assert set(found) == {"error getting data from etcd: context deadline exceeded"}
            assert loop.time() - began == pytest.approx(2.0)
            assert a.access.reads == reads + 1
            assert await b.server.etcd_failure() == ""
            a.access.is_down, a.access.delay_s = False, 0.001
            assert await a.server.etcd_failure() == ""

    simloop.run(scenario())


def test_s8_a_write_whose_deadline_passed_without_etcd_has_no_effect_later(monkeypatch):
    async def scenario():
        async with two(monkeypatch) as (_, a, b):
            a.access.is_down = True
            answer = await a.create("c", deadline_s=3.0)
            assert answer.code == 504
            await asyncio.sleep(5.0)
            a.access.is_down = False
            await asyncio.sleep(5.0)
            assert await b.names() == await a.names() == []

    simloop.run(scenario())


def test_a_definition_made_at_one_server_is_served_by_the_other(monkeypatch):
    from tests.component.apiserver_fake.custom_resources import CRONTABS, a_definition, a_version

    async def scenario():
        async with two(monkeypatch) as (_, a, b):
            definition = a_definition(a_version())
            await a.call(
                "create", resource="customresourcedefinitions.apiextensions.k8s.io", namespace="", body=definition
            )
            await asyncio.sleep(2.0)
            body = {
                "apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": "x"}, "spec": {"replicas": 2},
            }  # fmt: skip
            made = await b.call("create", resource=CRONTABS, body=body)
            assert made.code == 201, made.body
            assert (await a.call("get", "x", resource=CRONTABS)).code == 200

    simloop.run(scenario())


@pytest.mark.parametrize("seed", range(6))
def test_any_mixture_of_faults_leaves_one_dense_history_and_equal_mirrors(seed, monkeypatch):
    async def scenario():
        etcd, dice = FakeEtcd(), random.Random(seed)
        acknowledged: dict[str, int] = {}
        async with two(monkeypatch, etcd) as (_, a, b):

            async def write(server, number):
                for i in range(25):
                    server.access.faults.append(dice.choice(["", "", "", "lost", "dropped", 0.01, 5.0]))
                    if dice.random() < 0.05:
                        server.access.is_down = True
                        asyncio.get_running_loop().call_later(1.0, setattr, server.access, "is_down", False)
                    name = f"n{number}-{i}"
                    answer = await server.create(name, request_id=name)
                    while answer.code in (503, 504):
                        await asyncio.sleep(0.5)
                        answer = await server.create(name, request_id=name)
                    assert answer.code == 201, answer.body
                    acknowledged[name] = answer.rv
                    shared = await server.patch("shared", {name: "x"})
                    while shared.code in (503, 504):
                        await asyncio.sleep(0.5)
                        shared = await server.patch("shared", {name: "x"})

            await a.create("shared")
            await asyncio.gather(*(write((a, b)[n % 2], n) for n in range(6)))
            await asyncio.sleep(30.0)
            await settled(a, b)
            assert versions(etcd) == list(range(1, a.store.rv + 1))
            assert (a.store.rv, a.store.state_hash) == (b.store.rv, b.store.state_hash)
            for name, rv in acknowledged.items():
                assert rv_of(await b.call("get", name)) == str(rv)
            shared = msgspec.json.decode((await a.call("get", "shared")).body)["data"]
            assert set(shared) == set(acknowledged)
            assert a.journal.conflicts + b.journal.conflicts > 10

    simloop.run(scenario(), seed=seed)


def test_the_service_kubernetes_leads_to_the_api_servers_that_are_alive(monkeypatch):
    async def scenario():
        async with two(monkeypatch) as (_, a, b):
            keepers = [
                ServerEndpoints(s.store, s.api, LoopClock(), "10.0.0.1", port, "1")
                for s, port in ((a, 6443), (b, 6444))
            ]
            tasks = [asyncio.create_task(keeper.run()) for keeper in keepers]
            await asyncio.sleep(40.0)

            async def endpoints():
                (found,) = msgspec.json.decode((await a.call("list", resource="endpoints")).body)["items"]
                slices = msgspec.json.decode((await a.call("list", resource=SLICES)).body)["items"]
                ports = [(port["port"], each["metadata"]["name"]) for each in slices for port in each["ports"]]
                return [port["port"] for each in found["subsets"] for port in each["ports"]], ports

            assert await endpoints() == ([6443, 6444], [(6443, "kubernetes"), (6444, "kubernetes-6444")])
            rv = (await a.call("get", "kubernetes", resource="endpoints")).rv
            tasks[0].cancel()
            await asyncio.sleep(15.0)
            assert (await a.call("get", "kubernetes", resource="endpoints")).rv == rv
            await asyncio.sleep(45.0)
            assert await endpoints() == ([6444], [(6444, "kubernetes")])
            await asyncio.sleep(4_000.0)
            leases = msgspec.json.decode((await a.call("list", resource=LEASES, namespace="kube-system")).body)["items"]
            assert [lease["metadata"]["name"] for lease in leases] == [keepers[1].lease]
            tasks[1].cancel()

    simloop.run(scenario())
