"""What `kubectl get pods` prints: status, readiness and restarts as upstream's `printPod`."""

import pytest

from services.api.kinds.pod import RESOURCE
from services.api.printing import cells

NOW = 1_767_225_610.0  # 2026-01-01T00:00:10Z


def row(status, spec=None, **meta):
    pod = {"metadata": {"name": "p", **meta}, "spec": {"containers": [{"name": "c"}], **(spec or {})}, "status": status}
    return cells(RESOURCE.columns, pod, NOW)[1:4]


def ended(code, at="2026-01-01T00:00:03Z", **more):
    return {"terminated": {"exitCode": code, "finishedAt": at, **more}}


def test_restarts_say_how_long_ago_the_newest_was():
    status = {"phase": "Running", "containerStatuses": [
        {"name": "a", "restartCount": 2, "lastState": ended(1), "ready": True, "state": {"running": {}}},
        {"name": "b", "restartCount": 1, "lastState": ended(1, "2026-01-01T00:00:08Z"), "state": {"running": {}}},
    ]}  # fmt: skip
    spec = {"containers": [{"name": "a"}, {"name": "b"}]}
    assert row(status, spec) == ["1/2", "Running", "3 (2s ago)"]


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ({"running": {}}, "Init:0/2"),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, "Init:CrashLoopBackOff"),
        ({"waiting": {"reason": "PodInitializing"}}, "Init:0/2"),
        (ended(2), "Init:ExitCode:2"),
        (ended(137, reason="OOMKilled"), "Init:OOMKilled"),
        (ended(0), "Init:1/2"),
    ],
)
def test_a_pod_that_is_initializing_says_how_far_it_is(state, shown):
    spec = {"initContainers": [{"name": "i"}, {"name": "j"}]}
    waiting = {"state": {"waiting": {"reason": "PodInitializing"}}}
    statuses = [{"name": "i", "restartCount": 1, "state": state}, {"name": "j", **waiting}]
    status = {"phase": "Pending", "initContainerStatuses": statuses, "containerStatuses": [{"name": "c", **waiting}]}
    assert row(status, spec)[1] == shown


def test_a_sidecar_counts_as_a_container():
    spec = {"initContainers": [{"name": "s", "restartPolicy": "Always"}]}
    sidecar = {"name": "s", "started": True, "ready": True, "state": {"running": {}}}
    main = {"name": "c", "ready": True, "state": {"running": {}}}
    status = {"phase": "Running", "initContainerStatuses": [sidecar], "containerStatuses": [main]}
    assert row(status, spec) == ["2/2", "Running", "0"]


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({"phase": "Running"}, "Terminating"),
        ({"phase": "Succeeded"}, "Succeeded"),
        ({"phase": "Running", "reason": "NodeLost"}, "Unknown"),
    ],
)
def test_a_pod_that_is_being_deleted_says_so_until_it_has_ended(status, shown):
    assert row(status, deletionTimestamp="2026-01-01T00:00:00Z")[1] == shown
