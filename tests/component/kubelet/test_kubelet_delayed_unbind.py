"""A delayed unbind and a restarted kubelet: without the session fence a pod runs twice (kubelet-unbinding 4.5)."""

import asyncio
import contextlib

import pytest

from services.api.errors import ApiError
from services.api.identity import node_identity
from services.api.meta import Key

SMALL = ({"name": "n1", "cpu": "1"}, {"name": "n2", "cpu": "4"})
SEEDS = range(100)


def running(pod):
    return pod is not None and pod["status"].get("phase") == "Running"


async def delayed(w):
    """Hold the unbind back, restart the kubelet where the pod now fits, and let the request go when it runs."""
    held = []
    api = w.agent().api
    real = api.call

    async def slow(request):
        if request.subresource != "unbind":
            return await real(request)
        held.append(request)
        return await asyncio.Event().wait()

    await w.create("first", cpu="1")
    await w.until_pod("first", running)
    api.call = slow
    uid = await w.create("p", cpu="1", run="on SIGTERM ignore")
    await w.until(lambda: held)
    w.kill_kubelet()
    await w.admin.delete("pods", Key("default", "first"), grace_period_s=0)
    await w.start_kubelet(wait=False)
    await w.until_line("kubelet.start", uid)
    answer = await w.apiserver.server.api_for(node_identity("n1")).call(held[0])
    with contextlib.suppress(ApiError):  # it was not unbound
        await w.scheduler.bind(Key("default", "p"), uid, "n2")
    await asyncio.sleep(30)
    return answer, runs(w, uid)


def runs(w, uid):
    """Return the intervals in which the pod ran, by node."""
    found = {}
    for line in w.events.lines:
        if line.ev in ("kubelet.start", "kubelet.stop") and (line.obj or {}).get("uid") == uid:
            begun, _ = found.get(line.node, (None, float("inf")))
            at_s = line.mono_ns / 1e9
            found[line.node] = (at_s, float("inf")) if line.ev == "kubelet.start" else (begun, at_s)
    return found


def overlaps(found):
    if len(found) < 2:
        return False
    (a, b), (c, d) = found.values()
    return max(a, c) < min(b, d)


def test_kubelet_unbinding_09_without_a_fence_some_pod_runs_on_two_nodes_at_once(simulate):
    found = [simulate(delayed, nodes=SMALL, seed=seed,
                      switches=("kubelet.on_reject=unbind", "unbind.fence=none"))[1] for seed in SEEDS]  # fmt: skip

    assert sum(overlaps(each) for each in found) >= 1


@pytest.mark.parametrize("switches", [("unbind.fence=session",), ("unbind.fence=none", "kubelet.start_fence=true")])
def test_kubelet_unbinding_09_with_a_fence_the_late_request_is_refused_every_time(simulate, switches):
    reported = [simulate(delayed, nodes=SMALL, seed=seed, switches=("kubelet.on_reject=unbind", *switches))
            for seed in SEEDS]  # fmt: skip

    assert {answer.code for answer, _ in reported} <= {409, 422}
    assert not any(overlaps(each) for _, each in reported)
    assert all(list(each) == ["n1"] for _, each in reported)
