"""Too many requests: who is served, who waits, who is refused, over real connections to both endpoints (AS-39)."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest

from apiserver_fake.extensions.fairness import gate
from services.api.errors import TooManyRequests
from services.api.identity import NODE_HOSTS_GROUP
from services.api.wire import Request, WatchRequest
from tests.process import test_apiserver_grpc as endpoints

TOKENS = [
    *(each for each in endpoints.TOKENS if each["token"] != "host"),
    {"token": "host", "user": "system:node-host:h", "groups": [NODE_HOSTS_GROUP], "node_prefix": "n"},
    {"token": "ann", "user": "user:ann", "groups": []},
    {"token": "bob", "user": "user:bob", "groups": []},
    {"token": "scheduler", "user": "system:kube-scheduler", "groups": []},
]
MAPS = "/api/v1/namespaces/ann/configmaps"
"""Users have the namespaces of their names."""
HIS = "/api/v1/namespaces/bob/configmaps"
LISTED = 1_200


class Held:
    """Long answers go on only when a test says so."""

    def __init__(self):
        self.is_open = asyncio.Event()
        self.waiting = 0

    async def next(self):
        self.waiting += 1
        try:
            await self.is_open.wait()
        finally:
            self.waiting -= 1


@asynccontextmanager
async def a_server(tmp_path, monkeypatch, **settings):
    monkeypatch.setattr(endpoints, "TOKENS", TOKENS)
    async with endpoints.a_server(tmp_path, **settings) as server:
        base = f"http://127.0.0.1:{server.rest_port}"
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(base, connector=connector) as http:
            yield server, http


async def fill(server, count=LISTED):
    async with endpoints.a_client(server, adm="adm") as client:
        api = client.api()
        for name in ("ann", "bob"):
            body = msgspec.json.encode({"metadata": {"name": name}})
            await api.call(Request(verb="create", resource="namespaces", body=body))
        await asyncio.gather(*(api.call(a_map(f"c{n}", text="x" * 900)) for n in range(count)))


def a_map(name, **data):
    return msgspec.structs.replace(endpoints.a_create(name, **data), namespace="ann")


async def narrow(http):
    """Give each client one queue of five requests, and all of them few seats."""
    queuing = {"queues": 64, "handSize": 1, "queueLengthLimit": 5}
    limited = {"nominalConcurrencyShares": 5, "borrowingLimitPercent": 0}
    limited["limitResponse"] = {"type": "Queue", "queuing": queuing}
    body = {"metadata": {"name": "global-default"}, "spec": {"type": "Limited", "limited": limited}}
    path = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
    async with http.post(path, json=body, headers=as_user("adm")) as answer:
        assert answer.status == 201, await answer.text()


def as_user(name, **more):
    return {"Authorization": f"Bearer {name}", **more}


async def listed(http, who, path=MAPS, **headers):
    async with http.get(path, headers=as_user(who, **headers)) as answer:
        body = await answer.read()
        return answer.status, dict(answer.headers), body


def metric(server, name, **labels):
    text = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return server.metrics()[f"apiserver_flowcontrol_{name}{{{text}}}"]


def test_as_39_heartbeats_and_binds_are_answered_while_lists_of_one_user_wait_and_are_refused(tmp_path, monkeypatch):
    async def scenario():
        settings = {"max_requests_inflight": 80, "max_mutating_requests_inflight": 40}
        async with a_server(tmp_path, monkeypatch, **settings) as (server, http):
            await fill(server)
            await narrow(http)
            fairness = server.server.fairness
            held = fairness.slices = Held()
            level = fairness.levels.levels["global-default"]
            lists = [asyncio.create_task(listed(http, "ann")) for _ in range(40)]
            served = level.current + 5
            assert level.current == 3
            await endpoints.until(lambda: sum(task.done() for task in lists) == len(lists) - served)
            refused = [task.result() for task in lists if task.done()]
            assert {(status, headers["Retry-After"], body) for status, headers, body in refused} == {
                (429, "1", b"Too many requests, please try again later.\n")
            }
            assert refused[0][1]["Content-Type"] == "text/plain; charset=utf-8"
            assert (level.queues.waiting, level.queues.executing, held.waiting) == (5, 3, 3)

            tokens = {"host": "host", "scheduler": "scheduler", "adm": "adm"}
            async with endpoints.a_client(server, **tokens) as client:
                nodes = [await client.node_api(f"n{number}") for number in range(20)]
                heartbeats = [await node.call(a_lease(f"n{n}")) for n, node in enumerate(nodes)]
                heartbeats += [await node.call(a_renewal(f"n{n}")) for n, node in enumerate(nodes)]
                assert {answer.code for answer in heartbeats} == {200, 201}
                made = [await client.api("adm").call(a_pod(f"p{number}")) for number in range(20)]
                assert {answer.code for answer in made} == {201}
                bound = [await client.api("scheduler").call(a_binding(f"p{number}")) for number in range(20)]
                assert {answer.code for answer in bound} == {201}
            assert (await listed(http, "adm", "/readyz"))[0] == 200
            # Another client of the same level waits for its turn, and is not refused.
            other = asyncio.create_task(listed(http, "bob", HIS))
            await endpoints.until(lambda: waits_for(level, "user:bob"))

            held.is_open.set()
            answers = await asyncio.gather(*lists)
            assert [status for status, _, _ in answers].count(200) == served
            assert (await other)[0] == 200
            whole = next(body for status, _, body in answers if status == 200)
            assert len(msgspec.json.decode(whole)["items"]) == LISTED
            assert level.queues.is_idle
            flow = {"priority_level": "global-default", "flow_schema": "global-default"}
            assert metric(server, "rejected_requests_total", **flow, reason="queue-full") == len(refused)
            assert metric(server, "dispatched_requests_total", **flow) == served + 1

    endpoints.in_loop(scenario)


def waits_for(level, user):
    return any(request.about[0].user == user for queue in level.queues.queues for request in queue.waiting)


def a_lease(node, rv=""):
    spec = {"holderIdentity": node, "leaseDurationSeconds": 40}
    body = msgspec.json.encode({"metadata": {"name": node}, "spec": spec})
    return Request(verb="create", resource="leases.coordination.k8s.io", namespace="kube-node-lease", body=body)


def a_renewal(node):
    body = msgspec.json.encode({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})
    return Request(
        verb="patch", resource="leases.coordination.k8s.io", namespace="kube-node-lease", name=node,
        patch_type="merge", body=body,
    )  # fmt: skip


def a_pod(name):
    spec = {"containers": [{"name": "c", "image": "i"}]}
    body = msgspec.json.encode({"metadata": {"name": name}, "spec": spec})
    return Request(verb="create", resource="pods", namespace="default", body=body)


def a_binding(name):
    body = msgspec.json.encode({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}})
    return Request(verb="create", resource="pods", namespace="default", name=name, subresource="binding", body=body)


def test_a_list_that_waits_too_long_is_refused_and_one_whose_client_leaves_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "WAIT_SHARE", 200)

    async def scenario():
        async with a_server(tmp_path, monkeypatch, max_requests_inflight=12, max_mutating_requests_inflight=0) as (
            server,
            http,
        ):
            await fill(server)
            fairness = server.server.fairness
            held = fairness.slices = Held()
            level = fairness.levels.levels["global-default"]
            first = asyncio.create_task(listed(http, "ann"))
            await endpoints.until(lambda: held.waiting)
            left = asyncio.create_task(listed(http, "ann"))
            await endpoints.until(lambda: level.queues.waiting)
            left.cancel()
            await endpoints.until(lambda: not level.queues.waiting)
            status, headers, _ = await listed(http, "bob", HIS)
            assert (status, headers["Retry-After"]) == (429, "1")
            assert level.queues.timed_out == level.queues.cancelled == 1
            held.is_open.set()
            assert (await first)[0] == 200
            assert level.queues.is_idle

    endpoints.in_loop(scenario)


def test_calls_of_a_component_wait_and_are_refused_by_the_same_levels(tmp_path, monkeypatch):
    async def scenario():
        async with a_server(tmp_path, monkeypatch, max_requests_inflight=8, max_mutating_requests_inflight=0) as (
            server,
            http,
        ):
            await fill(server)
            await narrow(http)
            fairness = server.server.fairness
            held = fairness.slices = Held()
            level = fairness.levels.levels["global-default"]
            async with endpoints.a_client(server, ann="ann", adm="adm") as client:
                a_list = Request(verb="list", resource="configmaps", namespace="ann")
                calls = [asyncio.create_task(client.api("ann").call(a_list)) for _ in range(40)]
                await endpoints.until(lambda: sum(task.done() for task in calls) == 40 - 5 - level.current)
                refused = [task.result() for task in calls if task.done()]
                error = refused[0].error()
                assert (error.code, error.retry_after_s) == (429, 1)
                assert error.message == "Too many requests, please try again later."
                # An administrator is exempt.
                assert (await client.api("adm").call(a_map("more"))).code == 201
                held.is_open.set()
                codes = [answer.code for answer in await asyncio.gather(*calls)]
                assert {*codes} == {200, 429}
            assert level.queues.is_idle

    endpoints.in_loop(scenario)


def test_watches_count_while_they_start(tmp_path, monkeypatch):
    async def scenario():
        async with a_server(tmp_path, monkeypatch, max_requests_inflight=8, max_mutating_requests_inflight=0) as (
            server,
            http,
        ):
            await fill(server, 300)
            level = server.server.fairness.levels.levels["global-default"]
            path = f"{MAPS}?watch=1&timeoutSeconds=30"
            streams = [await http.get(path, headers=as_user("ann")) for _ in range(20)]
            assert {stream.status for stream in streams} == {200}
            for stream in streams:
                assert len([await stream.content.readline() for _ in range(300)]) == 300
            await endpoints.until(lambda: level.queues.is_idle)
            assert level.queues.dispatched == 20
            for stream in streams:
                stream.close()

    endpoints.in_loop(scenario)


def test_too_many_watches_of_one_identity_are_refused(tmp_path, monkeypatch):
    async def scenario():
        async with a_server(tmp_path, monkeypatch) as (server, _):
            await fill(server, 1)
            async with endpoints.a_client(server, ann="ann") as client:
                opened, refused = 0, 0
                tasks = []

                async def follow():
                    nonlocal opened, refused
                    try:
                        request = WatchRequest(resource="configmaps", namespace="ann", allow_bookmarks=True)
                        async for _ in client.api().watch(request):
                            opened += 1
                            await asyncio.Event().wait()
                    except TooManyRequests:
                        refused += 1

                tasks = [asyncio.create_task(follow()) for _ in range(300)]
                await endpoints.until(lambda: opened + refused == 300)
                assert (opened, refused) == (256, 44)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    endpoints.in_loop(scenario)


@pytest.mark.parametrize("what", ["dump_priority_levels", "dump_queues", "dump_requests"])
def test_debug_endpoints_are_for_administrators(tmp_path, monkeypatch, what):
    async def scenario():
        async with a_server(tmp_path, monkeypatch) as (_, http):
            path = f"/debug/api_priority_and_fairness/{what}"
            status, _, body = await listed(http, "adm", path)
            assert (status, body.split(b",")[0]) == (200, b"PriorityLevelName")
            assert (await listed(http, "ann", path))[0] == 403
            assert (await listed(http, "adm", "/debug/api_priority_and_fairness/dump_else"))[0] == 404

    endpoints.in_loop(scenario)


def test_stored_objects_decide_at_once_and_a_schema_says_whether_its_level_exists(tmp_path, monkeypatch):
    kinds = "/apis/flowcontrol.apiserver.k8s.io/v1"

    async def scenario():
        async with a_server(tmp_path, monkeypatch, cluster_objects=True) as (server, http):

            async def ask(method, path, body=None):
                async with http.request(method, f"{kinds}/{path}", json=body, headers=as_user("adm")) as answer:
                    assert answer.status < 300, await answer.text()
                    return await answer.json()

            async def dangling(name):
                while True:
                    found = (await ask("GET", f"flowschemas/{name}")).get("status", {}).get("conditions")
                    if found:
                        return found[0]
                    await asyncio.sleep(0.005)

            await fill(server)
            rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
            spec = {
                "matchingPrecedence": 300,
                "priorityLevelConfiguration": {"name": "mine"},
                "distinguisherMethod": {"type": "ByUser"},
                "rules": [{"subjects": [{"kind": "User", "user": {"name": "user:ann"}}], "resourceRules": [rule]}],
            }
            await ask("POST", "flowschemas", {"metadata": {"name": "mine"}, "spec": spec})
            found = await dangling("mine")
            text = 'This FlowSchema references the PriorityLevelConfiguration object named "mine" but there is no such object'
            assert (found["status"], found["reason"], found["message"]) == ("True", "NotFound", text)
            assert "mine" not in server.server.fairness.levels.levels
            limited = {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}
            level = {"metadata": {"name": "mine"}, "spec": {"type": "Limited", "limited": limited}}
            await ask("POST", "prioritylevelconfigurations", level)
            # No share: one request at a time, and no queue.
            held = server.server.fairness.slices = Held()
            first = asyncio.create_task(listed(http, "ann"))
            await endpoints.until(lambda: held.waiting)
            status, headers, _ = await listed(http, "ann")
            assert (status, headers["Retry-After"]) == (429, "1")
            assert "X-Kubernetes-Pf-Prioritylevel-Uid" in headers
            held.is_open.set()
            assert (await first)[0] == 200
            while (found := await dangling("mine"))["status"] != "False":  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            assert found["message"].endswith("and it exists")
            assert (await listed(http, "bob", HIS))[0] == 200
            await ask("DELETE", "flowschemas/mine")
            assert (await listed(http, "ann"))[0] == 200

    endpoints.in_loop(scenario)


def test_a_host_of_nodes_and_its_nodes_are_no_clients(tmp_path, monkeypatch):
    async def scenario():
        async with a_server(tmp_path, monkeypatch) as (server, _):
            async with endpoints.a_client(server, host="host") as client:
                node = await client.node_api("n1")
                await node.call(a_lease("n1"))
            assert TOKENS[1]["groups"] == [NODE_HOSTS_GROUP]
            for schema, level in (("system-nodes", "system"), ("system-node-high", "node-high")):
                assert metric(server, "dispatched_requests_total", priority_level=level, flow_schema=schema) == 1

    endpoints.in_loop(scenario)
