"""Acceptance scenarios of the kubelet that need the whole mesh: a node joins, and a node is cut off for a long time."""

import asyncio
import random

from lab.scenarios.mesh import MeshPlan
from lab.scenarios.run import simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS
from lab.scenarios.simulation import simloop
from lab.scenarios.simulation.simulated_mesh import SimMesh
from services.api.identity import ADMIN
from services.api.meta import Key
from services.client.client import Client

PARTITION = """# A node is cut off for 400 s
limit 900s
nodes n1..n2 cpu=4
replicaset web replicas=2 cpu=1
pod steady cpu=1 node-selector=kubernetes.io/hostname:n1 tolerate=*
expect within 5s count pods phase=Running == 3
expect count pods name=web-* node=n1 == 1
link node/n1 cut=both
wait 395s
expect count pods name=web-* node=n2 phase=Running == 2
expect count pods name=web-* node=n1 == 1
expect each pods name=steady status.phase == Running
wait 5s
link node/n1
expect within 60s count pods name=web-* == 2
expect within 60s each nodes status.conditions[Ready].status == True
expect each pods name=steady status.containerStatuses[main].restartCount == 0
expect each pods name=steady status.phase == Running
"""


def test_kubelet_1_a_node_that_joined_is_ready_within_two_seconds_and_its_taint_is_removed():
    async def main():
        lines = []
        mesh = SimMesh(MeshPlan(nodes=({"name": "n1"},)))
        mesh.on_line(lines.append)
        await mesh.start()
        client = Client(mesh.api(ADMIN), mesh.clock, random.Random(0))
        begun = min(line.mono_ns for line in lines if line.ev == "kubelet.session") / 1e9
        while True:
            node = await client.get("nodes", Key("", "n1"))
            conditions = {c["type"]: c["status"] for c in node["status"]["conditions"]}
            if conditions["Ready"] == "True" and not node["spec"].get("taints"):
                break
            await asyncio.sleep(0.05)
        took_s = mesh.clock.now() - begun
        await mesh.stop()
        return took_s

    assert simloop.run(main(), seed=1) <= 2.0


def test_kubelet_18_pods_of_a_node_that_is_cut_off_run_on_and_end_when_it_is_back():
    lines = []
    scenario = parse_scenario(PARTITION, "partition.txt", VERBS)

    result = simulate(scenario, seed=1, on_line=lines.append)

    assert [] == [f"line {j.line}: {j.text} ({j.seen})" for j in result.expectations if not j.passed]
    assert (result.error, result.violations) == ("", [])
    healed = next(x.mono_ns for x in lines if x.ev == "fault.heal")
    stops = [x for x in lines if x.ev == "kubelet.stop"]
    starts = {x.obj["uid"]: x for x in lines if x.ev == "kubelet.start"}
    # Only the one that was deleted meanwhile ended, after the node was back; its replacement ran beside it.
    assert [x.node for x in stops] == ["n1"]
    assert stops[0].mono_ns > healed
    replacement = max(starts.values(), key=lambda x: x.mono_ns)
    assert (replacement.node, replacement.mono_ns < healed) == ("n2", True)
