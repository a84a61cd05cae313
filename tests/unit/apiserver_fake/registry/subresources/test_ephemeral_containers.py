"""Ephemeral containers: they may join a pod that exists, and neither change nor leave."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from services.api.errors import ApiError
from services.api.identity import ADMIN

DEBUGGER = {"name": "debugger", "image": "busybox:1", "targetContainerName": "c"}


def join(world: Any, *containers: Any) -> Any:
    body = copy.deepcopy(world.get("pods", "p"))
    body["spec"]["ephemeralContainers"] = list(containers)
    world.sub(ADMIN, "pods", "p", "ephemeralcontainers", body, verb="update")
    return world.get("pods", "p")


def refused(world: Any, *containers: Any) -> str:
    with pytest.raises(ApiError) as error:
        join(world, *containers)
    assert error.value.code == 422
    return error.value.message


def make(world: Any, **parts: Any) -> Any:
    return world.pod(spec={"containers": [{"name": "c", "image": "i:1"}]}, **parts)


def test_a_container_joins_a_pod_with_defaults_and_a_new_generation(world: Any) -> None:
    before = make(world)

    after = join(world, DEBUGGER)

    joined = after["spec"]["ephemeralContainers"][0]
    assert (joined["name"], joined["imagePullPolicy"]) == ("debugger", "IfNotPresent")
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert {**after["spec"], "ephemeralContainers": None} == {**before["spec"], "ephemeralContainers": None}


def test_one_that_joined_neither_changes_nor_leaves(world: Any) -> None:
    make(world)
    held = join(world, DEBUGGER)["spec"]["ephemeralContainers"][0]

    assert 'existing ephemeral containers "debugger" may not be removed' in refused(world)
    assert 'existing ephemeral containers "debugger" may not be changed' in refused(world, {**held, "image": "x:2"})
    assert len(join(world, held, {"name": "second", "image": "i:1"})["spec"]["ephemeralContainers"]) == 2


@pytest.mark.parametrize(
    ("container", "why"),
    [({"name": "c", "image": "i:1"}, 'Duplicate value: "c"'),
     ({**DEBUGGER, "targetContainerName": "d"}, 'targetContainerName: Not found: "d"'),
     ({**DEBUGGER, "ports": [{"containerPort": 1}]}, "cannot be set for an Ephemeral Container"),
     ({**DEBUGGER, "livenessProbe": {"exec": {"command": ["true"]}}}, "livenessProbe: Forbidden"),
     ({**DEBUGGER, "restartPolicy": "Always"}, "restartPolicy: Forbidden: cannot be set")],
)  # fmt: skip
def test_it_offers_nothing_and_is_allocated_nothing(world: Any, container: Any, why: str) -> None:
    make(world)

    assert why in refused(world, container)


def test_the_rest_of_the_pod_is_not_taken(world: Any) -> None:
    before = make(world)
    body = copy.deepcopy(before)
    body["spec"]["containers"][0]["image"] = "other:2"
    body["metadata"]["labels"] = {"a": "b"}
    world.sub(ADMIN, "pods", "p", "ephemeralcontainers", body, verb="update")

    assert world.get("pods", "p") == before


def test_a_mirror_pod_takes_none(world: Any) -> None:
    make(world, metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})

    assert "static pods do not support ephemeral containers" in refused(world, DEBUGGER)
