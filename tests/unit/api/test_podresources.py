"""What a pod asks for, over containers, init containers, sidecars, pod level and overhead."""

import msgspec
import pytest

from services.api.kinds.pod import Pod
from services.api.podresources import pod_requests, qos_class


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
