"""Preemption with its calls and its waits (acceptance scenarios of preemption.md)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from scheduler.configuration.plugins import default_profile
from scheduler.framework.arrangement import Enabled
from scheduler.framework.status import SKIP, SUCCESS, Code, Status
from services.api.errors import AlreadyExists
from services.api.identity import node_identity
from services.api.meta import Key
from services.api.wire import Response
from services.client.link_faults import LinkFaults


async def pod(world, name, cpu, priority=0, grace=1, **spec):
    """Create a pod of that priority, by way of a class of its own; return it."""
    rank = f"rank-{priority}".replace("--", "-minus-")
    ranked = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": rank},
        "value": priority,
    }
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


def test_preemption_01_a_victim_is_marked_deleted_and_reported_and_the_preemptor_bound(play):
    async def scenario(world):
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

    p, victim, nominated, metrics, bound, notes = play(scenario)
    condition = next(c for c in victim["status"]["conditions"] if c["type"] == "DisruptionTarget")

    assert (condition["status"], condition["reason"]) == ("True", "PreemptionByScheduler")
    assert condition["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
    assert nominated == "n1"
    assert metrics["scheduler_preemption_attempts_total"] == 1
    assert bound["spec"]["nodeName"] == "n1"
    assert ("Normal", "Preempted", f"Preempted by pod {p['metadata']['uid']} on node n1") in notes


class Deletes:
    """The scheduler's deletes that reached the server, by pod; `fails` and `hangs` once each for these pods."""

    def __init__(self, *, fails="", hangs="", fails_after_s=0.5):
        self.sent, self._fails, self._hangs, self._fails_after_s = [], fails, hangs, fails_after_s

    async def __call__(self, request, call):
        if request.verb == "delete" and request.name == self._fails:
            self._fails = ""
            await asyncio.sleep(self._fails_after_s)
            return Response(code=500, body=b'{"message":"etcd is away","code":500}')
        if request.verb == "delete" and request.name == self._hangs:
            self._hangs = ""
            await asyncio.Event().wait()
        if request.verb == "delete":
            self.sent.append(request.name)
        return await call(request)


def says(world, name, text):
    async def check():
        status = (await world.get(name))["status"]
        return "conditions" in status and text in world.condition({"status": status})["message"]

    return check


def is_nominated(world, name, node):
    async def check():
        return (await world.get(name))["status"].get("nominatedNodeName", "") == node

    return check


GUARDED = "preemption: not eligible due to a terminating pod on the nominated node."


@pytest.mark.parametrize("is_async", [True, False])
def test_preemption_11_no_second_victim_while_the_first_still_terminates(play, is_async):
    async def scenario(world):
        world.hook = deletes = Deletes()
        await world.node("n1")
        await world.node("n2")
        for i in (1, 2):
            await pod(world, f"v{i}", "4", grace=30)
            await world.until(world.bound(f"v{i}"))
        await pod(world, "p", "4", 1000)
        await world.until(lambda: deletes.sent)
        for name in ("n1", "n2"):
            roomier = {"status": {"allocatable": {"pods": "120"}}}
            await world.client(node_identity(name)).patch("nodes", Key("", name), roomier, subresource="status")
        await world.until(says(world, "p", GUARDED))
        victim = deletes.sent[0]
        node = await world.node_of(victim)
        nominated = (await world.get("p"))["status"]["nominatedNodeName"]
        await finish(world, victim, node)
        await world.until(world.bound("p"))
        return deletes.sent, nominated == node == await world.node_of("p")

    sent, is_there = play(scenario, SchedulerAsyncPreemption=is_async)

    assert (len(sent), is_there) == (1, True)


def test_preemption_12_a_higher_pod_steals_the_nomination(play):
    async def scenario(world):
        world.hook = deletes = Deletes()
        await world.node("n1")
        await pod(world, "v", "4", grace=30)
        await world.until(world.bound("v"))
        await world.node("n2")
        await pod(world, "w", "4", 10, grace=30)
        await world.until(world.bound("w"))
        await pod(world, "p", "4", 1000)
        await world.until(is_nominated(world, "p", "n1"))
        await world.until(is_terminating(world, "v"))
        await pod(world, "q", "4", 2000)
        await world.until(is_nominated(world, "q", "n1"))
        await world.until(is_terminating(world, "w"))
        await world.until(is_nominated(world, "p", "n2"))
        await finish(world, "v", "n1")
        await finish(world, "w", "n2")
        await world.until(world.bound("p"))
        await world.until(world.bound("q"))
        return deletes.sent, await world.node_of("q"), await world.node_of("p")

    assert play(scenario, preemption__clear_nominations="always") == (["v", "w"], "n1", "n2")


