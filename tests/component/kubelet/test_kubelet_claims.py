"""A kubelet that has the devices of pods prepared, against the real API server (dra-core 7; guarantees N2, I30)."""

import asyncio
import json

import pytest

from lab.scenarios.invariants.policy import Call, is_allowed
from services.api.errors import ApiError
from services.api.kinds.resourceclaim import CLAIMS
from services.api.kinds.resourceslice import SLICES
from services.api.meta import Key
from services.runtime.health import HttpRequest

DRIVER = "gpu.example.com"
NODE = {"name": "n1", "cpu": "4", "drivers": f"{DRIVER}:2"}
USES = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}


async def grant(world, *pods, name="c", device="gpu-0", driver=DRIVER):
    """Make the claim and do what the scheduler does for these pods."""
    asked = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}
    document = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {"devices": asked},
                "metadata": {"name": name, "namespace": "default"}}  # fmt: skip
    stored = await world.admin.create(CLAIMS, document)
    result = {"request": "r", "driver": driver, "pool": "n1", "device": device}
    status = {"allocation": {"devices": {"results": [result]}},
              "reservedFor": [{"resource": "pods", "name": pod, "uid": uid} for pod, uid in pods]}  # fmt: skip
    key = Key("default", name)
    await world.scheduler.patch(CLAIMS, key, {"status": status}, subresource="status")
    return stored["metadata"]["uid"]


async def pod_with_claim(world, name="p", **more):
    """Create the pod, grant it the claim, and bind it."""
    uid = await world.create(name, bind=False, spec=USES, **more)
    await grant(world, (name, uid))
    await world.scheduler.bind(Key("default", name), uid, "n1")
    return uid


def is_running(pod):
    return pod["status"].get("phase") == "Running"


def order(world, *events):
    return [line.ev for line in world.events.lines if line.ev in events]


def test_a_driver_publishes_what_the_nodes_definition_says(simulate):
    async def scenario(world):
        await asyncio.sleep(1)
        return (await world.admin.list(SLICES))[0]

    (found,) = simulate(scenario, nodes=[NODE])

    spec = found["spec"]
    assert (spec["driver"], spec["nodeName"], spec["pool"]["resourceSliceCount"]) == (DRIVER, "n1", 1)
    assert [device["name"] for device in spec["devices"]] == ["gpu-0", "gpu-1"]
    assert found["metadata"]["ownerReferences"][0]["name"] == "n1"


