"""A node that shuts down, is off, and boots: its pods, its heartbeats, and what others see."""

import asyncio

import msgspec

from lab.scenarios.simulation.disk import DiskFile
from services.api.meta import Key

POWER = "nodes/n1/power"
GRACEFUL = ({"name": "n1", "cpu": "4", "shutdownGracePeriod": 30, "shutdownGracePeriodCriticalPods": 10},)
CRITICAL = {"priorityClassName": "system-node-critical"}
SLOWLY = "on SIGTERM exit 0 after 5s"


def runs(pod):
    return pod is not None and pod["status"].get("phase") == "Running"


def failed(pod):
    return pod is not None and pod["status"].get("phase") == "Failed"


def say(world, text):
    world.disk_image.files[POWER] = DiskFile(text.encode())


async def node_of(world):
    return await world.admin.get("nodes", Key("", "n1"))


def ready(node):
    return next(c for c in node["status"]["conditions"] if c["type"] == "Ready")


async def events(world, reason):
    items, _ = await world.admin.list_raw("events")
    found = [msgspec.json.decode(bytes(item)) for item in items]
    return [e for e in found if e["reason"] == reason]


def test_pods_end_in_good_order_ordinary_ones_before_critical_ones(simulate):
    async def scenario(w):
        plain = await w.create("plain", run=SLOWLY)
        vital = await w.create("vital", run=SLOWLY, spec=CRITICAL)
        await w.until_pod("vital", runs)
        say(w, "shutdown")
        pod = await w.until_pod("plain", failed)
        mid = await w.pod("vital")
        node = await node_of(w)
        end = await w.until_pod("vital", failed)
        return pod, mid, end, node, w.lines("kubelet.stop", plain)[0], w.lines("kubelet.stop", vital)[0]

    pod, mid, end, node, first, second = simulate(scenario, nodes=GRACEFUL)

    assert (pod["status"]["reason"], end["status"]["reason"]) == ("Terminated", "Terminated")
    assert pod["status"]["message"] == "Pod was terminated in response to imminent node shutdown."
    disruption = next(c for c in pod["status"]["conditions"] if c["type"] == "DisruptionTarget")
    assert (disruption["status"], disruption["reason"]) == ("True", "TerminationByKubelet")
    assert mid["status"]["phase"] == "Running"
    assert (ready(node)["status"], ready(node)["reason"]) == ("False", "KubeletNotReady")
    assert ready(node)["message"] == "node is shutting down"
    assert 4.9e9 <= second.mono_ns - first.mono_ns <= 5.2e9


def test_a_pod_that_comes_while_the_node_shuts_down_is_rejected(simulate):
    async def scenario(w):
        await w.create("slow", run=SLOWLY)
        await w.until_pod("slow", runs)
        say(w, "shutdown")
        await asyncio.sleep(2)
        await w.create("late")
        return await w.until_pod("late", failed), await events(w, "NodeShutdown")

    late, reported = simulate(scenario, nodes=GRACEFUL)

    assert late["status"]["reason"] == "NodeShutdown"
    assert late["status"]["message"] == "Pod was rejected: Pod was rejected as the node is shutting down."
    assert "Shutdown manager detected shutdown event" in [e["message"] for e in reported]


def test_a_pod_that_does_not_end_has_its_groups_time_and_no_more(simulate):
    async def scenario(w):
        uid = await w.create("stubborn", run="on SIGTERM ignore", spec={"terminationGracePeriodSeconds": 600})
        await w.until_pod("stubborn", runs)
        begun = w.clock.now()
        say(w, "shutdown")
        pod = await w.until_pod("stubborn", failed)
        return pod, w.lines("kubelet.stop", uid)[0].mono_ns / 1e9 - begun

    pod, took_s = simulate(scenario, nodes=GRACEFUL)

    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert 20.0 <= took_s <= 21.1


async def messages_during(w, seconds):
    """Return how many messages are sent within these seconds."""
    sent = []

    def carry(component, way, what, now, due_s):
        sent.append(what)
        return due_s

    w.network.traffic = carry
    await asyncio.sleep(seconds)
    w.network.traffic = None
    return len(sent)


def test_a_node_that_is_off_makes_no_call(simulate):
    async def scenario(w):
        await w.create("p")
        await w.until_pod("p", runs)
        say(w, "shutdown")
        await w.until_pod("p", failed)
        await asyncio.sleep(5)
        return await messages_during(w, 60)

    # The admin of this world asks the server directly; no controller is there.
    assert simulate(scenario, nodes=GRACEFUL) == 0


