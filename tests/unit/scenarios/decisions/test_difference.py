"""Where two runs decided differently: aligned by role and actor, times left out unless they are asked for."""

from hypothesis import given
from hypothesis import strategies as st

from lab.scenarios.decisions.decision import Decision
from lab.scenarios.decisions.difference import ALIGNED_MAX, compare, in_order


def attempt(role, node="", at_s=1.0, outcome="scheduled"):
    return Decision(at_s, role, "sched.attempt", outcome, node)


def rejected(role, at_s=1.0, node="n1"):
    return Decision(at_s, role, "kubelet.reject", "OutOfcpu", node)


def shown(found):
    return [(d.role, d.first and d.first.what[1:], d.second and d.second.what[1:]) for d in found.differences]


def test_equal_runs_have_no_difference():
    run = [attempt("a", "n1"), rejected("a"), attempt("b", "n2")]

    found = compare(run, list(run))

    assert (found.counts, found.same, found.differences, found.reordered) == ((3, 3), 3, [], None)
    assert found.last_same == run[-1]


def test_another_node_is_a_difference_and_the_earliest_comes_first():
    first = [attempt("a", "n1", 1.0), attempt("b", "n1", 2.0), attempt("c", "n1", 3.0)]
    second = [attempt("a", "n1", 1.0), attempt("b", "n1", 2.5), attempt("c", "n2", 3.5)]
    second.insert(1, attempt("d", "n2", 1.5))

    found = compare(first, second)

    assert shown(found) == [("d", None, ("scheduled", "n2")), ("c", ("scheduled", "n1"), ("scheduled", "n2"))]
    assert found.differences[0].at_s == 1.5
    assert found.last_same == first[0]
    assert (found.counts, found.same) == ((3, 4), 2)


def test_times_count_only_when_they_are_asked_for():
    first, second = [attempt("a", "n1", 1.0)], [attempt("a", "n1", 1.25)]

    assert compare(first, second).differences == []
    assert shown(compare(first, second, with_times=True)) == [("a", ("scheduled", "n1"), ("scheduled", "n1"))]


def test_less_than_a_microsecond_is_the_same_time():
    assert compare([attempt("a", "n1", 1.0)], [attempt("a", "n1", 1.0 + 1e-9)], with_times=True).differences == []


def test_a_pod_that_its_kubelet_failed_stands_beside_its_unbinding_in_the_other_run():
    failed = Decision(1.2, "a", "phase", "Failed", "n1", component="system:node:n1")
    unbound = Decision(1.4, "a", "kubelet.unbind_call", "OutOfcpu", "n1")

    found = compare([rejected("a"), failed], [rejected("a"), unbound])

    assert [(each.first, each.second) for each in found.differences] == [(failed, unbound)]


def test_who_logs_first_of_two_actors_is_no_difference():
    bound = Decision(1.0, "a", "sched.bind_result", "ok", "n1")

    assert compare([bound, rejected("a")], [rejected("a"), bound]).differences == []


def test_what_one_run_decides_in_between_does_not_make_what_follows_differ():
    tries = [attempt("a", at_s=1.0 + i, outcome="unschedulable") for i in range(3)]
    end = attempt("a", "n1", 9.0)

    found = compare([*tries, end], [*tries[:2], end])

    assert shown(found) == [("a", ("unschedulable", ""), None)]
    assert found.same == 3


def test_another_order_of_equal_attempts_is_named_and_is_no_difference():
    first = [attempt("a", "n1", 1.0), attempt("b", "n1", 2.0), attempt("c", "n1", 3.0)]
    second = [attempt("b", "n1", 1.0), attempt("a", "n1", 2.0), attempt("c", "n1", 3.0)]

    found = compare(first, second)

    assert found.differences == []
    assert found.reordered is not None
    assert (found.reordered.first.role, found.reordered.second.role) == ("a", "b")


def test_attempts_that_one_run_has_alone_do_not_make_the_others_change_places():
    first = [attempt("x", "n1", 0.5), attempt("a", "n1", 1.0), attempt("b", "n1", 2.0)]

    assert compare(first, first[1:]).reordered is None


def test_very_many_decisions_about_one_role_are_compared_one_by_one():
    tries = [attempt("a", at_s=float(i), outcome="unschedulable") for i in range(ALIGNED_MAX + 10)]

    found = compare(tries, [attempt("a", "n1", 0.0), *tries[1:]])

    assert shown(found) == [("a", ("unschedulable", ""), ("scheduled", "n1"))]


def test_roles_are_ordered_as_people_count():
    assert sorted(["web#10", "web#2", "pod/a"], key=in_order) == ["pod/a", "web#2", "web#10"]


decisions = st.lists(
    st.builds(
        Decision,
        st.sampled_from([0.5, 1.0, 2.0]),
        st.sampled_from("abc"),
        st.sampled_from(["sched.attempt", "kubelet.reject"]),
        st.sampled_from(["x", "y"]),
    ),
    max_size=8,
)


@given(decisions, decisions)
def test_every_decision_is_counted_once_and_either_side_gives_the_mirror_image(first, second):
    found, mirrored = compare(first, second), compare(second, first)

    for side, count in enumerate(found.counts):
        alone = sum((d.first, d.second)[side] is not None for d in found.differences)
        assert found.same + alone == count
    assert compare(first, list(first)).differences == []
    assert bool(found.differences) == bool(mirrored.differences)
