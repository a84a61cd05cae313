"""StatefulSets at the API server: what is completed, what is refused, and what may change."""

import pytest

from apiserver_fake.registry.strategy import strategy_for
from services.api.printing import cells
from services.api.resources import resources

KIND = "statefulsets.apps"
MOUNTED = {"name": "c", "image": "i:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [MOUNTED]}}
CLAIMS = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                                                   "resources": {"requests": {"storage": "1Gi"}}}}]  # fmt: skip


def a_set(name="web", **spec):
    whole = {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE, "serviceName": "web",
             "volumeClaimTemplates": CLAIMS, **spec}  # fmt: skip
    return {"metadata": {"name": name}, "spec": {field: value for field, value in whole.items() if value is not None}}


def refused(causes):
    return [f"{cause.path}: {cause.message}" for cause in causes]


def test_a_set_is_completed(world):
    spec = world.create(KIND, a_set())["spec"]

    assert {name: spec[name] for name in ("replicas", "podManagementPolicy", "revisionHistoryLimit", "updateStrategy",
                                          "persistentVolumeClaimRetentionPolicy")} == {
        "replicas": 1, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    }  # fmt: skip
    claim = spec["volumeClaimTemplates"][0]
    assert (claim["kind"], claim["spec"]["volumeMode"], claim["status"]) == (
        "PersistentVolumeClaim", "Filesystem", {"phase": "Pending"})  # fmt: skip
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert world.create(KIND, a_set("b", updateStrategy={"type": "OnDelete"}))["spec"]["updateStrategy"] == {
        "type": "OnDelete"}  # fmt: skip


