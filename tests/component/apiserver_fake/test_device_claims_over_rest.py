"""One claim's whole life as HTTP clients see it, write by write, and the kinds that kubectl finds (dra-core 5)."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import asynccontextmanager

import aiohttp

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.rest.server import RestSettings, serve
from apiserver_fake.wiring import build
from services.api.seams import Seams
from services.api.switches import Switches
from services.runtime.real import MemoryDisk, NoTransport
from services.telemetry.eventlog import MemoryEventLog, MemoryEvents
from services.telemetry.traces import MemorySpans, Tracer

WRITERS = {
    "admin": ("system:mesh-admin", ["system:mesh-admins"]),
    "scheduler": ("system:kube-scheduler", []),
    "controller": ("system:serviceaccount:kube-system:resource-claim-controller", []),
    "node": ("system:node:n1", ["system:nodes"]),
}
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
GROUP = "/apis/resource.k8s.io/v1"
CLAIM = f"{GROUP}/namespaces/default/resourceclaims/c"
FINALIZER = "resource.kubernetes.io/delete-protection"


class LoopClock:
    """The time of the event loop."""

    def now(self):
        return asyncio.get_running_loop().time()

    def wall(self):
        return 1_800_000_000 + self.now()


class Mesh:
    """Calls the server by HTTP as one of the writers."""

    def __init__(self, client):
        self.client = client

    async def call(self, who, method, path, body=None, *, code=None, headers=None, patch="merge"):
        sent = {"Authorization": f"Bearer {who}-token", **(headers or {})}
        if body is not None:
            kind = (
                f"application/{patch}-patch+{'yaml' if patch == 'apply' else 'json'}"
                if method == "PATCH"
                else "application/json"
            )
            sent["Content-Type"] = kind
        data = None if body is None else json.dumps(body)
        async with self.client.request(method, path, data=data, headers=sent) as answer:
            found = await answer.json(content_type=None)
            assert answer.status == (code or {"POST": 201}.get(method, 200)), found
            return found

    async def table(self, path):
        found = await self.call("admin", "GET", path, headers=TABLE)
        columns = [column["name"] for column in found["columnDefinitions"]]
        return columns, [row["cells"] for row in found["rows"]]


@asynccontextmanager
async def a_mesh(folder, *, engine="memory", **switches):
    tokens = [{"token": f"{who}-token", "user": user, "groups": groups} for who, (user, groups) in WRITERS.items()]
    (folder / "tokens").write_text(json.dumps({"tokens": tokens}))
    clock, chance = LoopClock(), random.Random(3)
    seams = Seams(
        component="apiserver", clock=clock, random=chance, disk=MemoryDisk(), transport=NoTransport(),
        events=MemoryEventLog("apiserver", clock, "1", MemoryEvents()),
        tracer=Tracer("apiserver", clock=clock, random=chance, sinks=(MemorySpans(),)), switches=Switches(switches),
    )  # fmt: skip
    config = ApiServerConfig(
        engine=engine, data_dir=str(folder / "data"), grpc_port=None, rest_port=None, token_file=str(folder / "tokens")
    )
    component = build(config, seams)
    task = asyncio.create_task(component.run())
    try:
        await component.server.wait_until_ready()
        runner, port = await serve(
            component.server, "127.0.0.1", 0, clock=clock, tracer=seams.tracer, settings=RestSettings()
        )
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            yield Mesh(client)
        await runner.aclose()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, 30))


async def a_cluster(mesh):
    """A node with a GPU whose driver published it, and a bound pod that uses the claim."""
    await mesh.call("node", "POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example", "nodeName": "n1", "pool": pool, "devices": [{"name": "gpu-0"}]}
    await mesh.call("node", "POST", f"{GROUP}/resourceslices", {"metadata": {"name": "s"}, "spec": spec})
    await mesh.call("admin", "POST", f"{GROUP}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
    requests = [{"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]}]
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}}
    await mesh.call("admin", "POST", f"{GROUP}/namespaces/default/resourceclaims", claim)
    container = {"name": "c", "image": "i:1", "resources": {"claims": [{"name": "gpu", "request": "r"}]}}
    pod = {"containers": [container], "nodeName": "n1", "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}
    return await mesh.call("admin", "POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "p"}, "spec": pod})


def test_dra_core_5_a_claim_is_allocated_reported_on_released_and_gone(tmp_path):
    async def scenario():
        states = []

        async def note():
            _, rows = await mesh.table(f"{GROUP}/namespaces/default/resourceclaims")
            states.extend(row[1] for row in rows)

        async with a_mesh(tmp_path) as mesh:
            pod = await a_cluster(mesh)
            await note()
            claim = await mesh.call("scheduler", "GET", CLAIM)
            claim["metadata"]["finalizers"] = [FINALIZER]
            claim = await mesh.call("scheduler", "PUT", CLAIM, claim)
            place = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
            result = {"request": "r/a", "driver": "gpu.example", "pool": "n1", "device": "gpu-0"}
            claim["status"] = {
                "allocation": {"devices": {"results": [result]},
                               "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [place]}]}},
                "reservedFor": [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}],
            }  # fmt: skip
            claim = await mesh.call("scheduler", "PUT", f"{CLAIM}/status", claim)
            await note()
            device = {"driver": "gpu.example", "pool": "n1", "device": "gpu-0", "data": {"slot": 7}}
            await mesh.call("node", "PATCH", f"{CLAIM}/status", {"status": {"devices": [device]}})
            refused = await mesh.call("scheduler", "PATCH", f"{CLAIM}/status", {"status": {"devices": None}}, code=422)
            early = await mesh.call(
                "controller", "PATCH", f"{CLAIM}/status", {"status": {"allocation": None}}, code=422
            )
            await mesh.call("admin", "DELETE", CLAIM)
            await note()
            released = {"allocation": None, "reservedFor": None}
            left = await mesh.call("controller", "PATCH", f"{CLAIM}/status", {"status": released})
            await note()
            await mesh.call("controller", "PATCH", CLAIM, {"metadata": {"finalizers": None}})
            await mesh.call("admin", "GET", CLAIM, code=404)
            return states, refused, early, left

    states, refused, early, left = run(scenario())

    assert states == ["pending", "allocated,reserved", "deleted,allocated,reserved", "deleted"]
    assert [cause["field"] for cause in refused["details"]["causes"]] == ["status.devices"]
    assert [cause["field"] for cause in early["details"]["causes"]] == ["status.reservedFor"]
    assert left["status"] == {}


def test_a_node_reads_a_claim_once_it_is_allocated_there_before_any_pod_is_bound(tmp_path):
    async def scenario():
        async with a_mesh(tmp_path) as mesh:
            await a_cluster(mesh)
            claims, alone = f"{GROUP}/namespaces/default/resourceclaims", f"{GROUP}/namespaces/default/resourceclaims/d"
            requests = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
            spec = {"devices": {"requests": requests}}
            await mesh.call("admin", "POST", claims, {"metadata": {"name": "d"}, "spec": spec})
            await mesh.call("node", "GET", alone, code=403)
            place = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
            result = {"request": "r", "driver": "gpu.example", "pool": "n1", "device": "gpu-0"}
            allocation = {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [place]}]},
            }
            await mesh.call("scheduler", "PATCH", f"{alone}/status", {"status": {"allocation": allocation}})
            return await mesh.call("node", "GET", alone)

    assert run(scenario())["metadata"]["name"] == "d"


def test_kubectl_finds_taint_rules_beside_the_stable_kinds(tmp_path):
    async def scenario():
        rules = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
        spec = {"deviceSelector": {"driver": "gpu.example"}, "taint": {"key": "worn", "effect": "None"}}
        async with a_mesh(tmp_path, DRADeviceTaintRules=True) as mesh:
            group = await mesh.call("admin", "GET", "/apis/resource.k8s.io")
            served = await mesh.call("admin", "GET", "/apis/resource.k8s.io/v1beta2")
            schema = await mesh.call("admin", "GET", "/openapi/v3/apis/resource.k8s.io/v1beta2")
            await mesh.call("admin", "POST", rules, {"metadata": {"name": "r"}, "spec": spec})
            return group, served, schema, await mesh.table(rules)

    group, served, schema, (columns, rows) = run(scenario())

    assert [each["version"] for each in group["versions"]] == ["v1", "v1beta2"]
    assert group["preferredVersion"]["version"] == "v1"
    assert [each["name"] for each in served["resources"]] == ["devicetaintrules", "devicetaintrules/status"]
    taint = schema["components"]["schemas"]["io.k8s.api.resource.v1.DeviceTaint"]
    assert taint["properties"]["effect"]["enum"] == ["NoExecute", "NoSchedule", "None"]
    assert (columns, [row[0] for row in rows]) == (["Name", "Age"], ["r"])


def test_a_field_of_the_wrong_type_or_of_no_kind_names_itself(tmp_path):
    async def scenario():
        slices = f"{GROUP}/resourceslices"
        wrong = {"metadata": {"name": "s"}, "spec": {"devices": [{"name": "a", "taints": "none"}]}}
        unknown = {"metadata": {"name": "s"}, "spec": {"driverName": "gpu.example"}}
        async with a_mesh(tmp_path) as mesh:
            return (
                await mesh.call("admin", "POST", slices, wrong, code=400),
                await mesh.call("admin", "POST", f"{slices}?fieldValidation=Strict", unknown, code=400),
            )

    wrong, unknown = run(scenario())

    assert "Device.spec.devices.taints of type []v1.DeviceTaint" in wrong["message"]
    assert 'unknown field "spec.driverName"' in unknown["message"]


def test_two_drivers_apply_what_they_report_on_one_claim(tmp_path):
    async def scenario():
        def report(driver, **more):
            device = {"driver": driver, "pool": "n1", "device": "d0", **more}
            body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
            return {**body, "status": {"devices": [device]}}

        async with a_mesh(tmp_path) as mesh:
            await a_cluster(mesh)
            drivers = ("gpu.example", "nic.example")
            results = [{"request": "r/a", "driver": driver, "pool": "n1", "device": "d0"} for driver in drivers]
            granted = {"status": {"allocation": {"devices": {"results": results}}}}
            await mesh.call("admin", "PATCH", f"{CLAIM}/status", granted)
            for driver in drivers:
                path = f"{CLAIM}/status?fieldManager={driver}"
                await mesh.call("admin", "PATCH", path, report(driver, data={"by": driver}), patch="apply")
            path = f"{CLAIM}/status?fieldManager=gpu.example"
            await mesh.call("admin", "PATCH", path, report("gpu.example"), patch="apply")
            return await mesh.call("admin", "GET", CLAIM)

    claim = run(scenario())

    assert [(each["driver"], each.get("data")) for each in claim["status"]["devices"]] == [
        ("gpu.example", None), ("nic.example", {"by": "nic.example"}),
    ]  # fmt: skip


RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
RULE = {"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "NoSchedule"}}}


async def seen_of_rules(mesh, *, served):
    """What a client finds of a kind: in discovery in both forms, in OpenAPI, and under its path."""
    form = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    plain = await mesh.call("admin", "GET", "/apis")
    aggregated = await mesh.call("admin", "GET", "/apis", headers=form)
    group = next(each for each in plain["groups"] if each["name"] == "resource.k8s.io")
    item = next(each for each in aggregated["items"] if each["metadata"]["name"] == "resource.k8s.io")
    index = await mesh.call("admin", "GET", "/openapi/v3")
    versions = [each["version"] for each in group["versions"]]
    assert versions == [each["version"] for each in item["versions"]]
    assert ("v1beta2" in versions) is served
    assert ("apis/resource.k8s.io/v1beta2" in index["paths"]) is served
    assert ("/apis/resource.k8s.io/v1beta2" in (await mesh.call("admin", "GET", "/"))["paths"]) is served


def test_a_kind_whose_gate_is_off_is_nowhere_and_is_back_with_its_objects(tmp_path):
    admin = {"Authorization": "Bearer admin-token"}

    async def scenario():
        async with a_mesh(tmp_path, engine="sqlite", DRADeviceTaintRules=True) as mesh:
            await seen_of_rules(mesh, served=True)
            await mesh.call("admin", "POST", RULES, RULE)
        async with a_mesh(tmp_path, engine="sqlite") as mesh:
            await seen_of_rules(mesh, served=False)
            for method, path, body in (
                ("GET", RULES, None),
                ("GET", f"{RULES}/r", None),
                ("GET", f"{RULES}?watch=1", None),
                ("POST", RULES, RULE),
                ("PUT", f"{RULES}/r", RULE),
                ("DELETE", f"{RULES}/r", None),
            ):
                async with mesh.client.request(method, path, json=body, headers=admin) as answer:
                    assert answer.status == 404, (method, path)
        async with a_mesh(tmp_path, engine="sqlite", DRADeviceTaintRules=True) as mesh:
            await seen_of_rules(mesh, served=True)
            found = await mesh.call("admin", "GET", RULES)
            assert [each["metadata"]["name"] for each in found["items"]] == ["r"]

    run(scenario())
