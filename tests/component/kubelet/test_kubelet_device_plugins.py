"""Device plugins of a node: what they say decides who may start, what the Node shows and what is reported."""

import asyncio

import msgspec
import pytest

from kubelet.deviceplugin import wire
from kubelet.deviceplugin.emulated.serving import PluginConfig, command_plugin
from kubelet.deviceplugin.emulated.serving import build as build_plugin
from kubelet.managers.device_calls import AllocateResult, Device, Options, Registration
from lab.scenarios.simulation.disk import DiskImage
from lab.scenarios.simulation.lifetime import Lifetime
from lab.scenarios.simulation.sockets import SimSockets
from services.api.identity import Identity
from services.api.local_rpc import LocalService, RpcError
from services.api.meta import Key
from services.client.link_faults import LinkFaults
from services.runtime.health import HttpRequest

GPU = "example.com/gpu"
ONE = {GPU: "1"}
NODE = {"name": "n1", "cpu": "16", "deviceSocket": True}
SOCKET = "nodes/n1/kubelet.sock"


def running(pod):
    return pod is not None and pod["status"].get("phase") == "Running"


def failed(pod):
    return pod is not None and pod["status"].get("phase") == "Failed"


def restarts(pod):
    return sum(container["restartCount"] for container in pod["status"].get("containerStatuses", ()))


class Plugin:
    """The emulated plugin, as a process of the world."""

    def __init__(self, world, node, definition):
        self.world, self.node, self.definition = world, node, {"resource": GPU, **definition}
        self.lives = 0

    async def start(self):
        self.lives += 1
        name = f"device-plugin/{self.node}"
        self.life = Lifetime(name, self.lives)
        config = PluginConfig(name=name, node=self.node, definition=msgspec.json.encode(self.definition).decode())
        self.process = build_plugin(config, self.world.seams(name, self.life, DiskImage(), Identity("plugin")))
        task = asyncio.create_task(self.process.run())
        self.life.adopt(task)
        self.world.tasks.append(task)
        await self.world.until(lambda: self.process.is_ready)
        return self

    def kill(self):
        self.life.end()

    async def command(self, act, *devices):
        sockets = SimSockets(self.world.machine_sockets, Lifetime("test", 1))
        await command_plugin(sockets, "nodes", self.node, self.definition["resource"], act, devices)


async def plugin(world, node="n1", **definition):
    started = await Plugin(world, node, definition).start()
    await shows(world, definition.get("devices", 1), node=node)
    return started


async def node_status(world, node="n1"):
    status = (await world.admin.get("nodes", Key("", node)))["status"]
    return status["capacity"].get(GPU), status["allocatable"].get(GPU)


async def shows(world, allocatable, node="n1", limit_s=5.0):
    """Wait until the Node offers so many; return how long that took."""
    begun = world.clock.now()
    while (await node_status(world, node))[1] != str(allocatable):
        assert world.clock.now() - begun < limit_s, await node_status(world, node)
        await asyncio.sleep(0.01)
    return world.clock.now() - begun


def ids_of(world, uid):
    (line,) = world.lines("kubelet.devices", uid)
    return {share["container"]: tuple(share["ids"]) for share in line.data["shares"]}


async def register(world, life=None, **asked):
    """Register as some plugin would that is not ours."""
    sockets = SimSockets(world.machine_sockets, life or Lifetime("other", 1))
    request = Registration(**{"version": "v1beta1", "endpoint": "other.sock", "resource": GPU, **asked})
    connection = sockets.dial(SOCKET)
    await connection.call(wire.REGISTER, wire.encode_registration(request))
    return sockets


def test_a_plugin_whose_folder_was_removed_still_takes_commands(simulate):
    async def scenario(w):
        gpus = await plugin(w, devices=2)
        SimSockets(w.machine_sockets, Lifetime("another", 1)).clear("nodes/n1/plugins")
        await asyncio.sleep(1)
        await gpus.command("unhealthy", "dev-0")
        return await shows(w, 1, limit_s=2.0)

    assert simulate(scenario, nodes=(NODE,)) < 2


