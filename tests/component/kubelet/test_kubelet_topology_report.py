"""The kubelet's report of its NUMA nodes: when it comes, and what it says."""

import asyncio

import pytest

from services.api.errors import NotFound
from services.api.identity import node_identity
from services.api.meta import Key

RESOURCE = "noderesourcetopologies.topology.node.k8s.io"
NUMA = ({"name": "n1", "numa": "2x8", "topologyPolicy": "single-numa-node", "reservedCpus": 2},)


def running(pod):
    return pod is not None and pod["status"].get("phase") == "Running"


async def cpus(w):
    stored = await w.admin.get(RESOURCE, Key("", "n1"))
    counted = next(a["value"] for a in stored["attributes"] if a["name"] == "keplabCountedPods")
    figures = [next(r for r in zone["resources"] if r["name"] == "cpu") for zone in stored["zones"]]
    return [(each["capacity"], each["allocatable"], each["available"]) for each in figures], counted


def test_unbinding_1_1_exact_reports_follow_each_admission_and_end(simulate):
    async def scenario(w):
        await asyncio.sleep(0.1)
        before = await cpus(w)
        uid = await w.create("p", cpu="4")
        await w.until_pod("p", running)
        await asyncio.sleep(0.1)
        during = await cpus(w)
        await w.delete("p", grace_s=0)
        await asyncio.sleep(1)
        return uid, before, during, await cpus(w)

    uid, before, during, after = simulate(scenario, nodes=NUMA, switches=("numa_scheduler=oracle",))

    assert before == ([("8", "6", "6"), ("8", "8", "8")], "")
    assert during == ([("8", "6", "2"), ("8", "8", "8")], uid)
    assert after == before


def test_unbinding_1_1_stale_reports_come_by_the_clock(simulate):
    async def scenario(w):
        await w.create("p", cpu="4")
        await w.until_pod("p", running)
        await asyncio.sleep(5)
        early = await cpus(w)
        await asyncio.sleep(6)
        return early[1] == "", (await cpus(w))[1] != ""

    assert simulate(scenario, nodes=NUMA, switches=("numa_scheduler=nrt_stale", "nrt.refresh_s=10")) == (True, True)


def test_unbinding_1_1_without_a_reader_nothing_is_written(simulate):
    async def scenario(w):
        await asyncio.sleep(30)
        with pytest.raises(NotFound):
            await cpus(w)

    simulate(scenario, nodes=NUMA)


def test_unbinding_1_1_a_node_reports_for_itself_alone(simulate):
    async def scenario(w):
        await asyncio.sleep(0.1)
        return await w.call(
            node_identity("n2"), verb="patch", resource=RESOURCE, name="n1", patch_type="merge", body=b'{"zones":[]}'
        )

    assert simulate(scenario, nodes=NUMA, switches=("numa_scheduler=oracle",)).code == 403
