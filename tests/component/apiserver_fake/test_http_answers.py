"""Requests one by one, with what a kube-apiserver answers them: paths, methods, forms, headers."""

import asyncio
import json
import re

import pytest
from yarl import URL

from apiserver_fake.rest.protobuf import wire
from tests.component.apiserver_fake.passing import pass_time
from tests.component.apiserver_fake.test_access import a_cluster

NAMESPACE = "/api/v1/namespaces/default"
MAPS = f"{NAMESPACE}/configmaps"
STATUS_404 = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "the server could not find the requested resource",
    "reason": "NotFound",
    "details": {},
    "code": 404,
}
STATUS_405 = {
    **STATUS_404,
    "message": "the server does not allow this method on the requested resource",
    "reason": "MethodNotAllowed",
    "code": 405,
}
PAGE_404 = "404 page not found\n"
TABLE = ";as=Table;v=v1;g=meta.k8s.io"
METADATA = ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PROTOBUF = "application/vnd.kubernetes.protobuf"
ACCEPTED = "only the following media types are accepted: application/json, application/yaml, " + PROTOBUF


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)


class Asker:
    def __init__(self, cluster):
        self._client = cluster.client

    async def __call__(self, method, path, body=None, *, who="admin", accept="", **headers):
        sent = {"Authorization": f"Bearer {who}-token"} if who else {}
        sent |= {"Accept": accept} if accept else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, dict):
            sent, body = {"Content-Type": "application/json", **sent}, json.dumps(body)
        async with self._client.request(method, URL(path, encoded=True), data=body, headers=sent) as answer:
            if "timeoutSeconds=1" in path:
                pass_time(1)
            return Answer(answer.status, answer.headers, await answer.read())


@pytest.fixture
def ask(tmp_path):
    """Run a coroutine function with what asks a server of its own."""

    def run(scenario):
        async def whole():
            async with a_cluster(tmp_path) as cluster:
                return await scenario(Asker(cluster))

        return asyncio.run(asyncio.wait_for(whole(), 30))

    return run


def test_paths_that_lead_nowhere(ask):
    pages = ["/nosuch", "/apis/nosuch", "/apis/nosuch/v1", "/apis/nosuch/v1/foos", "/metrics/",
             "/healthz/", "/livez/nosuch", "/openapi/v2/", "/openapi", "/swagger.json", "/favicon.ico"]  # fmt: skip
    statuses = ["/api/v2", "/api/v1/foos", "/apis/apps/v9", "/apis/apps/v9/deployments", "/apis/apps/v1/foos", "/version/x",
                f"{NAMESPACE}/foos", f"{NAMESPACE}/pods/x/y", "/api/v1//pods", "/api/v1/pods/x", "/api/v1/watch/pods/x"]  # fmt: skip

    async def scenario(ask):
        for path in pages:
            found = await ask("GET", path)
            assert (path, found.status, found.text) == (path, 404, PAGE_404)
            assert found.headers["Content-Type"] == "text/plain; charset=utf-8"
            assert found.headers["X-Content-Type-Options"] == "nosniff"
        for path in statuses:
            found = await ask("GET", path)
            assert (path, found.status, found.json) == (path, 404, STATUS_404)
        malformed = await ask("GET", "/api/v1/namespaces/%zz/pods")
        assert (malformed.status, malformed.text) == (400, "400 Bad Request")

    ask(scenario)


def test_methods(ask):
    async def scenario(ask):
        for method in ("HEAD", "OPTIONS", "TRACE", "PUT"):
            for path in (MAPS, "/api", "/apis", "/apis/apps", "/version"):
                found = await ask(method, path)
                assert (method, path, found.status) == (method, path, 405)
                assert method == "HEAD" or found.json == STATUS_405
        # Handlers that are no part of the API take any method.
        for path in ("/healthz", "/livez/ping", "/metrics", "/", "/openapi/v2", "/openapi/v3"):
            for method in ("HEAD", "POST"):
                found = await ask(method, path)
                assert (method, path, found.status) == (method, path, 200)

    ask(scenario)


def test_health_names_its_checks(ask):
    async def scenario(ask):
        assert (await ask("GET", "/healthz", who="")).text == "ok"
        assert (await ask("GET", "/readyz/etcd-readiness")).text == "ok"
        assert (await ask("GET", "/livez/etcd-readiness")).status == 404
        whole = await ask("GET", "/livez?verbose")
        lines = whole.text.splitlines()
        assert lines[:3] == ["[+]ping ok", "[+]log ok", "[+]etcd ok"]
        assert lines[-1] == "livez check passed"
        assert whole.headers["Content-Type"] == "text/plain; charset=utf-8"
        fewer = (await ask("GET", "/readyz?verbose&exclude=etcd&exclude=b&exclude=a")).text
        assert "[+]etcd excluded: ok\n" in fewer
        assert 'warn: some health checks cannot be excluded: no matches for "a","b"\n' in fewer
        assert fewer.endswith("readyz check passed\n")

    ask(scenario)


