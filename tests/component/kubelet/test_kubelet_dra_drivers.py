"""How a kubelet finds, calls and misses the DRA drivers of its node (dra-core 7, 7.1; guarantees FM-K9, I7, I30)."""

import asyncio

import msgspec
import pytest

from kubelet.dra import wire
from kubelet.dra.calls import ClaimResult, PluginInfo
from kubelet.runtime.claims import PreparedDevice
from lab.scenarios.simulation.lifetime import Lifetime
from lab.scenarios.simulation.sockets import SimSockets
from services.api.kinds.resourceclaim import CLAIMS
from services.api.kinds.resourceslice import SLICES
from services.api.local_rpc import LocalService, RpcError
from services.api.meta import Key
from services.runtime.health import HttpRequest

from .test_kubelet_claims import DRIVER, NODE, USES, grant, is_running, pod_with_claim

OPEN = {"name": "n1", "cpu": "4", "deviceSocket": True}
REGISTRY = "nodes/n1/plugins_registry"


class Scripted:
    """A driver made of answers: a function for prepares, and who it says it is."""

    def __init__(self, world, prepare=None, **info):
        self.life = Lifetime(f"scripted-{id(self)}", 1)
        self.sockets = SimSockets(world.machine_sockets, self.life)
        self.info = PluginInfo(**{"type": "DRAPlugin", "name": DRIVER, "endpoint": "nodes/n1/plugins/x.sock",
                                  "versions": ("v1.DRAPlugin",), **info})  # fmt: skip
        self.answers = prepare or (lambda claims: {claim.uid: ClaimResult() for claim in claims})
        self.calls, self.statuses = [], []

    async def start(self, socket=f"{REGISTRY}/x-reg.sock"):
        async def answer_info(_):
            return wire.encode_info(self.info)

        async def notified(request):
            self.statuses.append(wire.decode_status(request))
            return b""

        async def prepare(request):
            self.calls.append(claims := wire.decode_claims(request))
            return wire.encode_prepared(self.answers(claims))

        async def unprepare(request):
            return wire.encode_unprepared({claim.uid: ClaimResult() for claim in wire.decode_claims(request)})

        calls = {wire.method("v1.DRAPlugin", wire.PREPARE): prepare,
                 wire.method("v1.DRAPlugin", wire.UNPREPARE): unprepare}  # fmt: skip
        await self.sockets.serve(self.info.endpoint or socket, LocalService(calls))
        extra = calls if not self.info.endpoint else {}
        await self.sockets.serve(socket, LocalService({wire.GET_INFO: answer_info, wire.NOTIFY: notified, **extra}))
        return self

    def die(self):
        self.life.end()


async def failures(world):
    events = (await world.admin.list("events", namespace="default"))[0]
    return [e["message"] for e in events if e["reason"] == "FailedPrepareDynamicResources"]


def test_a_driver_of_another_type_or_version_is_notified_why_it_is_not_registered(simulate):
    async def scenario(world):
        csi = await Scripted(world, type="CSIPlugin").start()
        old = await Scripted(world, versions=("v1alpha4.Node",)).start(f"{REGISTRY}/old-reg.sock")
        await asyncio.sleep(3)
        return csi.statuses[0], old.statuses[0], world.agent().kubelet.claims.drivers.all

    csi, old, registered = simulate(scenario, nodes=[OPEN])

    path = f"{REGISTRY}/x-reg.sock"
    assert csi.error == f"RegisterPlugin error -- no handler registered for plugin type: CSIPlugin at socket {path}"
    assert old.error.startswith("RegisterPlugin error -- plugin validation failed with err: invalid supported gRPC")
    assert registered == []


def test_a_socket_that_answers_nonsense_is_reported_and_tried_again_and_holds_up_no_other(simulate):
    async def scenario(world):
        sockets = SimSockets(world.machine_sockets, Lifetime("nonsense", 1))

        async def nonsense(_):
            return b"\xff\xff\xff"

        await sockets.serve(f"{REGISTRY}/a-reg.sock", LocalService({wire.GET_INFO: nonsense}))
        good = await Scripted(world).start()
        await asyncio.sleep(5)
        refused = [line.data["why"] for line in world.lines("kubelet.driver_refused")]
        return refused, good.statuses[0].is_registered, len(world.agent().drivers._connections)

    refused, is_registered, connections = simulate(scenario, nodes=[OPEN])

    assert len(refused) >= 2
    assert "failed to get plugin info using RPC GetInfo" in refused[0]
    assert "failed to unmarshal the received message" in refused[0]
    assert (is_registered, connections) == (True, 1)


