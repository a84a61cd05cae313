"""Eviction: budgets are spent one by one and never overdrawn."""

from __future__ import annotations

from typing import Any

import pytest

from services.api.errors import ApiError
from services.api.identity import ADMIN, SCHEDULER, node_identity

BUDGETS = "poddisruptionbudgets.policy"
BODY = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": {}}
READY = [{"type": "Ready", "status": "True"}]


def budget(world: Any, name: str = "b", spec: Any = None, **status: Any) -> Any:
    counts = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "observedGeneration": 1, **status}
    selector = {"selector": {"matchLabels": {"app": "web"}}, **(spec or {})}
    return world.put(
        BUDGETS, {"kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": selector, "status": counts}
    )


@pytest.fixture
def web(world: Any) -> Any:
    return world.pod(
        metadata={"labels": {"app": "web"}}, spec={"nodeName": "n1"}, status={"phase": "Running", "conditions": READY}
    )


def evict(world: Any, identity: Any = ADMIN, **body: Any) -> Any:
    return world.sub(identity, "pods", "p", "eviction", {**BODY, **body})


def refused(world: Any, identity: Any = ADMIN, **body: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        evict(world, identity, **body)
    return error.value


def test_a_running_pod_is_marked_and_deleted_and_the_budget_is_spent(world, web):
    budget(world)
    result = evict(world)
    assert (result.code, result.response["status"]) == (201, "Success")
    assert result.delete is not None
    target = result.document["status"]["conditions"][-1]
    assert (target["type"], target["status"], target["reason"]) == ("DisruptionTarget", "True", "EvictionByEvictionAPI")
    status = world.get(BUDGETS, "b")["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["p"]
    assert status["conditions"][-1]["reason"] == "InsufficientPods"


def test_kubectl_requests_7_a_spent_budget_answers_429_with_the_cause_that_drain_reads(world, web):
    budget(world, disruptionsAllowed=0, currentHealthy=1)
    error = refused(world)
    assert (error.code, error.reason) == (429, "TooManyRequests")
    assert error.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert error.details["causes"] == [
        {"reason": "DisruptionBudget", "message": "The disruption budget b needs 1 healthy pods and has 1 currently"}
    ]


def test_a_budget_that_its_controller_has_not_seen_yet_allows_nothing(world, web):
    budget(world, observedGeneration=0)
    assert refused(world).retry_after_s == 10


def test_two_budgets_over_one_pod_are_an_error(world, web):
    budget(world)
    budget(world, "c", {"selector": {}})
    assert refused(world).code == 500


def test_a_budget_without_selector_or_of_others_does_not_count(world, web):
    budget(world, "none", {"selector": None}, disruptionsAllowed=0)
    budget(world, "others", {"selector": {"matchLabels": {"app": "db"}}}, disruptionsAllowed=0)
    assert evict(world).also == ()


@pytest.mark.parametrize("status", [{"phase": "Pending"}, {"phase": "Succeeded"}, {"phase": "Failed"}])
def test_pods_that_serve_nothing_need_no_budget(world, web, status):
    budget(world, disruptionsAllowed=0)
    world.put("pods", {**web, "status": status})
    result = evict(world)
    assert (result.document, result.also) == (None, ())
    assert result.delete is not None


def test_an_unready_pod_goes_when_the_budget_is_met_without_it(world, web):
    world.put("pods", {**web, "status": {"phase": "Running"}})
    budget(world, disruptionsAllowed=0, currentHealthy=1, desiredHealthy=2)
    assert refused(world).code == 429
    budget(world, disruptionsAllowed=0, currentHealthy=2, desiredHealthy=2)
    assert evict(world).also == ()
    budget(world, "b", {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, disruptionsAllowed=0, currentHealthy=0)
    assert evict(world).also == ()


def test_a_dry_run_spends_nothing(world, web):
    stored = budget(world)
    result = evict(world, deleteOptions={"dryRun": ["All"]})
    assert (result.document, result.delete) == (None, None)
    assert world.get(BUDGETS, "b") is stored


def test_preconditions_names_and_owners_are_checked(world, web):
    assert refused(world, deleteOptions={"preconditions": {"uid": "other"}}).code == 409
    assert refused(world, metadata={"name": "q"}).code == 400
    assert refused(world, node_identity("n2")).code == 403
    assert refused(world, SCHEDULER).code == 403
    assert evict(world, node_identity("n1")).code == 201
