"""Unbinding from the kubelet's side: rejected pods are unbound, or not, as the answers demand."""

import asyncio

import msgspec

from services.api.errors import Forbidden, UnknownOutcome
from services.api.identity import node_identity
from services.api.meta import Key
from services.api.unbind import request_id
from services.api.wire import Response
from services.client.link_faults import LinkFaults

UNBIND = ("kubelet.on_reject=unbind",)
SMALL = ({"name": "n1", "cpu": "1"}, {"name": "n2", "cpu": "4"})


def running(pod):
    return pod is not None and pod["status"].get("phase") == "Running"


def unbound(pod):
    return pod["status"].get("unbindCount", 0) > 0 and not pod["spec"].get("nodeName")


def failed(pod):
    return pod["status"].get("phase") == "Failed"


async def bind(w, name, node="n1"):
    pod = await w.admin.get("pods", Key("default", name))
    await w.scheduler.bind(Key("default", name), pod["metadata"]["uid"], node)


def test_kubelet_unbinding_02_a_rejected_pod_is_given_back_and_runs_elsewhere_under_its_uid(simulate):
    async def scenario(w):
        uid = await w.create("p", cpu="2")
        pod = await w.until_pod("p", unbound)
        await bind(w, "p", "n2")
        return uid, pod, await w.until_pod("p", running), [x.ev for x in w.events.lines if "unbind" in x.ev]

    uid, given_back, ran, lines = simulate(scenario, nodes=SMALL, switches=UNBIND)

    assert given_back["status"]["phase"] == "Pending"
    assert given_back["status"]["unbindHistory"][0]["reason"] == "OutOfcpu"
    assert ran["metadata"]["uid"] == uid
    assert lines[:2] == ["kubelet.unbind_call", "kubelet.unbind_result"]


def test_kubelet_unbinding_05_the_rejection_after_max_attempts_fails_with_the_original_reason(simulate):
    async def scenario(w):
        await w.create("p", cpu="2")
        for count in range(1, 3):
            await w.until_pod("p", lambda p, count=count: p["status"].get("unbindCount") == count)
            await bind(w, "p")
        return await w.until_pod("p", failed)

    pod = simulate(scenario, nodes=SMALL, switches=(*UNBIND, "unbind.max_attempts=2"))

    assert pod["status"]["reason"] == "OutOfcpu"
    assert pod["status"]["message"].endswith("(unbind: LimitReached)")


def test_kubelet_unbinding_06_lost_answers_lead_to_one_increment_and_one_history_entry(simulate):
    async def scenario(w):
        api = w.agent().api
        real, lost = api.call, []

        async def lossy(request):
            response = await real(request)
            if request.subresource == "unbind" and len(lost) < 3:
                lost.append(response.code)
                raise UnknownOutcome("dropped")
            return response

        kubelet = w.agent().kubelet
        see = kubelet.pod_changed
        kubelet.pod_changed = lambda old, new, *rest: see(old, new, *rest) if new is not None else None  # a slow watch
        api.call = lossy
        await w.create("p", cpu="2")
        await w.until_pod("p", unbound, limit_s=120)
        await asyncio.sleep(20)
        return lost, await w.pod("p")

    lost, pod = simulate(scenario, nodes=SMALL, switches=UNBIND)

    assert lost == [200, 200, 200]
    assert pod["status"]["unbindCount"] == 1
    assert len(pod["status"]["unbindHistory"]) == 1


def test_kubelet_unbinding_08_a_pod_of_which_a_container_ran_is_refused_and_runs_on(simulate):
    init = {"initContainers": [{"name": "first", "image": "busybox"}]}

    async def scenario(w):
        uid = await w.create("p", spec=init, annotations={"keplab.dev/run.first": "exit 0 after 20s"})
        pod = await w.until_pod("p", lambda p: "running" in first_state(p))
        generation = pod["status"]["bindingGeneration"]
        body = {
            "apiVersion": "v1", "kind": "PodUnbind", "metadata": {"name": "p", "namespace": "default", "uid": uid},
            "nodeName": "n1", "bindingGeneration": generation, "kubeletSession": w.agent().session,
            "requestID": request_id(uid, generation, "n1"), "reason": "OutOfcpu",
        }  # fmt: skip

        async def unbind():
            return await w.call(
                node_identity("n1"), verb="create", resource="pods", namespace="default", name="p",
                subresource="unbind", body=msgspec.json.encode(body),
            )  # fmt: skip

        early, phase = await unbind(), pod["status"]["phase"]
        await w.until_pod("p", running)
        return phase, early, await unbind(), await w.pod("p"), w.lines("kubelet.start", uid)

    phase, early, late, pod, starts = simulate(scenario, switches=UNBIND)

    assert (phase, early.code, early.error().reason) == ("Pending", 409, "AlreadyStarted")
    assert (late.code, late.error().reason) == (422, "PhaseNotPending")
    assert running(pod)
    assert "unbindCount" not in pod["status"]
    assert len(starts) == 1


def first_state(pod):
    return (pod["status"].get("initContainerStatuses") or [{}])[0].get("state", {})


