"""Unbinding by condition: the controller acts in the kubelet's stead, or reports that the pod stays bound."""

import pytest

from services.api.meta import Key
from services.api.unbind import request_id
from services.controllers.pod_unbind.controller import CONTROLLER as POD_UNBIND

ASKED = {"type": "UnbindRequested", "status": "True", "reason": "OutOfcpu", "message": "no capacity"}


@pytest.fixture
def world(world_of):
    return world_of(POD_UNBIND)


@pytest.fixture
def asking(a_pod):
    def build(*, asked=None, status=None, **metadata):
        return a_pod(
            "p", node="n1", phase="Pending", uid="u",
            status={"bindingGeneration": 4, "conditions": [ASKED if asked is None else asked], **(status or {})},
            **metadata,
        )  # fmt: skip

    return build


def test_unbinding_4_2_a_request_becomes_an_unbind_of_that_binding(world, asking):
    keys = world.put(asking())

    (action,) = world.reconcile("p").actions

    assert keys == [Key("default", "p")]
    assert (action.resource, action.subresource) == ("pods", "unbind")
    assert action.document["metadata"]["uid"] == "u"
    assert {name: action.document[name] for name in ("nodeName", "bindingGeneration", "reason", "requestID")} == {
        "nodeName": "n1", "bindingGeneration": 4, "reason": "OutOfcpu", "requestID": request_id("u", 4, "n1"),
    }  # fmt: skip


@pytest.mark.parametrize(("fence", "named"), [("session", False), ("resourceVersion", True)])
def test_unbinding_4_5_the_version_that_was_seen_is_named_where_the_server_wants_it(world_of, asking, fence, named):
    world = world_of(POD_UNBIND, unbind__fence=fence)
    world.put(asking())

    (action,) = world.reconcile("p").actions

    assert bool(action.document["metadata"].get("resourceVersion")) is named


@pytest.mark.parametrize(
    "changed",
    [{"asked": {**ASKED, "status": "False"}}, {"status": {"phase": "Failed"}},
     {"status": {"startTime": "2026-01-01T00:00:00Z"}}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}],
)  # fmt: skip
def test_unbinding_4_2_without_a_request_that_can_be_met_nothing_happens(world, asking, changed):
    world.put(asking(**changed))

    assert world.reconcile("p").actions == ()


@pytest.mark.parametrize(
    ("changed", "code"),
    [({"status": {"unbindCount": 5}}, "LimitReached"), ({"status": {"bindingGeneration": 0}}, "Exempt"),
     ({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d",
                            "controller": True}]}, "Exempt")],
)  # fmt: skip
def test_a_pod_that_may_not_be_unbound_gets_the_condition_false_unbinding_4_3_checks_10_and_11(
    world, asking, changed, code
):
    world.put(asking(**changed))

    (action,) = world.reconcile("p").actions

    (condition,) = action.patch["status"]["conditions"]
    assert (action.subresource, action.uid) == ("status", "u")
    assert (condition["type"], condition["status"], condition["reason"]) == ("UnbindRequested", "False", code)
