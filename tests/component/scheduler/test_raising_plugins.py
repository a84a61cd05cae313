"""A plugin that raises fails the pod it was called for, with an event and a condition, and nothing else."""

import asyncio
import math
from types import SimpleNamespace

import pytest

from scheduler.configuration.plugins import default_profile
from scheduler.cycle.profiles import last_when_failing
from scheduler.framework.arrangement import Enabled
from scheduler.framework.failures import failure_of
from scheduler.framework.status import SKIP as SKIPS
from scheduler.framework.status import SUCCESS
from services.api.meta import Key
from services.cel import faults
from services.cel.device_selectors import compile_selector

INTERNAL = "internal error: KeyError: 'what the plugin does not have'"


def raising(*methods):
    """Return a plugin with these methods; they raise for the pod `bad`."""

    def method(name):
        def call(self, *given):
            if any(getattr(each, "key", None) is not None and each.key.name == "bad" for each in given):
                return {}["what the plugin does not have"]
            return {"permit": (SUCCESS, 0.0), "score": 0, "score_all": 0, "filter_all": None}.get(name, SUCCESS)

        async def wait(self, *given):
            return call(self, *given)

        call.__code__ = call.__code__.replace(co_name=name)
        return wait if name == "pre_bind" else call

    found = {"name": "Raising", **{name: method(name) for name in methods}}
    if "pre_bind" in methods:
        found["pre_bind_pre_flight"] = lambda self, *given: SUCCESS
    return type("Raising", (), found)()


@pytest.fixture
def wired(monkeypatch):
    """Wire the scheduler with a plugin, and return the subjects of the faults that were reported."""
    subjects = []
    faults.forget()
    monkeypatch.setattr(faults._FAULTS, "listener", lambda subject, stack: subjects.append(subject))

    def use(plugin):
        monkeypatch.setattr(
            "scheduler.wiring.default_profile", lambda handle: [Enabled(plugin), *default_profile(handle)]
        )
        return subjects

    return use


async def bad_and_good(world, **spec):
    """Have two nodes, a pod that the plugin raises for, and one that it does not, which is to be bound."""
    await world.node("n1")
    await world.node("n2")
    await world.pod("bad", **spec)
    await asyncio.sleep(2)
    await world.pod("good")
    await world.until(world.bound("good"))
    await asyncio.sleep(5)
    assert not world.scheduler_task.done()
    return await world.get("bad"), await world.notes("bad"), world


ERRORS = (
    ("pre_filter", 'running PreFilter plugin "Raising": ', "PreFilter"),
    ("filter", 'running "Raising" filter plugin: ', "filter"),
    ("filter_all", 'running "Raising" filter plugin: ', "filter_all"),
    ("pre_score", 'running PreScore plugin "Raising": ', "pre_score"),
    ("score", 'running Score plugins: plugin "Raising" failed with: ', "score"),
    ("score_all", 'running Score plugins: plugin "Raising" failed with: ', "score_all"),
    ("reserve", 'running Reserve plugin "Raising": ', "Reserve"),
    ("permit", 'running Permit plugin "Raising": ', "Permit"),
    ("pre_bind", 'running PreBind plugin "Raising": ', "PreBind"),
    ("bind", 'running Bind plugin "Raising": ', "Bind"),
)
BESIDE = {"filter_all": ("explain_all", "filter"), "reserve": ("unreserve",), "score_all": ("score",)}


@pytest.mark.parametrize(("method", "running", "point"), ERRORS, ids=[each[0] for each in ERRORS])
def test_a_plugin_that_raises_fails_its_pod_and_no_other(play, wired, method, running, point):
    if method == "bind":
        plugin = raising("bind")
        bind = type(plugin).bind
        type(plugin).bind = lambda self, state, pod, node: (
            SKIPS if pod.key.name != "bad" else bind(self, state, pod, node)
        )
    else:
        plugin = raising(method, *BESIDE.get(method, ()))
    subjects = wired(plugin)

    pod, notes, world = play(bad_and_good)

    condition = world.condition(pod)
    assert ("", "False", "SchedulerError", running + INTERNAL) == (
        pod["spec"].get("nodeName", ""),
        condition["status"],
        condition["reason"],
        condition["message"],
    )
    assert ("Warning", "FailedScheduling", running + INTERNAL) in notes
    assert "error" in [line.data["outcome"] for line in world.said("sched.attempt", "bad")]
    assert len(world.said("sched.attempt", "bad")) > 1, "it is tried again"
    assert subjects.count(f'{point} of the plugin "Raising"') == 1, "once for all attempts"


