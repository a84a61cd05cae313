"""The REST server over a table of objects: what HTTP adds, without a store."""

import asyncio
import contextlib
import time
from types import SimpleNamespace

import aiohttp
import msgspec
import pytest

from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.registry.admission.attributes import Connection
from apiserver_fake.registry.authorization.access import Access
from apiserver_fake.rest.handlers.answers import STREAMED_ABOVE
from apiserver_fake.rest.server import RestSettings, serve
from apiserver_fake.storage.watch_events import bookmark
from services.api.errors import Expired, Forbidden, NotFound, TooManyRequests, Unauthorized
from services.api.identity import ADMIN, ANONYMOUS
from services.api.resources import resources
from services.api.wire import Response, WatchEvent

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "p", "namespace": "d", "resourceVersion": "5"},
    "spec": {"containers": [{"name": "c"}], "nodeName": "n"},
}
NODE = {
    "kind": "Node",
    "apiVersion": "v1",
    "metadata": {"name": "n"},
    "status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
    },
}


class AnApi:
    """Answers gets from a table, echoes writes, and plays back the watch it was given."""

    def __init__(self, objects, batches=(), refusal=None):
        self.objects, self.batches, self.refusal, self.calls = objects, batches, refusal, []

    async def call(self, request):
        self.calls.append(request)
        if self.refusal:
            return Response(code=self.refusal.code, body=msgspec.json.encode(self.refusal.status()))
        if request.verb == "get":
            found = self.objects.get((request.resource, request.name))
            if found is None:
                error = NotFound(f'{request.resource} "{request.name}" not found')
                return Response(code=404, body=msgspec.json.encode(error.status()))
            return Response(code=200, rv=5, body=found if isinstance(found, bytes) else msgspec.json.encode(found))
        code = 201 if request.verb == "create" else 200
        return Response(code=code, body=request.body or b"{}", warnings=('unknown field "a"',))

    async def watch(self, request):
        self.calls.append(request)
        if self.refusal:
            raise self.refusal
        for batch in self.batches:
            yield batch


class ACallers:
    def authenticate(self, bearer):
        if bearer not in ("", "secret"):
            raise Unauthorized("Unauthorized")
        return ADMIN if bearer else ANONYMOUS

    def certified_identity(self, identity):
        return identity

    def kubelet_token(self):
        return ""

    def authorize(self, identity, request):
        pass

    def authorize_action(self, identity, asked):
        if identity == ANONYMOUS:
            raise Forbidden(f'forbidden: User "{identity.user}" cannot {asked.verb} path "{asked.path}"')


class AWatches:
    async def begin(self, identity, request):
        return None


class AServer:
    audit = None
    is_ready = True
    is_shared = False
    release = "1.36"
    fairness = None
    writer = SimpleNamespace(read_only=None)
    store = SimpleNamespace(rv=7)
    catalogue = whole_catalogue()
    access = Access()

    def __init__(self, api):
        self.api, self.seen, self.failure = api, [], ""
        self.callers, self.watches = ACallers(), AWatches()

    def api_for(self, identity, started=None):
        self.seen.append(identity)
        return self.api

    def streaming_api(self, identity, place, send_blocked_max_s, started):
        return self.api_for(identity)

    async def etcd_failure(self):
        return self.failure

    async def admit_connection(self, identity, request, options, complete):
        return Connection(options)


class AClock:
    def now(self):
        return time.monotonic()

    def wall(self):
        return 1_800_000_000.0


class ASpan:
    traceparent = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    trace_id = "1" * 32

    def set(self, **attributes):
        pass

    def end(self, error=""):
        pass


class ATracer:
    def __init__(self):
        self.started = []

    def start(self, name, *, parent="", links=(), **attributes):
        self.started.append((name, parent))
        return ASpan()


@contextlib.asynccontextmanager
async def a_rest_server(api, *, token="secret", **settings):
    server, tracer = AServer(api), ATracer()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    runner, port = await serve(server, "127.0.0.1", 0, clock=AClock(), tracer=tracer, settings=RestSettings(**settings))
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as client:
        client.server, client.tracer, client.port = server, tracer, port
        try:
            yield client
        finally:
            await runner.aclose()


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, 20))


