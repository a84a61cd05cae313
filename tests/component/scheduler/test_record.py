"""The decision record on the pod itself, under the keys that kube-scheduler-simulator's page reads."""

import asyncio
import json

from services.api.meta import Key

PREFIX = "kube-scheduler-simulator.sigs.k8s.io/"


def test_a_scheduled_pod_carries_every_plugins_answer_for_every_node(play):
    async def scenario(world):
        await world.node("n1")
        await world.node("n2", cpu="1")
        await world.pod("p", cpu="2")
        await world.until(world.bound("p"))
        await asyncio.sleep(1)
        return (await world.get("p"))["metadata"]["annotations"]

    found = play(scenario, **{"scheduler.record": "annotations"})

    assert found[PREFIX + "selected-node"] == "n1"
    filtered = json.loads(found[PREFIX + "filter-result"])
    assert filtered["n2"]["NodeResourcesFit"] == "Insufficient cpu"
    assert set(filtered["n1"].values()) == {"passed"}
    assert json.loads(found[PREFIX + "finalscore-result"])["n1"]["TaintToleration"] == "300"
    assert json.loads(found[PREFIX + "bind-result"]) == {"DefaultBinder": "success"}


def test_each_attempt_stays_in_the_history(play):
    async def scenario(world):
        await world.node("n1", cpu="1")
        await world.pod("p", cpu="2")
        await asyncio.sleep(1)
        first = (await world.get("p"))["metadata"]["annotations"]
        await world.node("n2")
        await world.until(world.bound("p"))
        await asyncio.sleep(1)
        return first, (await world.get("p"))["metadata"]["annotations"]

    first, last = play(scenario, **{"scheduler.record": "annotations"})

    assert first[PREFIX + "selected-node"] == ""
    history = json.loads(last[PREFIX + "result-history"])
    assert [attempt[PREFIX + "selected-node"] for attempt in history] == ["", "n2"]


def test_by_default_nothing_is_written_onto_pods(play):
    async def scenario(world):
        await world.node("n1")
        await world.pod("p")
        await world.until(world.bound("p"))
        await asyncio.sleep(1)
        return await world.get("p"), world.scheduler.explainer.pod(Key("default", "p"))

    pod, explained = play(scenario)

    assert "annotations" not in pod["metadata"]
    assert "annotations" not in explained
