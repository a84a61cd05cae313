"""The decision record on the pod itself, under the keys that kube-scheduler-simulator's page reads."""

import asyncio
import json

import pytest

from scheduler.config import SchedulerConfig
from scheduler.entry import PluginEntry
from scheduler.explain.record_text import ANNOTATIONS_MAX_BYTES, size_of
from scheduler.framework.status import SUCCESS, Code, Status, error_status
from scheduler.wiring import build
from services.api.errors import ApiError
from services.api.meta import Key
from services.api.times import Duration
from tests.component.scheduler.conftest import World
from tests.component.scheduler.test_extenders import HEAD, Licences, keep
from tests.component.scheduler.test_pod_groups import group, members
from tests.component.scheduler.test_preemption import finish
from tests.component.scheduler.test_preemption import pod as ranked

PREFIX = "kube-scheduler-simulator.sigs.k8s.io/"
RECORDED = {"scheduler.record": "annotations"}


async def annotations(world, name):
    """Return the pod's record, its texts decoded."""
    await asyncio.sleep(1)
    found = (await world.get(name))["metadata"]["annotations"]
    return {key.removeprefix(PREFIX): value for key, value in found.items()}


async def nodes_seen(world, count):
    """Wait until the scheduler knows what so many nodes offer."""
    columns = world.scheduler._core.cache.columns
    await world.until(
        lambda: len(columns.slots) == count and columns.allocatable["cpu"][: columns.capacity].all(where=columns.valid)
    )


def decoded(found, key):
    return json.loads(found[key])


def test_ks_02_a_scheduled_pod_carries_every_plugins_answer_for_every_node(play):
    async def scenario(world):
        for name in ("n1", "n3"):
            await world.node(name)
        await world.node("n2", cpu="1")
        await nodes_seen(world, 3)
        await world.pod("p", cpu="2")
        await world.until(world.bound("p"))
        return await annotations(world, "p")

    found = play(scenario, **RECORDED)

    assert found["selected-node"] in ("n1", "n3")
    filtered = decoded(found, "filter-result")
    assert filtered["n2"]["NodeResourcesFit"] == "Insufficient cpu"
    assert set(filtered["n1"].values()) == {"passed"}
    assert decoded(found, "finalscore-result")["n1"]["TaintToleration"] == "300"
    sums = {node: sum(map(int, each.values())) for node, each in decoded(found, "finalscore-result").items()}
    assert sums[found["selected-node"]] == max(sums.values())
    assert decoded(found, "prescore-result")["TaintToleration"] == "success", "as upstream's plugin answers"
    assert decoded(found, "reserve-result") == {"DynamicResources": "success", "VolumeBinding": "success"}
    assert decoded(found, "permit-result") == {}, "no plugin was asked"
    assert decoded(found, "prebind-result") == {}, "no plugin had work"
    assert decoded(found, "bind-result") == {"DefaultBinder": "success"}


def test_ks_01_with_one_feasible_node_there_are_no_scores(play):
    async def scenario(world):
        await world.node("n1", cpu="4")
        await world.node("n2", cpu="1")
        await nodes_seen(world, 2)
        await world.pod("p", cpu="2")
        await world.until(world.bound("p"))
        return await annotations(world, "p")

    found = play(scenario, **RECORDED)

    assert decoded(found, "filter-result")["n2"]["NodeResourcesFit"] == "Insufficient cpu"
    assert [found[key] for key in ("score-result", "finalscore-result", "prescore-result")] == ["{}"] * 3
    assert found["selected-node"] == "n1"


