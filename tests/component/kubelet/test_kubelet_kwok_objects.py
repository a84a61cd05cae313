"""Objects of KWOK's kinds that come, change and go while nodes run, against the real API server in virtual time."""

import asyncio
import inspect

import msgspec
import pytest

from services.api.errors import ApiError, NotFound
from services.api.identity import ADMIN
from services.api.meta import Key
from services.runtime.config import StartError
from services.runtime.health import HttpRequest

STAGES, USAGES, METRICS = (f"{kind}.kwok.x-k8s.io" for kind in ("stages", "clusterresourceusages", "metrics"))
EVERY_KIND = {"enable_crds": ("all",)}
QUANTITY = (
    "spec.usages[0].usage.cpu.value: Invalid value: '1x': quantities must match the regular expression "
    "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
AS_ANOTHER = "of a Pod it is not supported, nor in KWOK: the kubelet patches in its node's name"
READY = "phase: Running\nconditions: [{type: Ready, status: 'True'}]\npodIP: 10.0.0.1"
RUNNING = {"key": ".status.phase", "operator": "In", "values": ["Running"]}
NEW = {"key": ".status.podIP", "operator": "DoesNotExist"}


def a_stage(name, next_, *expressions, kind="Pod", delay_ms=0, labels=None):
    """Return a Stage object."""
    selector = {"matchLabels": labels or {}, "matchExpressions": list(expressions)}
    spec = {"resourceRef": {"apiGroup": "v1", "kind": kind}, "selector": selector, "next": next_}
    spec |= {"delay": {"durationMilliseconds": delay_ms}} if delay_ms else {}
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def a_usage(cpu):
    """Return a ClusterResourceUsage object for all pods."""
    spec = {"usages": [{"usage": {"cpu": {"value": cpu}}}]}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "ClusterResourceUsage", "metadata": {"name": "u"}, "spec": spec
    }  # fmt: skip


def phase(wanted):
    return lambda pod: pod is not None and pod["status"].get("phase") == wanted


def gone(pod):
    return pod is None


async def definitions(world, *names):
    """Wait until kinds are served."""
    for name in names:
        while True:
            try:
                await world.admin.list(name)
                break
            except NotFound:
                await asyncio.sleep(0.1)


async def page(world, path):
    """Return what a host answers on a path."""
    for pattern, handler in world.process.http_routes():
        if pattern == "/metrics/{page*}":
            answer = handler(HttpRequest(path, {"page": path.removeprefix("/metrics/")}))
            status, _, body = await answer if inspect.isawaitable(answer) else answer
            return status, body.decode()
    return None


def test_a_stage_works_from_the_moment_it_is_made_is_changed_by_an_edit_and_stops_when_it_is_deleted(simulate):
    async def scenario(world):
        await definitions(world, STAGES)
        await world.admin.create(STAGES, a_stage("ready", {"statusTemplate": READY}, NEW, labels={"app": "a"}))
        await asyncio.sleep(0.1)
        await world.create("first", labels={"app": "a"})
        first = await world.until_pod("first", phase("Running"))
        await world.admin.patch(
            STAGES, Key("", "ready"), {"spec": {"next": {"statusTemplate": READY.replace("Running", "Succeeded")}}}
        )
        await asyncio.sleep(0.1)
        await world.create("second", labels={"app": "a"})
        await world.until_pod("second", phase("Succeeded"))
        await world.admin.delete(STAGES, Key("", "ready"))
        await asyncio.sleep(0.1)
        await world.create("third", labels={"app": "a"})
        third = await world.until_pod("third", phase("Running"))
        return first, third, await world.pod("first"), len(world.lines("kubelet.stage"))

    first, third, still, played = simulate(scenario, **EVERY_KIND)

    assert first["status"]["podIP"] == "10.0.0.1"
    assert third["status"]["podIP"] != "10.0.0.1"
    assert third["status"]["containerStatuses"]
    assert still["status"] == first["status"]
    assert played == 2