async def status_of(client, method, path, **options):
    async with client.request(method, path, **options) as answer:
        return answer.status, await answer.json()


def test_a_get_returns_the_stored_bytes_untouched():
    stored = b'{"kind":"ConfigMap",   "apiVersion":"v1"}'

    async def scenario():
        path = "/api/v1/namespaces/d/configmaps/p"
        async with a_rest_server(AnApi({("configmaps", "p"): stored})) as client, client.get(path) as answer:
            return await answer.read(), answer.headers["Content-Type"]

    assert run(scenario()) == (stored + b"\n", "application/json")


def test_a_span_named_by_its_template_travels_with_the_call():
    parent = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"

    async def scenario():
        api = AnApi({})
        async with a_rest_server(api) as client:
            await status_of(client, "POST", "/api/v1/namespaces/d/pods", json={}, headers={"traceparent": parent})
            return api.calls[0].traceparent, client.tracer.started

    assert run(scenario()) == (ASpan.traceparent, [("POST /api/v1/namespaces/{namespace}/pods", parent)])


def test_kubectl_requests_7_every_refusal_is_a_status_of_its_form():
    async def scenario():
        async with a_rest_server(AnApi({})) as client:
            return [
                await status_of(client, "GET", "/api/v1/namespaces/d/pods/p"),
                await status_of(client, "GET", "/api/v1/nosuch"),
                await status_of(client, "POST", "/api/v1/nodes/n", json={}),
                await status_of(client, "GET", "/api/v1/nodes", headers={"Accept": "text/html"}),
                await status_of(client, "POST", "/api/v1/nodes", data=b"a", headers={"Content-Type": "text/plain"}),
                await status_of(client, "PATCH", "/api/v1/nodes/n", json={}),
            ]

    answers = run(scenario())

    assert [(code, body["reason"]) for code, body in answers] == [
        (404, "NotFound"),
        (404, "NotFound"),
        (405, "MethodNotAllowed"),
        (406, "NotAcceptable"),
        (415, "UnsupportedMediaType"),
        (415, "UnsupportedMediaType"),
    ]
    assert all(body["kind"] == "Status" and body["code"] == code for code, body in answers)


def test_kubectl_requests_7_an_unserved_group_is_a_plain_404_page():
    async def scenario():
        async with a_rest_server(AnApi({})) as client, client.get("/apis/nosuch/v1/things") as answer:
            return answer.status, answer.content_type, await answer.text()

    assert run(scenario()) == (404, "text/plain", "404 page not found\n")


def test_l_body_a_body_above_three_mebibytes_is_413_and_never_reaches_the_server():
    async def scenario():
        api = AnApi({})
        async with a_rest_server(api) as client:
            code, body = await status_of(client, "POST", "/api/v1/nodes", data=b" " * (3 * 1024 * 1024 + 1))
            return code, body["reason"], api.calls

    assert run(scenario()) == (413, "RequestEntityTooLarge", [])


@pytest.mark.parametrize(
    ("headers", "method", "expected"),
    [
        ({"Host": "evil.example:80"}, "GET", 403),
        ({"Host": "mesh.test"}, "GET", 200),
        ({"Host": "localhost:1234"}, "GET", 200),
        ({"Origin": "http://evil.example"}, "POST", 403),
        ({"Origin": "http://evil.example"}, "GET", 200),
    ],
)
def test_x_web_foreign_hosts_and_origins_are_refused(headers, method, expected):
    async def scenario():
        async with a_rest_server(AnApi({("nodes", "n"): NODE}), allowed_hosts=("mesh.test",)) as client:
            path = "/api/v1/nodes/n" if method == "GET" else "/api/v1/nodes"
            async with client.request(method, path, headers=headers) as answer:
                assert "Access-Control-Allow-Origin" not in answer.headers
                return answer.status

    assert run(scenario()) == expected


