"""Unbinding by condition from the kubelet's side: it asks, waits, and is fenced against running twice."""

import asyncio

import msgspec

from services.api.identity import node_identity
from services.api.meta import Key
from services.api.unbind import UNBINDER, request_id

ASK = ("kubelet.on_reject=unbind", "unbind.api=condition")
SMALL = ({"name": "n1", "cpu": "1"}, {"name": "n2", "cpu": "4"})


def condition(pod):
    found = [c for c in pod["status"].get("conditions", ()) if c["type"] == "UnbindRequested"]
    return found[0] if found else None


def body(pod):
    uid, generation = pod["metadata"]["uid"], pod["status"]["bindingGeneration"]
    return msgspec.json.encode(
        {
            "apiVersion": "v1", "kind": "PodUnbind", "metadata": {"name": "p", "namespace": "default", "uid": uid},
            "nodeName": "n1", "bindingGeneration": generation, "requestID": request_id(uid, generation, "n1"),
            "reason": "OutOfcpu",
        }
    )  # fmt: skip


def unbind(w, pod, identity=UNBINDER):
    return w.call(
        identity, verb="create", resource="pods", namespace="default", name="p", subresource="unbind", body=body(pod)
    )


def test_kubelet_unbinding_4_2_the_kubelet_asks_by_condition_and_forgets_the_pod_once_it_is_unbound(simulate):
    async def scenario(w):
        await w.create("p", cpu="2")
        asked = await w.until_pod("p", condition)
        refused = await unbind(w, asked, node_identity("n1"))
        done = await unbind(w, asked)
        await asyncio.sleep(1)
        return asked, refused.code, done.code, await w.pod("p"), w.agent().kubelet.admission.unbinds.going

    asked, refused, done, pod, going = simulate(scenario, nodes=SMALL, switches=ASK)

    assert (condition(asked)["status"], condition(asked)["reason"], asked["status"]["phase"]) == (
        "True", "OutOfcpu", "Pending",
    )  # fmt: skip
    assert (refused, done) == (403, 200)
    assert (pod["status"]["unbindCount"], pod["spec"].get("nodeName"), condition(pod)) == (1, None, None)
    assert going == {}


def test_kubelet_unbinding_6_2_when_nobody_answers_the_kubelet_falls_back_after_the_deadline(simulate):
    async def scenario(w):
        await w.create("p", cpu="2")
        begun = w.clock.now()
        pod = await w.until_pod("p", lambda pod: pod["status"].get("phase") == "Failed", limit_s=200)
        return pod, w.clock.now() - begun

    pod, took_s = simulate(scenario, nodes=SMALL, switches=ASK)

    assert pod["status"]["message"].endswith("(unbind: DeadlineExceeded)")
    assert 120 <= took_s < 122


def test_kubelet_unbinding_4_4_a_restarted_kubelet_that_admits_the_pod_withdraws_and_is_not_unbound(simulate):
    async def scenario(w):
        await w.create("first", cpu="1")
        await w.until_pod("first", lambda pod: pod["status"].get("phase") == "Running")
        await w.create("p", cpu="1")
        asked = await w.until_pod("p", condition)
        w.kill_kubelet()
        await w.admin.delete("pods", Key("default", "first"), grace_period_s=0)
        await w.start_kubelet()
        pod = await w.until_pod("p", lambda pod: pod["status"].get("phase") == "Running")
        late = await unbind(w, asked)
        return pod, late

    pod, late = simulate(scenario, nodes=SMALL, switches=ASK)

    assert condition(pod) is None
    assert late.code in (409, 422)


def test_kubelet_unbinding_4_4_no_container_starts_before_its_start_is_acknowledged(simulate):
    async def scenario(w):
        await w.create("first", cpu="1")
        await w.until_pod("first", lambda pod: pod["status"].get("phase") == "Running")
        uid = await w.create("p", cpu="1")
        asked = await w.until_pod("p", condition)
        w.kill_kubelet()
        await w.admin.delete("pods", Key("default", "first"), grace_period_s=0)
        await w.start_kubelet(wait=False)
        while not w.lines("kubelet.admit", uid):  # noqa: ASYNC110  admitted, and about to say so
            await asyncio.sleep(0.0001)
        first = await unbind(w, asked)
        await asyncio.sleep(30)
        return first, w.lines("kubelet.start", uid), await w.pod("p")

    first, starts, pod = simulate(scenario, nodes=SMALL, switches=(*ASK, "kubelet.status_batching=immediate"))

    assert first.code == 200
    assert starts == []
    assert pod["spec"].get("nodeName") is None