def test_a_stage_takes_over_a_pod_that_runs_once_it_matches_and_the_pod_keeps_its_capacity(simulate):
    fails = a_stage("fails", {"statusTemplate": "phase: Failed"}, RUNNING, delay_ms=5000, labels={"chaos": "yes"})

    async def scenario(world):
        await definitions(world, STAGES)
        await world.create("a", cpu="3")
        await world.until_pod("a", phase("Running"))
        await world.admin.create(STAGES, fails)
        await asyncio.sleep(30)
        untouched = await world.pod("a")
        await world.admin.patch("pods", Key("default", "a"), {"metadata": {"labels": {"chaos": "yes"}}})
        at_s = world.clock.now()
        await asyncio.sleep(2)
        await world.create("too-big", cpu="3")
        await world.until_pod("too-big", phase("Failed"))
        failed = await world.until_pod("a", phase("Failed"))
        took_s = world.clock.now() - at_s
        await world.create("fits", cpu="3")
        await world.until_pod("fits", phase("Running"))
        return untouched, failed, took_s, [len(world.lines(f"kubelet.{ev}")) for ev in ("start", "stop")]

    untouched, failed, took_s, (starts, stops) = simulate(scenario, **EVERY_KIND)

    assert untouched["status"]["phase"] == "Running"
    assert failed["status"]["containerStatuses"][0]["state"].keys() == {"running"}  # what stages do not say stays
    assert 5 < took_s < 9
    assert (starts, stops) == (2, 1)


def test_a_pod_that_no_stage_moves_any_more_is_ended_by_the_kubelet_when_it_is_deleted(simulate):
    async def scenario(world):
        await definitions(world, STAGES)
        await world.admin.create(STAGES, a_stage("ready", {"statusTemplate": READY}, NEW))
        await asyncio.sleep(0.1)
        await world.create("a", cpu="3")
        await world.create("b", cpu="1")
        await world.until_pod("a", phase("Running"))
        await world.until_pod("b", phase("Running"))
        await world.delete("a")
        await asyncio.sleep(20)
        stays = await world.pod("a")
        await world.admin.delete(STAGES, Key("", "ready"))
        await world.until_pod("a", gone)
        await world.delete("b")
        await world.until_pod("b", gone)
        await world.create("next", cpu="4")
        await world.until_pod("next", phase("Running"))
        return stays

    assert simulate(scenario, **EVERY_KIND)["metadata"]["deletionTimestamp"]


def test_a_kubelet_that_comes_back_goes_on_with_the_stages_there_are(simulate):
    completes = a_stage("completes", {"statusTemplate": "phase: Succeeded"}, RUNNING, delay_ms=30_000)

    async def scenario(world):
        await definitions(world, STAGES)
        await world.admin.create(STAGES, a_stage("ready", {"statusTemplate": READY}, NEW))
        await world.admin.create(STAGES, completes)
        await asyncio.sleep(0.1)
        await world.create("a")
        await world.until_pod("a", phase("Running"))
        world.kill_kubelet()
        await asyncio.sleep(1)
        await world.start_kubelet()
        await world.until_pod("a", phase("Succeeded"))
        return len(world.lines("kubelet.start"))

    assert simulate(scenario, **EVERY_KIND) == 0


def test_a_stage_of_a_node_writes_its_status_until_it_is_deleted(simulate):
    broken = "conditions: [{type: Ready, status: 'False', reason: Broken}]"
    ready = {
        "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
        "operator": "In",
        "values": ["True"],
    }

    async def condition(world, wanted):
        while True:
            node = await world.admin.get("nodes", Key("", "n1"))
            found = next((each for each in node["status"].get("conditions", ()) if each["type"] == "Ready"), {})
            if found.get("status") == wanted:
                return found
            await asyncio.sleep(0.1)

    async def scenario(world):
        await definitions(world, STAGES)
        await condition(world, "True")
        await world.admin.create(STAGES, a_stage("breaks", {"statusTemplate": broken}, ready, kind="Node"))
        found = await condition(world, "False")
        await asyncio.sleep(30)
        still = await condition(world, "False")
        await world.admin.delete(STAGES, Key("", "breaks"))
        return found, still, await condition(world, "True")

    found, still, after = simulate(scenario, **EVERY_KIND)

    assert found["reason"] == still["reason"] == "Broken"
    assert after["reason"] == "KubeletReady"


