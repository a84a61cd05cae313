"""The whole server in one loop of virtual time: what callers may rely on, over crashes too."""

import asyncio
import errno
import random
from contextlib import asynccontextmanager

import msgspec
import pytest

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.registry.controlplane.event_expiry import EventExpiry
from apiserver_fake.registry.controlplane.event_sweep import EVENTS_SWEEP_S
from apiserver_fake.storage.records import Change, Record
from apiserver_fake.wiring import build
from lab.scenarios.simulation import simloop
from services.api.identity import ADMIN, ANONYMOUS, Hosting, Identity, host_identity
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request, Response, WatchRequest
from services.runtime.config import EXIT_USAGE, StartError
from services.runtime.real import MemoryDisk, NoTransport
from services.telemetry.eventlog import MemoryEventLog, MemoryEvents
from services.telemetry.traces import MemorySpans, Tracer

ANN, BOB = Identity("user:ann", ("system:mesh-admins",)), Identity("user:bob", ("system:mesh-admins",))

HOST = host_identity("h", Hosting(frozenset(("n1",))))


class LoopClock:
    """Virtual time."""

    def now(self):
        return asyncio.get_running_loop().time()

    def wall(self):
        return 1_700_000_000 + self.now()


class SlowDisk(MemoryDisk):
    """A disk whose appends take a millisecond and can be made to fail."""

    error, takes_s = None, 0.001

    async def append_all(self, parts):
        await asyncio.sleep(self.takes_s)
        if self.error is not None:
            raise self.error
        await super().append_all(parts)


class Machine:
    """One machine: its disk survives, the server on it comes and goes."""

    def __init__(self, seed=1):
        self.disk, self.events, self.spans, self.random = SlowDisk(), MemoryEvents(), MemorySpans(), random.Random(seed)

    @asynccontextmanager
    async def server(self, **config):
        """Run a server; it is killed without warning at the end."""
        clock = LoopClock()
        seams = Seams(
            component="apiserver",
            clock=clock,
            random=self.random,
            disk=self.disk,
            transport=NoTransport(),
            events=MemoryEventLog("apiserver", clock, f"{self.random.getrandbits(64):016x}", self.events),
            tracer=Tracer("apiserver", clock=clock, random=self.random, sinks=(self.spans,)),
            switches=Switches(),
        )
        component = build(
            ApiServerConfig(engine="memory", grpc_port=None, rest_port=None, state_hash=True, **config), seams
        )
        task = asyncio.create_task(component.run())
        ready = asyncio.create_task(component.server.wait_until_ready())
        await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done():
            task.result()
        try:
            yield component.server
        finally:
            task.cancel()
            (self.ended,) = await asyncio.gather(task, return_exceptions=True)

    def lines(self, ev):
        return [line for line in map(msgspec.json.decode, self.events.dump().splitlines()) if line["ev"] == ev]


def a_configmap(name, **data):
    return msgspec.json.encode({"metadata": {"name": name}, "data": data})


async def create(api, name, **fields):
    request = Request(verb="create", resource="configmaps", namespace="default", body=a_configmap(name), **fields)
    return await api.call(request)


async def patch(api, name, document, **fields):
    body = msgspec.json.encode(document)
    return await api.call(
        Request(verb="patch", resource="configmaps", namespace="default", name=name, body=body, patch_type="merge",
                **fields)
    )  # fmt: skip


async def listed(api, **fields):
    return await api.call(Request(verb="list", resource="configmaps", **fields))


def content(response):
    return {
        item["metadata"]["name"]: item["metadata"]["resourceVersion"]
        for item in msgspec.json.decode(response.body)["items"]
    }


def test_the_first_start_has_four_namespaces_and_two_priority_classes():
    async def scenario():
        async with Machine().server() as server:
            api = server.api_for(ADMIN)
            for resource, count in (("namespaces", 4), ("priorityclasses.scheduling.k8s.io", 2)):
                found = msgspec.json.decode((await api.call(Request(verb="list", resource=resource))).body)
                assert len(found["items"]) == count

    simloop.run(scenario())


