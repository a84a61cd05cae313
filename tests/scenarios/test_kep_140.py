"""Scenarios as kube-scheduler-simulator's KEP-140 writes them, run in virtual time (simulator, acceptance scenario 30)."""

import json

import pytest
from click.testing import CliRunner

from lab.cli.commands.run import run as keplab_run
from lab.scenarios.run import load_scenario, simulate
from lab.scenarios.script.scenario import ScriptError
from lab.scenarios.timeline import status_of

HEAD = {
    "apiVersion": "simulation.kube-scheduler-simulator.sigs.k8s.io/v1alpha1",
    "kind": "Scenario",
    "metadata": {"name": "s"},
}


def node(name="n1", cpu="4"):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}},
    }


def pod_spec(cpu="1", **more):
    return {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}], **more}


def pod(name, cpu="1", **more):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec(cpu, **more)}


def replica_set(replicas=3):
    labels = {"app": "web"}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec()},
        },
    }


def create(step, what, name=""):
    return {"id": name or what["metadata"]["name"], "step": step, "createOperation": {"object": what}}


def about(kind, name, version="v1"):
    return {"typeMeta": {"apiVersion": version, "kind": kind}, "objectMeta": {"name": name, "namespace": "default"}}


DONE = {"id": "end", "step": 9, "doneOperation": {}}


def write(tmp_path, *operations, **spec):
    file = tmp_path / "s.yaml"
    text = ["apiVersion: " + HEAD["apiVersion"], "kind: Scenario", "metadata: {name: s}"]
    text.append("spec: " + json.dumps({"operations": list(operations), **spec}))
    file.write_text("\n".join(text) + "\n")
    return file


def run(tmp_path, *operations):
    scenario = load_scenario(write(tmp_path, *operations))
    return status_of(scenario.operations, simulate(scenario, seed=1))


def timeline_of(status, major):
    """What the timeline has of a step: (minor, what, about which pod or with which id)."""
    entries = status["scenarioResult"]["timeline"][str(major)]
    found = []
    for each in entries:
        what = next(key for key in each if key not in ("id", "step"))
        assert each["step"]["major"] == major
        found.append((each["step"]["minor"], what, each[what].get("pod") or each["id"]))
    return found


def test_ks_30_a_step_begins_when_the_one_before_it_is_over_and_the_timeline_has_what_was_scheduled(tmp_path):
    more = {
        "id": "more",
        "step": 2,
        "patchOperation": {**about("ReplicaSet", "web", "apps/v1"), "patch": '{"spec": {"replicas": 4}}'},
    }
    status = run(tmp_path, create(1, node()), create(1, replica_set()), create(2, pod("late")), more, DONE)

    first, second = timeline_of(status, 1), timeline_of(status, 2)
    assert (status["phase"], status["stepStatus"]["step"]["major"]) == ("Succeeded", 9)
    assert first[:2] == [(0, "create", "n1"), (0, "create", "web")]
    assert [each[:2] for each in first[2:]] == [(n, "podScheduled") for n in (1, 2, 3)], "the set was full"
    assert second == [(0, "create", "late"), (0, "patch", "more"), (1, "podScheduled", "late")]
    assert timeline_of(status, 9) == [(0, "done", "end")]


def test_without_a_done_operation_the_scenario_is_paused_and_the_command_fails(tmp_path):
    file = write(tmp_path, create(1, node()), create(1, pod("a")))

    result = CliRunner().invoke(keplab_run, [str(file), "--runs", "none", "-o", "json"])

    assert (result.exit_code, json.loads(result.stdout)[0]["status"]["phase"]) == (1, "Paused")
    finished = CliRunner().invoke(keplab_run, [str(write(tmp_path, create(1, pod("a")), DONE)), "--runs", "none"])
    assert (finished.exit_code, "phase Succeeded" in finished.stdout) == (0, True)