def test_a_plugin_that_raises_after_the_bind_or_when_it_gives_back_changes_nothing(play, wired):
    subjects = wired(raising("post_bind"))
    pod, notes, _ = play(bad_and_good)
    assert pod["spec"]["nodeName"]
    assert ["Scheduled"] == [reason for _, reason, _ in notes]
    assert ['PostBind of the plugin "Raising"'] == subjects


def test_a_plugin_that_raises_in_its_turn_to_give_back_leaves_nothing_reserved(play, wired):
    subjects = wired(raising("reserve", "unreserve"))
    pod, _, world = play(bad_and_good)
    assert "nodeName" not in pod["spec"]
    assert 'Unreserve of the plugin "Raising"' in subjects
    assert world.scheduler.metrics()['scheduler_cache_size{type="assumed_pods"}'] == 0


def test_a_gate_that_raises_holds_its_pod_and_no_other(play, wired):
    subjects = wired(raising("pre_enqueue"))
    pod, _, world = play(bad_and_good)
    assert "nodeName" not in pod["spec"]
    assert world.scheduler.metrics()['scheduler_pending_pods{queue="gated"}'] == 1
    assert ['PreEnqueue of the plugin "Raising"'] == subjects


def test_a_post_filter_that_raises_says_so_behind_why_the_pod_does_not_fit(play, wired):
    wired(raising("post_filter"))

    async def scenario(world):
        return await bad_and_good(world, cpu="100")

    pod, _, world = play(scenario)
    condition = world.condition(pod)
    assert ("Unschedulable", True) == (
        condition["reason"],
        condition["message"].startswith("0/2 nodes are available: "),
    )
    assert condition["message"].endswith(f'running PostFilter plugin "Raising": {INTERNAL}')


def test_a_queue_sort_that_raises_puts_its_pod_last():
    order = last_when_failing(lambda pod, since: (-pod.priority, since))
    assert ((-3, 1.0), (math.inf,)) == (order(SimpleNamespace(priority=3), 1.0), order(SimpleNamespace(), 1.0))


def test_out_of_memory_is_no_plugins_failure():
    with pytest.raises(MemoryError):
        failure_of(MemoryError(), "Filter", "Raising")


async def claimed(world):
    """Have a device, a claim whose selector is an error of the language or a fault, and a pod of another namespace."""
    await world.node("n1")
    for resource, document in DEVICES.items():
        key = {"name": "c", "namespace": "default"} if resource.startswith("resourceclaims") else {"name": "gpu"}
        kind = {"deviceclasses": "DeviceClass", "resourceslices": "ResourceSlice", "resourceclaims": "ResourceClaim"}
        document = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": kind[resource.partition(".")[0]],
            "metadata": key,
            **document,
        }
        await world.admin.create(resource, document)
    await world.pod("p", resourceClaims=[{"name": "x", "resourceClaimName": "c"}])
    await asyncio.sleep(2)
    other = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
    await world.admin.create("namespaces", other)
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain", "namespace": "other"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}  # fmt: skip
    await world.admin.create("pods", plain)

    async def is_bound():
        return "nodeName" in (await world.admin.get("pods", Key("other", "plain")))["spec"]

    await world.until(is_bound)
    assert not world.scheduler_task.done()
    return world.condition(await world.get("p"))


DEVICES = {
    "deviceclasses.resource.k8s.io": {"spec": {}},
    "resourceslices.resource.k8s.io": {
        "spec": {"driver": "d.example.com", "nodeName": "n1", "devices": [{"name": "d0"}],
                 "pool": {"name": "p1", "generation": 1, "resourceSliceCount": 1}}
    },
    "resourceclaims.resource.k8s.io": {
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": [
            {"cel": {"expression": "null.ip() == ip('1.1.1.1')"}}]}}]}}
    },
}  # fmt: skip


def test_a_selector_without_an_answer_fails_the_pod_of_its_claim_and_no_other(play):
    condition = play(claimed)
    assert ("False", "SchedulerError") == (condition["status"], condition["reason"])
    assert "claim default/c: selector #0: CEL runtime error: no such overload: ip(null_type)" in condition["message"]


def test_a_selector_with_a_fault_fails_the_pod_of_its_claim_and_no_other(play, monkeypatch):
    def broken(*_):
        raise RecursionError("too deep")

    monkeypatch.setattr("services.cel.evaluator._no_overload", broken)
    compile_selector.cache_clear()
    condition = play(claimed)
    assert "CEL runtime error: internal error: RecursionError: too deep" in condition["message"]
