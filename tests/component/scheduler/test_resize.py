"""Deferred resizes with a scheduler, an API server and no kubelet: the scenarios play its part (kep-5836)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from services.api.errors import AlreadyExists
from services.api.identity import node_identity
from services.api.meta import Key

GATE = {"InPlacePodVerticalScalingSchedulerPreemption": True, "resize__feasibility": "node"}


async def pod(world, name, cpu, priority=0, grace=1):
    """Create a pod of that priority and wait until it is on the node and runs there."""
    rank = f"rank-{priority}"
    ranked = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": rank},
        "value": priority,
    }
    with contextlib.suppress(AlreadyExists):
        await world.admin.create("priorityclasses.scheduling.k8s.io", ranked)
    await world.pod(name, cpu=cpu, priorityClassName=rank, terminationGracePeriodSeconds=grace)
    await world.until(world.bound(name))
    await report(world, name, cpu)


async def report(world, name, cpu, reason=""):
    """Say as the kubelet what the pod was given, and, with a reason, that its resize is pending."""
    pending = {"type": "PodResizePending", **({"status": "True", "reason": reason} if reason else {"$patch": "delete"})}
    resources = {"requests": {"cpu": cpu}}
    generation = (await world.get(name))["metadata"]["generation"]
    status = {
        "phase": "Running",
        "conditions": [pending],
        "observedGeneration": generation,
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": cpu}, "resources": resources}],
    }
    await world.client(node_identity("n1")).patch(
        "pods", Key("default", name), {"status": status}, subresource="status", patch_type="strategic"
    )


async def resize(world, name, cpu, has, reason="Deferred"):
    """Ask for another size, and have the kubelet say no."""
    body = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
    await world.admin.patch("pods", Key("default", name), body, subresource="resize", patch_type="strategic")
    await report(world, name, has, reason)


async def finish(world, name):
    """Let the kubelet end the pod's grace."""
    await world.client(node_identity("n1")).delete("pods", Key("default", name), grace_period_s=0)


def is_going(world, name):
    async def check():
        return "deletionTimestamp" in (await world.get(name))["metadata"]

    return check


def outcomes(world):
    return [line.data["outcome"] for line in world.said("sched.resize", "h")]


def conditions(pod):
    return {c["type"]: (c["status"], c["reason"]) for c in pod["status"]["conditions"] if "reason" in c}


async def full_node(world):
    """A node of 300m with v (200m, low) and h (100m, high)."""
    await world.node("n1", cpu="300m")
    await pod(world, "v", "200m")
    await pod(world, "h", "100m", 300)


@pytest.mark.parametrize("is_async", [True, False])
def test_kep_5836_01_victims_are_marked_and_deleted_and_the_pods_own_status_stays(play, is_async):
    async def scenario(world):
        await full_node(world)
        await resize(world, "h", "300m", "100m")
        await world.until(is_going(world, "v"))
        victim = await world.get("v")
        await finish(world, "v")
        await report(world, "h", "300m")
        await asyncio.sleep(5)
        return victim, await world.get("h"), outcomes(world), world.scheduler.metrics()

    victim, h, said, metrics = play(scenario, **GATE, SchedulerAsyncPreemption=is_async)

    assert conditions(victim)["DisruptionTarget"] == ("True", "PreemptionByScheduler")
    assert h["status"].get("nominatedNodeName", "") == ""
    assert next(c["status"] for c in h["status"]["conditions"] if c["type"] == "PodScheduled") == "True"
    assert said[0] == "unschedulable"
    assert metrics["scheduler_resize_preemption_attempts_total"] == 1
    assert not [name for name in metrics if name.startswith("scheduler_pending_resize_pods")]


def test_kep_5836_05_in_the_fourth_generation_a_pod_that_fits_leaves_without_a_binding(play):
    async def scenario(world):
        bindings = []

        async def hook(request, call):
            if request.subresource == "binding":
                bindings.append(request.name)
            return await call(request)

        await world.node("n1", cpu="300m")
        await pod(world, "h", "100m", 300)
        world.hook = hook
        await resize(world, "h", "300m", "100m")
        await world.until(lambda: outcomes(world))
        await asyncio.sleep(1)
        return bindings, outcomes(world), world.scheduler.metrics()

    bindings, said, metrics = play(scenario, **GATE, resize__generation="G4")

    assert (bindings, said) == ([], ["fits"])
    assert metrics['scheduler_pending_resize_pods{queue="waiting"}'] == 1


def test_a_resize_taken_back_in_the_middle_of_its_evictions_spares_the_victims_left(play):
    async def scenario(world):
        async def hook(request, call):
            if request.name == "v" and request.subresource == "status":
                await resize_back.wait()
            return await call(request)

        resize_back = asyncio.Event()
        await full_node(world)
        world.hook = hook
        await resize(world, "h", "300m", "100m")
        await world.until(lambda: outcomes(world))
        await resize(world, "h", "100m", "100m", "")
        await asyncio.sleep(1)
        resize_back.set()
        await asyncio.sleep(5)
        return await world.get("v")

    victim = play(scenario, **GATE)

    assert "deletionTimestamp" not in victim["metadata"]


