import pytest

from services.controllers.disruption.controller import CONTROLLER
from services.reconcile.actions import Patch, RecordEvent


def a_budget(status=None, **spec):
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}, "status": status or {}}  # fmt: skip


@pytest.fixture
def ten(world_of, a_set, a_pod):
    def build(status=None, **spec):
        world = world_of(CONTROLLER)
        world.put(a_set(10))
        for i in range(10):
            world.put(a_pod(f"p{i}", owner="web", node="n"))
        world.put(a_budget(status, **spec))
        return world

    return build


def status_of(world):
    return next(a for a in world.reconcile("b").actions if isinstance(a, Patch)).patch["status"]


@pytest.mark.parametrize(
    ("spec", "desired", "allowed"),
    [({"minAvailable": "80%"}, 8, 2), ({"minAvailable": "75%"}, 8, 2), ({"maxUnavailable": "25%"}, 7, 3),
     ({"minAvailable": 10}, 10, 0), ({"maxUnavailable": 1}, 9, 1)],
)  # fmt: skip
def test_percentages_round_up_and_the_rest_may_go(ten, spec, desired, allowed):
    status = status_of(ten(**spec))

    assert (status["expectedPods"], status["desiredHealthy"], status["disruptionsAllowed"]) == (10, desired, allowed)


def test_controllers_18_two_evicted_pods_leave_none_until_a_replacement_is_ready(ten, a_pod):
    world = ten({"disruptedPods": {"p0": "2026-01-01T00:16:00Z", "p1": "2026-01-01T00:16:00Z"}}, minAvailable="80%")
    assert status_of(world)["disruptionsAllowed"] == 0

    for name in ("p0", "p1"):
        world.drop("Pod", name)
    world.put(a_pod("r", owner="web", node="n"))
    patch = world.reconcile("b").actions[0]

    assert patch.patch["status"]["disruptionsAllowed"] == 1
    assert patch.patch["status"]["disruptedPods"] == {"p0": None, "p1": None}
    assert patch.resource_version  # an eviction that spends meanwhile is not undone


def test_an_eviction_that_came_to_nothing_is_forgotten_after_two_minutes_and_an_event_says_so(ten):
    world = ten({"disruptedPods": {"p0": "2026-01-01T00:10:00Z"}}, minAvailable="80%")

    event, patch = world.reconcile("b").actions

    assert isinstance(event, RecordEvent)
    assert event.reason == "NotDeleted"
    assert patch.patch["status"]["currentHealthy"] == 10


def test_a_pod_whose_owner_has_no_scale_makes_percentages_allow_nothing(ten, a_pod):
    world = ten({"disruptionsAllowed": 2}, minAvailable="80%")
    odd = a_pod("odd")
    odd["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    ]
    world.put(odd)

    status = status_of(world)

    assert status["disruptionsAllowed"] == 0
    assert status["conditions"][0]["reason"] == "SyncFailed"


def test_a_stale_disruption_target_is_reset_after_two_minutes(world_of, a_pod):
    world = world_of(CONTROLLER)
    document = a_pod("p", node="n")
    document["status"]["conditions"].append(
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
         "lastTransitionTime": world.stamp()}
    )  # fmt: skip
    (key,) = world.put(document)

    waiting = world.reconcile(key.name)
    reset = world.reconcile(key.name, after_s=121.0)

    assert waiting.requeue_after_s == 120.0
    assert reset.actions[0].patch["status"]["conditions"][0]["status"] == "False"


def events_of(world):
    return [f"{a.type} {a.reason}: {a.message}" for a in world.reconcile("b").actions if isinstance(a, RecordEvent)]


def with_owner(pod, kind, api_version, name="j"):
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": True}
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}


@pytest.mark.parametrize(
    ("kind", "api_version", "why"),
    [
        ("Job", "batch/v1", "jobs.batch does not implement the scale subresource"),
        ("Gadget", "acme.io/v1", 'no matches for kind "Gadget" in version "acme.io/v1"'),
        ("ReplicaSet", "apps/v1", 'found no controllers for pod "odd"'),
    ],
)
def test_why_the_pods_cannot_be_counted_is_said_in_upstreams_words(ten, a_pod, kind, api_version, why):
    world = ten({"disruptionsAllowed": 2}, maxUnavailable=1)
    world.put(with_owner(a_pod("odd"), kind, api_version))

    assert events_of(world) == [
        f"Warning CalculateExpectedPodCountFailed: Failed to calculate the number of expected pods: {why}"]  # fmt: skip
    condition = status_of(world)["conditions"][0]
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "SyncFailed", why)


def test_the_condition_shows_its_generation_and_a_message_of_no_words(ten):
    world = ten(maxUnavailable=1)

    (condition,) = status_of(world)["conditions"]

    assert (condition["reason"], condition["message"], condition["observedGeneration"]) == ("SufficientPods", "", 1)


def test_pods_without_a_controller_are_reported_where_a_scale_is_needed(ten, a_pod, world_of):
    scaled, counted = ten(minAvailable="80%"), ten(minAvailable=8)
    for world in (scaled, counted):
        world.put(a_pod("bare"))

    (said,) = events_of(scaled)
    assert said.startswith(
        "Warning UnmanagedPods: Pods selected by this PodDisruptionBudget (selector: &LabelSelector{MatchLabels:"
        "map[string]string{app: web,},MatchExpressions:[]LabelSelectorRequirement{},}) were found to be unmanaged."
    )
    assert events_of(counted) == []


def test_a_budget_of_no_pods_says_so(world_of):
    world = world_of(CONTROLLER)
    world.put(a_budget(minAvailable=1))

    assert events_of(world) == ["Normal NoPods: No matching pods found"]
