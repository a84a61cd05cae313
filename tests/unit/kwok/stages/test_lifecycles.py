"""One object's life by stages: delays that begin anew, changes that come while a stage is played, tries again."""

import pytest

from services.kwok.stages.document import StageError, read_stages
from services.kwok.stages.lifecycle import Draws, Life, operations
from services.kwok.stages.template_functions import Context

TEXT = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: beat}
spec:
  resourceRef: {kind: Pod}
  selector: {matchExpressions: [{key: .status.over, operator: DoesNotExist}]}
  delay: {durationMilliseconds: DELAY}
  next: {statusTemplate: "a: b"}
  immediateNextStage: IMMEDIATE
"""


def life(delay_ms=5000, immediate="false"):
    text = TEXT.replace("DELAY", str(delay_ms)).replace("IMMEDIATE", immediate)
    return Life(read_stages([("s.yaml", text)]), Draws(1, "p"))


def at(rv, **status):
    return {"metadata": {"resourceVersion": str(rv)}, "status": status}


def test_a_change_begins_the_delay_anew_and_the_same_version_does_not():
    one = life()

    assert one.observe(at(1), 0.0, 0.0) == 5.0
    assert one.observe(at(1), 3.0, 3.0) is None
    assert one.observe(at(2), 4.0, 4.0) == 9.0
    assert one.due(5.0) is None
    assert one.due(9.0).document == at(2)


def test_an_object_that_matches_nothing_any_more_is_left_alone():
    one = life()
    one.observe(at(1), 0.0, 0.0)

    assert one.observe(at(2, over="yes"), 1.0, 1.0) is None
    assert one.due(60.0) is None


def test_changes_wait_while_a_stage_is_played_and_the_newest_counts():
    one = life()
    one.observe(at(1), 0.0, 0.0)
    one.due(5.0)

    assert one.observe(at(2), 5.1, 5.1) is None
    assert one.observe(at(3), 5.2, 5.2) is None
    assert one.due(20.0) is None
    assert one.on_played(6.0, 6.0) == 11.0
    assert one.due(11.0).document == at(3)


def test_what_was_lost_is_tried_again_ever_later():
    one = life(0)
    now, waits = 0.0, []
    one.observe(at(1), now, now)

    for _ in range(7):
        assert one.due(now) is not None
        due_s = one.on_played(now, now, is_lost=True)
        waits.append(due_s - now)
        now = due_s

    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0]
    one.due(now)
    assert one.on_played(now, now) is None


def test_an_immediate_stage_that_changed_nothing_is_played_again_but_never_without_a_delay():
    slow, fast = life(5000, "true"), life(0, "true")
    for each in (slow, fast):
        each.observe(at(1), 0.0, 0.0)

    assert slow.due(5.0) is not None
    assert slow.on_played(5.0, 5.0) == 10.0
    assert fast.due(0.0) is not None
    assert fast.on_played(0.0, 0.0) is None
    assert fast.due(100.0) is None


def test_a_patch_of_what_no_kubelet_hosts_is_a_merge_patch_unless_it_says_otherwise():
    stage = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {{name: s}}
spec:
  resourceRef: {{apiGroup: {group}, kind: {kind}}}
  selector: {{}}
  next: {{patches: [{{template: 'a: 1', subresource: {subresource}}}]}}
"""

    def operation(group, kind, subresource="status"):
        text = stage.format(group=group, kind=kind, subresource=subresource)
        (read,) = read_stages([("f.yaml", text)])
        return operations(read, {}, Context("2026-01-01T00:00:00Z"))[0]

    assert operation("v1", "Pod").type == "strategic"
    assert operation("apps/v1", "Deployment").type == operation("example.com/v1", "Pod").type == "merge"
    assert operation("apps/v1", "Deployment", "scale").subresource == "scale"
    with pytest.raises(StageError, match=r"spec.next.patches\[0\].subresource: 'scale' is not supported"):
        operation("v1", "Pod", "scale")


def test_an_object_goes_on_with_the_stages_there_are_now():
    def stages(*names):
        text = TEXT.replace("DELAY", "5000").replace("IMMEDIATE", "false")
        return read_stages([("f.yaml", "\n---\n".join(text.replace("beat", name) for name in names))])

    life = Life(stages("one"), Draws(0, "x"))
    document = {"metadata": {"name": "x", "resourceVersion": "1"}}
    assert life.observe(document, 0.0, 0.0) == 5.0
    assert life.replace(stages("two"), 3.0, 3.0) == 8.0  # with the whole delay
    assert life.due(5.0) is None
    assert life.due(8.0).stage.name == "two"
    assert life.replace((), 8.5, 8.5) is None  # what is being played is played to its end
    assert life.on_played(9.0, 9.0, is_lost=True) is None
    assert life.due(100.0) is None
    assert life.replace(stages("three"), 10.0, 10.0) == 15.0
    assert life.due(15.0).stage.name == "three"
