"""Admission webhooks over HTTPS: a real server with a certificate of its own, called by the real API server. Real time."""

from __future__ import annotations

import asyncio
import base64
import random
import ssl
import time
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.wiring import build
from services.api.identity import ADMIN
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request
from services.runtime.certificates import authority
from services.runtime.real import MemoryDisk, NoTransport, RealClock
from services.telemetry.eventlog import MemoryEventLog, MemoryEvents
from services.telemetry.spans import FinishedSpan
from services.telemetry.traces import MemorySpans, Tracer
from tests.component.apiserver_fake.passing import pass_time

GROUP = "admissionregistration.k8s.io"
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["pods"]}
Handler = Callable[[Any], Any]


def pod(name: str = "p", **labels: str) -> Any:
    containers = [{"name": "c", "image": "i:1"}]
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers}}


def allowed(review: Any, **more: Any) -> Any:
    """Return the answer that allows a request."""
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "response": {"uid": review["request"]["uid"], "allowed": True, **more},
    }


def denied(review: Any, **status: Any) -> Any:
    """Return the answer that denies a request."""
    return allowed(review) | {"response": {"uid": review["request"]["uid"], "allowed": False, "status": status}}


def patching(review: Any, *operations: Any) -> Any:
    """Return the answer that changes the object."""
    patch = base64.b64encode(msgspec.json.encode(list(operations))).decode()
    return allowed(review, patchType="JSONPatch", patch=patch)


class World:
    """An API server, and webhooks by the path they are called at; `seen` has what each was sent."""

    def __init__(self, server: Any, port: int, bundle: str) -> None:
        self.server, self.port, self.bundle = server, port, bundle
        self.events = MemoryEvents()
        self.spans: list[FinishedSpan] = []
        self.traces: list[str | None] = []
        self.turn_to_authority: Callable[[str], str] = str
        self.handlers: dict[str, Handler] = {}
        self.seen: list[tuple[str, Any]] = []
        self.requests: list[web.BaseRequest] = []

    async def answer(self, verb: str, resource: str, name: str = "", body: Any = None, **more: Any) -> Any:
        namespace = more.pop("namespace", "" if GROUP in resource else "default")
        encoded = b"" if body is None else msgspec.json.encode(body)
        request = Request(verb=verb, resource=resource, name=name, namespace=namespace, body=encoded, **more)
        return await self.server.api_for(ADMIN).call(request)

    async def __call__(self, *args: Any, **more: Any) -> Any:
        return msgspec.json.decode((await self.answer(*args, **more)).unwrap().body)

    async def refusal(self, *args: Any, **more: Any) -> Any:
        answer = await self.answer(*args, **more)
        assert not answer.is_ok, answer.body
        return msgspec.json.decode(answer.body)

    async def hook(self, kind: str, name: str, handler: Handler, **more: Any) -> None:
        """Configure one webhook at a path of its own."""
        self.handlers[name] = handler
        document = {
            "name": f"{name}.example.com",
            "rules": [PODS],
            "clientConfig": {"url": f"https://localhost:{self.port}/{name}", "caBundle": self.bundle},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }
        resource = f"{kind}webhookconfigurations.{GROUP}"
        await self("create", resource, body={"metadata": {"name": name}, "webhooks": [document]})

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        name = request.path.strip("/")
        review = msgspec.json.decode(await request.read())
        self.seen.append((name, review))
        self.requests.append(request)
        self.traces.append(request.headers.get("traceparent"))
        found = self.handlers[name](review)
        if asyncio.iscoroutine(found):
            found = await found
        if isinstance(found, web.Response):
            return found
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    def names(self) -> list[str]:
        return [name for name, _ in self.seen]


