"""Images and the disk they are on: what a short disk costs."""

import asyncio

from services.api.meta import Key

NODES = ({"name": "n1", "cpu": "4", "ephemeralStorage": "10G", "imageGCHighThresholdPercent": 99},)


def runs(pod):
    return pod["status"].get("phase") == "Running"


async def node_until(w, condition, limit_s):
    end = w.clock.now() + limit_s
    while not condition(node := await w.admin.get("nodes", Key("", "n1"))):
        assert w.clock.now() < end, node["status"]
        await asyncio.sleep(1.0)
    return node


def has_pressure(node):
    return next(c for c in node["status"]["conditions"] if c["type"] == "DiskPressure")["status"] == "True"


def names(node):
    return [each["names"][0] for each in node["status"].get("images", ())]


def test_kubelet_7_a_disk_short_of_room_for_images_costs_those_that_nobody_uses_and_no_pod(simulate):
    async def scenario(w):
        await w.create("kept", run="pull 90.2s")
        await w.until_pod("kept", runs, limit_s=120)
        spec = {"containers": [{"name": "main", "image": "other"}]}
        await w.create("gone", run="pull 90.2s", spec=spec)
        await w.until_pod("gone", runs, limit_s=120)
        before = await node_until(w, has_pressure, 30)
        await w.delete("gone", grace_s=0)
        after = await node_until(w, lambda node: names(node) == ["busybox"], 180)
        return before, after, await w.pod("kept"), w.process.metrics()

    before, after, kept, metrics = simulate(scenario, nodes=NODES)

    assert sorted(names(before)) == ["busybox", "other"]
    assert has_pressure(after)  # for five minutes more
    assert kept["status"]["phase"] == "Running"
    assert metrics['kubelet_image_garbage_collected_total{reason="space"}'] == 1
