"""Snapshots and changes on an API server in virtual time: what is there afterwards, and when it came to be."""

import asyncio
import json
import random
import resource as usage
from pathlib import Path

import msgspec
import pytest

from apiserver_fake.registry.raw import check_raw, raw_plan
from kubelet.runtime import runtime_state as kubelets
from lab.exchange.format import Reading, open_stream
from lab.exchange.load import Loader
from lab.exchange.player import AS_FAST_AS_POSSIBLE, Player
from lab.exchange.reading import Source
from lab.exchange.rules import BEGAN, Rules
from lab.exchange.spool import Spool
from lab.exchange.stream import Change, Placed, Refused
from lab.scenarios.simulation import simloop
from services.api.errors import BadRequest, Forbidden
from services.api.identity import ADMIN, SCHEDULER, Identity, controller_identity
from services.api.meta import Key
from services.api.resources import resources
from services.api.switches import Switches
from services.api.wire import Request, WatchRequest, encode
from services.client.client import Client, request_of
from tests.component.apiserver_fake.test_server import LoopClock, Machine

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default, uid: old-deployment}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: a, image: x:1}]}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: web, namespace: default, uid: old-job}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: x}]}}}
"""
SET = """\
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: web-1
  namespace: default
  uid: old-set
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: old-deployment, controller: true}]
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: a, image: x:1}]}
"""


def pod(
    name="web-1-a", owner="old-set", spec="{nodeName: n1, containers: [{name: a, image: 'x:1'}, {name: b, image: y}]}"
):
    owners = (
        f"  ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: {owner}, controller: true}}]\n"
    )
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: default\n  uid: old-{name}\n"
        f"{owners if owner else ''}spec: {spec}\n"
        "status: {phase: Running, podIP: 10.0.0.1, startTime: $(time-offset-nanosecond -60000000000)}\n"
    )


def action(at_s, method, name, template=""):
    return (
        f"apiVersion: action.kwok.x-k8s.io/v1alpha1\nkind: ResourcePatch\nresource: {{version: v1, resource: pods}}\n"
        f"target: {{name: {name}, namespace: default}}\ndurationNanosecond: {int(at_s * 1e9)}\nmethod: {method}\n"
        + (f"template: {template}\n" if template else "")
    )


def opened(*documents, lenient=False):
    source = Source(Path("f.yaml"), data="---\n".join(documents).encode())
    return open_stream(source, Reading(began_wall_s=1_700_000_000, is_lenient=lenient))[1]


def with_server(scenario):
    """Run a coroutine function with a client of a server that has no other components."""

    async def whole():
        async with Machine().server() as server:
            client = Client(server.api_for(ADMIN), LoopClock(), random.Random(1))
            client.binder = Client(server.api_for(SCHEDULER), LoopClock(), random.Random(2))
            return await scenario(client)

    return simloop.run(whole())


def test_15_an_object_waits_until_its_owners_are_there_and_has_their_new_uids():
    async def scenario(client):
        loaded = await Loader(client).load(opened(pod(), SET, DEPLOYMENT, pod("orphan", "nowhere")).objects)
        found = [
            await client.get(resource, Key("default", name))
            for resource, name in (("deployments.apps", "web"), ("replicasets.apps", "web-1"), ("pods", "web-1-a"))
        ]
        return loaded, *found

    loaded, deployment, replica_set, web = with_server(scenario)

    assert (loaded.created, loaded.updated, loaded.failures) == (3, 0, [])
    assert loaded.orphans == ["f.yaml:document 4 (line 33): Pod default/orphan: no owner ReplicaSet web-1"]
    assert replica_set["metadata"]["ownerReferences"][0]["uid"] == deployment["metadata"]["uid"] != "old-deployment"
    assert web["metadata"]["ownerReferences"][0]["uid"] == replica_set["metadata"]["uid"]
    assert (web["spec"]["nodeName"], web["status"]["phase"], web["status"]["podIP"]) == ("n1", "Running", "10.0.0.1")
    assert web["status"]["startTime"].startswith("2023-11-14T22:12:20")


def test_an_object_that_is_there_is_updated_and_nothing_is_deleted():
    async def scenario(client):
        await client.create("configmaps", {"metadata": {"name": "other", "namespace": "default"}})
        maps = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: default}\ndata: {a: '%s'}\n"
        for text in ("1", "2"):
            loaded = await Loader(client).load(opened(maps % text, DEPLOYMENT).objects)
        return loaded, await client.get("configmaps", Key("default", "m")), (await client.list("configmaps"))[0]

    loaded, found, everything = with_server(scenario)

    assert (loaded.created, loaded.updated, loaded.failures) == (0, 2, [])
    assert found["data"] == {"a": "2"}
    assert {"m", "other"} <= {each["metadata"]["name"] for each in everything}


@pytest.mark.parametrize(
    ("document", "resource", "counted", "given", "stays"),
    [
        (DEPLOYMENT, "deployments.apps", {"collisionCount": 2}, {"observedGeneration": 1}, {"collisionCount": 2}),
        (
            JOB,
            "jobs.batch",
            {"failed": 1, "startTime": "2026-01-01T00:00:00Z"},
            {"failed": 0, "startTime": "2020-01-01T00:00:00Z"},
            {"failed": 1, "startTime": "2026-01-01T00:00:00Z"},
        ),
    ],
    ids=["Deployment", "Job"],
)
def test_what_controllers_have_counted_up_meanwhile_is_not_taken_back(document, resource, counted, given, stays):
    class Slow:
        """A client that is overtaken by a controller between the creation and the status."""

        def __init__(self, client):
            self.client = client

        def __getattr__(self, name):
            return getattr(self.client, name)

        async def create(self, kind, body):
            stored = await self.client.create(kind, body)
            found = {"status": {**(stored.get("status") or {}), **counted}}
            await self.client.patch_rv(kind, Key("default", "web"), found, subresource="status")
            return stored

    async def scenario(client):
        text = f"{document}status: {json.dumps({'conditions': [], **given})}\n"
        loaded = await Loader(Slow(client)).load(opened(text).objects)
        return loaded, await client.get(resource, Key("default", "web"))

    loaded, found = with_server(scenario)

    assert (loaded.created, loaded.failures) == (1, [])
    assert {name: found["status"].get(name) for name in stays} == stays


def test_where_kubelets_are_a_pod_that_runs_is_handed_over_and_elsewhere_it_has_its_status():
    async def scenario(client):
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "n1"}}
        lease["metadata"] = {"name": "n1", "namespace": "kube-node-lease"}
        await client.create("leases.coordination.k8s.io", lease)
        running = (
            "{phase: Running, startTime: 2026-01-01T00:00:00Z, podIP: 10.0.0.1, containerStatuses: [{name: a, image: x, "
            "imageID: x, ready: true, restartCount: 3, state: {running: {startedAt: 2026-01-01T00:00:01Z}}}]}"
        )
        pods = [
            f"apiVersion: v1\nkind: Pod\nmetadata: {{name: on-{node}, namespace: default, annotations: {{{BEGAN}: old}}}}\n"
            f"spec: {{nodeName: {node}, containers: [{{name: a, image: x}}]}}\nstatus: {running}\n"
            for node in ("n1", "n2")
        ]
        loaded = await Loader(client, Rules(has_kubelets=True)).load(opened(*pods).objects)
        return loaded, *[await client.get("pods", Key("default", f"on-{node}")) for node in ("n1", "n2")]

    loaded, hosted, lonely = with_server(scenario)

    assert (loaded.failures, kubelets.BEGAN) == ([], BEGAN)
    assert (hosted["status"]["phase"], hosted["status"].get("startTime")) == ("Pending", None)
    reported = json.loads(hosted["metadata"]["annotations"][BEGAN])
    assert (reported["containerStatuses"][0]["restartCount"], "podIP" in reported) == (3, False)
    assert (lonely["status"]["phase"], lonely["status"]["podIP"]) == ("Running", "10.0.0.1")
    assert BEGAN not in (lonely["metadata"].get("annotations") or {})


def test_nothing_is_applied_of_a_snapshot_with_a_bad_document():
    async def scenario(client):
        with pytest.raises(Refused) as refused:
            await Loader(client).load(opened(DEPLOYMENT, "kind: Pod\nmetadata: {name: x}\n").objects)
        return str(refused.value), (await client.list("deployments.apps"))[0]

    assert with_server(scenario) == ("f.yaml:document 2 (line 10): Pod x: apiVersion: want a text, not nothing", [])


def test_what_the_server_refuses_is_reported_and_the_rest_is_loaded():
    async def scenario(client):
        bad = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: UPPER, namespace: default}\n"
        gone = "apiVersion: v9\nkind: Nothing\nmetadata: {name: x}\n"
        return await Loader(client).load(opened(bad, gone, DEPLOYMENT).objects)

    loaded = with_server(scenario)

    assert loaded.created == 1
    assert loaded.unknown == {"v9 Nothing": 1}
    assert len(loaded.failures) == 1
    assert loaded.failures[0].startswith("f.yaml:document 1 (line 1): ConfigMap default/UPPER: ")


def test_what_only_the_server_can_refuse_is_reported_by_it_and_nothing_else_is_hurt():
    volume = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\nspec: {claimRef: {uid: [1], name: c}}\n"
    claim = (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c, namespace: default}\n"
        "spec: {}\nstatus: {reservedFor: [x, {uid: [1]}]}\n"
    )

    async def scenario(client):
        return await Loader(client).load(opened(volume, claim, DEPLOYMENT).objects)

    loaded = with_server(scenario)

    assert sorted(each.partition(": ")[2].partition(":")[0] for each in loaded.failures) == [
        "PersistentVolume v",
        "ResourceClaim default/c",
    ]
    assert "old-deployment" in loaded.uids


def test_pending_pods_lose_node_and_status():
    async def scenario(client):
        await Loader(client, Rules(pods="pending", keep_owners=False)).load(opened(pod()).objects)
        return await client.get("pods", Key("default", "web-1-a"))

    found = with_server(scenario)

    assert "nodeName" not in found["spec"]
    assert (found["status"]["phase"], "ownerReferences" in found["metadata"]) == ("Pending", False)


TEMPLATE = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {containers: [{name: a, image: x}, {name: b, image: y}]}}"
THREE = (
    action(1, "create", "p", TEMPLATE),
    action(2, "patch", "p", "{spec: {containers: [{name: a, image: z}]}}"),
    action(3, "delete", "p"),
)


@pytest.mark.parametrize(
    ("speed", "moments"), [(1, (1, 2, 3)), (4, (0.25, 0.5, 0.75)), (AS_FAST_AS_POSSIBLE, (0, 0, 0))]
)
def test_16_changes_are_made_at_their_moments(speed, moments):
    async def scenario(client):
        clock = LoopClock()
        began, seen = clock.now(), []
        call = client._api.call

        async def recorded(request):
            seen.append((round(clock.now() - began, 9), request.verb))
            answer = await call(request)
            if request.verb == "patch":
                seen.append([each["image"] for each in msgspec.json.decode(answer.body)["spec"]["containers"]])
            return answer

        client._api = type("Api", (), {"call": staticmethod(recorded)})
        played = await Player(client, clock, speed=speed).play(opened(*THREE).changes)
        return seen, played

    (create, patch, images, delete), played = with_server(scenario)

    if speed != AS_FAST_AS_POSSIBLE:
        assert (create, patch, delete) == tuple(zip(moments, ("create", "patch", "delete"), strict=True))
    assert images == ["z", "y"]
    assert (played.applied, played.last_s, played.late) == (3, 3.0, 0)


def test_a_patch_of_an_unknown_object_is_refused_with_its_place_and_a_lenient_player_goes_on():
    changes = (action(1, "patch", "nobody", "{metadata: {labels: {a: b}}}"), THREE[0])

    async def strict(client):
        with pytest.raises(Refused) as refused:
            await Player(client, LoopClock()).play(opened(*changes).changes)
        return str(refused.value)

    async def lenient(client):
        return await Player(client, LoopClock(), is_lenient=True).play(opened(*changes).changes)

    message = "f.yaml:document 1 (line 1): patch pods default/nobody: Pod default/nobody is not there"
    assert with_server(strict) == message
    played = with_server(lenient)
    assert (played.failures, played.applied) == ([message], 1)


def test_a_pod_is_bound_where_it_was_bound_and_its_status_is_given():
    async def scenario(client):
        changes = (THREE[0], action(1.5, "patch", "p", "{spec: {nodeName: n7}, status: {phase: Running}}"))
        await client.create("nodes", {"metadata": {"name": "n7"}})
        await Player(client, LoopClock(), binder=client.binder).play(opened(*changes).changes)
        return await client.get("pods", Key("default", "p"))

    found = with_server(scenario)

    assert (found["spec"]["nodeName"], found["status"]["phase"]) == ("n7", "Running")


def test_under_pending_what_components_did_is_left_to_the_mesh():
    owned = TEMPLATE.replace(
        "name: p,",
        "name: p, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: s, uid: s, controller: true}],",
    )
    changes = (
        THREE[0].replace("name: p", "name: q"),
        action(1.5, "patch", "q", "{spec: {nodeName: n7}, status: {phase: Running}}"),
        action(2, "create", "p", owned),
        action(3, "delete", "p"),
    )

    async def scenario(client):
        return await Player(client, LoopClock(), Rules(pods="pending")).play(opened(*changes).changes)

    played = with_server(scenario)

    assert played.applied == 1
    assert played.left_out.counts == {"decided by the mesh": 1, "made by their owners": 2}


def test_ten_thousand_objects_are_loaded_in_bounded_memory(tmp_path):
    path = tmp_path / "many.yaml"
    with path.open("w") as file:
        for number in range(10_000):
            file.write(f"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m{number}, namespace: default}}\n")
            file.write(f"data: {{a: '{'x' * 3000}'}}\n")
    before = usage.getrusage(usage.RUSAGE_SELF).ru_maxrss
    stream = open_stream(Source(path), Reading())[1]

    with Spool(memory_max=1 << 20) as spool:
        spool.put_all(stream.objects)
        assert len(spool) == 10_000
        assert spool.get(9_999).document["metadata"]["name"] == "m9999"
    grown_mib = (usage.getrusage(usage.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mib < 64


def test_an_interrupted_play_ends_at_once():
    async def scenario(client):
        task = asyncio.ensure_future(Player(client, LoopClock()).play(opened(*THREE).changes))
        await asyncio.sleep(1.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [each["metadata"]["name"] for each in (await client.list("pods"))[0]]

    assert with_server(scenario) == ["p"]


def test_a_spool_keeps_documents_as_they_are():
    with Spool(memory_max=10) as spool:
        placed = Placed({"a": [1, None, {"b": 1.5}]}, "f:document 1")
        assert spool.get(spool.put(placed)) == placed


def test_an_update_gives_the_whole_object_and_its_status():
    async def scenario(client):
        made = await client.create(
            "configmaps", {"metadata": {"name": "m", "namespace": "default"}, "data": {"a": "1"}}
        )
        document = {**made, "data": {"b": "2"}}
        await Player(client, LoopClock()).play([Change(0, "update", "configmaps", "default", "m", document)])
        return (await client.get("configmaps", Key("default", "m")))["data"]

    assert with_server(scenario) == {"b": "2"}


@pytest.mark.parametrize("verb", ["update", "delete"])
def test_a_write_past_admission_is_not_tried(verb):
    resource = resources()["configmaps"]
    request = Request(verb=verb, resource="configmaps", namespace="default", name="m", body=encode({}), dry_run=True)

    with pytest.raises(BadRequest, match=r"^dryRun: "):
        raw_plan(resource, request, "", lambda: "uid")


def test_writing_past_admission_needs_the_switch_and_an_administrator():
    async def scenario(client):
        request = request_of("update", "configmaps", Key("default", "m"), encode({}), subresource="raw")
        return (await client.call(request)).error().message

    assert "writing past admission needs the switch store.raw=true" in with_server(scenario)
    on = Switches.parse(["store.raw=true"])
    check_raw(ADMIN, on)
    with pytest.raises(Forbidden, match="is for administrators"):
        check_raw(SCHEDULER, on)


def test_what_a_controllers_role_does_not_allow_is_counted_and_what_clients_are_refused_is_not():
    async def scenario():
        async with Machine().server() as server:
            job = Client(server.api_for(controller_identity("job-controller")), LoopClock(), random.Random(1))
            for _ in range(2):
                with pytest.raises(Forbidden):
                    await job.list("secrets")
            with pytest.raises(Forbidden):
                server.open_watch(controller_identity("job-controller"), WatchRequest(resource="secrets"), lambda: None)
            with pytest.raises(Forbidden):
                await Client(
                    server.api_for(Identity("jane", ("system:authenticated",))), LoopClock(), random.Random(1)
                ).list("secrets")
            return {str(name): value for name, value in server.metrics().items() if "forbidden" in name}

    found = simloop.run(scenario())

    name = 'keplab_requests_forbidden_total{user="system:controller:job-controller",verb="%s",resource="secrets"}'
    assert found == {name % "list": 2, name % "watch": 1}
