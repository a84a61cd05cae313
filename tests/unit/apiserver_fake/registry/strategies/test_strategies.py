"""Defaults and rules of every kind, in the words of upstream."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver_fake.registry.strategy import DeleteOptions, strategy_for
from services.api.errors import ApiError, BadRequest, Invalid
from services.api.identity import ADMIN, SCHEDULER, Identity, controller_identity, node_identity
from services.api.wire import Request

CLASSES = "priorityclasses.scheduling.k8s.io"


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    parts = {"containers": [{"name": "c", "image": "nginx"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": parts}


def said(world: Any, resource: str, document: dict[str, Any]) -> list[str]:
    causes, _ = world.try_create(resource, document)
    return [f"{cause.path}: {cause.message}" for cause in causes]


def test_a_pod_is_completed_as_the_real_server_completes_it(world):
    made = world.create(
        "pods", pod(containers=[{"name": "c", "image": "nginx", "resources": {"limits": {"cpu": "1"}}}])
    )
    spec, container = made["spec"], made["spec"]["containers"][0]
    assert {
        name: spec[name]
        for name in (
            "restartPolicy",
            "dnsPolicy",
            "schedulerName",
            "terminationGracePeriodSeconds",
            "enableServiceLinks",
            "priority",
            "preemptionPolicy",
            "serviceAccountName",
            "securityContext",
        )
    } == {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "enableServiceLinks": True,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "serviceAccountName": "default",
        "securityContext": {},
    }
    assert container["resources"]["requests"] == {"cpu": "1"}
    assert container["imagePullPolicy"] == "Always"
    assert [(each["key"], each["tolerationSeconds"]) for each in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    ]
    assert made["status"] == {"phase": "Pending", "qosClass": "Burstable"}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("a:1", "IfNotPresent"),
        ("r:5000/a", "Always"),
        ("a@sha256:0", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(world, image, policy):
    made = world.create("pods", pod(containers=[{"name": "c", "image": image}]))
    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
        ({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}, "BestEffort"),
    ],
)
def test_the_quality_of_service_is_counted(world, resources, qos):
    made = world.create("pods", pod(containers=[{"name": "c", "image": "i", "resources": resources}]))
    assert made["status"]["qosClass"] == qos


def test_what_a_creator_says_of_the_status_is_ignored(world):
    made = world.create("pods", {**pod(), "status": {"phase": "Running", "bindingGeneration": 9, "unbindCount": 3}})
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_a_gated_pod_says_so(world):
    made = world.create("pods", pod(schedulingGates=[{"name": "example.com/wait"}]))
    assert made["status"]["conditions"][0]["reason"] == "SchedulingGated"


def test_priority_comes_from_the_class_the_default_class_or_is_zero(world):
    world.put(CLASSES, {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"})
    made = world.create("pods", pod(priorityClassName="high"))["spec"]
    assert (made["priority"], made["preemptionPolicy"]) == (1000, "Never")
    assert world.create("pods", pod(priorityClassName="system-node-critical"))["spec"]["priority"] == 2_000_001_000
    world.put(CLASSES, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    usual = world.create("pods", pod())["spec"]
    assert (usual["priority"], usual["priorityClassName"]) == (7, "usual")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"priorityClassName": "nope"}, 'pods "p" is forbidden: no PriorityClass with name nope was found'),
        ({"priority": 5}, "the integer value of priority (5) must not be provided in pod spec"),
    ],
)
def test_an_undefined_priority_class_is_forbidden(world, spec, text):
    with pytest.raises(ApiError, match="is forbidden") as refused:
        world.try_create("pods", pod(**spec))
    assert text in refused.value.message
    assert refused.value.code == 403


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0].image: Required value"),
        ({"containers": [{"image": "i"}]}, "spec.containers[0].name: Required value"),
        (
            {"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]},
            'spec.containers[1].name: Duplicate value: "c"',
        ),
        (
            {"restartPolicy": "Sometimes"},
            'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
        ),
        (
            {"terminationGracePeriodSeconds": -1},
            "spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            {"nodeName": "n1", "schedulingGates": [{"name": "g"}]},
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
        ),
        (
            {"tolerations": [{"operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}]},
            (
                'spec.tolerations[0].effect: Invalid value: "NoSchedule": '
                "effect must be 'NoExecute' when `tolerationSeconds` is set"
            ),
        ),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            (
                "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: "
                "Required value: can not be empty"
            ),
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
        ),
        (
            {"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/m"}]}]},
            'spec.containers[0].volumeMounts[0].name: Not found: "v"',
        ),
        (
            {"containers": [{"name": f"c{n}", "image": "i"} for n in range(101)]},
            "spec.containers: Too many: 101: must have at most 100 items",
        ),
        (
            {"tolerations": [{"key": f"k{n}"} for n in range(201)]},
            "spec.tolerations: Too many: 203: must have at most 200 items",
        ),
    ],
)
def test_a_pod_that_breaks_a_rule_is_refused_with_that_rule(world, spec, text):
    assert text in said(world, "pods", pod(**spec))


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        (
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {"requests": {"cpu": "-1"}},
            'spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            {"requests": {"cpu": "a lot"}},
            (
                'spec.containers[0].resources.requests[cpu]: Invalid value: "a lot": quantities must match '
                "the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            ),
        ),
        (
            {"requests": {"gpus": "1"}},
            (
                'spec.containers[0].resources.requests[gpus]: Invalid value: "gpus": '
                "must be a standard resource type or fully qualified"
            ),
        ),
        (
            {"limits": {"example.com/gpu": "1.5"}},
            'spec.containers[0].resources.limits[example.com/gpu]: Invalid value: "1500m": must be an integer',
        ),
        (
            {"requests": {"example.com/gpu": "1"}},
            "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            {"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}, "requests": {"hugepages-2Mi": "2Mi"}},
            'spec.containers[0].resources.requests: Invalid value: "2Mi": must be equal to hugepages-2Mi limit of 4Mi',
        ),
        (
            {"limits": {"hugepages-2Mi": "4Mi"}},
            "spec.containers[0].resources: Forbidden: HugePages require cpu or memory",
        ),
        (
            {"limits": {"cpu": "1", "hugepages-2Mi": "3Mi"}},
            (
                'spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: "3Mi": '
                "3Mi is not positive integer multiple of hugepages-2Mi"
            ),
        ),
    ],
)
def test_quantities_are_checked(world, resources, text):
    assert text in said(world, "pods", pod(containers=[{"name": "c", "image": "i", "resources": resources}]))


def test_a_bad_name_is_refused_in_the_words_of_rfc_1123(world):
    (text,) = said(world, "pods", pod("Not_A_Name"))
    assert text.startswith('metadata.name: Invalid value: "Not_A_Name": a lowercase RFC 1123 subdomain must consist of')


def change(world: Any, stored: Any, identity: Identity = ADMIN, **spec: Any) -> list[str]:
    causes, _ = world.try_update("pods", stored, {**stored, "spec": {**stored["spec"], **spec}}, identity)
    return [f"{cause.path}: {cause.message}" for cause in causes]


def test_a_pods_spec_is_frozen_but_for_the_fields_upstream_lets_change(world):
    stored = world.create("pods", pod())
    container = stored["spec"]["containers"][0]
    assert change(world, stored, containers=[{**container, "image": "other:1"}]) == []
    assert change(world, stored, activeDeadlineSeconds=60) == []
    assert change(world, stored, tolerations=[*stored["spec"]["tolerations"], {"key": "k", "operator": "Exists"}]) == []
    (text,) = change(world, stored, containers=[{**container, "command": ["sh"]}])
    assert text.startswith("spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`")
    assert '+ "nodeName": "n1"' in change(world, stored, nodeName="n1")[0]
    assert change(world, stored, tolerations=[]) == []  # the defaults come back
    longer = [{**each, "tolerationSeconds": 9} for each in stored["spec"]["tolerations"]]
    assert change(world, stored, tolerations=longer) == []
    assert (
        change(world, world.create("pods", pod(tolerations=[{"key": "a", "operator": "Exists"}])), tolerations=[]) != []
    )


def test_gates_are_only_removed_and_what_a_gated_pod_wants_only_narrows(world):
    stored = world.create("pods", pod(schedulingGates=[{"name": "a"}, {"name": "b"}], nodeSelector={"x": "1"}))
    assert change(world, stored, schedulingGates=[{"name": "b"}]) == []
    assert change(world, stored, schedulingGates=[{"name": "c"}]) == [
        "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'c'"
    ]
    assert change(world, stored, nodeSelector={"x": "1", "y": "2"}) == []
    assert change(world, stored, nodeSelector={"y": "2"}) != []


def test_guarantees_s21_s22_a_pod_write_changes_no_status_and_fills_in_what_it_left_out(world):
    stored = world.create("pods", pod())
    spec = {name: value for name, value in stored["spec"].items() if name in ("containers", "tolerations")}
    causes, new = world.try_update("pods", stored, {**stored, "spec": spec, "status": {"phase": "Running"}})
    assert causes == []
    assert (new["spec"], new["status"]) == (stored["spec"], stored["status"])


def test_guarantees_s22_a_client_that_may_create_a_pod_may_name_its_node(world):
    for identity in (ADMIN, Identity("user:default"), controller_identity("replicaset")):
        causes, new = world.try_create("pods", pod(nodeName="n1"), identity)
        assert (causes, new["spec"]["nodeName"]) == ([], "n1")
    with pytest.raises(ApiError, match="node may only act on objects it owns"):
        world.try_create("pods", pod(nodeName="n1"), node_identity("n2"))


def test_guarantees_i21_the_phase_only_goes_forward(world):
    world.pod(spec={"nodeName": "n1"})
    for phase in ("Running", "Running"):
        world.status(ADMIN, "p", phase=phase)
    with pytest.raises(ApiError, match="the phase may not go back from Running"):
        world.status(ADMIN, "p", phase="Pending")
    world.status(ADMIN, "p", phase="Failed")
    for phase in ("Pending", "Running", "Succeeded", "Nonsense"):
        with pytest.raises(ApiError) as refused:
            world.status(ADMIN, "p", phase=phase)
        assert refused.value.code == 422


def test_kubelet_unbinding_4_1_binding_fields_of_other_writers_are_put_back(world):
    world.pod(status={"bindingGeneration": 4, "unbindCount": 1, "unbindHistory": [{"nodeName": "n2"}]})
    after = world.status(
        ADMIN,
        "p",
        bindingGeneration=9,
        unbindCount=0,
        unbindHistory=[],
        bindingAdditions={"labels": ["app"]},
        reason="ok",
    )
    status = after["status"]
    assert (status["bindingGeneration"], status["unbindCount"], status["unbindHistory"]) == (4, 1, [{"nodeName": "n2"}])
    assert "bindingAdditions" not in status
    assert status["reason"] == "ok"


def test_guarantees_i17_a_bound_pod_is_not_nominated_any_more(world):
    world.pod()
    assert world.status(SCHEDULER, "p", nominatedNodeName="n1")["status"]["nominatedNodeName"] == "n1"
    world.bind("p", "n2")
    assert "nominatedNodeName" not in world.status(SCHEDULER, "p", nominatedNodeName="n1")["status"]


def delete(world: Any, stored: Any, resource: str = "pods", **options: Any) -> Any:
    ctx = world.ctx(ADMIN, Request(verb="delete", resource=resource, name=stored["metadata"]["name"]))
    return strategy_for(resource).before_delete(stored, ctx, DeleteOptions(**options))


def test_a_bound_pod_is_given_time_and_a_second_delete_only_shortens_it(world):
    stored = world.pod(spec={"nodeName": "n1", "terminationGracePeriodSeconds": 20})
    ending = delete(world, stored)
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 20
    assert ending["metadata"]["deletionTimestamp"] == "2027-01-15T08:00:20Z"
    assert delete(world, ending) is ending
    assert delete(world, ending, grace_period_s=60) is ending
    assert delete(world, ending, grace_period_s=5)["metadata"]["deletionGracePeriodSeconds"] == 5
    assert delete(world, ending, grace_period_s=0) is None


@pytest.mark.parametrize(("spec", "status"), [({}, {}), ({"nodeName": "n1"}, {"phase": "Failed"})])
def test_a_pod_without_node_or_that_has_ended_goes_at_once(world, spec, status):
    assert delete(world, world.pod(spec=spec, status=status)) is None


def test_guarantees_s19_finalizers_hold_and_propagation_adds_its_own(world):
    held = world.pod(metadata={"finalizers": ["example.com/x"]})
    ending = delete(world, held, grace_period_s=0)
    assert ending["metadata"]["finalizers"] == ["example.com/x"]
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 0
    assert delete(world, ending) is ending
    assert delete(world, world.pod(), propagation="Foreground")["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert delete(world, world.pod(), propagation="Orphan")["metadata"]["finalizers"] == ["orphan"]


def test_s19_a_second_delete_with_the_same_grace_does_not_move_the_deletion_time(world):
    ending = delete(world, world.pod(spec={"nodeName": "n1"}), grace_period_s=20)
    world.wait(5)

    again = delete(world, ending, grace_period_s=20)

    assert again["metadata"]["deletionTimestamp"] == ending["metadata"]["deletionTimestamp"]
    assert again is ending


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"propagationPolicy": "Sideways"},
            'propagationPolicy: Unsupported value: "Sideways": supported values: "Foreground", "Background", "Orphan", "nil"',
        ),
        (
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            'propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set',
        ),
    ],
)
def test_delete_options_that_cannot_be_are_invalid(body, message):
    with pytest.raises(Invalid) as refused:
        DeleteOptions.from_document(body)

    assert refused.value.message == f'DeleteOptions.meta.k8s.io "" is invalid: {message}'


@pytest.mark.parametrize("body", [{"gracePeriodSeconds": "5"}, {"preconditions": 5}])
def test_malformed_delete_options_are_400(body):
    with pytest.raises(BadRequest):
        DeleteOptions.from_document(body)


def test_controllers_11_a_namespace_waits_for_its_content_and_some_live_for_ever(world):
    made = world.create("namespaces", {"kind": "Namespace", "metadata": {"name": "team"}})
    assert (made["spec"], made["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    ending = delete(world, made, "namespaces")
    assert ending["status"]["phase"] == "Terminating"
    assert delete(world, {**ending, "spec": {"finalizers": []}}, "namespaces") is None
    with pytest.raises(ApiError, match="this namespace may not be deleted"):
        delete(world, world.lookup("namespaces", "", "default"), "namespaces")


def deployment(**spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    parts = {"selector": {"matchLabels": {"app": "web"}}, "template": template, **spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": parts,
    }


def test_a_deployment_is_completed(world):
    spec = world.create("deployments.apps", deployment())["spec"]
    assert (spec["replicas"], spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (1, 10, 600)
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert "tolerations" not in spec["template"]["spec"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"selector": None}, "spec.selector: Required value"),
        (
            {"selector": {"matchLabels": {"app": "db"}}},
            'spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`',
        ),
        ({"replicas": -1}, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        (
            {"strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}}},
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
        ),
        (
            {"strategy": {"type": "Recreate", "rollingUpdate": {}}},
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ),
        ({"template": None}, "spec.template.spec.containers: Required value"),
    ],
)
def test_a_deployment_that_breaks_a_rule_is_refused_with_that_rule(world, spec, text):
    made = deployment(**spec)
    made["spec"] = {name: value for name, value in made["spec"].items() if value is not None}
    assert text in said(world, "deployments.apps", made)


@pytest.mark.parametrize("resource", ["deployments.apps", "replicasets.apps"])
def test_a_selector_never_changes(world, resource):
    stored = world.create(resource, deployment())
    selector = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]}
    causes, _ = world.try_update(resource, stored, {**stored, "spec": {**stored["spec"], "selector": selector}})
    assert [(cause.path, cause.message.rpartition(": ")[2]) for cause in causes] == [
        ("spec.selector", "field is immutable")
    ]


@pytest.mark.parametrize(
    ("resource", "document", "text"),
    [
        (
            CLASSES,
            {"metadata": {"name": "system-mine"}, "value": 1},
            "metadata.name: Forbidden: priority class names with 'system-'",
        ),
        (
            CLASSES,
            {"metadata": {"name": "mine"}, "value": 2_000_000_000},
            "value: Forbidden: maximum allowed value of a user defined",
        ),
        (
            "poddisruptionbudgets.policy",
            {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "maxUnavailable": "5%"}},
            (
                'spec: Invalid value: {"MinAvailable":1,"MaxUnavailable":"5%","Selector":null,'
                '"UnhealthyPodEvictionPolicy":null}: '
                "minAvailable and maxUnavailable cannot be both set"
            ),
        ),
        (
            "poddisruptionbudgets.policy",
            {"metadata": {"name": "b"}, "spec": {"minAvailable": "many"}},
            "spec.minAvailable: Invalid value",
        ),
        (
            "nodes",
            {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k", "effect": "Never"}]}},
            'metadata.taints[0].effect: Unsupported value: "Never"',
        ),
        (
            "configmaps",
            {"metadata": {"name": "c"}, "data": {"a/b": ""}},
            'data[a/b]: Invalid value: "a/b": a valid config key',
        ),
        ("services", {"metadata": {"name": "s"}, "spec": {}}, "spec.ports: Required value"),
        (
            "events",
            {"metadata": {"name": "e", "namespace": "default"}, "involvedObject": {"namespace": "other"}},
            'involvedObject.namespace: Invalid value: "other": does not match event.namespace',
        ),
        (
            "events",
            {
                "metadata": {"name": "e", "namespace": "default"},
                "involvedObject": {"namespace": "default"},
                "message": "a\x1b[2J",
            },
            "message: Invalid value",
        ),
        (
            "leases.coordination.k8s.io",
            {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}},
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "serviceaccounts",
            {"metadata": {"name": "a", "labels": {"bad key": "v"}}},
            'metadata.labels: Invalid value: "bad key"',
        ),
        (
            "serviceaccounts",
            {"metadata": {"name": "a", "finalizers": [f"a/{n}" for n in range(33)]}},
            "metadata.finalizers: Too many: 33",
        ),
        (
            "serviceaccounts",
            {"metadata": {"name": "a", "ownerReferences": [{"name": "o"}] * 17}},
            "metadata.ownerReferences: Too many: 17",
        ),
        (
            "serviceaccounts",
            {"metadata": {"name": "a", "annotations": {"a": "x" * 262144}}},
            "metadata.annotations: Too long",
        ),
    ],
)
def test_other_kinds_that_break_a_rule_are_refused_with_that_rule(world, resource, document, text):
    assert any(each.startswith(text) for each in said(world, resource, document)), said(world, resource, document)


def test_secrets_fold_in_their_plain_text_and_services_get_an_address(world):
    secret = world.create("secrets", {"metadata": {"name": "s"}, "stringData": {"k": "v"}, "data": {"a": "YQ=="}})
    assert (secret["data"], secret["type"]) == ({"a": "YQ==", "k": "dg=="}, "Opaque")
    assert "stringData" not in secret
    ports = {"ports": [{"port": 80}]}
    addresses = [
        world.create("services", {"metadata": {"name": name}, "spec": ports})["spec"]["clusterIP"]
        for name in ("a", "b")
    ]
    assert addresses == ["10.96.0.10", "10.96.0.11"]


def test_immutable_content_stays_and_a_second_default_class_is_forbidden(world):
    stored = world.create("configmaps", {"metadata": {"name": "c"}, "data": {"k": "v"}, "immutable": True})
    causes, _ = world.try_update("configmaps", stored, {**stored, "data": {}, "immutable": False})
    assert [cause.path for cause in causes] == ["immutable", "data"]
    world.create(CLASSES, {"metadata": {"name": "a"}, "value": 1, "globalDefault": True})
    with pytest.raises(ApiError, match="Only one default can exist"):
        world.try_create(CLASSES, {"metadata": {"name": "b"}, "value": 2, "globalDefault": True})


def test_a_renewed_lease_is_remembered_by_the_servers_own_clock(world):
    lease = world.create(
        "leases.coordination.k8s.io",
        {"metadata": {"name": "l", "namespace": "kube-system"}, "spec": {"renewTime": "1"}},
    )
    world.wait(5)
    world.try_update("leases.coordination.k8s.io", lease, {**lease, "spec": {"renewTime": "1", "holderIdentity": "x"}})
    assert world.memory.renewed_s == {"kube-system/l": 1000.0}
    world.try_update("leases.coordination.k8s.io", lease, {**lease, "spec": {"renewTime": "2"}})
    assert world.memory.renewed_s == {"kube-system/l": 1005.0}


def test_a_mirror_pod_is_its_nodes_own_and_reaches_for_nothing(world):
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n1",
        "uid": world.lookup("nodes", "", "n1")["metadata"]["uid"],
        "controller": True,
    }
    mirror = pod(nodeName="n1")
    mirror["metadata"] |= {"annotations": {"kubernetes.io/config.mirror": "h"}, "ownerReferences": [owner]}
    causes, made = world.try_create("pods", mirror, node_identity("n1"))
    assert causes == []
    assert "serviceAccountName" not in made["spec"]
