"""Stage files: both published forms are read, and every error names file, stage and path."""

from pathlib import Path

import msgspec
import pytest

from services.kwok.stages.document import StageError, read_stages
from services.kwok.stages.lifecycle import Draws, choose, delay_s, finalizer_changes, operations, weight
from services.kwok.stages.operation import StageDelete, StageEvent, StagePatch
from services.kwok.stages.stage import Finalizers
from services.kwok.stages.template_functions import Context
from services.kwok.stages.templates import TemplateError

STAGES = Path(__file__).parents[4] / "experiments" / "stages"
CONTEXT = Context("2026-01-01T00:00:00Z", node_name="n1", node_ip="10.0.0.1", pod_ip="10.64.0.2")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
    "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "busybox"}]},
    "status": {"phase": "Pending"},
}
HEAD = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: s}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
"""


def read(*specs):
    """Read stages whose specs go on after the resourceRef; they are called s0, s1 and so on."""
    texts = [HEAD.replace("name: s}", f"name: s{i}}}") + text for i, text in enumerate(specs)]
    return read_stages([("stages.yaml", "\n---\n".join(texts))])


def one(text):
    return read(text)[0]


def shipped(*names):
    return read_stages([(name, (STAGES / name).read_text()) for name in names])


def test_the_stages_shipped_are_read_in_the_order_of_their_file():
    assert [(s.name, s.kind) for s in shipped("pod-fast.yaml", "node-heartbeat.yaml")] == [
        ("pod-ready", "Pod"), ("pod-complete", "Pod"), ("pod-delete", "Pod"),
        ("node-initialize", "Node"), ("node-heartbeat", "Node"),
    ]  # fmt: skip


def test_a_new_pod_becomes_running_by_the_fast_stages():
    stages = shipped("pod-fast.yaml")

    stage = choose(stages, POD, Draws(1, "p"))
    (change,) = operations(stage, POD, CONTEXT)

    assert (stage.name, change.type, change.subresource) == ("pod-ready", "strategic", "status")
    status = change.body["status"]
    assert (status["phase"], status["podIP"], status["hostIP"]) == ("Running", "10.64.0.2", "10.0.0.1")
    assert {c["type"]: c["status"] for c in status["conditions"]} == dict.fromkeys(
        ("Initialized", "ContainersReady", "Ready"), "True"
    )
    assert status["containerStatuses"][0]["state"] == {"running": {"startedAt": CONTEXT.now}}
    assert "initContainerStatuses" not in status


def test_a_running_pod_of_a_job_succeeds_and_any_other_goes_on():
    stages = shipped("pod-fast.yaml")
    running = POD | {"status": {"phase": "Running", "podIP": "1.2.3.4",
                                "containerStatuses": [{"state": {"running": {"startedAt": "x"}}}]}}  # fmt: skip
    of_job = running | {"metadata": {**POD["metadata"], "ownerReferences": [{"kind": "Job"}]}}

    assert choose(stages, running, Draws(1, "p")) is None
    stage = choose(stages, of_job, Draws(1, "p"))
    (change,) = operations(stage, of_job, CONTEXT)

    assert change.body["status"]["phase"] == "Succeeded"
    assert change.body["status"]["containerStatuses"][0]["state"]["terminated"]["startedAt"] == "x"


def test_a_deleted_pod_loses_its_finalizers_and_then_itself():
    deleted = POD | {"metadata": {**POD["metadata"], "deletionTimestamp": "2026", "finalizers": ["a/b"]}}

    stage = choose(shipped("pod-fast.yaml"), deleted, Draws(1, "p"))

    assert operations(stage, deleted, CONTEXT) == [
        StagePatch("json", "", [{"op": "remove", "path": "/metadata/finalizers"}]),
        StageDelete(),
    ]


def test_a_node_is_made_ready_and_then_beats_within_the_jitter():
    stages = shipped("node-heartbeat.yaml")
    node = {"metadata": {"name": "n1"}, "status": {}}
    luck = Draws(1, "n1")

    first = choose(stages, node, luck)
    status = operations(first, node, CONTEXT)[0].body["status"]
    second = choose(stages, {"metadata": {}, "status": status}, luck)

    assert (first.name, second.name, second.is_immediate) == ("node-initialize", "node-heartbeat", True)
    assert status["conditions"][0]["type"] == "Ready"
    assert all(20.0 <= delay_s(second, node, 0.0, luck) < 25.0 for _ in range(50))


def test_the_newer_form_with_steps_and_jq_means_the_same():
    stage = one(
        """\
  selector:
    matchLabels: {app: web}
    matchAnnotations: {mine: "yes"}
    matchExpressions:
    - jq: {key: .metadata.finalizers, operator: DoesNotExist}
  weight: 2
  weightFrom: {jq: {expression: '.metadata.annotations["w"]'}}
  delay:
    durationMilliseconds: 1000
    durationFrom: {jq: {expression: '.metadata.annotations["d"]'}}
    jitterDurationFrom: {jq: {expression: .metadata.deletionTimestamp}}
  steps:
  - event: {type: Normal, reason: Killing, message: 'Stopping {{ (index .spec.containers 0).name }}'}
  - patch: {root: status, subresource: status, type: merge, template: 'phase: Failed'}
  - patch: {root: metadata, type: json, template: '[{op: add, path: /labels, value: {}}]'}
  - delete: true
  - event: {reason: Gone, message: bye}
