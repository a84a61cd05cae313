"""Pods that are deleted without a machine on the node: what is written of them, and when the object may go (kubelet 3.4)."""

import pytest

from kubelet.effects import DeletePod
from kubelet.view import worker_key
from tests.unit.kubelet.test_metrics import a_kubelet

DELETED = {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 30}


def deletions(kubelet):
    return [(each.key.uid, each.grace_s) for each in kubelet.out.effects if isinstance(each, DeletePod)]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_that_never_ran_here_goes_as_soon_as_it_is_deleted(a_pod, phase):
    kubelet, status = a_kubelet(), {"phase": phase}
    finished = a_pod(status=status)
    kubelet.pod_changed(None, finished, "", 0.0)
    kubelet.settle(0.0)
    before = deletions(kubelet)

    for _ in range(2):
        kubelet.pod_changed(finished, a_pod(status=status, metadata=DELETED), "", 1.0)

    assert (before, deletions(kubelet)) == ([], [("uid-p", 0)])


def test_a_finished_pod_that_is_seen_first_while_it_is_being_deleted_goes_too(a_pod):
    kubelet = a_kubelet()

    kubelet.pod_changed(None, a_pod(status={"phase": "Failed"}, metadata=DELETED), "", 0.0)
    kubelet.settle(0.0)

    assert deletions(kubelet) == [("uid-p", 0)]


def test_a_pod_that_is_deleted_before_anything_of_it_ran_is_failed_first(a_pod):
    kubelet, pod = a_kubelet(), a_pod(metadata=DELETED)

    kubelet.pod_changed(None, pod, "", 0.0)
    kubelet.settle(0.0)
    write = kubelet.statuses.next_write(0.0)
    before = deletions(kubelet)
    kubelet.statuses.status_written(write, 200, "", 1.0)

    assert (write.key, write.status) == (worker_key(pod), {"phase": "Failed", "observedGeneration": 2})
    assert (before, deletions(kubelet)) == ([], [("uid-p", 0)])
