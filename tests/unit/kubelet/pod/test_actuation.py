"""How a resize is carried out: which calls, in which order, and what stands in the way."""

import pytest

from kubelet.pod.actuation import (
    POD,
    Call,
    memory_error,
    memory_in_use,
    must_restart,
    plan,
    resources_after_call,
    size_text,
)
from kubelet.runtime.resources import PodResources, is_same, resources_of
from services.api.kinds.pod import Container, ContainerResizePolicy, ResourceRequirements
from services.api.metrics.usage import memory_used


def size(level=None, **containers):
    """Limits (and requests as large) by container: `a={"memory": "1Gi"}`."""

    def of(values):
        return ResourceRequirements(requests=values, limits=values)

    return PodResources({name: of(values) for name, values in containers.items()}, None if level is None else of(level))


def calls(before, after):
    return [(c.resource, c.container) for c in plan(before, after, list(before.containers))]


def test_memory_comes_before_cpu_and_smaller_before_bigger():
    before = size(a={"cpu": "1", "memory": "1Gi"}, b={"cpu": "1", "memory": "1Gi"})
    after = size(a={"cpu": "2", "memory": "2Gi"}, b={"cpu": "500m", "memory": "512Mi"})

    assert calls(before, after) == [("memory", "b"), ("memory", "a"), ("cpu", "b"), ("cpu", "a")]


def test_what_does_not_change_is_not_called():
    before = size(a={"cpu": "500m"}, b={"cpu": "1"})

    assert calls(before, size(a={"cpu": "0.5"}, b={"cpu": "2"})) == [("cpu", "b")]


@pytest.mark.parametrize(
    ("level", "order"),
    [("3Gi", [POD, "b", "a"]), ("1Gi", ["b", POD, "a"]), ("2Gi", ["b", "a"])],
    ids=["raised first", "lowered between", "unchanged"],
)  # fmt: skip
def test_the_pods_own_limit_is_raised_first_and_lowered_once_containers_are_smaller(level, order):
    before = size({"memory": "2Gi"}, a={"memory": "256Mi"}, b={"memory": "1Gi"})
    after = size({"memory": level}, a={"memory": "512Mi"}, b={"memory": "512Mi"})

    assert [name for _, name in calls(before, after)] == order


def test_the_calls_lead_to_what_is_allocated():
    before = size({"memory": "2Gi"}, a={"cpu": "1", "memory": "1Gi"}, b={"cpu": "1"})
    after = size({"memory": "3Gi"}, a={"cpu": "2", "memory": "512Mi"}, b={"cpu": "1", "memory": "1Gi"})

    now = before
    for call in plan(before, after, ["a", "b"]):
        assert not is_same(now, after)
        now = resources_after_call(now, after, call)

    assert is_same(now, after)


def test_one_call_leaves_the_other_resource_as_it_was():
    before, after = size(a={"cpu": "1", "memory": "1Gi"}), size(a={"cpu": "2", "memory": "2Gi"})

    now = resources_after_call(before, after, Call("cpu", "a"))

    assert now.of("a").limits == {"memory": "1Gi", "cpu": "2"}


def test_kep_1287_02_one_resource_that_asks_for_it_restarts_the_container():
    policy = (ContainerResizePolicy("cpu", "NotRequired"), ContainerResizePolicy("memory", "RestartContainer"))
    container = Container(name="a", resize_policy=policy)
    before = size(a={"cpu": "1", "memory": "1Gi"})

    assert must_restart(container, before, size(a={"cpu": "1", "memory": "2Gi"}))
    assert must_restart(container, before, size(a={"cpu": "2", "memory": "2Gi"}))
    assert not must_restart(container, before, size(a={"cpu": "2", "memory": "1Gi"}))
    assert not must_restart(Container(name="a"), before, size(a={"cpu": "2", "memory": "2Gi"}))


def test_kep_1287_19_a_container_without_a_limit_feels_its_pods():
    container = Container(name="a", resize_policy=(ContainerResizePolicy("memory", "RestartContainer"),))
    before, after = {"memory": "1Gi"}, {"memory": "2Gi"}

    assert must_restart(container, size(before, a={}), size(after, a={}))
    assert not must_restart(container, size(before, a={"memory": "256Mi"}), size(after, a={"memory": "256Mi"}))


def test_kep_1287_13_a_limit_below_what_is_in_use_says_so_for_pod_and_container():
    error = memory_error(size(main={"memory": "512Mi"}), size(main={"memory": "256Mi"}), {"main": 400 << 20})

    assert error == (
        "cannot decrease memory limits: [attempting to set pod memory limit (268435456) below current usage "
        '(419430400), attempting to set container "main" memory limit (268435456) below current usage (419430400)]'
    )


def test_one_problem_alone_stands_without_brackets_and_growth_is_no_problem():
    used = {"a": 400 << 20, "b": 0}
    before = size(a={"memory": "512Mi"}, b={"memory": "512Mi"})

    alone = memory_error(before, size(a={"memory": "256Mi"}, b={"memory": "512Mi"}), used)

    assert alone == (
        'cannot decrease memory limits: attempting to set container "a" memory limit (268435456) '
        "below current usage (419430400)"
    )
    assert memory_error(before, size(a={"memory": "1Gi"}, b={"memory": "512Mi"}), used) == ""


def test_memory_in_use_is_what_the_annotations_say_and_nothing_when_they_cannot_be_read(a_pod):
    said = {"keplab.dev/memory": "1Mi", "keplab.dev/memory.a": "2Mi", "keplab.dev/memory.b": "much"}
    pod = a_pod(metadata={"annotations": said})

    assert [memory_used(pod.metadata.annotations, name) for name in ("a", "b", "c")] == [2 << 20, 0, 1 << 20]


def test_memory_in_use_follows_the_curves_where_they_give_it(a_pod):
    said = {"keplab.dev/memory": "1Mi", "keplab.dev/usage.a": "memory 2Mi; memory 4Mi by 10s"}
    pod = a_pod(metadata={"annotations": said})

    assert [memory_in_use(pod, "a", age_s) for age_s in (0.0, 5.0, 60.0)] == [2 << 20, 3 << 20, 4 << 20]
    assert memory_in_use(pod, "b", 5.0) == 1 << 20


def test_what_events_carry_is_json_of_containers_generation_and_error(a_pod):
    pod = a_pod(cpu="1", limits=False)

    assert size_text(pod, resources_of(pod), 3, "no") == (
        '{"containers":[{"name":"main","resources":{"requests":{"cpu":"1"}}}],"generation":3,"error":"no"}'
    )