@pytest.mark.parametrize(("generation", "is_kept"), [("G0", True), ("G1", False)])
def test_early_generations_write_on_the_pod_that_preemption_failed_and_the_second_takes_it_back(
    play, generation, is_kept
):
    async def scenario(world):
        await world.node("n1", cpu="300m")
        await pod(world, "o", "200m", 300)
        await pod(world, "h", "100m", 300)
        await resize(world, "h", "300m", "100m")
        await world.until(lambda: outcomes(world))
        await asyncio.sleep(1)
        before = await world.get("h")
        await resize(world, "h", "100m", "100m", "")
        await asyncio.sleep(1)
        return before, await world.get("h")

    before, after = play(scenario, **GATE, resize__generation=generation)
    condition = next(c for c in before["status"]["conditions"] if c["type"] == "ResizeUnschedulable")

    assert (condition["status"], condition["reason"]) == ("True", "PreemptionFailed")
    assert condition["message"] == "preemption on node 'n1' failed to free 200m of cpu needed for the resize"
    assert ("ResizeUnschedulable" in conditions(after)) is is_kept


def test_kep_5836_11_people_read_why_a_resize_waits(play):
    async def scenario(world):
        await full_node(world)
        policy = {"spec": {"podPreemptionPolicy": {"disableResizePreemption": ["ops/x"]}}}
        await world.admin.patch("nodes", Key("", "n1"), policy)
        await resize(world, "h", "300m", "100m")
        await asyncio.sleep(3)
        return await world.notes("h"), await world.get("v")

    notes, victim = play(scenario, **GATE)

    text = "0/1 nodes are available: 1 node had resize preemption disabled."
    assert ("Warning", "FailedScheduling", text) in notes
    assert "deletionTimestamp" not in victim["metadata"]


def test_explain_says_whom_a_resize_evicts_and_why(play):
    async def scenario(world):
        await full_node(world)
        await resize(world, "h", "300m", "100m")
        await world.until(is_going(world, "v"))
        return world.scheduler.explainer.pod(Key("default", "h"))

    found = play(scenario, **GATE)

    assert (found["outcome"], found["node"], found["victims"]) == ("unschedulable", "n1", ["default/v"])
    assert found["message"] == "0/1 nodes are available: 1 Insufficient cpu."
    assert (found["pool"], found["would_fit_if"]) == ("unschedulable", [])


def test_explain_says_nothing_of_what_kept_a_pod_from_growing_once_it_has_grown(play):
    async def scenario(world):
        await full_node(world)
        await resize(world, "h", "300m", "100m")
        await world.until(is_going(world, "v"))
        await finish(world, "v")
        await world.until(lambda: "fits" in outcomes(world))
        parked = world.scheduler.explainer.pod(Key("default", "h"))["message"]
        await report(world, "h", "300m")
        await asyncio.sleep(1)
        return parked, world.scheduler.explainer.pod(Key("default", "h"))["message"]

    text = "0/1 nodes are available: 1 pod resize fits, waiting for Kubelet actuation."
    assert play(scenario, **GATE) == (text, "")


def test_without_the_gate_nothing_happens(play):
    async def scenario(world):
        await full_node(world)
        await resize(world, "h", "300m", "100m")
        await asyncio.sleep(30)
        return outcomes(world), await world.get("v")

    said, victim = play(scenario, resize__feasibility="node")

    assert said == []
    assert "deletionTimestamp" not in victim["metadata"]


def test_kep_5836_13_5_a_nomination_of_a_bound_pod_stands_while_its_victims_leave(play):
    async def scenario(world):
        await full_node(world)
        await resize(world, "h", "300m", "100m")
        await world.until(is_going(world, "v"))
        await asyncio.sleep(0.5)
        during = (await world.get("h"))["status"].get("nominatedNodeName", "")
        await finish(world, "v")
        await report(world, "h", "300m")
        await asyncio.sleep(1)
        return during, (await world.get("h"))["status"].get("nominatedNodeName", "")

    assert play(scenario, **GATE, resize__double_preemption="nnn") == ("n1", "")