def test_a_request_is_in_flight_until_its_answer_and_then_has_a_duration():
    async def scenario():
        async with Machine().server() as server:
            before, begun = server.metrics(), asyncio.get_running_loop().time()
            request = Request(verb="create", resource="configmaps", namespace="default", body=a_configmap("a"))
            write = server.start(ADMIN, request)
            during = server.metrics()
            await write
            return before, during, server.metrics(), asyncio.get_running_loop().time() - begun

    before, during, after, took_s = simloop.run(scenario())

    where = next(
        name.partition("{")[2] for name in after if name.startswith("apiserver_request_duration_seconds_count")
    )
    assert 'verb="POST",dry_run="",group="",version="v1",resource="configmaps"' in where
    assert [
        each['apiserver_current_inflight_requests{request_kind="mutating"}'] for each in (before, during, after)
    ] == [0, 1, 0]
    assert after[f"apiserver_request_duration_seconds_sum{{{where}"] == pytest.approx(took_s)
    assert took_s > 0


def test_s13_what_was_acknowledged_is_read_by_every_client_and_never_before_it_is_durable():
    async def scenario():
        machine = Machine()
        async with machine.server() as server:
            ann, bob = server.api_for(ANN), server.api_for(BOB)
            seen = []

            async def read():
                while True:
                    disk = b"".join(machine.disk.read(n) for n in machine.disk.names() if n.startswith("log-"))
                    names = content(await listed(bob))
                    assert all(f'"name":"{name}"'.encode() in disk for name in names)
                    seen.append(len(names))
                    await asyncio.sleep(0.0003)

            reader = asyncio.create_task(read())
            for step in range(50):
                made = await create(ann, f"p{step}")
                after = await listed(bob)
                assert f"p{step}" in content(after)
                assert after.rv >= made.rv
            reader.cancel()
            assert len(seen) > 50

    simloop.run(scenario())


@pytest.mark.parametrize("seed", range(5))
def test_as_01_as_10_s3_s14_after_kills_every_acknowledged_write_is_there_once(seed):
    async def scenario():
        machine, dice = Machine(seed), random.Random(seed)
        acknowledged, unknown, last_rv = {}, {}, 0
        for life in range(6):
            async with machine.server() as server:
                api = server.api_for(ANN)
                for name, request_id in unknown.items():
                    response = await create(api, name, request_id=request_id)
                    assert response.code == 201
                    acknowledged[name] = response.rv
                unknown.clear()
                assert server.store.rv >= last_rv
                calls = {}
                for step in range(40):
                    name = f"p{life}-{step}"
                    calls[name] = asyncio.create_task(create(api, name, request_id=name))
                    await asyncio.sleep(dice.uniform(0, 0.001))
                await asyncio.sleep(dice.uniform(0, 0.003))
                for name, call in calls.items():
                    if call.done():
                        acknowledged[name] = call.result().rv
                    else:
                        unknown[name] = name
                        call.cancel()
                last_rv = server.store.rv
                here = server.store.state_hash
            recovered = machine.lines("store.recovered")
            assert recovered
            if life:
                commits = {line["rv"]: line["data"] for line in machine.lines("store.commit")}
                durable = recovered[-1]["data"]
                known = commits.get(durable["durable_rv"], {}).get("state_hash", durable["state_hash"])
                assert known == durable["state_hash"]
            assert here
        async with machine.server() as server:
            names = content(await listed(server.api_for(BOB)))
            assert {name: int(names[name]) for name in acknowledged} == acknowledged
            changes = [line["rv"] for line in machine.lines("store.commit") if not line["data"].get("replayed")]
            replayed = [line["rv"] for line in machine.lines("store.commit") if line["data"].get("replayed")]
            assert sorted(set(changes) | set(replayed)) == list(range(1, server.store.rv + 1))
            assert len(changes) == len(set(changes))

    simloop.run(scenario(), seed=seed)


def test_as_10_equal_request_ids_of_two_identities_do_not_cross_over_a_restart():
    async def scenario():
        machine = Machine()
        async with machine.server() as server:
            first = await create(server.api_for(ANN), "a", request_id="r")
        async with machine.server() as server:
            assert await create(server.api_for(ANN), "a", request_id="r") == first
            assert (await create(server.api_for(BOB), "a", request_id="r")).code == 409
            assert (await create(server.api_for(ANN), "b", request_id="r")).error().reason == "RequestIDReused"

    simloop.run(scenario())