def test_what_a_plugin_says_while_the_first_status_is_under_way_is_reported_next(simulate):
    async def scenario(w):
        gpus = await plugin(w, devices=2)
        w.kill_kubelet()
        w.network.profile("kubelet/h0").faults = LinkFaults(slow_s=1.0)
        begun = w.clock.now()
        await w.start_kubelet(wait=False)
        await w.until(lambda: w.lines("kubelet.session") and not w.lines("kubelet.session")[-1].data["acked"])
        await asyncio.sleep(0.5)
        await gpus.command("unhealthy", "dev-0")
        await shows(w, 1, limit_s=10.0)
        return w.clock.now() - begun

    assert simulate(scenario, nodes=(NODE,)) < 10


# --- kubelet, acceptance scenario 13, part by part ---


def test_kubelet_13_a_plugin_that_stops_leaves_nothing_allocatable_within_two_seconds(simulate):
    async def scenario(w):
        gpus = await plugin(w, devices=2)
        await gpus.command("stop")
        took_s = await shows(w, 0, limit_s=2.0)
        uid = await w.create("late", devices=ONE)
        late = await w.until_pod("late", failed)
        return took_s, await node_status(w), late["status"], w.lines("kubelet.reject", uid)

    took_s, (capacity, _), status, rejections = simulate(scenario, nodes=(NODE,))

    assert took_s < 2
    assert capacity == "2"
    assert status["reason"] == "UnexpectedAdmissionError"
    assert status["message"] == (
        "Pod was rejected: Allocate failed due to no healthy devices present; "
        f"cannot allocate unhealthy devices {GPU}, which is unexpected"
    )
    assert len(rejections) == 1


@pytest.mark.parametrize("returns", [False, True])
def test_kubelet_13_a_running_pod_survives_a_kubelet_restart_without_the_plugin(simulate, returns):
    async def scenario(w):
        gpus = await plugin(w, devices=2)
        await w.create("holder", devices=ONE)
        await w.until_pod("holder", running)
        gpus.kill()
        w.kill_kubelet()
        await asyncio.sleep(3)
        await w.start_kubelet()
        await asyncio.sleep(20)
        if returns:
            await gpus.start()
            await shows(w, 2)
        second = await w.create("second", devices={GPU: "2"})
        rejected = await w.until_pod("second", failed)
        return await w.pod("holder"), rejected["status"]["message"], w.lines("kubelet.reject", second)

    holder, message, _ = simulate(scenario, nodes=(NODE,))

    assert holder["status"]["phase"] == "Running"
    assert holder["status"]["containerStatuses"][0]["restartCount"] == 0
    # Its device is still its own: of two that are back, one is free.
    assert ("Requested: 2, Available: 1" if returns else "no healthy devices present") in message


def test_kubelet_2_1_five_minutes_after_its_plugin_a_resource_has_no_capacity_but_is_known(simulate):
    async def scenario(w):
        gpus = await plugin(w, devices=2)
        await w.create("holder", devices=ONE)
        await w.until_pod("holder", running)
        gpus.kill()
        await shows(w, 0)
        await asyncio.sleep(298)
        before = await node_status(w)
        await asyncio.sleep(4)
        after = await node_status(w)
        await w.create("unlucky", devices=ONE)
        unlucky = await w.until_pod("unlucky", failed)
        await w.delete("holder", grace_s=0)
        await w.until_pod("holder", lambda pod: pod is None)
        await asyncio.sleep(5)
        await w.create("last", devices=ONE)
        last = await w.until_pod("last", failed)
        return before, after, unlucky["status"]["message"], last["status"]["reason"]

    before, after, unlucky, last = simulate(scenario, nodes=(NODE,))

    assert (before, after) == (("2", "0"), ("0", "0"))
    # As long as a pod has a device it is the device manager's affair, then that of the predicates.
    assert f"cannot allocate unregistered device {GPU}" in unlucky
    assert last == f"OutOf{GPU}"