def test_a_driver_without_an_endpoint_is_called_on_its_registration_socket(simulate):
    async def scenario(world):
        driver = await Scripted(world, endpoint="").start()
        await asyncio.sleep(2)
        await pod_with_claim(world)
        await world.until_pod("p", is_running)
        return driver.calls

    assert len(simulate(scenario, nodes=[OPEN])) == 1


def test_the_newest_of_two_instances_is_called_and_the_other_when_that_is_gone(simulate):
    async def scenario(world):
        old = await Scripted(world).start()
        await asyncio.sleep(1)
        new = await Scripted(world, endpoint="nodes/n1/plugins/y.sock").start(f"{REGISTRY}/y-reg.sock")
        await asyncio.sleep(1)
        await pod_with_claim(world)
        await world.until_pod("p", is_running)
        new.die()
        uid = await world.create("q", bind=False, spec={"resourceClaims": [{"name": "g", "resourceClaimName": "d"}]})
        await grant(world, ("q", uid), name="d", device="gpu-1")
        await world.scheduler.bind(Key("default", "q"), uid, "n1")
        await world.until_pod("q", is_running)
        return len(old.calls), len(new.calls)

    assert simulate(scenario, nodes=[OPEN]) == (1, 1)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (lambda claims: {}, "NodePrepareResources skipped 1 ResourceClaims"),
        (lambda claims: {"x": ClaimResult()}, "NodePrepareResources returned result for unknown claim UID x"),
        (lambda claims: {claims[0].uid: ClaimResult(error="broken")},
         "NodePrepareResources failed for ResourceClaim c: broken"),
    ],
)  # fmt: skip
def test_dra_core_7_what_is_wrong_with_an_answer_is_said_in_upstreams_words(simulate, answers, words):
    async def scenario(world):
        await Scripted(world, answers).start()
        await asyncio.sleep(1)
        await pod_with_claim(world)
        await asyncio.sleep(5)
        return await failures(world), (await world.pod("p"))["status"]["phase"]

    reported, phase = simulate(scenario, nodes=[OPEN])

    assert reported == [f"Failed to prepare dynamic resources: prepare dynamic resources: {words}"]
    assert phase == "Pending"


def test_an_error_of_the_call_is_shown_with_its_grpc_status(simulate):
    def refuse(claims):
        raise RpcError("Internal", "no memory")

    async def scenario(world):
        await Scripted(world, refuse).start()
        await asyncio.sleep(1)
        await pod_with_claim(world)
        await asyncio.sleep(5)
        return await failures(world)

    (reported,) = simulate(scenario, nodes=[OPEN])

    assert reported.endswith("NodePrepareResources: rpc error: code = Internal desc = no memory")


def test_one_call_has_all_claims_of_the_pod(simulate):
    async def scenario(world):
        driver = await Scripted(world).start()
        await asyncio.sleep(1)
        uses = {"resourceClaims": [{"name": n, "resourceClaimName": n} for n in ("c", "d")]}
        uid = await world.create("p", bind=False, spec=uses)
        await grant(world, ("p", uid), name="c")
        await grant(world, ("p", uid), name="d", device="gpu-1")
        await world.scheduler.bind(Key("default", "p"), uid, "n1")
        await world.until_pod("p", is_running)
        return [[claim.name for claim in call] for call in driver.calls]

    assert simulate(scenario, nodes=[OPEN]) == [["c", "d"]]