def test_guarantees_s9_who_lost_the_right_by_using_it_still_gets_the_recorded_answer():
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}}

    async def scenario():
        async with Machine().server() as server:
            body = msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", **pod})
            made = await server.api_for(ADMIN).call(
                Request(verb="create", resource="pods", namespace="default", name="p", body=body)
            )
            uid = msgspec.json.decode(made.body)["metadata"]["uid"]
            await server.api_for(ADMIN).call(Request(verb="delete", resource="pods", namespace="default", name="p"))
            node = server.api_for(Identity("system:node:n1", ("system:nodes",)))
            request = Request(
                verb="delete", resource="pods", namespace="default", name="p", uid=uid, request_id="r",
                body=b'{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}',
            )  # fmt: skip
            first = await node.call(request)
            assert first.code == 200
            assert await node.call(request) == first
            assert (await node.call(msgspec.structs.replace(request, request_id="s"))).code == 403

    simloop.run(scenario())


def test_as_09_s8_s9_a_write_with_a_short_deadline_on_a_slow_disk_happens_once_or_not_at_all():
    async def scenario():
        machine = Machine()
        async with machine.server() as server:
            api, loop = server.api_for(ANN), asyncio.get_running_loop()
            machine.disk.takes_s = 0.2
            names = [f"p{step}" for step in range(1_000)]
            seen_at: dict[str, float] = {}

            async def follow():
                async for batch in api.watch(WatchRequest(resource="configmaps")):
                    seen_at.update((event.name, loop.time()) for event in batch if event.type == "ADDED")

            following = asyncio.create_task(follow())
            begun, first = {}, {}

            async def call(name):
                await asyncio.sleep(names.index(name) * 0.003)
                begun[name] = loop.time()
                first[name] = await create(api, name, request_id=name, deadline_s=0.05)

            await asyncio.gather(*map(call, names))
            there = content(await listed(api))
            late = {name: at - begun[name] for name, at in seen_at.items() if at - begun[name] > 0.05 + 1 + 0.2}
            refused = [name for name in names if name not in there]
            assert late == {}
            assert 0 < len(refused) < 1_000  # those of whom the deadline passed while another batch was synced
            assert {(first[name].code, first[name].error().reason) for name in refused} == {(504, "Timeout")}

            for name in names:
                again = await create(api, name, request_id=name)
                assert again.code == 201
                assert name in refused or again.rv == int(there[name])
                assert again == first[name] or first[name].code == 504
            counted = [line for line in machine.lines("store.commit") if line["obj"]["kind"] == "ConfigMap"]
            assert len(counted) == 1_000

            for name in names[:100]:
                other = await patch(api, name, {"data": {"a": "b"}}, request_id=name)
                assert (other.code, other.error().reason) == (409, "RequestIDReused")
            following.cancel()

    simloop.run(scenario())


def test_as_08_s6_of_a_hundred_writers_with_one_version_one_wins():
    async def scenario():
        async with Machine().server() as server:
            api = server.api_for(ANN)
            version = (await create(api, "a")).rv
            for _ in range(10):
                calls = [
                    patch(api, "a", {"data": {"winner": str(i)}}, resource_version=str(version)) for i in range(100)
                ]
                codes = [response.code for response in await asyncio.gather(*calls)]
                assert sorted(codes) == [200] + [409] * 99
                version += 1
                stored = await api.call(Request(verb="get", resource="configmaps", namespace="default", name="a"))
                assert stored.rv == version
                assert msgspec.json.decode(stored.body)["data"]["winner"] == str(codes.index(200))

    simloop.run(scenario())