def test_x_web_the_own_origin_may_change_things():
    async def scenario():
        async with a_rest_server(AnApi({})) as client:
            own = {"Origin": f"http://127.0.0.1:{client.port}"}
            return (await status_of(client, "POST", "/api/v1/nodes", json={}, headers=own))[0]

    assert run(scenario()) == 201


def test_guarantees_8_2_anonymous_may_ask_for_health_and_version_only():
    async def scenario():
        async with a_rest_server(AnApi({}), token="") as client:
            found = {}
            for path in (
                "/healthz",
                "/livez",
                "/readyz",
                "/version",
                "/readyz?verbose",
                "/api",
                "/openapi/v3",
                "/metrics",
            ):
                async with client.get(path) as answer:
                    found[path] = answer.status
            return found

    assert run(scenario()) == {
        "/healthz": 200, "/livez": 200, "/readyz": 200, "/version": 200,
        "/readyz?verbose": 403, "/api": 403, "/openapi/v3": 403, "/metrics": 403,
    }  # fmt: skip


def test_guarantees_8_2_the_administrator_reads_what_each_check_found():
    async def scenario():
        async with a_rest_server(AnApi({})) as client, client.get("/readyz?verbose") as answer:
            return answer.status

    assert run(scenario()) == 200


def test_while_etcd_does_not_answer_its_checks_fail_and_no_other():
    async def scenario():
        async with a_rest_server(AnApi({})) as client:
            client.server.failure = "error getting data from etcd: etcdserver: no leader"
            found = {}
            whole, parts = ("/healthz", "/livez", "/readyz"), ("/livez/etcd", "/readyz/etcd-readiness", "/readyz/ping")
            for path in (*whole, *parts, "/readyz?exclude=etcd", "/readyz?exclude=etcd&exclude=etcd-readiness"):
                async with client.get(path) as answer:
                    found[path] = (answer.status, [x for x in (await answer.text()).splitlines() if "[+]" not in x])
            return found

    etcd, readiness = (f"[-]{name} failed: reason withheld" for name in ("etcd", "etcd-readiness"))
    why = "internal server error: error getting data from etcd: etcdserver: no leader"
    assert run(scenario()) == {
        "/healthz": (500, [etcd, "healthz check failed"]),
        "/livez": (500, [etcd, "livez check failed"]),
        "/readyz": (500, [etcd, readiness, "readyz check failed"]),
        "/livez/etcd": (500, [why]),
        "/readyz/etcd-readiness": (500, [why]),
        "/readyz/ping": (200, ["ok"]),
        "/readyz?exclude=etcd": (500, [readiness, "readyz check failed"]),
        "/readyz?exclude=etcd&exclude=etcd-readiness": (200, ["ok"]),
    }


def test_guarantees_8_2_a_client_that_may_not_write_is_refused_before_the_body_is_read():
    def refuse(identity, request):
        raise Forbidden(f"{identity.user} cannot {request.verb} {request.resource}")

    async def scenario():
        async with a_rest_server(AnApi({})) as client:
            client.server.callers.authorize = refuse
            return await status_of(client, "POST", "/api/v1/nodes", data=b" " * (4 << 20))

    code, body = run(scenario())
    assert (code, body["message"]) == (403, "system:mesh-admin cannot create nodes")


@pytest.mark.parametrize("authorization", ["Bearer secret"])
def test_a_token_is_taken_as_bearer_or_as_the_password_of_a_url(authorization):
    async def scenario():
        async with a_rest_server(AnApi({("nodes", "n"): NODE}), token="") as client:
            await status_of(client, "GET", "/api/v1/nodes/n", headers={"Authorization": authorization})
            return client.server.seen

    assert run(scenario()) == [ADMIN]


@pytest.mark.parametrize("authorization", ["Bearer wrong", "Basic eDpzZWNyZXQ=", "Digest x"])
def test_a_wrong_credential_is_unauthorized(authorization):
    async def scenario():
        async with a_rest_server(AnApi({})) as client:
            return await status_of(client, "GET", "/api/v1/nodes/n", headers={"Authorization": authorization})

    assert run(scenario())[0] == 401


