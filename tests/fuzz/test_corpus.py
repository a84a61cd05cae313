"""What no client should send, at every endpoint of a real server (AS-40, FM-X3): a refusal, nothing changed, nothing
lost, and the others are served meanwhile."""

import asyncio
import gzip
import json
import zlib

import grpc
import pytest

from apiserver_fake.rest.handlers.authentication import Authentication
from apiserver_fake.rest.server import RestHandler
from protos.mesh.v1 import apiserver_pb2 as pb
from tests.fuzz.target import JSON, NAME, Target, path_of

MIB = 1 << 20
HEAD = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"'
MAPS = b"/api/v1/namespaces/default/configmaps"


def nested(depth, end="1"):
    return '{"a":' * depth + end + "}" * depth


BAD_BODIES = {
    "depth-100000": "[" * 100_000,
    "depth-2000": nested(2_000),
    "depth-65": HEAD + "},\"data\":" + nested(65) + "}",
    "deep-and-cut": '{"a":' * 50_000,
    "5000-digits": HEAD + ',"generation":' + "9" * 5_000 + "}}",
    "5000-digits-behind-the-point": HEAD + ',"generation":0.' + "9" * 5_000 + "}}",
    "not-a-number": HEAD + ',"generation":NaN}}',
    "infinity": HEAD + ',"generation":-Infinity}}',
    "beyond-a-double": HEAD + ',"generation":1e999}}',
    "beyond-64-bits": HEAD + ',"generation":18446744073709551616}}',
    "lone-surrogate": HEAD + ',"labels":{"a":"\\ud800"}}}',
    "wrong-utf-8": HEAD.encode() + b',"labels":{"a":"\xff\xfe"}}}',
    "a-surrogate-in-bytes": b"\xed\xa0\x80",
    "a-surrogate-in-a-text": HEAD.encode() + b',"labels":{"a":"\xed\xa0\x80"}}}',
    "a-surrogate-as-a-key": b'{"\xed\xa0\x80":1}',
    "a-surrogate-behind-the-end": HEAD.encode() + b'}}\xed\xa0\x80',
    "a-byte-that-begins-nothing": b"\xff",
    "half-a-character": b"\xf0\x9f",
    "utf-16": (HEAD + "}}").encode("utf-16"),
    "100000-labels": HEAD + ',"labels":{' + ",".join(f'"l{i}":""' for i in range(100_000)) + "}}}",
    "metadata-is-a-list": '{"apiVersion":"v1","kind":"ConfigMap","metadata":[]}',
    "a-list": "[]",
    "a-text": '"x"',
    "a-number": "1",
    "4-mib-and-1": HEAD + "}" + " " * 4 * MIB + "}",
    "nothing-but-zeros": b"\0" * 1_000,
    "protobuf-magic": b"k8s\0" + b"\xff" * 100,
}  # fmt: skip
"""None of these is a valid body of any request that has one."""
ALIASES = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
WITHOUT_BODIES = {"log", "proxy", "exec", "attach", "portforward"}
BAD_YAML = {
    "aliases": ALIASES,
    "anchor": "metadata: &m {name: a}\n",
    "depth": "[" * 10_000,
    "depth-by-indentation": "".join(" " * i + "a:\n" for i in range(1_000)),
    "100001-nodes": "[" + "a," * 100_001 + "]",
    "above-1-mib": "a: " + "x" * MIB,
    "python-object": "!!python/object/apply:os.system [echo]",
    "set-of-lists": "? [a]\n: b\n",
    "not-a-number": "metadata: {generation: .nan}",
    "5000-digits": "metadata: {generation: " + "9" * 5_000 + "}",
    "sexagesimal": "metadata: {generation: " + "59:" * 3_000 + "1}",
    "two-documents": "a: 1\n---\nb: 2\n",
    "control-character": "a: \x07",
    "lone-surrogate": 'a: "\\ud800"',
    "tab": "a:\n\t- b",
}