def test_as_08_s21_status_and_spec_writers_never_revert_each_other():
    async def scenario():
        async with Machine().server() as server:
            api = server.api_for(ADMIN)
            body = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}
            kind = {"resource": "poddisruptionbudgets.policy", "namespace": "default"}
            (await api.call(Request(verb="create", body=msgspec.json.encode(body), **kind))).unwrap()
            old = msgspec.json.decode((await api.call(Request(verb="get", name="b", **kind))).body)
            del old["metadata"]["resourceVersion"]
            status = {**old, "status": {"currentHealthy": 3, "desiredHealthy": 1, "disruptionsAllowed": 2,
                                        "expectedPods": 3}}  # fmt: skip
            spec = {**old, "spec": {**old["spec"], "minAvailable": 2}}

            for subresource, document in (("status", status), ("", spec), ("status", status)):
                request = Request(
                    verb="update", name="b", subresource=subresource, body=msgspec.json.encode(document), **kind
                )
                (await api.call(request)).unwrap()

            final = msgspec.json.decode((await api.call(Request(verb="get", name="b", **kind))).body)
            assert (final["spec"]["minAvailable"], final["status"]["currentHealthy"]) == (2, 3)

    simloop.run(scenario())


def test_as_12_s12_a_read_of_the_future_waits_three_seconds_and_blocks_no_other():
    async def scenario():
        async with Machine().server() as server:
            api = server.api_for(ANN)
            began, rv = asyncio.get_running_loop().time(), server.store.rv
            soon = asyncio.create_task(listed(api, resource_version=str(rv + 1)))
            never = asyncio.create_task(listed(api, resource_version=str(rv + 1_000_000)))
            await asyncio.sleep(1)
            made = await create(api, "a")
            assert (await soon).rv == made.rv
            assert asyncio.get_running_loop().time() - began < 1.1
            refused = await never
            assert 2.7 <= asyncio.get_running_loop().time() - began <= 3.3
            error = refused.error()
            assert (refused.code, error.reason, error.retry_after_s) == (504, "Timeout", 1)
            assert error.details["causes"][0]["reason"] == "ResourceVersionTooLarge"

    simloop.run(scenario())


async def collect(api, into, **request):
    """Follow a kind through any number of ends, resuming from the last version seen."""
    while True:
        async for batch in api().watch(WatchRequest(resource="configmaps", **request)):
            into.extend(batch)
            last = max((event.rv for event in batch), default=0)
            request.update(resource_version=str(last), resource_version_match="", send_initial_events=False)


