"""Binding: the preconditions, what a Binding brings along, and what kubectl and schedulers get as answers."""

from __future__ import annotations

from typing import Any

import pytest

from services.api.errors import ApiError
from services.api.identity import ADMIN, SCHEDULER, Identity, controller_identity, node_identity


def refused(world: Any, identity: Identity = SCHEDULER, **body: Any) -> ApiError:
    before = dict(world.documents)
    with pytest.raises(ApiError) as error:
        world.sub(identity, "pods", "p", "binding", {"target": {"kind": "Node", "name": "n1"}, **body})
    assert world.documents == before
    return error.value


def test_a_binding_sets_node_generation_and_condition_and_clears_the_nomination(world):
    world.pod(status={"nominatedNodeName": "n2"}, spec={"overhead": {"cpu": "1"}})
    bound = world.bind("p", "n1")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["spec"]["overhead"] == {"cpu": "1"}
    assert bound["metadata"]["generation"] == bound["status"]["bindingGeneration"] == 2
    assert "nominatedNodeName" not in bound["status"]
    scheduled = bound["status"]["conditions"][0]
    assert (scheduled["type"], scheduled["status"]) == ("PodScheduled", "True")


def test_a_binding_answers_201_with_a_success_status(world):
    world.pod()
    result = world.sub(SCHEDULER, "pods", "p", "binding", {"target": {"name": "n1"}})
    assert (result.code, result.response["status"]) == (201, "Success")


def test_kubectl_requests_7_an_assigned_pod_is_a_conflict_that_names_the_node(world):
    world.pod()
    world.bind("p", "n2")
    error = refused(world)
    assert error.message == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n2"'
    )
    assert (error.code, error.reason, error.details["kind"]) == (409, "Conflict", "pods/binding")


def test_guarantees_as_21_a_recreated_pod_is_not_bound_by_its_predecessors_binding(world):
    world.pod(metadata={"uid": "new"})
    assert refused(world, metadata={"uid": "old"}).reason == "UIDMismatch"


def test_a_gated_or_deleting_pod_is_not_bound(world):
    world.pod(spec={"schedulingGates": [{"name": "g"}]})
    assert refused(world).message.endswith("pod p has non-empty .spec.schedulingGates")
    world.pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert refused(world).message.endswith("pod p is being deleted, cannot be assigned to a host")


def test_an_absent_pod_is_404_and_a_binding_without_node_is_invalid(world):
    assert refused(world).code == 404
    world.pod()
    error = refused(world, target={"kind": "Minion", "name": ""})
    assert [cause["field"] for cause in error.details["causes"]] == ["target.kind", "target.name"]


def test_kubelet_unbinding_4_3_a_scheduler_with_stale_history_cannot_bind(world):
    world.pod(status={"unbindCount": 2})
    error = refused(world, expectedUnbindCount=1)
    assert error.message.endswith("pod was unbound since: expected unbindCount 1, it is 2")
    world.switch(bind__precondition="uid")
    assert world.bind("p", "n1", expectedUnbindCount=1)["spec"]["nodeName"] == "n1"


def test_kubelet_unbinding_4_3_an_excluded_node_is_refused_when_the_server_enforces_it(world):
    entry = {"nodeName": "n1", "time": "2027-01-15T08:00:00Z", "excludeSeconds": 60, "reason": "OutOfcpu"}
    world.pod(status={"unbindHistory": [entry]})
    world.wall_s = 1_800_000_000.0  # 2027-01-15T08:00:00Z
    world.switch(apiserver__enforce_exclusion=True)
    assert refused(world).message.endswith("node n1 rejected pod p earlier (OutOfcpu)")
    world.wait(61)
    assert world.bind("p", "n1")["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize(
    "identity", [ADMIN, controller_identity("replicaset"), node_identity("n1"), Identity("user:default"), Identity("x")]
)
def test_only_the_scheduler_holds_the_verb_bind(world, identity):
    world.pod()
    assert refused(world, identity).code == 403


@pytest.mark.parametrize(
    "body", [{"metadata": 5}, {"target": []}, {"metadata": {"labels": {"a": 1}}}, {"target": {"name": 3}}]
)
def test_a_malformed_binding_is_refused_and_never_crashes(world, body):
    world.pod()
    assert refused(world, **body).code in (400, 422)