def test_warnings_become_headers_that_cannot_be_broken_out_of():
    async def scenario():
        async with a_rest_server(AnApi({})) as client, client.post("/api/v1/nodes", json={}) as answer:
            return answer.headers.getall("Warning")

    assert run(scenario()) == ['299 - "unknown field \\"a\\""']


def test_a_refusal_that_says_when_to_come_back_says_it_in_a_header():
    async def scenario():
        api = AnApi({}, refusal=TooManyRequests("slow down", retry_after_s=7))
        async with a_rest_server(api) as client, client.get("/api/v1/nodes") as answer:
            return answer.status, answer.headers["Retry-After"]

    assert run(scenario()) == (429, "7")


def test_discovery_is_answered_304_when_the_client_has_it_already():
    aggregated = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"}

    async def scenario():
        async with a_rest_server(AnApi({})) as client:
            async with client.get("/apis", headers=aggregated) as first:
                etag, kind = first.headers["ETag"], (await first.json(content_type=None))["kind"]
            async with client.get("/apis", headers={**aggregated, "If-None-Match": etag}) as second:
                code = second.status
            async with client.get("/apis/", headers={"If-None-Match": etag}) as plain:
                return kind, code, plain.status, plain.headers["Vary"], (await plain.json())["kind"]

    assert run(scenario()) == ("APIGroupDiscoveryList", 304, 200, "Accept", "APIGroupList")


def watch_lines(api, path="/api/v1/namespaces/d/pods?watch=1", headers=None):
    async def scenario():
        async with a_rest_server(api) as client, client.get(path, headers=headers) as answer:
            text = await answer.text()
            return answer.status, [msgspec.json.decode(line) for line in text.splitlines()]

    return run(scenario())


def events(*kinds):
    return [[WatchEvent(type=kind, resource="pods", rv=5, body=msgspec.json.encode(POD)) for kind in kinds]]


def test_a_watch_is_one_json_object_a_line_and_ends_cleanly():
    code, lines = watch_lines(AnApi({}, events("ADDED", "DELETED")))

    pod = {**POD, "spec": {"containers": [{"name": "c", "resources": {}}], "nodeName": "n"}, "status": {}}
    assert (code, [(e["type"], e["object"]) for e in lines]) == (200, [("ADDED", pod), ("DELETED", pod)])