# --- who registers, and how ---


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"version": "v1alpha"},
            'requested API version "v1alpha" is not supported by kubelet. Supported version is ["v1beta1"]',
        ),
        ({"resource": "gpu"}, 'the ResourceName "gpu" is invalid'),
        ({"resource": "kubernetes.io/gpu"}, 'the ResourceName "kubernetes.io/gpu" is invalid'),
        ({"resource": "requests.example.com/gpu"}, 'the ResourceName "requests.example.com/gpu" is invalid'),
        ({"endpoint": "absent.sock"}, "failed to dial device plugin: context deadline exceeded"),
    ],
)
def test_a_bad_registration_is_refused_in_kubernetes_words(simulate, asked, said):
    async def scenario(w):
        with pytest.raises(RpcError) as refused:
            await register(w, **asked)
        await asyncio.sleep(1)
        return refused.value, await node_status(w)

    refused, shown = simulate(scenario, nodes=(NODE,))

    assert (refused.code, refused.message) == ("Unknown", said)
    assert shown == (None, None)


def test_a_plugin_that_does_not_say_its_options_is_refused(simulate):
    async def scenario(w):
        await SimSockets(w.machine_sockets, Lifetime("other", 1)).serve("nodes/n1/other.sock", LocalService({}))
        with pytest.raises(RpcError) as refused:
            await register(w)
        return refused.value.message

    assert simulate(scenario, nodes=(NODE,)).startswith("failed to get device plugin options: rpc error: code = Unimpl")


def test_of_two_plugins_for_one_resource_the_last_to_register_wins(simulate):
    async def scenario(w):
        first = await plugin(w, devices=4)
        life = Lifetime("other", 1)

        async def options(_):
            return wire.encode_options(Options())

        async def devices(_):
            yield wire.encode_devices([Device("mine")])
            await asyncio.sleep(1000)

        service = LocalService({wire.GET_OPTIONS: options}, {wire.LIST_AND_WATCH: devices})
        await SimSockets(w.machine_sockets, life).serve("nodes/n1/other.sock", service)
        await register(w, life)
        await shows(w, 1)
        await first.command("unhealthy", "dev-0")
        first.kill()
        await asyncio.sleep(5)
        return await node_status(w)

    # What the first one still says, and that it ends, is not received any more.
    assert simulate(scenario, nodes=(NODE,)) == ("1", "1")


def test_a_node_that_takes_no_plugins_opens_no_socket(simulate):
    async def scenario(w):
        with pytest.raises(RpcError) as refused:
            await register(w)
        return refused.value.code, w.agent().devices

    assert simulate(scenario, nodes=({"name": "n1", "cpu": "4"},)) == ("Unavailable", None)


def test_after_a_restart_plugins_register_again_and_the_node_offers_none_until_then(simulate):
    async def scenario(w):
        gpus = await plugin(w, devices=3, delayS=10)
        w.kill_kubelet()
        await asyncio.sleep(1)
        await w.start_kubelet()
        await shows(w, 0)
        shown = await node_status(w)
        took_s = await shows(w, 3, limit_s=15)
        return shown, took_s, gpus.process.metrics()["keplab_device_plugin_registrations_total"]

    shown, took_s, registrations = simulate(scenario, nodes=(NODE,))

    assert shown == ("0", "0")
    assert 9 < took_s < 12
    assert registrations == 2


def test_a_plugin_that_returns_with_fewer_devices_leaves_pods_what_they_have(simulate):
    async def scenario(w):
        gpus = await plugin(w, devices=3)
        uid = await w.create("holder", devices={GPU: "3"})
        await w.until_pod("holder", running)
        await gpus.command("stop")
        await shows(w, 0)
        await gpus.command("remove", "dev-2")
        await gpus.command("start")
        await shows(w, 2)
        await asyncio.sleep(5)
        return (await w.pod("holder"))["status"]["phase"], await node_status(w), ids_of(w, uid)

    phase, shown, ids = simulate(scenario, nodes=(NODE,))

    assert (phase, shown) == ("Running", ("2", "2"))
    assert ids == {"main": ("dev-0", "dev-1", "dev-2")}


# --- admission ---


def test_what_allocate_gave_is_logged_and_kept_with_the_pods_record(simulate):
    async def scenario(w):
        await plugin(w, devices=2)
        uid = await w.create("a", devices=ONE)
        await w.until_pod("a", running)
        return w.lines("kubelet.devices", uid)[0].data["shares"][0], w.agent().kubelet.table.pods

    share, workers = simulate(scenario, nodes=(NODE,))

    assert share["given"]["envs"] == {"KEPLAB_DEVICES_EXAMPLE_COM_GPU": "dev-0"}
    assert share["given"]["annotations"] == {"devices.keplab.dev/gpu": "dev-0"}
    (worker,) = workers.values()
    assert worker.record().allocation.devices[0].given.nodes[0].container_path == "/dev/dev-0"