def scene(test: Any) -> Any:
    """Run an async test with a server of its own and an HTTPS server for its webhooks."""

    def run(tmp_path: Any) -> None:
        async def scenario() -> None:
            issuer = authority(tmp_path / "authority")
            pair = issuer.server("webhooks", ["localhost", "hooks.default.svc"])
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pair.certificate, pair.key)
            clock, rng = RealClock(), random.Random(3)
            log, spans = MemoryEventLog("apiserver", clock), MemorySpans()
            seams = Seams(
                component="apiserver", clock=clock, random=rng, disk=MemoryDisk(), transport=NoTransport(),
                events=log, tracer=Tracer("apiserver", clock=clock, random=rng, sinks=(spans,)),
                switches=Switches(),
            )  # fmt: skip
            config = ApiServerConfig(engine="memory", grpc_port=None, rest_port=0, rest_host="127.0.0.1")
            component = build(config, seams)
            task = asyncio.create_task(component.run())
            await component.server.wait_until_ready()
            bundle = base64.b64encode(issuer.path.read_bytes()).decode()
            world = World(component.server, 0, bundle)
            world.events, world.spans = log.events, spans.spans
            runner = web.ServerRunner(web.Server(world.handle), shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "localhost", 0, ssl_context=context).start()
            world.port = runner.addresses[0][1]

            def turn_to_authority(name: str) -> str:
                """Give the webhooks a certificate of that authority; return the bundle that trusts it."""
                other = authority(tmp_path / name)
                renewed = other.server("webhooks", ["localhost"])
                context.load_cert_chain(renewed.certificate, renewed.key)
                return base64.b64encode(other.path.read_bytes()).decode()

            world.turn_to_authority = turn_to_authority
            try:
                await asyncio.wait_for(test(world), 60)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await runner.cleanup()

        asyncio.run(scenario())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@scene