def test_heads_of_answers(ask):
    async def scenario(ask):
        headers = (await ask("GET", MAPS)).headers
        assert re.fullmatch("[0-9a-f-]{36}", headers["Audit-Id"])
        assert "Server" not in headers
        assert headers["Cache-Control"] == "no-cache, private"
        kinds = "/apis/flowcontrol.apiserver.k8s.io/v1"
        assert "X-Kubernetes-Pf-Flowschema-Uid" not in headers

        async def uid(plural, name, **spec):
            made = await ask("POST", f"{kinds}/{plural}", {"metadata": {"name": name}, "spec": spec})
            assert made.status == 201, made.text
            return made.json["metadata"]["uid"]

        limited = {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}}
        level = await uid("prioritylevelconfigurations", "low", type="Limited", limited=limited)
        made = {}
        for name, precedence, group in (("some", 700, "system:authenticated"), ("none", 800, "system:unauthenticated")):
            rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}
            subjects = [{"kind": "Group", "group": {"name": group}}]
            made[name] = await uid(
                "flowschemas",
                name,
                matchingPrecedence=precedence,
                priorityLevelConfiguration={"name": "low"},
                rules=[{"subjects": subjects, "resourceRules": [rule]}],
            )
        headers = (await ask("GET", MAPS, who="ann")).headers
        assert headers["X-Kubernetes-Pf-Flowschema-Uid"] == made["some"]
        assert headers["X-Kubernetes-Pf-Prioritylevel-Uid"] == level
        refused = await ask("GET", "/api/v1/pods", who="")
        assert (refused.status, refused.headers["X-Kubernetes-Pf-Flowschema-Uid"]) == (403, made["none"])
        watch = await ask("GET", f"{MAPS}?watch=1&timeoutSeconds=1")
        assert watch.headers["Audit-Id"]
        assert "Server" not in watch.headers
        assert (await ask("GET", "/nosuch", Audit_Id="mine")).headers["Audit-Id"] == "mine"

    ask(scenario)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/json;q=0.1,application/yaml", "application/yaml"),
        ("application/yaml;q=0.1,*/*", "application/json"),
        ("*/*;q=0.9,application/yaml;q=0.9", "application/yaml"),
        ("application/*", "application/json"),
        ("application/cbor,application/json", "application/json"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "application/json"),
        (f"{PROTOBUF},*/*", "application/json"),
        (PROTOBUF, PROTOBUF),
        (PROTOBUF + METADATA, PROTOBUF),
        (f"{PROTOBUF}{METADATA},application/json{METADATA},application/json", PROTOBUF),
        (f"application/yaml{TABLE}", "application/yaml"),
        ("application/json;stream=watch", "application/json"),
        ("application/json;q=0", "application/json"),
        (PROTOBUF + TABLE, ""),
        ("application/json;as=Table", ""),
        ("application/json;as=Table;v=v9;g=meta.k8s.io", ""),
        ("application/cbor", ""),
        ("text/yaml", ""),
        ("text/*", ""),
        ("bogus", ""),
    ],
)
def test_forms(ask, accept, content_type):
    async def scenario(ask):
        found = await ask("GET", NAMESPACE, accept=accept)
        if content_type:
            assert (found.status, found.headers["Content-Type"]) == (200, content_type)
        else:
            assert (found.status, found.json["message"], "details" in found.json) == (406, ACCEPTED, False)

    ask(scenario)


def test_refusals_come_in_the_form_that_was_asked_for(ask):
    async def scenario(ask):
        path = f"{NAMESPACE}/pods/x"
        yaml = await ask("GET", path, accept="application/yaml")
        assert (yaml.status, yaml.headers["Content-Type"]) == (404, "application/yaml")
        assert 'message: pods "x" not found' in yaml.text
        assert (await ask("GET", path, accept=PROTOBUF)).body.startswith(b"k8s\x00\n\x0c\n\x02v1\x12\x06Status")
        assert (await ask("GET", "/api/v1/pods", who="", accept="text/html")).json["code"] == 403
        watch = await ask("GET", f"{MAPS}?watch=1", accept="application/yaml")
        assert watch.status == 406
        assert f"application/json;stream=watch, {PROTOBUF};stream=watch" in watch.text.replace("\n ", "")

    ask(scenario)