"""
    )
    pod = POD | {
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"mine": "yes", "w": "7", "d": "2m"}}
    }

    assert stage.selector.matches(pod)
    assert not stage.selector.matches(POD)
    assert (weight(stage, pod), weight(stage, POD)) == (7, 2)
    assert (delay_s(stage, pod, 0.0, Draws(1, "")), delay_s(stage, POD, 0.0, Draws(1, ""))) == (120.0, 1.0)
    assert operations(stage, pod, CONTEXT) == [
        StageEvent("Normal", "Killing", "Stopping main"),
        StagePatch("merge", "status", {"status": {"phase": "Failed"}}),
        StagePatch("json", "", [{"op": "add", "path": "/metadata/labels", "value": {}}]),
        StageDelete(),
        StageEvent("Normal", "Gone", "bye"),
    ]


def test_a_jitter_is_the_latest_moment_and_one_below_the_delay_replaces_it():
    spread = one(
        "  selector: {}\n  delay: {durationMilliseconds: 1000, jitterDurationMilliseconds: 5000}\n  next: {}\n"
    )
    less = one("  selector: {}\n  delay: {durationMilliseconds: 5000, jitterDurationMilliseconds: 1000}\n  next: {}\n")
    until = one("  selector: {}\n  delay: {durationFrom: {expressionFrom: .metadata.at}}\n  next: {}\n")

    found = [delay_s(spread, POD, 0.0, luck) for luck in [Draws(1, "p")] for _ in range(200)]
    assert 1.0 <= min(found) < 1.2
    assert 4.8 < max(found) < 5.0
    assert delay_s(less, POD, 0.0, Draws(1, "p")) == 1.0
    assert delay_s(until, {"metadata": {"at": "1970-01-01T00:00:30Z"}}, 10.0, Draws(1, "p")) == 20.0
    assert delay_s(until, {"metadata": {"at": "1970-01-01T00:00:30Z"}}, 99.0, Draws(1, "p")) == 0.0
    assert delay_s(until, {"metadata": {"at": ""}}, 99.0, Draws(1, "p")) == 0.0


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [("1m30s", 90.0), ("1.5h", 5400.0), ("250ms", 0.25), ("-2s", 0.0), ("0", 0.0), ("5", 7.0), ("1 s", 7.0)],
)
def test_go_durations_are_read_and_what_is_none_leaves_the_plain_number(text, wait_s):
    stage = one(
        "  selector: {}\n  next: {}\n  delay: {durationMilliseconds: 7000, durationFrom: {expressionFrom: .at}}\n"
    )

    assert delay_s(stage, {"at": text}, 0.0, Draws(1, "p")) == wait_s


def test_weights_decide_by_the_luck_of_the_object_alone():
    stages = read(*(f"  selector: {{}}\n  weight: {w}\n  next: {{}}\n" for w in (1, 3, 0)))

    names = [choose(stages, POD, luck).name for luck in [Draws(7, "Pod/default/web")] for _ in range(400)]
    again = [choose(stages, POD, luck).name for luck in [Draws(7, "Pod/default/web")] for _ in range(400)]

    assert names == again
    assert 70 < names.count("s0") < 130
    assert names.count("s2") == 0
    assert names != [choose(stages, POD, luck).name for luck in [Draws(7, "Pod/default/db")] for _ in range(400)]


def test_stages_of_weight_nothing_are_alike_and_one_without_weight_comes_last():
    alike = read(*(["  selector: {}\n  next: {}\n"] * 2))
    none = read(
        "  selector: {}\n  weightFrom: {expressionFrom: .metadata.name}\n  next: {}\n", "  selector: {}\n  next: {}\n"
    )

    assert {choose(alike, POD, luck).name for luck in [Draws(1, "p")] for _ in range(50)} == {"s0", "s1"}
    assert {choose(none, POD, luck).name for luck in [Draws(1, "p")] for _ in range(50)} == {"s1"}


def test_a_stage_chooses_by_what_lasts_and_matches_by_what_is():
    stage = one(
        """\
  selector:
    matchExpressions:
    - {key: .metadata.labels.staged, operator: In, values: ["true"]}
    - {key: .status.podIP, operator: DoesNotExist}
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
  next: {}
