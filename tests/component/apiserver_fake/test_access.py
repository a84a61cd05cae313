"""What clients may do, and who they are: RBAC, impersonation, service accounts and reviews over HTTP."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import random
from contextlib import asynccontextmanager

import aiohttp
import pytest

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.rest.server import RestSettings, serve
from apiserver_fake.wiring import build
from services.api.errors import Unauthorized
from services.api.identity import SCHEDULER, STAGE_PLAYER, Credential, Identity, external
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request, WatchRequest
from services.runtime.certificates import authority, signing_key
from services.runtime.real import MemoryDisk, NoTransport
from services.telemetry.eventlog import MemoryEventLog, MemoryEvents
from services.telemetry.traces import MemorySpans, Tracer

CALLERS = {
    "admin": ("system:mesh-admin", ["system:mesh-admins"]),
    "scheduler": ("system:kube-scheduler", []),
    "ann": ("ann", ["team"]),
    "node": ("system:node:n1", ["system:nodes"]),
}
RBAC = "/apis/rbac.authorization.k8s.io/v1"
AUTHORIZATION, AUTHENTICATION = "/apis/authorization.k8s.io/v1", "/apis/authentication.k8s.io/v1"
PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


class LoopClock:
    """The time of the event loop, and more of it where a test says so."""

    passed_s = 0.0

    def now(self):
        return asyncio.get_running_loop().time()

    def wall(self):
        return 1_800_000_000 + self.now() + self.passed_s


class Cluster:
    def __init__(self, client, clock, server):
        self.client, self.clock, self.server = client, clock, server

    async def call(self, who, method, path, body=None, *, headers=()):
        sent = {"Content-Type": "application/json", **dict(headers)}
        if who:
            sent["Authorization"] = f"Bearer {f'{who}-token' if who in CALLERS else who}"
        data = None if body is None else json.dumps(body)
        async with self.client.request(method, path, data=data, headers=sent) as answer:
            return answer.status, await answer.json(content_type=None)

    async def done(self, who, method, path, body=None, **options):
        code, found = await self.call(who, method, path, body, **options)
        assert code < 300, found
        return found

    async def refused(self, who, method, path, body=None, **options):
        code, found = await self.call(who, method, path, body, **options)
        return code, found["message"]

    async def role(self, name, *rules, namespace="default"):
        path = f"{RBAC}/namespaces/{namespace}/roles" if namespace else f"{RBAC}/clusterroles"
        await self.done("admin", "POST", path, {"metadata": {"name": name}, "rules": list(rules)})

    async def binding(self, name, role, user, *, kind="Role", namespace="default", who="admin"):
        path = f"{RBAC}/namespaces/{namespace}/rolebindings" if namespace else f"{RBAC}/clusterrolebindings"
        subjects = [{"kind": "User", "name": user}]
        body = {"metadata": {"name": name}, "roleRef": {"kind": kind, "name": role}, "subjects": subjects}
        return await self.call(who, "POST", path, body)

    async def account(self, name="robot", **more):
        return await self.done("admin", "POST", ACCOUNTS, {"metadata": {"name": name}, **more})

    async def token(self, name="robot", **spec):
        found = await self.done("admin", "POST", f"{ACCOUNTS}/{name}/token", {"spec": spec})
        return found["status"]["token"]

    async def pod(self, name="p", **spec):
        body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
        return await self.call("admin", "POST", PODS, body)


@asynccontextmanager
async def a_cluster(folder, *, engine="memory", clock=None):
    tokens = [{"token": f"{who}-token", "user": user, "groups": groups} for who, (user, groups) in CALLERS.items()]
    (folder / "tokens").write_text(json.dumps({"tokens": tokens}))
    clock, chance = clock or LoopClock(), random.Random(3)
    seams = Seams(
        component="apiserver", clock=clock, random=chance, disk=MemoryDisk(), transport=NoTransport(),
        events=MemoryEventLog("apiserver", clock, "1", MemoryEvents()),
        tracer=Tracer("apiserver", clock=clock, random=chance, sinks=(MemorySpans(),)), switches=Switches(),
    )  # fmt: skip
    config = ApiServerConfig(
        engine=engine,
        data_dir=str(folder / "data"),
        grpc_port=None,
        rest_port=None,
        token_file=str(folder / "tokens"),
        client_ca_file=str(authority(folder).path),
        tls_cert_file="unused",
        tls_private_key_file="unused",
        authorization_mode="RBAC",
        enable_admission_plugins=("ServiceAccount",),
        service_account_signing_key_file=str(signing_key(folder)),
    )
    component = build(config, seams)
    task = asyncio.create_task(component.server.run())
    try:
        await component.server.wait_until_ready()
        component.server.fairness = component.make_fairness()
        runner, port = await serve(
            component.server, "127.0.0.1", 0, clock=clock, tracer=seams.tracer, settings=RestSettings()
        )
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            yield Cluster(client, clock, component.server)
        await runner.aclose()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def cluster(tmp_path):
    """Run a coroutine function with a cluster."""

    def run(scenario, **options):
        async def whole():
            async with a_cluster(tmp_path, **options) as found:
                return await scenario(found)

        return asyncio.run(asyncio.wait_for(whole(), 30))

    return run


# -- roles and bindings


def test_a_binding_lets_its_subject_do_what_the_role_says_and_its_deletion_ends_that(cluster):
    async def scenario(c):
        before = await c.refused("ann", "GET", PODS)
        await c.role("reader", READ_PODS)
        await c.binding("b", "reader", "ann")
        during = (await c.call("ann", "GET", PODS))[0], (await c.call("ann", "DELETE", f"{PODS}/p"))[0]
        elsewhere = (await c.call("ann", "GET", "/api/v1/namespaces/kube-system/pods"))[0]
        await c.done("admin", "DELETE", f"{RBAC}/namespaces/default/rolebindings/b")
        return before, during, elsewhere, (await c.call("ann", "GET", PODS))[0]

    before, during, elsewhere, after = cluster(scenario)

    text = 'pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "default"'
    assert before == (403, text)
    assert (during, elsewhere, after) == ((200, 403), 403, 403)


EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
AUTOSCALERS = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
AN_EVENT = {
    "metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "R", "action": "A", "type": "Normal",
    "reportingController": "c", "reportingInstance": "i", "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
}  # fmt: skip
AN_AUTOSCALER = {
    "metadata": {"name": "e"},
    "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
}
SERIES = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}


@pytest.mark.parametrize(
    ("path", "group", "body", "patch"),
    [
        (EVENTS, "events.k8s.io", AN_EVENT, SERIES),
        (AUTOSCALERS, "autoscaling", AN_AUTOSCALER, {"spec": {"maxReplicas": 5}}),
    ],
)
def test_a_patch_through_a_converted_version_asks_for_the_right_to_patch_alone(cluster, path, group, body, patch):
    async def scenario(c):
        resource = path.rpartition("/")[2]
        await c.role("patcher", {"apiGroups": [group], "resources": [resource], "verbs": ["patch"]})
        await c.binding("b", "patcher", "ann")
        await c.done("admin", "POST", path, body)
        headers = {"Content-Type": "application/merge-patch+json"}
        return [
            (await c.call("ann", "PATCH", f"{path}/e", patch, headers=headers.items()))[0],
            (await c.call("ann", "GET", f"{path}/e"))[0],
            (await c.call("ann", "PUT", f"{path}/e", body))[0],
        ]

    assert cluster(scenario) == [200, 403, 403]


def test_who_may_delete_a_collection_needs_no_right_to_delete_each_object(cluster):
    async def scenario(c):
        await c.role("sweeper", {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["deletecollection"]})
        await c.binding("b", "sweeper", "ann")
        path = "/api/v1/namespaces/default/configmaps"
        await c.done("admin", "POST", path, {"metadata": {"name": "one"}})
        one = (await c.call("ann", "DELETE", f"{path}/one"))[0]
        whole = (await c.call("ann", "DELETE", path))[0]
        return one, whole, (await c.call("admin", "GET", f"{path}/one"))[0]

    assert cluster(scenario) == (403, 200, 404)


TABLE = [("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")]


@pytest.mark.parametrize(
    "path",
    [
        f"{AUTHORIZATION}/selfsubjectaccessreviews",
        f"{AUTHORIZATION}/subjectaccessreviews",
        f"{AUTHORIZATION}/selfsubjectrulesreviews",
        f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews",
        f"{AUTHENTICATION}/tokenreviews",
        f"{AUTHENTICATION}/selfsubjectreviews",
        f"{ACCOUNTS}/robot/token",
        f"{PODS}/p/eviction",
        f"{PODS}/p/binding",
    ],
)
def test_what_is_created_and_never_read_is_made_into_no_table(cluster, path):
    async def scenario(c):
        await c.account("default")  # or the pod would wait for it, and then not be made
        await c.account()
        assert (await c.pod())[0] == 201
        alone = (await c.call("admin", "POST", path, {}, headers=TABLE))[0]
        either = [("Accept", f"{TABLE[0][1]}, application/json")]
        return alone, (await c.call("admin", "POST", path, {}, headers=either))[0] != 406

    assert cluster(scenario) == (406, True)


def test_a_put_that_makes_an_object_needs_the_right_to_create(cluster):
    async def scenario(c):
        await c.role("writer", {"apiGroups": [""], "resources": ["limitranges"], "verbs": ["update"]})
        await c.binding("b", "writer", "ann")
        path = "/api/v1/namespaces/default/limitranges/new"
        body = {"metadata": {"name": "new"}, "spec": {"limits": []}}
        refused = await c.refused("ann", "PUT", path, body)
        made = (await c.call("admin", "PUT", path, body))[0]
        return refused, made, (await c.call("ann", "PUT", path, body))[0]

    (code, message), made, updated = cluster(scenario)
    assert (code, "cannot create resource" in message) == (403, True)
    assert (made, updated) == (201, 200)


def test_a_role_that_is_missing_is_named_in_the_refusal(cluster):
    async def scenario(c):
        await c.binding("b", "gone", "ann")
        return await c.refused("ann", "GET", PODS)

    assert cluster(scenario)[1].endswith(
        'in the namespace "default": RBAC: role.rbac.authorization.k8s.io "gone" not found'
    )


def test_a_caller_grants_only_what_it_holds_unless_it_may_bind(cluster):
    async def scenario(c):
        everything = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"]}
        await c.role("maker", {**everything, "verbs": ["create"]}, READ_PODS)
        await c.binding("maker", "maker", "ann")
        roles = f"{RBAC}/namespaces/default/roles"
        too_much = {**READ_PODS, "verbs": ["get", "delete"]}
        refused = await c.refused("ann", "POST", roles, {"metadata": {"name": "x"}, "rules": [too_much]})
        allowed = await c.call("ann", "POST", roles, {"metadata": {"name": "y"}, "rules": [READ_PODS]})
        bound = await c.binding("z", "cluster-admin", "ann", kind="ClusterRole", who="ann")
        await c.role("binder", {**everything, "resources": ["clusterroles"], "verbs": ["bind"]}, namespace="")
        await c.binding("binder", "binder", "ann", kind="ClusterRole", namespace="")
        return refused, allowed[0], bound[0], (await c.binding("z", "admin", "ann", kind="ClusterRole", who="ann"))[0]

    refused, allowed, bound, with_bind = cluster(scenario)

    assert refused == (
        403,
        (
            'roles.rbac.authorization.k8s.io "x" is forbidden: user "ann" (groups=["team" "system:authenticated"]) is '
            'attempting to grant RBAC permissions not currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}'
        ),
    )
    assert (allowed, bound, with_bind) == (201, 403, 201)


def test_what_rules_and_bindings_may_not_say_is_refused_in_upstreams_words(cluster):
    async def scenario(c):
        role = {"metadata": {"name": "r"}, "rules": [{"nonResourceURLs": ["/x"], "resources": ["pods"]}]}
        binding = {"metadata": {"name": "b"}, "roleRef": {"kind": "User"}, "subjects": [{"kind": "Node", "name": ""}]}
        await c.role("a", READ_PODS)
        await c.binding("b", "a", "ann")
        at = f"{RBAC}/namespaces/default/rolebindings/b"
        stored = await c.done("admin", "GET", at)
        stored["roleRef"]["name"] = "other"
        return [
            (await c.call("admin", "POST", f"{RBAC}/namespaces/default/roles", role))[1],
            (await c.call("admin", "POST", f"{RBAC}/clusterrolebindings", binding))[1],
            (await c.call("admin", "PUT", at, stored))[1],
        ]

    said = [
        [f"{each['field']}: {each['message']}" for each in found["details"]["causes"]] for found in cluster(scenario)
    ]

    assert said == [
        [
            "rules[0].verbs: Required value: verbs must contain at least one value",
            'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs',
            (
                'rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and '
                "non-resource URLs"
            ),
        ],
        [
            'roleRef.kind: Unsupported value: "User": supported values: "ClusterRole"',
            "roleRef.name: Required value",
            "subjects[0].name: Required value",
            'subjects[0].kind: Unsupported value: "Node": supported values: "ServiceAccount", "User", "Group"',
        ],
        [
            (
                'roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"other"}: '
                "cannot change roleRef"
            )
        ],
    ]


def test_the_default_roles_survive_a_restart_with_what_they_lacked_given_back(cluster):
    async def cut(c):
        path = f"{RBAC}/clusterroles/system:kube-dns"
        role = await c.done("admin", "GET", path)
        await c.done("admin", "PUT", path, {**role, "rules": role["rules"][:1]})
        return role["rules"]

    async def read(c):
        return (await c.done("admin", "GET", f"{RBAC}/clusterroles/system:kube-dns"))["rules"]

    rules = cluster(cut, engine="sqlite")
    again = cluster(read, engine="sqlite")

    assert again[:1] == rules[:1]
    assert {verb for rule in again[1:] for verb in rule["verbs"]} == {"list", "watch"}


# -- paths, binding, the mesh's own rules


def test_paths_are_for_those_whom_a_rule_names(cluster):
    async def scenario(c):
        found = {}
        for who in ("", "ann", "admin"):
            for path in ("/version", "/api", "/metrics"):
                async with c.client.get(
                    path, headers={"Authorization": f"Bearer {who}-token"} if who else {}
                ) as answer:
                    found[who, path] = answer.status
        return found, (await c.refused("", "GET", "/apis"))

    found, anonymous = cluster(scenario)

    assert found == {
        ("", "/version"): 200, ("", "/api"): 403, ("", "/metrics"): 403,
        ("ann", "/version"): 200, ("ann", "/api"): 200, ("ann", "/metrics"): 403,
        ("admin", "/version"): 200, ("admin", "/api"): 200, ("admin", "/metrics"): 200,
    }  # fmt: skip
    assert anonymous == (403, 'forbidden: User "system:anonymous" cannot get path "/apis"')


def test_pages_about_the_server_are_for_those_who_watch_over_it(cluster):
    async def scenario(c):
        found = {}
        for who in ("", "ann", "admin"):
            for path in ("/statusz", "/flagz", "/debug/pprof/", "/debug/pprof/heap", "/statusz/"):
                headers = {"Authorization": f"Bearer {who}-token"} if who else {}
                async with c.client.get(path, headers=headers) as answer:
                    found.setdefault(who, []).append(answer.status)
                    text = await answer.text()
            if who == "admin":
                async with c.client.get("/flagz", headers=headers) as answer:
                    text = await answer.text()
        return found, text, await c.refused("ann", "GET", "/debug/pprof/")

    found, text, refused = cluster(scenario)

    assert found == {"": [403] * 5, "ann": [403] * 5, "admin": [200, 200, 200, 404, 404]}
    assert text.startswith("\napiserver flagz\nWarning: ")
    assert refused == (403, 'forbidden: User "ann" cannot get path "/debug/pprof/"')


UNSERVED = [
    (
        "GET",
        "/api/v1/frobs",
        'frobs is forbidden: User "ann" cannot list resource "frobs" in API group "" at the cluster scope',
    ),
    (
        "GET",
        "/api/v1/namespaces/d/frobs/x",
        'frobs "x" is forbidden: User "ann" cannot get resource "frobs" in API group "" in the namespace "d"',
    ),
    (
        "POST",
        "/apis/none.example.com/v1/namespaces/d/widgets",
        (
            'widgets.none.example.com is forbidden: User "ann" cannot create resource "widgets" in API group '
            '"none.example.com" in the namespace "d"'
        ),
    ),
    (
        "PATCH",
        "/apis/apps/v7/namespaces/d/deployments/x/status",
        (
            'deployments.apps "x" is forbidden: User "ann" cannot patch resource "deployments/status" in API group "apps" '
            'in the namespace "d"'
        ),
    ),
    (
        "GET",
        "/apis/apps/v1/frobs?watch=1",
        'frobs.apps is forbidden: User "ann" cannot watch resource "frobs" in API group "apps" at the cluster scope',
    ),
    (
        "DELETE",
        "/api/v1/namespaces/d/pods/p/frob",
        'pods "p" is forbidden: User "ann" cannot delete resource "pods/frob" in API group "" in the namespace "d"',
    ),
    (
        "PUT",
        "/api/v1/nodes",
        'nodes is forbidden: User "ann" cannot update resource "nodes" in API group "" at the cluster scope',
    ),
    (
        "GET",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        (
            'subjectaccessreviews.authorization.k8s.io is forbidden: User "ann" cannot list resource "subjectaccessreviews" '
            'in API group "authorization.k8s.io" at the cluster scope'
        ),
    ),
    ("GET", "/frob", 'forbidden: User "ann" cannot get path "/frob"'),
]


@pytest.mark.parametrize(("method", "path", "said"), UNSERVED)
def test_who_may_not_is_refused_before_it_is_said_that_there_is_no_such_thing(cluster, method, path, said):
    async def scenario(c):
        async with c.client.request(method, path, headers={"Authorization": "Bearer admin-token"}) as answer:
            admin = answer.status
        return await c.refused("ann", method, path), admin

    refused, admin = cluster(scenario)

    assert refused == (403, said)
    assert admin in (404, 405)


def test_what_discovery_lets_everyone_read_is_not_found_where_nothing_is(cluster):
    async def scenario(c):
        found = []
        for path in ("/apis/none.example.com", "/apis/none.example.com/v1", "/api/v7", "/openapi/v3/apis/none/v1"):
            async with c.client.get(path, headers={"Authorization": "Bearer ann-token"}) as answer:
                found.append(answer.status)
        return found

    assert cluster(scenario) == [404, 404, 404, 200]


def test_the_administrator_binds_by_either_path_and_a_schedulers_client_deletes_without_a_uid(cluster):
    async def scenario(c):
        await c.account("default")
        for name in ("p", "q"):
            assert (await c.pod(name))[0] == 201
        target = {"target": {"kind": "Node", "name": "n1"}}
        bound = [
            await c.call("admin", "POST", "/api/v1/namespaces/default/bindings", {"metadata": {"name": "p"}, **target}),
            await c.call("scheduler", "POST", f"{PODS}/q/binding", {"metadata": {"name": "q"}, **target}),
        ]
        nodes = [(await c.done("admin", "GET", f"{PODS}/{name}"))["spec"]["nodeName"] for name in ("p", "q")]
        deleted = await c.call("scheduler", "DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
        return [code for code, _ in bound], nodes, deleted[0]

    assert cluster(scenario) == ([201, 201], ["n1", "n1"], 200)


def test_unbind_stays_with_those_whom_the_mesh_lets(cluster):
    async def scenario(c):
        await c.account("default")
        await c.pod()
        return (await c.call("admin", "POST", f"{PODS}/p/unbind", {"reason": "Admission"}))[0]

    assert cluster(scenario) == 403


# -- impersonation and reviews


def test_who_may_impersonate_acts_as_another_and_is_refused_as_that_one(cluster):
    async def scenario(c):
        as_bob = [("Impersonate-User", "bob"), ("Impersonate-Group", "team"), ("Impersonate-Uid", "7")]
        as_bob.append(("Impersonate-Extra-scopes.example%2Fa", "view"))
        review = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
        who = await c.done("admin", "POST", f"{AUTHENTICATION}/selfsubjectreviews", review, headers=as_bob)
        account = [("Impersonate-User", "system:serviceaccount:a:sa")]
        sa = await c.done("admin", "POST", f"{AUTHENTICATION}/selfsubjectreviews", review, headers=account)
        return (
            who["status"]["userInfo"],
            sa["status"]["userInfo"]["groups"],
            await c.refused("admin", "GET", PODS, headers=as_bob),
            await c.refused("ann", "GET", PODS, headers=as_bob),
            await c.refused("admin", "GET", PODS, headers=as_bob[1:2]),
        )

    who, groups, as_bob, ann, without = cluster(scenario)

    assert who == {
        "username": "bob", "uid": "7", "groups": ["team", "system:authenticated"],
        "extra": {"scopes.example/a": ["view"]},
    }  # fmt: skip
    assert groups == ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"]
    assert as_bob[1].startswith('pods is forbidden: User "bob" cannot list')
    assert ann == (
        403,
        'users "bob" is forbidden: User "ann" cannot impersonate resource "users" in API group "" at the cluster scope',
    )
    assert without[0] == 400


def test_what_moves_objects_by_stages_acts_as_those_whom_a_role_names_and_may_then_what_they_may(cluster):
    async def scenario(c):
        player = c.server.api_for(STAGE_PLAYER)
        cluster_wide = {"kind": "ClusterRole", "namespace": ""}

        async def labels(who, value, as_user="ann"):
            body = json.dumps({"metadata": {"labels": {"v": value}}}).encode()
            place = {"resource": "configmaps", "namespace": "default", "name": "c"}
            request = Request(verb="patch", **place, patch_type="merge", body=body, as_user=as_user)
            answer = await who.call(request)
            return answer.code if answer.is_ok else (answer.code, answer.error().message)

        await c.done("admin", "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})
        unasked = await labels(player, "1")
        await c.role("act", {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"],
                             "resourceNames": ["ann"]}, namespace="")  # fmt: skip
        await c.binding("act", "act", STAGE_PLAYER.user, **cluster_wide)
        powerless = await labels(player, "2")
        await c.role("maps", {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]})
        await c.binding("maps", "maps", "ann")
        return (
            unasked,
            powerless,
            await labels(player, "3"),
            await labels(player, "4", as_user="bob"),
            await labels(c.server.api_for(SCHEDULER), "5"),
            await labels(player, "6", as_user=""),
        )

    unasked, powerless, allowed, other, scheduler, itself = cluster(scenario)

    cannot = 'cannot impersonate resource "users" in API group "" at the cluster scope'
    assert unasked == (403, f'users "ann" is forbidden: User "{STAGE_PLAYER.user}" {cannot}')
    assert powerless[0] == 403
    assert powerless[1].startswith('configmaps "c" is forbidden: User "ann" cannot patch resource "configmaps"')
    assert (allowed, itself) == (200, 200)
    assert other == (403, f'users "bob" is forbidden: User "{STAGE_PLAYER.user}" {cannot}')
    assert scheduler[0] == 403


def test_reviews_say_who_may_what_and_by_which_binding(cluster):
    async def scenario(c):
        await c.role("reader", READ_PODS)
        await c.binding("b", "reader", "ann")
        attributes = {"verb": "list", "resource": "pods", "namespace": "default"}
        asked = {"spec": {"user": "ann", "resourceAttributes": attributes}}
        path = {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}}
        local = f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"
        rules = {"spec": {"namespace": "default"}}
        return (
            (await c.done("admin", "POST", f"{AUTHORIZATION}/subjectaccessreviews", asked))["status"],
            (await c.done("admin", "POST", local, asked))["status"]["allowed"],
            (await c.done("ann", "POST", f"{AUTHORIZATION}/selfsubjectaccessreviews", path))["status"],
            (await c.done("ann", "POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", rules))["status"],
            (await c.call("ann", "POST", f"{AUTHORIZATION}/subjectaccessreviews", asked))[0],
            (await c.call("admin", "POST", f"{AUTHORIZATION}/subjectaccessreviews", {"spec": {"user": "x"}}))[0],
        )

    found, local, path, rules, ann, nothing = cluster(scenario)

    assert found == {
        "allowed": True,
        "reason": 'RBAC: allowed by RoleBinding "b/default" of Role "reader" to User "ann"',
    }
    assert (local, path, ann, nothing) == (True, {"allowed": False}, 403, 422)
    assert {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]} in rules["resourceRules"]
    assert rules["incomplete"] is False


MATCHING = {"namespace": "default", "verb": "get", "resource": "pods"}
PATH = {"path": "/metrics", "verb": "get"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"spec": {"user": "ann", "resourceAttributes": {**MATCHING, "namespace": "other"}}},
            'spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace',
        ),
        (
            {"spec": {"user": "ann", "resourceAttributes": {"verb": "get", "resource": "pods"}}},
            'spec.resourceAttributes.namespace: Invalid value: "": must match metadata.namespace',
        ),
        (
            {"spec": {"user": "ann", "nonResourceAttributes": PATH}},
            (
                'spec.nonResourceAttributes: Invalid value: {"Path":"/metrics","Verb":"get"}: disallowed on this kind of '
                "request"
            ),
        ),
        (
            {"spec": {"resourceAttributes": MATCHING}},
            'spec.user: Invalid value: "": at least one of user or group must be specified',
        ),
        (
            {"spec": {"user": "ann", "resourceAttributes": MATCHING}, "metadata": {"name": "x"}},
            'metadata: Invalid value: {"name":"x"}: must be empty except for namespace',
        ),
        (
            {"spec": {}},
            (
                "[spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or "
                'resourceAttributes must be specified, spec.user: Invalid value: "": at least one of user or group must '
                "be specified]"
            ),
        ),
    ],
)
def test_a_local_review_is_about_its_own_namespace_and_says_all_that_is_wrong(cluster, body, said):
    async def scenario(c):
        return await c.refused("admin", "POST", f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews", body)

    assert cluster(scenario) == (422, f'.authorization.k8s.io "" is invalid: {said}')


def test_a_local_review_that_names_another_namespace_is_not_read(cluster):
    async def scenario(c):
        body = {"spec": {"user": "ann", "resourceAttributes": MATCHING}, "metadata": {"namespace": "other"}}
        return await c.refused("admin", "POST", f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews", body)

    said = "the namespace of the provided object does not match the namespace sent on the request"
    assert cluster(scenario) == (400, said)


# -- service accounts


def test_a_token_is_its_account_until_what_it_is_bound_to_is_gone(cluster):
    async def scenario(c):
        await c.account()
        await c.pod(serviceAccountName="robot")
        plain = await c.token()
        bound = await c.token(boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p"})
        review = f"{AUTHENTICATION}/tokenreviews"
        user = (await c.done("admin", "POST", review, {"spec": {"token": bound}}))["status"]["user"]
        before = [(await c.call(token, "GET", PODS))[0] for token in (plain, bound)]
        await c.done("admin", "DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
        middle = [(await c.call(token, "GET", PODS))[0] for token in (plain, bound)]
        said = (await c.done("admin", "POST", review, {"spec": {"token": bound}}))["status"]
        await c.done("admin", "DELETE", f"{ACCOUNTS}/robot")
        return user, before, middle, said, (await c.call(plain, "GET", PODS))[0]

    user, before, middle, said, after = cluster(scenario)

    assert user["username"] == "system:serviceaccount:default:robot"
    assert user["groups"] == [
        "system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"
    ]  # fmt: skip
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
    assert (before, middle, after) == ([403, 403], [403, 401], 401)
    assert said == {"user": {}, "error": "service account token has been invalidated"}


def test_a_token_is_over_in_time_and_good_for_its_audience_alone(cluster):
    async def scenario(c):
        await c.account()
        token, foreign = await c.token(expirationSeconds=600), await c.token(audiences=["vault"])
        review = f"{AUTHENTICATION}/tokenreviews"
        spec = {"token": foreign, "audiences": ["vault", "other"]}
        here = (await c.call(foreign, "GET", PODS))[0]
        there = (await c.done("admin", "POST", review, {"spec": spec}))["status"]["audiences"]
        early = (await c.call(token, "GET", PODS))[0]
        c.clock.passed_s = 700
        late = (await c.call(token, "GET", PODS))[0]
        short = await c.refused("admin", "POST", f"{ACCOUNTS}/robot/token", {"spec": {"expirationSeconds": 5}})
        return here, there, early, late, short

    here, there, early, late, short = cluster(scenario)

    assert (here, there, early, late) == (401, ["vault"], 403, 401)
    assert short[0] == 422
    assert "may not specify a duration less than 10 minutes" in short[1]


def test_a_token_can_be_verified_with_the_published_key(cluster):
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    def raw(text):
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

    async def scenario(c):
        await c.account()
        token = await c.token()
        return (
            token,
            await c.done(token, "GET", "/openid/v1/jwks"),
            await c.done(token, "GET", "/.well-known/openid-configuration"),
            (await c.call("ann", "GET", "/openid/v1/jwks"))[0],
        )

    token, keys, configuration, ann = cluster(scenario)

    [key] = keys["keys"]
    numbers = (int.from_bytes(raw(key[axis]), "big") for axis in "xy")
    signed, _, signature = token.rpartition(".")
    r, s = (int.from_bytes(part, "big") for part in (raw(signature)[:32], raw(signature)[32:]))
    public = ec.EllipticCurvePublicNumbers(*numbers, ec.SECP256R1()).public_key()
    public.verify(encode_dss_signature(r, s), signed.encode(), ec.ECDSA(hashes.SHA256()))
    claims = json.loads(raw(token.split(".")[1]))
    assert json.loads(raw(token.split(".")[0]))["kid"] == key["kid"]
    assert claims["iss"] == configuration["issuer"]
    assert claims["sub"] == "system:serviceaccount:default:robot"
    assert ann == 403


def test_a_token_with_a_changed_claim_is_refused(cluster):
    async def scenario(c):
        await c.account()
        header, claims, signature = (await c.token()).split(".")
        other = base64.urlsafe_b64encode(
            base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)).replace(b"robot", b"admin")
        )
        return (await c.call(f"{header}.{other.decode().rstrip('=')}.{signature}", "GET", PODS))[0]

    assert cluster(scenario) == 401


def test_a_secret_for_a_token_is_filled_and_goes_with_its_account(cluster):
    async def scenario(c):
        await c.account()
        secrets = "/api/v1/namespaces/default/secrets"
        kind = {"type": "kubernetes.io/service-account-token"}
        nameless = await c.refused("admin", "POST", secrets, {"metadata": {"name": "x"}, **kind})
        annotations = {"kubernetes.io/service-account.name": "robot"}
        await c.done("admin", "POST", secrets, {"metadata": {"name": "s", "annotations": annotations}, **kind})
        found = {}
        while "token" not in found.get("data", {}):
            found = await c.done("admin", "GET", f"{secrets}/s")
        token = base64.b64decode(found["data"]["token"]).decode()
        before = (await c.call(token, "GET", PODS))[0]
        await c.done("admin", "DELETE", f"{ACCOUNTS}/robot")
        while (await c.call("admin", "GET", f"{secrets}/s"))[0] != 404:
            pass
        return nameless, found, before, (await c.call(token, "GET", PODS))[0]

    nameless, found, before, after = cluster(scenario)

    assert "metadata.annotations[kubernetes.io/service-account.name]: Required value" in nameless[1]
    assert sorted(found["data"]) == ["ca.crt", "namespace", "token"]
    assert found["metadata"]["annotations"]["kubernetes.io/service-account.uid"]
    assert (before, after) == (403, 401)


def test_a_pod_needs_its_account_and_gets_a_token_unless_it_wants_none(cluster):
    async def scenario(c):
        await c.account("robot", imagePullSecrets=[{"name": "registry"}])
        return (
            await c.pod("a", serviceAccountName="nosuch"),
            (await c.pod("b", serviceAccountName="robot"))[1],
            (await c.pod("d", serviceAccountName="robot", automountServiceAccountToken=False))[1],
        )

    refused, pod, plain = cluster(scenario)

    assert (refused[0], refused[1]["message"]) == (
        403,
        'pods "a" is forbidden: error looking up service account default/nosuch: serviceaccount "nosuch" not found',
    )
    [volume] = pod["spec"]["volumes"]
    [mount] = pod["spec"]["containers"][0]["volumeMounts"]
    assert volume["name"] == mount["name"]
    assert volume["name"].startswith("kube-api-access-")
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken", "configMap", "downwardAPI"
    ]  # fmt: skip
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert "volumes" not in plain["spec"]


def test_a_pod_waits_a_moment_for_the_default_account_of_a_new_namespace(cluster):
    async def scenario(c):
        creating = asyncio.create_task(c.pod())
        await asyncio.sleep(0)
        while not (await c.call("admin", "GET", ACCOUNTS))[1].get("items"):
            await c.account("default")
        return (await creating)[0]

    assert cluster(scenario) == 201


def test_guarantees_x_tok3_a_node_asks_for_tokens_of_its_own_pods_alone(cluster):
    async def scenario(c):
        await c.account()
        await c.account("other")
        tokens = {"serviceAccountToken": {"path": "t", "audience": "vault"}}
        volumes = [{"name": "v", "projected": {"sources": [tokens]}}]
        uids = {}
        for name, node in (("mine", "n1"), ("theirs", "n2")):
            _, pod = await c.pod(name, serviceAccountName="robot", volumes=volumes, nodeName=node)
            uids[name] = pod["metadata"]["uid"]
        _, pod = await c.pod("plain", serviceAccountName="other", nodeName="n2")

        async def asked(pod="mine", account="robot", audiences=("vault",), **ref):
            ref = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uids.get(pod, "u"), **ref}
            spec = {"audiences": list(audiences), "boundObjectRef": ref if pod else None}
            code, found = await c.call("node", "POST", f"{ACCOUNTS}/{account}/token", {"spec": spec})
            return code if code < 300 else (code, found["message"])

        before = await asked(audiences=["db"])
        rule = {"apiGroups": [""], "resources": ["db"], "verbs": ["request-serviceaccounts-token-audience"]}
        await c.role("audience", rule)
        await c.binding("audience", "audience", "system:node:n1")
        return [
            await asked(), await asked(audiences=()), before, await asked(audiences=["db"]),
            await asked(audiences=["vault", "db"]), await asked(pod=""), await asked(kind="Secret"),
            await asked(uid=""), await asked(uid="x"), await asked("theirs"), await asked("gone"),
            (await asked("plain", "other"))[0], (await asked(account="gone"))[0],
        ]  # fmt: skip

    no, unknown = (
        'serviceaccounts "robot" is forbidden: ',
        "not found in pod spec volume, system:node:n1 is not authorized",
    )
    again = "The object might have been deleted and then recreated"
    assert cluster(scenario) == [
        201, 201, (403, f'{no}audience "db" {unknown} to request tokens for this audience'), 201,
        (403, f"{no}node may only request 0 or 1 audiences"), (403, f"{no}node requested token not bound to a pod"),
        (403, f"{no}node requested token not bound to a pod"),
        (403, f"{no}node requested token with a pod binding without a uid"),
        (403, f"{no}the UID in the bound object reference (x) does not match the UID in record. {again}"),
        (403, f"{no}node requested token bound to a pod scheduled on a different node"),
        (404, 'pods "gone" not found'), 403, 403,
    ]  # fmt: skip


# -- bad credentials


def forged(c, token):
    """Return every way to spoil a good token, by what is wrong with it."""
    import hashlib
    import hmac

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    from apiserver_fake.extensions.accounts.jwt import SigningKey

    def text(value):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    def part(place):
        said = token.split(".")[place]
        return json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))

    own = c.server.access.accounts.tokens.key
    header, claims, body = part(0), part(1), token.split(".")[1]
    now = int(c.clock.wall())
    public = own._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    by_hmac = f"{text({**header, 'alg': 'HS256'})}.{body}"
    found = {
        "no algorithm": f"{text({**header, 'alg': 'none'})}.{body}.",
        "no algorithm, with a signature": f"{text({**header, 'alg': 'none'})}.{body}.{token.split('.')[2]}",
        "HMAC with the public key": f"{by_hmac}.{text(hmac.digest(public, by_hmac.encode(), hashlib.sha256))}",
        "no signature": f"{token.rpartition('.')[0]}.",
        "another issuer": own.sign({**claims, "iss": "https://elsewhere.example"}),
        "another audience": own.sign({**claims, "aud": ["vault"]}),
        "no audience": own.sign({k: v for k, v in claims.items() if k != "aud"}),
        "expired": own.sign({**claims, "exp": now - 3600}),
        "not yet valid": own.sign({**claims, "nbf": now + 3600}),
        "no account": own.sign({k: v for k, v in claims.items() if k != "kubernetes.io"}),
        "another account's uid": own.sign(
            {**claims, "kubernetes.io": {**claims["kubernetes.io"], "serviceaccount": {"name": "robot", "uid": "x"}}}
        ),
        "claims that are a list": own.sign([1]),
        "two parts": ".".join(token.split(".")[:2]),
        "four parts": f"{token}.x",
        "too long": own.sign({**claims, "padding": "x" * 9000}),
        "not ASCII": token + "é",
    }
    other = SigningKey(other_key())
    found["another key"] = other.sign(claims)
    unknown = copy.copy(own)
    unknown._header = text({**header, "kid": "unknown"})
    found["an unknown key id"] = unknown.sign(claims)
    return found


def other_key():
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def test_guarantees_as_41_no_spoiled_token_is_taken_and_all_are_answered_alike(cluster):
    async def scenario(c):
        await c.account()
        token = await c.token()
        good, answers = (await c.call(token, "GET", PODS))[0], {}
        for wrong, spoiled in forged(c, token).items():
            if not spoiled.isascii():
                with pytest.raises(Unauthorized):
                    c.server.callers.authenticate(spoiled)
                continue
            code, said = await c.call(spoiled, "GET", PODS)
            answers[wrong] = code, said["message"], said["reason"]
        return good, answers

    good, answers = cluster(scenario)

    assert good == 403
    assert answers == dict.fromkeys(answers, (401, "Unauthorized", "Unauthorized"))
    assert len(answers) >= 17


@pytest.mark.parametrize("gone", ["account", "pod", "time"])
def test_guarantees_as_41_an_open_watch_ends_when_its_token_does(cluster, monkeypatch, gone):
    monkeypatch.setattr("apiserver_fake.storage.watches.EXPIRY_CHECK_S", 0.01)

    async def scenario(c):
        await c.account()
        await c.role("reader", {**READ_PODS, "verbs": ["watch"]})
        await c.binding("reader", "reader", "system:serviceaccount:default:robot")
        _, pod = await c.pod(serviceAccountName="robot")
        uid = pod["metadata"]["uid"]
        bound = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": uid}}
        token = await c.token(expirationSeconds=600, **bound)
        identity = external(c.server.callers.authenticate(token))
        watcher = c.server.open_watch(identity, WatchRequest(resource="pods", namespace="default"), lambda _: None)
        lasting = c.server.open_watch(
            external(c.server.callers.authenticate("admin-token")), watcher.request, lambda _: None
        )
        await asyncio.sleep(0.05)
        before = watcher.end_reason
        if gone == "account":
            await c.done("admin", "DELETE", f"{ACCOUNTS}/robot")
        elif gone == "pod":
            await c.done("admin", "DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
        else:
            c.clock.passed_s = 4000
        async with asyncio.timeout(5):
            while not watcher.end_reason:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return before, watcher.end_reason, lasting.end_reason

    assert cluster(scenario) == ("", "AuthExpired", "")


def test_guarantees_as_41_a_connection_is_good_no_longer_than_its_certificate(cluster, monkeypatch):
    """Nor is who is impersonated over it; another credential is taken in its place."""
    monkeypatch.setattr("apiserver_fake.storage.watches.EXPIRY_CHECK_S", 0.01)

    async def scenario(c):
        peer = Identity(
            "system:mesh-admin", ("system:mesh-admins",), credential=Credential(expires_s=c.clock.wall() + 600)
        )
        monkeypatch.setattr("apiserver_fake.rest.handlers.authentication.identity_of_peer", lambda described: peer)
        acting = {"Impersonate-User": "ann", "Impersonate-Group": "system:masters"}
        async with (
            c.client.get(PODS, params={"watch": "1"}) as own,
            c.client.get(PODS, params={"watch": "1"}, headers=acting) as as_ann,
        ):
            before = own.status, as_ann.status, (await c.call("", "GET", PODS))[0]
            c.clock.passed_s = 700
            async with asyncio.timeout(5):
                rest = [await each.text() for each in (own, as_ann)]
        return before, rest, await c.call("", "GET", PODS), await c.call("admin", "GET", PODS)

    before, rest, (refused, said), (taken, _) = cluster(scenario)

    assert (before, rest) == ((200, 200, 200), ["", ""])
    assert (refused, said["message"], taken) == (401, "Unauthorized", 200)


def test_a_token_is_no_part_of_what_an_identity_shows(cluster):
    async def scenario(c):
        await c.account()
        token = await c.token()
        identity = c.server.callers.authenticate(token)
        return token, repr(identity), json.dumps(identity.user_info)

    token, *shown = cluster(scenario)
    assert not [text for text in shown if token in text]
