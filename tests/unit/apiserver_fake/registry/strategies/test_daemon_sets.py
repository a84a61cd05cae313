"""DaemonSets at the API server: what is completed, counted and shown, what is refused, what may change."""

import pytest

from apiserver_fake.registry.strategy import strategy_for
from apiserver_fake.rest import tables
from services.api.resources import resources

NUMBER = "deprecated.daemonset.template.generation"
NAME = "daemonsets.apps"


def a_daemon_set(name="agent", image="i:1", pod=(), **spec):
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": image}], **dict(pod)},
            },
            **spec,
        },
    }


def rolling(**numbers):
    return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": numbers}}


def test_a_daemon_set_is_completed_and_its_first_template_has_number_one(world):
    made = world.create(NAME, a_daemon_set())

    assert made["spec"]["updateStrategy"] == {
        "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}  # fmt: skip
    assert made["spec"]["revisionHistoryLimit"] == 10
    assert made["spec"]["template"]["spec"]["restartPolicy"] == "Always"
    assert made["metadata"]["annotations"] == {NUMBER: "1"}
    on_delete = world.create(NAME, a_daemon_set("other", updateStrategy={"type": "OnDelete"}))
    assert on_delete["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_only_a_change_of_the_template_counts_and_no_client_may_say_otherwise(world):
    made = world.create(NAME, a_daemon_set())
    causes, slower = world.try_update(NAME, made, {**made, "spec": {**made["spec"], "minReadySeconds": 5}})
    changed = {**a_daemon_set(image="i:2"), "metadata": {**made["metadata"], "annotations": {NUMBER: "77", "a": "b"}}}
    more, updated = world.try_update(NAME, made, changed)

    assert causes == more == []
    assert slower["metadata"]["annotations"][NUMBER] == "1"
    assert updated["metadata"]["annotations"] == {NUMBER: "2", "a": "b"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (rolling(maxUnavailable=0), "rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"),
        (rolling(maxSurge=1), "rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-z"),
        (rolling(maxUnavailable="150%"), 'maxUnavailable: Invalid value: "150%": must not be greater than 100%'),
        (rolling(maxUnavailable="0%", maxSurge="some"), 'maxSurge: Invalid value: "some": a valid percent string'),
        (rolling(maxUnavailable=-1), "maxUnavailable: Invalid value: -1: must be greater than or equal to 0"),
        ({"updateStrategy": {"type": "Recreate"}}, 'spec.updateStrategy: Unsupported value: {"Type":"Recreate","RollingUpdate":null}'),
        ({"selector": {}}, "spec.selector: Invalid value: {}: empty selector is invalid for daemonset"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "`selector` does not match template `labels`"),
        ({"revisionHistoryLimit": -1}, "spec.revisionHistoryLimit: Invalid value: -1"),
        ({"pod": {"restartPolicy": "Never"}}, 'spec.template.spec.restartPolicy: Unsupported value: "Never"'),
        ({"pod": {"activeDeadlineSeconds": 5}}, "Forbidden: activeDeadlineSeconds in DaemonSet is not Supported"),
    ],
)  # fmt: skip
def test_what_a_daemon_set_may_not_say_is_refused_by_its_field(world, spec, said):
    causes, _ = world.try_create(NAME, a_daemon_set(**spec))

    assert any(said in f"{cause.path}: {cause.message}" for cause in causes), causes


def test_the_selector_stays_and_counters_are_not_negative(world):
    made = world.create(NAME, a_daemon_set())
    selector = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    causes, _ = world.try_update(NAME, made, {**made, "spec": {**made["spec"], "selector": selector}})
    assert [cause.path for cause in causes] == ["spec.selector"]

    check = strategy_for(NAME).validate_status
    causes = check({"status": {"collisionCount": 2}}, {"status": {"collisionCount": 1}}, None)
    assert [cause.message for cause in causes] == ["Invalid value: 1: cannot be decremented"]
    assert check({}, {"status": {"numberReady": -1}}, None)[0].path == "status.numberReady"


def test_kubectl_shows_nodes_by_what_their_pod_does():
    status = {"desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3, "updatedNumberScheduled": 2,
              "numberAvailable": 1}  # fmt: skip
    document = a_daemon_set(pod={"nodeSelector": {"b": "2", "a": "1"}}) | {"status": status}
    cells = tables.table(resources()[NAME], [document], {}, 0.0)["rows"][0]["cells"]

    assert cells[:7] == ["agent", 5, 4, 3, 2, 1, "a=1,b=2"]
    assert cells[8:] == ["c", "i:1", "app=agent"]