def test_usages_and_pages_follow_their_objects(simulate):
    metric = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Metric",
        "metadata": {"name": "m"},
        "spec": {
            "path": "/metrics/nodes/{nodeName}/own",
            "metrics": [{"name": "cpu", "dimension": "node", "kind": "gauge", "value": 'node.Usage("cpu")'}],
        },
    }

    async def look(world):
        answer = await world.call(ADMIN, verb="list", resource="pods.metrics.k8s.io")
        items = msgspec.json.decode(answer.unwrap().body)["items"]
        return [each["containers"][0]["usage"]["cpu"] for each in items], await page(world, "/metrics/nodes/n1/own")

    async def scenario(world):
        await definitions(world, USAGES, METRICS)
        await world.create("a")
        await world.until_pod("a", phase("Running"))
        await world.admin.create(METRICS, metric)
        await asyncio.sleep(40)
        found = [await look(world)]
        await world.admin.create(USAGES, a_usage("250m"))
        await asyncio.sleep(0.1)
        found.append(await look(world))
        await world.admin.patch(USAGES, Key("", "u"), {"spec": a_usage("750m")["spec"]})
        await asyncio.sleep(0.1)
        found.append(await look(world))
        await world.admin.delete(USAGES, Key("", "u"))
        await world.admin.delete(METRICS, Key("", "m"))
        await asyncio.sleep(0.1)
        return [*found, await look(world)]

    found = simulate(scenario, **EVERY_KIND)

    assert [used for used, _ in found] == [["0"], ["250m"], ["750m"], ["0"]]
    assert [answer[1].splitlines()[-1] for _, answer in found[:3]] == ["cpu 0", "cpu 0.25", "cpu 0.75"]
    assert found[3][1] == (404, "no Metric has the path /metrics/nodes/n1/own\n")


def test_an_object_that_cannot_be_used_is_refused_with_its_field(simulate):
    async def scenario(world):
        await definitions(world, STAGES, USAGES)
        said = []
        for resource, document in (
            (STAGES, a_stage("s", {"statusTemplate": "{{ randAlpha 3 }}"}, NEW)),
            (USAGES, a_usage("1x")),
            (STAGES, a_stage("s", {"statusTemplate": READY, "statusPatchAs": {"username": "x"}}, NEW)),
        ):
            with pytest.raises(ApiError) as refused:
                await world.admin.create(resource, document)
            said.append((refused.value.code, refused.value.message.partition(": ")[2]))
        return said

    assert simulate(scenario, **EVERY_KIND) == [
        (422, "spec.next.statusTemplate: Invalid value: line 1: function 'randAlpha' is not supported"),
        (422, QUANTITY),
        (422, f"spec.next.statusPatchAs: Invalid value: {AS_ANOTHER}"),
    ]


def test_a_node_begins_without_a_kind_whose_definition_was_deleted(simulate):
    async def scenario(world):
        await definitions(world, STAGES)
        await world.admin.delete("customresourcedefinitions.apiextensions.k8s.io", Key("", STAGES))
        world.kill_kubelet()
        await world.start_kubelet()
        await world.create("a")
        return await world.until_pod("a", phase("Running"))

    assert simulate(scenario, **EVERY_KIND)["status"]["containerStatuses"]


def test_nothing_is_followed_or_served_unasked(simulate):
    async def scenario(world):
        with pytest.raises(NotFound):
            await world.admin.list(STAGES)
        return [line.data["resource"] for line in world.events.lines if line.ev == "watch.open"]

    assert set(simulate(scenario)) == {"pods"}


def test_a_kind_that_is_none_is_named_at_the_start(simulate):
    async def scenario(_):
        pass

    with pytest.raises(StartError, match=r"--enable-crds 'Stages' is none of all, Stage, Attach, "):
        simulate(scenario, enable_crds=("Stages",))