def test_json_is_indented_for_people_and_ends_a_line_for_programs(ask):
    async def scenario(ask):
        plain = (await ask("GET", NAMESPACE)).text
        assert plain.endswith("}\n")
        assert plain.count("\n") == 1
        for path, agent in ((f"{NAMESPACE}?pretty=true", "x"), (NAMESPACE, "curl/8.1"), (NAMESPACE, "Mozilla/5.0 (X)")):
            found = (await ask("GET", path, User_Agent=agent)).text
            assert found == json.dumps(json.loads(plain), indent=2)
        assert (await ask("GET", f"{NAMESPACE}?pretty=false", User_Agent="curl/8.1")).text == plain
        assert (await ask("GET", NAMESPACE, accept="application/json;pretty=1")).text.startswith('{\n  "')
        assert (await ask("GET", f"{NAMESPACE}/pods/x", User_Agent="curl/8.1")).text.startswith('{\n  "kind": "Status"')
        for path in ("/", "/version"):
            assert (await ask("GET", path)).text.startswith('{\n  "')

    ask(scenario)


def test_status_names_nothing_where_there_is_nothing_to_name(ask):
    async def scenario(ask):
        found = await ask("GET", f"{MAPS}?limit=x")
        assert (found.status, "details" in found.json) == (400, False)
        unknown = await ask("GET", MAPS, who="nobody")
        assert (unknown.status, "details" in unknown.json) == (401, False)

    ask(scenario)


def test_openapi_documents_are_found_by_their_hash(ask):
    async def scenario(ask):
        url = (await ask("GET", "/openapi/v3")).json["paths"]["apis/apps/v1"]["serverRelativeURL"]
        found = await ask("GET", url)
        assert found.headers["Cache-Control"] == "public, immutable"
        assert found.headers["Expires"].endswith("GMT")
        assert "Expires" not in (await ask("GET", "/openapi/v3/apis/apps/v1")).headers
        assert (await ask("GET", url, If_None_Match=found.headers["ETag"])).status == 304
        absent = await ask("GET", "/openapi/v3/apis/nosuch/v1")
        assert (absent.status, absent.body) == (200, b"")

    ask(scenario)


def test_items_of_lists_are_bare_and_zeros_are_written(ask):
    async def scenario(ask):
        sets = "/apis/apps/v1/namespaces/default/replicasets"
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
        made = (await ask("POST", sets, {"metadata": {"name": "r"}, "spec": spec})).json
        assert made["status"] == {"replicas": 0}
        assert made["spec"]["template"]["spec"]["containers"][0]["resources"] == {}
        [item] = (await ask("GET", sets)).json["items"]
        assert {"kind": "ReplicaSet", "apiVersion": "apps/v1", **item} == made
        assert not {"kind", "apiVersion"} & set(item)
        event = json.loads((await ask("GET", f"{sets}?watch=1&timeoutSeconds=1")).text.splitlines()[0])
        assert event["object"] == made
        [row] = (await ask("GET", f"{sets}?includeObject=Object", accept="application/json" + TABLE)).json["rows"]
        assert row["object"] == made
        gone = (await ask("DELETE", sets)).json
        assert (gone["kind"], [set(each) & {"kind", "apiVersion"} for each in gone["items"]]) == (
            "ReplicaSetList",
            [set()],
        )

    ask(scenario)


def test_a_uid_that_is_not_the_objects(ask):
    async def scenario(ask):
        made = (await ask("POST", MAPS, {"metadata": {"name": "c"}})).json
        uid = made["metadata"]["uid"]
        patched = await ask(
            "PATCH", f"{MAPS}/c", '{"metadata":{"uid":"1"}}', Content_Type="application/merge-patch+json"
        )
        said = 'ConfigMap "c" is invalid: metadata.uid: Invalid value: "1": field is immutable'
        assert (patched.status, patched.json["message"]) == (422, said)
        put = await ask("PUT", f"{MAPS}/c", {"metadata": {"name": "c", "uid": "1"}})
        assert (put.status, put.json["message"]) == (
            409,
            (
                'Operation cannot be fulfilled on configmaps "c": StorageError: invalid object, Code: 4, '
                "Key: /registry/configmaps/default/c, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
                f"UID in precondition: 1, UID in object meta: {uid}"
            ),
        )
        deleted = await ask("DELETE", f"{MAPS}/c", {"preconditions": {"uid": "1"}})
        assert (deleted.status, "The object might have been deleted" in deleted.text) == (409, True)

    ask(scenario)