@pytest.fixture(scope="module")
def target():
    with Target() as found:
        yield found


@pytest.fixture(autouse=True)
def _nothing_is_lost(target):
    """Whatever a test sends: the state is what it was, the server lives, and it has logged no error."""
    before = target.run(target.settle())
    yield
    assert target.run(target.settle()) == before
    assert target.is_alive
    assert target.errors == []
    assert target.server.requests.in_flight() == {"readOnly": 0, "mutating": 0}


def refused(answer, *codes):
    """Return whether it is a Status that refuses, with one of these codes."""
    assert 400 <= answer.status < 500, (answer.status, answer.body[:300])
    assert not codes or answer.status in codes, (answer.status, answer.body[:300])
    assert answer.headers["content-type"] != "application/json" or answer.document()["code"] == answer.status
    return True


def endpoints(catalogue):
    """Every request with a body, of every kind that is served."""
    for served in catalogue.served_versions.values():
        for each in served.values():
            resource = each.resource
            if resource.verbs and "create" not in resource.verbs:
                continue
            path = path_of(resource)
            yield "POST", path, JSON
            yield "PUT", path + b"/" + NAME.encode(), JSON
            for form in (b"merge-patch+json", b"json-patch+json", b"strategic-merge-patch+json", b"apply-patch+yaml"):
                yield (
                    "PATCH",
                    path + b"/" + NAME.encode() + b"?fieldManager=m",
                    (b"Content-Type", b"application/" + form),
                )
            for subresource in set(each.resource.subresources) - WITHOUT_BODIES:
                yield "PUT", path + f"/{NAME}/{subresource}".encode(), JSON
                yield "POST", path + f"/{NAME}/{subresource}".encode(), JSON
    for group, kind in (("authorization", "subjectaccessreviews"), ("authentication", "tokenreviews")):
        yield "POST", f"/apis/{group}.k8s.io/v1/{kind}".encode(), JSON
    yield "POST", b"/api/v1/namespaces/default/bindings", JSON


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_body_is_refused_at_every_endpoint(target, name):
    body = BAD_BODIES[name] if isinstance(BAD_BODIES[name], bytes) else BAD_BODIES[name].encode()
    asked = list(endpoints(target.server.catalogue))
    if body == b"[]":  # a JSON patch that changes nothing
        asked = [each for each in asked if b"json-patch" not in each[2][1]]
    # The large ones at a kind in ten: what reads them is the same for all.
    for method, path, content_type in asked[:: 10 if len(body) > 100_000 else 1]:
        answer = target.run(target.ask(method, path, body, [content_type]))
        assert refused(answer), (method, path)


@pytest.mark.parametrize("name", BAD_YAML)
def test_bad_yaml_is_refused(target, name):
    for method, path in (("POST", MAPS), ("PUT", MAPS + b"/fuzzed")):
        answer = target.run(target.ask(method, path, BAD_YAML[name].encode(), [(b"Content-Type", b"application/yaml")]))
        assert refused(answer, 400, 413, 422)
    apply = [(b"Content-Type", b"application/apply-patch+yaml")]
    answer = target.run(target.ask("PATCH", MAPS + b"/a?fieldManager=m&force=true", BAD_YAML[name].encode(), apply))
    assert refused(answer, 400, 413, 422)


@pytest.mark.parametrize(
    ("media_type", "text"),
    [("json", HEAD + ',"name":"other"}}'), ("yaml", "metadata: {name: a}\nmetadata: {name: b}\n")],
)
def test_a_key_that_an_object_has_twice_is_refused_where_the_client_wants_that(target, media_type, text):
    headers = [(b"Content-Type", f"application/{media_type}".encode())]
    for wanted, code in (("Strict", 400), ("Warn", 201), ("Ignore", 201)):
        path = MAPS + f"?dryRun=All&fieldValidation={wanted}".encode()
        answer = target.run(target.ask("POST", path, text.encode(), headers))
        assert (answer.status, "duplicate field" in answer.headers.get("warning", "")) == (code, wanted == "Warn")


