"""Connections pass admission before anything is opened: CONNECT of exec, attach, port-forward and the proxies. Real time.

Source: upstream `staging/src/k8s.io/apiserver/pkg/endpoints/handlers/rest.go` (ConnectResource).
"""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from multidict import MultiDict
from yarl import URL

from apiserver_fake.rest import connections
from apiserver_fake.rest.server import RestSettings, serve
from services.api.errors import ApiError, BadRequest
from services.api.identity import ADMIN
from services.runtime.real import RealClock
from services.telemetry.traces import Tracer
from tests.component.apiserver_fake.passing import pass_time
from tests.component.apiserver_fake.test_admission_webhooks import GROUP, allowed, denied, patching, scene

SPDY = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"}
PLACES = ["pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy", "nodes/proxy"]
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": PLACES}


class Outside:
    """A client of REST, and the kubelet of the only node, which refuses what it is asked; `dialed` has what that was."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.dialed: list[str] = []

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.dialed.append(head.split(" ")[1])
        writer.write(b"HTTP/1.1 418 Teapot\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()
        writer.close()

    async def __call__(self, path: str, method: str = "GET") -> Any:
        """Return the code, the Status or text, and the warnings of an answer."""
        headers = SPDY if "/proxy" not in path else {}
        async with self.client.request(method, URL(f"/api/v1/{path}", encoded=True), headers=headers) as answer:
            text = await answer.text()
            body = msgspec.json.decode(text) if "json" in answer.headers.get("Content-Type", "") else text
            return answer.status, body, answer.headers.getall("Warning", [])


@asynccontextmanager
async def outside(world: Any) -> Any:
    """Serve REST of the world's server, with one pod on one node."""
    world.server.callers.authenticate = lambda bearer, peer="": ADMIN
    clock = RealClock()
    tracer = Tracer("rest", clock=clock, random=random.Random(1), sinks=())
    running, port = await serve(world.server, "127.0.0.1", 0, clock=clock, tracer=tracer, settings=RestSettings())
    async with running, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        found = Outside(client)
        kubelet = await asyncio.start_server(found.take, "127.0.0.1", 0)
        try:
            status = {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.sockets[0].getsockname()[1]}},
            }
            await world("create", "nodes", namespace="", body={"metadata": {"name": "n"}})
            await world(
                "patch", "nodes", "n", {"status": status}, namespace="", subresource="status", patch_type="merge"
            )
            spec = {"containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "i:1"}], "nodeName": "n"}
            await world("create", "pods", body={"metadata": {"name": "p"}, "spec": spec})
            yield found
        finally:
            kubelet.close()


async def policy(world: Any, actions: list[str], *validations: Any, **spec: Any) -> None:
    """Store a ValidatingAdmissionPolicy for connections, and a binding of it."""
    rules = {"matchConstraints": {"resourceRules": [RULE]}, "validations": list(validations), **spec}
    await world("create", f"validatingadmissionpolicies.{GROUP}", body={"metadata": {"name": "v"}, "spec": rules})
    bound = {"policyName": "v", "validationActions": actions}
    body = {"metadata": {"name": "v-b"}, "spec": bound}
    await world("create", f"validatingadmissionpolicybindings.{GROUP}", body=body)


def noted(world: Any, verb: str) -> list[Any]:
    """Return the audit annotations of the event log's lines about that verb, in order."""
    return [line.data["audit"] for line in world.events.lines if line.data.get("verb") == verb and "audit" in line.data]


@pytest.mark.parametrize(
    ("resource", "subresource", "query", "path", "wanted"),
    [
        ("pods", "exec", [("command", "ls"), ("command", "-l"), ("stdout", "1"), ("tty", "false"), ("container", "c")], "",
         {"kind": "PodExecOptions", "command": ["ls", "-l"], "stdout": True, "container": "c"}),
        ("pods", "exec", [("stdin", "")], "", {"kind": "PodExecOptions", "stdin": True, "command": None}),
        ("pods", "attach", [("stderr", "true"), ("command", "x")], "", {"kind": "PodAttachOptions", "stderr": True}),
        ("pods", "portforward", [("ports", "80,81"), ("ports", "90")], "",
         {"kind": "PodPortForwardOptions", "ports": [80, 81, 90]}),
        ("pods", "portforward", [], "", {"kind": "PodPortForwardOptions"}),
        ("pods", "proxy", [("path", "/other")], "/a b/", {"kind": "PodProxyOptions", "path": "/a b/"}),
        ("services", "proxy", [], "", {"kind": "ServiceProxyOptions"}),
        ("nodes", "proxy", [], "/metrics", {"kind": "NodeProxyOptions", "path": "/metrics"}),
    ],
)  # fmt: skip
def test_options_are_read_from_the_query_and_come_back_as_they_were(resource, subresource, query, path, wanted):
    found = connections.options_of(resource, subresource, MultiDict(query), path)
    assert found == {**wanted, "apiVersion": "v1"}
    assert connections.complete_options(found) == found
    if subresource != "proxy":
        assert connections.options_of(resource, subresource, connections.query_of(found), "") == found


def test_options_that_cannot_be_are_refused():
    with pytest.raises(BadRequest, match="dryRun is not supported"):
        connections.options_of("pods", "exec", MultiDict(dryRun="All"), "")
    with pytest.raises(BadRequest, match="ports='x'"):
        connections.options_of("pods", "portforward", MultiDict(ports="80,x"), "")
    with pytest.raises(ApiError, match="Expected `array \\| null`, got `str`"):
        connections.complete_options({"kind": "PodExecOptions", "apiVersion": "v1", "command": "ls"})


@scene
async def test_a_webhook_sees_a_connection_as_an_admission_review_and_its_refusal_opens_nothing(world):
    await world.hook("validating", "a", lambda r: denied(r, message="no shells", code=403), rules=[RULE])
    async with outside(world) as ask:
        code, body, _ = await ask("namespaces/default/pods/p/exec?command=sh&stdin=true&container=c", "POST")
        assert (code, body["kind"], body["code"]) == (403, "Status", 403)
        assert body["message"] == 'admission webhook "a.example.com" denied the request: no shells'
        assert ask.dialed == []
    [(_, review)] = world.seen
    asked = review["request"]
    options = {"kind": "PodExecOptions", "apiVersion": "v1", "command": ["sh"], "stdin": True, "container": "c"}
    assert (asked["operation"], asked["object"], asked["oldObject"]) == ("CONNECT", options, None)
    assert (asked["options"], asked["dryRun"]) == (None, False)
    assert (asked["resource"]["resource"], asked["subResource"]) == ("pods", "exec")
    assert asked["kind"] == asked["requestKind"] == {"group": "", "version": "v1", "kind": "PodExecOptions"}
    assert (asked["namespace"], asked["name"], asked["userInfo"]["username"]) == ("default", "p", ADMIN.user)


@scene
async def test_each_way_to_a_container_is_a_connection_with_options_of_its_own(world):
    await world.hook("validating", "a", lambda r: denied(r, code=403), rules=[RULE])
    asked = {
        "namespaces/default/pods/p/attach?stdout=1": ("PodAttachOptions", "p"),
        "namespaces/default/pods/p/portforward?ports=80": ("PodPortForwardOptions", "p"),
        "namespaces/default/pods/p:80/proxy/a": ("PodProxyOptions", "p:80"),
        "namespaces/default/services/http:s:web/proxy/": ("ServiceProxyOptions", "http:s:web"),
        "nodes/n/proxy/metrics": ("NodeProxyOptions", "n"),
    }
    async with outside(world) as ask:
        for path in asked:
            code, _, _ = await ask(path)
            assert code == 403, path
        assert ask.dialed == []
    seen = [(review["request"]["kind"]["kind"], review["request"]["name"]) for _, review in world.seen]
    assert seen == list(asked.values())
    assert "namespace" not in world.seen[-1][1]["request"]


@scene
async def test_what_a_webhook_changes_is_what_is_opened(world):
    patch = [{"op": "replace", "path": "/container", "value": "d"}, {"op": "add", "path": "/command/-", "value": "-x"}]
    await world.hook("mutating", "m", lambda r: patching(r, *patch), rules=[{**RULE, "resources": ["pods/exec"]}])
    await world.hook("validating", "a", lambda r: allowed(r, warnings=["seen"]), rules=[RULE])
    async with outside(world) as ask:
        code, _, _ = await ask("namespaces/default/pods/p/exec?command=sh&stdout=1&container=c")
        assert (code, ask.dialed) == (418, ["/exec/default/p/d?output=1&command=sh&command=-x"])
        code, _, warnings = await ask("nodes/n/proxy/a%20b?q=1")
        assert (code, ask.dialed[1:], warnings) == (418, ["/a%20b?q=1"], ['299 - "seen"'])
    assert world.names() == ["m", "a", "a"]
    assert world.seen[1][1]["request"]["object"]["command"] == ["sh", "-x"]


@scene
async def test_a_webhook_that_fails_does_what_its_failure_policy_says(world):
    async def hang(review: Any) -> Any:
        pass_time(1)
        await asyncio.sleep(30)

    await world.hook("validating", "a", hang, rules=[RULE], timeoutSeconds=1, failurePolicy="Ignore")
    async with outside(world) as ask:
        code, _, _ = await ask("namespaces/default/pods/p/attach?container=c")
        assert (code, ask.dialed) == (418, ["/attach/default/p/c"])
        change = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]
        await world("patch", f"validatingwebhookconfigurations.{GROUP}", "a", change, patch_type="json")
        code, body, _ = await ask("namespaces/default/pods/p/attach?container=c")
        assert (code, len(ask.dialed)) == (500, 1)
        assert body["message"].startswith('Internal error occurred: failed calling webhook "a.example.com": failed to')