def test_ks_03_preemption_is_recorded_and_its_second_attempt_stands_in_the_history(play):
    async def scenario(world):
        for name in ("n1", "n2"):
            await world.node(name, cpu="1")
        await nodes_seen(world, 2)
        await ranked(world, "high", "1", priority=9, nodeName="n1")
        await ranked(world, "low", "1", nodeName="n2")
        await ranked(world, "p", "1", priority=5)
        await world.until(lambda: world.said("sched.nominate", "p"))
        first = await annotations(world, "p")
        await finish(world, "low", "n2")
        await world.until(world.bound("p"))
        return first, await annotations(world, "p")

    first, last = play(scenario, **RECORDED)

    assert decoded(first, "postfilter-result") == {"n1": {}, "n2": {"DefaultPreemption": "preemption victim"}}
    history = decoded(last, "result-history")
    assert [each[PREFIX + "selected-node"] for each in history] == ["", "n2"]
    assert json.loads(history[0][PREFIX + "postfilter-result"])["n2"] == {"DefaultPreemption": "preemption victim"}
    assert decoded(last, "postfilter-result") == {}, "the second attempt found a node"


class Waiting:
    """Lets every pod wait at Permit, adds a result of its own, and prepares the bind."""

    name = "Waiting"

    def __init__(self, args, handle):
        self.handle = handle

    def permit(self, state, pod, node_name):
        self.handle.record.add(pod, "example.com/waits-for", "an operator")
        return Status(Code.WAIT, ("for an operator",)), 10.0

    def pre_bind_pre_flight(self, state, pod, node_name):
        return SUCCESS

    async def pre_bind(self, state, pod, node_name, client):
        return error_status("a <disk> & a half")


def waiting_world(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + "profiles: [{plugins: {multiPoint: {enabled: [{name: Waiting}]}}}]")

    class WaitingWorld(World):
        def build(self, seams):
            entry = f"{__name__}:WAITING"
            return build(SchedulerConfig(name="scheduler", config=str(file), plugin=(entry,)), seams)

    return WaitingWorld


WAITING = PluginEntry("Waiting", Waiting)


def test_ks_04_a_wait_at_permit_is_recorded_while_it_lasts_and_so_is_what_came_of_it(play, tmp_path):
    async def scenario(world):
        await world.node("n1")
        await world.pod("p")
        uid = (await world.get("p"))["metadata"]["uid"]
        await world.until(lambda: world.scheduler._binder.waiting.is_waiting(uid))
        waiting = await annotations(world, "p")
        world.scheduler._binder.waiting.allow(uid, "Waiting")
        await world.until(lambda: world.said("sched.attempt", "p"))
        return waiting, await annotations(world, "p")

    waiting, failed = play(scenario, kind=waiting_world(tmp_path), **RECORDED)

    assert decoded(waiting, "permit-result") == {"Waiting": "wait"}
    assert Duration.parse(decoded(waiting, "permit-result-timeout")["Waiting"]) == 10.0
    assert waiting["selected-node"] == "n1"
    assert waiting["example.com/waits-for"] == "an operator"
    assert failed["prebind-result"] == '{"Waiting":"a \\u003cdisk\\u003e \\u0026 a half"}'
    assert failed["bind-result"] == "{}"
    assert decoded(failed, "result-history")[0]["example.com/waits-for"] == "an operator"


def test_a_bind_that_failed_says_why(play):
    async def refuse(request, call):
        if request.subresource == "binding":
            raise ApiError("not on a Monday", code=422)
        return await call(request)

    async def scenario(world):
        world.hook = refuse
        await world.node("n1")
        await world.pod("p")
        await world.until(lambda: world.said("sched.bind_result", "p"))
        return await annotations(world, "p")

    found = play(scenario, **RECORDED)

    assert decoded(found, "bind-result") == {"DefaultBinder": "not on a Monday"}