def test_a_lower_nomination_stays_while_all_victims_terminate_already(play):
    async def scenario(world):
        world.hook = deletes = Deletes()
        await world.node("n1")
        await pod(world, "v", "4", grace=30)
        await world.until(world.bound("v"))
        await world.node("n2")
        await pod(world, "w", "4", 10, grace=30)
        await world.until(world.bound("w"))
        await pod(world, "p", "4", 1000)
        await world.until(is_terminating(world, "v"))
        await pod(world, "q", "4", 2000)
        await world.until(is_nominated(world, "q", "n1"))
        await asyncio.sleep(5.0)
        before, still = list(deletes.sent), is_nominated(world, "p", "n1")
        kept = await world.until(still)
        await finish(world, "v", "n1")
        await world.until(world.bound("q"))
        await world.until(is_terminating(world, "w"))
        return before, kept < 1.0, await world.node_of("q"), deletes.sent

    assert play(scenario) == (["v"], True, "n1", ["v", "w"])


@pytest.mark.parametrize("reverts", [False, True])
def test_preemption_13_a_failed_eviction_sends_the_preemptor_back_at_once(play, reverts):
    async def scenario(world):
        world.hook = deletes = Deletes(fails="v1")
        await world.node("n1", cpu="3")
        for name, priority in (("v1", 30), ("v2", 20), ("v3", 10)):
            await pod(world, name, "1", priority, grace=30)
            await world.until(world.bound(name))
        await pod(world, "p", "3", 1000)
        failures = 'scheduler_preemption_goroutines_execution_total{result="error"}'
        await world.until(lambda: world.scheduler.metrics()[failures] == 1)
        took_s = await world.until(lambda: len(world.said("sched.attempt", "p")) > 1)
        again = world.said("sched.attempt", "p")[1].data["message"]
        await asyncio.sleep(1.0)
        await finish(world, "v2", "n1")
        await world.until(lambda: len(deletes.sent) == 3)
        for name in ("v1", "v3"):
            await finish(world, name, "n1")
        waited_s = await world.until(world.bound("p"))
        second, last = world.said("sched.attempt", "p")[1], world.said("sched.victim", "v3")[0]
        is_skipped = world.lines.index(second) < world.lines.index(last)
        return is_skipped, sorted(deletes.sent), took_s, again, waited_s, world.said("sched.flush_rescue")

    is_skipped, sent, took_s, again, waited_s, rescues = play(scenario, preemption__revert_nomination=reverts)

    assert is_skipped, "the last victim is not attempted after a failure"
    assert sent == ["v1", "v2", "v3"], "one delete each"
    assert took_s < 0.1
    assert again.endswith(GUARDED) is not reverts, "a nomination that is kept postpones the second attempt"
    assert (waited_s < 20, rescues) == (True, [])


class Patience:
    """Has the pod `v` wait at Permit, or prepare for long, as configured."""

    name = "Patience"

    def __init__(self, point):
        self._point = point

    def permit(self, state, info, node_name):
        waits = self._point == "permit" and info.key.name == "v"
        return (Status(Code.WAIT), 900.0) if waits else (SUCCESS, 0.0)

    def pre_bind_pre_flight(self, state, info, node_name):
        return SUCCESS if self._point == "preBind" and info.key.name == "v" else SKIP

    async def pre_bind(self, state, info, node_name, client):
        await asyncio.sleep(600.0)
        return SUCCESS


@pytest.fixture
def patient(monkeypatch):
    """Wire the scheduler with a plugin that has `v` wait at that point."""

    def at(point):
        monkeypatch.setattr(
            "scheduler.wiring.default_profile", lambda handle: [*default_profile(handle), Enabled(Patience(point))]
        )

    return at


async def preempt_one_that_waits(world, limit_s=60.0):
    """Have `p` preempt `v`, which is on its way to n1; return (deletes, seconds until bound, notes, attempts of v)."""
    world.hook = deletes = Deletes()
    await world.node("n1")
    await pod(world, "v", "4")
    await world.until(is_nominated(world, "v", "n1"))
    await asyncio.sleep(0.1)
    p = await pod(world, "p", "4", 1000)
    took_s = await world.until(world.bound("p"), limit_s)
    await asyncio.sleep(5.0)
    uid = p["metadata"]["uid"]
    notes = [message.replace(uid, "P") for _, reason, message in await world.notes("v") if reason == "Preempted"]
    return deletes.sent, took_s, notes, len(world.said("sched.attempt", "v"))