def test_kubelet_unbinding_10_a_stale_failed_status_of_the_old_binding_is_refused_after_rebinding(simulate):
    async def scenario(w):
        await w.create("p", cpu="2")
        pod = await w.until_pod("p", unbound)
        stale = {
            "metadata": {"uid": pod["metadata"]["uid"]},
            "status": {"phase": "Failed", "observedGeneration": pod["status"]["unbindHistory"][0]["bindingGeneration"]},
        }
        w.agent().kubelet.ledger.allocatable["cpu"] = 4000
        await bind(w, "p")
        await w.until_pod("p", running)
        response = await w.call(
            node_identity("n1"), verb="patch", resource="pods", namespace="default", name="p", subresource="status",
            patch_type="strategic", body=msgspec.json.encode(stale),
        )  # fmt: skip
        return response, await w.pod("p"), w.lines("kubelet.start")

    response, pod, _starts = simulate(scenario, nodes=SMALL, switches=UNBIND)

    assert (response.code, response.error().reason) == (409, "StaleBinding")
    assert running(pod)


def test_kubelet_unbinding_11_the_second_admission_on_the_same_node_starts_the_containers_once(simulate):
    async def scenario(w):
        uid = await w.create("p", cpu="2")
        await w.until_pod("p", unbound)
        w.agent().kubelet.ledger.allocatable["cpu"] = 4000
        await bind(w, "p")
        return uid, await w.until_pod("p", running), w.lines("kubelet.start")

    uid, pod, starts = simulate(scenario, nodes=SMALL, switches=UNBIND)

    assert pod["metadata"]["uid"] == uid
    assert [(x.obj["uid"], x.gen) for x in starts] == [(uid, pod["status"]["bindingGeneration"])]


def test_kubelet_unbinding_21_a_pod_with_a_preset_node_fails_as_today(simulate):
    async def scenario(w):
        await w.create("p", cpu="2", bind=False, spec={"nodeName": "n1"})
        return await w.until_pod("p", failed), w.lines("kubelet.unbind_call")

    pod, calls = simulate(scenario, nodes=SMALL, switches=UNBIND)

    assert pod["status"]["reason"] == "OutOfcpu"
    assert not calls


def test_kubelet_unbinding_19_a_kubelet_cut_off_after_the_rejection_completes_the_flow_on_return(simulate):
    async def scenario(w):
        w.network.profile("kubelet/h0").faults = LinkFaults(watch_delay_s=1.0)
        await w.create("p", cpu="2")
        w.network.profile("kubelet/h0").faults = LinkFaults(cut="requests", watch_delay_s=1.0)
        await asyncio.sleep(60)
        w.network.profile("kubelet/h0").faults = LinkFaults(watch_delay_s=1.0)
        return await w.until_pod("p", unbound)

    assert simulate(scenario, nodes=SMALL, switches=UNBIND)["status"]["unbindCount"] == 1


def test_kubelet_unbinding_6_3_a_kubelet_killed_while_unbinding_admits_again_under_a_new_session(simulate):
    async def scenario(w):
        w.network.profile("kubelet/h0").faults = LinkFaults(watch_delay_s=1.0)
        await w.create("p", cpu="2")
        w.network.profile("kubelet/h0").faults = LinkFaults(cut="requests", watch_delay_s=1.0)
        await asyncio.sleep(3)
        first = w.agent().session
        w.kill_kubelet()
        w.network.profile("kubelet/h0").faults = LinkFaults(watch_delay_s=1.0)
        await w.start_kubelet()
        return await w.until_pod("p", unbound), first != w.agent().session

    pod, is_new = simulate(scenario, nodes=SMALL, switches=UNBIND)

    assert is_new
    assert pod["status"]["unbindCount"] == 1


def test_unbinding_with_fallback_hold_the_pod_waits_pending_and_runs_when_capacity_is_free(simulate):
    async def scenario(w):
        await w.create("first", cpu="1")
        await w.until_pod("first", running)
        await w.create("p", cpu="1")
        held = await w.until_pod(
            "p", lambda p: any(c["type"] == "UnbindBlocked" for c in p["status"].get("conditions", ()))
        )
        await w.delete("first", 1)
        return held, await w.until_pod("p", running, limit_s=10)

    switches = (*UNBIND, "unbind.fallback=hold", "unbind.max_attempts=0")
    held, _ = simulate(scenario, nodes=SMALL, switches=switches)

    assert held["status"]["phase"] == "Pending"


def test_unbinding_with_the_gate_off_a_rejected_pod_fails_as_today(simulate):
    async def scenario(w):
        await w.create("p", cpu="2")
        return await w.until_pod("p", failed)

    pod = simulate(scenario, nodes=SMALL, switches=(*UNBIND, "PodUnbinding=false"))

    assert pod["status"]["message"].startswith("Pod was rejected: Node didn't have enough resource: cpu")


def test_unbinding_recreate_deletes_an_owned_pod_and_confirms(simulate):
    async def scenario(w):
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1" * 8, "controller": True}
        await w.create("p", cpu="2", ownerReferences=[owner])
        await w.until_pod("p", lambda p: p is None)
        return w.lines("kubelet.start")

    assert simulate(scenario, nodes=SMALL, switches=("kubelet.on_reject=recreate",)) == []


def test_unbinding_recreate_asks_again_when_its_delete_was_refused(simulate):
    async def scenario(w):
        api = w.agent().api
        real, refused = api.call, []

        async def refusing(request):
            if request.verb == "delete" and request.resource == "pods" and len(refused) < 2:
                refused.append(request.name)
                return Response(code=403, body=msgspec.json.encode(Forbidden("not now").status()))
            return await real(request)

        api.call = refusing
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1" * 8, "controller": True}
        await w.create("p", cpu="2", ownerReferences=[owner])
        await w.until_pod("p", lambda p: p is None, limit_s=60)
        return refused

    assert simulate(scenario, nodes=SMALL, switches=("kubelet.on_reject=recreate",)) == ["p", "p"]
