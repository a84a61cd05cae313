"""A node that runs short: the kubelet against a real API server, in virtual time."""

import asyncio

from services.api.meta import Key

NODE = {"name": "n1", "cpu": "4", "memory": "4Gi", "eviction": {"pressureTransitionPeriod": 60}}


def condition(document, kind):
    return next(c for c in document["status"]["conditions"] if c["type"] == kind)


def annotated(usage):
    return {"annotations": {"keplab.dev/usage": usage}}


def test_kubelet_section_7_the_greediest_pod_is_evicted_and_the_node_says_why(simulate):
    async def scenario(w):
        await w.create("calm", **annotated("memory 50Mi"))
        await w.create("greedy", cpu="", **annotated("memory 100Mi; memory 6Gi by 60s"))
        evicted = await w.until_pod("greedy", lambda p: p["status"]["phase"] == "Failed", 120)
        node = await w.admin.get("nodes", Key("", "n1"))
        await w.create("late", cpu="")
        late = await w.until_pod("late", lambda p: p["status"]["phase"] == "Failed")
        await asyncio.sleep(80)
        relieved = await w.admin.get("nodes", Key("", "n1"))
        await w.create("later", cpu="")
        await w.until_pod("later", lambda p: p["status"]["phase"] == "Running")
        return evicted, node, late, relieved, await w.pod("calm"), w.process.metrics()

    evicted, node, late, relieved, calm, metrics = simulate(scenario, nodes=(NODE,))

    assert evicted["status"]["reason"] == "Evicted"
    assert evicted["status"]["message"].startswith(
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: "
    )
    assert condition(evicted, "DisruptionTarget")["reason"] == "TerminationByKubelet"
    assert condition(node, "MemoryPressure")["reason"] == "KubeletHasInsufficientMemory"
    assert late["status"]["reason"] == "Evicted"
    assert late["status"]["message"] == "Pod was rejected: The node had condition: [MemoryPressure]. "
    assert condition(relieved, "MemoryPressure")["status"] == "False"
    assert calm["status"]["phase"] == "Running"
    assert metrics['kubelet_evictions{eviction_signal="memory.available"}'] == 1


def test_a_nodes_own_use_evicts_too_and_the_node_has_an_event(simulate):
    async def scenario(w):
        await w.create("p")
        await w.until_pod("p", lambda p: p["status"]["phase"] == "Failed", 60)
        await asyncio.sleep(5)
        items, _ = await w.admin.list_raw("events")
        return b" ".join(bytes(i) for i in items)

    events = simulate(scenario, nodes=(NODE | {"usage": "ephemeral-storage 1Gi; ephemeral-storage 95Gi at 20s"},))

    assert b"EvictionThresholdMet" in events
    assert b"Attempting to reclaim ephemeral-storage" in events


def test_a_node_without_usage_never_looks_for_pressure(simulate):
    async def scenario(w):
        await w.create("p")
        await w.until_pod("p", lambda p: p["status"]["phase"] == "Running")
        return w.agent().kubelet.pressure.is_looking

    assert simulate(scenario, nodes=(NODE,)) is False
