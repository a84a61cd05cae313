"""Ephemeral containers on a node: they start beside all else, never again, and count for nothing."""

import msgspec
import pytest

from kubelet.effects import PodEnded
from kubelet.view import KubeletContainer
from tests.unit.kubelet.pod.test_pod import Life


def joined(pod, *names):
    ephemerals = tuple(KubeletContainer(name=name, image="busybox") for name in names)
    spec = msgspec.structs.replace(pod.spec, ephemeral_containers=ephemerals)
    metadata = msgspec.structs.replace(pod.metadata, generation=pod.metadata.generation + 1)
    return msgspec.structs.replace(pod, spec=spec, metadata=metadata)


def guest(life):
    return life.status["ephemeralContainerStatuses"][0]


def test_one_that_joins_is_started_and_changes_nothing_else(a_pod):
    pod = a_pod()
    life = Life(pod).run(10)
    assert "ephemeralContainerStatuses" not in life.status
    before = life.status

    life.take(life.worker.update(joined(pod, "debugger"), 10))
    life.run(20)

    assert life.recorded("Started") == [0, 10]
    assert "running" in guest(life)["state"]
    assert guest(life)["ready"] is False
    assert life.status["containerStatuses"] == before["containerStatuses"]
    assert life.worker.conditions["Ready"].status == "True"


def test_it_starts_even_while_an_init_container_holds_up_the_pod(a_pod):
    pod = a_pod(spec={"initContainers": [{"name": "i", "command": ["sleep", "100"]}]})
    life = Life(pod).run(5)

    life.take(life.worker.update(joined(pod, "debugger"), 5))

    assert "running" in guest(life)["state"]
    assert life.status["phase"] == "Pending"
    life.run(101)
    assert life.status["phase"] == "Running"


def test_one_that_ends_is_not_started_again(a_pod):
    pod = joined(a_pod(metadata={"annotations": {"keplab.dev/run.debugger": "exit 3 after 5s"}}), "debugger")
    life = Life(pod).run(100)

    assert guest(life)["state"]["terminated"]["exitCode"] == 3
    assert guest(life)["restartCount"] == 0
    assert life.status["phase"] == "Running"


def test_the_pod_does_not_wait_for_it_and_stops_it(a_pod):
    pod = joined(a_pod(run="exit 0 after 5s", spec={"restartPolicy": "Never"}), "debugger")
    life = Life(pod).run(60)

    assert life.at(PodEnded) == [5]
    assert life.status["phase"] == "Succeeded"
    assert "terminated" in guest(life)["state"]


def test_a_restarted_kubelet_finds_it_running(a_pod):
    pod = joined(a_pod(), "debugger")
    before = Life(pod).run(30)

    after = Life(pod, adopt=before.record, now=50)

    assert after.recorded("Started") == []
    assert "running" in guest(after)["state"]


@pytest.mark.parametrize("name", ["debugger", "main"])
def test_a_restarted_kubelet_finds_ended_what_an_attached_client_has_ended(a_pod, name):
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}, {"name": "other", "image": "i"}]}
    pod = joined(a_pod(spec=spec), "debugger")
    before = Life(pod).run(30)
    before.take(before.worker.process_ended(name, 3, 30.0))

    after = Life(pod, adopt=before.record, now=50)

    shown = [*after.status["containerStatuses"], *after.status["ephemeralContainerStatuses"]]
    ended = {each["name"]: each["state"]["terminated"]["exitCode"] for each in shown if "terminated" in each["state"]}
    assert ended == {name: 3}
