"""What no client should send, at both servers: every answer is a Status with the code of the real server, never a 500."""

import asyncio
import http.client
import json
import random

import msgspec
import pytest

from services.api.errors import ApiError
from services.api.wire import Request, WatchRequest
from services.client.rpc import RpcTransport
from services.runtime.real import RealClock

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
MIB = 2**20


def config_map(name="limits", **metadata):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"x": "1"}}


def pod(name="limits", **spec):
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    return {**body, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def cpu(quantity):
    return pod(containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": quantity}}}])


DEEP = '{"apiVersion":"v1","kind":"ConfigMap","metadata":' + '{"a":' * 70 + "1" + "}" * 70 + "}"
TWICE = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"twice"},"data":{"a":"1"},"data":{"a":"2"}}'
NOT_A_NUMBER = '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"nan"},"spec":{"priority":NaN}}'

BODIES = [
    ("configmaps", {**config_map(), "data": {"x": "x" * (3 * MIB)}}, 413, "RequestEntityTooLarge", "3145728"),
    ("configmaps", DEEP, 400, "BadRequest", "nested deeper than 64 levels"),
    ("configmaps", "[" * 100_000, 400, "BadRequest", "not strict JSON"),
    ("configmaps", '{"a":', 400, "BadRequest", "unexpected end of JSON input"),
    ("configmaps", "", 400, "BadRequest", "unexpected end of JSON input"),
    ("configmaps", "null", 422, "Invalid", "name or generateName is required"),
    ("configmaps", b'{"metadata":{"name":"\xff"}}', 400, "BadRequest", "not strict JSON"),
    ("configmaps", TWICE, 400, "BadRequest", "duplicate key"),
    ("pods", NOT_A_NUMBER, 400, "BadRequest", "not strict JSON"),
    ("pods", pod(priority=2**70), 400, "BadRequest", "cannot unmarshal number 1.1805916207174113e+21"),
    ("pods", {**pod(), "kind": "Wombat"}, 400, "BadRequest", 'no kind "Wombat" is registered for version "v1"'),
    ("pods", {**pod(), "apiVersion": "v7"}, 400, "BadRequest", 'no kind "Pod" is registered for version "v7"'),
    ("pods", {**pod(), "spec": "x"}, 400, "BadRequest", "cannot unmarshal string"),
    ("pods", pod(containers=["a"]), 400, "BadRequest", "cannot unmarshal string"),
    ("pods", cpu("six"), 400, "BadRequest", "quantities must match"),
    ("pods", cpu("-1"), 422, "Invalid", "must be greater than or equal to 0"),
    ("pods", pod(containers=[{"name": f"c{i}", "image": "i"} for i in range(300)]), 422, "Invalid", "Too many"),
    ("configmaps", config_map("a\nb"), 422, "Invalid", "RFC 1123"),
    ("configmaps", config_map(".."), 422, "Invalid", "RFC 1123"),
    ("configmaps", config_map("a" * 300), 422, "Invalid", "no more than 253"),
    ("configmaps", config_map(labels={"a": 1}), 400, "BadRequest", "cannot unmarshal number"),
    ("configmaps", config_map(labels={"a b": ""}), 422, "Invalid", "metadata.labels"),
]
BODY_IDS = [f"{i}-{reason}" for i, (_, _, _, reason, _) in enumerate(BODIES)]

SELECTORS = [
    ("label", "a in (", "unable to parse requirement"),
    ("label", "==!", "unable to parse requirement"),
    ("field", "spec.nope=a", "field label not supported: spec.nope"),
    ("field", "spec.nodeName", "invalid field selector"),
]


def raw(body):
    if isinstance(body, bytes):
        return body
    return (body if isinstance(body, str) else json.dumps(body)).encode()


def is_failure(document, code, reason, said):
    """Return whether this is the Status object of that refusal; shows it when it is not."""
    assert (document["kind"], document["apiVersion"], document["status"]) == ("Status", "v1", "Failure")
    assert (document["code"], document.get("reason")) == (code, reason), document["message"]
    assert said in document["message"]
    return True


class Rest:
    def __init__(self, mesh):
        self.mesh = mesh

    def __call__(self, method, path, body=None, content_type="application/json", authorization="Bearer admin-secret"):
        connection = self.mesh.connection()
        headers = {"Content-Type": content_type} if body is not None else {}
        if authorization:
            headers["Authorization"] = authorization
        try:
            connection.request(method, path, None if body is None else raw(body), headers)
            answer = connection.getresponse()
            document = json.loads(answer.read())
        finally:
            connection.close()
        assert document.get("kind") != "Status" or document["code"] == answer.status
        return document


@pytest.fixture
def rest(mesh):
    yield Rest(mesh)
    log = (mesh.directory / "apiserver.log").read_text()
    assert mesh.process.poll() is None, "the server went down"
    assert "Traceback" not in log