def test_a_container_gets_the_cdi_devices_of_the_requests_that_it_names(simulate):
    devices = (
        PreparedDevice(DRIVER, "n1", "gpu-0", ("r",), ("v/c=0", "v/c=all")),
        PreparedDevice(DRIVER, "n1", "gpu-1", ("other",), ("v/c=1",)),
        PreparedDevice(DRIVER, "n1", "gpu-2", (), ("v/c=2",)),
    )

    async def scenario(world):
        await Scripted(world, lambda claims: {claim.uid: ClaimResult(devices) for claim in claims}).start()
        await asyncio.sleep(1)

        def container(name, **use):
            return {"name": name, "image": "i", "resources": {"claims": [{"name": "gpu", **use}]} if use else {}}

        spec = {**USES, "containers": [container("one", request="r"), container("none"), container("all", request="")]}
        uid = await world.create("p", bind=False, spec=spec)
        await grant(world, ("p", uid))
        await world.scheduler.bind(Key("default", "p"), uid, "n1")
        await world.until_pod("p", is_running)
        (line,) = world.lines("kubelet.cdi_devices")
        world.kill_kubelet()
        await world.start_kubelet()
        await world.until(lambda: bool(world.agent().kubelet.claims.cached))
        (cached,) = world.agent().kubelet.claims.cached.values()
        return line.data["containers"], cached.claim.prepared

    given, kept = simulate(scenario, nodes=[OPEN])

    assert given == {"one": ["v/c=0", "v/c=all", "v/c=2"], "all": ["v/c=0", "v/c=all", "v/c=1", "v/c=2"]}
    assert kept == devices


def test_dra_core_7_a_killed_drivers_slices_go_after_30_seconds_and_come_back_with_it(simulate):
    async def slices(world):
        return len((await world.admin.list(SLICES))[0])

    async def scenario(world):
        await pod_with_claim(world)
        await world.until_pod("p", is_running)
        world.kill_driver()
        counts = []
        for wait_s in (29.0, 2.0):
            await asyncio.sleep(wait_s)
            counts.append(await slices(world))
        world.start_driver("n1", world.config.definitions[0].drivers[0])
        await asyncio.sleep(3)
        return [*counts, await slices(world)], (await world.pod("p"))["status"]["containerStatuses"][0]["restartCount"]

    assert simulate(scenario, nodes=[NODE]) == ([1, 0, 1], 0)


def test_slices_of_the_node_are_wiped_when_its_kubelet_starts(simulate):
    async def scenario(world):
        world.kill_driver()
        world.kill_kubelet()
        await world.start_kubelet()
        await asyncio.sleep(2)
        return (await world.admin.list(SLICES))[0]

    assert simulate(scenario, nodes=[NODE]) == []


def test_kep_5194_a_pod_bound_to_a_node_that_its_allocation_is_not_for_is_not_prepared(simulate):
    async def scenario(world):
        uid = await world.create("p", bind=False, spec=USES)
        await grant(world, ("p", uid))
        selector = {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
        ]}  # fmt: skip
        claim = await world.admin.get(CLAIMS, Key("default", "c"))
        allocation = {**claim["status"]["allocation"], "nodeSelector": selector}
        reserved = claim["status"]["reservedFor"]
        key = Key("default", "c")
        empty = {"status": {"allocation": None, "reservedFor": None}}
        await world.scheduler.patch(CLAIMS, key, empty, subresource="status")
        status = {"status": {"allocation": allocation, "reservedFor": reserved}}
        await world.scheduler.patch(CLAIMS, key, status, subresource="status")
        await world.scheduler.bind(Key("default", "p"), uid, "n1")
        await asyncio.sleep(5)
        return await failures(world), world.lines("driver.prepare")

    (reported,), prepared = simulate(scenario, nodes=[NODE])

    assert reported.endswith(" is allocated for other nodes than n1")
    assert prepared == []


def test_dra_core_16_a_driver_that_guards_refuses_the_second_pod_and_it_runs_when_the_first_is_gone(simulate):
    async def scenario(world):
        await pod_with_claim(world)
        await world.until_pod("p", is_running)
        uid = await world.create("q", bind=False, spec={"resourceClaims": [{"name": "g", "resourceClaimName": "d"}]})
        await grant(world, ("q", uid), name="d")
        await world.scheduler.bind(Key("default", "q"), uid, "n1")
        await asyncio.sleep(5)
        first = await failures(world)
        await world.delete("p", 1)
        await world.until_pod("q", is_running)
        return first

    (reported,) = simulate(scenario, nodes=[NODE], switches=["dra.double_allocation_guard=driver"])

    assert "NodePrepareResources failed for ResourceClaim d: device n1/gpu-0 is prepared for claim " in reported


ANY_POD = {"resource": "jobs", "apiGroup": "batch", "name": "j", "uid": "u-j"}