@pytest.mark.parametrize("seed", range(3))
def test_as_16_streaming_starts_under_writes_have_no_gap_and_no_repeat(seed):
    async def scenario():
        async with Machine(seed).server() as server:
            api, dice = server.api_for(ANN), random.Random(seed)
            for step in range(100):
                await create(api, f"p{step}")
            streams, tasks = [], []

            async def write():
                for step in range(200):
                    await patch(api, f"p{dice.randrange(100)}", {"data": {"k": str(step)}})

            writing = asyncio.create_task(write())
            for _ in range(10):
                await asyncio.sleep(dice.uniform(0, 0.03))
                streams.append([])
                start = {"send_initial_events": True, "resource_version_match": "NotOlderThan"}
                tasks.append(asyncio.create_task(collect(lambda: api, streams[-1], **start)))
            await writing
            await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
            final = content(await listed(api))
            for events in streams:
                marks = [event for event in events if event.initial_events_end]
                assert len(marks) == 1
                begin = events.index(marks[0])
                assert len({event.name for event in events[:begin]}) == begin == 100
                changes = events[begin + 1 :]
                assert [event.rv for event in changes] == list(range(marks[0].rv + 1, server.store.rv + 1))
                assert {event.name: str(event.rv) for event in events if event.name} == final

    simloop.run(scenario(), seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_as_13_watchers_resume_over_restarts_without_loss_or_repeat(seed):
    async def scenario():
        machine, dice = Machine(seed), random.Random(seed)
        seen, position = [], None
        for life in range(8):
            async with machine.server() as server:
                api = server.api_for(ANN)
                position = position or str(server.store.rv)
                mine = []
                following = asyncio.create_task(collect(lambda: api, mine, resource_version=position))  # noqa: B023
                await asyncio.sleep(0)
                for step in range(20):
                    await create(api, f"p{life}-{step}")
                    if dice.random() < 0.1:
                        await asyncio.sleep(0.01)
                following.cancel()
                assert not [event for event in mine if event.type == "ERROR"]
                seen += [event for event in mine if event.name]
                position = str(max([int(position), *(event.rv for event in mine)]))
        async with machine.server() as server:
            last = []
            following = asyncio.create_task(collect(lambda: server.api_for(ANN), last, resource_version=position))
            await asyncio.sleep(0.1)
            following.cancel()
            seen += [event for event in last if event.name]
            versions = [event.rv for event in seen]
            assert versions == sorted(set(versions))
            assert len(versions) == 160

    simloop.run(scenario(), seed=seed)


def test_deleting_a_collection_deletes_what_is_selected():
    async def scenario():
        async with Machine().server() as server:
            api = server.api_for(ADMIN)
            for name in ("a", "b", "c"):
                await create(api, name)
            await patch(api, "b", {"metadata": {"labels": {"keep": "yes"}}})
            request = Request(
                verb="deletecollection", resource="configmaps", namespace="default", label_selector="keep!=yes"
            )
            assert (await api.call(request)).code == 200
            assert list(content(await listed(api))) == ["b"]

    simloop.run(scenario())


@pytest.mark.parametrize(("resource", "verb", "kind"), [
    ("deployments.apps", "get", "deployments/scale"), ("deployments.apps", "patch", "deployments/scale"),
    ("replicasets.apps", "get", "replicasets/scale"), ("replicasets.apps", "patch", "replicasets/scale"),
    ("statefulsets.apps", "get", "statefulsets"), ("statefulsets.apps", "patch", "statefulsets/scale"),
])  # fmt: skip
def test_the_scale_of_a_workload_that_is_not_there_is_missed_by_the_name_that_upstream_gives_it(resource, verb, kind):
    """Upstream's ScaleREST; the one of StatefulSets passes its store's answer to a read on."""

    async def scenario():
        async with Machine().server() as server:
            asked = Request(verb=verb, resource=resource, subresource="scale", namespace="default", name="x")
            if verb == "patch":
                asked = msgspec.structs.replace(asked, patch_type="merge", body=b'{"spec": {"replicas": 2}}')
            answer = await server.api_for(ADMIN).call(asked)
            said = msgspec.json.decode(answer.body)
            assert (answer.code, said["message"]) == (404, f'{kind}.apps "x" not found')
            assert said["details"] == {"name": "x", "group": "apps", "kind": kind}

    simloop.run(scenario())


def test_anonymous_callers_may_do_nothing_and_hosts_get_tokens_of_their_nodes():
    async def scenario():
        async with Machine().server() as server:
            anonymous = server.api_for(ANONYMOUS)
            assert (await listed(anonymous)).code == 403
            assert (await create(anonymous, "a")).code == 403
            with pytest.raises(Exception, match="forbidden"):
                await anext(aiter(anonymous.watch(WatchRequest(resource="configmaps"))))
            host = server.api_for(HOST)
            answer = await host.call(Request(verb="create", resource="nodetokens", name="n1"))
            token = msgspec.json.decode(answer.body)["token"]
            assert server.callers.authenticate(token, HOST.user).node == "n1"
            refused = await host.call(Request(verb="create", resource="nodetokens", name="n2"))
            why = f"the credential of {HOST.user} is for n1 alone"
            assert (refused.code, refused.error().message) == (403, f'nodetokens "n2" is forbidden: {why}')
            assert (await anonymous.call(Request(verb="create", resource="nodetokens", name="n1"))).code == 403

    simloop.run(scenario())


def test_node_tokens_survive_a_restart():
    async def scenario():
        machine = Machine()
        async with machine.server() as server:
            answer = await server.api_for(HOST).call(Request(verb="create", resource="nodetokens", name="n1"))
        async with machine.server() as server:
            assert server.callers.authenticate(msgspec.json.decode(answer.body)["token"], HOST.user).node == "n1"

    simloop.run(scenario())


def test_the_span_of_a_call_names_its_object_and_for_a_pod_the_pod_too():
    async def scenario():
        machine = Machine()
        async with machine.server() as server:
            for trace, resource in (("c", "pods"), ("d", "configmaps")):
                parent = f"00-{trace * 32}-{'b' * 16}-01"
                read = Request(verb="get", resource=resource, namespace="default", name="a", traceparent=parent)
                await server.api_for(ADMIN).call(read)
        found = {span.trace_id[0]: dict(span.attributes) for span in machine.spans.spans}
        named = {"k8s.namespace.name": "default", "keplab.name": "a", "keplab.code": 404}
        assert found["c"].items() >= {**named, "keplab.resource": "pods", "k8s.pod.name": "a"}.items()
        assert found["d"].items() >= {**named, "keplab.resource": "configmaps"}.items()
        assert "k8s.pod.name" not in found["d"]

    simloop.run(scenario())


def test_a_change_carries_the_span_of_the_call_that_made_it():
    async def scenario():
        machine = Machine()
        async with machine.server() as server:
            parent = f"00-{'a' * 32}-{'b' * 16}-01"
            watch = server.api_for(ADMIN).watch(WatchRequest(resource="configmaps"))
            first = asyncio.create_task(anext(aiter(watch)))
            await asyncio.sleep(0)
            await create(server.api_for(ADMIN), "a", traceparent=parent)
            (event,) = await first
            await watch.aclose()
        (span,) = [s for s in machine.spans.spans if s.trace_id == "a" * 32]
        assert (span.name, span.parent) == ("mesh.v1.ApiServer/Create", "b" * 16)
        assert event.traceparent == f"00-{'a' * 32}-{span.span_id}-01"

    simloop.run(scenario())


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"authorization_mode": "Node"}, "--authorization-mode 'Node' is none of mesh, RBAC"),
        ({"enable_admission_plugins": ("Odd",)}, "--enable-admission-plugins 'Odd' is none of ServiceAccount"),
        ({"max_requests_inflight": 0, "max_mutating_requests_inflight": 0},
         "--max-requests-inflight and --max-mutating-requests-inflight leave no request to be executed"),
    ],
)  # fmt: skip
def test_a_flag_that_cannot_be_is_a_usage_error_that_names_it(config, said):
    async def scenario():
        async with Machine().server(**config):
            pass

    with pytest.raises(StartError) as error:
        simloop.run(scenario())
    assert (error.value.message, error.value.exit_code) == (said, EXIT_USAGE)