def test_max_unavailable_is_dropped_while_its_gate_is_off(world):
    asked = a_set(updateStrategy={"rollingUpdate": {"maxUnavailable": "50%"}})

    assert "maxUnavailable" not in world.create(KIND, asked)["spec"]["updateStrategy"]["rollingUpdate"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"podManagementPolicy": "Random"},
         "spec.podManagementPolicy: Invalid value: \"Random\": must be 'OrderedReady' or 'Parallel'"),
        ({"updateStrategy": {"type": "Now"}},
         "spec.updateStrategy: Invalid value: {\"Type\":\"Now\",\"RollingUpdate\":null}: must be 'RollingUpdate' or 'OnDelete'"),
        ({"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}},
         ("spec.updateStrategy.rollingUpdate: Invalid value: {\"Partition\":1,\"MaxUnavailable\":null}: only allowed for updateStrategy "
         "'RollingUpdate'")),
        ({"updateStrategy": {"rollingUpdate": {"partition": -1}}},
         "spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0"),
        ({"ordinals": {"start": -1}},
         "spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0"),
        ({"replicas": -1}, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        ({"selector": {}}, "spec.selector: Invalid value: {}: empty selector is invalid for statefulset"),
        ({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Keep"}},
         ('spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: "Keep": supported values: '
         '"Retain", "Delete"')),
        ({"template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "activeDeadlineSeconds": 5}}},
         "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in StatefulSet is not Supported"),
    ],
)  # fmt: skip
def test_a_set_that_breaks_a_rule_is_refused_with_that_rule(world, spec, said):
    causes, _ = world.try_create(KIND, a_set(**spec))

    assert refused(causes) == [said]


def test_a_name_that_cannot_be_a_host_name_is_refused(world):
    causes, _ = world.try_create(KIND, a_set("a.b"))

    assert [cause.path for cause in causes] == ["metadata.name"]


@pytest.mark.parametrize(("most", "said"), [(0, "cannot be 0"), ("0%", "cannot be 0"), ("101%", "greater than 100%")])
def test_how_many_may_be_unavailable_is_neither_none_nor_more_than_all(world, most, said):
    asked = a_set(updateStrategy={"rollingUpdate": {"maxUnavailable": most}})

    world.switch(MaxUnavailableStatefulSet=True)

    causes, _ = world.try_create(KIND, asked)

    assert said in causes[0].message


def test_of_the_spec_only_some_fields_may_change(world):
    stored = world.create(KIND, a_set())

    def changed(**spec):
        return refused(world.try_update(KIND, stored, {**stored, "spec": {**stored["spec"], **spec}})[0])

    text = (
        "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
        "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are "
        "forbidden"
    )
    lost = 'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "data"'
    assert changed(serviceName="other") == [text]
    assert changed(volumeClaimTemplates=[]) == [lost, text]
    assert changed(selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}) == [text]
    assert changed(replicas=3, minReadySeconds=5, ordinals={"start": 2}, revisionHistoryLimit=2) == []


def test_a_pod_that_could_not_be_is_refused_before_it_is_made(world):
    assert refused(world.try_create(KIND, a_set(volumeClaimTemplates=None))[0]) == [
        'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "data"'
    ]


def test_the_status_is_consistent_and_collisions_are_never_taken_back():
    old = {"status": {"collisionCount": 2}}
    new = {"status": {"replicas": 2, "readyReplicas": 1, "availableReplicas": 2, "updatedReplicas": 3}}

    assert refused(strategy_for(KIND).validate_status(old, new, None)) == [
        "status.updatedReplicas: Invalid value: 3: cannot be greater than status.replicas",
        "status.availableReplicas: Invalid value: 2: cannot be greater than status.readyReplicas",
        "status.collisionCount: Invalid value: 0: cannot be decremented",
    ]


@pytest.mark.parametrize(
    ("kind", "shown", "left_out"),
    [
        (KIND, ("replicas", "availableReplicas", "collisionCount"), ("readyReplicas", "updatedReplicas")),
        ("replicasets.apps", ("replicas", "terminatingReplicas"), ("readyReplicas", "fullyLabeledReplicas")),
        ("deployments.apps", ("terminatingReplicas",), ("replicas", "updatedReplicas", "unavailableReplicas")),
        ("daemonsets.apps", ("numberReady", "numberMisscheduled"), ("numberAvailable", "numberUnavailable")),
        ("jobs.batch", ("ready", "terminating"), ("active", "failed", "succeeded")),
    ],
)
def test_counters_of_zero_are_left_out_where_upstreams_types_leave_them_out(kind, shown, left_out):
    kept = dict.fromkeys(shown, 0)
    new = {"metadata": {}, "status": {**kept, **dict.fromkeys(left_out, 0)}}

    strategy_for(kind).prepare_status({"metadata": {}}, new, None)

    assert new["status"] == kept


def test_kubectl_shows_how_many_are_ready():
    document = {"metadata": {"name": "web"}, "spec": {"replicas": 3, "template": TEMPLATE},
                "status": {"readyReplicas": 1}}  # fmt: skip

    assert cells(resources()[KIND].columns, document, 0.0) == ["web", "1/3", "<unknown>", "c", "i:1"]


@pytest.mark.parametrize(
    ("asked", "stored"), [({}, 1), ({"maxUnavailable": 2}, 2), ({"maxUnavailable": "100%"}, "100%")]
)
def test_kep_961_one_pod_may_be_unavailable_unless_the_set_says_otherwise(world, asked, stored):
    world.switch(MaxUnavailableStatefulSet=True)

    made = world.create(KIND, a_set(updateStrategy={"type": "RollingUpdate", "rollingUpdate": asked}))

    assert made["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == stored


@pytest.mark.parametrize(("asked", "why"), [("101%", "must not be greater than 100%"), ("0%", "cannot be 0")])
def test_kep_961_a_share_of_unavailable_pods_is_more_than_none_and_at_most_all(world, asked, why):
    world.switch(MaxUnavailableStatefulSet=True)

    causes, _ = world.try_create(KIND, a_set(updateStrategy={"rollingUpdate": {"maxUnavailable": asked}}))

    assert refused(causes) == [f'spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "{asked}": {why}']