@pytest.mark.parametrize("point", ["permit", "preBind"])
def test_preemption_14_a_victim_on_its_way_is_turned_back_in_memory(play, patient, point):
    patient(point)

    sent, took_s, notes, attempts = play(preempt_one_that_waits)

    assert sent == []
    assert took_s < 2
    assert notes == ["Preempted by pod P on node n1 (in kube-scheduler memory)."]
    assert attempts > 2, "on its way, rejected, and tried once more without any event"


def test_preemption_14_before_1_36_such_a_victim_waited_among_the_unschedulable(play, patient):
    patient("permit")

    assert play(preempt_one_that_waits, preemption__waiting_victim="unschedulable")[3] == 2


def test_preemption_14_activating_on_errors_only_leaves_the_preemptor_to_the_flush(play, patient):
    patient("permit")

    async def scenario(world):
        return await preempt_one_that_waits(world, 400.0)

    assert play(scenario, preemption__async_activate="on-error")[1] > 290


@pytest.mark.parametrize("point", ["permit", "preBind"])
def test_preemption_14_a_victim_on_its_way_may_be_deleted_instead(play, patient, point):
    patient(point)

    switches = {"preemption__waiting_victim": "delete", "preemption__pre_bind_victim": "delete"}
    sent, took_s, notes, _ = play(preempt_one_that_waits, **switches)

    assert (sent, notes) == (["v"], ["Preempted by pod P on node n1"])
    assert took_s < 2


def test_preemption_23_a_restart_in_the_middle_evicts_no_pod_twice(play):
    async def scenario(world):
        world.hook = deletes = Deletes(hangs="v2")
        await world.node("n1")
        for name, priority in (("v1", 20), ("v2", 10)):
            await pod(world, name, "2", priority, grace=30)
            await world.until(world.bound(name))
        await pod(world, "p", "4", 1000)
        await world.until(is_terminating(world, "v1"))
        await asyncio.sleep(0.5)
        await world.restart_scheduler()
        await world.until(says(world, "p", GUARDED))
        before = list(deletes.sent)
        await finish(world, "v1", "n1")
        await world.until(is_terminating(world, "v2"))
        await finish(world, "v2", "n1")
        await world.until(world.bound("p"))
        return before, deletes.sent

    assert play(scenario) == (["v1"], ["v1", "v2"])


def test_a_victim_is_spared_when_its_preemptor_is_gone_before_the_call(play):
    async def scenario(world):
        await world.node("n1")
        await pod(world, "v", "4")
        await world.until(world.bound("v"))
        sent = []

        async def slowly(request, call):
            if request.name == "v" and request.subresource == "status":
                await world.admin.delete("pods", Key("default", "p"), grace_period_s=0)
                await asyncio.sleep(1.0)
            if request.verb == "delete":
                sent.append(request.name)
            return await call(request)

        world.hook = slowly
        await pod(world, "p", "4", 1000)
        await asyncio.sleep(5.0)
        return sent, (await world.get("v"))["metadata"].get("deletionTimestamp")

    assert play(scenario) == ([], None)


def test_a_pod_that_is_deleted_while_it_waits_stops_waiting(play, patient):
    patient("permit")

    async def scenario(world):
        await world.node("n1")
        await pod(world, "v", "4")
        await world.until(is_nominated(world, "v", "n1"))
        await world.admin.delete("pods", Key("default", "v"), grace_period_s=0)
        return await world.until(lambda: world.scheduler.metrics()['scheduler_goroutines{operation="binding"}'] == 0)

    assert play(scenario) < 1


def test_preemption_3_5_an_eviction_that_fails_while_the_loop_waits_is_reported_and_nominates_no_node(play):
    async def scenario(world):
        world.hook = deletes = Deletes(fails="v")
        await world.node("n1")
        await pod(world, "v", "4")
        await world.until(world.bound("v"))
        await pod(world, "p", "4", 1000)
        await world.until(says(world, "p", "preemption: not all victims on node n1 could be evicted"))
        return deletes.sent, (await world.get("p"))["status"].get("nominatedNodeName", "")

    assert play(scenario, SchedulerAsyncPreemption=False) == ([], "")


def test_a_victim_that_still_looks_alive_is_not_deleted_again(play):
    async def scenario(world):
        world.hook = deletes = Deletes(fails="v1", fails_after_s=0.0)
        await world.node("n1", cpu="3")
        for name, priority in (("v1", 30), ("v2", 20), ("v3", 10)):
            await pod(world, name, "1", priority, grace=30)
            await world.until(world.bound(name))
        world.network.profile("scheduler").faults = LinkFaults(watch_delay_s=2.0)
        await pod(world, "p", "3", 1000)
        await world.until(lambda: "v3" in deletes.sent)
        return sorted(deletes.sent)

    assert play(scenario) == ["v1", "v2", "v3"]
