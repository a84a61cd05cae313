"""Extenders have a say: what they are asked, what their answers do, and that nothing changes while they think."""

import asyncio
import json

import pytest

from scheduler.config import SchedulerConfig
from scheduler.preemption.candidates import ExtenderError
from scheduler.wiring import build
from services.api.identity import SCHEDULER
from services.api.meta import Key
from services.runtime.config import StartError
from tests.component.scheduler.conftest import World

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


class Licences:
    """A way to extenders that ends in the test: `answers` by verb, each given the question."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []
        self.traces = []

    async def post(self, extender, url, body, timeout_s, traceparent):
        verb = url.rpartition("/")[2]
        question = json.loads(body)
        self.asked.append((url, question, timeout_s))
        self.traces.append(traceparent)
        answer = self.answers[verb](question)
        if asyncio.iscoroutine(answer):
            answer = await answer
        return json.dumps(answer).encode()

    async def close(self):
        self.answers = {}


def fail(question):
    raise ExtenderError("no answer within 5 s")


def keep(*names):
    """A filter's answer that leaves these nodes, in the upper case of Go."""
    return lambda question: {"NodeNames": [n for n in question["NodeNames"] if n in names], "FailedNodes": {}}


@pytest.fixture
def extended(play, tmp_path):
    """Run a scenario in a world whose scheduler has these extenders."""

    def run(scenario, extenders, licences, **switches):
        file = tmp_path / "config.yaml"
        file.write_text(HEAD + extenders)

        class Extended(World):
            def build(self, seams):
                config = SchedulerConfig(name="scheduler", config=str(file))
                return build(config, seams, to_extenders=lambda _: licences)

        return play(scenario, kind=Extended, **switches)

    return run


ONE = "extenders: [{urlPrefix: 'http://e/', nodeCacheCapable: true, filterVerb: filter}]"


async def three_nodes(world):
    for name in ("n1", "n2", "n3"):
        await world.node(name)
    await world.until(lambda: free(world) == 12000)


def free(world):
    columns = world.scheduler._core.cache.columns
    return sum(columns.allocatable["cpu"][row] for row in columns.slots.values())


def test_a_pod_goes_where_the_extender_leaves_it(extended):
    licences = Licences(filter=keep("n2"))

    async def scenario(world):
        await three_nodes(world)
        await world.pod("p")
        await world.until(world.bound("p"))
        (attempt,) = (span for span in world.spans.spans if span.name == "schedule pod")
        return await world.node_of("p"), f"{attempt.trace_id}-{attempt.span_id}"

    node, traced_attempt = extended(scenario, ONE, licences)
    assert "n2" == node
    url, question, timeout_s = licences.asked[0]
    assert ("http://e/filter", 5.0, None) == (url, timeout_s, question["Nodes"])
    assert (["n1", "n2", "n3"], "p") == (question["NodeNames"], question["Pod"]["metadata"]["name"])
    assert traced_attempt == licences.traces[0][3:52]


def test_whole_nodes_are_sent_to_whom_names_are_not_enough(extended):
    def filter_nodes(question):
        return {"nodes": {"items": [n for n in question["Nodes"]["items"] if n["metadata"]["labels"].get("ok")]}}

    licences = Licences(filter=filter_nodes)
    config = "extenders: [{urlPrefix: 'http://e', filterVerb: filter, httpTimeout: 250ms}]"

    async def scenario(world):
        await world.node("n1")
        await world.node("n2", ok="yes")
        await world.pod("p")
        await world.until(world.bound("p"))
        return await world.node_of("p")

    assert "n2" == extended(scenario, config, licences)
    assert (0.25, None) == (licences.asked[0][2], licences.asked[0][1]["NodeNames"])
    assert "4" == licences.asked[0][1]["Nodes"]["items"][0]["status"]["allocatable"]["cpu"]


def test_reasons_of_extenders_are_reported_and_any_event_wakes_the_pod(extended):
    open_nodes = set()

    def filter_names(question):
        closed = [n for n in question["NodeNames"] if n not in open_nodes]
        return {
            "NodeNames": [n for n in question["NodeNames"] if n in open_nodes],
            "FailedNodes": {n: "no licence" for n in closed if n == "n1"},
            "FailedAndUnresolvableNodes": {n: "wrong rack" for n in closed if n != "n1"},
        }

    async def scenario(world):
        await three_nodes(world)
        await world.pod("p")
        await world.until(lambda: world.said("sched.attempt", "p"))
        said = world.said("sched.attempt", "p")[0].data
        open_nodes.add("n3")
        await world.admin.create(
            "services",
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "s", "namespace": "default"},
                "spec": {"ports": [{"port": 80}]},
            },
        )
        await world.until(world.bound("p"))
        return said, await world.node_of("p")

    said, node = extended(scenario, ONE, Licences(filter=filter_names))

    assert said["message"].startswith("0/3 nodes are available: 1 no licence, 2 wrong rack.")
    assert ["Extender"] == said["plugins"]
    assert "n3" == node


