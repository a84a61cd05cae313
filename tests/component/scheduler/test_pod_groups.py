"""Gangs against a real API server: quorum, all or nothing, conditions, and evictions for a group."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from services.api.errors import ApiError
from services.api.meta import Key

GROUPS = "podgroups.scheduling.k8s.io"
CLASSES = "priorityclasses.scheduling.k8s.io"


async def group(world: Any, name: str = "g", count: int = 3, **spec: Any) -> None:
    spec.setdefault("schedulingPolicy", {"gang": {"minCount": count}} if count else {"basic": {}})
    await world.admin.create(
        GROUPS,
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        },
    )


async def priority(world: Any, **values: int) -> None:
    for name, value in values.items():
        await world.admin.create(
            CLASSES,
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value},
        )


async def members(world: Any, *names: str, of: str = "g", cpu: str = "1", **spec: Any) -> None:
    for name in names:
        await world.pod(name, cpu=cpu, schedulingGroup={"podGroupName": of}, **spec)


async def condition(world: Any, name: str = "g", kind: str = "PodGroupInitiallyScheduled") -> tuple[str, str, str]:
    found = await world.admin.get(GROUPS, Key("default", name))
    for each in (found.get("status") or {}).get("conditions", ()):
        if each["type"] == kind:
            return each["status"], each["reason"], each["message"]
    return "", "", ""


async def nodes_of(world: Any, *names: str) -> list[str]:
    return [await world.node_of(name) for name in names]


def gated(world: Any) -> list[str]:
    return [line.data["message"] for line in world.said("sched.gated")]


def test_preemption_16_a_gang_waits_for_its_quorum_and_is_bound_in_one_cycle(play):
    async def scenario(world):
        await world.node("n1")
        await group(world)
        await members(world, "a", "b")
        await asyncio.sleep(2)
        early = await nodes_of(world, "a", "b"), world.scheduler.explainer.queue()["quorums"]
        await members(world, "c")
        await world.until(world.bound("c"))
        await asyncio.sleep(1)
        bound, first = await nodes_of(world, "a", "b", "c"), await condition(world)
        await world.admin.delete("pods", Key("default", "a"), grace_period_s=0)
        await asyncio.sleep(1)
        quorums = world.scheduler.explainer.queue()["quorums"]
        return early, bound, first, await condition(world), quorums, world

    early, bound, first, later, quorums, world = play(scenario, GenericWorkload=True)

    assert early == (["", ""], [{"group": "default/g", "members": 2, "min_count": 3}])
    assert quorums == [], "no pod of it is gated"
    assert gated(world)[-1] == "waiting for minCount pods from a gang to appear in scheduling queue"
    assert bound == ["n1", "n1", "n1"]
    assert (first, later) == (("True", "Scheduled", ""), ("True", "Scheduled", ""))
    metrics = world.scheduler.metrics()
    attempts = 'scheduler_podgroup_schedule_attempts_total{profile="default-scheduler",result="scheduled"}'
    assert metrics[attempts] == 1


def test_preemption_17_members_wait_for_a_group_that_does_not_exist_yet(play):
    async def scenario(world):
        await world.node("n1")
        await members(world, "a", of="g1")
        await asyncio.sleep(1)
        before = await world.node_of("a")
        await group(world, "g1", count=0)
        await world.until(world.bound("a"))
        return before, world

    before, world = play(scenario, GenericWorkload=True)

    assert before == ""
    assert gated(world)[0] == 'waiting for pods\'s pod group "g1" to appear in scheduling queue'


def test_preemption_18_a_lower_minimum_lets_the_gang_go_and_a_higher_one_changes_nothing(play):
    async def ask_for(world, count):
        await world.admin.patch(
            GROUPS, Key("default", "g"), {"spec": {"schedulingPolicy": {"gang": {"minCount": count}}}}
        )
        await asyncio.sleep(2)

    async def scenario(world):
        await world.node("n1")
        await group(world, count=5)
        await members(world, "a", "b", "c")
        await ask_for(world, 4)
        at_four = await nodes_of(world, "a", "b", "c")
        await ask_for(world, 3)
        at_three = await nodes_of(world, "a", "b", "c")
        await ask_for(world, 6)
        return at_four, at_three, await nodes_of(world, "a", "b", "c"), await condition(world)

    at_four, at_three, at_six, scheduled = play(scenario, GenericWorkload=True)

    assert at_four == [""] * 3
    assert at_three == at_six == ["n1"] * 3
    assert scheduled[0] == "True"


def test_preemption_19_a_gang_that_does_not_fit_holds_no_capacity(play):
    async def scenario(world):
        await world.node("n1")
        await world.node("n2")
        await group(world)
        await members(world, "a", "b", "c", cpu="3")
        await asyncio.sleep(2)
        bound, said = await nodes_of(world, "a", "b", "c"), await condition(world)
        texts = [world.condition(await world.get(name))["message"] for name in "abc"]
        await world.pod("normal", cpu="3")
        took = await world.until(world.bound("normal"))
        return bound, said, texts, took

    bound, said, texts, took = play(scenario, GenericWorkload=True, gang__generation="W2")
    text = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"

    assert bound == ["", "", ""]
    assert said == ("False", "Unschedulable", text)
    assert texts[:2] == [text, text]
    assert texts[2].startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert took < 1


def test_preemption_19_in_w0_the_same_gang_holds_both_nodes_until_the_time_out(play):
    async def scenario(world):
        await world.node("n1")
        await world.node("n2")
        await group(world)
        await members(world, "a", "b", "c", cpu="3")
        await asyncio.sleep(2)
        await world.pod("normal", cpu="3")
        took = await world.until(world.bound("normal"), limit_s=400)
        return took, await nodes_of(world, "a", "b", "c")

    took, bound = play(scenario, GenericWorkload=True, gang__generation="W0")

    assert 295 < took < 305
    assert bound == ["", "", ""]


@pytest.mark.parametrize("generation", ["W0", "W1", "W2", "W3"])
def test_every_generation_binds_a_gang_that_fits(play, generation):
    async def scenario(world):
        await world.node("n1")
        await world.node("n2")
        await group(world)
        await members(world, "a", "b", "c", cpu="2")
        await world.until(world.bound("c"), limit_s=5)
        await asyncio.sleep(1)
        return await nodes_of(world, "a", "b", "c")

    assert "" not in play(scenario, GenericWorkload=True, gang__generation=generation)


def test_without_generations_members_are_scheduled_one_by_one(play):
    async def scenario(world):
        await world.node("n1")
        await members(world, "a")
        await world.until(world.bound("a"))
        return await nodes_of(world, "a")

    assert ["n1"] == play(scenario, GenericWorkload=True, gang__generation="off")


def test_preemption_22_a_member_of_another_priority_fails_the_group(play):
    async def scenario(world):
        await world.node("n1")
        await priority(world, one=1, two=2)
        await world.pod("low", cpu="4")
        await world.until(world.bound("low"))
        await group(world, count=2, priorityClassName="one")
        await members(world, "a", priorityClassName="one")
        await members(world, "b", priorityClassName="two")
        await asyncio.sleep(3)
        said = [world.condition(await world.get(name)) for name in ("a", "b")]
        return said, await condition(world), await world.get("low"), await world.notes("a")

    said, scheduled, low, notes = play(
        scenario, GenericWorkload=True, gang__generation="W2", gang__group_preemption="cluster"
    )
    text = "all pods in a single pod group should match the priority of the pod group, got: 1 and 2"

    assert {(each["status"], each["reason"], each["message"]) for each in said} == {("False", "SchedulerError", text)}
    assert scheduled == ("False", "SchedulerError", text)
    assert "deletionTimestamp" not in low["metadata"]
    assert ("Warning", "FailedScheduling", text) in notes


def test_preemption_21_a_gang_preempts_once_for_all_its_members(play):
    async def scenario(world):
        await world.node("n1")
        await world.node("n2")
        await priority(world, high=100)
        await world.pod("low1", cpu="2", terminationGracePeriodSeconds=1)
        await world.pod("low2", cpu="2", terminationGracePeriodSeconds=1)
        await world.until(world.bound("low2"))
        await world.pod("low3", cpu="1", terminationGracePeriodSeconds=1)
        await world.until(world.bound("low3"))
        await group(world, count=2, priorityClassName="high")
        await members(world, "a", "b", cpu="3", priorityClassName="high")
        await asyncio.sleep(2)
        leaving = [
            (await world.get(name))["metadata"].get("deletionTimestamp") is not None for name in ("low1", "low2")
        ]
        waiting, nominated = (
            await condition(world),
            [(await world.get(name))["status"].get("nominatedNodeName") for name in ("a", "b")],
        )
        for name in ("low1", "low2", "low3"):
            if "deletionTimestamp" in (await world.get(name))["metadata"]:
                await world.admin.delete("pods", Key("default", name), grace_period_s=0)
        await world.until(world.bound("b"))
        await asyncio.sleep(1)
        return leaving, waiting, nominated, await nodes_of(world, "a", "b"), await condition(world), world

    leaving, waiting, nominated, bound, scheduled, world = play(
        scenario, GenericWorkload=True, gang__group_preemption="cluster"
    )

    assert leaving == [True, True]
    assert waiting == ("False", "Unschedulable", "pod group is waiting for preemption to complete")
    assert sorted(nominated) == ["n1", "n2"]
    assert bound == nominated
    assert scheduled[:2] == ("True", "Scheduled")
    assert {line.node for line in world.said("sched.victim")} == {"cluster"}
    metrics = world.scheduler.metrics()
    assert metrics['scheduler_workload_preemption_attempts_total{result="success"}'] == 1
    assert metrics['scheduler_preemption_goroutines_execution_total{result="success"}'] == 1


def test_preemption_21_the_event_of_a_victim_names_the_group_and_the_cluster(play):
    async def scenario(world):
        await world.node("n1")
        await priority(world, high=100)
        await world.pod("low", cpu="4")
        await world.until(world.bound("low"))
        await group(world, count=1, priorityClassName="high")
        uid = (await world.admin.get(GROUPS, Key("default", "g")))["metadata"]["uid"]
        await members(world, "a", cpu="3", priorityClassName="high")
        await asyncio.sleep(2)
        return uid, await world.notes("low"), await world.get("low")

    uid, notes, low = play(scenario, GenericWorkload=True, gang__group_preemption="cluster")
    target = next(c for c in low["status"]["conditions"] if c["type"] == "DisruptionTarget")

    assert ("Normal", "Preempted", f"Preempted by podgroup {uid} on node cluster") in notes
    assert target["message"] == "default-scheduler: preempting to accommodate a higher priority pod group"


@pytest.mark.parametrize(("mode", "gone"), [("all", ["v1", "v2"]), ("single", ["v1"])])
def test_preemption_20_a_group_of_mode_all_is_evicted_on_every_node(play, mode, gone):
    async def scenario(world):
        await world.node("n1", pool="one")
        await world.node("n2", pool="two")
        await priority(world, low=10, high=1000)
        await group(world, "v", count=2, priorityClassName="low", disruptionMode={mode: {}})
        await members(world, "v1", of="v", cpu="3", priorityClassName="low", nodeSelector={"pool": "one"})
        await members(world, "v2", of="v", cpu="3", priorityClassName="low", nodeSelector={"pool": "two"})
        await world.until(world.bound("v2"))
        await asyncio.sleep(1)
        await world.pod("p", cpu="2", priorityClassName="high", nodeSelector={"pool": "one"})
        await asyncio.sleep(2)
        leaving = [n for n in ("v1", "v2") if "deletionTimestamp" in (await world.get(n))["metadata"]]
        return leaving, await condition(world, "v", "DisruptionTarget"), world.scheduler.metrics()

    leaving, disrupted, metrics = play(scenario, GenericWorkload=True)
    text = "default-scheduler: preempting to accommodate a higher priority pod"

    assert leaving == gone
    assert disrupted == (("True", "PreemptionByScheduler", text) if mode == "all" else ("", "", ""))
    assert metrics["scheduler_preemption_victims_sum"] == len(gone)
    assert metrics['scheduler_preemption_workload_disruptions_sum{preemptor="pod"}'] == 1


def test_preemption_15_a_groups_placement_is_not_optimal_for_its_victims(play):
    async def scenario(world, grouped):
        await world.node("n1")
        await world.node("n2")
        await priority(world, fixed=1000, a=10, b=50, mid=100)
        for name, cpu, node in (("fixed", "1", "n1"), ("a", "2", "n1"), ("b", "3", "n2")):
            await world.pod(name, cpu=cpu, nodeName=node, priorityClassName=name)
        await asyncio.sleep(1)
        if grouped:
            await group(world, count=1, priorityClassName="mid")
            await members(world, "p", cpu="3", priorityClassName="mid")
        else:
            await world.pod("p", cpu="3", priorityClassName="mid")
        await asyncio.sleep(2)
        return [n for n in ("a", "b", "fixed") if "deletionTimestamp" in (await world.get(n))["metadata"]]

    def victims(grouped):
        return play(lambda world: scenario(world, grouped), GenericWorkload=True, gang__group_preemption="cluster")

    assert victims(True) == ["b"]
    assert victims(False) == ["a"]


def test_a_member_whose_bind_is_refused_joins_its_gang_again(play):
    async def scenario(world):
        refusals = iter([ApiError("etcd is full", code=500)])

        async def refuse_once(request, call):
            if request.subresource == "binding" and request.name == "b":
                for error in refusals:
                    raise error
            return await call(request)

        world.hook = refuse_once
        await world.node("n1")
        await group(world, count=2)
        await members(world, "a", "b")
        await world.until(world.bound("b"), limit_s=10)
        return await nodes_of(world, "a", "b"), await condition(world)

    bound, scheduled = play(scenario, GenericWorkload=True)

    assert bound == ["n1", "n1"]
    assert scheduled[:2] == ("True", "Scheduled")


def test_an_unbound_member_is_placed_elsewhere(play):
    async def scenario(world):
        await world.node("n1")
        await group(world, count=2)
        await members(world, "a", "b")
        await world.until(world.bound("b"))
        await world.node("n2")
        await world.unbind("a", "n1")
        await world.until(world.bound("a"), limit_s=10)
        return await nodes_of(world, "a", "b")

    assert play(scenario, GenericWorkload=True) == ["n2", "n1"]


def test_preemption_23_a_restarted_scheduler_waits_for_the_gangs_victims_and_evicts_no_more(play):
    async def scenario(world):
        deletes = []

        async def count(request, call):
            if request.verb == "delete":
                deletes.append(request.name)
            return await call(request)

        world.hook = count
        await world.node("n1")
        await world.node("n2")
        await priority(world, high=100)
        await world.pod("low1", cpu="2", nodeName="n1")
        await world.pod("low2", cpu="2", nodeName="n2")
        await asyncio.sleep(1)
        await group(world, count=2, priorityClassName="high")
        await members(world, "a", "b", cpu="3", priorityClassName="high")
        await asyncio.sleep(2)
        await world.restart_scheduler()
        await asyncio.sleep(15)
        early = await nodes_of(world, "a", "b")
        for name in ("low1", "low2"):
            await world.admin.delete("pods", Key("default", name), grace_period_s=0)
        await world.until(world.bound("b"), limit_s=30)
        return sorted(deletes), early, sorted(await nodes_of(world, "a", "b"))

    deletes, early, bound = play(scenario, GenericWorkload=True, gang__group_preemption="cluster")

    assert deletes == ["low1", "low2"]
    assert early == ["", ""]
    assert bound == ["n1", "n2"]