def test_guarantees_w12_the_bookmark_that_ends_the_initial_events_is_annotated():
    _, [line] = watch_lines(AnApi({}, [[bookmark(resources()["pods"], 9, initial_events_end=True)]]))

    assert line["object"]["metadata"]["resourceVersion"] == "9"
    assert line["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_only_the_first_table_of_a_watch_carries_columns():
    _, lines = watch_lines(AnApi({}, events("ADDED", "MODIFIED")), headers=TABLE)

    assert [bool(e["object"]["columnDefinitions"]) for e in lines] == [True, False]
    assert [e["object"]["rows"][0]["cells"][0] for e in lines] == ["p", "p"]


def test_kubelet_unbinding_section_8_the_node_column_goes_empty_and_comes_back():
    def seen(rv, **spec):
        body = msgspec.json.encode({**POD, "spec": {"containers": [{"name": "c"}], **spec}})
        return WatchEvent(type="MODIFIED", resource="pods", rv=rv, body=body)

    batch = [seen(6, nodeName="n1"), seen(7), seen(8, nodeName="n2")]
    _, lines = watch_lines(AnApi({}, [batch]), headers=TABLE)

    columns = [column["name"] for column in lines[0]["object"]["columnDefinitions"]]
    rows = [dict(zip(columns, line["object"]["rows"][0]["cells"], strict=True)) for line in lines]
    assert [(row["Name"], row["Node"]) for row in rows] == [("p", "n1"), ("p", "<none>"), ("p", "n2")]


def test_an_error_in_a_watch_stays_a_status_for_clients_that_take_tables():
    gone = WatchEvent(type="ERROR", body=msgspec.json.encode(Expired("too old").status()))
    code, [line] = watch_lines(AnApi({}, [[gone]]), headers=TABLE)

    assert (code, line["type"], line["object"]["kind"], line["object"]["code"]) == (200, "ERROR", "Status", 410)


def test_a_refused_watch_is_refused_before_the_stream_begins():
    code, [status] = watch_lines(AnApi({}, refusal=TooManyRequests("too many watches")))

    assert (code, status["reason"]) == (429, "TooManyRequests")


def test_guarantees_w14_a_watcher_that_does_not_read_is_cut_in_the_middle():
    big = WatchEvent(type="ADDED", resource="pods", rv=5, body=b'{"a":"' + b"x" * 100_000 + b'"}')
    ended = None

    class Endless(AnApi):
        async def watch(self, request):
            try:
                while True:
                    yield [big]
                    await asyncio.sleep(0)
            finally:
                ended.set()

    async def scenario():
        nonlocal ended
        ended = asyncio.Event()
        async with a_rest_server(Endless({}), send_blocked_max_s=0.2) as client:
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port, limit=1)
            writer.write(b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await ended.wait()
            with contextlib.suppress(ConnectionResetError):
                tail = b""
                while chunk := await reader.read(1 << 20):
                    tail = (tail + chunk)[-16:]
                assert not tail.endswith(b"0\r\n\r\n")
            writer.close()

    run(scenario())


def test_a_log_names_the_node_whose_kubelet_does_not_answer():
    async def scenario():
        async with a_rest_server(AnApi({("pods", "p"): POD, ("nodes", "n"): NODE})) as client:
            return await status_of(client, "GET", "/api/v1/namespaces/d/pods/p/log")

    code, body = run(scenario())
    assert code == 503
    assert 'node "n" at 127.0.0.1:1 does not answer' in body["message"]


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("exec?container=c&command=ls", 400, "Upgrade request required"),
        ("attach", 400, "Upgrade request required"),
        ("portforward?ports=80", 400, "Upgrade request required"),
        ("portforward?ports=80,x", 400, "ports='x': want a number from 1 to 65535"),
        ("exec?container=x", 400, "container x is not valid for pod p"),
    ],
)
def test_a_stream_that_cannot_be_opened_is_refused_with_the_reason(path, code, said):
    async def scenario():
        async with a_rest_server(AnApi({("pods", "p"): POD, ("nodes", "n"): NODE})) as client:
            return [
                await status_of(client, method, f"/api/v1/namespaces/d/pods/p/{path}") for method in ("GET", "POST")
            ]

    for answered, body in run(scenario()):
        assert (answered, body["kind"]) == (code, "Status")
        assert said in body["message"]


def test_a_stream_of_a_pod_that_is_missing_or_has_no_node_is_refused_for_that():
    waiting = {**POD, "spec": {"containers": [{"name": "c"}]}}

    async def scenario():
        async with a_rest_server(AnApi({("pods", "w"): waiting})) as client:
            return [await status_of(client, "GET", f"/api/v1/namespaces/d/pods/{name}/exec") for name in ("w", "gone")]

    (code, body), (missing, _) = run(scenario())
    assert (code, body["message"]) == (400, "pod p does not have a host assigned")
    assert missing == 404


def test_the_log_of_a_pod_without_a_node_is_no_content():
    waiting = {**POD, "spec": {"containers": [{"name": "c"}]}}

    async def scenario():
        async with (
            a_rest_server(AnApi({("pods", "w"): waiting})) as client,
            client.get("/api/v1/namespaces/d/pods/w/log") as response,
        ):
            return response.status, await response.read()

    assert run(scenario()) == (204, b"")


