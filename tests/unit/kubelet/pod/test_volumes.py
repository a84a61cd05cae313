"""Volumes of claims: when they are there, and how many a node can attach. Virtual time is a plain number."""

import pytest

from kubelet.effects import AttachGivenUp, AttachVolumes, PodRejected, RecordEvent, StartFailed
from kubelet.runtime.volumes import NodeVolumes
from services.api.meta import Key
from tests.unit.kubelet.pod.test_pod import Life

LATENCY = ("all=constant:0", "mount=constant:0.1", "attach=constant:3", "mount-claim=constant:0.5")


def with_claim(a_pod, name, claim):
    return a_pod(name, spec={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]})


def started_s(pod, volumes, now=0.0):
    life = Life(pod, latency=LATENCY, now=now, volumes=volumes).run(now + 60)
    return life.recorded("Started")[0] - now


def test_kubelet_8_a_claim_is_attached_and_mounted_and_attached_once_a_node(a_pod):
    here = NodeVolumes()

    took = [
        started_s(a_pod("plain"), here),
        started_s(with_claim(a_pod, "first", "db"), here),
        started_s(with_claim(a_pod, "second", "db"), here, 100.0),
        started_s(with_claim(a_pod, "other", "logs"), here, 200.0),
    ]

    assert took == pytest.approx([0.1, 3.5, 0.5, 3.5])


def test_a_claim_is_detached_when_its_last_pod_is_over(a_pod):
    here, first = NodeVolumes(limit=1), with_claim(a_pod, "first", "db")
    life = Life(first, latency=LATENCY, volumes=here).run(10)

    refused = Life(with_claim(a_pod, "late", "logs"), latency=LATENCY, volumes=here).run(10)
    assert [each.reason for _, each in refused.log if isinstance(each, PodRejected)] == [
        "VolumeAttachmentLimitExceeded"
    ]
    here.release(life.worker.key)

    assert started_s(with_claim(a_pod, "later", "logs"), here, 20.0) == pytest.approx(3.5)


# --- volumes that the attach/detach controller attaches ---


def controlled(a_pod, *claims):
    volumes = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": name}} for number, name in enumerate(claims)
    ]
    here = NodeVolumes(is_controlled=True)
    return Life(a_pod(spec={"volumes": volumes}), latency=LATENCY, volumes=here).run(0.0)


def failures(life):
    return [(t, each.message) for t, each in life.log if isinstance(each, RecordEvent) and each.reason == "FailedMount"]


def unmounted(names, *, problem, unattached="", unprocessed=""):
    return (
        f"Unable to attach or mount volumes: unmounted volumes=[{names}], unattached volumes=[{unattached}], "
        f"failed to process volumes=[{unprocessed}]: {problem}"
    )


def test_a_pod_waits_for_the_controller_and_mounts_what_it_has_attached(a_pod):
    life = controlled(a_pod, "db")
    assert life.run(30.0).at(AttachVolumes) == [0.0]
    assert life.recorded("Started") == []

    life.take(life.worker.volumes_attached((Key("default", "db"),), 30.0))

    assert life.run(60.0).recorded("Started") == [30.5]


def test_claims_that_no_controller_attaches_are_attached_by_the_node_itself(a_pod):
    life = controlled(a_pod, "db", "local")

    life.take(life.worker.volumes_attached((Key("default", "db"),), 10.0))

    assert life.run(60.0).recorded("Started") == [13.5]


def test_a_pod_whose_volumes_are_not_attached_waits_again_without_an_event(a_pod):
    life = controlled(a_pod, "db", "logs")
    life.worker.startup.unattached = (Key("default", "logs"),)

    life.run(130.0)

    assert (failures(life), life.at(AttachGivenUp)) == ([], [123.0])
    assert len(life.run(140.0).at(AttachVolumes)) == 2


def test_the_second_wait_in_vain_says_which_volumes_are_not_attached_to_who_may_unbind_the_pod(a_pod):
    life = controlled(a_pod, "db", "logs")
    life.worker.startup.unattached = (Key("default", "logs"),)

    life.run(270.0)

    messages = [each.message for _, each in life.log if isinstance(each, StartFailed)]
    assert messages == [unmounted("v0 v1", unattached="v1", problem="context deadline exceeded")]


def test_a_pod_whose_claims_cannot_be_read_says_that_no_volume_could_be_processed(a_pod):
    life = controlled(a_pod, "db").run(5.0)

    life.take(life.worker.volumes_failed("not now", 5.0))

    assert failures(life) == [(5.0, unmounted("v0", unprocessed="v0", problem="not now"))]


def test_what_is_said_of_volumes_counts_only_while_the_pod_waits_for_them(a_pod):
    started, leaving = controlled(a_pod, "db"), controlled(a_pod, "db")
    attached = (Key("default", "db"),)
    started.take(started.worker.volumes_attached(attached, 1.0))
    started.run(10.0)
    leaving.take(leaving.worker.terminate(1.0, 0, "deleted"))

    for life in (started, leaving):
        life.take(life.worker.volumes_failed("late", 11.0))
        life.take(life.worker.volumes_attached(attached, 11.0))
        life.run(60.0)

    assert (failures(started), failures(leaving)) == ([], [])
    assert (started.recorded("Started"), leaving.recorded("Started")) == ([1.5], [])