def test_commits_are_logged_before_their_answers():
    async def scenario():
        machine = Machine()
        async with machine.server() as server:
            made = await create(server.api_for(ANN), "a", request_id="r")
            line = machine.lines("store.commit")[-1]
            assert (line["rv"], line["data"]["type"], line["data"]["group_end"]) == (made.rv, "ADDED", made.rv)
            assert line["data"]["state_hash"] == f"{server.store.state_hash:064x}"
            answer = machine.lines("api.response")[-1]
            assert (answer["req_id"], answer["identity"], answer["data"]["code"]) == ("r", ANN.user, 201)
            assert line["seq"] < answer["seq"]

    simloop.run(scenario())


def test_watch_events_are_logged_when_asked_for():
    async def scenario():
        machine = Machine()
        async with machine.server(log_watch_events=True) as server:
            watch = server.api_for(ANN).watch(WatchRequest(resource="configmaps"))
            first = asyncio.create_task(anext(aiter(watch)))
            await asyncio.sleep(0)
            made = await create(server.api_for(ANN), "a")
            await first
            await watch.aclose()
        (line,) = machine.lines("watch.event")
        assert (line["rv"], line["obj"]["name"], line["data"]["type"]) == (made.rv, "a", "ADDED")
        opened, closed = machine.lines("watch.open")[0], machine.lines("watch.close")[0]
        assert opened["data"]["watch"] == closed["data"]["watch"] == line["data"]["watch"]
        assert (closed["data"]["reason"], closed["data"]["last_rv"]) == ("ClientGone", made.rv)

    simloop.run(scenario())


def test_as_03_s16_a_failed_sync_ends_the_server_with_74():
    async def scenario():
        machine = Machine()
        async with machine.server() as server:
            machine.disk.error = OSError(errno.EIO, "Input/output error")
            call = asyncio.create_task(create(server.api_for(ANN), "a"))
            await asyncio.sleep(1)
            assert not call.done()
            call.cancel()
        error = machine.ended
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        assert isinstance(error, StartError)
        assert error.exit_code == 74

    simloop.run(scenario())