def test_without_a_grace_period_the_machine_is_off_at_once_and_no_pod_is_stopped(simulate):
    async def scenario(w):
        await w.create("p", run=SLOWLY)
        await w.until_pod("p", runs)
        say(w, "shutdown")
        await asyncio.sleep(20)
        return await w.pod("p"), await node_of(w)

    pod, node = simulate(scenario)

    assert pod["status"]["phase"] == "Running"
    assert ready(node)["status"] == "True"


def test_after_a_boot_pods_that_ran_run_again_in_new_sandboxes_and_those_that_ended_do_not(simulate):
    async def scenario(w):
        uid = await w.create("p")
        await w.create("done", run="exit 0 after 1s", spec={"restartPolicy": "Never"})
        await w.until_pod("done", lambda p: p["status"].get("phase") == "Succeeded")
        await w.until_pod("p", runs)
        before = await node_of(w)
        say(w, "off")
        await asyncio.sleep(10)
        say(w, "on 1")
        pod = await w.until_pod("p", lambda p: p["status"]["containerStatuses"][0]["restartCount"] == 1 and runs(p))
        return (
            uid,
            before,
            await node_of(w),
            pod,
            await w.pod("done"),
            w.lines("node.boot"),
            w.lines("kubelet.start", uid),
        )

    uid, before, after, pod, done, boots, starts = simulate(scenario)

    assert before["status"]["nodeInfo"]["bootID"] != after["status"]["nodeInfo"]["bootID"]
    assert pod["metadata"]["uid"] == uid
    assert len(boots) == 1
    assert len(starts) == 2
    assert done["status"]["phase"] == "Succeeded"


def test_a_booted_node_records_it_and_is_ready_again(simulate):
    async def scenario(w):
        say(w, "off")
        await asyncio.sleep(5)
        say(w, "on 1")
        await asyncio.sleep(5)
        node = await node_of(w)
        return node, await events(w, "Rebooted"), w.agent().is_ready

    node, reported, is_ready = simulate(scenario, nodes=GRACEFUL)

    assert [e["message"] for e in reported] == [
        f"Node n1 has been rebooted, boot id: {node['status']['nodeInfo']['bootID']}"
    ]
    assert (ready(node)["status"], is_ready) == ("True", True)


def test_a_boot_is_not_repeated_by_the_next_kubelet_nor_forgotten(simulate):
    async def scenario(w):
        await w.create("p")
        await w.until_pod("p", runs)
        say(w, "on 1")
        await w.until_pod("p", lambda p: p["status"]["containerStatuses"][0]["restartCount"] == 1 and runs(p))
        booted = await node_of(w)
        w.kill_kubelet()
        await asyncio.sleep(5)
        await w.start_kubelet()
        await asyncio.sleep(10)
        return booted, await node_of(w), await w.pod("p")

    booted, node, pod = simulate(scenario)

    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1
    assert node["status"]["nodeInfo"]["bootID"] == booted["status"]["nodeInfo"]["bootID"]


def test_a_kubelet_that_begins_on_a_node_without_power_does_nothing_until_it_is_booted(simulate):
    async def scenario(w):
        await w.create("p")
        await w.until_pod("p", runs)
        w.kill_kubelet()
        say(w, "off")
        await w.start_kubelet()
        silent = await messages_during(w, 30)
        say(w, "on 7")
        pod = await w.until_pod("p", lambda p: p["status"]["containerStatuses"][0]["restartCount"] == 1 and runs(p))
        return silent, pod

    silent, pod = simulate(scenario)

    assert silent == 0
    assert runs(pod)


def test_the_other_nodes_of_a_process_live_on(simulate):
    async def scenario(w):
        await w.create("here", node="n2")
        say(w, "off")
        await w.until_pod("here", runs)
        await asyncio.sleep(60)
        await w.create("there", node="n2")
        return await w.until_pod("there", runs)

    assert runs(simulate(scenario, nodes=({"name": "n1"}, {"name": "n2"})))


def test_static_pods_run_again_after_a_shutdown_and_their_mirror_is_a_new_one(simulate):
    manifest = b"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: img}]}"

    async def scenario(w):
        w.disk_image.files["nodes/n1/static-pods/web.yaml"] = DiskFile(manifest)
        before = await w.until_pod("web-n1", runs)
        say(w, "shutdown")
        ended = await w.until_pod("web-n1", failed)
        await asyncio.sleep(5)
        say(w, "on 1")
        return before, ended, await w.until_pod("web-n1", runs)

    before, ended, after = simulate(scenario, nodes=GRACEFUL)

    assert before["metadata"]["uid"] == ended["metadata"]["uid"] != after["metadata"]["uid"]