@pytest.fixture(scope="module")
def loop():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def rpc(mesh, loop):
    """Call or watch over gRPC as one token; returns the refusal, or the answer."""
    port = json.loads((mesh.directory / "ready.json").read_text())["ports"]["grpc"]

    def go(request, token="admin-secret"):
        async def scenario():
            dice = random.Random(1)
            transport = RpcTransport(f"127.0.0.1:{port}", {"me": token}, clock=RealClock(), random=dice)
            try:
                if isinstance(request, Request):
                    return msgspec.json.decode((await transport.api().call(request)).body)
                events = await anext(aiter(transport.api().watch(request)))
                return msgspec.json.decode(events[0].body)
            except ApiError as error:
                return error.status()
            finally:
                await transport.close()

        return loop.run(asyncio.wait_for(scenario(), 15))

    # One loop: grpc keeps its poller on the first it meets.
    yield go
    assert mesh.process.poll() is None, "the server went down"


@pytest.mark.parametrize(("resource", "body", "code", "reason", "said"), BODIES, ids=BODY_IDS)
def test_a_body_that_cannot_be_is_refused_over_rest(rest, resource, body, code, reason, said):
    if body is TWICE:  # a client from outside is warned of it, unless it asks for strictness
        resource, reason, said = f"{resource}?fieldValidation=Strict", "BadRequest", "duplicate field"

    assert is_failure(rest("POST", f"/api/v1/namespaces/default/{resource}", body), code, reason, said)


@pytest.mark.parametrize(("resource", "body", "code", "reason", "said"), BODIES, ids=BODY_IDS)
def test_a_body_that_cannot_be_is_refused_over_grpc(rpc, resource, body, code, reason, said):
    request = Request(verb="create", resource=resource, namespace="default", body=raw(body))

    assert is_failure(rpc(request), code, reason, said)


@pytest.mark.parametrize(("which", "selector", "said"), SELECTORS)
def test_a_selector_that_cannot_be_is_refused_by_both_servers(rest, rpc, which, selector, said):
    quoted = http.client.urlsplit(f"//x/?{which}Selector=").query + "".join(f"%{c:02x}" for c in selector.encode())
    asked = {f"{which}_selector": selector}

    for document in (
        rest("GET", f"{PODS}?{quoted}"),
        rpc(Request(verb="list", resource="pods", namespace="default", **asked)),
        rpc(WatchRequest(resource="pods", namespace="default", **asked)),
    ):
        assert is_failure(document, 400, "BadRequest", said)


def test_a_selector_may_be_long(rest, rpc):
    selector = f"app in ({','.join(f'value-{i}' for i in range(5000))})"

    assert rest("GET", f"{PODS}?labelSelector={selector.replace(' ', '%20')}")["items"] == []
    assert rpc(Request(verb="list", resource="pods", namespace="default", label_selector=selector))["items"] == []


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "reason", "said"),
    [
        ("GET", "/api/v1/wombats", None, 404, "NotFound", "could not find the requested resource"),
        ("PUT", CONFIG_MAPS, config_map(), 405, "MethodNotAllowed", "does not allow this method"),
        ("GET", f"{CONFIG_MAPS}?limit=x", None, 400, "BadRequest", "invalid syntax"),
        ("GET", f"{CONFIG_MAPS}?resourceVersion={'9' * 400}", None, 400, "BadRequest", "resourceVersion"),
        ("GET", f"{CONFIG_MAPS}?watch=1&resourceVersion=-5", None, 400, "BadRequest", "resourceVersion"),
        ("GET", f"{CONFIG_MAPS}?watch=1&timeoutSeconds=soon", None, 400, "BadRequest", "invalid syntax"),
        ("POST", f"{CONFIG_MAPS}?dryRun=Some", config_map(), 422, "Invalid", "dryRun"),
        ("POST", f"{PODS}/nope/eviction", {"deleteOptions": 5}, 400, "BadRequest", "cannot be handled as a Eviction"),
        ("POST", f"{PODS}/nope/eviction", {"metadata": {"name": "nope"}}, 404, "NotFound", 'pods "nope" not found'),
        ("DELETE", f"{CONFIG_MAPS}/nope", {"propagationPolicy": "Sideways"}, 422, "Invalid", "Sideways"),
        ("DELETE", f"{CONFIG_MAPS}/nope", [], 400, "BadRequest", "DeleteOptions"),
        ("POST", "/api/v1/namespaces/nope/configmaps", config_map(), 404, "NotFound", 'namespaces "nope" not found'),
        ("GET", f"{CONFIG_MAPS}/a%2Fb", None, 404, "NotFound", 'configmaps "a/b" not found'),
    ],
)
def test_what_rest_clients_get_wrong_is_a_status(rest, method, path, body, code, reason, said):
    assert is_failure(rest(method, path, body), code, reason, said)