def test_the_process_serves_which_pod_has_which_devices_and_what_was_given(simulate):
    async def scenario(w):
        await plugin(w, devices=2, topology=[0, 1])
        await w.create("a", devices=ONE)
        await w.until_pod("a", running)
        (_, route), *_ = [r for r in w.process.http_routes() if r[0].startswith("/podResources")]
        return [route(HttpRequest(f"/podResources/{node}", {"node": node}, {}, {})) for node in ("n1", "n2")]

    (code, _, body), (missing, _, _) = simulate(scenario, nodes=({**NODE, "numa": "2x8"},))

    reported = msgspec.json.decode(body)
    (device,) = reported["pod_resources"][0]["containers"][0]["devices"]
    assert (code, missing) == (200, 404)
    assert (device["resource_name"], device["device_ids"], device["topology"]) == (
        GPU,
        ["dev-0"],
        {"nodes": [{"ID": 0}]},
    )
    assert device["given"]["envs"] == {"KEPLAB_DEVICES_EXAMPLE_COM_GPU": "dev-0"}
    assert [each["device_ids"] for each in reported["allocatable_resources"]["devices"]] == [["dev-0"], ["dev-1"]]


def test_a_plugin_that_refuses_rejects_the_pod_with_its_words_and_takes_nothing(simulate):
    async def scenario(w):
        gpus = await plugin(w, devices=1)
        await gpus.command("refuse")
        await w.create("a", devices=ONE)
        rejected = await w.until_pod("a", failed)
        await gpus.command("accept")
        await w.create("b", devices=ONE)
        await w.until_pod("b", running)
        return rejected["status"]["message"]

    assert simulate(scenario, nodes=(NODE,)) == (
        "Pod was rejected: Allocate failed due to "
        f"rpc error: code = Unknown desc = {GPU} is configured to refuse, which is unexpected"
    )


def test_while_a_plugin_is_asked_no_other_pod_is_admitted_and_then_all_go_in_order(simulate):
    async def scenario(w):
        sockets = SimSockets(w.machine_sockets, Lifetime("other", 1))
        answered = asyncio.Event()

        async def options(_):
            return wire.encode_options(Options())

        async def devices(_):
            yield wire.encode_devices([Device("d0"), Device("d1")])
            await asyncio.sleep(1000)

        async def allocate(_):
            await answered.wait()
            return wire.encode_given([AllocateResult()])

        service = LocalService({wire.GET_OPTIONS: options, wire.ALLOCATE: allocate}, {wire.LIST_AND_WATCH: devices})
        await sockets.serve("nodes/n1/other.sock", service)
        await register(w)
        await shows(w, 2)
        slow = await w.create("slow", devices=ONE)
        await asyncio.sleep(1)
        plain = await w.create("plain")
        gone = await w.create("gone", devices=ONE)
        await asyncio.sleep(5)
        waiting = w.lines("kubelet.admit")
        await w.delete("gone", grace_s=0)
        await asyncio.sleep(1)
        answered.set()
        await w.until_pod("plain", running)
        await w.until_pod("slow", running)
        return waiting, [line.obj["uid"] for line in w.lines("kubelet.admit")], [slow, plain], gone

    waiting, admitted, expected, gone = simulate(scenario, nodes=(NODE,))

    assert waiting == []
    assert admitted == expected
    assert gone not in admitted


def test_a_pod_deleted_while_its_plugin_is_asked_leaves_its_device_free(simulate):
    async def scenario(w):
        sockets = SimSockets(w.machine_sockets, Lifetime("other", 1))
        answered = asyncio.Event()

        async def options(_):
            return wire.encode_options(Options())

        async def devices(_):
            yield wire.encode_devices([Device("d0")])
            await asyncio.sleep(1000)

        async def allocate(_):
            await answered.wait()
            return wire.encode_given([AllocateResult()])

        service = LocalService({wire.GET_OPTIONS: options, wire.ALLOCATE: allocate}, {wire.LIST_AND_WATCH: devices})
        await sockets.serve("nodes/n1/other.sock", service)
        await register(w)
        await shows(w, 1)
        await w.create("first", devices=ONE)
        await asyncio.sleep(1)
        await w.delete("first", grace_s=0)
        await w.create("second", devices=ONE)
        await asyncio.sleep(1)
        answered.set()
        return running(await w.until_pod("second", running))

    assert simulate(scenario, nodes=(NODE,))


