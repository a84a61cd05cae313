"""Starts that fail, stage by stage: what is reported, when it is tried again, and what counts. Time is a plain number."""

import itertools

import pytest

from kubelet.effects import PodStarted, RecordEvent, StartFailed
from kubelet.node.health import parse_node_faults
from kubelet.pod.states import PodState
from kubelet.runtime.script import ScriptError, StartFault, StartFaults, parse_script
from tests.unit.kubelet.pod.test_pod import Life


def recorded(life):
    return [(round(t), a.reason) for t, a in life.log if isinstance(a, RecordEvent)]


def waiting(life):
    return life.container()["state"]["waiting"]["reason"]


def gaps(times):
    return [round(b - a, 3) for a, b in itertools.pairwise(times)]


def test_clauses_say_how_often_how_long_and_how_likely():
    assert parse_node_faults("sandbox fails; mount fails 2 times for 5m; start fails chance 0.25").starts == (
        StartFault("sandbox"), StartFault("mount", times=2, for_s=300.0), StartFault("start", chance=0.25),
    )  # fmt: skip


@pytest.mark.parametrize(
    "text", ["disk fails", "mount", "mount fails often", "mount fails 0 times", "mount fails chance 2"]
)
def test_a_clause_that_is_no_fault_is_refused(text):
    with pytest.raises(ValueError, match="want: STAGE fails"):
        parse_node_faults(text)


def test_a_script_may_say_them_too():
    assert parse_script("exit 0 after 5s; create fails 3 times").start_faults == (StartFault("create", times=3),)
    with pytest.raises((ScriptError, ValueError)):
        parse_script("create fails sometimes")


def test_a_fault_strikes_as_often_as_it_says_and_no_longer_than_it_lasts():
    often, long = StartFaults((StartFault("mount", times=2),)), StartFaults((StartFault("mount", for_s=60.0),), 100.0)

    assert [often.strikes("mount", t, 0.5) is None for t in (0, 1, 2)] == [False, False, True]
    assert [long.strikes("mount", t, 0.5) for t in (100, 159, 160)] == [160.0, 160.0, None]


def test_a_fault_that_is_left_to_chance_strikes_that_share_of_tries():
    faults = StartFaults((StartFault("sandbox", chance=0.3),))

    assert sum(faults.strikes("sandbox", 0, n / 100) is not None for n in range(100)) == 30


def test_a_mount_that_fails_is_waited_for_two_minutes_and_three_seconds_a_try(a_pod):
    life = Life(a_pod(run="mount fails 2 times")).run(400)

    texts = {a.message for _, a in life.log if isinstance(a, RecordEvent) and a.reason == "FailedMount"}
    tries = life.recorded("FailedMount")
    assert texts == {'MountVolume.SetUp failed for volume "kube-api-access" : mount failed: exit status 32'}
    assert (len(tries), tries[0]) == (2, 0.0)
    assert 133.0 <= tries[1] - tries[0] <= 138.0
    assert 256.0 <= life.at(PodStarted)[0] <= 276.0


def test_a_volume_that_can_be_mounted_again_is_mounted_within_the_wait(a_pod):
    life = Life(a_pod(run="attach fails for 40s")).run(100)

    assert recorded(life)[0] == (0, "FailedAttachVolume")
    assert life.at(PodStarted) == [40.0]


def test_a_sandbox_that_fails_is_made_again_after_ten_to_fifteen_seconds(a_pod):
    life = Life(a_pod(run="sandbox fails 4 times")).run(120)

    failures = life.recorded("FailedCreatePodSandBox")
    assert (failures[0], len(failures)) == (0, 4)
    assert all(10.0 <= gap <= 15.0 for gap in gaps(failures))
    assert len(set(gaps(failures))) == 3
    assert 10.0 <= life.at(PodStarted)[0] - failures[-1] <= 15.0


@pytest.mark.parametrize(
    ("stage", "reason", "events"),
    [
        ("config", "CreateContainerConfigError", ["Pulling", "Pulled", "Failed"]),
        ("create", "CreateContainerError", ["Pulling", "Pulled", "Failed"]),
        ("start", "RunContainerError", ["Pulling", "Pulled", "Created", "Failed"]),
    ],
)
def test_a_container_that_cannot_be_started_waits_and_says_why(a_pod, stage, reason, events):
    life = Life(a_pod(run=f"{stage} fails 1 time")).run(5)

    assert (waiting(life), life.status["phase"]) == (reason, "Pending")
    assert [r for _, r in recorded(life)] == events
    assert life.run(20).container()["restartCount"] == 0
    assert "running" in life.container()["state"]


def test_an_init_container_that_cannot_be_created_holds_up_the_others(a_pod):
    life = Life(
        a_pod(
            spec={"initContainers": [{"name": "first", "image": "img"}]},
            metadata={"annotations": {"keplab.dev/run.first": "create fails"}},
        )
    ).run(60)

    assert life.at(PodStarted) == []
    assert life.status["initContainerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerError"


@pytest.mark.parametrize(
    ("run", "reason", "count"),
    [
        ("mount fails", "FailedMount", 2),
        ("start fails", "RunContainerError", 5),
        ("config fails", "RunContainerError", 5),
    ],
)
def test_failures_count_until_the_pod_may_be_given_back(a_pod, run, reason, count):
    life = Life(a_pod(run=run))
    while not life.at(StartFailed):
        life.run(life.now + 1)

    failed = next(a for _, a in life.log if isinstance(a, StartFailed))
    text = "MountVolume" if reason == "FailedMount" else "Error: "
    tries = [a for _, a in life.log if isinstance(a, RecordEvent) and a.message.startswith(text)]
    assert (failed.reason, len(tries)) == (reason, count)


def test_a_sandbox_counts_for_unbinding_only_after_ten_failures_and_five_minutes(a_pod):
    life = Life(a_pod(run="sandbox fails")).run(400)

    failures = life.recorded("FailedCreatePodSandBox")
    first = life.at(StartFailed)[0]
    assert first - failures[0] >= 300.0
    assert sum(t <= first for t in failures) >= 10


def test_a_pod_that_is_deleted_while_its_volumes_are_waited_for_ends_at_once(a_pod):
    life = Life(a_pod(run="mount fails")).run(10)

    life.take(life.worker.terminate(10.0, 30.0, "deleted"))

    assert life.worker.state == PodState.TERMINATED
    assert life.status["phase"] == "Failed"
