"""Crash loops on nodes with bounds of their own: the kubelet against a real API server."""

import asyncio

import pytest

from services.runtime.config import StartError

NODE = {"name": "n1", "cpu": "4"}


def restarts(simulate, *, node=NODE, switches=(), seconds=75):
    """Return how often a container that crashes at once was restarted after so many seconds."""

    async def scenario(w):
        await w.create("p", run="crash")
        await asyncio.sleep(seconds)
        return await w.pod("p")

    return simulate(scenario, nodes=(node,), switches=switches)["status"]["containerStatuses"][0]["restartCount"]


@pytest.mark.parametrize(
    ("switches", "count"), [((), 4), (("ReduceDefaultCrashLoopBackOffDecay=true",), 7)]
)  # fmt: skip
def test_kubelet_5_the_gate_makes_a_container_that_crashes_come_back_sooner(simulate, switches, count):
    # 0 + 10 + 20 + 40 s, and 0 + 1 + 2 + 4 + 8 + 16 + 32 s.
    assert restarts(simulate, switches=switches) == count


def test_kubelet_5_a_node_with_a_maximum_of_30_s_restarts_at_once_and_then_after_10_20_30_30_seconds(simulate):
    node = NODE | {"maxContainerRestartPeriod": 30}

    assert [restarts(simulate, node=node, seconds=s) for s in (9, 11, 31, 61, 91)] == [1, 2, 3, 4, 5]


def test_a_maximum_is_refused_where_the_gate_is_off(simulate):
    with pytest.raises((StartError, ExceptionGroup)):
        restarts(
            simulate, node=NODE | {"maxContainerRestartPeriod": 30}, switches=("KubeletCrashLoopBackOffMax=false",)
        )