def test_calls_before_recovery_are_unavailable():
    async def scenario():
        machine = Machine()
        clock = LoopClock()
        seams = Seams("apiserver", clock, machine.random, machine.disk, NoTransport(),
                      MemoryEventLog("apiserver", clock, "0" * 16, machine.events),
                      Tracer("apiserver", clock=clock, random=machine.random), Switches())  # fmt: skip
        component = build(ApiServerConfig(engine="memory", grpc_port=None, rest_port=None), seams)
        assert (await listed(component.server.api_for(ADMIN))).code == 503
        assert (await create(component.server.api_for(ADMIN), "a")).code == 503

    simloop.run(scenario())


@pytest.mark.parametrize("seed", range(3))
def test_one_seed_gives_one_event_log(seed):
    async def scenario():
        machine = Machine(seed)
        async with machine.server() as server:
            api = server.api_for(ANN)
            seen = []
            following = asyncio.create_task(collect(lambda: api, seen, resource_version="0"))
            await asyncio.gather(*(create(api, f"p{i % 40}", request_id=f"r{i}") for i in range(60)))
            await asyncio.sleep(700)
            following.cancel()
        return machine.events.digest

    digests = {simloop.run(scenario(), seed=seed) for _ in range(3)}

    assert len(digests) == 1


def test_events_go_after_an_hour_and_the_oldest_above_their_number():
    def change(name, kind="ADDED"):
        record = Record("events", "default", name, "", 1, b"", {}, {})
        return Change(1, kind, record, None, 1)

    expiry = EventExpiry(ttl_s=3600, count_max=2)
    for at, name in enumerate("abc"):
        expiry.note(change(name), float(at))

    assert expiry.due(10) == [("default", "a")]
    expiry.note(change("a", "DELETED"), 10)
    assert expiry.due(10) == []
    expiry.note(change("b"), 20)
    assert expiry.due(3602) == [("default", "c")]


def test_the_oldest_events_go_above_their_size():
    expiry = EventExpiry(ttl_s=3600, count_max=100, bytes_max=1000)
    for at, name in enumerate("abc"):
        record = Record("events", "default", name, "", 1, b"x" * 600, {}, {})
        expiry.note(Change(1, "ADDED", record, None, 1), float(at))

    assert expiry.due(10) == [("default", "a"), ("default", "b")]
    smaller = Record("events", "default", "a", "", 1, b"x" * 100, {}, {})
    expiry.note(Change(1, "MODIFIED", smaller, None, 1), 11.0)
    assert expiry.due(11) == [("default", "b")]


@pytest.mark.parametrize(("event_ttl", "kept_s"), [("1h0m0s", 3_500), ("90s", 60)])
def test_an_old_event_is_removed_by_the_server(event_ttl, kept_s):
    async def scenario():
        async with Machine().server(event_ttl=event_ttl) as server:
            api = server.api_for(ADMIN)
            body = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
                    "reason": "R", "message": "m", "type": "Normal"}  # fmt: skip
            made = await api.call(
                Request(verb="create", resource="events", namespace="default", body=msgspec.json.encode(body))
            )
            made.unwrap()
            await asyncio.sleep(kept_s)
            assert server.store.get("events", "default", "e") is not None
            await asyncio.sleep(200)
            assert server.store.get("events", "default", "e") is None

    simloop.run(scenario())


def test_a_server_that_takes_no_deletes_is_asked_to_remove_old_events_once_a_sweep(monkeypatch):
    asked = []

    class Full:
        async def call(self, request):
            asked.append(request)
            return Response(code=503)

    async def scenario():
        async with Machine().server(event_ttl="10s") as server:
            api = server.api_for(ADMIN)
            for name in "abc":
                body = {
                    "metadata": {"name": name},
                    "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
                }
                request = Request(verb="create", resource="events", namespace="default", body=msgspec.json.encode(body))
                (await api.call(request)).unwrap()
            monkeypatch.setattr(server, "api_for", lambda _: Full())
            await asyncio.sleep(10 + 2 * EVENTS_SWEEP_S)

    simloop.run(scenario())

    assert 1 <= len(asked) <= 3
    assert {"a"} == {request.name for request in asked}


def test_an_event_ttl_that_is_no_duration_is_refused():
    with pytest.raises(StartError, match="--event-ttl 3600: want a duration such as 1h0m0s"):
        _ = ApiServerConfig(event_ttl="3600").event_ttl_s
