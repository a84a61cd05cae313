"""What a pod asks for, over containers, init containers, sidecars, pod level and overhead."""

import msgspec
import pytest

from services.api.kinds.pod import Pod
from services.api.podresources import as_allocated, as_in_use, pod_requests, qos_class


def _pod(**spec):
    return msgspec.convert({"spec": spec}, Pod)


def _container(cpu, *, restart="", limits=None):
    made = {"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": limits or {}}}
    return {**made, "restartPolicy": restart} if restart else made


def test_main_containers_add_up():
    assert {"cpu": 1500} == pod_requests(_pod(containers=[_container("1"), _container("500m")]))


def test_an_init_container_counts_only_where_it_is_larger():
    assert {"cpu": 3000} == pod_requests(_pod(containers=[_container("1")], initContainers=[_container("3")]))


def test_kep_753_a_sidecar_adds_to_the_main_containers_and_to_later_init_containers():
    spec = {"containers": [_container("1")], "initContainers": [_container("1", restart="Always"), _container("3")]}

    assert {"cpu": 4000} == pod_requests(_pod(**spec))


def test_kep_2837_pod_level_requests_replace_the_sum_and_overhead_is_added():
    spec = {"containers": [_container("1")], "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "250m"}}

    assert {"cpu": 4250} == pod_requests(_pod(**spec))


def test_a_limit_without_a_request_stands_for_it():
    pod = _pod(containers=[{"name": "c", "resources": {"limits": {"cpu": "2"}}}])

    assert {"cpu": 2000} == pod_requests(pod)


@pytest.mark.parametrize(
    ("resources", "wanted"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}, "Burstable"),
    ],
)
def test_the_qos_class_follows_requests_and_limits(resources, wanted):
    assert wanted == qos_class(_pod(containers=[{"name": "c", "resources": resources}]))


# --- resizes: what a pod on a node counts for ---


def resized(desired, allocated=None, actual=None, reason="", name="c"):
    status = {"name": name}
    if allocated is not None:
        status["allocatedResources"] = allocated
        status["resources"] = {"requests": allocated if actual is None else actual}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
    return msgspec.convert(
        {
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": desired}}]},
            "status": {"containerStatuses": [status], "conditions": conditions},
        },
        Pod,
    )


def cpu_in_use(*sizes, **options):
    return pod_requests(as_in_use(resized(*({"cpu": text} for text in sizes), **options)))["cpu"]


def test_a_pod_being_resized_counts_for_the_most_of_desired_allocated_and_actual():
    assert cpu_in_use("200m", "800m", "900m") == 900
    assert cpu_in_use("200m", "800m", "100m") == 800
    assert cpu_in_use("900m", "800m", "100m") == 900
    assert cpu_in_use("900m", "800m", reason="Deferred") == 900


def test_what_is_infeasible_is_not_counted():
    assert cpu_in_use("9", "400m", "500m", reason="Infeasible") == 500


def test_a_pod_whose_node_says_nothing_counts_for_its_spec():
    assert cpu_in_use("900m") == 900


def test_a_pod_that_is_as_it_asked_to_be_is_not_made_anew():
    pod = resized({"cpu": "1"}, {"cpu": "1"})

    assert as_in_use(pod) is pod
    assert as_allocated(pod) is pod


def test_as_allocated_a_pod_asks_for_what_its_node_allocated():
    assert pod_requests(as_allocated(resized({"cpu": "2"}, {"cpu": "1"}, {"cpu": "500m"})))["cpu"] == 1000


def test_a_pods_own_resources_count_by_their_status_too():
    pod = msgspec.convert(
        {
            "spec": {"nodeName": "n1", "containers": [{"name": "c"}], "resources": {"requests": {"cpu": "1"}}},
            "status": {"allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "3"}}},
        },
        Pod,
    )

    assert pod_requests(as_in_use(pod))["cpu"] == 3000
