"""Preemption with its calls and its waits (acceptance scenarios of preemption.md)."""

from __future__ import annotations

import asyncio
import contextlib

from services.api.errors import AlreadyExists
from services.api.identity import node_identity
from services.api.meta import Key


async def pod(world, name, cpu, priority=0, grace=1, **spec):
    """Create a pod of that priority, by way of a class of its own; return it."""
    rank = f"rank-{priority}".replace("--", "-minus-")
    ranked = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": rank},
              "value": priority}  # fmt: skip
    with contextlib.suppress(AlreadyExists):
        await world.admin.create("priorityclasses.scheduling.k8s.io", ranked)
    return await world.pod(name, cpu=cpu, priorityClassName=rank, terminationGracePeriodSeconds=grace, **spec)


async def finish(world, name, node):
    """Let the node's kubelet end the pod's grace."""
    await world.client(node_identity(node)).delete("pods", Key("default", name), grace_period_s=0)


def is_terminating(world, name):
    async def check():
        return "deletionTimestamp" in (await world.get(name))["metadata"]

    return check


def test_preemption_01_a_victim_is_marked_deleted_and_told_and_the_preemptor_bound(play):
    async def story(world):
        await world.node("n1")
        await pod(world, "v", "4")
        await world.until(world.bound("v"))
        p = await pod(world, "p", "2", 1000)
        await world.until(is_terminating(world, "v"))
        victim = await world.get("v")
        await world.until(lambda: world.said("sched.nominate", "p"))
        await asyncio.sleep(0.1)
        nominated = (await world.get("p"))["status"]["nominatedNodeName"]
        metrics = world.scheduler.metrics()
        await finish(world, "v", "n1")
        await world.until(world.bound("p"))
        return p, victim, nominated, metrics, await world.get("p"), await world.notes("v")

    p, victim, nominated, metrics, bound, notes = play(story)
    condition = next(c for c in victim["status"]["conditions"] if c["type"] == "DisruptionTarget")

    assert (condition["status"], condition["reason"]) == ("True", "PreemptionByScheduler")
    assert condition["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
    assert nominated == "n1"
    assert metrics["scheduler_preemption_attempts_total"] == 1
    assert bound["spec"]["nodeName"] == "n1"
    assert ("Normal", "Preempted", f"Preempted by pod {p['metadata']['uid']} on node n1") in notes