@pytest.mark.parametrize(
    ("content_type", "body", "code", "said"),
    [
        ("text/plain", "hello", 415, "unknown format"),
        ("application/yaml", "a: [", 400, "yaml"),
        ("application/yaml", "a: &a [x, x]\nb: [*a, *a]", 400, "aliases"),
        ("application/vnd.kubernetes.protobuf", b"abc", 400, "magic"),
        ("application/vnd.kubernetes.protobuf", b"k8s\0\xff\xff\xff\xff", 400, "protobuf"),
    ],
)
def test_a_content_type_that_is_not_read_or_lies_is_refused(rest, content_type, body, code, said):
    reason = "UnsupportedMediaType" if code == 415 else "BadRequest"

    assert is_failure(rest("POST", CONFIG_MAPS, body, content_type), code, reason, said)


@pytest.mark.parametrize(
    ("kind", "body", "code", "reason"),
    [
        ("json-patch+json", [{"op": "replace", "path": "/nope/x", "value": 1}], 422, "Invalid"),
        ("json-patch+json", [{"op": "wat", "path": "/a"}], 422, "Invalid"),
        ("json-patch+json", [{"op": "test", "path": "/kind", "value": "x"}] * 10_001, 413, "RequestEntityTooLarge"),
        ("merge-patch+json", [1], 400, "BadRequest"),
        ("merge-patch+json", {"metadata": {"uid": "x"}}, 422, "Invalid"),
        ("strategic-merge-patch+json", {"data": 5}, 422, "Invalid"),
        ("apply-patch+yaml", config_map("patched"), 422, "Invalid"),
    ],
)
def test_a_patch_that_cannot_be_is_refused(rest, kind, body, code, reason):
    rest("POST", CONFIG_MAPS, config_map("patched"))

    assert is_failure(rest("PATCH", f"{CONFIG_MAPS}/patched", body, f"application/{kind}"), code, reason, "")


@pytest.mark.parametrize("authorization", ["Bearer wrong", "Bearer \xff", "Basic !!!", "Bearer node.n1.deadbeef"])
def test_a_wrong_credential_is_401_from_both_servers(rest, rpc, authorization):
    assert is_failure(rest("GET", PODS, authorization=authorization), 401, "Unauthorized", "Unauthorized")
    if authorization.isascii():
        asked = Request(verb="list", resource="pods", namespace="default")
        assert is_failure(rpc(asked, token=authorization.partition(" ")[2]), 401, "Unauthorized", "")


def test_no_credential_is_the_anonymous_user_who_may_nothing(rest):
    assert is_failure(rest("GET", PODS, authorization=""), 403, "Forbidden", 'User "system:anonymous" cannot list')


def test_an_old_version_conflicts_at_both_servers(rest, rpc):
    rest("POST", CONFIG_MAPS, config_map("old"))
    body = config_map("old", resourceVersion="1")

    over_rest = rest("PUT", f"{CONFIG_MAPS}/old", body)
    over_grpc = rpc(Request(verb="update", resource="configmaps", namespace="default", name="old", body=raw(body)))

    for document in (over_rest, over_grpc):
        assert is_failure(document, 409, "Conflict", 'Operation cannot be fulfilled on configmaps "old"')


def test_unknown_resources_verbs_and_compacted_versions_are_refused_over_grpc(rpc):
    assert is_failure(rpc(Request(verb="list", resource="wombats")), 404, "NotFound", "requested resource")
    assert is_failure(rpc(WatchRequest(resource="wombats")), 404, "NotFound", "requested resource")
    assert rpc(Request(verb="brew", resource="pods", namespace="default", name="x"))["code"] in (400, 403, 405)
    assert is_failure(rpc(WatchRequest(resource="pods", resource_version="x")), 400, "BadRequest", "resourceVersion")
    assert is_failure(rpc(WatchRequest(resource="configmaps", resource_version="1")), 410, "Expired", "")


def test_what_the_server_owns_cannot_be_forged_at_either_server(rest, rpc):
    status = {"phase": "Running", "unbindCount": 9, "bindingGeneration": 7, "unbindHistory": [{"nodeName": "n1"}]}
    owned = {"uid": "me", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 99,
             "deletionTimestamp": "2001-01-01T00:00:00Z", "selfLink": "/x"}  # fmt: skip
    bodies = []
    for name in ("forged-rest", "forged-grpc"):
        body = {**pod(name), "status": status}
        body["metadata"] |= owned
        bodies.append(body)

    made = [
        rest("POST", PODS, bodies[0]),
        rpc(Request(verb="create", resource="pods", namespace="default", body=raw(bodies[1]))),
    ]
    patch = {"status": {"unbindCount": 5, "bindingGeneration": 7, "unbindHistory": [{"nodeName": "n1"}]}}
    rest("PATCH", f"{PODS}/forged-rest/status", patch, "application/merge-patch+json")
    made.append(rest("GET", f"{PODS}/forged-rest"))

    for document in made:
        metadata = document["metadata"]
        assert "deletionTimestamp" not in metadata
        assert (metadata["generation"], metadata["uid"] != "me") == (1, True)
        assert metadata["creationTimestamp"] > "2020"
        assert document["status"]["phase"] == "Pending"
        assert not {"unbindCount", "bindingGeneration", "unbindHistory"} & document["status"].keys()