@pytest.mark.parametrize(
    ("query", "code", "said"),
    [
        ("tailLines=-1", 422, "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ("limitBytes=0", 422, "limitBytes: Invalid value: 0: must be greater than 0"),
        ("sinceSeconds=0", 422, "sinceSeconds: Invalid value: 0: must be greater than 0"),
        (
            "sinceSeconds=5&sinceTime=2026-01-01T00:00:00Z",
            422,
            ": Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        ("stream=Stdout", 422, "stream: Forbidden: may not be specified"),
        (
            "tailLines=-1&limitBytes=-2",
            422,
            (
                "[tailLines: Invalid value: -1: must be greater than or equal to 0, "
                "limitBytes: Invalid value: -2: must be greater than 0]"
            ),
        ),
        ("tailLines=a", 400, 'strconv.ParseInt: parsing "a": invalid syntax'),
        ("tailLines=", 400, 'strconv.ParseInt: parsing "": invalid syntax'),
        ("limitBytes=9223372036854775808", 400, 'strconv.ParseInt: parsing "9223372036854775808": value out of range'),
        ("sinceTime=x", 400, 'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'),
    ],
)
def test_options_of_a_log_are_judged_before_the_pod_is_looked_at(query, code, said):
    async def scenario():
        async with a_rest_server(AnApi({})) as client:
            return await status_of(client, "GET", f"/api/v1/namespaces/d/pods/none/log?{query}")

    answered, body = run(scenario())

    prefix = 'PodLogOptions "none" is invalid: ' if code == 422 else ""
    assert (answered, body["message"]) == (code, prefix + said)


def test_one_of_several_containers_has_to_be_named_and_all_are_listed_in_their_order():
    several = {**POD, "metadata": {**POD["metadata"], "annotations": {
        "kubectl.kubernetes.io/default-container": "c"}}, "spec": {
        **POD["spec"], "containers": [{"name": "c"}, {"name": "d"}], "initContainers": [{"name": "first"}],
        "ephemeralContainers": [{"name": "debugger"}]}}  # fmt: skip

    async def scenario():
        async with a_rest_server(AnApi({("pods", "p"): several, ("nodes", "n"): NODE})) as client:
            return [await status_of(client, "GET", f"/api/v1/namespaces/d/pods/p/{kind}") for kind in ("log", "exec")]

    said = "a container name must be specified for pod p, choose one of: [first c d debugger]"
    assert [(code, body["message"]) for code, body in run(scenario())] == [(400, said)] * 2


def test_a_log_may_be_that_of_an_ephemeral_container():
    debugged = {**POD, "spec": {**POD["spec"], "ephemeralContainers": [{"name": "debugger"}]}}

    async def scenario():
        async with a_rest_server(AnApi({("pods", "p"): debugged, ("nodes", "n"): NODE})) as client:
            return await status_of(client, "GET", "/api/v1/namespaces/d/pods/p/log?container=debugger")

    code, body = run(scenario())
    assert (code, "does not answer" in body["message"]) == (503, True)


def test_a_log_of_a_pod_whose_node_is_gone_says_so():
    async def scenario():
        async with a_rest_server(AnApi({("pods", "p"): POD})) as client:
            return await status_of(client, "GET", "/api/v1/namespaces/d/pods/p/log")

    code, body = run(scenario())
    assert code == 404
    assert 'bound to node "n", which does not exist' in body["message"]


def test_l_conn_a_connection_that_never_speaks_is_closed_and_one_that_did_stays():
    question = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def scenario():
        async with a_rest_server(AnApi({}), first_request_max_s=0.1) as client:
            speaker, mouth = await asyncio.open_connection("127.0.0.1", client.port)
            mouth.write(question)
            first = await speaker.readuntil(b"ok")
            silent, half = await asyncio.open_connection("127.0.0.1", client.port)
            half.write(b"GET /version HT")
            closed = await asyncio.wait_for(silent.read(), 5)
            mouth.write(question)
            second = await speaker.readuntil(b"ok")
            mouth.close()
            half.close()
            return first[:15], closed, second[:15]

    assert run(scenario()) == (b"HTTP/1.1 200 OK", b"", b"HTTP/1.1 200 OK")


def test_l_conn_a_connection_whose_first_request_takes_long_is_not_a_silent_one():
    asked, may_answer = asyncio.Event(), asyncio.Event()
    question = b"GET /api/v1/namespaces/d/pods/a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n"

    class Late(AnApi):
        async def call(self, request):
            asked.set()
            await may_answer.wait()
            return await super().call(request)

    async def scenario():
        async with a_rest_server(Late({("pods", "a"): b"{}"}), first_request_max_s=0.1) as client:
            speaker, mouth = await asyncio.open_connection("127.0.0.1", client.port)
            mouth.write(question)
            await asked.wait()
            silent, never = await asyncio.open_connection("127.0.0.1", client.port)
            closed = await asyncio.wait_for(silent.read(), 5)
            may_answer.set()
            answer = await asyncio.wait_for(speaker.read(15), 5)
            never.close()
            mouth.close()
            return closed, answer

    assert run(scenario()) == (b"", b"HTTP/1.1 200 OK")


def test_a_bug_answers_one_caller_with_a_status_and_leaves_the_server_open():
    class Broken(AnApi):
        async def call(self, request):
            raise RuntimeError("bug")

    async def scenario():
        async with a_rest_server(Broken({})) as client:
            return [
                (await status_of(client, "GET", "/api/v1/nodes"))[0],
                (await status_of(client, "GET", "/version"))[0],
            ]

    assert run(scenario()) == [500, 200]


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("GET", "pods/p/exec?command=ls", ("create", "pods", "p", "exec")),
        ("POST", "pods/p/attach", ("create", "pods", "p", "attach")),
        ("GET", "pods/p/portforward", ("create", "pods", "p", "portforward")),
        ("GET", "pods/p:80/proxy/x/y", ("get", "pods", "p", "proxy")),
        ("PUT", "services/http:s:web/proxy/", ("update", "services", "s", "proxy")),
    ],
)
def test_a_stream_needs_the_right_to_create_it_and_a_proxy_that_of_its_method(method, path, wanted):
    asked = []

    def refuse(identity, request):
        asked.append((request.verb, request.resource, request.name, request.subresource))
        raise Forbidden("no")

    async def scenario():
        async with a_rest_server(AnApi({("pods", "p"): POD, ("nodes", "n"): NODE})) as client:
            client.server.callers.authorize = refuse
            return await status_of(client, method, f"/api/v1/namespaces/d/{path}")

    assert run(scenario())[0] == 403
    assert asked == [wanted]