CODINGS = {
    "gzip-that-is-not": (b"gzip", b"{}", 400),
    "deflate-that-is-not": (b"deflate", b"{}", 400),
    "gzip-cut-off": (b"gzip", gzip.compress(b"{}" * 100)[:-5], 400),
    "gzip-with-a-wrong-sum": (b"gzip", gzip.compress(b"{}" * 100)[:-6] + b"\0" * 6, 400),
    "gzip-and-more": (b"gzip", gzip.compress(b"{}") + b"rest", 400),
    "gzip-bomb": (b"gzip", lambda: gzip.compress(b" " * (200 * MIB)), 413),
    "deflate-bomb": (b"deflate", lambda: zlib.compress(b" " * (200 * MIB)), 413),
    "unknown": (b"snappy", b"\xff", 400),
    "several": (b"gzip, deflate, gzip", b"\xff", 400),
}


@pytest.mark.parametrize("name", CODINGS)
def test_a_body_that_is_not_what_its_content_coding_says_is_refused(target, name):
    coding, body, code = CODINGS[name]
    body = body() if callable(body) else body
    for path in (
        MAPS,
        b"/api/v1/namespaces/default/pods/fuzzed/eviction",
        b"/apis/authorization.k8s.io/v1/subjectaccessreviews",
    ):
        assert refused(target.run(target.ask("POST", path, body, [JSON, (b"Content-Encoding", coding)])), code)


@pytest.mark.parametrize(("coding", "encode"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress)])
def test_a_body_that_is_compressed_is_read(target, coding, encode):
    body = encode((HEAD + "}}").encode())
    answer = target.run(target.ask("POST", MAPS + b"?dryRun=All", body, [JSON, (b"Content-Encoding", coding)]))
    assert answer.status == 201


KINDS_WITHOUT_STATUS = (b"configmaps", b"secrets", b"serviceaccounts", b"podtemplates")


@pytest.mark.parametrize("value", [5, "x", [1], {"conditions": 3}, {"conditions": [None]}, True])
def test_a_status_of_a_kind_that_has_none_is_dropped_whatever_it_is(target, value):
    for kind in KINDS_WITHOUT_STATUS:
        path = b"/api/v1/namespaces/default/" + kind + b"/fuzzed?dryRun=All"
        for form in (b"merge-patch+json", b"strategic-merge-patch+json"):
            headers = [(b"Content-Type", b"application/" + form)]
            answer = target.run(target.ask("PATCH", path, json.dumps({"status": value}).encode(), headers))
            assert answer.status == 200


def test_a_cel_expression_that_is_a_number_of_5000_digits_is_no_valid_one(target):
    for number in (
        "9" * 5_000,
        "-" + "9" * 5_000,
        "9" * 5_000 + "u",
        "9" * 5_000 + ".0",
        "int('" + "9" * 5_000 + "') > 1",
    ):
        spec = {"selectors": [{"cel": {"expression": f"device.driver == string({number})"}}]}
        path = b"/apis/resource.k8s.io/v1/deviceclasses?dryRun=All"
        answer = target.run(
            target.ask("POST", path, json.dumps({"metadata": {"name": "c"}, "spec": spec}).encode(), [JSON])
        )
        assert answer.status in (201, 422)


