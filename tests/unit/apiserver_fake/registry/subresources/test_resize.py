"""Resize: cpu and memory may change, nothing else, and only where a node can do it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from services.api.errors import ApiError
from services.api.identity import ADMIN, Identity, node_identity

GUARANTEED = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "500m", "memory": "1Gi"}}
BURSTABLE = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}
QOS = "Pod QOS Class may not change as a result of resizing"


def container(name: str = "c", resources: Any = None, **more: Any) -> Any:
    return {"name": name, "image": "i:1", "resources": copy.deepcopy(resources or {}), **more}


def make(world: Any, *containers: Any, qos: str = "Burstable", **parts: Any) -> Any:
    spec = {"containers": list(containers), **parts.pop("spec", {})}
    return world.pod(spec=spec, status={"qosClass": qos, **parts.pop("status", {})}, **parts)


def resize(world: Any, change: Any, identity: Identity = ADMIN) -> Any:
    body = copy.deepcopy(world.get("pods", "p"))
    change(body)
    world.sub(identity, "pods", "p", "resize", body, verb="update")
    return world.get("pods", "p")


def refused(world: Any, change: Any) -> str:
    with pytest.raises(ApiError) as error:
        resize(world, change)
    assert error.value.code == 422
    return error.value.message


def to(index: int = 0, kind: str = "containers", **parts: Any) -> Any:
    def change(body: Any) -> None:
        resources = body["spec"][kind][index]["resources"]
        for part, values in parts.items():
            resources[part] = {**resources.get(part, {}), **values}

    return change


def both(**values: str) -> Any:
    return to(requests=values, limits=values)


def test_a_resize_changes_the_desired_resources_and_the_generation_and_nothing_of_the_status(world: Any) -> None:
    before = make(world, container(resources=BURSTABLE))

    after = resize(world, to(requests={"cpu": "700m"}))

    assert after["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "700m", "memory": "1Gi"}
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert after["status"] == before["status"]


def test_a_resize_to_the_same_size_changes_nothing(world: Any) -> None:
    before = make(world, container(resources=BURSTABLE))

    assert resize(world, lambda body: None) == before


def test_all_else_that_a_resize_says_is_left_out(world: Any) -> None:
    make(world, container(resources=BURSTABLE))

    def change(body: Any) -> None:
        to(requests={"cpu": "700m"})(body)
        body["metadata"]["labels"] = {"a": "b"}
        body["spec"]["nodeName"] = "n2"
        body["spec"]["containers"][0]["image"] = "other"

    after = resize(world, change)

    assert "labels" not in after["metadata"]
    assert "nodeName" not in after["spec"]
    assert after["spec"]["containers"][0]["image"] == "i:1"


def test_a_new_limit_without_a_request_is_also_the_request(world: Any) -> None:
    make(world, container(resources={"requests": {"memory": "1Gi"}}))

    after = resize(world, to(limits={"cpu": "1"}))

    assert after["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"


def test_kep_1287_11_a_guaranteed_pod_stays_guaranteed(world: Any) -> None:
    make(world, container(resources=GUARANTEED), qos="Guaranteed")

    message = refused(world, to(requests={"cpu": "400m"}))
    after = resize(world, both(cpu="400m"))

    assert f'spec: Invalid value: "Guaranteed": {QOS}' in message
    assert after["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "400m"


def test_kep_1287_12_best_effort_stays_so_and_limits_cannot_be_removed(world: Any) -> None:
    make(world, container(), qos="BestEffort")
    assert QOS in refused(world, to(requests={"cpu": "100m"}))

    make(world, container(resources=BURSTABLE))
    message = refused(world, lambda body: body["spec"]["containers"][0]["resources"]["limits"].pop("memory"))
    assert "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed" in message


def test_requests_cannot_be_removed(world: Any) -> None:
    make(world, container(resources={"requests": {"cpu": "1", "memory": "1Gi"}}))

    message = refused(world, lambda body: body["spec"]["containers"][0]["resources"]["requests"].pop("cpu"))

    assert "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed" in message


def test_a_limit_below_the_request_is_refused_as_at_creation(world: Any) -> None:
    make(world, container(resources=BURSTABLE))

    assert "must be less than or equal to cpu limit of 100m" in refused(world, to(limits={"cpu": "100m"}))


@pytest.mark.parametrize("change", [
    to(requests={"ephemeral-storage": "1Gi"}),
    to(requests={"example.com/gpu": "1"}, limits={"example.com/gpu": "1"}),
    lambda body: body["spec"]["containers"][0].update(
        resizePolicy=[{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    ),
])  # fmt: skip
def test_only_cpu_and_memory_change(world: Any, change: Any) -> None:
    make(world, container(resources=BURSTABLE))

    assert "spec: Forbidden: only cpu and memory resources are mutable" in refused(world, change)


def test_a_client_that_does_not_know_the_resize_policy_does_not_change_it(world: Any) -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    make(world, container(resources=BURSTABLE, resizePolicy=policy))

    def change(body: Any) -> None:
        del body["spec"]["containers"][0]["resizePolicy"]
        to(requests={"cpu": "700m"})(body)

    assert resize(world, change)["spec"]["containers"][0]["resizePolicy"][: len(policy)] == policy


def test_containers_are_neither_reordered_nor_added(world: Any) -> None:
    make(world, container("a", BURSTABLE), container("b", BURSTABLE))

    reordered = refused(world, lambda body: body["spec"]["containers"].reverse())
    added = refused(world, lambda body: body["spec"]["containers"].append(container("x", BURSTABLE)))

    assert (
        "[spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize, "
        "spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize]"
    ) in reordered
    assert "spec.containers: Forbidden: containers may not be added or removed on resize" in added


def test_before_v1_36_a_sidecar_may_be_resized_and_a_plain_init_container_not(world: Any) -> None:
    world.switch(InPlacePodVerticalScalingInitContainers=False)
    inits = [container("once", BURSTABLE), container("side", BURSTABLE, restartPolicy="Always")]
    make(world, container(resources=BURSTABLE), spec={"initContainers": inits})

    after = resize(world, to(1, "initContainers", requests={"cpu": "700m"}))
    message = refused(world, to(0, "initContainers", requests={"cpu": "700m"}))

    assert after["spec"]["initContainers"][1]["resources"]["requests"]["cpu"] == "700m"
    assert "spec: Forbidden: resources for non-sidecar init containers are immutable" in message


def test_the_pods_own_resources_may_change_and_not_vanish(world: Any) -> None:
    level = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    make(world, container(), spec={"resources": level})

    after = resize(world, lambda body: body["spec"]["resources"]["limits"].update(cpu="3"))
    less = refused(world, lambda body: body["spec"]["resources"].pop("limits"))
    gone = refused(world, lambda body: body["spec"].pop("resources"))

    assert after["spec"]["resources"]["limits"]["cpu"] == "3"
    assert "spec.resources.limits: Forbidden: pod-level resource limits cannot be removed" in less
    assert "spec.resources: Forbidden: pod-level resources cannot be removed" in gone


@pytest.mark.parametrize(("level", "asked", "stored"), [
    ({"limits": {"cpu": "2", "memory": "2Gi"}}, {"requests": {"cpu": "500m"}}, {"cpu": "500m", "memory": "2Gi"}),
    ({"limits": {"memory": "2Gi"}}, {"limits": {"memory": "1Gi", "cpu": "1"}}, {"cpu": "1", "memory": "1Gi"}),
    ({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}, {}, {"cpu": "1"}),
    ({"requests": {"cpu": "1"}}, {"requests": {"memory": "1Gi"}}, {"cpu": "1"}),
])  # fmt: skip
def test_a_pod_with_limits_of_its_own_asks_for_what_its_containers_ask_for(
    world: Any, level: Any, asked: Any, stored: Any
) -> None:
    spec = {"containers": [container(resources=asked)], "resources": level}

    made = world.create("pods", {"metadata": {"name": "p"}, "spec": spec})

    assert made["spec"]["resources"]["requests"] == stored
    causes, same = world.try_update("pods", made, copy.deepcopy(made))
    assert (causes, same) == ([], made)


def test_a_resize_keeps_containers_within_their_pod(world: Any) -> None:
    level = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    asked = {"requests": {"cpu": "600m"}, "limits": {"cpu": "1"}}
    make(world, container("a", asked), container("b", {"requests": {"cpu": "200m"}}), spec={"resources": level})

    more = refused(world, to(0, requests={"cpu": "900m"}))
    larger = refused(world, to(0, limits={"cpu": "3"}))

    assert (
        'spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container '
        "requests of 1100m"
    ) in more
    assert (
        'spec.resources.containers[0][cpu].limits: Invalid value: "3": must be less than or equal to pod limits of 2'
    ) in larger


def test_without_its_gate_a_pod_with_resources_of_its_own_cannot_be_resized(world: Any) -> None:
    make(world, container(resources=BURSTABLE), spec={"resources": {"limits": {"cpu": "2"}}})
    world.switch(InPlacePodLevelResourcesVerticalScaling=False)

    assert "resize of pods with pod-level resources is forbidden when" in refused(world, to(requests={"cpu": "700m"}))


def test_since_v1_36_cpu_and_memory_of_a_plain_init_container_may_change_and_nothing_else(world: Any) -> None:
    make(world, container(resources=BURSTABLE), spec={"initContainers": [container("once", BURSTABLE)]})

    after = resize(world, to(0, "initContainers", requests={"cpu": "700m"}))
    message = refused(world, to(0, "initContainers", limits={"ephemeral-storage": "1Gi"}))

    assert after["spec"]["initContainers"][0]["resources"]["requests"]["cpu"] == "700m"
    assert "only cpu and memory resources for init or sidecar containers are mutable" in message


@pytest.mark.parametrize(("declared", "text"), [
    ([], 'pod update requires features InPlacePodLevelResourcesVerticalScaling which are not available on node "n1"'),
    (["InPlacePodLevelResourcesVerticalScaling"], ""),
    (None, 'node "n1" not found'),
])  # fmt: skip
def test_a_resize_that_the_node_does_not_declare_is_forbidden(world: Any, declared: Any, text: str) -> None:
    node = "n9" if declared is None else "n1"
    text = text.replace("n1", node)
    make(world, container(resources=BURSTABLE), spec={"resources": {"limits": {"cpu": "2"}}, "nodeName": node})
    status = {"allocatable": {"cpu": "9", "memory": "9Gi"}, "declaredFeatures": declared or []}
    world.put("nodes", {"metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}}, "status": status})

    def level(body: Any) -> None:
        body["spec"]["resources"] = {**body["spec"]["resources"], "limits": {"cpu": "3"}}

    if not text:
        assert resize(world, level)["spec"]["resources"]["limits"] == {"cpu": "3"}
        return
    with pytest.raises(ApiError) as error:
        resize(world, level)
    assert (403, f'pods "p" is forbidden: {text}') == (error.value.code, error.value.message)
    world.switch(NodeDeclaredFeatures=False, resize__feasibility="node")
    assert resize(world, level), "without the gate nothing is asked"


def test_the_declared_features_are_asked_for_before_the_nodes_capacity(world: Any) -> None:
    world.switch(resize__feasibility="admission")
    make(world, container(resources=BURSTABLE), spec={"nodeName": "n1", "initContainers": [container("i", BURSTABLE)]})
    status = {"allocatable": {"cpu": "1", "memory": "2Gi"}}
    world.put("nodes", {"metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}}, "status": status})

    with pytest.raises(ApiError) as error:
        resize(world, to(0, "initContainers", requests={"cpu": "1"}, limits={"cpu": "9"}))

    assert "requires features InPlacePodVerticalScalingInitContainers" in error.value.message


def test_a_node_that_does_not_report_resources_cannot_resize(world: Any) -> None:
    running = {"name": "c", "state": {"running": {}}}
    make(world, container(resources=BURSTABLE), status={"containerStatuses": [running]})

    assert "Pod running on node without support for resize" in refused(world, to(requests={"cpu": "700m"}))

    make(world, container(resources=BURSTABLE), status={"containerStatuses": [{**running, "resources": {}}]})
    assert resize(world, to(requests={"cpu": "700m"}))


def test_static_and_windows_pods_cannot_be_resized(world: Any) -> None:
    make(world, container(resources=BURSTABLE), metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
    assert "static pods cannot be resized" in refused(world, to(requests={"cpu": "700m"}))

    make(world, container(resources=BURSTABLE), spec={"os": {"name": "windows"}})
    assert "windows pods cannot be resized" in refused(world, to(requests={"cpu": "700m"}))


def test_a_mistyped_name_of_a_container_is_reported_too(world: Any) -> None:
    make(world, container(resources=BURSTABLE))

    def change(body: Any) -> None:
        body["spec"]["containers"].insert(0, {"name": "main", "resources": {"requests": {"cpu": "1"}}})

    message = refused(world, change)

    assert "spec.containers[0].image: Required value" in message
    assert "spec.containers: Forbidden: containers may not be added or removed on resize" in message


def in_a_cluster(world: Any, system: str = "linux") -> None:
    """A pod of 500m and 1Gi with overhead, on a node of 1 CPU and 2Gi that could never hold more."""
    make(world, container(resources=BURSTABLE), spec={"nodeName": "n1", "overhead": {"cpu": "100m"}})
    labels = {"kubernetes.io/os": system} if system else {}
    world.put(
        "nodes",
        {"metadata": {"name": "n1", "labels": labels}, "status": {"allocatable": {"cpu": "1", "memory": "2Gi"}}},
    )


@pytest.mark.parametrize(
    ("requests", "text"),
    [
        ({"cpu": "1", "memory": "1Gi"}, "cpu, requested: 1100, allocatable: 1000"),
        ({"cpu": "2", "memory": "4Gi"},
         "cpu, requested: 2100, allocatable: 1000; memory, requested: 4294967296, allocatable: 2147483648"),
    ],
)  # fmt: skip
def test_kep_1287_3_2_since_v1_37_more_than_the_node_has_is_refused_at_once(
    world: Any, requests: Any, text: str
) -> None:
    world.switch(resize__feasibility="admission")
    in_a_cluster(world)

    with pytest.raises(ApiError) as error:
        resize(world, to(requests=requests, limits={"cpu": "3", "memory": "4Gi"}))

    assert error.value.code == 403
    assert f'pods "p" is forbidden: Node didn\'t have enough allocatable resources: {text}' == error.value.message


def test_kep_1287_05_before_that_its_node_is_left_to_say_so(world: Any) -> None:
    world.switch(resize__feasibility="node")
    in_a_cluster(world)

    assert resize(world, to(requests={"cpu": "1"}))


def test_since_v1_36_a_resize_needs_a_linux_node_that_exists(world: Any) -> None:
    world.switch(resize__feasibility="admission")
    in_a_cluster(world)
    assert resize(world, to(requests={"cpu": "900m"}))

    in_a_cluster(world, "windows")
    with pytest.raises(ApiError, match='only supported on linux nodes, node "n1" is "windows"'):
        resize(world, to(requests={"cpu": "900m"}))

    del world.documents["nodes", "", "n1"]
    with pytest.raises(ApiError, match='node "n1" not found'):
        resize(world, to(requests={"cpu": "900m"}))


def test_owners_may_resize_their_pods_and_nodes_and_others_may_not(world: Any) -> None:
    in_a_cluster(world)
    world.put("namespaces", {"metadata": {"name": "default", "labels": {"emulation/owner": "alice"}}})

    assert resize(world, to(requests={"cpu": "700m"}), Identity("user:alice"))
    for other in (Identity("user:bob"), Identity("system:kube-scheduler"), node_identity("n1")):
        with pytest.raises(ApiError) as error:
            resize(world, to(requests={"cpu": "600m"}), other)
        assert error.value.code == 403


def test_the_plain_update_still_keeps_resources_as_they_are(world: Any) -> None:
    old = make(world, container(resources=BURSTABLE))
    new = copy.deepcopy(old)
    new["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "700m"

    causes, _ = world.try_update("pods", old, new)

    assert [cause.path for cause in causes] == ["spec"]


def test_what_is_asked_for_gets_the_default_resize_policy_at_creation_and_at_a_resize(world: Any) -> None:
    restart = {"resourceName": "memory", "restartPolicy": "RestartContainer"}
    spec = {
        "containers": [
            container("both", BURSTABLE, resizePolicy=[restart]),
            container("limited", {"limits": {"memory": "1Gi"}}),
            container("free"),
        ],
        "initContainers": [container("once", BURSTABLE), container("side", BURSTABLE, restartPolicy="Always")],
    }
    stored = world.create("pods", {"metadata": {"name": "p"}, "spec": spec})

    def policies(pod: Any) -> Any:
        found = (*pod["spec"]["initContainers"], *pod["spec"]["containers"])
        return {c["name"]: c.get("resizePolicy") for c in found}

    default = {name: {"resourceName": name, "restartPolicy": "NotRequired"} for name in ("cpu", "memory")}
    made = {
        "once": None,
        "side": [default["cpu"], default["memory"]],
        "both": [restart, default["cpu"]],
        "limited": [default["memory"]],
        "free": None,
    }
    assert policies(stored) == made
    causes, same = world.try_update("pods", stored, copy.deepcopy(stored))
    assert (causes, same) == ([], stored)

    after = resize(world, to(1, limits={"cpu": "1"}, requests={"cpu": "1"}))

    assert policies(after) == {**made, "limited": [default["memory"], default["cpu"]]}
    causes, _ = world.try_update("pods", after, copy.deepcopy(after))
    assert causes == []


@pytest.mark.parametrize(("policies", "restart", "message"), [
    ([("disk", "NotRequired")], "Always", 'Unsupported value: "disk": supported values: "cpu", "memory"'),
    ([("cpu", "Maybe")], "Always", 'Unsupported value: "Maybe": supported values: "NotRequired", "RestartContainer"'),
    ([("cpu", "NotRequired"), ("cpu", "NotRequired")], "Always", 'Duplicate value: "cpu"'),
    ([("", "NotRequired")], "Always", "Required value"),
    ([("cpu", "RestartContainer")], "Never",
     """Invalid value: "RestartContainer": must be 'NotRequired' when pod `restartPolicy` is 'Never'"""),
])  # fmt: skip
def test_a_resize_policy_is_checked_when_the_pod_is_made(world: Any, policies: Any, restart: str, message: str) -> None:
    listed = [{"resourceName": resource, "restartPolicy": policy} for resource, policy in policies]
    spec = {"restartPolicy": restart, "containers": [container(resources=BURSTABLE, resizePolicy=listed)]}

    causes, _ = world.try_create("pods", {"metadata": {"name": "x"}, "spec": spec})

    assert [cause.message for cause in causes] == [message]
    assert causes[0].path.startswith("spec.containers[0].resizePolicy")