def test_kep_5836_12_before_the_beta_resizes_distort_the_metrics_of_new_pods_and_then_they_have_their_own(play):
    async def scenario(world):
        await world.node("n1", cpu="300m")
        await pod(world, "o", "200m", 300)
        await pod(world, "h", "100m", 300)
        await resize(world, "h", "300m", "100m")
        await world.until(lambda: outcomes(world))
        await asyncio.sleep(1)
        metrics = world.scheduler.metrics()
        attempts = 'scheduler_schedule_attempts_total{profile="default-scheduler",result="unschedulable"}'
        return metrics, [
            metrics.get(name, 0)
            for name in (
                attempts,
                "scheduler_preemption_attempts_total",
                'scheduler_pending_pods{queue="unschedulable"}',
                "scheduler_resize_preemption_attempts_total",
                'scheduler_pending_resize_pods{queue="unschedulable"}',
            )
        ]

    merged, counts = play(scenario, **GATE)
    apart, own = play(scenario, **GATE, resize__generation="G4")

    assert (counts, own) == ([1, 1, 1, 1, 1], [0, 0, 0, 1, 1])
    assert merged['scheduler_queue_incoming_pods_total{event="UnscheduledPodAdd",queue="active"}'] == 3
    assert apart['scheduler_queue_incoming_pods_total{event="AssignedPodResize",queue="active"}'] == 1
    # o and h themselves were tried when they were deferred, too: one look for each change of a deferred pod.
    assert apart['scheduler_event_handling_duration_seconds_count{event="AssignedPodResize"}'] >= 1
    labels = 'operation="pod_resize",preemptor="pod"'
    assert apart[f'scheduler_preemption_evaluation_duration_seconds_count{{{labels},result="failure"}}'] == 1
    assert apart[f"scheduler_preemption_pdb_violations_total{{{labels}}}"] == 0
    total = "scheduler_preemption_goroutines_execution_total"
    assert f'{total}{{operation="initial_placement",result="success"}}' in apart
    assert f'{total}{{result="success"}}' in merged


def test_kep_5836_12_evictions_for_a_resize_are_counted_as_such_in_the_beta(play):
    async def scenario(world):
        await full_node(world)
        await resize(world, "h", "300m", "100m")
        await world.until(is_going(world, "v"))
        await asyncio.sleep(1)
        return world.scheduler.metrics()

    found = play(scenario, **GATE, resize__generation="G4")

    total = "scheduler_preemption_goroutines_execution_total"
    assert found[f'{total}{{operation="pod_resize",result="success"}}'] == 1
    assert found[f'{total}{{operation="initial_placement",result="success"}}'] == 0
    assert found["scheduler_resize_preemption_victims_count"] == 1
    assert found["scheduler_preemption_victims_count"] == 0


def test_kep_5836_18_a_pod_is_not_tried_again_while_its_victims_are_being_evicted(play):
    async def scenario(world):
        async def hook(request, call):
            if request.verb == "delete":
                deleted.append(request.name)
                if len(deleted) == 2:
                    await go_on.wait()
            return await call(request)

        deleted, go_on = [], asyncio.Event()
        await world.node("n1", cpu="300m")
        for name in ("v1", "v2"):
            await pod(world, name, "100m")
        await pod(world, "h", "100m", 300)
        world.hook = hook
        await resize(world, "h", "300m", "100m")
        await world.until(lambda: len(deleted) == 2)
        await finish(world, deleted[0])  # an event that would wake it
        await asyncio.sleep(2)
        held = len(outcomes(world))
        go_on.set()
        await world.until(is_going(world, deleted[1]))
        await finish(world, deleted[1])
        await world.until(lambda: "fits" in outcomes(world))
        return held, outcomes(world), deleted

    held, said, deleted = play(scenario, **GATE)

    assert (held, said) == (1, ["unschedulable", "fits"])
    assert sorted(deleted) == ["v1", "v2"]


@pytest.mark.parametrize("is_on", [True, False])
def test_kep_5836_17_an_apiserver_that_knows_the_feature_does_no_harm_to_a_scheduler_that_does_not(play, is_on):
    async def scenario(world):
        await full_node(world)
        policy = {"spec": {"podPreemptionPolicy": {"disableResizePreemption": ["ops/x"]}}}
        await world.admin.patch("nodes", Key("", "n1"), policy)
        stored = (await world.admin.get("nodes", Key("", "n1")))["spec"]["podPreemptionPolicy"]
        await world.admin.patch("nodes", Key("", "n1"), {"spec": {"podPreemptionPolicy": None}})
        await resize(world, "h", "300m", "100m")
        await asyncio.sleep(10)
        return stored, outcomes(world), "deletionTimestamp" in (await world.get("v"))["metadata"]

    gate = "scheduler_only__InPlacePodVerticalScalingSchedulerPreemption"
    stored, said, has_evicted = play(scenario, **GATE, **{gate: is_on})

    assert stored == {"disableResizePreemption": ["ops/x"]}
    assert (bool(said), has_evicted) == (is_on, is_on)


def test_kep_5836_17_a_scheduler_restarted_without_the_gate_lets_deferred_pods_be(play):
    async def scenario(world):
        await full_node(world)
        policy = {"spec": {"podPreemptionPolicy": {"disableResizePreemption": ["ops/x"]}}}
        await world.admin.patch("nodes", Key("", "n1"), policy)
        await resize(world, "h", "300m", "100m")
        await world.until(lambda: outcomes(world))
        before = len(outcomes(world))
        world.scheduler_switches = {"InPlacePodVerticalScalingSchedulerPreemption": False}
        await world.restart_scheduler()
        await world.admin.patch("nodes", Key("", "n1"), {"spec": {"podPreemptionPolicy": None}})
        await asyncio.sleep(30)
        return len(outcomes(world)) - before, "deletionTimestamp" in (await world.get("v"))["metadata"]

    assert play(scenario, **GATE) == (0, False)
