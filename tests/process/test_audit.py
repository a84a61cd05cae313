"""The audit log of a running API server: both endpoints, refusals, impersonation, and what goes wrong with it."""

import asyncio
import json
import random
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.wiring import build
from services.api.identity import ADMIN
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request, WatchRequest
from services.client.rpc import RpcTransport
from services.runtime.config import StartError
from services.runtime.real import MemoryDisk, NoTransport, RealClock
from services.telemetry.eventlog import NullEventLog
from services.telemetry.traces import Tracer

TOKENS = [
    {"token": "adm", "user": ADMIN.user, "groups": list(ADMIN.groups)},
    {"token": "sched", "user": "system:kube-scheduler"},
]
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, verbs: [list]}
- {level: RequestResponse, resources: [{resources: [configmaps]}]}
- {level: Metadata}
"""


@asynccontextmanager
async def a_server(folder, policy=POLICY, **config):
    (folder / "tokens").write_bytes(msgspec.json.encode(TOKENS))
    (folder / "policy.yaml").write_text(policy)
    settings = {
        "engine": "memory", "grpc_port": 0, "rest_port": 0, "token_file": str(folder / "tokens"),
        "authorization_mode": "RBAC", "audit_policy_file": str(folder / "policy.yaml"),
        "audit_log_path": str(folder / "audit.log"), **config,
    }  # fmt: skip
    clock, dice = RealClock(), random.Random(1)
    tracer = Tracer("apiserver", clock=clock, random=dice)
    seams = Seams("apiserver", clock, dice, MemoryDisk(), NoTransport(), NullEventLog(), tracer, Switches())
    server = build(ApiServerConfig(**settings), seams)
    task = asyncio.create_task(server.run())
    try:
        async with asyncio.timeout(20):
            while not server.is_ready and not task.done():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        if task.done():
            task.result()
        yield server
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def in_loop(scenario):
    asyncio.run(asyncio.wait_for(scenario(), 40))


def events(folder, **wanted):
    """Return the events whose verb, user or stage is so."""
    found = [json.loads(line) for line in (folder / "audit.log").read_text().splitlines()]
    return [e for e in found if {"user": e["user"].get("username"), **{k: e[k] for k in ("verb", "stage")}} | wanted
            == {"user": e["user"].get("username"), **{k: e[k] for k in ("verb", "stage")}}]  # fmt: skip


async def rest(server, method, path, token="adm", body=None, **headers):
    url = f"http://127.0.0.1:{server.rest_port}{path}"
    headers = {"Authorization": f"Bearer {token}", **headers}
    async with aiohttp.ClientSession(headers=headers) as session, session.request(method, url, json=body) as answer:
        return answer.status, answer.headers


def test_x_aud_requests_over_rest_are_recorded_as_upstream_records_them(tmp_path):
    async def scenario():
        async with a_server(tmp_path) as server:
            body = {"metadata": {"name": "c", "namespace": "default"}, "data": {"a": "b"}}
            path = "/api/v1/namespaces/default/configmaps"
            code, headers = await rest(server, "POST", path, body=body, **{"User-Agent": "me/1", "Audit-ID": "mine"})
            assert (code, headers["Audit-Id"]) == (201, "mine")
            assert (await rest(server, "GET", path))[0] == 200
            assert (await rest(server, "GET", "/api/v1/namespaces/default/secrets/x", "sched"))[0] == 403
            assert (await rest(server, "GET", "/api/v1/nodes/x", "wrong"))[0] == 401
            assert (await rest(server, "GET", "/metrics", **{"Impersonate-User": "eve"}))[0] == 403

    in_loop(scenario)
    (made,) = events(tmp_path, verb="create", user=ADMIN.user)
    assert (made["auditID"], made["userAgent"], made["sourceIPs"]) == ("mine", "me/1", ["127.0.0.1"])
    assert made["requestURI"] == "/api/v1/namespaces/default/configmaps"
    assert made["requestObject"]["data"] == made["responseObject"]["data"] == {"a": "b"}
    assert made["responseObject"]["metadata"]["uid"]
    assert made["objectRef"] == {"resource": "configmaps", "namespace": "default", "name": "c", "apiVersion": "v1"}
    (refused,) = events(tmp_path, user="system:kube-scheduler")
    assert refused["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert (refused["responseStatus"]["code"], refused["responseStatus"]["reason"]) == (403, "Forbidden")
    (unknown,) = events(tmp_path, stage="ResponseStarted")
    assert (unknown["user"], unknown["responseStatus"]["code"]) == ({}, 401)
    (acting,) = [e for e in events(tmp_path, user=ADMIN.user) if "impersonatedUser" in e]
    assert acting["impersonatedUser"] == {"username": "eve", "groups": ["system:authenticated"]}
    assert (acting["requestURI"], acting["verb"], "objectRef" in acting) == ("/metrics", "get", False)
    assert not events(tmp_path, verb="list")


def test_x_aud_calls_and_watches_of_components_are_recorded_with_the_paths_that_rest_has(tmp_path):
    async def scenario():
        async with a_server(tmp_path) as server:
            target, tokens = f"127.0.0.1:{server.grpc_port}", {ADMIN.user: "adm", "system:kube-scheduler": "sched"}
            transport = RpcTransport(target, tokens, clock=RealClock(), random=random.Random(2))
            body = msgspec.json.encode({"metadata": {"name": "c"}, "data": {"a": "b"}})
            made = Request(verb="create", resource="configmaps", namespace="default", body=body)
            assert (await transport.api().call(made)).code == 201
            scheduler = transport.api("system:kube-scheduler")
            assert (await scheduler.call(made)).code == 403
            bind = Request(verb="create", resource="pods", subresource="binding", namespace="default", name="p")
            assert (await scheduler.call(bind)).code == 404
            acting = Request(verb="patch", resource="configmaps", namespace="default", name="c", as_user="eve")
            assert [(await each.call(acting)).code for each in (transport.api(), scheduler)] == [403, 403]
            watch = transport.api().watch(WatchRequest(resource="configmaps", namespace="default"))
            await anext(aiter(watch))
            await watch.aclose()
            await transport.close()

    in_loop(scenario)
    made, refused, bound = events(tmp_path, verb="create")
    assert (made["requestURI"], made["responseStatus"]["code"]) == ("/api/v1/namespaces/default/configmaps", 201)
    assert made["requestObject"]["data"] == made["responseObject"]["data"] == {"a": "b"}
    assert (made["user"]["groups"], made["sourceIPs"]) == ([*ADMIN.groups], ["127.0.0.1"])
    assert made["annotations"] == {
        "authorization.k8s.io/decision": "allow",
        "authorization.k8s.io/reason": 'mesh: rule "all"',
    }
    assert refused["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert bound["requestURI"] == "/api/v1/namespaces/default/pods/p/binding"
    assert bound["annotations"]["authorization.k8s.io/reason"] == 'mesh: rule "bind"'
    eve, not_eve = events(tmp_path, verb="patch")
    assert (eve["user"]["username"], eve["impersonatedUser"]["username"]) == (ADMIN.user, "eve")
    assert (not_eve["user"]["username"], "impersonatedUser" in not_eve) == ("system:kube-scheduler", False)
    for each in (eve, not_eve):
        assert each["annotations"]["authorization.k8s.io/decision"] == "forbid"
    stages = [e["stage"] for e in events(tmp_path, verb="watch")]
    assert stages == ["ResponseStarted", "ResponseComplete"]


def test_a_log_that_cannot_be_written_stops_no_request(tmp_path):
    async def scenario():
        async with a_server(tmp_path, audit_log_path="/dev/full") as server:
            assert (await rest(server, "GET", "/api/v1/nodes/x"))[0] == 404
            assert server.metrics()["apiserver_audit_error_total"] == 1
            assert server.metrics()["apiserver_audit_event_total"] == 0

    in_loop(scenario)


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({"audit_log_path": ""}, "--audit-policy-file without --audit-log-path"),
        ({"audit_policy_file": ""}, "--audit-log-path without --audit-policy-file"),
        (
            {"policy": "kind: Policy\napiVersion: v1\nrules: [{level: None}]\n"},
            "v1 Policy: want audit.k8s.io/v1 Policy",
        ),
        ({"audit_log_path": "/proc/x/audit.log"}, "--audit-log-path /proc/x/audit.log: No such file or directory"),
    ],
)
def test_a_server_that_could_not_keep_its_log_does_not_start(tmp_path, config, line):
    async def scenario():
        with pytest.raises(StartError) as refused:
            async with a_server(tmp_path, **config):
                pass
        assert line in refused.value.message

    in_loop(scenario)