def test_init_containers_devices_are_used_again_and_allocate_is_called_for_each_container(simulate):
    async def scenario(w):
        await plugin(w, devices=2)
        limits = {"resources": {"limits": {"cpu": "1", "memory": "64Mi", GPU: "1"}}}
        spec = {
            "initContainers": [{"name": "init", "image": "busybox", **limits}],
            "containers": [{"name": name, "image": "busybox", **limits} for name in ("a", "b")],
        }
        uid = await w.create("pod", spec=spec, run="init: exit 0 after 1s")
        await w.until_pod("pod", running)
        return ids_of(w, uid), [line.data["containers"] for line in w.lines("plugin.allocate")]

    ids, calls = simulate(scenario, nodes=(NODE,))

    assert ids == {"init": ("dev-0",), "a": ("dev-0",), "b": ("dev-1",)}
    assert calls == [[["dev-0"]], [["dev-0"]], [["dev-1"]]]


@pytest.mark.parametrize(("preferred", "chosen"), [("pairs", ("dev-2", "dev-3")), ("spread", ("dev-0", "dev-2"))])
def test_a_plugins_preference_decides_among_what_is_free(simulate, preferred, chosen):
    async def scenario(w):
        await plugin(w, devices=4, preferred=preferred)
        first = await w.create("one", devices=ONE)
        await w.until_pod("one", running)
        if preferred == "spread":
            await w.delete("one", grace_s=0)
            await w.until_pod("one", lambda pod: pod is None)
            await asyncio.sleep(5)
        uid = await w.create("two", devices={GPU: "2"})
        await w.until_pod("two", running)
        return ids_of(w, first), ids_of(w, uid)

    first, two = simulate(scenario, nodes=(NODE,))

    assert first == {"main": ("dev-0",)}
    assert two == {"main": chosen}


