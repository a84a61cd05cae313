"""The emulated external-attacher: finalizers, how long its drivers take, and calls that fail."""

import pytest

from services.controllers.csi_attacher.controller import CONTROLLER
from services.reconcile.actions import Patch

OURS = "external-attacher/disk-example-com"
GONE = "2026-01-01T00:00:00Z"


def a_driver(failures="0"):
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
            "metadata": {"name": "disk.example.com", "annotations": {"keplab.dev/attach-failures": failures}}}  # fmt: skip


def a_volume(driver="disk.example.com", **metadata):
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv", **metadata},
            "spec": {"csi": {"driver": driver, "volumeHandle": "h"}}}  # fmt: skip


def an_attachment(*, attached=False, **metadata):
    return {
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "va", **metadata},
        "spec": {"attacher": "disk.example.com", "nodeName": "n1", "source": {"persistentVolumeName": "pv"}},
        "status": {"attached": attached},
    }  # fmt: skip


@pytest.fixture
def world(world_of):
    made = world_of(CONTROLLER)
    made.put(a_driver())
    made.put(a_volume(finalizers=[OURS]))
    return made


def look(world, key="attachment/va", after_s=0.0):
    return world.reconcile(key, namespace="", after_s=after_s)


def patches(result):
    return [(a.resource, a.subresource, a.patch) for a in result.actions if isinstance(a, Patch)]


def test_the_attachment_and_its_volume_are_kept_before_the_driver_is_done(world):
    world.put(a_volume())
    world.put(an_attachment())

    first = look(world)

    assert [(resource, sub) for resource, sub, _ in patches(first)] == [
        ("persistentvolumes", ""), ("volumeattachments.storage.k8s.io", "")]  # fmt: skip
    assert all(patch["metadata"]["finalizers"] == [OURS] for _, _, patch in patches(first))
    assert first.requeue_after_s == 3.0


def test_a_volume_is_attached_after_the_drivers_time(world):
    world.put(an_attachment(finalizers=[OURS]))
    assert look(world).requeue_after_s == 3.0
    assert look(world, after_s=2.0).requeue_after_s == 1.0

    done = look(world, after_s=1.0)

    assert patches(done)[0][1:] == ("status", {"status": {"attached": True, "attachError": None}})


def test_calls_that_fail_are_reported_and_repeated_later_and_later(world):
    world.put(a_driver(failures="2"))
    world.put(an_attachment(finalizers=[OURS]))
    look(world)
    waits = []
    for after_s in (3.0, 4.0):
        failed = look(world, after_s=after_s)
        assert patches(failed)[0][2]["status"]["attachError"]["message"].startswith("rpc error: code = Internal")
        waits.append(failed.requeue_after_s)
    assert waits == [4.0, 5.0]
    assert patches(look(world, after_s=5.0))[0][2]["status"]["attached"] is True


def test_an_attachment_of_another_driver_is_not_touched(world):
    world.put(a_volume(driver="other.example.com"))
    world.put(an_attachment())
    assert look(world).actions == ()


def test_an_attachment_that_is_deleted_goes_when_the_driver_has_detached(world):
    world.put(an_attachment(attached=True, finalizers=[OURS, "a/b"], deletionTimestamp=GONE))
    assert look(world).requeue_after_s == 3.0
    assert patches(look(world, after_s=3.0))[0][2] == {"metadata": {"finalizers": ["a/b"]}}


def test_a_volume_goes_when_its_last_attachment_is_gone(world):
    world.put(an_attachment(attached=True, finalizers=[OURS]))
    world.put(a_volume(finalizers=[OURS], deletionTimestamp=GONE))
    assert look(world, "volume/pv").actions == ()

    (key,) = world.drop("VolumeAttachment", "va", api_version="storage.k8s.io/v1")
    assert patches(look(world, key.name))[0][2] == {"metadata": {"finalizers": None}}
