"""A kubelet that comes back to a smaller node, and how long its crash loops wait."""

import asyncio
from dataclasses import replace

import pytest

from kubelet.node.definition import NodeDefinition


@pytest.mark.parametrize(
    ("switches", "phase", "reason"), [((), "Failed", "OutOfcpu"), (("restart.readmit_running=false",), "Running", None)]
)
def test_kubelet_6_a_running_pod_that_fits_no_more_is_ended_unless_the_kubelet_does_not_ask(
    simulate, switches, phase, reason
):
    async def scenario(w):
        await w.create("big", cpu="3")
        await w.until_pod("big", lambda pod: pod["status"].get("phase") == "Running")
        w.kill_kubelet()
        w.config = replace(w.config, definitions=(NodeDefinition.parse({"name": "n1", "cpu": "2"}),))
        await w.start_kubelet()
        await asyncio.sleep(10.0)
        return await w.pod("big")

    status = simulate(scenario, switches=switches)["status"]

    assert (status["phase"], status.get("reason")) == (phase, reason)


def test_kubelet_11_crash_loops_are_bounded_by_the_settings_of_the_kubelet(simulate):
    async def scenario(w):
        w.kill_kubelet()
        w.config = replace(w.config, crashloop_initial_s=2.0, crashloop_max_s=3.0)
        await w.start_kubelet()
        await w.create("bad", run="crash")
        pod = await w.until_pod(
            "bad", lambda pod: (pod["status"].get("containerStatuses") or [{}])[0].get("restartCount") == 4
        )
        return w.clock.now(), pod

    now, pod = simulate(scenario)

    assert pod["status"]["containerStatuses"][0]["restartCount"] == 4
    assert 0 + 2 + 3 + 3 <= now < 10


def test_a_critical_pod_s_preemption_is_counted_by_what_there_was_not_enough_of(simulate):
    async def scenario(w):
        await w.create("plain", cpu="")
        await w.until_pod("plain", lambda pod: pod["status"].get("phase") == "Running")
        await w.create("vital", cpu="", spec={"priorityClassName": "system-node-critical"})
        await w.until_pod("vital", lambda pod: pod["status"].get("phase") == "Running")
        return w.process.metrics()

    found = simulate(scenario, nodes=({"name": "n1", "cpu": "4", "pods": 1},))

    assert found['kubelet_preemptions{preemption_signal="pods"}'] == 1
