"""What the runtime of a node holds when nothing is known of it but what the statuses of its pods report."""

import json

import pytest

from kubelet.runtime.records import ContainerRecord
from kubelet.runtime.runtime_state import reported_record, taken_over
from services.api.kinds.pod import BEGAN

BASE_S = 1_767_225_600.0
"""2026-01-01T00:00:00Z: when the node's own clock was at zero."""


def at(second):
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"


def running(name="main", since=10, restarts=0, **more):
    return {"name": name, "restartCount": restarts, "state": {"running": {"startedAt": at(since)}}, **more}


def ended(name="main", since=10, until=20, code=0, restarts=0, key="state"):
    return {
        "name": name,
        "restartCount": restarts,
        key: {"terminated": {"exitCode": code, "startedAt": at(since), "finishedAt": at(until)}},
    }


def record(a_pod, *statuses, inits=(), ephemerals=(), phase="Running", start="2026-01-01T00:00:05Z", **pod):
    status = {
        "phase": phase,
        "podIP": "10.0.0.7",
        "containerStatuses": list(statuses),
        "initContainerStatuses": list(inits),
        "ephemeralContainerStatuses": list(ephemerals),
        **({"startTime": start} if start else {}),
    }
    return reported_record(a_pod(status=status, **pod), (), BASE_S)


def test_a_pod_whose_containers_run_goes_on_since_they_started(a_pod):
    found = record(a_pod, running(since=10, restarts=3))

    assert (found.node, found.uid, found.generation, found.namespace, found.name) == ("n1", "uid-p", 2, "default", "p")
    assert (found.pod_ip, found.start_s) == ("10.0.0.7", 5.0)
    assert found.containers == [ContainerRecord("main", 10.0, 3)]


def test_a_pod_without_a_start_time_began_with_the_clock(a_pod):
    assert record(a_pod, running(), start="").start_s == 0.0


@pytest.mark.parametrize(
    ("phase", "statuses"),
    [("Pending", ()), ("Pending", ({"name": "main", "state": {"waiting": {}}},)), ("Succeeded", (ended(),)), ("Failed", (running(),))],
)  # fmt: skip
def test_of_a_pod_of_which_nothing_ran_or_that_is_over_there_is_no_record(a_pod, phase, statuses):
    assert record(a_pod, *statuses, phase=phase) is None


@pytest.mark.parametrize(
    ("policy", "code", "is_over"),
    [("Never", 0, True), ("Never", 1, True), ("OnFailure", 0, True), ("OnFailure", 1, False), ("Always", 0, False)],
)
def test_a_container_has_ended_for_good_only_where_it_is_not_started_again(a_pod, policy, code, is_over):
    (found,) = record(a_pod, ended(code=code, restarts=1), spec={"restartPolicy": policy}).containers

    assert (found.started_s, found.restarts) == (10.0, 1)
    assert (found.exit_code, found.finished_s) == ((code, 20.0) if is_over else (-1, 0.0))


def test_a_container_that_waits_to_be_started_again_is_known_by_its_last_run(a_pod):
    status = {**ended(key="lastState", code=1, restarts=2), "state": {"waiting": {"reason": "CrashLoopBackOff"}}}

    (found,) = record(a_pod, status, spec={"restartPolicy": "Never"}).containers

    assert (found.started_s, found.exit_code) == (10.0, -1)


def test_init_containers_are_started_again_after_failures_alone_and_those_added_later_never(a_pod):
    spec = {
        "initContainers": [{"name": "setup"}, {"name": "retried"}, {"name": "side", "restartPolicy": "Always"}],
        "ephemeralContainers": [{"name": "debug"}],
    }
    found = record(
        a_pod,
        running(),
        inits=[ended("setup"), ended("retried", code=1), ended("side")],
        ephemerals=[ended("debug", code=1)],
        spec=spec,
    )

    assert [(each.name, each.exit_code) for each in found.containers] == [
        ("setup", 0), ("retried", -1), ("side", -1), ("main", -1), ("debug", 1),
    ]  # fmt: skip


def test_what_a_status_says_of_a_size_counts_before_what_the_pod_asks_for(a_pod):
    containers = [{"name": name, "resources": {"requests": {"cpu": "1"}}} for name in ("main", "other")]
    shown = running(resources={"requests": {"cpu": "250m"}})

    found = record(a_pod, shown, running("other"), containers=containers)

    assert {name: each.requests for name, each in found.allocated.containers.items()} == {
        "main": {"cpu": "250m"}, "other": {"cpu": "1"},
    }  # fmt: skip


def imported(a_pod, reported, status=None, **pod):
    annotations = {BEGAN: reported if isinstance(reported, str) else json.dumps(reported)}
    status = {"phase": "Pending", "bindingGeneration": 0, **(status or {})}
    return taken_over(a_pod(metadata={"annotations": annotations}, status=status, **pod))


def test_a_pod_that_was_imported_while_it_ran_has_the_status_that_was_reported_of_it(a_pod):
    found = imported(a_pod, {"startTime": at(5), "containerStatuses": [running(since=10, restarts=3)]})

    assert (found.status.start_time, found.status.container_statuses[0].restart_count) == (at(5), 3)
    assert found.status.phase == "Pending", "the API server shows what it shows"


@pytest.mark.parametrize(
    ("reported", "status", "pod"),
    [
        ({"containerStatuses": [running()]}, {"phase": "Running", "startTime": at(1)}, {}),
        ({"containerStatuses": [running()]}, {"phase": "Pending", "bindingGeneration": 2}, {}),
        ({"containerStatuses": [running()]}, {"phase": "Failed"}, {}),
        ({"containerStatuses": [running()]}, None, {"spec": {"resourceClaims": [{"name": "gpu"}]}}),
        ({"containerStatuses": [{**running(), "state": {"running": {"startedAt": "soon"}}}]}, None, {}),
        ("{", None, {}),
        ("[]", None, {}),
    ],
    ids=["reported here already", "bound again", "over", "with claims", "no time", "no JSON", "no object"],
)
def test_what_cannot_be_taken_over_starts_anew(a_pod, reported, status, pod):
    assert imported(a_pod, reported, status, **pod) is None