def test_a_node_that_was_deleted_offers_its_devices_again_in_the_name_of_the_new_one(simulate):
    async def scenario(world):
        await asyncio.sleep(1)
        await world.admin.delete("nodes", Key("", "n1"))
        (orphan,) = (await world.admin.list(SLICES))[0]
        await world.admin.delete(SLICES, Key("", orphan["metadata"]["name"]))  # as the garbage collector does
        await asyncio.sleep(330)  # the next report of the node's status finds out
        node = await world.admin.get("nodes", Key("", "n1"))
        (found,) = (await world.admin.list(SLICES))[0]
        return found["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]

    assert simulate(scenario, nodes=[NODE])


def test_guarantees_n2_devices_come_after_the_checkpoint_and_go_after_the_containers(simulate):
    async def scenario(world):
        await pod_with_claim(world)
        await world.until_pod("p", is_running)
        await world.delete("p", 1)
        await world.until_pod("p", lambda pod: pod is None)
        return order(world, "kubelet.checkpoint", "driver.prepare", "kubelet.start", "kubelet.stop", "driver.unprepare")

    assert simulate(scenario, nodes=[NODE]) == [
        "kubelet.checkpoint", "driver.prepare", "kubelet.start", "kubelet.stop", "driver.unprepare",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("grants", "words"),
    [
        ({}, "fetch ResourceClaim c"),
        ({"pods": ()}, "is not allowed to use ResourceClaim c"),
        ({"driver": "nic.example.com"}, "DRA driver nic.example.com is not registered"),
        ({"device": "gpu-7"}, "NodePrepareResources failed for ResourceClaim c: there is no device n1/gpu-7"),
    ],
)
def test_what_keeps_a_pod_from_its_claims_is_recorded_and_never_fails_it(simulate, grants, words):
    async def scenario(world):
        uid = await world.create("p", bind=False, spec=USES)
        if grants:
            await grant(world, *grants.pop("pods", (("p", uid),)), **grants)
        await world.scheduler.bind(Key("default", "p"), uid, "n1")
        await asyncio.sleep(30)
        events = (await world.admin.list("events", namespace="default"))[0]
        reported = [e["message"] for e in events if e["reason"] == "FailedPrepareDynamicResources"]
        return reported, (await world.pod("p"))["status"]["phase"]

    reported, phase = simulate(scenario, nodes=[NODE])

    assert reported
    assert all(text.startswith("Failed to prepare dynamic resources: prepare dynamic resources: ") for text in reported)
    assert words in reported[0]
    assert phase == "Pending"


@pytest.mark.parametrize("site", ["driver.prepare", "kubelet.checkpoint", "kubelet.start", "kubelet.stop"])
def test_fm_k2_a_kubelet_killed_on_the_way_prepares_and_starts_once_and_leaks_nothing(simulate, site):
    async def scenario(world):
        uid = await world.create("p", bind=False, run="exit 0 after 5s", spec={**USES, "restartPolicy": "Never"})
        await grant(world, ("p", uid))
        await world.scheduler.bind(Key("default", "p"), uid, "n1")
        await world.until(lambda: bool(world.lines(site)))
        world.kill_kubelet()
        await asyncio.sleep(1)
        await world.start_kubelet()
        await world.until_pod("p", lambda pod: pod["status"].get("phase") == "Succeeded")
        return world.lines("kubelet.start"), world.lines("driver.prepare"), world.lines("driver.unprepare")

    starts, prepared, unprepared = simulate(scenario, nodes=[NODE])

    assert len(starts) == 1
    assert 1 <= len(prepared) <= 2  # once more where the answer was not on disk
    assert len(unprepared) >= 1


def test_devices_of_a_pod_that_went_while_the_kubelet_was_away_are_given_back(simulate):
    async def scenario(world):
        await pod_with_claim(world)
        await world.until_pod("p", is_running)
        world.kill_kubelet()
        await world.delete("p", 0)
        await world.start_kubelet()
        # Its driver registers after the first try; the next one is the reconciliation's.
        await world.until(lambda: bool(world.lines("driver.unprepare")), limit_s=62)
        return world.agent().kubelet.claims.cached

    assert simulate(scenario, nodes=[NODE]) == {}


def test_a_pod_whose_driver_is_away_hangs_in_termination_until_it_is_back(simulate):
    async def scenario(world):
        await pod_with_claim(world)
        await world.until_pod("p", is_running, 8)
        await asyncio.sleep(10 - world.clock.now() % 10)
        await world.delete("p", 1)
        await asyncio.sleep(15)
        still = await world.pod("p")
        await world.until_pod("p", lambda pod: pod is None)
        return still

    assert simulate(scenario, nodes=[{**NODE, "drivers": f"{DRIVER}:2:dead=5-40"}]) is not None


def test_dra_core_10_a_new_claim_of_the_name_waits_until_the_old_one_is_unprepared(simulate):
    """The pod is deleted by force and the claim made anew, while the driver takes 20 s to release the old one."""

    async def scenario(world):
        await pod_with_claim(world)
        await world.until_pod("p", is_running)
        await world.delete("p", 0)
        await world.admin.delete(CLAIMS, Key("default", "c"))
        await pod_with_claim(world, "q")
        await asyncio.sleep(10)
        events = (await world.admin.list("events", namespace="default"))[0]
        refused = [e["message"] for e in events if e["reason"] == "FailedPrepareDynamicResources"]
        await world.until_pod("q", is_running, 50)
        return refused, order(world, "driver.prepare", "driver.unprepare")

    refused, calls = simulate(scenario, nodes=[{**NODE, "drivers": f"{DRIVER}:2:unprepare=20"}])

    assert "old ResourceClaim with same name c and different UID " in refused[0]
    assert refused[0].endswith(" still exists (previous pod force-deleted?!)")
    assert calls == ["driver.prepare", "driver.unprepare", "driver.prepare"]


def test_a_slow_driver_is_waited_for_45_seconds(simulate):
    async def scenario(world):
        await pod_with_claim(world)
        await asyncio.sleep(50)
        events = (await world.admin.list("events", namespace="default"))[0]
        return [e["message"] for e in events if e["reason"] == "FailedPrepareDynamicResources"]

    (reported,) = simulate(scenario, nodes=[{**NODE, "drivers": f"{DRIVER}:2:prepare=60"}])

    assert reported.endswith(
        "NodePrepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    )


def test_what_a_pods_claims_wait_for_is_served_by_its_kubelet(simulate):
    """Two pods share a claim whose driver is slow: one waits for the driver, the other for that call."""

    async def scenario(world):
        pods = [(name, await world.create(name, bind=False, spec=USES)) for name in ("p", "q")]
        await grant(world, *pods)
        for name, uid in pods:
            await world.scheduler.bind(Key("default", name), uid, "n1")
        await asyncio.sleep(10)
        (route,) = [route for path, route in world.process.http_routes() if path.startswith("/explain/")]
        answers = []
        for name in ("p", "q", "none"):
            status, _, body = route(HttpRequest("", {"namespace": "default", "pod": name}))
            answers.append((status, json.loads(body)["waits_for"] if status == 200 else body.decode()))
        return answers, dict(pods)

    answers, uids = simulate(scenario, nodes=[{**NODE, "drivers": f"{DRIVER}:2:prepare=30"}])

    first = 0 if "answer" in answers[0][1] else 1
    holder = uids["pq"[first]]
    assert answers[first] == (
        200,
        f"DRA driver {DRIVER} to answer NodePrepareResources for ResourceClaim c, at most 45 s",
    )
    assert answers[1 - first] == (200, f"another pod's call to end, for ResourceClaim c (pod UID {holder})")
    assert answers[2] == (404, "pod default/none waits for nothing here\n")


def test_x_nr12_a_node_reads_the_claims_of_its_pods_and_no_others(simulate):
    async def scenario(world):
        uid = await pod_with_claim(world)
        await grant(world, ("p", uid), name="other")
        client = world.agent().client
        own = await client.get(CLAIMS, Key("default", "c"))
        with pytest.raises(ApiError) as refused:
            await client.get(CLAIMS, Key("default", "other"))
        with pytest.raises(ApiError) as written:
            await client.patch(CLAIMS, Key("default", "c"), {"status": {"reservedFor": None}}, subresource="status")
        return own["metadata"]["name"], refused.value.code, written.value.code

    assert simulate(scenario, nodes=[NODE]) == ("c", 403, 403)
    node = {"user": "system:node:n1", "groups": ("system:nodes",), "resource": CLAIMS, "name": "c"}
    assert is_allowed(Call(verb="get", referenced=True, **node))
    assert not is_allowed(Call(verb="patch", referenced=True, **node))


def test_a_node_offers_devices_of_its_own_only(simulate):
    async def scenario(world):
        client = world.agent().client
        document = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
                    "spec": {"driver": DRIVER, "nodeName": "n2", "devices": [],
                             "pool": {"name": "n2", "generation": 1, "resourceSliceCount": 1}}}  # fmt: skip
        with pytest.raises(ApiError) as refused:
            await client.create(SLICES, document)
        return refused.value.code

    assert simulate(scenario, nodes=[NODE]) == 403


@pytest.mark.parametrize(
    ("drivers", "words"),
    [
        ("gpu", "want NAME:DEVICES"),
        ("gpu.example.com:x", "want NAME:DEVICES"),
        ("gpu.example.com:1:late=2", "[:dead=FROM-TO]"),
        ("gpu.example.com:1:prepare=soon", "'soon' is not a number"),
    ],
)
def test_a_driver_that_cannot_be_is_named_with_its_node(simulate, drivers, words):
    with pytest.raises(ValueError, match="node n1: drivers: ") as error:
        simulate(lambda world: world, nodes=[{**NODE, "drivers": drivers}])

    assert words in str(error.value)


def test_dra_core_7_operations_and_calls_are_counted_by_upstreams_names(simulate):
    async def scenario(world):
        await pod_with_claim(world)
        await world.until_pod("p", is_running)
        held = world.process.metrics()
        await world.delete("p", grace_s=1)
        await world.until_pod("p", lambda pod: pod is None)
        return held, world.process.metrics()

    held, after = simulate(scenario, nodes=[NODE])

    call = 'driver_name="gpu.example.com",grpc_status_code="OK",method_name="/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/'
    assert held['dra_resource_claims_in_use{driver_name="gpu.example.com"}'] == 1
    assert 'dra_resource_claims_in_use{driver_name="<any>"}' not in after
    for operation in ("PrepareResources", "UnprepareResources"):
        assert after[f'dra_operations_duration_seconds_count{{is_error="false",operation_name="{operation}"}}'] == 1
        assert after[f'dra_grpc_operations_duration_seconds_count{{{call}Node{operation}"}}'] == 1
        assert after[f'dra_grpc_operations_duration_seconds_sum{{{call}Node{operation}"}}'] > 0