def test_devices_and_cpus_are_aligned_by_the_plugins_topology(simulate):
    async def scenario(w):
        await plugin(w, devices=4, topology=[0, 0, 1, 1])
        uids = []
        for name in ("a", "b"):
            uids.append(await w.create(name, cpu="2", devices={GPU: "2"}))
            await w.until_pod(name, running)
        await w.create("c", cpu="2", devices={GPU: "1"})
        rejected = await w.until_pod("c", failed)
        allocations = [w.agent().kubelet.ledger.entries[key].allocation for key in w.agent().kubelet.ledger.entries]
        return allocations, rejected["status"]["reason"]

    numa = {"name": "n1", "numa": "2x8", "topologyPolicy": "single-numa-node", "deviceSocket": True}
    (a, b), reason = simulate(scenario, nodes=(numa,))

    assert [a.devices[0].ids, b.devices[0].ids] == [("dev-0", "dev-1"), ("dev-2", "dev-3")]
    assert {cpu // 8 for cpu in a.cpus} == {0}
    assert {cpu // 8 for cpu in b.cpus} == {1}
    assert reason == "TopologyAffinityError"


# --- before containers start, and while they run ---


def test_a_plugin_that_wants_to_know_is_called_before_every_start(simulate):
    async def scenario(w):
        await plugin(w, devices=1, preStart=True)
        await w.create("a", devices=ONE, run="exit 1 after 1s")
        await w.until_pod("a", lambda pod: restarts(pod) == 2)
        starts = [line.mono_ns for line in w.lines("plugin.pre_start")]
        return len(starts), starts[0] < w.lines("kubelet.start")[0].mono_ns

    assert simulate(scenario, nodes=(NODE,)) == (3, True)


def test_without_its_plugin_such_a_container_does_not_start_and_is_tried_again(simulate):
    async def scenario(w):
        gpus = await plugin(w, devices=1, preStart=True)
        await w.create("a", devices=ONE, run="exit 1 after 5s")
        await w.until_pod("a", running)
        await gpus.command("stop")
        waiting = await w.until_pod("a", lambda pod: "waiting" in pod["status"]["containerStatuses"][0]["state"])
        stuck = await w.until_pod(
            "a",
            lambda pod: (
                pod["status"]["containerStatuses"][0]["state"].get("waiting", {}).get("reason")
                == "CreateContainerConfigError"
            ),
        )
        await gpus.command("start")
        await w.until_pod("a", lambda pod: "running" in pod["status"]["containerStatuses"][0]["state"])
        return waiting, stuck["status"]["containerStatuses"][0]["state"]["waiting"]["message"]

    _, message = simulate(scenario, nodes=(NODE,))

    assert message == f"device plugin PreStartContainer rpc failed with err: endpoint {GPU} has been stopped"


def test_kubelet_5_5_a_container_that_must_start_again_after_a_restart_needs_its_devices_healthy(simulate):
    async def scenario(w):
        gpus = await plugin(w, devices=2)
        await w.create("crashing", devices=ONE, run="exit 1 after 1s")
        await w.create("steady", devices=ONE)
        await w.until_pod("steady", running)
        await w.until_pod(
            "crashing", lambda pod: (pod["status"]["containerStatuses"][0]["state"].get("waiting") or {}).get("reason")
        )
        await asyncio.sleep(30)
        gpus.kill()
        w.kill_kubelet()
        await w.start_kubelet()
        crashed = await w.until_pod("crashing", failed)
        return crashed["status"], (await w.pod("steady"))["status"]["phase"]

    status, phase = simulate(scenario, nodes=(NODE,))

    assert (status["reason"], phase) == ("UnexpectedAdmissionError", "Running")
    assert f"no healthy devices present; cannot allocate unhealthy devices {GPU}" in status["message"]


@pytest.mark.parametrize("gate", [True, False])
def test_kep_4680_a_containers_status_shows_the_health_of_its_devices(simulate, gate):
    async def scenario(w):
        gpus = await plugin(w, devices=2)
        await w.create("a", devices=ONE)
        await w.until_pod("a", running)
        await gpus.command("unhealthy", "dev-0")
        await asyncio.sleep(2)
        ill = (await w.pod("a"))["status"]["containerStatuses"][0].get("allocatedResourcesStatus")
        await gpus.command("healthy", "dev-0")
        await asyncio.sleep(2)
        well = (await w.pod("a"))["status"]["containerStatuses"][0].get("allocatedResourcesStatus")
        return ill, well, running(await w.pod("a"))

    ill, well, still_runs = simulate(scenario, nodes=(NODE,), switches=(f"ResourceHealthStatus={str(gate).lower()}",))

    def recorded(health):
        return [{"name": GPU, "resources": [{"resourceID": "dev-0", "health": health}]}] if gate else None

    assert (ill, well, still_runs) == (recorded("Unhealthy"), recorded("Healthy"), True)


# --- deferral until the plugin is there (kubelet-unbinding 2) ---


def test_unbinding_2_a_deferred_pod_runs_the_moment_its_plugin_is_back(simulate):
    async def scenario(w):
        gpus = await plugin(w, devices=1)
        await gpus.command("stop")
        await shows(w, 0)
        await w.create("a", devices=ONE)
        await asyncio.sleep(12.3)
        waiting = await w.pod("a")
        begun = w.clock.now()
        await gpus.command("start")
        await w.until_pod("a", running)
        return waiting["status"]["phase"], w.clock.now() - begun

    phase, took_s = simulate(scenario, nodes=(NODE,), switches=("kubelet.on_reject=defer", "defer.period_s=1000"))

    assert phase == "Pending"
    assert took_s < 0.5


def test_unbinding_2_how_long_a_pod_waits_for_its_devices_is_a_switch_of_its_own(simulate):
    async def scenario(w):
        gpus = await plugin(w, devices=1)
        await gpus.command("stop")
        await shows(w, 0)
        begun = w.clock.now()
        await w.create("a", devices=ONE)
        pod = await w.until_pod("a", failed, limit_s=100)
        return w.clock.now() - begun, pod["status"]["message"]

    switches = ("kubelet.on_reject=defer", "device.defer_timeout_s=60", "defer.timeout_s=5")
    took_s, message = simulate(scenario, nodes=(NODE,), switches=switches)

    assert 60 <= took_s < 61
    assert message.endswith("(deferred for 60 s)")
