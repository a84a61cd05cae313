"""Which pods are ended when a node shuts down. Time is a plain number."""

import pytest

from kubelet.node.shutdown import Period, Shutdown, group_of, plain_periods
from kubelet.view import WorkerKey

CRITICAL = 2_000_000_000


def key(pod):
    return WorkerKey(pod.metadata.uid, 2)


def pods_of(a_pod, *priorities, grace_s=30):
    spec = {"terminationGracePeriodSeconds": grace_s}
    pods = [a_pod(f"p{i}", spec={**spec, "priority": priority}) for i, priority in enumerate(priorities)]
    return [(key(pod), pod) for pod in pods]


@pytest.mark.parametrize(
    ("priority", "place"), [(-5, 0), (0, 0), (999, 0), (1000, 1), (99_999, 1), (100_000, 2), (CRITICAL, 2)]
)
def test_a_priority_belongs_to_the_highest_period_that_is_not_above_it(priority, place):
    periods = (Period(0, 10), Period(1000, 20), Period(100_000, 30))

    assert group_of(priority, periods) == place


def test_ordinary_pods_go_first_and_critical_ones_have_the_rest_of_the_time(a_pod):
    pods = pods_of(a_pod, 0, CRITICAL)
    over = set()
    plan = Shutdown(plain_periods(30, 10), pods)

    first = plan.step(0.0, over.__contains__)
    waits = plan.step(5.0, over.__contains__)
    over.add(pods[0][0])
    second = plan.step(5.0, over.__contains__)
    over.add(pods[1][0])
    last = plan.step(6.0, over.__contains__)

    assert first == (((pods[0][0], 20.0),), 20.0)
    assert waits == ((), 20.0)
    assert second == (((pods[1][0], 10.0),), 15.0)
    assert last == ((), None)


def test_a_pod_whose_own_grace_period_is_shorter_has_no_longer(a_pod):
    plan = Shutdown(plain_periods(30, 10), pods_of(a_pod, 0, grace_s=3))

    assert plan.step(0.0, lambda _: False).ending[0][1] == 3.0


def test_a_group_that_is_not_over_in_its_time_is_left_behind(a_pod):
    plan = Shutdown((Period(0, 10), Period(1000, 5)), pods_of(a_pod, 0, 1000))
    plan.step(0.0, lambda _: False)

    second = plan.step(10.0, lambda _: False)

    assert [k.uid for k, _ in second.ending] == ["uid-p1"]
    assert plan.step(15.0, lambda _: False) == ((), None)


def test_the_shutdown_skips_a_priority_that_no_pod_has(a_pod):
    plan = Shutdown((Period(0, 10), Period(1000, 5)), pods_of(a_pod, 1000))

    assert plan.step(0.0, lambda _: False).ending[0][1] == 5.0


def test_without_periods_there_is_no_time_at_all(a_pod):
    assert Shutdown(plain_periods(0, 0), pods_of(a_pod, 0)).step(0.0, lambda _: False) == ((), None)


@pytest.mark.parametrize(
    "fields",
    [
        {"shutdownGracePeriod": 10, "shutdownGracePeriodCriticalPods": 20},
        {"shutdownGracePeriod": 0.5},
        {
            "shutdownGracePeriod": 10,
            "shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 5}],
        },
        {"shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 5}] * 2},
    ],
)
def test_periods_that_contradict_each_other_are_refused(a_node, fields):
    with pytest.raises(ValueError, match="shutdownGracePeriod"):
        a_node(**fields)
