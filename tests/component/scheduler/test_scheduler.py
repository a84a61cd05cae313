"""The scheduler's loops against a real API server: binds, failures, unbinds, lost answers, restarts."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.framework.events import Action
from services.api.errors import ApiError, Conflict, UnknownOutcome
from services.api.meta import Key
from services.api.wire import Response
from services.client.link_faults import LinkFaults

BIND = "binding"


def test_a_pod_is_bound_reported_and_logged_once(play):
    async def scenario(world):
        await world.node("n1")
        await world.pod("p")
        await world.until(world.bound("p"))
        await asyncio.sleep(1)
        return await world.get("p"), await world.notes("p"), world

    pod, notes, world = play(scenario)

    assert world.condition(pod)["status"] == "True"
    assert notes == [("Normal", "Scheduled", "Successfully assigned default/p to n1")]
    assert [line.ev for line in world.lines if line.ev.startswith("sched.")] == [
        "sched.attempt",
        "sched.assume",
        "sched.bind_call",
        "sched.bind_result",
    ]
    assert world.said("sched.bind_result")[0].data["outcome"] == "ok"
    assert world.said("sched.bind_result")[0].rv > 0
    metrics = world.scheduler.metrics()
    assert metrics['scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"}'] == 1
    assert metrics['scheduler_cache_size{type="assumed_pods"}'] == 0
    assert metrics['scheduler_pending_pods{queue="active"}'] == 0


def test_a_pod_that_fits_nowhere_says_why_and_is_placed_when_capacity_comes(play):
    async def scenario(world):
        await world.node("n1", cpu="1")
        await world.pod("p", cpu="2")
        await asyncio.sleep(2)
        pod, explained = await world.get("p"), world.scheduler.explainer.pod(Key("default", "p"))
        rv = pod["metadata"]["resourceVersion"]
        world.scheduler._core.queue.activate([Key("default", "p")], world.clock.now())
        world.scheduler._wake.set()
        await asyncio.sleep(1)
        unchanged = (await world.get("p"))["metadata"]["resourceVersion"] == rv
        await world.node("n2")
        took = await world.until(world.bound("p"))
        return pod, explained, unchanged, took, await world.notes("p"), world

    pod, explained, unchanged, took, notes, world = play(scenario)
    message = (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )

    assert {**world.condition(pod), "lastTransitionTime": ""} == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": "",
    }
    assert ("Warning", "FailedScheduling", message) in notes
    assert explained["rejected"] == {"NodeResourcesFit": {"Insufficient cpu": 1}}
    assert explained["pool"] == "unschedulable"
    assert unchanged, "a second attempt with the same answer writes nothing"
    assert took < 1.0


def test_a_pod_waits_for_the_first_node(play):
    async def scenario(world):
        await world.pod("p")
        await asyncio.sleep(20)
        pod = await world.get("p")
        tried = len(world.said("sched.attempt", "p"))
        await world.node("n1")
        return pod, await world.until(world.bound("p")), tried, world

    pod, took, tried, world = play(scenario)

    assert world.condition(pod)["message"] == "no nodes available to schedule pods"
    assert world.said("sched.attempt", "p")[0].data["plugins"] == []
    assert tried == 5, "without a rejector it is tried after 1, 2, 4 and 8 s"
    assert took < 10.0, "the back-off of at most 10 s goes on when the node comes"


def test_a_taint_that_changes_wakes_a_pod_that_something_else_refused(play):
    async def scenario(world):
        await world.node("n1", cpu="1")
        await world.pod("p", cpu="2")
        await asyncio.sleep(20)
        before = len(world.said("sched.attempt", "p"))
        taint = {"key": "k", "value": "v", "effect": "PreferNoSchedule"}
        await world.admin.patch("nodes", Key("", "n1"), {"spec": {"taints": [taint]}})
        await asyncio.sleep(20)
        return len(world.said("sched.attempt", "p")) - before

    assert play(scenario) == 1


def test_scheduler_queue_and_cycles_19_a_delayed_bind_holds_its_capacity_and_a_failed_one_frees_it(play):
    async def scenario(world):
        async def refuse_first(request, call):
            if request.subresource == BIND and request.name == "first":
                await asyncio.sleep(max(0.0, 5.0 - world.clock.now()))
                return Response(
                    code=409, body=b'{"reason":"Conflict","message":"another client was quicker","code":409}'
                )
            return await call(request)

        world.hook = refuse_first
        await world.node("n1", cpu="1")
        await world.pod("first")
        await asyncio.sleep(0.5)
        await world.pod("second")
        await asyncio.sleep(3)
        early = await world.node_of("second")
        took = await world.until(world.bound("second"), 3)
        await asyncio.sleep(1)
        return early, took, await world.get("first"), world

    early, took, first, world = play(scenario)

    assert early == ""
    assert took < 3
    # It failed by an error and was tried again after its back-off; by then the capacity was taken.
    assert [line.data["outcome"] for line in world.said("sched.bind_result", "first")] == ["conflict"]
    assert world.condition(first)["reason"] in ("SchedulerError", "Unschedulable")
    assert world.said("sched.attempt", "first")[1].data["message"].endswith("another client was quicker")


def test_scheduler_queue_and_cycles_03_a_bind_that_fails_by_500_is_not_repeated_before_a_second(play):
    async def scenario(world):
        times = []

        async def fail_once(request, call):
            if request.subresource == BIND:
                times.append(world.clock.now())
                if len(times) == 1:
                    return Response(code=500, body=b'{"message":"etcd is away","code":500}')
            return await call(request)

        world.hook = fail_once
        await world.node("n1")
        await world.pod("p")
        await world.until(world.bound("p"))
        return times, await world.get("p"), await world.notes("p")

    times, _, notes = play(scenario)

    assert 1.0 <= times[1] - times[0] <= 2.1
    assert ("Warning", "FailedScheduling", 'running Bind plugin "DefaultBinder": etcd is away') in notes


@pytest.mark.parametrize("arrives", [True, False], ids=["reply-lost", "request-lost"])
def test_a_bind_without_answer_is_resolved_by_asking_and_never_doubled(play, arrives):
    """FM-S5, K2, C6."""

    async def scenario(world):
        lost = []

        async def lose(request, call):
            if request.subresource == BIND and len(lost) < 2:
                lost.append(request.request_id)
                if arrives:
                    await call(request)
                raise UnknownOutcome("lost")
            return await call(request)

        world.hook = lose
        await world.node("n1")
        await world.pod("p")
        took = await world.until(world.bound("p"))
        await asyncio.sleep(15)
        return lost, took, await world.get("p"), world

    lost, took, pod, world = play(scenario)

    assert took < 15
    assert len(set(lost)) == 1, "the same request id, so that the server knows it again"
    assert [line.data["outcome"] for line in world.said("sched.bind_result")] == ["ok"]
    assert pod["status"]["bindingGeneration"] == pod["metadata"]["generation"]


def test_a_bind_without_answer_keeps_its_capacity_until_a_read_shows_it_unbound(play):
    async def scenario(world):
        cut = [True]

        async def dead(request, call):
            if cut[0] and (request.subresource == BIND or (request.verb == "get" and request.resource == "pods")):
                await asyncio.sleep(5)
                raise UnknownOutcome("lost")
            return await call(request)

        world.hook = dead
        await world.node("n1", cpu="1")
        await world.pod("p")
        await asyncio.sleep(1)
        await world.pod("other")
        await asyncio.sleep(100)
        held = world.scheduler.metrics()['scheduler_cache_size{type="assumed_pods"}']
        other = await world.node_of("other")
        cut[0] = False
        await world.until(lambda: world.said("sched.bind_result", "p")[1:])
        return held, other, world.said("sched.bind_result", "p")

    held, other, results = play(scenario)

    assert (held, other) == (1, "")
    assert results[0].data["outcome"] == "unknown"
    assert (results[1].data["outcome"], results[1].data["resolved_how"]) == ("error", "read")


def test_kubelet_unbinding_02_an_unbound_pod_runs_elsewhere_within_five_seconds(play):
    async def scenario(world):
        await world.node("n1", cpu="8")
        await world.node("n2", cpu="2")
        await world.pod("p")
        await world.until(world.bound("p"))
        assert await world.node_of("p") == "n1"
        await asyncio.sleep(0.5)
        await world.unbind("p", "n1")
        took = await world.until(world.bound("p"))
        await asyncio.sleep(1)
        return took, await world.get("p"), await world.notes("p"), world

    took, pod, notes, world = play(scenario)

    assert 0.9 <= took <= 5
    assert pod["spec"]["nodeName"] == "n2"
    assert pod["status"]["unbindCount"] == 1
    text = "Unbound from n1 (TopologyAffinityError), attempt 1 of 5, next try in 1s"
    assert ("Normal", "Unbound", text) in notes
    metrics = world.scheduler.metrics()
    assert metrics['scheduler_pod_unbinds_total{reason="TopologyAffinityError"}'] == 1
    assert metrics["scheduler_unbound_to_rebound_seconds_count"] == 1
    assert metrics["scheduler_node_exclusions"] == 1


def test_kubelet_unbinding_13_with_the_watch_two_seconds_late_nothing_is_left_behind(play):
    async def scenario(world):
        await world.node("n1", cpu="8")
        await world.node("n2", cpu="2")
        await asyncio.sleep(1)
        world.network.profile("scheduler").faults = LinkFaults(watch_delay_s=2.0)
        await world.pod("p")
        await world.until(world.bound("p"))
        await world.unbind("p", "n1")
        took = await world.until(world.bound("p"))
        await asyncio.sleep(5)
        requested = {n: i.requested.get("cpu", 0) for n, i in world.scheduler._core.cache.nodes.items()}
        return took, requested, await world.node_of("p"), world.scheduler.metrics()

    took, requested, node, metrics = play(scenario)

    assert took <= 10
    assert node == "n2"
    assert requested == {"n1": 0, "n2": 1000}
    assert metrics['scheduler_cache_size{type="assumed_pods"}'] == 0


def test_kubelet_unbinding_12_with_the_handshake_an_old_scheduler_is_spared(play):
    async def scenario(world):
        await world.node("n1")
        await world.pod("p")
        await world.until(world.bound("p"))
        with pytest.raises(Conflict) as refusal:
            await world.unbind("p", "n1")
        return refusal.value.reason

    assert play(scenario, **{"scheduler_only.PodUnbinding": False}) == "SchedulerNotCapable"


def test_kubelet_unbinding_12_without_the_handshake_it_exits_with_code_1(play):
    async def scenario(world):
        await world.node("n1")
        await world.pod("p")
        await world.until(world.bound("p"))
        await asyncio.sleep(0.5)
        await world.unbind("p", "n1")
        await world.until(world.scheduler_task.done)
        (error,) = world.scheduler_task.result().exceptions
        return error

    error = play(scenario, **{"scheduler_only.PodUnbinding": False, "unbind.require_scheduler_capability": False})

    assert error.exit_code == 1
    assert "cache is corrupted and can badly affect scheduling decisions" in error.message


def test_the_lease_says_that_unbound_pods_may_come_back(play):
    async def scenario(world):
        key = Key("kube-system", "default-scheduler")

        async def lease():
            try:
                return await world.admin.get("leases.coordination.k8s.io", key)
            except ApiError:
                return None

        await world.until(lease)
        first = await lease()
        await asyncio.sleep(12)
        return first, await lease()

    first, later = play(scenario)

    assert first["metadata"]["annotations"] == {"emulation/unbind": "v1"}
    assert first["spec"]["holderIdentity"] == "scheduler"
    assert first["spec"]["leaseDurationSeconds"] == 15
    assert later["spec"]["renewTime"] > first["spec"]["renewTime"]


def test_a_restarted_scheduler_binds_on_and_still_avoids_the_node(play):
    async def scenario(world):
        await world.node("n1", cpu="8")
        await world.node("n2", cpu="2")
        await world.pod("p")
        await world.until(world.bound("p"))
        await asyncio.sleep(0.5)
        await world.unbind("p", "n1")
        await world.restart_scheduler()
        await world.pod("q")
        took = await world.until(world.bound("q"))
        await world.until(world.bound("p"))
        return took, await world.node_of("p"), await world.node_of("q")

    took, p, q = play(scenario)

    assert took < 5
    assert (p, q) == ("n2", "n1")


def test_two_hundred_pods_are_bound_at_once_and_the_same_way_for_one_seed(play):
    async def scenario(world):
        for i in range(5):
            await world.node(f"n{i}", cpu="64")
        await asyncio.gather(*(world.pod(f"p{i}") for i in range(200)))
        await world.until(lambda: world.scheduler.metrics()['scheduler_cache_size{type="pods"}'] == 200)
        await asyncio.sleep(1)
        return world.events.digest, [len(i.pods) for i in world.scheduler._core.cache.nodes.values()]

    first, spread = play(scenario, seed=3)

    assert spread == [40] * 5
    assert play(scenario, seed=3)[0] == first


def test_a_gated_pod_waits_until_its_gate_is_gone(play):
    async def scenario(world):
        await world.node("n1")
        await world.pod("p", schedulingGates=[{"name": "wait"}])
        await asyncio.sleep(5)
        gated = world.scheduler.metrics()['scheduler_pending_pods{queue="gated"}']
        attempts = len(world.said("sched.attempt"))
        await world.admin.patch("pods", Key("default", "p"), {"spec": {"schedulingGates": None}})
        return gated, attempts, await world.until(world.bound("p"))

    gated, attempts, took = play(scenario)

    assert (gated, attempts) == (1, 0)
    assert took < 1


def test_a_nomination_to_a_vanished_node_is_cleared(play):
    """K4."""

    async def scenario(world):
        await world.node("n1", cpu="1")
        await world.pod("p", cpu="2")
        await asyncio.sleep(1)
        await world.admin.patch(
            "pods", Key("default", "p"), {"status": {"nominatedNodeName": "n1"}}, subresource="status"
        )
        await asyncio.sleep(1)
        await world.admin.delete("nodes", Key("", "n1"))

        async def cleared():
            return not (await world.get("p"))["status"].get("nominatedNodeName")

        return await world.until(cleared)

    assert play(scenario) < 10


def test_the_bind_carries_on_the_trace_of_the_pods_creation(play):
    async def scenario(world):
        await world.node("n1")
        await world.pod("p")
        await world.until(world.bound("p"))
        await asyncio.sleep(0.5)
        return world.spans

    spans = play(scenario)
    names = {s.name: s for s in spans.spans}

    assert names["bind pod"].trace_id == names["schedule pod"].trace_id
    assert names["bind pod"].parent == names["schedule pod"].span_id


def test_scheduler_queue_and_cycles_17_a_nomination_that_does_not_fit_is_cleared_by_the_failure(play):
    async def scenario(world):
        await world.node("n9", cpu="1")
        await world.pod("p", cpu="2", schedulingGates=[{"name": "wait"}])
        nominated = {"status": {"nominatedNodeName": "n9"}}
        await world.admin.patch("pods", Key("default", "p"), nominated, subresource="status")
        await world.admin.patch("pods", Key("default", "p"), {"spec": {"schedulingGates": None}})
        await world.until(lambda: world.said("sched.attempt", "p"))
        await asyncio.sleep(1)
        return await world.get("p")

    pod = play(scenario)

    assert not pod["status"].get("nominatedNodeName")


def test_a_pod_of_another_scheduler_is_explained_with_whom_it_waits_for(play):
    async def scenario(world):
        await world.pod("strange", schedulerName="absent")
        await asyncio.sleep(0.2)
        return world.scheduler.explainer.pod(Key("default", "strange"))

    found = play(scenario)
    assert (found["pool"], found["message"]) == (
        "",
        "it waits for the scheduler 'absent'; this one is default-scheduler",
    )


def test_actions_are_named_in_few_words():
    assert [action.words for action in (Action.ADD, Action.ALL, Action.UPDATE, Action.ADD | Action.UPDATE)] == [
        "ADD",
        "ALL",
        "UPDATE",
        "ADD|UPDATE",
    ]