def test_ks_06_extenders_answers_stand_under_their_prefix_in_the_fields_of_go(play, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(
        HEAD + "extenders: [{urlPrefix: 'http://e/x', nodeCacheCapable: true, filterVerb: filter,"
        " prioritizeVerb: prioritize, weight: 1}]"
    )
    licences = Licences(
        filter=keep("n1", "n2"),
        prioritize=lambda question: [{"host": name, "score": 4} for name in question["NodeNames"]],
    )

    class Extended(World):
        def build(self, seams):
            return build(SchedulerConfig(name="scheduler", config=str(file)), seams, to_extenders=lambda _: licences)

    async def scenario(world):
        for name in ("n1", "n2", "n3"):
            await world.node(name)
        await nodes_seen(world, 3)
        await world.pod("p")
        await world.until(world.bound("p"))
        return await annotations(world, "p")

    found = play(scenario, kind=Extended, **RECORDED)

    assert found["extender-filter-result"] == (
        '{"http://e/x":{"Nodes":null,"NodeNames":["n1","n2"],"FailedNodes":{},'
        '"FailedAndUnresolvableNodes":null,"Error":""}}'
    )
    assert decoded(found, "extender-prioritize-result")["http://e/x"] == [
        {"Host": "n1", "Score": 4},
        {"Host": "n2", "Score": 4},
    ]
    assert (found["extender-preempt-result"], found["extender-bind-result"]) == ("{}", "{}")
    assert set(decoded(found, "filter-result")) == {"n1", "n2", "n3"}, "what plugins said of all of them"
    assert set(decoded(found, "finalscore-result")) == {"n1", "n2"}


def test_ks_05_what_is_written_fits_and_says_what_was_left_out_while_explain_has_all(play):
    async def scenario(world):
        for number in range(5000):
            await world.node(f"n{number:04}")
        await nodes_seen(world, 5000)
        await world.pod("p", cpu="1")
        await world.until(world.bound("p"))
        found = await annotations(world, "p")
        return found, world.scheduler.explainer.pod(Key("default", "p"))["annotations"]

    written, explained = play(scenario, **RECORDED)

    assert size_of({PREFIX + key: value for key, value in written.items()}) < ANNOTATIONS_MAX_BYTES
    for key, value in written.items():
        assert key == "selected-node" or isinstance(json.loads(value), dict | list)
    kept = decoded(written, "truncated")["filter-result"]
    assert (kept["nodes"], kept["kept"]) == (5000, len(decoded(written, "filter-result")))
    assert written["selected-node"] in decoded(written, "finalscore-result")
    for key in ("filter-result", "score-result", "finalscore-result"):
        assert len(json.loads(explained[PREFIX + key])) == 5000


def test_each_attempt_stays_in_the_history(play):
    async def scenario(world):
        await world.node("n1", cpu="1")
        await world.pod("p", cpu="2")
        first = await annotations(world, "p")
        await world.node("n2")
        await world.until(world.bound("p"))
        return first, await annotations(world, "p")

    first, last = play(scenario, **RECORDED)

    assert first["selected-node"] == ""
    assert [attempt[PREFIX + "selected-node"] for attempt in decoded(last, "result-history")] == ["", "n2"]


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


@pytest.mark.parametrize(("generation", "permit"), [("W0", "wait"), ("W2", None)])
def test_ks_04_members_of_a_gang_that_does_not_fit_as_a_whole_are_recorded_in_every_generation(
    play, generation, permit
):
    async def scenario(world):
        await world.node("n1", cpu="4")
        await nodes_seen(world, 1)
        await group(world)
        await members(world, "a", "b", "c", cpu="2")
        await world.until(lambda: world.said("sched.attempt", "c"))
        return [await annotations(world, name) for name in ("a", "b", "c")]

    switches = {"GenericWorkload": True, "gang.generation": generation, **RECORDED}
    *placed, last = play(scenario, **switches)

    for found in placed:
        assert set(decoded(found, "filter-result")["n1"].values()) == {"passed"}
        assert found["selected-node"] == "n1", "it was reserved"
        assert decoded(found, "permit-result").get("GangScheduling") == permit
    assert decoded(last, "filter-result")["n1"]["NodeResourcesFit"] == "Insufficient cpu"
    assert last["selected-node"] == ""
    if permit:
        assert Duration.parse(decoded(placed[0], "permit-result-timeout")["GangScheduling"]) > 0