BROKEN_HTTP = {
    "bad-method": b"\x01GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no-version": b"GET /\r\n\r\n",
    "version-9": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "http-2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100 + b"\r\n\r\n",
    "bad-chunk": b"POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer fuzz-admin\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n" % MAPS,
    "negative-chunk": b"POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer fuzz-admin\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" % MAPS,
    "two-lengths": b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab" % MAPS,
    "length-and-chunks": b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % MAPS,
    "negative-length": b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n" % MAPS,
    "length-of-5000-digits": b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n\r\n" % (MAPS, b"9" * 5_000),
    "line-feed-in-a-header": b"GET / HTTP/1.1\r\nHost: localhost\r\nA: b\nc\r\n\r\n",
    "zero-in-a-header": b"GET / HTTP/1.1\r\nHost: localhost\r\nA: b\0c\r\n\r\n",
    "header-without-a-name": b"GET / HTTP/1.1\r\nHost: localhost\r\n: x\r\n\r\n",
    "2-mib-header": b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * (2 * MIB) + b"\r\n\r\n",
    "2-mib-path": b"GET /" + b"x" * (2 * MIB) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "bad-escape-in-the-path": b"GET /api/v1/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "wrong-utf-8-in-the-path": b"GET /api/v1/namespaces/%ff%fe/pods/%00 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer fuzz-admin\r\n\r\n",
    "absolute-form": b"GET http://[::1/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "port-of-words": b"GET http://localhost:abc/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "upgrade-to-nothing": b"GET %s/fuzzed/exec HTTP/1.1\r\nHost: localhost\r\nUpgrade: nothing\r\nConnection: Upgrade\r\n"
    b"Authorization: Bearer fuzz-admin\r\n\r\n" % b"/api/v1/namespaces/default/pods",
    "expect-wonders": b"POST %s HTTP/1.1\r\nHost: localhost\r\nExpect: wonders\r\nContent-Length: 2\r\n\r\n{}" % MAPS,
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN_HTTP)
def test_what_is_no_http_is_refused_and_is_no_error_of_the_server(target, name, caplog):
    answer = target.run(target.send(BROKEN_HTTP[name]))
    assert answer.status == 0 or refused(answer)
    # The others are served.
    assert target.run(target.ask("GET", MAPS)).status == 200
    assert [line for line in caplog.records if line.levelname in ("ERROR", "CRITICAL")] == []