"""
    )
    chosen = {"metadata": {"labels": {"staged": "true"}, "deletionTimestamp": "x"}, "status": {"podIP": "1"}}

    assert stage.selector.chooses(chosen)
    assert not stage.selector.matches(chosen)
    assert not stage.selector.chooses(POD)


def test_a_stage_without_a_selector_is_for_nothing():
    assert read("  next: {}\n", "  selector: {}\n  next: {}\n")[0].name == "s1"


def test_finalizers_are_emptied_removed_and_added_in_that_order():
    def changes(held, **wanted):
        return [(c["op"], c.get("value")) for c in finalizer_changes(held, msgspec.convert(wanted, Finalizers))]

    assert changes(["a"], empty=True) == [("remove", None)]
    assert changes([], empty=True) == []
    assert changes(["a", "b"], remove=[{"value": "a"}]) == [("test", ["a", "b"]), ("replace", ["b"])]
    assert changes([], add=[{"value": "a"}, {"value": "a"}]) == [("add", ["a"])]
    assert changes(["a"], empty=True, add=[{"value": "c"}]) == [("test", ["a"]), ("replace", ["c"])]
    assert changes(["a"], add=[{"value": "a"}]) == []


def test_both_forms_of_impersonation_are_of_the_patch_alone():
    (stage,) = read_stages(
        [
            (
                "s.yaml",
                HEAD.replace("v1, kind: Pod", "apps/v1, kind: Deployment")
                + (
                    "  selector: {}\n  next:\n    finalizers: {add: [{value: a}]}\n    statusTemplate: 'a: b'\n"
                    "    statusPatchAs: {username: ann}\n    patches:\n    - {template: 'c: d', impersonation: {username: bob}}\n"
                    "    - {template: 'e: f'}\n"
                ),
            )
        ]
    )

    assert [each.as_user for each in operations(stage, POD, CONTEXT)] == ["", "ann", "bob", ""]


def test_a_template_that_fails_says_of_which_stage():
    stage = one("  selector: {}\n  next: {statusTemplate: '{{ .none.x }}'}\n")

    with pytest.raises(TemplateError, match=r"stage s0: line 1: nil has no field \.x"):
        operations(stage, POD, CONTEXT)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("  next: {colour: red}\n", "spec.next: Object contains unknown field `colour`"),
        ("  next: {delete: 3}\n", "spec.next.delete: Expected `bool`, got `int`"),
        ("  selector: {}\n", "spec: want either next or steps"),
        ("  next: {}\n  weight: -1\n", "spec.weight: -1, want 0 or more"),
        ("  next: {}\n  delay: {durationMilliseconds: -5}\n", "spec.delay.durationMilliseconds: -5"),
        ("  next: {event: {type: Odd, reason: R}}\n", "spec.next.event.type: Invalid enum value 'Odd', want one of Normal, W"),
        ("  next: {patches: [{type: x, template: 'a: b'}]}\n", "Invalid enum value 'x', want one of json, merge, strategic"),
        ("  next: {}\n  weightFrom: {expressionFrom: .a, jq: {expression: .b}}\n",
         "spec.weightFrom: want one of expressionFrom, jq and cel"),
        ("  next: {}\n  delay: {durationFrom: {}}\n", "spec.delay.durationFrom: want expressionFrom, jq or cel"),
        ("  next: {}\n  weightFrom: {expressionFrom: '.a = 1'}\n", "spec.weightFrom.expressionFrom: '.a = 1': unexpected"),
        ("  next: {}\n  selector: {matchExpressions: [{key: .a, operator: Is}]}\n",
         "spec.selector.matchExpressions[0].operator: 'Is', want one of In, NotIn"),
        ("  next: {}\n  selector: {matchExpressions: [{key: .a, operator: In}]}\n", "[0].values: In wants at least one"),
        ("  next: {}\n  selector: {matchExpressions: [{key: .a, operator: Exists, values: [b]}]}\n", "Exists wants none"),
        ("  next: {}\n  selector: {matchExpressions: [{cel: {expression: 'self.('}}]}\n", "[0].cel.expression: ERROR: "),
        ("  next: {statusTemplate: '{{ nope }}'}\n", "spec.next.statusTemplate: line 1: function 'nope' is not supported"),
        ("  next: {statusSubresource: scale, statusTemplate: 'a: b'}\n", "spec.next.statusSubresource: 'scale'"),
        ("  next: {statusPatchAs: {username: x}}\n", "spec.next.statusPatchAs: of a Pod it is not supported"),
        ("  next: {statusTemplate: 'a: b', statusSubresource: status, patches: [{subresource: scale, template: 'a: b'}]}\n",
         "spec.next.patches[0].subresource: 'scale' is not supported"),
        ("  next: {statusTemplate: 'a: b', statusSubresource: status, patches: [{impersonation: {username: x}, template: 'a: b'}]}\n",
         "spec.next.patches[0].impersonation: of a Pod it is not supported"),
        ("  steps: [{patch: {impersonation: {username: x}, template: 'a: b'}}]\n", "spec.steps[0].patch.impersonation: of a Pod"),
        ("  steps: [{patch: {template: ''}}]\n", "spec.steps[0].patch.template: want a template"),
        ("  steps: [{event: {message: hi}}]\n", "spec.steps[0].event.reason: an event wants a reason"),
    ],
)  # fmt: skip
def test_a_wrong_stage_is_an_error_with_file_name_and_path(spec, said):
    with pytest.raises(StageError) as reported:
        one(spec)
    assert str(reported.value).startswith("stages.yaml: stage s0: spec")
    assert said in str(reported.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f.yaml: there is no stage in it"),
        ("- 1", "f.yaml: document 1: want a Stage, found list"),
        ("---\n{apiVersion: v1, kind: Pod}", "f.yaml: document 1: want kwok.x-k8s.io/v1alpha1 Stage, found v1 Pod"),
        ("a: [", "f.yaml: line "),
        (f"{HEAD}  next: {{delete: true}}\n  next: {{}}\n", ": key 'next' is given twice"),
        (HEAD.replace("{name: s}", "{}"), "f.yaml: document 1: metadata.name: a stage wants a name"),
        (
            HEAD.replace("kind: Pod", "kind: Job"),
            "f.yaml: stage s: spec.resourceRef: v1 Job is no kind; batch/v1 Job is",
        ),
        (f"{HEAD}  next: {{}}\n---\n{HEAD}  next: {{}}\n", "f.yaml: stage s: is in f.yaml already"),
    ],
)
def test_a_file_that_is_no_stage_file_is_an_error(text, said):
    if "Job" in text:
        text += "  next: {}\n"
    with pytest.raises(StageError) as reported:
        read_stages([("f.yaml", text)])
    assert said in str(reported.value)


def test_delays_and_weights_may_be_cel_with_kwoks_functions():
    stage = one(
        """\
  selector: {matchExpressions: [{cel: {expression: 'self.SinceSecond() > 30.0 && Quantity("1Ki") > Quantity("1k")'}}]}
  weightFrom: {cel: {expression: 'size(self.metadata.name) * 2'}}
  delay:
    durationFrom: {cel: {expression: 'duration("1m30s")'}}
    jitterDurationFrom: {cel: {expression: 'Now() + duration("2m")'}}
  next: {}