@pytest.mark.parametrize(("becomes_known", "code", "refused"), [(True, 200, 0), (False, 401, 1)])
def test_a_token_that_another_server_made_good_is_no_refusal_in_the_audit_log(becomes_known, code, refused):
    recorded = []

    class Audit:
        def record_unauthenticated(self, asked, source, **others):
            recorded.append(others["tried"])

        def begin(self, *asked, **others):
            return None

    async def scenario():
        async with a_rest_server(AnApi({("nodes", "n"): NODE}), token="new") as client:
            server, known = client.server, server_of_tokens(client.server)
            server.audit, server.is_shared = Audit(), True

            async def catch_up():
                known["new"] = becomes_known

            server.catch_up = catch_up
            return (await status_of(client, "GET", "/api/v1/nodes/n"))[0]

    def server_of_tokens(server):
        known = {"new": False}

        def authenticate(bearer):
            if not known[bearer]:
                raise Unauthorized("Unauthorized")
            return ADMIN

        server.callers.authenticate = authenticate
        return known

    assert run(scenario()) == code
    assert recorded == ["bearer"] * refused


def test_the_objects_of_a_large_deleted_collection_are_sent_in_pieces():
    body = msgspec.json.encode({"kind": "Event", "apiVersion": "v1", "metadata": {"name": "e", "namespace": "d"}})
    items = (body,) * (STREAMED_ABOVE + 1)
    head = b'{"kind":"EventList","apiVersion":"v1","metadata":{"resourceVersion":"7"}}'

    class Deleting(AnApi):
        async def call(self, request):
            self.calls.append(request)
            return Response(code=200, rv=7, body=head, items=items if request.is_split else None)

    async def scenario():
        api = Deleting({})
        async with a_rest_server(api) as client, client.delete("/api/v1/namespaces/d/events") as answer:
            return answer.headers.get("Content-Length"), answer.status, len((await answer.json())["items"])

    assert run(scenario()) == (None, 200, len(items))
