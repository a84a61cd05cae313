"""Static pods and their mirrors: a node, its files, and the API server between."""

import asyncio

import msgspec

from kubelet.unbind.unbinding import unbind_body
from kubelet.view import KubeletPod, WorkerKey
from lab.scenarios.simulation.disk import DiskFile
from services.api.errors import ApiError
from services.api.identity import Identity
from services.api.meta import Key
from services.api.wire import encode
from services.client.link_faults import LinkFaults

FOLDER = "nodes/n1/static-pods/"


def manifest(name="web", image="shop:1", **extra):
    lines = ["apiVersion: v1", "kind: Pod", f"metadata: {{name: {name}{extra.get('meta', '')}}}", "spec:"]
    lines += [f"  {line}" for line in extra.get("spec", ())]
    lines += ["  containers:", f"  - {{name: main, image: '{image}'{extra.get('container', '')}}}"]
    return "\n".join(lines).encode()


def put(world, file, data):
    world.disk_image.files[FOLDER + file] = DiskFile(data)


def runs(pod):
    return pod is not None and pod["status"].get("phase") == "Running"


def test_a_manifest_becomes_a_pod_that_its_mirror_shows(simulate):
    async def scenario(world):
        put(world, "web.yaml", manifest())
        pod = await world.until_pod("web-n1", runs)
        return pod, world.lines("kubelet.start")

    pod, starts = simulate(scenario)

    notes = pod["metadata"]["annotations"]
    assert notes["kubernetes.io/config.source"] == "file"
    assert notes["kubernetes.io/config.hash"] == notes["kubernetes.io/config.mirror"] == starts[0].obj["uid"]
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "Node"
    assert pod["spec"]["nodeName"] == "n1"
    assert [line.obj["name"] for line in starts] == ["web-n1"]


def test_a_mirror_that_is_deleted_comes_back_and_its_pod_runs_on(simulate):
    async def scenario(world):
        put(world, "web.yaml", manifest())
        before = await world.until_pod("web-n1", runs)
        await world.delete("web-n1")
        after = await world.until_pod("web-n1", lambda p: runs(p) and p["metadata"]["uid"] != before["metadata"]["uid"])
        return before, after, world.lines("kubelet.start"), world.lines("kubelet.stop")

    before, after, starts, stops = simulate(scenario)

    assert (len(starts), len(stops)) == (1, 0)
    assert (
        after["status"]["containerStatuses"][0]["containerID"]
        == before["status"]["containerStatuses"][0]["containerID"]
    )
    assert after["status"]["startTime"] == before["status"]["startTime"]


def test_a_changed_manifest_ends_the_old_pod_before_the_new_one_starts(simulate):
    async def scenario(world):
        put(world, "web.yaml", manifest(meta=", annotations: {keplab.dev/run: on SIGTERM exit 0 after 3s}"))
        await world.until_pod("web-n1", runs)
        put(world, "web.yaml", manifest(image="shop:2"))
        pod = await world.until_pod("web-n1", lambda p: runs(p) and p["spec"]["containers"][0]["image"] == "shop:2")
        return pod, world.lines("kubelet.start"), world.lines("kubelet.stop")

    pod, starts, stops = simulate(scenario)

    assert len(starts) == 2
    assert starts[0].obj["uid"] == stops[0].obj["uid"] != starts[1].obj["uid"]
    assert starts[0].mono_ns + 3_000_000_000 < stops[0].mono_ns <= starts[1].mono_ns
    assert pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] == starts[1].obj["uid"]


def test_a_manifest_that_is_removed_takes_its_pod_and_then_the_mirror_along(simulate):
    async def scenario(world):
        put(world, "web.yaml", manifest())
        await world.until_pod("web-n1", runs)
        del world.disk_image.files[FOLDER + "web.yaml"]
        await world.until_pod("web-n1", lambda p: p is None)
        return world.lines("kubelet.stop"), world.agent().kubelet.ledger.used["pods"]

    stops, pods = simulate(scenario)

    assert (len(stops), pods) == (1, 0)