async def test_a_webhook_sees_the_request_as_an_admission_review(world):
    await world.hook("validating", "a", allowed)
    await world("create", "pods", body=pod(app="web"), field_manager="me")
    [(_, review)] = world.seen
    request = review["request"]
    assert (review["kind"], review["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    assert request["kind"] == request["requestKind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert (request["name"], request["namespace"], request["operation"]) == ("p", "default", "CREATE")
    assert request["userInfo"]["username"] == ADMIN.user
    assert (request["oldObject"], request["dryRun"]) == (None, False)
    assert request["options"] == {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"}
    assert request["object"]["metadata"]["uid"] == (await world("get", "pods", "p"))["metadata"]["uid"]
    assert request["object"]["spec"]["restartPolicy"] == "Always"


@scene
async def test_a_call_is_a_span_below_the_request_that_waits_for_it_and_names_itself(world):
    await world.hook("mutating", "a", allowed)
    await world.hook("validating", "b", lambda review: web.Response(status=503))
    parent = f"00-{'a' * 32}-{'b' * 16}-01"

    assert (await world.answer("create", "pods", body=pod(), traceparent=parent)).code == 500

    by_id = {span.span_id: span for span in world.spans}
    good, bad = (span for span in world.spans if span.kind == "client")
    assert world.traces == [f"00-{'a' * 32}-{span.span_id}-01" for span in (good, bad)]
    assert {by_id[span.parent].name for span in (good, bad)} == {"mesh.v1.ApiServer/Create"}
    assert good.name == "POST /a"
    assert good.attributes == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "server.address": "localhost",
        "server.port": world.port,
        "url.full": f"https://localhost:{world.port}/a",
        "url.template": "/a",
    }
    assert (bad.attributes["http.response.status_code"], bad.attributes["error.type"]) == (503, "503")
    assert "unable to handle the request" in bad.error


@scene
async def test_a_denial_has_the_webhooks_status_and_upstreams_text(world):
    await world.hook(
        "validating", "a", lambda review: denied(review, message="not on Mondays", code=403, reason="Forbidden")
    )
    refused = await world.refusal("create", "pods", body=pod())
    assert refused["message"] == 'admission webhook "a.example.com" denied the request: not on Mondays'
    assert (refused["code"], refused["reason"]) == (403, "Forbidden")
    world.handlers["a"] = lambda review: denied(review, code=200)
    refused = await world.refusal("create", "pods", body=pod())
    assert refused["message"] == 'admission webhook "a.example.com" denied the request without explanation'
    assert refused["code"] == 400
    assert (await world("list", "pods"))["items"] == []


@scene
async def test_warnings_come_with_what_is_allowed_and_with_what_is_denied(world):
    await world.hook("validating", "a", lambda review: allowed(review, warnings=["mind the gap"]))
    answer = await world.answer("create", "pods", body=pod())
    assert (answer.code, answer.warnings) == (201, ("mind the gap",))


@scene
async def test_mutations_are_applied_in_the_order_of_names_and_then_defaulted(world):
    def adds(review: Any) -> Any:
        containers = review["request"]["object"]["spec"]["containers"]
        side = {"name": f"side-{len(containers)}", "image": "j"}
        return patching(review, {"op": "add", "path": "/spec/containers/-", "value": side})

    await world.hook("mutating", "b", adds)
    await world.hook("mutating", "a", adds)
    await world.hook("validating", "c", allowed)
    made = await world("create", "pods", body=pod())
    assert [each["name"] for each in made["spec"]["containers"]] == ["c", "side-1", "side-2"]
    assert made["spec"]["containers"][2]["imagePullPolicy"] == "Always"
    assert world.names() == ["a", "b", "c"]
    assert world.seen[-1][1]["request"]["object"]["spec"] == made["spec"]
    assert "uid" not in world.seen[0][1]["request"]["object"]["metadata"]


@scene
async def test_a_webhook_that_wants_it_is_called_again_after_a_later_change(world):
    def labelled(review: Any, name: str) -> Any:
        return patching(review, {"op": "add", "path": f"/metadata/labels/{name}", "value": "yes"})

    await world.hook("mutating", "a", lambda review: labelled(review, "a"), reinvocationPolicy="IfNeeded")
    await world.hook("mutating", "b", lambda review: labelled(review, "b"))
    await world("create", "pods", body=pod(app="web"))
    assert world.names() == ["a", "b", "a"]
    assert world.seen[-1][1]["request"]["object"]["metadata"]["labels"] == {"app": "web", "a": "yes", "b": "yes"}


@scene
async def test_a_generated_name_is_chosen_after_mutation_and_kept_for_validation(world):
    await world.hook("mutating", "a", allowed)
    await world.hook("validating", "b", allowed)
    body = pod()
    body["metadata"] = {"generateName": "web-"}
    made = await world("create", "pods", body=body)
    first, second = (review["request"] for _, review in world.seen)
    assert ("name" in first, "name" in first["object"]["metadata"]) == (False, False)
    assert second["name"] == made["metadata"]["name"]


@scene
async def test_a_webhook_that_cannot_be_reached_fails_the_request_or_is_ignored(world):
    config = {"url": "https://localhost:1/x"}
    await world.hook("validating", "a", allowed, clientConfig=config)
    refused = await world.refusal("create", "pods", body=pod())
    assert refused["message"].startswith(
        'Internal error occurred: failed calling webhook "a.example.com": failed to call webhook: Post '
        '"https://localhost:1/x?timeout=10s": dial tcp '
    )
    assert refused["message"].endswith("connect: connection refused")
    assert (refused["code"], refused["reason"]) == (500, "InternalError")
    ignoring = {"webhooks": [{"name": "a.example.com", "failurePolicy": "Ignore"}]}
    await world("patch", f"validatingwebhookconfigurations.{GROUP}", "a", ignoring, patch_type="strategic")
    await world("create", "pods", body=pod())


@scene
async def test_a_webhook_that_hangs_times_out_and_holds_up_no_other_writer(world):
    asked = asyncio.Event()

    async def hangs(review: Any) -> Any:
        asked.set()
        await asyncio.sleep(30)

    await world.hook("validating", "a", hangs, timeoutSeconds=1)
    waiting = asyncio.create_task(world.refusal("create", "pods", body=pod()))
    await asked.wait()
    began = time.monotonic()
    await world("create", "configmaps", body={"metadata": {"name": "c"}})
    assert not waiting.done()
    assert time.monotonic() - began < 0.9
    pass_time(1)
    assert (await waiting)["message"] == (
        'Internal error occurred: failed calling webhook "a.example.com": failed to call webhook: Post '
        f'"https://localhost:{world.port}/a?timeout=1s": context deadline exceeded'
    )


@scene
async def test_an_unknown_authority_is_not_trusted(world):
    config = {"url": f"https://localhost:{world.port}/a"}
    await world.hook("validating", "a", allowed, clientConfig=config)
    refused = await world.refusal("create", "pods", body=pod())
    assert refused["message"].endswith(
        "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    )
    assert world.seen == []


@scene
async def test_a_bundle_that_is_replaced_decides_from_the_next_call_on(world):
    """Rotation as controllers of certificates do it: one bundle, both while the webhook changes, the other one."""

    async def trust(*bundles: str) -> None:
        both = base64.b64encode(b"".join(base64.b64decode(each) for each in bundles)).decode()
        patch = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": both}]
        words = {"body": patch, "patch_type": "json"}
        await world("patch", f"validatingwebhookconfigurations.{GROUP}", "a", **words)

    old = world.bundle
    await world.hook("validating", "a", allowed)
    await world("create", "pods", body=pod("one"))
    third = world.turn_to_authority("third")
    new = world.turn_to_authority("new")
    await trust(old, new)
    await world("create", "pods", body=pod("two"))
    await trust(new)
    await world("create", "pods", body=pod("three"))
    await trust(third)
    refused = await world.refusal("create", "pods", body=pod("four"))

    assert refused["message"].endswith("x509: certificate signed by unknown authority")
    assert [review["request"]["name"] for _, review in world.seen] == ["one", "two", "three"]


@scene
async def test_rubbish_is_no_answer(world):
    def other_uid(review: Any) -> Any:
        return allowed({"request": {"uid": "other"}})

    texts = [
        (web.Response(text="no"), "failed to call webhook: couldn't get version/kind; json parse error: "),
        (web.Response(text=""), "failed to call webhook: 0-length response with status code: 200"),
        (web.Response(text="{}"), "failed to call webhook: Object 'Kind' is missing in '{}'"),
        (web.Response(status=500, text="boom"), 'an error on the server ("boom") has prevented the request from'),
        (web.Response(status=404), "failed to call webhook: the server could not find the requested resource"),
        ({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}, "invalid webhook response: webhook response was absent"),
        (other_uid, 'received invalid webhook response: expected response.uid="'),
        (lambda review: allowed(review) | {"apiVersion": "x/v1"}, "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got x/v1, Kind=AdmissionReview"),
        (lambda review: allowed(review, patch="W10=") , "webhook returned response.patch but not response.patchType"),
        (lambda review: allowed(review, patch="!!", patchType="JSONPatch"), "received undecodable patch in webhook response"),
    ]  # fmt: skip
    await world.hook("mutating", "a", allowed)
    for answer, text in texts:
        world.handlers["a"] = answer if callable(answer) else lambda review, answer=answer: answer
        refused = await world.refusal("create", "pods", body=pod())
        assert text in refused["message"], refused["message"]
        assert refused["message"].startswith('Internal error occurred: failed calling webhook "a.example.com": ')
    assert (await world("list", "pods"))["items"] == []


@scene
async def test_a_patch_that_does_not_fit_fails_the_request(world):
    await world.hook(
        "mutating",
        "a",
        lambda review: patching(review, {"op": "remove", "path": "/spec/nothing"}),
        failurePolicy="Ignore",
    )
    refused = await world.refusal("create", "pods", body=pod())
    assert (refused["code"], refused["reason"]) == (500, "InternalError")
    world.handlers["a"] = lambda review: patching(review, {"op": "replace", "path": "/metadata/name", "value": "q"})
    refused = await world.refusal("create", "pods", body=pod())
    assert "may not change the name of the object from p to q" in refused["message"]


@scene
async def test_a_deletion_is_put_to_a_webhook_with_the_old_object_and_cannot_be_changed(world):
    await world("create", "pods", body=pod(app="web"))
    await world.hook("mutating", "a", lambda review: patching(review, {"op": "add", "path": "/x", "value": 1}))
    refused = await world.refusal("delete", "pods", "p")
    assert "attempted to modify the object, which is not supported for this operation" in refused["message"]
    [(_, review)] = world.seen
    assert (review["request"]["operation"], review["request"]["object"]) == ("DELETE", None)
    assert review["request"]["oldObject"]["metadata"]["labels"] == {"app": "web"}
    world.handlers["a"] = allowed
    await world("deletecollection", "pods")
    assert (await world("list", "pods"))["items"] == []


@scene
async def test_when_the_object_changes_while_a_webhook_thinks_it_is_asked_again(world):
    await world("create", "pods", body=pod(app="web"))
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def thinks(review: Any) -> Any:
        if review["request"]["operation"] == "UPDATE" and not go_on.is_set():
            asked.set()
            await go_on.wait()
        return allowed(review)

    rule = {**PODS, "operations": ["UPDATE"]}
    await world.hook("validating", "a", thinks, rules=[rule], objectSelector={"matchLabels": {"slow": "yes"}})
    labels = {"metadata": {"labels": {"slow": "yes"}}}
    slow = asyncio.create_task(world("patch", "pods", "p", labels, patch_type="merge"))
    await asked.wait()
    await world("patch", "pods", "p", {"metadata": {"labels": {"fast": "yes"}}}, patch_type="merge")
    go_on.set()
    stored = await slow
    assert stored["metadata"]["labels"] == {"app": "web", "fast": "yes", "slow": "yes"}
    first, second = (review["request"] for _, review in world.seen)
    assert "fast" not in first["object"]["metadata"]["labels"]
    assert second["object"]["metadata"]["labels"] == stored["metadata"]["labels"]
    assert second["oldObject"]["metadata"]["labels"] == {"app": "web", "fast": "yes"}


@scene
async def test_of_two_writers_under_the_same_version_one_conflicts(world):
    made = await world("create", "pods", body=pod(app="web"))
    await world.hook("validating", "a", allowed)

    def write(value: str) -> Any:
        meta = {**made["metadata"], "labels": {"by": value}}
        return world.answer("update", "pods", "p", {**made, "metadata": meta})

    answers = await asyncio.gather(write("one"), write("two"))
    assert sorted(answer.code for answer in answers) == [200, 409]


@scene
async def test_a_dry_run_calls_only_webhooks_without_side_effects(world):
    await world.hook("validating", "a", allowed, sideEffects="NoneOnDryRun")
    await world("create", "pods", body=pod(), dry_run=True)
    assert world.seen[0][1]["request"]["dryRun"] is True
    assert world.seen[0][1]["request"]["options"]["dryRun"] == ["All"]
    assert (await world("list", "pods"))["items"] == []


@scene
async def test_match_conditions_decide_whether_a_webhook_is_called(world):
    conditions = [{"name": "no-system", "expression": "!object.metadata.name.startsWith('sys-')"}]
    await world.hook("validating", "a", allowed, matchConditions=conditions)
    await world("create", "pods", body=pod("sys-a"))
    await world("create", "pods", body=pod("b"))
    assert [review["request"]["name"] for _, review in world.seen] == ["b"]


@scene
async def test_a_service_is_reached_as_an_external_name_under_its_own_name(world):
    service = {"metadata": {"name": "hooks"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    config = {
        "service": {"name": "hooks", "namespace": "default", "path": "/a", "port": world.port},
        "caBundle": world.bundle,
    }
    await world.hook("validating", "a", allowed, clientConfig=config)
    refused = await world.refusal("create", "pods", body=pod())
    assert refused["message"].endswith(
        f'Post "https://hooks.default.svc:{world.port}/a?timeout=10s": service "hooks" not found'
    )
    await world("create", "services", body=service)
    await world("create", "pods", body=pod())
    assert world.names() == ["a"]
