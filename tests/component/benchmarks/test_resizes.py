"""The workload of KEP-5836's performance risk: new pods beside deferred resizes that nothing helps."""

import sys

import pytest

from lab.benchmarks.algorithm import Play, bench_algorithm
from lab.benchmarks.workloads import documents
from lab.benchmarks.workloads.register import workload
from services.api.switches import Switches

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


def calls_a_new_pod(*assignments):
    """Count the Python functions that are called to take in, place and bind a new pod."""
    chosen, pods_n = workload("DeferredResizes"), 60
    size = chosen.size(20, pods=pods_n)
    play = Play(chosen, size, Switches.parse(assignments), lambda what, done, total: None)
    step = play.prepare()
    algorithm = play.algorithm
    pods = [algorithm.decode(pod) for pod in documents.pods_of(chosen.ops[step], step, size, is_stored=True)]
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    for number, pod in enumerate(pods):
        sys.setprofile(count if number >= 10 else None)  # the first ones fill what is remembered
        algorithm.add_pod(pod)
        algorithm.rest()
    sys.setprofile(None)
    assert len(algorithm.bound) == pods_n
    return calls / (pods_n - 10)


@pytest.mark.parametrize("generation", ["G0", "G3", "G4"])
def test_kep_5836_20_deferred_pods_make_the_work_for_a_new_pod_hardly_larger(generation):
    without = calls_a_new_pod()

    beside = calls_a_new_pod(GATE, f"resize.generation={generation}")

    assert beside < 1.03 * without