def test_points_of_extenders_count_ten_times_their_weight(extended):
    licences = Licences(score=lambda q: [{"Host": n, "Score": 10 if n == "n3" else 1} for n in q["NodeNames"]])
    config = "extenders: [{urlPrefix: 'http://e', nodeCacheCapable: true, prioritizeVerb: score, weight: 7}]"

    async def scenario(world):
        await three_nodes(world)
        await world.pod("p")
        await world.until(world.bound("p"))
        return world.scheduler._core.decisions.of(Key("default", "p")).document()

    explained = extended(scenario, config, licences)

    assert {"n1": 70, "n2": 70, "n3": 700} == explained["scores"]["Extender"]
    assert ("n3", 630) == (explained["node"], explained["final"]["n3"] - explained["final"]["n1"])


def test_the_failure_of_an_extender_fails_the_attempt_unless_it_may_be_ignored(extended):
    strict = ONE
    lenient = (
        "extenders: [{urlPrefix: 'http://e', nodeCacheCapable: true, filterVerb: broken, ignorable: true}, "
        "{urlPrefix: 'http://f', nodeCacheCapable: true, filterVerb: filter}]"
    )

    async def scenario(world):
        await three_nodes(world)
        await world.pod("p")
        await world.until(lambda: world.said("sched.attempt", "p"))
        await asyncio.sleep(0.5)
        return world.said("sched.attempt", "p")[0].data, world.condition(await world.get("p"))

    failed, condition = extended(scenario, strict, Licences(filter=fail))
    went_on, _ = extended(scenario, lenient, lenient_licences := Licences(broken=fail, filter=keep("n1")))

    assert ("error", "no answer within 5 s") == (failed["outcome"], failed["message"])
    assert "SchedulerError" == condition["reason"]
    assert "scheduled" == went_on["outcome"]
    # Who may be ignored is asked last.
    assert ["http://f/filter", "http://e/broken"] == [url for url, _, _ in lenient_licences.asked]


def test_points_that_fail_to_come_do_not_stop_the_pod(extended):
    config = "extenders: [{urlPrefix: 'http://e', nodeCacheCapable: true, prioritizeVerb: score, weight: 1}]"

    async def scenario(world):
        await three_nodes(world)
        await world.pod("p")
        await world.until(world.bound("p"))

    licences = Licences(score=fail)
    extended(scenario, config, licences)

    assert ["http://e/score"] == [url for url, _, _ in licences.asked]


def test_an_extender_that_names_a_node_it_was_not_asked_about_is_wrong(extended):
    async def scenario(world):
        await three_nodes(world)
        await world.pod("p")
        await world.until(lambda: world.said("sched.attempt", "p"))
        return world.said("sched.attempt", "p")[0].data["message"]

    message = extended(scenario, ONE, Licences(filter=lambda question: {"NodeNames": ["n9"]}))

    assert 'extender "http://e/" claims a filtered node "n9" which is not found in the input node list' == message


def test_only_pods_that_ask_for_a_managed_resource_are_shown(extended):
    licences = Licences(filter=keep("n1"))
    config = (
        "extenders: [{urlPrefix: 'http://e', nodeCacheCapable: true, filterVerb: filter, "
        "managedResources: [{name: e.com/licence, ignoredByScheduler: true}]}]"
    )

    async def scenario(world):
        await three_nodes(world)
        await world.pod("plain")
        resources = {"requests": {"cpu": "1", "e.com/licence": "1"}, "limits": {"e.com/licence": "1"}}
        await world.pod("licensed", containers=[{"name": "c", "image": "x", "resources": resources}])
        await world.until(world.bound("plain"))
        await world.until(world.bound("licensed"))
        return await world.node_of("licensed")

    assert "n1" == extended(scenario, config, licences)
    assert {"licensed"} == {question["Pod"]["metadata"]["name"] for _, question, _ in licences.asked}


def test_nothing_changes_in_the_cache_while_an_extender_thinks(extended):
    seen = {}

    async def scenario(world):
        async def think(question):
            if not seen:
                await world.node("late")
                await world.admin.delete("nodes", Key("", "n1"))
                await asyncio.sleep(2.0)
                cache = world.scheduler._core.cache
                seen["during"] = sorted(cache.nodes)
            return {"NodeNames": question["NodeNames"]}

        licences.answers["filter"] = think
        await three_nodes(world)
        await world.pod("p")
        await world.until(world.bound("p"))
        await world.until(lambda: "late" in world.scheduler._core.cache.columns.slots)
        return sorted(world.scheduler._core.cache.columns.slots)

    licences = Licences()

    after = extended(scenario, ONE, licences)

    assert ["n1", "n2", "n3"] == seen["during"]
    assert ["late", "n2", "n3"] == after