def test_without_the_api_server_static_pods_start_and_are_shown_by_mirrors_later(simulate):
    async def scenario(world):
        world.kill_kubelet()
        world.network.profile("kubelet/h0").faults = LinkFaults(cut="requests")
        put(world, "web.yaml", manifest())
        await world.start_kubelet(wait=False)
        await asyncio.sleep(5)
        started = world.lines("kubelet.start")
        shown = await world.pod("web-n1")
        world.network.profile("kubelet/h0").faults = LinkFaults()
        pod = await world.until_pod("web-n1", runs)
        return started, shown, pod

    started, shown, pod = simulate(scenario)

    assert (len(started), shown) == (1, None)
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_restarted_kubelet_takes_over_its_static_pods(simulate):
    async def scenario(world):
        put(world, "web.yaml", manifest())
        before = await world.until_pod("web-n1", runs)
        world.kill_kubelet()
        await asyncio.sleep(5)
        await world.start_kubelet()
        await asyncio.sleep(5)
        return before, await world.pod("web-n1"), world.lines("kubelet.start")

    before, after, starts = simulate(scenario)

    assert len(starts) == 1
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_static_pod_evicts_lower_pods_on_a_full_node(simulate):
    async def scenario(world):
        await world.create("small", cpu="3")
        await world.until_pod("small", runs)
        put(world, "web.yaml", manifest(container=", resources: {requests: {cpu: 2}}"))
        await world.until_pod("web-n1", runs)
        return await world.pod("small")

    small = simulate(scenario)

    assert (small["status"]["phase"], small["status"]["reason"]) == ("Failed", "Preempting")


def test_a_static_pod_that_can_never_fit_is_rejected_and_its_mirror_says_so(simulate):
    async def scenario(world):
        put(world, "web.yaml", manifest(container=", resources: {requests: {cpu: 8}}"))
        return await world.until_pod("web-n1", lambda p: p is not None and p["status"].get("phase") == "Failed")

    pod = simulate(scenario)

    assert pod["status"]["reason"] == "OutOfcpu"


def test_a_file_that_describes_no_pod_stops_no_other_pod(simulate):
    async def scenario(world):
        put(world, "bad.yaml", b"kind: Pod")
        put(world, "secret.yaml", manifest("vault", spec=["volumes: [{name: s, secret: {secretName: s}}]"]))
        put(world, "web.yaml", manifest())
        await world.until_pod("web-n1", runs)
        return await world.pod("vault-n1")

    assert simulate(scenario) is None


def test_static_pods_of_the_node_definition_run_too(simulate):
    document = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "dns", "namespace": "kube-system"},
        "spec": {"priorityClassName": "system-node-critical", "containers": [{"name": "main", "image": "dns"}]},
    }  # fmt: skip

    async def scenario(world):
        while True:
            try:
                return await world.admin.get("pods", Key("kube-system", "dns-n1"))
            except ApiError:
                await asyncio.sleep(0.1)

    pod = simulate(scenario, nodes=({"name": "n1", "cpu": "4", "staticPods": [document]},))

    assert pod["spec"]["priority"] == 2_000_001_000


def test_a_mirror_without_a_manifest_is_removed(simulate):
    async def scenario(world):
        node = await world.admin.get("nodes", Key("", "n1"))
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["metadata"]["uid"], "controller": True}
        notes = {"kubernetes.io/config.mirror": "unknown"}
        await world.create("ghost", bind=False, spec={"nodeName": "n1"}, annotations=notes, ownerReferences=[owner])
        await world.until_pod("ghost", lambda p: p is None)
        return world.lines("kubelet.start")

    assert simulate(scenario) == []


def test_the_mirror_of_a_static_pod_is_not_given_back(simulate):
    async def scenario(world):
        put(world, "web.yaml", manifest(meta=", annotations: {keplab.dev/run: pull fails}"))
        mirror = await world.until_pod("web-n1", lambda p: p is not None)
        pod, key = msgspec.convert(mirror, KubeletPod), WorkerKey(mirror["metadata"]["uid"], 0)
        body = unbind_body(pod, key, "n1", world.agent().session, "OutOfcpu", "", fence="session")
        return await world.call(
            Identity("system:node:n1", ("system:nodes",)), verb="create", resource="pods", namespace="default",
            name="web-n1", subresource="unbind", uid=key.uid, body=encode(body),
        )  # fmt: skip

    response = simulate(scenario)

    assert (response.code, response.error().reason) == (422, "Exempt")