"""
    )
    pod = {"metadata": {"name": "web", "creationTimestamp": "1970-01-01T00:00:00Z"}}

    assert [stage.selector.matches(pod, wall_s) for wall_s in (30.0, 31.0)] == [False, True]
    assert weight(stage, pod, 31.0) == 6
    assert 90.0 <= delay_s(stage, pod, 1000.0, Draws(1, "p")) <= 120.0
    assert delay_s(stage, pod, 1000.0, lambda: 0.999) > 119.9


def test_what_cel_cannot_evaluate_gives_nothing():
    stage = one(
        """\
  selector: {}
  weight: 3
  weightFrom: {cel: {expression: self.metadata.annotations.w}}
  delay: {durationMilliseconds: 4000, durationFrom: {cel: {expression: 'self.metadata.annotations["d"]'}}}
  next: {}
"""
    )

    assert (weight(stage, POD), delay_s(stage, POD, 0.0, Draws(1, "p"))) == (3, 4.0)
    said = POD | {"metadata": {"name": "web", "annotations": {"w": "5", "d": "1s"}}}
    assert (weight(stage, said), delay_s(stage, said, 0.0, Draws(1, "p"))) == (5, 1.0)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("  next: {}\n  weightFrom: {cel: {expression: 'self.('}}\n", "spec.weightFrom.cel.expression: ERROR: "),
        (
            "  next: {}\n  delay: {durationFrom: {cel: {expression: F()}}}\n",
            "durationFrom.cel.expression: ERROR: <input>",
        ),
        (
            "  next: {}\n  weightFrom: {cel: {expression: '1'}, jq: {expression: .a}}\n",
            "want one of expressionFrom, jq",
        ),
    ],
)
def test_cel_that_cannot_be_read_is_an_error_with_its_path(spec, said):
    with pytest.raises(StageError) as reported:
        one(spec)
    assert said in str(reported.value)
