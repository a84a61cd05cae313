"""Volumes of claims: when they are there, and how many a node can attach. Virtual time is a plain number."""

import pytest

from kubelet.effects import PodRejected
from kubelet.runtime.volumes import NodeVolumes
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
