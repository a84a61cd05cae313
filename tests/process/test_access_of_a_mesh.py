"""Who gets what of a whole mesh: its processes' endpoints, its kubelets, its API server's two; and no secret in its files."""

import asyncio
import json
import secrets
import ssl
import urllib.error
import urllib.request
from types import SimpleNamespace

import msgspec
import pytest

from apiserver_fake.extensions.audit.policy import DEFAULT
from lab.scenarios.invariants.policy import Call, is_allowed
from services.api.identity import ADMIN, Identity
from services.api.wire import Request
from services.client.rpc import RpcTransport
from services.runtime.mesh.options import MeshOptions
from services.runtime.real import RealClock, seeded_random
from services.runtime.supervisor import Supervisor

ANN = Identity("user:ann")
MARKERS = 20


def fetch(mesh, url, token="", method="GET", body=None, **headers):
    """Return code and text of an answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {**({"Authorization": f"Bearer {token}"} if token else {}), "Content-Type": "application/json", **headers}
    asked = urllib.request.Request(url, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(
            asked, timeout=20, context=mesh.trust if url.startswith("https") else None
        ) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    data = tmp_path_factory.mktemp("mesh")
    log = data / "audit" / "audit.log"
    options = MeshOptions(
        data_dir=data, nodes=2, hosts=2, serves_clients=True, identities=(ANN,), log_level="debug",
        arguments={"apiserver": ["--audit-policy-file", str(DEFAULT), "--audit-log-path", str(log)]},
    )  # fmt: skip
    supervisor = Supervisor(options)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(supervisor.start())
    entries = json.loads((data / "credentials" / "server.json").read_text())["tokens"]
    found = SimpleNamespace(
        data=data, audit=log, rest=supervisor.rest_url, grpc=supervisor.grpc_target, loop=loop,
        trust=ssl.create_default_context(cafile=supervisor.authority),
        ports={each["name"]: each["ports"]["health"] for each in supervisor.status()["processes"]},
        tokens={each["user"]: each["token"] for each in entries},
    )  # fmt: skip
    yield found
    loop.run_until_complete(supervisor.stop())
    loop.close()


def test_guarantees_x_res_processes_report_health_to_all_and_the_rest_to_those_who_may(mesh):
    scheduler, monitor = mesh.tokens["system:kube-scheduler"], (mesh.data / "credentials/monitor.token").read_text()
    seen = {}
    for name, port in mesh.ports.items():
        for path in ("/healthz", "/readyz", "/metrics", "/configz", "/nothing"):
            url = f"http://127.0.0.1:{port}{path}"
            seen[name, path] = tuple(
                fetch(mesh, url, token)[0] for token in ("", "wrong", scheduler, monitor, mesh.tokens[ADMIN.user])
            )
            assert fetch(mesh, url, Host="evil.example")[0] == 403
    wanted = {
        "/healthz": (200,) * 5, "/readyz": (200,) * 5, "/metrics": (401, 401, 403, 200, 200),
        "/configz": (401, 401, 403, 403, 200), "/nothing": (401, 401, 403, 403, 404),
    }  # fmt: skip
    assert seen == {(name, path): codes for name in mesh.ports for path, codes in wanted.items()}


def test_kubelets_ask_for_permissions_on_nodes_as_upstreams_do(mesh):
    node = json.loads(fetch(mesh, f"{mesh.rest}/api/v1/nodes/node-0", mesh.tokens[ADMIN.user])[1])
    endpoint = f"https://127.0.0.1:{node['status']['daemonEndpoints']['kubeletEndpoint']['Port']}"
    monitor, admin = mesh.tokens["system:monitor"], mesh.tokens[ADMIN.user]

    def codes(path):
        return tuple(fetch(mesh, endpoint + path, token)[0] for token in ("", "wrong", monitor, admin))

    assert codes("/metrics") == (401, 401, 200, 200)
    assert codes("/healthz") == (401, 401, 403, 200)
    assert codes("/containerLogs/default/p/c") == (401, 401, 403, 404)
    code, said = fetch(mesh, f"{endpoint}/pods", mesh.tokens["system:kube-scheduler"])
    why = "Forbidden (user=system:kube-scheduler, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"
    assert (code, said) == (403, why)


RESOURCES = (
    ("pods", ""), ("pods", "log"), ("pods", "status"), ("secrets", ""), ("nodes", ""), ("deployments.apps", ""), ("configmaps", ""),
    ("leases.coordination.k8s.io", ""), ("priorityclasses.scheduling.k8s.io", ""), ("resourceclaims.resource.k8s.io", ""),
    ("resourceclaims.resource.k8s.io", "status"),
)  # fmt: skip
CLUSTER = ("nodes", "priorityclasses.scheduling.k8s.io")
WHO = ("system:kube-scheduler", "system:controller:job", "system:controller:replicaset", "system:claim-controller", ANN.user,
       ADMIN.user, "system:node-host:h0")  # fmt: skip
METHODS = {"get": "GET", "list": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}


def cells():
    for user in WHO:
        for resource, sub in RESOURCES:
            verbs = ("get",) if sub == "log" else ("get", "update", "patch") if sub else METHODS
            for verb in verbs:
                yield user, verb, resource, sub


def test_guarantees_as_34_both_endpoints_answer_as_the_independent_evaluator_says(mesh):
    groups = {ADMIN.user: ADMIN.groups, "system:node-host:h0": ("system:node-hosts",)}
    differences, count = [], 0

    async def over_grpc():
        said = {}
        for user in WHO:
            transport = RpcTransport(
                mesh.grpc, {user: mesh.tokens[user]}, clock=RealClock(), random=seeded_random(None)
            )
            for who, verb, resource, sub in cells():
                if who == user and sub != "log":
                    asked = Request(
                        verb=verb, resource=resource, subresource=sub, body=b"{", patch_type="merge",
                        namespace="" if resource in CLUSTER else "none", name="" if verb in ("list", "create") else "x",
                    )  # fmt: skip
                    said[who, verb, resource, sub] = (await transport.api().call(asked)).code
            await transport.close()
        return said

    grpc = mesh.loop.run_until_complete(asyncio.wait_for(over_grpc(), 60))
    for user, verb, resource, sub in cells():
        plural, _, group = resource.partition(".")
        namespace, name = "" if resource in CLUSTER else "none", "" if verb in ("list", "create") else "x"
        version = "apis/" + group + "/v1" if group else "api/v1"
        parts = [
            version,
            *(["namespaces", namespace] if namespace else []),
            plural,
            *(part for part in (name, sub) if part),
        ]
        kind = {"Content-Type": "application/merge-patch+json"} if verb == "patch" else {}
        body = "no object" if verb in ("create", "update", "patch") else None
        rest = fetch(mesh, f"{mesh.rest}/{'/'.join(parts)}", mesh.tokens[user], METHODS[verb], body, **kind)[0]
        call = Call(
            user, groups.get(user, ()), verb, resource, sub, namespace, name, preconditions=frozenset(("uid", "rv"))
        )
        expected = is_allowed(call)
        by_role = user.startswith("system:kube-") or user == ADMIN.user  # RBAC's default roles know these
        answers = [("grpc", grpc[user, verb, resource, sub])] if sub != "log" else []
        answers += [] if by_role and not expected else [("rest", rest)]
        for endpoint, code in answers:
            count += 1
            if verb == "create" and resource.startswith("leases") and expected:
                continue  # whose lease it is, the body says
            if (code != 403) != expected or code >= 500:
                differences.append((endpoint, user, verb, resource, sub, code))
    assert differences == []
    assert count >= 500


def test_guarantees_as_49_no_secret_is_in_any_file_of_a_mesh_but_the_store_and_the_credentials(mesh):
    markers = [f"MARKER{secrets.token_hex(12)}" for _ in range(MARKERS)]
    admin, place = mesh.tokens[ADMIN.user], f"{mesh.rest}/api/v1/namespaces/default"

    async def over_grpc():
        transport = RpcTransport(mesh.grpc, {ADMIN.user: admin}, clock=RealClock(), random=seeded_random(None))
        for marker in markers[:5]:
            body = msgspec.json.encode({"metadata": {"name": f"g-{marker.lower()}"}, "stringData": {"a": marker}})
            made = Request(verb="create", resource="secrets", namespace="default", body=body)
            assert (await transport.api().call(made)).code == 201
        bad = {"metadata": {"name": "BAD NAME"}, "stringData": {"a": markers[5], "no key": markers[5]}}
        refused = Request(verb="create", resource="secrets", namespace="default", body=msgspec.json.encode(bad))
        assert (await transport.api().call(refused)).code == 422
        await transport.close()
        thief = RpcTransport(mesh.grpc, {"system:x": markers[6]}, clock=RealClock(), random=seeded_random(None))
        assert (await thief.api().call(refused)).code == 401
        await thief.close()

    mesh.loop.run_until_complete(asyncio.wait_for(over_grpc(), 60))
    for marker in markers[7:12]:
        secret = {"metadata": {"name": f"r-{marker.lower()}"}, "stringData": {"a": marker}}
        assert fetch(mesh, f"{place}/secrets", admin, "POST", secret)[0] == 201
        assert fetch(mesh, f"{place}/secrets/r-{marker.lower()}", admin)[0] == 200
    tls = {"metadata": {"name": "t"}, "type": "kubernetes.io/tls", "stringData": {"tls.key": markers[12]}}
    assert fetch(mesh, f"{place}/secrets", admin, "POST", tls)[0] == 422
    assert fetch(mesh, f"{place}/secrets", admin, "POST", {"stringData": {"a": [markers[13]]}})[0] == 400
    for marker in markers[14:17]:
        assert fetch(mesh, f"{place}/pods", marker)[0] == 401
    for name, port in mesh.ports.items():
        assert fetch(mesh, f"http://127.0.0.1:{port}/metrics", markers[17])[0] == 401, name
    review = {"spec": {"token": markers[18]}}
    assert fetch(mesh, f"{mesh.rest}/apis/authentication.k8s.io/v1/tokenreviews", admin, "POST", review)[0] == 201
    account = fetch(
        mesh, f"{place}/serviceaccounts/default/token", admin, "POST", {"spec": {"audiences": [markers[19]]}}
    )
    issued = json.loads(account[1])["status"]["token"]
    keys = [line for path in (mesh.data / "credentials").glob("*.key") for line in path.read_text().splitlines()[1:-1]]
    wanted = [*markers, issued, *(token for token in mesh.tokens.values()), *(key for key in keys if len(key) > 30)]
    # What a Secret holds is stored in base64, and would be found so.
    encoded = [msgspec.json.encode(marker.encode()).decode().strip('"')[:-4] for marker in markers]
    own = (mesh.data / "apiserver", mesh.data / "credentials", mesh.data / "kubeconfigs")
    files = [
        path for path in mesh.data.rglob("*") if path.is_file() and not any(place in path.parents for place in own)
    ]
    assert {"logs", "events", "audit", "run"} <= {path.relative_to(mesh.data).parts[0] for path in files}
    hits = []
    for path in files:
        text = path.read_text(errors="replace")
        found = [each[:12] for each in (*wanted, *encoded) if each in text]
        if found and path.name != "kubeconfig":
            hits.append((str(path.relative_to(mesh.data)), found))
    assert hits == []


def test_x_aud_every_refusal_of_this_mesh_is_in_its_audit_log(mesh):
    assert fetch(mesh, f"{mesh.rest}/api/v1/secrets", mesh.tokens[ANN.user])[0] == 403
    found = [json.loads(line) for line in mesh.audit.read_text().splitlines()]
    refused = [each for each in found if each["user"].get("username") == ANN.user and each["verb"] == "list"]
    assert refused[-1]["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert refused[-1]["responseStatus"]["code"] == 403
    assert {each["verb"] for each in found if each["user"].get("username", "").startswith("system:node:")}