def test_lists_that_cannot_be(ask):
    queries = [
        ("limit=x", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("continue=abc", "invalid continue token: continue key is not valid: it is not a token of this server"),
    ]

    async def scenario(ask):
        for name in "ab":
            await ask("POST", MAPS, {"metadata": {"name": name}})
        for query, said in queries:
            found = await ask("GET", f"{MAPS}?{query}")
            assert (found.status, found.json["message"]) == (400, said)
        token = (await ask("GET", f"{MAPS}?limit=1")).json["metadata"]["continue"]
        both = await ask("GET", f"{MAPS}?limit=1&resourceVersion=5&continue={token}")
        assert both.json["message"] == "specifying resource version is not allowed when using continue"
        whole = await ask("GET", f"{MAPS}?limit=1&resourceVersion=0&resourceVersionMatch=NotOlderThan")
        assert len(whole.json["items"]) >= 2

    ask(scenario)


def test_a_node_that_a_client_makes_has_all_to_allocate_and_is_not_ready(ask):
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    own = {"key": "a", "effect": "NoExecute"}

    async def scenario(ask):
        nodes = "/api/v1/nodes"
        made = (await ask("POST", nodes, {"metadata": {"name": "a"}, "status": {"capacity": {"cpu": "4"}}})).json
        assert made["status"]["allocatable"] == {"cpu": "4"}
        assert made["spec"]["taints"] == [taint]
        given = {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}}
        more = (
            await ask("POST", nodes, {"metadata": {"name": "b"}, "spec": {"taints": [own, taint]}, "status": given})
        ).json
        assert (more["spec"]["taints"], more["status"]["allocatable"]) == ([own, taint], {"cpu": "3"})

    ask(scenario)


def test_the_selector_of_a_budget_is_owned_whole(ask):
    async def scenario(ask):
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        made = (await ask("POST", path, {"metadata": {"name": "p"}, "spec": spec})).json
        [entry] = made["metadata"]["managedFields"]
        assert entry["fieldsV1"]["f:spec"]["f:selector"] == {}
        zeros = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
        assert made["status"] == zeros

    ask(scenario)


def test_paths_among_custom_resources(ask):
    async def scenario(ask):
        names = {"plural": "tabs", "kind": "Tab"}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await ask("POST", definitions, {"metadata": {"name": "tabs.example.com"}, "spec": spec})
        root = "/apis/example.com/v1/namespaces/default"
        for _ in range(100):
            if (await ask("GET", f"{root}/tabs")).status == 200:
                break
            await asyncio.sleep(0.05)
        await ask("POST", f"{root}/tabs", {"apiVersion": "example.com/v1", "kind": "Tab", "metadata": {"name": "t"}})
        [item] = (await ask("GET", f"{root}/tabs")).json["items"]
        assert (item["kind"], item["apiVersion"]) == ("Tab", "example.com/v1")
        for path in ("/apis/example.com/v9", "/apis/example.com/v1/foos", f"{root}/foos"):
            found = await ask("GET", path)
            assert (path, found.status, found.text) == (path, 404, PAGE_404)
        for path in (f"{root}/tabs/t/status", f"{root}/tabs/t/foo"):
            found = await ask("GET", path)
            details = {"name": "t", "group": "example.com", "kind": "tabs"}
            assert (found.json["message"], found.json["details"]) == ('tabs.example.com "t" not found', details)
        other = await ask("POST", f"{root}/tabs", {"kind": "Foo", "metadata": {"name": "t"}})
        assert (other.status, other.json["details"]["causes"][0]["message"]) == (
            422,
            'Invalid value: "Foo": must be Tab',
        )
        assert "com.example.v1.TabList" in (await ask("GET", "/openapi/v2")).json["definitions"]

    ask(scenario)


def test_lists_in_protobuf(ask):
    async def scenario(ask):
        for number in range(120):
            await ask("POST", MAPS, {"metadata": {"name": f"c{number}"}, "data": {"n": str(number)}})
        found = await ask("GET", MAPS, accept=PROTOBUF)
        plain = (await ask("GET", MAPS)).json
        [whole] = [value for number, value in wire(found.body[4:]) if number == 2]
        items = [value for number, value in wire(whole) if number == 2]
        assert len(items) == len(plain["items"]) >= 120
        assert found.headers["Content-Type"] == PROTOBUF
        rv = plain["metadata"]["resourceVersion"].encode()
        assert rv in next(value for number, value in wire(whole) if number == 1)

    ask(scenario)


def test_metadata_in_protobuf(ask):
    async def scenario(ask):
        await ask("POST", MAPS, {"metadata": {"name": "c"}, "data": {"secret": "x" * 50}})
        for path in (f"{MAPS}/c", MAPS, f"{MAPS}?watch=1&timeoutSeconds=1"):
            found = await ask("GET", path, accept=PROTOBUF + METADATA)
            assert found.status == 200
            assert b"PartialObjectMetadata" in found.body
            assert b"xxxx" not in found.body

    ask(scenario)
