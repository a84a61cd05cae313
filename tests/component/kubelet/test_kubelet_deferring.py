"""Deferred admission: a rejected pod stays Pending on its node, tried again, and ends as the switch says."""

import asyncio

SMALL = ({"name": "n1", "cpu": "2"}, {"name": "n2", "cpu": "4"})
DEFER = ("kubelet.on_reject=defer",)
THEN_UNBIND = ("kubelet.on_reject=defer-then-unbind", "defer.reasons=OutOf*")


def running(pod):
    return pod is not None and pod["status"].get("phase") == "Running"


def failed(pod):
    return pod["status"].get("phase") == "Failed"


def unbound(pod):
    return pod["status"].get("unbindCount", 0) > 0 and not pod["spec"].get("nodeName")


async def full_node(w):
    await w.create("first", cpu="2")
    await w.until_pod("first", running)
    return await w.create("second", cpu="1")


def test_unbinding_2_a_deferred_pod_runs_as_soon_as_another_leaves(simulate):
    async def scenario(w):
        await full_node(w)
        await asyncio.sleep(2)
        waiting = await w.pod("second")
        await w.delete("first", grace_s=0)
        await w.until_pod("second", running, limit_s=2)
        return waiting, w.lines("kubelet.defer")

    waiting, lines = simulate(scenario, nodes=SMALL, switches=DEFER)

    assert (waiting["status"].get("phase"), waiting["spec"]["nodeName"]) == ("Pending", "n1")
    assert [line.data["reason"] for line in lines] == ["OutOfcpu"]


def test_unbinding_2_a_deferred_pod_that_never_fits_fails_after_the_timeout(simulate):
    async def scenario(w):
        await full_node(w)
        begun = w.clock.now()
        pod = await w.until_pod("second", failed)
        return pod, w.clock.now() - begun, len(w.lines("kubelet.reject"))

    pod, took_s, rejections = simulate(scenario, nodes=SMALL, switches=(*DEFER, "defer.timeout_s=20"))

    assert pod["status"]["reason"] == "OutOfcpu"
    assert pod["status"]["message"].endswith("(deferred for 20 s)")
    assert 20 <= took_s < 21
    assert rejections == 5


def test_unbinding_2_after_a_vain_deferral_the_pod_is_given_back(simulate):
    async def scenario(w):
        uid = await full_node(w)
        begun = w.clock.now()
        pod = await w.until_pod("second", unbound)
        return uid, pod, w.clock.now() - begun

    uid, pod, took_s = simulate(scenario, nodes=SMALL, switches=THEN_UNBIND)

    assert (pod["metadata"]["uid"], pod["status"]["unbindHistory"][0]["reason"]) == (uid, "OutOfcpu")
    assert 30 <= took_s < 31


def test_unbinding_2_a_reason_that_is_not_transient_is_given_back_at_once(simulate):
    async def scenario(w):
        await full_node(w)
        begun = w.clock.now()
        await w.until_pod("second", unbound)
        return w.clock.now() - begun

    assert simulate(scenario, nodes=SMALL, switches=("kubelet.on_reject=defer-then-unbind",)) < 1


def test_unbinding_2_a_deferred_pod_that_is_deleted_ends(simulate):
    async def scenario(w):
        await full_node(w)
        await asyncio.sleep(2)
        await w.delete("second")
        await w.until_pod("second", lambda pod: pod is None, limit_s=5)
        await asyncio.sleep(60)
        return w.agent().kubelet.admission.deferring.waiting

    assert simulate(scenario, nodes=SMALL, switches=DEFER) == {}


def test_unbinding_6_3_a_kubelet_killed_while_deferring_begins_to_defer_anew(simulate):
    async def scenario(w):
        await full_node(w)
        await asyncio.sleep(20)
        w.kill_kubelet()
        await asyncio.sleep(1)
        await w.start_kubelet()
        begun = w.clock.now()
        await w.until_pod("second", failed)
        return w.clock.now() - begun

    assert 29 < simulate(scenario, nodes=SMALL, switches=DEFER) < 32