def test_1000_connections_that_are_reset_disturb_no_other(target):
    async def reset(part):
        _, writer = await asyncio.open_connection("127.0.0.1", target.rest_port)
        writer.write(part)
        writer.transport.abort()

    whole = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{" % MAPS

    async def scenario():
        for i in range(1_000):
            await reset(whole[: i % len(whole)])
        return await target.ask("GET", MAPS)

    assert target.run(scenario()).status == 200


# -- gRPC

VERBS = ("create", "update", "patch", "delete", "deletecollection", "get", "list", "nonsense", "")
SUBRESOURCES = ("", "status", "scale", "binding", "unbind", "eviction", "resize", "ephemeralcontainers", "token", "x")
GRPC_BODIES = ("depth-100000", "depth-2000", "5000-digits", "not-a-number", "lone-surrogate", "wrong-utf-8", "a-list")


def bad_calls(body):
    calls = [(verb, sub, patch) for verb in VERBS for sub in SUBRESOURCES for patch in ("merge",)]
    calls += [("patch", "", patch) for patch in ("json", "strategic", "apply", "x")]
    return [
        pb.Request(
            id=number, verb=verb, resource="pods", namespace="default", name="fuzzed", subresource=sub,
            patch_type=patch, body=body, field_manager="m", dry_run=verb.startswith("delete"),
        )
        for number, (verb, sub, patch) in enumerate(calls, 1)
    ]  # fmt: skip


@pytest.mark.parametrize("name", GRPC_BODIES)
def test_a_bad_call_is_answered_and_the_others_of_its_stream_go_on(target, name):
    body = BAD_BODIES[name] if isinstance(BAD_BODIES[name], bytes) else BAD_BODIES[name].encode()
    calls = bad_calls(body)

    async def scenario():
        answers = {}
        async with target.stream("Mutate") as stream:
            for first in range(0, len(calls), 20):
                await stream.write(pb.RequestBatch(requests=calls[first : first + 20]).SerializeToString())
            while len(answers) < len(calls):
                for answer in pb.ResponseBatch.FromString(await stream.read()).responses:
                    answers[answer.id] = answer.code
            good = pb.Request(id=9_999, verb="get", resource="configmaps", namespace="default", name="fuzzed")
            await stream.write(pb.RequestBatch(requests=[good]).SerializeToString())
            return answers, pb.ResponseBatch.FromString(await stream.read()).responses[0]

    answers, good = target.run(asyncio.wait_for(scenario(), 20))
    assert good.code == 200
    for call in calls:
        is_read = call.verb in ("get", "list", "delete", "deletecollection") or call.patch_type == "json"
        assert (200 if is_read else 400) <= answers[call.id] < 500, call


@pytest.mark.parametrize("name", GRPC_BODIES)
def test_a_bad_unary_call_is_answered(target, name):
    body = BAD_BODIES[name] if isinstance(BAD_BODIES[name], bytes) else BAD_BODIES[name].encode()
    for call in bad_calls(body):
        answer = target.run(target.call(call.SerializeToString()))
        assert isinstance(answer, bytes), (call, answer)
        assert pb.Response.FromString(answer).code < 500


def test_frames_that_are_no_messages_end_their_call_alone(target):
    for frame in (b"\xff" * 100, b"\x0a\xff", b"\x12\x02\xff\xfe", b"\0"):
        answer = target.run(target.call(frame))
        assert isinstance(answer, bytes) or answer in (grpc.StatusCode.INVALID_ARGUMENT,)
    assert target.run(target.ask("GET", MAPS)).status == 200


# -- what `make fuzz` has found, each by the request that it was shrunk to

SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": NAME}}
FOUND = {
    "metadata-that-is-text": ("PUT", b"/apis/apps/v1/namespaces/default/controllerrevisions/fuzzed", "json",
                              {"revision": 1, "metadata": " "}),
    "metadata-that-is-text-in-another-version": ("PATCH", b"/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/fuzzed",
                                                 "merge-patch+json", {"metadata": " "}),
    "spec-that-is-text-in-another-version": ("PUT", b"/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/fuzzed",
                                             "json", {"metadata": {"name": NAME}, "spec": "x"}),
    "zones-that-are-text": ("PUT", b"/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/fuzzed", "json",
                            {"metadata": {"name": NAME}, "zones": "a"}),
    "apply-of-a-scale-whose-spec-is-text": ("PATCH", b"/apis/apps/v1/namespaces/default/statefulsets/fuzzed/scale?fieldManager=m&force=true",
                                            "apply-patch+yaml", {**SCALE, "spec": " "}),
    "eviction-whose-metadata-is-a-list": ("POST", b"/api/v1/namespaces/default/pods/fuzzed/eviction", "json", {"metadata": []}),
    "token-request-whose-metadata-is-a-list": ("POST", b"/api/v1/namespaces/default/serviceaccounts/fuzzed/token", "json", {"metadata": []}),
    "apply-whose-metadata-is-a-list": ("PATCH", MAPS + b"/fuzzed?fieldManager=m", "apply-patch+yaml",
                                       {"apiVersion": "v1", "kind": "ConfigMap", "metadata": []}),
    "apply-of-a-field-that-is-not-declared": ("PATCH", MAPS + b"/fuzzed?fieldManager=m", "apply-patch+yaml",
                                              {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "x": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_is_refused(target, name):
    method, path, media_type, body = FOUND[name]
    headers = [(b"Content-Type", b"application/" + media_type.encode())]
    assert refused(target.run(target.ask(method, path, json.dumps(body).encode(), headers)), 400, 422)


@pytest.mark.parametrize(
    "header", [b"Impersonate-User", b"Impersonate-Group", b"User-Agent", b"Accept", b"x-request-id"]
)
def test_a_header_that_is_no_utf_8_is_refused(target, header):
    assert refused(target.run(target.ask("POST", MAPS, b"{}", [JSON, (header, b"\xed\xa0\x80")])), 400)


BROKEN_BYTES = {"surrogate": b"\xed\xa0\x80", "no-utf-8": b"\xff", "half": b"\xf0\x9f", "latin-1": b"\xe9"}
PLACES = (
    *(b"/%b", b"/api/%b", b"/api/v1/%b", b"/apis/%b/v1/x", b"/api/v1/namespaces/%b/pods", b"/apis/apps/%b/deployments"),
    *(b"/api/v1/namespaces/default/pods/%b", b"/api/v1/namespaces/default/pods/fuzzed/%b", b"/healthz/%b"),
    *(b"/api/v1/namespaces/default/pods/fuzzed/log?container=%b", b"/openapi/v3/apis/%b/v1", b"/readyz?exclude=%b"),
    *(b"/api/v1/namespaces/default/pods/fuzzed/exec?command=%b", b"/api/v1/nodes/fuzzed/proxy/%b", b"/metrics?%b=1"),
    *(b"/api/v1/pods?labelSelector=%b", b"/api/v1/pods?fieldSelector=%b", b"/api/v1/pods?continue=%b"),
    *(b"/api/v1/namespaces/default/configmaps?fieldManager=%b", b"/debug/api_priority_and_fairness/%b"),
)


@pytest.mark.parametrize("name", BROKEN_BYTES)
def test_an_address_that_is_not_utf_8_is_refused(target, name):
    for place in PLACES:
        for method in ("GET", "POST", "DELETE"):
            answer = target.run(target.ask(method, place % BROKEN_BYTES[name], b"{}", [JSON]))
            assert refused(answer, 400), place


HEADS = (
    *("Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-A", "User-Agent", "Accept"),
    *("Content-Type", "Content-Encoding", "X-Forwarded-For", "Audit-Id", "traceparent", "Origin", "Host", "Cookie"),
    *("X-Request-Id", "If-None-Match", "Upgrade", "Sec-WebSocket-Protocol", "X-Stream-Protocol-Version"),
)


@pytest.mark.parametrize("name", BROKEN_BYTES)
def test_a_head_that_is_not_utf_8_is_refused(target, name):
    for head in HEADS:
        for method, path in (("GET", MAPS), ("POST", MAPS + b"?dryRun=All"), ("POST", b"/api/v1/nodes/fuzzed/proxy/")):
            sent = [(head.encode(), b"a" + BROKEN_BYTES[name])]
            answer = target.run(target.ask(method, path, b'{"metadata":{"name":"a"}}', sent))
            assert refused(answer, 400, 403), head


@pytest.mark.parametrize("part", ["_refusal", "_dispatch", "caller", "_finish_json"])
def test_a_request_is_answered_whatever_its_handling_raises(target, monkeypatch, part):
    def broken(*_):
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "broken on purpose")

    with monkeypatch.context() as patched:
        patched.setattr(Authentication if part == "caller" else RestHandler, part, broken)
        answer = target.run(target.ask("GET", MAPS + (b"?limit=x" if part == "_refusal" else b"")))

    assert (500, "internal error: UnicodeEncodeError") == (answer.status, answer.document()["message"])
    assert ["GET"] == [line["method"] for line in target.errors]
    target.errors.clear()


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_yaml_with_many_keys_holds_the_loop_for_a_moment(target, method):
    body = "".join(f"k{i}: v\n" for i in range(60_000)).encode()
    form = b"application/apply-patch+yaml" if method == "PATCH" else b"application/yaml"
    path = MAPS + (b"/a?fieldManager=m" if method == "PATCH" else b"")
    target.longest_s = 0.0

    answer = target.run(target.ask(method, path, body, [(b"Content-Type", form)]))

    assert (400, True) == (answer.status, "more than 100000 nodes" in answer.document()["message"])
    assert target.longest_s < 0.25
