"""Starts that fail on a node: the node's own faults, and pods that are unbound because of them."""

import asyncio

import pytest

from lab.scenarios.simulation.disk import DiskFile
from services.api.meta import Key

UNBIND = ("kubelet.on_reject=unbind",)
FOLDER = "nodes/n1/"
TWO = ({"name": "n1", "cpu": "4"}, {"name": "n2", "cpu": "4"})


def running(pod):
    return pod is not None and pod["status"].get("phase") == "Running"


def given_back(pod):
    return pod["status"].get("unbindCount", 0) == 1 and not pod["spec"].get("nodeName")


@pytest.mark.parametrize(
    ("run", "reason", "after_s"),
    [
        ("mount fails", "FailedMount", (256, 275)),
        ("sandbox fails", "FailedCreatePodSandBox", (300, 330)),
        ("start fails", "RunContainerError", (40, 61)),
    ],
)
def test_a_pod_whose_start_fails_over_and_over_is_torn_down_and_then_given_back(simulate, run, reason, after_s):
    async def scenario(w):
        await w.create("p", cpu="1", run=run)
        pod = await w.until_pod("p", given_back, limit_s=400)
        took_s = w.clock.now()
        lines = [x.ev for x in w.events.lines if x.ev in ("kubelet.teardown_done", "kubelet.unbind_call")]
        return pod, took_s, lines, dict(w.agent().kubelet.ledger.used), list(w.agent().kubelet.table.pods)

    pod, took_s, lines, used, workers = simulate(scenario, nodes=TWO, switches=(*UNBIND, f"unbind.reasons={reason}"))

    assert pod["status"]["unbindHistory"][0]["reason"] == reason
    assert after_s[0] <= took_s <= after_s[1]
    assert lines == ["kubelet.teardown_done", "kubelet.unbind_call"]
    assert (used["cpu"], used["pods"], workers) == (0, 0, [])


@pytest.mark.parametrize(
    ("order", "lines"),
    [("before", ["kubelet.teardown_done", "kubelet.unbind_call"]),
     ("after", ["kubelet.unbind_call", "kubelet.teardown_done"])],
)  # fmt: skip
@pytest.mark.parametrize(("attempts", "phase"), [(5, "Pending"), (0, "Failed")])
def test_kubelet_unbinding_6_2_the_teardown_takes_its_time_before_the_call_or_after_it(
    simulate, order, lines, attempts, phase
):
    async def scenario(w):
        await w.create("p", cpu="1", run="start fails")
        pod = await w.until_pod("p", lambda pod: given_back(pod) or pod["status"].get("phase") == "Failed", limit_s=400)
        await asyncio.sleep(5)
        reported = [x.ev for x in w.events.lines if x.ev in ("kubelet.teardown_done", "kubelet.unbind_call")]
        agent = w.agent()
        return (
            pod,
            reported,
            agent.kubelet.out.distributions["kubelet_unbind_teardown_seconds"][()].count,
            dict(agent.kubelet.ledger.used),
            list(agent.kubelet.table.pods),
        )

    switches = (*UNBIND, "unbind.reasons=RunContainerError", f"kubelet.unbind_teardown={order}",
                f"unbind.max_attempts={attempts}")  # fmt: skip
    pod, reported, teardowns, used, workers = simulate(scenario, nodes=TWO, switches=switches)

    assert reported == lines
    assert teardowns == 1
    assert (used["cpu"], used["pods"], workers) == (0, 0, [])
    assert pod["status"]["phase"] == phase


def test_unless_the_switch_names_the_reason_the_node_goes_on_trying(simulate):
    async def scenario(w):
        await w.create("p", cpu="1", run="start fails")
        await asyncio.sleep(300)
        return await w.pod("p")

    pod = simulate(scenario, nodes=TWO, switches=UNBIND)

    assert pod["status"]["phase"] == "Pending"
    assert pod["spec"]["nodeName"] == "n1"


def test_a_pod_that_ran_is_never_given_back(simulate):
    async def scenario(w):
        spec = {"initContainers": [{"name": "first", "image": "img"}]}
        await w.create("p", cpu="", run="start fails", spec=spec)
        await asyncio.sleep(300)
        return await w.pod("p")

    pod = simulate(scenario, nodes=TWO, switches=(*UNBIND, "unbind.reasons=RunContainerError"))

    assert pod["spec"]["nodeName"] == "n1"
    assert pod["status"]["phase"] == "Pending"


def test_a_pod_given_back_may_come_again_and_run(simulate):
    async def scenario(w):
        w.disk_image.files[FOLDER + "faults"] = DiskFile(b"start fails")
        await asyncio.sleep(2)
        uid = await w.create("p", cpu="1")
        await w.until_pod("p", given_back, limit_s=100)
        del w.disk_image.files[FOLDER + "faults"]
        await asyncio.sleep(2)
        await w.scheduler.bind(Key("default", "p"), uid, "n1")
        return uid, await w.until_pod("p", running), w.lines("kubelet.start")

    uid, pod, starts = simulate(scenario, switches=(*UNBIND, "unbind.reasons=RunContainerError"))

    assert pod["metadata"]["uid"] == uid
    assert [line.gen for line in starts] == [pod["status"]["bindingGeneration"]]


def test_when_a_pod_cannot_be_given_back_it_fails_with_the_reason_and_why(simulate):
    async def scenario(w):
        await w.create("p", cpu="1", run="start fails")
        return await w.until_pod("p", lambda p: p["status"]["phase"] == "Failed", limit_s=100)

    switches = (*UNBIND, "unbind.reasons=RunContainerError", "unbind.max_attempts=0")
    pod = simulate(scenario, switches=switches)

    assert pod["status"]["reason"] == "RunContainerError"
    assert pod["status"]["message"].endswith("(unbind: LimitReached)")


def test_a_fault_of_the_node_strikes_its_pods_until_it_is_healed(simulate):
    async def scenario(w):
        w.disk_image.files[FOLDER + "faults"] = DiskFile(b"mount fails")
        await asyncio.sleep(2)
        await w.create("p", cpu="1")
        await asyncio.sleep(60)
        before = await w.pod("p")
        del w.disk_image.files[FOLDER + "faults"]
        begun = w.clock.now()
        await w.until_pod("p", running)
        return before, w.clock.now() - begun

    before, took_s = simulate(scenario)

    assert before["status"]["phase"] == "Pending"
    assert took_s <= 1.5
