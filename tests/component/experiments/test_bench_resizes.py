"""The workload of KEP-5836's performance risk: new pods beside deferred resizes that nothing helps."""

import pytest

from services.experiments.bench.algorithm import bench_algorithm
from services.experiments.workloads.register import workload

GATE = "InPlacePodVerticalScalingSchedulerPreemption=true"


def play(name, *assignments):
    chosen = workload(name)
    return bench_algorithm(chosen, chosen.size(20, pods=100), assignments=assignments)


def test_kep_5836_20_new_pods_come_and_no_deferred_resize_is_tried_again():
    result = play("DeferredResizes", GATE)

    assert (result.init_pods, result.pods) == (200, 100)
    assert result.resize_attempts == 200  # each once, when it was deferred
    assert result.evicted == 0


def test_kep_5836_20_woken_by_any_event_they_are_tried_for_nothing_again_and_again():
    result = play("DeferredResizes", GATE, "resize.retry_scope=any_event")

    assert result.resize_attempts > 2 * 200
    assert result.p99_ms > 0


def test_a_pod_that_leaves_wakes_only_those_of_its_node():
    result = play("DeferredResizesChurn", GATE)

    leaving = 10  # in the second that 100 pods at 100 a second take
    assert 200 < result.resize_attempts <= 200 + 10 * (leaving + 1)


@pytest.mark.parametrize("name", ["DeferredResizes", "DeferredResizesChurn"])
def test_without_the_feature_the_same_pods_are_placed(name):
    result = play(name)

    assert (result.resize_attempts, result.unschedulable_attempts) == (0, 0)