def test_a_preempted_pod_is_a_deletion_of_the_scheduler_and_a_deleted_one_the_scenarios(tmp_path):
    classes = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in (("low", 1), ("high", 9))
    ]
    gone = {"id": "gone", "step": 3, "deleteOperation": about("Pod", "other")}
    status = run(
        tmp_path,
        create(0, node(cpu="2")),
        *(create(0, each) for each in classes),
        create(1, pod("victim", priorityClassName="low")),
        create(1, pod("other", priorityClassName="high")),
        create(2, pod("urgent", priorityClassName="high")),
        gone,
        DONE,
    )

    second = timeline_of(status, 2)
    assert (1, "delete", "victim") in second
    assert (2, "podScheduled", "urgent") in second
    assert timeline_of(status, 3) == [(0, "delete", "gone")]


def test_an_operation_that_is_refused_fails_the_scenario(tmp_path):
    status = run(tmp_path, create(1, pod("a")), create(1, pod("a"), "again"), DONE)

    assert status["phase"] == "Failed"
    assert "already exists" in status["message"]


@pytest.mark.parametrize(
    ("operations", "text"),
    [
        ([{"step": 1}], "spec.operations[0]: it says nothing: want exactly one of createOperation"),
        ([{"step": 1, "doneOperation": {}, "createOperation": {}}], "it says createOperation and doneOperation"),
        ([{"step": -1, "doneOperation": {}}], "spec.operations[0].step -1: want a number from 0 on"),
        ([{"step": 1, "waitOperation": {}}], "spec.operations[0].waitOperation: want id, step and one of"),
        ([create(1, {**pod("a"), "kind": "Pot"}, "a")], "createOperation.object: no kind v1 Pot is served"),
        (
            [{"step": 1, "deleteOperation": {"typeMeta": {"apiVersion": "v1", "kind": "Pod"}}}],
            "want metadata with a name",
        ),
        ([{"step": 1, "patchOperation": {**about("Pod", "a"), "patch": "{"}}], "patchOperation.patch: no JSON"),
        (
            [{"step": 1, "patchOperation": {**about("Pod", "a"), "patch": "{}", "patchType": "x"}}],
            "patchType 'x': want one of",
        ),
        ([], "spec.operations: want a list of operations"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_operation_and_field(tmp_path, operations, text):
    with pytest.raises(ScriptError) as refused:
        load_scenario(write(tmp_path, *operations))

    assert text in str(refused.value)


def test_controllers_that_a_simulated_mesh_cannot_leave_out_are_named(tmp_path):
    scenario = write(tmp_path, DONE, controllers={"simulationControllers": {"disabled": [{"name": "replicaset"}]}})

    with pytest.raises(ScriptError, match=r"simulationControllers\.disabled: 'replicaset'"):
        load_scenario(scenario)
    every = {"presimulationControllers": {"disabled": [{"name": "*"}], "enabled": [{"name": "replicaset"}]}}
    assert load_scenario(write(tmp_path, DONE, controllers=every)).operations


@pytest.mark.parametrize(
    ("controllers", "text"),
    [
        ([1], "spec.controllers [1]: want an object"),
        ({"simulationControllers": 5}, "spec.controllers.simulationControllers 5: want lists enabled and disabled"),
        (
            {"presimulationControllers": {"disabled": 5}},
            "spec.controllers.presimulationControllers {'disabled': 5}: want",
        ),
    ],
)
def test_controllers_are_lists_of_names(tmp_path, controllers, text):
    with pytest.raises(ScriptError) as refused:
        load_scenario(write(tmp_path, DONE, controllers=controllers))

    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "apiVersion: v1alpha1\nkind: Scenario # mine\nspec: {}\n",
            f"apiVersion 'v1alpha1': a Scenario of KEP-140 has {HEAD['apiVersion']}",
        ),
        ("# web\napiVersion: v1\nkind: Pod\n", "an object and no scenario; `apply FILE` in a scenario creates it"),
        ('{"kind": "Pod"}', "an object and no scenario"),
    ],
)
def test_an_object_that_is_no_scenario_is_called_so(tmp_path, text, says):
    (tmp_path / "s.yaml").write_text(text)

    with pytest.raises(ScriptError, match=r"s\.yaml: a") as error:
        load_scenario(tmp_path / "s.yaml")
    assert says in str(error.value)