def test_a_pod_deleted_while_an_extender_thinks_leaves_the_queue(extended):
    async def scenario(world):
        async def think(question):
            await world.admin.delete("pods", Key("default", "p"))
            await asyncio.sleep(1.0)
            return {"NodeNames": question["NodeNames"]}

        licences.answers["filter"] = think
        await three_nodes(world)
        await world.pod("p")
        await world.until(lambda: world.said("sched.attempt", "p"))
        await world.until(lambda: not world.scheduler._core.cache.pods)
        licences.answers["filter"] = keep("n1")
        await world.pod("q")
        await world.until(world.bound("q"))
        return [pod.key.name for pod in world.scheduler._core.queue.all()]

    licences = Licences()

    assert [] == extended(scenario, ONE, licences)


def test_the_nominated_node_is_asked_about_alone_and_others_only_if_it_is_refused(extended):
    licences = Licences(filter=keep("n3"))

    async def scenario(world):
        await three_nodes(world)
        world.scheduler._core.queue.activate([], 0.0)
        await world.pod("p", schedulingGates=[{"name": "wait"}])
        status = {"status": {"nominatedNodeName": "n1"}}
        await world.admin.patch("pods", Key("default", "p"), status, subresource="status")
        await world.admin.patch("pods", Key("default", "p"), {"spec": {"schedulingGates": None}})
        await world.until(world.bound("p"))
        return await world.node_of("p")

    assert "n3" == extended(scenario, ONE, licences)
    assert [["n1"], ["n1", "n2", "n3"]] == [question["NodeNames"] for _, question, _ in licences.asked]


BINDER = "extenders: [{urlPrefix: 'http://e', nodeCacheCapable: true, bindVerb: bind}]"


def test_an_extender_that_binds_does_it_instead_of_the_scheduler(extended):
    async def scenario(world):
        async def bind(question):
            key = Key(question["PodNamespace"], question["PodName"])
            await world.client(SCHEDULER).bind(key, question["PodUID"], question["Node"])
            return {"Error": ""}

        licences.answers["bind"] = bind
        await three_nodes(world)
        await world.pod("p")
        await world.until(world.bound("p"))
        await world.until(lambda: world.said("sched.bind_result", "p"))
        return [line.data["outcome"] for line in world.said("sched.bind_result", "p")]

    licences = Licences()

    assert ["ok"] == extended(scenario, BINDER, licences)
    assert {"PodName", "PodNamespace", "PodUID", "Node"} == set(licences.asked[0][1])


def test_a_bind_that_an_extender_fails_is_tried_again_after_a_read(extended):
    async def scenario(world):
        tries = []

        async def bind(question):
            tries.append(question)
            if len(tries) == 1:
                return {"Error": "licence server is away"}
            key = Key(question["PodNamespace"], question["PodName"])
            await world.client(SCHEDULER).bind(key, question["PodUID"], question["Node"])
            return {}

        licences.answers["bind"] = bind
        await three_nodes(world)
        await world.pod("p")
        await world.until(world.bound("p"))
        return [line.data for line in world.said("sched.bind_result", "p")]

    licences = Licences()

    unknown, read, *_ = extended(scenario, BINDER, licences)

    assert ("unknown", "error", "read", "licence server is away") == (
        unknown["outcome"],
        read["outcome"],
        read["resolved_how"],
        read["message"],
    )


def test_preemption_3_4_an_extender_takes_candidates_away(extended):
    licences = Licences(
        preempt=lambda q: {"NodeNameToMetaVictims": {n: v for n, v in q["NodeNameToMetaVictims"].items() if n == "n2"}}
    )
    config = "extenders: [{urlPrefix: 'http://e', nodeCacheCapable: true, preemptVerb: preempt}]"

    async def scenario(world):
        await three_nodes(world)
        for name in ("a", "b", "c"):
            await world.pod(name, cpu="4", terminationGracePeriodSeconds=0)
            await world.until(world.bound(name))
        victim = next([name for name in ("a", "b", "c") if await world.node_of(name) == "n2"].__iter__())
        ranked = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "vip"},
            "value": 9,
        }
        await world.admin.create("priorityclasses.scheduling.k8s.io", ranked)
        await world.pod("vip", cpu="4", priorityClassName="vip", terminationGracePeriodSeconds=0)
        await world.until(world.bound("vip"))
        return victim, await world.node_of("vip"), world.scheduler.metrics()["scheduler_preemption_attempts_total"]

    _victim, node, attempts = extended(scenario, config, licences)

    asked = licences.asked[0][1]
    assert ("n2", 1.0) == (node, attempts)
    assert {"n1", "n2", "n3"} == set(asked["NodeNameToMetaVictims"])
    assert [{"UID"}] == [set(pod) for pod in asked["NodeNameToMetaVictims"]["n2"]["Pods"]]


def test_without_a_way_to_extenders_the_scheduler_does_not_start(play, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + ONE)

    class Cut(World):
        def build(self, seams):
            return build(SchedulerConfig(name="scheduler", config=str(file)), seams)

    async def scenario(world):
        return None

    with pytest.raises(ExceptionGroup) as refused:
        play(scenario, kind=Cut)

    [error] = refused.value.exceptions
    assert isinstance(error, StartError)
    assert "extenders: there is no way to them from here" in error.message