@pytest.mark.parametrize(("mode", "is_prepared"), [("pods", False), ("kep5194", True)])
def test_kep_5194_4_any_pod_that_references_a_claim_of_a_workload_may_use_it_with_the_gate(simulate, mode, is_prepared):
    async def scenario(world):
        uid = await world.create("p", bind=False, spec=USES)
        asked = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}
        document = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {"devices": asked},
                    "metadata": {"name": "c", "namespace": "default"}}  # fmt: skip
        await world.admin.create(CLAIMS, document)
        world.agent().kubelet.claims._reserved_for = mode  # a kubelet may be older than the API server (kep-5194 10)
        result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
        allocation = {"devices": {"results": [result]}, "reservedForAnyPod": True}
        status = {"allocation": allocation, "reservedFor": [ANY_POD]}
        await world.scheduler.patch(CLAIMS, Key("default", "c"), {"status": status}, subresource="status")
        await world.scheduler.bind(Key("default", "p"), uid, "n1")
        await asyncio.sleep(5)
        return bool(world.lines("driver.prepare")), await failures(world)

    prepared, reported = simulate(scenario, nodes=[NODE], switches=["reserved_for.mode=kep5194"])

    assert prepared == is_prepared
    assert [" is not allowed to use ResourceClaim c (" in text for text in reported] == ([] if is_prepared else [True])


def test_kep_5729_a_claim_that_is_reserved_for_the_pods_group_by_name_is_prepared(simulate):
    async def scenario(world):
        uids = []
        for name, group in (("in", "pg"), ("out", "other")):
            spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
                    "schedulingGroup": {"podGroupName": group}}  # fmt: skip
            uids.append(await world.create(name, bind=False, spec=spec))
        await grant(world, ("in", uids[0]))
        reference = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "pg", "uid": "u-pg"}
        status = {"reservedFor": [reference]}
        await world.scheduler.patch(CLAIMS, Key("default", "c"), {"status": status}, subresource="status")
        for name, uid in zip(("in", "out"), uids, strict=True):
            await world.scheduler.bind(Key("default", name), uid, "n1")
        await world.until_pod("in", is_running)
        await asyncio.sleep(2)
        return (await world.pod("out"))["status"]["phase"], await failures(world)

    switches = ["reserved_for.mode=kep5729", "GenericWorkload=true"]
    phase, reported = simulate(scenario, nodes=[NODE], switches=switches)

    assert phase == "Pending"
    assert len(reported) == 1


def test_the_pod_resources_api_shows_devices_of_claims_with_their_cdi_ids(simulate):
    async def scenario(world):
        container = {"name": "main", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}
        uid = await world.create("p", bind=False, spec={**USES, "containers": [container]})
        claim = await grant(world, ("p", uid))
        await world.scheduler.bind(Key("default", "p"), uid, "n1")
        await world.until_pod("p", is_running)
        (route,) = [r for path, r in world.process.http_routes() if path.startswith("/podResources")]
        return claim, msgspec.json.decode(route(HttpRequest("/podResources/n1", {"node": "n1"}, {}, {}))[2])

    claim, shown = simulate(scenario, nodes=[NODE])

    (container,) = shown["pod_resources"][0]["containers"]
    assert container["dynamic_resources"] == [{"claim_name": "c", "claim_namespace": "default", "claim_resources": [
        {"cdi_devices": [{"name": f"{DRIVER}/device={claim}-gpu-0"}], "driver_name": DRIVER, "pool_name": "n1",
         "device_name": "gpu-0"},
    ]}]  # fmt: skip


@pytest.mark.parametrize(("settings", "runs"), [({"failPrepare": 1}, False), ({"failUnprepare": 1}, True)])
def test_a_driver_counts_its_failures_and_the_kubelet_asks_again(simulate, settings, runs):
    node = NODE | {"drivers": [{"name": DRIVER, "devices": 2, **settings}]}

    async def scenario(world):
        driver = world.drivers["n1", DRIVER]
        await pod_with_claim(world)
        if runs:
            await world.until_pod("p", is_running)
            await world.delete("p", 1)
        found = []
        for _ in range(2):
            await asyncio.sleep(60)
            found.append(driver.metrics())
        return await world.pod("p"), found

    pod, (early, late) = simulate(scenario, nodes=[node])

    assert pod is not None, "neither started nor gone"
    assert 1 <= early["keplab_dra_driver_failures_total"] < late["keplab_dra_driver_failures_total"]
    assert late["keplab_dra_driver_calls_total"] - late["keplab_dra_driver_failures_total"] == runs
    assert late["keplab_dra_driver_claims_prepared"] == runs