@scene
async def test_a_policy_refuses_a_connection_by_its_options(world):
    expression = "request.operation == 'CONNECT' && oldObject == null && object.command[0] != 'sh'"
    constraints = {"resourceRules": [{**RULE, "resources": ["pods/exec"]}]}
    await policy(world, ["Deny"], {"expression": expression, "message": "no shells"}, matchConstraints=constraints)
    async with outside(world) as ask:
        code, body, _ = await ask("namespaces/default/pods/p/exec?command=sh&container=c")
        assert (code, body["reason"], ask.dialed) == (422, "Invalid", [])
        denied_by = "ValidatingAdmissionPolicy 'v' with binding 'v-b' denied request: no shells"
        assert body["message"] == f'pods "p" is forbidden: {denied_by}'
        code, _, _ = await ask("namespaces/default/pods/p/exec?command=ls&container=c")
        assert (code, len(ask.dialed)) == (418, 1)


@scene
async def test_options_have_no_labels_that_an_object_selector_could_select(world):
    selector = {"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]}
    await world.hook("validating", "a", lambda r: denied(r), rules=[RULE], objectSelector=selector)
    async with outside(world) as ask:
        code, _, _ = await ask("namespaces/default/pods/p/attach?container=c")
    assert (code, world.seen) == (418, [])


@scene
async def test_audit_annotations_stand_in_the_event_log_of_connections_and_of_writes(world):
    await world.hook("validating", "a", lambda r: allowed(r, auditAnnotations={"k": "w"}), rules=[RULE])
    notes = [{"key": "who", "valueExpression": "request.name + ' ' + request.operation"}]
    await policy(world, ["Audit"], {"expression": "false", "message": "look"}, auditAnnotations=notes)
    failure = '[{"message":"look","policy":"v","binding":"v-b","expressionIndex":0,"validationActions":["Audit"]}]'
    key = "validation.policy.admission.k8s.io/validation_failure"
    async with outside(world) as ask:
        await ask("namespaces/default/pods/p/attach?container=c")
        both = {"v/who": "p CONNECT", key: failure, "a.example.com/k": "w"}
        assert noted(world, "connect") == [both]
        world.handlers["a"] = lambda r: denied(r)
        await ask("namespaces/default/pods/p/attach?container=c")
        assert noted(world, "connect")[1:] == [{"v/who": "p CONNECT", key: failure}]
        [line] = [line for line in world.events.lines if line.ev == "api.response" and line.data["verb"] == "connect"]
        assert (line.data["path"], line.data["code"]) == ("pods/default/p/attach", 400)
    constraints = {"resourceRules": [{**RULE, "operations": ["CREATE"], "resources": ["pods"]}]}
    change = [{"op": "replace", "path": "/spec/matchConstraints", "value": constraints}]
    await world("patch", f"validatingadmissionpolicies.{GROUP}", "v", change, patch_type="json")
    await world(
        "create", "pods", body={"metadata": {"name": "q"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    )
    assert noted(world, "create") == [{"v/who": "q CREATE", key: failure}]


@scene
async def test_a_write_that_a_webhook_refuses_keeps_what_was_noted_and_warned_of_before(world):
    rule = {**RULE, "operations": ["CREATE"], "resources": ["configmaps"]}
    constraints = {"resourceRules": [rule]}
    notes = [{"key": "who", "valueExpression": "request.name"}]
    refused = {"expression": "false", "message": "look"}
    await policy(world, ["Warn"], refused, auditAnnotations=notes, matchConstraints=constraints)
    await world.hook(
        "mutating", "m", lambda r: allowed(r, auditAnnotations={"k": "m"}, warnings=["first"]), rules=[rule]
    )
    await world.hook("validating", "a", lambda r: denied(r), rules=[rule])
    answer = await world.answer("create", "configmaps", body={"metadata": {"name": "x"}})
    warned = "Validation failed for ValidatingAdmissionPolicy 'v' with binding 'v-b': look"
    assert (answer.code, answer.warnings) == (400, ("first", warned))
    asked = '{"configuration":"m","webhook":"m.example.com","mutated":false}'
    round_0 = {"mutation.webhook.admission.k8s.io/round_0_index_0": asked}
    assert noted(world, "create") == [{"m.example.com/k": "m", "v/who": "x", **round_0}]


@scene
async def test_a_policy_that_mutates_changes_what_is_opened(world):
    expression = "[JSONPatch{op: 'replace', path: '/container', value: 'd'}]"
    spec = {
        "matchConstraints": {"resourceRules": [{**RULE, "resources": ["pods/attach"]}]},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        "reinvocationPolicy": "Never",
    }
    await world("create", f"mutatingadmissionpolicies.{GROUP}", body={"metadata": {"name": "m"}, "spec": spec})
    body = {"metadata": {"name": "m-b"}, "spec": {"policyName": "m"}}
    await world("create", f"mutatingadmissionpolicybindings.{GROUP}", body=body)
    async with outside(world) as ask:
        code, _, _ = await ask("namespaces/default/pods/p/attach?container=c")
    assert (code, ask.dialed) == (418, ["/attach/default/p/d"])
